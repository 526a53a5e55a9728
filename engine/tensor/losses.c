/* losses.c - losses of a module, each a sum and a weight, from other operators
 *
 * Their values are those of torch.nn.functional.  The cross entropy of classes has an
 * operator of its own: operators_rows.c. */
#include "tensor/operators.h"

pl_loss_t pl_pair(pl_node_t sum, pl_node_t weight)
{
    return (pl_loss_t){.sum = sum, .weight = weight};
}

pl_loss_t pl_add_losses(pl_graph_t *g, pl_loss_t a, pl_loss_t b, double factor)
{
    if (a.kind != PL_METRIC_MEAN || b.kind != PL_METRIC_MEAN)
        pl_op_fail(g, "add_losses takes losses: metrics of another kind have no sum");
    /* A loss without any weight is a sum of 0. */
    const pl_node_t mean = pl_div(g, b.sum, pl_maximum(g, b.weight, pl_scalar(g, 1e-30)));
    return pl_pair(pl_add(g, a.sum, pl_mul(g, pl_scale(g, mean, factor), a.weight)),
                   a.weight);
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

pl_loss_t pl_weighted_loss(pl_graph_t *g, const char *name, pl_node_t loss,
                           pl_node_t weights)
{
    const pl_shape_t shape = pl_shape_of(g, loss), w = pl_shape_of(g, weights);
    if (!g->error.code && (w.rank != 1 || shape.rank < 1 || w.dim[0] != shape.dim[0]))
        pl_op_fail(g,
                   "%s takes a weight [B] for each sample of x [B, ...], got %s for %s",
                   name, PL_TEXT_OF(w), PL_TEXT_OF(shape));
    if (g->error.code)
        return pl_pair(PL_NO_NODE, PL_NO_NODE);
    const double per_sample = (double)pl_elements(shape) / (double)w.dim[0];
    const pl_node_t of_sample = pl_sum(g, pl_reshape(g, loss, PL_SHAPE(w.dim[0], -1)),
                                       (int[]){1}, 1, false);
    return pl_pair(total(g, pl_mul(g, weights, of_sample)),
                   pl_scale(g, total(g, weights), per_sample));
}

pl_loss_t pl_weighted_mse(pl_graph_t *g, pl_node_t x, pl_node_t target, pl_node_t weights)
{
    const pl_node_t d = pl_difference(g, "mse", x, target, NULL);
    return pl_weighted_loss(g, "mse", pl_mul(g, d, d), weights);
}

pl_loss_t pl_l1(pl_graph_t *g, pl_node_t x, pl_node_t target)
{
    return each(g, pl_abs(g, pl_difference(g, "l1", x, target, NULL)));
}

/* q = min(|d|, delta): q^2 / 2 + delta (|d| - q). */
pl_node_t pl_huber_each(pl_graph_t *g, pl_node_t x, pl_node_t target, double delta)
{
    if (!(delta > 0))
        pl_op_fail(g, "huber takes a delta larger than 0, got %g", delta);
    const pl_node_t d = pl_abs(g, pl_difference(g, "huber", x, target, NULL)),
                    q = pl_minimum(g, d, pl_scalar(g, delta));
    return pl_add(g, pl_scale(g, pl_square(g, q), 0.5),
                  pl_scale(g, pl_sub(g, d, q), delta));
}

pl_loss_t pl_huber(pl_graph_t *g, pl_node_t x, pl_node_t target, double delta)
{
    return each(g, pl_huber_each(g, x, target, delta));
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
    /* The least is under the root, where a row of zeros has a gradient. */
    const pl_node_t least = pl_scalar(g, 1e-16);
    const pl_node_t product = pl_sum(g, pl_mul(g, a, b), &axis, 1, false);
    pl_node_t norm[2] = {a, b};
    for (int k = 0; k < 2; k++)
        norm[k] = pl_sqrt(g,
                          pl_maximum(g, pl_sum(g, pl_square(g, norm[k]), &axis, 1, false),
                                     least));
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

/* Both sides of all ranks come by one collective, next to a column of ones: where it has
 * zeros a smaller batch has no rows, which no row can be taken for. */
pl_loss_t pl_info_nce(pl_graph_t *g, pl_node_t a, pl_node_t b, pl_node_t temperature)
{
    const pl_shape_t shape = pl_shape_of(g, a), scalar = pl_shape_of(g, temperature);
    pl_difference(g, "info_nce", a, b, NULL);               /* of one shape */
    if (!g->error.code && (shape.rank != 2 || scalar.rank))
        pl_op_fail(g, "info_nce takes rows [rows, C] and a temperature [], got %s and %s",
                   PL_TEXT_OF(shape), PL_TEXT_OF(scalar));
    if (g->error.code)
        return pl_pair(PL_NO_NODE, PL_NO_NODE);
    const pl_value_t *given = &g->value[temperature.id];
    if (given->source == PL_FROM_CONSTANT && !(given->constant > 0))
        pl_op_fail(g, "info_nce takes a temperature larger than 0, got %g",
                   given->constant);
    const int64_t rows = shape.dim[0], width = shape.dim[1];
    pl_node_t side[3] = {a, b, pl_broadcast_to(g, pl_scalar(g, 1), PL_SHAPE(rows, 1))};
    for (int k = 0; k < 2; k++) {
        const pl_node_t squares = pl_sum(g, pl_square(g, side[k]), (int[]){1}, 1, true);
        side[k] = pl_mul(g, side[k],
                         pl_rsqrt(g, pl_maximum(g, squares, pl_scalar(g, 1e-24))));
    }
    const bool is_alone = g->ranks == 1;
    pl_node_t all[3] = {side[0], side[1]}, sums[2];
    int64_t first = 0;
    if (!is_alone) {
        const pl_node_t gathered = pl_all_gather(g, pl_concat(g, side, 3, 1));
        if (pl_split(g, gathered, 1, (int64_t[]){width, width, 1}, 3, all) != PL_OK)
            return pl_pair(PL_NO_NODE, PL_NO_NODE);
        const int64_t every = pl_dim(g, gathered, 0);
        first = every / g->ranks * g->rank;
        all[2] = pl_reshape(g, all[2], PL_SHAPE(1, every));
    }
    const pl_node_t targets = pl_cast(g, pl_arange(g, (double)first, 1, rows), PL_I32);
    for (int k = 0; k < 2; k++) {
        pl_node_t logits = pl_div(g, pl_matmul(g, side[k], all[1 - k], false, true),
                                  temperature);
        if (!is_alone)
            logits = pl_where(g, all[2], logits, pl_scalar(g, -1e30));
        sums[k] = pl_cross_entropy(g, logits, targets, NULL).sum;
    }
    return pl_pair(pl_scale(g, pl_add(g, sums[0], sums[1]), 0.5),
                   pl_scalar(g, (double)rows));
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
