/* fit_keep.c - how a checkpoint is made: each part is asked for what it keeps
 *
 * It is asked between two steps, and the run waits for the copy of the tensors, no
 * longer.  That the loggers have written all up to here is waited for while it goes on,
 * for as long as they say, and so is the disk.  The next may be copied while one is being
 * written; the one after that waits until the first is durable, and the run with it: all
 * that were wished for are made.
 *
 * A disk may block for ever.  If it does nothing for trainer.step_timeout, the log says
 * so; a run that waits for it fails. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/figures.h"
#include "actors/loops/fit_parts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/deaths.h"

enum { WRITTEN_MOST = 2 };                                  /* copies in memory */

static void keep_begin(pl_fit_t *fit);
static void disk_look(void *self);

/* ---- the end of one ---- */

static void keeping_clear(pl_keeping_t *keeping)
{
    pl_free(keeping->epoch);
    pl_free(keeping->evaluate);
    pl_free(keeping->progress);
    pl_free(keeping->callbacks);
    pl_free(keeping->loggers);
    pl_free(keeping->metrics);
    pl_object_unref(keeping->weights);
    keeping->epoch = keeping->evaluate = NULL;
    keeping->progress = keeping->callbacks = keeping->loggers = keeping->metrics = NULL;
    keeping->weights = NULL;
}

static bool is_waited_for(const pl_keeping_t *k)
{
    return k->replies || (k->done && !k->making && k->writing > k->most);
}

/* Who waits goes on, once no more than it said are on their way. */
static void keep_look(pl_fit_t *fit)
{
    pl_keeping_t *k = &fit->keeping;
    void (*done)(pl_fit_t *) = k->done;
    if (is_waited_for(k) && k->late)
        disk_look(fit);
    if (!done || k->making || k->writing > k->most)
        return;
    k->done = NULL;
    if (fit->call)
        done(fit);
}

static void keep_fail(pl_fit_t *fit, const pl_error_t *error)
{
    if (fit->failure.code != PL_OK)                         /* which is what is told */
        pl_log_line(PL_LOG_ERROR, pl_actor_rank(fit), pl_actor_name(fit),
                    "no checkpoint of the failed run was saved: %s", error->text);
    fit->keeping.done = NULL;
    fit->keeping.making = false;
    keeping_clear(&fit->keeping);
    pl_fit_fail(fit, error);
}

/* True unless it is a reply. */
static bool keep_failed(pl_fit_t *fit, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_ERROR)
        keep_fail(fit, answer->error);
    return answer->kind != PL_ANSWER_REPLY;
}

/* What a part keeps; false: there is none yet, or the run has failed. */
static bool keep_take(pl_fit_t *fit, const pl_answer_t *answer, char **text_p)
{
    pl_error_t err = {0};
    if (keep_failed(fit, answer))
        return false;
    *text_p = pl_strdup(answer->body->get_state_reply.state);
    if (!*text_p) {
        pl_no_memory(&err);
        keep_fail(fit, &err);
    }
    return *text_p != NULL;
}

static void keep_sent(pl_fit_t *fit, uint64_t call, const pl_error_t *err)
{
    if (!call)
        keep_fail(fit, err);
}

/* ---- the disk ---- */

static void stuck(pl_fit_t *fit, const pl_error_t *error)
{
    pl_keeping_t *k = &fit->keeping;
    void (*replies)(pl_fit_t *) = k->replies;
    k->replies = NULL;
    if (!replies) {
        keep_fail(fit, error);
        return;
    }
    if (fit->outcome->error.code == PL_OK)
        fit->outcome->error = *error;
    replies(fit);
}

static void disk_look(void *self)
{
    pl_fit_t *fit = self;
    pl_keeping_t *k = &fit->keeping;
    pl_error_t silent, err;
    if (!fit->call || (!k->writing && !k->replies)
        || !pl_patience_is_over(&k->patience, fit, &silent, "the save after step %llu",
                                (unsigned long long)k->save_step))
        return;
    pl_fail(&err, PL_ESTUCK, "%s: %s", silent.text,
            k->save_path ? k->save_path : "the path is not known yet");
    if (is_waited_for(k))
        stuck(fit, &err);
    else if (!k->late)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(fit), pl_actor_name(fit), "%s",
                    err.text);
    k->late = true;
}

