/* epoch_batch_end.c - what follows a batch of an epoch: log line, hooks, validation, stop
 *
 * Nothing else is under way meanwhile.  One thing is sent, its answer leads to the next;
 * what is not due, or wanted by nobody, is passed over. */
#include <stdio.h>

#include "actors/loops/epoch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

static void batch_end_continue(pl_epoch_t *e);

static void batch_end_next(pl_epoch_t *e)
{
    e->decision++;
    batch_end_continue(e);
}

static void batch_end_finish(pl_epoch_t *e)
{
    int64_t max = e->iter.options->max_steps;
    e->iter.halted = e->validates_now = e->pending.validate = false;
    e->iter.halts_at = 0;
    if (*e->stop_request)
        pl_epoch_request_stop(e, e->stop_request);
    e->decided = e->iter.done;
    pl_epoch_complete(e);
    e->ended = max > 0 && e->global_step >= (uint64_t)max;
    pl_pipeline_depth_pause(&e->iter.depth);
    pl_watchdog_reset(&e->iter.watchdog);
    pl_epoch_request_halt(e);
    pl_batch_iter_continue(&e->iter);
}

/* Of what has nothing to say. */
static void acknowledged(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    batch_end_next(e);
}

/* ---- what rank zero has heard ---- */

static void heard(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    pl_epoch_coordinated(e, answer->body->decide_reply.text);
    batch_end_next(e);
}

static bool batch_end_coordinate(pl_epoch_t *e)
{
    return !pl_is_nobody(e->iter.coordinator)
           && pl_epoch_coordinate(e, heard, &e->iter.failure);
}

/* ---- ranks come together ---- */

static void weights_synchronized(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    pl_epoch_synchronized(e, &answer->body->synchronize_reply);
    batch_end_next(e);
}

/* Before the weights are measured, and the epoch's metrics told. */
static bool batch_end_synchronize(pl_epoch_t *e)
{
    return (e->iter.done == e->schedule.end || e->validates_now
            || pl_batch_schedule_is_validation(&e->schedule, e->iter.done - 1))
           && pl_epoch_synchronize(e, weights_synchronized);
}

/* ---- log lines ---- */

static bool batch_end_log(pl_epoch_t *e)
{
    return (e->iter.done == e->schedule.end
            || pl_batch_schedule_is_log(&e->schedule, e->iter.done - 1))
           && pl_epoch_log(e, acknowledged);
}

/* A validation at the end of the run alone. */
static bool is_extra(const pl_epoch_t *e)
{
    return e->iter.done > 0
           && pl_batch_schedule_is_extra_validation(&e->schedule, e->iter.done - 1)
           && !e->validates_now;
}

/* ---- hooks ---- */

/* What is left of the epoch's batches is passed over: it ends here. */
static void epoch_cut(pl_epoch_t *e)
{
    if (e->iter.done == e->schedule.end)
        return;
    e->schedule.batches = e->schedule.end = e->iter.batches = e->iter.done;
    e->cut = true;
    pl_epoch_log(e, NULL);
}

/* One that is kept takes the place of one that is not. */
static void take_stop_request(pl_epoch_t *e, const pl_run_hook_reply_t *request)
{
    const bool first = !*e->stop_request || (e->out_of_time && !request->by_clock);
    if (first && !e->stopping) {
        e->out_of_time = request->by_clock;
        *e->stop_request = '\0';
    }
    pl_epoch_request_stop(e, request->reason);
}

static void epoch_callback_request(pl_epoch_t *e, pl_hook_t point, uint64_t global_step,
                                   const pl_run_hook_reply_t *request)
{
    const pl_run_hook_t msg = {.epoch = e->iter.epoch, .global_step = global_step};
    pl_hooks_log(e, &e->hooks, &msg, request, e->newest, &e->iter.failure);
    pl_hooks_freeze(e, e->iter.strategy, request, &e->iter.failure);
    e->lr_factor *= request->lr_factor;
    pl_checkpoint_requests_add(&e->checkpoint_requests, request->save, request->drop,
                               &e->iter.failure);
    if (request->skip && point == PL_HOOK_VALIDATION_START)
        e->unwanted = true;
    else if (request->skip)
        epoch_cut(e);
    if (request->stop)
        take_stop_request(e, request);
}

static void hooked(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    epoch_callback_request(e, (pl_hook_t)(intptr_t)answer->context, e->global_step,
                           &answer->body->run_hook_reply);
    batch_end_next(e);
}

static bool send_hook(pl_epoch_t *e, pl_hook_t point, pl_how_t how)
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
    bool sent = now && pl_epoch_newest(e, now, &e->iter.failure) == PL_OK
                && pl_hooks_run(e, &e->hooks, &msg, now, how, &e->iter.failure);
    json_decref(now);
    return now ? sent : (pl_no_memory(&e->iter.failure), false);
}

static bool batch_end_hook(pl_epoch_t *e, pl_hook_t point)
{
    const pl_how_t how = {.on_answer = hooked, .context = (void *)(intptr_t)point};
    return send_hook(e, point, how);
}

/* Where all halts anyway, those who look on look on then. */
static bool batch_end_callbacks(pl_epoch_t *e)
{
    const uint32_t batch = e->iter.done - 1;
    return (pl_batch_schedule_is_hook(&e->schedule, batch)
            || (pl_batch_schedule_is_observer_hook(&e->schedule, batch)
                && pl_batch_schedule_is_halt(&e->schedule, batch)))
           && batch_end_hook(e, PL_HOOK_TRAIN_BATCH_END);
}

