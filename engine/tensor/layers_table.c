/* layers_table.c - the layers of the module "layers", one row each */
#include <stdio.h>
#include <string.h>

#include "tensor/layers_module.h"
#include "tensor/model.h"
#include "tensor/operators.h"

/* The width of the target: labels, classes or tokens, or the numbers of a sample. */
static int64_t width_of_target(pl_layer_builder_t *b, pl_node_t x)
{
    pl_graph_t *g = b->g;
    char path[PL_LAYER_PATH + 16];
    if (b->labels && pl_shape_of(g, x).rank <= 2)
        return b->labels;
    if (b->classes)
        return b->classes;
    if (b->may_classify && b->vocabulary_size)
        return b->vocabulary_size;
    if (pl_has_input(g, "y")) {
        const pl_node_t y = pl_input(g, "y");
        const pl_shape_t shape = pl_shape_of(g, y);
        if (b->may_classify && g->value[y.id].dtype != PL_F32)
            pl_layer_fail(b, "the data does not say how many classes there are: set "
                             "module.classes, or write \"linear 10\" for ten");
        return shape.rank > 1 ? shape.dim[shape.rank - 1] : 1;
    }
    if (b->outputs)
        return b->outputs;
    snprintf(path, sizeof path, "%s.weight", b->path);
    const pl_tensor_info_t *weight = g->model ? pl_model_find(g->model, path) : NULL;
    return weight ? weight->shape.dim[0] : 1;
}

static pl_node_t build_linear(pl_layer_builder_t *b, pl_node_t x,
                              const pl_layer_arguments_t *a)
{
    const pl_linear_options_t options = {.no_bias = a->is_given[1]};
    const int64_t units = a->value[0] ? (int64_t)a->value[0] : width_of_target(b, x);
    return pl_linear_with(b->g, b->path, x, units, &options);
}

static pl_node_t build_embedding(pl_layer_builder_t *b, pl_node_t x,
                                 const pl_layer_arguments_t *a)
{
    const int64_t rows = a->value[0] ? (int64_t)a->value[0] : b->vocabulary_size;
    if (!rows)
        pl_layer_fail(b, "the data does not say how many tokens there are: set "
                         "module.vocabulary_size, or write \"embedding 100 32\" for 100");
    return pl_embedding(b->g, b->path, x, rows ? rows : 1, (int64_t)a->value[1],
                        pl_normal(a->value[2]));
}

static pl_node_t build_conv(pl_layer_builder_t *b, pl_node_t x,
                            const pl_layer_arguments_t *a)
{
    pl_convolution_options_t options = {.same = a->is_given[4],
                                        .no_bias = a->is_given[5],
                                        .groups = (int64_t)a->value[7]};
    memcpy(options.windows.kernel, a->sizes[1], sizeof a->sizes[1]);
    memcpy(options.windows.stride, a->sizes[2], sizeof a->sizes[2]);
    memcpy(options.windows.padding, a->sizes[3], sizeof a->sizes[3]);
    memcpy(options.windows.dilation, a->sizes[6], sizeof a->sizes[6]);
    return pl_conv(b->g, b->path, x, (int64_t)a->value[0], &options);
}

/* Its filters read one channel each. */
static pl_node_t build_depthwise(pl_layer_builder_t *b, pl_node_t x,
                                 const pl_layer_arguments_t *a)
{
    const int64_t channels = pl_dim(b->g, x, 1);
    pl_layer_arguments_t whole = {
        .value = {(double)channels},
        .is_given = {[4] = a->is_given[3], [5] = a->is_given[4]}};
    whole.value[7] = (double)channels;
    memcpy(whole.sizes[1], a->sizes[0], 3 * sizeof a->sizes[0]);
    memcpy(whole.sizes[6], a->sizes[5], sizeof a->sizes[5]);
    return b->g->error.code ? PL_NO_NODE : build_conv(b, x, &whole);
}

