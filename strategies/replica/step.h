/* step.h - the state machine of training steps: what each waits for, and what may follow
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
#ifndef PL_STRATEGIES_STEP_H
#define PL_STRATEGIES_STEP_H

#include "base/error.h"

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

/* The event of a stage that corresponds to that of compute: sent, ordered, reported or
 * failed. */
static inline pl_objective_event_t pl_objective_event_of(pl_objective_stage_t stage,
                                                         pl_objective_event_t of_compute)
{
    return (pl_objective_event_t)(4 * (int)stage + (int)of_compute);
}

static inline bool pl_objective_owes(const pl_objective_stages_t *stages,
                                     pl_objective_stage_t stage)
{
    return stages->owed >> stage & 1;
}

const char *pl_objective_phase_name(pl_objective_phase_t state);
const char *pl_objective_event_name(pl_objective_event_t event);
const char *pl_pipeline_state_name(pl_pipeline_state_t state);
const char *pl_pipeline_event_name(pl_pipeline_event_t event);

#endif
