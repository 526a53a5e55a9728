/* slices.c - a product of the library cut into slices, which threads compute at once
 *
 * Matrices are cut along a batch axis or along the rows of the result, very wide ones
 * along the columns; all threads read the other factor.  Convolutions are cut along the
 * batch; for a gradient of the weights each slice is a sum over its images, and the sums
 * are added in the order of the slices. */
#include "accelerators/cpu/library.h"

#include "base/alloc.h"
#include "base/error.h"

#define WORK_MIN (1 << 18)             /* multiplications worth a second thread */
#define GRAIN 16                       /* rows or columns that stay in one slice */
#define WIDE 8                         /* columns per row from which on columns are cut */

typedef struct slice {
    pl_cpu_product_t *product;
    pl_unfolded_t *unfolded;             /* in place of the product  [NULL] */
    int64_t offset[4];                   /* of its arguments, in elements */
    size_t scratch;                      /* offset of its scratch */
    float *sum;                          /* of this run: its partial sum [NULL: no sum] */
    pl_error_t error;                    /* of this run */
    int code;
} slice_t;

struct pl_slices {
    int count, capacity;
    slice_t *slice;
    size_t scratch;
    int64_t summed;                              /* elements of a sum over slices, or 0 */
};

static pl_slices_t *slices_new(int capacity, pl_error_t *err)
{
    pl_slices_t *s = pl_alloc(sizeof *s);
    if (s) {
        s->capacity = capacity;
        s->slice = pl_alloc_array((size_t)capacity, sizeof *s->slice);
    }
    if (s && s->slice)
        return s;
    pl_slices_free(s);
    pl_no_memory(err);
    return NULL;
}