static void disk_moved(pl_fit_t *fit, const char *path, uint64_t step)
{
    pl_keeping_t *k = &fit->keeping;
    const double timeout = fit->options->step_timeout, stop = PL_STOP_SAVE_MS / 1e3;
    k->late = false;
    if (path) {
        pl_free(k->save_path);
        k->save_path = pl_strdup(path);
    }
    k->save_step = step;
    if (k->hurries && stop < timeout)
        pl_patience_begin_other(&k->patience, fit, stop, "the limit after a stop",
                                disk_look);
    else
        pl_patience_begin(&k->patience, fit, timeout, disk_look);
}

void pl_fit_keep_hurry(pl_fit_t *fit)
{
    pl_keeping_t *k = &fit->keeping;
    const int64_t since = k->patience.since;
    if (k->hurries)
        return;
    k->hurries = true;
    if (!k->writing && !k->replies)
        return;
    const bool late = k->late;
    disk_moved(fit, NULL, k->save_step);
    k->late = late;
    k->patience.since = since;
    disk_look(fit);
}

static void keep_wait(pl_fit_t *fit, int most, void (*done)(pl_fit_t *fit))
{
    fit->keeping.done = done;
    fit->keeping.most = most;
    keep_look(fit);
}

/* ---- the weights at the end ---- */

static void written(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_keeping_t *k = &fit->keeping;
    void (*replies)(pl_fit_t *) = k->replies;
    if (answer->kind == PL_ANSWER_PROGRESS)
        disk_moved(fit, answer->body->save_progress.path, fit->global_step);
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    k->replies = NULL;
    if (!fit->call || !replies)
        return;
    if (answer->kind == PL_ANSWER_ERROR && fit->outcome->error.code == PL_OK)
        fit->outcome->error = *answer->error;     /* the weights are in the result all the
                                                     same */
    replies(fit);
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
    fit->keeping.replies = done;
    disk_moved(fit, NULL, fit->global_step);
}

/* ---- handing it on ---- */

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
    fit->keeping.writing--;
    pl_fit_commands_saved(fit, (uint64_t)(uintptr_t)answer->context, safe);
    keep_look(fit);
}

static void hand_on(pl_fit_t *fit)
{
    pl_keeping_t *k = &fit->keeping;
    pl_error_t err = {0};
    const pl_save_checkpoint_t msg = {.weights = &k->weights->object,
                                      .epoch = k->epochs,
                                      .global_step = k->global_step,
                                      .serial = fit->serial,
                                      .aside = k->aside,
                                      .names = k->wanted.save,
                                      .drop = k->wanted.drop,
                                      .metrics = k->metrics,
                                      .progress = k->progress,
                                      .callbacks = k->callbacks,
                                      .loggers = k->loggers ? k->loggers : ""};
    const pl_how_t how = {.on_answer = saved, .context = (void *)(uintptr_t)fit->serial};
    uint64_t call = pl_call_save_checkpoint(fit, fit->checkpoint, &msg, how, &err);
    if (call && !k->writing)
        disk_moved(fit, NULL, k->global_step);
    keeping_clear(k);
    k->making = false;
    k->writing += call != 0;
    keep_sent(fit, call, &err);
    keep_look(fit);
}

/* Without their answer a run that goes on from there logs more than once. */
static void loggers_told(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (answer->kind == PL_ANSWER_PROGRESS || !fit->keeping.weights)
        return;
    if (answer->kind == PL_ANSWER_REPLY)
        fit->keeping.loggers = pl_strdup(answer->body->get_state_reply.state);
    hand_on(fit);
}

/* ---- asking the parts ---- */

