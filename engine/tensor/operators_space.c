/* operators_space.c - convolutions and pools: operators over windows along the axes of
 * space
 *
 * One operator has one to three axes of space; x is [B, C, L], [B, C, H, W] or
 * [B, C, D, H, W].  pl_conv(), which makes its parameters, is in layers.c. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tensor/windows.h"

/* ---- Windows ---- */

char *pl_sizes_text(const int64_t number[PL_SPACE], int axes, char text[64])
{
    size_t used = 0;
    text[0] = '\0';
    for (int k = PL_SPACE - axes; k < PL_SPACE && used < 64; k++)
        used += (size_t)snprintf(text + used, 64 - used, "%s%lld", used ? "x" : "",
                                 (long long)number[k]);
    return text;
}

/* "3x5", for the rest of the block. */
#define SIZES_TEXT(number, axes) pl_sizes_text(number, axes, (char[64]){0})

static int axes_of(pl_shape_t x)
{
    return x.rank - 2;
}

/* Copies the numbers of the axes of x.  An axis without a number has the number of the
 * axis before it; the first axis has the usual number. */
static int numbers_resolve(pl_graph_t *g, const char *name, const char *what, int axes,
                           const int64_t from[PL_SPACE], int64_t usual, int64_t least,
                           int64_t to[PL_SPACE])
{
    int64_t last = usual;
    for (int k = 0; k < PL_SPACE; k++) {
        if (k >= axes && from[k])
            return pl_op_fail(g, "%s has a %s for more than the %d axes of space of x",
                              name, what, axes);
        if (k >= axes)
            break;
        last = from[k] ? from[k] : last;
        const int64_t number = last == PL_UNPADDED && least == 0 ? 0 : last;
        if (number < least || number > INT32_MAX)
            return pl_op_fail(g, "%s takes a %s of at least %lld, got %lld", name, what,
                              (long long)least, (long long)number);
        to[PL_SPACE - axes + k] = number;
    }
    return PL_OK;
}

int pl_window_resolve(pl_graph_t *g, const char *name, pl_node_t x,
                      const pl_windows_t *from, bool strides_by_kernel,
                      pl_window_t *window)
{
    pl_window_t w = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}, {0}};
    const pl_shape_t shape = pl_shape_of(g, x);
    const int axes = axes_of(shape);
    int code = g->error.code ? PL_EINVAL : PL_OK;
    if (code == PL_OK && (axes < 1 || axes > PL_SPACE))
        code = pl_op_fail(g, "%s takes x [B, C, ...] with 1 to %d axes of space, got %s",
                          name, PL_SPACE, PL_TEXT_OF(shape));
    if (code == PL_OK)
        code = numbers_resolve(g, name, "kernel", axes, from->kernel, 0, 1, w.kernel);
    if (code == PL_OK && strides_by_kernel && !from->stride[0])
        memcpy(w.stride, w.kernel, sizeof w.stride);
    else if (code == PL_OK)
        code = numbers_resolve(g, name, "stride", axes, from->stride, 1, 1, w.stride);
    if (code == PL_OK)
        code = numbers_resolve(g, name, "dilation", axes, from->dilation, 1, 1,
                               w.dilation);
    if (code == PL_OK)
        code = numbers_resolve(g, name, "padding", axes, from->padding, 0, 0, w.before);
    memcpy(w.behind, w.before, sizeof w.behind);
    if (code == PL_OK)
        *window = w;
    return code;
}

/* Sets the sizes of space of *out to the numbers of windows of x.  PL_EINVAL: not one
 * fits. */
static int positions_set(pl_graph_t *g, const char *name, const pl_attr_t *attr,
                         pl_shape_t x, pl_shape_t *out)
{
    const pl_window_t *w = &attr->window;
    int64_t size[PL_SPACE];
    pl_space_of(x, 2, size);
    for (int k = PL_SPACE - axes_of(x); k < PL_SPACE; k++) {
        int64_t *positions = &out->dim[2 + k - (PL_SPACE - axes_of(x))];
        const int64_t room = size[k] > INT64_MAX / 8
                                 ? -1
                                 : size[k] + w->before[k] + w->behind[k]
                                       - pl_window_extent(w, k);
        if (room < 0)
            return pl_op_fail(g, "%s: a window of %s does not fit %s with padding %s",
                              name, SIZES_TEXT(w->kernel, axes_of(x)), PL_TEXT_OF(x),
                              SIZES_TEXT(w->before, axes_of(x)));
        *positions = room / w->stride[k] + 1;
    }
    return PL_OK;
}

/* ---- Convolution ---- */

