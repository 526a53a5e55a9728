/* layers.c - operators that make their parameters: linear, convolution, normalisation,
 * embedding
 *
 * A layer's name is a scope, so that its parameters are NAME.weight and NAME.bias and
 * its messages begin with NAME.  First values are those of torch.nn unless the caller
 * gives others. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tensor/model.h"
#include "tensor/windows.h"

static void layer_begin(pl_graph_t *g, const char *name)
{
    if (!name)
        pl_op_fail(g, "a layer needs a name, and NULL was given");
    pl_scope(g, "%s", name ? name : "");
}

/* ---- linear ---- */

/* An x that does not fit an existing weight is an error that names the x that would
 * fit. */
pl_node_t pl_linear_with(pl_graph_t *g, const char *name, pl_node_t x, int64_t units,
                         const pl_linear_options_t *options)
{
    const pl_linear_options_t o = options ? *options : (pl_linear_options_t){0};
    char path[80];
    layer_begin(g, name);
    pl_shape_t shape = pl_shape_of(g, x);
    if (g->error.code)
        return PL_NO_NODE;
    snprintf(path, sizeof path, "%sweight", g->scope);
    const pl_tensor_info_t *weight = g->model ? pl_model_find(g->model, path) : NULL;
    if (shape.rank < 1)
        return pl_graph_fail(g, PL_EINVAL, "linear takes x [..., K], got a scalar");
    const int64_t in = shape.dim[shape.rank - 1];
    if (weight && weight->shape.rank == 2 && weight->shape.dim[1] != in)
        return pl_graph_fail(g, PL_EINVAL, "linear takes x [..., %lld], got %s",
                             (long long)weight->shape.dim[1], PL_TEXT_OF(shape));
    const pl_init_rule_t usual = pl_uniform(1 / sqrt((double)in));
    pl_node_t inputs[3] = {pl_reshape(g, x, PL_SHAPE(-1, in)),
                           pl_param(g, "weight", PL_SHAPE(units, in),
                                    o.weight ? *o.weight : usual)};
    if (!o.no_bias)
        inputs[2] = pl_param(g, "bias", PL_SHAPE(units), o.bias ? *o.bias : usual);
    pl_node_t y = pl_emit(g, PL_OP_linear, inputs, o.no_bias ? 2 : 3, NULL, NULL);
    shape.dim[shape.rank - 1] = units;
    y = pl_reshape(g, y, shape);
    pl_scope_end(g);
    return y;
}

pl_node_t pl_linear(pl_graph_t *g, const char *name, pl_node_t x, int64_t units)
{
    return pl_linear_with(g, name, x, units, NULL);
}

/* ---- Convolution ---- */

/* The parameters of a convolution, with a weight [to, from, kernel...] and a bias [bias],
 * 0: none. */
static void conv_params(pl_graph_t *g, pl_node_t x, int64_t to, int64_t from,
                        int64_t bias, const pl_window_t *window, pl_node_t params[2])
{
    pl_shape_t weight = pl_shape_of(g, x);
    double count = (double)from;
    weight.dim[0] = to;
    weight.dim[1] = from;
    for (int k = 2; k < weight.rank; k++) {
        weight.dim[k] = window->kernel[PL_SPACE - weight.rank + k];
        count *= (double)weight.dim[k];
    }
    const pl_init_rule_t usual = pl_uniform(1 / sqrt(count));
    params[0] = pl_param(g, "weight", weight, usual);
    if (bias)
        params[1] = pl_param(g, "bias", PL_SHAPE(bias), usual);
}

static int groups_check(pl_graph_t *g, const char *name, int64_t groups, int64_t in,
                        int64_t out)
{
    if (groups >= 1 && out >= 1 && in % groups == 0 && out % groups == 0)
        return PL_OK;
    return pl_op_fail(g,
                      "%s takes groups that divide the channels of x and of the result, "
                      "got %lld for %lld and %lld channels",
                      name, (long long)groups, (long long)in, (long long)out);
}

