/* train.c - a training step of a replica, from its batch to its results
 *
 * A step is two replays: forward_backward, and optimizer_step when one is due; the
 * same for each of several objectives of a module, one after the other. A replica
 * without other ranks sends all at once, both replays in one call; the accelerator
 * takes them in order. With several ranks each waits between the two until all ranks
 * have summed their gradients. train.h says which events a step goes through; this
 * file makes the calls, and turns their answers into events.
 *
 * An optimizer step that is not finite changes nothing, and steps sent behind it do
 * not run: replica/results.c. */
#include <math.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/replica/train.h"
#include "tensor/model.h"

/* ---- events ---- */

bool pl_train_take(pl_replica_t *r, pl_objective_state_t *o, pl_objective_event_t event)
{
    pl_error_t err = {0};
    if (pl_objective_take(&o->stages, event, &err) == PL_OK)
        return true;
    pl_actor_end(r, &err);
    return false;
}

void pl_train_pipeline_take(pl_replica_t *r, pl_pipeline_event_t event)
{
    pl_error_t err = {0};
    pl_pipeline_t *pipeline = r->pipeline;
    if (pl_pipeline_take(&pipeline->state, event, &err) != PL_OK) {
        pl_actor_end(r, &err);
    } else if (pipeline->state != PL_PIPELINE_OPEN) {
        pipeline->sending = NULL;
        pipeline->objective = 0;
    }
}

void pl_train_fail(pl_replica_t *r, pl_inflight_t *inflight, const pl_error_t *failure)
{
    if (inflight->failure.code == PL_OK)
        inflight->failure = *failure;
    pl_train_pipeline_take(r, PL_PIPELINE_ON_FAULT);
}

void pl_train_stage_fail(pl_replica_t *r, pl_objective_state_t *o,
                         pl_objective_stage_t stage, const pl_error_t *failure)
{
    pl_train_take(r, o, pl_objective_event_of(stage, PL_OBJECTIVE_ON_COMPUTE_FAILED));
    pl_train_fail(r, o->inflight, failure);
    if (stage == PL_STAGE_COMPUTE)
        pl_train_computed(r, o, false);
}

static void skip(pl_replica_t *r, pl_objective_state_t *o, pl_objective_event_t event)
{
    pl_train_take(r, o, event);
    pl_train_pipeline_take(r, PL_PIPELINE_ON_FAULT);
    if (event == PL_OBJECTIVE_ON_COMPUTE_SKIPPED)
        pl_train_computed(r, o, false);
}

/* Gradients and metrics of this rank are here. */
static void compute_end(pl_replica_t *r, pl_objective_state_t *o)
{
    if (o->stages.phase == PL_OBJECTIVE_COMPUTING)
        pl_train_take(r, o, PL_OBJECTIVE_ON_COMPUTE_ORDERED);
    pl_train_take(r, o, PL_OBJECTIVE_ON_COMPUTE_REPORTED);
    if ((r->sync_hooks && !pl_train_syncs_batches(r)) || o->inflight->objectives)
        pl_train_carry(r, o);
    pl_train_computed(r, o, true);
}

/* ---- replays ---- */

void pl_train_replay_ended(pl_replica_t *r)
{
    pl_train_advance(r);
    r->pipeline->replays--;
    pl_train_answer(r);
}

/* The device has enqueued forward and backward, or an update. */
static void stage_ordered(pl_replica_t *r, pl_objective_state_t *o,
                          pl_objective_stage_t stage, pl_object_t *fence)
{
    const bool updates = stage == PL_STAGE_UPDATE;
    pl_fence_t **keep = updates ? &r->updated : &r->computed;
    if (!pl_train_gradients_stay(r)
        || o->stages.phase != (updates ? PL_OBJECTIVE_UPDATING : PL_OBJECTIVE_COMPUTING))
        return;
    pl_object_unref(*keep);
    *keep = pl_object_ref(fence);
    pl_train_take(r, o, pl_objective_event_of(stage, PL_OBJECTIVE_ON_COMPUTE_ORDERED));
    pl_train_advance(r);
}

void pl_replica_enqueued(pl_replica_t *r, pl_objective_state_t *of, pl_object_t *fence)
{
    stage_ordered(r, of, PL_STAGE_COMPUTE, fence);
}

static void metrics_keep(const pl_replica_t *r, const pl_objective_state_t *o,
                         pl_bytes_t metrics)
{
    if (metrics.size)
        memcpy(o->inflight->metrics + pl_metrics_before(r, o->objective), metrics.data,
               metrics.size);
}

