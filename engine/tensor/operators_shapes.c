/* operators_shapes.c - operators that move or repeat elements and compute nothing
 *
 * Any dtype may pass, except through concat, whose inputs must agree. */
#include <string.h>

#include "base/random.h"
#include "tensor/operators.h"

/* ---- broadcast ---- */

static int shape_broadcast(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t x = pl_input_shape(g, op, 0);
    if (!pl_broadcast_shapes(x, op->attr.shape, &out->shape)
        || !pl_same_shape(out->shape, op->attr.shape))
        return pl_op_fail(g, "broadcast: %s cannot be repeated to %s", PL_TEXT_OF(x),
                          PL_TEXT_OF(op->attr.shape));
    out->dtype = pl_input_of(g, op, 0)->dtype;
    return PL_OK;
}

pl_node_t pl_broadcast_to(pl_graph_t *g, pl_node_t x, pl_shape_t shape)
{
    if (pl_same_shape(pl_shape_of(g, x), shape))
        return x;
    return pl_emit(g, PL_OP_broadcast, &x, 1, &(pl_attr_t){.shape = shape}, NULL);
}

/* ---- reshape ---- */

static int shape_reshape(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t x = pl_input_shape(g, op, 0);
    if (pl_elements(x) != pl_elements(op->attr.shape))
        return pl_op_fail(
            g, "reshape keeps the number of elements: %s has %lld, %s has %lld",
            PL_TEXT_OF(x), (long long)pl_elements(x), PL_TEXT_OF(op->attr.shape),
            (long long)pl_elements(op->attr.shape));
    out->shape = op->attr.shape;
    out->dtype = pl_input_of(g, op, 0)->dtype;
    return PL_OK;
}

/* A size of -1 becomes the size that keeps the number of elements. */
pl_node_t pl_reshape(pl_graph_t *g, pl_node_t x, pl_shape_t shape)
{
    const pl_shape_t from = pl_shape_of(g, x);
    int unknown = -1;
    int64_t known = 1;
    bool bad = shape.rank < 0 || shape.rank > PL_DIMS;
    if (g->error.code)
        return PL_NO_NODE;
    for (int i = 0; i < shape.rank && !bad; i++) {
        if (shape.dim[i] == -1 && unknown < 0)
            unknown = i;
        else
            bad = shape.dim[i] < 1 || __builtin_mul_overflow(known, shape.dim[i], &known);
    }
    if (bad)
        return pl_graph_fail(
            g, PL_EINVAL,
            "reshape takes up to %d sizes of at least 1, one of which may be -1",
            PL_DIMS);
    if (unknown >= 0 && pl_elements(from) % known)
        return pl_graph_fail(
            g, PL_EINVAL, "reshape: the %lld elements of %s are not a multiple of %lld",
            (long long)pl_elements(from), PL_TEXT_OF(from), (long long)known);
    if (unknown >= 0)
        shape.dim[unknown] = pl_elements(from) / known;
    if (pl_same_shape(from, shape))
        return x;
    return pl_emit(g, PL_OP_reshape, &x, 1, &(pl_attr_t){.shape = shape}, NULL);
}

/* Of broadcast too. */
static void gradient_reshape(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                             pl_node_t *dx)
{
    const pl_shape_t shape = pl_input_shape(g, op, 0);
    dx[0] = op->code == PL_OP_broadcast ? pl_sum_to(g, dy, shape)
                                        : pl_reshape(g, dy, shape);
}

pl_node_t pl_flatten(pl_graph_t *g, pl_node_t x, int from_axis)
{
    int from = pl_axis_of(g, "flatten", x, from_axis);
    if (from < 0)
        return PL_NO_NODE;
    pl_shape_t shape = pl_shape_of(g, x);
    shape.dim[from] = -1;
    shape.rank = from + 1;
    return pl_reshape(g, x, shape);
}

/* ---- permute ---- */

static int shape_permute(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t x = pl_input_shape(g, op, 0);
    unsigned seen = 0;
    for (int i = 0; i < x.rank; i++) {
        int from = op->attr.order[i];
        if (from < 0 || from >= x.rank || seen >> from & 1)
            return pl_op_fail(g, "permute takes each axis of %s once, from 0 on",
                              PL_TEXT_OF(x));
        seen |= 1u << from;
        out->shape.dim[i] = x.dim[from];
    }
    out->dtype = pl_input_of(g, op, 0)->dtype;
    return PL_OK;
}

