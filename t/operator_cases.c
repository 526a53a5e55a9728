/* operator_cases.c - small graphs, several for each operator, for every test that
 * compares implementations */
#include "operator_cases.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "formula.h"
#include "tensor/precision.h"
#include "tensor/windows.h"
#include "sample_operator.h"

/* ---- What the cases build ---- */

static pl_node_t param(pl_graph_t *g, const operator_case_t *c, int k)
{
    static const char *const names[] = {"a", "b", "c"};
    return pl_param(g, names[k], c->shape[k], pl_zeros());
}

static pl_node_t build_add(pl_graph_t *g, const operator_case_t *c)
{
    return pl_add(g, param(g, c, 0), param(g, c, 1));
}

static pl_node_t build_sub(pl_graph_t *g, const operator_case_t *c)
{
    return pl_sub(g, param(g, c, 0), param(g, c, 1));
}

static pl_node_t build_mul(pl_graph_t *g, const operator_case_t *c)
{
    return pl_mul(g, param(g, c, 0), param(g, c, 1));
}

static pl_node_t build_square(pl_graph_t *g, const operator_case_t *c)
{
    return pl_mul(g, param(g, c, 0), param(g, c, 0));
}

static pl_node_t build_div(pl_graph_t *g, const operator_case_t *c)
{
    return pl_div(g, param(g, c, 0), param(g, c, 1));
}

/* arg[0] names the element-wise operator of all parameters; p and arg[1] are its
 * numbers. */
static pl_node_t build_element(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t inputs[3];
    for (int k = 0; k < c->params; k++)
        inputs[k] = param(g, c, k);
    return pl_emit(g, (pl_opcode_t)c->arg[0], inputs, c->params,
                   &(pl_attr_t){.a = c->p, .b = (double)c->arg[1]}, NULL);
}

/* b where a > 0, else c. */
static pl_node_t build_where(pl_graph_t *g, const operator_case_t *c)
{
    return pl_where(g, pl_greater(g, param(g, c, 0), pl_scalar(g, 0)), param(g, c, 1),
                    param(g, c, 2));
}

/* a times a constant of its own value. */
static pl_node_t build_detach(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t a = param(g, c, 0);
    return pl_mul(g, a, pl_detach(g, a));
}

/* arg[0] names the format; y is float32 again. */
static pl_node_t build_cast(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = param(g, c, 0);
    x = pl_emit(g, PL_OP_cast, &x, 1, &(pl_attr_t){.dtype = (pl_dtype_t)c->arg[0]}, NULL);
    return pl_emit(g, PL_OP_cast, &x, 1, &(pl_attr_t){.dtype = PL_F32}, NULL);
}

/* There and back: arg[0] is the type of the numbers, times p. */
static pl_node_t build_type(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = pl_scale(g, param(g, c, 0), c->p);
    return pl_cast(g, pl_cast(g, x, (pl_dtype_t)c->arg[0]), PL_F32);
}

/* Indices as numbers, times a; arg[0] is the type between. */
static pl_node_t build_index_type(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = pl_scale(g, pl_cast(g, pl_input(g, "i"), PL_F32), c->p ? c->p : 1);
    x = pl_cast(g, pl_cast(g, x, (pl_dtype_t)c->arg[0]), PL_F32);
    return pl_mul(g, x, param(g, c, 0));
}

static pl_node_t build_bool(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = pl_bool(g, param(g, c, 0)), i = pl_bool(g, pl_input(g, "i"));
    return pl_add(g, pl_cast(g, x, PL_F32), pl_scale(g, pl_cast(g, i, PL_F32), 10));
}

/* Indices with whole numbers, with another, and with positions. */
static pl_node_t build_compare(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t i = pl_input(g, "i"), a = param(g, c, 0);
    const pl_node_t parts[] = {
        pl_equal(g, i, pl_scalar(g, 2)),
        pl_less(g, pl_scalar(g, 2), i),
        pl_greater(g, i, pl_range(g, c->index.dim[1])),
        pl_greater_equal(g, i, pl_scalar(g, 1.5)),
        pl_less_equal(g, i, pl_scale(g, a, 3)),
        pl_logical_and(g, i, pl_logical_not(g, pl_equal(g, i, pl_scalar(g, 3)))),
        pl_where(g, i, a, pl_cast(g, i, PL_F32)),
        pl_not_equal(g, pl_cast(g, i, PL_U8), pl_cast(g, i, PL_I32)),
    };
    return pl_concat(g, parts, 8, 1);
}

static pl_node_t build_fractions(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t x = pl_mul(g, pl_input(g, "i"), param(g, c, 0));
    return pl_add(g, x, pl_cast(g, pl_cast(g, pl_input(g, "i"), PL_I32), PL_F32));
}

/* A constant that is next to some indices, which float32 does not hold. */
static pl_node_t build_compare_large(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t i = pl_input(g, "i"), large = pl_scalar(g, (double)(c->ignore - 1));
    const pl_node_t parts[] = {pl_equal(g, i, large), pl_less(g, large, i)};
    return pl_concat(g, parts, 2, 1);
}

/* arg: axis. */
static pl_node_t build_gather(pl_graph_t *g, const operator_case_t *c)
{
    return pl_gather(g, param(g, c, 0), (int)c->arg[0], pl_input(g, "i"));
}

/* arg: axis. */
static pl_node_t build_take(pl_graph_t *g, const operator_case_t *c)
{
    return pl_take(g, param(g, c, 0), (int)c->arg[0], pl_input(g, "i"));
}

/* Indices at positions are whole numbers, too. */
static pl_node_t build_take_index(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t i = pl_input(g, "i"), twice = pl_take(g, i, 1, i);
    return pl_mul(g, pl_cast(g, twice, PL_F32), param(g, c, 0));
}

/* arg: axis. */
static pl_node_t build_scatter_add(pl_graph_t *g, const operator_case_t *c)
{
    return pl_scatter_add(g, param(g, c, 0), (int)c->arg[0], pl_input(g, "i"),
                          param(g, c, 1));
}

static pl_node_t build_one_hot(pl_graph_t *g, const operator_case_t *c)
{
    return pl_mul(g, pl_one_hot(g, pl_input(g, "i"), c->classes), param(g, c, 0));
}

/* arg: axis. */
static pl_node_t build_cumsum(pl_graph_t *g, const operator_case_t *c)
{
    return pl_cumsum(g, param(g, c, 0), (int)c->arg[0]);
}

/* arg: axis, descending. */
static pl_node_t build_sort(pl_graph_t *g, const operator_case_t *c)
{
    return pl_sort(g, param(g, c, 0), (int)c->arg[0], c->arg[1], NULL);
}

/* Where they were.  Numbers below 0 have no logarithm. */
static pl_node_t build_sort_places(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t places;
    pl_sort(g, pl_log_of(g, param(g, c, 0)), (int)c->arg[0], c->arg[1], &places);
    return pl_cast(g, places, PL_F32);
}

/* arg: k, axis. */
static pl_node_t build_top_k(pl_graph_t *g, const operator_case_t *c)
{
    return pl_top_k(g, param(g, c, 0), c->arg[0], (int)c->arg[1], NULL);
}

/* Equal numbers in their order; arg: k, axis. */
static pl_node_t build_top_k_places(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t places;
    pl_top_k(g, param(g, c, 0), c->arg[0], (int)c->arg[1], &places);
    return pl_cast(g, places, PL_F32);
}

/* arg: axis, keep. */
static pl_node_t build_min(pl_graph_t *g, const operator_case_t *c)
{
    return pl_min(g, param(g, c, 0), (int)c->arg[0], c->arg[1]);
}

static pl_node_t build_argmin(pl_graph_t *g, const operator_case_t *c)
{
    return pl_cast(g, pl_argmin(g, param(g, c, 0), (int)c->arg[0]), PL_F32);
}

/* Two nodes differ. */
static pl_node_t build_random(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t a = param(g, c, 0), uniform = pl_rand(g, c->shape[0]);
    return pl_mul(g, pl_add(g, uniform, pl_randn(g, c->shape[0])), a);
}

static pl_node_t build_scale(pl_graph_t *g, const operator_case_t *c)
{
    return pl_scale(g, param(g, c, 0), c->p);
}

static pl_node_t build_dropout(pl_graph_t *g, const operator_case_t *c)
{
    return pl_dropout(g, param(g, c, 0), c->p);
}

/* Three element-wise operations that an accelerator may join: gelu(a + b) * a. */
static pl_node_t build_chain(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t a = param(g, c, 0);
    return pl_mul(g, pl_gelu(g, pl_add(g, a, param(g, c, 1))), a);
}

/* arg: number of axes, two axes, keep. */
static pl_node_t build_sum(pl_graph_t *g, const operator_case_t *c)
{
    return pl_sum(g, param(g, c, 0), (int[]){(int)c->arg[1], (int)c->arg[2]},
                  (int)c->arg[0], c->arg[3]);
}

/* p: factor. */
static pl_node_t build_norm(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t a = param(g, c, 0);
    return pl_emit(g, PL_OP_norm, &a, 1, &(pl_attr_t){.a = c->p}, NULL);
}

/* p: factor; arg: elements of a block, that the first lacks. */
static pl_node_t build_block_norms(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t a = param(g, c, 0);
    return pl_emit(g, PL_OP_block_norms, &a, 1,
                   &(pl_attr_t){.a = c->p, .to = c->arg[0], .from = c->arg[1]}, NULL);
}

static pl_node_t build_mean(pl_graph_t *g, const operator_case_t *c)
{
    return pl_mean(g, param(g, c, 0), (int[]){(int)c->arg[1], (int)c->arg[2]},
                   (int)c->arg[0], c->arg[3]);
}

/* arg: number of axes, two axes, correction. */
static pl_node_t build_var(pl_graph_t *g, const operator_case_t *c)
{
    return pl_var(g, param(g, c, 0), (int[]){(int)c->arg[1], (int)c->arg[2]},
                  (int)c->arg[0], c->arg[3], false);
}

static pl_node_t build_logsumexp(pl_graph_t *g, const operator_case_t *c)
{
    return pl_logsumexp(g, param(g, c, 0), (int)c->arg[0], c->arg[1]);
}

static pl_node_t build_log_softmax(pl_graph_t *g, const operator_case_t *c)
{
    return pl_log_softmax(g, param(g, c, 0), (int)c->arg[0]);
}

/* arg: axis, keep. */
static pl_node_t build_max(pl_graph_t *g, const operator_case_t *c)
{
    return pl_max(g, param(g, c, 0), (int)c->arg[0], c->arg[1]);
}

static pl_node_t build_argmax(pl_graph_t *g, const operator_case_t *c)
{
    return pl_argmax(g, param(g, c, 0), (int)c->arg[0]);
}

/* a takes the shape that b has. */
static pl_node_t build_broadcast(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = param(g, c, 0);
    return pl_emit(g, PL_OP_broadcast, &x, 1, &(pl_attr_t){.shape = c->shape[1]}, NULL);
}

static pl_node_t build_reshape(pl_graph_t *g, const operator_case_t *c)
{
    return pl_reshape(g, param(g, c, 0), PL_SHAPE(c->arg[0], c->arg[1]));
}

/* arg: the order of four axes, three of them for a tensor of three. */
static pl_node_t build_permute(pl_graph_t *g, const operator_case_t *c)
{
    return pl_permute(g, param(g, c, 0),
                      (int[]){(int)c->arg[0], (int)c->arg[1], (int)c->arg[2],
                              (int)c->arg[3]});
}

/* arg: axis, from, to. */
static pl_node_t build_slice(pl_graph_t *g, const operator_case_t *c)
{
    return pl_slice(g, param(g, c, 0), (int)c->arg[0], c->arg[1], c->arg[2]);
}

/* arg: axis, from, to, step. */
static pl_node_t build_slice_step(pl_graph_t *g, const operator_case_t *c)
{
    return pl_slice_step(g, param(g, c, 0), (int)c->arg[0], c->arg[1], c->arg[2],
                         c->arg[3]);
}

/* arg: number of axes, two axes. */
static pl_node_t build_flip(pl_graph_t *g, const operator_case_t *c)
{
    return pl_flip(g, param(g, c, 0), (int[]){(int)c->arg[1], (int)c->arg[2]},
                   (int)c->arg[0]);
}

/* arg: axis, shift. */
static pl_node_t build_roll(pl_graph_t *g, const operator_case_t *c)
{
    return pl_roll(g, param(g, c, 0), (int)c->arg[0], c->arg[1]);
}

/* arg: axis. */
static pl_node_t build_stack(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t x[] = {param(g, c, 0), param(g, c, 1), param(g, c, 2)};
    return pl_stack(g, x, c->params, (int)c->arg[0]);
}

/* Three parts along the last axis in another order; arg: their sizes. */
static pl_node_t build_split(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t part[3];
    if (pl_split(g, param(g, c, 0), -1, c->arg, 3, part) != PL_OK)
        return part[0];
    return pl_concat(g, (pl_node_t[]){part[2], part[0], part[1]}, 3, -1);
}

/* Rows 0, 7, 14, … of forty, more than one operation joins. */
static pl_node_t build_many(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = param(g, c, 0), row[40];
    for (int i = 0; i < 40; i++)
        row[i] = pl_slice(g, x, 0, i * 7 % 40, i * 7 % 40 + 1);
    return pl_concat(g, row, 40, 0);
}

static pl_node_t build_repeat(pl_graph_t *g, const operator_case_t *c)
{
    return pl_repeat(g, param(g, c, 0), c->arg);
}

/* Elements before and after two axes; p: the value. */
static pl_node_t build_pad(pl_graph_t *g, const operator_case_t *c)
{
    return pl_pad(g, param(g, c, 0), c->arg, c->arg + 2, c->p);
}

static pl_node_t build_pad_reflect(pl_graph_t *g, const operator_case_t *c)
{
    return pl_pad_reflect(g, param(g, c, 0), c->arg, c->arg + 2);
}

