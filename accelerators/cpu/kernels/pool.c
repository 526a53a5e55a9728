/* pool.c - largest and mean of windows, channels last
 *
 * Channels are neighbours, so that the comparisons of a window run over vectors of them.
 * Padding never wins. */
#include "accelerators/cpu/kernels/kernels.h"

#include <string.h>

#include "accelerators/cpu/kernels/vectors.h"

#define AHEAD 8                       /* distance of a prefetch, in places of a picture */

/* The elements of a window along one axis: [from, to) of its numbers lie within x, and
 * number k lies at start + k dilation. */
typedef struct range {
    int64_t start, from, to;
} range_t;

typedef struct window {
    range_t along[PL_SPACE];
} window_t;

static range_t range_at(const pl_pool_job_t *job, int axis, int64_t i)
{
    const int64_t dilation = job->window.dilation[axis], size = job->in[axis],
                  n = job->out[axis];
    if (job->adaptive) {
        const int64_t start = i * size / n;
        return (range_t){start, 0, ((i + 1) * size + n - 1) / n - start};
    }
    range_t r = {.start = i * job->window.stride[axis] - job->window.before[axis],
                 .to = job->window.kernel[axis]};
    if (r.start < 0)
        r.from = (-r.start + dilation - 1) / dilation;
    if (r.start + (r.to - 1) * dilation >= size)
        r.to = (size - r.start + dilation - 1) / dilation;
    return r;
}

/* The first element of a row of a window, number 0 along the last axis. */
static int64_t row_at(const pl_pool_job_t *job, const window_t *w, int64_t k, int64_t i)
{
    const range_t *r = w->along;
    const int64_t z = r[0].start + k * job->window.dilation[0],
                  y = r[1].start + i * job->window.dilation[1];
    return ((z * job->in[1] + y) * job->in[2] + r[2].start) * job->channels;
}

/* The number of an element within its window. */
static int32_t number_of(const pl_pool_job_t *job, int64_t k, int64_t i, int64_t j)
{
    return (int32_t)((k * job->window.kernel[1] + i) * job->window.kernel[2] + j);
}

/* y and where of one vector of channels: the largest or the first NaN. */
static void pool_vector(const pl_pool_job_t *job, const float *x, const window_t *w,
                        float *y, int32_t *where)
{
    const range_t *r = w->along;
    const int64_t step = job->window.dilation[2] * job->channels;
    const int32_t first = number_of(job, r[0].from, r[1].from, r[2].from);
    lanes_t best =
        *(const lanes_t *)(x + row_at(job, w, r[0].from, r[1].from) + r[2].from * step);
    lane_numbers_t place = first - (lane_numbers_t){0};
    for (int64_t k = r[0].from; k < r[0].to; k++)
        for (int64_t i = r[1].from; i < r[1].to; i++) {
            const float *row = x + row_at(job, w, k, i);
            for (int64_t j = r[2].from; j < r[2].to; j++) {
                const lanes_t from = *(const lanes_t *)(row + j * step);
                __builtin_prefetch(row + j * step + AHEAD * job->channels);
                const lane_numbers_t larger = ~(from <= best) & (best == best);
                const lane_numbers_t here = number_of(job, k, i, j) - (lane_numbers_t){0};
                best = (lanes_t)choose(larger, (lane_numbers_t)from,
                                       (lane_numbers_t)best);
                place = choose(larger, here, place);
            }
        }
    *(lanes_t *)y = best;
    memcpy(where, &place, sizeof place);
}

static void pool_channel(const pl_pool_job_t *job, const float *x, const window_t *w,
                         float *y, int32_t *where)
{
    const range_t *r = w->along;
    const int64_t step = job->window.dilation[2] * job->channels;
    *where = number_of(job, r[0].from, r[1].from, r[2].from);
    *y = x[row_at(job, w, r[0].from, r[1].from) + r[2].from * step];
    for (int64_t k = r[0].from; k < r[0].to; k++)
        for (int64_t i = r[1].from; i < r[1].to; i++) {
            const float *row = x + row_at(job, w, k, i);
            for (int64_t j = r[2].from; j < r[2].to; j++) {
                const float from = row[j * step];
                if (from > *y || (from != from && *y == *y)) {
                    *y = from;
                    *where = number_of(job, k, i, j);
                }
            }
        }
}

static void pool_window(const pl_pool_job_t *job, const window_t *w, int64_t b,
                        int64_t at)
{
    const float *x = job->x + b * job->in[0] * job->in[1] * job->in[2] * job->channels;
    int64_t c = 0;
    for (; c + LANES <= job->channels; c += LANES)
        pool_vector(job, x + c, w, job->y + at + c, job->where + at + c);
    for (; c < job->channels; c++)
        pool_channel(job, x + c, w, job->y + at + c, job->where + at + c);
}

/* Calls a function for each window of samples [from, to); `at` is its first output. */
PL_INLINE void each_window(const pl_pool_job_t *job, int64_t from, int64_t to,
                           void (*call)(const pl_pool_job_t *job, const window_t *w,
                                        int64_t b, int64_t at))
{
    window_t w;
    int64_t at = from * job->out[0] * job->out[1] * job->out[2] * job->channels;
    for (int64_t b = from; b < to; b++)
        for (int64_t k = 0; k < job->out[0]; k++) {
            w.along[0] = range_at(job, 0, k);
            for (int64_t i = 0; i < job->out[1]; i++) {
                w.along[1] = range_at(job, 1, i);
                for (int64_t j = 0; j < job->out[2]; j++, at += job->channels) {
                    w.along[2] = range_at(job, 2, j);
                    call(job, &w, b, at);
                }
            }
        }
}