static pl_node_t build_conv_transpose(pl_layer_builder_t *b, pl_node_t x,
                                      const pl_layer_arguments_t *a)
{
    pl_conv_transpose_options_t options = {.no_bias = a->is_given[5],
                                           .groups = (int64_t)a->value[7]};
    memcpy(options.windows.kernel, a->sizes[1], sizeof a->sizes[1]);
    memcpy(options.windows.stride, a->sizes[2], sizeof a->sizes[2]);
    memcpy(options.windows.padding, a->sizes[3], sizeof a->sizes[3]);
    memcpy(options.output_padding, a->sizes[4], sizeof a->sizes[4]);
    memcpy(options.windows.dilation, a->sizes[6], sizeof a->sizes[6]);
    return pl_conv_transpose(b->g, b->path, x, (int64_t)a->value[0], &options);
}

static pl_pool_options_t pool_options(const pl_layer_arguments_t *a)
{
    pl_pool_options_t options = {.ceil_mode = a->is_given[3]};
    memcpy(options.windows.kernel, a->sizes[0], sizeof a->sizes[0]);
    memcpy(options.windows.stride, a->sizes[1], sizeof a->sizes[1]);
    memcpy(options.windows.padding, a->sizes[2], sizeof a->sizes[2]);
    return options;
}

static pl_node_t build_pool(pl_layer_builder_t *b, pl_node_t x,
                            const pl_layer_arguments_t *a)
{
    pl_pool_options_t options = pool_options(a);
    memcpy(options.windows.dilation, a->sizes[4], sizeof a->sizes[4]);
    return pl_max_pool(b->g, x, &options);
}

static pl_node_t build_avg_pool(pl_layer_builder_t *b, pl_node_t x,
                                const pl_layer_arguments_t *a)
{
    pl_pool_options_t options = pool_options(a);
    options.exclude_padding = a->is_given[4];
    return pl_avg_pool(b->g, x, &options);
}

/* The mean over all axes behind the channels. */
static pl_node_t build_global_pool(pl_layer_builder_t *b, pl_node_t x,
                                   const pl_layer_arguments_t *a)
{
    int axes[PL_DIMS], count = 0;
    (void)a;
    for (int i = 2; i < pl_shape_of(b->g, x).rank; i++)
        axes[count++] = i;
    return count ? pl_mean(b->g, x, axes, count, false) : x;
}

static pl_node_t build_layer_norm(pl_layer_builder_t *b, pl_node_t x,
                                  const pl_layer_arguments_t *a)
{
    const pl_norm_options_t options = {.axes = (int)a->value[0],
                                       .epsilon = a->value[1],
                                       .no_bias = a->is_given[2],
                                       .no_weight = a->is_given[3]};
    return pl_layer_norm_with(b->g, b->path, x, &options);
}

static pl_node_t build_rms_norm(pl_layer_builder_t *b, pl_node_t x,
                                const pl_layer_arguments_t *a)
{
    const pl_norm_options_t options = {.axes = (int)a->value[0],
                                       .epsilon = a->value[1],
                                       .no_weight = a->is_given[2]};
    return pl_rms_norm(b->g, b->path, x, &options);
}

static pl_node_t build_group_norm(pl_layer_builder_t *b, pl_node_t x,
                                  const pl_layer_arguments_t *a)
{
    const pl_norm_options_t options = {.epsilon = a->value[1],
                                       .no_weight = a->is_given[2]};
    return pl_group_norm(b->g, b->path, x, (int64_t)a->value[0], &options);
}

static pl_node_t build_instance_norm(pl_layer_builder_t *b, pl_node_t x,
                                     const pl_layer_arguments_t *a)
{
    const pl_norm_options_t options = {.epsilon = a->value[0],
                                       .no_weight = !a->is_given[1]};
    return pl_instance_norm(b->g, b->path, x, &options);
}

static int kept_find(const pl_layer_builder_t *b, const char *name)
{
    int k = b->kept_count - 1;
    while (k >= 0 && strcmp(b->kept[k].name, name) != 0)
        k--;
    return k;
}

bool pl_layer_is_kept(const pl_layer_builder_t *b, const char *name)
{
    return kept_find(b, name) >= 0;
}

pl_node_t pl_layer_kept(pl_layer_builder_t *b, const char *name)
{
    const int k = kept_find(b, name);
    if (k >= 0)
        return b->kept[k].node;
    pl_layer_fail(b, "no layer before this one is \"keep %s\"", name);
    return PL_NO_NODE;
}

