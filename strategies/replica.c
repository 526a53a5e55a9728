/* replica.c - a whole copy of the module on one device: its graphs, plans and weights */
#include "strategies/replica.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/options.h"
#include "strategies/optimizers/optimizer.h"
#include "tensor/model.h"

/* ---- calls that together answer one ---- */

/* True when the last of them has ended well; the first failure ends the strategy's
 * call. */
static bool all_ended(pl_replica_t *r, const pl_answer_t *answer)
{
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return false;
    if (answer->kind == PL_ANSWER_ERROR && r->failure.code == PL_OK)
        r->failure = *answer->error;
    if (--r->pending > 0)
        return false;
    if (r->failure.code == PL_OK)
        return true;
    pl_call_fail(r->waiting, &r->failure);
    r->waiting = NULL;
    return false;
}

static int begin_calls(pl_replica_t *r, pl_call_t *call, pl_error_t *err)
{
    if (r->pending)
        return pl_fail(err, PL_EBUSY,
                       "the strategy is still setting up, exporting or importing");
    r->waiting = call;
    r->failure.code = PL_OK;
    return PL_OK;
}

static int made_call(pl_replica_t *r, uint64_t call, const pl_error_t *err)
{
    r->pending += call != 0;
    return call ? PL_OK : err->code;
}

/* All calls are made, or those before a failure: these end first, then the strategy's
 * call fails. */
static int made_all(pl_replica_t *r, int code, const pl_error_t *err)
{
    if (!r->pending)
        return code;
    if (code != PL_OK)
        r->failure = *err;
    return PL_OK;
}

/* ---- describing ---- */

static int plan_keep_output(pl_replica_plan_t *plan, int k, const pl_fetch_t *fetch,
                            const pl_value_t *value, pl_error_t *err)
{
    if (k >= PL_FIELDS)
        return pl_fail(err, PL_EUNSUPPORTED, "more than %d outputs", PL_FIELDS);
    if (plan->stage == PL_PREDICT && value->dtype != PL_F32 && value->dtype != PL_I32)
        return pl_fail(err, PL_EUNSUPPORTED, "output \"%s\" is neither float32 nor int32",
                       fetch->name);
    plan->output_shape[k] = value->shape;
    plan->output_is_int[k] = value->dtype == PL_I32;
    return PL_OK;
}

static int plan_keep_fetches(pl_replica_plan_t *plan, const pl_graph_t *g,
                             pl_error_t *err)
{
    plan->fetch = pl_alloc_array((size_t)g->fetch_count, sizeof *plan->fetch);
    if (!plan->fetch)
        return pl_no_memory(err);
    if (g->fetch_count)
        memcpy(plan->fetch, g->fetch, (size_t)g->fetch_count * sizeof *plan->fetch);
    plan->fetch_count = g->fetch_count;
    int outputs = 0, code = PL_OK;
    for (int k = 0; k < g->fetch_count && code == PL_OK; k++)
        if (g->fetch[k].kind == PL_FETCH_OUTPUT)
            code = plan_keep_output(plan, outputs++, &g->fetch[k],
                                    &g->value[g->fetch[k].value], err);
    return code;
}

static pl_graph_t *describe(pl_replica_t *r, const pl_replica_plan_t *plan,
                            pl_error_t *err)
{
    const pl_module_ops_t *module = r->module.ops;
    pl_graph_t *g =
        pl_graph_new(r->model, plan->stage, r->layout->stage[plan->stage].field,
                     r->layout->stage[plan->stage].field_count, plan->batch_size, err);
    if (!g)
        return NULL;
    module->step(g, r->module.self, plan->stage);
    if (pl_graph_check(g, err) == PL_OK)
        return g;
    pl_pass(err, "module %s", module->name);
    pl_graph_free(g);
    return NULL;
}

/* Gradients come when every stage is described: from then on no tensor can be added. */
static int complete(const pl_replica_t *r, const pl_replica_plan_t *plan, pl_graph_t *g,
                    pl_error_t *err)
{
    int code = PL_OK;
    if (plan->stage == PL_TRAIN)
        code = pl_graph_gradients(g, (double)r->layout->stage[PL_TRAIN].batch_size,
                                  plan->accumulate, err);
    if (code == PL_OK)
        pl_graph_prune(g);
    return code;
}

