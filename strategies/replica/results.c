/* results.c - the answer to a training step: its metrics and times, or the value that
 * was not finite
 *
 * Steps are answered in the order of their calls; if one fails, those behind it were
 * not run. A step of several batches is reported as a whole: its metrics are added up
 * until it ends.
 *
 * On the device a skipped step has changed nothing, and its gradients are still
 * there. So the first bad tensor can be found and named. Then the step fails, or is
 * reported as skipped and the steps behind it are sent again. */
#include "strategies/replica/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "tensor/model.h"

/* ---- the list of steps in flight ---- */

pl_pipeline_t *pl_pipeline_new(pl_error_t *err)
{
    pl_pipeline_t *pipeline = pl_alloc(sizeof *pipeline);
    if (pipeline)
        pipeline->last = &pipeline->first;
    else
        pl_no_memory(err);
    return pipeline;
}

void pl_pipeline_free(pl_pipeline_t *pipeline)
{
    if (!pipeline)
        return;
    *pipeline->last = pipeline->spare;                      /* one list of both */
    for (pl_inflight_t *f = pipeline->first, *next; f; f = next) {
        next = f->next;
        pl_free(f->metrics);
        pl_free(f);
    }
    pl_free(pipeline->carried);
    pl_free(pipeline);
}

pl_inflight_t *pl_inflight_take(const pl_replica_t *r, pl_error_t *err)
{
    pl_inflight_t *f = r->pipeline->spare;
    if (f) {
        r->pipeline->spare = f->next;
        return f;
    }
    f = pl_alloc(sizeof *f);
    if (f)
        f->metrics = pl_alloc_array(pl_metrics_count(r), sizeof *f->metrics);
    if (f && f->metrics)
        return f;
    pl_free(f);
    pl_no_memory(err);
    return NULL;
}

/* Gives back the oldest, which has been answered. */
static void inflight_give(pl_pipeline_t *pipeline)
{
    pl_inflight_t *f = pipeline->first;
    pipeline->first = f->next;
    if (!pipeline->first)
        pipeline->last = &pipeline->first;
    f->next = pipeline->spare;
    pipeline->spare = f;
}

pl_objective_state_t *pl_train_owing(const pl_replica_t *r, unsigned stages)
{
    for (pl_inflight_t *f = r->pipeline->first; f; f = f->next)
        for (int k = 0; k < r->objectives; k++)
            if (f->objective[k].stages.owed & stages)
                return &f->objective[k];
    return NULL;
}

/* ---- the time of a rank's step, by its stages ----
 *
 * While a rank waits for others it may itself be stopped, and then the others soon
 * wait for it. No clock tells which rank waited for which. But a rank that runs can
 * note that every few milliseconds: a gap between two notes that is too long does not
 * count as waiting. */

enum { LOOK_MS = 10 };

void pl_train_spending(pl_replica_t *r)
{
    r->pipeline->since = pl_now();
}

/* Seconds since `since`, which becomes now. */
static double passed(pl_replica_t *r)
{
    const int64_t since = r->pipeline->since;
    pl_train_spending(r);
    return (double)(r->pipeline->since - since) / 1e9;
}

void pl_train_add_timing(pl_replica_t *r, pl_timing_t kind, double forward,
                         double seconds)
{
    pl_pipeline_t *pipeline = r->pipeline;
    const double here = passed(r);
    seconds = seconds > 0 ? seconds : here;
    forward = forward < seconds ? forward : seconds;
    pipeline->passed += here;
    pipeline->ran[PL_TIMING_FORWARD] += forward;
    pipeline->ran[kind] += seconds - forward;
}

/* The times of answers do not tell how long each replay ran: one may wait for the
 * next. The time between replays is divided among all, by their share. */
void pl_train_share(pl_replica_t *r)
{
    pl_pipeline_t *pipeline = r->pipeline;
    double all = 0;
    for (int k = 0; k < PL_TIMINGS; k++)
        all += pipeline->ran[k];
    for (int k = 0; k < PL_TIMINGS && all > 0; k++)
        r->timings[k] += pipeline->passed * pipeline->ran[k] / all;
    pipeline->passed = 0;
    memset(pipeline->ran, 0, sizeof pipeline->ran);
}

