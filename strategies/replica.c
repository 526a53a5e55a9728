/* replica.c - a whole copy of the module on one device: its graphs, plans and weights */
#include <string.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/error.h"
#include "base/options.h"
#include "base/random.h"
#include "base/stages.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica_calls.h"
#include "strategies/replica_parts.h"
#include "tensor/model.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

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
    pl_free(plan->fetch);
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
    const int fields = r->layout->stage[plan->stage].field_count;
    pl_field_t field[PL_FIELDS];
    for (int k = 0; k < fields; k++) {
        field[k] = r->layout->stage[plan->stage].field[k];
        if (pl_varies(&field[k]))
            field[k].shape.dim[0] = plan->size.length;
    }
    pl_graph_t *g = pl_graph_new(r->model, plan->stage, field, fields, plan->size.count,
                                 err);
    if (!g)
        return NULL;
    g->step = plan->step;
    if (plan->stage == PL_TRAIN && module->steps)
        module->steps[plan->step].describe(g, r->module.self);
    else if (module->step)
        module->step(g, r->module.self, plan->stage);
    else
        pl_graph_fail(g, PL_EUNSUPPORTED,
                      "it describes only training, so it cannot be validated, tested or "
                      "used for prediction");
    if (plan->stage != PL_TRAIN && r->validates_average)
        pl_graph_take_average(g);
    if (pl_graph_check(g, err) == PL_OK)
        return g;
    pl_pass(err, "module %s", module->name);
    pl_graph_free(g);
    return NULL;
}

/* Gradients come when every stage is described: from then on no tensor can be added. */
static int complete(pl_replica_t *r, const pl_replica_plan_t *plan, pl_graph_t *g,
                    pl_error_t *err)
{
    int code = PL_OK;
    if (plan->stage == PL_TRAIN)
        code = pl_graph_gradients(g, r->nominal, plan->accumulate, err);
    if (code == PL_OK)
        code = pl_graph_cast(g, r->model->precision, err);
    if (code == PL_OK)
        pl_graph_prune(g);
    if (code == PL_OK && plan->stage == PL_TRAIN)
        code = pl_replica_find_exchanges(r, plan->step, g, err);
    if (code == PL_OK && r->job->trainer->detect_anomaly)
        code = pl_graph_watch(g, err);
    return code;
}

static int plan_add(pl_replica_t *r, pl_replica_plan_t plan, pl_error_t *err)
{
    if (r->plan_count == PL_PLANS_MOST)
        return pl_fail(err, PL_EBUG, "more than %d plans", PL_PLANS_MOST);
    r->plan[r->plan_count++] = plan;
    return PL_OK;
}

/* A plan for each size of batches, and those that accumulate. */
static int plans_list_sizes(pl_replica_t *r, pl_stage_t stage, int step, pl_error_t *err)
{
    const int ways = 1 + (stage == PL_TRAIN && r->accumulates && !r->cut.shards);
    int code = PL_OK;
    for (int k = 0; k < r->layout->stage[stage].size_count * ways && code == PL_OK; k++) {
        const pl_replica_plan_t plan = {.stage = stage,
                                        .step = step,
                                        .size = r->layout->stage[stage].size[k / ways],
                                        .accumulate = k % ways};
        if (!pl_replica_plan(r, &plan, NULL))
            code = plan_add(r, plan, err);
    }
    return code;
}

/* The order matters: parameters arise in the first graph, the full training batch's. */
static int plans_list(pl_replica_t *r, pl_error_t *err)
{
    static const pl_stage_t stages[] = {PL_TRAIN, PL_VALIDATE, PL_TEST, PL_PREDICT};
    int code = PL_OK;
    for (int s = 0; s < 4; s++) {
        const int steps = stages[s] == PL_TRAIN ? r->steps : 1;
        for (int k = 0; k < steps && r->layout->stage[stages[s]].present; k++)
            if (code == PL_OK)
                code = plans_list_sizes(r, stages[s], k, err);
    }
    return code;
}

/* ---- setup ---- */

static void setup_reply(pl_replica_t *r)
{
    pl_error_t err = {0};
    char *train = pl_replica_names(r, PL_TRAIN, &err),
         *val = pl_replica_names(r, PL_VALIDATE, &err);
    if (train && val)
        pl_reply_setup(r->calls.waiting, &(pl_setup_reply_t){.model = r->told,
                                                             .train_metrics = train,
                                                             .val_metrics = val});
    else
        pl_call_fail(r->calls.waiting, &err);
    pl_free(train);
    pl_free(val);
}

