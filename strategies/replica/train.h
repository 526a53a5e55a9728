/* train.h - training steps in flight: what the files that make them share */
#ifndef PL_STRATEGIES_REPLICA_TRAIN_H
#define PL_STRATEGIES_REPLICA_TRAIN_H

#include "strategies/replica/internal.h"
#include "base/error.h"

/* ---- step.c: the state machine of a step, what it waits for and what may follow ----
 *
 * Each objective of a step goes through up to four stages: compute (the replay of
 * forward_backward), reduce (the ranks sum their gradients), update (the replay of
 * optimizer_step), follow (the ranks synchronize behind the update).  Of each stage the
 * strategy sees three events:
 *
 *   sent      the call was made
 *   ordered   whatever is sent next runs behind it: sending may continue
 *   reported  its results are on the host: metrics, a request to halt, which rank was bad
 *
 * A device may order a stage as soon as that is sent, and tell its results later.  Where
 * the host passes the results on, as between two ranks on CPUs, both events come with the
 * reply.  So the state says what may be sent, and a set of stages says which results the
 * host still waits for:
 *
 *   UNSENT ─ compute sent ─► COMPUTING ─ compute ordered ─► COMPUTED
 *                             │     ▲
 *            collective begun ▼     │ collective done      the plan waits for the ranks
 *                          IN_COLLECTIVE                   in its middle
 *   COMPUTED ─ reduce sent ─► REDUCING ─ reduce ordered ─► REDUCED
 *   COMPUTED, REDUCED ─ update sent ─► UPDATING ─ update ordered ─► UPDATED
 *   UPDATED ─ follow sent ─► FOLLOWING ─ follow ordered ─► FOLLOWED
 *   COMPUTED, REDUCED, UPDATED, FOLLOWED ─ all sent ─► SENT   what is not due is left out
 *
 *   any ─ skipped ─► SKIPPED    the update changed nothing, because a value was not
 *                               finite; or the plan did not run behind such an update
 *   SKIPPED ─ follow sent, any ordered ─► SKIPPED   other ranks may not have skipped it
 *   SKIPPED ─ all sent ─► SENT  loss scaling has seen to it
 *   any ─ failed ─► FAILED      and nothing but results comes any more
 *   any, no results owed ─ again ─► UNSENT   it is sent once more behind a skipped one
 *
 * `reported`, `skipped` and `failed` come only for a stage whose results are owed, and
 * take it off the set; a stage is ordered before it is reported.  Any other pair of
 * state and event is a bug (PL_EBUG).
 *
 * The steps in flight of a replica form a pipeline.  It has a state, too:
 *
 *   OPEN ─ fault ─► DRAINING       a step was skipped or failed: no more is sent, and
 *                                  what was sent comes back
 *   DRAINING ─ diagnose ─► DIAGNOSING     the oldest step was skipped: the strategy looks
 *                                  for the first bad tensor and restores the state
 *   DIAGNOSING ─ follow ─► FOLLOWING      ranks synchronize behind the skipped step
 *   DIAGNOSING, FOLLOWING ─ resume ─► OPEN    the steps behind it are sent again
 *   DRAINING, DIAGNOSING, FOLLOWING ─ end ─► ENDED   the oldest step failed, and all
 *                                  steps behind it fail with it
 *   ENDED ─ reset ─► OPEN          another pass over the data begins
 *   OPEN ─ hold ─► HELD ─ release ─► OPEN     plans are compiled again
 *   ENDED ─ hold ─► ENDED_HELD ─ release ─► ENDED;  ENDED_HELD ─ reset ─► HELD
 *   any ─ break ─► BROKEN          plans could not be compiled: no step runs any more
 *                                  (DIAGNOSING and FOLLOWING come to their end before) */

#define PL_OBJECTIVE_PHASE_LIST(X) \
    X(UNSENT, "unsent") \
    X(COMPUTING, "computing") \
    X(IN_COLLECTIVE, "in_collective") \
    X(COMPUTED, "computed") \
    X(REDUCING, "reducing") \
    X(REDUCED, "reduced") \
    X(UPDATING, "updating") \
    X(UPDATED, "updated") \
    X(FOLLOWING, "following") \
    X(FOLLOWED, "followed") \
    X(SENT, "sent") \
    X(SKIPPED, "skipped") \
    X(FAILED, "failed")

/* Four of each stage, in the order of pl_objective_stage_t; then the others. */
#define PL_OBJECTIVE_EVENT_LIST(X) \
    X(COMPUTE_SENT, "compute sent") \
    X(COMPUTE_ORDERED, "compute ordered") \
    X(COMPUTE_REPORTED, "compute reported") \
    X(COMPUTE_FAILED, "compute failed") \
    X(REDUCE_SENT, "reduce sent") \
    X(REDUCE_ORDERED, "reduce ordered") \
    X(REDUCE_REPORTED, "reduce reported") \
    X(REDUCE_FAILED, "reduce failed") \
    X(UPDATE_SENT, "update sent") \
    X(UPDATE_ORDERED, "update ordered") \
    X(UPDATE_REPORTED, "update reported") \
    X(UPDATE_FAILED, "update failed") \
    X(FOLLOW_SENT, "follow sent") \
    X(FOLLOW_ORDERED, "follow ordered") \
    X(FOLLOW_REPORTED, "follow reported") \
    X(FOLLOW_FAILED, "follow failed") \
    X(COMPUTE_SKIPPED, "compute skipped") \
    X(UPDATE_SKIPPED, "update skipped") \
    X(COLLECTIVE_BEGUN, "collective begun") \
    X(COLLECTIVE_DONE, "collective done") \
    X(ALL_SENT, "all sent") \
    X(AGAIN, "again")

