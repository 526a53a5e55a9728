/* fit.c - the fit loop: epochs until a limit or a stop, then the weights */
#include "actors/loops/fit.h"

#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "actors/loops/loops.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/run.h"
#include "runtime/payload.h"

static int fit_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call;
    pl_fit_t *fit = self;
    int code = PL_OK;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    fit->options = job->trainer;
    fit->is_resume = job->resumes && !job->again;
    if (*fit->options->max_time)
        code = pl_duration_read(fit->options->max_time, &fit->max_time, err);
    if (code != PL_OK)
        return code;
    fit->data = pl_peer(self, "data");
    fit->epoch = pl_peer(self, "epoch");
    fit->evaluate = pl_peer(self, "evaluate");
    pl_hooks_init(&fit->hooks, self);
    fit->checkpoint = pl_peer(self, "checkpoint");
    fit->strategy = pl_peer(self, "strategy");
    fit->saves = !pl_is_nobody(fit->checkpoint);
    fit->lr_factor = 1;
    fit->shown_step = UINT64_MAX;
    fit->metrics = json_object();
    fit->skipped_ranges = json_array();
    if (!fit->metrics || !fit->skipped_ranges)
        return pl_no_memory(err);
    pl_actor_ready(self);
    return PL_OK;
}

static void fit_save(pl_fit_t *fit);
static bool fit_tell_failure(pl_fit_t *fit);

/* Once all steps are made, a failure is told with the weights that they made; unless who
 * has them is stuck. */
void pl_fit_fail(pl_fit_t *fit, const pl_error_t *error)
{
    bool all_made = fit->ended
                    || (fit->total_steps && fit->global_step >= fit->total_steps);
    if (!fit->call)
        return;
    if (pl_fit_may_roll_back(fit, error)) {
        pl_fit_roll_back(fit, error);
        return;
    }
    if (fit->failure.code == PL_OK) {
        fit->failure = *error;
        pl_fit_report_rollback_limit(fit, &fit->failure);
    }
    if (fit_tell_failure(fit))
        return;
    if (all_made && !fit->saving && error->code != PL_ESTUCK) {
        fit_save(fit);
        return;
    }
    pl_call_t *call = fit->call;
    fit->call = NULL;
    pl_fit_commands_end(fit);
    pl_call_fail(call, &fit->failure);
}

/* True unless the answer is the reply that was waited for; errors end the run. */
static bool fit_failed(pl_fit_t *fit, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        pl_fit_fail(fit, answer->error);
    return answer->kind != PL_ANSWER_REPLY || !fit->call;
}

/* A call that was not made is an error that ends the run. */
static void fit_sent(pl_fit_t *fit, uint64_t call, const pl_error_t *err)
{
    if (!call)
        pl_fit_fail(fit, err);
}

static void fit_pass_report(pl_fit_t *fit, const pl_run_progress_t *report)
{
    if (fit->call)
        pl_progress_run(fit->call, report);
}

/* ---- the end: callbacks, weights, result ---- */

static void fit_reply(pl_fit_t *fit)
{
    pl_call_t *call = fit->call;
    fit->call = NULL;
    pl_fit_commands_end(fit);
    pl_reply_run(call, &(pl_run_reply_t){.outcome = &fit->outcome->object});
}

static void fit_exported(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_LATE) {
        pl_fail(&err, PL_ESTUCK,
                "reading the weights after step %llu has not ended for %g s "
                "(trainer.step_timeout)",
                (unsigned long long)fit->global_step, fit->options->step_timeout);
        pl_fit_fail(fit, &err);
    }
    if (fit_failed(fit, answer))
        return;
    fit->outcome->weights = pl_object_ref(answer->body->export_weights_reply.weights);
    fit->outcome->weights->epoch = (uint32_t)fit->epochs.completed;
    pl_fit_log_weights(fit, fit->outcome->weights);
    if (fit->saves)
        pl_fit_write(fit, fit_reply);
    else
        fit_reply(fit);
}