static void setup_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    if (answer->kind == PL_ANSWER_REPLY && r->calls.pending > 1)
        pl_progress_setup(r->calls.waiting, &(pl_setup_progress_t){0});  /* it goes on */
    if (pl_replica_all_ended(&r->calls, answer))
        setup_reply(r);
}

/* A plan that was there before is of no use any more. */
void pl_replica_compiled(pl_replica_t *r, const pl_answer_t *answer)
{
    pl_replica_plan_t *plan = answer->context;
    const pl_discard_plan_t old = {.plan = plan->number};
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    if (plan->compiled)
        pl_call_discard_plan(r, r->accelerator, &old, (pl_how_t){0}, NULL);
    plan->number = answer->body->compile_reply.plan;
    plan->compiled = true;
}

static void compile_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_compiled(self, answer);
    setup_answered(self, answer);
}

static int call_allocate(pl_replica_t *r, pl_region_t region, int64_t count,
                         pl_error_t *err)
{
    pl_allocate_t msg = {.region = region,
                         .dtype = pl_region_dtype(r->model->precision, region),
                         .count = (uint64_t)count,
                         .offset = r->lent[region].offset};
    pl_how_t how = {.on_answer = setup_answered};
    if (r->lent[region].memory)
        msg.memory = &r->lent[region].memory->object;
    return pl_replica_made_call(&r->calls,
                                pl_call_allocate(r, r->accelerator, &msg, how, err), err);
}

static int call_compile(pl_replica_t *r, pl_replica_plan_t *plan, pl_graph_t *g,
                        pl_replica_calls_t *calls, pl_on_answer_t on_answer,
                        pl_error_t *err)
{
    int code = plan_keep_fetches(plan, g, err);
    if (code == PL_OK && plan->kind == PL_PLAN_BATCH && plan->stage == PL_TRAIN)
        code = pl_replica_place_exchanges(r, plan->step, g, err);
    if (code != PL_OK) {
        pl_graph_free(g);
        return code;
    }
    if (plan->kind == PL_PLAN_BATCH && plan->stage != PL_PREDICT)
        pl_graph_drop_outputs(g);
    if (plan->kind == PL_PLAN_BATCH && plan->stage == PL_TRAIN) {
        g->bucket_count = r->bucket_count;
        memcpy(g->bucket, r->bucket, sizeof g->bucket);
    }
    pl_graph_holder_t *holder = pl_graph_hold(&g, err);
    if (!holder)
        return PL_ENOMEM;
    static const char *const kinds[] = {[PL_PLAN_OPTIMIZER] = "optimizer",
                                        [PL_PLAN_RESTORE] = "restore",
                                        [PL_PLAN_EMPTY] = "empty",
                                        [PL_PLAN_OWN] = "meeting"};
    pl_compile_t msg = {.name = plan->kind == PL_PLAN_BATCH ? pl_stages[plan->stage].verb
                                                            : kinds[plan->kind],
                        .graph = &holder->object};
    pl_how_t how = {.on_answer = on_answer, .context = plan};
    code = pl_replica_made_call(calls, pl_call_compile(r, r->accelerator, &msg, how, err),
                                err);
    pl_object_unref(holder);
    return code;
}

static int call_write(pl_replica_t *r, pl_region_t region, pl_floats_t *floats,
                      pl_error_t *err)
{
    const pl_write_region_t msg = {.region = region,
                                   .floats = &floats->object,
                                   .count = floats->count};
    const pl_how_t how = {.on_answer = setup_answered};
    return pl_replica_made_call(&r->calls,
                                pl_call_write_region(r, r->accelerator, &msg, how, err),
                                err);
}

static uint64_t hash_of(const pl_floats_t *floats)
{
    const size_t words = floats->count * (floats->dtype == PL_F64 ? 2 : 1);
    uint64_t hash = floats->count;
    for (size_t k = 0; k < words; k++) {
        uint32_t word;
        memcpy(&word, floats->data + k, sizeof word);
        hash = pl_mix(hash, word);
    }
    return hash;
}

