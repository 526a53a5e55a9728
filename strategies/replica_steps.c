/* replica_steps.c - steps of a replica: plans of batches, replays, what comes of them */
#include <math.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/run.h"
#include "runtime/cargo.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica.h"

/* ---- what a step needs ---- */

const pl_replica_plan_t *pl_replica_plan(const pl_replica_t *r, pl_stage_t stage,
                                         int64_t count, bool accumulate, pl_error_t *err)
{
    for (int k = 0; k < r->plan_count; k++) {
        const pl_replica_plan_t *p = &r->plan[k];
        if (!p->optimizer && p->stage == stage && p->batch_size == count
            && p->accumulate == accumulate)
            return p;
    }
    pl_fail(err, PL_EINVAL, "no plan for a batch of %lld samples", (long long)count);
    return NULL;
}

double pl_replica_lr(const pl_replica_t *r, uint64_t step, uint64_t total_steps,
                     double factor)
{
    const pl_scheduler_ops_t *scheduler = r->scheduler.ops;
    pl_optimizer_t optimizer = {r->optimizer.ops, r->optimizer.self};
    return pl_optimizer_lr(optimizer) * factor
           * scheduler->factor(r->scheduler.self, step - 1, total_steps);
}

/* ---- steps ---- */

uint64_t pl_replica_forward_backward(pl_replica_t *r, const pl_replica_step_t *step,
                                     pl_how_t how, pl_error_t *err)
{
    const pl_replica_plan_t *plan = pl_replica_plan(r, PL_TRAIN, step->batch->count,
                                                    step->accumulate, err);
    if (!plan)
        return 0;
    pl_replay_plan_t msg = {.plan = plan->number,
                            .what = "forward_backward",
                            .seed = (uint64_t)r->job->trainer->seed,
                            .step = step->number,
                            .shard = step->shard,
                            .halts = !step->again,
                            .batch = &step->batch->object};
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err);
}

/* Its plan is the last. */
uint64_t pl_replica_optimizer_step(pl_replica_t *r, uint64_t number, double lr,
                                   pl_how_t how, pl_error_t *err)
{
    float scalars[PL_STEP_SCALARS] = {0};
    pl_optimizer_scalars((pl_optimizer_t){r->optimizer.ops, r->optimizer.self}, lr,
                         number, scalars);
    pl_replay_plan_t msg = {.plan = r->plan[r->plan_count - 1].number,
                            .what = "optimizer_step",
                            .seed = (uint64_t)r->job->trainer->seed,
                            .step = number,
                            .halts = true,
                            .scalars = {scalars, sizeof scalars}};
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err);
}

uint64_t pl_replica_forward(pl_replica_t *r, const pl_replica_plan_t *plan,
                            pl_batch_t *batch, pl_outputs_t *outputs, pl_how_t how,
                            pl_error_t *err)
{
    pl_replay_plan_t msg = {.plan = plan->number,
                            .what = "forward",
                            .seed = (uint64_t)r->job->trainer->seed,
                            .batch = &batch->object,
                            .outputs = outputs ? &outputs->object : NULL};
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err);
}

uint64_t pl_replica_read_gradients(pl_replica_t *r, pl_how_t how, pl_error_t *err)
{
    pl_read_region_t msg = {.region = PL_REGION_GRADS,
                            .count = (uint64_t)r->model->params};
    return pl_call_read_region(r, r->accelerator, &msg, how, err);
}

/* ---- what comes of them ---- */

pl_outputs_t *pl_replica_outputs(const pl_replica_plan_t *plan, bool *failed,
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

void pl_replica_outputs_filled(const pl_replica_plan_t *plan, pl_outputs_t *outputs)
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

char *pl_replica_figure_names(const pl_replica_t *r, pl_stage_t stage, pl_error_t *err)
{
    const pl_replica_plan_t *plan = NULL;
    for (int k = 0; k < r->plan_count && !plan; k++)
        if (r->plan[k].stage == stage && !r->plan[k].optimizer)
            plan = &r->plan[k];
    char *names = pl_strdup("");
    for (int k = 0; plan && names && k < plan->fetch_count; k++) {
        const pl_fetch_t *f = &plan->fetch[k];
        if (f->kind != PL_FETCH_FIGURE)
            continue;
        char *longer = pl_text("%s%s%s\n", names, f->name,
                               f->when & PL_ON_STEP ? "*" : "");
        pl_free(names);
        names = longer;
    }
    if (!names)
        pl_no_memory(err);
    return names;
}

const char *pl_replica_first_bad(const pl_replica_t *r, const pl_floats_t *grads)
{
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (t->region == PL_REGION_PARAMS)
            for (int64_t i = t->offset; i < t->offset + t->count; i++)
                if (!isfinite(grads->data[i]))
                    return t->name;
    }
    return NULL;
}
