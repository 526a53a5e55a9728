/* operators_product.c - products and attention
 *
 * pl_linear(), which makes its parameters, is in layers.c. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "tensor/operators.h"

/* ---- matmul ---- */

static int shape_matmul(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t a = pl_input_shape(g, op, 0), b = pl_input_shape(g, op, 1);
    const bool ta = op->attr.transpose_a, tb = op->attr.transpose_b;
    if (pl_want_float(g, op, 2) != PL_OK)
        return PL_EINVAL;
    if (a.rank < 2 || b.rank < 2)
        return pl_op_fail(g, "matmul takes at least two axes each, got %s and %s",
                          PL_TEXT_OF(a), PL_TEXT_OF(b));
    int64_t m = a.dim[a.rank - 1 - !ta], k = a.dim[a.rank - 1 - ta];
    int64_t n = b.dim[b.rank - 1 - tb], kb = b.dim[b.rank - 1 - !tb];
    if (k != kb)
        return pl_op_fail(g, "matmul multiplies along %lld of %s%s but %lld of %s%s",
                          (long long)k, PL_TEXT_OF(a), ta ? " transposed" : "",
                          (long long)kb, PL_TEXT_OF(b), tb ? " transposed" : "");
    pl_shape_t la = a, lb = b;
    la.rank -= 2, lb.rank -= 2;
    if (!pl_broadcast_shapes(la, lb, &out->shape))
        return pl_op_fail(g, "matmul: the leading axes of %s and %s do not broadcast",
                          PL_TEXT_OF(a), PL_TEXT_OF(b));
    out->shape.dim[out->shape.rank++] = m;
    out->shape.dim[out->shape.rank++] = n;
    return PL_OK;
}

static pl_node_t matmul(pl_graph_t *g, pl_node_t a, pl_node_t b, bool transpose_a,
                        bool transpose_b)
{
    return pl_emit(g, PL_OP_matmul, (pl_node_t[]){a, b}, 2,
                   &(pl_attr_t){.transpose_a = transpose_a, .transpose_b = transpose_b},
                   NULL);
}

/* A plain matrix b is applied to all rows of a at once: one product, and one for its
 * gradient. */
pl_node_t pl_matmul(pl_graph_t *g, pl_node_t a, pl_node_t b, bool transpose_a,
                    bool transpose_b)
{
    pl_shape_t shape = pl_shape_of(g, a);
    if (shape.rank <= 2 || pl_shape_of(g, b).rank != 2 || transpose_a)
        return matmul(g, a, b, transpose_a, transpose_b);
    int64_t inner = shape.dim[shape.rank - 1];
    pl_node_t y = matmul(g, pl_reshape(g, a, PL_SHAPE(-1, inner)), b, false, transpose_b);
    shape.dim[shape.rank - 1] = pl_dim(g, y, -1);
    return pl_reshape(g, y, shape);
}

/* With A and B as they are multiplied, dA = dy B^T and dB = A^T dy; an input that is
 * stored transposed gets the transposed gradient. */
static void gradient_matmul(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    pl_node_t a = pl_node_of(op->input[0]), b = pl_node_of(op->input[1]);
    const bool ta = op->attr.transpose_a, tb = op->attr.transpose_b;
    if (pl_wants(g, op, 0))
        dx[0] = ta ? matmul(g, b, dy, tb, true) : matmul(g, dy, b, false, !tb);
    if (pl_wants(g, op, 1))
        dx[1] = tb ? matmul(g, dy, a, true, ta) : matmul(g, a, dy, !ta, false);
    for (int k = 0; k < 2; k++)
        if (pl_wants(g, op, k))
            dx[k] = pl_sum_to(g, dx[k], pl_input_shape(g, op, k));
}

/* ---- linear ---- */

