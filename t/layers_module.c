/* layers_module.c - tests of the module "layers": its lists give the graphs that the same
 * calls in C give, and its mistakes are found with their places */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bind.h"
#include "base/options.h"
#include "tap.h"
#include "tensor/layers_module.h"
#include "tensor/model.h"
#include "tensor/operators.h"

static const pl_field_t
    row[] = {{"x", PL_F32, {1, {6}}}, {"y", PL_I64, {0}}},
    value[] = {{"x", PL_F32, {1, {6}}}, {"y", PL_F32, {0}}},
    image[] = {{"x", PL_F32, {3, {3, 8, 8}}}, {"y", PL_I64, {0}}},
    labels[] = {{"x", PL_F32, {1, {6}}}, {"y", PL_I64, {1, {5}}}},
    weighted[] = {{"x", PL_F32, {1, {6}}}, {"y", PL_F32, {0}}, {"weight", PL_F32, {0}}},
    soft[] = {{"x", PL_F32, {1, {6}}}, {"y", PL_F32, {1, {3}}}, {"weight", PL_F32, {0}}},
    choices[] = {{"x", PL_F32, {1, {6}}},
                 {"y", PL_I64, {1, {5}}},
                 {"weight", PL_F32, {0}}},
    filled[] = {{"x", PL_I64, {1, {5}}},
                {"y", PL_I64, {1, {5}}},
                {"mask", PL_F32, {1, {5}}}},
    shares[] = {{"x", PL_F32, {1, {6}}}, {"y", PL_F32, {1, {3}}}},
    speech[] = {{"x", PL_F32, {2, {5, 6}}}, {"y", PL_I64, {1, {2}}}},
    triples[] = {{"a", PL_F32, {1, {6}}},
                 {"p", PL_F32, {1, {6}}},
                 {"n", PL_F32, {1, {6}}}},
    pairs[] = {{"a", PL_F32, {1, {6}}}, {"p", PL_F32, {1, {6}}}, {"y", PL_I64, {0}}},
    other[] = {{"a", PL_F32, {1, {6}}}, {"y", PL_I64, {0}}},
    text[] = {{"x", PL_I64, {1, {5}}}, {"y", PL_I64, {1, {5}}}};

static char path[1024];                                     /* of a file of NumPy */

/* The end of a classifier. */
static void classify_without(pl_graph_t *g, pl_node_t x, int64_t ignored)
{
    pl_output(g, "logits", x);
    const pl_cross_entropy_options_t o = {.has_ignore = true, .ignore_index = ignored};
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), &o));
    pl_log(g, "acc", pl_accuracy(g, x, pl_input(g, "y"), &o), PL_ON_EPOCH);
}

static void classify(pl_graph_t *g, pl_node_t x)
{
    classify_without(g, x, -100);
}

static void mlp(pl_graph_t *g)
{
    pl_node_t x = pl_silu(g, pl_linear(g, "0", pl_input(g, "x"), 8));
    x = pl_leaky_relu(g, pl_clamp(g, x, -1, 2), 0.1);
    classify(g, pl_linear(g, "4", x, 3));
}

static void values(pl_graph_t *g)
{
    const pl_linear_options_t plain = {.no_bias = true};
    pl_node_t x = pl_gelu(g, pl_linear_with(g, "0", pl_input(g, "x"), 4, &plain));
    const pl_node_t y = pl_input(g, "y");
    x = pl_flatten(g, pl_linear(g, "2", x, 1), 0);
    pl_output(g, "value", x);
    pl_loss(g, pl_huber(g, x, y, 1));
    pl_log(g, "mae", pl_mae(g, x, y), PL_ON_EPOCH);
}

static void repeated(pl_graph_t *g)
{
    pl_checkpoint(g);
    pl_node_t x = pl_relu(g, pl_linear(g, "0.checkpoint.0", pl_input(g, "x"), 8));
    x = pl_linear(g, "0.checkpoint.2", x, 7);
    pl_checkpoint_end(g);
    classify(g, pl_linear(g, "2", pl_relu(g, x), 3));
}

static void residual(pl_graph_t *g)
{
    pl_node_t x = pl_input(g, "x"), y;
    for (int k = 0; k < 2; k++) {
        char name[32];
        snprintf(name, sizeof name, "0.%d.0.residual.0", k);
        y = pl_layer_norm(g, name, x, 1e-5);
        snprintf(name, sizeof name, "0.%d.0.residual.1", k);
        x = pl_add(g, x, pl_linear(g, name, y, 6));
    }
    y = pl_linear(g, "1.residual.0", x, 7);
    x = pl_add(g, pl_linear(g, "1.shortcut.0", x, 7), y);
    const pl_node_t part[] = {pl_linear(g, "2.branches.0.0", x, 2),
                              pl_tanh(g, pl_linear(g, "2.branches.1.0", x, 3))};
    classify(g, pl_linear(g, "3", pl_concat(g, part, 2, 1), 3));
}

static void cnn(pl_graph_t *g)
{
    pl_node_t x = pl_conv2d(g, "0", pl_input(g, "x"), 4,
                            &(pl_conv_options_t){.kernel = 3, .stride = 1, .padding = 1});
    const pl_node_t kept = x = pl_relu(g, pl_batch_norm(g, "1", x, 0.1, 1e-5));
    x = pl_conv2d(g, "4", x, 4,
                  &(pl_conv_options_t){.kernel = 5, .stride = 1, .padding = 2});
    x = pl_max_pool2d(g, pl_add(g, x, kept), 2, 0, 0);
    x = pl_conv2d(
        g, "7", x, 5,
        &(pl_conv_options_t){.kernel = 2, .stride = 2, .padding = 1, .no_bias = true});
    x = pl_mean(g, x, (int[]){2, 3}, 2, false);
    classify(g, pl_linear(g, "9", x, 3));
}

static void indices(pl_graph_t *g)
{
    pl_node_t x = pl_one_hot(g, pl_input(g, "x"), 11);
    x = pl_min(g, pl_cumsum(g, x, 1), 1, false);
    x = pl_linear(g, "4", pl_sort(g, x, -1, true, NULL), 8);
    x = pl_linear(g, "6", pl_top_k(g, x, 4, 1, NULL), 55);
    classify(g, pl_reshape(g, x, PL_SHAPE(4, 5, 11)));
}

static void decoder(pl_graph_t *g)
{
    const int64_t edge[] = {0, 0, 1, 1}, sizes[] = {20, 48}, twice[] = {1, 2, 1, 1};
    const pl_node_t kept = pl_flip(g, pl_input(g, "x"), (int[]){3}, 1);
    pl_node_t x = pl_pad_reflect(g, pl_pad(g, kept, edge, edge, 0.5), edge, edge);
    x = pl_interpolate(g, pl_slice_step(g, x, 2, 1, 11, 2), sizes, 2, true);
    x = pl_pixel_shuffle(g, pl_conv2d(g, "5", x, 8, &(pl_conv_options_t){.kernel = 1}),
                         2);
    x = pl_repeat(g, pl_roll(g, pl_pixel_unshuffle(g, x, 4), 1, 2), twice);
    x = pl_triu(g, pl_tril(g, x, 1), -1);
    const pl_node_t pair[] = {x, x};
    classify(g, pl_linear(g, "15", pl_flatten(g, pl_stack(g, pair, 2, 2), 1), 3));
}

