/* prefetch_queue.c - the pool that batches come from and return to, and the queue of one
 * stage: read ahead, handed out in order */
#include "actors/connectors/data_loaders.h"

#include <pthread.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/option.h"

#define OUT_MAX 32                                          /* batches that others keep */
#define ALIGNMENT ((size_t)64)
#define LARGE ((size_t)16 << 10)          /* bytes of a batch that has pages of its own */

struct pl_prefetch_slot {
    pl_batch_t *batch;                                      /* [none, or it failed] */
    bool done;
    pl_error_t error;                                       /* code 0: it was read */
};

/* ---- Batches that are used again ----
 *
 * A batch, its indices and its fields are one block of memory, each field aligned for the
 * widest vectors; a large block has whole pages, which a device may keep registered.  The
 * owner or the last batch frees the pool, whichever ends last. */

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

/* ---- Opening ---- */

int pl_prefetch_open(pl_prefetch_t *queue, const pl_prefetch_spec_t *spec,
                     pl_error_t *err)
{
    pl_buckets_t buckets = {0};
    pl_sampler_t all = spec->sampler;                       /* in the data's order */
    const int64_t count = spec->sampler.count,
                  full = pl_sampler_full_batch(&spec->partition, count, spec->batch_size),
                  batches = pl_sampler_batches(&spec->partition, count, full),
                  rows = pl_sampler_max_batch(&spec->partition, count, spec->batch_size);
    const int64_t most = batches ? batches : 1,
                  ahead = spec->prefetch < most ? spec->prefetch : most,
                  slots = ahead + OUT_MAX;
    const pl_data_info_t *info = &spec->dataset->info;
    if (batches > UINT32_MAX || rows > INT32_MAX || ahead > INT32_MAX - OUT_MAX)
        return pl_fail(err, PL_EINVAL,
                       "%lld batches, or %lld samples in one, or %lld read ahead are "
                       "too many: lower data.prefetch or change data.batch_size",
                       (long long)batches, (long long)rows, (long long)ahead);
    pl_field_t field[PL_FIELDS];
    for (int k = 0; k < info->field_count; k++) {
        field[k] = info->field[k];
        if (pl_varies(&field[k]))
            field[k].shape.dim[0] = spec->dataset->longest;
    }
    const pl_batch_spec_t block = {rows, (int)slots, info->field_count, field,
                                   spec->notice};
    pl_batch_pool_t *pool = pl_batch_pool_new(&block, err);
    if (!pool)
        return err->code;
    pl_prefetch_slot_t *slot = pl_alloc_array((size_t)slots, sizeof *slot);
    int code = slot ? PL_OK : pl_no_memory(err);
    if (all.order) {
        all.count = all.order->of;
        all.order = NULL;
    }
    /* Predictions come in the data's order: then all batches have one length. */
    if (code == PL_OK && spec->dataset->length && spec->stage != PL_PREDICT)
        code = pl_buckets_make(&buckets, &all, spec->dataset->length, spec->buckets, err);
    if (code != PL_OK) {
        pl_batch_pool_close(pool);
        pl_free(slot);
        return code;
    }
    *queue =
        (pl_prefetch_t){.dataset = pl_object_ref(spec->dataset),
                        .stage = spec->stage,
                        .loader = spec->loader,
                        .sampler = spec->sampler,
                        .partition = spec->partition,
                        .buckets = buckets,
                        .batch_size = full,
                        .without_last = (!buckets.count || spec->sampler.order)
                                        && spec->limit.value > 0
                                        && pl_amount_of(spec->limit, (uint32_t)batches)
                                               < batches,
                        .pool = pool,
                        .slot = slot,
                        .prefetch = (uint32_t)ahead,
                        .slot_count = (uint32_t)slots};
    if (spec->sampler.order) {            /* it makes the batches: lengths alone remain */
        for (; queue->lengths < buckets.count; queue->lengths++)
            queue->length[queue->lengths] = buckets.bucket[queue->lengths].length;
        pl_buckets_release(&queue->buckets);
    }
    return PL_OK;
}

static void queue_drop(pl_prefetch_t *queue)
{
    for (uint32_t k = 0; k < queue->slot_count; k++) {
        pl_object_unref(queue->slot[k].batch);
        queue->slot[k] = (pl_prefetch_slot_t){0};
    }
    queue->begun = queue->ahead = false;
}

