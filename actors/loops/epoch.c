/* epoch.c - the epoch loop: train on the batches of one epoch
 *
 * Several micro-batches are under way at once, so that the accelerator never waits for
 * messages.  Some batches are followed by a decision: a callback's turn, validation, the
 * end.  Which ones they are is known from step and progress alone, when they are fetched;
 * nothing is sent past one until all before it have come back, so that timing decides
 * nothing.  Answers come in order, so a log line needs no such halt. */
#include <stdio.h>
#include <string.h>

#include "actors/loops/ask.h"
#include "actors/loops/due.h"
#include "actors/loops/figures.h"
#include "actors/loops/loops.h"
#include "actors/loops/pace.h"
#include "actors/loops/patience.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "runtime/cargo.h"

static const int64_t REPORT_EVERY = PL_SECOND / 10;

/* What a decision goes through, in order. */
typedef enum decision {
    DECIDE_LOG,
    DECIDE_CALLBACK,
    DECIDE_VALIDATING,
    DECIDE_VALIDATE,
    DECIDE_VALIDATED,
    DECIDE_END,
} decision_t;

typedef struct epoch {
    const pl_trainer_options_t *options;         /* of the job that it was started with */
    char optimizer[48];
    pl_address_t data, strategy, evaluate;
    pl_asking_t asking;
    bool asked;                                             /* part and names are known */
    uint32_t part, parts;

    pl_call_t *call;                        /* NULL: idle */
    uint32_t number;                        /* of the epoch, from 0 */
    uint64_t global_step, total_steps;      /* of the run; total 0: unknown */
    uint64_t samples;                       /* trained on since the run began */
    pl_due_t due;                           /* after which batch */
    uint32_t fetched, done;                 /* micro-batches of this epoch */
    int pending;                            /* calls under way */
    uint64_t evaluating;                    /* the call  [0: none] */
    bool at_decision, validated;            /* what was fetched last; already validated */
    decision_t decision;
    double lr, lr_factor, grad_norm;
    bool deciding, stopping, ended;
    bool told;                                 /* to stop, from above: does not wait for a
                                                  validation */
    char reason[128];
    pl_figures_t sums, since_log;          /* over the epoch; since the newest log line */
    json_t *newest;                        /* figures by name, over the run */
    pl_error_t failure;
    pl_patience_t patience;                                /* with the next step to end */
    pl_pace_t pace;
    int64_t reported;                                    /* when progress was told last */
} epoch_t;

static void epoch_go_on(epoch_t *e);
static void epoch_decide(epoch_t *e);

static int epoch_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    (void)call;
    epoch_t *e = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    const char *optimizer = pl_options_part_name(job->options, "optimizer");
    e->options = job->trainer;
    snprintf(e->optimizer, sizeof e->optimizer, "lr-%s",
             optimizer ? optimizer : "optimizer");
    e->data = pl_peer(self, "data");
    e->strategy = pl_peer(self, "strategy");
    e->evaluate = pl_peer(self, "evaluate");
    e->asking.callback = pl_peer(self, "callback");
    e->asking.logger = pl_peer(self, "logger");
    e->due = (pl_due_t){.options = e->options, .validates = !pl_is_nobody(e->evaluate)};
    e->lr_factor = 1;
    pl_pace_begin(&e->pace, e->options->depth);
    e->newest = json_object();
    if (!e->newest)
        return pl_no_memory(err);
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- failure and reports ---- */

/* True when an answer is no reply; an error is kept and what is under way comes back
 * before the epoch fails. */
static bool epoch_failed(epoch_t *e, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        return false;
    if (answer->kind == PL_ANSWER_ERROR) {
        e->pending--;
        if (e->failure.code == PL_OK)
            e->failure = *answer->error;
        epoch_go_on(e);
    }
    return true;
}

/* A call that could not be made. */
static void epoch_unsent(epoch_t *e)
{
    if (e->pending == 0)
        epoch_go_on(e);
}

static void epoch_tell(const epoch_t *e, const char *event, const char *metrics)
{
    pl_progress_train_epoch(e->call,
                            &(pl_train_epoch_progress_t){.event = event,
                                                         .global_step = e->global_step,
                                                         .total_steps = e->total_steps,
                                                         .epoch = e->number,
                                                         .batch = e->done,
                                                         .batches = e->due.end,
                                                         .metrics = metrics});
}