/* They were asked after that step: the run may have come further. */
static void looked(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_epoch_log_release(e);
    if (pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    epoch_callback_request(e, PL_HOOK_TRAIN_BATCH_END,
                           (uint64_t)(uintptr_t)answer->context,
                           &answer->body->run_hook_reply);
    pl_epoch_log_release(e);
    pl_batch_iter_continue(&e->iter);
}

void pl_epoch_run_observers(pl_epoch_t *e)
{
    const pl_how_t how = {.on_answer = looked,
                          .context = (void *)(uintptr_t)e->global_step};
    pl_epoch_log_hold(e);
    if (send_hook(e, PL_HOOK_TRAIN_BATCH_END, how))
        e->iter.pending++;
    else
        pl_epoch_log_release(e);
}

/* ---- validation ---- */

/* Within an optimizer step there is no checkpoint to go on from. */
bool pl_epoch_defers_validation(const pl_epoch_t *e)
{
    return e->told && e->iter.done
           && pl_batch_schedule_is_step(&e->schedule, e->iter.done - 1);
}

/* Whether one is to be made here; one that is due where it cannot be is owed. */
static bool take_validation(pl_epoch_t *e)
{
    const bool due =
        !e->unwanted
        && (e->owes || e->validates_now
            || pl_batch_schedule_is_validation(&e->schedule, e->iter.done - 1));
    e->owes = due && pl_epoch_defers_validation(e);
    return due && !e->owes;
}

static bool batch_end_validation_start(pl_epoch_t *e)
{
    if (e->asked || !take_validation(e))
        return false;
    e->asked = true;
    return (e->hooks.points & PL_AT(VALIDATION_START))
           && batch_end_hook(e, PL_HOOK_VALIDATION_START);
}

static void validation_reported(pl_epoch_t *e, const pl_evaluate_progress_t *p)
{
    pl_progress_train_epoch(e->iter.call,
                            &(pl_train_epoch_progress_t){.event = p->event,
                                                         .global_step = p->global_step,
                                                         .total_steps = e->total_steps,
                                                         .epoch = p->epoch,
                                                         .batch = p->batch,
                                                         .batches = p->batches,
                                                         .metrics = ""});
}

static void validation_store(pl_epoch_t *e, const char *metrics)
{
    e->validated = true;
    e->validated_at = pl_now();
    pl_metrics_merge(e->newest, metrics, &e->iter.failure);
    pl_log_metrics_t log = {.epoch = e->iter.epoch,
                            .global_step = e->global_step,
                            .metrics = metrics};
    if (!pl_is_nobody(e->hooks.logger))
        pl_call_log_metrics(e, e->hooks.logger, &log, (pl_how_t){0}, &e->iter.failure);
    if (e->iter.call)
        pl_epoch_report(e, PL_RUN_EVENT_VALIDATED);
}

static void validated(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    bool broken_off = answer->kind == PL_ANSWER_ERROR
                      && (pl_epoch_defers_validation(e)
                          || !pl_is_nobody(e->iter.coordinator))
                      && answer->error->code == PL_ECANCELLED;
    if (answer->kind == PL_ANSWER_PROGRESS)
        validation_reported(e, &answer->body->evaluate_progress);
    if (!broken_off && pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    e->owes = broken_off;
    if (!broken_off)
        validation_store(e, answer->body->evaluate_reply.metrics);
    batch_end_next(e);
}

static bool batch_end_validate(pl_epoch_t *e)
{
    pl_evaluate_t msg = {.stage = PL_VALIDATE,
                         .epoch = e->iter.epoch,
                         .global_step = e->global_step};
    pl_how_t how = {.on_answer = validated};
    if (!take_validation(e))
        return false;
    e->evaluating = pl_call_evaluate(e, e->evaluate, &msg, how, &e->iter.failure);
    return e->evaluating != 0;
}

/* For schedules that go by metrics, those of callbacks too: after a validation or, where
 * there is none, an epoch. */
static bool batch_end_observe(pl_epoch_t *e)
{
    const bool news = e->schedule.validates ? e->validated && !is_extra(e)
                                            : e->iter.done == e->schedule.batches;
    char *text = news ? pl_metrics_text(e->newest, &e->iter.failure) : NULL;
    const pl_observe_metrics_t msg = {.metrics = text};
    const pl_how_t how = {.on_answer = acknowledged};
    bool sent =
        text && pl_call_observe_metrics(e, e->iter.strategy, &msg, how, &e->iter.failure);
    pl_free(text);
    return sent;
}

static bool batch_end_validation_end(pl_epoch_t *e)
{
    return e->validated && (e->hooks.points & PL_AT(VALIDATION_END))
           && batch_end_hook(e, PL_HOOK_VALIDATION_END);
}

/* ---- one after the other ---- */

/* Each sends what it is about, where that is due and somebody wants it: then its answer
 * calls batch_end_next(). */
enum { VALIDATION = 4 };
static bool (*const decisions[])(pl_epoch_t *e) = {
    batch_end_coordinate,
    batch_end_synchronize,
    batch_end_log,
    batch_end_callbacks,
    [VALIDATION] = batch_end_validation_start,
    batch_end_validate,
    batch_end_validation_end,
    batch_end_observe,
    batch_end_coordinate,
};
enum { DECISIONS = sizeof decisions / sizeof *decisions };

static void batch_end_continue(pl_epoch_t *e)
{
    bool sent = false;
    while (e->iter.failure.code == PL_OK && e->decision < DECISIONS
           && !(sent = decisions[e->decision](e)))
        e->decision++;
    if (sent)
        e->iter.pending++;
    else
        batch_end_finish(e);
}

/* What came before a validation that is owed was done before the stop. */
void pl_epoch_batch_end(pl_epoch_t *e)
{
    e->iter.halted = true;
    e->decision = e->owes ? VALIDATION : 0;
    e->asked &= e->owes;
    e->validated = e->unwanted = false;
    batch_end_continue(e);
}