void pl_slices_free(pl_slices_t *s)
{
    if (!s)
        return;
    for (int k = 0; s->slice && k < s->count; k++) {
        pl_cpu_product_free(s->slice[k].product);
        pl_unfolded_free(s->slice[k].unfolded);
    }
    pl_free(s->slice);
    pl_free(s);
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Takes ownership of the product, or of the other one; false if both are NULL. */
static bool slice_add(pl_slices_t *s, pl_cpu_product_t *product, pl_unfolded_t *unfolded,
                      const int64_t offset[4])
{
    if (!product && !unfolded)
        return false;
    slice_t *slice = &s->slice[s->count];
    slice->product = product;
    slice->unfolded = unfolded;
    for (int i = 0; i < 4; i++)
        slice->offset[i] = offset[i];
    if (s->count++ > 0)                         /* the first slice writes to the result */
        s->scratch += aligned((size_t)s->summed * sizeof(float));
    slice->scratch = s->scratch;
    s->scratch += aligned(unfolded ? pl_unfolded_scratch(unfolded)
                                   : pl_cpu_product_scratch(product));
    return true;
}

/* ---- Matrices ---- */

/* Reduces a matrix to [from, to) of an axis, except if it is repeated along that axis.
 * Returns the offset in elements. */
static int64_t matrix_cut(pl_matrix_t *x, int axis, int64_t from, int64_t to)
{
    if (x->dim[axis] == 1)
        return 0;
    x->dim[axis] = to - from;
    return from * x->stride[axis];
}

/* Cuts the longest batch axis if it has an item for each thread, else rows or columns. */
pl_slices_t *pl_slices_matmul(pl_library_t *library, int threads, const pl_matmul_t *m,
                              pl_error_t *err)
{
    const int rows = m->rank - 2, columns = m->rank - 1;
    int longest = 0;
    double work = (double)m->a.dim[m->rank - 1];
    for (int i = 0; i < m->rank; i++)
        work *= (double)m->c.dim[i];
    for (int i = 1; i < rows; i++)
        if (m->c.dim[i] > m->c.dim[longest])
            longest = i;
    const int many = work < WORK_MIN ? 1 : threads,
              axis = rows > 0 && m->c.dim[longest] >= many       ? longest
                     : m->c.dim[columns] < WIDE * m->c.dim[rows] ? rows
                                                                 : columns;
    const int64_t n = m->c.dim[axis],
                  piece = pl_parallel_piece(many, n, axis < rows ? 1 : GRAIN);
    pl_slices_t *s = slices_new(many, err);
    bool made = s != NULL;
    for (int64_t from = 0; made && from < n; from += piece) {
        const int64_t to = from + piece < n ? from + piece : n;
        pl_matmul_t own = *m;
        int64_t offset[4] = {0};
        if (axis != columns)
            offset[0] = matrix_cut(&own.a, axis, from, to);
        if (axis != rows)
            offset[1] = matrix_cut(&own.b, axis, from, to);
        offset[2] = axis == columns ? from : 0;
        offset[3] = matrix_cut(&own.c, axis, from, to);
        made = slice_add(s, pl_cpu_product_matmul(library, &own, err), NULL, offset);
    }
    if (made)
        return s;
    pl_slices_free(s);
    return NULL;
}

/* ---- Convolutions ---- */

pl_slices_t *pl_slices_convolution(pl_library_t *library, int threads,
                                   const pl_convolution_t *c, pl_error_t *err)
{
    const int64_t n = c->batch, piece = pl_parallel_piece(threads, n, 1),
                  x = c->in[0] * c->in[1] * c->in[2] * c->channels,
                  y = c->out[0] * c->out[1] * c->out[2] * c->filters;
    const int64_t *kernel = c->window.kernel;
    pl_slices_t *s = slices_new(threads, err);
    bool made = s != NULL;
    if (made && c->kind == PL_CONVOLVE_GRAD_W)
        s->summed = c->filters * (c->channels / c->groups) * kernel[0] * kernel[1]
                    * kernel[2];
    for (int64_t from = 0; made && from < n; from += piece) {
        pl_convolution_t own = *c;
        own.batch = from + piece < n ? piece : n - from;
        const int64_t of_x = from * x, of_y = from * y;
        const int64_t offset[][4] = {
            [PL_CONVOLVE] = {of_x, 0, 0, of_y},
            [PL_CONVOLVE_GRAD_X] = {of_y, 0, 0, of_x},
            [PL_CONVOLVE_GRAD_W] = {of_y, of_x, 0, 0},
        };
        if (c->may_unfold && pl_unfolded_pays(&own))
            made = slice_add(s, NULL, pl_unfolded_new(library, &own, err),
                             offset[c->kind]);
        else
            made = slice_add(s, pl_cpu_product_convolution(library, &own, err), NULL,
                             offset[c->kind]);
    }
    if (made)
        return s;
    pl_slices_free(s);
    return NULL;
}

/* ---- Running ---- */

size_t pl_slices_scratch(const pl_slices_t *s)
{
    return s->scratch;
}

typedef struct slices_call {
    pl_slices_t *s;
    float *const *argument;
    char *scratch;
} slices_call_t;

static void slice_run(void *user, int64_t from, int64_t to, int part)
{
    const slices_call_t *call = user;
    (void)part;
    for (int64_t k = from; k < to; k++) {
        slice_t *slice = &call->s->slice[k];
        void *argument[4];
        for (int i = 0; i < 4; i++)
            argument[i] = call->argument[i] ? call->argument[i] + slice->offset[i] : NULL;
        if (slice->sum)
            argument[3] = slice->sum;
        char *scratch = call->scratch + slice->scratch;
        slice->code =
            slice->unfolded
                ? pl_unfolded_run(slice->unfolded, argument, scratch, &slice->error)
                : pl_cpu_product_run(slice->product, argument, scratch, &slice->error);
    }
}

/* Adds elements [from, to) of the sums of the other slices to the first slice's sum. */
static void sums_add(void *user, int64_t from, int64_t to, int part)
{
    const slices_call_t *call = user;
    float *total = call->argument[3];
    (void)part;
    for (int k = 1; k < call->s->count; k++) {
        const float *sum = call->s->slice[k].sum;
        for (int64_t i = from; i < to; i++)
            total[i] += sum[i];
    }
}

int pl_slices_run(pl_slices_t *s, pl_pool_t *pool, void *const argument[4], void *scratch,
                  pl_error_t *err)
{
    float *const start[4] = {argument[0], argument[1], argument[2], argument[3]};
    slices_call_t call = {s, start, scratch};
    for (int k = 1; s->summed && k < s->count; k++)
        s->slice[k].sum = (float *)(call.scratch + s->slice[k].scratch
                                    - aligned((size_t)s->summed * sizeof(float)));
    pl_parallel_for(pool, s->count, s->count, 1, slice_run, &call);
    for (int k = 0; k < s->count; k++)
        if (s->slice[k].code != PL_OK) {
            if (err)
                *err = s->slice[k].error;
            return s->slice[k].code;
        }
    if (s->summed)
        pl_parallel_for(pool, s->summed < PL_PARALLEL_MIN ? 1 : s->count, s->summed,
                        GRAIN, sums_add, &call);
    return PL_OK;
}
