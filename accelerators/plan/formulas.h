/* formulas.h - the formula of each element-wise operator, for all devices
 *
 * Processors expand the formulas into loops; devices that compile source text insert them
 * as text.  accelerators/gpu/kernels/functions.k defines their functions. */
#ifndef PL_PLAN_FORMULAS_H
#define PL_PLAN_FORMULAS_H

#include "tensor/graph.h"

/* X(name, result): x and y are the operands, f is a number of the operation. */
#define PL_FORMULAS(X) \
    X(copy, x) \
    X(add, x + y) \
    X(sub, x - y) \
    X(mul, x *y) \
    X(div, x / y) \
    X(minimum, x < y || x != x ? x : y) \
    X(neg, -x) \
    X(scale, x *f) \
    X(exp, pl_expf(x)) \
    X(log, pl_logf(x)) \
    X(sqrt, sqrtf(x)) \
    X(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x) \
    X(relu, x < 0.0f ? 0.0f : x) \
    X(gelu, pl_geluf(x)) \
    X(gelu_tanh, pl_gelu_tanhf(x)) \
    X(sigmoid, pl_sigmoidf(x)) \
    X(tanh, pl_tanhf(x)) \
    X(round_bf16, pl_round_bf16(x)) \
    X(round_f16, pl_round_f16(x)) \
    X(relu_grad, y <= 0.0f ? 0.0f : x) \
    X(gelu_grad, x *pl_gelu_slopef(y)) \
    X(gelu_tanh_grad, x *pl_gelu_tanh_slopef(y)) \
    X(sigmoid_grad, x *y *(1.0f - y)) \
    X(tanh_grad, x *(1.0f - y * y))

typedef enum pl_formula_code {
#define PL_X(name, value) PL_FORMULA_##name,
    PL_FORMULAS(PL_X)
#undef PL_X
        PL_FORMULA_dropout,                     /* of x, with the unit's dropout (int)f */
    PL_FORMULA_total,                           /* adds x to the unit's total (int)f */
    PL_FORMULA_squares,                         /* adds x^2 to it, in float64 */
} pl_formula_code_t;

/* The formula of an element-wise operator; PL_FORMULA_total or PL_FORMULA_squares for a
 * total. */
pl_formula_code_t pl_formula_of(const pl_op_t *op);
/* The text of its result, "x + y"; NULL: dropouts and totals. */
const char *pl_formula_text(pl_formula_code_t code);

/* True if a result contains only numbers of the inputs and zeros, so that it needs no
 * rounding to their type. */
bool pl_is_exact(pl_opcode_t code);

#endif
