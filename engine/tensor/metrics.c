/* metrics.c - metrics of a module, as sums
 *
 * Each metric is described by sums over samples, which add up over batches and ranks,
 * and a kind, by which actors/loops/metrics.c computes its value.  Areas under curves
 * are computed from counts in bins: exact ones would need every score of an epoch in
 * one place. */
#include <math.h>

#include "tensor/operators.h"

enum {
    CLASSES_MAX = 256,
    CURVES_MAX = 32,
    BINS = 200,
    BINS_MAX = 4096,
    CALIBRATION_BINS = 15,
};

/* ---- labels ---- */

/* Targets of the shape of the logits answer a question for each of them. */
static bool are_labels(pl_graph_t *g, pl_node_t logits, pl_node_t targets)
{
    const pl_shape_t x = pl_shape_of(g, logits), y = pl_shape_of(g, targets);
    return !g->error.code && x.rank && pl_same_shape(x, y);
}

static int64_t label_count(pl_graph_t *g, pl_node_t logits)
{
    return pl_shape_of(g, logits).rank > 1 ? pl_dim(g, logits, -1) : 1;
}

/* 1 where a label counts, else 0.  y: its targets as float32. */
static pl_node_t labels_kept(pl_graph_t *g, pl_node_t y, const pl_attr_t *attr)
{
    return attr->has_ignore ? pl_not_equal(g, y, pl_scalar(g, (double)attr->from))
                            : pl_broadcast_to(g, pl_scalar(g, 1), pl_shape_of(g, y));
}

/* Of each label how often it was found, predicted, there, and counted: [4 labels, 1]. */
static pl_node_t label_counts(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                              const pl_attr_t *attr)
{
    const pl_shape_t rows = PL_SHAPE(-1, label_count(g, logits));
    const pl_node_t y = pl_as_float(g, targets), keep = labels_kept(g, y, attr),
                    said = pl_mul(g, keep, pl_greater(g, logits, pl_scalar(g, 0))),
                    is = pl_mul(g, keep, pl_greater(g, y, pl_scalar(g, 0.5)));
    pl_node_t part[] = {pl_mul(g, said, is), said, is, keep};
    for (int k = 0; k < 4; k++)
        part[k] = pl_sum(g, pl_reshape(g, part[k], rows), (int[]){0}, 1, false);
    return pl_reshape(g, pl_stack(g, part, 4, 1), PL_SHAPE(-1, 1));
}

/* Scores in bins, label after label: [labels, 2, bins]. */
static pl_node_t label_bins(pl_graph_t *g, pl_node_t scores, pl_node_t targets,
                            const pl_attr_t *attr)
{
    const int64_t labels = label_count(g, scores);
    pl_node_t bins[CLASSES_MAX];
    scores = pl_reshape(g, scores, PL_SHAPE(-1, labels));
    targets = pl_reshape(g, pl_cast(g, targets, PL_I32), PL_SHAPE(-1, labels));
    for (int64_t k = 0; k < labels; k++) {
        const pl_node_t of_label = pl_flatten(g, pl_slice(g, targets, 1, k, k + 1), 0);
        bins[k] = pl_against_targets(g, PL_OP_score_bins,
                                     pl_slice(g, scores, 1, k, k + 1), of_label, *attr,
                                     NULL)
                      .sum;
    }
    return labels == 1 ? bins[0] : pl_concat(g, bins, (int)labels, 0);
}

/* ---- classes ---- */

pl_metric_t pl_accuracy(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                        const pl_cross_entropy_options_t *options)
{
    if (!are_labels(g, logits, targets))
        return pl_accuracy_top(g, logits, targets, 1, options);
    const pl_attr_t attr = {.has_ignore = options && options->has_ignore,
                            .from = options ? options->ignore_index : 0};
    const pl_node_t y = pl_as_float(g, targets), keep = labels_kept(g, y, &attr),
                    said = pl_greater(g, logits, pl_scalar(g, 0)),
                    is = pl_greater(g, y, pl_scalar(g, 0.5));
    return pl_pair(pl_sum(g, pl_mul(g, keep, pl_equal(g, said, is)), NULL, 0, false),
                   pl_sum(g, keep, NULL, 0, false));
}

