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

int pl_numbers_resolve(pl_graph_t *g, const char *name, const char *what, int axes,
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
        code = pl_numbers_resolve(g, name, "kernel", axes, from->kernel, 0, 1, w.kernel);
    if (code == PL_OK && strides_by_kernel && !from->stride[0])
        memcpy(w.stride, w.kernel, sizeof w.stride);
    else if (code == PL_OK)
        code = pl_numbers_resolve(g, name, "stride", axes, from->stride, 1, 1, w.stride);
    if (code == PL_OK)
        code = pl_numbers_resolve(g, name, "dilation", axes, from->dilation, 1, 1,
                                  w.dilation);
    if (code == PL_OK)
        code = pl_numbers_resolve(g, name, "padding", axes, from->padding, 0, 0,
                                  w.before);
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

/* The transposed convolution of dy: its own input is dy of the convolution. */
static void gradient_conv_grad_x(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                                 pl_node_t *dx)
{
    const pl_node_t x = pl_node_of(op->input[0]), w = pl_node_of(op->input[1]);
    pl_attr_t attr = op->attr;
    if (pl_wants(g, op, 0))
        dx[0] = pl_emit(g, PL_OP_conv, (pl_node_t[]){dy, w}, 2, &attr, NULL);
    attr.shape = pl_shape_of(g, w);
    if (pl_wants(g, op, 1))
        dx[1] = pl_emit(g, PL_OP_conv_grad_w, (pl_node_t[]){x, dy}, 2, &attr, NULL);
}

/* ---- Pools ---- */

/* A pool by windows, or one whose result has attr.shape. */
static int shape_pool(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const char *name = pl_op_name(op);
    const pl_window_t *w = &op->attr.window;
    const pl_shape_t x = out[0].shape;
    int64_t size[PL_SPACE];
    if (pl_want_float(g, op, 1) != PL_OK)
        return PL_EINVAL;
    pl_space_of(x, 2, size);
    for (int k = 0; k < PL_SPACE; k++) {
        if (w->before[k] > w->kernel[k] / 2)
            return pl_op_fail(
                g, "%s takes a padding of up to half the kernel, got %lld and %lld", name,
                (long long)w->before[k], (long long)w->kernel[k]);
        if (w->dilation[k] > 1 && w->kernel[k] > 1
            && (op->code == PL_OP_avg_pool || w->dilation[k] > size[k]))
            return pl_op_fail(g, "%s takes a dilation of up to %lld, got %lld", name,
                              (long long)(op->code == PL_OP_avg_pool ? 1 : size[k]),
                              (long long)w->dilation[k]);
    }
    if (op->attr.adaptive)
        out[0].shape = op->attr.shape;
    else if (positions_set(g, name, &op->attr, x, &out[0].shape) != PL_OK)
        return PL_EINVAL;
    if (op->code == PL_OP_max_pool) {
        out[1].shape = out[0].shape;
        out[1].dtype = PL_I32;
    }
    return PL_OK;
}

/* Lets one more window fit where a rest of x or its padding is left over, or where x ends
 * before the first window does. */
static void reach_beyond(pl_window_t *w, pl_shape_t x)
{
    int64_t size[PL_SPACE];
    pl_space_of(x, 2, size);
    for (int k = 0; k < PL_SPACE; k++) {
        const int64_t stride = w->stride[k],
                      room = size[k] > INT64_MAX / 8
                                 ? -stride
                                 : size[k] + 2 * w->before[k] - pl_window_extent(w, k),
                      next = room < 0 ? 0 : (room + stride - 1) / stride * stride;
        if (room > -stride && next > room && next < size[k] + w->before[k])
            w->behind[k] += next - room;
    }
}

static pl_node_t pool(pl_graph_t *g, const char *name, pl_opcode_t code, pl_node_t x,
                      const pl_pool_options_t *options)
{
    const pl_pool_options_t o = options ? *options : (pl_pool_options_t){0};
    pl_attr_t attr = {.counts_padding = !o.exclude_padding};
    if (pl_window_resolve(g, name, x, &o.windows, true, &attr.window) != PL_OK)
        return PL_NO_NODE;
    if (o.ceil_mode)
        reach_beyond(&attr.window, pl_shape_of(g, x));
    return pl_emit(g, code, &x, 1, &attr, NULL);
}

pl_node_t pl_max_pool(pl_graph_t *g, pl_node_t x, const pl_pool_options_t *options)
{
    return pool(g, "max_pool", PL_OP_max_pool, x, options);
}

pl_node_t pl_avg_pool(pl_graph_t *g, pl_node_t x, const pl_pool_options_t *options)
{
    return pool(g, "avg_pool", PL_OP_avg_pool, x, options);
}

pl_node_t pl_max_pool2d(pl_graph_t *g, pl_node_t x, int64_t kernel, int64_t stride,
                        int64_t padding)
{
    const pl_pool_options_t options = {
        .windows = {.kernel = {kernel}, .stride = {stride}, .padding = {padding}}};
    const pl_shape_t shape = pl_shape_of(g, x);
    if (!g->error.code && shape.rank != 4)
        return pl_graph_fail(g, PL_EINVAL, "max_pool2d takes x [B, C, H, W], got %s",
                             PL_TEXT_OF(shape));
    return pl_max_pool(g, x, &options);
}

/* Windows that divide x evenly are plain ones if the sizes are multiples; others have up
 * to one element more than the rounded quotient. */
static pl_node_t adaptive_pool(pl_graph_t *g, const char *name, pl_opcode_t code,
                               pl_node_t x, const int64_t wanted[PL_SPACE])
{
    pl_attr_t attr = {.shape = pl_shape_of(g, x)};
    int64_t in[PL_SPACE], out[PL_SPACE] = {1, 1, 1};
    const pl_windows_t windows = {.kernel = {1}};
    const int axes = axes_of(attr.shape);
    if (pl_window_resolve(g, name, x, &windows, true, &attr.window) != PL_OK)
        return PL_NO_NODE;
    if (!wanted)
        return pl_graph_fail(g, PL_EINVAL, "%s needs a size, and NULL was given", name);
    if (pl_numbers_resolve(g, name, "size", axes, wanted, 0, 1, out) != PL_OK)
        return PL_NO_NODE;
    pl_space_of(attr.shape, 2, in);
    for (int k = 0; k < PL_SPACE; k++) {
        const int64_t most = in[k] / out[k] + 2, rest = in[k] % out[k];
        attr.adaptive |= rest != 0;
        attr.window.kernel[k] = rest == 0 ? in[k] / out[k] : most < in[k] ? most : in[k];
        attr.window.stride[k] = attr.window.kernel[k];
        if (k >= PL_SPACE - axes)
            attr.shape.dim[2 + k - (PL_SPACE - axes)] = out[k];
    }
    return pl_emit(g, code, &x, 1, &attr, NULL);
}

pl_node_t pl_adaptive_max_pool(pl_graph_t *g, pl_node_t x, const int64_t size[PL_SPACE])
{
    return adaptive_pool(g, "adaptive_max_pool", PL_OP_max_pool, x, size);
}

pl_node_t pl_adaptive_avg_pool(pl_graph_t *g, pl_node_t x, const int64_t size[PL_SPACE])
{
    return adaptive_pool(g, "adaptive_avg_pool", PL_OP_avg_pool, x, size);
}

pl_node_t pl_global_max_pool(pl_graph_t *g, pl_node_t x)
{
    x = pl_adaptive_max_pool(g, x, (int64_t[PL_SPACE]){1});
    const pl_shape_t shape = pl_shape_of(g, x);
    return g->error.code ? PL_NO_NODE
                         : pl_reshape(g, x, PL_SHAPE(shape.dim[0], shape.dim[1]));
}

pl_node_t pl_global_avg_pool(pl_graph_t *g, pl_node_t x)
{
    const int axes = axes_of(pl_shape_of(g, x));
    if (!g->error.code && (axes < 1 || axes > PL_SPACE))
        return pl_graph_fail(g, PL_EINVAL,
                             "global_avg_pool takes x [B, C, ...] with 1 to %d axes of "
                             "space, got %s",
                             PL_SPACE, PL_TEXT_OF(pl_shape_of(g, x)));
    return pl_mean(g, x, (int[]){2, 3, 4}, axes, false);
}

static void gradient_max_pool(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                              pl_node_t *dx)
{
    pl_attr_t attr = op->attr;
    attr.shape = pl_input_shape(g, op, 0);
    dx[0] = pl_emit(g, PL_OP_max_pool_grad, (pl_node_t[]){dy, pl_node_of(op->output[1])},
                    2, &attr, NULL);
}

static void gradient_avg_pool(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                              pl_node_t *dx)
{
    pl_attr_t attr = op->attr;
    attr.shape = pl_input_shape(g, op, 0);
    dx[0] = pl_emit(g, PL_OP_avg_pool_grad, &dy, 1, &attr, NULL);
}

const pl_rules_t pl_space_rules[PL_OPCODES] = {
    [PL_OP_conv] = {shape_conv, gradient_conv},
    [PL_OP_conv_grad_x] = {pl_shape_of_attr, gradient_conv_grad_x},
    [PL_OP_conv_grad_w] = {pl_shape_of_attr, NULL},
    [PL_OP_avg_pool] = {shape_pool, gradient_avg_pool},
    [PL_OP_avg_pool_grad] = {pl_shape_of_attr, NULL},
    [PL_OP_max_pool] = {shape_pool, gradient_max_pool},
    [PL_OP_max_pool_grad] = {pl_shape_of_attr, NULL},
};