void pl_replica_computed(pl_replica_t *r, pl_objective_state_t *of, bool skipped,
                         double forward, double seconds, const pl_error_t *failure)
{
    pl_train_add_timing(r, PL_TIMING_BACKWARD, forward, seconds);
    if (failure)
        pl_train_stage_fail(r, of, PL_STAGE_COMPUTE, failure);
    else if (skipped)
        skip(r, of, PL_OBJECTIVE_ON_COMPUTE_SKIPPED);
    else
        compute_end(r, of);
    pl_train_replay_ended(r);
}

static void forward_backward_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_objective_state_t *o = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS) {
        const pl_replay_plan_progress_t *progress = &answer->body->replay_plan_progress;
        if (progress->ordered)
            stage_ordered(r, o, PL_STAGE_COMPUTE, progress->fence);
        else if (o->inflight->step_due && r->sync_hooks && r->sync_hooks->ready)
            r->sync_hooks->ready(r, pl_train_buckets(r, o, (int)progress->buckets),
                                 (pl_fence_t *)progress->fence);
    }
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_train_stage_fail(r, o, PL_STAGE_COMPUTE, answer->error);
        pl_train_replay_ended(r);
    }
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
    if (reply->collective) {
        pl_train_add_timing(r, PL_TIMING_BACKWARD, reply->forward, reply->seconds);
        pl_error_t err = {0};
        pl_train_take(r, o, PL_OBJECTIVE_ON_COLLECTIVE_BEGUN);
        if (pl_train_collective(r, o, (int)reply->collective, &err) != PL_OK) {
            pl_train_stage_fail(r, o, PL_STAGE_COMPUTE, &err);
            pl_train_replay_ended(r);
        }
        return;
    }
    metrics_keep(r, o, reply->metrics);
    pl_replica_computed(r, o, reply->skipped, reply->forward, reply->seconds, NULL);
}

static void update_end(pl_replica_t *r, pl_objective_state_t *o, bool skipped,
                       pl_bytes_t bytes)
{
    double metrics[8] = {0};                             /* four pairs: see optimizer.h */
    if (bytes.size)
        memcpy(metrics, bytes.data,
               bytes.size < sizeof metrics ? bytes.size : sizeof metrics);
    o->loss = metrics[0];
    o->norm = metrics[2];
    o->scaling[0] = metrics[4];
    o->scaling[1] = metrics[6];
    if (skipped) {
        skip(r, o, PL_OBJECTIVE_ON_UPDATE_SKIPPED);
        return;
    }
    r->objective[o->objective].made++;
    if (o->stages.phase == PL_OBJECTIVE_UPDATING)
        pl_train_take(r, o, PL_OBJECTIVE_ON_UPDATE_ORDERED);
    pl_train_take(r, o, PL_OBJECTIVE_ON_UPDATE_REPORTED);
}

static void optimizer_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_objective_state_t *o = answer->context;
    if (answer->kind == PL_ANSWER_PROGRESS) {
        const pl_replay_plan_progress_t *progress = &answer->body->replay_plan_progress;
        if (progress->ordered)
            stage_ordered(r, o, PL_STAGE_UPDATE, progress->fence);
        else if (r->sync_hooks->updated)
            r->sync_hooks->updated(r, (int)progress->buckets,
                                   (pl_fence_t *)progress->fence);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        pl_train_add_timing(r, PL_TIMING_OPTIMIZER, 0, reply->seconds);
        update_end(r, o, reply->skipped, reply->metrics);
        /* What follows a step that was made comes even if nothing else is sent any
         * more. */
        if (o->stages.phase == PL_OBJECTIVE_UPDATED && pl_train_follows(r, o))
            pl_train_follow(r, o, true);
        pl_train_replay_ended(r);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        pl_train_stage_fail(r, o, PL_STAGE_UPDATE, answer->error);
        pl_train_replay_ended(r);
    }
}