static void gpt_without(pl_graph_t *g, int64_t ignored)
{
    pl_node_t x = pl_embedding(g, "0", pl_input(g, "x"), 11, 8, pl_normal(0.02)), part[3];
    x = pl_add(g, x, pl_param(g, "1.weight", PL_SHAPE(5, 8), pl_normal(0.02)));
    const pl_node_t all = pl_linear(g, "2.residual.1.qkv",
                                    pl_layer_norm(g, "2.residual.0", x, 1e-5), 24);
    for (int k = 0; k < 3; k++) {
        part[k] = pl_reshape(g, pl_slice(g, all, 2, k * 8, k * 8 + 8),
                             PL_SHAPE(4, 5, 2, 4));
        part[k] = pl_permute(g, part[k], (int[]){0, 2, 1, 3});
    }
    pl_node_t y = pl_attention(g, part[0], part[1], part[2],
                               &(pl_attention_options_t){.causal = true});
    y = pl_reshape(g, pl_permute(g, y, (int[]){0, 2, 1, 3}), PL_SHAPE(4, 5, 8));
    x = pl_add(g, x, pl_linear(g, "2.residual.1.proj", y, 8));
    classify_without(g, pl_linear(g, "3", x, 11), ignored);
}

static void gpt(pl_graph_t *g)
{
    gpt_without(g, -100);
}

static void gpt_of_text(pl_graph_t *g)
{
    gpt_without(g, -1);
}

/* Labels of 0 and 1 as whole numbers. */
static void labelled(pl_graph_t *g)
{
    const pl_node_t x = pl_linear(g, "0", pl_input(g, "x"), 5), y = pl_input(g, "y");
    pl_output(g, "labels", pl_sigmoid(g, x));
    pl_loss(g, pl_bce_with_logits(g, x, pl_cast(g, y, PL_F32), NULL));
}

/* Values that are learnt as (y - 150) / 4. */
static void scaled_values(pl_graph_t *g)
{
    pl_node_t x = pl_input(g, "x"), y = pl_input(g, "y"), mean, by, in_unit;
    x = pl_flatten(g, pl_linear(g, "0", x, 1), 0);
    mean = pl_scalar(g, 150);
    by = pl_scalar(g, 4);
    in_unit = pl_add(g, pl_mul(g, x, by), mean);
    pl_output(g, "value", in_unit);
    mean = pl_scalar(g, 150);
    by = pl_scalar(g, 0.25);
    pl_loss(g, pl_mse(g, x, pl_mul(g, pl_sub(g, y, mean), by)));
    pl_log(g, "mae", pl_mae(g, in_unit, y), PL_ON_EPOCH);
}

/* The steps of two layers, read by a last one in both directions. */
static void sequence(pl_graph_t *g)
{
    const pl_recurrent_options_t two = {.layers = 2, .dropout = 0.25},
                                 both = {.bidirectional = true, .no_bias = true};
    pl_node_t x = pl_embedding(g, "0", pl_input(g, "x"), 11, 8, pl_normal(1)), last;
    x = pl_lstm(g, "1", x, 6, &two, NULL, NULL);
    pl_gru(g, "2", x, 5, &both, &last);
    last = pl_permute(g, pl_slice(g, last, 0, 0, 2), (int[]){1, 0, 2});
    last = pl_reshape(g, last, PL_SHAPE(4, 10));
    classify(g, pl_reshape(g, pl_linear(g, "3", last, 55), PL_SHAPE(4, 5, 11)));
}

static void norms(pl_graph_t *g)
{
    pl_node_t x = pl_conv2d(g, "0", pl_input(g, "x"), 4,
                            &(pl_conv_options_t){.kernel = 1, .stride = 1});
    x = pl_group_norm(g, "1", x, 2, &(pl_norm_options_t){.epsilon = 1e-3});
    x = pl_instance_norm(g, "2", x, &(pl_norm_options_t){.no_weight = true});
    x = pl_instance_norm(g, "3", x, NULL);
    x = pl_layer_norm_with(g, "4", x, &(pl_norm_options_t){.axes = 2, .no_bias = true});
    x = pl_rms_norm(g, "5", x, &(pl_norm_options_t){.axes = 3, .epsilon = 1e-6});
    classify(g, pl_linear(g, "7", pl_flatten(g, x, 1), 3));
}

/* Windows of several sizes, over two axes of space, then over one. */
static void windows(pl_graph_t *g)
{
    const pl_convolution_options_t wide = {.windows = {.kernel = {3, 1},
                                                       .stride = {2, 1},
                                                       .padding = {PL_UNPADDED, 2},
                                                       .dilation = {1, 2}}},
                                   each = {.windows = {.kernel = {2, 3}},
                                           .same = true,
                                           .groups = 4},
                                   halves = {.windows = {.kernel = {3}, .padding = {1}},
                                             .groups = 2,
                                             .no_bias = true};
    pl_node_t x = pl_conv(g, "0", pl_input(g, "x"), 4, &wide);
    x = pl_conv(g, "1", x, 4, &each);
    x = pl_reshape(g, x, PL_SHAPE(pl_dim(g, x, 0), 4, -1));
    classify(g, pl_linear(g, "5", pl_flatten(g, pl_conv(g, "3", x, 6, &halves), 1), 3));
}

static void no_x(pl_graph_t *g)
{
    const pl_node_t a = pl_input(g, "a"),
                    part[] = {pl_linear(g, "1.branches.left.0", a, 2),
                              pl_linear(g, "1.branches.right.0", a, 3)};
    classify(g, pl_linear(g, "2", pl_concat(g, part, 2, 1), 3));
}

static void differences(pl_graph_t *g)
{
    const pl_node_t kept = pl_input(g, "x"),
                    x = pl_sub(g, pl_linear(g, "1", kept, 6), kept);
    classify(g, pl_linear(g, "4", pl_maximum(g, x, kept), 3));
}

/* Larger by a transposed convolution, then smaller by pools. */
static void pools(pl_graph_t *g)
{
    const pl_conv_transpose_options_t twice = {.windows = {.kernel = {3},
                                                           .stride = {2},
                                                           .padding = {1}},
                                               .output_padding = {1},
                                               .groups = 2};
    const pl_pool_options_t
        wide = {.windows = {.kernel = {2, 3}, .stride = {2, 1}, .padding = {1}},
                .ceil_mode = true},
        mean = {.windows = {.kernel = {3}, .stride = {2}, .padding = {1}},
                .exclude_padding = true};
    const int64_t size[PL_SPACE] = {3, 2};
    pl_node_t x = pl_conv2d(g, "0", pl_input(g, "x"), 4,
                            &(pl_conv_options_t){.kernel = 1});
    x = pl_avg_pool(g, pl_conv_transpose(g, "1", x, 6, &twice), &mean);
    x = pl_adaptive_avg_pool(g, pl_max_pool(g, x, &wide), size);
    const pl_node_t part[] = {pl_global_max_pool(g, x), pl_global_avg_pool(g, x)};
    classify(g, pl_linear(g, "6", pl_concat(g, part, 2, 1), 3));
}

