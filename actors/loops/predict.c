/* predict.c - the predict loop: forward every sample of the data, keep the outputs in
 * order */
#include <stdio.h>
#include <string.h>

#include "actors/loops/loops.h"
#include "actors/loops/walk.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

typedef struct predict {
    pl_walk_t walk;                                         /* first: see walk.h */
    int64_t began, samples;                                 /* samples: done */
    pl_outcome_t *outcome;
} predict_t;

/* ---- outputs ---- */

/* Room for the samples so far and `more`; outputs begin with the batch axis. */
static int output_append(pl_output_t *all, const pl_output_t *batch, int64_t done,
                         pl_error_t *err)
{
    int64_t each = pl_elements(batch->shape) / batch->shape.dim[0],
            more = batch->shape.dim[0];
    float *larger = pl_resize(all->data, (size_t)((done + more) * each) * sizeof *larger);
    if (!larger)
        return pl_no_memory(err);
    memcpy(larger + done * each, batch->data, (size_t)(more * each) * sizeof *larger);
    all->data = larger;
    all->shape.dim[0] = done + more;
    return PL_OK;
}

static int outputs_append(predict_t *p, const pl_outputs_t *batch, int64_t samples,
                          pl_error_t *err)
{
    if (!batch || !batch->count)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "the module has no output when predicting: pl_output()");
    pl_outputs_t *all = p->outcome->outputs;
    int code = PL_OK;
    for (int k = 0; k < batch->count && code == PL_OK; k++) {
        pl_shape_t shape = batch->output[k].shape;
        if (shape.rank == 0 || shape.dim[0] != samples)
            return pl_fail(
                err, PL_EUNSUPPORTED,
                "output \"%s\" has no value for each of the %lld samples of a batch: "
                "its first axis must be theirs",
                batch->output[k].name, (long long)samples);
        shape.dim[0] = 0;
        if (k == all->count)
            code = pl_outputs_add(all, batch->output[k].name, shape, err);
        if (code == PL_OK)
            code = output_append(&all->output[k], &batch->output[k], p->samples, err);
    }
    p->samples += samples;
    return code;
}

/* ---- the walk ---- */

static void predict_batch(pl_walk_t *walk, const pl_evaluate_batch_reply_t *reply,
                          int64_t samples)
{
    outputs_append((predict_t *)walk, (pl_outputs_t *)reply->outputs, samples,
                   &walk->pass.failure);
}

static void predict_report(pl_walk_t *walk)
{
    pl_progress_run(walk->pass.call, &(pl_run_progress_t){.event = "predict",
                                                          .batch = walk->pass.done,
                                                          .batches = walk->pass.batches,
                                                          .metrics = ""});
}

static void predict_end(pl_walk_t *walk, pl_call_t *call)
{
    predict_t *p = (predict_t *)walk;
    p->outcome->stopped = walk->stopping;
    p->outcome->seconds = (double)(pl_now() - p->began) / 1e9;
    pl_reply_run(call, &(pl_run_reply_t){.outcome = &p->outcome->object});
}

static int predict_run(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    static const pl_walk_ops_t ops = {.on_batch = predict_batch,
                                      .report = predict_report,
                                      .end = predict_end};
    (void)body;
    predict_t *p = self;
    if (p->outcome)
        return pl_fail(err, PL_EBUSY, "predicts once");
    p->outcome = pl_outcome_new(err);
    if (!p->outcome || !(p->outcome->outputs = pl_outputs_new(err))
        || !(p->outcome->metrics = pl_strdup("{}")))
        return pl_no_memory(err);
    p->began = pl_now();
    p->walk.ops = &ops;
    p->walk.pass.stage = PL_PREDICT;
    p->walk.most = UINT32_MAX;
    p->walk.limit = p->walk.pass.options->limit_predict_batches;
    snprintf(p->walk.what, sizeof p->walk.what, "the prediction");
    pl_walk_begin(&p->walk, call);
    return PL_OK;
}

static int predict_stop(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    (void)body, (void)err;
    ((predict_t *)self)->walk.stopping = true;
    return pl_reply_stop(call, &(pl_stop_reply_t){0});
}

static void predict_release(void *self)
{
    predict_t *p = self;
    pl_object_unref(p->outcome);
}

static const pl_handler_t predict_handlers[] = {
    PL_ON(start, pl_walk_start),
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
