/* fit_state.c - what a checkpoint keeps of the fit loop, and how it goes on from there */
#include <stdio.h>
#include <string.h>

#include "actors/loops/fit.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"

/* What a loop below told; a loop that is not there told nothing. */
static json_t *inner_read(const char *text, pl_error_t *err)
{
    return text ? pl_json_read(text, strlen(text), "a loop's state", err) : json_null();
}

static int64_t count_of(const json_t *kept, const char *key)
{
    return json_integer_value(json_object_get(kept, key));
}

static json_t *fit_state_json(const pl_fit_t *fit, json_t *epoch, json_t *evaluate)
{
    return json_pack(
        "{s:{s:o}, s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:s, s:s, s:I, s:O, s:o, s:o}",
        "counts", "epochs", pl_tracker_save(&fit->epochs), "global_step",
        (json_int_t)fit->global_step, "samples", (json_int_t)fit->samples, "serial",
        (json_int_t)fit->serial, "accumulate", (json_int_t)fit->accumulate, "lr_factor",
        fit->lr_factor, "in_epoch", fit->in_epoch, "stop", fit->stop_requested, "passing",
        fit->passing, "stop_request", pl_fit_stop_request(fit), "nanoseconds",
        (json_int_t)(fit->before + pl_now() - fit->began), "metrics", fit->metrics,
        "epoch", epoch, "validate", evaluate);
}

char *pl_fit_state(const pl_fit_t *fit, const pl_checkpointing_t *checkpointing,
                   pl_error_t *err)
{
    json_t *epoch = inner_read(checkpointing->epoch, err);
    json_t *evaluate = epoch ? inner_read(checkpointing->evaluate, err) : NULL;
    json_t *kept = evaluate ? fit_state_json(fit, epoch, evaluate) : NULL;
    json_t *back = kept ? pl_fit_save_rollbacks(fit) : NULL;
    bool whole = back && json_object_update(kept, back) == 0;
    json_decref(back);
    char *text = whole ? pl_json_write(kept, PL_JSON_COMPACT) : NULL;
    if (!evaluate)
        json_decref(epoch);
    json_decref(kept);
    if (!text && err->code == PL_OK)
        pl_no_memory(err);
    return text;
}

static int state_take(pl_fit_t *fit, const json_t *kept, pl_error_t *err)
{
    json_t *metrics = json_object_get(kept, "metrics");
    pl_tracker_load(&fit->epochs,
                    json_object_get(json_object_get(kept, "counts"), "epochs"));
    fit->global_step = (uint64_t)count_of(kept, "global_step");
    fit->checkpointing.global_step = fit->saved_step = fit->global_step;
    fit->resumed_step = fit->global_step;
    fit->samples = (uint64_t)count_of(kept, "samples");
    fit->serial = (uint64_t)count_of(kept, "serial");
    fit->accumulate = (uint64_t)count_of(kept, "accumulate");
    fit->lr_factor = json_number_value(json_object_get(kept, "lr_factor"));
    fit->in_epoch = fit->resumes = json_is_true(json_object_get(kept, "in_epoch"));
    fit->epochs.ready += fit->in_epoch;
    fit->epochs.started += fit->in_epoch;
    fit->batch = (uint32_t)count_of(json_object_get(kept, "epoch"), "batch");
    fit->fruitless = count_of(json_object_get(kept, "epoch"), "in_row") > 0;
    fit->ended = fit->stopped = fit->stop_requested =
        json_is_true(json_object_get(kept, "stop"));
    fit->before = count_of(kept, "nanoseconds");
    const char *request = pl_stop_request_load(kept);
    const char *passing = json_string_value(json_object_get(kept, "passing"));
    snprintf(fit->stop_request, sizeof fit->stop_request, "%s", request);
    snprintf(fit->reason, sizeof fit->reason, "%s", fit->stop_request);
    snprintf(fit->passing, sizeof fit->passing, "%s", passing ? passing : "");
    if (pl_fit_load_rollbacks(fit, kept, err) != PL_OK)
        return PL_ENOMEM;
    return metrics && json_object_update(fit->metrics, metrics) ? pl_no_memory(err)
                                                                : PL_OK;
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

/* ---- the loops below have their own: one after the other ---- */

static void all_have(void *self, const pl_answer_t *answer)
{
    pl_fit_checkpoint_release(self);                        /* what was to be given */
    if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_set_state(answer->context, &(pl_set_state_reply_t){0});
    if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(answer->context, answer->error);
}

static int inner_give(pl_fit_t *fit, pl_address_t loop, const char *state,
                      pl_on_answer_t then, pl_call_t *call, pl_error_t *err)
{
    const pl_set_state_t msg = {.state = state};
    const pl_how_t how = {.on_answer = then, .context = call};
    return pl_call_set_state(fit, loop, &msg, how, err) ? PL_OK : err->code;
}

static void epoch_has(void *self, const pl_answer_t *answer)
{
    pl_fit_t *fit = self;
    const char *evaluate = fit->checkpointing.evaluate;
    pl_error_t err = {0};
    if (answer->kind != PL_ANSWER_REPLY || !evaluate || pl_is_nobody(fit->evaluate))
        all_have(self, answer);
    else if (inner_give(fit, fit->evaluate, evaluate, all_have, answer->context, &err)
             != PL_OK)
        pl_call_fail(answer->context, &err);
}

/* A loop that was not there kept nothing. */
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
    json_t *kept = pl_json_read(text, strlen(text), "the loops' state", err);
    int code = kept ? state_take(fit, kept, err) : err->code;
    if (code == PL_OK)
        code = inner_take(kept, "epoch", &fit->checkpointing.epoch, err);
    if (code == PL_OK)
        code = inner_take(kept, "validate", &fit->checkpointing.evaluate, err);
    json_decref(kept);
    if (code != PL_OK)
        return code;
    if (!fit->checkpointing.epoch)
        return pl_fail(err, PL_EFORMAT,
                       "the state of the loops has no state of the epoch loop");
    return inner_give(fit, fit->epoch, fit->checkpointing.epoch, epoch_has, call, err);
}