pl_node_t pl_conv(pl_graph_t *g, const char *name, pl_node_t x, int64_t channels,
                  const pl_convolution_options_t *options)
{
    const pl_convolution_options_t o = options ? *options : (pl_convolution_options_t){0};
    pl_attr_t attr = {.groups = o.groups ? o.groups : 1};
    layer_begin(g, name);
    if (pl_window_resolve(g, "conv", x, &o.windows, false, &attr.window) != PL_OK)
        return PL_NO_NODE;
    const int64_t in = pl_dim(g, x, 1);
    if (groups_check(g, "conv", attr.groups, in, channels) == PL_OK && o.same
        && o.windows.padding[0] > 0)
        pl_op_fail(g, "conv takes a padding or same, not both");
    if (g->error.code)
        return PL_NO_NODE;
    if (o.same)
        pl_window_same(&attr.window);
    pl_node_t inputs[3] = {x};
    conv_params(g, x, channels, in / attr.groups, o.no_bias ? 0 : channels, &attr.window,
                inputs + 1);
    const pl_node_t y = pl_emit(g, PL_OP_conv, inputs, o.no_bias ? 2 : 3, &attr, NULL);
    pl_scope_end(g);
    return y;
}

/* Sets the shape of the result, and less padding behind it: windows of the result that
 * are as many as the elements of x. */
static int transpose_set(pl_graph_t *g, const int64_t more[PL_SPACE], pl_attr_t *attr)
{
    pl_window_t *w = &attr->window;
    const int unused = PL_SPACE - (attr->shape.rank - 2);
    for (int k = unused; k < PL_SPACE; k++) {
        int64_t *size = &attr->shape.dim[2 + k - unused], last;
        if (more[k] >= w->stride[k])
            return pl_op_fail(g,
                              "conv_transpose takes an output_padding below the stride, "
                              "got %lld for %lld",
                              (long long)more[k], (long long)w->stride[k]);
        w->behind[k] -= more[k];
        if (__builtin_mul_overflow(*size - 1, w->stride[k], &last) || last > INT64_MAX / 8
            || last + pl_window_extent(w, k) <= w->before[k] + w->behind[k])
            return pl_op_fail(g,
                              "conv_transpose: %lld elements in steps of %lld with a "
                              "padding of %lld give no size",
                              (long long)*size, (long long)w->stride[k],
                              (long long)w->before[k]);
        *size = last + pl_window_extent(w, k) - w->before[k] - w->behind[k];
    }
    return PL_OK;
}

/* The operator is the gradient of a convolution that makes x of the result. */
pl_node_t pl_conv_transpose(pl_graph_t *g, const char *name, pl_node_t x,
                            int64_t channels, const pl_conv_transpose_options_t *options)
{
    const pl_conv_transpose_options_t o = options ? *options
                                                  : (pl_conv_transpose_options_t){0};
    pl_attr_t attr = {.groups = o.groups ? o.groups : 1, .shape = pl_shape_of(g, x)};
    pl_shape_t row = {.rank = attr.shape.rank - 1};
    int64_t more[PL_SPACE] = {0};
    layer_begin(g, name);
    if (pl_window_resolve(g, "conv_transpose", x, &o.windows, false, &attr.window)
            != PL_OK
        || pl_numbers_resolve(g, "conv_transpose", "output_padding", row.rank - 1,
                              o.output_padding, 0, 0, more)
               != PL_OK
        || groups_check(g, "conv_transpose", attr.groups, attr.shape.dim[1], channels)
               != PL_OK
        || transpose_set(g, more, &attr) != PL_OK)
        return PL_NO_NODE;
    pl_node_t inputs[3] = {x};
    conv_params(g, x, attr.shape.dim[1], channels / attr.groups, o.no_bias ? 0 : channels,
                &attr.window, inputs + 1);
    attr.shape.dim[1] = channels;
    pl_node_t y = pl_emit(g, PL_OP_conv_grad_x, inputs, 2, &attr, NULL);
    for (int k = 0; k < row.rank; k++)
        row.dim[k] = k ? 1 : channels;
    if (!o.no_bias)
        y = pl_add(g, y, pl_reshape(g, inputs[2], row));
    pl_scope_end(g);
    return y;
}

