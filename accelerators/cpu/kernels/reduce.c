/* reduce.c - sums over any axes, and the largest along one */
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/rows.h"

/* ---- Sums ---- */

#define STRIP 128
#define STRIP_ROWS 256

/* y += sums of the columns of x [rows, width], strip by strip: sums of 256 rows in
 * float32, of those in float64. */
static void sum_columns(const float *x, int64_t rows, int64_t width, int64_t from,
                        int64_t to, float *y)
{
    for (int64_t c = from; c < to; c += STRIP) {
        const int n = to - c < STRIP ? (int)(to - c) : STRIP;
        double total[STRIP] = {0};
        for (int64_t r = 0; r < rows; r += STRIP_ROWS) {
            float sum[STRIP] = {0};
            const int64_t end = r + STRIP_ROWS < rows ? r + STRIP_ROWS : rows;
            for (int64_t i = r; i < end; i++)
                for (int k = 0; k < n; k++)
                    sum[k] += x[i * width + c + k];
            for (int k = 0; k < n; k++)
                total[k] += (double)sum[k];
        }
        for (int k = 0; k < n; k++)
            y[c + k] += (float)total[k];
    }
}

/* Dims from d on, of which dim `split` runs over [from, to) only. */
static void sum_from(const pl_sum_job_t *job, int d, const float *x, float *y,
                     int64_t from, int64_t to)
{
    const int last = job->rank - 1;
    const int64_t low = d == job->split ? from : 0,
                  high = d == job->split ? to : job->dim[d];
    if (d == last && job->summed[d]) {
        *y += (float)row_sum(x + low, 0.0f, high - low);
    } else if (d == last) {
        for (int64_t i = low; i < high; i++)
            y[i] += x[i];
    } else if (d == last - 1 && job->summed[d]) {
        const int64_t width = job->dim[last], left = job->split == last ? from : 0;
        sum_columns(x + low * width, high - low, width, left,
                    job->split == last ? to : width, y);
    } else {
        int64_t step = 1, y_step = job->summed[d] ? 0 : 1;
        for (int k = d + 1; k < job->rank; k++) {
            step *= job->dim[k];
            y_step *= job->summed[k] ? 1 : job->dim[k];
        }
        for (int64_t i = low; i < high; i++)
            sum_from(job, d + 1, x + i * step, y + i * y_step, from, to);
    }
}

void KERNEL(sum)(const void *of, int64_t from, int64_t to)
{
    const pl_sum_job_t *job = of;
    sum_from(job, 0, job->x, job->y, from, to);
}

void KERNEL(add)(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* ---- Maxima; a NaN is larger than anything, as in PyTorch ---- */

static bool is_larger(float x, float best)
{
    return x > best || (x != x && best == best);
}

/* [from, to) of the outer × inner results. */
void KERNEL(max)(const void *of, int64_t from, int64_t to)
{
    const pl_max_job_t *job = of;
    for (int64_t k = from; k < to; k++) {
        const float *x = job->x + k / job->inner * job->n * job->inner + k % job->inner;
        int64_t best = 0;
        for (int64_t i = 1; i < job->n; i++)
            if (is_larger(x[i * job->inner], x[best * job->inner]))
                best = i;
        if (job->to)
            job->to[k] = x[best * job->inner];
        if (job->index)
            job->index[k] = (int32_t)best;
    }
}

void KERNEL(max_grad)(const void *of, int64_t from, int64_t to)
{
    const pl_max_job_t *job = of;
    for (int64_t k = from; k < to; k++) {
        int64_t start = k / job->inner * job->n * job->inner + k % job->inner, best = 0;
        const float *x = job->x + start;
        for (int64_t i = 1; i < job->n; i++)
            if (is_larger(x[i * job->inner], x[best * job->inner]))
                best = i;
        for (int64_t i = 0; i < job->n; i++)
            job->to[start + i * job->inner] = i == best ? job->dy[k] : 0.0f;
    }
}
