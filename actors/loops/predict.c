/* predict.c - the predict loop: forwards every sample of the data and keeps the outputs
 * in order */
#include <stdio.h>
#include <string.h>

#include "actors/loops/hooks.h"
#include "actors/loops/loops.h"
#include "actors/loops/forward_loop.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

typedef struct predict_loop {
    pl_forward_loop_t loop;       /* first: see forward_loop.h */
    pl_call_t *call;              /* the run, before and after the forward pass  [NULL] */
    pl_hooks_t hooks;
    json_t *metrics;                                        /* none: for pl_hooks_run() */
    uint32_t hooked;                                        /* batches */
    int64_t began, samples;                                 /* samples: kept */
    bool stopped;
    pl_outcome_t *outcome;
} predict_loop_t;

/* ---- outputs ---- */

/* Adds the outputs of a batch; the first axis counts samples. */
static int outputs_append(predict_loop_t *p, const pl_outputs_t *batch, pl_error_t *err)
{
    pl_outputs_t *all = p->outcome->outputs;
    for (int k = 0; k < batch->count; k++) {
        const pl_output_t *from = &batch->output[k];
        const int64_t more = from->shape.dim[0],
                      per_sample = pl_elements(from->shape) / more,
                      count = p->samples + more;
        pl_shape_t shape = from->shape;
        shape.dim[0] = 0;
        if (k == all->count && pl_outputs_add(all, from->name, shape, err) != PL_OK)
            return err->code;
        float *larger = pl_resize(all->output[k].data,
                                  (size_t)(count * per_sample) * sizeof *larger);
        if (!larger)
            return pl_no_memory(err);
        memcpy(larger + p->samples * per_sample, from->data,
               (size_t)(more * per_sample) * sizeof *larger);
        all->output[k].data = larger;
        all->output[k].shape.dim[0] = count;
    }
    p->samples += batch->output[0].shape.dim[0];
    return PL_OK;
}

/* ---- the forward pass ---- */

/* The outputs of a batch are kept, unless a callback says that they are not needed. */
static void batch_hooked(void *self, const pl_answer_t *answer)
{
    predict_loop_t *p = self;
    pl_batch_iter_t *iter = &p->loop.iter;
    pl_outputs_t *outputs = answer->context;
    if (!pl_batch_iter_no_reply(iter, answer)) {
        const pl_run_hook_reply_t *request = &answer->body->run_hook_reply;
        iter->pending--;
        iter->stopping = iter->stopping || request->stop;
        if (!request->skip && iter->failure.code == PL_OK)
            outputs_append(p, outputs, &iter->failure);
        pl_batch_iter_continue(iter);
    }
    if (answer->kind == PL_ANSWER_REPLY || answer->kind == PL_ANSWER_ERROR)
        pl_object_unref(outputs);
}

static void predict_batch(pl_forward_loop_t *loop, const pl_evaluate_batch_reply_t *reply)
{
    predict_loop_t *p = (predict_loop_t *)loop;
    pl_batch_iter_t *iter = &loop->iter;
    pl_outputs_t *outputs = (pl_outputs_t *)reply->outputs;
    if (!outputs || !outputs->count) {
        pl_fail(&iter->failure, PL_EUNSUPPORTED,
                "the module has no output in the stage predict: add one with "
                "pl_output()");
        return;
    }
    for (int k = 0; k < outputs->count; k++) {
        const pl_shape_t shape = outputs->output[k].shape;
        if (shape.rank > 0 && shape.dim[0] == reply->samples)
            continue;
        pl_fail(&iter->failure, PL_EUNSUPPORTED,
                "the first axis of output \"%s\" must have the %lld samples of a batch",
                outputs->output[k].name, (long long)reply->samples);
        return;
    }
    if (!(p->hooks.points & PL_AT(PREDICT_BATCH_END))) {
        outputs_append(p, outputs, &iter->failure);
        return;
    }
    pl_run_hook_t msg = {.point = PL_HOOK_PREDICT_BATCH_END,
                         .batch = ++p->hooked,
                         .batches = iter->batches,
                         .outputs = &outputs->object};
    const pl_how_t how = {.on_answer = batch_hooked, .context = pl_object_ref(outputs)};
    if (pl_hooks_run(p, &p->hooks, &msg, p->metrics, how, &iter->failure))
        iter->pending++;
    else
        pl_object_unref(outputs);
}