void pl_prefetch_close(pl_prefetch_t *queue)
{
    queue_drop(queue);
    pl_free(queue->slot);
    pl_buckets_release(&queue->buckets);
    pl_batch_pool_close(queue->pool);
    pl_object_unref(queue->dataset);
    *queue = (pl_prefetch_t){0};
}

int pl_prefetch_sizes(const pl_prefetch_t *queue, pl_batch_size_t size[PL_SIZES_MAX])
{
    const int64_t all = queue->sampler.count;
    const int buckets = queue->buckets.count ? queue->buckets.count
                        : queue->lengths     ? queue->lengths
                                             : all > 0;
    int count = 0;
    for (int k = 0; k < buckets; k++) {
        int64_t samples[2];
        const pl_bucket_t bucket =
            queue->buckets.count ? queue->buckets.bucket[k]
                                 : (pl_bucket_t){.count = all,
                                                 .length = queue->lengths
                                                               ? queue->length[k]
                                                               : queue->dataset->longest};
        pl_sampler_batch_sizes(&queue->partition, bucket.count, queue->batch_size,
                               samples);
        for (int i = 0; i < (queue->without_last ? 1 : 2); i++) {
            const pl_batch_size_t one = {samples[i], bucket.length};
            bool is_new = one.count > 0;
            for (int j = 0; is_new && j < count; j++)
                is_new = size[j].count != one.count || size[j].length != one.length;
            if (is_new)
                size[count++] = one;
        }
    }
    return count;
}

/* ---- An iteration ---- */

static void queue_restart(pl_prefetch_t *queue, const pl_prefetch_iter_t *iter)
{
    queue_drop(queue);
    queue->batches =
        (uint32_t)(queue->buckets.count
                       ? pl_buckets_batches(&queue->buckets, queue->batch_size,
                                            &queue->partition)
                       : pl_sampler_batches(&queue->partition, queue->sampler.count,
                                            queue->batch_size));
    queue->epoch = iter->epoch;
    queue->to_read = queue->to_take = iter->first < queue->batches ? iter->first
                                                                   : queue->batches;
    queue->requested = 0;
    queue->begun = true;
}

void pl_prefetch_begin(pl_prefetch_t *queue, const pl_prefetch_iter_t *iter)
{
    if (!queue->ahead || iter->epoch != queue->epoch || iter->first != 0)
        queue_restart(queue, iter);
    queue->ahead = false;
    queue->again = iter->again;
}

void pl_prefetch_request(pl_prefetch_t *queue, uint32_t until)
{
    if (!queue->ahead)
        queue->requested = until && until < queue->batches ? until : queue->batches;
}

/* The i-th sample of the next batch of a partition. */
static int64_t sample_of(const pl_prefetch_t *queue, const pl_sampler_partition_t *of,
                         int64_t i)
{
    return pl_sampler_at(&queue->sampler, queue->epoch,
                         pl_sampler_position(of, queue->batch_size, queue->to_read, i));
}

static int64_t count_of(const pl_prefetch_t *queue, const pl_sampler_partition_t *of)
{
    return pl_sampler_batch_count(of, queue->sampler.count, queue->batch_size,
                                  queue->to_read);
}

/* The length of a batch whose samples a component draws: one for all partitions, which
 * fits their longest sample. */
static int64_t drawn_length(const pl_prefetch_t *queue)
{
    pl_sampler_partition_t of = queue->partition;
    int at = queue->lengths - 1;
    for (of.partition = 0; of.partition < of.partitions; of.partition++)
        for (int64_t i = count_of(queue, &of) - 1; at > 0 && i >= 0; i--) {
            const int64_t sample = sample_of(queue, &of, i);
            while (at > 0 && sample >= 0
                   && queue->dataset->length[sample] > queue->length[at])
                at--;
        }
    return queue->length[at];
}

