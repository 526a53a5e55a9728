/* recurrent.c - all steps of LSTM and GRU layers, and their gradients
 *
 * A call has some rows of the batch, in all steps, so threads do not wait for each other
 * between steps.  For each step the product of all its rows and the packed weight comes
 * first, and then the gates.  Rows whose length is over take part in the product, with
 * zeros, and are left out of the rest. */
#include <string.h>

#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/products.h"

#define STRIP PL_RECURRENT_STRIP

static int64_t strips_of(const pl_recurrent_job_t *job)
{
    return (job->hidden + STRIP - 1) / STRIP;
}

static int64_t length_of(const pl_recurrent_job_t *job, int64_t row)
{
    return !job->lengths           ? job->steps
           : job->dtype == PL_I64 ? ((const int64_t *)job->lengths)[row]
                                  : ((const int32_t *)job->lengths)[row];
}

/* Strips [from, to) of the packed weight. */
void KERNEL(recurrent_pack)(const void *of, int64_t from, int64_t to)
{
    const pl_recurrent_job_t *job = of;
    const int64_t hidden = job->hidden, strips = strips_of(job),
                  rows = job->dstates ? job->gates * hidden : hidden;
    for (int64_t s = from; s < to; s++) {
        const int64_t first = s % strips * STRIP,
                      count = hidden - first < STRIP ? hidden - first : STRIP;
        float *strip = job->packed + s * rows * STRIP;
        if (count < STRIP)
            memset(strip, 0, (size_t)(rows * STRIP) * sizeof *strip);
        if (!job->dstates)
            transpose_matrix(job->w + (s / strips * hidden + first) * hidden, hidden,
                             strip, STRIP, count, hidden);
        for (int64_t k = 0; k < rows && job->dstates; k++)
            memcpy(strip + k * STRIP, job->w + k * hidden + first,
                   (size_t)count * sizeof *strip);
    }
}

/* State k of a row on one side of its steps. */
static float *state_at(const pl_recurrent_job_t *job, const float *states, int k,
                       int64_t row, int64_t side)
{
    return (float *)states
           + ((k * job->batch + row) * (job->steps + 1) + side) * job->hidden;
}

/* ---- Forward ---- */

/* The gates of a row in place of their sums p, each `wide` numbers from the next. */
static void lstm_gates(float *restrict p, int64_t wide, const float *before,
                       float *restrict h, float *restrict c, int64_t n)
{
#pragma omp simd
    for (int64_t u = 0; u < n; u++) {
        const float i = pl_sigmoidf(p[u]), f = pl_sigmoidf(p[wide + u]),
                    g = pl_tanhf(p[2 * wide + u]), o = pl_sigmoidf(p[3 * wide + u]),
                    next = f * before[u] + i * g;
        p[u] = i;
        p[wide + u] = f;
        p[2 * wide + u] = g;
        p[3 * wide + u] = o;
        c[u] = next;
        h[u] = o * pl_tanhf(next);
    }
}

/* x: the sums of the inputs for the new value; its products have place 3 of p. */
static void gru_gates(float *restrict p, int64_t wide, const float *restrict x,
                      const float *before, float *restrict h, int64_t n)
{
#pragma omp simd
    for (int64_t u = 0; u < n; u++) {
        const float r = pl_sigmoidf(p[u]), z = pl_sigmoidf(p[wide + u]),
                    fresh = pl_tanhf(x[u] + r * p[3 * wide + u]);
        p[u] = r;
        p[wide + u] = z;
        p[2 * wide + u] = fresh;
        h[u] = fresh + z * (before[u] - fresh);
    }
}

/* The place of gate q in a row of sums: a GRU's last one is kept beside the new value. */
static int place_of(const pl_recurrent_job_t *job, int q)
{
    return job->gates == 3 && q == 2 ? 3 : q;
}

/* The sums of step t without the products: bias and inputs. */
static void sums_begin(const pl_recurrent_job_t *job, int64_t row, int64_t t, float *p,
                       int64_t wide)
{
    const int64_t n = job->hidden;
    for (int q = 0; q < job->gates; q++) {
        const float *x = job->x + ((row * job->steps + t) * job->gates + q) * n,
                    *b = job->b + q * n;
        float *to = p + place_of(job, q) * wide;
        const float share = place_of(job, q) == q;
        for (int64_t u = 0; u < n; u++)
            to[u] = b[u] + share * x[u];
        memset(to + n, 0, (size_t)(wide - n) * sizeof *to);
    }
}