/* The heads [B, 2, 5, 4] of part k of [B, 5, ...]. */
static pl_node_t heads_of(pl_graph_t *g, pl_node_t all, int k)
{
    const pl_node_t part = pl_slice(g, all, 2, k * 8, k * 8 + 8);
    return pl_permute(g, pl_reshape(g, part, PL_SHAPE(4, 5, 2, 4)), (int[]){0, 2, 1, 3});
}

static void padded(pl_graph_t *g)
{
    const pl_node_t x = pl_embedding(g, "0", pl_input(g, "x"), 11, 8, pl_normal(1)),
                    mask = pl_input(g, "mask"), all = pl_linear(g, "1.qkv", x, 24);
    pl_node_t part[3];
    for (int k = 0; k < 3; k++)
        part[k] = heads_of(g, all, k);
    pl_node_t y = pl_attention(g, part[0], part[1], part[2],
                               &(pl_attention_options_t){.mask = &mask});
    y = pl_reshape(g, pl_permute(g, y, (int[]){0, 2, 1, 3}), PL_SHAPE(4, 5, 8));
    y = pl_linear(g, "1.proj", y, 8);
    const pl_node_t queries = pl_linear(g, "4.q", pl_tanh(g, y), 8),
                    keys = pl_linear(g, "4.kv", y, 16);
    part[0] = heads_of(g, queries, 0);
    part[1] = heads_of(g, keys, 0);
    part[2] = heads_of(g, keys, 1);
    y = pl_attention(g, part[0], part[1], part[2],
                     &(pl_attention_options_t){.causal = true});
    y = pl_reshape(g, pl_permute(g, y, (int[]){0, 2, 1, 3}), PL_SHAPE(4, 5, 8));
    classify(g, pl_linear(g, "5", pl_linear(g, "4.proj", y, 8), 11));
}

/* A token in front is no padding. */
static void padded_behind_a_token(pl_graph_t *g)
{
    const pl_node_t x = pl_embedding(g, "0", pl_input(g, "x"), 11, 8, pl_normal(1)),
                    token = pl_param(g, "1.weight", PL_SHAPE(1, 1, 8), pl_normal(0.02)),
                    part[] = {pl_broadcast_to(g, token, PL_SHAPE(4, 1, 8)), x},
                    all = pl_concat(g, part, 2, 1), field = pl_input(g, "mask"),
                    one = pl_scalar(g, 1),
                    masks[] = {pl_broadcast_to(g, one, PL_SHAPE(4, 1)), field},
                    mask = pl_concat(g, masks, 2, 1),
                    lengths = pl_sum(g, mask, (int[]){1}, 1, false),
                    whole = pl_cast(g, lengths, PL_I64);
    const pl_node_t y = pl_gru(g, "2", all, 11,
                               &(pl_recurrent_options_t){.layers = 1, .lengths = &whole},
                               NULL);
    classify(g, pl_slice(g, y, 1, 1, 6));
}

static void of_two_and_three(pl_graph_t *g)
{
    const pl_node_t a = pl_input(g, "x"), b = pl_linear(g, "1", a, 6),
                    is_more = pl_greater(g, b, a);
    const pl_node_t m = pl_reshape(g, pl_where(g, is_more, a, b), PL_SHAPE(4, 2, 3)),
                    square = pl_matmul(g, m, m, false, true),
                    q = pl_permute(g, square, (int[]){0, 2, 1}),
                    x = pl_einsum(g, "bij,bki->bkj", m, q),
                    s = pl_sum(g, x, (int[]){1}, 1, false);
    pl_scope(g, "14");                           /* which has random numbers of its own */
    const pl_node_t normal = pl_randn(g, pl_shape_of(g, s));
    pl_scope_end(g);
    const pl_node_t noisy = pl_add(g, normal, s);
    pl_scope(g, "17");
    const pl_node_t even = pl_rand(g, pl_shape_of(g, noisy));
    pl_scope_end(g);
    classify(g, pl_linear(g, "19", pl_mul(g, even, noisy), 3));
}

static void along_axes(pl_graph_t *g)
{
    const pl_node_t m = pl_rotary(g, pl_reshape(g, pl_input(g, "x"), PL_SHAPE(4, 3, 2)),
                                  NULL),
                    i = pl_reshape(g, pl_argmax(g, m, -1), PL_SHAPE(4, 3, 1)),
                    v = pl_gather(g, m, -1, i), w = pl_scatter_add(g, m, -1, i, v),
                    c = pl_cosine_similarity(g, w, m, -1),
                    l = pl_add(g, pl_logsumexp(g, w, -1, false), c),
                    n = pl_cast(g, pl_cast(g, pl_argmin(g, m, -1), PL_I64), PL_F32),
                    k = pl_mul(g, n, l),
                    x = pl_add(g, pl_var(g, w, (int[]){2}, 1, 0, false), k);
    classify(g, pl_linear(g, "27", x, 3));
}

static void sizes(pl_graph_t *g)
{
    pl_node_t x = pl_interpolate(g, pl_input(g, "x"), (int64_t[]){5, 4}, 2, true);
    x = pl_interpolate(g, x, (int64_t[]){3, 3}, 2, false);
    classify(g, pl_linear(g, "3", pl_mean(g, x, (int[]){2, 3}, 2, false), 3));
}

/* The mean of losses [B, n] with a weight for each sample. */
static void weigh(pl_graph_t *g, pl_node_t w, pl_node_t loss, int64_t n)
{
    const pl_node_t of_sample = pl_sum(g, pl_reshape(g, loss, PL_SHAPE(4, -1)),
                                       (int[]){1}, 1, false);
    pl_loss(g, pl_pair(pl_sum(g, pl_mul(g, w, of_sample), NULL, 0, false),
                       pl_scale(g, pl_sum(g, w, NULL, 0, false), (double)n)));
}

static void weighted_values(pl_graph_t *g)
{
    const pl_node_t in = pl_input(g, "x"), y = pl_input(g, "y"),
                    x = pl_flatten(g, pl_linear(g, "0", in, 1), 0);
    pl_output(g, "value", x);
    const pl_node_t w = pl_input(g, "weight");
    weigh(g, w, pl_abs(g, pl_sub(g, x, y)), 1);
    pl_log(g, "mae", pl_mae(g, x, y), PL_ON_EPOCH);
}

static void weighted_classes(pl_graph_t *g)
{
    const pl_node_t x = pl_linear(g, "0", pl_input(g, "x"), 3), y = pl_input(g, "y"),
                    w = pl_input(g, "weight");
    const pl_cross_entropy_options_t o = {.has_ignore = true, .ignore_index = -100};
    pl_output(g, "logits", x);
    const pl_node_t share = pl_add(g, pl_scale(g, y, 0.25), pl_scalar(g, 0.25)),
                    each = pl_mul(g, share, pl_log_softmax(g, x, -1));
    weigh(g, w, pl_neg(g, pl_sum(g, each, (int[]){-1}, 1, false)), 1);
    pl_log(g, "acc", pl_accuracy(g, x, pl_argmax(g, y, 1), &o), PL_ON_EPOCH);
}