pl_metric_t pl_accuracy_top(pl_graph_t *g, pl_node_t logits, pl_node_t targets, int64_t k,
                            const pl_cross_entropy_options_t *options)
{
    if (k < 1)
        pl_op_fail(g, "accuracy among the first %lld: the number must be 1 or more",
                   (long long)k);
    const pl_attr_t attr = {.has_ignore = options && options->has_ignore,
                            .from = options ? options->ignore_index : 0,
                            .to = k};
    return pl_against_targets(g, PL_OP_correct, logits, targets, attr, NULL);
}

/* A metric of counts by class, or by label, from the operator and the options. */
static pl_metric_t by_class(pl_graph_t *g, pl_metric_kind_t kind, pl_opcode_t code,
                            pl_node_t scores, pl_node_t targets, int64_t to,
                            const pl_classes_options_t *options)
{
    const pl_attr_t attr = {.has_ignore = options && options->has_ignore,
                            .from = options ? options->ignore_index : 0,
                            .to = to};
    pl_metric_t metric = {0};
    if (are_labels(g, scores, targets) && label_count(g, scores) <= CLASSES_MAX)
        metric.sum = metric.weight = code == PL_OP_confusion
                                         ? label_counts(g, scores, targets, &attr)
                                         : label_bins(g, scores, targets, &attr);
    else
        metric = pl_against_targets(g, code, scores, targets, attr, NULL);
    metric.kind = kind;
    metric.average = options ? options->average : PL_MACRO;
    return metric;
}

static pl_metric_t counted(pl_graph_t *g, pl_metric_kind_t kind, pl_node_t logits,
                           pl_node_t targets, const pl_classes_options_t *options)
{
    const int64_t classes = label_count(g, logits);
    if (classes > CLASSES_MAX)
        pl_op_fail(g, "%lld classes are too many to count each; at most %d are possible",
                   (long long)classes, CLASSES_MAX);
    return by_class(g, kind, PL_OP_confusion, logits, targets, 0, options);
}

#define COUNTED(function, kind) \
    pl_metric_t function(pl_graph_t *g, pl_node_t logits, pl_node_t targets, \
                         const pl_classes_options_t *options) \
    { \
        return counted(g, kind, logits, targets, options); \
    }
COUNTED(pl_accuracy_of_classes, PL_METRIC_ACCURACY)
COUNTED(pl_precision, PL_METRIC_PRECISION)
COUNTED(pl_recall, PL_METRIC_RECALL)
COUNTED(pl_f1, PL_METRIC_F1)
COUNTED(pl_hamming, PL_METRIC_HAMMING)
COUNTED(pl_specificity, PL_METRIC_SPECIFICITY)
COUNTED(pl_jaccard, PL_METRIC_JACCARD)
COUNTED(pl_mcc, PL_METRIC_MCC)
COUNTED(pl_cohen_kappa, PL_METRIC_KAPPA)
COUNTED(pl_confusion_matrix, PL_METRIC_CONFUSION)

pl_metric_t pl_fbeta(pl_graph_t *g, pl_node_t logits, pl_node_t targets, double beta,
                     const pl_classes_options_t *options)
{
    if (!(beta > 0) || !isfinite(beta))
        pl_op_fail(g, "fbeta takes a beta above 0, got %g", beta);
    pl_metric_t metric = counted(g, PL_METRIC_FBETA, logits, targets, options);
    metric.weight = pl_scalar(g, beta);
    return metric;
}

/* ---- scores ---- */

static bool has_bins(pl_graph_t *g, int64_t bins)
{
    if (bins >= 0 && bins != 1 && bins <= BINS_MAX)
        return true;
    pl_op_fail(g, "scores in %lld bins; 2 to %d are possible", (long long)bins, BINS_MAX);
    return false;
}