/* What came since the newest log line, and of what it came. */
static int figures_newest(const epoch_t *e, json_t *into, pl_error_t *err)
{
    int code = pl_figures_put(&e->since_log, PL_FIGURES_OF_STEPS, into, err);
    if (code == PL_OK && e->global_step)
        code = pl_metric_put(into, e->optimizer, e->lr, err);
    if (code == PL_OK && e->global_step)
        code = pl_metric_put(into, "grad_norm", e->grad_norm, err);
    return code;
}

static void epoch_report(epoch_t *e, const char *event, const json_t *metrics)
{
    char *text = pl_metrics_text(metrics, NULL);
    e->reported = pl_now();
    epoch_tell(e, event, text ? text : "");
    pl_free(text);
}

/* With what no log line has said yet.  e->newest itself changes at decisions only, not by
 * the clock. */
static void epoch_report_now(epoch_t *e, const char *event)
{
    json_t *now = json_copy(e->newest);
    if (now && figures_newest(e, now, NULL) == PL_OK)
        epoch_report(e, event, now);
    json_decref(now);
}

/* An error says nothing of how far it came. */
static void epoch_fail(epoch_t *e, const pl_error_t *error)
{
    pl_call_t *call = e->call;
    epoch_report_now(e, "alive");
    e->call = NULL;
    pl_call_fail(call, error);
}

/* What a decision waits for is looked after by whom it calls. */
static void epoch_look(void *self)
{
    epoch_t *e = self;
    pl_error_t err;
    if (!e->call)
        return;
    if (e->deciding || e->pending == 0)
        pl_patience_renew(&e->patience);
    if (!pl_patience_is_over(&e->patience, e, &err, "step %llu, in epoch %u,",
                             (unsigned long long)e->global_step + 1, e->number))
        return;
    epoch_fail(e, &err);
}

/* ---- log lines ---- */

/* A line of what came since the newest to the loggers, at its end with what the epoch
 * comes to; `then` hears that they have it  [nobody]. */
static bool send_log(epoch_t *e, pl_on_answer_t then)
{
    json_t *line = json_object();
    char *text = NULL;
    bool last = e->done == e->due.end;
    if (!line)
        pl_no_memory(&e->failure);
    else if (figures_newest(e, line, &e->failure) == PL_OK
             && (!last
                 || pl_figures_put(&e->sums, PL_FIGURES_OF_EPOCH, line, &e->failure)
                        == PL_OK))
        text = json_object_update(e->newest, line) == 0
                   ? pl_metrics_text(line, &e->failure)
                   : NULL;
    if (!text && e->failure.code == PL_OK)
        pl_no_memory(&e->failure);
    json_decref(line);
    pl_log_metrics_t msg = {.epoch = e->number,
                            .global_step = e->global_step,
                            .metrics = text};
    bool sent = text
                && pl_call_log_metrics(e, e->asking.logger, &msg,
                                       (pl_how_t){.on_answer = then}, &e->failure);
    pl_free(text);
    pl_figures_clear(&e->since_log);
    return sent;
}

/* ---- batches ---- */

/* Answers come in order; what is not finite has been looked for and its step named. */
static void batch_failed(epoch_t *e, const pl_error_t *error)
{
    if (e->failure.code != PL_OK)
        return;
    e->failure = *error;
    if (error->code != PL_ENAN)
        pl_pass(&e->failure, "epoch %u, batch %u", e->number, e->done);
}

static void batch_done(void *self, const pl_answer_t *answer)
{
    epoch_t *e = self;
    if (answer->kind == PL_ANSWER_ERROR)
        batch_failed(e, answer->error);
    if (epoch_failed(e, answer))
        return;
    const pl_train_batch_reply_t *reply = &answer->body->train_batch_reply;
    if (pl_due_step(&e->due, e->done)) {
        e->lr = reply->lr;
        e->grad_norm = reply->grad_norm;
    }
    e->global_step = pl_due_steps(&e->due, e->done);
    e->samples += (uint64_t)(intptr_t)answer->context;
    e->done++;
    e->pending--;
    pl_pace_ended(&e->pace);
    pl_figures_add(&e->sums, reply->figures);
    pl_figures_add(&e->since_log, reply->figures);
    if (e->call && e->failure.code == PL_OK && pl_due_log(&e->due, e->done - 1)
        && !pl_due_decision(&e->due, e->done - 1))
        send_log(e, NULL);
    pl_patience_renew(&e->patience);
    if (e->call && pl_now() - e->reported >= REPORT_EVERY)
        epoch_report_now(e, "train");
    epoch_go_on(e);
}

