/* step.c - the state machine of training steps: its transitions
 *
 * One table for each machine; a pair of state and event that it lacks is a bug. */
#include "strategies/replica/train.h"

#define PL_X(name, text) text,
const char *const pl_objective_phase_names[] = {PL_OBJECTIVE_PHASE_LIST(PL_X)};
const char *const pl_objective_event_names[] = {PL_OBJECTIVE_EVENT_LIST(PL_X)};
const char *const pl_pipeline_state_names[] = {PL_PIPELINE_STATE_LIST(PL_X)};
const char *const pl_pipeline_event_names[] = {PL_PIPELINE_EVENT_LIST(PL_X)};
#undef PL_X

/* ---- one objective of a step ---- */

enum { STAGE_EVENTS = 4, STAGES = PL_STAGE_FOLLOW + 1 };

#define TO(state) (PL_OBJECTIVE_##state + 1)
#define ON(event) [PL_OBJECTIVE_ON_##event]

/* Work that was sent before a step was skipped or failed may come into order later. */
#define ORDERED_LATE(state) \
    ON(COMPUTE_ORDERED) = TO(state), ON(REDUCE_ORDERED) = TO(state), \
    ON(UPDATE_ORDERED) = TO(state), ON(FOLLOW_ORDERED) = TO(state)

/* How far it is sent. Results are not here: the set of owed stages decides about
 * them. */
static const unsigned char objective_next[PL_OBJECTIVE_PHASES][PL_OBJECTIVE_EVENTS] = {
    [PL_OBJECTIVE_UNSENT] = {ON(COMPUTE_SENT) = TO(COMPUTING), ON(AGAIN) = TO(UNSENT)},
    [PL_OBJECTIVE_COMPUTING] = {ON(COMPUTE_ORDERED) = TO(COMPUTED),
                                ON(COLLECTIVE_BEGUN) = TO(IN_COLLECTIVE)},
    [PL_OBJECTIVE_IN_COLLECTIVE] = {ON(COLLECTIVE_DONE) = TO(COMPUTING)},
    [PL_OBJECTIVE_COMPUTED] = {ON(REDUCE_SENT) = TO(REDUCING),
                               ON(UPDATE_SENT) = TO(UPDATING), ON(ALL_SENT) = TO(SENT),
                               ON(AGAIN) = TO(UNSENT)},
    [PL_OBJECTIVE_REDUCING] = {ON(REDUCE_ORDERED) = TO(REDUCED)},
    [PL_OBJECTIVE_REDUCED] = {ON(UPDATE_SENT) = TO(UPDATING), ON(ALL_SENT) = TO(SENT),
                              ON(AGAIN) = TO(UNSENT)},
    [PL_OBJECTIVE_UPDATING] = {ON(UPDATE_ORDERED) = TO(UPDATED)},
    [PL_OBJECTIVE_UPDATED] = {ON(FOLLOW_SENT) = TO(FOLLOWING), ON(ALL_SENT) = TO(SENT),
                              ON(AGAIN) = TO(UNSENT)},
    [PL_OBJECTIVE_FOLLOWING] = {ON(FOLLOW_ORDERED) = TO(FOLLOWED)},
    [PL_OBJECTIVE_FOLLOWED] = {ON(ALL_SENT) = TO(SENT), ON(AGAIN) = TO(UNSENT)},
    [PL_OBJECTIVE_SENT] = {ON(AGAIN) = TO(UNSENT)},
    [PL_OBJECTIVE_SKIPPED] = {ORDERED_LATE(SKIPPED), ON(FOLLOW_SENT) = TO(SKIPPED),
                              ON(ALL_SENT) = TO(SENT), ON(AGAIN) = TO(UNSENT)},
    [PL_OBJECTIVE_FAILED] = {ORDERED_LATE(FAILED)},
};

static int event_refuse(const pl_objective_stages_t *stages, pl_objective_event_t event,
                        pl_error_t *err)
{
    return pl_fail(err, PL_EBUG,
                   "event \"%s\" cannot come in state \"%s\" of a training step, which "
                   "waits for the results of%s%s%s%s%s",
                   pl_objective_event_names[event],
                   pl_objective_phase_names[stages->phase],
                   stages->owed ? "" : " nothing",
                   pl_objective_owes(stages, PL_STAGE_COMPUTE) ? " compute" : "",
                   pl_objective_owes(stages, PL_STAGE_REDUCE) ? " reduce" : "",
                   pl_objective_owes(stages, PL_STAGE_UPDATE) ? " update" : "",
                   pl_objective_owes(stages, PL_STAGE_FOLLOW) ? " follow" : "");
}

/* Whether a stage has come into order, so that its results may come. */
static bool is_ordered(pl_objective_phase_t state, pl_objective_stage_t stage)
{
    static const pl_objective_phase_t under_way[STAGES] = {
        [PL_STAGE_COMPUTE] = PL_OBJECTIVE_COMPUTING,
        [PL_STAGE_REDUCE] = PL_OBJECTIVE_REDUCING,
        [PL_STAGE_UPDATE] = PL_OBJECTIVE_UPDATING,
        [PL_STAGE_FOLLOW] = PL_OBJECTIVE_FOLLOWING,
    };
    return state != under_way[stage]
           && !(stage == PL_STAGE_COMPUTE && state == PL_OBJECTIVE_IN_COLLECTIVE);
}

