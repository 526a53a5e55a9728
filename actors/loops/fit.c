/* fit.c - the fit loop: epochs until a limit or a stop, then the weights */
#include "actors/loops/fit.h"

#include <stdio.h>
#include <string.h>

#include "actors/commands.h"
#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"

static int fit_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call;
    pl_fit_t *fit = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    fit->options = job->trainer;
    fit->is_resume = job->resumes && !job->again;
    if (*fit->options->max_time
        && pl_duration_read(fit->options->max_time, &fit->max_time, err) != PL_OK)
        return err->code;
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

/* Runs a hook; false: the call was not made, which ends the run.  `extra` means: at the
 * end of an epoch, that it was cut short; at the end of the run, that it was stopped and
 * can be resumed. */
static bool fit_hook(pl_fit_t *fit, unsigned point, pl_on_answer_t then)
{
    const bool ends_epoch = point == PL_HOOK_TRAIN_EPOCH_END && fit->in_epoch,
               ends_run = point == PL_HOOK_FIT_END && fit->stopped
                          && (fit->stop_received || fit->in_epoch);
    pl_error_t err = {0};
    pl_run_hook_t msg = {.point = point,
                         .epoch = fit->epochs.completed,
                         .global_step = fit->global_step,
                         .total_steps = fit->total_steps,
                         .samples = fit->samples,
                         .extra = ends_epoch || ends_run,
                         .error = fit->failure.text};
    if (pl_hooks_run(fit, &fit->hooks, &msg, fit->metrics, (pl_how_t){.on_answer = then},
                     &err))
        return true;
    if (point != PL_HOOK_EXCEPTION)
        pl_fit_fail(fit, &err);
    return false;
}

static void fit_fail_again(pl_fit_t *fit)
{
    pl_fit_fail(fit, &fit->failure);
}

static void fit_failure_hooked(void *self, const pl_answer_t *answer)
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

/* Once all steps are made, a failure is reported together with their weights, unless the
 * strategy is stuck.  Callbacks are called before, once. */
void pl_fit_fail(pl_fit_t *fit, const pl_error_t *error)
{
    const bool all_made = fit->ended
                          || (fit->total_steps && fit->global_step >= fit->total_steps),
               calls_back = !fit->failure_hooked
                            && (fit->hooks.points & PL_AT(EXCEPTION));
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
    fit->failure_hooked |= calls_back;
    if (calls_back && fit_hook(fit, PL_HOOK_EXCEPTION, fit_failure_hooked))
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

void pl_fit_fail_late(pl_fit_t *fit, const char *what)
{
    pl_error_t err;
    pl_fail(&err, PL_ESTUCK,
            "reading %s after step %llu has not ended for %g s (trainer.step_timeout)",
            what, (unsigned long long)fit->global_step, fit->options->step_timeout);
    pl_fit_fail(fit, &err);
}

/* True unless the answer is a reply and the run is open.  An error ends the run. */
static bool fit_failed(pl_fit_t *fit, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        pl_fit_fail(fit, answer->error);
    return answer->kind != PL_ANSWER_REPLY || !fit->call;
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
    if (answer->kind == PL_ANSWER_LATE)
        pl_fit_fail_late(fit, "the weights");
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
    fit->outcome->stop_kind = fit->stop_kind;
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
    if (!pl_call_export_weights(fit, fit->strategy, &(pl_export_weights_t){0}, how, &err))
        pl_fit_fail(fit, &err);
}

/* An error of the callbacks does not keep the weights back. */
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

/* Only once: a failure may lead here before the call that led here first is answered. */
static void fit_save(pl_fit_t *fit)
{
    char newest[64] = "none";
    pl_error_t err = {0};
    const pl_how_t how = {.on_answer = callbacks_reported};
    if (fit->saving)
        return;
    fit->saving = true;
    if (fit->saved_step)
        snprintf(newest, sizeof newest, "step %llu", (unsigned long long)fit->saved_step);
    if (fit->unsaved)
        pl_log_line(PL_LOG_ERROR, pl_actor_rank(fit), pl_actor_name(fit),
                    "checkpoints that could not be saved: %llu; newest saved "
                    "checkpoint: %s",
                    (unsigned long long)fit->unsaved, newest);
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
        pl_fit_checkpoint_wait(fit, 0, fit_save);
}

/* ---- epochs ---- */

static void fit_epoch_start_hooked(void *self, const pl_answer_t *answer);
static void fit_train(pl_fit_t *fit, bool continues);

/* Carries out what a callback requests, at any hook.  A checkpoint is made at once
 * between two epochs; an epoch that was cut short is not complete. */
static void hook_request_apply(pl_fit_t *fit, const pl_run_hook_reply_t *request)
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
        fit->stop_kind = PL_STOP_KIND_END;
    }
    if (!fit->in_epoch)
        pl_checkpoint_requests_add(&fit->checkpoint_requests, request->save,
                                   request->drop, NULL);
}