static void batch_fetched(void *self, const pl_answer_t *answer)
{
    epoch_t *e = self;
    if (epoch_failed(e, answer))
        return;
    const pl_fetch_batch_reply_t *reply = &answer->body->fetch_batch_reply;
    uint32_t batch = reply->batch_idx;
    const pl_how_t how = {.on_answer = batch_done,
                          .context = (void *)(intptr_t)reply->samples};
    const bool step_due = pl_due_step(&e->due, batch);
    pl_train_batch_t msg = {.global_step = pl_due_steps(&e->due, batch) + !step_due,
                            .total_steps = e->total_steps,
                            .shard = pl_due_shard(&e->due, batch),
                            .step_due = step_due,
                            .lr_factor = e->lr_factor,
                            .batch = reply->batch};
    if (!reply->batch)
        pl_fail(&e->failure, PL_EBUG, "the data ended after %u of %u batches", e->done,
                e->due.end);
    else if (e->failure.code == PL_OK
             && pl_call_train_batch(e, e->strategy, &msg, how, &e->failure))
        return;                         /* still pending: the step in the fetch's place */
    e->pending--;
    epoch_go_on(e);
}

/* A stop waits for the optimizer step that the newest micro-batch belongs to. */
static bool may_fetch(const epoch_t *e)
{
    return !e->at_decision && e->fetched < e->due.end && e->pending < e->pace.depth
           && !(e->stopping && (e->fetched == 0 || pl_due_step(&e->due, e->fetched - 1)));
}

static void epoch_pump(epoch_t *e)
{
    pl_fetch_batch_t msg = {.stage = PL_TRAIN};
    while (e->failure.code == PL_OK && may_fetch(e))
        if (pl_call_fetch_batch(e, e->data, &msg, (pl_how_t){.on_answer = batch_fetched},
                                &e->failure)) {
            e->at_decision = pl_due_decision(&e->due, e->fetched);
            e->fetched++;
            e->pending++;
        }
}

/* ---- the end ---- */

static void epoch_finish(epoch_t *e)
{
    pl_call_t *call = e->call;
    char *text = pl_metrics_text(e->newest, &e->failure);
    if (e->done == e->due.end)
        epoch_report(e, "epoch", e->newest);
    else
        epoch_tell(e, "alive", "");                         /* what follows it may fail */
    e->call = NULL;
    if (text)
        pl_reply_train_epoch(call,
                             &(pl_train_epoch_reply_t){.global_step = e->global_step,
                                                       .ended = e->ended || e->stopping,
                                                       .samples = e->samples,
                                                       .whole = e->done == e->due.batches,
                                                       .reason = e->reason,
                                                       .metrics = text});
    else
        pl_call_fail(call, &e->failure);
    pl_free(text);
}

/* Whatever came back last: the next batch, a decision, or the end. */
static void epoch_go_on(epoch_t *e)
{
    if (!e->call)
        return;
    if (e->failure.code == PL_OK && !e->deciding)
        epoch_pump(e);
    if (e->pending)
        return;
    if (e->failure.code != PL_OK) {
        epoch_fail(e, &e->failure);
    } else if (!e->deciding && e->at_decision) {
        e->deciding = true;
        e->decision = DECIDE_LOG;
        e->validated = false;
        epoch_decide(e);
    } else if (!e->deciding) {
        epoch_finish(e);                               /* stopped between two decisions */
    }
}

/* ---- decisions ---- */

static void epoch_wish(epoch_t *e, const pl_ask_callbacks_reply_t *wish)
{
    const pl_ask_callbacks_t msg = {.epoch = e->number, .global_step = e->global_step};
    pl_ask_log(e, &e->asking, &msg, wish, e->newest, &e->failure);
    e->lr_factor *= wish->lr_factor;
    if (!wish->stop || e->stopping)
        return;
    e->stopping = true;
    snprintf(e->reason, sizeof e->reason, "%s", wish->reason);
}