static pl_graph_t *describe_optimizer(pl_replica_t *r, pl_error_t *err)
{
    pl_optimizer_t optimizer = {r->optimizer.ops, r->optimizer.self};
    return pl_optimizer_graph(optimizer, r->model,
                              (double)r->layout->stage[PL_TRAIN].batch_size,
                              r->job->trainer->gradient_clip_val, err);
}

static int plan_add(pl_replica_t *r, pl_stage_t stage, int64_t batch_size,
                    bool accumulate, pl_error_t *err)
{
    if (batch_size == 0)
        return PL_OK;
    if (r->plan_count == PL_PLANS_MOST)
        return pl_fail(err, PL_EBUG, "more than %d plans", PL_PLANS_MOST);
    r->plan[r->plan_count++] = (pl_replica_plan_t){.stage = stage,
                                                   .batch_size = batch_size,
                                                   .accumulate = accumulate};
    return PL_OK;
}

/* The order matters: parameters arise in the first graph, the full training batch's. */
static int plans_list(pl_replica_t *r, pl_error_t *err)
{
    static const pl_stage_t stages[] = {PL_TRAIN, PL_VALIDATE, PL_TEST, PL_PREDICT};
    int code = PL_OK;
    for (int s = 0; s < 4 && code == PL_OK; s++) {
        if (!r->layout->stage[stages[s]].present)
            continue;
        const int64_t sizes[PL_SIZES] = {r->layout->stage[stages[s]].batch_size,
                                         r->layout->stage[stages[s]].ragged};
        for (int k = 0; k < PL_SIZES && code == PL_OK; k++) {
            code = plan_add(r, stages[s], sizes[k], false, err);
            if (code == PL_OK && stages[s] == PL_TRAIN
                && r->job->trainer->accumulate_grad_batches > 1)
                code = plan_add(r, stages[s], sizes[k], true, err);
        }
    }
    return code;
}

/* ---- setup ---- */

static void setup_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    if (answer->kind == PL_ANSWER_REPLY && r->pending > 1)
        pl_progress_setup(r->waiting, &(pl_setup_progress_t){0});  /* it goes on */
    if (all_ended(r, answer)) {
        int64_t parameters = 0;
        for (int k = 0; k < r->model->count; k++)
            if (r->model->tensor[k].region == PL_REGION_PARAMS)
                parameters += r->model->tensor[k].count;
        pl_reply_setup(r->waiting, &(pl_setup_reply_t){.parameters = (uint64_t)parameters,
                                                       .does_io = r->does_io});
    }
}

static void compile_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_plan_t *plan = answer->context;
    if (answer->kind == PL_ANSWER_REPLY)
        plan->number = answer->body->compile_reply.plan;
    setup_answered(self, answer);
}

static int call_allocate(pl_replica_t *r, pl_region_t region, int64_t count,
                         pl_error_t *err)
{
    pl_allocate_t msg = {.region = region, .count = (uint64_t)count};
    pl_how_t how = {.on_answer = setup_answered};
    return made_call(r, pl_call_allocate(r, r->accelerator, &msg, how, err), err);
}

static int call_compile(pl_replica_t *r, pl_replica_plan_t *plan, pl_graph_t *g,
                        pl_error_t *err)
{
    static const char *const names[] = {"train", "validate", "test", "predict"};
    int code = plan_keep_fetches(plan, g, err);
    if (code != PL_OK) {
        pl_graph_free(g);
        return code;
    }
    pl_graph_holder_t *holder = pl_graph_hold(&g, err);
    if (!holder)
        return PL_ENOMEM;
    pl_compile_t msg = {.name = plan->optimizer ? "optimizer" : names[plan->stage],
                        .graph = &holder->object};
    pl_how_t how = {.on_answer = compile_answered, .context = plan};
    code = made_call(r, pl_call_compile(r, r->accelerator, &msg, how, err), err);
    pl_object_unref(holder);
    return code;
}

static int call_first_weights(pl_replica_t *r, pl_region_t region, int64_t count,
                              pl_error_t *err)
{
    pl_floats_t *floats = pl_floats_new((size_t)count, err);
    if (!floats)
        return PL_ENOMEM;
    pl_model_init(r->model, region, r->job->trainer->seed, floats->data);
    pl_write_region_t msg = {.region = region, .floats = &floats->object};
    pl_how_t how = {.on_answer = setup_answered};
    int code = made_call(r, pl_call_write_region(r, r->accelerator, &msg, how, err), err);
    pl_object_unref(floats);
    return code;
}