pl_node_t pl_conv2d(pl_graph_t *g, const char *name, pl_node_t x, int64_t channels,
                    const pl_conv_options_t *options)
{
    const pl_conv_options_t o = options ? *options : (pl_conv_options_t){0};
    const pl_convolution_options_t general = {.windows = {.kernel = {o.kernel},
                                                          .stride = {o.stride},
                                                          .padding = {o.padding}},
                                              .no_bias = o.no_bias};
    const pl_shape_t shape = pl_shape_of(g, x);
    if (g->error.code || shape.rank == 4)
        return pl_conv(g, name, x, channels, &general);
    layer_begin(g, name);
    pl_op_fail(g, "conv2d takes x [B, C, H, W], got %s", PL_TEXT_OF(shape));
    return PL_NO_NODE;
}

/* ---- Normalisation ---- */

/* state becomes (1 - momentum) state + momentum value */
static void average_towards(pl_graph_t *g, pl_node_t state, pl_node_t value,
                            double momentum)
{
    pl_assign(g, state,
              pl_add(g, pl_scale(g, state, 1 - momentum), pl_scale(g, value, momentum)));
}

typedef struct norm {
    pl_node_t input[6];                      /* x, weight, bias, the running statistics */
    double n, momentum;                      /* n: values of a channel */
    pl_attr_t attr;
} norm_t;

/* ---- Batch norm over all ranks, as torch.nn.SyncBatchNorm ---- */

/* Moments in PL_REGION_COLLECTIVE. */
typedef struct moment_nodes {
    pl_node_t mean, var, n;
} moment_nodes_t;

static moment_nodes_t moments_from(pl_graph_t *g, int64_t from, int64_t channels)
{
    const int64_t row = (channels + PL_REGION_ALIGN - 1) / PL_REGION_ALIGN
                        * PL_REGION_ALIGN;
    const pl_shape_t shape = PL_SHAPE(channels);
    return (
        moment_nodes_t){.mean = pl_region_view(g, PL_REGION_COLLECTIVE, from, shape),
                        .var = pl_region_view(g, PL_REGION_COLLECTIVE, from + row, shape),
                        .n = pl_region_view(g, PL_REGION_COLLECTIVE, from + 2 * row,
                                            pl_shape(0))};
}

void pl_running_follow(pl_graph_t *g, int64_t from, const pl_running_t *running)
{
    const pl_shape_t shape = PL_SHAPE(running->channels);
    const moment_nodes_t m = moments_from(g, from, running->channels);
    const pl_node_t unbiased = pl_div(g, m.n, pl_sub(g, m.n, pl_scalar(g, 1)));
    average_towards(g, pl_region_view(g, PL_REGION_STATE, running->mean, shape), m.mean,
                    running->momentum);
    average_towards(g, pl_region_view(g, PL_REGION_STATE, running->var, shape),
                    pl_mul(g, m.var, unbiased), running->momentum);
}

/* The moments of all ranks are combined before any value is normalised. */
static pl_node_t batch_norm_together(pl_graph_t *g, norm_t norm)
{
    pl_node_t extra[2];
    pl_emit(g, PL_OP_batch_norm, norm.input, 3, &norm.attr, extra);
    if (g->error.code)
        return PL_NO_NODE;
    const pl_running_t running = {.mean = g->value[norm.input[3].id].offset,
                                  .var = g->value[norm.input[4].id].offset,
                                  .channels = pl_dim(g, norm.input[1], 0),
                                  .momentum = norm.momentum};
    const int64_t from = pl_graph_collective_reserve(g, running.channels);
    pl_graph_collective_reserve(g, running.channels);
    pl_graph_collective_reserve(g, 1);
    const moment_nodes_t m = moments_from(g, from, running.channels);
    pl_assign(g, m.mean, extra[0]);
    pl_assign(g, m.var, extra[1]);
    pl_assign(g, m.n, pl_scalar(g, norm.n));
    pl_graph_collective(g, PL_GRAPH_COLLECTIVE_MOMENTS, from,
                        g->collective_elements - from, &running);
    pl_running_follow(g, from, &running);
    norm.input[3] = m.mean;
    norm.input[4] = m.var;
    norm.input[5] = m.n;
    return pl_emit(g, PL_OP_batch_norm_with, norm.input, 6, &norm.attr, NULL);
}