/* ---- while the ranks synchronize ---- */

static void presence_check(void *self);

static void presence_check_later(pl_replica_t *r)
{
    r->pipeline->checks_presence = r->pipeline->checks_presence
                                   || pl_after(r, LOOK_MS, presence_check, NULL) == PL_OK;
}

/* Timers may be a bit late. */
static void absence_count(pl_pipeline_t *pipeline)
{
    const int64_t now = pl_now(),
                  late = now - pipeline->last_present - LOOK_MS * PL_MILLISECOND;
    if (late > LOOK_MS * PL_MILLISECOND)
        pipeline->absent += late;
    pipeline->last_present = now;
}

static void presence_check(void *self)
{
    pl_replica_t *r = self;
    r->pipeline->checks_presence = false;
    if (!r->pipeline->is_syncing)
        return;
    absence_count(r->pipeline);
    presence_check_later(r);
}

static void presence_begin(pl_replica_t *r)
{
    r->pipeline->is_syncing = true;
    r->pipeline->last_present = pl_now();
    presence_check_later(r);
}

/* Seconds that it was absent. */
static double presence_end(pl_replica_t *r)
{
    if (r->pipeline->is_syncing)
        absence_count(r->pipeline);
    const double absent = (double)r->pipeline->absent / 1e9;
    r->pipeline->is_syncing = false;
    r->pipeline->absent = 0;
    r->timings[PL_TIMING_ABSENT] += absent;
    return absent;
}

void pl_train_sync_begin(pl_replica_t *r)
{
    if (!r->sync_hooks)
        return;
    pl_train_share(r);
    pl_train_spending(r);
    presence_begin(r);
}

void pl_train_sync_end(pl_replica_t *r)
{
    const double absent = presence_end(r);
    if (r->sync_hooks)
        r->timings[PL_TIMING_COLLECTIVE] += passed(r) - absent;
}

void pl_replica_waits(pl_replica_t *r)
{
    if (r->pipeline && r->sync_hooks && !r->pipeline->is_syncing)
        presence_begin(r);
}

void pl_replica_waited(pl_replica_t *r)
{
    if (r->pipeline && !pl_train_owing(r, PL_STAGES_OF_RANKS))
        presence_end(r);
}

/* ---- metrics ---- */

size_t pl_metrics_before(const pl_replica_t *r, int objective)
{
    size_t before = 0;
    for (int k = 0; k < objective; k++)
        before += pl_replica_metrics(pl_replica_plan_of(r, PL_PLAN_BATCH, k));
    return before;
}

size_t pl_metrics_count(const pl_replica_t *r)
{
    return pl_metrics_before(r, r->objectives) + 2 * (size_t)pl_replica_other_metrics(r);
}

/* If the ranks have synchronized on the batch, its metrics are those of all ranks. */
void pl_train_carry(pl_replica_t *r, const pl_objective_state_t *o)
{
    pl_pipeline_t *pipeline = r->pipeline;
    const pl_inflight_t *f = o->inflight;
    const size_t from = pl_metrics_before(r, o->objective),
                 to = pl_metrics_before(r, o->objective + 1);
    if (!f->batch->count && !pl_train_syncs_batches(r))
        memset(f->metrics + from, 0, (to - from) * sizeof *f->metrics);
    for (size_t k = from; k < to; k++) {
        f->metrics[k] += f->micro_batch ? pipeline->carried[k] : 0;
        pipeline->carried[k] = f->metrics[k];
    }
}

/* ---- answers ---- */

static void metric_put(pl_inflight_t *f, size_t *at, double value, bool is_there)
{
    f->metrics[(*at)++] = value;
    f->metrics[(*at)++] = is_there;
}

/* Answers the oldest, which ends a step, also with the times of each rank's stages. 
 * The times of the next step begin at 0. */