static void row_step(const pl_recurrent_job_t *job, int64_t row, int64_t t, float *p,
                     int64_t wide)
{
    const int64_t n = job->hidden, from = job->back ? t + 1 : t,
                  to = job->back ? t : t + 1;
    float *h = state_at(job, job->states, 0, row, to);
    if (job->gates == 4)
        lstm_gates(p, wide, state_at(job, job->states, 1, row, from), h,
                   state_at(job, job->states, 1, row, to), n);
    else
        gru_gates(p, wide, job->x + ((row * job->steps + t) * 3 + 2) * n,
                  state_at(job, job->states, 0, row, from), h, n);
    for (int q = 0; q < 4 && job->kept; q++)
        memcpy(job->kept + ((row * job->steps + t) * 4 + q) * n, p + q * wide,
               (size_t)n * sizeof *p);
}

/* The first state, and zeros behind the steps. */
static void row_begin(const pl_recurrent_job_t *job, int64_t row)
{
    const int64_t n = job->hidden, length = length_of(job, row);
    const size_t state = (size_t)n * sizeof(float);
    for (int k = 0; k < (job->gates == 4 ? 2 : 1); k++) {
        memset(state_at(job, job->states, k, row, length), 0,
               (size_t)(job->steps + 1 - length) * state);
        memcpy(state_at(job, job->states, k, row, job->back ? length : 0),
               job->first + (k * job->batch + row) * n, state);
    }
    if (job->kept)
        memset(job->kept + (row * job->steps + length) * 4 * n, 0,
               (size_t)(job->steps - length) * 4 * state);
}

/* The steps that any of the rows has. */
static int64_t longest_of(const pl_recurrent_job_t *job, int64_t from, int64_t to)
{
    int64_t longest = 0;
    for (int64_t row = from; row < to; row++)
        longest = length_of(job, row) > longest ? length_of(job, row) : longest;
    return longest;
}

/* Rows [from, to) of the batch. */
void KERNEL(recurrent)(const void *of, int64_t from, int64_t to)
{
    const pl_recurrent_job_t *job = of;
    const int64_t n = job->hidden, strips = strips_of(job), wide = strips * STRIP,
                  longest = longest_of(job, from, to);
    float *sums = job->scratch + from * 4 * wide;
    for (int64_t row = from; row < to; row++)
        row_begin(job, row);
    for (int64_t step = 0; step < longest; step++) {
        const int64_t t = job->back ? longest - 1 - step : step;
        for (int64_t row = from; row < to; row++)
            sums_begin(job, row, t, sums + (row - from) * 4 * wide, wide);
        const factor_t h = {state_at(job, job->states, 0, from, job->back ? t + 1 : t),
                            (job->steps + 1) * n, 1};
        for (int64_t s = 0; s < job->gates * strips; s++)
            product(to - from, STRIP, n, h,
                    (side_t){job->packed + s * n * STRIP, STRIP},
                    (side_t){sums + place_of(job, (int)(s / strips)) * wide
                                 + s % strips * STRIP,
                             4 * wide},
                    true);
        for (int64_t row = from; row < to; row++)
            if (t < length_of(job, row))
                row_step(job, row, t, sums + (row - from) * 4 * wide, wide);
    }
}

/* ---- Backward ---- */

/* Gradients of a row: dh and dc behind a step become those before it, but for the
 * products' share of dh; dp is of the sums of the gates. */
static void lstm_slopes(const float *restrict kept, const float *before,
                        const float *behind, float *restrict dh, float *restrict dc,
                        float *restrict dp, int64_t n)
{
#pragma omp simd
    for (int64_t u = 0; u < n; u++) {
        const float i = kept[u], f = kept[n + u], g = kept[2 * n + u],
                    o = kept[3 * n + u], a = pl_tanhf(behind[u]),
                    d = dc[u] + dh[u] * o * (1.0f - a * a);
        dp[u] = d * g * i * (1.0f - i);
        dp[n + u] = d * before[u] * f * (1.0f - f);
        dp[2 * n + u] = d * i * (1.0f - g * g);
        dp[3 * n + u] = dh[u] * a * o * (1.0f - o);
        dc[u] = d * f;
        dh[u] = 0.0f;
    }
}

