/* epoch_batch_end.c - what follows which batch of an epoch: log line, hooks, validation,
 * stop
 *
 * The schedule knows it from numbers alone.  When something follows, no batch is in
 * flight.  batch_end_send() shows the order: a step that applies
 * makes one call, and its answer (batch_end_answered()) leads to the next step.
 *
 * Some requests follow from no step: a stop, a command, a time limit.  One rank receives
 * such a request at some moment and announces it.  All ranks then halt at the same batch
 * and do there what rank 0 has received.  A single rank does it at once. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/epoch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

/* ---- what follows from numbers alone ----
 *
 * Options may be as large as numbers go: everything is counted in 64 bits, and a result
 * that does not fit is no limit. */

static bool is_multiple(uint64_t step, uint64_t every)
{
    return every && step % every == 0;
}

/* A resumed run may be past its limits: then nothing of the epoch is left. */
uint64_t pl_batch_schedule_begin(pl_batch_schedule_t *schedule, uint32_t epoch,
                                 uint32_t first, uint64_t global_step, uint32_t batches)
{
    const pl_trainer_options_t *o = schedule->options;
    const uint64_t max_steps = o->max_steps < 0 ? UINT64_MAX : (uint64_t)o->max_steps,
                   max_epochs = o->max_epochs < 0 ? UINT64_MAX : (uint64_t)o->max_epochs,
                   per_epoch = (batches + schedule->accumulate - 1)
                               / schedule->accumulate;
    /* This epoch and those after it. */
    const uint64_t epochs = max_epochs > epoch ? max_epochs - epoch : 0,
                   val_every = (uint64_t)o->check_val_every_n_epoch;
    uint64_t total;
    schedule->epoch = epoch;
    schedule->epoch_validates = schedule->validates
                                && (val_every == 0
                                    || is_multiple(epoch + UINT64_C(1), val_every));
    schedule->first_step = global_step
                           - (first + schedule->accumulate - 1) / schedule->accumulate;
    schedule->batches = batches;
    schedule->epoch_steps = per_epoch;
    const uint64_t steps = epochs && max_steps > schedule->first_step
                               ? max_steps - schedule->first_step
                               : 0;
    schedule->end = steps < per_epoch ? (uint32_t)(steps * schedule->accumulate)
                                      : batches;
    if (schedule->end < first)
        schedule->end = first;
    if (max_epochs == UINT64_MAX || __builtin_mul_overflow(epochs, per_epoch, &total)
        || __builtin_add_overflow(total, schedule->first_step, &total)
        || total > max_steps)
        total = max_steps;
    if (total < global_step)
        total = global_step;
    return total == UINT64_MAX ? 0 : total;
}

/* Whether val_check_interval ends with the batch, by counts alone. */
static bool interval_ends(const pl_batch_schedule_t *schedule, uint32_t batch)
{
    const pl_amount_t every = schedule->options->val_check_interval;
    const uint64_t before = schedule->options->check_val_every_n_epoch
                                ? 0
                                : (uint64_t)schedule->epoch * schedule->batches;
    if (!schedule->epoch_validates || every.is_time)
        return false;
    if (every.is_share) {
        const uint32_t batches = (uint32_t)(every.value * schedule->batches);
        return (batch + 1) % (batches ? batches : 1) == 0;
    }
    return is_multiple(before + batch + 1, (uint64_t)every.value);
}

