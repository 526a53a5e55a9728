/* plans.c - the plans of a replica: which there are, what they compute, and a hash of
 * that
 *
 * The module describes plans for batches, one for each size. The others are for the
 * optimizers, for a batch without samples, for the state after a skipped step, and for
 * what a strategy does at sync points. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/narrow.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

/* ---- of batches ---- */

static int plan_copy_fetches(pl_replica_plan_t *plan, const pl_graph_t *g,
                             pl_error_t *err)
{
    pl_free(plan->fetch);
    plan->fetch = pl_alloc_array((size_t)g->fetch_count, sizeof *plan->fetch);
    if (!plan->fetch)
        return pl_no_memory(err);
    if (g->fetch_count)
        memcpy(plan->fetch, g->fetch, (size_t)g->fetch_count * sizeof *plan->fetch);
    plan->fetch_count = g->fetch_count;
    pl_free(plan->custom);
    plan->custom = pl_alloc_array((size_t)g->customs, sizeof *plan->custom);
    if (!plan->custom)
        return pl_no_memory(err);
    if (g->customs)
        memcpy(plan->custom, g->custom, (size_t)g->customs * sizeof *plan->custom);
    for (int k = 0, outputs = 0; k < g->fetch_count; k++) {
        const pl_value_t *value = &g->value[g->fetch[k].value];
        if (g->fetch[k].kind != PL_FETCH_OUTPUT)
            continue;
        if (outputs >= PL_FIELDS)
            return pl_fail(err, PL_EUNSUPPORTED, "more than %d outputs", PL_FIELDS);
        if (plan->stage == PL_PREDICT && value->dtype != PL_F32 && value->dtype != PL_I32)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "output \"%s\" is neither float32 nor int32",
                           g->fetch[k].name);
        plan->output_shape[outputs] = value->shape;
        plan->output_is_int[outputs++] = value->dtype == PL_I32;
    }
    return PL_OK;
}

static pl_batch_size_t largest_size(const pl_replica_t *r, pl_stage_t stage)
{
    pl_batch_size_t largest = {0};
    for (int k = 0; k < r->signature->stage[stage].size_count; k++) {
        const pl_batch_size_t *size = &r->signature->stage[stage].size[k];
        largest.count = size->count > largest.count ? size->count : largest.count;
        largest.length = size->length > largest.length ? size->length : largest.length;
    }
    return largest;
}

/* largest: the graph of the largest batch  [NULL: this is it, or it does not matter]. */
static pl_graph_t *describe_with(pl_replica_t *r, const pl_replica_plan_t *plan,
                                 const pl_graph_t *largest, pl_error_t *err)
{
    const pl_module_ops_t *module = r->module.ops;
    const int fields = r->signature->stage[plan->stage].field_count;
    pl_field_t field[PL_FIELDS];
    for (int k = 0; k < fields; k++) {
        field[k] = r->signature->stage[plan->stage].field[k];
        if (pl_varies(&field[k]))
            field[k].shape.dim[0] = plan->size.length;
    }
    pl_graph_t *g = pl_graph_new(r->model, plan->stage, field, fields, plan->size.count,
                                 err);
    if (!g)
        return NULL;
    g->objective = plan->objective;
    const bool waits = !r->micro.micro_shards
                       && (!r->sync_hooks || r->sync_hooks->collective);
    g->rank = (int)r->rank;
    g->ranks = !waits ? 0 : r->sync_hooks && r->ranks ? (int)r->ranks : 1;
    g->slots = (int)(r->micro.micro_shards ? r->micro.micro_shards : r->ranks);
    g->largest = largest;
    g->cache.context = r->signature->context;
    g->cache.continues = plan->size.length == 1 && g->cache.context > 1;
    if (plan->stage == PL_TRAIN && module->objectives)
        module->objectives[plan->objective].describe(g, r->module.self);
    else if (module->step)
        module->step(g, r->module.self, plan->stage);
    else
        pl_graph_fail(g, PL_EUNSUPPORTED,
                      "it describes only training, so it cannot be validated, tested or "
                      "used for prediction");
    if (plan->stage != PL_TRAIN && r->validates_average)
        pl_graph_take_average(g);
    if (pl_graph_check(g, err) == PL_OK) {
        r->cache = g->cache.elements;
        return g;
    }
    pl_error_prefix(err, "module %s", module->name);
    pl_graph_free(g);
    return NULL;
}

