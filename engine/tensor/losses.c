/* losses.c - losses of a module, each a sum and a weight, from other operators
 *
 * Their values are those of torch.nn.functional.  The cross entropy of classes has an
 * operator of its own: operators_rows.c. */
#include "tensor/operators.h"

pl_loss_t pl_pair(pl_node_t sum, pl_node_t weight)
{
    return (pl_loss_t){.sum = sum, .weight = weight};
}

static pl_node_t total(pl_graph_t *g, pl_node_t x)
{
    return pl_sum(g, x, NULL, 0, false);
}

/* A loss for each element, all with the same weight. */
static pl_loss_t each(pl_graph_t *g, pl_node_t loss)
{
    const pl_shape_t shape = pl_shape_of(g, loss);
    return pl_pair(total(g, loss), pl_scalar(g, (double)pl_elements(shape)));
}

/* ---- Numbers ---- */

pl_node_t pl_difference(pl_graph_t *g, const char *name, pl_node_t x, pl_node_t target,
                        pl_node_t *count)
{
    pl_shape_t a = pl_shape_of(g, x), b = pl_shape_of(g, target);
    const bool is_column = a.rank == 2 && b.rank == 1 && a.dim[0] == b.dim[0]
                           && a.dim[1] == 1;
    if (!g->error.code && !pl_same_shape(a, b))
        pl_op_fail(g, "%s takes x and target of one shape, got %s and %s%s", name,
                   PL_TEXT_OF(a), PL_TEXT_OF(b),
                   is_column ? ": pl_flatten(g, x, 0) removes the last axis" : "");
    if (count)
        *count = pl_scalar(g, (double)pl_elements(a));
    return pl_sub(g, x, target);
}

pl_metric_t pl_squares(pl_graph_t *g, const char *name, pl_node_t x, pl_node_t target)
{
    pl_metric_t metric = {0};
    pl_node_t d = pl_difference(g, name, x, target, &metric.weight);
    metric.sum = total(g, pl_mul(g, d, d));
    return metric;
}

pl_loss_t pl_mse(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    return pl_squares(g, "mse", x, target);
}

