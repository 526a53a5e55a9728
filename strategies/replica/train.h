/* train.h - training steps in flight: what the files that make them share */
#ifndef PL_STRATEGIES_REPLICA_TRAIN_H
#define PL_STRATEGIES_REPLICA_TRAIN_H

#include "strategies/replica/internal.h"
#include "strategies/replica/step.h"

/* One of the module's objectives in a step in flight. */
typedef struct pl_objective_state {
    struct pl_inflight *inflight;           /* it belongs to this */
    int objective;                          /* index into pl_replica_t.objective */
    pl_objective_stages_t stages;           /* see step.h */
    int collectives_begun;                  /* in-graph collectives of forward_backward */
    double lr_factor, momentum, norm, loss;
    double scaling[2];                     /* factor of the loss, steps that it skipped */
} pl_objective_state_t;

/* A step in flight: one micro-batch, and the optimizer step behind it if that is due. */
typedef struct pl_inflight {
    struct pl_inflight *next;                            /* the next one, or a free one */
    pl_call_t *call;
    pl_batch_t *batch;                                 /* kept by the call */
    uint64_t number;                                   /* of the optimizer step, from 1 */
    uint32_t micro_batch;                              /* index within the step, from 0 */
    bool step_due, may_skip, halt;
    double average_share;
    pl_objective_state_t objective[PL_OBJECTIVES];
    double *metrics;                                     /* in the order of their names */
    pl_error_t failure;                                  /* the first  [code 0] */
} pl_inflight_t;

/* The steps in flight, in the order of their calls. */
typedef struct pl_pipeline {
    pl_pipeline_state_t state;
    pl_inflight_t *first, **last, *spare;
    pl_inflight_t *sending;  /* the first that is not sent completely  [none] */
    int objective;          /* the next objective of it to send */
    int replays;            /* under way, of all steps */
    int diagnosing;         /* calls of a diagnosis under way */
    bool restart;           /* the next replay ends the device's skipping: messages.def */
    uint64_t ended_by;      /* the first step that failed  [0] */
    /* Compiling plans again failed, in PL_PIPELINE_BROKEN  [code 0] */
    pl_error_t failure;
    char bad[256];                  /* description of the bad value in the skipped step */
    /* metrics of the step's earlier batches on this rank [there is one rank] */
    double *carried;
    bool has_samples[PL_OBJECTIVES];                 /* this rank had, in those batches */
    bool has_begun;                                  /* a step has been requested */

    /* pl_now() of the begin of the next span to count: the device works, or the ranks
     * synchronize */
    int64_t since;
    double passed;  /* seconds in which the device had replays, to divide among stages, */
    double ran[PL_TIMINGS];  /* and in which it ran them */
    bool is_syncing;  /* it waits for the other ranks, */
    bool checks_presence;  /* a timer checks that it runs; */
    int64_t last_present, absent;  /* pl_now() of the last check; ns that were missed */
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

/* Sums are requested before the batch is computed. */
static inline bool pl_train_runs_ahead(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->computed;
}

/* The ranks synchronize after each batch, not after each step. */
static inline bool pl_train_syncs_batches(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->per_batch;
}

/* The ranks synchronize behind an optimizer step. */
static inline bool pl_train_follows(const pl_replica_t *r, const pl_objective_state_t *o)
{
    return r->sync_hooks && r->sync_hooks->stepped
           && (!r->sync_hooks->follows || r->sync_hooks->follows(r, o->inflight->number));
}

/* ---- replica/train.c: events ---- */

/* An event that cannot come in this state ends the strategy with PL_EBUG; returns
 * false then. */
bool pl_train_take(pl_replica_t *r, pl_objective_state_t *o, pl_objective_event_t event);
void pl_train_pipeline_take(pl_replica_t *r, pl_pipeline_event_t event);
/* Fails a step, or one of its stages; calls under way come back first. */
void pl_train_fail(pl_replica_t *r, pl_inflight_t *inflight, const pl_error_t *failure);
void pl_train_stage_fail(pl_replica_t *r, pl_objective_state_t *o,
                         pl_objective_stage_t stage, const pl_error_t *failure);
/* Sends the steps that did not run or that came since: the first from one of the
 * module's objectives on  [0: completely], the others completely. */
void pl_train_resend(pl_replica_t *r, int objective);
/* Sends everything that may be sent. */
void pl_train_advance(pl_replica_t *r);
/* Replays forward and backward up to the first collective, or from the newest one on. */
int pl_train_replay(pl_replica_t *r, pl_objective_state_t *o, pl_error_t *err);
/* All events of a replay have been taken. */
void pl_train_replay_ended(pl_replica_t *r);
/* ---- replica/sync.c: what the ranks do together ---- */

/* This rank's data of the step. */
pl_replica_sums_t pl_train_sums(const pl_replica_t *r, const pl_objective_state_t *o);
/* Gives sums that were requested before the batch was computed its metrics, if it has
 * run. */
void pl_train_computed(pl_replica_t *r, pl_objective_state_t *o, bool has_run);
/* Has the ranks synchronize behind an optimizer step that was made or skipped. */
void pl_train_follow(pl_replica_t *r, pl_objective_state_t *o, double *metrics,
                     size_t count);

/* The plan of a batch without samples. */
const pl_replica_plan_t *pl_train_empty_plan(const pl_replica_t *r,
                                             const pl_objective_state_t *o);
/* The number of ready buckets that may be reported before the next collective. */
int pl_train_buckets(const pl_replica_t *r, const pl_objective_state_t *o, int ready);
/* The replay waits at that collective, from 1; ends with pl_replica_collective_done(). */
int pl_train_collective(pl_replica_t *r, pl_objective_state_t *o, int number,
                        pl_error_t *err);

/* ---- replica/results.c: metrics, answers, and a step that was skipped ---- */

/* Index of an objective's first metric; of the one behind the last: of the first
 * metric of the optimizers. */
size_t pl_metrics_before(const pl_replica_t *r, int objective);
/* Including two numbers for each metric that is not of a batch plan. */
size_t pl_metrics_count(const pl_replica_t *r);

/* Allocates the memory for pl_train_carry(), once. */
int pl_train_carry_new(pl_replica_t *r, pl_error_t *err);
/* Adds the metrics of the step's earlier batches: they are reported at its end. */
void pl_train_carry(pl_replica_t *r, const pl_objective_state_t *o);

/* The oldest objective that owes one of the stages (bits), or NULL. */
pl_objective_state_t *pl_train_owing(const pl_replica_t *r, unsigned stages);

/* Takes one from the list of free ones, so that a step allocates nothing. */
pl_inflight_t *pl_inflight_take(const pl_replica_t *r, pl_error_t *err);

/* Sets the error of a step that was not run. */
int pl_train_fail_behind(const pl_pipeline_t *pipeline, uint64_t number, pl_error_t *err);
/* Answers the steps whose results are here, the oldest first; diagnoses a skipped one
 * before. */
void pl_train_answer(pl_replica_t *r);
/* The ranks have synchronized behind the skipped step. */
void pl_train_followed(pl_replica_t *r);

/* ---- replica/timing.c: what a step takes ---- */

void pl_train_spending(pl_replica_t *r);
/* Adds seconds of the device  [0: unknown] to a stage, and those of forward. */
void pl_train_add_timing(pl_replica_t *r, pl_timing_t kind, double forward,
                         double seconds);
/* Divides the time until now among the stages. */
void pl_train_share(pl_replica_t *r);
/* The ranks synchronize; they have synchronized. */
void pl_train_sync_begin(pl_replica_t *r);
void pl_train_sync_end(pl_replica_t *r);

#endif
