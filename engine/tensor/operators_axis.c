/* operators_axis.c - operators along one axis: gather, scatter, sort, cumulative sums
 *
 * The axes before and after it are merged: the operators work on [A, R, B].  Gather and
 * scatter are each other's gradients.  Each result of scatter is added up in the order of
 * positions, so its bits do not depend on threads. */
#include "tensor/operators.h"

static int want_folded(pl_graph_t *g, const pl_op_t *op, int k)
{
    const pl_shape_t x = pl_input_shape(g, op, k);
    return x.rank == 3 ? PL_OK
                       : pl_op_fail(g, "%s takes [A, R, B], got %s", pl_op_name(op),
                                    PL_TEXT_OF(x));
}

/* PL_OK when input k holds indices [A or 1, N, B or 1] for `of` [A, R, B]. */
static int want_folded_indices(pl_graph_t *g, const pl_op_t *op, int k, pl_shape_t of)
{
    const pl_value_t *v = pl_input_of(g, op, k);
    if ((v->dtype == PL_I32 || v->dtype == PL_I64) && v->shape.rank == 3
        && (v->shape.dim[0] == 1 || v->shape.dim[0] == of.dim[0])
        && (v->shape.dim[2] == 1 || v->shape.dim[2] == of.dim[2]))
        return PL_OK;
    return pl_op_fail(g, "%s takes indices int32 or int64 for %s, got %s %s",
                      pl_op_name(op), PL_TEXT_OF(of), pl_dtype_name(v->dtype),
                      PL_TEXT_OF(v->shape));
}

/* ---- gather and scatter ---- */

static int shape_gather(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_shape_t x = out->shape;
    if (want_folded(g, op, 0) != PL_OK || want_folded_indices(g, op, 1, x) != PL_OK)
        return PL_EINVAL;
    out->shape.dim[1] = pl_input_shape(g, op, 1).dim[1];
    out->dtype = pl_input_of(g, op, 0)->dtype;
    return PL_OK;
}

static void gradient_gather(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const pl_node_t inputs[] = {pl_node_of(op->input[1]), dy};
    dx[0] = pl_emit(g, PL_OP_scatter, inputs, 2,
                    &(pl_attr_t){.shape = pl_input_shape(g, op, 0)}, NULL);
}

static int shape_scatter(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_value_t *x = pl_input_of(g, op, 1);
    if (want_folded(g, op, 1) != PL_OK
        || want_folded_indices(g, op, 0, x->shape) != PL_OK)
        return PL_EINVAL;
    if (x->dtype != PL_F32 || x->shape.dim[1] != pl_input_shape(g, op, 0).dim[1])
        return pl_op_fail(g, "scatter takes float32 with an index each, got %s %s",
                          pl_dtype_name(x->dtype), PL_TEXT_OF(x->shape));
    out->shape = op->attr.shape;
    return PL_OK;
}

static void gradient_scatter(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                             pl_node_t *dx)
{
    dx[1] = pl_emit2(g, PL_OP_gather, dy, pl_node_of(op->input[0]));
}

/* x as [A, R, B] around an axis from the front. */
static pl_node_t folded(pl_graph_t *g, pl_node_t x, int axis)
{
    const pl_shape_t s = pl_shape_of(g, x);
    pl_shape_t f = PL_SHAPE(1, 1, 1);
    for (int i = 0; i < s.rank; i++)
        f.dim[i < axis ? 0 : i == axis ? 1 : 2] *= s.dim[i];
    return pl_reshape(g, x, f);
}

pl_node_t pl_as_indices(pl_graph_t *g, pl_node_t x)
{
    pl_shape_of(g, x);
    return !g->error.code && g->value[x.id].dtype == PL_U8 ? pl_cast(g, x, PL_I32) : x;
}

/* False when the graph has failed: the indices must have the axes of x, and none may be
 * longer than there except `axis`. */
static bool indices_fit(pl_graph_t *g, const char *name, pl_shape_t x, pl_shape_t i,
                        int axis)
{
    bool fits = !g->error.code && axis >= 0 && x.rank == i.rank;
    for (int k = 0; k < x.rank && fits; k++)
        fits = k == axis || i.dim[k] <= x.dim[k];
    if (!fits && axis >= 0)
        pl_op_fail(g,
                   "%s takes indices with as many axes as x, none longer than there but "
                   "axis %d, got x %s and indices %s",
                   name, axis, PL_TEXT_OF(x), PL_TEXT_OF(i));
    return fits && !g->error.code;
}