pl_node_t pl_permute(pl_graph_t *g, pl_node_t x, const int *order)
{
    pl_attr_t attr = {0};
    int rank = pl_shape_of(g, x).rank;
    if (!order)
        return pl_graph_fail(g, PL_EINVAL, "permute takes an order of axes, got NULL");
    for (int i = 0; i < rank; i++)
        attr.order[i] = order[i] < 0 ? order[i] + rank : order[i];
    return pl_emit(g, PL_OP_permute, &x, 1, &attr, NULL);
}

static void gradient_permute(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                             pl_node_t *dx)
{
    int inverse[PL_DIMS] = {0};
    for (int i = 0; i < pl_input_shape(g, op, 0).rank; i++)
        inverse[op->attr.order[i]] = i;
    dx[0] = pl_permute(g, dy, inverse);
}

/* ---- slice and pad ---- */

static int shape_slice(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_attr_t *a = &op->attr;
    const pl_shape_t x = pl_input_shape(g, op, 0);
    const int64_t size = x.dim[a->axis], step = a->step[a->axis];
    const bool in_range = step > 0 ? a->from >= 0 && a->from < a->to && a->to <= size
                                   : a->from < size && a->from > a->to && a->to >= -1;
    if (!step || step == INT64_MIN || !in_range)
        return pl_op_fail(g,
                          "slice takes a range within %s along axis %d of %s, got %lld "
                          "to %lld in steps of %lld",
                          step < 0 ? "the last element to -1" : "0 to the size", a->axis,
                          PL_TEXT_OF(x), (long long)a->from, (long long)a->to,
                          (long long)step);
    out->shape.dim[a->axis] = step > 0 ? (a->to - a->from - 1) / step + 1
                                       : (a->from - a->to - 1) / -step + 1;
    out->dtype = pl_input_of(g, op, 0)->dtype;
    return PL_OK;
}

pl_node_t pl_slice_step(pl_graph_t *g, pl_node_t x, int axis, int64_t from, int64_t to,
                        int64_t step)
{
    pl_attr_t attr = {.axis = pl_axis_of(g, "slice", x, axis), .from = from, .to = to};
    if (attr.axis < 0)
        return PL_NO_NODE;
    attr.step[attr.axis] = step;
    return pl_emit(g, PL_OP_slice, &x, 1, &attr, NULL);
}

pl_node_t pl_slice(pl_graph_t *g, pl_node_t x, int axis, int64_t from, int64_t to)
{
    return pl_slice_step(g, x, axis, from, to, 1);
}

/* A whole axis backwards has itself as its gradient.  The range of a slice of neighbours
 * is given, too, so that gradients of several can be joined. */
static void gradient_slice(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const int axis = op->attr.axis;
    pl_attr_t attr = {.axis = axis, .shape = pl_input_shape(g, op, 0)};
    const int64_t size = attr.shape.dim[axis], step = op->attr.step[axis];
    if (step == -1 && pl_dim(g, dy, axis) == size) {
        dx[0] = pl_slice_step(g, dy, axis, size - 1, -1, -1);
        return;
    }
    for (int i = 0; i < attr.shape.rank; i++)
        attr.step[i] = 1;
    attr.at[axis] = op->attr.from;
    attr.step[axis] = step;
    if (step == 1) {
        attr.from = op->attr.from;
        attr.to = op->attr.to;
    }
    dx[0] = pl_emit(g, PL_OP_pad, &dy, 1, &attr, NULL);
}

static int shape_pad(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)g;
    out->shape = op->attr.shape;
    out->dtype = pl_input_of(g, op, 0)->dtype;
    return PL_OK;
}

static void gradient_pad(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const pl_shape_t x = pl_input_shape(g, op, 0);
    dx[0] = dy;
    for (int i = 0; i < x.rank; i++) {
        const int64_t from = op->attr.at[i], step = op->attr.step[i];
        if (x.dim[i] != op->attr.shape.dim[i] || step != 1)
            dx[0] = pl_slice_step(g, dx[0], i, from,
                                  from + (x.dim[i] - 1) * step + (step > 0 ? 1 : -1),
                                  step);
    }
}