static void weighted_labels(pl_graph_t *g)
{
    const pl_node_t x = pl_linear(g, "0", pl_input(g, "x"), 5), y = pl_input(g, "y");
    pl_output(g, "labels", pl_sigmoid(g, x));
    const pl_node_t t = pl_cast(g, y, PL_F32),
                    w = pl_reshape(g, pl_input(g, "weight"), PL_SHAPE(-1, 1));
    pl_loss(g, pl_bce_with_logits(g, x, t, &(pl_bce_options_t){.weights = &w}));
}

static void constants(pl_graph_t *g)
{
    const pl_node_t tokens = pl_input(g, "x"), four = pl_scalar(g, 4),
                    bias = pl_arange(g, 0.5, 0.1, 6),
                    mask = pl_less(g, pl_range(g, 6), four), i = pl_range(g, 3),
                    table = pl_tensor_file(g, path, NULL),
                    rows = pl_sum(g, pl_take(g, table, 1, i), (int[]){-1}, 1, false),
                    all = pl_embedding(g, "14", tokens, 11, 8, pl_normal(1)),
                    token = pl_param(g, "15.weight", PL_SHAPE(1, 1, 8), pl_normal(0.1));
    const pl_node_t part[] = {pl_broadcast_to(g, token, PL_SHAPE(4, 1, 8)), all};
    const pl_node_t x = pl_concat(g, part, 2, 1), qkv = pl_linear(g, "16.qkv", x, 24);
    const pl_attention_options_t o = {.scale = 0.3, .bias = &bias, .mask = &mask};
    pl_node_t head[3];
    for (int k = 0; k < 3; k++) {
        head[k] = pl_reshape(g, pl_slice(g, qkv, 2, 8 * k, 8 * k + 8),
                             PL_SHAPE(4, 6, 2, 4));
        head[k] = pl_permute(g, head[k], (int[]){0, 2, 1, 3});
    }
    pl_node_t y = pl_attention(g, head[0], head[1], head[2], &o);
    y = pl_reshape(g, pl_permute(g, y, (int[]){0, 2, 1, 3}), PL_SHAPE(4, 6, 8));
    y = pl_linear(g, "16.proj", y, 8);
    y = pl_slice(g, pl_linear(g, "17", y, 2), 1, 0, 5);
    classify(g, pl_mul(g, y, rows));
}

static void among_ranks(pl_graph_t *g)
{
    const pl_node_t in = pl_input(g, "x"), s = pl_arange(g, 0, 1, 3),
                    both = pl_all_reduce(g, s, PL_LOOP_MEAN),
                    a = pl_mul(g, pl_linear(g, "4", in, 3), both),
                    all = pl_all_gather(g, a);
    classify(g, pl_matmul(g, a, all, false, true));
}

static void own_operator(pl_graph_t *g)
{
    const pl_node_t a = pl_linear(g, "0", pl_input(g, "x"), 3),
                    input[] = {pl_tanh(g, a), a};
    classify(g, pl_apply(g, "blend", input, 2, NULL));
}

static void huber_of_a_half(pl_graph_t *g)
{
    const pl_node_t in = pl_input(g, "x"), y = pl_input(g, "y"),
                    x = pl_flatten(g, pl_linear(g, "0", in, 1), 0);
    pl_output(g, "value", x);
    pl_loss(g, pl_huber(g, x, y, 0.5));
    pl_log(g, "mae", pl_mae(g, x, y), PL_ON_EPOCH);
}

static void log_probabilities(pl_graph_t *g)
{
    const pl_node_t x = pl_log_softmax(g, pl_linear(g, "0", pl_input(g, "x"), 3), -1),
                    y = pl_input(g, "y");
    const pl_cross_entropy_options_t o = {.has_ignore = true, .ignore_index = -100};
    pl_output(g, "logits", x);
    pl_loss(g, pl_nll(g, x, y, &o));
    pl_log(g, "acc", pl_accuracy(g, x, y, &o), PL_ON_EPOCH);
}

static void divergence(pl_graph_t *g)
{
    const pl_node_t x = pl_log_softmax(g, pl_linear(g, "0", pl_input(g, "x"), 3), -1),
                    y = pl_input(g, "y");
    const pl_cross_entropy_options_t o = {.has_ignore = true, .ignore_index = -100};
    pl_output(g, "logits", x);
    pl_loss(g, pl_kl(g, x, y));
    pl_log(g, "acc", pl_accuracy(g, x, pl_argmax(g, y, -1), &o), PL_ON_EPOCH);
}

static void spoken(pl_graph_t *g)
{
    const pl_node_t x = pl_linear(g, "0", pl_input(g, "x"), 4), y = pl_input(g, "y");
    pl_output(g, "logits", x);
    const pl_node_t number = pl_cast(g, y, PL_F32),
                    ended = pl_cumsum(g, pl_less(g, number, pl_scalar(g, 0)), 1),
                    is_label = pl_equal(g, ended, pl_scalar(g, 0)),
                    steps = pl_broadcast_to(g, pl_scalar(g, 5), PL_SHAPE(4)),
                    length = pl_sum(g, is_label, (int[]){1}, 1, false),
                    p = pl_log_softmax(g, x, -1), t = pl_cast(g, steps, PL_I64),
                    s = pl_cast(g, length, PL_I64);
    pl_loss(g, pl_ctc(g, p, y, t, s, &(pl_ctc_options_t){.blank = 3}));
}

/* The same layers for each field. */
static void each_of(pl_graph_t *g, pl_node_t x[], int count)
{
    static const char *const names[] = {"a", "p", "n"};
    for (int k = 0; k < count; k++)
        x[k] = pl_tanh(g, pl_linear(g, "0.each.0", pl_input(g, names[k]), 4));
}

static void triplet(pl_graph_t *g)
{
    pl_node_t x[3];
    each_of(g, x, 3);
    pl_output(g, "value", x[0]);
    pl_loss(g, pl_triplet(g, x[0], x[1], x[2], 0.5));
}

static void found_among_all(pl_graph_t *g)
{
    pl_node_t x[2];
    each_of(g, x, 2);
    pl_output(g, "value", x[0]);
    pl_loss(g, pl_info_nce(g, x[0], x[1], pl_scalar(g, 0.1)));
}

static void near_or_apart(pl_graph_t *g)
{
    pl_node_t x[2];
    each_of(g, x, 2);
    const pl_node_t y = pl_input(g, "y");
    pl_output(g, "value", x[0]);
    pl_loss(g, pl_cosine_embedding(g, x[0], x[1], pl_cast(g, y, PL_F32), 0.25));
}

