/* half.h - bfloat16 and float16: rounding of float32, and their bits
 *
 * To the nearest, ties to even, with subnormals; numbers that are too large become
 * infinite, and NaN stays NaN, as in IEEE 754 and PyTorch.  Inline and without branches,
 * so that kernels may use them element by element. */
#ifndef PL_BASE_HALF_H
#define PL_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t pl_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float pl_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* float32 without its last `drop` bits of mantissa; a NaN may become anything. */
static inline float pl_round_mantissa(float x, int drop)
{
    uint32_t bits = pl_bits_of(x);
    bits += (1u << (drop - 1)) - 1 + (bits >> drop & 1);
    return pl_float_of(bits & ~((1u << drop) - 1));
}

static inline float pl_round_bf16(float x)
{
    const float y = pl_round_mantissa(x, 16);
    return x != x ? x : y;
}

/* Below 2^-14 float16 has steps of 2^-24, as float32 has from 0.5 to 1. */
static inline float pl_round_f16(float x)
{
    const uint32_t sign = pl_bits_of(x) & 0x80000000u;
    const float a = pl_float_of(pl_bits_of(x) ^ sign), near = a + 0.5f;
    float y = pl_round_mantissa(a, 13);
    y = y > 65504.0f ? __builtin_inff() : y;
    y = a < 0x1p-14f ? near - 0.5f : y;
    y = a != a ? a : y;
    return pl_float_of(pl_bits_of(y) | sign);
}

/* The 16 bits of a number, rounded, and the number of 16 bits. */
static inline uint16_t pl_bf16_bits(float x)
{
    return x != x ? 0x7fc0 : (uint16_t)(pl_bits_of(pl_round_bf16(x)) >> 16);
}

static inline float pl_bf16_float(uint16_t bits)
{
    return pl_float_of((uint32_t)bits << 16);
}

static inline uint16_t pl_f16_bits(float x)
{
    const float y = pl_round_f16(x);
    const uint32_t bits = pl_bits_of(y), sign = bits >> 16 & 0x8000u;
    const float a = pl_float_of(bits & 0x7fffffffu);
    if (x != x)
        return 0x7e00;
    if (a > 65504.0f)
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x1p-14f)
        return (uint16_t)(sign | (uint32_t)(a * 0x1p24f));
    return (uint16_t)(sign | ((bits & 0x7fffffffu) - (112u << 23)) >> 13);
}

static inline float pl_f16_float(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fffu;
    if (rest < 0x0400)
        return pl_float_of(pl_bits_of((float)rest * 0x1p-24f) | sign);
    if (rest >= 0x7c00)
        return pl_float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    return pl_float_of(sign | ((rest << 13) + (112u << 23)));
}

#endif
