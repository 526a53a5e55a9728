/* fit_checkpoint.c - how a checkpoint is made: collects the state of all components
 *
 * The loop requests it between two steps. The run waits for the copies of the states and
 * of the tensors (`steps`), but not until the loggers and the disk have written. The next
 * checkpoint may be copied while one is being written; the one after that waits, and the
 * run with it, until the first is durable: every requested checkpoint is made.
 *
 * A disk may block for ever. If it does nothing for trainer.step_timeout, the log says
 * so; a run that waits for it fails. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "actors/loops/fit.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"

enum { WRITTEN_MAX = 2 };                                   /* copies in memory */

static void disk_look(void *self);

/* ---- the end of one ---- */

static void checkpointing_clear(pl_checkpointing_t *checkpointing)
{
    pl_free(checkpointing->epoch);
    pl_free(checkpointing->evaluate);
    pl_free(checkpointing->progress);
    pl_free(checkpointing->callbacks);
    pl_free(checkpointing->loggers);
    pl_free(checkpointing->metrics);
    pl_object_unref(checkpointing->weights);
    checkpointing->epoch = checkpointing->evaluate = NULL;
    checkpointing->progress = checkpointing->callbacks = checkpointing->loggers =
        checkpointing->metrics = NULL;
    checkpointing->weights = NULL;
}

static bool is_waited_for(const pl_checkpointing_t *k)
{
    return k->after_final_weights
           || (k->after_saves && !k->making && k->writing > k->max_in_flight);
}

/* Calls after_saves() once at most max_in_flight saves are in flight. */
static void checkpoint_check(pl_fit_t *fit)
{
    pl_checkpointing_t *k = &fit->checkpointing;
    void (*done)(pl_fit_t *) = k->after_saves;
    if (is_waited_for(k) && k->late)
        disk_look(fit);
    if (!done || k->making || k->writing > k->max_in_flight)
        return;
    k->after_saves = NULL;
    if (fit->call)
        done(fit);
}

static void checkpoint_fail(void *self, const pl_error_t *error)
{
    pl_fit_t *fit = self;
    pl_sequence_end(&fit->checkpointing.sequence);
    if (fit->failure.code != PL_OK)                         /* which the run reports */
        pl_log_line(PL_LOG_ERROR, pl_actor_rank(fit), pl_actor_name(fit),
                    "no checkpoint of the failed run was saved: %s", error->text);
    fit->checkpointing.after_saves = NULL;
    fit->checkpointing.making = false;
    checkpointing_clear(&fit->checkpointing);
    pl_fit_fail(fit, error);
}

/* ---- the disk ---- */

/* The disk has done nothing for its time: a run that waits for it fails, or ends without
 * its final save; otherwise the log says so, once. */
static void disk_look(void *self)
{
    pl_fit_t *fit = self;
    pl_checkpointing_t *k = &fit->checkpointing;
    pl_error_t silent, err;
    if (!fit->call || (!k->writing && !k->after_final_weights)
        || !pl_watchdog_has_expired(&k->watchdog, fit, &silent,
                                    "the save after step %llu",
                                    (unsigned long long)k->save_step))
        return;
    pl_fail(&err, PL_ESTUCK, "%s: %s", silent.text,
            k->save_path ? k->save_path : "the path is not known yet");
    void (*after)(pl_fit_t *) = k->after_final_weights;
    if (!is_waited_for(k)) {
        if (!k->late)
            pl_log_line(PL_LOG_WARNING, pl_actor_rank(fit), pl_actor_name(fit), "%s",
                        err.text);
    } else if (after) {
        k->after_final_weights = NULL;
        if (fit->outcome->error.code == PL_OK)
            fit->outcome->error = err;
        after(fit);
    } else {
        checkpoint_fail(fit, &err);
    }
    k->late = true;
}

static void disk_moved(pl_fit_t *fit, const char *path, uint64_t step)
{
    pl_checkpointing_t *k = &fit->checkpointing;
    const double timeout = fit->options->step_timeout, stop = PL_STOP_SAVE_MS / 1e3;
    k->late = false;
    if (path) {
        pl_free(k->save_path);
        k->save_path = pl_strdup(path);
    }
    k->save_step = step;
    if (k->hurries && stop < timeout)
        pl_watchdog_begin_custom(&k->watchdog, fit, stop, "the limit after a stop",
                                 disk_look);
    else
        pl_watchdog_begin(&k->watchdog, fit, timeout, disk_look);
}