pl_node_t pl_pad(pl_graph_t *g, pl_node_t x, const int64_t *before, const int64_t *after,
                 double value)
{
    pl_attr_t attr = {.a = value, .shape = pl_shape_of(g, x)};
    const pl_shape_t shape = attr.shape;
    if (!before || !after)
        return pl_graph_fail(g, PL_EINVAL,
                             "pad takes sizes before and after each axis, got NULL");
    for (int i = 0; i < shape.rank; i++) {
        int64_t *size = &attr.shape.dim[i];
        if (before[i] < 0 || after[i] < 0
            || __builtin_add_overflow(*size, before[i], size)
            || __builtin_add_overflow(*size, after[i], size))
            return pl_graph_fail(g, PL_EINVAL,
                                 "pad adds 0 or more elements on each side of axis %d of "
                                 "%s, got %lld and %lld; slice removes elements",
                                 i, PL_TEXT_OF(shape), (long long)before[i],
                                 (long long)after[i]);
        attr.at[i] = before[i];
        attr.step[i] = 1;
    }
    if (!g->error.code && pl_same_shape(shape, attr.shape))
        return x;
    return pl_emit(g, PL_OP_pad, &x, 1, &attr, NULL);
}

/* ---- concat ---- */

static int shape_concat(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const int axis = op->attr.axis;
    const pl_value_t *first = pl_input_of(g, op, 0);
    int64_t length = 0;
    for (int k = 0; k < op->input_count; k++) {
        pl_shape_t x = pl_input_shape(g, op, k), like = first->shape;
        if (x.rank > axis)
            like.dim[axis] = x.dim[axis];
        if (!pl_same_shape(x, like) || pl_input_of(g, op, k)->dtype != first->dtype)
            return pl_op_fail(g,
                              "concat takes inputs of one type that differ along axis %d "
                              "only, got %s %s and %s %s",
                              axis, pl_dtype_name(first->dtype), PL_TEXT_OF(first->shape),
                              pl_dtype_name(pl_input_of(g, op, k)->dtype), PL_TEXT_OF(x));
        length += x.dim[axis];
    }
    out->shape.dim[axis] = length;
    out->dtype = first->dtype;
    return PL_OK;
}

/* More inputs than an operation takes are joined in groups first, as few as possible. */
pl_node_t pl_concat(pl_graph_t *g, const pl_node_t *x, int count, int axis)
{
    pl_node_t group[PL_OP_INPUTS];
    const int groups = count < PL_OP_INPUTS ? count : PL_OP_INPUTS;
    if (!x || count < 1)
        return pl_graph_fail(g, PL_EINVAL, "concat takes 1 or more inputs, got %d",
                             x ? count : 0);
    pl_attr_t attr = {.axis = pl_axis_of(g, "concat", x[0], axis)};
    if (attr.axis < 0 || count == 1)
        return attr.axis < 0 ? PL_NO_NODE : x[0];
    for (int k = 0; k < groups; k++) {
        const int from = (int)((int64_t)count * k / groups),
                  to = (int)((int64_t)count * (k + 1) / groups);
        group[k] = pl_concat(g, x + from, to - from, attr.axis);
    }
    return pl_emit(g, PL_OP_concat, group, groups, &attr, NULL);
}

/* Equal numbers are one operation; others are concatenated, as many as concat takes. */
pl_node_t pl_vector(pl_graph_t *g, const double *values, int count)
{
    if (!values || count < 1)
        return pl_graph_fail(g, PL_EINVAL, "a vector has at least one number, got %d",
                             count);
    int same = 1;
    while (same < count && values[same] == values[0])
        same++;
    return same == count
               ? pl_broadcast_to(g, pl_scalar(g, values[0]), PL_SHAPE(count))
               : pl_tensor(g, PL_F64, PL_SHAPE(count), values);
}

static void gradient_concat(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    int64_t at = 0;
    for (int k = 0; k < op->input_count; k++) {
        int64_t length = pl_input_shape(g, op, k).dim[op->attr.axis];
        if (pl_wants(g, op, k))
            dx[k] = pl_slice(g, dy, op->attr.axis, at, at + length);
        at += length;
    }
}