pl_batch_end_t pl_batch_schedule_after(const pl_batch_schedule_t *schedule,
                                       uint32_t batch)
{
    const pl_trainer_options_t *o = schedule->options;
    const uint64_t accumulate = schedule->accumulate,
                   epochs = schedule->epoch + (uint64_t)(batch + 1 == schedule->batches);
    const bool is_last = batch + 1 == schedule->end,
               val_interval_ends = interval_ends(schedule, batch);
    pl_batch_end_t end = {0};
    end.step = is_last || (batch + UINT64_C(1)) % accumulate == 0;
    end.steps = schedule->first_step + (batch + accumulate) / accumulate - !end.step;
    end.log = end.step && is_multiple(end.steps, (uint64_t)o->log_every_n_steps);
    end.hook = end.step && pl_intervals_match(&schedule->halts, end.steps);
    end.observer_hook = end.step && pl_intervals_match(&schedule->looks, end.steps);
    const bool run_ends =
        is_last
        && ((o->max_epochs > 0
             && schedule->epoch + UINT64_C(1) >= (uint64_t)o->max_epochs)
            || (o->max_steps > 0 && end.steps >= (uint64_t)o->max_steps));
    end.extra_validation = schedule->validates && run_ends && !val_interval_ends;
    end.validation = val_interval_ends || end.extra_validation;
    end.may_stop = epochs >= (uint64_t)o->min_epochs
                   && end.steps >= (uint64_t)o->min_steps;
    const bool min_is_reached = o->min_steps > 0 && end.step
                                && end.steps == (uint64_t)o->min_steps;
    end.halt = is_last || end.validation || end.hook || min_is_reached;
    return end;
}

/* ---- requests that follow from no step ---- */

/* A callback or the clock requests the end of the run, which may have to wait. */
static void request_stop(pl_epoch_t *e, const char *reason)
{
    const bool first = !*e->stop_request;
    if (e->stopping)
        return;
    if (first)
        snprintf(e->stop_request, sizeof e->stop_request, "%s",
                 *reason ? reason : "a callback");
    e->stopping = e->iter.done
                  && pl_batch_schedule_after(&e->schedule, e->iter.done - 1).may_stop;
    if (e->stopping)
        snprintf(e->reason, sizeof e->reason, "%s", e->stop_request);
    else if (first)
        pl_log_line(PL_LOG_INFO, pl_actor_rank(e), pl_actor_name(e),
                    "%s: training continues until trainer.min_epochs and min_steps are "
                    "reached",
                    e->stop_request);
}

void pl_epoch_stop(pl_epoch_t *e, const char *reason, pl_stop_kind_t kind)
{
    if (!e->stopping) {
        snprintf(e->reason, sizeof e->reason, "%s", reason);
        e->stop_kind = kind;
    }
    e->stopping = e->stop_received = true;
}

static void pending_apply(pl_epoch_t *e, const pl_end_batch_t *pending)
{
    e->halts_for_command |= pending->halt;
    e->validates_now |= pending->validate && e->schedule.epoch_validates;
    if (pending->timeout) {
        e->out_of_time |= !*e->stop_request;
        request_stop(e, "trainer.max_time has passed");
    }
    if (pending->stop)
        pl_epoch_stop(e, pending->reason, pending->stop_kind);
}

void pl_epoch_request_sync(pl_epoch_t *e)
{
    if (pl_is_nobody(e->iter.coordinator))
        pending_apply(e, &e->pending);
    else
        pl_batch_iter_request_sync(&e->iter);
}

void pl_epoch_request_halt(pl_epoch_t *e)
{
    if (!e->pending.halt)
        return;
    if (pl_is_nobody(e->iter.coordinator)) {
        e->halts_for_command = true;
        e->pending.halt = false;
    } else if (e->iter.call && !e->iter.halted) {
        pl_batch_iter_request_sync(&e->iter);
    }
}

void pl_epoch_check_time(pl_epoch_t *e)
{
    const pl_amount_t every = e->iter.options->val_check_interval;
    const int64_t now = pl_now();
    const bool over = e->deadline && now >= e->deadline,
               validate = every.is_time && e->schedule.epoch_validates
                          && now - e->validated_at >= (int64_t)(every.value * 1e9);
    if (over == e->pending.timeout && validate == e->pending.validate)
        return;
    e->pending.timeout = over;
    e->pending.validate = validate;
    pl_epoch_request_sync(e);
}

