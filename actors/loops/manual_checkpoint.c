/* manual_checkpoint.c - checkpoints of a manual loop
 *
 * They are those of a fit between two epochs, of which it has done none: so a fit can go
 * on from one, and such a loop from one of a fit.  Batches go on once all is copied. */
#include <string.h>

#include "actors/loops/loops.h"
#include "actors/loops/manual.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"

static char *progress_of(const pl_manual_t *o, pl_error_t *err)
{
    json_t *kept = json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:I, s:O, s:{s:I, s:I, s:I, s:I, s:o}, "
        "s:n}",
        "global_step", (json_int_t)o->global_step, "samples", (json_int_t)o->samples,
        "serial", (json_int_t)o->serial, "accumulate", (json_int_t)0, "lr_factor", 1.0,
        "in_epoch", 0, "stop", 0, "nanoseconds", (json_int_t)0, "metrics", o->newest,
        "epoch", "epoch", (json_int_t)0, "batch", (json_int_t)0, "global_step",
        (json_int_t)o->global_step, "samples", (json_int_t)o->samples, "lr_factor",
        pl_number_save(o->lr_factor), "validate");
    char *text = kept ? pl_json_write(kept, PL_JSON_COMPACT) : NULL;
    json_decref(kept);
    if (!text)
        pl_no_memory(err);
    return text;
}

static void kept(void *self, const pl_answer_t *answer)
{
    pl_error_t err;
    if (answer->kind == PL_ANSWER_LATE)
        pl_manual_timed_out(self);
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_manual_saved(self, answer->context, answer->error);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        const pl_save_checkpoint_reply_t *reply = &answer->body->save_checkpoint_reply;
        if (!reply->saved)
            pl_fail(&err, PL_EIO, "%s", reply->why);
        pl_manual_saved(self, answer->context, reply->saved ? NULL : &err);
    }
}

static void hand_on(pl_manual_t *o, pl_manual_item_t *item, const char *loggers)
{
    pl_error_t err = {0};
    char *progress = progress_of(o, &err),
         *metrics = progress ? pl_metrics_text(o->newest, &err) : NULL;
    const pl_save_checkpoint_t msg = {.weights = &item->weights->object,
                                      .global_step = item->step,
                                      .serial = ++o->serial,
                                      .names = item->name,
                                      .drop = "",
                                      .metrics = metrics,
                                      .progress = progress,
                                      .callbacks = "",
                                      .loggers = loggers};
    const pl_how_t how = {.on_answer = kept,
                          .context = item,
                          .silence_ms = pl_milliseconds(o->options->step_timeout)};
    uint64_t call = metrics ? pl_call_save_checkpoint(o, o->checkpoint, &msg, how, &err)
                            : 0;
    pl_object_unref(item->weights);
    item->weights = NULL;
    pl_text_free(progress);
    pl_free(metrics);
    if (!call)
        pl_manual_saved(o, item, &err);
    if (o->run)
        pl_manual_idle(o);
}

static void loggers_reported(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        hand_on(self, answer->context, answer->body->get_state_reply.state);
    else if (answer->kind == PL_ANSWER_ERROR)
        hand_on(self, answer->context, "");
}

static void exported(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    pl_manual_item_t *item = answer->context;
    const pl_how_t how = {.on_answer = loggers_reported, .context = item};
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_manual_saved(o, item, answer->error);
        pl_manual_idle(o);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        item->weights = pl_object_ref(answer->body->export_weights_reply.weights);
        if (pl_is_nobody(o->logger)
            || !pl_call_get_state(o, o->logger, &(pl_get_state_t){0}, how, NULL))
            hand_on(o, item, "");
    }
}

void pl_manual_save(pl_manual_t *o, pl_manual_item_t *item)
{
    const pl_export_weights_t msg = {.whole = true};
    const pl_how_t how = {.on_answer = exported, .context = item};
    pl_error_t err = {0};
    o->busy = true;
    o->saving++;
    item->step = o->global_step;
    if (pl_call_export_weights(o, o->strategy, &msg, how, &err))
        return;
    pl_manual_saved(o, item, &err);
    pl_manual_idle(o);
}

int pl_manual_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    pl_manual_t *o = self;
    const char *text = body->set_state.state;
    json_t *from = *text ? pl_json_read(text, strlen(text), "the loop's state", err)
                         : json_object();
    if (!from)
        return *text ? err->code : pl_no_memory(err);
    json_t *metrics = json_object_get(from, "metrics");
    o->global_step = o->sent_steps =
        (uint64_t)json_integer_value(json_object_get(from, "global_step"));
    o->samples = (uint64_t)json_integer_value(json_object_get(from, "samples"));
    o->serial = (uint64_t)json_integer_value(json_object_get(from, "serial"));
    const json_t *factor = json_object_get(json_object_get(from, "epoch"), "lr_factor");
    if (factor)
        o->lr_factor = pl_number_load(factor);
    int failed = metrics ? json_object_update(o->newest, metrics) : 0;
    json_decref(from);
    return failed ? pl_no_memory(err)
                  : pl_reply_set_state(call, &(pl_set_state_reply_t){0});
}
