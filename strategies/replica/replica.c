/* replica.c - a whole copy of the module on one device: its setup, and its table
 *
 * The base of strategies that keep the whole model on each rank. They start, answer
 * role and process_dataloader, and override the calls that they do in another way. */
#include <string.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/options.h"
#include "base/random.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/precision.h"

/* ---- calls that together answer one ---- */

bool pl_replica_all_ended(pl_replica_calls_t *calls, const pl_answer_t *answer)
{
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return false;
    if (answer->kind == PL_ANSWER_ERROR && calls->failure.code == PL_OK)
        calls->failure = *answer->error;
    if (--calls->pending > 0)
        return false;
    if (calls->failure.code == PL_OK)
        return true;
    if (calls->waiting)
        pl_call_fail(calls->waiting, &calls->failure);
    calls->waiting = NULL;
    return false;
}

int pl_replica_begin_calls(pl_replica_calls_t *calls, pl_call_t *call, pl_error_t *err)
{
    if (calls->pending)
        return pl_fail(err, PL_EBUSY,
                       "the strategy is still setting up, exporting or importing");
    calls->waiting = call;
    calls->failure.code = PL_OK;
    return PL_OK;
}

int pl_replica_made_call(pl_replica_calls_t *calls, uint64_t call, const pl_error_t *err)
{
    calls->pending += call != 0;
    return call ? PL_OK : err->code;
}

int pl_replica_made_all(pl_replica_calls_t *calls, int code, const pl_error_t *err)
{
    if (!calls->pending)
        return code;
    if (code != PL_OK)
        calls->failure = *err;
    return PL_OK;
}

/* ---- setup ---- */

static void setup_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    if (answer->kind == PL_ANSWER_REPLY && r->calls.pending > 1)
        pl_progress_setup(r->calls.waiting,
                          &(pl_setup_progress_t){0});       /* it is not over */
    if (pl_replica_all_ended(&r->calls, answer)) {
        pl_error_t err = {0};
        char *train = pl_replica_names(r, PL_TRAIN, &err),
             *val = pl_replica_names(r, PL_VALIDATE, &err);
        if (train && val)
            pl_reply_setup(r->calls.waiting, &(pl_setup_reply_t){.model = r->reported,
                                                                 .train_metrics = train,
                                                                 .val_metrics = val});
        else
            pl_call_fail(r->calls.waiting, &err);
        pl_free(train);
        pl_free(val);
    }
}

static void compile_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_compiled(self, answer);
    setup_answered(self, answer);
}

/* The accelerator has allocated a region; keeps the region's memory if the device
 * registers it. */
static void allocated(void *self, const pl_answer_t *answer)
{
    pl_error_t err = {0};
    pl_replica_t *r = self;
    const pl_region_t region = (pl_region_t)(uintptr_t)answer->context;
    if (answer->kind == PL_ANSWER_REPLY && r->registered[region]) {
        pl_object_unref(r->bulk[region].memory);
        r->bulk[region].memory = pl_object_ref(answer->body->allocate_reply.memory);
        const pl_how_t how = {.on_answer = setup_answered};
        if (r->job->compiles
            && pl_replica_made_call(&r->calls,
                                    r->sync_hooks->compile(r, region, how, &err), &err)
                   != PL_OK)
            pl_replica_prepared(r, &err);
    }
    setup_answered(self, answer);
}

/* Each region by itself: they may have different types. */
static int calls_first_values(pl_replica_t *r, pl_error_t *err)
{
    static const pl_region_t regions[] = {PL_REGION_PARAMS, PL_REGION_AVERAGE,
                                          PL_REGION_MASTER, PL_REGION_STATE,
                                          PL_REGION_STATE_BACKUP};
    int code = PL_OK;
    for (int k = 0; k < 5 && code == PL_OK; k++) {
        const pl_region_t region = regions[k];
        const int64_t count = pl_replica_region_count(r, region);
        if (!count)
            continue;
        pl_floats_t *floats = pl_floats_new(pl_region_dtype(r->model->precision, region),
                                            (size_t)count, err);
        if (!floats)
            return pl_error_prefix(err, "weights of module %s",
                                   ((const pl_module_ops_t *)r->module.ops)->name);
        const bool state = region == PL_REGION_STATE || region == PL_REGION_STATE_BACKUP;
        pl_model_init(r->model, state ? PL_REGION_STATE : PL_REGION_PARAMS,
                      (uint64_t)r->job->trainer->seed, floats->dtype, floats->data);
        const size_t words = floats->count * (floats->dtype == PL_F64 ? 2 : 1);
        uint64_t hash = floats->count;
        for (size_t i = 0; i < words; i++) {
            uint32_t word;
            memcpy(&word, floats->data + i, sizeof word);
            hash = pl_mix(hash, word);
        }
        r->first_hash = pl_mix(r->first_hash, hash);
        const pl_write_region_t msg = {.region = region,
                                       .floats = &floats->object,
                                       .count = floats->count};
        const pl_how_t how = {.on_answer = setup_answered};
        code = pl_replica_made_call(
            &r->calls, pl_call_write_region(r, r->accelerator, &msg, how, err), err);
        pl_object_unref(floats);
    }
    return code;
}