static int parts_bind(pl_replica_t *r, pl_error_t *err)
{
    const pl_part_request_t module = {.role = "module",
                                      .path = "module",
                                      .facts = r->facts};
    const pl_part_request_t optimizer = {.role = "optimizer", .path = "optimizer"};
    const pl_part_request_t scheduler = {.role = "scheduler",
                                         .path = "scheduler",
                                         .automatic = "constant"};
    int code = pl_options_part(r->job->options, &module, &r->module, err);
    if (code != PL_OK || r->job->stage != PL_TRAIN)
        return code;
    code = pl_options_part(r->job->options, &optimizer, &r->optimizer, err);
    return code == PL_OK
               ? pl_options_part(r->job->options, &scheduler, &r->scheduler, err)
               : code;
}

/* Regions first, because plans refer to them; the accelerator takes calls in order. */
static int calls_regions(pl_replica_t *r, pl_error_t *err)
{
    int code = call_allocate(r, PL_REGION_PARAMS, r->model->params, err);
    if (code == PL_OK)
        code = call_allocate(r, PL_REGION_STATE, r->model->state, err);
    if (code != PL_OK || r->job->stage != PL_TRAIN)
        return code;
    code = call_allocate(r, PL_REGION_GRADS, r->model->params + 2, err);
    int slots = pl_optimizer_slots((pl_optimizer_t){r->optimizer.ops, r->optimizer.self});
    for (int k = 0; k < slots && code == PL_OK; k++)
        code = call_allocate(r, PL_REGION_SLOT0 + k, r->model->params, err);
    return code;
}

static int setup_calls(pl_replica_t *r, pl_error_t *err)
{
    pl_graph_t *graph[PL_PLANS_MOST] = {0};
    int code = plans_list(r, err), described = 0;
    while (code == PL_OK && described < r->plan_count)
        if ((graph[described] = describe(r, &r->plan[described], err)))
            described++;
        else
            code = err->code;
    for (int k = 0; k < described && code == PL_OK; k++)
        code = complete(r, &r->plan[k], graph[k], err);
    pl_model_freeze(r->model);
    if (code == PL_OK && r->job->stage == PL_TRAIN
        && (code = plan_add(r, PL_TRAIN, -1, false, err)) == PL_OK) {
        r->plan[described].optimizer = true;
        graph[described] = describe_optimizer(r, err);
        code = graph[described] ? PL_OK : err->code;
        described += graph[described] != NULL;
    }
    if (code == PL_OK)
        code = calls_regions(r, err);
    for (int k = 0; k < described; k++)
        if (code == PL_OK)
            code = call_compile(r, &r->plan[k], graph[k], err);
        else
            pl_graph_free(graph[k]);
    if (code == PL_OK)
        code = call_first_weights(r, PL_REGION_PARAMS, r->model->params, err);
    if (code == PL_OK)
        code = call_first_weights(r, PL_REGION_STATE, r->model->state, err);
    return made_all(r, code, err);
}

int pl_replica_setup(pl_replica_t *r, pl_call_t *call, const pl_setup_t *setup,
                     bool does_io, pl_error_t *err)
{
    if (r->model)
        return pl_fail(err, PL_ESTATE, "the strategy is set up already");
    int code = begin_calls(r, call, err);
    if (code != PL_OK)
        return code;
    r->does_io = does_io;
    r->job = pl_object_ref(setup->job);
    r->layout = pl_object_ref(setup->layout);
    r->facts = pl_strdup(setup->facts);
    r->accelerator = pl_peer(r, "accelerator");
    r->model = pl_model_new(err);
    code = r->facts && r->model ? parts_bind(r, err) : pl_no_memory(err);
    return code == PL_OK ? setup_calls(r, err) : code;
}

void pl_replica_release(pl_replica_t *r)
{
    for (int k = 0; k < r->plan_count; k++)
        pl_free(r->plan[k].fetch);
    pl_model_free(r->model);
    pl_instance_release(&r->module);
    pl_instance_release(&r->optimizer);
    pl_instance_release(&r->scheduler);
    pl_object_unref(r->read[0]);
    pl_object_unref(r->read[1]);
    pl_free(r->facts);
    pl_object_unref(r->layout);
    pl_object_unref(r->job);
}

/* ---- weights ---- */

static int weights_collect(const pl_replica_t *r, pl_weights_t *weights, pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < r->model->count && code == PL_OK; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        const pl_floats_t *from = r->read[t->region == PL_REGION_STATE];
        code = pl_weights_add(weights, t->name, t->shape, from->data + t->offset, err);
    }
    weights->facts = pl_strdup(r->facts);
    weights->module = pl_options_get(r->job->options, "module");
    return code == PL_OK && !(weights->facts && weights->module) ? pl_no_memory(err)
                                                                 : code;
}

