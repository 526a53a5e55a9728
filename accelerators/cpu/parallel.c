/* parallel.c - the work of a CPU on several threads: loops, and products of the library
 *
 * The threads of a pool sleep when there is nothing to do.
 * Loops follow each other within microseconds, so a helper spins for a short while before
 * it sleeps.  It does not spin longer, because on a busy machine spinning takes time that
 * other threads need. */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "accelerators/cpu/library.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#define SPIN (PL_MILLISECOND / 20)
#define LOOKS 16                                      /* between two looks at the clock */
#define LINE 64                                       /* bytes of a cache line */
#define WORK_MIN (1 << 18)             /* multiplications worth a second thread */
#define GRAIN 16                       /* rows or columns that stay in one slice */
#define WIDE 8                         /* columns per row from which on columns are cut */

typedef struct helper {
    pl_pool_t *pool;
    int own;                                                /* the piece it prefers */
    pthread_t thread;
} helper_t;

struct pl_pool {
    /* The loop.  A thread that has claimed a piece may read it: it stays the same until
     * all pieces are done. */
    pl_parallel_body_t body;
    void *job;
    int64_t n, piece;
    int pieces;                         /* atomic, as are the following ones */
    uint32_t *claimed;                  /* [threads] newest loop whose piece k is taken */
    char apart[LINE];
    uint32_t loop;                          /* its number; helpers spin and sleep on it */
    int asleep;                             /* helpers */
    bool ending;
    char apart_too[LINE];
    uint32_t left;                      /* pieces not done; the caller spins and sleeps on
                                           it */
    bool waiting;                       /* the caller is asleep */

    int threads, helpers;
    helper_t *helper;
};

/* ---- Waiting ---- */

