/* move.c - copies between two layouts: permute, slice, concat, broadcast; interpolate
 *
 * Dims are merged by the caller.  Two cases carry nearly all: runs of neighbours on both
 * sides, and a transpose of the last two dims. */
#include "accelerators/cpu/kernels/kernels.h"

#include <string.h>

#include "accelerators/cpu/kernels/vectors.h"

static void copy_strided(const char *x, int64_t x_stride, char *y, int64_t y_stride,
                         int64_t n, int size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(y + i * y_stride * size, x + i * x_stride * size, (size_t)size);
}

static void move_from(const pl_move_job_t *job, int d, const char *x, char *y,
                      int64_t low, int64_t high)
{
    if (d == job->rank - 1) {
        if (job->from[d] == 1 && job->to[d] == 1)
            memcpy(y, x, (size_t)(job->dim[d] * job->size));
        else if (job->size == 4)
            copy_strided(x, job->from[d], y, job->to[d], job->dim[d], 4);
        else
            copy_strided(x, job->from[d], y, job->to[d], job->dim[d], job->size);
        return;
    }
    if (d == job->rank - 2 && job->size == 4 && job->from[d] == 1
        && job->to[d + 1] == 1) {
        transpose_matrix((const float *)x + low, job->from[d + 1],
                         (float *)y + low * job->to[d], job->to[d], job->dim[d + 1],
                         high - low);
        return;
    }
    for (int64_t i = low; i < high; i++)
        move_from(job, d + 1, x + i * job->from[d] * job->size,
                  y + i * job->to[d] * job->size, 0, job->dim[d + 1]);
}

/* [from, to) along the first dim; there are at least two. */
void KERNEL(move)(const void *of, int64_t from, int64_t to)
{
    const pl_move_job_t *job = of;
    move_from(job, 0, job->x, job->y, from, to);
}

/* [from, to): elements of the axis, over all of outer. */
void KERNEL(interpolate)(const void *of, int64_t from, int64_t to)
{
    const pl_interpolate_job_t *job = of;
    for (int64_t row = from; row < to; row++) {
        const int64_t j = row % job->count;
        const float *x = job->x + row / job->count * job->size * job->inner;
        float *y = job->y + row * job->inner;
        const pl_interpolate_term_t *term = job->term + job->first[j],
                                    *end = job->term + job->first[j + 1];
        if (job->inner == 1) {
            float sum = 0;
            for (; term < end; term++)
                sum += term->weight * x[term->source];
            *y = sum;
            continue;
        }
        for (int64_t i = 0; i < job->inner && term == end; i++)
            y[i] = 0;
        for (bool adds = false; term < end; term++, adds = true) {
            const float *source = x + term->source * job->inner, weight = term->weight;
            if (adds)
                for (int64_t i = 0; i < job->inner; i++)
                    y[i] += weight * source[i];
            else
                for (int64_t i = 0; i < job->inner; i++)
                    y[i] = weight * source[i];
        }
    }
}