bool pl_epoch_coordinate(pl_epoch_t *e, pl_on_answer_t then, pl_error_t *err)
{
    const pl_decision_t decision = {.message = PL_MESSAGE_end_batch,
                                    .fields = &e->pending,
                                    .announced = true};
    const bool sent = pl_loop_decide(e, e->iter.coordinator, &decision,
                                     (pl_how_t){.on_answer = then}, err);
    e->pending.validate = e->pending.halt = false;
    return sent;
}

int pl_epoch_coordinated(pl_epoch_t *e, const pl_decide_reply_t *reply, pl_error_t *err)
{
    pl_body_t body;
    int code = pl_loop_decided(reply, PL_MESSAGE_end_batch, false, &body, err);
    if (code == PL_OK)
        pending_apply(e, &body.end_batch);
    return code;
}

bool pl_epoch_synchronize(pl_epoch_t *e, pl_on_answer_t then)
{
    return !pl_is_nobody(e->iter.coordinator) && e->synchronized != e->iter.done
           && pl_call_synchronize(e, e->iter.strategy, &(pl_synchronize_t){0},
                                  (pl_how_t){.on_answer = then}, &e->iter.failure);
}

/* The metrics of the reply belong to earlier steps. */
void pl_epoch_synchronized(pl_epoch_t *e, const pl_synchronize_reply_t *reply)
{
    e->synchronized = e->iter.done;
    pl_metrics_add(&e->sums, reply->metrics);
    pl_metrics_add(&e->since_log, reply->metrics);
    pl_metrics_add_steps(&e->since_report, reply->metrics);
}

/* ---- hooks ---- */

/* The validation at this batch is one at the end of the run only. */
static bool is_extra(const pl_epoch_t *e)
{
    return e->iter.done > 0 && !e->validates_now
           && pl_batch_schedule_after(&e->schedule, e->iter.done - 1).extra_validation;
}

static bool hook_run(pl_epoch_t *e, pl_hook_t point, pl_how_t how)
{
    json_t *now = json_copy(e->newest);
    pl_run_hook_t msg = {.point = point,
                         .epoch = e->iter.epoch,
                         .global_step = e->global_step,
                         .total_steps = e->total_steps,
                         .batch = e->iter.done,
                         .batches = e->schedule.end,
                         .samples = e->samples,
                         .extra = point == PL_HOOK_VALIDATION_END && is_extra(e)};
    const bool sent = now && pl_epoch_newest(e, now, &e->iter.failure) == PL_OK
                      && pl_hooks_run(e, &e->hooks, &msg, now, how, &e->iter.failure);
    json_decref(now);
    return now ? sent : (pl_no_memory(&e->iter.failure), false);
}

/* A callback that skips ends the epoch here; before a validation it skips that.  A stop
 * request that checkpoints keep replaces one that they do not. */
static void hook_request_apply(pl_epoch_t *e, bool before_validation,
                               uint64_t global_step, const pl_run_hook_reply_t *request)
{
    const pl_run_hook_t msg = {.epoch = e->iter.epoch, .global_step = global_step};
    pl_hooks_log(e, &e->hooks, &msg, request, e->newest, &e->iter.failure);
    pl_hooks_freeze(e, e->iter.strategy, request, &e->iter.failure);
    e->lr_factor *= request->lr_factor;
    pl_checkpoint_requests_add(&e->checkpoint_requests, request->save, request->drop,
                               &e->iter.failure);
    if (request->skip && before_validation) {
        e->skips_validation = true;
    } else if (request->skip && e->iter.done != e->schedule.end) {
        e->schedule.batches = e->schedule.end = e->iter.batches = e->iter.done;
        e->is_cut_short = true;
        pl_epoch_log(e, NULL);
    }
    if (!request->stop)
        return;
    if ((!*e->stop_request || (e->out_of_time && !request->by_clock)) && !e->stopping) {
        e->out_of_time = request->by_clock;
        *e->stop_request = '\0';
    }
    request_stop(e, request->reason);
}

