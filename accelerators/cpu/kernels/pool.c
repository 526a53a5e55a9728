/* pool.c - largest of windows, channels last
 *
 * Channels are neighbours, so that the comparisons of a window run over vectors of them.
 * Padding never wins. */
#include "accelerators/cpu/kernels/kernels.h"

#include <string.h>

#include "accelerators/cpu/kernels/vectors.h"

#define AHEAD 8                       /* distance of a prefetch, in places of a picture */

/* The part of a window that lies within the picture. */
typedef struct window {
    int64_t top, left;                                      /* of the whole window; may be
                                                               negative */
    int64_t row_from, row_to, column_from, column_to;       /* within the window */
} window_t;

static window_t window_at(const pl_pool_job_t *job, int64_t row, int64_t column)
{
    window_t w = {.top = row * job->stride - job->padding,
                  .left = column * job->stride - job->padding};
    w.row_from = w.top < 0 ? -w.top : 0;
    w.column_from = w.left < 0 ? -w.left : 0;
    w.row_to = w.top + job->kernel > job->height ? job->height - w.top : job->kernel;
    w.column_to = w.left + job->kernel > job->width ? job->width - w.left : job->kernel;
    return w;
}

/* Element (i, j) of a window of a picture; it lies within. */
static const float *window_element(const pl_pool_job_t *job, const float *picture,
                                   window_t w, int64_t i, int64_t j)
{
    return picture + ((w.top + i) * job->width + w.left + j) * job->channels;
}

/* y and where of one vector of channels: the largest or the first NaN. */
static void pool_vector(const pl_pool_job_t *job, const float *x, window_t w, float *y,
                        int32_t *where)
{
    const int32_t first = (int32_t)(w.row_from * job->kernel + w.column_from);
    lanes_t best = *(const lanes_t *)window_element(job, x, w, w.row_from, w.column_from);
    lane_numbers_t place = first - (lane_numbers_t){0};
    for (int64_t i = w.row_from; i < w.row_to; i++)
        for (int64_t j = w.column_from; j < w.column_to; j++) {
            const float *at = window_element(job, x, w, i, j);
            const lanes_t from = *(const lanes_t *)at;
            __builtin_prefetch(at + AHEAD * job->channels);
            const lane_numbers_t larger = ~(from <= best) & (best == best);
            const lane_numbers_t here = (int32_t)(i * job->kernel + j)
                                        - (lane_numbers_t){0};
            best = (lanes_t)choose(larger, (lane_numbers_t)from, (lane_numbers_t)best);
            place = choose(larger, here, place);
        }
    *(lanes_t *)y = best;
    memcpy(where, &place, sizeof place);
}

static void pool_channel(const pl_pool_job_t *job, const float *x, window_t w, float *y,
                         int32_t *where)
{
    *where = (int32_t)(w.row_from * job->kernel + w.column_from);
    *y = *window_element(job, x, w, w.row_from, w.column_from);
    for (int64_t i = w.row_from; i < w.row_to; i++)
        for (int64_t j = w.column_from; j < w.column_to; j++) {
            const float from = *window_element(job, x, w, i, j);
            if (from > *y || (from != from && *y == *y)) {
                *y = from;
                *where = (int32_t)(i * job->kernel + j);
            }
        }
}

static void pool_window(const pl_pool_job_t *job, const float *x, window_t w, float *y,
                        int32_t *where)
{
    int64_t c = 0;
    for (; c + LANES <= job->channels; c += LANES)
        pool_vector(job, x + c, w, y + c, where + c);
    for (; c < job->channels; c++)
        pool_channel(job, x + c, w, y + c, where + c);
}

/* Samples [from, to). */
void KERNEL(pool)(const void *of, int64_t from, int64_t to)
{
    const pl_pool_job_t *job = of;
    const int64_t picture = job->height * job->width * job->channels;
    for (int64_t b = from; b < to; b++)
        for (int64_t i = 0; i < job->out_height; i++)
            for (int64_t j = 0; j < job->out_width; j++) {
                int64_t at = ((b * job->out_height + i) * job->out_width + j)
                             * job->channels;
                pool_window(job, job->x + b * picture, window_at(job, i, j), job->y + at,
                            job->where + at);
            }
}

static void give(float *restrict dx, const float *restrict dy,
                 const int32_t *restrict where, int32_t place, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        dx[c] += where[c] == place ? dy[c] : 0.0f;
}

static void give_first(float *restrict dx, const float *restrict dy,
                       const int32_t *restrict where, int32_t place, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        dx[c] = where[c] == place ? dy[c] : 0.0f;
}

static void pool_window_grad(const pl_pool_job_t *job, float *dx, window_t w, int64_t at,
                             bool alone)
{
    const int64_t n = job->channels;
    for (int64_t i = w.row_from; i < w.row_to; i++)
        for (int64_t j = w.column_from; j < w.column_to; j++) {
            float *to = dx + ((w.top + i) * job->width + w.left + j) * n;
            (alone ? give_first : give)(to, job->dy + at, job->where + at,
                                        (int32_t)(i * job->kernel + j), n);
        }
}

/* Windows side by side that cover the whole picture: each place is written once and needs
 * no zero before. */
void KERNEL(pool_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_pool_job_t *job = of;
    const int64_t picture = job->height * job->width * job->channels;
    const bool alone = job->stride == job->kernel && !job->padding
                       && job->out_height * job->stride == job->height
                       && job->out_width * job->stride == job->width;
    if (!alone)
        memset(job->dx + from * picture, 0,
               (size_t)((to - from) * picture) * sizeof *job->dx);
    for (int64_t b = from; b < to; b++)
        for (int64_t i = 0; i < job->out_height; i++)
            for (int64_t j = 0; j < job->out_width; j++) {
                int64_t at = ((b * job->out_height + i) * job->out_width + j)
                             * job->channels;
                pool_window_grad(job, job->dx + b * picture, window_at(job, i, j), at,
                                 alone);
            }
}