static pl_metric_t binned(pl_graph_t *g, pl_metric_kind_t kind, pl_node_t scores,
                          pl_node_t targets, int64_t bins,
                          const pl_classes_options_t *options)
{
    if (!has_bins(g, bins))
        bins = 0;
    return by_class(g, kind, PL_OP_score_bins, scores, targets, bins ? bins : BINS,
                    options);
}

#define BINNED(function, kind) \
    pl_metric_t function(pl_graph_t *g, pl_node_t scores, pl_node_t targets, \
                         int64_t bins, const pl_classes_options_t *options) \
    { \
        return binned(g, kind, scores, targets, bins, options); \
    }
BINNED(pl_auroc, PL_METRIC_AUROC)
BINNED(pl_average_precision, PL_METRIC_AVERAGE_PRECISION)

static pl_metric_t curve(pl_graph_t *g, pl_metric_kind_t kind, pl_node_t scores,
                         pl_node_t targets, int64_t bins,
                         const pl_classes_options_t *options)
{
    const int64_t classes = label_count(g, scores);
    if (classes > CURVES_MAX && !(options && options->average == PL_MICRO))
        pl_op_fail(g,
                   "%lld curves are too many; at most %d are possible, and average "
                   "PL_MICRO makes one",
                   (long long)classes, CURVES_MAX);
    return binned(g, kind, scores, targets, bins, options);
}

pl_metric_t pl_roc(pl_graph_t *g, pl_node_t scores, pl_node_t targets, int64_t bins,
                   const pl_classes_options_t *options)
{
    return curve(g, PL_METRIC_ROC, scores, targets, bins, options);
}

pl_metric_t pl_pr_curve(pl_graph_t *g, pl_node_t scores, pl_node_t targets, int64_t bins,
                        const pl_classes_options_t *options)
{
    return curve(g, PL_METRIC_PR_CURVE, scores, targets, bins, options);
}

/* Sums of [3, bins + 1]: how many predictions, the sum of their confidences, and how many
 * are right.  The last bin is for a confidence of 1. */
pl_metric_t pl_calibration_error(pl_graph_t *g, pl_node_t scores, pl_node_t targets,
                                 int64_t bins, const pl_classes_options_t *options)
{
    const pl_attr_t attr = {.has_ignore = options && options->has_ignore,
                            .from = options ? options->ignore_index : 0};
    const pl_shape_t column = PL_SHAPE(-1, 1);
    if (!g->error.code
        && pl_shape_of(g, scores).rank == pl_shape_of(g, targets).rank)
        scores = pl_reshape(g, scores, column), targets = pl_flatten(g, targets, 0);
    const bool is_binary = pl_dim(g, scores, -1) == 1;
    bins = has_bins(g, bins) && bins ? bins : CALIBRATION_BINS;
    const pl_node_t hits =
        pl_equal(g, targets, is_binary ? pl_scalar(g, 1) : pl_argmax(g, scores, -1));
    const pl_node_t confidence = pl_reshape(g, pl_max(g, scores, -1, false), column),
                    keep = pl_reshape(g, labels_kept(g, pl_as_float(g, targets), &attr),
                                      column);
    pl_node_t bin = pl_floor(g, pl_scale(g, confidence, (double)bins));
    bin = pl_cast(g, pl_clamp(g, bin, 0, (double)bins), PL_I32);
    const pl_node_t in_bin = pl_mul(g, keep,
                                    pl_one_hot(g, pl_flatten(g, bin, 0), bins + 1));
    pl_node_t part[] = {in_bin, pl_mul(g, confidence, in_bin),
                        pl_mul(g, pl_reshape(g, hits, column), in_bin)};
    for (int k = 0; k < 3; k++)
        part[k] = pl_sum(g, part[k], (int[]){0}, 1, false);
    const pl_node_t sums = pl_stack(g, part, 3, 0);
    return (pl_metric_t){.sum = sums, .weight = sums, .kind = PL_METRIC_CALIBRATION};
}

/* ---- numbers ---- */

pl_metric_t pl_rmse(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    pl_metric_t metric = pl_squares(g, "rmse", x, target);
    metric.kind = PL_METRIC_ROOT;
    return metric;
}

