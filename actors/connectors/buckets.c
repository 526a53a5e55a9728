/* buckets.c - samples of different length in batches of nearly one length
 *
 * Whatever is padded is computed for nothing, and each padded length is a plan of its
 * own: so there are a few buckets, cut where each gets about as many samples.  Within a
 * bucket, and among batches, the order is a shuffle by a pure function; only which sample
 * is in which bucket is stored. */
#include "actors/connectors/buckets.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

typedef struct measured {
    int64_t length, place, sample;
} measured_t;

/* The longest first, equal ones in the data's order. */
static int compare_lengths(const void *a, const void *b)
{
    const measured_t *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? 1 : -1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Samples of one length are never torn apart. */
static void cut(pl_buckets_t *buckets, const measured_t *m, int64_t count, int64_t max)
{
    int64_t begin = 0;
    while (begin < count) {
        int64_t left = max - buckets->count, end = count;
        if (left > 1)
            end = begin + (count - begin + left - 1) / left;
        while (end < count && m[end].length == m[end - 1].length)
            end++;
        buckets->bucket[buckets->count++] = (pl_bucket_t){m[begin].length, begin,
                                                          end - begin};
        begin = end;
    }
}

int pl_buckets_make(pl_buckets_t *buckets, const pl_sampler_t *sampler,
                    const int64_t *length, int64_t max, pl_error_t *err)
{
    const int64_t count = sampler->count;
    pl_sampler_t sorted = *sampler;
    sorted.shuffle = false;
    measured_t *m = pl_alloc_array((size_t)count, sizeof *m);
    int64_t *sample = pl_alloc_array((size_t)count, sizeof *sample);
    if (!m || !sample) {
        pl_free(m);
        pl_free(sample);
        return pl_no_memory(err);
    }
    for (int64_t k = 0; k < count; k++) {
        int64_t at = pl_sampler_at(&sorted, 0, k);
        m[k] = (measured_t){length[at], k, at};
    }
    qsort(m, (size_t)count, sizeof *m, compare_lengths);
    for (int64_t k = 0; k < count; k++)
        sample[k] = m[k].sample;
    *buckets = (pl_buckets_t){.sample = sample};
    cut(buckets, m, count, max < PL_BUCKETS_MAX ? max : PL_BUCKETS_MAX);
    pl_free(m);
    return PL_OK;
}

void pl_buckets_release(pl_buckets_t *buckets)
{
    pl_free(buckets->sample);
    *buckets = (pl_buckets_t){0};
}

/* ---- An iteration ---- */

int64_t pl_buckets_batches(const pl_buckets_t *buckets, int64_t batch_size,
                           const pl_sampler_partition_t *partition)
{
    int64_t batches = 0;
    for (int k = 0; k < buckets->count; k++)
        batches += pl_sampler_batches(partition, buckets->bucket[k].count, batch_size);
    return batches;
}

static uint64_t key_of(const pl_bucket_iter_t *iter, const char *purpose)
{
    return pl_mix(pl_mix(iter->sampler->seed, pl_hash(purpose)), iter->epoch);
}

pl_bucket_batch_t pl_bucket_batch_at(const pl_bucket_iter_t *iter, int64_t place)
{
    const pl_buckets_t *buckets = iter->buckets;
    pl_bucket_batch_t batch = {0};
    if (iter->sampler->shuffle)
        place = pl_permute_index(key_of(iter, "data.batches"),
                                 pl_buckets_batches(buckets, iter->batch_size,
                                                    &iter->partition),
                                 place);
    for (int64_t batches; batch.bucket < buckets->count - 1; batch.bucket++) {
        batches = pl_sampler_batches(&iter->partition,
                                     buckets->bucket[batch.bucket].count,
                                     iter->batch_size);
        if (place < batches)
            break;
        place -= batches;
    }
    batch.batch = place;
    batch.count = pl_sampler_batch_count(&iter->partition,
                                         buckets->bucket[batch.bucket].count,
                                         iter->batch_size, place);
    return batch;
}

int64_t pl_bucket_sample_at(const pl_bucket_iter_t *iter, const pl_bucket_batch_t *batch,
                            int64_t i)
{
    const pl_bucket_t *bucket = &iter->buckets->bucket[batch->bucket];
    int64_t place = pl_sampler_position(&iter->partition, iter->batch_size, batch->batch,
                                        i);
    if (iter->sampler->shuffle)
        place = pl_permute_index(pl_mix(key_of(iter, "data.shuffle"),
                                        (uint64_t)batch->bucket + 1),
                                 bucket->count, place);
    return iter->buckets->sample[bucket->begin + place];
}