static void reply_timed(pl_replica_t *r, const pl_train_batch_reply_t *what)
{
    const size_t of_one = PL_TIMINGS * sizeof(double),
                 of_all = r->timings_by_rank ? (size_t)r->ranks * of_one : 0;
    double *spent = r->sync_hooks ? r->timings_by_rank : r->timings;
    pl_train_batch_reply_t reply = *what;
    if (!r->sync_hooks)
        pl_train_share(r);
    reply.timings = (pl_bytes_t){spent, r->sync_hooks ? of_all : of_one};
    pl_reply_train_batch(r->pipeline->first->call, &reply);
    if (reply.timings.size)
        memset(spent, 0, reply.timings.size);
}

/* Rates, norms and the factor of the loss come last, in the order of their names, as a
 * pair (it, 1) if there was an optimizer step. A step that was not taken reports
 * nothing, nor does a loss that is not finite of a step that scaling has skipped. */
static void inflight_reply(pl_replica_t *r, pl_inflight_t *f)
{
    size_t at = pl_metrics_before(r, r->objectives);
    const pl_objective_state_t *newest = NULL;
    for (int k = 0; k < r->objectives; k++) {
        const pl_objective_state_t *o = &f->objective[k];
        const size_t from = pl_metrics_before(r, k), to = pl_metrics_before(r, k + 1);
        const bool stepped = f->step_due && pl_objective_is_due(r, o);
        if (!pl_objective_is_due(r, o) || !isfinite(o->loss))
            memset(f->metrics + from, 0, (to - from) * sizeof *f->metrics);
        const pl_optimizer_t *optimizer = r->objective[k].optimizer;
        const int groups = optimizer->group_count;
        for (int i = 0; i <= groups; i++)
            metric_put(f, &at,
                       pl_optimizer_lr(optimizer, i ? i - 1 : groups) * o->scheduled.lr,
                       stepped);
        for (pl_stepped_kind_t v = 0; v < PL_STEPPED; v++)
            for (int i = 0; i <= groups && optimizer->stepped[v].option; i++)
                metric_put(f, &at,
                           pl_optimizer_stepped(optimizer, v, &o->scheduled,
                                                i ? i - 1 : groups),
                           stepped);
        metric_put(f, &at, o->norm, stepped);
        newest = stepped ? o : newest;
    }
    for (int k = 0; k < 2 && r->model->scaling; k++)
        metric_put(f, &at, newest ? newest->scaling[k] : 0, newest != NULL);
    pl_train_batch_reply_t reply = {.bad = "",
                                    .halt = f->halt,
                                    .metrics = {f->metrics, at * sizeof *f->metrics}};
    if (!f->step_due && r->sync_hooks && !f->objectives)
        reply.metrics.size = 0;
    if (f->step_due)
        reply_timed(r, &reply);
    else
        pl_reply_train_batch(f->call, &reply);
}

int pl_train_fail_behind(const pl_pipeline_t *pipeline, uint64_t number, pl_error_t *err)
{
    return pl_fail(err, PL_ECANCELLED, "step %llu was not run, because step %llu failed",
                   (unsigned long long)number, (unsigned long long)pipeline->ended_by);
}

/* All steps behind the oldest fail with it. */
static void oldest_fail(pl_replica_t *r)
{
    pl_pipeline_t *pipeline = r->pipeline;
    pl_inflight_t *f = pipeline->first;
    const bool is_first = !pipeline->ended_by;
    pl_call_fail(f->call, &f->failure);
    if (is_first)
        pipeline->ended_by = f->number;
    inflight_give(pipeline);
    if (is_first)
        pl_train_pipeline_take(r, PL_PIPELINE_ON_END);
    if (is_first && pipeline->failure.code != PL_OK)
        pl_train_pipeline_take(r, PL_PIPELINE_ON_BREAK);
}

/* The objective whose step was skipped, or NULL. */
static pl_objective_state_t *skipped_of(pl_inflight_t *f)
{
    for (int k = 0; k < PL_OBJECTIVES; k++)
        if (f->objective[k].stages.phase == PL_OBJECTIVE_SKIPPED)
            return &f->objective[k];
    return NULL;
}

static void diagnose(pl_replica_t *r);
static void diagnosis_continue(pl_replica_t *r);