/* Samples [from, to). */
void KERNEL(pool)(const void *of, int64_t from, int64_t to)
{
    each_window(of, from, to, pool_window);
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

static void pool_rows_grad(const pl_pool_job_t *job, const window_t *w, int64_t b,
                           int64_t at,
                           void (*to)(float *restrict, const float *restrict,
                                      const int32_t *restrict, int32_t, int64_t))
{
    const range_t *r = w->along;
    const int64_t n = job->channels, step = job->window.dilation[2] * n;
    float *dx = job->dx + b * job->in[0] * job->in[1] * job->in[2] * n;
    for (int64_t k = r[0].from; k < r[0].to; k++)
        for (int64_t i = r[1].from; i < r[1].to; i++) {
            float *row = dx + row_at(job, w, k, i);
            for (int64_t j = r[2].from; j < r[2].to; j++)
                to(row + j * step, job->dy + at, job->where + at, number_of(job, k, i, j),
                   n);
        }
}

static void pool_window_grad(const pl_pool_job_t *job, const window_t *w, int64_t b,
                             int64_t at)
{
    pool_rows_grad(job, w, b, at, give);
}

static void pool_window_grad_alone(const pl_pool_job_t *job, const window_t *w, int64_t b,
                                   int64_t at)
{
    pool_rows_grad(job, w, b, at, give_first);
}

/* Windows side by side that cover all of x: each place is written once and needs no zero
 * before. */
void KERNEL(pool_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_pool_job_t *job = of;
    const pl_window_t *w = &job->window;
    const int64_t sample = job->in[0] * job->in[1] * job->in[2] * job->channels;
    bool alone = !job->adaptive;
    for (int k = 0; k < PL_SPACE; k++)
        alone &= w->stride[k] == w->kernel[k] && w->dilation[k] == 1 && !w->before[k]
                 && job->out[k] * w->stride[k] == job->in[k];
    if (!alone)
        memset(job->dx + from * sample, 0,
               (size_t)((to - from) * sample) * sizeof *job->dx);
    each_window(job, from, to, alone ? pool_window_grad_alone : pool_window_grad);
}

/* ---- Mean ---- */

/* 1 / the elements of a window, padding included if it counts, but none beyond it. */
static float share_of(const pl_pool_job_t *job, const window_t *w)
{
    int64_t all = 1;
    for (int k = 0; k < PL_SPACE; k++) {
        const range_t *r = &w->along[k];
        const int64_t left = job->in[k] + job->window.before[k] - r->start,
                      kernel = job->window.kernel[k];
        all *= !job->adaptive && job->counts_padding ? (kernel < left ? kernel : left)
                                                     : r->to - r->from;
    }
    return 1 / (float)all;
}

static void average_window(const pl_pool_job_t *job, const window_t *w, int64_t b,
                           int64_t at)
{
    const range_t *r = w->along;
    const int64_t n = job->channels;
    const float *x = job->x + b * job->in[0] * job->in[1] * job->in[2] * n,
                share = share_of(job, w);
    for (int64_t c = 0; c < n; c += LANES) {
        const int64_t lanes = n - c < LANES ? n - c : LANES;
        lanes_t sum = {0};
        for (int64_t k = r[0].from; k < r[0].to; k++)
            for (int64_t i = r[1].from; i < r[1].to; i++) {
                const float *row = x + row_at(job, w, k, i) + c;
                for (int64_t j = r[2].from; j < r[2].to; j++) {
                    if (lanes == LANES)
                        sum += *(const lanes_t *)(row + j * n);
                    else
                        for (int64_t l = 0; l < lanes; l++)
                            sum[l] += row[j * n + l];
                }
            }
        sum *= share;
        memcpy(job->y + at + c, &sum, (size_t)lanes * sizeof(float));
    }
}

/* Samples [from, to). */
void KERNEL(average)(const void *of, int64_t from, int64_t to)
{
    each_window(of, from, to, average_window);
}

static void spread(float *restrict dx, const float *restrict dy, float share, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        dx[c] += dy[c] * share;
}

static void average_window_grad(const pl_pool_job_t *job, const window_t *w, int64_t b,
                                int64_t at)
{
    const range_t *r = w->along;
    const int64_t n = job->channels;
    const float share = share_of(job, w);
    float *dx = job->dx + b * job->in[0] * job->in[1] * job->in[2] * n;
    for (int64_t k = r[0].from; k < r[0].to; k++)
        for (int64_t i = r[1].from; i < r[1].to; i++) {
            float *row = dx + row_at(job, w, k, i);
            for (int64_t j = r[2].from; j < r[2].to; j++)
                spread(row + j * n, job->dy + at, share, n);
        }
}

void KERNEL(average_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_pool_job_t *job = of;
    const int64_t sample = job->in[0] * job->in[1] * job->in[2] * job->channels;
    memset(job->dx + from * sample, 0, (size_t)((to - from) * sample) * sizeof *job->dx);
    each_window(job, from, to, average_window_grad);
}