static void predict_report(pl_forward_loop_t *loop)
{
    pl_progress_run(loop->iter.call, &(pl_run_progress_t){.event = PL_RUN_EVENT_PREDICT,
                                                          .batch = loop->iter.done,
                                                          .batches = loop->iter.batches,
                                                          .metrics = ""});
}

/* ---- the run ---- */

static void predict_ended(void *self, const pl_answer_t *answer)
{
    predict_loop_t *p = self;
    if (pl_loop_no_reply(&p->call, answer))
        return;
    p->outcome->stopped = p->stopped;
    p->outcome->seconds = (double)(pl_now() - p->began) / 1e9;
    pl_reply_run(p->call, &(pl_run_reply_t){.outcome = &p->outcome->object});
    p->call = NULL;
}

static void predict_end(pl_forward_loop_t *loop, pl_call_t *call)
{
    predict_loop_t *p = (predict_loop_t *)loop;
    pl_error_t err = {0};
    p->stopped = p->stopped || loop->iter.stopping;
    pl_run_hook_t msg = {.point = PL_HOOK_PREDICT_END,
                         .outputs = &p->outcome->outputs->object};
    p->call = call;
    if (!pl_hooks_run(p, &p->hooks, &msg, p->metrics,
                      (pl_how_t){.on_answer = predict_ended}, &err))
        pl_loop_fail(&p->call, &err);
}

static void predict_begun(void *self, const pl_answer_t *answer)
{
    predict_loop_t *p = self;
    if (pl_loop_no_reply(&p->call, answer))
        return;
    pl_call_t *call = p->call;
    p->call = NULL;
    /* Ranks agree on answers only when no other call is in flight. */
    if (!pl_is_nobody(p->hooks.coordinator) && p->hooks.points & PL_AT(PREDICT_BATCH_END))
        p->loop.iter.depth = (pl_pipeline_depth_t){.is_fixed = true, .batches = 1};
    p->loop.iter.stopping |= answer->body->run_hook_reply.stop;
    pl_forward_loop_begin(&p->loop, call);
}

static void predict_hooks_known(void *self, const pl_answer_t *answer)
{
    predict_loop_t *p = self;
    pl_error_t err = {0};
    pl_run_hook_t msg = {.point = PL_HOOK_PREDICT_START};
    if (pl_loop_no_reply(&p->call, answer))
        return;
    p->hooks.points = answer->body->callback_hooks_reply.points;
    if (!pl_hooks_run(p, &p->hooks, &msg, p->metrics,
                      (pl_how_t){.on_answer = predict_begun}, &err))
        pl_loop_fail(&p->call, &err);
}

static int predict_run(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    static const pl_forward_loop_ops_t ops = {.on_batch = predict_batch,
                                              .report = predict_report,
                                              .end = predict_end,
                                              .ends_early = true};
    (void)body;
    predict_loop_t *p = self;
    if (p->outcome)
        return pl_fail(err, PL_EBUSY, "the loop has already run");
    p->outcome = pl_outcome_new(err);
    p->metrics = json_object();
    if (!p->outcome || !p->metrics || !(p->outcome->outputs = pl_outputs_new(err))
        || !(p->outcome->metrics = pl_strdup("{}")))
        return pl_no_memory(err);
    pl_hooks_init(&p->hooks, self);
    if (!pl_hooks_query(p, &p->hooks, (pl_how_t){.on_answer = predict_hooks_known}, err))
        return err->code;
    p->call = call;
    p->began = pl_now();
    p->loop.ops = &ops;
    p->loop.iter.stage = PL_PREDICT;
    p->loop.max = UINT32_MAX;
    p->loop.limit = p->loop.iter.options->limit_predict_batches;
    snprintf(p->loop.what, sizeof p->loop.what, "the prediction");
    return PL_OK;
}

static void predict_release(void *self)
{
    predict_loop_t *p = self;
    json_decref(p->metrics);
    pl_hooks_release(&p->hooks);
    pl_object_unref(p->outcome);
}

static const pl_handler_t predict_handlers[] = {
    PL_ON(start, pl_forward_loop_start),
    PL_ON(run, predict_run),
    PL_ON(stop, pl_batch_iter_stop),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_predict_loop = {
    .name = "predict",
    .help = "forwards every sample and keeps the outputs",
    .size = sizeof(predict_loop_t),
    .role = "loop",
    .level = PL_LEVEL_FIT_LOOP,
    .handlers = predict_handlers,
    .release = predict_release,
};