static pl_graph_t *describe(pl_replica_t *r, const pl_replica_plan_t *plan,
                            pl_error_t *err)
{
    pl_replica_plan_t most = *plan;
    most.size = largest_size(r, plan->stage);
    pl_graph_t *g = describe_with(r, plan, NULL, err);
    if (!g || (!g->customs && !g->gathers)
        || (most.size.count == plan->size.count && most.size.length == plan->size.length))
        return g;
    pl_graph_free(g);
    pl_graph_t *largest = describe_with(r, &most, NULL, err);
    g = largest ? describe_with(r, plan, largest, err) : NULL;
    if (g)
        g->largest = NULL;
    pl_graph_free(largest);
    return g;
}

/* Adds gradients once every stage is described: from then on no tensor can be added. */
static int complete(pl_replica_t *r, const pl_replica_plan_t *plan, pl_graph_t *g,
                    pl_error_t *err)
{
    int code;
    if (plan->stage == PL_TRAIN) {
        code = pl_graph_gradients(g, r->nominal, plan->accumulate, err);
    } else {
        pl_graph_narrow(g);
        code = pl_graph_check(g, err);
    }
    if (code == PL_OK)
        code = pl_graph_cast(g, r->model->precision, err);
    if (code == PL_OK)
        pl_graph_prune(g);
    if (code == PL_OK)
        code = pl_replica_find_collectives(r, plan, g, err);
    if (code == PL_OK && r->job->trainer->detect_anomaly)
        code = pl_graph_detect_anomaly(g, err);
    return code;
}

static int plan_add(pl_replica_t *r, pl_replica_plan_t plan, pl_error_t *err)
{
    if (r->plan_count == PL_PLANS_MAX)
        return pl_fail(err, PL_EBUG, "more than %d plans", PL_PLANS_MAX);
    r->plan[r->plan_count++] = plan;
    return PL_OK;
}

/* A plan for each size of batches, and those that accumulate. */
static int plans_list_sizes(pl_replica_t *r, pl_stage_t stage, int objective,
                            pl_error_t *err)
{
    const int ways = 1 + (stage == PL_TRAIN && r->accumulates && !r->micro.micro_shards);
    int code = PL_OK;
    for (int k = 0; k < r->signature->stage[stage].size_count * ways && code == PL_OK;
         k++) {
        const pl_replica_plan_t plan = {.stage = stage,
                                        .objective = objective,
                                        .size = r->signature->stage[stage].size[k / ways],
                                        .accumulate = k % ways};
        if (!pl_replica_plan(r, &plan, NULL))
            code = plan_add(r, plan, err);
    }
    return code;
}

/* The order matters: the first graph, for the full training batch, creates the
 * parameters. */
static int plans_list(pl_replica_t *r, pl_error_t *err)
{
    static const pl_stage_t stages[] = {PL_TRAIN, PL_VALIDATE, PL_TEST, PL_PREDICT};
    int code = PL_OK;
    for (int s = 0; s < 4; s++) {
        const int steps = stages[s] == PL_TRAIN ? r->objectives : 1;
        for (int k = 0; k < steps && r->signature->stage[stages[s]].present; k++)
            if (code == PL_OK)
                code = plans_list_sizes(r, stages[s], k, err);
    }
    return code;
}

/* ---- that no module describes ---- */