static int outcome_fill(pl_fit_t *fit, pl_error_t *err)
{
    fit->outcome = pl_outcome_new(err);
    if (!fit->outcome)
        return PL_ENOMEM;
    fit->outcome->stopped = fit->stopped;
    pl_fit_reason(fit, fit->outcome->reason, sizeof fit->outcome->reason);
    fit->outcome->global_step = fit->global_step;
    fit->outcome->epoch = fit->epochs.completed;
    fit->outcome->error = fit->failure;
    fit->outcome->seconds = (double)(pl_now() - fit->began) / 1e9;
    fit->outcome->metrics = pl_metrics_text(fit->metrics, err);
    return fit->outcome->metrics ? PL_OK : PL_ENOMEM;
}

void pl_fit_reply_rollback(pl_fit_t *fit, char *rollback)
{
    pl_error_t err = {0};
    if (outcome_fill(fit, &err) == PL_OK) {
        fit->outcome->rollback = rollback;
        fit_reply(fit);
        return;
    }
    pl_free(rollback);
    pl_fit_fail(fit, &err);
}

static void fit_export(pl_fit_t *fit)
{
    pl_error_t err = {0};
    pl_how_t how = {.on_answer = fit_exported,
                    .silence_ms = pl_milliseconds(fit->options->step_timeout)};
    fit_sent(fit,
             pl_call_export_weights(fit, fit->strategy, &(pl_export_weights_t){0}, how,
                                    &err),
             &err);
}

/* One that cannot tell does not keep the weights back. */
static void callbacks_reported(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    if (!fit->call || answer->kind == PL_ANSWER_PROGRESS)
        return;
    if (answer->kind == PL_ANSWER_ERROR)
        err = *answer->error;
    else if (!(fit->outcome->callbacks = pl_strdup(answer->body->get_state_reply.state)))
        pl_no_memory(&err);
    if (fit->outcome->error.code == PL_OK)
        fit->outcome->error = err;
    fit_export(fit);
}

/* Once: a failure may have come to it before what led there was answered. */
static void fit_save(pl_fit_t *fit)
{
    pl_error_t err = {0};
    const pl_how_t how = {.on_answer = callbacks_reported};
    if (fit->saving)
        return;
    fit->saving = true;
    pl_fit_report_unsaved(fit);
    if (outcome_fill(fit, &err) != PL_OK)
        pl_fit_fail(fit, &err);
    else if (!pl_call_get_state(fit, fit->hooks.callback, &(pl_get_state_t){0}, how,
                                &err))
        fit_export(fit);
}

static void fit_end_hooked(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (!fit_failed(fit, answer))
        pl_fit_checkpoint_wait(fit, fit_save);
}

static uint64_t fit_ask(pl_fit_t *fit, unsigned point, pl_on_answer_t then,
                        pl_error_t *err)
{
    pl_run_hook_t msg = {.point = point,
                         .epoch = fit->epochs.completed,
                         .global_step = fit->global_step,
                         .total_steps = fit->total_steps,
                         .samples = fit->samples,
                         .extra = pl_fit_is_extra(fit, point),
                         .error = fit->failure.text};
    return pl_hooks_run(fit, &fit->hooks, &msg, fit->metrics,
                        (pl_how_t){.on_answer = then}, err);
}

static void fit_hook(pl_fit_t *fit, unsigned point, pl_on_answer_t then)
{
    pl_error_t err = {0};
    fit_sent(fit, fit_ask(fit, point, then, &err), &err);
}

/* ---- a failure is told before it ends the run ---- */

static void fit_fail_again(pl_fit_t *fit)
{
    pl_fit_fail(fit, &fit->failure);
}

static void fit_failure_reported(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_run_hook_reply_t *request = &answer->body->run_hook_reply;
        pl_fit_request_final_checkpoint(fit, request->save, request->drop);
        pl_fit_checkpoint(fit, fit_fail_again);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        pl_fit_fail(fit, &fit->failure);
    }
}

/* False: nobody wants to know, or they do already. */
static bool fit_tell_failure(pl_fit_t *fit)
{
    if (fit->reported || !(fit->hooks.points & PL_AT(EXCEPTION)))
        return false;
    fit->reported = true;
    return fit_ask(fit, PL_HOOK_EXCEPTION, fit_failure_reported, NULL) != 0;
}

