/* replica_steps.c - plans of a replica, forward passes and what comes of them */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/replica_parts.h"
#include "tensor/model.h"

/* ---- plans ---- */

const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r, pl_stage_t stage,
                                         const pl_batch_t *batch, bool accumulate,
                                         pl_error_t *err)
{
    for (int k = 0; k < r->plan_count; k++) {
        const pl_replica_plan_t *p = &r->plan[k];
        if (p->kind == PL_PLAN_BATCH && p->stage == stage && p->size.count == batch->count
            && p->size.length == batch->length && p->accumulate == accumulate)
            return p;
    }
    pl_fail(err, PL_EINVAL, "no plan for a batch of %lld samples of length %lld",
            (long long)batch->count, (long long)batch->length);
    return NULL;
}

const pl_replica_plan_t *pl_replica_plan_of(const pl_replica_t *r, pl_plan_kind_t kind)
{
    for (int k = 0; k < r->plan_count; k++)
        if (r->plan[k].kind == kind)
            return &r->plan[k];
    return NULL;
}

bool pl_replica_keeps_state(const pl_replica_t *r)
{
    return r->job->stage == PL_TRAIN && r->model->state > 0;
}

/* ---- outputs ---- */

/* Memory for a plan's outputs, or NULL when it has none; *failed tells that from no
 * memory. */
static pl_outputs_t *outputs_new(const pl_replica_plan_t *plan, bool *failed,
                                 pl_error_t *err)
{
    pl_outputs_t *outputs = NULL;
    int made = 0, code = PL_OK;
    *failed = false;
    for (int k = 0; k < plan->fetch_count && code == PL_OK; k++) {
        if (plan->fetch[k].kind != PL_FETCH_OUTPUT)
            continue;
        if (!outputs && !(outputs = pl_outputs_new(err)))
            code = PL_ENOMEM;
        else
            code = pl_outputs_add(outputs, plan->fetch[k].name,
                                  plan->output_shape[made++], err);
    }
    if (code == PL_OK)
        return outputs;
    pl_object_unref(outputs);
    *failed = true;
    return NULL;
}

/* Integers become float32, as all outputs are.  NULL is fine. */
static void outputs_filled(const pl_replica_plan_t *plan, pl_outputs_t *outputs)
{
    for (int k = 0; outputs && k < outputs->count; k++) {
        float *data = outputs->output[k].data;
        int64_t count = plan->output_is_int[k] ? pl_elements(outputs->output[k].shape)
                                               : 0;
        for (int64_t i = 0; i < count; i++) {
            int32_t number;
            memcpy(&number, &data[i], sizeof number);
            data[i] = (float)number;
        }
    }
}

/* ---- a forward pass ---- */

typedef struct forward {
    pl_call_t *call;
    const pl_replica_plan_t *plan;
    pl_outputs_t *outputs;                                  /* counted  [none] */
} forward_t;

static void forward_free(forward_t *forward)
{
    pl_object_unref(forward->outputs);
    pl_free(forward);
}

static void forward_answered(void *self, const pl_answer_t *answer)
{
    (void)self;
    forward_t *forward = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (answer->kind == PL_ANSWER_ERROR) {
        pl_call_fail(forward->call, answer->error);
    } else {
        outputs_filled(forward->plan, forward->outputs);
        pl_evaluate_batch_reply_t reply = {
            .figures = answer->body->replay_plan_reply.figures,
            .outputs = forward->outputs ? &forward->outputs->object : NULL};
        pl_reply_evaluate_batch(forward->call, &reply);
    }
    forward_free(forward);
}

static int forward_send(pl_replica_t *r, forward_t *forward,
                        const pl_evaluate_batch_t *msg, pl_error_t *err)
{
    bool failed = false;
    if (msg->stage == PL_PREDICT)
        forward->outputs = outputs_new(forward->plan, &failed, err);
    const pl_replay_plan_t replay = {.plan = forward->plan->number,
                                     .what = "forward",
                                     .seed = (uint64_t)r->job->trainer->seed,
                                     .batch = msg->batch,
                                     .outputs = forward->outputs
                                                    ? &forward->outputs->object
                                                    : NULL};
    const pl_how_t how = {.on_answer = forward_answered, .context = forward};
    return !failed && pl_call_replay_plan(r, r->accelerator, &replay, how, err)
               ? PL_OK
               : err->code;
}

int pl_replica_evaluate(pl_replica_t *r, pl_call_t *call, const pl_evaluate_batch_t *msg,
                        pl_error_t *err)
{
    const pl_replica_plan_t *plan =
        pl_replica_plan(r, msg->stage, (const pl_batch_t *)msg->batch, false, err);
    forward_t *forward = plan ? pl_alloc(sizeof *forward) : NULL;
    if (!forward)
        return plan ? pl_no_memory(err) : err->code;
    *forward = (forward_t){.call = call, .plan = plan};
    int code = forward_send(r, forward, msg, err);
    if (code != PL_OK)
        forward_free(forward);
    return code;
}

/* ---- figures ---- */

/* One a line, as messages.def has it. */
static char *figure_names(const pl_replica_t *r, pl_stage_t stage, pl_error_t *err)
{
    const pl_replica_plan_t *plan = NULL;
    for (int k = 0; k < r->plan_count && !plan; k++)
        if (r->plan[k].stage == stage && r->plan[k].kind == PL_PLAN_BATCH)
            plan = &r->plan[k];
    char *names = pl_strdup("");
    for (int k = 0; plan && names && k < plan->fetch_count; k++) {
        const pl_fetch_t *f = &plan->fetch[k];
        if (f->kind != PL_FETCH_FIGURE)
            continue;
        char *longer = pl_text("%s%s%s\t%d\t%d\t%lld\t%lld\n", names, f->name,
                               f->when & PL_ON_STEP ? "*" : "", f->metric, f->average,
                               (long long)f->sums, (long long)f->columns);
        pl_free(names);
        names = longer;
    }
    if (!names)
        pl_no_memory(err);
    return names;
}

int pl_replica_figure_names(const pl_replica_t *r, pl_call_t *call,
                            const pl_figure_names_t *msg, pl_error_t *err)
{
    char *names = figure_names(r, msg->stage, err);
    if (!names)
        return PL_ENOMEM;
    int code = pl_reply_figure_names(call, &(pl_figure_names_reply_t){.names = names});
    pl_free(names);
    return code;
}
