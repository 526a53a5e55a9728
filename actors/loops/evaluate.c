/* evaluate.c - the evaluate loop: forward all batches of a stage, sum the figures */
#include <stdio.h>

#include "actors/loops/figures.h"
#include "actors/loops/loops.h"
#include "actors/loops/pace.h"
#include "actors/loops/patience.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/cargo.h"

static const int64_t REPORT_EVERY = PL_SECOND / 10;

typedef struct evaluate {
    const pl_trainer_options_t *options;                    /* of the job that it was started with */
    pl_address_t data, strategy;

    pl_call_t *call;                                        /* NULL: idle */
    pl_stage_t stage;
    uint32_t epoch, parts_known, part, parts;
    uint64_t global_step;
    uint32_t batches, fetched, done;
    int pending;                                            /* fetches and forwards under way */
    pl_figures_t figures;
    pl_error_t failure;
    pl_pace_t pace;
    pl_patience_t patience;                                 /* with the next batch to end */
    int64_t reported;
} evaluate_t;

static void evaluate_pump(evaluate_t *e);

static int evaluate_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call, (void)err;
    evaluate_t *e = self;
    e->options = &((const pl_job_t *)body->start.context)->trainer;
    e->data = pl_peer(self, "data");
    e->strategy = pl_peer(self, "strategy");
    pl_actor_ready(self);
    return PL_OK;
}

/* ---- the end ---- */

static void evaluate_finish(evaluate_t *e)
{
    pl_call_t *call = e->call;
    json_t *metrics = json_object();
    char *text = NULL;
    if (metrics && pl_figures_put(&e->figures, false, metrics, &e->failure) == PL_OK)
        text = pl_metrics_text(metrics, &e->failure);
    else if (!metrics)
        pl_no_memory(&e->failure);
    json_decref(metrics);
    e->call = NULL;
    if (text)
        pl_reply_evaluate(call, &(pl_evaluate_reply_t){.metrics = text, .batches = e->done});
    else
        pl_call_fail(call, &e->failure);
    pl_free(text);
}

static void evaluate_look(void *self)
{
    evaluate_t *e = self;
    pl_error_t err;
    if (!e->call || !pl_patience_is_over(&e->patience, e, &err, "batch %u of the evaluation after step %llu", e->done,
                                         (unsigned long long)e->global_step))
        return;
    pl_call_t *call = e->call;
    e->call = NULL;
    pl_call_fail(call, &err);
}

/* After a failure nothing new is sent; what is under way comes back first. */
static void evaluate_check(evaluate_t *e)
{
    if (!e->call)
        return;
    if (e->failure.code == PL_OK && e->done < e->batches) {
        evaluate_pump(e);
    } else if (e->pending == 0 && e->failure.code != PL_OK) {
        pl_call_t *call = e->call;
        e->call = NULL;
        pl_call_fail(call, &e->failure);
    } else if (e->pending == 0) {
        evaluate_finish(e);
    }
}

static bool evaluate_failed(evaluate_t *e, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        return false;
    if (answer->kind == PL_ANSWER_ERROR) {
        e->pending--;
        if (e->failure.code == PL_OK)
            e->failure = *answer->error;
        evaluate_check(e);
    }
    return true;
}

/* ---- batches ---- */

static void evaluate_report(evaluate_t *e)
{
    int64_t now = pl_now();
    if (now - e->reported < REPORT_EVERY)
        return;
    e->reported = now;
    pl_progress_evaluate(e->call, &(pl_evaluate_progress_t){
        .event = "validate", .global_step = e->global_step, .epoch = e->epoch, .batch = e->done,
        .batches = e->batches, .metrics = ""});
}

static void evaluate_batch_done(void *self, const pl_answer_t *answer)
{
    evaluate_t *e = self;
    if (evaluate_failed(e, answer))
        return;
    e->pending--;
    e->done++;
    pl_pace_ended(&e->pace);
    pl_figures_add(&e->figures, answer->body->evaluate_batch_reply.figures);
    pl_patience_renew(&e->patience);
    if (e->call)
        evaluate_report(e);
    evaluate_check(e);
}