static void fit_end(pl_fit_t *fit)
{
    pl_fit_commands_over(fit);
    fit_hook(fit, PL_HOOK_FIT_END, fit_end_hooked);
}

/* ---- epochs ---- */

static void fit_epoch_begin(void *self, const pl_answer_t *answer);
static void fit_train(pl_fit_t *fit, bool continues);

const char *pl_fit_stop_request(const pl_fit_t *fit)
{
    return fit->by_clock ? "" : fit->stop_request;
}

/* What a callback wants, at whichever point it was asked.  Between two epochs a
 * checkpoint is made at once; an epoch that was broken off is none. */
static void fit_stop_request(pl_fit_t *fit, const pl_run_hook_reply_t *request)
{
    const pl_run_hook_t msg = {.epoch = fit->epochs.completed,
                               .global_step = fit->global_step};
    pl_hooks_log(fit, &fit->hooks, &msg, request, fit->metrics, NULL);
    pl_hooks_freeze(fit, fit->strategy, request, &fit->failure);
    fit->lr_factor *= request->lr_factor;
    if (request->accumulate)
        fit->accumulate = request->accumulate;
    if (request->stop && (!*fit->stop_request || fit->by_clock)) {
        snprintf(fit->stop_request, sizeof fit->stop_request, "%s", request->reason);
        fit->by_clock = request->by_clock;
    }
    if (*fit->stop_request && fit->epochs.completed >= (uint64_t)fit->options->min_epochs
        && fit->global_step >= (uint64_t)fit->options->min_steps) {
        fit->ended = fit->stopped = true;
        fit->stop_requested = !fit->by_clock;
        snprintf(fit->reason, sizeof fit->reason, "%s", fit->stop_request);
    }
    if (!fit->in_epoch)
        pl_checkpoint_requests_add(&fit->checkpoint_requests, request->save,
                                   request->drop, NULL);
}

/* Who ends before its time is to be able to go on. */
static void fit_want_stopped(pl_fit_t *fit)
{
    if (fit->options->enable_checkpointing)
        pl_fit_request_final_checkpoint(fit, PL_STOPPED_CHECKPOINT, "");
}

static bool is_saved(const pl_fit_t *fit)
{
    return fit->serial && fit->checkpointing.global_step == fit->global_step;
}

static bool fit_is_over(const pl_fit_t *fit)
{
    const pl_trainer_options_t *o = fit->options;
    return fit->ended
           || (o->max_epochs >= 0 && fit->epochs.completed >= (uint64_t)o->max_epochs)
           || (o->max_steps >= 0 && fit->global_step >= (uint64_t)o->max_steps);
}

static void fit_begin_epoch(pl_fit_t *fit)
{
    fit->epochs.ready++;
    fit_hook(fit, PL_HOOK_TRAIN_EPOCH_START, fit_epoch_begin);
}

static void fit_next(pl_fit_t *fit)
{
    if (fit->resumes)
        fit_train(fit, false);
    else if (fit_is_over(fit))
        fit_end(fit);
    else if (pl_fit_reload_is_due(fit))
        pl_fit_reload(fit, fit_next);
    else
        fit_begin_epoch(fit);
}

static void fit_epoch_hooked(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    fit->epochs.completed += fit->epoch_whole;
    fit_stop_request(fit, &answer->body->run_hook_reply);
    if (fit->epoch_whole && fit->stop_received)
        fit_want_stopped(fit);
    fit->epoch_whole = false;
    pl_fit_checkpoint(fit, fit_next);
}

static void fit_ask_epoch_end(pl_fit_t *fit)
{
    fit_hook(fit, PL_HOOK_TRAIN_EPOCH_END, fit_epoch_hooked);
}

/* What is saved here is as if the epoch went on: so a run that is given more steps, or
 * more time, comes to what it would have come to. */
static void fit_cut_hooked(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    const pl_run_hook_reply_t *request = &answer->body->run_hook_reply;
    pl_fit_request_final_checkpoint(fit, request->save, request->drop);
    if (!*fit->checkpoint_requests.save && !is_saved(fit))
        fit_want_stopped(fit);
    pl_fit_checkpoint(fit, fit_ask_epoch_end);
}

