/* buckets.h - samples of different length in batches of nearly one length */
#ifndef PL_CONNECTORS_BUCKETS_H
#define PL_CONNECTORS_BUCKETS_H

#include "actors/connectors/sampler.h"

#define PL_BUCKETS_MAX 8

typedef struct pl_bucket {
    int64_t length;                           /* all are padded to: that of its longest */
    int64_t begin, count;                     /* of its samples in `sample` */
} pl_bucket_t;

/* All zero: samples are of one length. */
typedef struct pl_buckets {
    int count;
    pl_bucket_t bucket[PL_BUCKETS_MAX];                     /* longest first */
    int64_t *sample;                                        /* [samples of the order] */
} pl_buckets_t;

/* A batch of an iteration: which it is of a bucket's, and how many samples this partition
 * has. */
typedef struct pl_bucket_batch {
    int bucket;
    int64_t batch, count;
} pl_bucket_batch_t;

/* Sorts the samples of an order into at most `most` buckets with about as many samples in
 * each; length [samples of the data set]. */
int pl_buckets_make(pl_buckets_t *buckets, const pl_sampler_t *sampler,
                    const int64_t *length, int64_t max, pl_error_t *err);
void pl_buckets_release(pl_buckets_t *buckets);

/* Of a pass over the largest share of every bucket. */
int64_t pl_buckets_batches(const pl_buckets_t *buckets, int64_t batch_size,
                           const pl_sampler_partition_t *partition);

/* The batch at a place of an epoch, and its samples: pure functions of the order's seed,
 * the epoch and the place. */
typedef struct pl_bucket_iter {
    const pl_buckets_t *buckets;
    const pl_sampler_t *sampler;
    uint64_t epoch;
    int64_t batch_size;
    pl_sampler_partition_t partition;
} pl_bucket_iter_t;
pl_bucket_batch_t pl_bucket_batch_at(const pl_bucket_iter_t *iter, int64_t place);
int64_t pl_bucket_sample_at(const pl_bucket_iter_t *iter, const pl_bucket_batch_t *batch,
                            int64_t i);

#endif
