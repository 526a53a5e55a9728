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

pl_node_t pl_add(pl_graph_t *g, pl_node_t a, pl_node_t b)
{
    return pl_emit2(g, PL_OP_add, a, b);
}

static void gradient_add(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    for (int k = 0; k < 2; k++)
        if (pl_wants(g, op, k))
            dx[k] = pl_sum_to(g, dy, pl_input_shape(g, op, k));
}

pl_node_t pl_sub(pl_graph_t *g, pl_node_t a, pl_node_t b)
{
    return pl_emit2(g, PL_OP_sub, a, b);
}

static void gradient_sub(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    if (pl_wants(g, op, 0))
        dx[0] = pl_sum_to(g, dy, pl_input_shape(g, op, 0));
    if (pl_wants(g, op, 1))
        dx[1] = pl_neg(g, pl_sum_to(g, dy, pl_input_shape(g, op, 1)));
}

pl_node_t pl_mul(pl_graph_t *g, pl_node_t a, pl_node_t b)
{
    return pl_emit2(g, PL_OP_mul, a, b);
}

static void gradient_mul(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    for (int k = 0; k < 2; k++)
        if (pl_wants(g, op, k))
            dx[k] = pl_sum_to(g, pl_mul(g, dy, pl_node_of(op->input[1 - k])),
                              pl_input_shape(g, op, k));
}

pl_node_t pl_div(pl_graph_t *g, pl_node_t a, pl_node_t b)
{
    return pl_emit2(g, PL_OP_div, a, b);
}

/* y = a / b: da = dy / b, db = -dy y / b */
static void gradient_div(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    pl_node_t b = pl_node_of(op->input[1]), y = pl_node_of(op->output[0]);
    if (pl_wants(g, op, 0))
        dx[0] = pl_sum_to(g, pl_div(g, dy, b), pl_input_shape(g, op, 0));
    if (pl_wants(g, op, 1))
        dx[1] = pl_neg(g, pl_sum_to(g, pl_div(g, pl_mul(g, dy, y), b),
                                    pl_input_shape(g, op, 1)));
}

pl_node_t pl_minimum(pl_graph_t *g, pl_node_t a, pl_node_t b)
{
    return pl_emit2(g, PL_OP_minimum, a, b);
}

/* ---- One input ---- */

pl_node_t pl_neg(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_neg, x);
}

static void gradient_neg(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    (void)op;
    dx[0] = pl_neg(g, dy);
}

pl_node_t pl_scale(pl_graph_t *g, pl_node_t x, double factor)
{
    return pl_emit(g, PL_OP_scale, &x, 1, &(pl_attr_t){.a = factor}, NULL);
}

static void gradient_scale(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    dx[0] = pl_scale(g, dy, op->attr.a);
}

pl_node_t pl_exp(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_exp, x);
}

static void gradient_exp(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    dx[0] = pl_mul(g, dy, pl_node_of(op->output[0]));
}

pl_node_t pl_log_of(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_log, x);
}

static void gradient_log(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    dx[0] = pl_div(g, dy, pl_node_of(op->input[0]));
}

pl_node_t pl_sqrt(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_sqrt, x);
}

static void gradient_sqrt(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    dx[0] = pl_scale(g, pl_div(g, dy, pl_node_of(op->output[0])), 0.5);
}

pl_node_t pl_sign(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_sign, x);
}

pl_node_t pl_relu(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_relu, x);
}

pl_node_t pl_gelu(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_gelu, x);
}

pl_node_t pl_gelu_tanh(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_gelu_tanh, x);
}

pl_node_t pl_sigmoid(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_sigmoid, x);
}

pl_node_t pl_tanh(pl_graph_t *g, pl_node_t x)
{
    return pl_emit1(g, PL_OP_tanh, x);
}

/* The gradient of an activation is an operator of dy and of x or, where that is enough,
 * of y. */
static void gradient_activation(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                                pl_node_t *dx)
{
    static const struct {
        pl_opcode_t code;
        bool reads_output;
    } gradients[PL_OPCODES] = {
        [PL_OP_relu] = {PL_OP_relu_grad, true},
        [PL_OP_gelu] = {PL_OP_gelu_grad, false},
        [PL_OP_gelu_tanh] = {PL_OP_gelu_tanh_grad, false},
        [PL_OP_sigmoid] = {PL_OP_sigmoid_grad, true},
        [PL_OP_tanh] = {PL_OP_tanh_grad, true},
    };
    const bool reads_output = gradients[op->code].reads_output;
    dx[0] = pl_emit2(g, gradients[op->code].code, dy,
                     pl_node_of(reads_output ? op->output[0] : op->input[0]));
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
                &(pl_attr_t){.a = p, .stream = pl_hash(pl_path(g, path))}, NULL);
    pl_scope_end(g);
    return x;
}

/* The gradient has the mask of the forward operator. */
static void gradient_dropout(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                             pl_node_t *dx)
{
    dx[0] = pl_emit(g, PL_OP_dropout, &dy, 1, &op->attr, NULL);
}

const pl_rules_t pl_elementwise_rules[PL_OPCODES] = {
    [PL_OP_add] = {shape_binary, gradient_add},
    [PL_OP_sub] = {shape_binary, gradient_sub},
    [PL_OP_mul] = {shape_binary, gradient_mul},
    [PL_OP_div] = {shape_binary, gradient_div},
    [PL_OP_minimum] = {shape_binary, NULL},
    [PL_OP_neg] = {shape_unary, gradient_neg},
    [PL_OP_scale] = {shape_unary, gradient_scale},
    [PL_OP_exp] = {shape_unary, gradient_exp},
    [PL_OP_log] = {shape_unary, gradient_log},
    [PL_OP_sqrt] = {shape_unary, gradient_sqrt},
    [PL_OP_sign] = {shape_unary, NULL},
    [PL_OP_relu] = {shape_unary, gradient_activation},
    [PL_OP_gelu] = {shape_unary, gradient_activation},
    [PL_OP_gelu_tanh] = {shape_unary, gradient_activation},
    [PL_OP_sigmoid] = {shape_unary, gradient_activation},
    [PL_OP_tanh] = {shape_unary, gradient_activation},
    [PL_OP_dropout] = {shape_unary, gradient_dropout},
    [PL_OP_cast] = {shape_cast, NULL},
    [PL_OP_relu_grad] = {shape_binary, NULL},
    [PL_OP_gelu_grad] = {shape_binary, NULL},
    [PL_OP_gelu_tanh_grad] = {shape_binary, NULL},
    [PL_OP_sigmoid_grad] = {shape_binary, NULL},
    [PL_OP_tanh_grad] = {shape_binary, NULL},
};
