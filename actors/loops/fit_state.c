/* fit_state.c - what a checkpoint keeps of the fit loop, and how a run returns to one
 *
 * With nan_policy "rollback" the run returns to its newest checkpoint after a step that
 * was not finite.  The fit loop only decides this and collects what the resumed run has
 * to know; the trainer then resumes the run like any other.  With several ranks the one
 * that saves decides and informs the others; if it does not return, it fails, and they
 * end with it.
 *
 * Checkpoints made only because a run ended do not count, so a stopped and resumed run
 * has the result of an uninterrupted one.  The steps that led to the failure are counted
 * but not made when the run comes to them again.  At first that is the step that failed.
 * If the next one fails too, its weights were bad before, and as many earlier steps are
 * skipped as well. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/fit.h"
#include "actors/loops/metrics.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_path.h"
#include "base/json_text.h"
#include "base/log.h"

/* ---- saving ---- */

/* The state of a loop below; a loop that does not exist has none. */
static json_t *inner_read(const char *text, pl_error_t *err)
{
    return text ? pl_json_read(text, strlen(text), "a loop's state", err) : json_null();
}

char *pl_fit_state(const pl_fit_t *fit, const pl_checkpointing_t *checkpointing,
                   pl_error_t *err)
{
    static const char form[] = "{s:{s:o}, s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:s, s:s, "
                               "s:I, s:O, s:o, s:o, s:I, s:I, s:O}";
    const json_int_t trained = (json_int_t)(fit->before + pl_now() - fit->began);
    json_t *epoch = inner_read(checkpointing->epoch, err),
           *evaluate = epoch ? inner_read(checkpointing->evaluate, err) : NULL;
    if (!evaluate) {
        json_decref(epoch);
        return NULL;
    }
    return pl_json_to_text(
        json_pack(form, "counts", "epochs", pl_tracker_save(&fit->epochs), "global_step",
                  (json_int_t)fit->global_step, "samples", (json_int_t)fit->samples,
                  "serial", (json_int_t)fit->serial, "accumulate",
                  (json_int_t)fit->accumulate, "lr_factor", fit->lr_factor, "in_epoch",
                  fit->in_epoch, "stop", fit->stop_requested, "passing",
                  fit->temporary_checkpoints, "stop_request",
                  fit->by_clock ? "" : fit->stop_request, "nanoseconds", trained,
                  "metrics", fit->metrics, "epoch", epoch, "validate", evaluate,
                  "rollbacks", (json_int_t)fit->rollbacks, "in_row",
                  (json_int_t)fit->in_row, "pass_over", fit->skipped_ranges),
        err);
}

/* ---- restoring: this loop, then those below, one after the other ---- */

static int state_take(pl_fit_t *fit, const json_t *kept, pl_error_t *err)
{
    const json_t *epoch = json_object_get(kept, "epoch");
    json_t *metrics = json_object_get(kept, "metrics"),
           *ranges = json_object_get(kept, "pass_over");
    pl_tracker_load(&fit->epochs,
                    json_object_get(json_object_get(kept, "counts"), "epochs"));
    fit->global_step = (uint64_t)pl_json_integer_of(kept, "global_step");
    fit->checkpointing.global_step = fit->saved_step = fit->global_step;
    fit->resumed_step = fit->global_step;
    fit->samples = (uint64_t)pl_json_integer_of(kept, "samples");
    fit->serial = (uint64_t)pl_json_integer_of(kept, "serial");
    fit->accumulate = (uint64_t)pl_json_integer_of(kept, "accumulate");
    fit->lr_factor = json_number_value(json_object_get(kept, "lr_factor"));
    fit->in_epoch = fit->resumes = json_is_true(json_object_get(kept, "in_epoch"));
    fit->epochs.ready += fit->in_epoch;
    fit->epochs.started += fit->in_epoch;
    fit->batch = (uint32_t)pl_json_integer_of(epoch, "batch");
    fit->last_skipped = pl_json_integer_of(epoch, "in_row") > 0;
    fit->ended = fit->stopped = fit->stop_requested =
        json_is_true(json_object_get(kept, "stop"));
    fit->before = pl_json_integer_of(kept, "nanoseconds");
    const char *passing = json_string_value(json_object_get(kept, "passing"));
    snprintf(fit->stop_request, sizeof fit->stop_request, "%s",
             pl_json_text_of(kept, "stop_request"));
    snprintf(fit->reason, sizeof fit->reason, "%s", fit->stop_request);
    snprintf(fit->temporary_checkpoints, sizeof fit->temporary_checkpoints, "%s",
             passing ? passing : "");
    fit->rollbacks = (uint64_t)pl_json_integer_of(kept, "rollbacks");
    fit->in_row = (uint64_t)pl_json_integer_of(kept, "in_row");
    json_array_clear(fit->skipped_ranges);
    if ((ranges && json_array_extend(fit->skipped_ranges, ranges))
        || (metrics && json_object_update(fit->metrics, metrics)))
        return pl_no_memory(err);
    return PL_OK;
}

