/* lines.h - what each element-wise operator computes, as the line of a program: one text
 * for all devices
 *
 * Processors expand the formulas into loops; devices that compile text get them as text.
 * Their functions are those of accelerators/gpu/kernels/functions.k. */
#ifndef PL_PLAN_LINES_H
#define PL_PLAN_LINES_H

#include "tensor/graph.h"

/* X(name, what it writes): x and y stand for its operands, f for its number. */
#define PL_LINES(X) \
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

typedef enum pl_line_code {
#define PL_X(name, value) PL_LINE_##name,
    PL_LINES(PL_X)
#undef PL_X
        PL_LINE_dropout,                          /* of x, by the unit's dropout (int)f */
    PL_LINE_total,                                /* of x, into the unit's total (int)f */
    PL_LINE_squares,                              /* the same of x^2, in float64 */
} pl_line_code_t;

/* The line of an element-wise operator; of a total PL_LINE_total or PL_LINE_squares. */
pl_line_code_t pl_line_of(const pl_op_t *op);
/* What it writes, "x + y"; NULL: dropouts and totals. */
const char *pl_line_text(pl_line_code_t code);

/* Whether an operator's result holds nothing but numbers of its inputs and zeros, so that
 * it need not be rounded to their type. */
bool pl_is_exact(pl_opcode_t code);

#endif