static void decided(void *self, const pl_answer_t *answer)
{
    epoch_t *e = self;
    if (epoch_failed(e, answer))
        return;
    e->pending--;
    if (answer->context)                                    /* a hook's */
        epoch_wish(e, &answer->body->ask_callbacks_reply);
    e->decision++;
    epoch_decide(e);
}

static void validated(void *self, const pl_answer_t *answer)
{
    epoch_t *e = self;
    if (answer->kind == PL_ANSWER_PROGRESS) {
        const pl_evaluate_progress_t *p = &answer->body->evaluate_progress;
        pl_progress_train_epoch(
            e->call, &(pl_train_epoch_progress_t){.event = p->event,
                                                  .global_step = p->global_step,
                                                  .total_steps = e->total_steps,
                                                  .epoch = p->epoch,
                                                  .batch = p->batch,
                                                  .batches = p->batches,
                                                  .metrics = ""});
    }
    if (answer->kind == PL_ANSWER_ERROR && e->stopping
        && answer->error->code == PL_ECANCELLED) {
        e->pending--;
        e->decision = DECIDE_END;              /* a stop does not wait for a validation */
        epoch_decide(e);
        return;
    }
    if (epoch_failed(e, answer))
        return;
    e->pending--;
    e->validated = true;
    pl_metrics_merge(e->newest, answer->body->evaluate_reply.metrics, &e->failure);
    pl_log_metrics_t log = {.epoch = e->number,
                            .global_step = e->global_step,
                            .metrics = answer->body->evaluate_reply.metrics};
    pl_call_log_metrics(e, e->asking.logger, &log, (pl_how_t){0}, &e->failure);
    if (e->call)
        epoch_report(e, "validated", e->newest);
    e->decision++;
    epoch_decide(e);
}

static bool send_hook(epoch_t *e, unsigned point)
{
    json_t *now = json_copy(e->newest);
    pl_ask_callbacks_t msg = {.point = point,
                              .epoch = e->number,
                              .global_step = e->global_step,
                              .total_steps = e->total_steps,
                              .batch = e->done,
                              .batches = e->due.end,
                              .samples = e->samples};
    pl_how_t how = {.on_answer = decided, .context = e};
    bool sent = now && figures_newest(e, now, &e->failure) == PL_OK
                && pl_ask(e, &e->asking, &msg, now, how, &e->failure);
    json_decref(now);
    return now ? sent : (pl_no_memory(&e->failure), false);
}

static bool send_evaluate(epoch_t *e)
{
    pl_evaluate_t msg = {.stage = PL_VALIDATE,
                         .epoch = e->number,
                         .global_step = e->global_step};
    e->evaluating = pl_call_evaluate(e, e->evaluate, &msg,
                                     (pl_how_t){.on_answer = validated}, &e->failure);
    return e->evaluating != 0;
}

/* Sends what e->decision says, where that is due and somebody wants it. */
static bool decision_send(epoch_t *e)
{
    uint32_t batch = e->done - 1;
    bool validate = pl_due_validation(&e->due, batch) && !e->told;
    switch (e->decision) {
    case DECIDE_LOG:
        return (e->done == e->due.end || pl_due_log(&e->due, batch))
               && send_log(e, decided);
    case DECIDE_CALLBACK:
        return pl_due_callback(&e->due, batch) && send_hook(e, PL_HOOK_TRAIN_BATCH_END);
    case DECIDE_VALIDATING:
        return validate && (e->asking.points & PL_AT(VALIDATION_START))
               && send_hook(e, PL_HOOK_VALIDATION_START);
    case DECIDE_VALIDATE: return validate && send_evaluate(e);
    case DECIDE_VALIDATED:
        return e->validated && (e->asking.points & PL_AT(VALIDATION_END))
               && send_hook(e, PL_HOOK_VALIDATION_END);
    case DECIDE_END: break;
    }
    return false;
}

/* One thing of a decision is sent; its answer leads to the next.  What is not due is
 * passed over. */