static int shape_linear(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t x = pl_input_shape(g, op, 0), w = pl_input_shape(g, op, 1);
    if (pl_want_float(g, op, op->input_count) != PL_OK)
        return PL_EINVAL;
    if (x.rank != 2 || w.rank != 2 || x.dim[1] != w.dim[1])
        return pl_op_fail(
            g, "linear takes x [..., K] and a weight [units, K], got %s and %s",
            PL_TEXT_OF(x), PL_TEXT_OF(w));
    if (op->input_count == 3
        && !pl_same_shape(pl_input_shape(g, op, 2), PL_SHAPE(w.dim[0])))
        return pl_op_fail(g, "linear takes a bias [%lld], got %s", (long long)w.dim[0],
                          PL_TEXT_OF(pl_input_shape(g, op, 2)));
    out->shape.dim[1] = w.dim[0];
    return PL_OK;
}

static void gradient_linear(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    pl_node_t x = pl_node_of(op->input[0]), w = pl_node_of(op->input[1]);
    if (pl_wants(g, op, 0))
        dx[0] = matmul(g, dy, w, false, false);
    if (pl_wants(g, op, 1))
        dx[1] = matmul(g, dy, x, true, false);
    if (pl_wants(g, op, 2))
        dx[2] = pl_sum(g, dy, (int[]){0}, 1, false);
}

int pl_shape_of_attr(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    out->shape = op->attr.shape;
    return pl_want_float(g, op, 1);
}

/* ---- attention ---- */

static int shape_attention(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t q = pl_input_shape(g, op, 0), k = pl_input_shape(g, op, 1),
               v = pl_input_shape(g, op, 2);
    if (pl_want_float(g, op, op->input_count) != PL_OK)
        return PL_EINVAL;
    const int inputs = op->input_count - (op->attr.axis > 0);
    if (q.rank != 4 || k.rank != 4 || !pl_same_shape(k, v) || q.dim[0] != k.dim[0]
        || q.dim[1] != k.dim[1] || q.dim[3] != k.dim[3])
        return pl_op_fail(g,
                          "attention takes q [B, heads, T, d] and k and v [B, heads, S, "
                          "d], got %s, %s and %s",
                          PL_TEXT_OF(q), PL_TEXT_OF(k), PL_TEXT_OF(v));
    out[1].shape = PL_SHAPE(2, q.dim[0] * q.dim[1] * q.dim[2]);
    const pl_shape_t all = PL_SHAPE(q.dim[0], q.dim[1], q.dim[2], k.dim[2]),
                     m = inputs == 4 ? pl_input_shape(g, op, 3) : all;
    bool fits = m.rank == 4 && m.dim[3] == k.dim[2];
    for (int i = 0; i < 4 && fits; i++)
        fits = m.dim[i] == 1 || m.dim[i] == all.dim[i];
    if (!fits && !pl_same_shape(m, PL_SHAPE(q.dim[0], k.dim[2])))
        return pl_op_fail(
            g, "attention takes a mask [B, S] for keys [B, heads, S, d], got %s for %s",
            PL_TEXT_OF(m), PL_TEXT_OF(k));
    return PL_OK;
}

/* k or v with a head for each of the queries, which share those there are: Ainslie et
 * al., "GQA", 2023. */
static pl_node_t share_heads(pl_graph_t *g, pl_node_t x, int64_t heads)
{
    const pl_shape_t s = pl_shape_of(g, x);
    if (g->error.code || s.rank != 4 || s.dim[1] == heads || heads % s.dim[1])
        return x;
    const int64_t group = heads / s.dim[1];
    x = pl_reshape(g, x, PL_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3]));
    x = pl_broadcast_to(g, x, PL_SHAPE(s.dim[0], s.dim[1], group, s.dim[2], s.dim[3]));
    return pl_reshape(g, x, PL_SHAPE(s.dim[0], heads, s.dim[2], s.dim[3]));
}

/* A mask or bias as four axes of 1 or those of the scores, the last whole; a mask of two
 * axes is one of keys [B, S]. */