pl_metric_t pl_mae(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    return pl_l1(g, x, target);
}

/* Sums as one vector, of which metrics of power sums consist. */
static pl_metric_t joined(pl_graph_t *g, pl_metric_kind_t kind, pl_node_t *part,
                          int count)
{
    for (int k = 0; k < count; k++)
        part[k] = pl_reshape(g, part[k], PL_SHAPE(-1));
    const pl_node_t sums = pl_concat(g, part, count, 0);
    return (pl_metric_t){.sum = sums, .weight = sums, .kind = kind};
}

static pl_node_t power_sums(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_power_sums, pl_reshape(g, x, PL_SHAPE(-1)));
}

/* Sums of 1, y, y^2 and (x - y)^2; of y and y^2 in parts, because their difference may be
 * much smaller than they are. */
pl_metric_t pl_r2(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    pl_node_t part[3], d = pl_difference(g, "r2", x, target, &part[0]);
    part[1] = power_sums(g, target);
    part[2] = pl_sum(g, pl_mul(g, d, d), NULL, 0, false);
    return joined(g, PL_METRIC_R2, part, 3);
}

/* Sums of 1, y and y^2, then of d and d^2 in the same parts. */
pl_metric_t pl_explained_variance(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    pl_node_t part[3], d = pl_difference(g, "explained_variance", x, target, &part[0]);
    part[1] = power_sums(g, target);
    part[2] = power_sums(g, d);
    return joined(g, PL_METRIC_EXPLAINED_VARIANCE, part, 3);
}

/* Sums of 1, and the same of y, d and x: 2 x y is x^2 + y^2 - d^2. */
static pl_metric_t correlation(pl_graph_t *g, pl_metric_kind_t kind, const char *name,
                               pl_node_t x, pl_node_t target)
{
    pl_node_t part[4], d = pl_difference(g, name, x, target, &part[0]);
    part[1] = power_sums(g, target);
    part[2] = power_sums(g, d);
    part[3] = power_sums(g, x);
    return joined(g, kind, part, 4);
}

pl_metric_t pl_pearson(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    return correlation(g, PL_METRIC_PEARSON, "pearson", x, target);
}

pl_metric_t pl_concordance(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    return correlation(g, PL_METRIC_CONCORDANCE, "concordance", x, target);
}

/* The mean over all elements. */
static pl_metric_t mean_of(pl_graph_t *g, pl_node_t x, pl_node_t count)
{
    return pl_pair(pl_sum(g, x, NULL, 0, false), count);
}

static pl_node_t at_least_little(pl_graph_t *g, pl_node_t x)
{
    return pl_maximum(g, x, pl_scalar(g, 1.17e-6));
}

pl_metric_t pl_mape(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    pl_node_t count, d = pl_difference(g, "mape", x, target, &count);
    return mean_of(g, pl_div(g, pl_abs(g, d), at_least_little(g, pl_abs(g, target))),
                   count);
}

pl_metric_t pl_smape(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    pl_node_t count, d = pl_difference(g, "smape", x, target, &count),
                     both = pl_add(g, pl_abs(g, x), pl_abs(g, target));
    return mean_of(g, pl_scale(g, pl_div(g, pl_abs(g, d), at_least_little(g, both)), 2),
                   count);
}

pl_metric_t pl_msle(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    return pl_squares(g, "msle", pl_log1p(g, x), pl_log1p(g, target));
}

/* ---- text ---- */

pl_metric_t pl_perplexity(pl_loss_t loss)
{
    loss.kind = PL_METRIC_EXP;
    return loss;
}

pl_metric_t pl_bits_per_byte(pl_graph_t *g, pl_loss_t loss, double bytes_per_token)
{
    if (!(bytes_per_token > 0))
        pl_op_fail(g, "a token of %g bytes: the number must be larger than 0",
                   bytes_per_token);
    return (pl_metric_t){.sum = loss.sum,
                         .weight = pl_scale(g, loss.weight, bytes_per_token),
                         .kind = PL_METRIC_BITS};
}