static pl_graph_t *describe_optimizer(pl_replica_t *r, int objective, pl_error_t *err)
{
    const pl_trainer_options_t *trainer = r->job->trainer;
    const bool by_value = trainer->gradient_clip_algorithm == PL_CLIP_VALUE;
    pl_optimizer_t *optimizer = r->objective[objective].optimizer;
    if (pl_replica_is_partitioned(r)) {
        pl_piece_t piece = {0};
        optimizer->norms = r->sync_hooks->norms
                               ? pl_norm_count(r->model, objective, r->norm_block)
                               : 0;
        optimizer->pieces = 0;
        while (pl_replica_own_piece(r, optimizer->pieces, &piece))
            optimizer->piece[optimizer->pieces++] = piece;
    }
    optimizer->block = r->norm_block;
    optimizer->clip_value = by_value ? trainer->gradient_clip_val : 0;
    return pl_optimizer_graph(optimizer, r->model, r->nominal,
                              by_value ? 0 : trainer->gradient_clip_val, err);
}

static void assign_zeros(pl_graph_t *g, int64_t from, pl_shape_t shape)
{
    const pl_node_t grads = pl_region_view(g, PL_REGION_GRADS, from, shape);
    pl_assign(g, grads, pl_broadcast_to(g, pl_scalar(g, 0), shape));
}

/* What a batch without samples gives; or, after a skipped step, the state that each step
 * that is not skipped backs up. */
static pl_graph_t *describe_assignments(const pl_replica_t *r,
                                        const pl_replica_plan_t *plan, pl_error_t *err)
{
    const bool restores = plan->kind == PL_PLAN_RESTORE;
    const pl_shape_t state = PL_SHAPE(r->model->state);
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    if (plan->stage != PL_TRAIN) {
        pl_replica_empty_collectives(&r->evaluated[plan->stage], g);
    } else if (restores) {
        pl_assign(g, pl_region_view(g, PL_REGION_STATE, 0, state),
                  pl_region_view(g, PL_REGION_STATE_BACKUP, 0, state));
    } else if (!plan->accumulate) {
        /* Gradients of the parameters that the objective trains, and of its loss. */
        for (int64_t from = 0, to = 0; pl_replica_range(r, plan->objective, &from, &to);)
            assign_zeros(g, from, PL_SHAPE(to - from));
        assign_zeros(g, r->model->params + 2 * plan->objective, pl_shape(0));
        assign_zeros(g, r->model->params + 2 * plan->objective + 1, pl_shape(0));
    }
    if (plan->stage == PL_TRAIN && !restores)
        pl_replica_empty_collectives(&r->objective[plan->objective].collectives, g);
    if (pl_graph_check(g, err) == PL_OK
        && (restores || pl_graph_cast(g, r->model->precision, err) == PL_OK))
        return g;
    pl_graph_free(g);
    return NULL;
}

static pl_graph_t *describe_own(pl_replica_t *r, const pl_replica_plan_t *plan,
                                pl_error_t *err)
{
    switch (plan->kind) {
    case PL_PLAN_RESTORE:
    case PL_PLAN_EMPTY: return describe_assignments(r, plan, err);
    case PL_PLAN_OWN: return r->sync_hooks->describe(r, plan->objective, err);
    default: return describe_optimizer(r, plan->objective, err);
    }
}

/* ---- all of a run ---- */

static int graph_add(pl_replica_t *r, pl_graph_t *graph[], pl_plan_kind_t kind,
                     pl_stage_t stage, int objective, bool accumulate, pl_error_t *err)
{
    const pl_replica_plan_t plan = {.kind = kind,
                                    .stage = stage,
                                    .objective = objective,
                                    .accumulate = accumulate};
    int code = plan_add(r, plan, err);
    if (code != PL_OK)
        return code;
    pl_graph_t *g = describe_own(r, &plan, err);
    graph[r->plan_count - 1] = g;
    return g ? PL_OK : err->code;
}

/* Reports the first graph, which is complete later.  The memory of its values is counted
 * only if it has checkpoints, on graphs of its own: with them and without. */
static int report(pl_replica_t *r, const pl_graph_t *first, pl_error_t *err)
{
    double bytes[2] = {0};
    int code = PL_OK;
    for (int k = 0; k < 2 && first->stage == PL_TRAIN && first->checkpoints; k++) {
        pl_graph_t *g = code == PL_OK ? describe(r, &r->plan[0], err) : NULL;
        if (!g)
            return err->code;
        g->ignores_checkpoints = k == 1;
        code = pl_graph_step_bytes(g, r->model->precision, &bytes[k], err);
        pl_graph_free(g);
    }
    return code == PL_OK ? pl_replica_report_model(r, first, bytes, err) : code;
}

