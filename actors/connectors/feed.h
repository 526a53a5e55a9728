/* feed.h - the batches of one stage: a pass over its samples, read ahead and handed out
 *
 * Knows order and memory, nothing of messages: who reads a batch is the caller's
 * business.  Batches may be finished in any order; they are handed out in theirs. */
#ifndef PL_CONNECTORS_FEED_H
#define PL_CONNECTORS_FEED_H

#include "actors/connectors/batch_pool.h"
#include "actors/connectors/buckets.h"
#include "actors/connectors/order.h"

typedef struct pl_feed_slot pl_feed_slot_t;

/* All zero: a stage without data. */
typedef struct pl_feed {
    pl_dataset_t *dataset;                                  /* counted  [no data] */
    pl_stage_t stage;
    uint32_t loader;                                        /* which of the stage's */
    pl_order_t order;
    pl_deal_t deal;                         /* of the samples: what is here */
    pl_buckets_t buckets;                   /* none when samples are of one length */
    int64_t batch_size;                     /* that of a micro-shard, where it has some */
    pl_batch_pool_t *pool;
    pl_feed_slot_t *slot;                      /* batch k: k % slot_count */
    uint32_t prefetch, slot_count;             /* batches read ahead, and for who waits */

    bool without_last;                         /* its last batch is not one of an epoch */

    bool begun;                                             /* a pass, which follows */
    uint64_t epoch;
    uint32_t batches, to_read, to_take;     /* next ones */
    uint32_t wanted;                        /* those before this one may be read */
    bool again;                             /* the next epoch's is likely to follow it */
    bool ahead;                             /* it does, and nobody has asked for it yet */
} pl_feed_t;

/* Makes a feed of an opened data set; *feed is zeroed.  PL_EINVAL, PL_ENOMEM. */
typedef struct pl_feed_spec {
    pl_dataset_t *dataset;
    pl_stage_t stage;
    uint32_t loader;
    pl_order_t order;
    pl_deal_t deal;                                         /* of the samples */
    int64_t batch_size, prefetch;
    int64_t buckets;                         /* at most, of samples of different length */
    pl_amount_t limit;                       /* batches of an epoch  [0: all] */
    int notice;                              /* of pl_batch_spec_t */
} pl_feed_spec_t;
int pl_feed_open(pl_feed_t *feed, const pl_feed_spec_t *spec, pl_error_t *err);
void pl_feed_close(pl_feed_t *feed);

/* The sizes its batches have: first that of most batches of all partitions, which this
 * one may have none of; -> how many.  A partition has as many batches as the largest;
 * where it has no samples left they are empty. */
int pl_feed_sizes(const pl_feed_t *feed, pl_batch_size_t size[PL_SIZES_MOST]);

/* Drops the pass and begins one; what was read ahead of this very one is kept. */
typedef struct pl_feed_pass {
    uint64_t epoch;
    uint32_t first;      /* batch to begin with */
    bool again;          /* once all its batches are taken, those of the next epoch are to
                            be read, because that is likely to be begun next */
} pl_feed_pass_t;
void pl_feed_begin(pl_feed_t *feed, const pl_feed_pass_t *pass);

/* Somebody is going to take the next one, and none from `until` on  [0: all].  Before
 * that nothing is read: who begins may want none. */
void pl_feed_want(pl_feed_t *feed, uint32_t until);

/* The next batch to be read, with a reference for the caller, or NULL: so many are read
 * as wait to be fetched and data.prefetch more, or all that are wanted, or whoever has
 * the batches keeps too many, until the notice tells.  A lack of memory comes out of
 * pl_feed_take() in its place. */
pl_batch_t *pl_feed_next(pl_feed_t *feed, uint32_t waiting);

/* It was read, or could not be; of a pass that was dropped is fine. */
void pl_feed_read(pl_feed_t *feed, pl_batch_t *batch, const pl_error_t *error);

/* Whether the next batch in order, or the end, is there to be taken. */
bool pl_feed_ready(const pl_feed_t *feed);

/* Takes it, with its reference; NULL with PL_OK: the end of the pass. */
int pl_feed_take(pl_feed_t *feed, pl_batch_t **batch_p, pl_error_t *err);

#endif
