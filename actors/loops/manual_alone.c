/* manual_alone.c - what a manual loop does while no batch is in flight: plans and
 * checkpoints
 *
 * The sizes of the program's batches are not known before, so the strategy makes the plan
 * of a size when the first such batch has come.  The same holds for stages: a module that
 * cannot predict can be trained nevertheless.
 *
 * A checkpoint of a manual loop equals one of a fit that has done no epoch.  So a fit
 * can resume from one, and a manual loop from one of a fit.  Batches continue when all
 * is copied. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/manual.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/run.h"

/* ---- plans ---- */

/* A prediction needs no other rank, and all ranks together ask for names: it has none. */
static bool is_named(const pl_manual_t *o, pl_stage_t stage)
{
    return o->named[stage] || (o->has_peers && stage == PL_PREDICT);
}

/* The sizes at which a batch is computed: its own, or those of its micro-shards. */
static int sizes_of(const pl_manual_t *o, const pl_manual_item_t *item, int64_t size[2])
{
    const int64_t whole = item->batch->count, full = o->micro_shard;
    int count = 0;
    if (full && whole >= full)
        size[count++] = full;
    if (!full || whole % full)
        size[count++] = full ? whole % full : whole;
    return count;
}

static bool has_size(const pl_batch_signature_t *signature, pl_stage_t stage,
                     int64_t samples)
{
    for (int k = 0; k < signature->stage[stage].size_count; k++)
        if (signature->stage[stage].size[k].count == samples)
            return true;
    return false;
}

bool pl_manual_has_plan(const pl_manual_t *o, const pl_manual_item_t *item)
{
    int64_t size[2];
    const pl_batch_signature_t *signature = o->signature;
    if (item->objective && !item->batch->count)
        return true;                                        /* gradients are there */
    if (pl_manual_accumulates(o, item) && !signature->accumulates)
        return false;
    if (!signature->stage[item->stage].present || !is_named(o, item->stage))
        return false;
    for (int k = sizes_of(o, item, size) - 1; k >= 0; k--)
        if (!has_size(signature, item->stage, size[k]))
            return false;
    return true;
}

void pl_manual_ready(pl_manual_t *o)
{
    pl_progress_run(o->run, &(pl_run_progress_t){.event = PL_RUN_EVENT_READY,
                                                 .global_step = o->global_step,
                                                 .metrics = ""});
    pl_manual_idle(o);
}

/* With the names of training, and the start of callbacks, the loop is ready. */
static void names_answered(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !o->run)
        return;
    const char *names = answer->body->metric_names_reply.names,
               *prefix = pl_stages[o->names_stage].prefix;
    pl_metrics_name(&o->metrics[o->names_stage], prefix, names);
    o->named[o->names_stage] = true;
    if (o->names_stage == PL_TRAIN) {
        pl_metrics_name(&o->since_report, prefix, names);
        if (o->has_callbacks)
            pl_manual_begin_callbacks(o);
        else
            pl_manual_ready(o);
        return;
    }
    pl_manual_idle(o);
}

uint64_t pl_manual_query_names(pl_manual_t *o, pl_stage_t stage, pl_error_t *err)
{
    const pl_metric_names_t msg = {.stage = stage};
    o->names_stage = stage;
    return pl_call_metric_names(o, o->strategy, &msg,
                                (pl_how_t){.on_answer = names_answered}, err);
}

static void signature_answered(void *self, const pl_answer_t *answer);

static void signature_send(pl_manual_t *o, pl_batch_signature_t *signature)
{
    const pl_set_signature_t msg = {.signature = &signature->object};
    const pl_how_t how = {.on_answer = signature_answered};
    pl_error_t err = {0};
    if (!pl_call_set_signature(o, o->strategy, &msg, how, &err))
        pl_manual_fail(o, &err);
}