void pl_train_answer(pl_replica_t *r)
{
    pl_pipeline_t *pipeline = r->pipeline;
    if (pipeline->state == PL_PIPELINE_DIAGNOSING)
        diagnosis_continue(r);
    for (pl_inflight_t *f; (f = pipeline->first)
                           && pipeline->state != PL_PIPELINE_DIAGNOSING
                           && pipeline->state != PL_PIPELINE_FOLLOWING;) {
        bool is_sent = true;
        unsigned owed = 0;
        for (int k = 0; k < r->objectives; k++) {
            owed |= f->objective[k].stages.owed;
            is_sent &= !pl_objective_is_due(r, &f->objective[k])
                       || f->objective[k].stages.phase == PL_OBJECTIVE_SENT;
        }
        if (owed)
            return;
        if (pipeline->ended_by && f->failure.code == PL_OK)
            pl_train_fail_behind(pipeline, f->number, &f->failure);
        if (f->failure.code != PL_OK) {
            if (!pipeline->ended_by)
                r->failure = f->failure;
            oldest_fail(r);
        } else if (skipped_of(f)) {
            diagnose(r);
        } else if (is_sent) {
            inflight_reply(r, f);
            inflight_give(pipeline);
        } else {
            return;
        }
    }
}

/* ---- a step that was skipped ---- */

static const char *first_bad(const pl_replica_t *r, const pl_floats_t *grads)
{
    const int objective = skipped_of(r->pipeline->first)->objective;
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (pl_is_trained(t, objective))
            for (int64_t i = t->offset; i < t->offset + t->count; i++)
                if (!isfinite(grads->dtype == PL_F64 ? grads->wide[i]
                                                     : (double)grads->data[i]))
                    return t->name;
    }
    return NULL;
}

/* "generator: the loss is not finite"; without the name if there is one objective. */
static void bad_describe(const pl_replica_t *r, const char *name)
{
    pl_pipeline_t *pipeline = r->pipeline;
    const pl_objective_state_t *o = skipped_of(pipeline->first);
    const pl_module_objective_t *table = r->objective[o->objective].table;
    snprintf(pipeline->bad, sizeof pipeline->bad, "%s%s%sthe %s is not finite%s%s%s",
             r->blamed, table ? table->name : "", table ? ": " : "",
             isfinite(o->loss) ? "gradient" : "loss",
             name ? ", the first bad gradient belongs to \"" : "", name ? name : "",
             name ? "\"" : "");
}

/* The device has lowered the factor, and there is nothing to name: see scaling.c. */
static bool scaling_skipped(const pl_replica_t *r, const pl_objective_state_t *o)
{
    return r->model->scaling && o->scaling[0] > 0;
}

/* The steps that were sent behind the skipped step have come back too, and have not
 * run. */
void pl_train_followed(pl_replica_t *r)
{
    pl_inflight_t *f = r->pipeline->first;
    pl_objective_state_t *o = skipped_of(f);
    r->pipeline->restart = true;
    if (f->failure.code == PL_OK && (f->may_skip || scaling_skipped(r, o))) {
        /* After a step that scaling has skipped the other objectives are still
         * trained. */
        int from = 0;
        if (scaling_skipped(r, o)) {
            pl_train_take(r, o, PL_OBJECTIVE_ON_ALL_SENT);
            from = o->objective + 1;
        } else {
            reply_timed(r, &(pl_train_batch_reply_t){.skipped = true,
                                                     .halt = o->inflight->halt,
                                                     .bad = r->pipeline->bad});
            inflight_give(r->pipeline);
        }
        pl_train_pipeline_take(r, PL_PIPELINE_ON_RESUME);
        pl_train_resend(r, from);
    } else if (f->failure.code == PL_OK) {
        pl_fail(
            &f->failure, PL_ENAN,
            "step %llu: %s%s; it changed no weight: trainer.detect_anomaly names the "
            "first operator with such a result; check the data, lower the learning rate, "
            "or let trainer.nan_policy skip such steps",
            (unsigned long long)f->number, r->pipeline->bad,
            r->model->scaling ? ", and the loss scaling has reached "
                                "trainer.precision.min_scale"
                              : "");
        oldest_fail(r);
    } else
        oldest_fail(r);
    pl_train_answer(r);
}

