/* norms.c - layer norm over rows (also RMS and group norm), batch norm over channels
 *
 * Both take the mean first and the deviations from it second: the one-pass formula
 * loses all digits where the mean is large beside the deviation.  For the same reason
 * the mean is computed from the differences to the first value: it is exact where all
 * values are the same. */
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/functions.h"

/* ---- Layer norm ---- */

void KERNEL(layer_norm)(const void *of, int64_t from, int64_t to)
{
    const pl_layer_norm_job_t *job = of;
    const int64_t n = job->width, plain = job->run == 1 ? n : 0;
    for (int64_t r = from; r < to; r++) {
        const int64_t set = r % job->sets * job->channels;
        const float *x = job->x + r * n, *w = job->w + set, *b = job->b + set;
        float *y = job->y + r * n, mean = 0.0f;
        if (!job->is_rms)
            mean = (float)((double)x[0] + row_sum(x, x[0], n) / (double)n);
        float rstd =
            (float)(1.0
                    / sqrt(row_squares(x, mean, n) / (double)n + (double)job->epsilon));
#pragma GCC ivdep
        for (int64_t i = 0; i < plain; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
        for (int64_t c = 0; c < job->channels && job->run > 1; c++)
#pragma GCC ivdep
            for (int64_t i = c * job->run; i < (c + 1) * job->run; i++)
                y[i] = (x[i] - mean) * rstd * w[c] + b[c];
        if (job->mean)
            job->mean[r] = mean;
        if (job->rstd)
            job->rstd[r] = rstd;
    }
}

typedef struct two_sums {
    float a, b;
} two_sums_t;

/* The sums of dy w and of dy w x', and this row's share of dw and db, in one pass. */
PL_INLINE two_sums_t layer_norm_row_sums(const pl_layer_norm_job_t *job, int64_t set,
                                         const float *x, const float *dy, float mean,
                                         float rstd)
{
    const float *w = job->w + set;
    float *dw = job->dw + set, *db = job->db + set, a = 0.0f, b = 0.0f;
#pragma omp simd reduction(+ : a, b)
    for (int64_t i = 0; i < job->width; i++) {
        float unit = (x[i] - mean) * rstd, g = dy[i] * w[i];
        a += g;
        b += g * unit;
        dw[i] += dy[i] * unit;
        db[i] += dy[i];
    }
    return (two_sums_t){a, b};
}

/* The same if a weight is for a run of elements. */
static two_sums_t layer_norm_run_sums(const pl_layer_norm_job_t *job, int64_t set,
                                      const float *x, const float *dy, float mean,
                                      float rstd)
{
    double a = 0.0, b = 0.0;
    for (int64_t c = 0; c < job->channels; c++) {
        double all = 0.0, product = 0.0;
        const int64_t end = (c + 1) * job->run;
        for (int64_t k = c * job->run; k < end; k += ROW_PIECE) {
            float p = 0.0f, q = 0.0f;
#pragma omp simd reduction(+ : p, q)
            for (int64_t i = k; i < (k + ROW_PIECE < end ? k + ROW_PIECE : end); i++) {
                p += dy[i];
                q += dy[i] * (x[i] - mean);
            }
            all += (double)p;
            product += (double)q;
        }
        product *= (double)rstd;
        job->db[set + c] += (float)all;
        job->dw[set + c] += (float)product;
        a += (double)job->w[set + c] * all;
        b += (double)job->w[set + c] * product;
    }
    return (two_sums_t){(float)a, (float)b};
}

/* dx may be dy or x. */
void KERNEL(layer_norm_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_layer_norm_job_t *job = of;
    const int64_t n = job->width, plain = job->run == 1 ? n : 0;
    for (int64_t r = from; r < to; r++) {
        const int64_t set = r % job->sets * job->channels;
        const float *x = job->x + r * n, *dy = job->dy + r * n, *w = job->w + set;
        const float mean = job->mean[r], rstd = job->rstd[r];
        const two_sums_t sums = job->run == 1
                                    ? layer_norm_row_sums(job, set, x, dy, mean, rstd)
                                    : layer_norm_run_sums(job, set, x, dy, mean, rstd);
        const float a = job->is_rms ? 0.0f : sums.a / (float)n, b = sums.b / (float)n;
        float *dx = job->dx + r * n;
        if (!job->dx)
            continue;
#pragma GCC ivdep
        for (int64_t i = 0; i < plain; i++)
            dx[i] = rstd * (dy[i] * w[i] - a - (x[i] - mean) * rstd * b);
        for (int64_t c = 0; c < job->channels && job->run > 1; c++)
#pragma GCC ivdep
            for (int64_t i = c * job->run; i < (c + 1) * job->run; i++)
                dx[i] = rstd * (dy[i] * w[c] - a - (x[i] - mean) * rstd * b);
    }
}

/* ---- Batch norm ---- */

#define LANES 16
#define ROWS_PIECE 128

typedef struct column_sums {
    double a[LANES], b[LANES];
} column_sums_t;

/* With channels last: sums over rows of (x - mean) and (x - mean)^2, or of dy and dy (x -
 * mean), of `lanes` channels. */
PL_INLINE void column_sums(const pl_batch_norm_job_t *job, int64_t first, int lanes,
                           const float *mean, column_sums_t *sums)
{
    const int64_t width = job->channels, rows = job->batch;
    const float *x = job->x + first, *y = (job->dy ? job->dy : job->x) + first;
    float other[LANES] = {0};
    for (int k = 0; k < lanes && !job->dy; k++)
        other[k] = mean[k];
    *sums = (column_sums_t){{0}, {0}};
    for (int64_t r = 0; r < rows; r += ROWS_PIECE) {
        float a[LANES] = {0}, b[LANES] = {0};
        const int64_t end = r + ROWS_PIECE < rows ? r + ROWS_PIECE : rows;
        for (int64_t i = r * width; i < end * width; i += width)
            for (int k = 0; k < lanes; k++) {
                float g = y[i + k] - other[k];
                a[k] += g;
                b[k] += g * (x[i + k] - mean[k]);
            }
        for (int k = 0; k < lanes; k++) {
            sums->a[k] += (double)a[k];
            sums->b[k] += (double)b[k];
        }
    }
}

/* The same with channels before space, for one channel. */
static void run_sums(const pl_batch_norm_job_t *job, int64_t c, float mean, double *a,
                     double *b)
{
    const float *factor = job->dy ? job->dy : job->x;
    const float other = job->dy ? 0.0f : mean;
    *a = *b = 0.0;
    for (int64_t s = 0; s < job->batch; s++) {
        const float *x = job->x + (s * job->channels + c) * job->inner;
        const float *y = factor + (s * job->channels + c) * job->inner;
        for (int64_t k = 0; k < job->inner; k += ROW_PIECE) {
            const int64_t end = k + ROW_PIECE < job->inner ? k + ROW_PIECE : job->inner;
            float p = 0.0f, q = 0.0f;
#pragma omp simd reduction(+ : p, q)
            for (int64_t i = k; i < end; i++) {
                float g = y[i] - other;
                p += g;
                q += g * (x[i] - mean);
            }
            *a += (double)p;
            *b += (double)q;
        }
    }
}

static void sums_of(const pl_batch_norm_job_t *job, int64_t c, int lanes,
                    const float *mean, column_sums_t *sums)
{
    if (job->inner == 1 && lanes == LANES)
        column_sums(job, c, LANES, mean,
                    sums);           /* a constant: the loops over lanes become vectors */
    else if (job->inner == 1)
        column_sums(job, c, lanes, mean, sums);
    else
        for (int k = 0; k < lanes; k++)
            run_sums(job, c + k, mean[k], &sums->a[k], &sums->b[k]);
}

/* Channels [from, to).  The second round corrects the mean of the first, which a first
 * value far from the others may have cost digits. */
void KERNEL(batch_norm_statistics)(const void *of, int64_t from, int64_t to)
{
    const pl_batch_norm_job_t *job = of;
    const double n = (double)(job->batch * job->inner);
    for (int64_t c = from; c < to; c += LANES) {
        int lanes = to - c < LANES ? (int)(to - c) : LANES;
        column_sums_t sums;
        float mean[LANES] = {0};
        for (int k = 0; k < lanes; k++)
            mean[k] = job->x[(c + k) * job->inner];
        sums_of(job, c, lanes, mean, &sums);
        for (int k = 0; k < lanes; k++)
            mean[k] = (float)((double)mean[k] + sums.a[k] / n);
        sums_of(job, c, lanes, mean, &sums);
        for (int k = 0; k < lanes; k++) {
            const double off = sums.a[k] / n, var = sums.b[k] / n - off * off;
            job->mean[c + k] = (float)((double)mean[k] + off);
            job->var[c + k] = var < 0.0 ? 0.0f : (float)var;
        }
    }
}

/* dw and db of channels [from, to). */
void KERNEL(batch_norm_sums)(const void *of, int64_t from, int64_t to)
{
    const pl_batch_norm_job_t *job = of;
    for (int64_t c = from; c < to; c += LANES) {
        int lanes = to - c < LANES ? (int)(to - c) : LANES;
        column_sums_t sums;
        sums_of(job, c, lanes, job->mean + c, &sums);
        for (int k = 0; k < lanes; k++) {
            float rstd = 1.0f / sqrtf(job->var[c + k] + job->epsilon);
            job->dw[c + k] = (float)(sums.b[k] * (double)rstd);
            job->db[c + k] = (float)sums.a[k];
        }
    }
}

/* y = (x - mean) p + q, over samples [from, to); y may be x. */
void KERNEL(batch_norm)(const void *of, int64_t from, int64_t to)
{
    const pl_batch_norm_job_t *job = of;
    const int64_t channels = job->channels, inner = job->inner;
    const float *x = job->x, *mean = job->mean, *p = job->p, *q = job->q;
    float *y = job->y;
    for (int64_t i = from * channels; i < to * channels && inner == 1; i += channels)
#pragma GCC ivdep
        for (int64_t c = 0; c < channels; c++)
            y[i + c] = (x[i + c] - mean[c]) * p[c] + q[c];
    for (int64_t k = from * channels; k < to * channels && inner > 1; k++) {
        const float m = mean[k % channels], a = p[k % channels], b = q[k % channels];
#pragma GCC ivdep
        for (int64_t i = k * inner; i < (k + 1) * inner; i++)
            y[i] = (x[i] - m) * a + b;
    }
}

/* dx = (dy - q - (x - mean) p) r, over samples [from, to); dx may be x or dy. */
void KERNEL(batch_norm_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_batch_norm_job_t *job = of;
    const int64_t channels = job->channels, inner = job->inner;
    const float *x = job->x, *dy = job->dy, *mean = job->mean, *p = job->p, *q = job->q,
                *r = job->r;
    float *dx = job->dx;
    for (int64_t i = from * channels; i < to * channels && inner == 1; i += channels)
#pragma GCC ivdep
        for (int64_t c = 0; c < channels; c++)
            dx[i + c] = (dy[i + c] - q[c] - (x[i + c] - mean[c]) * p[c]) * r[c];
    for (int64_t k = from * channels; k < to * channels && inner > 1; k++) {
        const float m = mean[k % channels], a = p[k % channels], b = q[k % channels],
                    c = r[k % channels];
#pragma GCC ivdep
        for (int64_t i = k * inner; i < (k + 1) * inner; i++)
            dx[i] = (dy[i] - b - (x[i] - m) * a) * c;
    }
}