/* A failure stays one, whatever follows. */
static void result_take(pl_objective_stages_t *stages, pl_objective_stage_t stage,
                        pl_objective_phase_t to)
{
    stages->owed &= ~(1u << stage);
    if (stages->phase != PL_OBJECTIVE_FAILED)
        stages->phase = to;
}

int pl_objective_take(pl_objective_stages_t *stages, pl_objective_event_t event,
                      pl_error_t *err)
{
    const bool of_stage = event < STAGES * STAGE_EVENTS;
    const pl_objective_event_t kind = of_stage ? event % STAGE_EVENTS : event;
    const pl_objective_stage_t stage = of_stage ? event / STAGE_EVENTS
                                       : event == PL_OBJECTIVE_ON_UPDATE_SKIPPED
                                           ? PL_STAGE_UPDATE
                                           : PL_STAGE_COMPUTE;
    const bool owes = pl_objective_owes(stages, stage);
    const int next = objective_next[stages->phase][event];
    switch (kind) {
    case PL_OBJECTIVE_ON_COMPUTE_REPORTED:
        if (!owes || !is_ordered(stages->phase, stage))
            return event_refuse(stages, event, err);
        result_take(stages, stage, stages->phase);
        return PL_OK;
    case PL_OBJECTIVE_ON_COMPUTE_FAILED:
    case PL_OBJECTIVE_ON_COMPUTE_SKIPPED:
    case PL_OBJECTIVE_ON_UPDATE_SKIPPED:
        if (!owes)
            return event_refuse(stages, event, err);
        result_take(stages, stage,
                    kind == PL_OBJECTIVE_ON_COMPUTE_FAILED ? PL_OBJECTIVE_FAILED
                                                           : PL_OBJECTIVE_SKIPPED);
        return PL_OK;
    default: break;
    }
    if (!next || (kind == PL_OBJECTIVE_ON_COMPUTE_SENT && owes)
        || (kind == PL_OBJECTIVE_ON_COMPUTE_ORDERED && !owes)
        || (kind == PL_OBJECTIVE_ON_AGAIN && stages->owed))
        return event_refuse(stages, event, err);
    if (kind == PL_OBJECTIVE_ON_COMPUTE_SENT)
        stages->owed |= 1u << stage;
    stages->phase = (pl_objective_phase_t)(next - 1);
    return PL_OK;
}

/* ---- the steps in flight ---- */

#undef TO
#undef ON
#define TO(state) (PL_PIPELINE_##state + 1)
#define ON(event) [PL_PIPELINE_ON_##event]

/* Steps that came before a fault may bring further faults. */
static const unsigned char pipeline_next[PL_PIPELINE_STATES][PL_PIPELINE_EVENTS] = {
    [PL_PIPELINE_OPEN] = {ON(FAULT) = TO(DRAINING), ON(HOLD) = TO(HELD),
                          ON(RESET) = TO(OPEN), ON(BREAK) = TO(BROKEN)},
    [PL_PIPELINE_DRAINING] = {ON(FAULT) = TO(DRAINING), ON(DIAGNOSE) = TO(DIAGNOSING),
                              ON(END) = TO(ENDED), ON(BREAK) = TO(BROKEN)},
    [PL_PIPELINE_DIAGNOSING] = {ON(FAULT) = TO(DIAGNOSING), ON(FOLLOW) = TO(FOLLOWING),
                                ON(RESUME) = TO(OPEN), ON(END) = TO(ENDED),
                                ON(BREAK) = TO(DIAGNOSING)},
    [PL_PIPELINE_FOLLOWING] = {ON(FAULT) = TO(FOLLOWING), ON(RESUME) = TO(OPEN),
                               ON(END) = TO(ENDED), ON(BREAK) = TO(FOLLOWING)},
    [PL_PIPELINE_HELD] = {ON(RELEASE) = TO(OPEN), ON(RESET) = TO(HELD),
                          ON(BREAK) = TO(BROKEN)},
    [PL_PIPELINE_ENDED] = {ON(FAULT) = TO(ENDED), ON(HOLD) = TO(ENDED_HELD),
                           ON(RESET) = TO(OPEN), ON(BREAK) = TO(BROKEN)},
    [PL_PIPELINE_ENDED_HELD] = {ON(RELEASE) = TO(ENDED), ON(RESET) = TO(HELD),
                                ON(BREAK) = TO(BROKEN)},
    [PL_PIPELINE_BROKEN] = {ON(FAULT) = TO(BROKEN), ON(END) = TO(BROKEN),
                            ON(HOLD) = TO(BROKEN), ON(RELEASE) = TO(BROKEN),
                            ON(RESET) = TO(BROKEN), ON(BREAK) = TO(BROKEN)},
};

int pl_pipeline_take(pl_pipeline_state_t *state, pl_pipeline_event_t event,
                     pl_error_t *err)
{
    const int next = pipeline_next[*state][event];
    if (!next)
        return pl_fail(err, PL_EBUG,
                       "event \"%s\" cannot come in state \"%s\" of the steps in flight",
                       pl_pipeline_event_names[event], pl_pipeline_state_names[*state]);
    *state = (pl_pipeline_state_t)(next - 1);
    return PL_OK;
}
