/* formulas.c - the formula of each element-wise operator */
#include "accelerators/plan/formulas.h"

pl_formula_code_t pl_formula_of(const pl_op_t *op)
{
    switch (op->code) {
    case PL_OP_add: return PL_FORMULA_add;
    case PL_OP_sub: return PL_FORMULA_sub;
    case PL_OP_mul: return PL_FORMULA_mul;
    case PL_OP_div: return PL_FORMULA_div;
    case PL_OP_minimum: return PL_FORMULA_minimum;
    case PL_OP_neg: return PL_FORMULA_neg;
    case PL_OP_scale: return PL_FORMULA_scale;
    case PL_OP_exp: return PL_FORMULA_exp;
    case PL_OP_log: return PL_FORMULA_log;
    case PL_OP_sqrt: return PL_FORMULA_sqrt;
    case PL_OP_sign: return PL_FORMULA_sign;
    case PL_OP_relu: return PL_FORMULA_relu;
    case PL_OP_gelu: return PL_FORMULA_gelu;
    case PL_OP_gelu_tanh: return PL_FORMULA_gelu_tanh;
    case PL_OP_sigmoid: return PL_FORMULA_sigmoid;
    case PL_OP_tanh: return PL_FORMULA_tanh;
    case PL_OP_dropout: return PL_FORMULA_dropout;
    case PL_OP_sum: return PL_FORMULA_total;
    case PL_OP_norm: return PL_FORMULA_squares;
    case PL_OP_relu_grad: return PL_FORMULA_relu_grad;
    case PL_OP_gelu_grad: return PL_FORMULA_gelu_grad;
    case PL_OP_gelu_tanh_grad: return PL_FORMULA_gelu_tanh_grad;
    case PL_OP_sigmoid_grad: return PL_FORMULA_sigmoid_grad;
    case PL_OP_tanh_grad: return PL_FORMULA_tanh_grad;
    case PL_OP_cast:
        return op->attr.dtype == PL_F16 ? PL_FORMULA_round_f16 : PL_FORMULA_round_bf16;
    default: return PL_FORMULA_copy;                        /* broadcast, assign */
    }
}

const char *pl_formula_text(pl_formula_code_t code)
{
    static const char *const text[] = {
#define PL_X(name, value) [PL_FORMULA_##name] = #value,
        PL_FORMULAS(PL_X)
#undef PL_X
    };
    return (size_t)code < sizeof text / sizeof *text ? text[code] : NULL;
}

bool pl_is_exact(pl_opcode_t code)
{
    switch (code) {
    case PL_OP_neg:
    case PL_OP_relu:
    case PL_OP_relu_grad:
    case PL_OP_minimum:
    case PL_OP_max:
    case PL_OP_max_grad:
    case PL_OP_max_pool2d:
    case PL_OP_embedding: return true;
    default: return pl_operators[code].kind == PL_KIND_shape;
    }
}
