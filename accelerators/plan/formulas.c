/* formulas.c - the formula of each element-wise operator */
#include "accelerators/plan/formulas.h"

pl_formula_code_t pl_formula_of(const pl_op_t *op)
{
    static const pl_formula_code_t formula[PL_OPCODES] = {
    /* [copy: broadcast, assign] */
#define PL_ELEMENT(name, inputs, precision, rounding, form, value, meaning) \
    [PL_OP_##name] = PL_FORMULA_##name,
#include "tensor/elementwise.def"
        [PL_OP_dropout] = PL_FORMULA_dropout,
        [PL_OP_sum] = PL_FORMULA_total,
        [PL_OP_norm] = PL_FORMULA_squares,
    };
    if (op->code == PL_OP_cast)
        return op->attr.dtype == PL_F16 ? PL_FORMULA_round_f16 : PL_FORMULA_round_bf16;
    return formula[op->code];
}

const char *pl_formula_text(pl_formula_code_t code, const char **letters)
{
    enum { value, slope };
    static const char *const letters_of[] = {[value] = "xyz", [slope] = "dxy"};
    static const struct {
        const char *text;
        int form;
    } formula[] = {
        [PL_FORMULA_copy] = {"x", value},
        [PL_FORMULA_round_bf16] = {"pl_round_bf16(x)", value},
        [PL_FORMULA_round_f16] = {"pl_round_f16(x)", value},
#define PL_ELEMENT(name, inputs, precision, rounding, form, value, meaning) \
    [PL_FORMULA_##name] = {#value, form},
#include "tensor/elementwise.def"
    };
    if ((size_t)code >= sizeof formula / sizeof *formula)
        return NULL;
    *letters = letters_of[formula[code].form];
    return formula[code].text;
}

bool pl_is_exact(pl_opcode_t code)
{
    enum { rounded = false, exact = true };
    static const bool is_exact[PL_OPCODES] = {
#define PL_ELEMENT(name, inputs, precision, rounding, form, value, meaning) \
    [PL_OP_##name] = rounding,
#include "tensor/elementwise.def"
        [PL_OP_max] = true,       [PL_OP_max_grad] = true, [PL_OP_max_pool] = true,
        [PL_OP_embedding] = true, [PL_OP_gather] = true,
    };
    return is_exact[code] || pl_operators[code].kind == PL_KIND_shape;
}