/* Both replays: the batch's metrics, then the optimizer's. */
static void step_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_objective_state_t *o = answer->context;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_replay_plan_reply_t *reply = &answer->body->replay_plan_reply;
        pl_bytes_t batch = reply->metrics, optimizer = {0};
        const size_t count = pl_metrics_before(r, o->objective + 1)
                             - pl_metrics_before(r, o->objective);
        if (batch.size > count * sizeof(double)) {
            batch.size = count * sizeof(double);
            optimizer = (pl_bytes_t){(const char *)reply->metrics.data + batch.size,
                                     reply->metrics.size - batch.size};
        }
        metrics_keep(r, o, batch);
        pl_train_add_timing(r, PL_TIMING_BACKWARD, reply->forward, reply->seconds);
        pl_train_add_timing(r, PL_TIMING_OPTIMIZER, 0, reply->then);
        compute_end(r, o);
        update_end(r, o, reply->skipped, optimizer);
        pl_train_replay_ended(r);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        pl_train_stage_fail(r, o, PL_STAGE_COMPUTE, answer->error);
        pl_train_stage_fail(r, o, PL_STAGE_UPDATE, answer->error);
        pl_train_replay_ended(r);
    }
}

/* An optimizer counts its own steps: none of another objective, and no skipped one. 
 * Zeros at the end are not sent: they are most of the scalars. */
static int optimizer_fill(pl_replica_t *r, const pl_objective_state_t *o,
                          double scalars[static PL_STEP_SCALARS], pl_bytes_t *reported,
                          pl_error_t *err)
{
    size_t count = PL_STEP_SCALARS;
    pl_optimizer_t *optimizer = r->objective[o->objective].optimizer;
    memset(scalars, 0, PL_STEP_SCALARS * sizeof *scalars);
    if (pl_optimizer_schedule(optimizer, &o->scheduled, err) < 0)
        return err->code;
    pl_optimizer_scalars(optimizer, o->scheduled.lr, ++r->objective[o->objective].sent,
                         scalars);
    scalars[PL_SCALAR_AVERAGE] = o->inflight->average_share;
    while (count && scalars[count - 1] == 0)
        count--;
    *reported = (pl_bytes_t){scalars, count * sizeof *scalars};
    return PL_OK;
}

/* Nothing comes between its two replays: they are one call. */
static bool is_whole(const pl_replica_t *r, const pl_objective_state_t *o)
{
    return !r->sync_hooks && o->inflight->step_due && !o->inflight->objectives;
}

/* The whole plan, up to the first collective; or from the newest collective on. */
int pl_train_replay(pl_replica_t *r, pl_objective_state_t *o, pl_error_t *err)
{
    const pl_inflight_t *f = o->inflight;
    const bool whole = is_whole(r, o);
    const pl_how_t how = {.on_answer = whole ? step_answered : forward_backward_answered,
                          .context = o};
    double scalars[PL_STEP_SCALARS];
    pl_actor_does(r, f->call);
    pl_replay_plan_t msg = {.what = whole ? "training_step" : "forward_backward",
                            .seed = (uint64_t)r->job->trainer->seed,
                            .step = f->number,
                            .micro_batch = f->micro_batch,
                            .fail_fast = true,
                            .restart = r->pipeline->restart,
                            .continues = o->collectives_begun > 0,
                            .batch = &f->batch->object,
                            .after = pl_replica_reduced_fence(r)};
    if (r->sync_hooks && r->sync_hooks->compute)
        return r->sync_hooks->compute(r, &msg, o, err);
    const pl_replica_plan_t like = {.stage = PL_TRAIN,
                                    .objective = o->objective,
                                    .size = {f->batch->count, f->batch->length},
                                    .accumulate = f->micro_batch > 0};
    /* The gradients of an empty batch are zeros, which need not be added. */
    const pl_replica_plan_t *plan = r->sync_hooks && !f->batch->count
                                        ? pl_train_empty_plan(r, o)
                                        : pl_replica_plan(r, &like, err);
    if (!plan)
        return err->code;
    if (whole) {
        if (optimizer_fill(r, o, scalars, &msg.scalars, err) != PL_OK)
            return err->code;
        msg.then = pl_replica_plan_of(r, PL_PLAN_OPTIMIZER, o->objective)->number + 1;
    }
    msg.plan = plan->number;
    msg.micro_batch = msg.micro_batch * (r->ranks ? r->ranks : 1) + r->rank;
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err) ? PL_OK : err->code;
}

/* ---- sending ---- */