void pl_fit_checkpoint_hurry(pl_fit_t *fit)
{
    pl_checkpointing_t *k = &fit->checkpointing;
    const int64_t since = k->watchdog.since;
    if (k->hurries)
        return;
    k->hurries = true;
    if (!k->writing && !k->after_final_weights)
        return;
    const bool late = k->late;
    disk_moved(fit, NULL, k->save_step);
    k->late = late;
    k->watchdog.since = since;
    disk_look(fit);
}

void pl_fit_checkpoint_wait(pl_fit_t *fit, int max, void (*done)(pl_fit_t *fit))
{
    fit->checkpointing.after_saves = done;
    fit->checkpointing.max_in_flight = max;
    checkpoint_check(fit);
}

/* ---- the weights at the end ---- */

static void written(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_checkpointing_t *k = &fit->checkpointing;
    void (*after)(pl_fit_t *) = k->after_final_weights;
    if (answer->kind == PL_ANSWER_PROGRESS)
        disk_moved(fit, answer->body->save_progress.path, fit->global_step);
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    k->after_final_weights = NULL;
    if (!fit->call || !after)
        return;
    if (answer->kind == PL_ANSWER_ERROR && fit->outcome->error.code == PL_OK)
        fit->outcome->error = *answer->error;             /* the result has the weights */
    after(fit);
}

void pl_fit_write(pl_fit_t *fit, void (*done)(pl_fit_t *fit))
{
    pl_error_t err = {0};
    const pl_save_t msg = {.weights = &fit->outcome->weights->object,
                           .global_step = fit->global_step};
    const pl_how_t how = {.on_answer = written};
    if (!pl_call_save(fit, fit->checkpoint, &msg, how, &err)) {
        pl_fit_fail(fit, &err);
        return;
    }
    fit->checkpointing.after_final_weights = done;
    disk_moved(fit, NULL, fit->global_step);
}

/* ---- saving: the checkpoint connector writes, the run continues ---- */

static void saved(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (answer->kind == PL_ANSWER_PROGRESS)
        disk_moved(fit, answer->body->save_checkpoint_progress.path,
                   answer->body->save_checkpoint_progress.global_step);
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    const bool safe = answer->kind == PL_ANSWER_REPLY
                      && answer->body->save_checkpoint_reply.saved;
    if (safe)
        fit->saved_step = answer->body->save_checkpoint_reply.global_step;
    fit->unsaved += !safe;
    fit->checkpointing.writing--;
    pl_fit_commands_saved(fit, (uint64_t)(uintptr_t)answer->context, safe);
    checkpoint_check(fit);
}

static void checkpoint_save(void *self)
{
    pl_fit_t *fit = self;
    pl_checkpointing_t *k = &fit->checkpointing;
    pl_error_t err = {0};
    const pl_save_checkpoint_t msg = {.weights = &k->weights->object,
                                      .epoch = k->epochs,
                                      .global_step = k->global_step,
                                      .serial = fit->serial,
                                      .aside = k->aside,
                                      .names = k->checkpoint_requests.save,
                                      .drop = k->checkpoint_requests.drop,
                                      .metrics = k->metrics,
                                      .progress = k->progress,
                                      .callbacks = k->callbacks,
                                      .loggers = k->loggers ? k->loggers : ""};
    const pl_how_t how = {.on_answer = saved, .context = (void *)(uintptr_t)fit->serial};
    uint64_t call = pl_call_save_checkpoint(fit, fit->checkpoint, &msg, how, &err);
    if (call && !k->writing)
        disk_moved(fit, NULL, k->global_step);
    checkpointing_clear(k);
    k->making = false;
    k->writing += call != 0;
    if (!call)
        checkpoint_fail(fit, &err);
    checkpoint_check(fit);
}

/* ---- the steps: the state of each component ---- */

/* A component with a state: its address in the loop, and where its text goes in the
 * checkpoint. */
typedef struct state_source {
    size_t at, into;
} state_source_t;

static uint64_t state_ask(void *self, pl_how_t how, pl_error_t *err)
{
    const pl_fit_t *fit = self;
    const state_source_t *source = fit->checkpointing.sequence.step->argument;
    const pl_address_t at = *(const pl_address_t *)((const char *)fit + source->at);
    return pl_is_nobody(at) ? 0
                            : pl_call_get_state(self, at, &(pl_get_state_t){0}, how, err);
}