/* A run that ends early can be resumed. */
static void request_stopped_checkpoint(pl_fit_t *fit)
{
    if (fit->options->enable_checkpointing)
        pl_fit_request_final_checkpoint(fit, PL_STOPPED_CHECKPOINT, "");
}

static bool fit_is_over(const pl_fit_t *fit)
{
    const pl_trainer_options_t *o = fit->options;
    return fit->ended
           || (o->max_epochs >= 0 && fit->epochs.completed >= (uint64_t)o->max_epochs)
           || (o->max_steps >= 0 && fit->global_step >= (uint64_t)o->max_steps);
}

static void fit_next(pl_fit_t *fit);

/* The data sets are opened again; then the strategy gets their batch sizes. */
static void data_reloaded(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR) {
        err = *answer->error;
        pl_error_prefix(&err, "reloading the data after %llu epoch%s",
                        (unsigned long long)fit->epochs.completed,
                        pl_plural((int64_t)fit->epochs.completed));
        pl_fit_fail(fit, &err);
    }
    if (answer->kind != PL_ANSWER_REPLY || !fit->call)
        return;
    if (answer->context) {                                  /* the strategy has them */
        fit_next(fit);
        return;
    }
    const pl_set_signature_t msg = {
        .signature = answer->body->reload_data_reply.signature};
    const pl_how_t how = {.on_answer = data_reloaded, .context = fit};
    if (!pl_call_set_signature(fit, fit->strategy, &msg, how, &err))
        pl_fit_fail(fit, &err);
}

/* The next epoch, or the end.  Data sets are reloaded between two epochs. */
static void fit_next(pl_fit_t *fit)
{
    const uint64_t every = (uint64_t)fit->options->reload_dataloaders_every_n_epochs,
                   epochs = fit->epochs.completed;
    const pl_how_t how = {.on_answer = data_reloaded};
    pl_error_t err = {0};
    if (fit->resumes) {
        fit_train(fit, false);
    } else if (fit_is_over(fit)) {
        pl_fit_commands_over(fit);
        fit_hook(fit, PL_HOOK_FIT_END, fit_end_hooked);
    } else if (every && epochs && epochs % every == 0 && fit->reloaded != epochs) {
        fit->reloaded = epochs;
        if (!pl_call_reload_data(fit, fit->data, &(pl_reload_data_t){0}, how, &err))
            pl_fit_fail(fit, &err);
    } else {
        fit->epochs.ready++;
        fit_hook(fit, PL_HOOK_TRAIN_EPOCH_START, fit_epoch_start_hooked);
    }
}

static void fit_epoch_end_hooked(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    fit->epochs.completed += fit->epoch_whole;
    hook_request_apply(fit, &answer->body->run_hook_reply);
    if (fit->epoch_whole && fit->stop_received)
        request_stopped_checkpoint(fit);
    fit->epoch_whole = false;
    pl_fit_checkpoint(fit, fit_next);
}

