/* operators_product.c - products and attention
 *
 * pl_linear(), which makes its parameters, is in layers.c. */
#include <math.h>
#include <string.h>

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
    if (q.rank != 4 || !pl_same_shape(q, k) || !pl_same_shape(q, v))
        return pl_op_fail(
            g, "attention takes q, k and v [B, heads, T, d] alike, got %s, %s and %s",
            PL_TEXT_OF(q), PL_TEXT_OF(k), PL_TEXT_OF(v));
    out[1].shape = PL_SHAPE(2, q.dim[0] * q.dim[1] * q.dim[2]);
    if (op->input_count == 4
        && !pl_same_shape(pl_input_shape(g, op, 3), PL_SHAPE(q.dim[0], q.dim[2])))
        return pl_op_fail(
            g, "attention takes a mask [B, T] for keys [B, heads, T, d], got %s for %s",
            PL_TEXT_OF(pl_input_shape(g, op, 3)), PL_TEXT_OF(k));
    return PL_OK;
}

pl_node_t pl_attention(pl_graph_t *g, pl_node_t q, pl_node_t k, pl_node_t v,
                       const pl_attention_options_t *options)
{
    const pl_attention_options_t o = options ? *options : (pl_attention_options_t){0};
    pl_attr_t attr = {.a = 1 / sqrt((double)pl_dim(g, q, -1)), .causal = o.causal};
    const bool random = g->stage == PL_TRAIN && o.dropout > 0;
    const pl_node_t inputs[4] = {q, k, v, o.mask ? *o.mask : PL_NO_NODE};
    if (!(o.dropout >= 0 && o.dropout < 1))
        return pl_graph_fail(g, PL_EINVAL,
                             "attention takes a dropout from 0 up to but not 1, got %g",
                             o.dropout);
    if (random) {
        char path[64];
        pl_scope(g, "dropout.%u", g->random_count++);
        attr.b = o.dropout;
        attr.stream = pl_hash_text(pl_path(g, path));
    }
    pl_node_t y = pl_emit(g, PL_OP_attention, inputs, o.mask ? 4 : 3, &attr, NULL);
    if (random)
        pl_scope_end(g);
    return y;
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
                          pl_node_of(op->input[3])};
    dx[0] = pl_emit(g, PL_OP_attention_grad, inputs, op->input_count + 3, &op->attr,
                    dx + 1);
}

const pl_rules_t pl_product_rules[PL_OPCODES] = {
    [PL_OP_matmul] = {shape_matmul, gradient_matmul},
    [PL_OP_linear] = {shape_linear, gradient_linear},
    [PL_OP_attention] = {shape_attention, gradient_attention},
    [PL_OP_attention_grad] = {pl_shape_of_inputs, NULL},
};
