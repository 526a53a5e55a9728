/* manual.c - the manual loop: trains on batches that the program sends
 *
 * The program decides which batch comes next, and whether it is trained on or forwarded.
 * The loop keeps the order: batches are processed as they come.  Batches of one stage are
 * sent on while others are in flight.  Between two stages, before a batch of a new size,
 * and before a save all of them come back first (manual_alone.c).
 *
 * A step that fails changes nothing and fails alone: the strategy does not run what is in
 * flight behind it, and these batches are sent again, as if they had come later.
 *
 * With other ranks each rank's program sends its own batches, and all make the same calls
 * in the same order.  A loss that is not finite is the same on all ranks; what else fails
 * on one rank ends the loop on all, because its step cannot be made by the others. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/loops/manual.h"
#include "actors/request.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/run.h"

static const int64_t REPORT_EVERY = PL_SECOND / 10;

static void item_free(pl_manual_item_t *item)
{
    pl_object_unref(item->weights);
    pl_free(item->name);
    pl_free(item->drop);
    pl_free(item->callbacks);
    pl_free(item);
}

static void item_fail(pl_manual_item_t *item, const pl_error_t *error)
{
    if (item->call)
        pl_call_fail(item->call, error);
    item_free(item);
}

static void list_push(pl_manual_list_t *list, pl_manual_item_t *item)
{
    item->next = NULL;
    *list->last = item;
    list->last = &item->next;
}

static pl_manual_item_t *list_take(pl_manual_list_t *list)
{
    pl_manual_item_t *item = list->first;
    if (item)
        list->first = item->next;
    if (!list->first)
        list->last = &list->first;
    return item;
}

/* Takes an item out of those in flight, mostly the oldest. */
static void out_take(pl_manual_t *o, const pl_manual_item_t *item)
{
    pl_manual_item_t **from = &o->out.first;
    while (*from != item)
        from = &(*from)->next;
    *from = item->next;
    if (o->out.last == &item->next)
        o->out.last = from;
}

/* ---- the end ---- */

void pl_manual_fail(pl_manual_t *o, const pl_error_t *why)
{
    const pl_error_t *error = &o->failure;
    pl_call_t *run = o->run;
    o->run = NULL;
    o->failure = *why;
    for (pl_manual_item_t *item; (item = list_take(&o->waiting));)
        item_fail(item, error);
    for (pl_manual_item_t *item; (item = list_take(&o->again));)
        item_fail(item, error);
    for (pl_manual_item_t *item = o->out.first; item; item = item->next) {
        if (item->call)
            pl_call_fail(item->call, error);               /* its answer may still come */
        item->call = NULL;
    }
    if (run)
        pl_call_fail(run, error);
}

void pl_manual_timed_out(pl_manual_t *o)
{
    pl_error_t err;
    pl_fail(&err, PL_ESTUCK,
            "the save after step %llu has not ended for %g s (trainer.step_timeout)",
            (unsigned long long)o->global_step, o->options->step_timeout);
    pl_manual_fail(o, &err);
}

static void manual_reply(pl_manual_t *o)
{
    pl_call_t *run = o->run;
    o->run = NULL;
    pl_reply_run(run, &(pl_run_reply_t){.outcome = &o->outcome->object});
}

static void manual_save_done(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    if (answer->kind == PL_ANSWER_LATE)
        pl_manual_timed_out(o);
    if (answer->kind == PL_ANSWER_ERROR)
        o->outcome->error = *answer->error;
    if (o->run && (answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR))
        manual_reply(o);                                 /* the outcome has the weights */
}

static void manual_exported(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    pl_error_t err = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (answer->kind != PL_ANSWER_REPLY || !o->run)
        return;
    o->outcome->weights = pl_object_ref(answer->body->export_weights_reply.weights);
    const pl_save_t msg = {.weights = &o->outcome->weights->object,
                           .global_step = o->global_step};
    const pl_how_t how = {.on_answer = manual_save_done,
                          .silence_ms = pl_milliseconds(o->options->step_timeout)};
    if (pl_is_nobody(o->checkpoint))
        manual_reply(o);
    else if (!pl_call_save(o, o->checkpoint, &msg, how, &err))
        pl_manual_fail(o, &err);
}