/* arg: diagonal, upper. */
static pl_node_t build_triangle(pl_graph_t *g, const operator_case_t *c)
{
    return (c->arg[1] ? pl_triu : pl_tril)(g, param(g, c, 0), c->arg[0]);
}

/* arg: number of axes, up to two sizes, linear. */
static pl_node_t build_interpolate(pl_graph_t *g, const operator_case_t *c)
{
    return pl_interpolate(g, param(g, c, 0), c->arg + 1, (int)c->arg[0], c->arg[3]);
}

/* Images that a convolution made, in its own layout, padded and enlarged. */
static pl_node_t build_frame(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t inputs[] = {param(g, c, 0), param(g, c, 1)};
    const int64_t before[] = {0, 0, 1, 2}, after[] = {0, 1, 0, 1}, sizes[] = {7, 11};
    const pl_windows_t windows = {.kernel = {3, 3}};
    pl_attr_t attr = {.groups = 1};
    if (pl_window_resolve(g, "conv", inputs[0], &windows, false, &attr.window) != PL_OK)
        return PL_NO_NODE;
    pl_window_same(&attr.window);
    pl_node_t x = pl_emit(g, PL_OP_conv, inputs, 2, &attr, NULL);
    x = pl_pad(g, x, before, after, 0.5);
    return pl_relu(g, pl_interpolate(g, x, sizes, 2, true));
}

/* arg: the factor, inverse. */
static pl_node_t build_shuffle(pl_graph_t *g, const operator_case_t *c)
{
    return (c->arg[1] ? pl_pixel_unshuffle : pl_pixel_shuffle)(g, param(g, c, 0),
                                                               c->arg[0]);
}

/* Of whose axes none is in its old place. */
static pl_node_t build_turned(pl_graph_t *g, const operator_case_t *c)
{
    return pl_permute(g, param(g, c, 0), (int[]){3, 5, 1, 0, 2, 4});
}

static const char *const equations[] = {
    "ij,jk->ik",  "bij,bjk->bik",   "bji,bjk->ibk",     "i,j->ij",      "bi,bi->b",
    "bij,jk",     "abij,bkj->aibk", "ij,jk->k",         "bi, bi -> bi", "bhqd,bhkd->bhqk",
    "abcde,eadf", "ij,ij->",        "xaby,xzbc->zcaby",
};

/* arg: the equation. */
static pl_node_t build_einsum(pl_graph_t *g, const operator_case_t *c)
{
    return pl_einsum(g, equations[c->arg[0]], param(g, c, 0), param(g, c, 1));
}

/* Rows of a by constant indices, each with a factor. */
static pl_node_t build_tensor(pl_graph_t *g, const operator_case_t *c)
{
    static const int64_t rows[] = {4, 0, 2, 2};
    static const double factors[] = {0.5, -1, 2, 3};
    const pl_node_t inputs[] = {pl_tensor(g, PL_I64, PL_SHAPE(4), rows), param(g, c, 0)};
    return pl_mul(g, pl_emit(g, PL_OP_embedding, inputs, 2, NULL, NULL),
                  pl_tensor(g, PL_F64, PL_SHAPE(4, 1), factors));
}

static pl_node_t build_arange(pl_graph_t *g, const operator_case_t *c)
{
    return pl_mul(g, param(g, c, 0), pl_arange(g, c->p, 0.25, c->arg[0]));
}

/* The product of arg[1] equal parts along arg[0]: their gradients join again. */
static pl_node_t build_parts(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = param(g, c, 0), part[4];
    const int64_t count = c->arg[1], size = pl_dim(g, x, (int)c->arg[0]) / count;
    for (int i = 0; i < count; i++)
        part[i] = pl_slice(g, x, (int)c->arg[0], i * size, (i + 1) * size);
    pl_node_t y = pl_mul(g, part[0], part[1]);
    for (int i = 2; i < count; i++)
        y = pl_mul(g, y, part[i]);
    return y;
}

static pl_node_t build_concat(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t parts[3];
    for (int k = 0; k < c->params; k++)
        parts[k] = param(g, c, k);
    return pl_concat(g, parts, c->params, (int)c->arg[0]);
}

/* Positions 0 to n-1 select rows of a, in their order. */
static pl_node_t build_range(pl_graph_t *g, const operator_case_t *c)
{
    return pl_emit(g, PL_OP_embedding,
                   (pl_node_t[]){pl_range(g, c->arg[0]), param(g, c, 0)}, 2, NULL, NULL);
}

/* arg: transpose_a, transpose_b. */
static pl_node_t build_matmul(pl_graph_t *g, const operator_case_t *c)
{
    return pl_matmul(g, param(g, c, 0), param(g, c, 1), c->arg[0], c->arg[1]);
}

enum { GRU = 1, BOTH = 2, STATES = 4, PLAIN = 8, LAST = 16 };

/* arg: units, flags, layers.  b and c are the states before the first step; with LAST y
 * has the states behind the last step, too. */
static pl_node_t build_recurrent(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t x = param(g, c, 0);
    const bool is_gru = c->arg[1] & GRU, has_states = c->arg[1] & STATES;
    pl_node_t h0 = has_states ? param(g, c, 1) : x, c0 = is_gru ? h0 : x, part[3];
    if (has_states && !is_gru)
        c0 = param(g, c, 2);
    const pl_node_t lengths = c->index.rank ? pl_input(g, "i") : x;
    const pl_recurrent_options_t options = {.layers = (int)c->arg[2],
                                            .bidirectional = c->arg[1] & BOTH,
                                            .no_bias = c->arg[1] & PLAIN,
                                            .lengths = c->index.rank ? &lengths : NULL,
                                            .h0 = has_states ? &h0 : NULL,
                                            .c0 = has_states && !is_gru ? &c0 : NULL};
    const bool asks = c->arg[1] & LAST;
    part[0] = is_gru ? pl_gru(g, "r", x, c->arg[0], &options, asks ? part + 1 : NULL)
                     : pl_lstm(g, "r", x, c->arg[0], &options, asks ? part + 1 : NULL,
                               asks ? part + 2 : NULL);
    const int parts = !asks ? 1 : is_gru ? 2 : 3;
    for (int k = 0; k < parts && parts > 1; k++)
        part[k] = pl_flatten(g, part[k], 0);
    return pl_concat(g, part, parts, 0);
}

static pl_node_t emit_params(pl_graph_t *g, const operator_case_t *c, pl_opcode_t code,
                             const pl_attr_t *attr)
{
    pl_node_t inputs[3];
    for (int k = 0; k < c->params; k++)
        inputs[k] = param(g, c, k);
    return pl_emit(g, code, inputs, c->params, attr, NULL);
}

static pl_node_t build_linear(pl_graph_t *g, const operator_case_t *c)
{
    return emit_params(g, c, PL_OP_linear, NULL);
}

/* arg[0] names the function of one input behind it. */
static pl_node_t build_neurons(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t u = emit_params(g, c, PL_OP_linear, NULL);
    return pl_emit(g, (pl_opcode_t)c->arg[0], &u, 1, NULL, NULL);
}

/* Two layers without biases, and arg[0] between them. */
static pl_node_t build_layers(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t inputs[] = {param(g, c, 0), param(g, c, 1)};
    pl_node_t u = pl_emit(g, PL_OP_linear, inputs, 2, NULL, NULL);
    inputs[0] = pl_emit(g, (pl_opcode_t)c->arg[0], &u, 1, NULL, NULL);
    inputs[1] = param(g, c, 2);
    return pl_emit(g, PL_OP_linear, inputs, 2, NULL, NULL);
}

/* The third parameter for each row of a layer.  It comes before the layer, and so its
 * gradient behind those of the layer's weights. */
static pl_node_t repeated_bias(pl_graph_t *g, const operator_case_t *c, pl_shape_t shape)
{
    pl_node_t bias = param(g, c, 2);
    return pl_emit(g, PL_OP_broadcast, &bias, 1, &(pl_attr_t){.shape = shape}, NULL);
}

static pl_node_t plain_linear(pl_graph_t *g, const operator_case_t *c, pl_node_t x)
{
    return pl_emit(g, PL_OP_linear, (pl_node_t[]){x, param(g, c, 1)}, 2, NULL, NULL);
}

/* Heads that share a bias: its gradient sums other rows than a layer's own bias would.
 * arg: rows of x in two axes. */
static pl_node_t build_heads(pl_graph_t *g, const operator_case_t *c)
{
    const int64_t width = c->shape[2].dim[0], heads = c->shape[1].dim[0] / width;
    const pl_shape_t shape = PL_SHAPE(c->arg[0], c->arg[1], heads, width);
    pl_node_t bias = repeated_bias(g, c, shape);
    return pl_add(g, pl_reshape(g, plain_linear(g, c, param(g, c, 0)), shape), bias);
}

/* One layer for x and for tanh x.  arg: it has its bias both times; or one is added to
 * the sum, whose gradient comes behind two products of the same rows. */
static pl_node_t build_twice(pl_graph_t *g, const operator_case_t *c)
{
    const pl_shape_t shape = PL_SHAPE(c->shape[0].dim[0], c->shape[1].dim[0]);
    pl_node_t x = param(g, c, 0), w = param(g, c, 1), bias = param(g, c, 2);
    if (!c->arg[0]) {
        bias = repeated_bias(g, c, shape);
        pl_node_t y = plain_linear(g, c, x);
        return pl_add(g, pl_add(g, y, plain_linear(g, c, pl_tanh(g, x))), bias);
    }
    pl_node_t y = pl_emit(g, PL_OP_linear, (pl_node_t[]){x, w, bias}, 3, NULL, NULL);
    return pl_add(g, y,
                  pl_emit(g, PL_OP_linear, (pl_node_t[]){pl_tanh(g, x), w, bias}, 3, NULL,
                          NULL));
}

/* arg: same; kernels are as large as the second parameter. */
static pl_node_t build_conv(pl_graph_t *g, const operator_case_t *c)
{
    pl_attr_t attr = {.groups = c->groups ? c->groups : 1};
    pl_windows_t windows = c->windows;
    for (int k = 2; k < c->shape[1].rank; k++)
        windows.kernel[k - 2] = c->shape[1].dim[k];
    if (pl_window_resolve(g, "conv", param(g, c, 0), &windows, false, &attr.window)
        != PL_OK)
        return PL_NO_NODE;
    if (c->arg[0])
        pl_window_same(&attr.window);
    return emit_params(g, c, PL_OP_conv, &attr);
}

/* The transposed convolution; arg: output_padding along each axis. */
static pl_node_t build_conv_transpose(pl_graph_t *g, const operator_case_t *c)
{
    pl_attr_t attr = {.groups = c->groups ? c->groups : 1, .shape = c->shape[0]};
    pl_windows_t windows = c->windows;
    const int axes = c->shape[0].rank - 2;
    for (int k = 0; k < axes; k++)
        windows.kernel[k] = c->shape[1].dim[2 + k];
    if (pl_window_resolve(g, "conv", param(g, c, 0), &windows, false, &attr.window)
        != PL_OK)
        return PL_NO_NODE;
    attr.shape.dim[1] = c->shape[1].dim[1] * attr.groups;
    for (int k = 0; k < axes; k++) {
        const int of = PL_SPACE - axes + k;
        pl_window_t *w = &attr.window;
        w->behind[of] -= c->arg[k];
        attr.shape.dim[2 + k] = (c->shape[0].dim[2 + k] - 1) * w->stride[of]
                                + pl_window_extent(w, of) - w->before[of] - w->behind[of];
    }
    return emit_params(g, c, PL_OP_conv_grad_x, &attr);
}

/* The layer, with parameters of its own; arg: channels, then its output_padding. */
static pl_node_t build_conv_transpose_layer(pl_graph_t *g, const operator_case_t *c)
{
    pl_conv_transpose_options_t options = {.windows = c->windows, .groups = c->groups};
    memcpy(options.output_padding, c->arg + 1, sizeof options.output_padding);
    return pl_conv_transpose(g, "layer", param(g, c, 0), c->arg[0], &options);
}

/* arg: a mean, ceil_mode, exclude_padding. */
static pl_node_t build_pool(pl_graph_t *g, const operator_case_t *c)
{
    const pl_pool_options_t options = {.windows = c->windows,
                                       .ceil_mode = c->arg[1],
                                       .exclude_padding = c->arg[2]};
    return (c->arg[0] ? pl_avg_pool : pl_max_pool)(g, param(g, c, 0), &options);
}

/* arg: a mean, then the size of the result. */
static pl_node_t build_adaptive_pool(pl_graph_t *g, const operator_case_t *c)
{
    return (c->arg[0] ? pl_adaptive_avg_pool : pl_adaptive_max_pool)(g, param(g, c, 0),
                                                                     c->arg + 1);
}

/* arg: kernel, stride, padding. */
static pl_node_t build_max_pool2d(pl_graph_t *g, const operator_case_t *c)
{
    return pl_max_pool2d(g, param(g, c, 0), c->arg[0], c->arg[1], c->arg[2]);
}

/* arg: causal; p: dropout. */
static pl_node_t build_attention(pl_graph_t *g, const operator_case_t *c)
{
    const pl_attention_options_t options = {.causal = c->arg[0], .dropout = c->p};
    return pl_attention(g, param(g, c, 0), param(g, c, 1), param(g, c, 2), &options);
}

/* The same where keys are hidden; arg[1]: the first ones, and in the second sample
 * all. */
static pl_node_t build_masked_attention(pl_graph_t *g, const operator_case_t *c)
{
    static const double seen[2][10] = {{1, 0, 1, 1, 0, 1, 1, 1, 0, 0},
                                       {0, 0, 1, 1, 0, 0, 0, 0, 0, 0}};
    pl_node_t mask = pl_reshape(g, pl_vector(g, seen[c->arg[1]], 10), PL_SHAPE(2, 5));
    const pl_attention_options_t options = {.causal = c->arg[0],
                                            .dropout = c->p,
                                            .mask = &mask};
    return pl_attention(g, param(g, c, 0), param(g, c, 1), param(g, c, 2), &options);
}

