/* batch_pool.c - a pool of reused batches
 *
 * A batch, its indices and its fields are one block of memory, each field aligned for the
 * widest vectors; a large block has whole pages, which a device may keep registered.  The
 * owner or the last batch frees the pool, whichever ends last. */
#include "actors/connectors/batch_pool.h"

#include <pthread.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tensor/graph.h"

#define ALIGNMENT ((size_t)64)
#define LARGE ((size_t)16 << 10)          /* bytes of a batch that has pages of its own */

struct pl_batch_pool {
    pthread_mutex_t lock;                                /* of the members up to `made` */
    pl_batch_t *spare;
    bool closed, wanted;                                    /* a take found none */
    int made;                                               /* batches that exist */
    int max, field_count, notice;
    size_t size;                                            /* of a block */
    size_t index;                                           /* offset in the block */
    size_t field[PL_FIELDS];
};

/* ---- The layout of a block ---- */

/* Appends count elements, aligned, and sets *begin to their offset; false: too large. */
static bool block_add(size_t *size, int64_t count, size_t element, size_t *begin)
{
    size_t bytes;
    if (__builtin_add_overflow(*size, ALIGNMENT - 1, begin))
        return false;
    *begin &= ~(ALIGNMENT - 1);
    return count > 0 && !__builtin_mul_overflow((size_t)count, element, &bytes)
           && !__builtin_add_overflow(*begin, bytes, size);
}

pl_batch_pool_t *pl_batch_pool_new(const pl_batch_spec_t *spec, pl_error_t *err)
{
    pl_batch_pool_t *pool = pl_alloc(sizeof *pool);
    if (!pool) {
        pl_no_memory(err);
        return NULL;
    }
    pool->max = spec->max;
    pool->field_count = spec->field_count;
    pool->notice = spec->notice;
    pool->size = sizeof(pl_batch_t);
    bool fits = block_add(&pool->size, spec->rows, sizeof(int64_t), &pool->index);
    for (int k = 0; fits && k < spec->field_count; k++) {
        int64_t elements = spec->rows;
        for (int axis = 0; fits && axis < spec->field[k].shape.rank; axis++)
            fits = !__builtin_mul_overflow(elements, spec->field[k].shape.dim[axis],
                                           &elements);
        fits = fits
               && block_add(&pool->size, elements, pl_dtype_size(spec->field[k].dtype),
                            &pool->field[k]);
    }
    if (!fits || pool->size > PTRDIFF_MAX - ALIGNMENT) {
        pl_free(pool);
        pl_fail(err, PL_EINVAL,
                "a batch of %lld such samples is larger than any memory: lower "
                "data.batch_size",
                (long long)spec->rows);
        return NULL;
    }
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

/* ---- The end ---- */

static void pool_free(pl_batch_pool_t *pool)
{
    pthread_mutex_destroy(&pool->lock);
    pl_free(pool);
}

static void batch_free(pl_batch_t *batch)
{
    if (batch->pages)
        pl_object_unref(batch->pages);
    else
        pl_free(batch);
}

void pl_batch_pool_close(pl_batch_pool_t *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    while (pool->spare) {
        pl_batch_t *batch = pool->spare;
        pool->spare = batch->next;
        pool->made--;
        batch_free(batch);
    }
    bool last = pool->made == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
}

/* ---- Batches ---- */

/* Called on any thread. */
static void batch_release(pl_object_t *object)
{
    pl_batch_t *batch = (pl_batch_t *)object;
    pl_batch_pool_t *pool = batch->pool;
    pl_object_unref(batch->dataset);
    batch->dataset = NULL;
    pthread_mutex_lock(&pool->lock);
    bool closed = pool->closed;
    if (closed) {
        pool->made--;
    } else {
        batch->next = pool->spare;
        pool->spare = batch;
        if (pool->wanted)
            eventfd_write(pool->notice, 1);
        pool->wanted = false;
    }
    bool last = closed && pool->made == 0;
    pthread_mutex_unlock(&pool->lock);
    if (closed)
        batch_free(batch);
    if (last)
        pool_free(pool);
}

/* Only the owner's thread adds to `made`. */
pl_batch_t *pl_batch_pool_take(pl_batch_pool_t *pool, pl_error_t *err)
{
    pthread_mutex_lock(&pool->lock);
    pl_batch_t *batch = pool->spare;
    bool may_grow = pool->made < pool->max;
    if (batch)
        pool->spare = batch->next;
    else if (may_grow)
        pool->made++;
    else
        pool->wanted = true;
    pthread_mutex_unlock(&pool->lock);
    if (!batch && !may_grow) {
        pl_fail(err, PL_EBUSY, "all %d batches are in use", pool->max);
        return NULL;
    }
    if (!batch) {
        pl_pages_t *pages = pool->size >= LARGE ? pl_pages_new(pool->size, NULL) : NULL;
        char *block = pages ? pages->data : pl_alloc(pool->size + ALIGNMENT);
        if (!block) {
            pthread_mutex_lock(&pool->lock);
            pool->made--;
            pthread_mutex_unlock(&pool->lock);
            pl_no_memory(err);
            return NULL;
        }
        char *aligned = block + (ALIGNMENT - (uintptr_t)block % ALIGNMENT) % ALIGNMENT;
        batch = (pl_batch_t *)block;
        batch->pool = pool;
        batch->pages = pages;
        batch->field_count = pool->field_count;
        batch->index = (int64_t *)(aligned + pool->index);
        for (int k = 0; k < pool->field_count; k++)
            batch->field[k] = aligned + pool->field[k];
    }
    pl_object_init(&batch->object, batch_release);
    return batch;
}