/* After a refusal the strategy gets the former signature again, so it is as before. */
static void signature_answered(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    const pl_manual_item_t *item = o->waiting.first;
    const bool failed = answer->kind == PL_ANSWER_ERROR;
    pl_error_t err = {0};
    if (!o->run || (answer->kind != PL_ANSWER_REPLY && !failed))
        return;
    if (failed && o->next_signature) {
        pl_object_unref(o->next_signature);
        o->next_signature = NULL;
        pl_manual_drop_first(o, answer->error);
        signature_send(o, o->signature);
        return;
    }
    if (failed) {
        pl_manual_fail(o, answer->error);
        return;
    }
    if (o->next_signature) {
        pl_object_unref(o->signature);
        o->signature = o->next_signature;
        o->next_signature = NULL;
    }
    /* After the former signature the stage may have no plan yet, and so no names. */
    if (!item || item->name || item->exchanges || item->sees_gradients
        || !o->signature->stage[item->stage].present || is_named(o, item->stage))
        pl_manual_idle(o);
    else if (!pl_manual_query_names(o, item->stage, &err))
        pl_manual_fail(o, &err);
}

/* A new size replaces the oldest but the first, because the first size scales the loss
 * of a step. */
void pl_manual_set_signature(pl_manual_t *o, const pl_manual_item_t *item)
{
    pl_error_t err = {0};
    o->busy = true;
    o->next_signature = item ? pl_batch_signature_new(&err) : NULL;
    if (item && !o->next_signature) {
        pl_manual_drop_first(o, &err);
        pl_manual_idle(o);
        return;
    }
    if (item) {                                        /* with what the signature lacks */
        pl_batch_signature_t *signature = o->next_signature;
        memcpy(signature->stage, o->signature->stage, sizeof signature->stage);
        pl_batch_size_t *size = signature->stage[item->stage].size;
        int *count = &signature->stage[item->stage].size_count;
        int64_t needed[2];
        signature->accumulates = o->signature->accumulates
                                 || pl_manual_accumulates(o, item);
        if (!signature->stage[item->stage].present) {
            signature->stage[item->stage].present = true;
            *count = 0;
        }
        for (int k = 0, n = sizes_of(o, item, needed); k < n; k++) {
            if (has_size(signature, item->stage, needed[k]))
                continue;
            if (*count == PL_SIZES_MAX)
                memmove(size + 1, size + 2, (size_t)(--*count - 1) * sizeof *size);
            size[(*count)++] = (pl_batch_size_t){.count = needed[k]};
        }
    }
    signature_send(o, item ? o->next_signature : o->signature);
}

/* ---- exchanges: one that fails fails on all ranks ---- */

static void exchange_answered(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    pl_manual_item_t *item = answer->context;
    const bool failed = answer->kind == PL_ANSWER_ERROR;
    if (!failed && answer->kind != PL_ANSWER_REPLY)
        return;
    o->exchanging = false;
    if (failed)
        pl_manual_fail(o, answer->error);                   /* with this item */
    else if (item->call)
        pl_reply_exchange(item->call, &answer->body->exchange_reply);
    pl_manual_over(o, item);
}

void pl_manual_exchange(pl_manual_t *o, pl_manual_item_t *item)
{
    const pl_how_t how = {.on_answer = exchange_answered, .context = item};
    pl_error_t err = {0};
    o->busy = o->exchanging = true;
    pl_watchdog_reset(&o->watchdog);
    if (pl_call_exchange(o, o->strategy, &item->exchange, how, &err))
        return;
    pl_manual_fail(o, &err);
    pl_manual_over(o, item);
}

/* ---- checkpoints ---- */

static void checkpoint_saved(void *self, const pl_answer_t *answer)
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