#define PL_PIPELINE_STATE_LIST(X) \
    X(OPEN, "open") \
    X(DRAINING, "draining") \
    X(DIAGNOSING, "diagnosing") \
    X(FOLLOWING, "following") \
    X(HELD, "held") \
    X(ENDED, "ended") \
    X(ENDED_HELD, "ended and held") \
    X(BROKEN, "broken")

#define PL_PIPELINE_EVENT_LIST(X) \
    X(FAULT, "fault") \
    X(DIAGNOSE, "diagnose") \
    X(FOLLOW, "follow") \
    X(RESUME, "resume") \
    X(END, "end") \
    X(HOLD, "hold") \
    X(RELEASE, "release") \
    X(RESET, "reset") \
    X(BREAK, "break")

typedef enum pl_objective_phase {
#define PL_X(name, text) PL_OBJECTIVE_##name,
    PL_OBJECTIVE_PHASE_LIST(PL_X) PL_OBJECTIVE_PHASES
#undef PL_X
} pl_objective_phase_t;

typedef enum pl_objective_event {
#define PL_X(name, text) PL_OBJECTIVE_ON_##name,
    PL_OBJECTIVE_EVENT_LIST(PL_X) PL_OBJECTIVE_EVENTS
#undef PL_X
} pl_objective_event_t;

typedef enum pl_objective_stage {
    PL_STAGE_COMPUTE,
    PL_STAGE_REDUCE,
    PL_STAGE_UPDATE,
    PL_STAGE_FOLLOW,
} pl_objective_stage_t;

/* Those that end when the ranks have synchronized, as bits. */
#define PL_STAGES_OF_RANKS (1u << PL_STAGE_REDUCE | 1u << PL_STAGE_FOLLOW)

typedef enum pl_pipeline_state {
#define PL_X(name, text) PL_PIPELINE_##name,
    PL_PIPELINE_STATE_LIST(PL_X) PL_PIPELINE_STATES
#undef PL_X
} pl_pipeline_state_t;

typedef enum pl_pipeline_event {
#define PL_X(name, text) PL_PIPELINE_ON_##name,
    PL_PIPELINE_EVENT_LIST(PL_X) PL_PIPELINE_EVENTS
#undef PL_X
} pl_pipeline_event_t;

/* One objective of a step. */
typedef struct pl_objective_stages {
    pl_objective_phase_t phase;
    unsigned owed;                            /* stages: bits 1 << pl_objective_stage_t */
} pl_objective_stages_t;

/* PL_EBUG, and nothing changes: the event cannot come in this state. */
int pl_objective_take(pl_objective_stages_t *stages, pl_objective_event_t event,
                      pl_error_t *err);
int pl_pipeline_take(pl_pipeline_state_t *state, pl_pipeline_event_t event,
                     pl_error_t *err);

/* The event of a stage that corresponds to an event of compute: sent, ordered, reported
 * or failed. */
pl_objective_event_t pl_objective_event_of(pl_objective_stage_t stage,
                                           pl_objective_event_t of_compute);

bool pl_objective_owes(const pl_objective_stages_t *stages, pl_objective_stage_t stage);

extern const char *const pl_objective_phase_names[],
    *const pl_objective_event_names[], *const pl_pipeline_state_names[],
                                           *const pl_pipeline_event_names[];

/* ---- Steps in flight ---- */

/* One of the module's objectives in a step in flight. */
typedef struct pl_objective_state {
    struct pl_inflight *inflight;           /* it belongs to this */
    int objective;                          /* index into pl_replica_t.objective */
    pl_objective_stages_t stages;           /* see above */
    int collectives_begun;                  /* in-graph collectives of forward_backward */
    pl_scheduled_t scheduled;
    double norm, loss;
    double scaling[2];                     /* factor of the loss, steps that it skipped */
} pl_objective_state_t;

/* A step in flight: one micro-batch, and the optimizer step behind it if that is due. */
typedef struct pl_inflight {
    struct pl_inflight *next;                            /* the next one, or a free one */
    pl_call_t *call;
    pl_batch_t *batch;                             /* kept by the call */
    uint64_t number;                               /* of the optimizer step, from 1 */
    uint32_t micro_batch;                          /* index within the step, from 0 */
    uint32_t objectives;                           /* bit mask  [0: those that are due] */
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

/* ---- replica/step.c: when a step is due, and what it needs of the other ranks ---- */

bool pl_objective_is_due(const pl_replica_t *r, const pl_objective_state_t *o);

/* The gradients of earlier batches make the step, on all ranks: a program decides. */
bool pl_train_only_steps(const pl_inflight_t *f);

/* Gradients stay in the device's memory, where ranks sum those of each step. */
bool pl_train_gradients_stay(const pl_replica_t *r);

/* Sums are requested before the batch is computed. */
bool pl_train_runs_ahead(const pl_replica_t *r);

/* The ranks synchronize after each batch, not after each step. */
bool pl_train_syncs_batches(const pl_replica_t *r);

/* The ranks synchronize behind an optimizer step. */
bool pl_train_follows(const pl_replica_t *r, const pl_objective_state_t *o);

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
/* Has the ranks synchronize behind an optimizer step that was made, or else skipped. */
void pl_train_follow(pl_replica_t *r, pl_objective_state_t *o, bool was_made);

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
