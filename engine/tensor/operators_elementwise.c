/* operators_elementwise.c - operators that work element by element
 *
 * Their inputs broadcast as in NumPy; the gradient of a repeated element is a sum.  The
 * functions, shape rules and gradients follow from elementwise.def.  Where the result is
 * as good as x, backward reads the result, so that the memory of x is free. */
#include "base/random.h"
#include "tensor/operators.h"

/* ---- Shape rules ---- */

static int shape_element(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    if (pl_want_float(g, op, op->input_count) != PL_OK)
        return PL_EINVAL;
    for (int k = 1; k < op->input_count; k++) {
        const pl_shape_t a = out->shape, b = pl_input_shape(g, op, k);
        if (!pl_broadcast_shapes(a, b, &out->shape))
            return pl_op_fail(g,
                              "%s takes shapes that broadcast (axes from the end equal, "
                              "or one of them 1), got %s and %s",
                              pl_op_name(op), PL_TEXT_OF(a), PL_TEXT_OF(b));
    }
    return PL_OK;
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

/* ---- Gradients ---- */

/* The operators of a gradient are behind their own. */
static void gradient_of_x(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    dx[0] = pl_emit(g, op->code + 1, (pl_node_t[]){dy, pl_node_of(op->input[0])}, 2,
                    &op->attr, NULL);
}

static void gradient_of_result(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                               pl_node_t *dx)
{
    dx[0] = pl_emit(g, op->code + 1, (pl_node_t[]){dy, pl_node_of(op->output[0])}, 2,
                    &op->attr, NULL);
}

static void gradient_of_both(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                             pl_node_t *dx)
{
    const pl_node_t inputs[] = {dy, pl_node_of(op->input[0]), pl_node_of(op->input[1])};
    for (int k = 0; k < 2; k++)
        if (pl_wants(g, op, k))
            dx[k] = pl_sum_to(g, pl_emit(g, op->code + 1 + k, inputs, 3, NULL, NULL),
                              pl_input_shape(g, op, k));
}

static void gradient_linear(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    dx[0] = pl_emit(g, op->code, &dy, 1, &op->attr, NULL);
}

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

static void gradient_composed(pl_graph_t *g, const pl_op_t *op, pl_node_t dy,
                              pl_node_t *dx)
{
    const pl_node_t x = pl_node_of(op->input[0]), y = pl_node_of(op->output[0]);
    pl_node_t zero;
    switch (op->code) {
    case PL_OP_exp: dx[0] = pl_mul(g, dy, y); break;
    case PL_OP_log: dx[0] = pl_div(g, dy, x); break;
    case PL_OP_sqrt: dx[0] = pl_scale(g, pl_div(g, dy, y), 0.5); break;
    case PL_OP_where:
        zero = pl_scalar(g, 0);
        if (pl_wants(g, op, 1))
            dx[1] = pl_sum_to(g, pl_where(g, x, dy, zero), pl_input_shape(g, op, 1));
        if (pl_wants(g, op, 2))
            dx[2] = pl_sum_to(g, pl_where(g, x, zero, dy), pl_input_shape(g, op, 2));
        break;
    default: gradient_binary(g, op, dy, dx); break;
    }
}

/* The gradient is rounded as the value is. */
static void gradient_cast(pl_graph_t *g, const pl_op_t *op, pl_node_t dy, pl_node_t *dx)
{
    dx[0] = pl_emit(g, PL_OP_cast, &dy, 1,
                    &(pl_attr_t){.dtype = pl_input_of(g, op, 0)->dtype}, NULL);
}

#define RULES_linear(name) [PL_OP_##name] = {shape_element, gradient_linear},
#define RULES_composed(name) [PL_OP_##name] = {shape_element, gradient_composed},
#define RULES_constant(name) [PL_OP_##name] = {shape_element, .is_constant = true},
#define RULES_of_x(name) \
    [PL_OP_##name] = {shape_element, gradient_of_x}, \
    [PL_OP_##name##_grad] = {shape_element},
#define RULES_of_result(name) \
    [PL_OP_##name] = {shape_element, gradient_of_result}, \
    [PL_OP_##name##_grad] = {shape_element},
#define RULES_of_both(name) \
    [PL_OP_##name] = {shape_element, gradient_of_both}, \
    [PL_OP_##name##_grad_x] = {shape_element}, \
    [PL_OP_##name##_grad_y] = {shape_element},

/* The gradient of dropout has the mask of the forward operator. */
const pl_rules_t pl_elementwise_rules[PL_OPCODES] = {
    [PL_OP_dropout] = {shape_element, gradient_linear},
    [PL_OP_cast] = {shape_cast, gradient_cast},
#define PL_UNARY(name, numbers, precision, rounding, value, rule, slope, meaning) \
    RULES_##rule(name)
#define PL_BINARY(name, precision, rounding, value, rule, slope_x, slope_y, meaning) \
    RULES_##rule(name)
#define PL_TERNARY(name, precision, rounding, value, rule, meaning) RULES_##rule(name)
#include "tensor/elementwise.def"
};

/* ---- Functions of the interface ---- */

#define pl_log pl_log_of                                    /* pl_log() logs a metric */
#define FUNCTION_0(name) \
    pl_node_t pl_##name(pl_graph_t *g, pl_node_t x) \
    { \
        const bool is_logical = PL_OP_##name == PL_OP_logical_not; \
        return pl_emit1(g, PL_OP_##name, is_logical ? pl_as_float(g, x) : x); \
    }
#define FUNCTION_1(name) \
    pl_node_t pl_##name(pl_graph_t *g, pl_node_t x, double f) \
    { \
        return pl_emit(g, PL_OP_##name, &x, 1, &(pl_attr_t){.a = f}, NULL); \
    }
#define FUNCTION_2(name) \
    pl_node_t pl_##name(pl_graph_t *g, pl_node_t x, double f, double h) \
    { \
        return pl_emit(g, PL_OP_##name, &x, 1, &(pl_attr_t){.a = f, .b = h}, NULL); \
    }
/* Operators of two inputs that have no gradient compare. */
#define EMIT_composed pl_emit2
#define EMIT_of_both pl_emit2
#define EMIT_constant pl_compare
#define PL_UNARY(name, numbers, precision, rounding, value, rule, slope, meaning) \
    FUNCTION_##numbers(name)
#define PL_BINARY(name, precision, rounding, value, rule, slope_x, slope_y, meaning) \
    pl_node_t pl_##name(pl_graph_t *g, pl_node_t x, pl_node_t y) \
    { \
        return EMIT_##rule(g, PL_OP_##name, x, y); \
    }
#define PL_TERNARY(name, precision, rounding, value, rule, meaning) \
    pl_node_t pl_##name(pl_graph_t *g, pl_node_t x, pl_node_t y, pl_node_t z) \
    { \
        x = pl_as_float(g, x), y = pl_as_float(g, y), z = pl_as_float(g, z); \
        return pl_emit(g, PL_OP_##name, (pl_node_t[]){x, y, z}, 3, NULL, NULL); \
    }
#include "tensor/elementwise.def"
#undef pl_log

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