/* arg: causal, window, kind of bias (1: [T, S], 2: [B, 1, 1, S] with hidden keys, 3: mask
 * [1, T, S] with a query that sees none, 4: trained [H, T, S] beside that mask); p:
 * scale. */
static pl_node_t build_wide_attention(pl_graph_t *g, const operator_case_t *c)
{
    const pl_shape_t q = c->shape[0], k = c->shape[1];
    const int64_t T = q.dim[2], S = k.dim[2], kind = c->arg[2];
    double bias[64] = {0}, seen[64] = {0};
    for (int64_t i = 0; i < T * S && i < 64; i++) {
        bias[i] = (double)(i * 7 % 11) / 8 - 0.5;
        seen[i] = i / S != 1 && i % 3 != 1;
    }
    if (!kind)
        return pl_attention(g, param(g, c, 0), param(g, c, 1), param(g, c, 2),
                            &(pl_attention_options_t){.causal = c->arg[0],
                                                      .window = c->arg[1],
                                                      .scale = c->p});
    pl_node_t b = pl_vector(g, bias, (int)(kind == 2 ? q.dim[0] * S : T * S)),
              m = pl_reshape(g, pl_vector(g, seen, (int)(T * S)), PL_SHAPE(1, T, S));
    b = pl_reshape(g, b, kind == 2 ? PL_SHAPE(q.dim[0], 1, 1, S) : PL_SHAPE(T, S));
    if (kind == 4)
        b = pl_reshape(g,
                       pl_slice(g, pl_reshape(g, param(g, c, 0), PL_SHAPE(-1)), 0, 0,
                                q.dim[1] * T * S),
                       PL_SHAPE(q.dim[1], T, S));
    const pl_attention_options_t options = {.causal = c->arg[0],
                                            .window = c->arg[1],
                                            .scale = c->p,
                                            .bias = kind == 1 || kind == 2 || kind == 4
                                                        ? &b
                                                        : NULL,
                                            .mask = kind >= 3 ? &m : NULL};
    return pl_attention(g, param(g, c, 0), param(g, c, 1), param(g, c, 2), &options);
}

/* arg: causal, first position, interleaved, a mask of keys (1) or a trained bias (2); p:
 * base. */
static pl_node_t build_rotary_attention(pl_graph_t *g, const operator_case_t *c)
{
    const pl_shape_t q = c->shape[0], k = c->shape[1];
    const int64_t B = q.dim[0], S = k.dim[2];
    double seen[64] = {0};
    for (int64_t j = 0; j < B * S && j < 64; j++)
        seen[j] = j % 3 != 1;
    const pl_node_t mask = pl_reshape(g, pl_vector(g, seen, (int)(B * S)),
                                      PL_SHAPE(B, S)),
                    bias = c->arg[3] < 2
                               ? mask
                               : pl_slice(g, pl_reshape(g, param(g, c, 0), PL_SHAPE(-1)),
                                          0, 0, S);
    const pl_attention_options_t options = {.causal = c->arg[0],
                                            .rotary = true,
                                            .rotary_base = c->p,
                                            .rotary_first = c->arg[1],
                                            .rotary_interleaved = c->arg[2],
                                            .mask = c->arg[3] == 1 ? &mask : NULL,
                                            .bias = c->arg[3] == 2 ? &bias : NULL};
    return pl_attention(g, param(g, c, 0), param(g, c, 1), param(g, c, 2), &options);
}

/* arg: first position, interleaved; p: base. */
static pl_node_t build_rotary(pl_graph_t *g, const operator_case_t *c)
{
    return pl_rotary(g, param(g, c, 0),
                     &(pl_rotary_options_t){.base = c->p,
                                            .first = c->arg[0],
                                            .interleaved = c->arg[1]});
}

/* q, k, v cut out of one tensor [B, T, 3C] as a language model does; arg: heads, causal,
 * the place of the first cut among them. */
static pl_node_t build_self_attention(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = param(g, c, 0), part[3];
    const int64_t B = pl_dim(g, x, 0), T = pl_dim(g, x, 1), C = pl_dim(g, x, 2) / 3,
                  heads = c->arg[0];
    for (int i = 0; i < 3; i++)
        part[(i + c->arg[2]) % 3] = pl_permute(
            g,
            pl_reshape(g, pl_slice(g, x, 2, i * C, (i + 1) * C),
                       PL_SHAPE(B, T, heads, C / heads)),
            (int[]){0, 2, 1, 3});
    const pl_attention_options_t options = {.causal = c->arg[1]};
    pl_node_t y = pl_attention(g, part[0], part[1], part[2], &options);
    return pl_reshape(g, pl_permute(g, y, (int[]){0, 2, 1, 3}), PL_SHAPE(B, T, C));
}

static pl_node_t build_softmax(pl_graph_t *g, const operator_case_t *c)
{
    return pl_softmax(g, param(g, c, 0));
}

/* p: epsilon. */
static pl_node_t build_layer_norm(pl_graph_t *g, const operator_case_t *c)
{
    return emit_params(g, c, PL_OP_layer_norm, &(pl_attr_t){.a = c->p});
}

/* arg: groups, whether by the root mean square, squared at the end; p: epsilon. */
static pl_node_t build_group_norm(pl_graph_t *g, const operator_case_t *c)
{
    const pl_shape_t shape = c->shape[0];
    const int64_t rows = shape.dim[0] * (c->arg[0] ? c->arg[0] : 1);
    pl_node_t inputs[3] = {pl_reshape(g, param(g, c, 0), PL_SHAPE(rows, -1)),
                           c->params > 1 ? param(g, c, 1) : pl_scalar(g, 1),
                           c->params > 2 ? param(g, c, 2) : pl_scalar(g, 0)};
    const pl_attr_t attr = {.a = c->p, .to = c->arg[0], .is_rms = c->arg[1]};
    const pl_node_t y =
        pl_reshape(g, pl_emit(g, PL_OP_layer_norm, inputs, 3, &attr, NULL), shape);
    return c->arg[2] ? pl_square(g, y) : y;
}

enum { LAYER_NORM, RMS_NORM, GROUP_NORM, INSTANCE_NORM, NO_BIAS = 1, NO_WEIGHT = 2 };

/* The squares of a layer with parameters of its own: without them dy, which is like x,
 * leaves nearly no gradient.  arg: which layer, axes or groups, what it lacks. */
static pl_node_t build_norm_layer(pl_graph_t *g, const operator_case_t *c)
{
    const pl_norm_options_t options = {.epsilon = c->p,
                                       .axes = (int)c->arg[1],
                                       .no_bias = c->arg[2] == NO_BIAS,
                                       .no_weight = c->arg[2] == NO_WEIGHT};
    const pl_node_t x = param(g, c, 0);
    switch (c->arg[0]) {
    case LAYER_NORM: return pl_square(g, pl_layer_norm_with(g, "layer", x, &options));
    case RMS_NORM: return pl_square(g, pl_rms_norm(g, "layer", x, &options));
    case GROUP_NORM:
        return pl_square(g, pl_group_norm(g, "layer", x, c->arg[1], &options));
    default: return pl_square(g, pl_instance_norm(g, "layer", x, &options));
    }
}

/* With parameters of its own, so that the running statistics are there too; p:
 * momentum. */
static pl_node_t build_batch_norm(pl_graph_t *g, const operator_case_t *c)
{
    return pl_batch_norm(g, "bn", param(g, c, 0), c->p, 1e-5);
}

/* The same where no other rank has any of the batch. */
static pl_node_t build_norm_together(pl_graph_t *g, const operator_case_t *c)
{
    g->model->together = true;
    return build_batch_norm(g, c);
}

static pl_node_t build_embedding(pl_graph_t *g, const operator_case_t *c)
{
    return pl_emit(g, PL_OP_embedding, (pl_node_t[]){pl_input(g, "i"), param(g, c, 0)}, 2,
                   NULL, NULL);
}

/* Whose table multiplies its rows, too. */
static pl_node_t build_tied(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t x = build_embedding(g, c);
    return pl_emit(g, PL_OP_linear, (pl_node_t[]){x, param(g, c, 0)}, 2, NULL, NULL);
}

/* The loss, scaled by a third parameter when there is one. */
static pl_node_t build_cross_entropy(pl_graph_t *g, const operator_case_t *c)
{
    const pl_cross_entropy_options_t options = {.has_ignore = c->ignore,
                                                .ignore_index = c->ignore};
    pl_loss_t loss = pl_cross_entropy(g, param(g, c, 0), pl_input(g, "i"), &options);
    pl_log(g, "weight", pl_pair(loss.weight, loss.weight), PL_ON_EPOCH);
    return loss.sum;
}

/* arg: whether classes and whether rows have weights; one of each is 0. */
static pl_node_t build_weighted_cross_entropy(pl_graph_t *g, const operator_case_t *c)
{
    static const double of_class[] = {0.5, 2, 0, 1, 1, 3.25},
                        of_row[] = {1, 0.25, 4, 1, 0, 2, 2, 1.5};
    pl_node_t classes = pl_vector(g, of_class, (int)c->classes);
    pl_node_t rows = pl_vector(g, of_row, (int)pl_elements(c->index));
    const pl_cross_entropy_options_t options = {.has_ignore = c->ignore,
                                                .ignore_index = c->ignore,
                                                .class_weights = c->arg[0] ? &classes
                                                                           : NULL,
                                                .weights = c->arg[1] ? &rows : NULL};
    pl_loss_t loss = pl_cross_entropy(g, param(g, c, 0), pl_input(g, "i"), &options);
    pl_log(g, "weight", (pl_loss_t){loss.weight, loss.weight}, PL_ON_EPOCH);
    return pl_div(g, loss.sum, loss.weight);
}

/* p: label smoothing; arg: whether classes have weights, of logarithms. */
static pl_node_t build_smooth_cross_entropy(pl_graph_t *g, const operator_case_t *c)
{
    static const double of_class[] = {0.5, 2, 0, 1, 1, 3.25};
    pl_node_t classes = c->arg[0] ? pl_vector(g, of_class, (int)c->classes)
                                  : (pl_node_t){0},
              x = param(g, c, 0);
    const pl_cross_entropy_options_t options = {.has_ignore = c->ignore,
                                                .ignore_index = c->ignore,
                                                .class_weights = c->arg[0] ? &classes
                                                                           : NULL,
                                                .label_smoothing = c->p};
    pl_loss_t loss = c->arg[1] ? pl_nll(g, x, pl_input(g, "i"), &options)
                               : pl_cross_entropy(g, x, pl_input(g, "i"), &options);
    return pl_div(g, loss.sum, loss.weight);
}

enum { SHORT = 1, SUM = 2, ZERO = 4 };

/* The blank is the last class; arg[0] SHORT: samples have other lengths, the last one too
 * few steps. */
static pl_node_t build_ctc(pl_graph_t *g, const operator_case_t *c)
{
    const int64_t batch = c->shape[0].dim[0];
    int32_t steps[8], labels[8];
    for (int k = 0; k < batch; k++) {
        const bool is_short = c->arg[0] & SHORT;
        steps[k] = (int32_t)c->shape[0].dim[1] - (is_short ? k % 3 : 0);
        labels[k] = is_short ? k % ((int32_t)c->index.dim[1] + 1)
                             : (int32_t)c->index.dim[1];
    }
    if (c->arg[0] & ZERO)
        steps[batch - 1] = 1;
    const pl_ctc_options_t options = {.blank = c->classes,
                                      .sum = c->arg[0] & SUM,
                                      .zero_infinity = c->arg[0] & ZERO};
    const pl_loss_t loss =
        pl_ctc(g, pl_log_softmax(g, param(g, c, 0), -1), pl_input(g, "i"),
               pl_tensor(g, PL_I32, PL_SHAPE(batch), steps),
               pl_tensor(g, PL_I32, PL_SHAPE(batch), labels), &options);
    return pl_div(g, loss.sum, loss.weight);
}

static pl_node_t build_accuracy(pl_graph_t *g, const operator_case_t *c)
{
    const pl_cross_entropy_options_t options = {.has_ignore = c->ignore,
                                                .ignore_index = c->ignore};
    pl_loss_t right = pl_accuracy(g, param(g, c, 0), pl_input(g, "i"), &options);
    pl_log(g, "acc", right, PL_ON_EPOCH);
    return right.sum;
}

/* arg: k. */
static pl_node_t build_accuracy_top(pl_graph_t *g, const operator_case_t *c)
{
    pl_metric_t right = pl_accuracy_top(g, param(g, c, 0), pl_input(g, "i"), c->arg[0],
                                        NULL);
    pl_log(g, "acc", right, PL_ON_EPOCH);
    return right.sum;
}

static pl_node_t build_confusion(pl_graph_t *g, const operator_case_t *c)
{
    const pl_classes_options_t options = {.has_ignore = c->ignore,
                                          .ignore_index = c->ignore};
    return pl_confusion_matrix(g, param(g, c, 0), pl_input(g, "i"), &options).sum;
}

/* arg: bins. */
static pl_node_t build_score_bins(pl_graph_t *g, const operator_case_t *c)
{
    const pl_classes_options_t options = {.has_ignore = c->ignore,
                                          .ignore_index = c->ignore};
    return pl_auroc(g, param(g, c, 0), pl_input(g, "i"), c->arg[0], &options).sum;
}

static pl_node_t build_r2(pl_graph_t *g, const operator_case_t *c)
{
    return pl_r2(g, param(g, c, 0), param(g, c, 1)).sum;
}