static void fit_epoch_reported(pl_fit_t *fit, const pl_train_epoch_progress_t *p)
{
    fit->global_step = p->global_step;
    fit->total_steps = p->total_steps;
    if (p->event != PL_RUN_EVENT_TRAIN)                     /* those come by the clock */
        pl_metrics_merge(fit->metrics, p->metrics, NULL);
    fit_pass_report(fit, &(pl_run_progress_t){.event = p->event,
                                              .global_step = p->global_step,
                                              .total_steps = p->total_steps,
                                              .epoch = p->epoch,
                                              .batch = p->batch,
                                              .batches = p->batches,
                                              .metrics = p->metrics});
}

static void fit_epoch_go_on(pl_fit_t *fit)
{
    fit_train(fit, true);
}

static void fit_epoch_done(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_PROGRESS)
        fit_epoch_reported(fit, &answer->body->train_epoch_progress);
    if (fit_failed(fit, answer))
        return;
    const pl_train_epoch_reply_t *reply = &answer->body->train_epoch_reply;
    fit->global_step = reply->global_step;
    fit->samples = reply->samples;
    fit->fruitless = reply->skipped;
    fit->stop_received |= reply->stop_called;
    if (pl_metrics_merge(fit->metrics, reply->metrics, &err) != PL_OK
        || pl_checkpoint_requests_add(&fit->checkpoint_requests, reply->save, reply->drop,
                                      &err)
               != PL_OK) {
        pl_fit_fail(fit, &err);
        return;
    }
    if (reply->halted) {
        (reply->commanded ? pl_fit_commands_run : pl_fit_checkpoint)(fit,
                                                                     fit_epoch_go_on);
        return;
    }
    fit->ended = reply->ended;
    fit->stopped = reply->reason[0] != '\0';
    fit->stop_requested |= fit->stopped && *reply->stop_request && !fit->stop_received;
    snprintf(fit->stop_request, sizeof fit->stop_request, "%s", reply->stop_request);
    fit->by_clock = false;
    snprintf(fit->reason, sizeof fit->reason, "%s", reply->reason);
    fit->epoch_whole = reply->whole;
    fit->epochs.processed += reply->whole;
    fit->in_epoch = !reply->whole;
    if (fit->in_epoch && !fit->stop_received) {
        fit_hook(fit, PL_HOOK_TRAIN_CUT, fit_cut_hooked);
        return;
    }
    if (fit->in_epoch)
        fit_want_stopped(fit);
    pl_fit_checkpoint(fit, fit_ask_epoch_end);
}

/* 0: no limit.  Of a time that is over some is left: the epoch loop ends it. */
static double seconds_left(const pl_fit_t *fit)
{
    int64_t left = fit->began + fit->max_time - fit->before - pl_now();
    return !fit->max_time ? 0 : left < 1 ? 1e-9 : (double)left / 1e9;
}

/* From its start, or from where a run that was cut off had come to, or on after a
 * halt. */
static void fit_train(pl_fit_t *fit, bool continues)
{
    pl_error_t err = {0};
    char *skipped_ranges = pl_fit_skipped_ranges(fit, &err);
    pl_train_epoch_t msg = {.epoch = fit->epochs.completed,
                            .batch = fit->resumes ? fit->batch : 0,
                            .global_step = fit->global_step,
                            .lr_factor = fit->lr_factor,
                            .seconds = seconds_left(fit),
                            .stop_request = pl_fit_stop_request(fit),
                            .accumulate = fit->accumulate,
                            .points = fit->hooks.points,
                            .halts = pl_intervals_bytes(&fit->halts),
                            .looks = pl_intervals_bytes(&fit->looks),
                            .skipped_ranges = skipped_ranges,
                            .stop = fit->commands.stop,
                            .continues = continues};
    if (!continues)
        fit->lr_factor = 1;
    if (!continues && !fit->resumes)
        fit->epochs.started++;
    fit->resumes = false;
    fit->in_epoch = true;
    const pl_how_t how = {.on_answer = fit_epoch_done};
    uint64_t call = skipped_ranges ? pl_call_train_epoch(fit, fit->epoch, &msg, how, &err)
                                   : 0;
    pl_text_free(skipped_ranges);
    fit_sent(fit, call, &err);
}