/* The order of the model's tensors and their offsets come from the first plan. */
int pl_replica_describe_plans(pl_replica_t *r, pl_graph_t *graph[], pl_error_t *err)
{
    int code = plans_list(r, err);
    for (int k = 0; k < r->plan_count && code == PL_OK; k++)
        code = (graph[k] = describe(r, &r->plan[k], err)) ? PL_OK : err->code;
    if (code == PL_OK)
        code = pl_replica_divide(r, err);
    if (code == PL_OK)
        code = pl_replica_freeze_first(r, err);
    if (code == PL_OK)
        code = report(r, graph[0], err);
    for (int k = 0; k < r->plan_count && code == PL_OK; k++)
        code = complete(r, &r->plan[k], graph[k], err);
    pl_model_freeze(r->model);
    if (code == PL_OK && r->sync_hooks && r->sync_hooks->described)
        r->sync_hooks->described(r);
    for (int k = 0; k < r->objectives && code == PL_OK; k++)
        code = graph_add(r, graph, PL_PLAN_OPTIMIZER, PL_TRAIN, k, false, err);
    /* A rank without samples takes part in the in-graph collectives of a step, in each of
     * its batches. */
    for (int k = 0; k < r->objectives && r->sync_hooks && code == PL_OK; k++) {
        code = graph_add(r, graph, PL_PLAN_EMPTY, PL_TRAIN, k, false, err);
        if (code == PL_OK && r->accumulates && r->objective[k].collectives.count)
            code = graph_add(r, graph, PL_PLAN_EMPTY, PL_TRAIN, k, true, err);
    }
    for (int stage = 0; stage <= PL_PREDICT && code == PL_OK; stage++)
        if (r->evaluated[stage].count)
            code = graph_add(r, graph, PL_PLAN_EMPTY, (pl_stage_t)stage, 0, false, err);
    if (code == PL_OK && pl_replica_backs_up_state(r))
        code = graph_add(r, graph, PL_PLAN_RESTORE, PL_TRAIN, 0, false, err);
    const int own = r->job->stage == PL_TRAIN && r->sync_hooks ? r->sync_hooks->graphs
                                                               : 0;
    for (int k = 0; k < own && code == PL_OK; k++)
        code = graph_add(r, graph, PL_PLAN_OWN, PL_TRAIN, k, false, err);
    for (int k = 0; k < r->plan_count && code == PL_OK; k++)
        r->plan[k].hash = pl_graph_hash(0, graph[k]);
    for (int k = 0; k < r->plan_count && code == PL_OK; k++)
        code = plan_copy_fetches(&r->plan[k], graph[k], err);
    if (code != PL_OK)
        return code;
    /* metrics of all objectives come together, with a rate and a norm of each and
     * those of scaling */
    const int others = pl_replica_other_metrics(r);
    int metrics = others;
    for (int k = 0; k < r->objectives; k++) {
        const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_BATCH, k);
        for (int i = 0; i < plan->fetch_count; i++)
            metrics += plan->fetch[i].kind == PL_FETCH_METRIC;
    }
    if (metrics <= PL_METRICS_MAX)
        return PL_OK;
    return pl_fail(err, PL_EUNSUPPORTED,
                   "the module logs %d metrics in training; at most %d are possible",
                   metrics - others, PL_METRICS_MAX - others);
}

/* ---- compiling ---- */

/* Replaces the plan that was there before. */
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

