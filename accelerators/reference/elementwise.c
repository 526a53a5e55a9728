/* elementwise.c - reference kernels of element-wise operators */
#include <math.h>

#include "base/random.h"
#include "accelerators/reference/kernels.h"

#define PI 3.14159265358979323846

static double gelu_tanh_inner(double x)
{
    return tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x));
}

static double unary(pl_opcode_t code, double x, const pl_attr_t *attr)
{
    switch (code) {
    case PL_OP_neg: return -x;
    case PL_OP_scale: return x * attr->a;
    case PL_OP_exp: return exp(x);
    case PL_OP_log: return log(x);
    case PL_OP_sqrt: return sqrt(x);
    /* a NaN stays a NaN, so that a guard finds it */
    case PL_OP_sign: return x > 0 ? 1 : x < 0 ? -1 : x;
    case PL_OP_relu: return x > 0 ? x : x != x ? x : 0;
    case PL_OP_gelu: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case PL_OP_gelu_tanh: return 0.5 * x * (1 + gelu_tanh_inner(x));
    case PL_OP_sigmoid: return 1 / (1 + exp(-x));
    case PL_OP_tanh: return tanh(x);
    case PL_OP_cast: return x;           /* to half precision: see pl_reference_round() */
    default: return NAN;
    }
}

static double binary(pl_opcode_t code, double a, double b)
{
    double t, slope;
    switch (code) {
    case PL_OP_add: return a + b;
    case PL_OP_sub: return a - b;
    case PL_OP_mul: return a * b;
    case PL_OP_div: return a / b;
    case PL_OP_minimum: return a < b || a != a ? a : b;
    case PL_OP_relu_grad: return b <= 0 ? 0 : a;
    case PL_OP_gelu_grad:                          /* d/dx x Phi(x) = Phi(x) + x phi(x) */
        slope = 0.5 * (1 + erf(b / sqrt(2))) + b * exp(-b * b / 2) / sqrt(2 * PI);
        return a * slope;
    case PL_OP_gelu_tanh_grad:
        t = gelu_tanh_inner(b);
        slope = 0.5 * (1 + t)
                + 0.5 * b * (1 - t * t) * sqrt(2 / PI) * (1 + 3 * 0.044715 * b * b);
        return a * slope;
    case PL_OP_sigmoid_grad: return a * b * (1 - b);
    case PL_OP_tanh_grad: return a * (1 - b * b);
    default: return NAN;
    }
}

static void compute_unary(pl_reference_call_t *c)
{
    for (int64_t i = 0; i < pl_elements(c->out_shape[0]); i++)
        c->out[0][i] = unary(c->op->code, c->in[0][i], c->attr);
}

static void compute_binary(pl_reference_call_t *c)
{
    const pl_shape_t shape = c->out_shape[0];
    for (int64_t i = 0; i < pl_elements(shape); i++) {
        double a = c->in[0][pl_reference_source(shape, i, c->in_shape[0])];
        double b = c->in[1][pl_reference_source(shape, i, c->in_shape[1])];
        c->out[0][i] = binary(c->op->code, a, b);
    }
}

static void compute_dropout(pl_reference_call_t *c)
{
    const pl_dropout_t d = pl_dropout_init(c->replay->seed, c->replay->step,
                                           c->replay->micro_batch, c->attr->stream,
                                           c->attr->a);
    for (int64_t i = 0; i < pl_elements(c->out_shape[0]); i++)
        c->out[0][i] = pl_dropout_keep(&d, (uint64_t)i) ? c->in[0][i] / (1 - d.p) : 0;
}

const pl_reference_kernel_t pl_reference_elementwise[PL_OPCODES] = {
    [PL_OP_add] = compute_binary,
    [PL_OP_sub] = compute_binary,
    [PL_OP_mul] = compute_binary,
    [PL_OP_div] = compute_binary,
    [PL_OP_minimum] = compute_binary,
    [PL_OP_neg] = compute_unary,
    [PL_OP_scale] = compute_unary,
    [PL_OP_exp] = compute_unary,
    [PL_OP_log] = compute_unary,
    [PL_OP_sqrt] = compute_unary,
    [PL_OP_sign] = compute_unary,
    [PL_OP_relu] = compute_unary,
    [PL_OP_gelu] = compute_unary,
    [PL_OP_gelu_tanh] = compute_unary,
    [PL_OP_sigmoid] = compute_unary,
    [PL_OP_tanh] = compute_unary,
    [PL_OP_cast] = compute_unary,
    [PL_OP_dropout] = compute_dropout,
    [PL_OP_relu_grad] = compute_binary,
    [PL_OP_gelu_grad] = compute_binary,
    [PL_OP_gelu_tanh_grad] = compute_binary,
    [PL_OP_sigmoid_grad] = compute_binary,
    [PL_OP_tanh_grad] = compute_binary,
};