/* Ioffe and Szegedy, "Batch normalization", 2015, with torch.nn.BatchNorm's running
 * statistics: the running variance is the unbiased one. */
pl_node_t pl_batch_norm(pl_graph_t *g, const char *name, pl_node_t x, double momentum,
                        double epsilon)
{
    pl_node_t y, extra[2];
    layer_begin(g, name);
    pl_shape_t shape = pl_shape_of(g, x);
    if (!g->error.code && shape.rank < 2)
        pl_op_fail(g, "batch_norm takes x [B, C, ...], got %s", PL_TEXT_OF(shape));
    if (g->error.code)
        return PL_NO_NODE;
    const pl_shape_t channels = PL_SHAPE(shape.dim[1]);
    const norm_t norm = {
        .input = {x, pl_param(g, "weight", channels, pl_constant(1)),
                  pl_param(g, "bias", channels, pl_zeros()),
                  pl_state(g, "running_mean", channels, pl_zeros(), PL_AGREE_MEAN),
                  pl_state(g, "running_var", channels, pl_constant(1), PL_AGREE_MEAN)},
        .n = (double)(pl_elements(shape) / shape.dim[1]),
        .momentum = momentum,
        .attr = {.a = epsilon}};
    if (g->stage != PL_TRAIN) {
        y = pl_emit(g, PL_OP_batch_norm_with, norm.input, 5, &norm.attr, NULL);
    } else if (g->model && g->model->together) {
        y = batch_norm_together(g, norm);
    } else if (norm.n < 2) {
        y = pl_graph_fail(
            g, PL_EINVAL,
            "batch_norm needs more than one value for each channel to train on, got "
            "%s: make data.batch_size larger, or set data.drop_last to leave out a last "
            "batch that is not full",
            PL_TEXT_OF(shape));
    } else {
        y = pl_emit(g, PL_OP_batch_norm, norm.input, 3, &norm.attr, extra);
        if (g->error.code)
            return PL_NO_NODE;
        average_towards(g, norm.input[3], extra[0], momentum);
        average_towards(g, norm.input[4], pl_scale(g, extra[1], norm.n / (norm.n - 1)),
                        momentum);
    }
    pl_scope_end(g);
    return y;
}

/* ---- Norms of samples: rows of x, with the weights of `groups` rows ---- */

static pl_node_t norm_of_rows(pl_graph_t *g, pl_node_t x, int64_t rows, pl_attr_t attr,
                              pl_shape_t weights, const pl_norm_options_t *o)
{
    const pl_shape_t shape = pl_shape_of(g, x), all = PL_SHAPE(pl_elements(weights));
    pl_node_t inputs[3] = {rows ? pl_reshape(g, x, PL_SHAPE(rows, -1)) : x,
                           pl_scalar(g, 1), pl_scalar(g, 0)};
    if (!o->no_weight)
        inputs[1] = pl_reshape(g, pl_param(g, "weight", weights, pl_constant(1)), all);
    if (!o->no_weight && !o->no_bias)
        inputs[2] = pl_reshape(g, pl_param(g, "bias", weights, pl_zeros()), all);
    const pl_node_t y = pl_emit(g, PL_OP_layer_norm, inputs, 3, &attr, NULL);
    pl_scope_end(g);
    return pl_reshape(g, y, shape);
}

static pl_node_t norm_of_axes(pl_graph_t *g, const char *name, pl_node_t x,
                              pl_attr_t attr, pl_norm_options_t o)
{
    layer_begin(g, name);
    const pl_shape_t shape = pl_shape_of(g, x);
    const int axes = o.axes ? o.axes : 1;
    if (!g->error.code && (axes < 1 || axes > shape.rank))
        pl_op_fail(g, "%s takes 1 up to all axes of x, got %d for %s",
                   attr.is_rms ? "rms_norm" : "layer_norm", axes, PL_TEXT_OF(shape));
    if (g->error.code)
        return PL_NO_NODE;
    pl_shape_t weights = {.rank = axes};
    memcpy(weights.dim, shape.dim + shape.rank - axes,
           (size_t)axes * sizeof *weights.dim);
    return norm_of_rows(g, x, axes > 1 ? pl_rows(shape, axes) : 0, attr, weights, &o);
}

