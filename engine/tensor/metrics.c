/* metrics.c - metrics of a module, as sums
 *
 * Each metric is described by sums over samples, which add up over batches and ranks,
 * and a kind, by which actors/loops/metrics.c computes its value.  Areas under curves
 * are computed from counts in bins: exact ones would need every score of an epoch in
 * one place. */
#include "tensor/operators.h"

enum { CLASSES_MAX = 256, BINS = 200, BINS_MAX = 4096 };

/* ---- classes ---- */

pl_metric_t pl_accuracy(pl_graph_t *g, pl_node_t logits, pl_node_t targets,
                        const pl_cross_entropy_options_t *options)
{
    return pl_accuracy_top(g, logits, targets, 1, options);
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

/* A metric of counts by class, from the operator and the options. */
static pl_metric_t by_class(pl_graph_t *g, pl_metric_kind_t kind, pl_opcode_t code,
                            pl_node_t scores, pl_node_t targets, int64_t to,
                            const pl_classes_options_t *options)
{
    const pl_attr_t attr = {.has_ignore = options && options->has_ignore,
                            .from = options ? options->ignore_index : 0,
                            .to = to};
    pl_metric_t metric = pl_against_targets(g, code, scores, targets, attr, NULL);
    metric.kind = kind;
    metric.average = options ? options->average : PL_MACRO;
    return metric;
}

static pl_metric_t counted(pl_graph_t *g, pl_metric_kind_t kind, pl_node_t logits,
                           pl_node_t targets, const pl_classes_options_t *options)
{
    if (pl_dim(g, logits, -1) > CLASSES_MAX)
        pl_op_fail(g, "%lld classes are too many to count each; at most %d are possible",
                   (long long)pl_dim(g, logits, -1), CLASSES_MAX);
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
COUNTED(pl_specificity, PL_METRIC_SPECIFICITY)
COUNTED(pl_jaccard, PL_METRIC_JACCARD)
COUNTED(pl_mcc, PL_METRIC_MCC)
COUNTED(pl_cohen_kappa, PL_METRIC_KAPPA)
COUNTED(pl_confusion_matrix, PL_METRIC_CONFUSION)

/* ---- scores ---- */

static pl_metric_t binned(pl_graph_t *g, pl_metric_kind_t kind, pl_node_t scores,
                          pl_node_t targets, int64_t bins,
                          const pl_classes_options_t *options)
{
    if (bins < 0 || bins == 1 || bins > BINS_MAX)
        pl_op_fail(g, "scores in %lld bins; 2 to %d are possible", (long long)bins,
                   BINS_MAX);
    return by_class(g, kind, PL_OP_score_bins, scores, targets, bins ? bins : BINS,
                    options);
}

pl_metric_t pl_auroc(pl_graph_t *g, pl_node_t scores, pl_node_t targets, int64_t bins,
                     const pl_classes_options_t *options)
{
    return binned(g, PL_METRIC_AUROC, scores, targets, bins, options);
}

pl_metric_t pl_average_precision(pl_graph_t *g, pl_node_t scores, pl_node_t targets,
                                 int64_t bins, const pl_classes_options_t *options)
{
    return binned(g, PL_METRIC_AVERAGE_PRECISION, scores, targets, bins, options);
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

/* Sums of 1, y, y^2 and (x - y)^2; of y and y^2 in parts, because their difference may be
 * much smaller than they are. */
pl_metric_t pl_r2(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    const pl_shape_t flat = PL_SHAPE(-1);
    pl_node_t part[3], d = pl_difference(g, "r2", x, target, &part[0]);
    part[1] = pl_emit1(g, PL_OP_power_sums, pl_reshape(g, target, flat));
    part[2] = pl_sum(g, pl_mul(g, d, d), NULL, 0, false);
    for (int k = 0; k < 3; k++)
        part[k] = pl_reshape(g, part[k], flat);
    pl_node_t sums = pl_concat(g, part, 3, 0);
    return (pl_metric_t){.sum = sums, .weight = sums, .kind = PL_METRIC_R2};
}

/* Sums of 1, y and y^2, then of d and d^2 in the same parts. */
pl_metric_t pl_explained_variance(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    const pl_shape_t flat = PL_SHAPE(-1);
    pl_node_t part[3], d = pl_difference(g, "explained_variance", x, target, &part[0]);
    part[1] = pl_emit1(g, PL_OP_power_sums, pl_reshape(g, target, flat));
    part[2] = pl_emit1(g, PL_OP_power_sums, pl_reshape(g, d, flat));
    for (int k = 0; k < 3; k++)
        part[k] = pl_reshape(g, part[k], flat);
    pl_node_t sums = pl_concat(g, part, 3, 0);
    return (
        pl_metric_t){.sum = sums, .weight = sums, .kind = PL_METRIC_EXPLAINED_VARIANCE};
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