static pl_node_t over_scores(pl_graph_t *g, const char *what, pl_node_t x,
                             pl_shape_t scores, bool of_keys)
{
    const pl_shape_t from = pl_shape_of(g, x);
    pl_shape_t to = {.rank = 4, .dim = {1, 1, 1, 1}};
    for (int i = 0; i < from.rank && from.rank <= 4; i++)
        to.dim[4 - from.rank + i] = from.dim[i];
    if (of_keys && from.rank == 2)
        to = PL_SHAPE(from.dim[0], 1, 1, from.dim[1]);
    bool fits = from.rank <= 4;
    for (int i = 0; i < 4; i++)
        fits = fits && (to.dim[i] == 1 || to.dim[i] == scores.dim[i]);
    if (!g->error.code && !fits)
        pl_op_fail(g, "attention takes a %s that broadcasts to the scores %s, got %s",
                   what, PL_TEXT_OF(scores), PL_TEXT_OF(from));
    x = pl_reshape(g, x, to);
    to.dim[3] = scores.dim[3];
    return pl_broadcast_to(g, x, to);
}

/* With a bias that is trained the scores are values of the graph, for its gradient. */
static pl_node_t attention_of_scores(pl_graph_t *g, const pl_node_t qkv[3],
                                     const pl_attention_options_t *o, double scale,
                                     pl_node_t bias, pl_node_t mask)
{
    if (o->causal || o->window)
        return pl_graph_fail(g, PL_EUNSUPPORTED,
                             "attention with a bias that is trained takes no causal and "
                             "no window: give a mask [1, 1, T, S]");
    pl_node_t x = pl_scale(g, pl_matmul(g, qkv[0], qkv[1], false, true), scale);
    x = pl_add(g, x, bias);
    if (o->mask)                                     /* a query without any key gives 0 */
        x = pl_where(g, mask, x, pl_scalar(g, -1e30));
    x = pl_softmax(g, x);
    if (o->mask)
        x = pl_where(g, mask, x, pl_scalar(g, 0));
    return pl_matmul(g, pl_dropout(g, x, o->dropout), qkv[2], false, false);
}

void pl_attention_turn(pl_graph_t *g, pl_attention_options_t *o, pl_node_t *q,
                       pl_node_t *k)
{
    pl_rotary_options_t own = {.base = o->rotary_base,
                               .interleaved = o->rotary_interleaved};
    *k = pl_rotary(g, *k, &own);
    own.first = o->rotary_first;
    *q = pl_rotary(g, *q, &own);
    o->rotary = false;
}

/* The cosines and sines of the angles of queries and keys, which are constants: no step
 * computes them again. */
static pl_node_t turns_of(pl_graph_t *g, pl_shape_t q, int64_t keys,
                          const pl_attention_options_t *o)
{
    const int64_t width = q.dim[3], half = width / 2, rows = q.dim[2] + keys;
    const double base = o->rotary_base != 0 ? o->rotary_base : 10000;
    if (width % 2 || !(base > 0 && isfinite(base))) {
        pl_op_fail(g,
                   "attention with rotary takes q and k of an even width and a base "
                   "larger than 0, got %s and %g",
                   PL_TEXT_OF(q), base);
        return PL_NO_NODE;
    }
    double *turns = pl_alloc_array((size_t)(rows * width), sizeof *turns);
    if (!turns)
        return pl_graph_fail(g, PL_ENOMEM, "out of memory");
    for (int64_t row = 0; row < rows; row++) {
        const double at = row < q.dim[2] ? (double)o->rotary_first + (double)row
                                         : (double)(row - q.dim[2]);
        for (int64_t i = 0; i < half; i++) {
            const double angle = at * pow(base, -2 * (double)i / (double)width);
            turns[row * width + i] = cos(angle);
            turns[row * width + half + i] = sin(angle);
        }
    }
    const pl_node_t x = pl_tensor(g, PL_F64, PL_SHAPE(rows, width), turns);
    pl_free(turns);
    return x;
}

