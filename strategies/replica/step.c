/* step.c - what makes a training step: its plan, the values that schedules give it, and
 * the order of its events
 *
 * The order is one table for each state machine (train.h); a pair of state and event that
 * it lacks is a bug. */
#include <math.h>

#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/train.h"

/* ---- its plan ---- */

const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r,
                                         const pl_replica_plan_t *like, pl_error_t *err)
{
    for (int k = 0; k < r->plan_count; k++) {
        const pl_replica_plan_t *p = &r->plan[k];
        if (p->kind == PL_PLAN_BATCH && p->stage == like->stage
            && p->objective == like->objective && p->size.count == like->size.count
            && p->size.length == like->size.length && p->accumulate == like->accumulate)
            return p;
    }
    pl_fail(err, PL_EINVAL, "no plan for a batch of %lld samples of length %lld",
            (long long)like->size.count, (long long)like->size.length);
    return NULL;
}

const pl_replica_plan_t *pl_replica_plan_of(const pl_replica_t *r, pl_plan_kind_t kind,
                                            int objective)
{
    for (int k = 0; k < r->plan_count; k++)
        if (r->plan[k].kind == kind && r->plan[k].objective == objective)
            return &r->plan[k];
    return NULL;
}

size_t pl_replica_metrics(const pl_replica_plan_t *plan)
{
    size_t numbers = 0;
    for (int k = 0; k < plan->fetch_count; k++)
        if (plan->fetch[k].kind == PL_FETCH_METRIC)
            numbers += (size_t)plan->fetch[k].sums;
    return numbers;
}

/* ---- learning rate, momentum, weight decay, and the share of the weights in their
 * average ---- */

enum { LOOKS_MAX = 1 << 20 };                               /* steps; a few ms */

static pl_moment_t moment_of(const pl_train_batch_t *msg)
{
    return (pl_moment_t){.step = msg->global_step - 1,
                         .total_steps = msg->total_steps,
                         .epoch = msg->epoch,
                         .total_epochs = msg->total_epochs,
                         .epoch_steps = msg->epoch_steps,
                         .epoch_ends = msg->epoch_ends};
}

/* The learning rate of an objective as a share of the optimizer's. */
static double rate_factor(const pl_replica_t *r, int objective,
                          const pl_train_batch_t *msg)
{
    const pl_instance_t *component = &r->objective[objective].schedule[PL_SCHEDULE_RATE];
    const pl_scheduler_ops_t *scheduler = component->ops;
    const pl_averaging_ops_t *averaging = r->averaging.ops;
    const pl_moment_t when = moment_of(msg);
    pl_moment_t start = when;
    const pl_optimizer_t *optimizer = r->objective[objective].optimizer;
    double lr = pl_optimizer_lr(optimizer, optimizer->group_count), at = lr;
    const double way = averaging && averaging->anneal && lr > 0
                           ? averaging->anneal(r->averaging.self, &when, &start, &at)
                           : 0;
    const double scheduled = scheduler->factor(component->self, &start);
    return msg->lr_factor
           * (way > 0 ? scheduled + (at / lr - scheduled) * way : scheduled);
}

pl_scheduled_t pl_replica_scheduled(pl_replica_t *r, int objective,
                                    const pl_train_batch_t *msg)
{
    pl_replica_objective_t *o = &r->objective[objective];
    pl_replica_rate_t *rate = &o->rate;
    const pl_moment_t when = moment_of(msg);
    const pl_instance_t *of = o->schedule;
    const pl_scheduler_ops_t *scheduler = of[PL_SCHEDULE_RATE].ops;
    const double scheduled = rate_factor(r, objective, msg),
                 factor = rate->aim
                          / (scheduled
                             * pl_optimizer_lr(o->optimizer, o->optimizer->group_count));
    if (rate->aims && msg->global_step % (uint64_t)o->every == 0 && isfinite(factor)) {
        rate->aims = false;
        rate->factor = factor;
    }
    pl_scheduled_t all = {.lr = scheduled * rate->factor,
                          .momentum = scheduler->momentum
                                          ? scheduler->momentum(of->self, &when)
                                          : NAN};
    for (int k = 0; k < PL_STEPPED; k++) {
        const pl_instance_t *component = &of[PL_SCHEDULE_MOMENTUM + k];
        const pl_scheduler_ops_t *ops = component->ops;
        all.factor[k] = ops ? ops->factor(component->self, &when) : NAN;
    }
    return all;
}