static int call_first_values(pl_replica_t *r, pl_region_t region, int64_t count,
                             pl_error_t *err)
{
    const pl_module_ops_t *module = r->module.ops;
    pl_floats_t *floats = pl_floats_new(pl_region_dtype(r->model->precision, region),
                                        (size_t)count, err);
    if (!floats)
        return pl_pass(err, "weights of module %s", module->name);
    const bool state = region == PL_REGION_STATE || region == PL_REGION_KEPT;
    pl_model_init(r->model, state ? PL_REGION_STATE : PL_REGION_PARAMS,
                  (uint64_t)r->job->trainer->seed, floats->dtype, floats->data);
    r->first_hash = pl_mix(r->first_hash, hash_of(floats));
    int code = call_write(r, region, floats, err);
    pl_object_unref(floats);
    return code;
}

static int averaging_bind(pl_replica_t *r, pl_error_t *err)
{
    const pl_part_request_t averaging = {.role = "averaging", .path = "averaging"};
    pl_averaging_options_t options;
    pl_binding_t *binding = NULL;
    if (!pl_options_value(r->job->options, "averaging"))
        return PL_OK;
    int code = pl_options_part(r->job->options, &averaging, &r->averaging, err);
    if (code == PL_OK)
        code = pl_options_general(r->job->options, "averaging", pl_averaging_table,
                                  &options, &binding, err);
    if (code != PL_OK)
        return code;
    for (int k = 0; k < r->steps; k++)
        r->step[k].optimizer->averages = true;
    r->validates_average = options.validate;
    pl_binding_free(binding);
    return PL_OK;
}

/* Each region by itself: they may be of different types. */
static int calls_first_values(pl_replica_t *r, pl_error_t *err)
{
    static const pl_region_t regions[] = {PL_REGION_PARAMS, PL_REGION_AVERAGE,
                                          PL_REGION_MASTER, PL_REGION_STATE,
                                          PL_REGION_KEPT};
    int code = PL_OK;
    for (int k = 0; k < 5 && code == PL_OK; k++) {
        const int64_t count = pl_replica_region_count(r, regions[k]);
        if (count)
            code = call_first_values(r, regions[k], count, err);
    }
    return code;
}

static int parts_bind(pl_replica_t *r, pl_error_t *err)
{
    int code = pl_replica_bind_precision(r, err);
    if (code == PL_OK)
        code = pl_replica_bind_module(r, err);
    if (code != PL_OK || r->job->stage != PL_TRAIN)
        return code;
    code = pl_replica_bind_steps(r, err);
    if (code == PL_OK)
        code = pl_replica_check_monitors(r, err);
    return code == PL_OK ? averaging_bind(r, err) : code;
}

/* Regions first, because plans refer to them; the accelerator takes calls in order. */
static int calls_regions(pl_replica_t *r, pl_error_t *err)
{
    int code = PL_OK;
    for (int region = 0; region < PL_REGIONS && code == PL_OK; region++) {
        const int64_t count = pl_replica_region_count(r, (pl_region_t)region);
        if (count)
            code = call_allocate(r, (pl_region_t)region, count, err);
    }
    return code;
}

static int graph_add_like(pl_replica_t *r, pl_graph_t *graph[], pl_replica_plan_t plan,
                          pl_error_t *err)
{
    int code = plan_add(r, plan, err);
    if (code != PL_OK)
        return code;
    pl_graph_t *g = pl_replica_describe_own(r, &plan, err);
    graph[r->plan_count - 1] = g;
    return g ? PL_OK : err->code;
}

static int graph_add(pl_replica_t *r, pl_graph_t *graph[], pl_plan_kind_t kind, int step,
                     pl_error_t *err)
{
    const pl_replica_plan_t plan = {.kind = kind, .stage = PL_TRAIN, .step = step};
    return graph_add_like(r, graph, plan, err);
}

/* A rank without samples comes to what ranks exchange within a step, in each of its
 * batches. */
static int graphs_add_empty(pl_replica_t *r, pl_graph_t *graph[], int step,
                            pl_error_t *err)
{
    const pl_replica_plan_t more = {.kind = PL_PLAN_EMPTY,
                                    .stage = PL_TRAIN,
                                    .step = step,
                                    .accumulate = true};
    int code = graph_add(r, graph, PL_PLAN_EMPTY, step, err);
    if (code == PL_OK && r->accumulates && r->step[step].exchanges)
        code = graph_add_like(r, graph, more, err);
    return code;
}

/* Figures of all steps come together, with a rate and a norm of each and what scaling
 * tells. */
static int figures_check(const pl_replica_t *r, pl_error_t *err)
{
    const int others = pl_replica_other_figures(r);
    int figures = others;
    for (int k = 0; k < r->steps; k++) {
        const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_BATCH, k);
        for (int i = 0; i < plan->fetch_count; i++)
            figures += plan->fetch[i].kind == PL_FETCH_FIGURE;
    }
    if (figures <= PL_FIGURES_MOST)
        return PL_OK;
    return pl_fail(err, PL_EUNSUPPORTED,
                   "the module logs %d metrics in training; at most %d are possible",
                   figures - others, PL_FIGURES_MOST - others);
}

