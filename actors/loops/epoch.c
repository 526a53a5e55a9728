/* epoch.c - the epoch loop: train on the batches of one epoch
 *
 * What follows a batch, such as a hook or a validation, is made in epoch_batch_end.c.
 * Options and counts alone tell which batches these are, before they are fetched
 * (epoch_batch_end.c).  Nothing is sent past such a batch until all before it have come
 * back, so timing decides nothing.  Answers come in order, so a log line needs no such
 * halt. */
#include "actors/loops/epoch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/loops.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/option.h"
#include "base/options.h"

static const int64_t REPORT_EVERY = PL_SECOND / 10;

/* ---- batches ---- */

static pl_batch_end_t after(const pl_epoch_t *e, uint32_t batch)
{
    return pl_batch_schedule_after(&e->schedule, batch);
}

/* Batches are completed together with their step: until then its gradients are in no
 * checkpoint. */
void pl_epoch_complete(pl_epoch_t *e)
{
    if (!after(e, e->iter.done - 1).step)
        return;
    e->iter.counts.completed = e->iter.counts.processed;
    e->steps.completed = e->steps.processed;
}

/* Not every skipped step is logged: a run may have very many. */
static void step_skipped(pl_epoch_t *e, const char *why)
{
    if (++e->skipped <= 10 || e->skipped % 100 == 0)
        pl_log_line(
            PL_LOG_WARNING, pl_actor_rank(e), pl_actor_name(e),
            "step %llu was skipped and changed no weight: %s; skipped so far: %llu",
            (unsigned long long)after(e, e->iter.done).steps, why,
            (unsigned long long)e->skipped);
}

/* Log line and observers of the newest batch, while other batches are in flight, and
 * progress. */
static void batch_ended(pl_epoch_t *e)
{
    const pl_batch_end_t end = after(e, e->iter.done - 1);
    pl_epoch_check_time(e);
    if (e->iter.call && e->iter.failure.code == PL_OK && !end.halt) {
        if (end.log)
            pl_epoch_log(e, NULL);
        if (end.observer_hook)
            pl_epoch_run_observers(e);
    }
    if (e->iter.call && pl_now() - e->reported_at >= REPORT_EVERY)
        pl_epoch_report(e, PL_RUN_EVENT_TRAIN);
}

/* Answers come in order; the strategy names the step of values that are not finite.  If
 * so many steps are skipped in a row that nothing is learned any more, that is an error.
 * Metrics of a step that is going to be skipped are not added. */
static void batch_done(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    pl_error_t *failure = &e->iter.failure;
    if (answer->kind == PL_ANSWER_ERROR && failure->code == PL_OK) {
        *failure = *answer->error;
        if (answer->error->code != PL_ENAN)
            pl_error_prefix(failure, "epoch %" PRIu64 ", batch %" PRIu64,
                            e->iter.epoch + UINT64_C(1), e->iter.done + UINT64_C(1));
    }
    if (pl_batch_iter_no_reply(&e->iter, answer))
        return;
    const pl_train_batch_reply_t *reply = &answer->body->train_batch_reply;
    const pl_batch_end_t end = after(e, e->iter.done);
    if (reply->skipped) {
        step_skipped(e, reply->bad);
        if (++e->in_row == (uint64_t)e->iter.options->nan_limit)
            pl_fail(failure, PL_ENAN,
                    "step %llu: %s; steps skipped before it for the same reason: %llu, "
                    "which is the limit (trainer.nan_limit)",
                    (unsigned long long)end.steps, reply->bad,
                    (unsigned long long)e->in_row - 1);
    } else if (end.step) {
        e->in_row = 0;
    }
    e->global_step = end.steps;
    e->steps.processed += end.step;
    e->samples += (uint64_t)(intptr_t)answer->context;
    pl_stragglers_add(&e->stragglers, reply->timings, pl_now());
    pl_batch_iter_batch_done(&e->iter, reply->halt);
    if (!end.halt)
        pl_epoch_complete(e);
    if (!e->may_skip || pl_metrics_are_finite(reply->metrics)) {
        pl_metrics_add(&e->sums, reply->metrics);
        pl_metrics_add(&e->since_log, reply->metrics);
        pl_metrics_add_steps(&e->since_report, reply->metrics);
    }
    batch_ended(e);
    pl_batch_iter_continue(&e->iter);
}