/* All is copied: from here on the run goes on meanwhile. */
static void ask_loggers(pl_fit_t *fit)
{
    pl_error_t err = {0};
    void (*then)(pl_fit_t *) = fit->keeping.then;
    const pl_how_t how = {.on_answer = loggers_told};
    uint64_t call = pl_call_get_state(fit, fit->asking.logger, &(pl_get_state_t){0}, how,
                                      &err);
    if (!call)
        hand_on(fit);
    if (fit->call)
        then(fit);
}

static void exported(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_LATE) {
        pl_fail(&err, PL_ESTUCK,
                "reading the state after step %llu has not ended for %g s "
                "(trainer.step_timeout)",
                (unsigned long long)fit->global_step, fit->options->step_timeout);
        pl_fit_fail(fit, &err);
    }
    if (keep_failed(fit, answer))
        return;
    fit->keeping.weights = pl_object_ref(answer->body->export_weights_reply.weights);
    fit->keeping.weights->epoch = fit->keeping.epochs;
    pl_fit_log_weights(fit, fit->keeping.weights);
    ask_loggers(fit);
}

static void callbacks_told(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    pl_how_t how = {.on_answer = exported,
                    .silence_ms = pl_milliseconds(fit->options->step_timeout)};
    if (keep_take(fit, answer, &fit->keeping.callbacks))
        keep_sent(fit,
                  pl_call_export_weights(fit, fit->strategy,
                                         &(pl_export_weights_t){.whole = true}, how,
                                         &err),
                  &err);
}

static void loops_told(pl_fit_t *fit)
{
    pl_error_t err = {0};
    pl_how_t how = {.on_answer = callbacks_told};
    pl_keeping_t *k = &fit->keeping;
    k->progress = pl_fit_state(fit, k, &err);
    k->metrics = pl_metrics_text(fit->metrics, &err);
    if (!k->progress || !k->metrics) {
        keep_fail(fit, &err);
        return;
    }
    keep_sent(fit,
              pl_call_get_state(fit, fit->asking.callback, &(pl_get_state_t){0}, how,
                                &err),
              &err);
}

static void evaluate_told(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (keep_take(fit, answer, &fit->keeping.evaluate))
        loops_told(fit);
}

static void epoch_told(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    pl_how_t how = {.on_answer = evaluate_told};
    if (!keep_take(fit, answer, &fit->keeping.epoch))
        return;
    if (pl_is_nobody(fit->evaluate))
        loops_told(fit);
    else
        keep_sent(fit,
                  pl_call_get_state(fit, fit->evaluate, &(pl_get_state_t){0}, how, &err),
                  &err);
}

/* What goes with it, and what goes with the next; one that was made aside takes nothing
 * along that the run might have to go back to. */
static void passing_assign(pl_fit_t *fit, pl_keeping_t *k)
{
    static const char *const names[] = {PL_STOPPED_CHECKPOINT, PL_START_CHECKPOINT};
    pl_wanted_t passing = {0};
    if (k->aside || pl_wanted_add(&k->wanted, "", fit->passing, NULL) != PL_OK)
        pl_wanted_add(&passing, fit->passing, "", NULL);
    for (int i = 0; i < 2; i++)
        if (pl_wanted_has(k->wanted.save, names[i]))
            pl_wanted_add(&passing, names[i], "", NULL);
    snprintf(fit->passing, sizeof fit->passing, "%.31s", passing.save);
}

static void keep_begin(pl_fit_t *fit)
{
    pl_keeping_t *k = &fit->keeping;
    pl_error_t err = {0};
    pl_how_t how = {.on_answer = epoch_told};
    k->making = true;
    k->wanted = fit->wanted;
    k->aside = fit->aside;
    k->global_step = fit->global_step;
    k->epochs = fit->epochs.completed;
    passing_assign(fit, k);
    if (!k->aside)
        pl_fit_back_begins_here(fit);
    fit->wanted = (pl_wanted_t){0};
    fit->aside = false;
    fit->serial++;
    keep_sent(fit, pl_call_get_state(fit, fit->epoch, &(pl_get_state_t){0}, how, &err),
              &err);
}

/* ---- for the loop ---- */