static pl_node_t build_mae(pl_graph_t *g, const operator_case_t *c)
{
    return pl_mae(g, param(g, c, 0), param(g, c, 1)).sum;
}

static pl_node_t build_mse(pl_graph_t *g, const operator_case_t *c)
{
    return pl_mse(g, param(g, c, 0), param(g, c, 1)).sum;
}

static pl_node_t build_weighted_mse(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t weights = pl_vector(g, (double[]){2, 0, 0.5}, 3);
    pl_loss_t loss = pl_weighted_mse(g, param(g, c, 0), param(g, c, 1), weights);
    return pl_div(g, loss.sum, loss.weight);
}

static pl_node_t mean_of(pl_graph_t *g, pl_loss_t loss)
{
    return pl_div(g, loss.sum, loss.weight);
}

static pl_node_t build_l1(pl_graph_t *g, const operator_case_t *c)
{
    return mean_of(g, pl_l1(g, param(g, c, 0), param(g, c, 1)));
}

static pl_node_t build_huber(pl_graph_t *g, const operator_case_t *c)
{
    return mean_of(g, pl_huber(g, param(g, c, 0), param(g, c, 1), c->p));
}

/* arg: whether positive ones have a factor, and whether elements have weights. */
static pl_node_t build_bce(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t positive = pl_vector(g, (double[]){2, 0.5, 1, 3}, 4),
                    weights = pl_vector(g, (double[]){1, 0.25, 0, 2}, 4);
    const pl_bce_options_t options = {.positive_weights = c->arg[0] ? &positive : NULL,
                                      .weights = c->arg[1] ? &weights : NULL};
    return mean_of(g, pl_bce_with_logits(g, param(g, c, 0), pl_sigmoid(g, param(g, c, 1)),
                                         &options));
}

static pl_node_t build_soft_cross_entropy(pl_graph_t *g, const operator_case_t *c)
{
    return mean_of(g, pl_soft_cross_entropy(g, param(g, c, 0),
                                            pl_softmax(g, param(g, c, 1))));
}

/* Of losses with the weights 6 and 30. */
static pl_node_t build_add_losses(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t a = param(g, c, 0), b = param(g, c, 1);
    return mean_of(g, pl_add_losses(g, pl_soft_cross_entropy(g, a, pl_softmax(g, b)),
                                    pl_mse(g, a, b), 0.5));
}

/* Targets below 0.25 are 0. */
static pl_node_t build_kl(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t target = pl_softmax(g, param(g, c, 1)), least = pl_scalar(g, 0.25);
    return mean_of(g, pl_kl(g, pl_log_softmax(g, param(g, c, 0), -1),
                            pl_where(g, pl_less(g, target, least), pl_scalar(g, 0),
                                     target)));
}

static pl_node_t build_cosine_embedding(pl_graph_t *g, const operator_case_t *c)
{
    return mean_of(g, pl_cosine_embedding(g, param(g, c, 0), param(g, c, 1),
                                          pl_vector(g, (double[]){1, -1, -1, 1, -1}, 5),
                                          c->p));
}

static pl_node_t build_triplet(pl_graph_t *g, const operator_case_t *c)
{
    return mean_of(g,
                   pl_triplet(g, param(g, c, 0), param(g, c, 1), param(g, c, 2), c->p));
}

/* arg: the number of ranks and this one, whose batch is the only one; p: temperature. The
 * third parameter, if there is one, is a temperature to multiply by. */
static pl_node_t build_info_nce(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t temperature = pl_scalar(g, c->p);
    g->ranks = c->arg[0] ? (int)c->arg[0] : 1;
    g->rank = (int)c->arg[1];
    if (c->params > 2)
        temperature = pl_exp(g, param(g, c, 2));
    return mean_of(g, pl_info_nce(g, param(g, c, 0), param(g, c, 1), temperature));
}

/* The middle one of three ranks. p: a full batch has so many times the rows. */
static pl_node_t build_all_gather(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t x = param(g, c, 0);
    g->ranks = 3;
    g->rank = 1;
    static int64_t rows[2];
    static const pl_graph_t largest = {.gathered = rows, .gathers = 2};
    rows[0] = rows[1] = c->shape[0].dim[0] * (int64_t)fmax(c->p, 1);
    g->largest = &largest;
    return pl_mul(g, pl_all_gather(g, x), pl_all_gather(g, pl_tanh(g, x)));
}

/* The sum is a factor of its summand, which must still be there. */
static pl_node_t build_all_reduce(pl_graph_t *g, const operator_case_t *c)
{
    const pl_node_t x = pl_tanh(g, param(g, c, 0));
    g->ranks = 2;
    return pl_mul(g, pl_all_reduce(g, x, c->p ? PL_LOOP_MEAN : PL_LOOP_SUM), x);
}

/* p: the factor. */
static pl_node_t build_gate(pl_graph_t *g, const operator_case_t *c)
{
    static const pl_registration_t components[] = {{"operator", &sample_gate},
                                                   PL_REGISTRATIONS_END};
    pl_node_t inputs[] = {param(g, c, 0), param(g, c, 1)};
    if (pl_register(components, NULL) != PL_OK)
        return pl_graph_fail(g, PL_ENOMEM, "the operator cannot be registered");
    return pl_apply(g, "gate", inputs, 2, &(sample_gate_t){c->p});
}

/* arg: accumulate. */
static pl_node_t build_assign(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t a = param(g, c, 0), b = param(g, c, 1);
    pl_emit(g, PL_OP_assign, (pl_node_t[]){a, pl_scale(g, b, 2)}, 2,
            &(pl_attr_t){.accumulate = c->arg[0]}, NULL);
    return pl_add(g, a, b);                              /* a as it is after the assign */
}

/* The sum of a / p guards an assign: nothing happens when p is 0. */
static pl_node_t build_guard(pl_graph_t *g, const operator_case_t *c)
{
    pl_node_t a = param(g, c, 0), y = pl_neg(g, a);
    pl_node_t sum = pl_div(g, pl_sum(g, pl_exp(g, a), NULL, 0, false),
                           pl_scalar(g, c->p));
    pl_emit(g, PL_OP_guard, &sum, 1, NULL, NULL);
    pl_assign(g, a, y);
    return y;
}

#define S(...) PL_SHAPE(__VA_ARGS__)
#define SCALAR \
    { \
        0 \
    }
#define CASE(title, builder, count, ...) \
    .name = title, .build = build_##builder, .params = count, .shape = {__VA_ARGS__}