pl_node_t pl_attention(pl_graph_t *g, pl_node_t q, pl_node_t k, pl_node_t v,
                       const pl_attention_options_t *options)
{
    pl_attention_options_t o = options ? *options : (pl_attention_options_t){0};
    pl_node_t kept;
    pl_cache_attend(g, &q, &k, &v, &o, &kept);
    pl_attr_t attr = {.a = o.scale != 0 ? o.scale : 1 / sqrt((double)pl_dim(g, q, -1)),
                      .causal = o.causal,
                      .to = o.window};
    const bool random = g->stage == PL_TRAIN && o.dropout > 0;
    if (!(o.dropout >= 0 && o.dropout < 1))
        return pl_graph_fail(g, PL_EINVAL,
                             "attention takes a dropout from 0 up to but not 1, got %g",
                             o.dropout);
    if (!(attr.a > 0 && isfinite(attr.a)) || o.window < 0)
        return pl_graph_fail(g, PL_EINVAL,
                             "attention takes a scale larger than 0 and a window of at "
                             "least 1, got %g and %lld",
                             o.scale, (long long)o.window);
    const pl_shape_t s = pl_shape_of(g, q), keys = pl_shape_of(g, k);
    if (s.rank == 4 && keys.rank == 4 && o.window >= s.dim[2] + keys.dim[2])
        attr.to = 0;                                        /* all */
    pl_node_t inputs[5] = {q, share_heads(g, k, s.rank == 4 ? s.dim[1] : 1),
                           share_heads(g, v, s.rank == 4 ? s.dim[1] : 1),
                           o.mask ? *o.mask : PL_NO_NODE};
    if (!g->error.code && s.rank == 4 && keys.rank == 4
        && (o.bias || (o.mask && pl_shape_of(g, *o.mask).rank != 2))) {
        const pl_shape_t scores = PL_SHAPE(s.dim[0], s.dim[1], s.dim[2], keys.dim[2]);
        pl_node_t bias = o.bias ? over_scores(g, "bias", *o.bias, scores, false)
                                : pl_scalar(g, 0);
        const pl_node_t mask = o.mask ? over_scores(g, "mask", *o.mask, scores, true)
                                      : PL_NO_NODE;
        if (g->error.code)
            return PL_NO_NODE;
        if (o.bias && g->value[bias.id].grad && o.rotary)
            pl_attention_turn(g, &o, &inputs[0], &inputs[1]);
        if (o.bias && g->value[bias.id].grad)
            return attention_of_scores(g, inputs, &o, attr.a, bias, mask);
        inputs[3] = o.mask ? pl_where(g, mask, bias, pl_scalar(g, -INFINITY)) : bias;
    }
    int count = o.mask || o.bias ? 4 : 3;
    if (o.rotary && !g->error.code && s.rank == 4 && keys.rank == 4) {
        inputs[count++] = turns_of(g, s, keys.dim[2], &o);
        attr.axis = o.rotary_interleaved ? 1 : (int)(s.dim[3] / 2);
    }
    if (random) {
        char path[64];
        pl_scope(g, "dropout.%u", g->random_count++);
        attr.b = o.dropout;
        attr.stream = pl_hash_text(pl_path(g, path));
    }
    pl_node_t y = pl_emit(g, PL_OP_attention, inputs, count, &attr, NULL);
    if (random)
        pl_scope_end(g);
    return y;
}

/* 0, 1, … n-1 as float32: each of twice as many is one of these, or one of these plus
 * their count. */
static pl_node_t positions(pl_graph_t *g, int64_t n)
{
    pl_node_t x = pl_reshape(g, pl_scalar(g, 0), PL_SHAPE(1));
    for (int64_t count = 1; count < n && !g->error.code; count *= 2) {
        const pl_node_t above = pl_add(g, x, pl_scalar(g, (double)count));
        x = pl_concat(g, (pl_node_t[]){x, above}, 2, 0);
    }
    return pl_slice(g, x, 0, 0, n);
}