/* Chooses the samples of the next batch. */
static void batch_fill(const pl_prefetch_t *queue, pl_batch_t *batch)
{
    batch->dataset = pl_object_ref(queue->dataset);
    batch->stage = queue->stage;
    batch->loader = queue->loader;
    batch->seed = queue->sampler.seed;
    /* A measurement is the same in every epoch. */
    batch->epoch = queue->stage == PL_TRAIN ? queue->epoch : 0;
    batch->batch_idx = queue->to_read;
    if (queue->buckets.count) {
        const pl_bucket_iter_t iter = {&queue->buckets, &queue->sampler, queue->epoch,
                                       queue->batch_size, queue->partition};
        const pl_bucket_batch_t of_bucket = pl_bucket_batch_at(&iter, queue->to_read);
        batch->length = queue->buckets.bucket[of_bucket.bucket].length;
        batch->count = of_bucket.count;
        for (int64_t i = 0; i < batch->count; i++)
            batch->index[i] = pl_bucket_sample_at(&iter, &of_bucket, i);
        return;
    }
    batch->length = queue->lengths ? drawn_length(queue) : queue->dataset->longest;
    batch->count = count_of(queue, &queue->partition);
    for (int64_t i = 0; i < batch->count; i++)
        batch->index[i] = sample_of(queue, &queue->partition, i);
}

static void sampler_fault(const pl_prefetch_t *queue, pl_error_t *err)
{
    const pl_sample_order_t *order = queue->sampler.order;
    const pl_sampler_ops_t *ops = order->instance.ops;
    pl_fail(err, PL_EUSER, "sampler \"%s\" names a sample that is not one of the %lld",
            ops->name, (long long)order->of);
}

pl_batch_t *pl_prefetch_next(pl_prefetch_t *queue, uint32_t waiting)
{
    const uint64_t ahead = queue->prefetch + (queue->ahead ? 0 : (uint64_t)waiting),
                   max = ahead < queue->slot_count ? ahead : queue->slot_count;
    while (queue->begun && queue->to_read < queue->requested
           && queue->to_read - queue->to_take < max) {
        pl_prefetch_slot_t *slot = &queue->slot[queue->to_read % queue->slot_count];
        pl_error_t err = {0};
        pl_batch_t *batch = pl_batch_pool_take(queue->pool, &err);
        if (!batch && err.code == PL_EBUSY)
            return NULL;
        if (batch)
            batch_fill(queue, batch);
        for (int64_t i = 0; batch && i < batch->count && err.code == PL_OK; i++)
            if (batch->index[i] < 0)
                sampler_fault(queue, &err);
        if (batch && err.code != PL_OK) {
            pl_object_unref(batch);
            batch = NULL;
        }
        const bool is_read = batch && batch->count;
        *slot = (pl_prefetch_slot_t){.batch = batch, .done = !is_read, .error = err};
        queue->to_read++;
        if (is_read)
            return pl_object_ref(batch);
    }
    return NULL;
}

void pl_prefetch_batch_read(pl_prefetch_t *queue, pl_batch_t *batch,
                            const pl_error_t *error)
{
    pl_prefetch_slot_t *slot = queue->begun
                                   ? &queue->slot[batch->batch_idx % queue->slot_count]
                                   : NULL;
    if (!slot || slot->batch != batch)
        return;
    slot->done = true;
    if (!error)
        return;
    slot->error = *error;
    slot->batch = NULL;
    pl_object_unref(batch);
}

static bool queue_is_at_end(const pl_prefetch_t *queue)
{
    return queue->ahead || queue->to_take == queue->batches;
}

bool pl_prefetch_is_ready(const pl_prefetch_t *queue)
{
    return queue_is_at_end(queue)
           || (queue->to_take < queue->to_read
               && queue->slot[queue->to_take % queue->slot_count].done);
}

int pl_prefetch_take(pl_prefetch_t *queue, pl_batch_t **batch_p, pl_error_t *err)
{
    *batch_p = NULL;
    if (queue_is_at_end(queue))
        return PL_OK;
    pl_prefetch_slot_t *slot = &queue->slot[queue->to_take % queue->slot_count];
    pl_batch_t *batch = slot->batch;
    pl_error_t error = slot->error;
    *slot = (pl_prefetch_slot_t){0};
    queue->to_take++;
    if (queue->again && queue->to_take == queue->batches) {
        /* The next epoch then need not wait for its first batch. */
        queue_restart(queue, &(pl_prefetch_iter_t){.epoch = queue->epoch + 1});
        queue->requested = queue->batches;
        queue->ahead = true;
    }
    if (!batch) {
        *err = error;
        return error.code;
    }
    /* The data set is not needed further: a kept batch does not keep files open. */
    pl_object_unref(batch->dataset);
    batch->dataset = NULL;
    *batch_p = batch;
    return PL_OK;
}
