/* operators_elementwise.c - operators that work element by element
 *
 * Two inputs broadcast as in NumPy; the gradient of a repeated element is a sum.  Where y
 * is as good as x, backward reads y, so that the memory of x is free. */
#include "base/random.h"
#include "tensor/operators.h"

/* ---- Shape rules ---- */

static int shape_unary(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)out;
    return pl_want_float(g, op, 1);
}

static int shape_cast(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    if (!pl_is_float(pl_input_of(g, op, 0)->dtype) || !pl_is_float(op->attr.dtype))
        return pl_op_fail(g, "cast takes and gives floating-point numbers, got %s for %s",
                          pl_dtype_name(pl_input_of(g, op, 0)->dtype),
                          pl_dtype_name(op->attr.dtype));
    out->dtype = op->attr.dtype;
    return PL_OK;
}

static int shape_binary(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    pl_shape_t a = pl_input_shape(g, op, 0), b = pl_input_shape(g, op, 1);
    if (pl_want_float(g, op, 2) != PL_OK)
        return PL_EINVAL;
    if (!pl_broadcast_shapes(a, b, &out->shape))
        return pl_op_fail(g,
                          "%s takes two shapes that broadcast (axes from the end equal, "
                          "or one of them 1), got %s "
                          "and %s",
                          pl_operators[op->code].name, PL_TEXT_OF(a), PL_TEXT_OF(b));
    return PL_OK;
}

/* ---- Two inputs ---- */

#define BINARY(function, operator) \
    pl_node_t function(pl_graph_t *g, pl_node_t a, pl_node_t b) \
    { \
        return pl_emit2(g, PL_OP_##operator, a, b); \
    }
BINARY(pl_add, add)
BINARY(pl_sub, sub)
BINARY(pl_mul, mul)
BINARY(pl_div, div)
BINARY(pl_minimum, minimum)

/* add: da = dy, db = dy; sub: db = -dy; mul: da = dy b, db = dy a; div: da = dy / b, db =
 * -dy y / b */
static void gradient_binary(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const pl_node_t in[2] = {pl_node_of(op->input[0]), pl_node_of(op->input[1])},
                    y = pl_node_of(op->output[0]);
    for (int k = 0; k < 2; k++) {
        if (!pl_wants(g, op, k))
            continue;
        pl_node_t d = dy;
        if (op->code == PL_OP_mul)
            d = pl_mul(g, dy, in[1 - k]);
        else if (op->code == PL_OP_div)
            d = pl_div(g, k ? pl_mul(g, dy, y) : dy, in[1]);
        d = pl_sum_to(g, d, pl_input_shape(g, op, k));
        const bool falls = k && (op->code == PL_OP_sub || op->code == PL_OP_div);
        dx[k] = falls ? pl_neg(g, d) : d;
    }
}

/* ---- One input ---- */

#define UNARY(function, operator) \
    pl_node_t function(pl_graph_t *g, pl_node_t x) \
    { \
        return pl_emit1(g, PL_OP_##operator, x); \
    }
UNARY(pl_neg, neg)
UNARY(pl_exp, exp)
UNARY(pl_log_of, log)
UNARY(pl_sqrt, sqrt)
UNARY(pl_sign, sign)
UNARY(pl_relu, relu)
UNARY(pl_gelu, gelu)
UNARY(pl_gelu_tanh, gelu_tanh)
UNARY(pl_sigmoid, sigmoid)
UNARY(pl_tanh, tanh)

pl_node_t pl_scale(pl_graph_t *g, pl_node_t x, double factor)
{
    return pl_emit(g, PL_OP_scale, &x, 1, &(pl_attr_t){.a = factor}, NULL);
}

pl_node_t pl_dropout(pl_graph_t *g, pl_node_t x, double p)
{
    if (!(p >= 0 && p < 1))
        return pl_graph_fail(g, PL_EINVAL,
                             "dropout takes a probability from 0 up to but not 1, got %g",
                             p);
    if (g->stage != PL_TRAIN || p == 0)
        return x;
    char path[64];
    pl_scope(g, "dropout.%u", g->random_count++);
    x = pl_emit(g, PL_OP_dropout, &x, 1,
                &(pl_attr_t){.a = p, .stream = pl_hash_text(pl_path(g, path))}, NULL);
    pl_scope_end(g);
    return x;
}

/* The gradient of an activation is an operator of dy and of x or, where that is
 * enough, of y.  The gradient of dropout has the mask of the forward operator. */
static void gradient_unary(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    const pl_node_t x = pl_node_of(op->input[0]), y = pl_node_of(op->output[0]);
    switch (op->code) {
    case PL_OP_neg: dx[0] = pl_neg(g, dy); break;
    case PL_OP_scale: dx[0] = pl_scale(g, dy, op->attr.a); break;
    case PL_OP_exp: dx[0] = pl_mul(g, dy, y); break;
    case PL_OP_log: dx[0] = pl_div(g, dy, x); break;
    case PL_OP_sqrt: dx[0] = pl_scale(g, pl_div(g, dy, y), 0.5); break;
    case PL_OP_relu: dx[0] = pl_emit2(g, PL_OP_relu_grad, dy, y); break;
    case PL_OP_gelu: dx[0] = pl_emit2(g, PL_OP_gelu_grad, dy, x); break;
    case PL_OP_gelu_tanh: dx[0] = pl_emit2(g, PL_OP_gelu_tanh_grad, dy, x); break;
    case PL_OP_sigmoid: dx[0] = pl_emit2(g, PL_OP_sigmoid_grad, dy, y); break;
    case PL_OP_tanh: dx[0] = pl_emit2(g, PL_OP_tanh_grad, dy, y); break;
    default: dx[0] = pl_emit(g, PL_OP_dropout, &dy, 1, &op->attr, NULL); break;
    }
}

const pl_rules_t pl_elementwise_rules[PL_OPCODES] = {
    [PL_OP_add] = {shape_binary, gradient_binary},
    [PL_OP_sub] = {shape_binary, gradient_binary},
    [PL_OP_mul] = {shape_binary, gradient_binary},
    [PL_OP_div] = {shape_binary, gradient_binary},
    [PL_OP_minimum] = {shape_binary, NULL},
    [PL_OP_neg] = {shape_unary, gradient_unary},
    [PL_OP_scale] = {shape_unary, gradient_unary},
    [PL_OP_exp] = {shape_unary, gradient_unary},
    [PL_OP_log] = {shape_unary, gradient_unary},
    [PL_OP_sqrt] = {shape_unary, gradient_unary},
    [PL_OP_sign] = {shape_unary, NULL},
    [PL_OP_relu] = {shape_unary, gradient_unary},
    [PL_OP_gelu] = {shape_unary, gradient_unary},
    [PL_OP_gelu_tanh] = {shape_unary, gradient_unary},
    [PL_OP_sigmoid] = {shape_unary, gradient_unary},
    [PL_OP_tanh] = {shape_unary, gradient_unary},
    [PL_OP_dropout] = {shape_unary, gradient_unary},
    [PL_OP_cast] = {shape_cast, NULL},
    [PL_OP_relu_grad] = {shape_binary, NULL},
    [PL_OP_gelu_grad] = {shape_binary, NULL},
    [PL_OP_gelu_tanh_grad] = {shape_binary, NULL},
    [PL_OP_sigmoid_grad] = {shape_binary, NULL},
    [PL_OP_tanh_grad] = {shape_binary, NULL},
};