static int shape_conv(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_shape_t x = pl_input_shape(g, op, 0), w = pl_input_shape(g, op, 1);
    const pl_attr_t *a = &op->attr;
    int64_t kernel[PL_SPACE];
    if (pl_want_float(g, op, op->input_count) != PL_OK)
        return PL_EINVAL;
    if (axes_of(x) < 1 || axes_of(x) > PL_SPACE || w.rank != x.rank || a->groups < 1
        || w.dim[0] % a->groups || x.dim[1] % a->groups
        || w.dim[1] != x.dim[1] / a->groups)
        return pl_op_fail(
            g,
            "conv takes x [B, C, ...] with 1 to %d axes of space and a weight [channels, "
            "C / groups, ...] with as many, got %s and %s with %lld groups",
            PL_SPACE, PL_TEXT_OF(x), PL_TEXT_OF(w), (long long)a->groups);
    pl_space_of(w, 2, kernel);
    if (memcmp(kernel, a->window.kernel, sizeof kernel))
        return pl_op_fail(g, "conv with windows of %s takes no weight %s",
                          SIZES_TEXT(a->window.kernel, axes_of(x)), PL_TEXT_OF(w));
    if (op->input_count == 3
        && !pl_same_shape(pl_input_shape(g, op, 2), PL_SHAPE(w.dim[0])))
        return pl_op_fail(g, "conv takes a bias [%lld], got %s", (long long)w.dim[0],
                          PL_TEXT_OF(pl_input_shape(g, op, 2)));
    out->shape = x;
    out->shape.dim[1] = w.dim[0];
    return positions_set(g, "conv", a, x, &out->shape);
}

static void gradient_conv(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const pl_node_t x = pl_node_of(op->input[0]), w = pl_node_of(op->input[1]);
    pl_attr_t attr = op->attr;
    if (pl_wants(g, op, 0)) {
        attr.shape = pl_shape_of(g, x);
        dx[0] = pl_emit(g, PL_OP_conv_grad_x, (pl_node_t[]){dy, w}, 2, &attr, NULL);
    }
    if (pl_wants(g, op, 1)) {
        attr.shape = pl_shape_of(g, w);
        dx[1] = pl_emit(g, PL_OP_conv_grad_w, (pl_node_t[]){dy, x}, 2, &attr, NULL);
    }
    if (pl_wants(g, op, 2))
        dx[2] = pl_sum(g, dy, (int[]){0, 2, 3, 4}, axes_of(pl_shape_of(g, x)) + 1, false);
}

/* ---- Largest of windows ---- */

static int shape_max_pool(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_window_t *w = &op->attr.window;
    if (pl_want_float(g, op, 1) != PL_OK)
        return PL_EINVAL;
    for (int k = 0; k < PL_SPACE; k++)
        if (w->before[k] > w->kernel[k] / 2)
            return pl_op_fail(
                g, "max_pool takes a padding of up to half the kernel, got %lld and %lld",
                (long long)w->before[k], (long long)w->kernel[k]);
    if (positions_set(g, "max_pool", &op->attr, out[0].shape, &out[0].shape) != PL_OK)
        return PL_EINVAL;
    out[1].shape = out[0].shape;
    out[1].dtype = PL_I32;
    return PL_OK;
}

pl_node_t pl_max_pool2d(pl_graph_t *g, pl_node_t x, int64_t kernel, int64_t stride,
                        int64_t padding)
{
    const pl_windows_t windows = {.kernel = {kernel},
                                  .stride = {stride},
                                  .padding = {padding}};
    const pl_shape_t shape = pl_shape_of(g, x);
    pl_attr_t attr = {0};
    if (!g->error.code && shape.rank != 4)
        pl_op_fail(g, "max_pool2d takes x [B, C, H, W], got %s", PL_TEXT_OF(shape));
    if (pl_window_resolve(g, "max_pool2d", x, &windows, true, &attr.window) != PL_OK)
        return PL_NO_NODE;
    return pl_emit(g, PL_OP_max_pool, &x, 1, &attr, NULL);
}

static void gradient_max_pool(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                              pl_node_t *dx)
{
    pl_attr_t attr = op->attr;
    attr.shape = pl_input_shape(g, op, 0);
    dx[0] = pl_emit(g, PL_OP_max_pool_grad,
                    (pl_node_t[]){dy, pl_node_of(op->output[1])}, 2, &attr, NULL);
}

const pl_rules_t pl_space_rules[PL_OPCODES] = {
    [PL_OP_conv] = {shape_conv, gradient_conv},
    [PL_OP_conv_grad_x] = {pl_shape_of_attr, NULL},
    [PL_OP_conv_grad_w] = {pl_shape_of_attr, NULL},
    [PL_OP_max_pool] = {shape_max_pool, gradient_max_pool},
    [PL_OP_max_pool_grad] = {pl_shape_of_attr, NULL},
};
