/* elastic.h - what the files of the strategy elastic share */
#ifndef PL_STRATEGIES_ELASTIC_H
#define PL_STRATEGIES_ELASTIC_H

#include "strategies/ddp/ddp.h"
#include "strategies/replica/train.h"

/* ---- Sums of micro-shards: pure functions of the numbers of micro-shards and ranks ----
 *
 * A rank's micro-shards are neighbours. In the canonical tree over all micro-shards a
 * rank can add up the largest subtrees within them by itself: its micro-shard sums. */

enum { PL_MICRO_SUMS_MAX = 8, PL_FOLDS_MAX = 24 };

/* Micro-shards first to first + count. */
typedef struct pl_micro_range {
    int first, count;
} pl_micro_range_t;

/* What is done with a micro-shard's gradients: `there` sums lie there already, and the
 * last `added` of them are added to it. */
typedef struct pl_fold {
    int there, added;
} pl_fold_t;

/* The sums that a rank has. */
typedef struct pl_micro_sums {
    pl_micro_range_t range[PL_MICRO_SUMS_MAX];
    int count;
} pl_micro_sums_t;

int pl_micro_shard_first(int micro_shards, int ranks, int rank);

/* Adds the next micro-shard of a rank to its sums. */
pl_fold_t pl_micro_sums_fold(pl_micro_sums_t *sums, int micro_shards, int micro_shard);

/* The sums of a rank after all its micro-shards. */
void pl_micro_sums_of(pl_micro_sums_t *sums, int micro_shards, int ranks, int rank);

/* The largest number of sums of any rank. */
int pl_micro_sums_max(int micro_shards, int ranks);

/* ---- The strategy ---- */

/* Its own plans: before a batch; at its end, where steps of several batches have one
 * for the first, the last and others; behind these a fold of each kind. */
enum { PL_ELASTIC_BEGIN, PL_ELASTIC_COMBINE, PL_ELASTIC_COMBINES = 4 };

/* Its own regions: sums over micro-shards, of all ranks; further sums of this rank
 * only. */
enum {
    PL_ELASTIC_RANK_SUMS = PL_REGION_STRATEGY0,
    PL_ELASTIC_LOCAL_SUMS,
};

/* Step scalars that change from micro-shard to micro-shard: whether it has samples;
 * whether it is micro-shard 0. */
enum { PL_ELASTIC_PRESENT, PL_ELASTIC_FIRST, PL_ELASTIC_SCALARS };

/* Metrics of a batch of a step. */
typedef struct pl_elastic_rows {
    struct pl_elastic_rows *next;
    uint64_t step;
    uint32_t batch;
    double metric[];                                        /* [micro-shards][count] */
} pl_elastic_rows_t;

typedef struct pl_elastic {
    pl_ddp_t ddp;                                      /* first: this strategy is a ddp */
    pl_sync_hooks_t sync_hooks;
    int64_t micro_shards;                         /* option; pl_options_trainer() reads it
                                                     into the trainer's */
    int rank_sums_max, sums_max;                  /* of any rank; of this one at a time */
    pl_fold_t fold[PL_FOLDS_MAX];                 /* the kinds that occur */
    int folds, combines;

    pl_objective_state_t *of,
        *next_of;                     /* the batch under way, and the next one  [NULL]: */
    pl_replay_plan_t msg, next_msg;
    pl_micro_sums_t sums;                         /* of the micro-shards that were sent */
    int sent, back;                               /* replays */
    int next;                                     /* the next micro-shard to send */
    bool skipped, began;
    double forward, seconds;                                /* forward, and all of it */
    pl_elastic_rows_t *rows;                                /* the batch's metrics */
    size_t count;
    pl_error_t failure;

    /* Of batches that ranks have not synchronized on, the oldest first; free ones. */
    pl_elastic_rows_t *computed, *spare;
} pl_elastic_t;

/* ---- graphs.c ---- */

pl_graph_t *pl_elastic_describe(pl_replica_t *r, int k, pl_error_t *err);
int64_t pl_elastic_region(const pl_replica_t *r, int k);
/* The number of its own plan for the first kind of fold. */
int pl_elastic_first_fold(const pl_elastic_t *e);

#endif