static int state_keep(void *self, const pl_body_t *reply, pl_error_t *err)
{
    pl_checkpointing_t *k = &((pl_fit_t *)self)->checkpointing;
    const state_source_t *source = k->sequence.step->argument;
    char *text = pl_strdup(reply->get_state_reply.state);
    *(char **)((char *)k + source->into) = text;
    return text ? PL_OK : pl_no_memory(err);
}

/* The loops' own state is complete: the fit loop adds its part. */
static uint64_t progress_make(void *self, pl_how_t how, pl_error_t *err)
{
    (void)how;
    pl_fit_t *fit = self;
    pl_checkpointing_t *k = &fit->checkpointing;
    json_t *epoch = k->epoch ? json_loads(k->epoch, 0, NULL) : NULL;
    /* After its last batch an epoch is done, also while its validation is at work. */
    k->epochs += fit->in_epoch && json_is_true(json_object_get(epoch, "whole"));
    json_decref(epoch);
    k->progress = pl_fit_state(fit, k, err);
    k->metrics = pl_metrics_text(fit->metrics, err);
    return 0;
}

static uint64_t weights_export(void *self, pl_how_t how, pl_error_t *err)
{
    const pl_fit_t *fit = self;
    how.silence_ms = pl_milliseconds(fit->options->step_timeout);
    return pl_call_export_weights(self, fit->strategy,
                                  &(pl_export_weights_t){.whole = true}, how, err);
}

static int weights_keep(void *self, const pl_body_t *reply, pl_error_t *err)
{
    (void)err;
    pl_fit_t *fit = self;
    pl_checkpointing_t *k = &fit->checkpointing;
    k->weights = pl_object_ref(reply->export_weights_reply.weights);
    k->weights->epoch = k->epochs;
    pl_fit_log_weights(fit, k->weights);
    return PL_OK;
}

/* Everything is copied: the run continues while the loggers write. */
static uint64_t loggers_ask(void *self, pl_how_t how, pl_error_t *err)
{
    (void)err;                                    /* the checkpoint is saved without it */
    pl_fit_t *fit = self;
    void (*then)(pl_fit_t *) = fit->checkpointing.after_copies;
    const uint64_t call = pl_call_get_state(fit, fit->hooks.logger, &(pl_get_state_t){0},
                                            how, NULL);
    if (fit->call)
        then(fit);
    return call;
}

static int loggers_keep(void *self, const pl_body_t *reply, pl_error_t *err)
{
    (void)err;
    ((pl_fit_t *)self)->checkpointing.loggers = pl_strdup(reply->get_state_reply.state);
    return PL_OK;
}

/* Without their positions a resumed run logs some steps twice. */
static bool loggers_failed(void *self, pl_error_t *error)
{
    (void)self, (void)error;
    return true;
}

static void export_is_late(void *self)
{
    pl_fit_fail_late(self, "the state");
}

static const pl_sequence_step_t steps[] = {
    {NULL, state_ask, state_keep,
     .argument = &(state_source_t){offsetof(pl_fit_t, epoch),
                                   offsetof(pl_checkpointing_t, epoch)}},
    {NULL, state_ask, state_keep,
     .argument = &(state_source_t){offsetof(pl_fit_t, evaluate),
                                   offsetof(pl_checkpointing_t, evaluate)}},
    {NULL, progress_make},
    {NULL, state_ask, state_keep,
     .argument = &(state_source_t){offsetof(pl_fit_t, hooks.callback),
                                   offsetof(pl_checkpointing_t, callbacks)}},
    {NULL, weights_export, weights_keep},
    {NULL, loggers_ask, loggers_keep, .on_error = loggers_failed},
    {0},
};

/* ---- making one ---- */

/* It replaces the temporary checkpoints before it, except if it is made aside, because
 * the run may have to return to those. */
static void checkpoint_begin(pl_fit_t *fit)
{
    static const char *const names[] = {PL_STOPPED_CHECKPOINT, PL_START_CHECKPOINT};
    static const pl_sequence_ops_t ops = {.steps = steps,
                                          .on_late = export_is_late,
                                          .done = checkpoint_save,
                                          .fail = checkpoint_fail};
    pl_checkpointing_t *k = &fit->checkpointing;
    pl_checkpoint_requests_t passing = {0};
    k->making = true;
    k->checkpoint_requests = fit->checkpoint_requests;
    k->aside = fit->aside;
    k->global_step = fit->global_step;
    k->epochs = fit->epochs.completed;
    if (k->aside
        || pl_checkpoint_requests_add(&k->checkpoint_requests, "",
                                      fit->temporary_checkpoints, NULL)
               != PL_OK)
        pl_checkpoint_requests_add(&passing, fit->temporary_checkpoints, "", NULL);
    for (int i = 0; i < 2; i++)
        if (pl_checkpoint_requests_has(k->checkpoint_requests.save, names[i],
                                       strlen(names[i])))
            pl_checkpoint_requests_add(&passing, names[i], "", NULL);
    snprintf(fit->temporary_checkpoints, sizeof fit->temporary_checkpoints, "%.31s",
             passing.save);
    if (!k->aside)
        pl_fit_rollback_point(fit);
    fit->checkpoint_requests = (pl_checkpoint_requests_t){0};
    fit->aside = false;
    fit->serial++;
    pl_sequence_begin(&k->sequence, fit, &ops);
}