static const struct {
    const char *what, *module;
    const pl_field_t *fields;
    void (*in_c)(pl_graph_t *g);
} models[] = {
    {"constants, a class token, and attention with bias, mask and scale",
     "{'layers': ['scalar 4', 'keep four', 'arange 6 0.5 0.1', 'keep bias', 'range 6', "
     "'less four', 'keep mask', 'range 3', 'keep i', 'tensor @', 'take i "
     "axis=1', 'sum -1', 'keep rows', 'input x', "
     "'embedding 11 8', 'token 0.1', 'attention 2 scale=0.3 bias=bias mask=mask', "
     "'linear 2', 'slice 1 0 5', 'mul rows'], 'classes': 2}",
     text, constants},
    {"values of all ranks",
     "{'layers': ['arange 3', 'all_reduce mean', 'keep s', 'input x', 'linear 3', "
     "'mul s', 'keep a', 'all_gather', 'keep g', 'use a', 'matmul g transpose'], "
     "'classes': 8}",
     row, among_ranks},
    {"an operator of the user",
     "{'layers': ['linear 3', 'keep a', 'tanh', 'blend a'], 'classes': 3}", row,
     own_operator},
    {"huber with a delta", "{'layers': ['linear auto'], 'loss': 'huber delta=0.5'}",
     value, huber_of_a_half},
    {"nll", "{'layers': ['linear auto', 'log_softmax'], 'classes': 3, 'loss': 'nll'}",
     row, log_probabilities},
    {"kl", "{'layers': ['linear auto', 'log_softmax'], 'classes': 3, 'loss': 'kl'}",
     shares, divergence},
    {"ctc", "{'layers': ['linear 4'], 'loss': 'ctc blank=3'}", speech, spoken},
    {"triplets by the same layers",
     "{'layers': [{'each': ['a', 'p', 'n'], 'layers': ['linear 4', 'tanh']}], 'loss': "
     "'triplet p n margin=0.5'}",
     triples, triplet},
    {"pairs among all",
     "{'layers': [{'each': ['a', 'p'], 'layers': ['linear 4', 'tanh']}], 'loss': "
     "'info_nce p 0.1'}",
     triples, found_among_all},
    {"pairs that are near or apart",
     "{'layers': [{'each': ['a', 'p'], 'layers': ['linear 4', 'tanh']}], 'loss': "
     "'cosine_embedding p margin=0.25'}",
     pairs, near_or_apart},
    {"a perceptron",
     "{'layers': ['linear 8', 'silu', 'clamp -1 2', 'leaky_relu 0.1', 'linear auto'], "
     "'classes': 3}",
     row, mlp},
    {"a model for values",
     "{'layers': ['linear 4 no_bias', 'gelu', 'linear auto'], 'loss': 'huber'}", value,
     values},
    {"layers that are computed again",
     "{'layers': [{'checkpoint': ['linear 8', 'relu', 'linear 7']}, 'relu', "
     "'linear auto'], 'classes': 3}",
     row, repeated},
    {"repeats, residuals and branches",
     "{'layers': [{'repeat': 2, 'layers': [{'residual': ['layer_norm', 'linear 6']}]}, "
     "{'residual': ['linear 7'], 'shortcut': ['linear 7']}, "
     "{'branches': [['linear 2'], ['linear 3', 'tanh']], 'axis': 1}, 'linear auto'], "
     "'classes': 3}",
     row, residual},
    {"a convolutional network with a bridge",
     "{'layers': ['conv 4 3 same', 'batch_norm', 'relu', 'keep a', 'conv 4 5 same', "
     "'add a', 'pool 2', 'conv 5 2 2 padding=1 no_bias', 'global_pool', 'linear auto'], "
     "'classes': 3}",
     image, cnn},
    {"windows of several sizes",
     "{'layers': ['conv 4 3x1 2x1 0x2 dilation=1x2', 'depthwise 2x3 same', "
     "'reshape 4 -1', 'conv 6 3 padding=1 groups=2 no_bias', 'flatten', 'linear auto'], "
     "'classes': 3}",
     image, windows},
    {"a transposed convolution and pools",
     "{'layers': ['conv 4 1', 'conv_transpose 6 3 stride=2 padding=1 output_padding=1 "
     "groups=2', 'avg_pool 3 2 1 exclude_padding', 'pool 2x3 2x1 padding=1 ceil_mode', "
     "'adaptive_pool 3x2', {'branches': [['global_max_pool'], ['global_pool']], "
     "'axis': 1}, 'linear auto'], 'classes': 3}",
     image, pools},
    {"norms",
     "{'layers': ['conv 4 1', 'group_norm 2 1e-3', 'instance_norm', "
     "'instance_norm affine', 'layer_norm 2 no_bias', 'rms_norm 3 1e-6', 'flatten', "
     "'linear auto'], 'classes': 3}",
     image, norms},
    {"moves of images",
     "{'layers': ['flip 3', 'pad 1 0.5', 'pad 1 reflect', 'slice 2 1 11 2', 'upsample 4 "
     "linear', 'conv 8 1', 'pixel_shuffle 2', 'pixel_unshuffle 4', 'roll 1 2', 'tile 1 "
     "2', "
     "'tril 1', 'triu -1', 'keep a', 'stack a 2', 'flatten', 'linear auto'], 'classes': "
     "3}",
     image, decoder},
    {"a transformer",
     "{'layers': ['embedding 11 8 0.02', 'positions', {'residual': ['layer_norm', "
     "'attention 2 causal']}, 'linear auto'], 'classes': 11}",
     text, gpt},
    {"the same, as wide as the vocabulary",
     "{'layers': ['embedding auto 8 0.02', 'positions', {'residual': ['layer_norm', "
     "'attention 2 causal']}, 'linear auto'], 'vocabulary_size': 11}",
     text, gpt_of_text},
    {"recurrent layers",
     "{'layers': ['embedding 11 8', 'lstm 6 layers=2 dropout=0.25', 'gru 5 bidirectional "
     "last no_bias', 'linear 55', 'reshape 5 11'], 'classes': 11}",
     text, sequence},
    {"labels, without metrics", "{'layers': ['linear auto'], 'labels': 5, 'metrics': []}",
     labels, labelled},
    {"values that are scaled",
     "{'layers': ['linear auto'], 'target_mean': 150, 'target_factor': 0.25}", value,
     scaled_values},
    {"operators of two inputs",
     "{'layers': ['keep a', 'linear 6', 'sub a', 'maximum a', 'linear auto'], "
     "'classes': 3}",
     row, differences},
    {"another first field, and branches with names",
     "{'layers': ['input a', {'branches': {'left': ['linear 2'], 'right': ['linear "
     "3']}}, "
     "'linear auto'], 'classes': 3}",
     other, no_x},
    {"operators of two and three inputs, and random numbers",
     "{'layers': ['keep a', 'linear 6', 'keep b', 'greater a', 'where a b', "
     "'reshape 2 3', 'keep m', 'matmul m transpose', 'permute 2 1', 'keep q', 'use m', "
     "'einsum q bij,bki->bkj', 'sum 1', 'keep s', 'randn', 'add s', 'keep t', 'rand', "
     "'mul t', 'linear auto'], 'classes': 3}",
     row, of_two_and_three},
    {"what works along an axis",
     "{'layers': ['reshape 3 2', 'rotary', 'keep m', 'argmax', 'reshape 3 1', 'keep i', "
     "'use m', 'gather i', 'keep v', 'use m', 'scatter_add i v', 'keep w', "
     "'cosine_similarity m', 'keep c', 'use w', 'logsumexp -1', 'add c', 'keep l', "
     "'use m', 'argmin', 'int', 'float', 'mul l', 'keep k', 'use w', 'var 2 0', 'add k', "
     "'linear auto'], 'classes': 3}",
     row, along_axes},
    {"attention to what is no padding, and to what was kept",
     "{'layers': ['embedding 11 8', 'attention 2', 'keep m', 'tanh', "
     "'attention 2 causal keys=m', 'linear 11'], 'classes': 11}",
     filled, padded},
    {"padding behind a token",
     "{'layers': ['embedding 11 8', 'token', 'gru 11', 'slice 1 1 6'], 'classes': 11}",
     filled, padded_behind_a_token},
    {"images of another size",
     "{'layers': ['resize 5x4 linear', 'resize 3', 'global_pool', 'linear auto'], "
     "'classes': 3}",
     image, sizes},
    {"values of weighted samples", "{'layers': ['linear auto'], 'loss': 'l1'}", weighted,
     weighted_values},
    {"weighted samples with a share of each class, smoothed",
     "{'layers': ['linear auto'], 'classes': 3, 'label_smoothing': 0.75}", soft,
     weighted_classes},
    {"labels of weighted samples",
     "{'layers': ['linear auto'], 'labels': 5, 'metrics': []}", choices, weighted_labels},
    {"what works by indices and in order",
     "{'layers': ['one_hot 11', 'cumsum 1', 'min 1', 'sort descending', 'linear 8', "
     "'top_k 4 axis=1', 'linear 55', 'reshape 5 11'], 'classes': 11}",
     text, indices},
};