int pl_replica_compile_plan(pl_replica_t *r, pl_replica_plan_t *plan, pl_graph_t *g,
                            pl_replica_calls_t *calls, pl_on_answer_t on_answer,
                            pl_error_t *err)
{
    int code = plan_copy_fetches(plan, g, err);
    if (code == PL_OK && plan->kind == PL_PLAN_BATCH)
        code = pl_replica_place_collectives(r, plan, g, err);
    if (code != PL_OK) {
        pl_graph_free(g);
        return code;
    }
    if (plan->kind == PL_PLAN_BATCH && plan->stage != PL_PREDICT)
        pl_graph_drop_outputs(g);
    g->bucket_params = plan->kind == PL_PLAN_OPTIMIZER;
    if ((plan->kind == PL_PLAN_BATCH && plan->stage == PL_TRAIN)
        || (g->bucket_params && r->registered[PL_REGION_PARAMS])) {
        g->bucket_count = r->bucket_count;
        memcpy(g->bucket, r->bucket, sizeof g->bucket);
    }
    pl_graph_holder_t *holder = pl_graph_hold(&g, err);
    if (!holder)
        return PL_ENOMEM;
    static const char *const kinds[] = {[PL_PLAN_OPTIMIZER] = "optimizer",
                                        [PL_PLAN_RESTORE] = "restore",
                                        [PL_PLAN_EMPTY] = "empty",
                                        [PL_PLAN_OWN] = "synchronize"};
    char name[64];
    const bool is_of_objective = plan->kind == PL_PLAN_BATCH
                                     ? plan->stage == PL_TRAIN
                                     : plan->kind == PL_PLAN_OPTIMIZER;
    const pl_module_objective_t *objective = is_of_objective
                                                 ? r->objective[plan->objective].table
                                                 : NULL;
    const char *kind = plan->kind == PL_PLAN_BATCH ? pl_stages[plan->stage].verb
                                                   : kinds[plan->kind];
    snprintf(name, sizeof name, "%s%s%s", kind, objective ? " " : "",
             objective ? objective->name : "");
    pl_compile_t msg = {.name = name, .graph = &holder->object};
    pl_how_t how = {.on_answer = on_answer, .context = plan};
    code = pl_replica_made_call(calls, pl_call_compile(r, r->accelerator, &msg, how, err),
                                err);
    pl_object_unref(holder);
    return code;
}

static int recompile(pl_replica_t *r, pl_replica_plan_t *plan, pl_replica_calls_t *calls,
                     pl_on_answer_t on_answer, pl_error_t *err)
{
    pl_graph_t *g = plan->kind == PL_PLAN_BATCH ? describe(r, plan, err)
                                                : describe_own(r, plan, err);
    int code = g ? PL_OK : err->code;
    if (code == PL_OK && plan->kind == PL_PLAN_BATCH)
        code = complete(r, plan, g, err);
    if (code == PL_OK && !plan->compiled)
        plan->hash = pl_graph_hash(0, g);
    if (code == PL_OK)
        return pl_replica_compile_plan(r, plan, g, calls, on_answer, err);
    pl_graph_free(g);
    return code;
}

/* Those of batches first: an empty one has their in-graph collectives. */
int pl_replica_recompile(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err)
{
    int code = PL_OK;
    for (int i = 0; i < 2 * r->plan_count && code == PL_OK; i++) {
        const int k = i % r->plan_count;
        const pl_plan_kind_t kind = r->plan[k].kind;
        const bool stays = kind == PL_PLAN_RESTORE
                           || (kind == PL_PLAN_OWN && !r->sync_hooks->norms);
        if (r->plan[k].stage == PL_TRAIN && !stays
            && (kind == PL_PLAN_BATCH) == (i < r->plan_count))
            code = recompile(r, &r->plan[k], &r->freezing, on_answer, err);
    }
    return code;
}

/* ---- batches of other sizes ---- */