const operator_case_t operator_cases[] = {
    {CASE("add", add, 2, S(3, 5), S(3, 5))},
    {CASE("add, a row to each", add, 2, S(2, 3, 5), S(5))},
    {CASE("add, a column and a row", add, 2, S(4, 1), S(1, 6))},
    {CASE("add, a scalar", add, 2, SCALAR, S(2, 3))},
    {CASE("add, five axes", add, 2, S(2, 1, 2, 1, 3), S(2, 3, 1, 2, 1))},
    {CASE("add, long", add, 2, S(3, 1031), S(1031))},
    {CASE("sub", sub, 2, S(3, 5), S(3, 5))},
    {CASE("sub, broadcast", sub, 2, S(5), S(2, 3, 1))},
    {CASE("mul", mul, 2, S(7), S(7))},
    {CASE("mul, broadcast", mul, 2, S(3, 1, 2), S(4, 1))},
    {CASE("mul by itself", square, 1, S(3, 4))},
    {CASE("div", div, 2, S(3, 5), S(3, 5)), .low = 0.5, .high = 2},
    {CASE("div, broadcast", div, 2, S(1, 5), S(4, 1)), .low = 0.5, .high = 2},
    {CASE("minimum", element, 2, S(3, 5), S(3, 5)), .arg = {PL_OP_minimum}},
    {CASE("minimum, with a scalar", element, 2, S(9), SCALAR), .arg = {PL_OP_minimum}},
    {CASE("minimum, ties", element, 2, S(9, 4), S(4)), .arg = {PL_OP_minimum},
     .ties = true},
    {CASE("maximum", element, 2, S(3, 5), S(3, 5)), .arg = {PL_OP_maximum}},
    {CASE("maximum, broadcast", element, 2, S(3, 1, 2), S(4, 1)), .arg = {PL_OP_maximum}},
    {CASE("maximum, ties", element, 2, S(9, 4), S(4)), .arg = {PL_OP_maximum},
     .ties = true},
    {CASE("pow", element, 2, S(3, 37), S(3, 37)), .arg = {PL_OP_pow}, .low = 0.25,
     .high = 4},
    {CASE("pow, broadcast", element, 2, S(3, 5), S(5)), .arg = {PL_OP_pow}, .low = 0.25,
     .high = 4},
    {CASE("equal", element, 2, S(3, 37), S(3, 37)), .arg = {PL_OP_equal}, .ties = true,
     .forward_only = true},
    {CASE("not_equal", element, 2, S(3, 37), S(37)), .arg = {PL_OP_not_equal},
     .ties = true, .forward_only = true},
    {CASE("less", element, 2, S(3, 37), S(3, 37)), .arg = {PL_OP_less}, .ties = true,
     .forward_only = true},
    {CASE("less_equal", element, 2, S(3, 37), S(3, 37)), .arg = {PL_OP_less_equal},
     .ties = true, .forward_only = true},
    {CASE("greater", element, 2, S(3, 37), SCALAR), .arg = {PL_OP_greater}, .ties = true,
     .forward_only = true},
    {CASE("greater_equal", element, 2, S(3, 37), S(3, 37)), .arg = {PL_OP_greater_equal},
     .ties = true, .forward_only = true},
    {CASE("logical_and", element, 2, S(3, 37), S(3, 37)), .arg = {PL_OP_logical_and},
     .ties = true, .forward_only = true},
    {CASE("logical_or", element, 2, S(3, 37), S(3, 37)), .arg = {PL_OP_logical_or},
     .ties = true, .forward_only = true},
    {CASE("logical_not", element, 1, S(3, 37)), .arg = {PL_OP_logical_not}, .ties = true,
     .forward_only = true},
    {CASE("where", where, 3, S(3, 37), S(3, 37), S(3, 37))},
    {CASE("where, broadcast", where, 3, S(4, 1), S(6), S(2, 1, 6))},
    {CASE("detach", detach, 1, S(3, 5)), .forward_only = true},
    {CASE("abs", element, 1, S(3, 37)), .arg = {PL_OP_abs}},
    {CASE("square", element, 1, S(3, 37)), .arg = {PL_OP_square}},
    {CASE("reciprocal", element, 1, S(3, 37)), .arg = {PL_OP_reciprocal}, .low = 0.5,
     .high = 4},
    {CASE("rsqrt", element, 1, S(3, 37)), .arg = {PL_OP_rsqrt}, .low = 0.25, .high = 8},
    {CASE("floor", element, 1, S(3, 37)), .arg = {PL_OP_floor}, .low = -6, .high = 6,
     .forward_only = true},
    {CASE("ceil", element, 1, S(3, 37)), .arg = {PL_OP_ceil}, .low = -6, .high = 6,
     .forward_only = true},
    {CASE("round", element, 1, S(3, 37)), .arg = {PL_OP_round}, .low = -6, .high = 6,
     .forward_only = true},
    {CASE("round, ties", element, 1, S(3, 37)), .arg = {PL_OP_round}, .ties = true,
     .forward_only = true},
    {CASE("sin", element, 1, S(3, 37)), .arg = {PL_OP_sin}, .low = -20, .high = 20},
    {CASE("cos", element, 1, S(3, 37)), .arg = {PL_OP_cos}, .low = -20, .high = 20},
    {CASE("erf", element, 1, S(3, 37)), .arg = {PL_OP_erf}, .low = -3, .high = 3},
    {CASE("log1p", element, 1, S(3, 37)), .arg = {PL_OP_log1p}, .low = -0.5, .high = 4},
    {CASE("expm1", element, 1, S(3, 37)), .arg = {PL_OP_expm1}, .low = -4, .high = 4},
    {CASE("softplus", element, 1, S(3, 37)), .arg = {PL_OP_softplus}, .low = -20,
     .high = 20},
    {CASE("silu", element, 1, S(3, 37)), .arg = {PL_OP_silu}, .low = -6, .high = 6},
    {CASE("mish", element, 1, S(3, 37)), .arg = {PL_OP_mish}, .low = -6, .high = 25},
    {CASE("hardsigmoid", element, 1, S(3, 37)), .arg = {PL_OP_hardsigmoid}, .low = -5,
     .high = 5},
    {CASE("hardswish", element, 1, S(3, 37)), .arg = {PL_OP_hardswish}, .low = -5,
     .high = 5},
    {CASE("leaky_relu", element, 1, S(3, 37)), .arg = {PL_OP_leaky_relu}, .p = 0.1},
    {CASE("elu", element, 1, S(3, 37)), .arg = {PL_OP_elu}, .p = 1.5, .low = -4,
     .high = 4},
    {CASE("clamp", element, 1, S(3, 37)), .arg = {PL_OP_clamp, 1}, .p = -0.5, .low = -3,
     .high = 3},
    {CASE("cast, bfloat16", cast, 1, S(3, 5)), .arg = {PL_BF16}, .forward_only = true},
    {CASE("cast, float16", cast, 1, S(3, 1031)), .arg = {PL_F16}, .low = -1e-4,
     .high = 1e-4, .forward_only = true},
    {CASE("neg", element, 1, S(3, 5)), .arg = {PL_OP_neg}},
    {CASE("pl_cast, bfloat16", type, 1, S(3, 37)), .arg = {PL_BF16}, .p = 1,
     .ties = true},
    {CASE("pl_cast, float16", type, 1, S(3, 37)), .arg = {PL_F16}, .p = 1, .ties = true},
    {CASE("pl_cast, int32", type, 1, S(3, 37)), .arg = {PL_I32}, .p = 8,
     .forward_only = true, .ties = true},
    {CASE("pl_cast, int32, too large", type, 1, S(3, 37)), .arg = {PL_I32}, .p = 0x1p33,
     .forward_only = true, .ties = true},
    {CASE("pl_cast, int64", type, 1, S(1031)), .arg = {PL_I64}, .p = 0x1p40,
     .forward_only = true, .ties = true},
    {CASE("pl_cast, int64, too large", type, 1, S(3, 37)), .arg = {PL_I64}, .p = 0x1p70,
     .forward_only = true, .ties = true},
    {CASE("pl_cast, uint8", type, 1, S(3, 37)), .arg = {PL_U8}, .p = 256,
     .forward_only = true, .ties = true},
    {CASE("pl_cast of indices", index_type, 1, S(4, 5)), .index = S(4, 5), .classes = 7,
     .arg = {PL_F32}},
    {CASE("pl_cast of indices, int64", index_type, 1, S(4, 5)), .index = S(4, 5),
     .narrow = true, .classes = 7, .arg = {PL_I64}, .p = 0.5},
    {CASE("pl_bool", bool, 1, S(4, 5)), .index = S(4, 5), .classes = 3, .ties = true,
     .forward_only = true},
    {CASE("compare whole numbers", compare, 1, S(4, 5)), .index = S(4, 5), .classes = 5,
     .ties = true, .forward_only = true},
    {CASE("compare whole numbers, int32", compare, 1, S(4, 5)), .index = S(4, 5),
     .narrow = true, .classes = 5, .ties = true, .forward_only = true},
    {CASE("compare whole numbers, large", compare_large, 1, S(4, 5)), .index = S(4, 5),
     .classes = 5, .ignore = 16777217, .forward_only = true},
    {CASE("a field of float64", fractions, 1, S(4, 5)), .index = S(4, 5), .classes = 5,
     .fractions = true},
    {CASE("gather", gather, 1, S(4, 5, 3)), .index = S(4, 2, 3), .classes = 5,
     .arg = {1}},
    {CASE("gather, one of each row", gather, 1, S(6, 7)), .index = S(6, 1), .classes = 7,
     .arg = {-1}},
    {CASE("gather, fewer columns", gather, 1, S(5, 6)), .index = S(3, 4), .narrow = true,
     .classes = 5},
    {CASE("gather, long", gather, 1, S(40, 33)), .index = S(70, 33), .classes = 40},
    {CASE("take", take, 1, S(3, 5, 2)), .index = S(4), .classes = 5, .arg = {1}},
    {CASE("take, rows", take, 1, S(5, 3, 2)), .index = S(2, 3), .classes = 5},
    {CASE("take, indices of two axes", take, 1, S(3, 7)), .index = S(2, 3),
     .narrow = true, .classes = 7, .arg = {-1}},
    {CASE("take, of indices", take_index, 1, S(3, 3, 4)), .index = S(3, 4), .classes = 4},
    {CASE("scatter_add", scatter_add, 2, S(4, 5), S(4, 3)), .index = S(4, 3),
     .classes = 5, .arg = {1}},
    {CASE("scatter_add, fewer columns", scatter_add, 2, S(5, 4, 2), S(7, 3, 1)),
     .index = S(7, 3, 1), .classes = 5},
    {CASE("scatter_add, one axis", scatter_add, 2, S(40), S(2100)), .index = S(2100),
     .narrow = true, .classes = 37},
    {CASE("one_hot", one_hot, 1, S(3, 4, 5)), .index = S(3, 4), .classes = 5},
    {CASE("cumsum", cumsum, 1, S(3, 37)), .arg = {-1}},
    {CASE("cumsum, first axis", cumsum, 1, S(7, 3, 5))},
    {CASE("cumsum, the middle", cumsum, 1, S(2, 5, 70)), .arg = {1}},
    {CASE("cumsum, long", cumsum, 1, S(2, 1031)), .arg = {1}},
    {CASE("sort", sort, 1, S(3, 37)), .arg = {-1}},
    {CASE("sort, descending", sort, 1, S(11, 5)), .arg = {0, true}},
    {CASE("sort, the middle", sort, 1, S(2, 5, 3)), .arg = {1}},
    {CASE("sort, long, ties", sort, 1, S(2, 2100)), .arg = {1}, .ties = true},
    {CASE("sort, ties and NaN", sort_places, 1, S(3, 70)), .arg = {1}, .ties = true,
     .forward_only = true},
    {CASE("sort, ties and NaN, descending", sort_places, 1, S(70, 2)), .arg = {0, true},
     .ties = true, .forward_only = true},
    {CASE("top_k", top_k, 1, S(4, 9)), .arg = {3, 1}},
    {CASE("top_k, few of many, ties", top_k, 1, S(2, 2100)), .arg = {5, 1}, .ties = true},
    {CASE("top_k, forty of many, ties", top_k, 1, S(700, 2)), .arg = {40}, .ties = true},
    {CASE("top_k, ties", top_k_places, 1, S(3, 70)), .arg = {4, 1}, .ties = true,
     .forward_only = true},
    {CASE("min", min, 1, S(3, 5)), .arg = {-1}},
    {CASE("min, the middle kept", min, 1, S(2, 5, 3)), .arg = {1, true}},
    {CASE("argmin", argmin, 1, S(3, 5)), .arg = {1}, .forward_only = true},
    {CASE("rand and randn", random, 1, S(4, 33))},
    {CASE("scale", scale, 1, S(3, 5)), .p = -1.25},
    {CASE("exp", element, 1, S(3, 5)), .arg = {PL_OP_exp}, .low = -4, .high = 4},
    {CASE("log", element, 1, S(3, 5)), .arg = {PL_OP_log}, .low = 0.25, .high = 8},
    {CASE("sqrt", element, 1, S(3, 5)), .arg = {PL_OP_sqrt}, .low = 0.25, .high = 8},
    {CASE("sign", element, 1, S(3, 37)), .arg = {PL_OP_sign}, .forward_only = true},
    {CASE("sign, zeros", element, 1, S(3, 7)), .arg = {PL_OP_sign}, .ties = true,
     .forward_only = true},
    {CASE("relu", element, 1, S(3, 37)), .arg = {PL_OP_relu}},
    {CASE("relu, zeros", element, 1, S(3, 7)), .arg = {PL_OP_relu}, .ties = true},
    {CASE("gelu", element, 1, S(3, 37)), .arg = {PL_OP_gelu}, .low = -6, .high = 6},
    {CASE("gelu_tanh", element, 1, S(3, 37)), .arg = {PL_OP_gelu_tanh}, .low = -6,
     .high = 6},
    {CASE("sigmoid", element, 1, S(3, 37)), .arg = {PL_OP_sigmoid}, .low = -6, .high = 6},
    {CASE("tanh", element, 1, S(3, 37)), .arg = {PL_OP_tanh}, .low = -6, .high = 6},
    {CASE("dropout", dropout, 1, S(3, 37)), .p = 0.3},
    {CASE("dropout, when validating", dropout, 1, S(3, 5)), .p = 0.3,
     .forward_only = true, .stage = PL_VALIDATE},
    {CASE("a chain", chain, 2, S(4, 33), S(33))},
    {CASE("norm", norm, 1, S(3, 5)), .p = 1, .forward_only = true},
    {CASE("norm, blocks", norm, 1, S(70, 33)), .p = 0.5, .forward_only = true},
    {CASE("norm, large", norm, 1, S(70, 33)), .p = 0x1p-20, .low = 1e37, .high = 3e38,
     .forward_only = true},
    {CASE("block_norms", block_norms, 1, S(70, 33)), .arg = {64, 48}, .p = 0.5,
     .forward_only = true},
    {CASE("block_norms, wide", block_norms, 1, S(70, 33)), .arg = {1024}, .p = 1,
     .forward_only = true},
    {CASE("block_norms, of one block", block_norms, 1, S(3, 5)), .arg = {16, 1},
     .p = 0x1p-20, .low = 1e37, .high = 3e38, .forward_only = true},
    {CASE("sum, all", sum, 1, S(3, 5))},
    {CASE("sum, the first axis", sum, 1, S(3, 5)), .arg = {1, 0}},
    {CASE("sum, the last axis kept", sum, 1, S(3, 5)), .arg = {1, -1, 0, true}},
    {CASE("sum, two outer axes", sum, 1, S(2, 3, 4)), .arg = {2, 0, 2}},
    {CASE("sum, the middle", sum, 1, S(2, 3, 4)), .arg = {1, 1}},
    {CASE("sum, long columns", sum, 1, S(70, 33)), .arg = {1, 0}},
    {CASE("mean", mean, 1, S(2, 3, 4)), .arg = {2, 1, 2, true}},
    {CASE("var", var, 1, S(3, 5)), .arg = {0, 0, 0, 1}},
    {CASE("var, two axes, biased", var, 1, S(2, 3, 4)), .arg = {2, 0, 2}},
    {CASE("logsumexp", logsumexp, 1, S(3, 37)), .arg = {-1}, .low = -50, .high = 150},
    {CASE("logsumexp, the middle kept", logsumexp, 1, S(2, 5, 3)), .arg = {1, true}},
    {CASE("log_softmax", log_softmax, 1, S(3, 37)), .arg = {-1}, .low = -5, .high = 5},
    {CASE("log_softmax, first axis", log_softmax, 1, S(5, 4)), .arg = {0}},
    {CASE("max, last axis", max, 1, S(3, 5)), .arg = {-1}},
    {CASE("max, first axis kept", max, 1, S(3, 5)), .arg = {0, true}},
    {CASE("max, the middle", max, 1, S(2, 5, 3)), .arg = {1}},
    {CASE("max, ties", max, 1, S(5, 9)), .arg = {1}, .ties = true},
    {CASE("argmax", argmax, 1, S(3, 5)), .arg = {-1}, .forward_only = true},
    {CASE("argmax, ties", argmax, 1, S(2, 9, 3)), .arg = {1}, .ties = true,
     .forward_only = true},
    {CASE("broadcast", broadcast, 1, S(3, 1), S(2, 3, 4))},
    {CASE("broadcast, a scalar", broadcast, 1, SCALAR, S(2, 3))},
    {CASE("reshape", reshape, 1, S(2, 3, 4)), .arg = {6, 4}},
    {CASE("reshape, one size to be found", reshape, 1, S(2, 3, 4)), .arg = {-1, 3}},
    {CASE("permute, transposed", permute, 1, S(3, 5)), .arg = {1, 0}},
    {CASE("permute 0 2 1", permute, 1, S(2, 3, 4)), .arg = {0, 2, 1}},
    {CASE("permute 1 0 2", permute, 1, S(2, 3, 4)), .arg = {1, 0, 2}},
    {CASE("permute 1 2 0", permute, 1, S(2, 3, 4)), .arg = {1, 2, 0}},
    {CASE("permute 2 0 1", permute, 1, S(2, 3, 4)), .arg = {2, 0, 1}},
    {CASE("permute 2 1 0", permute, 1, S(2, 3, 4)), .arg = {2, 1, 0}},
    {CASE("permute 0 2 1 3", permute, 1, S(2, 3, 4, 5)), .arg = {0, 2, 1, 3}},
    {CASE("permute 3 1 0 2", permute, 1, S(2, 3, 4, 5)), .arg = {3, 1, 0, 2}},
    {CASE("slice, rows", slice, 1, S(5, 3)), .arg = {0, 1, 4}},
    {CASE("slice, columns", slice, 1, S(3, 5)), .arg = {-1, 2, 5}},
    {CASE("slice, the middle", slice, 1, S(2, 5, 3)), .arg = {1, 0, 2}},
    {CASE("slice, all parts", parts, 1, S(3, 8)), .arg = {1, 2}},
    {CASE("slice, three parts", parts, 1, S(2, 3, 6)), .arg = {-1, 3}},
    {CASE("slice, every second", slice_step, 1, S(3, 5, 2)), .arg = {1, 0, 5, 2}},
    {CASE("slice, every third, some left", slice_step, 1, S(3, 9)), .arg = {1, 1, 8, 3}},
    {CASE("slice, backwards", slice_step, 1, S(3, 5)), .arg = {0, 2, -1, -1}},
    {CASE("slice, backwards in steps", slice_step, 1, S(2, 7)), .arg = {-1, 5, 0, -2}},
    {CASE("slice, six axes", slice, 1, S(2, 1, 3, 4, 2, 2)), .arg = {3, 1, 3}},
    {CASE("permute, six axes", turned, 1, S(2, 3, 2, 4, 1, 3))},
    {CASE("flip", flip, 1, S(2, 3, 4))},
    {CASE("flip, two axes", flip, 1, S(2, 3, 4)), .arg = {2, 0, -1}},
    {CASE("roll", roll, 1, S(2, 5)), .arg = {1, 2}},
    {CASE("roll, back", roll, 1, S(4, 3)), .arg = {0, -5}},
    {CASE("stack", stack, 3, S(2, 4), S(2, 4), S(2, 4)), .arg = {0}},
    {CASE("stack, last axis", stack, 3, S(2, 4), S(2, 4), S(2, 4)), .arg = {-1}},
    {CASE("split", split, 1, S(3, 7)), .arg = {1, 4, 2}},
    {CASE("repeat", repeat, 1, S(2, 3, 4)), .arg = {2, 1, 3}},
    {CASE("repeat, six axes", repeat, 1, S(2, 1, 2, 3)), .arg = {1, 5, 2, 2}},
    {CASE("pad", pad, 1, S(3, 4)), .arg = {1, 2, 0, 3}, .p = -0.5},
    {CASE("pad, one side", pad, 1, S(3, 4)), .arg = {0, 0, 2, 0}},
    {CASE("pad_reflect", pad_reflect, 1, S(4, 5)), .arg = {3, 0, 1, 4}},
    {CASE("pad and interpolate, images", frame, 2, S(2, 2, 4, 5), S(3, 2, 3, 3))},
    {CASE("tril", triangle, 1, S(2, 4, 5))},
    {CASE("tril, above", triangle, 1, S(4, 5)), .arg = {2}},
    {CASE("triu", triangle, 1, S(5, 4)), .arg = {0, true}},
    {CASE("triu, below", triangle, 1, S(2, 5, 4)), .arg = {-2, true}},
    {CASE("interpolate, nearest", interpolate, 1, S(2, 3, 4, 5)), .arg = {2, 7, 3}},
    {CASE("interpolate, larger", interpolate, 1, S(2, 3, 4, 5)), .arg = {2, 8, 13, true}},
    {CASE("interpolate, smaller", interpolate, 1, S(2, 1, 9, 7)), .arg = {2, 4, 3, true}},
    {CASE("interpolate, one axis", interpolate, 1, S(2, 3, 5)), .arg = {1, 12, 0, true}},
    {CASE("interpolate, a size of 1", interpolate, 1, S(2, 1, 1, 6)),
     .arg = {2, 3, 1, true}},
    {CASE("pixel_shuffle", shuffle, 1, S(2, 8, 3, 2)), .arg = {2}},
    {CASE("pixel_unshuffle", shuffle, 1, S(2, 2, 6, 3)), .arg = {3, true}},
    {CASE("einsum, ij,jk->ik", einsum, 2, S(3, 4), S(4, 5)), .arg = {0}},
    {CASE("einsum, bij,bjk->bik", einsum, 2, S(2, 3, 4), S(2, 4, 5)), .arg = {1}},
    {CASE("einsum, bji,bjk->ibk", einsum, 2, S(2, 4, 3), S(1, 4, 5)), .arg = {2}},
    {CASE("einsum, i,j->ij", einsum, 2, S(3), S(4)), .arg = {3}},
    {CASE("einsum, bi,bi->b", einsum, 2, S(3, 4), S(3, 4)), .arg = {4}},
    {CASE("einsum, bij,jk", einsum, 2, S(2, 3, 4), S(4, 5)), .arg = {5}},
    {CASE("einsum, abij,bkj->aibk", einsum, 2, S(2, 3, 4, 5), S(3, 2, 5)), .arg = {6}},
    {CASE("einsum, ij,jk->k", einsum, 2, S(3, 4), S(4, 5)), .arg = {7}},
    {CASE("einsum, bi, bi -> bi", einsum, 2, S(3, 1), S(3, 4)), .arg = {8}},
    {CASE("einsum, bhqd,bhkd->bhqk", einsum, 2, S(2, 1, 4, 3), S(1, 2, 5, 3)),
     .arg = {9}},
    {CASE("einsum, abcde,eadf", einsum, 2, S(2, 3, 2, 2, 3), S(3, 2, 2, 4)), .arg = {10}},
    {CASE("einsum, ij,ij->", einsum, 2, S(3, 1), S(3, 4)), .arg = {11}},
    {CASE("einsum, xaby,xzbc->zcaby", einsum, 2, S(2, 3, 4, 2), S(2, 3, 1, 2)),
     .arg = {12}},
    {CASE("constant tensors", tensor, 1, S(5, 3))},
    {CASE("arange", arange, 1, S(3, 6)), .arg = {6}, .p = -1},
    {CASE("add, six axes", add, 2, S(2, 1, 2, 1, 3, 2), S(3, 1, 2, 1, 2))},
    {CASE("sum, six axes", sum, 1, S(2, 3, 2, 2, 3, 2)), .arg = {2, 1, -2}},
    {CASE("softmax, six axes", softmax, 1, S(2, 1, 2, 3, 1, 5))},
    {CASE("matmul, six axes", matmul, 2, S(2, 1, 2, 1, 3, 4), S(1, 2, 1, 2, 4, 2))},
    {CASE("concat, six axes", concat, 2, S(1, 2, 1, 2, 1, 3), S(1, 2, 1, 4, 1, 3)),
     .arg = {3}},
    {CASE("concat, forty", many, 1, S(40, 3))},
    {CASE("concat", concat, 2, S(2, 3), S(4, 3)), .arg = {0}},
    {CASE("concat, columns", concat, 3, S(2, 3), S(2, 1), S(2, 4)), .arg = {1}},
    {CASE("range", range, 1, S(7, 3)), .arg = {5}},
    {CASE("matmul", matmul, 2, S(3, 4), S(4, 5))},
    {CASE("matmul, a transposed", matmul, 2, S(4, 3), S(4, 5)), .arg = {true}},
    {CASE("matmul, b transposed", matmul, 2, S(3, 4), S(5, 4)), .arg = {false, true}},
    {CASE("matmul, both transposed", matmul, 2, S(4, 3), S(5, 4)), .arg = {true, true}},
    {CASE("matmul, batch", matmul, 2, S(2, 3, 4), S(2, 4, 5))},
    {CASE("matmul, batch, a transposed", matmul, 2, S(2, 4, 3), S(2, 4, 5)),
     .arg = {true}},
    {CASE("matmul, batch, b transposed", matmul, 2, S(2, 2, 3, 4), S(2, 2, 5, 4)),
     .arg = {false, true}},
    {CASE("matmul, batch, both transposed", matmul, 2, S(2, 4, 3), S(2, 5, 4)),
     .arg = {true, true}},
    {CASE("matmul, b for all", matmul, 2, S(2, 3, 4), S(4, 5))},
    {CASE("matmul, b for all, transposed", matmul, 2, S(2, 3, 4), S(5, 4)),
     .arg = {false, true}},
    {CASE("matmul, a for all", matmul, 2, S(3, 4), S(2, 4, 5))},
    {CASE("matmul, a transposed, b for all", matmul, 2, S(2, 4, 3), S(4, 5)),
     .arg = {true}},
    {CASE("matmul, broadcast both ways", matmul, 2, S(2, 1, 3, 4), S(1, 3, 4, 2))},
    {CASE("linear", linear, 3, S(3, 4), S(5, 4), S(5))},
    {CASE("linear without bias", linear, 2, S(3, 4), S(5, 4))},
    {CASE("linear, one row", linear, 3, S(1, 7), S(2, 7), S(2))},
    {CASE("linear, ragged", linear, 3, S(17, 33), S(19, 33), S(19))},
    {CASE("linear, gelu_tanh", neurons, 3, S(3, 4), S(8, 4), S(8)),
     .arg = {PL_OP_gelu_tanh}},
    {CASE("linear, gelu_tanh, ragged", neurons, 3, S(17, 33), S(19, 33), S(19)),
     .arg = {PL_OP_gelu_tanh}},
    {CASE("linear, tanh", neurons, 2, S(3, 4), S(5, 4)), .arg = {PL_OP_tanh}},
    {CASE("linear, gelu_tanh, linear", layers, 3, S(3, 4), S(16, 4), S(5, 16)),
     .arg = {PL_OP_gelu_tanh}},
    {CASE("linear, relu, linear", layers, 3, S(3, 4), S(7, 4), S(5, 7)),
     .arg = {PL_OP_relu}},
    {CASE("linear, a bias for all heads", heads, 3, S(6, 4), S(8, 4), S(4)),
     .arg = {2, 3}},
    {CASE("linear, twice with its bias", twice, 3, S(8, 4), S(5, 4), S(5)),
     .arg = {true}},
    {CASE("linear, twice, one bias", twice, 3, S(8, 4), S(5, 4), S(5))},
    {CASE("conv2d", conv, 3, S(2, 3, 5, 6), S(4, 3, 3, 3), S(4))},
    {CASE("conv2d, padding", conv, 3, S(2, 3, 5, 6), S(4, 3, 3, 3), S(4)),
     .windows = {.padding = {1}}},
    {CASE("conv2d, stride", conv, 3, S(2, 2, 7, 6), S(3, 2, 3, 3), S(3)),
     .windows = {.stride = {2}, .padding = {1}}},
    {CASE("conv2d, stride, rest left over", conv, 2, S(1, 2, 8, 8), S(3, 2, 3, 3)),
     .windows = {.stride = {3}}},
    {CASE("conv2d, kernel 1", conv, 2, S(2, 3, 4, 4), S(5, 3, 1, 1))},
    {CASE("conv2d, sixteen channels", conv, 3, S(1, 16, 4, 4), S(16, 16, 3, 3), S(16)),
     .windows = {.padding = {1}}},
    {CASE("conv2d, rectangles", conv, 3, S(2, 3, 7, 6), S(4, 3, 2, 5), S(4)),
     .windows = {.stride = {2, 1}, .padding = {PL_UNPADDED, 2}}},
    {CASE("conv2d, dilation", conv, 2, S(1, 2, 9, 8), S(3, 2, 3, 3)),
     .windows = {.padding = {2, 1}, .dilation = {2, 3}}},
    {CASE("conv2d, same", conv, 3, S(2, 2, 5, 6), S(3, 2, 2, 4), S(3)), .arg = {true},
     .windows = {.dilation = {1, 1}}},
    {CASE("conv2d, groups", conv, 3, S(2, 4, 5, 5), S(6, 2, 3, 3), S(6)), .groups = 2,
     .windows = {.padding = {1}}},
    {CASE("conv2d, groups of many", conv, 2, S(1, 20, 4, 3), S(24, 10, 2, 2)),
     .groups = 2},
    {CASE("conv2d, depthwise", conv, 3, S(2, 17, 6, 5), S(17, 1, 3, 3), S(17)),
     .groups = 17, .windows = {.stride = {2}, .padding = {1}}},
    {CASE("conv2d, depthwise, two filters", conv, 2, S(1, 16, 5, 5), S(32, 1, 3, 3)),
     .groups = 16, .windows = {.padding = {1}}},
    {CASE("conv1d", conv, 3, S(2, 3, 11), S(4, 3, 5), S(4)),
     .windows = {.stride = {2}, .padding = {2}, .dilation = {2}}},
    {CASE("conv1d, depthwise, same", conv, 3, S(2, 5, 7), S(5, 1, 4), S(5)), .groups = 5,
     .arg = {true}},
    {CASE("conv3d", conv, 3, S(1, 2, 4, 5, 3), S(3, 2, 2, 3, 2), S(3)),
     .windows = {.stride = {1, 2, 1}, .padding = {1, 1, PL_UNPADDED}}},
    {CASE("conv3d, groups, dilation", conv, 2, S(1, 4, 5, 4, 5), S(4, 2, 2, 2, 3)),
     .groups = 2, .windows = {.dilation = {2, 1, 2}, .padding = {1, 1, 2}}},
    {CASE("conv_transpose", conv_transpose, 2, S(2, 3, 4, 5), S(3, 4, 3, 3)),
     .windows = {.stride = {2}, .padding = {1}}, .arg = {1, 1}},
    {CASE("conv_transpose, rectangles, dilation", conv_transpose, 2, S(2, 3, 4, 3),
          S(3, 2, 2, 3)),
     .windows = {.stride = {1, 2}, .padding = {PL_UNPADDED, 1}, .dilation = {3, 2}},
     .arg = {0, 1}},
    {CASE("conv_transpose, groups", conv_transpose, 2, S(1, 4, 4, 4), S(4, 3, 4, 4)),
     .groups = 2, .windows = {.stride = {2}, .padding = {1}}},
    {CASE("conv_transpose, one axis", conv_transpose, 2, S(2, 3, 5), S(3, 2, 4)),
     .windows = {.stride = {3}}, .arg = {1}},
    {CASE("conv_transpose, three axes", conv_transpose, 2, S(1, 2, 3, 2, 3),
          S(2, 3, 2, 3, 2)),
     .windows = {.stride = {2, 1, 2}, .padding = {1, 1, PL_UNPADDED}}, .arg = {1, 0, 1}},
    {CASE("layer conv_transpose", conv_transpose_layer, 1, S(2, 4, 3, 4)), .groups = 2,
     .windows = {.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, PL_UNPADDED}},
     .arg = {6, 1, 2}},
    {CASE("layer conv_transpose, one axis", conv_transpose_layer, 1, S(2, 3, 5)),
     .windows = {.kernel = {4}, .stride = {3}, .padding = {1}, .dilation = {2}},
     .arg = {2, 2}},
    {CASE("layer conv_transpose, three axes", conv_transpose_layer, 1, S(1, 2, 3, 2, 3)),
     .windows = {.kernel = {2, 3, 2}, .stride = {2, 1, 2}},
     .arg = {3, 1, PL_UNPADDED, 1}},
    {CASE("max_pool, rectangles", pool, 1, S(2, 3, 7, 6)),
     .windows = {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, PL_UNPADDED}}},
    {CASE("max_pool, dilation, ceil", pool, 1, S(1, 2, 9, 8)), .arg = {false, true},
     .windows = {.kernel = {3}, .stride = {3}, .padding = {1}, .dilation = {2}}},
    {CASE("max_pool, ceil, x smaller than a window", pool, 1, S(1, 2, 3, 4)),
     .arg = {false, true},
     .windows = {.kernel = {4, 2}, .stride = {3}, .dilation = {1, 2}}},
    {CASE("max_pool, one axis", pool, 1, S(2, 3, 9)), .windows = {.kernel = {2}}},
    {CASE("max_pool, three axes", pool, 1, S(1, 17, 4, 5, 4)),
     .windows = {.kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 1, 1}}},
    {CASE("avg_pool", pool, 1, S(2, 3, 7, 6)), .arg = {true},
     .windows = {.kernel = {3}, .stride = {2}, .padding = {1}}},
    {CASE("avg_pool, ceil, rectangles", pool, 1, S(1, 17, 8, 7)), .arg = {true, true},
     .windows = {.kernel = {2, 3}, .stride = {3, 2}, .padding = {1}}},
    {CASE("avg_pool, ceil, x smaller than a window", pool, 1, S(1, 3, 2, 4)),
     .arg = {true, true}, .windows = {.kernel = {4, 5}, .stride = {3}}},
    {CASE("avg_pool, padding does not count", pool, 1, S(1, 2, 8, 7)),
     .arg = {true, true, true},
     .windows = {.kernel = {3}, .stride = {2}, .padding = {1}}},
    {CASE("avg_pool, one axis", pool, 1, S(2, 3, 9)), .arg = {true},
     .windows = {.kernel = {4}, .stride = {2}, .padding = {2}}},
    {CASE("avg_pool, three axes", pool, 1, S(1, 3, 4, 5, 4)), .arg = {true},
     .windows = {.kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 1, 1}}},
    {CASE("adaptive_max_pool", adaptive_pool, 1, S(2, 3, 7, 5)), .arg = {false, 3, 4}},
    {CASE("adaptive_avg_pool", adaptive_pool, 1, S(2, 17, 7, 5)), .arg = {true, 3, 2}},
    {CASE("adaptive_avg_pool, more than x", adaptive_pool, 1, S(1, 3, 4, 6)),
     .arg = {true, 6, 3}},
    {CASE("adaptive_avg_pool, all of x", adaptive_pool, 1, S(2, 3, 4, 5, 3)),
     .arg = {true, 1}},
    {CASE("max_pool2d", max_pool2d, 1, S(2, 3, 4, 6)), .arg = {2, 2, 0}},
    {CASE("max_pool2d, overlapping, padding", max_pool2d, 1, S(1, 2, 5, 6)),
     .arg = {3, 2, 1}},
    {CASE("max_pool2d, rest left over", max_pool2d, 1, S(1, 2, 5, 7)), .arg = {2, 2, 0}},
    {CASE("max_pool2d, ties", max_pool2d, 1, S(1, 2, 6, 6)), .arg = {2, 2, 0},
     .ties = true},
    {CASE("attention", attention, 3, S(2, 2, 5, 4), S(2, 2, 5, 4), S(2, 2, 5, 4))},
    {CASE("attention, causal", attention, 3, S(2, 2, 5, 4), S(2, 2, 5, 4), S(2, 2, 5, 4)),
     .arg = {true}},
    {CASE("attention, dropout", attention, 3, S(1, 2, 6, 4), S(1, 2, 6, 4),
          S(1, 2, 6, 4)),
     .arg = {true}, .p = 0.25},
    {CASE("attention, mask", masked_attention, 3, S(2, 2, 5, 4), S(2, 2, 5, 4),
          S(2, 2, 5, 4))},
    {CASE("attention, mask, causal", masked_attention, 3, S(2, 2, 5, 8), S(2, 2, 5, 8),
          S(2, 2, 5, 8)),
     .arg = {true}},
    {CASE("attention, mask, causal, dropout", masked_attention, 3, S(2, 2, 5, 4),
          S(2, 2, 5, 4), S(2, 2, 5, 4)),
     .arg = {true}, .p = 0.25},
    {CASE("attention, mask, queries that see no key", masked_attention, 3, S(2, 2, 5, 4),
          S(2, 2, 5, 4), S(2, 2, 5, 4)),
     .arg = {false, true}},
    {CASE("attention, mask, causal, queries that see no key", masked_attention, 3,
          S(2, 2, 5, 4), S(2, 2, 5, 4), S(2, 2, 5, 4)),
     .arg = {true, true}},
    {CASE("attention, more keys", wide_attention, 3, S(2, 2, 3, 4), S(2, 2, 7, 4),
          S(2, 2, 7, 4))},
    {CASE("attention, more keys, causal", wide_attention, 3, S(2, 2, 3, 4), S(2, 2, 7, 4),
          S(2, 2, 7, 4)),
     .arg = {true}},
    {CASE("attention, more queries, causal", wide_attention, 3, S(2, 2, 7, 4),
          S(2, 2, 3, 4), S(2, 2, 3, 4)),
     .arg = {true}, .p = 0.75},
    {CASE("attention, grouped queries", wide_attention, 3, S(2, 4, 5, 4), S(2, 2, 5, 4),
          S(2, 2, 5, 4)),
     .arg = {true}},
    {CASE("attention, one head for all queries", wide_attention, 3, S(2, 3, 4, 4),
          S(2, 1, 6, 4), S(2, 1, 6, 4))},
    {CASE("attention, window", wide_attention, 3, S(1, 2, 40, 4), S(1, 2, 40, 4),
          S(1, 2, 40, 4)),
     .arg = {true, 5}},
    {CASE("attention, window both ways, more queries", wide_attention, 3, S(1, 2, 21, 4),
          S(1, 2, 9, 4), S(1, 2, 9, 4)),
     .arg = {false, 3}},
    {CASE("attention, bias", wide_attention, 3, S(2, 2, 5, 4), S(2, 2, 6, 4),
          S(2, 2, 6, 4)),
     .arg = {false, 0, 1}, .p = 0.3},
    {CASE("attention, bias of keys, causal", wide_attention, 3, S(2, 2, 5, 4),
          S(2, 2, 6, 4), S(2, 2, 6, 4)),
     .arg = {true, 0, 2}},
    {CASE("attention, any mask", wide_attention, 3, S(2, 2, 4, 4), S(2, 2, 6, 4),
          S(2, 2, 6, 4)),
     .arg = {false, 0, 3}},
    {CASE("attention, trained bias, any mask", wide_attention, 3, S(2, 2, 4, 4),
          S(2, 2, 6, 4), S(2, 2, 6, 4)),
     .arg = {false, 0, 4}},
    {CASE("rotary", rotary, 1, S(2, 2, 5, 6)), .p = 10000, .arg = {0}},
    {CASE("rotary, interleaved, later", rotary, 1, S(2, 7, 8)), .p = 100,
     .arg = {3, true}},
    {CASE("attention, rotary", rotary_attention, 3, S(2, 2, 5, 6), S(2, 2, 5, 6),
          S(2, 2, 5, 6)),
     .arg = {true}},
    {CASE("attention, rotary, interleaved, grouped queries, later", rotary_attention, 3,
          S(1, 4, 3, 8), S(1, 2, 6, 8), S(1, 2, 6, 8)),
     .arg = {false, 3, true}, .p = 100},
    {CASE("attention, rotary, mask", rotary_attention, 3, S(2, 2, 5, 4), S(2, 2, 5, 4),
          S(2, 2, 5, 4)),
     .arg = {true, 0, false, 1}},
    {CASE("attention, rotary, trained bias", rotary_attention, 3, S(2, 2, 3, 4),
          S(2, 2, 5, 4), S(2, 2, 5, 4)),
     .arg = {false, 2, false, 2}},
    {CASE("attention, rotary, width 16", rotary_attention, 3, S(1, 2, 37, 16),
          S(1, 2, 37, 16), S(1, 2, 37, 16)),
     .arg = {true}, .p = 500},
    {CASE("attention, one token", attention, 3, S(1, 1, 1, 3), S(1, 1, 1, 3),
          S(1, 1, 1, 3)),
     .arg = {true}},
    {CASE("attention, ragged", attention, 3, S(1, 1, 19, 8), S(1, 1, 19, 8),
          S(1, 1, 19, 8)),
     .arg = {true}},
    {CASE("attention, heads cut out", self_attention, 1, S(2, 5, 24)), .arg = {2, true}},
    {CASE("attention, width 8, heads cut out", self_attention, 1, S(2, 7, 48)),
     .arg = {2, true}},
    {CASE("attention, keys cut out first", self_attention, 1, S(2, 7, 48)),
     .arg = {2, false, 1}},
    {CASE("attention, four batches of four heads", self_attention, 1, S(4, 5, 96)),
     .arg = {4, true}},
    {CASE("attention, width 16", attention, 3, S(2, 2, 5, 16), S(2, 2, 5, 16),
          S(2, 2, 5, 16))},
    {CASE("attention, width 24", self_attention, 1, S(1, 6, 72)), .arg = {1, false}},
    {CASE("softmax", softmax, 1, S(3, 5)), .low = -4, .high = 4},
    {CASE("softmax, three axes", softmax, 1, S(2, 3, 17)), .low = -4, .high = 4},
    {CASE("softmax, one class", softmax, 1, S(3, 1)), .forward_only = true},
    {CASE("layer_norm", layer_norm, 3, S(3, 5), S(5), S(5)), .p = 1e-5},
    {CASE("layer_norm, three axes", layer_norm, 3, S(2, 3, 33), S(33), S(33)), .p = 1e-5},
    {CASE("layer_norm, when validating", layer_norm, 3, S(3, 5), S(5), S(5)), .p = 1e-5,
     .forward_only = true, .stage = PL_VALIDATE},
    {CASE("layer_norm, no weights", group_norm, 1, S(6, 35)), .p = 1e-5,
     .arg = {0, false, true}},
    {CASE("rms_norm", group_norm, 2, S(4, 37), S(37)), .p = 1e-5, .arg = {0, true}},
    {CASE("rms_norm, no weights", group_norm, 1, S(3, 18)), .p = 1e-5,
     .arg = {0, true, true}},
    {CASE("group_norm", group_norm, 3, S(3, 6, 4, 5), S(6), S(6)), .p = 1e-5, .arg = {2}},
    {CASE("group_norm, no space", group_norm, 3, S(5, 6), S(6), S(6)), .p = 1e-5,
     .arg = {3}},
    {CASE("group_norm, one group", group_norm, 3, S(2, 3, 37), S(3), S(3)), .p = 1e-5,
     .arg = {1}},
    {CASE("group_norm, large", group_norm, 3, S(2, 4, 2300), S(4), S(4)), .p = 1e-5,
     .arg = {2}},
    {CASE("instance_norm", group_norm, 1, S(2, 3, 4, 5)), .p = 1e-5,
     .arg = {3, false, true}},
    {CASE("instance_norm, affine", group_norm, 3, S(2, 3, 9), S(3), S(3)), .p = 1e-5,
     .arg = {3}},
    {CASE("layer layer_norm, two axes", norm_layer, 1, S(3, 2, 5)),
     .arg = {LAYER_NORM, 2}},
    {CASE("layer layer_norm, all axes but one, no bias", norm_layer, 1, S(2, 3, 2, 4)),
     .arg = {LAYER_NORM, 3, NO_BIAS}, .p = 1e-2},
    {CASE("layer rms_norm, small numbers, no weight", norm_layer, 1, S(4, 7)),
     .arg = {RMS_NORM, 1, NO_WEIGHT}, .low = -0.1, .high = 0.1},
    {CASE("layer rms_norm, two axes", norm_layer, 1, S(3, 2, 5)), .arg = {RMS_NORM, 2},
     .p = 1e-3},
    {CASE("layer group_norm", norm_layer, 1, S(2, 6, 2, 3)), .arg = {GROUP_NORM, 3}},
    {CASE("layer group_norm, no weight", norm_layer, 1, S(2, 4, 5)),
     .arg = {GROUP_NORM, 2, NO_WEIGHT}, .p = 1e-3},
    {CASE("layer instance_norm", norm_layer, 1, S(2, 3, 2, 4)), .arg = {INSTANCE_NORM}},
    {CASE("layer instance_norm, no weight", norm_layer, 1, S(2, 3, 7)),
     .arg = {INSTANCE_NORM, 0, NO_WEIGHT}},
    {CASE("batch_norm", batch_norm, 1, S(6, 3)), .p = 0.1},
    {CASE("batch_norm, images", batch_norm, 1, S(3, 2, 3, 4)), .p = 0.25},
    {CASE("batch_norm, when validating", batch_norm, 1, S(3, 2, 3, 4)), .p = 0.1,
     .forward_only = true, .stage = PL_VALIDATE},
    {CASE("batch_norm, of all ranks", norm_together, 1, S(6, 3)), .p = 0.1},
    {CASE("batch_norm, images, of all ranks", norm_together, 1, S(3, 2, 3, 4)),
     .p = 0.25},
    {CASE("lstm", recurrent, 1, S(3, 5, 4)), .arg = {6}},
    {CASE("lstm, lengths, last state", recurrent, 1, S(3, 5, 4)), .arg = {6, LAST},
     .index = S(3), .classes = 6},
    {CASE("lstm, both directions, lengths", recurrent, 1, S(3, 5, 3)),
     .arg = {4, BOTH | LAST}, .index = S(3), .classes = 6, .narrow = true},
    {CASE("lstm, two layers, first state", recurrent, 3, S(2, 3, 5), S(4, 2, 3),
          S(4, 2, 3)),
     .arg = {3, BOTH | STATES | LAST, 2}},
    {CASE("lstm, both directions, lengths, first state", recurrent, 3, S(3, 5, 2),
          S(2, 3, 5), S(2, 3, 5)),
     .arg = {5, BOTH | STATES | LAST, 1}, .index = S(3), .classes = 6},
    {CASE("lstm, no bias, one step", recurrent, 1, S(4, 1, 3)), .arg = {2, PLAIN}},
    {CASE("lstm, 35 units", recurrent, 1, S(9, 3, 2)), .arg = {35}},
    {CASE("gru", recurrent, 1, S(3, 5, 4)), .arg = {6, GRU}},
    {CASE("gru, lengths, last state", recurrent, 1, S(3, 5, 4)), .arg = {6, GRU | LAST},
     .index = S(3), .classes = 6},
    {CASE("gru, both directions, lengths", recurrent, 1, S(3, 5, 3)),
     .arg = {4, GRU | BOTH | LAST}, .index = S(3), .classes = 6, .narrow = true},
    {CASE("gru, two layers, first state", recurrent, 2, S(2, 3, 5), S(4, 2, 3)),
     .arg = {3, GRU | BOTH | STATES | LAST, 2}},
    {CASE("gru, both directions, lengths, first state", recurrent, 2, S(3, 5, 2),
          S(2, 3, 5)),
     .arg = {5, GRU | BOTH | STATES | LAST, 1}, .index = S(3), .classes = 6},
    {CASE("gru, no bias, one step", recurrent, 1, S(4, 1, 3)), .arg = {2, GRU | PLAIN}},
    {CASE("gru, 35 units", recurrent, 1, S(9, 3, 2)), .arg = {35, GRU}},
    {CASE("lstm, rows without steps", recurrent, 3, S(3, 4, 2), S(2, 3, 5), S(2, 3, 5)),
     .arg = {5, BOTH | STATES | LAST, 1}, .index = S(3), .classes = 5},
    {CASE("gru, rows without steps", recurrent, 2, S(3, 4, 2), S(2, 3, 5)),
     .arg = {5, GRU | BOTH | STATES | LAST, 1}, .index = S(3), .classes = 5},
    {CASE("embedding", embedding, 1, S(5, 3)), .index = S(7), .classes = 5},
    {CASE("embedding, tokens", embedding, 1, S(4, 6)), .index = S(2, 3), .classes = 4},
    {CASE("embedding, int32", embedding, 1, S(4, 6)), .index = S(2, 3), .narrow = true,
     .classes = 4},
    {CASE("embedding, many positions", embedding, 1, S(40, 2)), .index = S(2100),
     .classes = 37},
    {CASE("embedding, linear of its table", tied, 1, S(6, 8)), .index = S(12),
     .classes = 5},
    {CASE("ctc", ctc, 1, S(3, 6, 5)), .index = S(3, 2), .classes = 4, .low = -3,
     .high = 3},
    {CASE("ctc, repeated labels, sum", ctc, 1, S(4, 9, 3)), .index = S(4, 4),
     .classes = 2, .arg = {SUM}, .low = -2, .high = 2},
    {CASE("ctc, lengths", ctc, 1, S(5, 8, 6)), .index = S(5, 3), .classes = 5,
     .narrow = true, .arg = {SHORT}, .low = -3, .high = 3},
    {CASE("ctc, lengths, too few steps", ctc, 1, S(4, 7, 4)), .index = S(4, 3),
     .classes = 3, .arg = {SHORT | SUM | ZERO}},
    {CASE("ctc, many states", ctc, 1, S(2, 40, 7)), .index = S(2, 17), .classes = 6,
     .low = -2, .high = 2},
    {CASE("cross_entropy", cross_entropy, 1, S(6, 5)), .index = S(6), .classes = 5,
     .low = -3, .high = 3},
    {CASE("cross_entropy, tokens", cross_entropy, 1, S(2, 3, 17)), .index = S(2, 3),
     .classes = 17},
    {CASE("cross_entropy, some ignored", cross_entropy, 1, S(7, 4)), .index = S(7),
     .classes = 4, .ignore = -1},
    {CASE("cross_entropy, int32, some ignored", cross_entropy, 1, S(7, 4)), .index = S(7),
     .narrow = true, .classes = 4, .ignore = -1},
    {CASE("cross_entropy, class weights", weighted_cross_entropy, 1, S(8, 6)),
     .index = S(8), .classes = 6, .arg = {true, false}},
    {CASE("cross_entropy, row weights", weighted_cross_entropy, 1, S(2, 4, 5)),
     .index = S(2, 4), .classes = 5, .arg = {false, true}},
    {CASE("cross_entropy, both weights, some ignored", weighted_cross_entropy, 1,
          S(8, 6)),
     .index = S(8), .classes = 6, .ignore = -1, .arg = {true, true}},
    {CASE("cross_entropy, int32, both weights, some ignored", weighted_cross_entropy, 1,
          S(8, 6)),
     .index = S(8), .narrow = true, .classes = 6, .ignore = -1, .arg = {true, true}},
    {CASE("cross_entropy, smoothed", smooth_cross_entropy, 1, S(8, 5)), .index = S(8),
     .classes = 5, .p = 0.1},
    {CASE("cross_entropy, smoothed, four at a time", smooth_cross_entropy, 1, S(8, 12)),
     .index = S(8), .classes = 12, .p = 0.25},
    {CASE("cross_entropy, smoothed, class weights, some ignored", smooth_cross_entropy, 1,
          S(8, 6)),
     .index = S(8), .classes = 6, .ignore = -1, .p = 0.3, .arg = {true}},
    {CASE("nll", smooth_cross_entropy, 1, S(8, 5)), .index = S(8), .classes = 5,
     .low = -3, .high = 1, .arg = {false, true}},
    {CASE("nll, class weights, some ignored", smooth_cross_entropy, 1, S(8, 6)),
     .index = S(8), .classes = 6, .ignore = -1, .low = -3, .high = 1,
     .arg = {true, true}},
    {CASE("accuracy", accuracy, 1, S(9, 4)), .index = S(9), .classes = 4,
     .forward_only = true},
    {CASE("accuracy, ties, some ignored", accuracy, 1, S(15, 4)), .index = S(15),
     .classes = 4, .ignore = -1, .ties = true, .forward_only = true},
    {CASE("accuracy of the first three", accuracy_top, 1, S(40, 7)), .index = S(40),
     .classes = 7, .arg = {3}, .forward_only = true},
    {CASE("accuracy of the first two, ties", accuracy_top, 1, S(40, 7)), .index = S(40),
     .classes = 7, .arg = {2}, .ties = true, .forward_only = true},
    {CASE("confusion", confusion, 1, S(40, 4)), .index = S(40), .classes = 4,
     .forward_only = true},
    {CASE("confusion, ties, some ignored", confusion, 1, S(2, 9, 3)), .index = S(2, 9),
     .classes = 3, .ignore = -1, .ties = true, .forward_only = true},
    {CASE("score_bins", score_bins, 1, S(40, 3)), .index = S(40), .classes = 3, .low = 0,
     .high = 1, .arg = {10}, .forward_only = true},
    {CASE("score_bins, two classes, out of range", score_bins, 1, S(30, 1)),
     .index = S(30), .classes = 2, .low = -0.5, .high = 1.5, .ignore = 7, .arg = {5},
     .forward_only = true},
    {CASE("r2", r2, 2, S(211, 13), S(211, 13)), .low = 9999, .high = 10001,
     .forward_only = true},
    {CASE("mae", mae, 2, S(3, 4), S(3, 4))},
    {CASE("mse", mse, 2, S(3, 4), S(3, 4))},
    {CASE("l1", l1, 2, S(3, 4), S(3, 4))},
    {CASE("huber", huber, 2, S(3, 37), S(3, 37)), .p = 0.75},
    {CASE("bce_with_logits", bce, 2, S(3, 4), S(3, 4)), .low = -30, .high = 30},
    {CASE("bce_with_logits, both weights", bce, 2, S(3, 4), S(3, 4)), .arg = {1, 1},
     .low = -5, .high = 5},
    {CASE("soft_cross_entropy", soft_cross_entropy, 2, S(2, 3, 5), S(2, 3, 5)), .low = -4,
     .high = 4},
    {CASE("add_losses", add_losses, 2, S(2, 3, 5), S(2, 3, 5)), .low = -4, .high = 4},
    {CASE("kl", kl, 2, S(6, 3), S(6, 3)), .low = -2, .high = 2},
    {CASE("cosine_embedding", cosine_embedding, 2, S(5, 7), S(5, 7)), .p = 0.1},
    {CASE("info_nce", info_nce, 2, S(5, 7), S(5, 7)), .p = 0.1},
    {CASE("info_nce, of three ranks", info_nce, 2, S(5, 7), S(5, 7)), .p = 0.1,
     .arg = {3, 1}},
    {CASE("info_nce, a parameter as temperature", info_nce, 3, S(4, 3), S(4, 3), SCALAR),
     .arg = {2, 1}},
    {CASE("all_gather", all_gather, 1, S(4, 3))},
    {CASE("all_gather, smaller batch, images", all_gather, 1, S(4, 2, 8)), .p = 2},
    {CASE("all_reduce, sum", all_reduce, 1, S(3, 5))},
    {CASE("all_reduce, mean", all_reduce, 1, S(37)), .p = 1},
    {CASE("triplet", triplet, 3, S(5, 7), S(5, 7), S(5, 7)), .p = 2},
    {CASE("mse, weights", weighted_mse, 2, S(3, 4), S(3, 4))},
    {CASE("a user's operator", gate, 2, S(3, 5), S(5)), .p = 1.5},
    {CASE("a user's operator, three axes", gate, 2, S(2, 3, 4), S(4)), .p = -2},
    {CASE("a user's operator, long", gate, 2, S(211, 130), S(130)), .p = 1},
    {CASE("assign", assign, 2, S(3, 5), S(3, 5)), .forward_only = true},
    {CASE("assign, added", assign, 2, S(3, 5), S(3, 5)), .arg = {true},
     .forward_only = true},
    {CASE("guard, finite", guard, 1, S(4)), .p = 2, .forward_only = true},
    {CASE("guard, not finite", guard, 1, S(4)), .p = 0, .forward_only = true},
};
const int operator_case_count = sizeof operator_cases / sizeof *operator_cases;