/* ---- steps that a rollback skips ---- */

/* The step to which a batch belongs. */
static uint64_t step_of(const pl_epoch_t *e, uint32_t batch)
{
    const pl_batch_end_t end = after(e, batch);
    return end.steps + !end.step;
}

/* The range that a batch lies in; NULL: it is trained on. */
static const json_t *skipped_range(const pl_epoch_t *e, uint32_t batch)
{
    size_t k;
    json_t *range;
    if (!e->skipped_ranges)
        return NULL;
    const json_int_t step = (json_int_t)step_of(e, batch);
    json_array_foreach(e->skipped_ranges, k, range)
        if (step >= pl_json_integer_at(range, 0) && step <= pl_json_integer_at(range, 1))
            return range;
    return NULL;
}

/* All counts continue as if the step had been made.  The rollback is logged at the step
 * that failed, because the step from which the run resumes depends on stops. */
static void batch_skip(pl_epoch_t *e, uint32_t samples)
{
    const uint32_t batch = e->iter.done;
    const pl_batch_end_t end = after(e, batch);
    const json_t *range = skipped_range(e, batch);
    char text[64];
    if (end.step) {
        step_skipped(e, "it led to a rollback");
        e->in_row++;
    }
    e->global_step = end.steps;
    e->samples += samples;
    e->iter.done++;
    if (end.step && !pl_is_nobody(e->hooks.logger)
        && pl_json_integer_at(range, 1) == (json_int_t)e->global_step) {
        snprintf(text, sizeof text, "{\"rollbacks\": %lld}",
                 (long long)pl_json_integer_at(range, 2));
        const pl_log_metrics_t msg = {.epoch = e->iter.epoch,
                                      .global_step = e->global_step,
                                      .metrics = text};
        pl_epoch_log_record(e, &msg, NULL);
    }
    e->iter.counts.started++;
    e->iter.counts.processed++;
    e->steps.ready += end.step;
    e->steps.started += end.step;
    e->steps.processed += end.step;
    if (!end.halt)
        pl_epoch_complete(e);
    pl_watchdog_reset(&e->iter.watchdog);
    batch_ended(e);
}

static uint64_t epoch_send(pl_batch_iter_t *iter, const pl_fetch_batch_reply_t *batch)
{
    pl_epoch_t *e = (pl_epoch_t *)iter;
    const bool step_due = after(e, batch->batch_idx).step;
    const uint64_t per_epoch = e->schedule.epoch_steps;
    if (skipped_range(e, batch->batch_idx)) {
        batch_skip(e, batch->samples);
        return 0;
    }
    const pl_train_batch_t msg = {
        .global_step = step_of(e, batch->batch_idx),
        .total_steps = e->total_steps,
        .epoch = e->iter.epoch,
        .total_epochs = (e->total_steps + per_epoch - 1) / per_epoch,
        .epoch_steps = per_epoch,
        .epoch_ends = batch->batch_idx + 1 == e->schedule.batches,
        .micro_batch = (uint32_t)(batch->batch_idx % e->schedule.accumulate),
        .step_due = step_due,
        .lr_factor = e->lr_factor,
        .may_skip = e->may_skip,
        .waited = (double)iter->waited / 1e9,
        .batch = batch->batch};
    const pl_how_t how = {.on_answer = batch_done,
                          .context = (void *)(intptr_t)batch->samples};
    uint64_t sent = pl_call_train_batch(e, iter->strategy, &msg, how, &iter->failure);
    e->steps.ready += step_due;
    e->steps.started += step_due && sent;
    return sent;
}

/* The batch that was fetched last ends an optimizer step. */
static bool is_at_step(const pl_epoch_t *e)
{
    return e->iter.fetched == 0 || after(e, e->iter.fetched - 1).step;
}

/* It is followed by a batch end. */
static bool is_at_batch_end(const pl_epoch_t *e)
{
    return e->iter.fetched > e->batches_ended
           && (after(e, e->iter.fetched - 1).halt || e->owes_validation
               || ((e->validates_now || pl_batch_iter_is_sync_point(&e->iter))
                   && is_at_step(e)));
}