static void evaluate_fetched(void *self, const pl_answer_t *answer)
{
    evaluate_t *e = self;
    if (evaluate_failed(e, answer))
        return;
    pl_object_t *batch = answer->body->fetch_batch_reply.batch;
    pl_evaluate_batch_t msg = {.stage = e->stage, .batch = batch};
    pl_how_t how = {.on_answer = evaluate_batch_done};
    if (!batch)
        pl_fail(&e->failure, PL_EBUG, "the data ended after %u of %u batches", e->done, e->batches);
    else if (e->failure.code == PL_OK && pl_call_evaluate_batch(e, e->strategy, &msg, how, &e->failure))
        return;                                             /* still pending: the forward in the fetch's place */
    e->pending--;
    evaluate_check(e);
}

static void evaluate_pump(evaluate_t *e)
{
    pl_fetch_batch_t msg = {.stage = e->stage};
    pl_how_t how = {.on_answer = evaluate_fetched};
    while (e->pending < e->pace.depth && e->fetched < e->batches && e->failure.code == PL_OK)
        if (pl_call_fetch_batch(e, e->data, &msg, how, &e->failure)) {
            e->fetched++;
            e->pending++;
        }
    if (e->failure.code != PL_OK && e->pending == 0)
        evaluate_check(e);
}

/* ---- the beginning: how the data are split, what the figures are called, a pass ---- */

static void evaluate_begun(void *self, const pl_answer_t *answer)
{
    evaluate_t *e = self;
    if (evaluate_failed(e, answer))
        return;
    e->pending--;
    e->batches = pl_amount_of(e->options->limit_val_batches, answer->body->begin_reply.batches);
    evaluate_check(e);
}

static void evaluate_named(void *self, const pl_answer_t *answer)
{
    static const char *const prefixes[] = {"train_", "val_", "test_", "predict_"};
    evaluate_t *e = self;
    if (evaluate_failed(e, answer))
        return;
    pl_figures_name(&e->figures, prefixes[e->stage], answer->body->figure_names_reply.names);
    pl_begin_t msg = {.stage = e->stage, .epoch = e->epoch, .part = e->part, .parts = e->parts};
    if (pl_call_begin(e, e->data, &msg, (pl_how_t){.on_answer = evaluate_begun}, &e->failure))
        return;
    e->pending--;
    evaluate_check(e);
}

static void evaluate_split(void *self, const pl_answer_t *answer)
{
    evaluate_t *e = self;
    if (evaluate_failed(e, answer))
        return;
    e->part = answer->body->process_dataloader_reply.part;
    e->parts = answer->body->process_dataloader_reply.parts;
    pl_figure_names_t msg = {.stage = e->stage};
    if (pl_call_figure_names(e, e->strategy, &msg, (pl_how_t){.on_answer = evaluate_named}, &e->failure))
        return;
    e->pending--;
    evaluate_check(e);
}

static int evaluate_evaluate(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    evaluate_t *e = self;
    if (e->call || e->pending)
        return pl_fail(err, PL_EBUSY, "an evaluation is under way");
    e->stage = body->evaluate.stage;
    e->epoch = body->evaluate.epoch;
    e->global_step = body->evaluate.global_step;
    e->batches = e->fetched = e->done = 0;
    e->failure.code = PL_OK;
    e->reported = 0;
    pl_process_dataloader_t msg = {.stage = e->stage};
    if (!pl_call_process_dataloader(e, e->strategy, &msg, (pl_how_t){.on_answer = evaluate_split}, err))
        return err->code;
    e->pending = 1;
    e->call = call;
    pl_pace_begin(&e->pace, e->options->depth);
    pl_patience_begin(&e->patience, e, e->options->step_timeout, evaluate_look);
    return PL_OK;
}

static void evaluate_cancel(void *self, pl_call_t *call)
{
    evaluate_t *e = self;
    if (pl_is_life(self, call)) {
        pl_actor_end(self, NULL);
    } else if (call == e->call && e->failure.code == PL_OK) {
        pl_fail(&e->failure, PL_ECANCELLED, "the evaluation was cancelled");
        evaluate_check(e);
    }
}

static const pl_handler_t evaluate_handlers[] = {
    PL_ON(start, evaluate_start),
    PL_ON(evaluate, evaluate_evaluate),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_evaluate_loop = {
    .name = "evaluate",
    .help = "forward all batches of a stage",
    .size = sizeof(evaluate_t),
    .role = "loop",
    .level = PL_LEVEL_EVAL_LOOP,
    .handlers = evaluate_handlers,
    .on_cancel = evaluate_cancel,
};
