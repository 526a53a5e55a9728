/* fit_rollback.c - nan_policy "rollback": after a step that was not finite the run
 * goes back
 *
 * Of several ranks the one that saves decides, and tells the others; where it does not go
 * back it fails, and they end with it.
 *
 * The fit loop decides that it does and what it is to know then; going back is going on
 * from the newest checkpoint that was due, and whoever started the run does that.  Those
 * that only an end of the run made do not count: a run that was stopped and goes on does
 * what it would have done unstopped.  The steps that led there are counted and not made
 * when it comes to them again: the one that failed; should the very next one fail too,
 * its weights were bad before, and as many steps before are passed over as well. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/metrics.h"
#include "actors/loops/fit.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"

static bool is_rollback(const pl_fit_t *fit)
{
    return !strcmp(fit->options->nan_policy, "rollback");
}

void pl_fit_request_start_checkpoint(pl_fit_t *fit)
{
    if (is_rollback(fit) && fit->serial == 0)
        pl_checkpoint_requests_add(&fit->checkpoint_requests, PL_START_CHECKPOINT, "",
                                   NULL);
}

/* Who asks no callbacks does what another rank says. */
static bool follows(const pl_fit_t *fit)
{
    return !pl_is_nobody(fit->hooks.coordinator) && pl_is_nobody(fit->hooks.callback);
}

bool pl_fit_may_roll_back(const pl_fit_t *fit, const pl_error_t *error)
{
    if (error->code != PL_ENAN || !is_rollback(fit) || fit->failure.code != PL_OK)
        return false;
    return follows(fit)
           || (fit->saves && !fit->saving
               && fit->in_row < (uint64_t)fit->options->nan_limit);
}

void pl_fit_report_rollback_limit(const pl_fit_t *fit, pl_error_t *error)
{
    if (error->code == PL_ENAN && is_rollback(fit) && fit->in_row)
        pl_error_prefix(
            error,
            "the run went back %llu time%s without reaching a newer checkpoint "
            "(trainer.nan_limit)",
            (unsigned long long)fit->in_row, pl_plural((int64_t)fit->in_row));
}

/* ---- which steps ---- */

static json_int_t end_of(const json_t *range, size_t which)
{
    return json_integer_value(json_array_get(range, which));
}

/* Those before the newest step are done with. */
static void skipped_ranges_prune(const pl_fit_t *fit)
{
    for (size_t k = json_array_size(fit->skipped_ranges); k-- > 0;)
        if (end_of(json_array_get(fit->skipped_ranges, k), 1)
            <= (json_int_t)fit->global_step)
            json_array_remove(fit->skipped_ranges, k);
}

static int skipped_ranges_add(json_t *list, json_int_t step, json_int_t rollback)
{
    json_int_t from = step;
    for (size_t k = json_array_size(list); k-- > 0;) {
        const json_t *range = json_array_get(list, k);
        if (end_of(range, 1) + 1 != step)
            continue;
        from = 2 * end_of(range, 0) - step;
        json_array_remove(list, k);
    }
    return json_array_append_new(list,
                                 json_pack("[III]", from < 1 ? 1 : from, step, rollback));
}

char *pl_fit_skipped_ranges(const pl_fit_t *fit, pl_error_t *err)
{
    char *text = pl_json_write(fit->skipped_ranges, PL_JSON_COMPACT);
    if (!text)
        pl_no_memory(err);
    return text;
}

/* Steps after which all was passed over gain nothing to begin from. */
void pl_fit_rollback_point(pl_fit_t *fit)
{
    skipped_ranges_prune(fit);
    if (!fit->fruitless)
        fit->in_row = 0;
}

/* ---- going back ---- */

/* What the state of the checkpoint lacks. */
static char *rollback_text(pl_fit_t *fit, pl_error_t *err)
{
    const int64_t trained = fit->before + pl_now() - fit->began;
    const json_int_t rollback = (json_int_t)fit->rollbacks + 1;
    if (skipped_ranges_add(fit->skipped_ranges, (json_int_t)fit->global_step + 1,
                           rollback)) {
        pl_no_memory(err);
        return NULL;
    }
    json_t *back = json_pack("{s:I, s:I, s:I, s:I, s:s, s:O}", "rollbacks", rollback,
                             "in_row", (json_int_t)fit->in_row + 1, "nanoseconds",
                             (json_int_t)trained, "serial", (json_int_t)fit->serial,
                             "passing", fit->passing, "pass_over", fit->skipped_ranges);
    char *text = back ? pl_metrics_text(back, err) : NULL;
    json_decref(back);
    if (!back)
        pl_no_memory(err);
    return text;
}

static void rollback_reply(pl_fit_t *fit, const char *text)
{
    pl_error_t err = {0};
    char *own = pl_strdup(text);
    if (own) {
        pl_fit_reply_rollback(fit, own);
        return;
    }
    pl_no_memory(&err);
    pl_fit_fail(fit, &err);
}

static void rollback_coordinated(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    if (answer->kind == PL_ANSWER_ERROR && fit->call)
        pl_fit_fail(fit, &fit->failure);
    if (answer->kind == PL_ANSWER_REPLY && fit->call)
        rollback_reply(fit, answer->body->decide_reply.text);
}

/* All ranks answer with the same; the only one at once. */
static void rollback_coordinate(pl_fit_t *fit, const char *text)
{
    const pl_decide_t msg = {.text = text};
    const pl_how_t how = {.on_answer = rollback_coordinated};
    if (pl_is_nobody(fit->hooks.coordinator))
        rollback_reply(fit, text);
    else if (!pl_call_decide(fit, fit->hooks.coordinator, &msg, how, NULL))
        pl_fit_fail(fit, &fit->failure);
}

static void roll_back(pl_fit_t *fit)
{
    pl_error_t err = {0};
    char *text = rollback_text(fit, &err);
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
    rollback_coordinate(fit, text);
    pl_free(text);
}

/* Which one is the newest must not depend on how quick the disk is. */
void pl_fit_roll_back(pl_fit_t *fit, const pl_error_t *error)
{
    fit->failure = *error;
    if (follows(fit))
        rollback_coordinate(fit, "");
    else
        pl_fit_checkpoint_wait(fit, roll_back);
}

/* ---- after it ---- */

void pl_fit_count_rollbacks(pl_fit_t *fit)
{
    if (fit->rollbacks)
        pl_metric_put(fit->metrics, "rollbacks", (double)fit->rollbacks, NULL);
}

json_t *pl_fit_save_rollbacks(const pl_fit_t *fit)
{
    return json_pack("{s:I, s:I, s:O}", "rollbacks", (json_int_t)fit->rollbacks, "in_row",
                     (json_int_t)fit->in_row, "pass_over", fit->skipped_ranges);
}

int pl_fit_load_rollbacks(pl_fit_t *fit, const json_t *kept, pl_error_t *err)
{
    const json_t *list = json_object_get(kept, "pass_over");
    fit->rollbacks = (uint64_t)json_integer_value(json_object_get(kept, "rollbacks"));
    fit->in_row = (uint64_t)json_integer_value(json_object_get(kept, "in_row"));
    json_array_clear(fit->skipped_ranges);
    return list && json_array_extend(fit->skipped_ranges, (json_t *)list)
               ? pl_no_memory(err)
               : PL_OK;
}