/* The module from JSON with ' in place of ". */
static bool module_make(pl_instance_t *instance, const char *quoted, pl_error_t *err)
{
    char json[2048];
    const char *file = strchr(quoted, '@');
    const int before = file ? (int)(file - quoted) : (int)strlen(quoted);
    snprintf(json, sizeof json, "%.*s%s%s", before, quoted, file ? path : "",
             file ? file + 1 : "");
    for (char *at = json; (at = strchr(at, '\''));)
        *at = '"';
    json_t *given = json_loads(json, 0, NULL);
    json_object_set_new(given, "name", json_string("layers"));
    const pl_instance_request_t request = {.role = "module", .value = given};
    const bool made = given && pl_instance_make(instance, &request, err) == PL_OK;
    json_decref(given);
    return made;
}

static int count_of(const pl_field_t *fields)
{
    return fields == weighted || fields == soft || fields == choices || fields == filled
                   || fields == triples || fields == pairs
               ? 3
               : 2;
}

/* The hash of a training step, and the names and shapes of its tensors. */
static uint32_t step_hash(const pl_field_t *fields, const pl_instance_t *instance,
                          void (*in_c)(pl_graph_t *g), char names[1024], pl_error_t *err)
{
    pl_model_t *model = pl_model_new(NULL);
    pl_graph_t *g = pl_graph_new(model, PL_TRAIN, fields, count_of(fields), 4, NULL);
    g->ranks = 2;
    if (in_c)
        in_c(g);
    else
        pl_layers_module.step(g, instance->self, PL_TRAIN);
    const bool is_right = pl_graph_check(g, err) == PL_OK
                          && pl_graph_gradients(g, 4, false, err) == PL_OK;
    const uint32_t hash = is_right ? pl_graph_hash(0, g) : 0;
    size_t used = 0;
    names[0] = '\0';
    for (int k = 0; k < model->count && used < 900; k++)
        used += (size_t)snprintf(names + used, 1024 - used, "%s ", model->tensor[k].name);
    pl_graph_free(g);
    pl_model_free(model);
    return hash;
}

static void lists_give_the_graphs_of_c(void)
{
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        pl_instance_t instance = {0};
        pl_error_t err = {0};
        char ours[1024], theirs[1024];
        if (!ok(module_make(&instance, models[k].module, &err), "%s: %s", models[k].what,
                err.text))
            continue;
        const uint32_t hash = step_hash(models[k].fields, &instance, NULL, ours, &err),
                       want = step_hash(models[k].fields, NULL, models[k].in_c, theirs,
                                        &err);
        ok(hash && hash == want, "the graph is the same %s", err.text);
        is_text(ours, theirs, "and so are the names of its tensors");
        pl_instance_release(&instance);
    }
}

