/* predict.c - the predict loop: forward every sample of the data, keep the outputs in order */
#include <string.h>

#include "actors/loops/figures.h"
#include "actors/loops/loops.h"
#include "actors/loops/pace.h"
#include "actors/loops/patience.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/cargo.h"

static const int64_t REPORT_EVERY = PL_SECOND / 10;

typedef struct predict {
    const pl_trainer_options_t *options;                    /* of the job that it was started with */
    pl_address_t data, strategy;
    pl_call_t *call;                                        /* NULL: idle */
    int64_t began, reported, samples;                       /* samples: done */
    uint32_t batches, fetched, done;
    int pending;
    bool stopping;
    pl_outcome_t *outcome;
    pl_error_t failure;
    pl_pace_t pace;
    pl_patience_t patience;                                 /* with the next batch to end */
} predict_t;

static void predict_go_on(predict_t *p);

static int predict_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)call, (void)err;
    predict_t *p = self;
    p->options = &((const pl_job_t *)body->start.context)->trainer;
    p->data = pl_peer(self, "data");
    p->strategy = pl_peer(self, "strategy");
    pl_actor_ready(self);
    return PL_OK;
}

static void predict_look(void *self)
{
    predict_t *p = self;
    pl_error_t err;
    if (!p->call || !pl_patience_is_over(&p->patience, p, &err, "batch %u of the prediction", p->done))
        return;
    pl_call_t *call = p->call;
    p->call = NULL;
    pl_call_fail(call, &err);
}

static bool predict_failed(predict_t *p, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        return false;
    if (answer->kind == PL_ANSWER_ERROR) {
        p->pending--;
        if (p->failure.code == PL_OK)
            p->failure = *answer->error;
        predict_go_on(p);
    }
    return true;
}

/* ---- outputs ---- */

/* Room for the samples so far and `more`; outputs begin with the batch axis. */
static int output_append(pl_output_t *all, const pl_output_t *batch, int64_t done, pl_error_t *err)
{
    int64_t each = pl_elements(batch->shape) / batch->shape.dim[0], more = batch->shape.dim[0];
    float *larger = pl_resize(all->data, (size_t)((done + more) * each) * sizeof *larger);
    if (!larger)
        return pl_no_memory(err);
    memcpy(larger + done * each, batch->data, (size_t)(more * each) * sizeof *larger);
    all->data = larger;
    all->shape.dim[0] = done + more;
    return PL_OK;
}

static int outputs_append(predict_t *p, const pl_outputs_t *batch, int64_t samples, pl_error_t *err)
{
    if (!batch || !batch->count)
        return pl_fail(err, PL_EUNSUPPORTED, "the module has no output when predicting: pl_output()");
    pl_outputs_t *all = p->outcome->outputs;
    int code = PL_OK;
    for (int k = 0; k < batch->count && code == PL_OK; k++) {
        pl_shape_t shape = batch->output[k].shape;
        if (shape.rank == 0 || shape.dim[0] != samples)
            return pl_fail(err, PL_EUNSUPPORTED, "output \"%s\" has no value for each of the %lld samples of a batch: "
                           "its first axis must be theirs", batch->output[k].name, (long long)samples);
        shape.dim[0] = 0;
        if (k == all->count)
            code = pl_outputs_add(all, batch->output[k].name, shape, err);
        if (code == PL_OK)
            code = output_append(&all->output[k], &batch->output[k], p->samples, err);
    }
    p->samples += samples;
    return code;
}

/* ---- batches ---- */

static void predict_report(predict_t *p)
{
    if (pl_now() - p->reported < REPORT_EVERY)
        return;
    p->reported = pl_now();
    pl_progress_run(p->call, &(pl_run_progress_t){.event = "predict", .batch = p->done, .batches = p->batches,
                                                  .metrics = ""});
}

static void predict_batch_done(void *self, const pl_answer_t *answer)
{
    predict_t *p = self;
    if (predict_failed(p, answer))
        return;
    p->pending--;
    p->done++;
    pl_pace_ended(&p->pace);
    if (p->failure.code == PL_OK)
        outputs_append(p, (pl_outputs_t *)answer->body->evaluate_batch_reply.outputs, (intptr_t)answer->context,
                       &p->failure);
    pl_patience_renew(&p->patience);
    if (p->call)
        predict_report(p);
    predict_go_on(p);
}