pl_node_t pl_gather(pl_graph_t *g, pl_node_t x, int axis, pl_node_t indices)
{
    axis = pl_axis_of(g, "gather", x, axis);
    indices = pl_as_indices(g, indices);
    const pl_shape_t shape = pl_shape_of(g, indices);
    if (!indices_fit(g, "gather", pl_shape_of(g, x), shape, axis))
        return PL_NO_NODE;
    for (int k = 0; k < shape.rank; k++)
        if (k != axis && shape.dim[k] < pl_dim(g, x, k))
            x = pl_slice(g, x, k, 0, shape.dim[k]);
    x = pl_emit2(g, PL_OP_gather, folded(g, x, axis), folded(g, indices, axis));
    return pl_reshape(g, x, shape);
}

/* Rows of a table, the first axis of float32, are an embedding. */
pl_node_t pl_take(pl_graph_t *g, pl_node_t x, int axis, pl_node_t indices)
{
    axis = pl_axis_of(g, "take", x, axis);
    indices = pl_as_indices(g, indices);
    const pl_shape_t from = pl_shape_of(g, x), at = pl_shape_of(g, indices);
    pl_shape_t to = {.rank = from.rank - 1 + at.rank};
    if (g->error.code)
        return PL_NO_NODE;
    if (to.rank > PL_DIMS)
        return pl_graph_fail(g, PL_EINVAL,
                             "take gives up to %d axes; %s by indices %s has %d", PL_DIMS,
                             PL_TEXT_OF(from), PL_TEXT_OF(at), to.rank);
    for (int k = 0; k < to.rank; k++)
        to.dim[k] = k < axis             ? from.dim[k]
                    : k < axis + at.rank ? at.dim[k - axis]
                                         : from.dim[k - at.rank + 1];
    const int64_t n = pl_elements(at);
    if (axis == 0 && g->value[x.id].dtype == PL_F32)
        x = pl_emit2(g, PL_OP_embedding, pl_reshape(g, indices, PL_SHAPE(n)),
                     pl_reshape(g, x,
                                PL_SHAPE(from.dim[0], pl_elements(from) / from.dim[0])));
    else
        x = pl_emit2(g, PL_OP_gather, folded(g, x, axis),
                     pl_reshape(g, indices, PL_SHAPE(1, n, 1)));
    return pl_reshape(g, x, to);
}

pl_node_t pl_scatter_add(pl_graph_t *g, pl_node_t x, int axis, pl_node_t indices,
                         pl_node_t values)
{
    axis = pl_axis_of(g, "scatter_add", x, axis);
    indices = pl_as_indices(g, indices);
    const pl_shape_t whole = pl_shape_of(g, x), shape = pl_shape_of(g, indices),
                     given = pl_shape_of(g, values);
    pl_shape_t part = shape;
    if (!indices_fit(g, "scatter_add", whole, shape, axis))
        return PL_NO_NODE;
    if (!pl_same_shape(shape, given))
        return pl_graph_fail(g, PL_EINVAL,
                             "scatter_add takes values of the shape of the indices, got "
                             "%s and %s",
                             PL_TEXT_OF(given), PL_TEXT_OF(shape));
    part.dim[axis] = whole.dim[axis];
    pl_node_t sum = folded(g, indices, axis);
    const pl_shape_t f = pl_shape_of(g, sum);
    sum = pl_emit(g, PL_OP_scatter, (pl_node_t[]){sum, folded(g, values, axis)}, 2,
                  &(pl_attr_t){.shape = PL_SHAPE(f.dim[0], whole.dim[axis], f.dim[2])},
                  NULL);
    sum = pl_reshape(g, sum, part);
    int64_t before[PL_DIMS] = {0}, after[PL_DIMS];
    for (int k = 0; k < part.rank; k++)
        after[k] = whole.dim[k] - part.dim[k];      /* zeros where there are no indices */
    return pl_add(g, x, pl_pad(g, sum, before, after, 0));
}