/* A stop or a checkpoint waits for the optimizer step of the newest micro-batch.  A
 * skipped batch is alone in flight, because answers come in order. */
static bool epoch_may_fetch(const pl_batch_iter_t *iter)
{
    const pl_epoch_t *e = (const pl_epoch_t *)iter;
    const uint32_t next = iter->fetched;
    if (iter->pending && (skipped_range(e, next) || (next && skipped_range(e, next - 1))))
        return false;
    return !is_at_batch_end(e)
           && !((e->stopping || *e->checkpoint_requests.save || e->halts_for_command)
                && is_at_step(e));
}

static void epoch_what(const pl_batch_iter_t *iter, char text[160])
{
    snprintf(text, 160, "step %" PRIu64 ", in epoch %" PRIu64 ",",
             ((const pl_epoch_t *)iter)->global_step + 1, iter->epoch + UINT64_C(1));
}

/* ---- the end ---- */

/* The report has the progress, which the error has not. */
static void epoch_fail(pl_batch_iter_t *iter)
{
    pl_epoch_report((pl_epoch_t *)iter, PL_RUN_EVENT_ALIVE);
    pl_call_fail(pl_batch_iter_take_call(iter), &iter->failure);
}

static void epoch_reply(pl_epoch_t *e, pl_train_epoch_reply_t reply)
{
    char *text = pl_metrics_text(e->newest, &e->iter.failure);
    pl_call_t *call = pl_batch_iter_take_call(&e->iter);
    reply.global_step = e->global_step;
    reply.samples = e->samples;
    reply.skipped = e->in_row > 0;
    reply.stop_request = pl_epoch_stop_request(e);
    reply.metrics = text;
    if (text)
        pl_reply_train_epoch(call, &reply);
    else
        pl_call_fail(call, &e->iter.failure);
    pl_free(text);
}

static void rest_synchronized(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    if (pl_batch_iter_no_reply(&e->iter, answer))
        return;
    e->iter.pending--;
    pl_epoch_synchronized(e, &answer->body->synchronize_reply);
    pl_batch_iter_continue(&e->iter);
}

/* Nothing is in flight: a batch end, then a halt for a checkpoint or a command, which the
 * fit loop makes; otherwise the epoch is over, or a stop ends it. */
static void epoch_rest(pl_batch_iter_t *iter)
{
    pl_epoch_t *e = (pl_epoch_t *)iter;
    const pl_checkpoint_requests_t requests = e->checkpoint_requests;
    const bool is_whole = iter->done == e->schedule.batches,
               commanded = e->halts_for_command;
    if (is_at_batch_end(e)) {
        pl_epoch_batch_end(e);
    } else if (pl_epoch_synchronize(e, rest_synchronized)) {
        iter->pending++;
    } else if (iter->failure.code != PL_OK) {
        epoch_fail(iter);
    } else if (*requests.save || commanded) {
        e->checkpoint_requests = (pl_checkpoint_requests_t){0};
        e->halts_for_command = false;
        e->halted_at = pl_now();
        epoch_reply(e, (pl_train_epoch_reply_t){.halted = true,
                                                .commanded = commanded,
                                                .save = requests.save,
                                                .drop = requests.drop,
                                                .reason = ""});
    } else {
        if (iter->done == e->schedule.end && !e->owes_validation
            && (is_whole || iter->done > iter->first))
            pl_epoch_report(e, PL_RUN_EVENT_EPOCH);
        else
            pl_epoch_progress(e, PL_RUN_EVENT_ALIVE, "");   /* what follows it may fail */
        epoch_reply(e, (pl_train_epoch_reply_t){.ended = e->ended || e->stopping,
                                                .whole = is_whole && !e->owes_validation,
                                                .save = "",
                                                .drop = "",
                                                .reason = e->reason,
                                                .stop_kind = e->stop_kind,
                                                .stop_called = e->stop_received});
    }
}

/* ---- the beginning ---- */

