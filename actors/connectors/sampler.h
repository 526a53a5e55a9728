/* sampler.h - the order of samples: splits, shuffles, partitions and buckets of lengths
 *
 * Pure functions of a key and a place: the number of reading threads and of batches read
 * ahead changes no result, and a shuffle of any length takes no memory. */
#ifndef PL_CONNECTORS_SAMPLER_H
#define PL_CONNECTORS_SAMPLER_H

#include "base/bind.h"
#include "paceline.h"

/* A data set cut in two at random.  All zero: not cut. */
typedef struct pl_data_split {
    int64_t total;                                          /* samples */
    int64_t held_count;                                     /* of them, for validation */
    int64_t *held;                                          /* [held_count], rising
                                                               [a permutation has them at
                                                               its places from `first`] */
    uint64_t key;
    int64_t first;
} pl_data_split_t;

typedef struct pl_data_split_spec {
    uint64_t seed;
    int64_t total;                                /* samples */
    double share;                                 /* of them, held back */
    int64_t folds, fold;                          /* held back is part `fold`, from 0, of
                                                     so many  [0: a share] */
    const int64_t *target;                        /* [total] classes, each cut in the same
                                                     proportion  [no classes] */
    const int64_t *group;                         /* [total], samples with the same number
                                                     are not parted  [none] */
} pl_data_split_spec_t;

/* Holds back a share of the samples.  Whole groups are held so that the parts, or the
 * parts of each class, have nearly their shares.  PL_EINVAL: one side would be empty. */
int pl_data_split_make(pl_data_split_t *split, const pl_data_split_spec_t *spec,
                       pl_error_t *err);
/* The sample is held back. */
bool pl_data_split_holds(const pl_data_split_t *split, int64_t sample);
void pl_data_split_release(pl_data_split_t *split);

/* How samples are dealt out.  One by one: each partition makes its own batches.  By
 * micro-shards: batches of all samples are cut into micro-shards, and a partition has
 * neighbouring ones, so the batches do not depend on the number of partitions. */
typedef struct pl_sampler_partition {
    uint32_t partition, partitions;
    bool even;                             /* leave out samples at the end so that all
                                              partitions, or micro-shards, have as many */
    uint32_t micro_shards;                 /* of a batch  [0: one by one] */
    bool drop_last;                        /* leave out batches that are not full on all
                                              partitions */
} pl_sampler_partition_t;

/* The samples of a full batch, or micro-shard, and of this partition's largest batch,
 * both at least 1.  Here and below `count` samples are in batches of at most
 * batch_size. */
int64_t pl_sampler_full_batch(const pl_sampler_partition_t *partition, int64_t count,
                              int64_t batch_size);
int64_t pl_sampler_max_batch(const pl_sampler_partition_t *partition, int64_t count,
                             int64_t batch_size);
/* Number of batches of every partition; some may be empty. */
int64_t pl_sampler_batches(const pl_sampler_partition_t *partition, int64_t count,
                           int64_t batch_size);
/* Number of samples of a batch, and the place of its i-th sample among all. */
int64_t pl_sampler_batch_count(const pl_sampler_partition_t *partition, int64_t count,
                               int64_t batch_size, int64_t batch);
int64_t pl_sampler_position(const pl_sampler_partition_t *partition, int64_t batch_size,
                            int64_t batch, int64_t i);
/* Number of samples of a full batch, and of the last one; 0: none is smaller.  With
 * micro-shards they are the same on all partitions. */
void pl_sampler_batch_sizes(const pl_sampler_partition_t *partition, int64_t count,
                            int64_t batch_size, int64_t size[2]);

/* A component of role "sampler", open; all zero: there is none. */
typedef struct pl_sample_order {
    pl_instance_t instance;
    bool is_open;
    int64_t of, count;                             /* samples to draw from; of an epoch */
    int64_t *number, *classes, *length;            /* of pl_sampler_data_t, owned */
} pl_sample_order_t;

extern const pl_registration_t pl_sampler_components[];

/* The order keeps what `data` refers to, also on failure. */
int pl_sample_order_open(pl_sample_order_t *order, const pl_choice_t *choice,
                         const pl_sampler_data_t *data, pl_error_t *err);
void pl_sample_order_close(pl_sample_order_t *order);

/* The samples of a stage in order. */
typedef enum pl_split_side { PL_WHOLE, PL_REST, PL_HELD } pl_split_side_t;

typedef struct pl_sampler {
    const pl_data_split_t *split;                           /* borrowed  [PL_WHOLE] */
    pl_split_side_t side;
    int64_t count;                                          /* samples */
    bool shuffle;
    int64_t window;                                         /* that is shuffled  [all] */
    uint64_t seed;
    const pl_sample_order_t *order;                         /* borrowed  [by shuffle] */
} pl_sampler_t;

/* The sample at a place of an epoch, for place in [0, count); -1: the component has
 * named one that is not there. */
int64_t pl_sampler_at(const pl_sampler_t *sampler, uint64_t epoch, int64_t place);

/* ---- samples of different length in batches of nearly one length ---- */

#define PL_BUCKETS_MAX 8

typedef struct pl_bucket {
    int64_t length;                         /* of its longest sample; others are padded */
    int64_t begin, count;                   /* range of its samples in `sample` */
} pl_bucket_t;

/* All zero: samples are of one length. */
typedef struct pl_buckets {
    int count;
    pl_bucket_t bucket[PL_BUCKETS_MAX];                     /* longest first */
    int64_t *sample;                                        /* [samples of the sampler] */
} pl_buckets_t;

/* A batch of an iteration. */
typedef struct pl_bucket_batch {
    int bucket;
    int64_t batch;                                         /* within the bucket */
    int64_t count;                                         /* samples of this partition */
} pl_bucket_batch_t;

/* Sorts the samples of a sampler into at most `max` buckets with about as many samples
 * each; length [samples of the data set]. */
int pl_buckets_make(pl_buckets_t *buckets, const pl_sampler_t *sampler,
                    const int64_t *length, int64_t max, pl_error_t *err);
void pl_buckets_release(pl_buckets_t *buckets);

/* Number of batches of an iteration over the largest partition of every bucket. */
int64_t pl_buckets_batches(const pl_buckets_t *buckets, int64_t batch_size,
                           const pl_sampler_partition_t *partition);

/* The batch at a place of an epoch, and its samples: pure functions of the sampler's
 * seed, the epoch and the place. */
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