/* The context is the call to answer.  The epoch loop has its state; next is the evaluate
 * loop, if both exist. */
static void loop_restored(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    char *state = fit->checkpointing.evaluate;
    pl_error_t err = {0};
    fit->checkpointing.evaluate = NULL;
    if (answer->kind == PL_ANSWER_REPLY && state && !pl_is_nobody(fit->evaluate)) {
        const pl_set_state_t msg = {.state = state};
        const pl_how_t how = {.on_answer = loop_restored, .context = answer->context};
        if (!pl_call_set_state(fit, fit->evaluate, &msg, how, &err))
            pl_call_fail(answer->context, &err);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        pl_reply_set_state(answer->context, &(pl_set_state_reply_t){0});
    } else if (answer->kind == PL_ANSWER_ERROR) {
        pl_call_fail(answer->context, answer->error);
    }
    pl_text_free(state);
}

/* A loop that did not exist has no state. */
static int inner_take(const json_t *kept, const char *loop, char **text_p,
                      pl_error_t *err)
{
    const json_t *state = json_object_get(kept, loop);
    *text_p = json_is_object(state) ? pl_json_write(state, PL_JSON_COMPACT) : NULL;
    return json_is_object(state) && !*text_p ? pl_no_memory(err) : PL_OK;
}

int pl_fit_set_state(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_fit_t *fit = self;
    const char *text = body->set_state.state;
    const pl_how_t how = {.on_answer = loop_restored, .context = call};
    char *epoch = NULL;
    json_t *kept = pl_json_read(text, strlen(text), "the loops' state", err);
    int code = kept ? state_take(fit, kept, err) : err->code;
    if (code == PL_OK)
        code = inner_take(kept, "epoch", &epoch, err);
    if (code == PL_OK)
        code = inner_take(kept, "validate", &fit->checkpointing.evaluate, err);
    json_decref(kept);
    if (code == PL_OK && !epoch)
        code = pl_fail(err, PL_EFORMAT,
                       "the state of the loops has no state of the epoch loop");
    if (code == PL_OK
        && !pl_call_set_state(fit, fit->epoch, &(pl_set_state_t){.state = epoch}, how,
                              err))
        code = err->code;
    pl_text_free(epoch);
    return code;
}

void pl_fit_reason(const pl_fit_t *fit, char *reason, size_t size)
{
    const pl_trainer_options_t *o = fit->options;
    const bool by_epochs = o->max_epochs >= 0
                           && fit->epochs.completed >= (uint64_t)o->max_epochs,
               by_steps = o->max_steps >= 0 && fit->global_step >= (uint64_t)o->max_steps;
    if (fit->stopped)
        snprintf(reason, size, "%s", fit->reason);
    else if (fit->is_resume && fit->global_step == fit->resumed_step
             && fit->failure.code == PL_OK && (by_epochs || by_steps))
        snprintf(reason, size,
                 "nothing was trained: %s %lld is reached; raise it to continue",
                 by_epochs ? "trainer.max_epochs" : "trainer.max_steps",
                 (long long)(by_epochs ? o->max_epochs : o->max_steps));
}

/* ---- rollback ---- */

/* Ranks without callbacks follow the decision of rank 0. */
static bool follows(const pl_fit_t *fit)
{
    return !pl_is_nobody(fit->hooks.coordinator) && pl_is_nobody(fit->hooks.callback);
}

bool pl_fit_may_roll_back(const pl_fit_t *fit, const pl_error_t *error)
{
    if (error->code != PL_ENAN || fit->options->nan_policy != PL_NAN_ROLLBACK
        || fit->failure.code != PL_OK)
        return false;
    return follows(fit)
           || (fit->saves && !fit->saving
               && fit->in_row < (uint64_t)fit->options->nan_limit);
}

