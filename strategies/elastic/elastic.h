/* elastic.h - what the files of the strategy elastic share */
#ifndef PL_STRATEGIES_ELASTIC_H
#define PL_STRATEGIES_ELASTIC_H

#include "strategies/ddp/ddp.h"
#include "strategies/replica/train.h"
#include "strategies/elastic/micro_shards.h"

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

/* ---- elastic/graphs.c ---- */

pl_graph_t *pl_elastic_describe(pl_replica_t *r, int k, pl_error_t *err);
int64_t pl_elastic_region(const pl_replica_t *r, int k);
/* The number of its own plan for the first kind of fold. */
int pl_elastic_first_fold(const pl_elastic_t *e);

#endif