pl_loss_t pl_weighted_mse(pl_graph_t *g, pl_node_t x, pl_node_t target, pl_node_t weights)
{
    pl_shape_t shape = pl_shape_of(g, x), w = pl_shape_of(g, weights);
    pl_node_t d = pl_difference(g, "mse", x, target, NULL);
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

pl_loss_t pl_l1(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    return each(g, pl_abs(g, pl_difference(g, "l1", x, target, NULL)));
}

/* q = min(|d|, delta): q^2 / 2 + delta (|d| - q). */
pl_loss_t pl_huber(pl_graph_t *g, pl_node_t x, pl_node_t target, double delta)
{
    if (!(delta > 0))
        pl_op_fail(g, "huber takes a delta larger than 0, got %g", delta);
    const pl_node_t d = pl_abs(g, pl_difference(g, "huber", x, target, NULL)),
                    q = pl_minimum(g, d, pl_scalar(g, delta));
    return each(g, pl_add(g, pl_scale(g, pl_square(g, q), 0.5),
                          pl_scale(g, pl_sub(g, d, q), delta)));
}

/* ---- Probabilities ---- */

/* softplus(x) - t x, which exceeds no number where e^x would; with a factor p of the
 * positive ones (1 - t) x + (1 + (p - 1) t) softplus(-x). */
pl_loss_t pl_bce_with_logits(pl_graph_t *g, pl_node_t x, pl_node_t target,
                             const pl_bce_options_t *options)
{
    const pl_bce_options_t o = options ? *options : (pl_bce_options_t){0};
    const pl_node_t one = pl_scalar(g, 1);
    pl_node_t loss;
    pl_difference(g, "bce_with_logits", x, target, NULL);   /* of one shape */
    if (o.positive_weights) {
        const pl_node_t more = pl_mul(g, pl_sub(g, *o.positive_weights, one), target);
        loss = pl_add(g, pl_mul(g, pl_sub(g, one, target), x),
                      pl_mul(g, pl_add(g, more, one), pl_softplus(g, pl_neg(g, x))));
    } else {
        loss = pl_sub(g, pl_softplus(g, x), pl_mul(g, x, target));
    }
    if (!o.weights)
        return each(g, loss);
    const pl_shape_t shape = pl_shape_of(g, loss);
    const pl_node_t weights = pl_broadcast_to(g, *o.weights, shape);
    return pl_pair(total(g, pl_mul(g, loss, weights)), total(g, weights));
}

/* A loss of rows [..., C], summed over each. */
static pl_loss_t of_rows(pl_graph_t *g, pl_node_t loss)
{
    const pl_shape_t shape = pl_shape_of(g, loss);
    return pl_pair(total(g, loss),
                   pl_scalar(g, g->error.code ? 1 : (double)pl_rows(shape, 1)));
}

static bool have_rows(pl_graph_t *g, const char *name, pl_node_t x, pl_node_t target)
{
    pl_difference(g, name, x, target, NULL);
    if (!g->error.code && pl_shape_of(g, x).rank < 1)
        pl_op_fail(g, "%s takes rows [..., C], got []", name);
    return !g->error.code;
}

pl_loss_t pl_soft_cross_entropy(pl_graph_t *g, pl_node_t logits, pl_node_t target)
{
    if (!have_rows(g, "soft_cross_entropy", logits, target))
        return pl_pair(PL_NO_NODE, PL_NO_NODE);
    return of_rows(g, pl_neg(g, pl_mul(g, target, pl_log_softmax(g, logits, -1))));
}

/* 0 ln 0 is 0. */
pl_loss_t pl_kl(pl_graph_t *g, pl_node_t log_probabilities, pl_node_t target)
{
    if (!have_rows(g, "kl", log_probabilities, target))
        return pl_pair(PL_NO_NODE, PL_NO_NODE);
    const pl_node_t zero = pl_scalar(g, 0), one = pl_scalar(g, 1),
                    is_zero = pl_equal(g, target, zero),
                    known = pl_log_of(g, pl_where(g, is_zero, one, target));
    return of_rows(g, pl_mul(g, target, pl_sub(g, known, log_probabilities)));
}

/* ---- Similarities ---- */

pl_node_t pl_cosine_similarity(pl_graph_t *g, pl_node_t a, pl_node_t b, int axis)
{
    const pl_node_t least = pl_scalar(g, 1e-8);
    const pl_node_t product = pl_sum(g, pl_mul(g, a, b), &axis, 1, false);
    pl_node_t norm[2] = {a, b};
    for (int k = 0; k < 2; k++)
        norm[k] =
            pl_maximum(g, pl_sqrt(g, pl_sum(g, pl_square(g, norm[k]), &axis, 1, false)),
                       least);
    return pl_div(g, product, pl_mul(g, norm[0], norm[1]));
}

pl_loss_t pl_cosine_embedding(pl_graph_t *g, pl_node_t a, pl_node_t b, pl_node_t target,
                              double margin)
{
    const pl_node_t cosine = pl_cosine_similarity(g, a, b, -1), one = pl_scalar(g, 1);
    const pl_shape_t shape = pl_shape_of(g, cosine), wanted = pl_shape_of(g, target);
    if (!g->error.code && !pl_same_shape(shape, wanted))
        pl_op_fail(g, "cosine_embedding takes a target %s for each pair of rows, got %s",
                   PL_TEXT_OF(shape), PL_TEXT_OF(wanted));
    return each(g, pl_where(g, pl_greater(g, target, pl_scalar(g, 0)),
                            pl_sub(g, one, cosine),
                            pl_relu(g, pl_sub(g, cosine, pl_scalar(g, margin)))));
}

/* PyTorch adds 1e-6 to each difference, so that equal rows have a gradient. */
static pl_node_t distance(pl_graph_t *g, pl_node_t a, pl_node_t b)
{
    const pl_node_t d = pl_add(g, pl_sub(g, a, b), pl_scalar(g, 1e-6));
    return pl_sqrt(g, pl_sum(g, pl_square(g, d), (int[]){-1}, 1, false));
}

pl_loss_t pl_triplet(pl_graph_t *g, pl_node_t anchor, pl_node_t positive,
                     pl_node_t negative, double margin)
{
    const pl_node_t far = pl_sub(g, distance(g, anchor, positive),
                                 distance(g, anchor, negative));
    return each(g, pl_relu(g, pl_add(g, far, pl_scalar(g, margin))));
}