/* Ba, Kiros and Hinton, "Layer normalization", 2016. */
pl_node_t pl_layer_norm_with(pl_graph_t *g, const char *name, pl_node_t x,
                             const pl_norm_options_t *options)
{
    const pl_norm_options_t o = options ? *options : (pl_norm_options_t){0};
    return norm_of_axes(g, name, x, (pl_attr_t){.a = o.epsilon ? o.epsilon : 1e-5}, o);
}

pl_node_t pl_layer_norm(pl_graph_t *g, const char *name, pl_node_t x, double epsilon)
{
    return norm_of_axes(g, name, x, (pl_attr_t){.a = epsilon}, (pl_norm_options_t){0});
}

/* Zhang and Sennrich, "Root mean square layer normalization", 2019. */
pl_node_t pl_rms_norm(pl_graph_t *g, const char *name, pl_node_t x,
                      const pl_norm_options_t *options)
{
    pl_norm_options_t o = options ? *options : (pl_norm_options_t){0};
    const double epsilon = o.epsilon ? o.epsilon : (double)FLT_EPSILON;
    o.no_bias = true;
    return norm_of_axes(g, name, x, (pl_attr_t){.a = epsilon, .is_rms = true}, o);
}

static pl_node_t norm_of_groups(pl_graph_t *g, const char *name, const char *what,
                                pl_node_t x, int64_t groups,
                                const pl_norm_options_t *options)
{
    const pl_norm_options_t o = options ? *options : (pl_norm_options_t){0};
    layer_begin(g, name);
    const pl_shape_t shape = pl_shape_of(g, x);
    if (!g->error.code && shape.rank < 2)
        pl_op_fail(g, "%s takes x [B, C, ...], got %s", what, PL_TEXT_OF(shape));
    if (g->error.code)
        return PL_NO_NODE;
    const int64_t channels = shape.dim[1];
    groups = groups ? groups : channels;
    if (channels % groups)
        return pl_graph_fail(
            g, PL_EINVAL,
            "%s takes a number of groups that divides the %lld channels of %s, got %lld",
            what, (long long)channels, PL_TEXT_OF(shape), (long long)groups);
    if (pl_elements(shape) == shape.dim[0] * groups)
        return pl_graph_fail(
            g, PL_EINVAL,
            "%s needs more than one value in each group, got %lld groups of %s", what,
            (long long)groups, PL_TEXT_OF(shape));
    return norm_of_rows(g, x, shape.dim[0] * groups,
                        (pl_attr_t){.a = o.epsilon ? o.epsilon : 1e-5, .to = groups},
                        PL_SHAPE(channels), &o);
}

/* Wu and He, "Group normalization", 2018. */
pl_node_t pl_group_norm(pl_graph_t *g, const char *name, pl_node_t x, int64_t groups,
                        const pl_norm_options_t *options)
{
    if (groups < 1)
        return pl_graph_fail(g, PL_EINVAL, "group_norm takes at least 1 group, got %lld",
                             (long long)groups);
    return norm_of_groups(g, name, "group_norm", x, groups, options);
}

/* Ulyanov, Vedaldi and Lempitsky, "Instance normalization", 2016. */
pl_node_t pl_instance_norm(pl_graph_t *g, const char *name, pl_node_t x,
                           const pl_norm_options_t *options)
{
    return norm_of_groups(g, name, "instance_norm", x, 0, options);
}

/* ---- embedding ---- */

pl_node_t pl_embedding(pl_graph_t *g, const char *name, pl_node_t indices, int64_t rows,
                       int64_t width, pl_init_rule_t init)
{
    layer_begin(g, name);
    pl_node_t y = pl_emit2(g, PL_OP_embedding, indices,
                           pl_param(g, "weight", PL_SHAPE(rows, width), init));
    pl_scope_end(g);
    return y;
}