/* ---- range and random ---- */

static int shape_range(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)g;
    out->shape = op->attr.shape;
    out->dtype = op->attr.dtype;
    return PL_OK;
}

pl_node_t pl_range(pl_graph_t *g, int64_t n)
{
    const pl_attr_t attr = {.shape = PL_SHAPE(n), .dtype = PL_I32};
    const pl_node_t next = pl_cache_positions(g, n);
    return next.id >= 0 ? next : pl_emit(g, PL_OP_range, NULL, 0, &attr, NULL);
}

pl_node_t pl_arange(pl_graph_t *g, double from, double step, int64_t n)
{
    const pl_attr_t attr = {.a = from, .b = step, .shape = PL_SHAPE(n), .dtype = PL_F32};
    return pl_emit(g, PL_OP_range, NULL, 0, &attr, NULL);
}

/* ---- interpolate ---- */

static int shape_interpolate(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    out->shape.dim[op->attr.axis] = op->attr.to;
    return pl_want_float(g, op, 1);
}

static void gradient_interpolate(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                                 pl_node_t *dx)
{
    pl_attr_t attr = op->attr;
    attr.to = pl_input_shape(g, op, 0).dim[attr.axis];
    dx[0] = pl_emit(g, PL_OP_interpolate_grad, &dy, 1, &attr, NULL);
}

pl_node_t pl_interpolate(pl_graph_t *g, pl_node_t x, const int64_t *sizes, int count,
                         bool linear)
{
    const int rank = pl_shape_of(g, x).rank;
    if (!sizes || count < 1 || (!g->error.code && count > rank))
        return pl_graph_fail(g, PL_EINVAL,
                             "interpolate takes sizes of 1 to %d last axes, got %d", rank,
                             sizes ? count : 0);
    for (int k = 0; k < count && !g->error.code; k++) {
        const pl_attr_t attr = {.axis = rank - count + k,
                                .to = sizes[k],
                                .linear = linear};
        const int64_t size = pl_dim(g, x, attr.axis);
        if (sizes[k] < 1 || sizes[k] > PL_INTERPOLATE_MAX || size > PL_INTERPOLATE_MAX)
            return pl_graph_fail(
                g, PL_EINVAL,
                "interpolate takes sizes from 1 to %d, got axis %d of %s as "
                "%lld",
                PL_INTERPOLATE_MAX, attr.axis, PL_TEXT_OF(pl_shape_of(g, x)),
                (long long)sizes[k]);
        if (sizes[k] != size)
            x = pl_emit(g, PL_OP_interpolate, &x, 1, &attr, NULL);
    }
    return g->error.code ? PL_NO_NODE : x;
}

/* Each node of a scope has a stream of its own. */
static pl_node_t random_of(pl_graph_t *g, pl_shape_t shape, bool is_normal)
{
    char path[64];
    pl_scope(g, "random.%u", g->random_count++);
    const pl_attr_t attr = {.shape = shape,
                            .keep = is_normal,
                            .dtype = PL_F32,
                            .stream = pl_hash_text(pl_path(g, path))};
    const pl_node_t y = pl_emit(g, PL_OP_random, NULL, 0, &attr, NULL);
    pl_scope_end(g);
    return y;
}

pl_node_t pl_rand(pl_graph_t *g, pl_shape_t shape)
{
    return random_of(g, shape, false);
}

pl_node_t pl_randn(pl_graph_t *g, pl_shape_t shape)
{
    return random_of(g, shape, true);
}

const pl_rules_t pl_shapes_rules[PL_OPCODES] = {
    [PL_OP_broadcast] = {shape_broadcast, gradient_reshape},
    [PL_OP_reshape] = {shape_reshape, gradient_reshape},
    [PL_OP_permute] = {shape_permute, gradient_permute},
    [PL_OP_slice] = {shape_slice, gradient_slice},
    [PL_OP_pad] = {shape_pad, gradient_pad},
    [PL_OP_concat] = {shape_concat, gradient_concat},
    [PL_OP_random] = {shape_range, NULL},
    [PL_OP_range] = {shape_range, NULL},
    [PL_OP_interpolate] = {shape_interpolate, gradient_interpolate},
    [PL_OP_interpolate_grad] = {shape_interpolate, NULL},
};
