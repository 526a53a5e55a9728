/* metrics.c - metrics of a module, as sums
 *
 * Each metric is described by sums over samples, which add up over batches and ranks,
 * and a kind, by which actors/loops/metrics.c computes its value.  Areas under curves
 * are computed from counts in bins: exact ones would need every score of an epoch in
 * one place. */
#include "tensor/operators.h"

enum { CLASSES_MAX = 256, BINS = 200, BINS_MAX = 4096 };

pl_loss_t pl_pair(pl_node_t sum, pl_node_t weight)
{
    return (pl_loss_t){.sum = sum, .weight = weight};
}

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

static pl_node_t total(pl_graph_t *g, pl_node_t x)
{
    return pl_sum(g, x, NULL, 0, false);
}

/* x - target, and how many elements they have. */
static pl_node_t difference(pl_graph_t *g, const char *name, pl_node_t x,
                            pl_node_t target, pl_node_t *count)
{
    pl_shape_t a = pl_shape_of(g, x), b = pl_shape_of(g, target);
    const bool is_column = a.rank == 2 && b.rank == 1 && a.dim[0] == b.dim[0]
                           && a.dim[1] == 1;
    if (!g->error.code && !pl_same_shape(a, b))
        pl_op_fail(g, "%s takes x and target of one shape, got %s and %s%s", name,
                   PL_TEXT_OF(a), PL_TEXT_OF(b),
                   is_column ? ": pl_flatten(g, x, 0) removes the last axis" : "");
    *count = pl_scalar(g, (double)pl_elements(a));
    return pl_sub(g, x, target);
}

static pl_metric_t squares(pl_graph_t *g, const char *name, pl_node_t x, pl_node_t target)
{
    pl_metric_t metric = {0};
    pl_node_t d = difference(g, name, x, target, &metric.weight);
    metric.sum = total(g, pl_mul(g, d, d));
    return metric;
}

pl_loss_t pl_mse(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    return squares(g, "mse", x, target);
}

pl_loss_t pl_weighted_mse(pl_graph_t *g, pl_node_t x, pl_node_t target, pl_node_t weights)
{
    pl_shape_t shape = pl_shape_of(g, x), w = pl_shape_of(g, weights);
    pl_node_t count, d = difference(g, "mse", x, target, &count);
    if (!g->error.code && (w.rank != 1 || shape.rank < 1 || w.dim[0] != shape.dim[0]))
        pl_op_fail(g,
                   "mse takes a weight [B] for each sample of x [B, ...], got %s for %s",
                   PL_TEXT_OF(w), PL_TEXT_OF(shape));
    const double per_sample = (double)pl_elements(shape) / (double)w.dim[0];
    pl_node_t loss = pl_sum(g, pl_reshape(g, pl_mul(g, d, d), PL_SHAPE(w.dim[0], -1)),
                            (int[]){1}, 1, false);          /* [B] */
    return pl_pair(total(g, pl_mul(g, weights, loss)),
                   pl_scale(g, total(g, weights), per_sample));
}

pl_metric_t pl_rmse(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    pl_metric_t metric = squares(g, "rmse", x, target);
    metric.kind = PL_METRIC_ROOT;
    return metric;
}

pl_metric_t pl_mae(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    pl_metric_t metric = {0};
    pl_node_t d = difference(g, "mae", x, target, &metric.weight);
    metric.sum = total(g, pl_add(g, pl_relu(g, d), pl_relu(g, pl_neg(g, d))));
    return metric;
}

/* Sums of 1, y, y^2 and (x - y)^2; of y and y^2 in parts, because their difference may be
 * much smaller than they are. */
pl_metric_t pl_r2(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    const pl_shape_t flat = PL_SHAPE(-1);
    pl_node_t part[3], d = difference(g, "r2", x, target, &part[0]);
    part[1] = pl_emit1(g, PL_OP_power_sums, pl_reshape(g, target, flat));
    part[2] = total(g, pl_mul(g, d, d));
    for (int k = 0; k < 3; k++)
        part[k] = pl_reshape(g, part[k], flat);
    pl_node_t sums = pl_concat(g, part, 3, 0);
    return (pl_metric_t){.sum = sums, .weight = sums, .kind = PL_METRIC_R2};
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