bool pl_layer_keep(pl_layer_builder_t *b, const char *name, pl_node_t x)
{
    if (b->kept_count == PL_LAYER_KEPT) {
        pl_layer_fail(b, "at most %d results can be kept", PL_LAYER_KEPT);
        return false;
    }
    snprintf(b->kept[b->kept_count].name, PL_LAYER_NAME, "%s", name);
    b->kept[b->kept_count++].node = x;
    return true;
}

/* All axes but the first. */
static pl_node_t build_reshape(pl_layer_builder_t *b, pl_node_t x,
                               const pl_layer_arguments_t *a)
{
    pl_shape_t shape = {.rank = 1, .dim = {pl_dim(b->g, x, 0)}};
    for (int k = 0; k < PL_DIMS - 1 && a->is_given[k]; k++)
        shape.dim[shape.rank++] = (int64_t)a->value[k];
    return pl_reshape(b->g, x, shape);
}

static pl_node_t build_output(pl_layer_builder_t *b, pl_node_t x,
                              const pl_layer_arguments_t *a)
{
    for (int k = 0; k < PL_ANSWERS; k++)
        if (!strcmp(a->text[0], pl_answers[k]))
            memcpy(b->answers[k], b->place, sizeof b->place);
    pl_output(b->g, a->text[0], x);
    return x;
}

/* Around all axes behind the channels. */
static pl_node_t build_pad(pl_layer_builder_t *b, pl_node_t x,
                           const pl_layer_arguments_t *a)
{
    int64_t sizes[PL_DIMS] = {0};
    const pl_shape_t shape = pl_shape_of(b->g, x);
    if (!b->g->error.code && shape.rank < 3)
        pl_layer_fail(b, "pad takes x [B, C, ...] with axes behind the channels, got %s",
                      PL_TEXT_OF(shape));
    if (b->g->error.code)
        return PL_NO_NODE;
    for (int i = 2; i < PL_DIMS; i++)
        sizes[i] = (int64_t)a->value[0];
    return a->is_given[2] ? pl_pad_reflect(b->g, x, sizes, sizes)
                          : pl_pad(b->g, x, sizes, sizes, a->value[1]);
}

/* All axes behind the channels. */
static pl_node_t build_upsample(pl_layer_builder_t *b, pl_node_t x,
                                const pl_layer_arguments_t *a)
{
    const pl_shape_t shape = pl_shape_of(b->g, x);
    int64_t sizes[PL_DIMS] = {0};
    if (!b->g->error.code && shape.rank < 3)
        pl_layer_fail(
            b, "upsample takes x [B, C, ...] with axes behind the channels, got %s",
            PL_TEXT_OF(shape));
    if (b->g->error.code)
        return PL_NO_NODE;
    for (int i = 2; i < shape.rank; i++)
        sizes[i - 2] = (int64_t)((double)shape.dim[i] * a->value[0]);
    return pl_interpolate(b->g, x, sizes, shape.rank - 2, a->is_given[1]);
}

/* All axes behind the channels, to sizes. */
static pl_node_t build_resize(pl_layer_builder_t *b, pl_node_t x,
                              const pl_layer_arguments_t *a)
{
    const int count = pl_shape_of(b->g, x).rank - 2;
    int64_t sizes[PL_SPACE];
    if (!b->g->error.code && (count < 1 || count > PL_SPACE))
        pl_layer_fail(b,
                      "resize takes x [B, C, ...] with axes behind the channels, got %s",
                      PL_TEXT_OF(pl_shape_of(b->g, x)));
    for (int i = 0; i < PL_SPACE; i++)
        sizes[i] = a->sizes[0][i] ? a->sizes[0][i] : a->sizes[0][0];
    return b->g->error.code ? PL_NO_NODE
                            : pl_interpolate(b->g, x, sizes, count, a->is_given[1]);
}

/* The samples stay along the first axis. */
static pl_node_t build_permute(pl_layer_builder_t *b, pl_node_t x,
                               const pl_layer_arguments_t *a)
{
    const pl_shape_t shape = pl_shape_of(b->g, x);
    int order[PL_DIMS] = {0}, count = 1;
    for (int k = 0; k < PL_DIMS - 1 && a->is_given[k]; k++)
        order[count++] = (int)a->value[k];
    if (!b->g->error.code && count != shape.rank)
        pl_layer_fail(b, "permute takes each axis of x %s but the first, got %d of them",
                      PL_TEXT_OF(shape), count - 1);
    return b->g->error.code ? PL_NO_NODE : pl_permute(b->g, x, order);
}