/* The pairs of each row of x [..., T, d], turned by the angles of which these are cosines
 * and sines [T, d/2]. */
static pl_node_t turn_pairs(pl_graph_t *g, pl_node_t x, pl_node_t cosine, pl_node_t sine,
                            bool interleaved)
{
    const pl_shape_t s = pl_shape_of(g, x);
    const int64_t half = pl_dim(g, cosine, -1), part = interleaved ? 1 : half;
    const pl_shape_t pairs = interleaved ? PL_SHAPE(-1, half, 1) : PL_SHAPE(-1, half);
    pl_shape_t own = s;                        /* pairs lie side by side, or half apart */
    if (g->error.code)
        return PL_NO_NODE;
    if (interleaved) {
        own.dim[own.rank - 1] = half;
        own.dim[own.rank++] = 2;
    }
    const int last = own.rank - 1;
    const pl_node_t c = pl_reshape(g, cosine, pairs), r = pl_reshape(g, sine, pairs);
    x = pl_reshape(g, x, own);
    const pl_node_t a = pl_slice(g, x, last, 0, part),
                    b = pl_slice(g, x, last, part, 2 * part);
    const pl_node_t turned[] = {pl_sub(g, pl_mul(g, a, c), pl_mul(g, b, r)),
                                pl_add(g, pl_mul(g, b, c), pl_mul(g, a, r))};
    return pl_reshape(g, pl_concat(g, turned, 2, last), s);
}

/* Su et al., "RoFormer", 2021: pair i of a row of width d turns by position / base^(2 i /
 * d). */
pl_node_t pl_rotary(pl_graph_t *g, pl_node_t x, const pl_rotary_options_t *options)
{
    const pl_rotary_options_t o = options ? *options : (pl_rotary_options_t){0};
    const double base = o.base != 0 ? o.base : 10000;
    const pl_shape_t s = pl_shape_of(g, x);
    if (!g->error.code
        && (s.rank < 2 || s.rank >= PL_DIMS || s.dim[s.rank - 1] % 2
            || !(base > 0 && isfinite(base))))
        pl_op_fail(g,
                   "rotary takes x [..., T, d] of up to %d axes with an even d and a "
                   "base larger than 0, got %s and %g",
                   PL_DIMS - 1, PL_TEXT_OF(s), base);
    if (g->error.code)
        return PL_NO_NODE;
    const int64_t width = s.dim[s.rank - 1], half = width / 2;
    pl_node_t turn = pl_scale(g, positions(g, half), -2 * log(base) / (double)width);
    const int64_t tokens = s.dim[s.rank - 2];
    pl_node_t at = pl_cache_positions(g, tokens);
    at = at.id < 0 ? positions(g, tokens) : pl_cast(g, at, PL_F32);
    at = pl_reshape(g, at, PL_SHAPE(-1, 1));
    if (o.first)
        at = pl_add(g, at, pl_scalar(g, (double)o.first));
    turn = pl_mul(g, at, pl_exp(g, turn));                  /* [T, half] */
    return turn_pairs(g, x, pl_cos(g, turn), pl_sin(g, turn), o.interleaved);
}

static void op_append(pl_graph_t *g, const pl_op_t *op)
{
    if (PL_GROW(g->op, g->op_count, g->op_capacity) != PL_OK)
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
    if (g->error.code)
        return;
    for (int k = 0; k < op->output_count; k++) {
        g->value[op->output[k]].op = g->op_count;
        g->value[op->output[k]].index = k;
    }
    g->op[g->op_count++] = *op;
}