static void fit_hook_epoch_end(pl_fit_t *fit)
{
    fit_hook(fit, PL_HOOK_TRAIN_EPOCH_END, fit_epoch_end_hooked);
}

/* The checkpoint is saved as if the epoch continued: so a resumed run with more steps or
 * more time has the result of an uninterrupted one. */
static void fit_cut_hooked(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    const pl_run_hook_reply_t *request = &answer->body->run_hook_reply;
    pl_fit_request_final_checkpoint(fit, request->save, request->drop);
    if (!*fit->checkpoint_requests.save
        && !(fit->serial && fit->checkpointing.global_step == fit->global_step))
        request_stopped_checkpoint(fit);
    pl_fit_checkpoint(fit, fit_hook_epoch_end);
}

static void fit_epoch_continue(pl_fit_t *fit)
{
    fit_train(fit, true);
}

static void fit_epoch_done(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_PROGRESS) {
        const pl_train_epoch_progress_t *p = &answer->body->train_epoch_progress;
        const pl_run_progress_t report = {.event = p->event,
                                          .global_step = p->global_step,
                                          .total_steps = p->total_steps,
                                          .epoch = p->epoch,
                                          .batch = p->batch,
                                          .batches = p->batches,
                                          .metrics = p->metrics};
        fit->global_step = p->global_step;
        fit->total_steps = p->total_steps;
        if (p->event != PL_RUN_EVENT_TRAIN)                 /* which follows the clock */
            pl_metrics_merge(fit->metrics, p->metrics, NULL);
        if (fit->call)
            pl_progress_run(fit->call, &report);
    }
    if (fit_failed(fit, answer))
        return;
    const pl_train_epoch_reply_t *reply = &answer->body->train_epoch_reply;
    fit->global_step = reply->global_step;
    fit->samples = reply->samples;
    fit->last_skipped = reply->skipped;
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
                                                                     fit_epoch_continue);
        return;
    }
    fit->ended = reply->ended;
    fit->stopped = reply->reason[0] != '\0';
    fit->stop_requested |= fit->stopped && *reply->stop_request && !fit->stop_received;
    snprintf(fit->stop_request, sizeof fit->stop_request, "%s", reply->stop_request);
    fit->by_clock = false;
    snprintf(fit->reason, sizeof fit->reason, "%s", reply->reason);
    fit->stop_kind = reply->stop_kind;
    fit->epoch_whole = reply->whole;
    fit->epochs.processed += reply->whole;
    fit->in_epoch = !reply->whole;
    if (fit->in_epoch && !fit->stop_received) {
        fit_hook(fit, PL_HOOK_TRAIN_CUT, fit_cut_hooked);
        return;
    }
    if (fit->in_epoch)
        request_stopped_checkpoint(fit);
    pl_fit_checkpoint(fit, fit_hook_epoch_end);
}

/* Trains an epoch from its start, or from the batch of a checkpoint; or continues it
 * after a halt.  When max_time is over a little time is left, because the epoch loop ends
 * the run then. */
static void fit_train(pl_fit_t *fit, bool continues)
{
    pl_error_t err = {0};
    char *skipped_ranges = pl_json_to_text(json_incref(fit->skipped_ranges), &err);
    const int64_t left = fit->began + fit->max_time - fit->before - pl_now();
    pl_train_epoch_t msg = {.epoch = fit->epochs.completed,
                            .batch = fit->resumes ? fit->batch : 0,
                            .global_step = fit->global_step,
                            .lr_factor = fit->lr_factor,
                            .seconds = !fit->max_time ? 0
                                       : left < 1     ? 1e-9
                                                      : (double)left / 1e9,
                            .stop_request = fit->by_clock ? "" : fit->stop_request,
                            .accumulate = fit->accumulate,
                            .points = fit->hooks.points,
                            .halts = pl_intervals_bytes(&fit->halts),
                            .looks = pl_intervals_bytes(&fit->looks),
                            .skipped_ranges = skipped_ranges,
                            .stop = fit->commands.stop,
                            .stop_kind = fit->commands.stop_kind,
                            .continues = continues};
    if (!continues)
        fit->lr_factor = 1;
    if (!continues && !fit->resumes)
        fit->epochs.started++;
    fit->resumes = false;
    fit->in_epoch = true;
    const pl_how_t how = {.on_answer = fit_epoch_done};
    if (!skipped_ranges || !pl_call_train_epoch(fit, fit->epoch, &msg, how, &err))
        pl_fit_fail(fit, &err);
    pl_text_free(skipped_ranges);
}