/* ---- Making a case ready ---- */

/* Values by formula, `place` distinguishes tensors of a region; with ties, multiples
 * of 1/2.  The case's range is the range of its own parameters. */
static void fill(const operator_case_t *c, const pl_tensor_info_t *t, int place,
                 double *data)
{
    const bool own = t->region == PL_REGION_PARAMS && strlen(t->name) == 1
                     && c->low < c->high;
    double low = own ? c->low : -1, high = own ? c->high : 1;
    if (strstr(t->name, "running_var"))
        low = 0.5, high = 2;
    formula_wave(t->count, 1 + place, low, high, data + t->offset);
    for (int64_t i = 0; i < t->count && c->ties; i++)
        data[t->offset + i] = rint(2 * data[t->offset + i]) / 2;
}

static int fill_index(operator_run_t *run, pl_error_t *err)
{
    const operator_case_t *c = run->of;
    const int64_t indices = pl_elements(c->index);
    run->index = pl_alloc_array((size_t)indices, c->narrow ? 4 : 8);
    for (int64_t i = 0; i < indices && run->index; i++) {
        const int64_t value = c->ignore && i % 3 == 1 ? c->ignore
                                                      : (i * i + 1) % c->classes;
        if (c->fractions)
            ((double *)run->index)[i] = (double)value + 0.25;
        else if (c->narrow)
            ((int32_t *)run->index)[i] = (int32_t)value;
        else
            ((int64_t *)run->index)[i] = value;
    }
    return run->index ? PL_OK : pl_no_memory(err);
}