static void manual_called_back(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    const pl_how_t how = {.on_answer = manual_exported};
    pl_error_t err = {0};
    if (answer && answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (o->run && (!answer || answer->kind == PL_ANSWER_REPLY)
        && !pl_call_export_weights(o, o->strategy, &(pl_export_weights_t){0}, how, &err))
        pl_manual_fail(o, &err);
}

static void manual_synchronized(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    if (answer && answer->kind == PL_ANSWER_ERROR)
        pl_manual_fail(o, answer->error);
    if (o->run && (!answer || answer->kind == PL_ANSWER_REPLY))
        pl_manual_end_callbacks(o, manual_called_back);
}

static void manual_finish(pl_manual_t *o)
{
    pl_error_t err = {0};
    o->busy = true;
    o->outcome = pl_outcome_new(&err);
    if (!o->outcome || !(o->outcome->metrics = pl_metrics_text(o->newest, &err))) {
        pl_manual_fail(o, &err);
        return;
    }
    o->outcome->global_step = o->global_step;
    o->outcome->seconds = (double)(pl_now() - o->began) / 1e9;
    if (!pl_manual_synchronize(o, NULL, manual_synchronized))
        manual_synchronized(o, NULL);
}

/* ---- the result of a batch ---- */

static json_t *sums_json(const pl_metrics_t *sums, pl_error_t *err)
{
    json_t *metrics = json_object();
    int code = metrics ? PL_OK : pl_no_memory(err);
    if (code == PL_OK)
        code = pl_metrics_put(sums, PL_METRICS_OF_PASS, metrics, err);
    if (code == PL_OK)
        code = pl_metrics_put(sums, PL_METRICS_OF_STEPS, metrics, err);
    if (code == PL_OK)
        return metrics;
    json_decref(metrics);
    return NULL;
}

static void item_reply(pl_manual_t *o, pl_manual_item_t *item, pl_bytes_t sums,
                       const char *skipped, pl_object_t *outputs)
{
    pl_error_t err = {0};
    pl_metrics_t *all = &o->metrics[item->stage];
    pl_metrics_clear(all);
    pl_metrics_add(all, sums);
    json_t *object = sums_json(all, &err);
    if (object && json_object_update(o->newest, object))
        pl_no_memory(&err);
    char *metrics = object && err.code == PL_OK ? pl_metrics_text(object, &err) : NULL;
    json_decref(object);
    if (!metrics) {
        item_fail(item, &err);
        return;
    }
    if (item->step_due) {
        const int64_t every = o->options->log_every_n_steps;
        const pl_log_metrics_t msg = {.global_step = o->global_step, .metrics = metrics};
        if (every && o->global_step % (uint64_t)every == 0 && !pl_is_nobody(o->logger))
            pl_call_log_metrics(o, o->logger, &msg, (pl_how_t){0}, NULL);
        if (!(!o->run || pl_now() - o->reported_at < REPORT_EVERY)) {
            char *text = pl_json_to_text(sums_json(&o->since_report, NULL), NULL);
            o->reported_at = pl_now();
            pl_metrics_clear(&o->since_report);
            pl_progress_run(o->run, &(pl_run_progress_t){.event = PL_RUN_EVENT_TRAIN,
                                                         .global_step = o->global_step,
                                                         .metrics = text ? text : ""});
            pl_text_free(text);
        }
    }
    pl_reply_take_batch(item->call,
                        &(pl_take_batch_reply_t){.global_step = o->global_step,
                                                 .skipped = skipped,
                                                 .metrics = metrics,
                                                 .outputs = outputs});
    pl_free(metrics);
    item_free(item);
}

static void manual_continue(pl_manual_t *o);

/* A batch has come back.  The strategy cancels what is behind a failed step: that was not
 * run, and is sent again. */
static void batch_answered(void *self, const pl_answer_t *answer)
{
    pl_manual_t *o = self;
    pl_manual_item_t *item = answer->context;
    const bool failed = answer->kind == PL_ANSWER_ERROR;
    if (answer->kind != PL_ANSWER_REPLY && !failed)
        return;
    const bool trains = item->stage == PL_TRAIN;
    o->pending--;
    o->rested_at = o->pending ? 0 : pl_now();
    out_take(o, item);
    pl_watchdog_reset(&o->watchdog);
    if (!item->call) {                                      /* it has failed before */
        item_free(item);
        return;
    }
    if (failed && trains && o->broken && answer->error->code == PL_ECANCELLED) {
        list_push(&o->again, item);
    } else if (failed && o->has_peers && answer->error->code != PL_ENAN) {
        pl_manual_fail(o, answer->error);
        item_fail(item, &o->failure);
    } else if (failed) {
        if (trains)
            pl_manual_trained(o, item, true);
        o->broken |= trains;
        item_fail(item, answer->error);
    } else if (trains) {
        const pl_train_batch_reply_t *reply = &answer->body->train_batch_reply;
        pl_manual_trained(o, item, false);
        o->samples += (uint64_t)item->batch->count;
        if ((!item->objective || item->step_due)
            && (!o->may_skip || pl_metrics_are_finite(reply->metrics)))
            pl_metrics_add(&o->since_report, reply->metrics);
        item_reply(o, item, reply->metrics, reply->skipped ? reply->bad : "", NULL);
    } else {
        const pl_evaluate_batch_reply_t *reply = &answer->body->evaluate_batch_reply;
        const bool has_names = o->named[item->stage];
        item_reply(o, item, has_names ? reply->metrics : (pl_bytes_t){0}, "",
                   reply->outputs);
    }
    manual_continue(o);
}

/* ---- sending ---- */

static void item_send(pl_manual_t *o, pl_manual_item_t *item)
{
    const int64_t max = o->options->max_steps,
                  waited = o->rested_at ? pl_now() - o->rested_at : 0;
    const pl_how_t how = {.on_answer = batch_answered, .context = item};
    const bool trains = item->stage == PL_TRAIN;
    pl_error_t err = {0};
    uint64_t sent = 0;
    o->stage = item->stage;
    if (o->pending == 0)
        pl_watchdog_reset(&o->watchdog);
    if (trains) {
        pl_train_batch_t msg = {.total_steps = max > 0 ? (uint64_t)max : 0,
                                .lr_factor = item->lr_factor * o->lr_factor,
                                .may_skip = o->may_skip,
                                .waited = (double)waited / 1e9,
                                .batch = &item->batch->object};
        if (pl_manual_place(o, item, &msg, &err) == PL_OK)
            sent = pl_call_train_batch(o, o->strategy, &msg, how, &err);
    } else {
        const pl_evaluate_batch_t msg = {.stage = item->stage,
                                         .alone = item->stage == PL_PREDICT,
                                         .batch = &item->batch->object};
        sent = pl_call_evaluate_batch(o, o->strategy, &msg, how, &err);
    }
    if (!sent) {
        item_fail(item, &err);
        return;
    }
    if (trains) {
        o->rested_at = 0;
        pl_manual_placed(o, item);
        o->held = item->step_due && pl_manual_holds(o, o->sent_steps);
    }
    o->pending++;
    list_push(&o->out, item);
}

/* Begins the oldest items, up to one that waits for what is in flight.  After a failed
 * step the gradients of an incomplete step are lost, and the batches behind it are
 * sent again. */
static void manual_continue(pl_manual_t *o)
{
    if (o->run && !o->busy && o->held && !o->pending && !o->broken)
        pl_manual_call_back(o);
    while (o->run && !o->busy && (!o->held || o->broken) && !(o->broken && o->pending)) {
        pl_manual_item_t *item = o->waiting.first;
        if (o->broken) {
            o->broken = false;
            pl_manual_rewind(o);
            *o->again.last = o->waiting.first;
            if (o->waiting.first)
                o->again.last = o->waiting.last;
            o->waiting = o->again;
            if (!o->waiting.first)
                o->waiting.last = &o->waiting.first;
            o->again = (pl_manual_list_t){.last = &o->again.first};
            pl_manual_set_signature(o, NULL);
            continue;
        }
        if (!item) {
            if (o->ending && !o->pending && !o->saving)
                manual_finish(o);
            return;
        }
        const bool alone = item->name || item->exchanges || item->sees_gradients
                           || !pl_manual_has_plan(o, item);
        if (o->pending && (alone || item->stage != o->stage))
            return;
        if (item->name) {
            list_push(&o->out, list_take(&o->waiting));
            pl_manual_save(o, item);
        } else if (item->exchanges) {
            list_push(&o->out, list_take(&o->waiting));
            pl_manual_exchange(o, item);
        } else if (item->sees_gradients) {
            list_push(&o->out, list_take(&o->waiting));
            pl_manual_see(o, item);
        } else if (alone) {
            pl_manual_set_signature(o, item);
        } else {
            item_send(o, list_take(&o->waiting));
        }
    }
}

void pl_manual_idle(pl_manual_t *o)
{
    o->busy = false;
    pl_watchdog_reset(&o->watchdog);
    manual_continue(o);
}

void pl_manual_drop_first(pl_manual_t *o, const pl_error_t *error)
{
    pl_manual_item_t *item = list_take(&o->waiting);
    if (item)
        item_fail(item, error);
    if (o->has_peers)
        pl_manual_fail(o, error);
}

void pl_manual_over(pl_manual_t *o, pl_manual_item_t *item)
{
    out_take(o, item);
    item_free(item);
    if (o->run)
        pl_manual_idle(o);
}

void pl_manual_saved(pl_manual_t *o, pl_manual_item_t *item, const pl_error_t *error)
{
    o->saving--;
    out_take(o, item);
    if (error && item->call)
        pl_call_fail(item->call, error);
    else if (item->call)
        pl_reply_save_loop(item->call,
                           &(pl_save_loop_reply_t){.global_step = item->step});
    item_free(item);
    manual_continue(o);
}

/* ---- calls ---- */

static int item_add(pl_manual_t *o, pl_manual_item_t like, const char *name,
                    pl_error_t *err)
{
    if (!o->run || o->ending)
        return pl_fail(err, PL_ESTATE, "the loop has ended");
    pl_manual_item_t *item = pl_alloc(sizeof *item);
    if (!item)
        return pl_no_memory(err);
    *item = like;
    item->name = name ? pl_strdup(name) : NULL;
    if (name && !item->name) {
        pl_free(item);
        return pl_no_memory(err);
    }
    list_push(&o->waiting, item);
    manual_continue(o);
    return PL_OK;
}

static int manual_take_batch(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    const pl_take_batch_t *msg = &body->take_batch;
    const pl_manual_item_t like = {.call = call,
                                   .stage = (pl_stage_t)msg->stage,
                                   .objective = (int)msg->objective,
                                   .batch = (pl_batch_t *)msg->batch,
                                   .lr_factor = msg->lr_factor};
    return item_add(self, like, NULL, err);
}

static int manual_save(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_manual_t *o = self;
    if (!o->enable_checkpointing)
        return pl_fail(
            err, PL_ESTATE,
            "this loop has no run directory: open it with `enable_checkpointing` set");
    return item_add(o, (pl_manual_item_t){.call = call}, body->save_loop.name, err);
}

static int manual_exchange(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err)
{
    const pl_manual_item_t like = {.call = call,
                                   .exchanges = true,
                                   .exchange = body->exchange};
    return item_add(self, like, NULL, err);
}

static int manual_gradients(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err)
{
    const pl_manual_item_t like = {.call = call,
                                   .sees_gradients = true,
                                   .objective = (int)body->gradients.objective + 1,
                                   .gradients = (pl_object_t *)body->gradients.weights};
    return item_add(self, like, NULL, err);
}

static void manual_check(void *self)
{
    pl_manual_t *o = self;
    pl_error_t err;
    if (!o->run)
        return;
    if (!o->pending && !o->exchanging)
        pl_watchdog_reset(&o->watchdog);
    if (pl_watchdog_has_expired(&o->watchdog, o, &err, "%s, after step %llu,",
                                o->exchanging          ? "an exchange of the ranks"
                                : o->stage == PL_TRAIN ? "a step"
                                                       : "a batch",
                                (unsigned long long)o->global_step))
        pl_manual_fail(o, &err);
}

static int manual_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body;
    pl_manual_t *o = self;
    if (o->began)
        return pl_fail(err, PL_ESTATE, "a loop runs once");
    if (!pl_manual_query_names(o, PL_TRAIN, err))
        return err->code;
    o->run = call;
    o->busy = true;
    o->began = pl_now();
    pl_watchdog_begin(&o->watchdog, o, o->options->step_timeout, manual_check);
    return PL_OK;
}