static void epoch_decide(epoch_t *e)
{
    bool sent = false;
    while (e->failure.code == PL_OK && e->decision < DECIDE_END
           && !(sent = decision_send(e)))
        e->decision++;
    if (sent) {
        e->pending++;
        return;
    }
    e->deciding = false;
    e->at_decision = false;
    pl_pace_paused(&e->pace);
    e->ended = e->options->max_steps > 0
               && e->global_step >= (uint64_t)e->options->max_steps;
    pl_patience_renew(&e->patience);
    epoch_go_on(e);
}

/* ---- the beginning ---- */

static void epoch_begun(void *self, const pl_answer_t *answer)
{
    epoch_t *e = self;
    if (epoch_failed(e, answer))
        return;
    e->pending--;
    uint32_t batches = pl_amount_of(e->options->limit_train_batches,
                                    answer->body->begin_reply.batches);
    if (batches == 0)
        pl_fail(&e->failure, PL_EINVAL,
                "trainer.limit_train_batches leaves none of the %u batches of an epoch",
                answer->body->begin_reply.batches);
    e->total_steps = pl_due_begin(&e->due, e->number, e->global_step, batches);
    pl_patience_begin(&e->patience, e, e->options->step_timeout, epoch_look);
    pl_pace_paused(&e->pace);
    epoch_go_on(e);
}

static void epoch_begin(epoch_t *e)
{
    pl_begin_t msg = {.stage = PL_TRAIN,
                      .epoch = e->number,
                      .part = e->part,
                      .parts = e->parts};
    if (pl_call_begin(e, e->data, &msg, (pl_how_t){.on_answer = epoch_begun},
                      &e->failure))
        e->pending++;
    epoch_unsent(e);
}

static void names_known(void *self, const pl_answer_t *answer)
{
    epoch_t *e = self;
    if (epoch_failed(e, answer))
        return;
    e->pending--;
    pl_figures_name(&e->sums, "train_", answer->body->figure_names_reply.names);
    e->since_log = e->sums;
    e->asked = true;
    epoch_begin(e);
}

static void split_known(void *self, const pl_answer_t *answer)
{
    epoch_t *e = self;
    if (epoch_failed(e, answer))
        return;
    e->pending--;
    e->part = answer->body->process_dataloader_reply.part;
    e->parts = answer->body->process_dataloader_reply.parts;
    pl_figure_names_t msg = {.stage = PL_TRAIN};
    if (pl_call_figure_names(e, e->strategy, &msg, (pl_how_t){.on_answer = names_known},
                             &e->failure))
        e->pending++;
    epoch_unsent(e);
}

static int epoch_train(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    epoch_t *e = self;
    if (e->call || e->pending)
        return pl_fail(err, PL_EBUSY, "an epoch is under way");
    e->number = body->train_epoch.epoch;
    e->lr_factor *= body->train_epoch.lr_factor;
    e->asking.points = body->train_epoch.points;
    e->due.callback_every = body->train_epoch.every_n_steps;
    e->global_step = body->train_epoch.global_step;
    e->due.end = e->fetched = e->done = 0;
    e->deciding = e->at_decision = false;
    e->failure.code = PL_OK;
    pl_figures_clear(&e->sums);
    pl_figures_clear(&e->since_log);
    pl_process_dataloader_t split = {.stage = PL_TRAIN};
    e->call = call;
    if (e->asked)
        epoch_begin(e);
    else if (pl_call_process_dataloader(e, e->strategy, &split,
                                        (pl_how_t){.on_answer = split_known},
                                        &e->failure))
        e->pending++;
    else
        epoch_unsent(e);
    (void)err;
    return PL_OK;
}

static int epoch_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)err;
    epoch_t *e = self;
    if (!e->stopping)
        snprintf(e->reason, sizeof e->reason, "%s", body->stop.reason);
    e->stopping = e->told = true;
    pl_cancel(e, e->evaluating);
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void epoch_release(void *self)
{
    epoch_t *e = self;
    json_decref(e->newest);
}

static const pl_handler_t epoch_handlers[] = {
    PL_ON(start, epoch_start),
    PL_ON(train_epoch, epoch_train),
    PL_ON(stop, epoch_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_epoch_loop = {
    .name = "epoch",
    .help = "train on the batches of one epoch",
    .size = sizeof(epoch_t),
    .role = "loop",
    .level = PL_LEVEL_EPOCH_LOOP,
    .handlers = epoch_handlers,
    .release = epoch_release,
};
