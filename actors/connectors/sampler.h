/* sampler.h - which sample comes when: splits, shuffles and partitions
 *
 * Pure functions of a key and a place: neither how many threads read nor how far ahead
 * changes what comes, and a shuffle of any length takes no memory. */
#ifndef PL_CONNECTORS_SAMPLER_H
#define PL_CONNECTORS_SAMPLER_H

#include "paceline.h"

/* A data set cut in two at random.  All zero: not cut. */
typedef struct pl_data_split {
    int64_t total;                                          /* samples */
    int64_t held_count;                                     /* of them, for validation */
    int64_t *held;                                          /* [held_count], rising */
} pl_data_split_t;

typedef struct pl_data_split_spec {
    uint64_t seed;
    int64_t total;                         /* samples */
    double share;                          /* of them, held back */
    const int64_t *target;                 /* [total] classes, each of which is cut in the
                                              same proportion  [no classes] */
} pl_data_split_spec_t;

/* Holds back a share of the samples.  PL_EINVAL: nothing is left on either side. */
int pl_data_split_make(pl_data_split_t *split, const pl_data_split_spec_t *spec,
                       pl_error_t *err);
/* Whether a sample is held back. */
bool pl_data_split_holds(const pl_data_split_t *split, int64_t sample);
void pl_data_split_release(pl_data_split_t *split);

/* How samples are dealt out: one by one, and each partition makes batches of its own;
 * or, so that nothing but who has them depends on the number of partitions, batches of
 * all are cut into micro-shards and a partition has neighbouring ones. */
typedef struct pl_sampler_partition {
    uint32_t partition, partitions;
    bool even;                             /* those that not all partitions would have, or
                                              not all micro-shards, are left out */
    uint32_t micro_shards;                 /* 0: one by one */
    bool drop_last;                        /* batches that are not full on all partitions
                                              are left out */
} pl_sampler_partition_t;

/* Of `count` samples in batches, or micro-shards, of batch_size at most: the samples
 * of one that is full, and of the largest batch of this partition, both 1 at least. */
int64_t pl_sampler_full_batch(const pl_sampler_partition_t *partition, int64_t count,
                              int64_t batch_size);
int64_t pl_sampler_max_batch(const pl_sampler_partition_t *partition, int64_t count,
                             int64_t batch_size);
/* How many batches all partitions make; some of them may be empty. */
int64_t pl_sampler_batches(const pl_sampler_partition_t *partition, int64_t count,
                           int64_t batch_size);
/* The samples of a batch, and the place of its i-th one among all. */
int64_t pl_sampler_batch_count(const pl_sampler_partition_t *partition, int64_t count,
                               int64_t batch_size, int64_t batch);
int64_t pl_sampler_position(const pl_sampler_partition_t *partition, int64_t batch_size,
                            int64_t batch, int64_t i);
/* What a full one has, and the last one of them, 0: none is smaller. */
void pl_sampler_batch_sizes(const pl_sampler_partition_t *partition, int64_t count,
                            int64_t batch_size, int64_t size[2]);

/* The samples of a stage in order. */
typedef enum pl_split_side { PL_WHOLE, PL_REST, PL_HELD } pl_split_side_t;

typedef struct pl_order {
    const pl_data_split_t *split;                           /* borrowed  [PL_WHOLE] */
    pl_split_side_t side;
    int64_t count;                                          /* samples */
    bool shuffle;
    uint64_t seed;
} pl_sampler_t;

/* The sample at a place of an epoch, for place in [0, count). */
int64_t pl_sampler_at(const pl_sampler_t *sampler, uint64_t epoch, int64_t place);

#endif
