/* feed.c - the batches of one stage: read ahead and handed out in order */
#include "actors/connectors/feed.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/option.h"

#define OUT_MOST 32                                         /* batches that others keep */

struct pl_feed_slot {
    pl_batch_t *batch;                                      /* [none, or it failed] */
    bool done;
    pl_error_t error;                                       /* code 0: it was read */
};

/* ---- Opening ---- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What is predicted is told in the data's order, so all of it has one length. */
static int feed_sort(const pl_feed_spec_t *spec, pl_buckets_t *buckets, pl_error_t *err)
{
    *buckets = (pl_buckets_t){0};
    if (!spec->dataset->length || spec->stage == PL_PREDICT)
        return PL_OK;
    return pl_buckets_make(buckets, &spec->order, spec->dataset->length, spec->buckets,
                           err);
}

int pl_feed_open(pl_feed_t *feed, const pl_feed_spec_t *spec, pl_error_t *err)
{
    pl_buckets_t buckets;
    const int64_t count = spec->order.count,
                  full = pl_deal_full(&spec->deal, count, spec->batch_size),
                  batches = pl_deal_batches(&spec->deal, count, full),
                  rows = pl_deal_rows(&spec->deal, count, spec->batch_size);
    const int64_t ahead = smaller(spec->prefetch, batches + !batches);
    const int64_t slots = ahead + OUT_MOST;
    const pl_data_info_t *info = &spec->dataset->info;
    if (batches > UINT32_MAX || rows > INT32_MAX || ahead > INT32_MAX - OUT_MOST)
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
    pl_feed_slot_t *slot = pl_alloc_array((size_t)slots, sizeof *slot);
    int code = slot ? feed_sort(spec, &buckets, err) : pl_no_memory(err);
    if (code != PL_OK) {
        pl_batch_pool_close(pool);
        pl_free(slot);
        return code;
    }
    *feed = (pl_feed_t){.dataset = pl_object_ref(spec->dataset),
                        .stage = spec->stage,
                        .loader = spec->loader,
                        .order = spec->order,
                        .deal = spec->deal,
                        .buckets = buckets,
                        .batch_size = full,
                        .without_last = !buckets.count && spec->limit.value > 0
                                        && pl_amount_of(spec->limit, (uint32_t)batches)
                                               < batches,
                        .pool = pool,
                        .slot = slot,
                        .prefetch = (uint32_t)ahead,
                        .slot_count = (uint32_t)slots};
    return PL_OK;
}

static void feed_drop(pl_feed_t *feed)
{
    for (uint32_t k = 0; k < feed->slot_count; k++) {
        pl_object_unref(feed->slot[k].batch);
        feed->slot[k] = (pl_feed_slot_t){0};
    }
    feed->begun = feed->ahead = false;
}

void pl_feed_close(pl_feed_t *feed)
{
    feed_drop(feed);
    pl_free(feed->slot);
    pl_buckets_release(&feed->buckets);
    pl_batch_pool_close(feed->pool);
    pl_object_unref(feed->dataset);
    *feed = (pl_feed_t){0};
}

static void sizes_add(pl_batch_size_t *size, int *count, pl_batch_size_t more)
{
    bool known = more.count == 0;
    for (int k = 0; k < *count; k++)
        known = known || (size[k].count == more.count && size[k].length == more.length);
    if (!known)
        size[(*count)++] = more;
}

int pl_feed_sizes(const pl_feed_t *feed, pl_batch_size_t size[PL_SIZES_MOST])
{
    const pl_bucket_t whole = {.count = feed->order.count,
                               .length = feed->dataset->longest};
    const pl_bucket_t *bucket = feed->buckets.count ? feed->buckets.bucket : &whole;
    int buckets = feed->buckets.count ? feed->buckets.count : feed->order.count > 0,
        count = 0;
    for (int k = 0; k < buckets; k++) {
        int64_t samples[2];
        pl_deal_sizes(&feed->deal, bucket[k].count, feed->batch_size, samples);
        for (int i = 0; i < (feed->without_last ? 1 : 2); i++)
            sizes_add(size, &count, (pl_batch_size_t){samples[i], bucket[k].length});
    }
    return count;
}

/* ---- A pass ---- */

static void feed_restart(pl_feed_t *feed, const pl_feed_pass_t *pass)
{
    feed_drop(feed);
    feed->batches =
        (uint32_t)(feed->buckets.count
                       ? pl_buckets_batches(&feed->buckets, feed->batch_size, &feed->deal)
                       : pl_deal_batches(&feed->deal, feed->order.count,
                                         feed->batch_size));
    feed->epoch = pass->epoch;
    feed->to_read = feed->to_take = pass->first < feed->batches ? pass->first
                                                                : feed->batches;
    feed->wanted = 0;
    feed->begun = true;
}

