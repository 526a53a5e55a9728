/* functions.h - functions of many elements at once, from which all kernels are made
 *
 * Loops over them become vector code.  Those of functions.k are also the text of kernels
 * of GPUs. */
#ifndef PL_CPU_FUNCTIONS_H
#define PL_CPU_FUNCTIONS_H

#include <math.h>
#include <stdint.h>

#include "base/half.h"
#include "base/random.h"

#define PL_INLINE static inline __attribute__((always_inline))
#define FN PL_INLINE
#include "accelerators/gpu/kernels/functions.k"
#undef FN

/* ---- one pass over a row ----
 *
 * Each adds in the order that the vector width gives, the same on every run.  Sums of
 * long rows are added to a float64 every ROW_PIECE elements. */

#define ROW_PIECE 2048

/* Adds a value that depends on i to total, for i in [0, n). */
#define ROW_ADD(total, value) \
    for (int64_t k = 0; k < n; k += ROW_PIECE) { \
        const int64_t end = k + ROW_PIECE < n ? k + ROW_PIECE : n; \
        float sum = 0.0f; \
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = k; i < end; i++) \
            sum += value; \
        (total) += (double)sum; \
    }

PL_INLINE float row_max(const float *x, int64_t n)
{
    float max = -INFINITY;
#pragma omp simd reduction(max : max)
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* The sum of x - shift. */
PL_INLINE double row_sum(const float *x, float shift, int64_t n)
{
    double total = 0.0;
    ROW_ADD(total, x[i] - shift)
    return total;
}

/* The sum of (x - shift)^2. */
PL_INLINE double row_squares(const float *x, float shift, int64_t n)
{
    double total = 0.0;
    ROW_ADD(total, (x[i] - shift) * (x[i] - shift))
    return total;
}

PL_INLINE double row_dot(const float *a, const float *b, int64_t n)
{
    double total = 0.0;
    ROW_ADD(total, a[i] * b[i])
    return total;
}

/* y = e^(x - shift); returns the sum of y.  y may be x. */
PL_INLINE float row_exp(const float *x, float *y, float shift, int64_t n)
{
    double total = 0.0;
    for (int64_t k = 0; k < n; k += ROW_PIECE) {
        const int64_t end = k + ROW_PIECE < n ? k + ROW_PIECE : n;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = k; i < end; i++) {
            float e = pl_expf(x[i] - shift);
            y[i] = e;
            sum += e;
        }
        total += (double)sum;
    }
    return (float)total;
}

PL_INLINE void row_scale(float *y, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] *= factor;
}

/* ---- the masks of pl_dropout_keep() ---- */

/* The words of elements [4 block, 4 block + 64): Philox on 16 counters side by side. */
PL_INLINE void dropout_words(const pl_dropout_t *d, uint64_t block, uint32_t words[64])
{
    uint32_t c[4][16];
    for (int i = 0; i < 16; i++) {
        uint64_t counter = block + (uint64_t)i;
        c[0][i] = (uint32_t)counter, c[1][i] = (uint32_t)(counter >> 32);
        c[2][i] = d->step, c[3][i] = d->micro_batch;
    }
    uint32_t k0 = d->key[0], k1 = d->key[1];
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < 16; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[0][i],
                     p1 = (uint64_t)0xCD9E8D57u * c[2][i];
            c[0][i] = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0;
            c[1][i] = (uint32_t)p1;
            c[2][i] = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1;
            c[3][i] = (uint32_t)p0;
        }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 4; k++)
            words[4 * i + k] = c[k][i];
}

/* The factors of elements [element, element + n): 1 / (1 - p) if an element stays,
 * else 0.  A word's upper 24 bits are compared as whole numbers with the first one
 * that stays: the same as dividing both by 2^24. */
PL_INLINE void dropout_factors(const pl_dropout_t *d, uint64_t element, int64_t n,
                               float *factor)
{
    const float stays = (float)(1.0 / (1.0 - d->p)), min = (float)ceil(d->p * 0x1p24);
    for (int64_t i = 0; i < n;) {
        uint32_t words[64];
        const int skip = (int)((element + (uint64_t)i) % 4),
                  m = n - i < 64 - skip ? (int)(n - i) : 64 - skip;
        dropout_words(d, (element + (uint64_t)i) / 4, words);
        for (int j = 0; j < m; j++)
            factor[i + j] = (float)(int32_t)(words[skip + j] >> 8) >= min ? stays : 0.0f;
        i += m;
    }
}

#endif
