/* operators_reduce.c - sums, means and maxima over axes */
#include <math.h>

#include "base/compensated_sum.h"
#include "tensor/operators.h"

/* ---- Sums ---- */

/* Of sum, over a mask of axes, and of max and argmax, along one axis. */
static int shape_reduced(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_attr_t *attr = &op->attr;
    const unsigned axes = op->code == PL_OP_sum ? attr->axes : 1u << attr->axis;
    pl_shape_t x = out->shape, y = {0};
    if (pl_want_float(g, op, 1) != PL_OK)
        return PL_EINVAL;
    for (int i = 0; i < x.rank; i++) {
        const bool goes = axes >> i & 1;
        if (!goes || attr->keep)
            y.dim[y.rank++] = goes ? 1 : x.dim[i];
    }
    out->shape = y;
    if (op->code == PL_OP_argmax)
        out->dtype = PL_I32;
    return PL_OK;
}

bool pl_axes_mask(pl_graph_t *g, const char *name, pl_node_t x, const int *axes,
                  int count, unsigned *mask)
{
    if (count < 0 || (count && !axes)) {
        pl_op_fail(g, "%s takes a list of axes, or none; got a count without a list",
                   name);
        return false;
    }
    *mask = count ? 0 : (1u << pl_shape_of(g, x).rank) - 1;
    for (int i = 0; i < count; i++) {
        int axis = pl_axis_of(g, name, x, axes[i]);
        if (axis < 0)
            return false;
        *mask |= 1u << axis;
    }
    return !g->error.code;
}

pl_node_t pl_sum(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count, bool keep)
{
    pl_attr_t attr = {.keep = keep};
    if (!pl_axes_mask(g, "sum", x, axes, axis_count, &attr.axes))
        return PL_NO_NODE;
    return pl_emit(g, PL_OP_sum, &x, 1, &attr, NULL);
}

static void gradient_sum(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    pl_shape_t x = pl_input_shape(g, op, 0), kept = x;
    for (int i = 0; i < kept.rank; i++)
        if (op->attr.axes >> i & 1)
            kept.dim[i] = 1;
    dx[0] = pl_broadcast_to(g, pl_reshape(g, dy, kept), x);
}

pl_node_t pl_mean(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count, bool keep)
{
    unsigned mask;
    if (!pl_axes_mask(g, "mean", x, axes, axis_count, &mask))
        return PL_NO_NODE;
    int64_t count = 1;
    for (int i = 0; i < pl_shape_of(g, x).rank; i++)
        count *= mask >> i & 1 ? pl_dim(g, x, i) : 1;
    return pl_scale(g, pl_sum(g, x, axes, axis_count, keep), 1.0 / (double)count);
}

pl_node_t pl_var(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count,
                 int64_t correction, bool keep)
{
    const pl_node_t mean = pl_mean(g, x, axes, axis_count, true),
                    sum = pl_sum(g, pl_square(g, pl_sub(g, x, mean)), axes, axis_count,
                                 keep);
    if (g->error.code)
        return PL_NO_NODE;
    const int64_t count = pl_elements(pl_shape_of(g, x))
                          / pl_elements(pl_shape_of(g, sum));
    if (correction < 0 || correction >= count) {
        pl_op_fail(g, "var of %lld elements takes a correction below that, got %lld",
                   (long long)count, (long long)correction);
        return PL_NO_NODE;
    }
    return pl_scale(g, sum, 1.0 / (double)(count - correction));
}

pl_node_t pl_sum_to(pl_graph_t *g, pl_node_t dy, pl_shape_t shape)
{
    pl_shape_t from = pl_shape_of(g, dy);
    if (g->error.code || pl_same_shape(from, shape))
        return dy;
    pl_attr_t attr = {0};
    for (int i = 0; i < from.rank; i++) {
        int k = i - (from.rank - shape.rank);
        if (k < 0 || (shape.dim[k] == 1 && from.dim[i] != 1))
            attr.axes |= 1u << i;
    }
    return pl_reshape(g, pl_emit(g, PL_OP_sum, &dy, 1, &attr, NULL), shape);
}