pl_node_t pl_one_hot(pl_graph_t *g, pl_node_t indices, int64_t classes)
{
    indices = pl_as_indices(g, indices);
    pl_shape_t shape = pl_shape_of(g, indices);
    if (!g->error.code && (classes < 1 || shape.rank == PL_DIMS))
        pl_op_fail(g,
                   "one_hot takes indices of up to %d axes and at least one class, got "
                   "%s and %lld",
                   PL_DIMS - 1, PL_TEXT_OF(shape), (long long)classes);
    if (g->error.code)
        return PL_NO_NODE;
    const pl_shape_t rows = PL_SHAPE(pl_elements(shape), 1, 1);
    const pl_node_t inputs[] = {pl_reshape(g, indices, rows),
                                pl_broadcast_to(g, pl_scalar(g, 1), rows)};
    const pl_attr_t attr = {.shape = PL_SHAPE(rows.dim[0], classes, 1)};
    shape.dim[shape.rank++] = classes;
    return pl_reshape(g, pl_emit(g, PL_OP_scatter, inputs, 2, &attr, NULL), shape);
}

/* ---- sort ---- */

static int shape_sort(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_shape_t x = out->shape;
    if (pl_want_float(g, op, 1) != PL_OK || want_folded(g, op, 0) != PL_OK)
        return PL_EINVAL;
    if (op->attr.to < 1 || op->attr.to > x.dim[1] || x.dim[1] > INT32_MAX)
        return pl_op_fail(g, "sort gives 1 to %lld elements, asked for %lld",
                          (long long)x.dim[1], (long long)op->attr.to);
    out->shape.dim[1] = op->attr.to;
    out->dtype = PL_I32;
    return PL_OK;
}

/* The first `count` elements along an axis from the front in order, and where they are
 * [not wanted]. */
static pl_node_t sorted(pl_graph_t *g, pl_node_t x, int axis, int64_t count, bool falls,
                        pl_node_t *indices)
{
    pl_shape_t shape = pl_shape_of(g, x);
    if (g->error.code)
        return PL_NO_NODE;
    shape.dim[axis] = count;
    x = folded(g, x, axis);
    const pl_attr_t attr = {.to = count, .keep = falls};
    const pl_node_t at = pl_emit(g, PL_OP_sort, &x, 1, &attr, NULL);
    if (indices)
        *indices = pl_reshape(g, at, shape);
    return pl_reshape(g, pl_emit2(g, PL_OP_gather, x, at), shape);
}

pl_node_t pl_sort(pl_graph_t *g, pl_node_t x, int axis, bool descending,
                  pl_node_t *indices)
{
    if (indices)
        *indices = PL_NO_NODE;
    axis = pl_axis_of(g, "sort", x, axis);
    return axis < 0 ? PL_NO_NODE
                    : sorted(g, x, axis, pl_dim(g, x, axis), descending, indices);
}

pl_node_t pl_top_k(pl_graph_t *g, pl_node_t x, int64_t k, int axis, pl_node_t *indices)
{
    if (indices)
        *indices = PL_NO_NODE;
    axis = pl_axis_of(g, "top_k", x, axis);
    if (axis < 0)
        return PL_NO_NODE;
    if (k < 1 || k > pl_dim(g, x, axis))
        return pl_graph_fail(g, PL_EINVAL,
                             "top_k takes 1 to %lld along axis %d of %s, "
                             "got %lld",
                             (long long)pl_dim(g, x, axis), axis,
                             PL_TEXT_OF(pl_shape_of(g, x)), (long long)k);
    return sorted(g, x, axis, k, true, indices);
}

/* ---- cumsum ---- */

static int shape_cumsum(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)out;
    return pl_want_float(g, op, 1) == PL_OK ? want_folded(g, op, 0) : PL_EINVAL;
}

static void gradient_cumsum(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    dx[0] = pl_emit(g, PL_OP_cumsum, &dy, 1, &(pl_attr_t){.keep = !op->attr.keep}, NULL);
}

pl_node_t pl_cumsum(pl_graph_t *g, pl_node_t x, int axis)
{
    const pl_shape_t shape = pl_shape_of(g, x);
    axis = pl_axis_of(g, "cumsum", x, axis);
    return axis < 0 ? PL_NO_NODE
                    : pl_reshape(g, pl_emit1(g, PL_OP_cumsum, folded(g, x, axis)), shape);
}

const pl_rules_t pl_axis_rules[PL_OPCODES] = {
    [PL_OP_gather] = {shape_gather, gradient_gather},
    [PL_OP_scatter] = {shape_scatter, gradient_scatter},
    [PL_OP_sort] = {shape_sort, .is_constant = true},
    [PL_OP_cumsum] = {shape_cumsum, gradient_cumsum},
};
