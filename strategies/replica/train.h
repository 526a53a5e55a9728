/* train.h - training steps in flight: what the files that make them share */
#ifndef PL_STRATEGIES_REPLICA_TRAIN_H
#define PL_STRATEGIES_REPLICA_TRAIN_H

#include "strategies/replica/internal.h"
#include "strategies/replica/step.h"

/* What one of the module's objectives does in a step in flight. */
typedef struct pl_objective_state {
    struct pl_inflight *inflight;           /* that it belongs to */
    int objective;                          /* index into pl_replica_t.objective */
    pl_objective_stages_t stages;           /* how far it has come: step.h */
    int collectives_begun;                  /* in-graph collectives of forward_backward */
    double lr_factor, momentum, norm, loss;
    double scaling[2];                      /* the loss's factor, steps that it skipped */
} pl_objective_state_t;

/* A step in flight: one micro-batch, and the optimizer step behind it if that is due. */
typedef struct pl_inflight {
    struct pl_inflight *next;                            /* the one behind it; or spare */
    pl_call_t *call;
    pl_batch_t *batch;                                 /* kept by the call */
    uint64_t number;                                   /* of the optimizer step, from 1 */
    uint32_t micro_batch;                              /* index within the step, from 0 */
    bool step_due, may_skip, halt;
    double average_share;
    pl_objective_state_t objective[PL_OBJECTIVES];
    double *metrics;                             /* numbers in the order of their names */
    pl_error_t failure;                          /* the first  [code 0] */
} pl_inflight_t;

/* The steps in flight, in the order of their calls. */
typedef struct pl_pipeline {
    pl_pipeline_state_t state;
    pl_inflight_t *first, **last, *spare;
    pl_inflight_t *sending;            /* the first that is not sent whole  [none] */
    int objective;                     /* of it, the next to send */
    int replays;                       /* under way, of all steps */
    int diagnosing;                    /* calls under way of a diagnosis */
    bool restart;                      /* the next replay ends the skipping of the
                                          device: messages.def */
    uint64_t ended_by;                 /* the first step that failed  [0] */
    pl_error_t failure;                /* of new plans, in PL_PIPELINE_BROKEN  [code 0] */
    char bad[256];                     /* what was not finite in the skipped step */
    double *carried;                   /* metrics of the step's batches before, of this
                                          rank  [there is one rank] */
    bool has_samples[PL_OBJECTIVES];   /* this rank, in those batches */
    bool has_begun;                    /* a step was requested before */

    int64_t since;                     /* pl_now() of what is counted as spent next: the
                                          device works, or the ranks synchronize */
    double passed;                     /* s that the device had replays, to share out, */
    double ran[PL_TIMINGS];            /* and that it ran them */
    bool is_syncing;                   /* it waits for the other ranks, */
    bool looks;                        /* and a timer shows whether it runs meanwhile; */
    int64_t looked, absent;            /* pl_now() of its last sign; ns that it did not */
} pl_pipeline_t;

static inline bool pl_objective_is_due(const pl_replica_t *r,
                                       const pl_objective_state_t *o)
{
    return o->inflight->number % (uint64_t)r->objective[o->objective].every == 0;
}

/* Gradients stay in the device's memory, where ranks sum those of each step. */
static inline bool pl_train_stays(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->stays;
}

/* Sums are sent before the batch is computed. */
static inline bool pl_train_runs_ahead(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->computed;
}

/* The ranks synchronize after each batch, not after each step. */
static inline bool pl_train_syncs_batches(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->per_batch;
}

/* They synchronize behind an optimizer step. */
static inline bool pl_train_follows(const pl_replica_t *r, const pl_objective_state_t *o)
{
    return r->sync_hooks && r->sync_hooks->stepped
           && (!r->sync_hooks->follows || r->sync_hooks->follows(r, o->inflight->number));
}

/* ---- replica/train.c: events ---- */