/* Another rank's program may still send batches, which this one would leave out: then the
 * loop ends at once. */
static int manual_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)err;
    pl_manual_t *o = self;
    pl_error_t stopped = {0};
    if (o->has_peers && !o->ending) {
        pl_fail(&stopped, PL_ECANCELLED, "the loop was stopped after step %llu: %s",
                (unsigned long long)o->global_step, body->stop.reason);
        pl_manual_fail(o, &stopped);
    }
    o->ending = true;
    manual_continue(o);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static int manual_end(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body, (void)err;
    pl_manual_t *o = self;
    o->ending = true;
    manual_continue(o);
    return pl_reply_end_loop(call, &(pl_end_loop_reply_t){0});
}

/* ---- the actor ---- */

static int manual_start(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)call;
    pl_manual_t *o = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    o->options = job->trainer;
    o->watchdog.pulse = job->pulse;
    o->signature = pl_object_ref(job->manual_signature);
    o->enable_checkpointing = job->enable_checkpointing;
    o->strategy = pl_peer(self, "strategy");
    o->checkpoint = pl_peer(self, "checkpoint");
    o->logger = pl_peer(self, "logger");
    o->has_peers = !pl_is_nobody(pl_peer(self, "coordinator"))
                   && pl_request_ranks(job) > 1;
    pl_hooks_init(&o->hooks, o);
    o->has_callbacks = pl_options_count(job->options, "callbacks") > 0;
    o->may_skip = o->options->nan_policy == PL_NAN_SKIP;
    o->micro_shard = pl_trainer_is_elastic(o->options) ? job->data->batch_size : 0;
    o->lr_factor = 1;
    o->waiting.last = &o->waiting.first;
    o->again.last = &o->again.first;
    o->out.last = &o->out.first;
    o->newest = json_object();
    if (!o->newest)
        return pl_no_memory(err);
    pl_actor_ready(self);
    return PL_OK;
}