void pl_replica_check_average(const pl_replica_t *r, const pl_train_batch_t *msg)
{
    const pl_averaging_ops_t *averaging = r->averaging.ops;
    const uint64_t total = msg->total_steps;
    double share = 0;
    if (!averaging || !total || !msg->epoch_steps)
        return;
    /* Whether the run will end with a mean of several states of the weights: searches
     * from its end back to the step where the average is the weights of one step. */
    for (uint64_t k = 1; share == 0 && k <= total && k <= LOOKS_MAX; k++) {
        pl_moment_t when = moment_of(msg);                 /* as the loops will give it */
        when.step = total - k;
        when.epoch = when.step / msg->epoch_steps;
        when.epoch_ends = (when.step + 1) % msg->epoch_steps == 0;
        share = averaging->share(r->averaging.self, &when);
    }
    if (share >= 1)
        pl_log_line(
            PL_LOG_WARNING, pl_actor_rank((void *)r), pl_actor_name((void *)r),
            "\"averaging\": \"%s\" would average fewer than two states of the weights in "
            "a run of %llu epoch%s, %llu step%s: let it begin sooner, or train longer",
            averaging->name, (unsigned long long)msg->total_epochs,
            pl_plural((int64_t)msg->total_epochs), (unsigned long long)msg->total_steps,
            pl_plural((int64_t)msg->total_steps));
}

double pl_replica_average_share(const pl_replica_t *r, const pl_train_batch_t *msg)
{
    const pl_averaging_ops_t *averaging = r->averaging.ops;
    const pl_moment_t when = moment_of(msg);
    return averaging ? averaging->share(r->averaging.self, &when) : 0;
}

/* ---- the names of states and events ---- */

#define PL_X(name, text) text,
const char *const pl_objective_phase_names[] = {PL_OBJECTIVE_PHASE_LIST(PL_X)};
const char *const pl_objective_event_names[] = {PL_OBJECTIVE_EVENT_LIST(PL_X)};
const char *const pl_pipeline_state_names[] = {PL_PIPELINE_STATE_LIST(PL_X)};
const char *const pl_pipeline_event_names[] = {PL_PIPELINE_EVENT_LIST(PL_X)};
#undef PL_X

/* ---- one objective of a step ---- */

pl_objective_event_t pl_objective_event_of(pl_objective_stage_t stage,
                                           pl_objective_event_t of_compute)
{
    return (pl_objective_event_t)(4 * (int)stage + (int)of_compute);
}

bool pl_objective_owes(const pl_objective_stages_t *stages, pl_objective_stage_t stage)
{
    return stages->owed >> stage & 1;
}

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

/* ---- what a step needs of the other ranks, and when it is due ---- */

bool pl_objective_is_due(const pl_replica_t *r, const pl_objective_state_t *o)
{
    const pl_inflight_t *f = o->inflight;
    return f->objectives ? f->objectives >> o->objective & 1
                         : f->number % (uint64_t)r->objective[o->objective].every == 0;
}

bool pl_train_only_steps(const pl_inflight_t *f)
{
    return f->objectives && !f->batch->count;
}

bool pl_train_gradients_stay(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->gradients_stay;
}

bool pl_train_runs_ahead(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->computed;
}

bool pl_train_syncs_batches(const pl_replica_t *r)
{
    return r->sync_hooks && r->sync_hooks->per_batch;
}

bool pl_train_follows(const pl_replica_t *r, const pl_objective_state_t *o)
{
    return r->sync_hooks && r->sync_hooks->stepped
           && (!r->sync_hooks->follows || r->sync_hooks->follows(r, o->inflight->number));
}