static int components_bind(pl_replica_t *r, pl_error_t *err)
{
    int code = pl_replica_bind_precision(r, err);
    if (code == PL_OK)
        code = pl_replica_bind_module(r, err);
    if (code != PL_OK || r->job->stage != PL_TRAIN)
        return code;
    code = pl_replica_bind_objectives(r, err);
    if (code == PL_OK)
        code = pl_replica_check_monitors(r, err);
    if (code != PL_OK)
        return code;
    const pl_component_request_t averaging = {.role = "averaging", .path = "averaging"};
    pl_averaging_options_t options;
    pl_binding_t *binding = NULL;
    if (!pl_options_value(r->job->options, "averaging"))
        return PL_OK;
    code = pl_options_component(r->job->options, &averaging, &r->averaging, err);
    if (code == PL_OK)
        code = pl_options_general(r->job->options, "averaging", pl_averaging_table,
                                  &options, &binding, err);
    if (code != PL_OK)
        return code;
    for (int k = 0; k < r->objectives; k++)
        r->objective[k].optimizer->averages = true;
    r->validates_average = options.validate;
    pl_binding_free(binding);
    return PL_OK;
}

static void graphs_drop(pl_replica_t *r)
{
    for (int k = 0; k < PL_PLANS_MAX && r->graph; k++)
        pl_graph_free(r->graph[k]);
    pl_free(r->graph);
    r->graph = NULL;
}

static int setup_calls(pl_replica_t *r, pl_error_t *err)
{
    /* Regions first, because plans refer to them; the accelerator takes calls in
     * order. */
    int code = PL_OK;
    r->collective_elements = pl_replica_region_count(r, PL_REGION_COLLECTIVE);
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++) {
        const int64_t count = pl_replica_region_count(r, (pl_region_t)region);
        pl_allocate_t msg = {.region = (uint32_t)region,
                             .dtype = pl_region_dtype(r->model->precision,
                                                      (pl_region_t)region),
                             .count = (uint64_t)count,
                             .offset = r->bulk[region].offset,
                             .registered = r->registered[region]};
        const pl_how_t how = {.on_answer = allocated,
                              .context = (void *)(uintptr_t)region};
        if (r->bulk[region].memory && !r->registered[region])
            msg.memory = &r->bulk[region].memory->object;
        if (count)
            code = pl_replica_made_call(
                &r->calls, pl_call_allocate(r, r->accelerator, &msg, how, err), err);
    }
    for (int k = 0; k < PL_PLANS_MAX && code == PL_OK; k++) {
        pl_graph_t *graph = r->graph[k];
        r->graph[k] = NULL;
        if (graph)
            code = pl_replica_compile_plan(r, &r->plan[k], graph, &r->calls,
                                           compile_answered, err);
    }
    graphs_drop(r);
    if (code == PL_OK && !r->imports && !r->job->compiles)
        code = calls_first_values(r, err);
    if (code == PL_OK)
        code = pl_replica_begin_scaling(r, setup_answered, err);
    return pl_replica_made_all(&r->calls, code, err);
}

void pl_replica_prepared(pl_replica_t *r, const pl_error_t *failure)
{
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    pl_call_t *call = r->calls.waiting;
    if ((failure || setup_calls(r, &err) != PL_OK) && call) {
        r->calls.waiting = NULL;
        pl_call_fail(call, &err);
    }
}

static void signature_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_replica_compiled(r, answer);
    if (pl_replica_all_ended(&r->calls, answer))
        pl_reply_set_signature(r->calls.waiting, &(pl_set_signature_reply_t){0});
}

int pl_replica_set_signature(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    pl_replica_t *r = self;
    pl_batch_signature_t *signature =
        (pl_batch_signature_t *)body->set_signature.signature;
    int code = pl_replica_begin_calls(&r->calls, call, err);
    if (code != PL_OK)
        return code;
    pl_object_unref(r->signature);
    r->signature = pl_object_ref(signature);
    r->accumulates |= signature->accumulates;
    pl_train_reset(r);
    code = pl_replica_renew_plans(r, signature_answered, err);
    if (code == PL_OK && !r->calls.pending)
        return pl_reply_set_signature(call, &(pl_set_signature_reply_t){0});
    return pl_replica_made_all(&r->calls, code, err);
}

