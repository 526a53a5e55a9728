/* axis.c - along one axis: gather, scatter, cumulative sums; and random numbers */
#include <string.h>

#include "accelerators/cpu/kernels/functions.h"
#include "accelerators/cpu/kernels/kernels.h"

/* The index of position k for element i of the inner axis. */
static int64_t index_of(const pl_gather_job_t *job, int64_t outer, int64_t k, int64_t i)
{
    const int64_t at = (job->outer_step * outer + k) * job->index_inner
                       + (job->index_inner > 1 ? i : 0);
    return job->dtype == PL_I64 ? ((const int64_t *)job->indices)[at]
                                : ((const int32_t *)job->indices)[at];
}

#define GATHER_ROW(type) \
    for (int64_t i = 0; i < inner; i++) \
    ((type *)job->y)[at * inner + i] = \
        ((const type *) \
             job->x)[(outer * job->rows + index_of(job, outer, k, i)) * inner + i]

/* [from, to) of the outer × n rows of y. */
void KERNEL(gather)(const void *of, int64_t from, int64_t to)
{
    const pl_gather_job_t *job = of;
    const int64_t inner = job->inner;
    for (int64_t at = from; at < to; at++) {
        const int64_t outer = at / job->n, k = at % job->n;
        if (job->index_inner == 1 && inner > 1) {
            const int64_t row = outer * job->rows + index_of(job, outer, k, 0);
            const size_t bytes = (size_t)inner * job->size;
            memcpy((char *)job->y + (size_t)at * bytes,
                   (const char *)job->x + (size_t)row * bytes, bytes);
        } else if (job->size == 8) {
            GATHER_ROW(uint64_t);
        } else if (job->size == 4) {
            GATHER_ROW(uint32_t);
        } else {
            GATHER_ROW(uint8_t);
        }
    }
}

/* Adds the elements of one outer index whose row is in [low, high), in order. */
static void scatter_rows(const pl_gather_job_t *job, int64_t outer, int64_t low,
                         int64_t high)
{
    const int64_t inner = job->inner;
    float *to = (float *)job->y + outer * job->rows * inner;
    const float *x = (const float *)job->x + outer * job->n * inner;
    memset(to + low * inner, 0, (size_t)((high - low) * inner) * sizeof *to);
    for (int64_t k = 0; k < job->n; k++, x += inner) {
        if (job->index_inner == 1) {
            const int64_t row = index_of(job, outer, k, 0);
            for (int64_t i = 0; i < inner && row >= low && row < high; i++)
                to[row * inner + i] += x[i];
            continue;
        }
        for (int64_t i = 0; i < inner; i++) {
            const int64_t row = index_of(job, outer, k, i);
            if (row >= low && row < high)
                to[row * inner + i] += x[i];
        }
    }
}

/* [from, to) of the outer × rows rows of y. */
void KERNEL(scatter)(const void *of, int64_t from, int64_t to)
{
    const pl_gather_job_t *job = of;
    for (int64_t at = from, end; at < to; at = end) {
        const int64_t outer = at / job->rows, first = outer * job->rows;
        end = first + job->rows < to ? first + job->rows : to;
        scatter_rows(job, outer, at - first, end - first);
    }
}

enum { STRIP = 64 };                                        /* columns at a time */

/* [from, to) of the outer × inner columns. */
void KERNEL(cumsum)(const void *of, int64_t from, int64_t to)
{
    const pl_cumsum_job_t *job = of;
    const int64_t inner = job->inner;
    for (int64_t at = from, end; at < to; at = end) {
        const int64_t outer = at / inner, start = outer * job->n * inner + at % inner;
        end = (outer + 1) * inner;
        end = end < to ? end : to;
        end = end < at + STRIP ? end : at + STRIP;
        double sum[STRIP] = {0};
        for (int64_t k = 0; k < job->n; k++) {
            const int64_t row = start + (job->falls ? job->n - 1 - k : k) * inner;
            for (int64_t i = 0; i < end - at; i++) {
                sum[i] += (double)job->x[row + i];
                job->y[row + i] = (float)sum[i];
            }
        }
    }
}

/* Elements [from, to); from is a multiple of 64. */
void KERNEL(random)(const void *of, int64_t from, int64_t to)
{
    const pl_random_job_t *job = of;
    for (int64_t at = from; at < to; at += 64) {
        uint32_t words[64];
        float value[64];
        const int64_t n = to - at < 64 ? to - at : 64;
        dropout_words(&job->bits, (uint64_t)at / 4, words);
        if (job->is_normal)
            for (int i = 0; i < 64; i++)
                value[i] = pl_normal_of(words[i & ~1], words[i | 1], i & 1);
        else
            for (int i = 0; i < 64; i++)
                value[i] = pl_uniform_of(words[i]);
        memcpy(job->to + at, value, (size_t)n * sizeof *value);
    }
}