/* ---- for the loop ---- */

void pl_fit_request_final_checkpoint(pl_fit_t *fit, const char *save, const char *drop)
{
    fit->aside |= *save && !*fit->checkpoint_requests.save;
    pl_checkpoint_requests_add(&fit->checkpoint_requests, save, drop, NULL);
}

void pl_fit_log_weights(pl_fit_t *fit, pl_weights_t *weights)
{
    const pl_log_weights_t msg = {.epoch = fit->epochs.completed,
                                  .global_step = fit->global_step,
                                  .weights = &weights->object};
    if (pl_is_nobody(fit->hooks.logger) || fit->shown_step == fit->global_step)
        return;
    if (pl_call_log_weights(fit, fit->hooks.logger, &msg, (pl_how_t){0}, NULL))
        fit->shown_step = fit->global_step;
}

static void checkpoint_continue(pl_fit_t *fit, void (*then)(pl_fit_t *fit))
{
    if (!fit->saves || !fit->options->enable_checkpointing
        || !*fit->checkpoint_requests.save) {
        fit->checkpoint_requests = (pl_checkpoint_requests_t){0};
        fit->aside = false;
        then(fit);
        return;
    }
    fit->checkpointing.after_copies = then;
    pl_fit_checkpoint_wait(fit, WRITTEN_MAX - 1, checkpoint_begin);
}

/* ---- ranks that each have a part of the state ---- */

/* Only rank 0 knows whether it saves.  If it does, it sends all ranks the message by
 * which they gather the state. */
static void checkpoint_coordinated(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    const pl_how_t how = {.on_answer = checkpoint_coordinated, .context = fit};
    pl_body_t body;
    const bool is_gathered = answer->context != NULL;
    if (answer->kind == PL_ANSWER_ERROR)
        checkpoint_fail(fit, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !fit->call)
        return;
    if (is_gathered || !answer->body->decide_reply.messages.size)
        checkpoint_continue(fit, fit->checkpointing.after_copies);
    else if (pl_loop_decided(&answer->body->decide_reply, PL_MESSAGE_synchronize, false,
                             &body, &err)
                 != PL_OK
             || !pl_call_synchronize(fit, fit->strategy, &body.synchronize, how, &err))
        checkpoint_fail(fit, &err);
}

/* After a failure the ranks decide nothing together. */
void pl_fit_checkpoint(pl_fit_t *fit, void (*then)(pl_fit_t *fit))
{
    pl_error_t err = {0};
    const bool saves = fit->saves && *fit->checkpoint_requests.save;
    const pl_synchronize_t gather = {.whole = true};
    const pl_decision_t decision = {.message = PL_MESSAGE_synchronize,
                                    .fields = saves ? &gather : NULL};
    const pl_how_t how = {.on_answer = checkpoint_coordinated};
    if (pl_is_nobody(fit->hooks.coordinator) || fit->failure.code != PL_OK
        || !fit->options->enable_checkpointing) {
        checkpoint_continue(fit, then);
        return;
    }
    fit->checkpointing.after_copies = then;
    if (!pl_loop_decide(fit, fit->hooks.coordinator, &decision, how, &err))
        checkpoint_fail(fit, &err);
}

/* A strategy that cannot prepare exports without it. */
void pl_fit_checkpoint_prepare(const pl_fit_t *fit)
{
    if (fit->saves && fit->options->enable_checkpointing)
        pl_call_prepare_export((void *)fit, fit->strategy, &(pl_prepare_export_t){0},
                               (pl_how_t){.on_answer = pl_loop_ignore}, NULL);
}

void pl_fit_checkpoint_release(pl_fit_t *fit)
{
    checkpointing_clear(&fit->checkpointing);
    pl_free(fit->checkpointing.save_path);
}
