/* vectors.h - vectors as wide as the instruction set's, for code that compilers do not
 * make fast from loops
 *
 * GCC's vector types: the same source for every set, and for machines without one. */
#ifndef PL_CPU_VECTORS_H
#define PL_CPU_VECTORS_H

#include <stdint.h>

#include "accelerators/cpu/kernels/functions.h"

#if defined(__AVX512F__)
#define LANES 16
#define LANE_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define LANE_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define TILE_ROWS 8
#elif defined(__AVX2__)
#define LANES 8
#define LANE_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define LANE_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define TILE_ROWS 6
#else
#define LANES 4
#define LANE_LOW 0, 4, 1, 5
#define LANE_HIGH 2, 6, 3, 7
#define TILE_ROWS 4
#endif

typedef float lanes_t __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t lane_numbers_t __attribute__((vector_size(4 * LANES)));

/* In each lane x where the mask is set, else y. */
PL_INLINE lane_numbers_t choose(lane_numbers_t mask, lane_numbers_t x, lane_numbers_t y)
{
    return (x & mask) | (y & ~mask);
}

/* to[j to_stride + i] = from[i from_stride + j] for i, j < LANES.  Interleaving row i
 * with row i + LANES/2 turns the matrix a little; after log2(LANES) times it lies on its
 * side. */
PL_INLINE void transpose_lanes(const float *from, int64_t from_stride, float *to,
                               int64_t to_stride)
{
    const lane_numbers_t low = {LANE_LOW}, high = {LANE_HIGH};
    lanes_t row[LANES], turned[LANES];
    for (int i = 0; i < LANES; i++)
        row[i] = *(const lanes_t *)(from + i * from_stride);
    for (int step = 1; step < LANES; step *= 2) {
        for (int i = 0; i < LANES / 2; i++) {
            turned[2 * i] = __builtin_shuffle(row[i], row[i + LANES / 2], low);
            turned[2 * i + 1] = __builtin_shuffle(row[i], row[i + LANES / 2], high);
        }
        for (int i = 0; i < LANES; i++)
            row[i] = turned[i];
    }
    for (int i = 0; i < LANES; i++)
        *(lanes_t *)(to + i * to_stride) = row[i];
}

/* Fewer rows than LANES: one after the other, over columns that stay in the nearest
 * cache. */
PL_INLINE void transpose_few(const float *from, int64_t from_stride, float *to,
                             int64_t to_stride, int64_t rows, int64_t columns)
{
    enum { STRIP = 256 };
    for (int64_t j = 0; j < columns; j += STRIP) {
        const int64_t end = j + STRIP < columns ? j + STRIP : columns;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t k = j; k < end; k++)
                to[k * to_stride + i] = from[i * from_stride + k];
    }
}

/* to [columns, rows] = from [rows, columns], turned. */
PL_INLINE void transpose_matrix(const float *from, int64_t from_stride, float *to,
                                int64_t to_stride, int64_t rows, int64_t columns)
{
    const int64_t whole = columns / LANES * LANES;
    int64_t i = 0;
    for (; i + LANES <= rows; i += LANES) {
        for (int64_t j = 0; j < whole; j += LANES)
            transpose_lanes(from + i * from_stride + j, from_stride,
                            to + j * to_stride + i, to_stride);
        for (int64_t j = whole; j < columns; j++)
            for (int64_t k = i; k < i + LANES; k++)
                to[j * to_stride + k] = from[k * from_stride + j];
    }
    transpose_few(from + i * from_stride, from_stride, to + i, to_stride, rows - i,
                  columns);
}

#endif