/* An attention or its gradient of turned queries and keys, and gradients turned back. */
static void attention_apart(pl_graph_t *g, pl_op_t op)
{
    const int grad = op.code == PL_OP_attention_grad, before = g->op_count;
    const pl_node_t turns = pl_node_of(op.input[--op.input_count]);
    const bool interleaved = op.attr.axis == 1;
    const int64_t half = pl_dim(g, turns, 1) / 2;
    pl_node_t cosine[2], sine[2], made[2];
    for (int64_t k = 0, row = 0; k < 2; k++) {              /* queries, keys */
        const pl_node_t x = pl_node_of(op.input[grad + k]);
        const int64_t end = row + pl_dim(g, x, 2);
        const pl_node_t rows = pl_slice(g, turns, 0, row, end);
        cosine[k] = pl_slice(g, rows, 1, 0, half);
        sine[k] = pl_slice(g, rows, 1, half, 2 * half);
        op.input[grad + k] = turn_pairs(g, x, cosine[k], sine[k], interleaved).id;
        row = end;
    }
    op.attr.axis = 0;
    const int32_t output[] = {op.output[0], op.output[1]};
    for (int k = 0; k < 2 && grad && !g->error.code; k++) {
        const pl_value_t own = g->value[output[k]];
        made[k] = pl_value_add(g, &own);
        op.output[k] = made[k].id;
    }
    op_append(g, &op);
    for (int k = 0; k < 2 && grad && !g->error.code; k++) {
        const pl_node_t dx = turn_pairs(g, made[k], cosine[k], pl_neg(g, sine[k]),
                                        interleaved);
        op_append(g, &(pl_op_t){.code = PL_OP_reshape,
                                .input_count = 1,
                                .output_count = 1,
                                .input = {dx.id},
                                .output = {output[k]},
                                .attr.shape = pl_shape_of(g, dx)});
    }
    for (int i = before; i < g->op_count; i++) {
        memcpy(g->op[i].path, op.path, sizeof op.path);
        g->op[i].checkpoint = op.checkpoint;
        g->op[i].is_repeated = op.is_repeated;
        g->op[i].gradient_of = op.gradient_of;
    }
}

void pl_graph_turn_apart(pl_graph_t *g)
{
    pl_op_t *op = g->op;
    const int count = g->op_count;
    g->op = NULL;
    g->op_count = g->op_capacity = 0;
    for (int i = 0; i < count && !g->error.code; i++)
        if ((op[i].code == PL_OP_attention || op[i].code == PL_OP_attention_grad)
            && op[i].attr.axis)
            attention_apart(g, op[i]);
        else
            op_append(g, &op[i]);
    pl_free(op);
}

int pl_shape_of_inputs(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const bool has_targets = op->code == PL_OP_cross_entropy_grad;
    for (int i = 0; i < op->output_count; i++)
        out[i].shape = pl_input_shape(g, op, 1 + i);
    return pl_want_float(g, op, has_targets ? 2 : op->input_count);
}

static void gradient_attention(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                               pl_node_t *dx)
{
    pl_node_t q = pl_node_of(op->input[0]), k = pl_node_of(op->input[1]);
    pl_node_t v = pl_node_of(op->input[2]);
    pl_node_t inputs[] = {dy,
                          q,
                          k,
                          v,
                          pl_node_of(op->output[0]),
                          pl_node_of(op->output[1]),
                          pl_node_of(op->input[3]),
                          pl_node_of(op->input[4])};
    dx[0] = pl_emit(g, PL_OP_attention_grad, inputs, op->input_count + 3, &op->attr,
                    dx + 1);
}

const pl_rules_t pl_product_rules[PL_OPCODES] = {
    [PL_OP_matmul] = {shape_matmul, gradient_matmul},
    [PL_OP_linear] = {shape_linear, gradient_linear},
    [PL_OP_attention] = {shape_attention, gradient_attention},
    [PL_OP_attention_grad] = {pl_shape_of_inputs, NULL},
};