static pl_node_t build_tile(pl_layer_builder_t *b, pl_node_t x,
                            const pl_layer_arguments_t *a)
{
    const int axis = pl_axis_of(b->g, "tile", x, (int)a->value[0]);
    int64_t times[PL_DIMS];
    for (int i = 0; i < PL_DIMS; i++)
        times[i] = i == axis ? (int64_t)a->value[1] : 1;
    return axis < 0 ? PL_NO_NODE : pl_repeat(b->g, x, times);
}

/* Layers that are one call of the interface. */
#define SIZE(k) ((int64_t)a->value[k])
#define AXIS(k) ((int)a->value[k])
#define LAYER(name, call) \
    static pl_node_t build_##name(pl_layer_builder_t *b, pl_node_t x, \
                                  const pl_layer_arguments_t *a) \
    { \
        (void)a; \
        return call; \
    }
LAYER(adaptive_pool, (a->is_given[1] ? pl_adaptive_max_pool
                                     : pl_adaptive_avg_pool)(b->g, x, a->sizes[0]))
LAYER(float, pl_cast(b->g, x, PL_F32))
LAYER(softmax, pl_softmax(b->g, x))
LAYER(global_max_pool, pl_global_max_pool(b->g, x))
LAYER(input, ((void)x, pl_input(b->g, a->text[0])))
LAYER(keep, (pl_layer_keep(b, a->text[0], x) ? x : PL_NO_NODE))
LAYER(use, ((void)x, pl_layer_kept(b, a->text[0])))
LAYER(tensor, ((void)x, pl_tensor_file(b->g, a->text[0], a->text[1])))
LAYER(scalar, ((void)x, pl_scalar(b->g, a->value[0])))
LAYER(range, ((void)x, pl_range(b->g, SIZE(0))))
LAYER(arange, ((void)x, pl_arange(b->g, a->value[1], a->value[2], SIZE(0))))
LAYER(all_gather, pl_all_gather(b->g, x))
LAYER(all_reduce, pl_all_reduce(b->g, x, a->is_given[0] ? PL_LOOP_MEAN : PL_LOOP_SUM))
LAYER(flatten, pl_flatten(b->g, x, AXIS(0)))
LAYER(dropout, pl_dropout(b->g, x, a->value[0]))
LAYER(batch_norm, pl_batch_norm(b->g, b->path, x, a->value[0], a->value[1]))
LAYER(mean, pl_mean(b->g, x, (int[]){AXIS(0)}, 1, false))
LAYER(max, pl_max(b->g, x, AXIS(0), false))
LAYER(min, pl_min(b->g, x, AXIS(0), false))
LAYER(sum, pl_sum(b->g, x, (int[]){AXIS(0)}, 1, false))
LAYER(var, pl_var(b->g, x, (int[]){AXIS(0)}, 1, SIZE(1), false))
LAYER(logsumexp, pl_logsumexp(b->g, x, AXIS(0), false))
LAYER(argmax, pl_argmax(b->g, x, AXIS(0)))
LAYER(argmin, pl_argmin(b->g, x, AXIS(0)))
LAYER(rand, pl_rand(b->g, pl_shape_of(b->g, x)))
LAYER(randn, pl_randn(b->g, pl_shape_of(b->g, x)))
LAYER(int, pl_cast(b->g, x, PL_I64))
LAYER(rotary, pl_rotary(b->g, x, &(pl_rotary_options_t){.interleaved = a->is_given[0]}))
LAYER(one_hot, pl_one_hot(b->g, x, SIZE(0)))
LAYER(cumsum, pl_cumsum(b->g, x, AXIS(0)))
LAYER(sort, pl_sort(b->g, x, AXIS(0), a->is_given[1], NULL))
LAYER(top_k, pl_top_k(b->g, x, SIZE(0), AXIS(1), NULL))
LAYER(log_softmax, pl_log_softmax(b->g, x, AXIS(0)))
LAYER(pixel_shuffle, pl_pixel_shuffle(b->g, x, SIZE(0)))
LAYER(pixel_unshuffle, pl_pixel_unshuffle(b->g, x, SIZE(0)))
LAYER(flip, pl_flip(b->g, x, (int[]){AXIS(0)}, 1))
LAYER(roll, pl_roll(b->g, x, AXIS(0), SIZE(1)))
LAYER(slice, pl_slice_step(b->g, x, AXIS(0), SIZE(1), SIZE(2), SIZE(3)))
LAYER(tril, pl_tril(b->g, x, SIZE(0)))
LAYER(triu, pl_triu(b->g, x, SIZE(0)))