void pl_fit_want_aside(pl_fit_t *fit, const char *save, const char *drop)
{
    fit->aside |= *save && !*fit->wanted.save;
    pl_wanted_add(&fit->wanted, save, drop, NULL);
}

void pl_fit_log_weights(pl_fit_t *fit, pl_weights_t *weights)
{
    const pl_log_weights_t msg = {.epoch = fit->epochs.completed,
                                  .global_step = fit->global_step,
                                  .weights = &weights->object};
    if (pl_is_nobody(fit->asking.logger) || fit->shown_step == fit->global_step)
        return;
    if (pl_call_log_weights(fit, fit->asking.logger, &msg, (pl_how_t){0}, NULL))
        fit->shown_step = fit->global_step;
}

static void keep_go_on(pl_fit_t *fit, void (*then)(pl_fit_t *fit))
{
    if (!fit->saves || !fit->options->enable_checkpointing || !*fit->wanted.save) {
        fit->wanted = (pl_wanted_t){0};
        fit->aside = false;
        then(fit);
        return;
    }
    fit->keeping.then = then;
    keep_wait(fit, WRITTEN_MOST - 1, keep_begin);
}

/* ---- ranks of which each has a part of what is kept ---- */

static void keep_settled(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (!keep_failed(fit, answer) && fit->call)
        keep_go_on(fit, fit->keeping.then);
}

/* Rank zero alone knows whether it saves. */
static void keep_agreed(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    const pl_how_t how = {.on_answer = keep_settled};
    if (keep_failed(fit, answer) || !fit->call)
        return;
    if (*answer->body->decide_reply.text)
        keep_sent(fit,
                  pl_call_synchronize(fit, fit->strategy,
                                      &(pl_synchronize_t){.whole = true}, how, &err),
                  &err);
    else
        keep_go_on(fit, fit->keeping.then);
}

/* After a failure ranks meet no more. */
void pl_fit_keep(pl_fit_t *fit, void (*then)(pl_fit_t *fit))
{
    pl_error_t err = {0};
    const bool saves = fit->saves && *fit->wanted.save;
    const pl_decide_t msg = {.text = saves ? "save" : ""};
    const pl_how_t how = {.on_answer = keep_agreed};
    if (pl_is_nobody(fit->asking.agreement) || fit->failure.code != PL_OK
        || !fit->options->enable_checkpointing) {
        keep_go_on(fit, then);
        return;
    }
    fit->keeping.then = then;
    keep_sent(fit, pl_call_decide(fit, fit->asking.agreement, &msg, how, &err), &err);
}

bool pl_fit_is_extra(const pl_fit_t *fit, unsigned point)
{
    return (point == PL_HOOK_TRAIN_EPOCH_END && fit->in_epoch)
           || (point == PL_HOOK_FIT_END && fit->stopped
               && (fit->told_to_stop || fit->in_epoch));
}

void pl_fit_say_unsaved(pl_fit_t *fit)
{
    char newest[64] = "none";
    if (fit->saved_step)
        snprintf(newest, sizeof newest, "step %llu", (unsigned long long)fit->saved_step);
    if (fit->unsaved)
        pl_log_line(PL_LOG_ERROR, pl_actor_rank(fit), pl_actor_name(fit),
                    "checkpoints that could not be saved: %llu; newest saved "
                    "checkpoint: %s",
                    (unsigned long long)fit->unsaved, newest);
}

void pl_fit_kept(pl_fit_t *fit, void (*done)(pl_fit_t *fit))
{
    keep_wait(fit, 0, done);
}

/* A strategy that cannot does without. */
static void prepared(void *self, const pl_answer_t *answer)
{
    (void)self, (void)answer;
}

void pl_fit_keep_prepare(const pl_fit_t *fit)
{
    if (fit->saves && fit->options->enable_checkpointing)
        pl_call_prepare_export((void *)fit, fit->strategy, &(pl_prepare_export_t){0},
                               (pl_how_t){.on_answer = prepared}, NULL);
}

void pl_fit_keep_release(pl_fit_t *fit)
{
    keeping_clear(&fit->keeping);
    pl_free(fit->keeping.save_path);
}