static void predict_fetched(void *self, const pl_answer_t *answer)
{
    predict_t *p = self;
    if (predict_failed(p, answer))
        return;
    pl_evaluate_batch_t msg = {.stage = PL_PREDICT, .batch = answer->body->fetch_batch_reply.batch};
    pl_how_t how = {.on_answer = predict_batch_done, .context = (void *)(intptr_t)answer->body->fetch_batch_reply.samples};
    if (!msg.batch)
        pl_fail(&p->failure, PL_EBUG, "the data ended after %u of %u batches", p->done, p->batches);
    else if (p->failure.code == PL_OK && pl_call_evaluate_batch(p, p->strategy, &msg, how, &p->failure))
        return;
    p->pending--;
    predict_go_on(p);
}

static void predict_end(predict_t *p)
{
    pl_call_t *call = p->call;
    p->call = NULL;
    if (p->failure.code != PL_OK) {
        pl_call_fail(call, &p->failure);
        return;
    }
    p->outcome->stopped = p->stopping;
    p->outcome->seconds = (double)(pl_now() - p->began) / 1e9;
    pl_reply_run(call, &(pl_run_reply_t){.outcome = &p->outcome->object});
}

static void predict_go_on(predict_t *p)
{
    pl_fetch_batch_t msg = {.stage = PL_PREDICT};
    pl_how_t how = {.on_answer = predict_fetched};
    if (!p->call)
        return;
    while (p->failure.code == PL_OK && !p->stopping && p->pending < p->pace.depth && p->fetched < p->batches)
        if (pl_call_fetch_batch(p, p->data, &msg, how, &p->failure)) {
            p->fetched++;
            p->pending++;
        }
    if (p->pending == 0)
        predict_end(p);
}

static void predict_begun(void *self, const pl_answer_t *answer)
{
    predict_t *p = self;
    if (predict_failed(p, answer))
        return;
    p->pending--;
    p->batches = pl_amount_of(p->options->limit_predict_batches, answer->body->begin_reply.batches);
    predict_go_on(p);
}

static void predict_split(void *self, const pl_answer_t *answer)
{
    predict_t *p = self;
    if (predict_failed(p, answer))
        return;
    const pl_process_dataloader_reply_t *reply = &answer->body->process_dataloader_reply;
    pl_begin_t msg = {.stage = PL_PREDICT, .part = reply->part, .parts = reply->parts};
    if (pl_call_begin(p, p->data, &msg, (pl_how_t){.on_answer = predict_begun}, &p->failure))
        return;
    p->pending--;
    predict_go_on(p);
}

static int predict_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body;
    predict_t *p = self;
    if (p->call || p->outcome)
        return pl_fail(err, PL_EBUSY, "predicts once");
    p->outcome = pl_outcome_new(err);
    if (!p->outcome || !(p->outcome->outputs = pl_outputs_new(err)) || !(p->outcome->metrics = pl_strdup("{}")))
        return pl_no_memory(err);
    p->began = pl_now();
    pl_process_dataloader_t msg = {.stage = PL_PREDICT};
    if (!pl_call_process_dataloader(p, p->strategy, &msg, (pl_how_t){.on_answer = predict_split}, err))
        return err->code;
    p->pending = 1;
    p->call = call;
    pl_pace_begin(&p->pace, p->options->depth);
    pl_patience_begin(&p->patience, p, p->options->step_timeout, predict_look);
    return PL_OK;
}

static int predict_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    (void)body, (void)err;
    ((predict_t *)self)->stopping = true;
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void predict_release(void *self)
{
    predict_t *p = self;
    pl_object_unref(p->outcome);
}

static const pl_handler_t predict_handlers[] = {
    PL_ON(start, predict_start),
    PL_ON(run, predict_run),
    PL_ON(stop, predict_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_predict_loop = {
    .name = "predict",
    .help = "forward every sample, keep the outputs",
    .size = sizeof(predict_t),
    .role = "loop",
    .level = PL_LEVEL_FIT_LOOP,
    .handlers = predict_handlers,
    .release = predict_release,
};