/* dx is of the inputs of the new value, and dp of its products. */
static void gru_slopes(const float *restrict kept, const float *before,
                       float *restrict dh, float *restrict dx, float *restrict dp,
                       int64_t n)
{
#pragma omp simd
    for (int64_t u = 0; u < n; u++) {
        const float r = kept[u], z = kept[n + u], fresh = kept[2 * n + u],
                    d = dh[u] * (1.0f - z) * (1.0f - fresh * fresh);
        dp[u] = d * kept[3 * n + u] * r * (1.0f - r);
        dp[n + u] = dh[u] * (before[u] - fresh) * z * (1.0f - z);
        dp[2 * n + u] = d * r;
        dx[u] = d;
        dh[u] *= z;
    }
}

/* Adds the gradient of a row's states on one side of the steps to its sums. */
static void states_add(const pl_recurrent_job_t *job, int64_t row, int64_t side,
                       float *const sum[2])
{
    for (int k = 0; k < (job->gates == 4 ? 2 : 1); k++) {
        const float *d = state_at(job, job->dstates, k, row, side);
        for (int64_t u = 0; u < job->hidden; u++)
            sum[k][u] += d[u];
    }
}

/* Step t of a row; it leaves the gradient of the gates in dp, zeros if the row has no
 * such step. */
static void row_step_back(const pl_recurrent_job_t *job, int64_t row, int64_t t,
                          float *const sum[2], float *dp)
{
    const int64_t n = job->hidden, wide = job->gates * n, at = row * job->steps + t,
                  behind = job->back ? t : t + 1, before = job->back ? t + 1 : t;
    const float *kept = job->kept + at * 4 * n;
    float *dx = job->dx ? job->dx + at * wide : NULL;
    const bool is_over = t >= length_of(job, row);
    if (is_over) {
        memset(dp, 0, (size_t)wide * sizeof *dp);
    } else {
        states_add(job, row, behind, sum);
        if (job->gates == 4)
            lstm_slopes(kept, state_at(job, job->states, 1, row, before),
                        state_at(job, job->states, 1, row, behind), sum[0], sum[1], dp,
                        n);
        else                               /* sum[1] is free for those of the inputs */
            gru_slopes(kept, state_at(job, job->states, 0, row, before), sum[0], sum[1],
                       dp, n);
    }
    if (job->dproducts)
        memcpy(job->dproducts + at * wide, dp, (size_t)wide * sizeof *dp);
    if (dx)
        memcpy(dx, dp, (size_t)wide * sizeof *dp);
    if (dx && job->gates == 3 && !is_over)
        memcpy(dx + 2 * n, sum[1], (size_t)n * sizeof *dx);
}

/* Rows [from, to) of the batch. */
void KERNEL(recurrent_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_recurrent_job_t *job = of;
    const int64_t n = job->hidden, depth = job->gates * n, strips = strips_of(job),
                  wide = strips * STRIP, rows = to - from;
    float *dp = job->scratch + from * (4 + 2) * wide, *dh = dp + rows * 4 * wide,
          *dc = dh + rows * wide;
    memset(dh, 0, (size_t)(2 * rows * wide) * sizeof *dh);
    for (int64_t step = 0; step < job->steps; step++) {
        const int64_t t = job->back ? step : job->steps - 1 - step;
        for (int64_t i = 0; i < rows; i++)
            row_step_back(job, from + i, t, (float *[]){dh + i * wide, dc + i * wide},
                          dp + i * depth);
        if (t >= longest_of(job, from, to))
            continue;
        for (int64_t s = 0; s < strips; s++)
            product(rows, STRIP, depth, (factor_t){dp, depth, 1},
                    (side_t){job->packed + s * depth * STRIP, STRIP},
                    (side_t){dh + s * STRIP, wide}, true);
    }
    for (int64_t i = 0; i < rows && job->dfirst; i++) {
        float *const sum[] = {dh + i * wide, dc + i * wide};
        states_add(job, from + i, job->back ? length_of(job, from + i) : 0, sum);
        for (int k = 0; k < (job->gates == 4 ? 2 : 1); k++)
            memcpy(job->dfirst + (k * job->batch + from + i) * n, sum[k],
                   (size_t)n * sizeof *dh);
    }
}