/* Of x and what was kept. */
#define LAYER_OF_TWO(name, call) \
    static pl_node_t build_##name(pl_layer_builder_t *b, pl_node_t x, \
                                  const pl_layer_arguments_t *a) \
    { \
        const pl_node_t y = pl_layer_kept(b, a->text[0]); \
        return b->g->error.code ? PL_NO_NODE : call; \
    }
LAYER_OF_TWO(concat, pl_concat(b->g, (pl_node_t[]){x, y}, 2, AXIS(1)))
LAYER_OF_TWO(stack, pl_stack(b->g, (pl_node_t[]){x, y}, 2, AXIS(1)))
LAYER_OF_TWO(matmul, pl_matmul(b->g, x, y, false, a->is_given[1]))
LAYER_OF_TWO(gather, pl_gather(b->g, x, AXIS(1), y))
LAYER_OF_TWO(take, pl_take(b->g, x, AXIS(1), y))
LAYER_OF_TWO(cosine_similarity, pl_cosine_similarity(b->g, x, y, AXIS(1)))
LAYER_OF_TWO(einsum, pl_einsum(b->g, a->text[1], x, y))

#define LAYER_OF_THREE(name, call) \
    static pl_node_t build_##name(pl_layer_builder_t *b, pl_node_t x, \
                                  const pl_layer_arguments_t *a) \
    { \
        const pl_node_t y = pl_layer_kept(b, a->text[0]), \
                        z = pl_layer_kept(b, a->text[1]); \
        return b->g->error.code ? PL_NO_NODE : call; \
    }
LAYER_OF_THREE(scatter_add, pl_scatter_add(b->g, x, AXIS(2), y, z))

#define pl_log pl_log_of
#define BUILD_0(name) LAYER(name, pl_##name(b->g, x))
#define BUILD_1(name) LAYER(name, pl_##name(b->g, x, a->value[0]))
#define BUILD_2(name) LAYER(name, pl_##name(b->g, x, a->value[0], a->value[1]))
#define PL_UNARY(name, numbers, precision, rounding, value, rule, slope, meaning) \
    BUILD_##numbers(name)