static void mistakes_have_a_place(void)
{
    static const struct {
        const char *layers, *pattern;
    } mistakes[] = {
        {"[]", "^r:1:40: \"module.layers\": layers takes a list of layers, such as"},
        {"['linear 3', 7]", "\"module.layers.1\": a layer is a text or an object$"},
        {"['linear 3', 'sillu']", "\"module.layers.1\": there is no layer \"sillu\": did "
                                  "you mean \"silu\"\\?$"},
        {"['global_avg_pool']", "there is no layer \"global_avg_pool\": it is called "
                                "\"global_pool\" here$"},
        {"['GlobalAveragePooling2D']", "it is called \"global_pool\" here$"},
        {"['Dense(64)']", "\"Dense\\(64\\)\": it is called \"linear\" here$"},
        {"['adaptive_max_pool2d 1']", "it is called \"adaptive_pool 1 max\" here$"},
        {"['BatchNorm2d']", "\"BatchNorm2d\": did you mean \"batch_norm\"\\?$"},
        {"['conv2d 8 3']", "\"conv2d\": did you mean \"conv\"\\?$"},
        {"['LeakyReLU 0.1']", "did you mean \"leaky_relu\"\\?$"},
        {"['lstm2 8']", "did you mean \"lstm\"\\?$"},
        {"['linear']", "\"module.layers.0\": linear needs units: write \"linear units "
                       "\\[no_bias\\]\"$"},
        {"['linear x']", "\"module.layers.0\": linear takes a number for units, not "
                         "\"x\"$"},
        {"['linear 0']", "linear takes units of at least 1, not 0$"},
        {"['linear 3 4']", "linear has no argument \"4\": write \"linear units "
                           "\\[no_bias\\]\"$"},
        {"['linear 3 units=4']",
         "linear has units twice: remove \"units=4\" or the other one$"},
        {"['linear 3'], 'metrics': ['auroc 3']",
         "the metric \"auroc 3\" takes its number of bins, .* at least 10; \"auroc "
         "classes\""},
        {"['linear 3'], 'metrics': ['f1 3']", "the metric \"f1 3\" takes no number"},
        {"['linear 3'], 'metrics': ['acc 1.5']", "\"acc 1.5\" takes a whole number"},
        {"['relu 2']", "relu has no argument \"2\": write \"relu\"$"},
        {"['conv 3 3x']",
         "conv takes a number of at least 1 for kernel, as .* not \"3x\"$"},
        {"['adaptive_pool 0']", "adaptive_pool takes a number of at least 1 for output"},
        {"['conv 3 3x3x3x3']", "conv takes a number of at least 1 for kernel"},
        {"['conv 3 0x3']", "conv takes a number of at least 1 for kernel"},
        {"['conv 3 3 strid=2']", "conv has no argument \"strid\": write \"conv channels"},
        {"['linear 3.5']", "linear takes a whole number for units, not 3.5$"},
        {"['attention 2 x']",
         "attention has no argument \"x\"|takes a number for dropout"},
        {"['where a']", "where needs other: write \"where kept other\"$"},
        {"['einsum a']", "einsum needs equation: write \"einsum name equation\"$"},
        {"['sum 0']", "sum takes no axis 0, along which"},
        {"['linear 3'], 'label_smoothing': 1.5", "label_smoothing"},
        {"['slice 1 0.5 2']", "slice takes a whole number for from, not 0.5$"},
        {"['flip 0']", "flip takes no axis 0, along which the samples of a batch are"},
        {"['']", "\"module.layers.0\": a layer has a name"},
        {"['a b c d e f g h i j k l m']", "a layer has at most 12 words"},
        {"['keep abcdefghijklmnopqrstuvwxyzabcdef']",
         "keep takes 1 to 31 characters for name, not"},
        {"['keep name=']", "keep takes 1 to 31 characters for name, not \"\""},
        {"['blend a b']", "the operator blend takes x and 1 kept value, got 2 names$"},
        {"['linear 3'], 'loss': 'hubert'",
         "^r:1:[0-9]*: \"module.loss\": there is no loss \"hubert\": did you mean "
         "\"huber\"\\?$"},
        {"['linear 3'], 'loss': 'huber delta=x'", "huber takes a number for delta, not"},
        {"['linear 3'], 'loss': 'triplet a'",
         "\"module.loss\": triplet needs negative: write \"triplet positive negative "
         "\\[margin=1\\]\"$"},
        {"[{'each': [], 'layers': ['relu']}]", "each takes a list of 1 to 16 names"},
        {"[{'each': [3], 'layers': ['relu']}]", "each takes names of 1 to 31 characters"},
        {"[{'each': ['a'], 'layers': ['linear']}]",
         "\"module.layers.0.layers.0\": linear needs units"},
        {"['relu', {'residual': ['tanh', 'linear']}]",
         "\"module.layers.1.residual.1\": linear needs units"},
        {"['relu', {'branches': [['linear'], ['linear']]}]",
         "\"module.layers.1.branches.0.0\": linear needs units"},
        {"['relu', {'residual': ['linear'], 'shortcut': ['linear']}]",
         "\"module.layers.1.residual.0\": linear needs units"},
        {"['relu', {'repeat': 2, 'layers': ['relu', 'linear']}]",
         "\"module.layers.1.layers.1\": linear needs units"},
        {"[{'residual': []}]", "\"module.layers.0\": residual takes a list of layers"},
        {"[{'repeat': 0, 'layers': ['relu']}]", "repeat takes a number from 1 to 1000$"},
        {"[{'repeat': 2}]", "takes a list of layers"},
        {"[{'branches': [['relu']], 'join': 'min'}]", "join takes concat, add or mul$"},
        {"[{'branches': 3}]", "branches takes 1 to 8 lists of layers, in a list"},
        {"[{'residual': ['relu'], 'axis': 1}]",
         "\"residual\" takes no \"axis\", but \"shortcut\"$"},
        {"[{'branches': [['relu']], 'joi': 'add'}]",
         "\"branches\" takes no \"joi\", but \"join\" and \"axis\"$"},
        {"[{'checkpoint': ['relu'], 'axis': 1}]",
         "\"checkpoint\" takes no \"axis\": remove it$"},
        {"[{'checkpoint': 3}]", "\"module.layers.0\": checkpoint takes a list of layers"},
        {"[{'branches': {'a.b': ['relu']}}]",
         "the name of a branch has 1 to 31 characters without dots and spaces, and "
         "\"a.b\" does not$"},
        {"[{'branches': {}}]", "branches takes 1 to 8 lists of layers, in a list or by"},
        {"['linear 3'], 'metrics': ['acc', 'f9']",
         "\"module.metrics\": \"f9\" is no metric of .*; there are acc, .*, msle$"},
        {"[{'wrong': 1}]", "an object among the layers has \"residual\", \"repeat\", "
                           "\"each\", \"checkpoint\" or"},
    };
    for (size_t k = 0; k < sizeof mistakes / sizeof *mistakes; k++) {
        char json[512];
        pl_error_t err = {0};
        snprintf(json, sizeof json,
                 "{'module': {'name':'layers', 'layers': %s}, "
                 "'optimizer': 'sgd', 'data': {'name': 'csv', "
                 "'path': 'x'}}",
                 mistakes[k].layers);
        for (char *at = json; (at = strchr(at, '\''));)
            *at = '"';
        pl_options_t *o = pl_options_parse(json, "r", NULL);
        ok(o && pl_options_check(o, &err) == PL_EINVAL, "%s is refused",
           mistakes[k].layers);
        like(err.text, mistakes[k].pattern, "with the place");
        pl_options_free(o);
    }
}