static void epoch_names(pl_batch_iter_t *iter, const char *names)
{
    pl_epoch_t *e = (pl_epoch_t *)iter;
    pl_metrics_name(&e->sums, "train_", names);
    pl_metrics_name(&e->since_log, "train_", names);
    pl_metrics_name(&e->since_report, "train_", names);
    pl_epoch_sums_restore(e);
}

/* An interval longer than the epoch would mean no validation at all. */
static uint32_t epoch_begun(pl_batch_iter_t *iter, uint32_t there)
{
    pl_epoch_t *e = (pl_epoch_t *)iter;
    const pl_trainer_options_t *o = iter->options;
    const pl_amount_t every = o->val_check_interval;
    const uint32_t batches = pl_amount_of(o->limit_train_batches, there);
    if (there == 0)
        pl_fail(&iter->failure, PL_EINVAL,
                "an epoch has no batch: there are no samples, or data.drop_last drops "
                "the only batch");
    else if (batches == 0)
        pl_fail(&iter->failure, PL_EINVAL,
                "trainer.limit_train_batches excludes every batch of an epoch, which has "
                "%u: raise it",
                there);
    if (e->schedule.validates && !every.is_share && !every.is_time
        && o->check_val_every_n_epoch != 0 && every.value > batches)
        pl_fail(
            &iter->failure, PL_EINVAL,
            "trainer.val_check_interval is %g, but an epoch has %u batch%s: lower it, "
            "or set trainer.check_val_every_n_epoch to 0 to count across epochs",
            every.value, batches, batches == 1 ? "" : "es");
    e->total_steps = pl_batch_schedule_begin(&e->schedule, iter->epoch, iter->first,
                                             e->global_step, batches);
    if (e->is_cut_short)                                    /* it resumes at its end */
        e->schedule.batches = e->schedule.end = iter->first;
    return e->schedule.end;
}

static void begin_coordinated(void *self, const pl_answer_t *answer)
{
    pl_epoch_t *e = self;
    pl_call_t *call = e->agreeing;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    e->agreeing = NULL;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(call, answer->error);
    else if (pl_epoch_coordinated(e, &answer->body->decide_reply, &err) != PL_OK)
        pl_call_fail(call, &err);
    else
        pl_batch_iter_begin(&e->iter, call);
}

static int epoch_begin(pl_epoch_t *e, const pl_train_epoch_t *msg, pl_error_t *err)
{
    pl_batch_iter_t *iter = &e->iter;
    const pl_trainer_options_t *o = iter->options;
    e->schedule.accumulate = msg->accumulate ? msg->accumulate
                                             : (uint64_t)o->accumulate_grad_batches;
    iter->epoch = msg->epoch;
    e->owes_validation &= msg->batch > 0;
    iter->first = msg->batch;
    e->batches_ended = msg->batch - e->owes_validation;
    iter->again = o->max_epochs <= 0 || msg->epoch + INT64_C(1) < o->max_epochs;
    e->lr_factor *= msg->lr_factor;
    e->global_step = msg->global_step;
    if (!e->validated_at)
        e->validated_at = pl_now();
    json_decref(e->skipped_ranges);
    e->skipped_ranges = NULL;
    if (*msg->skipped_ranges
        && !(e->skipped_ranges = pl_json_value(msg->skipped_ranges,
                                               strlen(msg->skipped_ranges), err)))
        return err->code;
    if (*msg->stop_request)
        snprintf(e->stop_request, sizeof e->stop_request, "%s", msg->stop_request);
    e->synchronized = msg->batch;
    if (msg->batch == 0) {
        e->is_cut_short = false;
        pl_metrics_clear(&e->sums);
        pl_metrics_clear(&e->since_log);
        json_decref(e->kept);                             /* sums of the previous epoch */
        e->kept = NULL;
    }
    return PL_OK;
}

/* The time of a halt does not count for val_check_interval.  Several ranks agree on all
 * answers of callbacks, so they halt for observers too; before an epoch they agree on
 * what they have received since the last. */