void pl_feed_begin(pl_feed_t *feed, const pl_feed_pass_t *pass)
{
    const bool is_there = feed->ahead && pass->epoch == feed->epoch && pass->first == 0;
    if (!is_there)
        feed_restart(feed, pass);
    feed->ahead = false;
    feed->again = pass->again;
}

/* With the last batch taken: so that the next pass need not wait for its first one. */
static void feed_look_ahead(pl_feed_t *feed)
{
    const pl_feed_pass_t next = {.epoch = feed->epoch + 1};
    if (!feed->again || feed->to_take < feed->batches)
        return;
    feed_restart(feed, &next);
    feed->wanted = feed->batches;
    feed->ahead = true;
}

void pl_feed_want(pl_feed_t *feed, uint32_t until)
{
    if (!feed->ahead)
        feed->wanted = until && until < feed->batches ? until : feed->batches;
}

static void batch_choose(const pl_feed_t *feed, pl_batch_t *batch)
{
    batch->length = feed->dataset->longest;
    batch->count = pl_deal_count(&feed->deal, feed->order.count, feed->batch_size,
                                 feed->to_read);
    for (int64_t i = 0; i < batch->count; i++)
        batch->index[i] =
            pl_order_at(&feed->order, feed->epoch,
                        pl_deal_place(&feed->deal, feed->batch_size, feed->to_read, i));
}

static void batch_choose_alike(const pl_feed_t *feed, pl_batch_t *batch)
{
    const pl_bucket_pass_t pass = {&feed->buckets, &feed->order, feed->epoch,
                                   feed->batch_size, feed->deal};
    const pl_bucket_batch_t alike = pl_bucket_batch_at(&pass, feed->to_read);
    batch->length = feed->buckets.bucket[alike.bucket].length;
    batch->count = alike.count;
    for (int64_t i = 0; i < batch->count; i++)
        batch->index[i] = pl_bucket_sample_at(&pass, &alike, i);
}

static void batch_fill(const pl_feed_t *feed, pl_batch_t *batch)
{
    batch->dataset = pl_object_ref(feed->dataset);
    batch->stage = feed->stage;
    batch->loader = feed->loader;
    batch->seed = feed->order.seed;
    /* What is measured is the same in every epoch. */
    batch->epoch = feed->stage == PL_TRAIN ? feed->epoch : 0;
    batch->batch_idx = feed->to_read;
    if (feed->buckets.count)
        batch_choose_alike(feed, batch);
    else
        batch_choose(feed, batch);
}

pl_batch_t *pl_feed_next(pl_feed_t *feed, uint32_t waiting)
{
    const uint64_t ahead = feed->prefetch + (feed->ahead ? 0 : (uint64_t)waiting),
                   most = ahead < feed->slot_count ? ahead : feed->slot_count;
    while (feed->begun && feed->to_read < feed->wanted
           && feed->to_read - feed->to_take < most) {
        pl_feed_slot_t *slot = &feed->slot[feed->to_read % feed->slot_count];
        pl_error_t err = {0};
        pl_batch_t *batch = pl_batch_pool_take(feed->pool, &err);
        if (!batch && err.code == PL_EBUSY)
            return NULL;
        if (batch)
            batch_fill(feed, batch);
        const bool is_read = batch && batch->count;
        *slot = (pl_feed_slot_t){.batch = batch, .done = !is_read, .error = err};
        feed->to_read++;
        if (is_read)
            return pl_object_ref(batch);
    }
    return NULL;
}

void pl_feed_read(pl_feed_t *feed, pl_batch_t *batch, const pl_error_t *error)
{
    pl_feed_slot_t *slot = feed->begun ? &feed->slot[batch->batch_idx % feed->slot_count]
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

static bool feed_is_at_end(const pl_feed_t *feed)
{
    return feed->ahead || feed->to_take == feed->batches;
}

bool pl_feed_ready(const pl_feed_t *feed)
{
    return feed_is_at_end(feed)
           || (feed->to_take < feed->to_read
               && feed->slot[feed->to_take % feed->slot_count].done);
}

int pl_feed_take(pl_feed_t *feed, pl_batch_t **batch_p, pl_error_t *err)
{
    *batch_p = NULL;
    if (feed_is_at_end(feed))
        return PL_OK;
    pl_feed_slot_t *slot = &feed->slot[feed->to_take % feed->slot_count];
    pl_batch_t *batch = slot->batch;
    pl_error_t error = slot->error;
    *slot = (pl_feed_slot_t){0};
    feed->to_take++;
    feed_look_ahead(feed);
    if (!batch) {
        *err = error;
        return error.code;
    }
    /* Read is read: who keeps the batch does not keep files open. */
    pl_object_unref(batch->dataset);
    batch->dataset = NULL;
    *batch_p = batch;
    return PL_OK;
}
