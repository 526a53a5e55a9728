/* formulas.h - the formula of each element-wise operator, for all devices
 *
 * The formulas are those of tensor/elementwise.def.  Processors expand them into
 * loops; devices that compile source text insert them as text.
 * accelerators/gpu/kernels/functions.k defines their functions. */
#ifndef PL_PLAN_FORMULAS_H
#define PL_PLAN_FORMULAS_H

#include "tensor/graph.h"

typedef enum pl_formula_code {
    PL_FORMULA_copy,
    PL_FORMULA_round_bf16,
    PL_FORMULA_round_f16,
#define PL_ELEMENT(name, inputs, precision, rounding, form, value, meaning) \
    PL_FORMULA_##name,
#include "tensor/elementwise.def"
    PL_FORMULA_dropout,                         /* of x, with the unit's dropout (int)f */
    PL_FORMULA_total,                           /* adds x to the unit's total (int)f */
    PL_FORMULA_squares,                         /* adds x^2 to it, in float64 */
} pl_formula_code_t;

/* The formula of an element-wise operator; PL_FORMULA_total or PL_FORMULA_squares for a
 * total. */
pl_formula_code_t pl_formula_of(const pl_op_t *op);

/* The text of its result, "x + y", and the letters of its operands: "xyz", or "dxy" in a
 * gradient, in which r is x's operand.  NULL: dropouts and totals. */
const char *pl_formula_text(pl_formula_code_t code, const char **letters);

/* True if a result contains only numbers of the inputs and zeros, so that it needs no
 * rounding to their type. */
bool pl_is_exact(pl_opcode_t code);

#endif