int pl_replica_renew_plans(pl_replica_t *r, pl_on_answer_t on_answer, pl_error_t *err)
{
    int kept = 0;
    for (int k = 0; k < r->plan_count; k++) {
        const pl_replica_plan_t *plan = &r->plan[k];
        const pl_discard_plan_t old = {.plan = plan->number};
        const pl_batch_size_t *size = r->signature->stage[plan->stage].size;
        const int sizes = r->signature->stage[plan->stage].size_count;
        bool is_needed = plan->kind != PL_PLAN_BATCH;
        /* A plan that could not be compiled is not needed. */
        for (int i = 0; i < sizes && plan->compiled && !is_needed; i++)
            is_needed = size[i].count == plan->size.count
                        && size[i].length == plan->size.length;
        if (is_needed) {
            r->plan[kept++] = *plan;
            continue;
        }
        if (plan->compiled)
            pl_call_discard_plan(r, r->accelerator, &old, (pl_how_t){0}, NULL);
        pl_free(plan->fetch);
        pl_free(plan->custom);
    }
    memset(r->plan + kept, 0, (size_t)(r->plan_count - kept) * sizeof *r->plan);
    r->plan_count = kept;
    const int there = r->plan_count;
    int code = plans_list(r, err);
    for (int k = there; k < r->plan_count && code == PL_OK; k++)
        code = recompile(r, &r->plan[k], &r->calls, on_answer, err);
    return code;
}

int pl_replica_replay(pl_replica_t *r, int k, const char *what, pl_how_t how,
                      pl_error_t *err)
{
    const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_OWN, k);
    const pl_replay_plan_t msg = {.plan = plan->number,
                                  .what = what,
                                  .after = pl_replica_reduced_fence(r)};
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err) ? PL_OK : err->code;
}

/* ---- what they compute, in checkpoints ---- */

/* The options say what a run computes; the graphs say it too: only they show a module
 * that was changed, or data of other shapes. Only what every step of a training
 * computes counts: not plans that only evaluate, nor those of callbacks, nor those at
 * sync points, which depend on the number of ranks. The order in which they were made
 * does not count: batches of new sizes come later. */
static void hash_text(const pl_replica_t *r, char text[9])
{
    uint32_t hash = 0;
    for (int k = 0; k < r->plan_count; k++) {
        const pl_replica_plan_t *plan = &r->plan[k];
        if (plan->stage == PL_TRAIN && plan->kind != PL_PLAN_RESTORE
            && plan->kind != PL_PLAN_OWN && !plan->accumulate)
            hash += plan->hash;
    }
    snprintf(text, 9, "%08x", hash);
}

int pl_replica_save_plans(const pl_replica_t *r, json_t *into, pl_error_t *err)
{
    char text[9];
    const char *by = pl_actor_name((void *)r);
    hash_text(r, text);
    bool is_kept = json_object_set_new(into, "plans", json_string(text)) == 0
                   && json_object_set_new(into, "ranks", json_integer(r->ranks)) == 0
                   && json_object_set_new(into, "by", json_string(by)) == 0
                   && (!r->order
                       || json_object_set_new(into, "order", json_string(r->order)) == 0);
    return is_kept ? PL_OK : pl_no_memory(err);
}

void pl_replica_compare_plans(pl_replica_t *r, const json_t *from)
{
    char now[9];
    const char *then = json_string_value(json_object_get(from, "plans"));
    if (r->rank > 0)                      /* all ranks have the same: the first reports */
        return;
    const char *order_then = json_string_value(json_object_get(from, "order")),
               *order_now = r->order ? r->order : "tree";
    if (!order_then)
        order_then = "tree";
    if (strcmp(order_then, order_now))
        pl_log_line(
            PL_LOG_WARNING, pl_actor_rank(r), pl_actor_name(r),
            "when the checkpoint was saved, \"%s\" determined the order of sums over "
            "ranks, and now \"%s\" does: the run continues, but not to the same bits",
            order_then, order_now);
    /* Plans of another batch size or strategy differ, which is reported elsewhere. */
    const json_int_t ranks = json_integer_value(json_object_get(from, "ranks"));
    const char *by = json_string_value(json_object_get(from, "by"));
    const bool had_others = (ranks && ranks != (json_int_t)r->ranks)
                            || (by && strcmp(by, pl_actor_name((void *)r)) != 0);
    hash_text(r, now);
    if (then && strcmp(then, now) && !had_others)
        pl_log_line(PL_LOG_WARNING, pl_actor_rank(r), pl_actor_name(r),
                    "a step computes something else than when the checkpoint was saved "
                    "(plans %s, now %s): the module, the shapes of the data or Paceline "
                    "have changed; the run continues, but not to the same bits",
                    then, now);
}
