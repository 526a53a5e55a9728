/* functions.h - exp, log, tanh and erf without branches, for loops that the compiler
 * turns into vector code
 *
 * Each is a polynomial on a short interval after the usual reduction, fitted to a
 * relative error below 1e-8, so that what is left is the rounding of float32: 1 to 3 ulp.
 * Infinities, zeros and NaN come out as C's own functions give them. */
#ifndef PL_CPU_FUNCTIONS_H
#define PL_CPU_FUNCTIONS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include "base/half.h"

#define PL_INLINE static inline __attribute__((always_inline))

/* x = n ln 2 + r; 2^n in two factors, so that the ends of the range come out too, as
 * denormals and infinity. */
PL_INLINE float pl_expf(float x)
{
    const float shift = 12582912.0f;     /* 1.5 2^23: adding it rounds to whole numbers */
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = x * 1.44269504f + shift, n = shifted - shift;
    const int32_t k = (int32_t)(pl_bits_of(shifted) - pl_bits_of(shift)), half = k >> 1;
    const uint32_t a = (uint32_t)half + 127, b = (uint32_t)(k - half) + 127;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.381459848e-03f;
    p = p * r + 8.368716887e-03f;
    p = p * r + 4.166838805e-02f;
    p = p * r + 1.666652063e-01f;
    p = p * r + 4.999999345e-01f;
    p = p * (r * r) + r + 1.0f;
    return p * pl_float_of(a << 23) * pl_float_of(b << 23);
}

/* x = 2^e (1 + f), 1 + f between the roots of 1/2 and 2. */
PL_INLINE float pl_logf(float x)
{
    int tiny = x < FLT_MIN;
    const uint32_t bits = pl_bits_of(tiny ? x * 8388608.0f : x);
    const int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
    float f = pl_float_of(bits - ((uint32_t)e << 23)) - 1.0f;
    float n = (float)e - (tiny ? 23.0f : 0.0f);
    float p = -7.635654900e-02f;
    p = p * f + 1.276332704e-01f;
    p = p * f + -1.316058255e-01f;
    p = p * f + 1.420155306e-01f;
    p = p * f + -1.662329837e-01f;
    p = p * f + 2.000123338e-01f;
    p = p * f + -2.500082271e-01f;
    p = p * f + 3.333333166e-01f;
    float y = n * 0.693359375f + (f + (f * f * (f * p - 0.5f) - n * 2.12194440e-4f));
    y = x == 0.0f ? -INFINITY : y;
    y = x == INFINITY ? INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

PL_INLINE float pl_sigmoidf(float x)
{
    return 1.0f / (1.0f + pl_expf(-x));
}

PL_INLINE float pl_tanhf(float x)
{
    float a = x < 0.0f ? -x : x, s = x * x;
    float p = -5.704986770e-03f;
    p = p * s + 2.063908700e-02f;
    p = p * s + -5.373971500e-02f;
    p = p * s + 1.333144220e-01f;
    p = p * s + -3.333328194e-01f;
    float near = p * s * x + x, far = 1.0f - 2.0f / (pl_expf(2.0f * a) + 1.0f);
    far = x < 0.0f ? -far : far;
    return a < 0.625f ? near : far;
}

/* Beyond 1: 1 - e^q, where q is the logarithm of erfc. */
PL_INLINE float pl_erff(float x)
{
    float a = x < 0.0f ? -x : x, s = x * x, t = a > 4.0f ? 4.0f : a;
    float p = 7.841374560e-05f;
    p = p * s + -8.006491442e-04f;
    p = p * s + 5.187917398e-03f;
    p = p * s + -2.685360337e-02f;
    p = p * s + 1.128358039e-01f;
    p = p * s + -3.761262543e-01f;
    p = p * s + 1.283791657e-01f;
    float near = p * x + x;
    float q = 1.879717004e-04f;
    q = q * t + -2.964006245e-03f;
    q = q * t + 2.190647693e-02f;
    q = q * t + -1.032562045e-01f;
    q = q * t + -6.379649961e-01f;
    q = q * t + -1.127202279e+00f;
    q = q * t + -3.124692733e-04f;
    float far = 1.0f - pl_expf(q);
    far = x < 0.0f ? -far : far;
    return a < 1.0f ? near : far;
}

/* By sigmoid(2u) = (1 + tanh u) / 2, which loses nothing where tanh is near -1. */
PL_INLINE float pl_gelu_tanhf(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return x * pl_sigmoidf(2.0f * u);
}

PL_INLINE float pl_gelu_tanh_slopef(float x)
{
    float u = 0.7978845608f * (x + 0.044715f * x * x * x),
          slope = 0.7978845608f + 0.1070322244f * x * x;
    float s = pl_sigmoidf(2.0f * u);
    float y = s + x * s * (1.0f - s) * 2.0f * slope;
    y = x < -30.0f ? 0.0f : y;
    return x > 30.0f ? 1.0f : y;
}

PL_INLINE float pl_geluf(float x)
{
    return 0.5f * x * (1.0f + pl_erff(x * 0.7071067812f));
}

PL_INLINE float pl_gelu_slopef(float x)
{
    return 0.5f * (1.0f + pl_erff(x * 0.7071067812f))
           + x * 0.3989422804f * pl_expf(-0.5f * x * x);
}

#endif