/* ---- Maxima ---- */

pl_node_t pl_max(pl_graph_t *g, pl_node_t x, int axis, bool keep)
{
    pl_attr_t attr = {.axis = pl_axis_of(g, "max", x, axis), .keep = keep};
    return attr.axis < 0 ? PL_NO_NODE : pl_emit(g, PL_OP_max, &x, 1, &attr, NULL);
}

/* The exponentials are of differences from the largest x; an infinite one is no part of
 * them. */
pl_node_t pl_logsumexp(pl_graph_t *g, pl_node_t x, int axis, bool keep)
{
    const pl_node_t largest = pl_detach(g, pl_max(g, x, axis, true)),
                    infinite = pl_equal(g, pl_abs(g, largest), pl_scalar(g, INFINITY)),
                    shift = pl_where(g, infinite, pl_scalar(g, 0), largest);
    const pl_node_t sum = pl_sum(g, pl_exp(g, pl_sub(g, x, shift)), &axis, 1, keep);
    if (g->error.code)
        return PL_NO_NODE;
    return pl_add(g, pl_log_of(g, sum), pl_reshape(g, shift, pl_shape_of(g, sum)));
}

pl_node_t pl_log_softmax(pl_graph_t *g, pl_node_t x, int axis)
{
    const pl_node_t rest = pl_sub(g, x, pl_detach(g, pl_max(g, x, axis, true)));
    return pl_sub(g, rest, pl_log_of(g, pl_sum(g, pl_exp(g, rest), &axis, 1, true)));
}

static void gradient_max(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    pl_node_t inputs[] = {dy, pl_node_of(op->input[0]), pl_node_of(op->output[0])};
    dx[0] = pl_emit(g, PL_OP_max_grad, inputs, 3, &op->attr, NULL);
}

pl_node_t pl_argmax(pl_graph_t *g, pl_node_t x, int axis)
{
    pl_attr_t attr = {.axis = pl_axis_of(g, "argmax", x, axis)};
    return attr.axis < 0 ? PL_NO_NODE : pl_emit(g, PL_OP_argmax, &x, 1, &attr, NULL);
}

pl_node_t pl_min(pl_graph_t *g, pl_node_t x, int axis, bool keep)
{
    return pl_neg(g, pl_max(g, pl_neg(g, x), axis, keep));
}

pl_node_t pl_argmin(pl_graph_t *g, pl_node_t x, int axis)
{
    return pl_argmax(g, pl_neg(g, x), axis);
}

/* ---- Norms and power sums ---- */

static int shape_norm(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    out->shape = op->code == PL_OP_norm ? pl_shape(0) : PL_SHAPE(2, PL_COMPENSATED_PARTS);
    return pl_want_float(g, op, 1);
}

static int shape_block_norms(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const int64_t elements = op->attr.from + pl_elements(pl_input_shape(g, op, 0)),
                  block = op->attr.to;
    if (block < 1 || op->attr.from < 0 || op->attr.from >= block)
        return pl_op_fail(g, "block_norms of %lld elements, the first from %lld on",
                          (long long)block, (long long)op->attr.from);
    out->shape = PL_SHAPE((elements + block - 1) / block);
    return pl_want_float(g, op, 1);
}

const pl_rules_t pl_reduce_rules[PL_OPCODES] = {
    [PL_OP_sum] = {shape_reduced, gradient_sum},
    [PL_OP_norm] = {shape_norm, NULL},
    [PL_OP_block_norms] = {shape_block_norms, NULL},
    [PL_OP_max] = {shape_reduced, gradient_max},
    [PL_OP_max_grad] = {pl_shape_of_inputs, NULL},
    [PL_OP_argmax] = {shape_reduced, NULL},
    [PL_OP_power_sums] = {shape_norm, NULL},
};