static void fit_epoch_start_hooked(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    hook_request_apply(fit, &answer->body->run_hook_reply);
    if (!fit->ended) {
        fit_train(fit, false);
        return;
    }
    pl_fit_commands_over(fit);
    fit_hook(fit, PL_HOOK_FIT_END, fit_end_hooked);
}

/* ---- the beginning: hooks, and a sanity check that validates some batches ---- */

static void fit_tried(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    const bool was_cancelled = answer->kind == PL_ANSWER_ERROR
                               && (fit->stop_received
                                   || !pl_is_nobody(fit->hooks.coordinator))
                               && answer->error->code == PL_ECANCELLED;
    if (!was_cancelled && fit_failed(fit, answer))
        return;
    fit->sanity_check = 0;
    fit_next(fit);
}

static void fit_try(pl_fit_t *fit)
{
    const int64_t max = fit->options->num_sanity_val_steps;
    const uint32_t limit = max < 0 || max > UINT32_MAX ? 0 : (uint32_t)max;
    const pl_evaluate_t msg = {.stage = PL_VALIDATE, .max_batches = limit};
    pl_error_t err = {0};
    const bool continues = fit->resumes || fit->global_step > 0;
    if (!max || pl_is_nobody(fit->evaluate) || continues || fit_is_over(fit)) {
        fit_next(fit);
        return;
    }
    fit->sanity_check = pl_call_evaluate(fit, fit->evaluate, &msg,
                                         (pl_how_t){.on_answer = fit_tried}, &err);
    if (!fit->sanity_check)
        pl_fit_fail(fit, &err);
}

static void fit_started(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (fit_failed(fit, answer))
        return;
    pl_run_hook_reply_t request = answer->body->run_hook_reply;
    if (fit->serial) {                             /* the checkpoint has these requests */
        request.lr_factor = 1;
        request.freeze = request.unfreeze = "";
    }
    hook_request_apply(fit, &request);
    if (fit->options->nan_policy == PL_NAN_ROLLBACK && fit->serial == 0)
        pl_checkpoint_requests_add(&fit->checkpoint_requests, PL_START_CHECKPOINT, "",
                                   NULL);
    if (fit->rollbacks)
        pl_metric_put(fit->metrics, "rollbacks", (double)fit->rollbacks, NULL);
    pl_fit_checkpoint(fit, fit_try);
}

static void fit_hooks_known(void *self, const pl_answer_t *answer)
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
    if (!pl_hooks_query(fit, &fit->hooks, (pl_how_t){.on_answer = fit_hooks_known}, err))
        return err->code;
    fit->call = call;
    fit->began = pl_now();
    return PL_OK;
}

static int fit_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_fit_t *fit = self;
    /* with several ranks, train_epoch replies that all stop */
    fit->stop_received |= pl_is_nobody(fit->hooks.coordinator);
    pl_cancel(fit, fit->sanity_check);
    pl_fit_checkpoint_hurry(fit);
    return pl_fit_commands_stop(fit, &body->stop)
               ? pl_reply_stop(call, &(pl_stop_reply_t){0})
               : pl_forward(fit, call, fit->epoch, PL_MESSAGE_stop, body, err);
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