static int epoch_train(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_epoch_t *e = self;
    const pl_train_epoch_t *msg = &body->train_epoch;
    const bool is_alone = pl_is_nobody(e->iter.coordinator);
    pl_intervals_t *halts = &e->schedule.halts, *looks = &e->schedule.looks;
    if (pl_batch_iter_is_idle(&e->iter, err) != PL_OK)
        return err->code;
    e->hooks.points = msg->points;
    pl_intervals_read(halts, msg->halts);
    pl_intervals_read(looks, msg->looks);
    for (int k = 0; k < looks->count && !is_alone; k++)
        pl_intervals_add(halts, looks->steps[k]);
    if (!is_alone)
        looks->count = 0;
    e->deadline = msg->seconds > 0 ? pl_now() + (int64_t)(msg->seconds * 1e9) : 0;
    if (msg->continues) {
        e->validated_at += pl_now() - e->halted_at;
        if (*msg->stop)
            pl_epoch_stop(e, msg->stop, msg->stop_kind);
        pl_batch_iter_resume(&e->iter, call);
        pl_epoch_request_halt(e);
        return PL_OK;
    }
    if (epoch_begin(e, msg, err) != PL_OK)
        return err->code;
    if (is_alone)
        pl_batch_iter_begin(&e->iter, call);
    else if (pl_epoch_coordinate(e, begin_coordinated, err))
        e->agreeing = call;
    else
        return err->code;
    return PL_OK;
}

static int epoch_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)err;
    pl_epoch_t *e = self;
    if (!e->pending.stop) {
        snprintf(e->pending_reason, sizeof e->pending_reason, "%s", body->stop.reason);
        e->pending.reason = e->pending_reason;
        e->pending.stop_kind = body->stop.kind;
    }
    e->pending.stop = true;
    pl_epoch_request_sync(e);
    if (pl_epoch_defers_validation(e))
        pl_cancel(e, e->evaluating);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

/* The fit loop carries the command out, once this loop has halted. */
static int epoch_control(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    (void)body, (void)err;
    pl_epoch_t *e = self;
    e->pending.halt = true;
    pl_epoch_request_halt(e);
    return pl_reply_control(call, &(pl_control_reply_t){.checkpoint = ""});
}

static int epoch_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    static const pl_batch_iter_ops_t ops = {.on_names = epoch_names,
                                            .on_begun = epoch_begun,
                                            .may_fetch = epoch_may_fetch,
                                            .send = epoch_send,
                                            .rest = epoch_rest,
                                            .fail = epoch_fail,
                                            .what = epoch_what};
    (void)call;
    pl_epoch_t *e = self;
    pl_batch_iter_init(&e->iter, &ops, body);
    e->iter.stage = PL_TRAIN;
    e->evaluate = pl_peer(self, "evaluate");
    pl_hooks_init(&e->hooks, self);
    e->schedule = (pl_batch_schedule_t){.options = e->iter.options,
                                        .validates = !pl_is_nobody(e->evaluate)};
    e->lr_factor = 1;
    e->may_skip = e->iter.options->nan_policy == PL_NAN_SKIP;
    e->newest = json_object();
    e->reported = json_object();
    if (!e->newest || !e->reported)
        return pl_no_memory(err);
    pl_actor_ready(self);
    return PL_OK;
}

static void epoch_release(void *self)
{
    pl_epoch_t *e = self;
    json_decref(e->newest);
    json_decref(e->reported);
    json_decref(e->kept);
    json_decref(e->skipped_ranges);
    pl_hooks_release(&e->hooks);
    pl_stragglers_release(&e->stragglers);
    pl_metrics_release(&e->sums);
    pl_metrics_release(&e->since_log);
    pl_metrics_release(&e->since_report);
    json_decref(e->held);
}

static const pl_handler_t epoch_handlers[] = {
    PL_ON(start, epoch_start),
    PL_ON(train_epoch, epoch_train),
    PL_ON(stop, epoch_stop),
    PL_ON(control, epoch_control),
    PL_ON(get_state, pl_epoch_get_state),
    PL_ON(set_state, pl_epoch_set_state),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_epoch_loop = {
    .name = "epoch",
    .help = "trains on the batches of one epoch",
    .size = sizeof(pl_epoch_t),
    .role = "loop",
    .level = PL_LEVEL_EPOCH_LOOP,
    .handlers = epoch_handlers,
    .release = epoch_release,
};