static int fill_all(operator_run_t *run, pl_error_t *err)
{
    const pl_model_t *model = run->model;
    run->size[PL_REGION_PARAMS] = (size_t)model->params;
    run->size[PL_REGION_GRADS] = run->of->forward_only ? 0 : (size_t)model->params + 2;
    run->size[PL_REGION_STATE] = (size_t)model->state;
    run->size[PL_REGION_COLLECTIVE] = (size_t)run->graph->collective_elements;
    for (int r = 0; r < PL_REGIONS; r++)
        if (run->size[r]
            && !(run->region[r] = pl_alloc_array(run->size[r], sizeof(double))))
            return pl_no_memory(err);
    int place[PL_REGIONS] = {0};
    for (int i = 0; i < model->count; i++) {
        const pl_region_t region = model->tensor[i].region;
        fill(run->of, &model->tensor[i], place[region]++, run->region[region]);
    }
    return run->of->index.rank ? fill_index(run, err) : PL_OK;
}

/* The loss is the sum of y dy, with dy fixed: so dy is the gradient that y gets. */
static void add_loss(pl_graph_t *g, pl_node_t y)
{
    pl_node_t dy = pl_state(g, "dy", pl_shape_of(g, y), pl_zeros(), PL_AGREE_RANK0);
    pl_loss(g, pl_pair(pl_sum(g, pl_mul(g, y, dy), NULL, 0, false), pl_scalar(g, 1)));
}

