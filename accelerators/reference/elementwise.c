/* elementwise.c - reference kernels of element-wise operators, types and random
 * numbers */
#include <math.h>
#include <stdint.h>

#include "base/random.h"
#include "accelerators/reference/kernels.h"

#define FN static inline
#include "accelerators/gpu/kernels/functions_wide.k"

#define LETTERS_value const double x = p, y = q, z = s;
#define LETTERS_slope const double d = p, x = q, r = q, y = s;
#define UNUSED_value (void)x, (void)y, (void)z;
#define UNUSED_slope (void)d, (void)x, (void)r, (void)y;

/* p, q and s are the inputs, f and h the operator's numbers. */
static double compute_one(pl_opcode_t code, double p, double q, double s, double f,
                          double h)
{
    switch (code) {
#define PL_ELEMENT(name, inputs, precision, rounding, form, value, meaning) \
    case PL_OP_##name: { \
        LETTERS_##form UNUSED_##form return value; \
    }
#include "tensor/elementwise.def"
    case PL_OP_cast: return p;           /* to half precision: see pl_reference_round() */
    default: return NAN;
    }
}

static void compute(pl_reference_call_t *c)
{
    const pl_shape_t shape = c->out_shape[0];
    double in[3] = {0};
    for (int64_t i = 0; i < pl_elements(shape); i++) {
        for (int k = 0; k < c->op->input_count; k++)
            in[k] = c->in[k][pl_reference_source(shape, i, c->in_shape[k])];
        c->out[0][i] = compute_one(c->op->code, in[0], in[1], in[2], c->attr->a,
                                   c->attr->b);
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

static double converted(double x, pl_dtype_t from, pl_dtype_t to)
{
    const bool is_whole = !pl_is_float(from);
    switch (to) {
    case PL_I32: return is_whole ? (int32_t)(int64_t)x : pl_whole_i32(x);
    case PL_I64: return is_whole ? x : (double)pl_whole_i64(x);
    case PL_U8: return is_whole ? (uint8_t)(int64_t)x : pl_whole_u8(x);
    default: return x;
    }
}

static void compute_convert(pl_reference_call_t *c)
{
    for (int64_t i = 0; i < pl_elements(c->out_shape[0]); i++)
        c->out[0][i] = c->attr->keep
                           ? c->in[0][i] != 0
                           : converted(c->in[0][i], c->in_dtype[0], c->attr->dtype);
}

static void compute_order(pl_reference_call_t *c)
{
    for (int64_t i = 0; i < pl_elements(c->out_shape[0]); i++) {
        const double x = c->in[0][pl_elements(c->in_shape[0]) > 1 ? i : 0],
                     y = c->in[1][pl_elements(c->in_shape[1]) > 1 ? i : 0];
        c->out[0][i] = (x > y) - (x < y);
    }
}

static void compute_random(pl_reference_call_t *c)
{
    const pl_dropout_t d = pl_dropout_init(c->replay->seed, c->replay->step,
                                           c->replay->micro_batch, c->attr->stream, 0);
    for (int64_t i = 0; i < pl_elements(c->out_shape[0]); i++) {
        const uint64_t block = (uint64_t)i / 4;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), d.step,
                                     d.micro_batch};
        uint32_t word[4];
        pl_philox(counter, d.key, word);
        c->out[0][i] = c->attr->keep
                           ? pl_normal_of(word[i % 4 & ~1], word[i % 4 | 1], i % 2)
                           : pl_uniform_of(word[i % 4]);
    }
}

const pl_reference_kernel_t pl_reference_elementwise[PL_OPCODES] = {
    [PL_OP_cast] = compute,
    [PL_OP_convert] = compute_convert,
    [PL_OP_dropout] = compute_dropout,
    [PL_OP_order] = compute_order,
    [PL_OP_random] = compute_random,
#define PL_ELEMENT(name, inputs, precision, rounding, form, value, meaning) \
    [PL_OP_##name] = compute,
#include "tensor/elementwise.def"
};