int pl_replica_setup(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_replica_t *r = self;
    const pl_setup_t *setup = &body->setup;
    if (r->model)
        return pl_fail(err, PL_ESTATE, "the strategy is set up already");
    int code = pl_replica_begin_calls(&r->calls, call, err);
    if (code != PL_OK)
        return code;
    r->job = pl_object_ref(setup->job);
    r->signature = pl_object_ref(setup->signature);
    r->imports = setup->imports;
    r->nominal = (double)r->signature->stage[PL_TRAIN].batch_size;
    r->accumulates = setup->accumulates || r->job->trainer->accumulate_grad_batches > 1;
    r->data_info = pl_strdup(setup->data_info);
    r->accelerator = pl_peer(r, "accelerator");
    r->model = pl_model_new(err);
    r->pipeline = pl_pipeline_new(err);
    code = r->data_info && r->model && r->pipeline ? components_bind(r, err)
                                                   : pl_no_memory(err);
    if (code == PL_OK)
        code = pl_replica_bind_norms(r, err);
    if (code != PL_OK)
        return code;
    r->graph = pl_alloc_array(PL_PLANS_MAX, sizeof(pl_graph_t *));
    if (!r->graph)
        return pl_no_memory(err);
    code = pl_replica_describe_plans(r, r->graph, err);
    if (code == PL_OK)
        code = r->sync_hooks ? r->sync_hooks->prepare(r, err) : setup_calls(r, err);
    if (code != PL_OK)
        graphs_drop(r);
    return code;
}

void pl_replica_release(void *self)
{
    pl_replica_t *r = self;
    for (int k = 0; k < r->plan_count; k++) {
        pl_free(r->plan[k].fetch);
        pl_free(r->plan[k].custom);
    }
    pl_replica_drop_forwards(r);
    pl_pipeline_free(r->pipeline);
    pl_free(r->timings_by_rank);
    pl_model_free(r->model);
    for (int k = 0; k < r->objectives; k++) {
        pl_optimizer_free(r->objective[k].optimizer);
        for (int i = 0; i < PL_SCHEDULES; i++)
            pl_instance_release(&r->objective[k].schedule[i]);
        pl_free(r->objective[k].collectives.of);
    }
    for (int stage = 0; stage <= PL_PREDICT; stage++)
        pl_free(r->evaluated[stage].of);
    pl_instance_release(&r->module);
    pl_instance_release(&r->precision);
    pl_instance_release(&r->averaging);
    graphs_drop(r);
    for (int k = 0; k < PL_REGIONS; k++) {
        pl_object_unref(r->read[k]);
        pl_object_unref(r->bulk[k].memory);
    }
    pl_free(r->data_info);
    pl_free(r->reported);
    pl_object_unref(r->computed);
    pl_object_unref(r->updated);
    pl_object_unref(r->reduced);
    pl_object_unref(r->signature);
    pl_object_unref(r->job);
}

/* ---- the table ---- */

static int replica_metric_names(void *self, pl_call_t *call, const pl_body_t *body,
                                pl_error_t *err)
{
    char *names = pl_replica_names(self, body->metric_names.stage, err);
    if (!names)
        return PL_ENOMEM;
    int code = pl_reply_metric_names(call, &(pl_metric_names_reply_t){.names = names});
    pl_free(names);
    return code;
}

static int replica_synchronize(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    (void)self, (void)body, (void)err;
    return pl_reply_synchronize(call, &(pl_synchronize_reply_t){0});
}

/* One rank has all bytes already. */
static int replica_exchange(void *self, pl_call_t *call, const pl_body_t *body,
                            pl_error_t *err)
{
    (void)self, (void)err;
    return pl_reply_exchange(call, &(pl_exchange_reply_t){.data = body->exchange.data});
}

static void memory_counted(void *self, const pl_answer_t *answer)
{
    (void)self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(answer->context, answer->error);
    else if (answer->kind == PL_ANSWER_REPLY)
        pl_reply_count_memory(answer->context, &answer->body->count_memory_reply);
}

static int replica_count_memory(void *self, pl_call_t *call, const pl_body_t *body,
                                pl_error_t *err)
{
    const pl_replica_t *r = self;
    const pl_how_t how = {.on_answer = memory_counted, .context = call};
    return pl_call_count_memory(self, r->accelerator, &body->count_memory, how, err)
               ? PL_OK
               : err->code;
}

static const pl_handler_t replica_handlers[] = {
    PL_ON(setup, pl_replica_setup),
    PL_ON(metric_names, replica_metric_names),
    PL_ON(train_batch, pl_replica_train),
    PL_ON(observe_metrics, pl_replica_observe_metrics),
    PL_ON(evaluate_batch, pl_replica_evaluate),
    PL_ON(export_weights, pl_replica_export),
    PL_ON(gradients, pl_replica_gradients_of),
    PL_ON(prepare_export, pl_replica_prepare_export),
    PL_ON(import_weights, pl_replica_import),
    PL_ON(set_signature, pl_replica_set_signature),
    PL_ON(freeze, pl_replica_freeze),
    PL_ON(set_rate, pl_replica_set_rate),
    PL_ON(exchange, replica_exchange),
    PL_ON(synchronize, replica_synchronize),
    PL_ON(count_memory, replica_count_memory),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_replica_strategy = {
    .name = "replica",
    .help = "a whole copy of the module on one device",
    .size = sizeof(pl_replica_t),
    .role = "strategy",
    .level = PL_LEVEL_STRATEGY,
    .handlers = replica_handlers,
    .release = pl_replica_release,
};