/* An event that cannot come ends the strategy with PL_EBUG; false then. */
bool pl_train_take(pl_replica_t *r, pl_objective_state_t *o, pl_objective_event_t event);
void pl_train_pipeline_take(pl_replica_t *r, pl_pipeline_event_t event);
/* The step fails, or one of its stages; what was sent comes back first. */
void pl_train_fail(pl_replica_t *r, pl_inflight_t *inflight, const pl_error_t *failure);
void pl_train_stage_fail(pl_replica_t *r, pl_objective_state_t *o,
                         pl_objective_stage_t stage, const pl_error_t *failure);
/* Sends the steps that did not run or that came since: the first from one of the
 * module's objectives on  [0: whole], the others whole. */
void pl_train_again(pl_replica_t *r, int objective);
/* Sends what may be sent. */
void pl_train_advance(pl_replica_t *r);
/* Forward and backward, up to the first collective; or what is behind the newest. */
int pl_train_replay(pl_replica_t *r, pl_objective_state_t *o, pl_error_t *err);
/* Of a replay all events have been taken. */
void pl_train_replay_ended(pl_replica_t *r);
/* ---- replica/sync.c: what the ranks do together ---- */

/* What this rank has of the step. */
pl_replica_sums_t pl_train_sums(const pl_replica_t *r, const pl_objective_state_t *o);
/* Sums that were sent before the batch was computed get its metrics, if it has run. */
void pl_train_computed(pl_replica_t *r, pl_objective_state_t *o, bool has_run);
/* Has the ranks synchronize behind an optimizer step that was made, or skipped. */
void pl_train_follow(pl_replica_t *r, pl_objective_state_t *o, double *metrics,
                     size_t count);

/* Of a batch without samples. */
const pl_replica_plan_t *pl_train_empty_plan(const pl_replica_t *r,
                                             const pl_objective_state_t *o);
/* Of buckets that are there, how many may be told before the next collective. */
int pl_train_buckets(const pl_replica_t *r, const pl_objective_state_t *o, int ready);
/* The replay waits at that collective, from 1; ends with pl_replica_collective_done(). */
int pl_train_collective(pl_replica_t *r, pl_objective_state_t *o, int number,
                        pl_error_t *err);

/* ---- replica/results.c: metrics, answers, and a step that was skipped ---- */

/* Where the metrics of an objective lie among all; of the one behind the last those that
 * its optimizers give begin. */
size_t pl_metrics_before(const pl_replica_t *r, int objective);
/* With two numbers more for each that is not of a batch plan. */
size_t pl_metrics_count(const pl_replica_t *r);

/* Memory for what follows, once. */
int pl_train_carry_new(pl_replica_t *r, pl_error_t *err);
/* Adds the metrics of a step's batches before: they are told with its end. */
void pl_train_carry(pl_replica_t *r, const pl_objective_state_t *o);

/* The oldest objective that owes one of the stages (bits), or NULL. */
pl_objective_state_t *pl_train_owing(const pl_replica_t *r, unsigned stages);

/* From a list of spare ones, so that a step allocates nothing. */
pl_inflight_t *pl_inflight_take(const pl_replica_t *r, pl_error_t *err);

/* The error of a step that was not run. */
int pl_train_fail_behind(const pl_pipeline_t *pipeline, uint64_t number, pl_error_t *err);
/* Answers the steps whose results are here, the oldest first; a skipped one is diagnosed
 * before. */
void pl_train_answer(pl_replica_t *r);
/* The ranks have synchronized behind the skipped step. */
void pl_train_followed(pl_replica_t *r);

/* ---- replica/timing.c: what a step takes ---- */

void pl_train_spending(pl_replica_t *r);
/* The device ran for so many seconds  [0: nobody can tell], forward's among them. */
void pl_train_add_timing(pl_replica_t *r, pl_timing_t kind, double forward,
                         double seconds);
/* What was spent until now goes to the stages. */
void pl_train_share(pl_replica_t *r);
/* The ranks synchronize; they have synchronized. */
void pl_train_sync_begin(pl_replica_t *r);
void pl_train_sync_end(pl_replica_t *r);

#endif