/* Of plans: the order of the model's tensors and offsets comes from the first. */
static int graphs_describe(pl_replica_t *r, pl_graph_t *graph[], pl_error_t *err)
{
    int code = plans_list(r, err);
    for (int k = 0; k < r->plan_count && code == PL_OK; k++)
        code = (graph[k] = describe(r, &r->plan[k], err)) ? PL_OK : err->code;
    if (code == PL_OK)
        code = pl_replica_divide(r, err);
    if (code == PL_OK)
        code = pl_replica_freeze_first(r, err);
    if (code == PL_OK)
        code = pl_replica_tell_model(r, graph[0], err);
    for (int k = 0; k < r->plan_count && code == PL_OK; k++)
        code = complete(r, &r->plan[k], graph[k], err);
    pl_model_freeze(r->model);
    for (int k = 0; k < r->steps && code == PL_OK; k++)
        code = graph_add(r, graph, PL_PLAN_OPTIMIZER, k, err);
    for (int k = 0; k < r->steps && r->meets && code == PL_OK; k++)
        code = graphs_add_empty(r, graph, k, err);
    if (code == PL_OK && pl_replica_keeps_state(r))
        code = graph_add(r, graph, PL_PLAN_RESTORE, 0, err);
    const int own = r->job->stage == PL_TRAIN && r->meets ? r->meets->graphs : 0;
    for (int k = 0; k < own && code == PL_OK; k++)
        code = graph_add(r, graph, PL_PLAN_OWN, k, err);
    for (int k = 0; k < r->plan_count && code == PL_OK; k++)
        pl_replica_hash_plan(&r->plan[k], graph[k]);
    return code;
}

static void graphs_drop(pl_replica_t *r)
{
    for (int k = 0; k < PL_PLANS_MOST && r->graph; k++)
        pl_graph_free(r->graph[k]);
    pl_free(r->graph);
    r->graph = NULL;
}

static int setup_calls(pl_replica_t *r, pl_error_t *err)
{
    int code = calls_regions(r, err);
    for (int k = 0; k < PL_PLANS_MOST && code == PL_OK; k++) {
        pl_graph_t *graph = r->graph[k];
        r->graph[k] = NULL;
        if (graph)
            code = call_compile(r, &r->plan[k], graph, &r->calls, compile_answered, err);
    }
    graphs_drop(r);
    if (code == PL_OK && !r->imports)
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

static int setup_describe(pl_replica_t *r, pl_error_t *err)
{
    r->graph = pl_alloc_array(PL_PLANS_MOST, sizeof(pl_graph_t *));
    if (!r->graph)
        return pl_no_memory(err);
    int code = graphs_describe(r, r->graph, err);
    for (int k = 0; k < r->plan_count && code == PL_OK; k++)
        code = plan_keep_fetches(&r->plan[k], r->graph[k], err);
    if (code == PL_OK)
        code = figures_check(r, err);
    if (code == PL_OK)
        code = r->meets ? r->meets->prepare(r, err) : setup_calls(r, err);
    if (code != PL_OK)
        graphs_drop(r);
    return code;
}

static int recompile(pl_replica_t *r, pl_replica_plan_t *plan, pl_replica_calls_t *calls,
                     pl_on_answer_t on_answer, pl_error_t *err)
{
    pl_graph_t *g = plan->kind == PL_PLAN_BATCH ? describe(r, plan, err)
                                                : pl_replica_describe_own(r, plan, err);
    int code = g ? PL_OK : err->code;
    if (code == PL_OK && plan->kind == PL_PLAN_BATCH)
        code = complete(r, plan, g, err);
    if (code == PL_OK && !plan->compiled)
        pl_replica_hash_plan(plan, g);
    if (code == PL_OK)
        return call_compile(r, plan, g, calls, on_answer, err);
    pl_graph_free(g);
    return code;
}

/* First those of batches: what is exchanged in an empty one is what is in them. */
int pl_replica_recompile(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err)
{
    int code = PL_OK;
    for (int i = 0; i < 2 * r->plan_count && code == PL_OK; i++) {
        const int k = i % r->plan_count;
        const pl_plan_kind_t kind = r->plan[k].kind;
        if (r->plan[k].stage == PL_TRAIN && kind != PL_PLAN_RESTORE && kind != PL_PLAN_OWN
            && (kind == PL_PLAN_BATCH) == (i < r->plan_count))
            code = recompile(r, &r->plan[k], &r->freezing, on_answer, err);
    }
    return code;
}

/* ---- batches of other sizes ---- */

/* One that could not be made is none. */
static bool is_needed(const pl_replica_t *r, const pl_replica_plan_t *plan)
{
    bool needed = plan->kind != PL_PLAN_BATCH;
    if (!needed && !plan->compiled)
        return false;
    for (int k = 0; k < r->layout->stage[plan->stage].size_count && !needed; k++) {
        const pl_batch_size_t *size = &r->layout->stage[plan->stage].size[k];
        needed = size->count == plan->size.count && size->length == plan->size.length;
    }
    return needed;
}

static void plans_drop(pl_replica_t *r)
{
    int kept = 0;
    for (int k = 0; k < r->plan_count; k++) {
        const pl_discard_plan_t old = {.plan = r->plan[k].number};
        if (is_needed(r, &r->plan[k])) {
            r->plan[kept++] = r->plan[k];
            continue;
        }
        if (r->plan[k].compiled)
            pl_call_discard_plan(r, r->accelerator, &old, (pl_how_t){0}, NULL);
        pl_free(r->plan[k].fetch);
    }
    memset(r->plan + kept, 0, (size_t)(r->plan_count - kept) * sizeof *r->plan);
    r->plan_count = kept;
}

static void layout_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_replica_compiled(r, answer);
    if (pl_replica_all_ended(&r->calls, answer))
        pl_reply_take_layout(r->calls.waiting, &(pl_take_layout_reply_t){0});
}