static void manual_release(void *self)
{
    pl_manual_t *o = self;
    pl_manual_list_t *const lists[] = {&o->waiting, &o->again, &o->out};
    for (int k = 0; k < 3; k++)
        for (pl_manual_item_t *item; (item = list_take(lists[k]));)
            item_free(item);
    for (int k = 0; k <= PL_PREDICT; k++)
        pl_metrics_release(&o->metrics[k]);
    pl_metrics_release(&o->since_report);
    json_decref(o->newest);
    pl_hooks_release(&o->hooks);
    pl_object_unref(o->outcome);
    pl_object_unref(o->signature);
    pl_object_unref(o->next_signature);
}

static const pl_handler_t manual_handlers[] = {
    PL_ON(start, manual_start),
    PL_ON(run, manual_run),
    PL_ON(stop, manual_stop),
    PL_ON(take_batch, manual_take_batch),
    PL_ON(save_loop, manual_save),
    PL_ON(exchange, manual_exchange),
    PL_ON(gradients, manual_gradients),
    PL_ON(end_loop, manual_end),
    PL_ON(set_state, pl_manual_set_state),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_manual_loop = {
    .name = "manual",
    .help = "trains on batches that the program sends",
    .size = sizeof(pl_manual_t),
    .role = "loop",
    .level = PL_LEVEL_FIT_LOOP,
    .handlers = manual_handlers,
    .release = manual_release,
};