static void compute(pl_replica_t *r, pl_objective_state_t *o)
{
    pl_error_t err = {0};
    const pl_inflight_t *f = o->inflight;
    bool *has_samples = &r->pipeline->has_samples[o->objective];
    int code = PL_OK;
    pl_train_take(r, o, PL_OBJECTIVE_ON_COMPUTE_SENT);
    *has_samples = (f->micro_batch && *has_samples) || f->batch->count > 0;
    if ((r->sync_hooks || f->objectives) && !r->pipeline->carried
        && !(r->pipeline->carried = pl_alloc_array(pl_metrics_count(r), sizeof(double))))
        code = pl_no_memory(&err);
    if (code == PL_OK
        && (pl_train_only_steps(f)
            || (!f->batch->count && f->micro_batch > 0 && !pl_train_syncs_batches(r)
                && !r->objective[o->objective].collectives.count))) {
        compute_end(r, o);
        return;
    }
    o->collectives_begun = 0;
    if (pl_train_gradients_stay(r) && r->sync_hooks->ready)
        r->sync_hooks->ready(r, 0, NULL);
    if (code == PL_OK)
        code = pl_train_replay(r, o, &err);
    if (code != PL_OK) {
        pl_train_stage_fail(r, o, PL_STAGE_COMPUTE, &err);
        return;
    }
    if (!r->pipeline->replays++)
        pl_train_spending(r);
    r->pipeline->restart = false;
    /* Later work runs behind forward and backward; but in-graph collectives are the
     * host's, and a device whose gradients stay there reports the order itself. */
    if (!r->sync_hooks
        || (pl_train_runs_ahead(r) && !r->objective[o->objective].collectives.count
            && !pl_train_gradients_stay(r)))
        pl_train_take(r, o, PL_OBJECTIVE_ON_COMPUTE_ORDERED);
    if (is_whole(r, o)) {
        pl_train_take(r, o, PL_OBJECTIVE_ON_UPDATE_SENT);
        pl_train_take(r, o, PL_OBJECTIVE_ON_UPDATE_ORDERED);
    }
}

/* The device orders it at once, unless ranks synchronize behind it by the host. */
static void update(pl_replica_t *r, pl_objective_state_t *o)
{
    double scalars[PL_STEP_SCALARS];
    pl_error_t err = {0};
    const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_OPTIMIZER,
                                                       o->objective);
    pl_replay_plan_t msg = {.plan = plan->number,
                            .what = "optimizer_step",
                            .seed = (uint64_t)r->job->trainer->seed,
                            .step = o->inflight->number,
                            .fail_fast = true,
                            .restart = r->pipeline->restart,  /* of gradients alone */
                            .after = pl_replica_reduced_fence(r)};
    const pl_how_t how = {.on_answer = optimizer_answered, .context = o};
    pl_train_take(r, o, PL_OBJECTIVE_ON_UPDATE_SENT);
    pl_actor_does(r, o->inflight->call);
    if (optimizer_fill(r, o, scalars, &msg.scalars, &err) != PL_OK
        || !pl_call_replay_plan(r, r->accelerator, &msg, how, &err)) {
        pl_train_stage_fail(r, o, PL_STAGE_UPDATE, &err);
        return;
    }
    r->pipeline->restart = false;
    if (!r->pipeline->replays++)
        pl_train_spending(r);
    if (!pl_train_follows(r, o))
        pl_train_take(r, o, PL_OBJECTIVE_ON_UPDATE_ORDERED);
}

/* Sends the next stage, if the objective waits for nothing; whether it did. */
static bool objective_send(pl_replica_t *r, pl_objective_state_t *o)
{
    const bool is_due = o->inflight->step_due;
    switch (o->stages.phase) {
    case PL_OBJECTIVE_UNSENT: compute(r, o); return true;
    case PL_OBJECTIVE_COMPUTED:
        if (r->sync_hooks && (is_due || pl_train_syncs_batches(r))) {
            /* A step behind a skipped one is not reduced: all ranks learn of the
             * update before first. */
            if (pl_train_gradients_stay(r) && pl_train_owing(r, 1u << PL_STAGE_UPDATE))
                return false;
            /* It may be over before reduce() returns. */
            const pl_replica_sums_t sums = pl_train_sums(r, o);
            pl_error_t err = {0};
            pl_train_take(r, o, PL_OBJECTIVE_ON_REDUCE_SENT);
            if (!pl_train_runs_ahead(r))
                pl_train_sync_begin(r);
            pl_actor_does(r, o->inflight->call);
            if (r->sync_hooks->reduce(r, &sums, &err) != PL_OK) {
                pl_train_sync_end(r);
                pl_train_stage_fail(r, o, PL_STAGE_REDUCE, &err);
            } else if (pl_train_runs_ahead(r)
                       && !pl_objective_owes(&o->stages, PL_STAGE_COMPUTE)) {
                pl_train_computed(r, o, true);
            }
        } else if (is_due)
            update(r, o);
        else
            pl_train_take(r, o, PL_OBJECTIVE_ON_ALL_SENT);
        return true;
    case PL_OBJECTIVE_REDUCED:
        if (is_due)
            update(r, o);
        else
            pl_train_take(r, o, PL_OBJECTIVE_ON_ALL_SENT);
        return true;
    case PL_OBJECTIVE_UPDATED:
        if (pl_train_follows(r, o))
            pl_train_follow(r, o, true);
        else
            pl_train_take(r, o, PL_OBJECTIVE_ON_ALL_SENT);
        return true;
    case PL_OBJECTIVE_FOLLOWED:
        pl_train_take(r, o, PL_OBJECTIVE_ON_ALL_SENT);
        return true;
    default: return false;
    }
}