static void fit_epoch_begin(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    fit_stop_request(fit, &answer->body->run_hook_reply);
    if (fit->ended)
        fit_end(fit);
    else
        fit_train(fit, false);
}

/* ---- a few batches are validated first: better now than after hours ---- */

static void fit_tried(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    bool broken_off = answer->kind == PL_ANSWER_ERROR
                      && (fit->stop_received || !pl_is_nobody(fit->hooks.coordinator))
                      && answer->error->code == PL_ECANCELLED;
    if (!broken_off && fit_failed(fit, answer))
        return;
    fit->trying = 0;
    fit_next(fit);
}

static void fit_try(pl_fit_t *fit)
{
    const int64_t max = fit->options->num_sanity_val_steps;
    const pl_evaluate_t msg = {.stage = PL_VALIDATE,
                               .max_batches =
                                   max < 0 || max > UINT32_MAX ? 0 : (uint32_t)max};
    pl_error_t err = {0};
    const bool continues = fit->resumes || fit->global_step > 0;
    if (!max || pl_is_nobody(fit->evaluate) || continues || fit_is_over(fit)) {
        fit_next(fit);
        return;
    }
    fit->trying = pl_call_evaluate(fit, fit->evaluate, &msg,
                                   (pl_how_t){.on_answer = fit_tried}, &err);
    fit_sent(fit, fit->trying, &err);
}

static void fit_started(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    pl_run_hook_reply_t request = answer->body->run_hook_reply;
    if (fit->serial) {                   /* what was requested then is in what was kept */
        request.lr_factor = 1;
        request.freeze = request.unfreeze = "";
    }
    fit_stop_request(fit, &request);
    pl_fit_request_start_checkpoint(fit);
    pl_fit_count_rollbacks(fit);
    pl_fit_checkpoint(fit, fit_try);
}

static void fit_interest_known(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    fit->hooks.points = answer->body->callback_hooks_reply.points;
    pl_intervals_read(&fit->halts, answer->body->callback_hooks_reply.halts);
    pl_intervals_read(&fit->looks, answer->body->callback_hooks_reply.looks);
    if (answer->body->callback_hooks_reply.requests & PL_MAY_SAVE)
        pl_fit_checkpoint_prepare(fit);
    fit_hook(fit, PL_HOOK_FIT_START, fit_started);
}

static int fit_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body;
    pl_fit_t *fit = self;
    if (fit->call)
        return pl_fail(err, PL_EBUSY, "a fit is already running");
    if (!pl_hooks_query(fit, &fit->hooks, (pl_how_t){.on_answer = fit_interest_known},
                        err))
        return err->code;
    fit->call = call;
    fit->began = pl_now();
    return PL_OK;
}

static int fit_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_fit_t *fit = self;
    /* else the epoch tells */
    fit->stop_received |= pl_is_nobody(fit->hooks.coordinator);
    pl_cancel(fit, fit->trying);
    pl_fit_checkpoint_hurry(fit);
    if (!pl_fit_commands_stop(fit, body->stop.reason)
        && !pl_call_stop(fit, fit->epoch, &body->stop, (pl_how_t){0}, err))
        return err->code;
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void fit_release(void *self)
{
    pl_fit_t *fit = self;
    pl_fit_checkpoint_release(fit);
    pl_hooks_release(&fit->hooks);
    json_decref(fit->metrics);
    json_decref(fit->skipped_ranges);
    pl_object_unref(fit->outcome);
}

static const pl_handler_t fit_handlers[] = {
    PL_ON(start, fit_start),
    PL_ON(run, fit_run),
    PL_ON(stop, fit_stop),
    PL_ON(control, pl_fit_control),
    PL_ON(set_state, pl_fit_set_state),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_fit_loop = {
    .name = "fit",
    .help = "epochs until a limit or a stop",
    .size = sizeof(pl_fit_t),
    .role = "loop",
    .level = PL_LEVEL_FIT_LOOP,
    .handlers = fit_handlers,
    .release = fit_release,
};
