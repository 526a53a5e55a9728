/* rows.h - one vectorised pass over a row, for all row-wise kernels
 *
 * Each adds in the order that the vector width gives, the same on every run.  Sums of
 * long rows are added to a float64 every ROW_PIECE elements. */
#ifndef PL_CPU_ROWS_H
#define PL_CPU_ROWS_H

#include "accelerators/cpu/kernels/functions.h"

#define ROW_PIECE 2048

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
    for (int64_t k = 0; k < n; k += ROW_PIECE) {
        const int64_t end = k + ROW_PIECE < n ? k + ROW_PIECE : n;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = k; i < end; i++)
            sum += x[i] - shift;
        total += (double)sum;
    }
    return total;
}

/* The sum of (x - shift)^2. */
PL_INLINE double row_squares(const float *x, float shift, int64_t n)
{
    double total = 0.0;
    for (int64_t k = 0; k < n; k += ROW_PIECE) {
        const int64_t end = k + ROW_PIECE < n ? k + ROW_PIECE : n;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = k; i < end; i++)
            sum += (x[i] - shift) * (x[i] - shift);
        total += (double)sum;
    }
    return total;
}

PL_INLINE double row_dot(const float *a, const float *b, int64_t n)
{
    double total = 0.0;
    for (int64_t k = 0; k < n; k += ROW_PIECE) {
        const int64_t end = k + ROW_PIECE < n ? k + ROW_PIECE : n;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = k; i < end; i++)
            sum += a[i] * b[i];
        total += (double)sum;
    }
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

#endif