/* Answers `export_weights` when both regions are here. */
static void read_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_floats_t **into = answer->context;
    if (answer->kind == PL_ANSWER_REPLY)
        *into = pl_object_ref(answer->body->read_region_reply.floats);
    if (!all_ended(r, answer))
        return;
    pl_error_t err = {0};
    pl_weights_t *weights = pl_weights_new(&err);
    if (weights && weights_collect(r, weights, &err) == PL_OK)
        pl_reply_export_weights(r->waiting, &(pl_export_weights_reply_t){
                                                .weights = &weights->object});
    else
        pl_call_fail(r->waiting, &err);
    pl_object_unref(weights);
}

static int call_read(pl_replica_t *r, pl_region_t region, int64_t count,
                     pl_floats_t **into, pl_error_t *err)
{
    pl_read_region_t msg = {.region = region, .count = (uint64_t)count};
    pl_how_t how = {.on_answer = read_answered, .context = into};
    pl_object_unref(*into);
    *into = NULL;
    return made_call(r, pl_call_read_region(r, r->accelerator, &msg, how, err), err);
}

int pl_replica_export(pl_replica_t *r, pl_call_t *call, pl_error_t *err)
{
    int code = begin_calls(r, call, err);
    if (code != PL_OK)
        return code;
    code = call_read(r, PL_REGION_PARAMS, r->model->params, &r->read[0], err);
    if (code == PL_OK)
        code = call_read(r, PL_REGION_STATE, r->model->state, &r->read[1], err);
    return made_all(r, code, err);
}

static void import_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    if (all_ended(r, answer))
        pl_reply_import_weights(r->waiting, &(pl_import_weights_reply_t){0});
}

/* Most often they are in the model's order: `near` is looked at first. */
static const pl_output_t *weights_find(const pl_weights_t *weights, const char *name,
                                       int near)
{
    for (int i = 0; i < weights->count; i++) {
        const pl_output_t *tensor = &weights->tensor[(near + i) % weights->count];
        if (!strcmp(tensor->name, name))
            return tensor;
    }
    return NULL;
}

static int import_fill(const pl_replica_t *r, const pl_weights_t *weights,
                       pl_floats_t *const into[2], pl_error_t *err)
{
    char have[64], want[64];
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        const pl_output_t *found = weights_find(weights, t->name, k);
        if (!found)
            return pl_fail(
                err, PL_EFORMAT,
                "the weights have no tensor \"%s\": they are of another module", t->name);
        if (!pl_same_shape(found->shape, t->shape))
            return pl_fail(err, PL_EFORMAT,
                           "tensor \"%s\" of the weights is %s, the module's is %s",
                           t->name, pl_shape_text(found->shape, have),
                           pl_shape_text(t->shape, want));
        memcpy(into[t->region == PL_REGION_STATE]->data + t->offset, found->data,
               (size_t)t->count * sizeof(float));
    }
    if (weights->count > r->model->count)
        return pl_fail(
            err, PL_EFORMAT,
            "the weights have %d tensors, the module %d: they are of another module",
            weights->count, r->model->count);
    return PL_OK;
}

static int import_write(pl_replica_t *r, pl_floats_t *const from[2], pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < 2 && code == PL_OK; k++) {
        pl_write_region_t msg = {.region = k ? PL_REGION_STATE : PL_REGION_PARAMS,
                                 .floats = &from[k]->object};
        pl_how_t how = {.on_answer = import_answered};
        code = made_call(r, pl_call_write_region(r, r->accelerator, &msg, how, err), err);
    }
    return made_all(r, code, err);
}

int pl_replica_import(pl_replica_t *r, pl_call_t *call, const pl_weights_t *weights,
                      pl_error_t *err)
{
    pl_floats_t *into[2] = {pl_floats_new((size_t)r->model->params, err),
                            pl_floats_new((size_t)r->model->state, err)};
    int code = into[0] && into[1] ? import_fill(r, weights, into, err) : PL_ENOMEM;
    if (code == PL_OK)
        code = begin_calls(r, call, err);
    if (code == PL_OK)
        code = import_write(r, into, err);
    pl_object_unref(into[0]);
    pl_object_unref(into[1]);
    return code;
}