static void shapes_that_do_not_fit_name_the_layer(void)
{
    static const struct {
        const char *module, *pattern;
    } mistakes[] = {
        {"{'layers': ['linear 4', 'conv 3 3'], 'classes': 3}",
         "^\"module.layers.1\", conv 3 3: conv takes x \\[B, C, ...\\].* got \\[4, "
         "4\\]"},
        {"{'layers': [{'residual': ['relu', 'linear 4']}], 'classes': 3}",
         "^\"module.layers.0\": add takes shapes that broadcast.*\\[4, 6\\] and \\[4, "
         "4\\]$"},
        {"{'layers': [{'residual': ['relu', 'mean 5']}], 'classes': 3}",
         "^\"module.layers.0.residual.1\", mean 5: mean takes an axis"},
        {"{'layers': ['linear 3', 'add a'], 'classes': 3}",
         "^\"module.layers.1\", add a: no layer before this one is \"keep a\"$"},
        {"{'layers': ['attention 4'], 'classes': 3}",
         "attention takes x \\[B, T, C\\] with C a multiple of its 4 heads, got"},
        {"{'layers': ['lstm 4 layers=2'], 'classes': 3}",
         "^\"module.layers.0\", lstm 4 layers=2: lstm takes x \\[B, T, C\\] and .* "
         "got \\[4, 6\\] and 4$"},
        {"{'layers': ['positions'], 'classes': 3}",
         "positions takes x \\[B, T, C\\], got"},
        {"{'layers': ['reshape 2 3', 'conv 3 3 groups=3'], 'classes': 3}",
         "conv takes groups that divide the channels of x and of the result, got 3 for 2 "
         "and 3 channels$"},
        {"{'layers': ['reshape 2 3', 'conv_transpose 2 3 stride=2 output_padding=2']}",
         "conv_transpose takes an output_padding below the stride, got 2 for 2$"},
        {"{'layers': ['reshape 2 3', 'pool 2 padding=2'], 'classes': 3}",
         "max_pool takes a padding of up to half the kernel, got 2 and 2$"},
        {"{'layers': ['avg_pool 2'], 'classes': 3}",
         "avg_pool takes x \\[B, C, ...\\] with 1 to 3 axes of space, got \\[4, 6\\]$"},
        {"{'layers': ['reshape 2 3', 'conv 2 1x1'], 'classes': 3}",
         "conv has a kernel for more than the 1 axes of space of x$"},
        {"{'layers': ['reshape 1 6', 'conv 3 2 same padding=1'], 'classes': 3}",
         "conv takes a padding or same, not both$"},
        {"{'layers': ['group_norm 4'], 'classes': 3}",
         "^\"module.layers.0\", group_norm 4: group_norm takes a number of groups that "
         "divides the 6 channels of \\[4, 6\\], got 4$"},
        {"{'layers': ['instance_norm'], 'classes': 3}",
         "instance_norm needs more than one value in each group, got 6 groups of"},
        {"{'layers': ['layer_norm 3'], 'classes': 3}",
         "layer_norm takes 1 up to all axes of x, got 3 for \\[4, 6\\]$"},
        {"{'layers': ['upsample 2'], 'classes': 3}",
         "upsample takes x \\[B, C, ...\\] with axes behind the channels, got \\[4, "
         "6\\]$"},
        {"{'layers': ['pixel_shuffle 2'], 'classes': 3}",
         "^\"module.layers.0\", pixel_shuffle 2: pixel_shuffle takes x \\[B, C, H, W\\]"},
        {"{'layers': ['input z'], 'classes': 3}", "^\"module.layers.0\", input z: "},
        {"{'layers': [{'repeat': 3, 'layers': "
         "['linear 4', {'residual': ['conv 3 3']}]}]}",
         "^\"module.layers.0.layers.1.residual.0\", conv 3 3, as 0.0.1.residual.0: conv "
         "takes x .* got \\[4, 4\\]$"},
        {"{'layers': ['linear 4', 'output logits', 'linear auto'], 'classes': 3}",
         "^\"module.layers.1\", output logits: this is the name of the last layer's "
         "result"},
        {"{'layers': ['linear 4', 'output a', 'output a'], 'classes': 3}",
         "^\"module.layers.2\", output a: two outputs or metrics are named \"a\""},
        {"{'layers': ['relu', 'linear 4'], 'loss': 'mse'}",
         "^\"module.loss\": mse takes x and target of one shape, got \\[4, 4\\] and "
         "\\[4\\]$"},
        {"{'layers': ['linear auto', 'reshape 1 3'], 'classes': 3}",
         "^\"module.layers.1\": cross_entropy takes logits .*, got \\[4, 1, 3\\] and "
         "\\[4\\]$"},
        {"{'layers': ['linear auto', 'softmax'], 'classes': 3}",
         "^\"module.layers.1\": remove the last layer, softmax: the loss cross_entropy "
         "takes logits"},
        {"{'layers': ['linear auto', 'sigmoid'], 'loss': 'bce'}",
         "remove the last layer, sigmoid: the loss bce takes logits"},
        {"{'layers': ['linear auto']}",
         "^\"module.layers.0\", linear auto: the data does not say how many classes"},
        {"{'layers': ['embedding auto 3'], 'classes': 3}",
         "embedding auto 3: the data does not say how many tokens there are"},
        {"{'layers': ['linear 3'], 'loss': 'triplet a b'}",
         "^\"module.loss\": no layer before this one is \"keep a\"$"},
        {"{'layers': ['linear 3'], 'classes': 3, 'loss': 'kl', 'label_smoothing': 0.5}",
         "\"module.label_smoothing\" is for the losses cross_entropy and nll"},
        {"{'layers': ['linear 3'], 'loss': 'ctc'}",
         "ctc takes logits \\[B, T, C\\] and a target \\[B, S\\], got \\[4, 3\\] and"},
        {"{'layers': ['tensor none.npy']}",
         "^\"module.layers.0\", tensor none.npy: .*none"},
        {"{'layers': ['linear 3', 'attention 1 bias=b']}", "attention takes x .B, T, C."},
        {"{'layers': ['token']}", "token takes x \\[B, T, C\\], got \\[4, 6\\]$"},
        {"{'layers': ['scalar 3'], 'target_means': [0, 1], 'target_factors': [1, 1], "
         "'loss': 'mse'}",
         "target_means and target_factors need a number for each"},
        {"{'layers': ['linear auto', 'softmax'], 'classes': 3, 'loss': 'nll'}",
         "write log_softmax in place of softmax: the loss nll takes logarithms"},
        {"{'layers': ['linear 2'], 'classes': 3}",
         "^\"module.layers.0\": the result has 2 classes, \\[4, 2\\], and the data 3: "
         "write "
         "\"linear auto\" or \"linear 3\"$"},
        {"{'layers': ['linear auto'], 'classes': 3, 'metrics': ['acc', 'mae']}",
         "^\"module.metrics\": metrics: \"mae\" is no metric of classes"},
    };
    for (size_t k = 0; k < sizeof mistakes / sizeof *mistakes; k++) {
        pl_instance_t instance = {0};
        pl_error_t err = {0};
        char names[1024];
        if (!ok(module_make(&instance, mistakes[k].module, &err), "%s", err.text))
            continue;
        is_int(step_hash(row, &instance, NULL, names, &err), 0, "%s is refused",
               mistakes[k].module);
        like(err.text, mistakes[k].pattern, "with the layer and the shape");
        pl_instance_release(&instance);
    }
}

/* Of several fields that pass the same layers, a prediction has the first alone. */
static void predictions_need_the_first_of_several_fields(void)
{
    pl_instance_t instance = {0};
    pl_error_t err = {0};
    if (!ok(module_make(&instance,
                        "{'layers': [{'each': ['a', 'p'], 'layers': ['linear 4']}], "
                        "'loss': 'info_nce p'}",
                        &err),
            "pairs %s", err.text))
        return;
    for (int from = 0; from < 2; from++) {
        pl_model_t *model = pl_model_new(NULL);
        pl_graph_t *g = pl_graph_new(model, PL_PREDICT, triples + from, 1, 4, NULL);
        pl_layers_module.step(g, instance.self, PL_PREDICT);
        const int code = pl_graph_check(g, &err);
        if (from)
            ok(code != PL_OK && strstr(err.text, "\"module.layers.0\": the batch has no"),
               "needs \"a\": %s", err.text);
        else
            is_int(code, PL_OK, "a is enough %s", err.text);
        pl_graph_free(g);
        pl_model_free(model);
    }
    pl_instance_release(&instance);
}

static void halve(pl_graph_t *g, const pl_use_t *use, pl_node_t dy, pl_node_t dx[])
{
    (void)use;
    dx[0] = dx[1] = pl_scale(g, dy, 0.5);
}

int main(void)
{
    static const pl_kernel_t kernels[] = {PL_KERNELS_END};
    static const pl_operator_ops_t blend = {
        .name = "blend", .help = "", .inputs = 2, .gradient = halve, .kernels = kernels};
    static const pl_registration_t components[] = {{"operator", &blend},
                                                   PL_REGISTRATIONS_END};
    pl_init(NULL, NULL, components, NULL);
    snprintf(path, sizeof path, "%s/t/data/numpy.npy",
             getenv("srcdir") ? getenv("srcdir") : "..");
    run(lists_give_the_graphs_of_c);
    run(predictions_need_the_first_of_several_fields);
    run(mistakes_have_a_place);
    run(shapes_that_do_not_fit_name_the_layer);
    return tap_done();
}