/* All is copied. */
static void checkpoint_send(pl_manual_t *o, pl_manual_item_t *item, const char *loggers)
{
    pl_error_t err = {0};
    char *progress = pl_json_to_text(
        json_pack("{s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:I, s:O, "
                  "s:{s:I, s:I, s:I, s:I, s:o}, s:n}",
                  "global_step", (json_int_t)o->global_step, "samples",
                  (json_int_t)o->samples, "serial", (json_int_t)o->serial, "accumulate",
                  (json_int_t)0, "lr_factor", 1.0, "in_epoch", 0, "stop", 0,
                  "nanoseconds", (json_int_t)0, "metrics", o->newest, "epoch", "epoch",
                  (json_int_t)0, "batch", (json_int_t)0, "global_step",
                  (json_int_t)o->global_step, "samples", (json_int_t)o->samples,
                  "lr_factor", pl_number_save(o->lr_factor), "validate"),
        &err);
    char *metrics = progress ? pl_metrics_text(o->newest, &err) : NULL;
    const pl_save_checkpoint_t msg = {.weights = &item->weights->object,
                                      .global_step = item->step,
                                      .serial = ++o->serial,
                                      .names = item->name,
                                      .drop = item->drop ? item->drop : "",
                                      .metrics = metrics,
                                      .progress = progress,
                                      .callbacks = item->callbacks ? item->callbacks : "",
                                      .loggers = loggers};
    const pl_how_t how = {.on_answer = checkpoint_saved,
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
        checkpoint_send(self, answer->context, answer->body->get_state_reply.state);
    else if (answer->kind == PL_ANSWER_ERROR)
        checkpoint_send(self, answer->context, "");
}

static void loggers_query(pl_manual_t *o, pl_manual_item_t *item)
{
    const pl_how_t how = {.on_answer = loggers_reported, .context = item};
    if (pl_is_nobody(o->logger)
        || !pl_call_get_state(o, o->logger, &(pl_get_state_t){0}, how, NULL))
        checkpoint_send(o, item, "");
}

static void callbacks_reported(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    pl_manual_item_t *item = answer->context;
    if (answer->kind == PL_ANSWER_REPLY)
        item->callbacks = pl_strdup(answer->body->get_state_reply.state);
    if (answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR)
        loggers_query(o, item);
}

static void exported(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    pl_manual_item_t *item = answer->context;
    const pl_how_t how = {.on_answer = callbacks_reported, .context = item};
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_manual_saved(o, item, answer->error);
        pl_manual_idle(o);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        item->weights = pl_object_ref(answer->body->export_weights_reply.weights);
        if (!o->has_callbacks || pl_is_nobody(o->hooks.callback)
            || !pl_call_get_state(o, o->hooks.callback, &(pl_get_state_t){0}, how, NULL))
            loggers_query(o, item);
    }
}

/* All ranks do the same, so they synchronize.  After the end nothing is left to wait for
 * but other programs, which may take their time. */
static void ranks_agreed(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    const pl_synchronize_t msg = {.whole = o->saved != NULL};
    const pl_how_t how = {.on_answer = o->synchronized, .context = o->saved};
    pl_error_t err = {0};
    o->exchanging = false;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (answer->kind == PL_ANSWER_REPLY && o->run
        && !pl_call_synchronize(o, o->strategy, &msg, how, &err))
        pl_manual_fail(o, &err);
}

bool pl_manual_synchronize(pl_manual_t *o, pl_manual_item_t *item, pl_on_answer_t then)
{
    const pl_how_t how = {.on_answer = ranks_agreed};
    char what[sizeof "save of " + 128];
    pl_error_t err = {0};
    if (!o->has_peers)
        return false;
    snprintf(what, sizeof what, "%s%s", item ? "save of " : "close",
             item ? item->name : "");
    o->saved = item;
    o->synchronized = then;
    o->exchanging = item != NULL;
    pl_watchdog_reset(&o->watchdog);
    if (!pl_call_exchange(o, o->strategy, &(pl_exchange_t){.what = what}, how, &err))
        pl_manual_fail(o, &err);
    return true;
}

static void export_send(pl_manual_t *o, pl_manual_item_t *item)
{
    const pl_export_weights_t msg = {.whole = true};
    const pl_how_t how = {.on_answer = exported, .context = item};
    pl_error_t err = {0};
    if (pl_call_export_weights(o, o->strategy, &msg, how, &err))
        return;
    pl_manual_saved(o, item, &err);
    pl_manual_idle(o);
}

/* The rank that writes has the state of all now; of the others nothing is needed. */
static void save_synchronized(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !o->run)
        return;
    if (!pl_is_nobody(o->checkpoint)) {
        export_send(o, answer->context);
    } else {
        pl_manual_saved(o, answer->context, NULL);
        pl_manual_idle(o);
    }
}

void pl_manual_save(pl_manual_t *o, pl_manual_item_t *item)
{
    o->busy = true;
    o->saving++;
    item->step = o->global_step;
    if (!pl_manual_synchronize(o, item, save_synchronized))
        export_send(o, item);
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
    for (int k = 0; k < PL_OBJECTIVES; k++)
        o->objective[k].sent.step = o->objective[k].done.step = o->global_step;
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