/* What follows an optimizer step also follows a skipped one: other ranks may not have
 * skipped it. */
static void diagnosis_continue(pl_replica_t *r)
{
    pl_pipeline_t *pipeline = r->pipeline;
    pl_inflight_t *f = pipeline->first;
    if (pipeline->diagnosing || pl_train_owing(r, ~0u))
        return;
    pl_objective_state_t *o = skipped_of(f);
    if (f->may_skip && f->failure.code == PL_OK && pl_train_follows(r, o)) {
        pl_train_pipeline_take(r, PL_PIPELINE_ON_FOLLOW);
        pl_train_follow(r, o, false);
    } else {
        pl_train_followed(r);
    }
}

static void diagnosis_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    r->pipeline->diagnosing--;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_train_fail(r, r->pipeline->first, answer->error);
    else if (answer->context)
        bad_describe(r,
                     first_bad(r, (pl_floats_t *)answer->body->read_region_reply.floats));
    diagnosis_continue(r);
}

/* Finds the bad gradient, and restores the state, which forward may have changed.
 *
 * The gradients are those of the skipped step, although the device has run what was
 * sent before its result was here: all of that was sent with fail_fast and changed
 * nothing, because the device skips it (pl_replay_t.fail_fast), or
 * accelerators/actor.c does. Nor have ranks summed the gradients again: on the host
 * they sum a replay that was reported as computed, and a skipped one is not; on
 * devices the sums of a step are sent when the update before it is reported
 * (objective_send()). The read comes behind all of that, and nothing is sent before
 * its answer. */
static void diagnose(pl_replica_t *r)
{
    pl_pipeline_t *pipeline = r->pipeline;
    pl_inflight_t *f = pipeline->first;
    pl_read_region_t read = {.region = PL_REGION_GRADS,
                             .count = (uint64_t)r->model->params,
                             .after = pl_replica_reduced_fence(r)};
    pl_replay_plan_t restore = {.what = "restore"};
    pl_train_pipeline_take(r, PL_PIPELINE_ON_DIAGNOSE);
    if (!scaling_skipped(r, skipped_of(f))) {
        bad_describe(r, NULL);
        pipeline->diagnosing +=
            pl_call_read_region(r, r->accelerator, &read,
                                (pl_how_t){.on_answer = diagnosis_answered, .context = f},
                                &f->failure)
            != 0;
        const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_RESTORE, 0);
        if (plan) {
            restore.plan = plan->number;
            pipeline->diagnosing +=
                pl_call_replay_plan(r, r->accelerator, &restore,
                                    (pl_how_t){.on_answer = diagnosis_answered},
                                    &f->failure)
                != 0;
        }
    }
    diagnosis_continue(r);
}

/* ---- between two steps ---- */

void pl_train_reset(pl_replica_t *r)
{
    pl_pipeline_t *pipeline = r->pipeline;
    if (pipeline->first)
        return;
    if (pipeline->ended_by) {
        pipeline->restart = true;
        r->failure.code = PL_OK;
        for (int k = 0; k < r->objectives; k++)
            r->objective[k].sent = r->objective[k].made;
    }
    pipeline->ended_by = 0;
    pl_train_pipeline_take(r, PL_PIPELINE_ON_RESET);
}

int pl_train_hold(pl_replica_t *r, pl_error_t *err)
{
    if (r->pipeline->first)
        return pl_fail(err, PL_EBUSY,
                       "parameters can be frozen only between two steps, and some steps "
                       "are running");
    pl_train_pipeline_take(r, PL_PIPELINE_ON_HOLD);
    return PL_OK;
}

void pl_train_release(pl_replica_t *r, const pl_error_t *failure)
{
    pl_pipeline_t *pipeline = r->pipeline;
    if (failure)
        pipeline->failure = *failure;
    for (pl_inflight_t *f = pipeline->first; f && failure; f = f->next)
        f->failure = *failure;
    pl_train_pipeline_take(r, failure ? PL_PIPELINE_ON_BREAK : PL_PIPELINE_ON_RELEASE);
    if (!failure)
        pl_train_resend(r, 0);
    pl_train_answer(r);
}
