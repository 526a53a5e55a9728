/* winograd.c - convolutions with kernels of 3 x 3 by fewer products
 *
 * A tile of 2 x 2 results is computed from 4 x 4 values by 16 products for each channel
 * and filter, where the windows have 36: F(2x2, 3x3) of A. Lavin and S. Gray, "Fast
 * algorithms for convolutional neural networks", 2016.  At each of the 16 places, the
 * products of many tiles are one matrix product.  The result of a tile is the same
 * whichever tiles are computed beside it. */
#include <string.h>

#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/products.h"

enum { PLACES = 16 };

/* Channels [from, to) of the packed weights [16, channels, filters]. */
void KERNEL(winograd_pack)(const void *of, int64_t from, int64_t to)
{
    const pl_winograd_job_t *job = of;
    const int64_t channels = job->channels, filters = job->filters;
    for (int64_t c = from; c < to; c++)
        for (int64_t f = 0; f < filters; f++) {
            const float *w = job->w
                             + (job->turned ? c * filters + f : f * channels + c) * 9;
            float g[3][3], half[4][3];
            for (int i = 0; i < 9; i++)
                g[i / 3][i % 3] = job->turned ? w[8 - i] : w[i];
            for (int j = 0; j < 3; j++) {
                half[0][j] = g[0][j];
                half[1][j] = 0.5f * (g[0][j] + g[1][j] + g[2][j]);
                half[2][j] = 0.5f * (g[0][j] - g[1][j] + g[2][j]);
                half[3][j] = g[2][j];
            }
            for (int i = 0; i < 4; i++) {
                const float *h = half[i], sum = 0.5f * (h[0] + h[2]);
                float *to_place = job->packed + (i * 4 * channels + c) * filters + f;
                to_place[0] = h[0];
                to_place[channels * filters] = sum + 0.5f * h[1];
                to_place[2 * channels * filters] = sum - 0.5f * h[1];
                to_place[3 * channels * filters] = h[2];
            }
        }
}

/* The values of a tile, turned: to[16, apart] for each channel.  Places outside of the
 * image are `zeros`. */
static void tile_in(const pl_winograd_job_t *job, int64_t tile, const float *zeros,
                    float *restrict to, int64_t apart)
{
    const int64_t n = job->channels, across = job->tiles[1],
                  image = tile / (job->tiles[0] * across),
                  top = tile / across % job->tiles[0] * 2 - job->before[0],
                  left = tile % across * 2 - job->before[1];
    const float *at[PLACES];
    for (int k = 0; k < PLACES; k++) {
        const int64_t row = top + k / 4, column = left + k % 4;
        const bool is_there = row >= 0 && row < job->in[0] && column >= 0
                              && column < job->in[1];
        at[k] = is_there ? job->x + ((image * job->in[0] + row) * job->in[1] + column) * n
                         : zeros;
    }
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        float t[4][4];
        for (int j = 0; j < 4; j++) {
            const float a = at[j][c], b = at[4 + j][c], d = at[8 + j][c],
                        e = at[12 + j][c];
            t[0][j] = a - d;
            t[1][j] = b + d;
            t[2][j] = d - b;
            t[3][j] = b - e;
        }
        for (int i = 0; i < 4; i++) {
            float *row = to + i * 4 * apart + c;
            row[0] = t[i][0] - t[i][2];
            row[apart] = t[i][1] + t[i][2];
            row[2 * apart] = t[i][2] - t[i][1];
            row[3 * apart] = t[i][1] - t[i][3];
        }
    }
}

/* The results of a tile from its products [16, apart]; those outside go to `unused`. */
static void tile_out(const pl_winograd_job_t *job, int64_t tile,
                     const float *restrict from, int64_t apart, float *unused)
{
    const int64_t n = job->filters, across = job->tiles[1],
                  image = tile / (job->tiles[0] * across),
                  top = tile / across % job->tiles[0] * 2, left = tile % across * 2;
    float *at[4];
    for (int k = 0; k < 4; k++) {
        const int64_t row = top + k / 2, column = left + k % 2;
        at[k] = row < job->out[0] && column < job->out[1]
                    ? job->y + ((image * job->out[0] + row) * job->out[1] + column) * n
                    : unused;
    }
    for (int64_t v = 0; v < n; v += LANES) {
        lanes_t s[2][4];
        for (int j = 0; j < 4; j++) {
            lanes_t m[4];
            for (int i = 0; i < 4; i++)
                m[i] = *(const lanes_t *)(from + (i * 4 + j) * apart + v);
            s[0][j] = m[0] + m[1] + m[2];
            s[1][j] = m[1] - m[2] - m[3];
        }
        const lanes_t bias = job->bias ? *(const lanes_t *)(job->bias + v) : (lanes_t){0};
        for (int i = 0; i < 2; i++) {
            *(lanes_t *)(at[2 * i] + v) = s[i][0] + s[i][1] + s[i][2] + bias;
            *(lanes_t *)(at[2 * i + 1] + v) = s[i][1] - s[i][2] - s[i][3] + bias;
        }
    }
}

/* Tiles [from, to) of all images. */
void KERNEL(winograd)(const void *of, int64_t from, int64_t to)
{
    const pl_winograd_job_t *job = of;
    const int64_t channels = job->channels, filters = job->filters, block = job->block;
    float *values = job->scratch, *products = values + PLACES * block * channels,
          *zeros = products + PLACES * block * filters, *unused = zeros + channels;
    memset(zeros, 0, (size_t)channels * sizeof *zeros);
    for (int64_t first = from; first < to; first += block) {
        const int64_t count = to - first < block ? to - first : block;
        for (int64_t i = 0; i < count; i++)
            tile_in(job, first + i, zeros, values + i * channels, block * channels);
        for (int k = 0; k < PLACES; k++)
            product(count, filters, channels,
                    (factor_t){values + k * block * channels, channels, 1},
                    (side_t){job->packed + k * channels * filters, filters},
                    (side_t){products + k * block * filters, filters}, false);
        for (int64_t i = 0; i < count; i++)
            tile_out(job, first + i, products + i * filters, block * filters, unused);
    }
}