static int describe(operator_run_t *run, pl_error_t *err)
{
    const operator_case_t *c = run->of;
    pl_field_t field = {.name = "i",
                        .dtype = c->fractions ? PL_F64
                                 : c->narrow  ? PL_I32
                                              : PL_I64,
                        .shape = c->index};
    if (c->index.rank) {
        field.shape.rank--;
        memmove(field.shape.dim, c->index.dim + 1,
                (size_t)field.shape.rank * sizeof *field.shape.dim);
    }
    run->graph = pl_graph_new(run->model, c->stage, &field, c->index.rank ? 1 : 0,
                              c->index.rank ? c->index.dim[0] : 1, err);
    if (!run->graph)
        return PL_ENOMEM;
    for (int k = 0; k < c->params; k++)       /* here, for C leaves the order of arguments
                                                 open */
        param(run->graph, c, k);
    pl_node_t y = c->build(run->graph, c);
    if (!c->forward_only)
        add_loss(run->graph, y);
    pl_output(run->graph, "y", y);
    int code = pl_graph_check(run->graph, err);
    if (code == PL_OK && !c->forward_only)
        code = pl_graph_gradients(run->graph, 1, run->of->accumulate, err);
    if (code == PL_OK)
        code = pl_graph_cast(run->graph, run->model->precision, err);
    pl_graph_prune(run->graph);
    return code;
}

int operator_run_init(operator_run_t *run, const operator_case_t *of, pl_error_t *err)
{
    *run = (operator_run_t){.of = of, .seed = 42, .step = 7, .micro_batch = 3};
    run->model = pl_model_new(err);
    if (run->model && of->precision)
        run->model->precision = of->precision;
    int code = run->model ? describe(run, err) : PL_ENOMEM;
    if (code == PL_OK)
        code = fill_all(run, err);
    if (code != PL_OK)
        operator_run_release(run);
    return code;
}

void operator_run_release(operator_run_t *run)
{
    for (int r = 0; r < PL_REGIONS; r++)
        pl_free(run->region[r]);
    pl_free(run->index);
    pl_graph_free(run->graph);
    pl_model_free(run->model);
    *run = (operator_run_t){0};
}
