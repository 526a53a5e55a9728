/* products.h - small products within a kernel, by tiles of vector registers
 *
 * The library is for large ones: its calls cost too much for a block of a head or for a
 * step of a recurrent layer. */
#ifndef PL_CPU_PRODUCTS_H
#define PL_CPU_PRODUCTS_H

#include <stdbool.h>

#include "accelerators/cpu/kernels/vectors.h"

/* Element (i, k) of a factor is at[i row + k step]. */
typedef struct factor {
    const float *at;
    int64_t row, step;
} factor_t;

/* Rows of a matrix, whole vectors each. */
typedef struct side {
    float *at;
    int64_t row;
} side_t;

PL_INLINE side_t side_at(side_t s, int64_t row, int64_t column)
{
    return (side_t){s.at + row * s.row + column, s.row};
}

/* `rows` rows and `vectors` vectors of c (+)= a b, b [depth, …]. */
PL_INLINE void tile(int rows, int vectors, int64_t depth, factor_t a, side_t b, side_t c,
                    bool add)
{
    lanes_t sum[2 * TILE_ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = add ? *(const lanes_t *)(c.at + i * c.row + v * LANES)
                            : (lanes_t){0};
    for (int64_t k = 0; k < depth; k++) {
        lanes_t right[2];
        for (int v = 0; v < vectors; v++)
            right[v] = *(const lanes_t *)(b.at + k * b.row + v * LANES);
        for (int i = 0; i < rows; i++) {
            const float left = a.at[i * a.row + k * a.step];
            for (int v = 0; v < vectors; v++)
                sum[i][v] += left * right[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            *(lanes_t *)(c.at + i * c.row + v * LANES) = sum[i][v];
}

/* The tiles of one strip of columns; constants, so that sums stay in registers. */
PL_INLINE void strip(int vectors, int64_t rows, int64_t depth, factor_t a, side_t b,
                     side_t c, bool add)
{
    enum { MOST = 2 * TILE_ROWS };
    /* Tiles of 6 and 2 rows take longer than two of 4. */
    const int64_t large = MOST / vectors == 6 && rows % 6 == 2 && rows > 6 ? rows - 8
                                                                          : rows;
#define TILES(count, end) \
    for (; i + (count) <= (end); i += (count)) \
        tile(count, vectors, depth, (factor_t){a.at + i * a.row, a.row, a.step}, b, \
             side_at(c, i, 0), add);
    int64_t i = 0;
    TILES(MOST / vectors, large)
    TILES(4, rows)
    TILES(2, rows)
    TILES(1, rows)
#undef TILES
}

PL_INLINE void strips(int64_t rows, int64_t columns, int64_t depth, factor_t a, side_t b,
                      side_t c, bool add)
{
    int64_t j = 0;
    for (; j + 2 * LANES <= columns; j += 2 * LANES)
        strip(2, rows, depth, a, side_at(b, 0, j), side_at(c, 0, j), add);
    if (j < columns)
        strip(1, rows, depth, a, side_at(b, 0, j), side_at(c, 0, j), add);
}

/* c [rows, columns] (+)= a [rows, depth] b [depth, columns]; whole vectors of columns.
 * Constant distances between rows need no registers for addresses, of which a tile would
 * have too few. */
static void product(int64_t rows, int64_t columns, int64_t depth, factor_t a, side_t b,
                    side_t c, bool add)
{
    if (a.row == 1)
        strips(rows, columns, depth, (factor_t){a.at, 1, a.step}, b, c, add);
    else if (a.row == 64 && a.step == 1)
        strips(rows, columns, depth, (factor_t){a.at, 64, 1}, b, c, add);
    else if (a.row == LANES && a.step == 1)
        strips(rows, columns, depth, (factor_t){a.at, LANES, 1}, b, c, add);
    else if (a.row == 2 * LANES && a.step == 1)
        strips(rows, columns, depth, (factor_t){a.at, 2 * LANES, 1}, b, c, add);
    else
        strips(rows, columns, depth, a, b, c, add);
}

#endif