static uint32_t look(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* Spins until the word changes; false: it did not change within SPIN. */
static bool changes_soon(const uint32_t *word, uint32_t value)
{
    int64_t now = 0, until = 0;
    do {
        for (int k = 0; k < LOOKS; k++) {
            if (look(word) != value)
                return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        now = pl_now();
        until = until ? until : now + SPIN;
    } while (now < until);
    return false;
}

/* ---- Pieces ---- */

static bool claim(pl_pool_t *pool, int k, uint32_t loop)
{
    uint32_t newest = look(&pool->claimed[k]);
    return (int32_t)(newest - loop) < 0
           && __atomic_compare_exchange_n(&pool->claimed[k], &newest, loop, false,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Runs the pieces that no other thread has claimed, from the `own`-th on.  A late helper
 * finds every piece of its loop claimed, even if the number of pieces has changed. */
static void pieces_run(pl_pool_t *pool, uint32_t loop, int own)
{
    const int pieces = __atomic_load_n(&pool->pieces, __ATOMIC_SEQ_CST);
    for (int i = 0; i < pieces; i++) {
        const int k = (own + i) % pieces;
        if (!claim(pool, k, loop))
            continue;
        const int64_t from = k * pool->piece, to = from + pool->piece;
        pool->body(pool->job, from, to < pool->n ? to : pool->n, k);
        if (__atomic_sub_fetch(&pool->left, 1, __ATOMIC_SEQ_CST) == 0
            && __atomic_load_n(&pool->waiting, __ATOMIC_SEQ_CST))
            syscall(SYS_futex, &pool->left, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

/* ---- Helpers ---- */

static void *helper_main(void *user)
{
    const helper_t *helper = user;
    pl_pool_t *pool = helper->pool;
    uint32_t seen = 0;
    for (;;) {
        const uint32_t loop = look(&pool->loop);
        if (__atomic_load_n(&pool->ending, __ATOMIC_SEQ_CST))
            return NULL;
        if (loop != seen) {
            pieces_run(pool, seen = loop, helper->own);
        } else if (!changes_soon(&pool->loop, seen)) {
            __atomic_add_fetch(&pool->asleep, 1, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, &pool->loop, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
            __atomic_sub_fetch(&pool->asleep, 1, __ATOMIC_SEQ_CST);
        }
    }
}

pl_pool_t *pl_pool_new(int threads, pl_error_t *err)
{
    pl_pool_t *pool = pl_alloc(sizeof *pool);
    if (pool) {
        pool->threads = threads;
        pool->claimed = pl_alloc_array((size_t)threads, sizeof *pool->claimed);
        pool->helper = pl_alloc_array((size_t)threads, sizeof *pool->helper);
    }
    if (!pool || !pool->claimed || !pool->helper) {
        pl_no_memory(err);
        pl_pool_free(pool);
        return NULL;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);   /* the host's threads handle signals */
    for (int k = 0; k < threads - 1; k++) {
        helper_t *helper = &pool->helper[k];
        *helper = (helper_t){.pool = pool, .own = k + 1};
        if (pthread_create(&helper->thread, NULL, helper_main, helper) != 0)
            break;
        pthread_setname_np(helper->thread, "compute");
        pool->helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool;
}

/* Increases the loop's number and wakes the helpers that sleep on it. */
static uint32_t loop_begin(pl_pool_t *pool, int helpers)
{
    const uint32_t loop = __atomic_add_fetch(&pool->loop, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST) > 0)
        syscall(SYS_futex, &pool->loop, FUTEX_WAKE_PRIVATE, helpers, NULL, NULL, 0);
    return loop;
}

void pl_pool_free(pl_pool_t *pool)
{
    if (!pool)
        return;
    __atomic_store_n(&pool->ending, true, __ATOMIC_SEQ_CST);
    loop_begin(pool, INT_MAX);
    for (int k = 0; k < pool->helpers; k++)
        pthread_join(pool->helper[k].thread, NULL);
    pl_free(pool->helper);
    pl_free(pool->claimed);
    pl_free(pool);
}

/* ---- Loops ---- */

int64_t pl_parallel_piece(int threads, int64_t n, int64_t grain)
{
    const int64_t grains = (n + grain - 1) / grain;
    return (grains + threads - 1) / threads * grain;
}

void pl_parallel_for(pl_pool_t *pool, int threads, int64_t n, int64_t grain,
                     pl_parallel_body_t body, void *job)
{
    const int64_t piece = pl_parallel_piece(threads, n, grain);
    if (piece >= n) {
        body(job, 0, n, 0);
        return;
    }
    const int pieces = (int)((n + piece - 1) / piece);
    pool->body = body, pool->job = job, pool->n = n, pool->piece = piece;
    __atomic_store_n(&pool->pieces, pieces, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pool->left, (uint32_t)pieces, __ATOMIC_SEQ_CST);
    for (int k = pieces; k < pool->threads; k++)            /* no thread runs these */
        __atomic_store_n(&pool->claimed[k], pool->loop + 1, __ATOMIC_SEQ_CST);
    pieces_run(pool, loop_begin(pool, pieces - 1), 0);
    for (uint32_t left; (left = look(&pool->left)) > 0;) {
        if (changes_soon(&pool->left, left))
            continue;
        __atomic_store_n(&pool->waiting, true, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &pool->left, FUTEX_WAIT_PRIVATE, left, NULL, NULL, 0);
        __atomic_store_n(&pool->waiting, false, __ATOMIC_SEQ_CST);
    }
}

typedef struct numberless {
    void (*run)(const void *job, int64_t from, int64_t to);
    const void *job;
} numberless_t;

static void numberless_piece(void *user, int64_t from, int64_t to, int part)
{
    (void)part;
    const numberless_t *body = user;
    body->run(body->job, from, to);
}

void pl_parallel_run(pl_pool_t *pool, int threads, int64_t n, int64_t grain,
                     void (*run)(const void *job, int64_t from, int64_t to),
                     const void *job)
{
    pl_parallel_for(pool, threads, n, grain, numberless_piece, &(numberless_t){run, job});
}

/* ---- Products of the library, cut into slices ----
 *
 * Matrices are cut along a batch axis or along the rows of the result, very wide ones
 * along the columns; all threads read the other factor.  Convolutions are cut along the
 * batch; for a gradient of the weights each slice is a sum over its images, and the sums
 * are added in the order of the slices. */

typedef struct slice {
    pl_cpu_product_t *product;           /* one of these three; the others are NULL */
    pl_unfolded_t *unfolded;
    pl_turned_t *turned;
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
        pl_turned_free(s->slice[k].turned);
    }
    pl_free(s->slice);
    pl_free(s);
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Takes ownership of the product; false if there is none. */
static bool slice_add(pl_slices_t *s, slice_t runs, const int64_t offset[4])
{
    if (!runs.product && !runs.unfolded && !runs.turned)
        return false;
    slice_t *slice = &s->slice[s->count];
    *slice = runs;
    for (int i = 0; i < 4; i++)
        slice->offset[i] = offset[i];
    if (s->count++ > 0)                         /* the first slice writes to the result */
        s->scratch += aligned((size_t)s->summed * sizeof(float));
    slice->scratch = s->scratch;
    s->scratch += aligned(runs.unfolded ? pl_unfolded_scratch(runs.unfolded)
                          : runs.turned ? pl_turned_scratch(runs.turned)
                                        : pl_cpu_product_scratch(runs.product));
    return true;
}

/* ---- Slices of a matrix product ---- */

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
pl_slices_t *pl_slices_matmul(pl_library_t *library, const pl_kernels_t *kernels,
                              int threads, const pl_matmul_t *m, pl_error_t *err)
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
        slice_t runs = {0};
        if (pl_turned_pays(&own))
            runs.turned = pl_turned_new(library, kernels, &own, err);
        else
            runs.product = pl_cpu_product_matmul(library, &own, err);
        made = slice_add(s, runs, offset);
    }
    if (made)
        return s;
    pl_slices_free(s);
    return NULL;
}

/* ---- Slices of a convolution ---- */

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
        slice_t runs = {0};
        if (c->may_unfold && pl_unfolded_pays(&own))
            runs.unfolded = pl_unfolded_new(library, &own, err);
        else
            runs.product = pl_cpu_product_convolution(library, &own, err);
        made = slice_add(s, runs, offset[c->kind]);
    }
    if (made)
        return s;
    pl_slices_free(s);
    return NULL;
}

/* ---- Running slices ---- */

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
        pl_error_t *err = &slice->error;
        slice->code = slice->unfolded
                          ? pl_unfolded_run(slice->unfolded, argument, scratch, err)
                      : slice->turned
                          ? pl_turned_run(slice->turned, argument, scratch, err)
                          : pl_cpu_product_run(slice->product, argument, scratch, err);
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