/* Sends the objectives in order, each completely before the next. */
void pl_train_advance(pl_replica_t *r)
{
    pl_pipeline_t *pipeline = r->pipeline;
    for (pl_inflight_t *f; (f = pipeline->sending);) {
        if (f->failure.code != PL_OK) {
            pl_train_pipeline_take(r, PL_PIPELINE_ON_FAULT);
            return;
        }
        pl_objective_state_t *o = &f->objective[pipeline->objective];
        if (pipeline->objective >= r->objectives) {
            pipeline->objective = 0;
            pipeline->sending = f->next;
        } else if (!pl_objective_is_due(r, o) || o->stages.phase == PL_OBJECTIVE_SENT) {
            pipeline->objective++;
        } else if (!objective_send(r, o)) {
            return;
        }
    }
}

void pl_train_resend(pl_replica_t *r, int objective)
{
    int from = objective;
    for (int k = 0; k < r->objectives; k++)
        r->objective[k].sent = r->objective[k].made;
    for (pl_inflight_t *f = r->pipeline->first; f; f = f->next, from = 0)
        for (int k = from; k < r->objectives && f->failure.code == PL_OK; k++)
            pl_train_take(r, &f->objective[k], PL_OBJECTIVE_ON_AGAIN);
    if (r->pipeline->state != PL_PIPELINE_OPEN)
        return;
    r->pipeline->sending = r->pipeline->first;
    r->pipeline->objective = objective;
    pl_train_advance(r);
}

/* ---- a batch ---- */

int pl_replica_train(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_replica_t *r = self;
    const pl_train_batch_t *msg = &body->train_batch;
    pl_pipeline_t *pipeline = r->pipeline;
    if (pipeline->failure.code != PL_OK)
        return pl_fail(err, pipeline->failure.code, "%s", pipeline->failure.text);
    if (pipeline->ended_by)
        return pl_train_fail_behind(pipeline, msg->global_step, err);
    pl_inflight_t *f = pl_inflight_take(r, err);
    if (!f)
        return PL_ENOMEM;
    r->timings[PL_TIMING_DATA] += msg->waited;
    if (!pipeline->has_begun)
        pl_replica_check_average(r, msg);
    pipeline->has_begun = true;
    *f = (pl_inflight_t){.metrics = f->metrics,
                         .call = call,
                         .batch = (pl_batch_t *)msg->batch,
                         .number = msg->global_step,
                         .micro_batch = msg->micro_batch,
                         .objectives = msg->objectives,
                         .step_due = msg->step_due,
                         .may_skip = msg->may_skip,
                         .average_share = pl_replica_average_share(r, msg)};
    for (int k = 0; k < r->objectives && r->objective[k].made == PL_STEPS_UNKNOWN; k++)
        r->objective[k].made = r->objective[k].sent = (msg->global_step - 1)
                                                      / (uint64_t)r->objective[k].every;
    for (int k = 0; k < r->objectives; k++)
        f->objective[k] = (pl_objective_state_t){
            .inflight = f, .objective = k, .scheduled = pl_replica_scheduled(r, k, msg)};
    if (r->objectives > 1)                                  /* not all are due */
        memset(f->metrics, 0, pl_metrics_count(r) * sizeof *f->metrics);
    *pipeline->last = f;
    pipeline->last = &f->next;
    if (!pipeline->sending && pipeline->state == PL_PIPELINE_OPEN)
        pipeline->sending = f;
    pl_train_advance(r);
    pl_train_answer(r);
    return PL_OK;
}