int pl_replica_take_layout(pl_replica_t *r, pl_call_t *call, pl_layout_t *layout,
                           pl_error_t *err)
{
    int code = pl_replica_begin_calls(&r->calls, call, err);
    if (code != PL_OK)
        return code;
    pl_object_unref(r->layout);
    r->layout = pl_object_ref(layout);
    pl_train_reset(r);
    plans_drop(r);
    const int there = r->plan_count;
    code = plans_list(r, err);
    for (int k = there; k < r->plan_count && code == PL_OK; k++)
        code = recompile(r, &r->plan[k], &r->calls, layout_answered, err);
    if (code == PL_OK && !r->calls.pending)
        return pl_reply_take_layout(call, &(pl_take_layout_reply_t){0});
    return pl_replica_made_all(&r->calls, code, err);
}

int pl_replica_setup(pl_replica_t *r, pl_call_t *call, const pl_setup_t *setup,
                     pl_error_t *err)
{
    if (r->model)
        return pl_fail(err, PL_ESTATE, "the strategy is set up already");
    int code = pl_replica_begin_calls(&r->calls, call, err);
    if (code != PL_OK)
        return code;
    r->job = pl_object_ref(setup->job);
    r->layout = pl_object_ref(setup->layout);
    r->imports = setup->imports;
    r->nominal = (double)r->layout->stage[PL_TRAIN].batch_size;
    r->accumulates = setup->accumulates || r->job->trainer->accumulate_grad_batches > 1;
    r->facts = pl_strdup(setup->facts);
    r->accelerator = pl_peer(r, "accelerator");
    r->model = pl_model_new(err);
    r->pipeline = pl_pipeline_new(err);
    code = r->facts && r->model && r->pipeline ? parts_bind(r, err) : pl_no_memory(err);
    if (code == PL_OK)
        code = pl_replica_bind_norms(r, err);
    return code == PL_OK ? setup_describe(r, err) : code;
}

void pl_replica_release(pl_replica_t *r)
{
    for (int k = 0; k < r->plan_count; k++)
        pl_free(r->plan[k].fetch);
    pl_replica_drop_forwards(r);
    pl_pipeline_free(r->pipeline);
    pl_free(r->spent_by);
    pl_model_free(r->model);
    pl_replica_release_steps(r);
    pl_instance_release(&r->module);
    pl_instance_release(&r->precision);
    pl_instance_release(&r->averaging);
    graphs_drop(r);
    for (int k = 0; k < PL_REGIONS; k++) {
        pl_object_unref(r->read[k]);
        pl_object_unref(r->lent[k].memory);
    }
    pl_free(r->facts);
    pl_free(r->told);
    pl_object_unref(r->layout);
    pl_object_unref(r->job);
}