/* The context of the answer is the step of the call: the run may be past it. */
static void observed(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_epoch_log_release(e);
    if (pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    hook_request_apply(e, false, (uint64_t)(uintptr_t)answer->context,
                       &answer->body->run_hook_reply);
    pl_epoch_log_release(e);
    pl_batch_iter_continue(&e->iter);
}

void pl_epoch_run_observers(pl_epoch_t *e)
{
    const pl_how_t how = {.on_answer = observed,
                          .context = (void *)(uintptr_t)e->global_step};
    pl_epoch_log_hold(e);
    if (hook_run(e, PL_HOOK_TRAIN_BATCH_END, how))
        e->iter.pending++;
    else
        pl_epoch_log_release(e);
}

/* ---- validation ---- */

/* Within an optimizer step there is no checkpoint to resume from. */
bool pl_epoch_defers_validation(const pl_epoch_t *e)
{
    return e->stop_received && e->iter.done
           && pl_batch_schedule_after(&e->schedule, e->iter.done - 1).step;
}

/* Whether a validation begins here; one that is due but deferred is owed. */
static bool takes_validation(pl_epoch_t *e)
{
    const bool due =
        !e->skips_validation
        && (e->owes_validation || e->validates_now
            || pl_batch_schedule_after(&e->schedule, e->iter.done - 1).validation);
    e->owes_validation = due && pl_epoch_defers_validation(e);
    return due && !e->owes_validation;
}

/* For schedules that follow metrics, also those of callbacks: after a validation or, in a
 * run without validations, after an epoch. */
static bool metrics_observe(pl_epoch_t *e, pl_how_t how)
{
    const bool news = e->schedule.validates ? e->validated && !is_extra(e)
                                            : e->iter.done == e->schedule.batches;
    char *text = news ? pl_metrics_text(e->newest, &e->iter.failure) : NULL;
    const pl_observe_metrics_t msg = {.metrics = text};
    const bool sent =
        text && pl_call_observe_metrics(e, e->iter.strategy, &msg, how, &e->iter.failure);
    pl_free(text);
    return sent;
}

/* ---- one step after the other ---- */

enum {
    COORDINATE,
    SYNCHRONIZE,               /* before weights are measured and the epoch is reported */
    LOG,
    BATCH_HOOK,
    VALIDATION_START,                                 /* an owed validation begins here */
    VALIDATE,
    VALIDATION_END,
    OBSERVE,                                          /* schedules that follow a metric */
    COORDINATE_AGAIN,
    STEPS
};

static void batch_end_continue(pl_epoch_t *e);

static void batch_end_answered(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    const bool validates = e->phase == VALIDATE,
               was_cancelled = validates && answer->kind == PL_ANSWER_ERROR
                               && (pl_epoch_defers_validation(e)
                                   || !pl_is_nobody(e->iter.coordinator))
                               && answer->error->code == PL_ECANCELLED;
    if (validates && answer->kind == PL_ANSWER_PROGRESS) {
        const pl_evaluate_progress_t *p = &answer->body->evaluate_progress;
        pl_progress_train_epoch(
            e->iter.call, &(pl_train_epoch_progress_t){.event = p->event,
                                                       .global_step = p->global_step,
                                                       .total_steps = e->total_steps,
                                                       .epoch = p->epoch,
                                                       .batch = p->batch,
                                                       .batches = p->batches,
                                                       .metrics = ""});
    }
    if (!was_cancelled && pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    switch (e->phase) {
    case COORDINATE:
    case COORDINATE_AGAIN:
        pl_epoch_coordinated(e, &answer->body->decide_reply, &e->iter.failure);
        break;
    case SYNCHRONIZE: pl_epoch_synchronized(e, &answer->body->synchronize_reply); break;
    case BATCH_HOOK:
    case VALIDATION_START:
    case VALIDATION_END:
        hook_request_apply(e, e->phase == VALIDATION_START, e->global_step,
                           &answer->body->run_hook_reply);
        break;
    case VALIDATE:
        e->owes_validation = was_cancelled;
        if (!was_cancelled) {
            const char *metrics = answer->body->evaluate_reply.metrics;
            const pl_log_metrics_t log = {.epoch = e->iter.epoch,
                                          .global_step = e->global_step,
                                          .metrics = metrics};
            e->validated = true;
            e->validated_at = pl_now();
            pl_metrics_merge(e->newest, metrics, &e->iter.failure);
            if (!pl_is_nobody(e->hooks.logger))
                pl_call_log_metrics(e, e->hooks.logger, &log, (pl_how_t){0},
                                    &e->iter.failure);
            if (e->iter.call)
                pl_epoch_report(e, PL_RUN_EVENT_VALIDATED);
        }
        break;
    default: break;
    }
    e->phase++;
    batch_end_continue(e);
}

/* Makes the call of the current step; false: the step does not apply, or iter->failure
 * has the error. */
static bool batch_end_send(pl_epoch_t *e)
{
    const pl_how_t how = {.on_answer = batch_end_answered};
    const pl_batch_end_t end = pl_batch_schedule_after(&e->schedule, e->iter.done - 1);
    const bool is_last = e->iter.done == e->schedule.end;
    const pl_evaluate_t evaluate = {.stage = PL_VALIDATE,
                                    .epoch = e->iter.epoch,
                                    .global_step = e->global_step};
    switch (e->phase) {
    case COORDINATE:
    case COORDINATE_AGAIN:
        return !pl_is_nobody(e->iter.coordinator)
               && pl_epoch_coordinate(e, batch_end_answered, &e->iter.failure);
    case SYNCHRONIZE:
        return (is_last || e->validates_now || end.validation)
               && pl_epoch_synchronize(e, batch_end_answered);
    case LOG: return (is_last || end.log) && pl_epoch_log(e, batch_end_answered);
    case BATCH_HOOK:         /* where the loop halts anyway, it waits for observers too */
        return (end.hook || (end.observer_hook && end.halt))
               && hook_run(e, PL_HOOK_TRAIN_BATCH_END, how);
    case VALIDATION_START:
        if (e->validation_announced || !takes_validation(e))
            return false;
        e->validation_announced = true;
        return (e->hooks.points & PL_AT(VALIDATION_START))
               && hook_run(e, PL_HOOK_VALIDATION_START, how);
    case VALIDATE:
        if (!takes_validation(e))
            return false;
        e->evaluating = pl_call_evaluate(e, e->evaluate, &evaluate, how,
                                         &e->iter.failure);
        return e->evaluating != 0;
    case VALIDATION_END:
        return e->validated && (e->hooks.points & PL_AT(VALIDATION_END))
               && hook_run(e, PL_HOOK_VALIDATION_END, how);
    case OBSERVE: return metrics_observe(e, how);
    default: return false;
    }
}

static void batch_end_continue(pl_epoch_t *e)
{
    const int64_t max = e->iter.options->max_steps;
    bool sent = false;
    while (e->iter.failure.code == PL_OK && e->phase < STEPS
           && !(sent = batch_end_send(e)))
        e->phase++;
    if (sent) {
        e->iter.pending++;
        return;
    }
    e->iter.halted = e->validates_now = false;
    e->pending.validate = false;
    e->iter.halts_at = 0;
    if (*e->stop_request)
        request_stop(e, e->stop_request);
    e->batches_ended = e->iter.done;
    pl_epoch_complete(e);
    e->ended = max > 0 && e->global_step >= (uint64_t)max;
    pl_epoch_request_halt(e);
    pl_batch_iter_end_pause(&e->iter);
}

void pl_epoch_batch_end(pl_epoch_t *e)
{
    e->iter.halted = true;
    e->phase = e->owes_validation ? VALIDATION_START : COORDINATE;
    e->validation_announced &= e->owes_validation;
    e->validated = e->skips_validation = false;
    batch_end_continue(e);
}
