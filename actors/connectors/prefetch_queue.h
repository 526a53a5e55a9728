/* prefetch_queue.h - batches of one stage: read ahead and handed out in order
 *
 * Knows order and memory, nothing of messages: who reads a batch is the caller's
 * business.  Batches may be finished in any order; they are handed out in theirs. */
#ifndef PL_CONNECTORS_PREFETCH_QUEUE_H
#define PL_CONNECTORS_PREFETCH_QUEUE_H

#include "actors/connectors/batch_pool.h"
#include "actors/connectors/buckets.h"
#include "actors/connectors/sampler.h"

typedef struct pl_prefetch_slot pl_prefetch_slot_t;

/* All zero: a stage without data. */
typedef struct pl_prefetch {
    pl_dataset_t *dataset;                                  /* counted  [no data] */
    pl_stage_t stage;
    uint32_t loader;                                        /* which of the stage's */
    pl_sampler_t sampler;
    pl_sampler_partition_t partition;       /* of the samples: what is here */
    pl_buckets_t buckets;                   /* none when samples are of one length */
    int64_t batch_size;                     /* that of a micro-shard, where it has some */
    pl_batch_pool_t *pool;
    pl_prefetch_slot_t *slot;                  /* batch k: k % slot_count */
    uint32_t prefetch, slot_count;             /* batches read ahead, and for who waits */

    bool without_last;                         /* its last batch is not one of an epoch */

    bool begun;                                          /* an iteration, which follows */
    uint64_t epoch;
    uint32_t batches, to_read, to_take;     /* next ones */
    uint32_t requested;                     /* those before this one may be read */
    bool again;                             /* the next epoch's is likely to follow it */
    bool ahead;                             /* it does, and nobody has asked for it yet */
} pl_prefetch_t;

/* Makes a queue of an opened data set; *queue is zeroed.  PL_EINVAL, PL_ENOMEM. */
typedef struct pl_prefetch_spec {
    pl_dataset_t *dataset;
    pl_stage_t stage;
    uint32_t loader;
    pl_sampler_t sampler;
    pl_sampler_partition_t partition;                       /* of the samples */
    int64_t batch_size, prefetch;
    int64_t buckets;                         /* at most, of samples of different length */
    pl_amount_t limit;                       /* batches of an epoch  [0: all] */
    int notice;                              /* of pl_batch_spec_t */
} pl_prefetch_spec_t;
int pl_prefetch_open(pl_prefetch_t *queue, const pl_prefetch_spec_t *spec,
                     pl_error_t *err);
void pl_prefetch_close(pl_prefetch_t *queue);

/* The sizes its batches have: first that of most batches of all partitions, which this
 * one may have none of; -> how many.  A partition has as many batches as the largest;
 * where it has no samples left they are empty. */
int pl_prefetch_sizes(const pl_prefetch_t *queue, pl_batch_size_t size[PL_SIZES_MAX]);

/* Drops the iteration and begins one; what was read ahead of this very one is kept. */
typedef struct pl_prefetch_iter {
    uint64_t epoch;
    uint32_t first;      /* batch to begin with */
    bool again;          /* once all its batches are taken, those of the next epoch are to
                            be read, because that is likely to be begun next */
} pl_prefetch_iter_t;
void pl_prefetch_begin(pl_prefetch_t *queue, const pl_prefetch_iter_t *iter);

/* Somebody is going to take the next one, and none from `until` on  [0: all].  Before
 * that nothing is read: who begins may want none. */
void pl_prefetch_request(pl_prefetch_t *queue, uint32_t until);

/* The next batch to be read, with a reference for the caller, or NULL: so many are read
 * as wait to be fetched and data.prefetch more, or all that are wanted, or whoever has
 * the batches keeps too many, until the notice tells.  A lack of memory comes out of
 * pl_prefetch_take() in its place. */
pl_batch_t *pl_prefetch_next(pl_prefetch_t *queue, uint32_t waiting);

/* It was read, or could not be; of an iteration that was dropped is fine. */
void pl_prefetch_batch_read(pl_prefetch_t *queue, pl_batch_t *batch,
                            const pl_error_t *error);

/* Whether the next batch in order, or the end, is there to be taken. */
bool pl_prefetch_is_ready(const pl_prefetch_t *queue);

/* Takes it, with its reference; NULL with PL_OK: the end of the iteration. */
int pl_prefetch_take(pl_prefetch_t *queue, pl_batch_t **batch_p, pl_error_t *err);

#endif