#define PL_BINARY(name, precision, rounding, value, rule, slope_x, slope_y, meaning) \
    LAYER_OF_TWO(name, pl_##name(b->g, x, y))
#define PL_TERNARY(name, precision, rounding, value, rule, meaning) \
    LAYER_OF_THREE(name, pl_##name(b->g, x, y, z))
#include "tensor/elementwise.def"
#undef pl_log

const pl_layer_rule_t pl_layer_table[] = {
    {"linear", "units: no_bias?",
     "x [..., K] -> [..., units]; auto: as wide as the target, or one for each token of "
     "a vocabulary",
     build_linear, true},
    {"conv", "channels: kernel: stride=1 padding=0 same? no_bias? dilation=1 groups=1",
     "convolution of [B, C, ...] over one to three axes of space; same: the result has "
     "the size of x",
     build_conv, true},
    {"depthwise", "kernel: stride=1 padding=0 same? no_bias? dilation=1",
     "convolution of each channel by its own filter", build_depthwise, true},
    {"conv_transpose",
     "channels: kernel: stride=1 padding=0 output_padding=0 no_bias? dilation=1 groups=1",
     "transposed convolution of [B, C, ...], which makes it larger", build_conv_transpose,
     true},
    {"pool", "kernel: stride=0 padding=0 ceil_mode? dilation=1",
     "largest of each window of [B, C, ...]; stride 0: the kernel", build_pool},
    {"avg_pool", "kernel: stride=0 padding=0 ceil_mode? exclude_padding?",
     "mean of each window; padding counts as zeros", build_avg_pool},
    {"adaptive_pool", "output: max?",
     "mean, or largest, of windows that divide x into so many along each axis",
     build_adaptive_pool},
    {"global_max_pool", "", "largest over all axes behind the channels",
     build_global_max_pool},
    {"global_pool", "", "mean over all axes behind the channels", build_global_pool},
    {"flatten", "from=1", "merges all axes from one on", build_flatten},
    {"reshape", "size: size=0 size=0 size=0 size=0",
     "gives a sample other axes; one may be -1", build_reshape},
    {"dropout", "p:", "zeros with probability p in training", build_dropout},
    {"batch_norm", "momentum=0.1 epsilon=1e-5", "over batch and space of [B, C, ...]",
     build_batch_norm, true},
    {"layer_norm", "axes=1 epsilon=1e-5 no_bias? no_weight?",
     "over the last axis, or several", build_layer_norm, true},
    {"rms_norm", "axes=1 epsilon=1.1920929e-7 no_weight?",
     "by the root mean square over the last axes", build_rms_norm, true},
    {"group_norm", "groups: epsilon=1e-5 no_weight?",
     "over groups of channels and space of each sample of [B, C, ...]", build_group_norm,
     true},
    {"instance_norm", "epsilon=1e-5 affine?",
     "over space of each channel of each sample; affine: with weight and bias",
     build_instance_norm, true},
    {"embedding", "rows: width: deviation=1",
     "indices [...] -> [..., width]; auto: as many rows as the vocabulary has tokens",
     build_embedding, true},
    {"positions", "deviation=0.02", "adds a trained vector to each position of [B, T, C]",
     pl_layer_positions},
    {"token", "deviation=0.02",
     "a trained vector in front of [B, T, C], such as the class token of a ViT",
     pl_layer_token},
    {"attention",
     "heads: causal? dropout=0 kv_heads=0 window=0 rotary? keys@ scale=0 bias@ mask@",
     "attention of [B, T, C] to itself, or to what was kept as keys; 0: as many kv_heads "
     "as heads, no window, the scale 1 / sqrt(C / heads). bias, which is added to the "
     "scores, and mask were kept; this mask stands in place of the field mask, with "
     "which "
     "keys end otherwise, without causal",
     pl_layer_attention},
    {"lstm", "units: layers=1 bidirectional? dropout=0 last? no_bias?",
     "[B, T, C] -> [B, T, units], or twice as many of both directions; last: [B, units], "
     "the state behind the last step. Samples end where the field mask does",
     pl_layer_lstm, true},
    {"gru", "units: layers=1 bidirectional? dropout=0 last? no_bias?",
     "as lstm, by gated recurrent units", pl_layer_gru, true},
    {"softmax", "", "over the last axis", build_softmax},
    {"log_softmax", "axis=-1", "its logarithm, over an axis", build_log_softmax},
    {"mean", "axis:", "mean over an axis, which goes", build_mean},
    {"max", "axis:", "largest along an axis, which goes", build_max},
    {"min", "axis:", "smallest along an axis, which goes", build_min},
    {"sum", "axis:", "sum along an axis, which goes", build_sum},
    {"var", "axis: correction=1", "variance along an axis, which goes", build_var},
    {"logsumexp", "axis:", "logarithm of the sum of e^x along an axis, which goes",
     build_logsumexp},
    {"argmax", "axis=-1", "index of the largest along an axis, which goes", build_argmax},
    {"argmin", "axis=-1", "index of the least along an axis, which goes", build_argmin},
    {"one_hot", "classes:", "indices [...] -> [..., classes]: 1 at the index, else 0",
     build_one_hot},
    {"cumsum", "axis=-1", "sum of the elements up to each one along an axis",
     build_cumsum},
    {"sort", "axis=-1 descending?", "the elements along an axis in order", build_sort},
    {"top_k", "k: axis=-1", "the largest k along an axis, the largest first",
     build_top_k},
    {"float", "", "whole numbers, such as pixels, as float32", build_float},
    {"int", "", "numbers as whole ones of 64 bits, rounded toward 0", build_int},
    {"rand", "", "random numbers from 0 to 1 in the shape of x", build_rand},
    {"randn", "", "normal random numbers in the shape of x", build_randn},
    {"input", "name$", "continues with a field of the data in place of x", build_input},
    {"output", "name$", "makes x an output of predictions", build_output},
    {"tensor", "path$ name@",
     "continues with a constant in place of x: an .npy file, or a tensor of a "
     ".safetensors file, which has a name if it is not the only one",
     build_tensor},
    {"scalar", "value:", "continues with a number in place of x", build_scalar},
    {"range", "count:", "continues with the whole numbers 0, 1, … in place of x",
     build_range},
    {"arange", "count: start=0 distance=1",
     "continues with numbers at equal distances in place of x", build_arange},
    {"keep", "name$", "keeps x under a name", build_keep},
    {"use", "name$", "continues with what was kept in place of x", build_use},
    {"concat", "name$ axis=1", "appends what was kept along an axis", build_concat},
    {"stack", "name$ axis=1", "joins it and what was kept along a new axis", build_stack},
    {"matmul", "name$ transpose?",
     "matrices x times what was kept; transpose: those lie on their side", build_matmul},
    {"einsum", "name$ equation$",
     "of x and what was kept, by an equation such as bij,bjk->bik", build_einsum},
    {"gather", "name$ axis=-1", "elements along an axis at indices that were kept",
     build_gather},
    {"take", "name$ axis=0",
     "the slices along an axis at indices that were kept, whose axes replace it",
     build_take},
    {"scatter_add", "name$ values$ axis=-1",
     "x with values that were kept added at indices that were kept", build_scatter_add},
    {"cosine_similarity", "name$ axis=-1",
     "cosine of the angle to what was kept, along an axis, which goes",
     build_cosine_similarity},
    {"all_gather", "", "the rows of all ranks, in their order", build_all_gather},
    {"all_reduce", "mean?", "the sum over all ranks, or their mean", build_all_reduce},
    {"permute", "axis: axis=0 axis=0 axis=0 axis=0",
     "the axes behind the samples in another order", build_permute},
    {"rotary", "interleaved?", "turns pairs of numbers of [..., T, d] by the position",
     build_rotary},
    {"resize", "output: linear?",
     "to so many elements along all axes behind the channels: the nearest ones, or "
     "weighted means of neighbours",
     build_resize},
    {"pad", "size: value=0 reflect?",
     "around all axes behind the channels of [B, C, ...]; reflect: mirrored", build_pad},
    {"upsample", "factor: linear?",
     "more or fewer elements along all axes behind the channels: the nearest ones, or "
     "weighted means of neighbours",
     build_upsample},
    {"pixel_shuffle", "factor:", "[B, C f^2, H, W] -> [B, C, H f, W f]",
     build_pixel_shuffle},
    {"pixel_unshuffle", "factor:", "[B, C, H f, W f] -> [B, C f^2, H, W]",
     build_pixel_unshuffle},
    {"flip", "axis:", "reverses the order along an axis", build_flip},
    {"roll", "axis: shift:", "moves elements along an axis, around its end", build_roll},
    {"slice", "axis: from: to: step=1", "every step-th element along an axis, before to",
     build_slice},
    {"tile", "axis: times:", "several times along an axis", build_tile},
    {"tril", "diagonal=0", "the lower triangle of the last two axes", build_tril},
    {"triu", "diagonal=0", "the upper triangle of the last two axes", build_triu},
#define PL_UNARY(name, numbers, precision, rounding, value, rule, slope, meaning)
#define PL_BINARY(name, precision, rounding, value, rule, slope_x, slope_y, meaning) \
    {#name, "kept$", meaning, build_##name},
#define PL_TERNARY(name, precision, rounding, value, rule, meaning) \
    {#name, "kept$ other$", meaning ": y and z were kept", build_##name},
#include "tensor/elementwise.def"
#define NUMBERS_0 ""
#define NUMBERS_1 "f:"
#define NUMBERS_2 "f: h:"
#define PL_UNARY(name, numbers, precision, rounding, value, rule, slope, meaning) \
    {#name, NUMBERS_##numbers, meaning, build_##name},
#define PL_BINARY(name, precision, rounding, value, rule, slope_x, slope_y, meaning)
#define PL_TERNARY(name, precision, rounding, value, rule, meaning)
#include "tensor/elementwise.def"
};
const int pl_layer_count = sizeof pl_layer_table / sizeof *pl_layer_table;