void pl_fit_report_rollback_limit(const pl_fit_t *fit, pl_error_t *error)
{
    if (error->code == PL_ENAN && fit->options->nan_policy == PL_NAN_ROLLBACK
        && fit->in_row)
        pl_error_prefix(
            error,
            "the run went back %llu time%s without reaching a newer checkpoint "
            "(trainer.nan_limit)",
            (unsigned long long)fit->in_row, pl_plural((int64_t)fit->in_row));
}

/* Ranges before the newest step are past.  Skipped steps do not count as progress from
 * which a new row of rollbacks begins. */
void pl_fit_rollback_point(pl_fit_t *fit)
{
    for (size_t k = json_array_size(fit->skipped_ranges); k-- > 0;)
        if (pl_json_integer_at(json_array_get(fit->skipped_ranges, k), 1)
            <= (json_int_t)fit->global_step)
            json_array_remove(fit->skipped_ranges, k);
    if (!fit->last_skipped)
        fit->in_row = 0;
}

/* All ranks answer with the state of rank 0. */
static void rollback_agreed(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR && fit->call)
        pl_fit_fail(fit, &fit->failure);
    if (answer->kind != PL_ANSWER_REPLY || !fit->call)
        return;
    pl_body_t body;
    int code = pl_loop_decided(&answer->body->decide_reply, PL_MESSAGE_set_state, false,
                               &body, &err);
    char *own = code == PL_OK ? pl_strdup(body.set_state.state) : NULL;
    if (own)
        pl_fit_reply_rollback(fit, own);
    else
        pl_fit_fail(fit, code == PL_OK ? (pl_no_memory(&err), &err) : &err);
}

static void rollback_agree(pl_fit_t *fit, const char *text)
{
    const pl_decision_t decision = {.message = PL_MESSAGE_set_state,
                                    .fields = &(pl_set_state_t){.state = text}};
    if (!pl_loop_decide(fit, fit->hooks.coordinator, &decision,
                        (pl_how_t){.on_answer = rollback_agreed}, NULL))
        pl_fit_fail(fit, &fit->failure);
}

/* Adds a step to the skipped ranges; a range that ends before it becomes twice as long.
 * The text has what the state of the checkpoint lacks. */
static void roll_back(pl_fit_t *fit)
{
    const json_int_t trained = fit->before + pl_now() - fit->began,
                     rollback = (json_int_t)fit->rollbacks + 1;
    pl_error_t err = {0};
    const json_int_t step = (json_int_t)fit->global_step + 1;
    json_int_t from = step;
    for (size_t k = json_array_size(fit->skipped_ranges); k-- > 0;) {
        const json_t *range = json_array_get(fit->skipped_ranges, k);
        if (pl_json_integer_at(range, 1) + 1 != step)
            continue;
        from = 2 * pl_json_integer_at(range, 0) - step;
        json_array_remove(fit->skipped_ranges, k);
    }
    const int failed =
        json_array_append_new(fit->skipped_ranges,
                              json_pack("[III]", from < 1 ? 1 : from, step, rollback));
    char *text = pl_json_to_text(
        failed ? NULL
               : json_pack("{s:I, s:I, s:I, s:I, s:s, s:O}", "rollbacks", rollback,
                           "in_row", (json_int_t)fit->in_row + 1, "nanoseconds", trained,
                           "serial", (json_int_t)fit->serial, "passing",
                           fit->temporary_checkpoints, "pass_over", fit->skipped_ranges),
        &err);
    if (!text) {
        pl_fit_fail(fit, &err);
        return;
    }
    pl_log_line(PL_LOG_WARNING, pl_actor_rank(fit), pl_actor_name(fit),
                "%s: returning to the newest checkpoint; rollback %llu",
                fit->failure.text, (unsigned long long)fit->rollbacks + 1);
    pl_progress_run(fit->call, &(pl_run_progress_t){.event = PL_RUN_EVENT_ROLLBACK,
                                                    .global_step = fit->global_step,
                                                    .total_steps = fit->total_steps,
                                                    .epoch = fit->epochs.completed,
                                                    .metrics = text});
    rollback_agree(fit, text);
    pl_text_free(text);
}

/* The newest checkpoint must not depend on the speed of the disk, so all saves end
 * first. */
void pl_fit_roll_back(pl_fit_t *fit, const pl_error_t *error)
{
    fit->failure = *error;
    if (follows(fit))
        rollback_agree(fit, "");
    else
        pl_fit_checkpoint_wait(fit, 0, roll_back);
}
