/* forward.c - forward passes of a replica, and their results */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/collectives/tree.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/precision.h"

bool pl_replica_backs_up_state(const pl_replica_t *r)
{
    return r->job->stage == PL_TRAIN && r->model->state > 0;
}

/* ---- outputs ---- */

/* Memory for a plan's outputs, or NULL if it has none; *failed: there is no memory. */
static pl_outputs_t *outputs_new(const pl_replica_plan_t *plan, int64_t samples,
                                 bool *failed, pl_error_t *err)
{
    pl_outputs_t *outputs = NULL;
    int made = 0, code = PL_OK;
    *failed = false;
    for (int k = 0; k < plan->fetch_count && code == PL_OK; k++) {
        if (plan->fetch[k].kind != PL_FETCH_OUTPUT)
            continue;
        pl_shape_t shape = plan->output_shape[made++];
        if (shape.rank && shape.dim[0] == plan->size.count)
            shape.dim[0] = samples;
        if (!outputs && !(outputs = pl_outputs_new(err)))
            code = PL_ENOMEM;
        else
            code = pl_outputs_add(outputs, plan->fetch[k].name, shape, err);
    }
    if (code == PL_OK)
        return outputs;
    pl_object_unref(outputs);
    *failed = true;
    return NULL;
}

/* ---- a batch in micro-shards ---- */

int64_t pl_replica_piece(const pl_replica_t *r, const pl_batch_t *batch, int micro_shard)
{
    const int64_t whole = batch->count,
                  per_row = r->job->data->batch_size < whole ? r->job->data->batch_size
                                                             : whole,
                  left = whole - micro_shard * per_row;
    if (!r->micro.micro_shards)
        return micro_shard ? 0 : whole;
    return left < per_row ? left > 0 ? left : 0 : per_row;
}

void pl_replica_fold(const pl_replica_t *r, double *metrics, size_t count)
{
    const void *row[PL_MICRO_SHARDS_MAX];
    for (uint32_t k = 0; k < r->micro.micro_shards; k++)
        row[k] = metrics + k * count;
    pl_tree_reduce(metrics, row, (int)r->micro.micro_shards, count, PL_F64,
                   PL_REDUCE_SUM);
}

/* ---- a forward pass ---- */

/* A call whose answer never comes is freed with the replica. */
static void forward_free(pl_forward_t *forward)
{
    *forward->from = forward->next;
    if (forward->next)
        forward->next->from = forward->from;
    pl_object_unref(forward->outputs);
    pl_free(forward->metrics);
    pl_free(forward);
}

static void forward_reply(pl_forward_t *forward, pl_bytes_t metrics, bool halt)
{
    pl_evaluate_batch_reply_t reply = {.halt = halt,
                                       .metrics = metrics,
                                       .outputs = forward->outputs
                                                      ? &forward->outputs->object
                                                      : NULL,
                                       .samples = (uint32_t)forward->samples};
    pl_reply_evaluate_batch(forward->call, &reply);
    forward_free(forward);
}

static void turn_next(pl_replica_t *r);

void pl_replica_gathered(pl_replica_t *r, pl_forward_t *forward,
                         const pl_error_t *failure, bool halt)
{
    if (r->micro.micro_shards && !failure) {
        forward->metric_count /= r->micro.micro_shards;
        pl_replica_fold(r, forward->metrics, forward->metric_count);
    }
    const pl_bytes_t metrics = {forward->metrics,
                                forward->metric_count * sizeof *forward->metrics};
    if (r->turn == forward)
        r->turn = NULL;
    if (failure) {
        pl_call_fail(forward->call, failure);
        forward_free(forward);
    } else {
        forward_reply(forward, metrics, halt);
    }
    turn_next(r);
}

/* The results of this rank are there, or its failure. After a failure the ranks still
 * synchronize on it: what follows it waits for that. */
static void forward_end(pl_replica_t *r, pl_forward_t *forward)
{
    pl_error_t err = forward->failure;
    forward->done = true;
    if (!forward->gathers || r->sync_hooks->gather(r, forward, &err) != PL_OK)
        pl_replica_gathered(r, forward,
                            forward->failure.code != PL_OK ? &forward->failure : &err,
                            false);
}

static int forward_send(pl_replica_t *r, pl_forward_t *forward, pl_error_t *err);

/* The replay waits at a collective, from 1, of all ranks. */
static void forward_waits(pl_replica_t *r, pl_forward_t *forward, int number)
{
    const pl_replica_collectives_t *list = pl_replica_collectives(r, forward->plan);
    pl_error_t *err = &forward->failure;
    pl_actor_does(r, forward->call);
    if (number != ++forward->collectives_begun || number > list->count)
        pl_fail(err, PL_EBUG, "a plan that evaluates waits at collective %d of %d",
                number, list->count);
    else if (r->sync_hooks->collective(r, &list->of[number - 1], err) == PL_OK)
        return;
    forward_end(r, forward);
}

static void forward_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_forward_t *forward = answer->context;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    const pl_bytes_t metrics = answer->kind == PL_ANSWER_REPLY
                                   ? answer->body->replay_plan_reply.metrics
                                   : (pl_bytes_t){0};
    if (answer->kind == PL_ANSWER_REPLY && answer->body->replay_plan_reply.collective) {
        forward_waits(r, forward, (int)answer->body->replay_plan_reply.collective);
        return;
    }
    if (answer->kind == PL_ANSWER_ERROR && forward->failure.code == PL_OK)
        forward->failure = *answer->error;
    if (forward->gathers) {        /* the answers come in the order of the micro-shards */
        const size_t count = metrics.size / sizeof(double),
                     row = r->micro.first + (size_t)forward->back;
        double *to = forward->metrics + (r->micro.micro_shards ? row * count : 0);
        if (count)
            memcpy(to, metrics.data, metrics.size);
        for (size_t k = 0; k < count && r->micro.micro_shards; k++)
            to[k] += 0.0;       /* -0 becomes 0, as when zeros of other ranks are added */
    }
    forward->back++;
    if (forward->failure.code == PL_OK && r->turn != forward)
        forward_send(r, forward, &forward->failure);
    if (forward->back < forward->sent)
        return;
    if (forward->failure.code != PL_OK) {
        forward_end(r, forward);
        return;
    }
    /* Integers become float32, as all outputs are. */
    for (int k = 0; forward->outputs && k < forward->outputs->count; k++) {
        float *data = forward->outputs->output[k].data;
        int64_t count = forward->plan->output_is_int[k]
                            ? pl_elements(forward->outputs->output[k].shape)
                            : 0;
        for (int64_t i = 0; i < count; i++) {
            int32_t number;
            memcpy(&number, &data[i], sizeof number);
            data[i] = (float)number;
        }
    }
    if (forward->gathers)
        forward_end(r, forward);
    else
        forward_reply(forward, metrics, false);
}

/* Replays a plan for one micro-shard, from its begin or from the collective at which it
 * waits. */
static int forward_replay(pl_replica_t *r, const pl_forward_t *forward,
                          const pl_replica_plan_t *plan, int micro_shard, pl_error_t *err)
{
    const pl_batch_t *batch = forward->batch;
    const double slot = r->micro.micro_shards ? (double)r->micro.first + micro_shard
                                              : (double)r->rank;
    const pl_replay_plan_t replay = {
        .scalars = {&slot, sizeof slot},
        .plan = plan->number,
        .what = "forward",
        .seed = (uint64_t)r->job->trainer->seed,
        .continues = forward->collectives_begun > 0,
        .batch = &((pl_batch_t *)batch)->object,
        .first = (uint64_t)(micro_shard * pl_replica_piece(r, batch, 0)),
        .outputs = forward->outputs ? &forward->outputs->object : NULL,
        .after = pl_replica_reduced_fence(r)};
    const pl_how_t how = {.on_answer = forward_answered, .context = (void *)forward};
    pl_actor_does(r, forward->call);
    return pl_call_replay_plan(r, r->accelerator, &replay, how, err) ? PL_OK : err->code;
}

/* One micro-shard after the other, at most two of each batch at once. */
static int forward_send(pl_replica_t *r, pl_forward_t *forward, pl_error_t *err)
{
    const pl_batch_t *batch = forward->batch;
    for (int64_t samples; forward->sent - forward->back < 2
                          && (samples = pl_replica_piece(r, batch, forward->sent));) {
        const pl_replica_plan_t like = {.stage = forward->plan->stage,
                                        .size = {samples, batch->length}};
        const pl_replica_plan_t *plan = pl_replica_plan(r, &like, err);
        if (!plan || forward_replay(r, forward, plan, forward->sent, err) != PL_OK)
            return err->code;
        forward->sent++;
    }
    return PL_OK;
}

/* ---- batches in whose plans ranks synchronize: one after the other ---- */

/* The plan of a batch with samples or, with the same collectives, of one without. */
static int turn_replay(pl_replica_t *r, pl_forward_t *forward, pl_error_t *err)
{
    const pl_replica_plan_t *plan = forward->batch->count ? forward->plan : NULL;
    for (int k = 0; k < r->plan_count && !plan; k++)
        if (r->plan[k].kind == PL_PLAN_EMPTY && r->plan[k].stage == forward->plan->stage)
            plan = &r->plan[k];
    return plan ? forward_replay(r, forward, plan, 0, err)
                : pl_fail(err, PL_EUNSUPPORTED,
                          "this rank has no samples of a batch for which ranks "
                          "synchronize (all_gather, all_reduce): each rank needs some");
}

/* The oldest that waits; without results the ranks still synchronize on its failure. */
static void turn_next(pl_replica_t *r)
{
    pl_forward_t *next = NULL;
    for (pl_forward_t *f = r->forward; f && !r->turn; f = f->next)
        if (f->waits)
            next = f;
    if (!next)
        return;
    next->waits = false;
    next->sent = 1;
    r->turn = next;
    if (next->failure.code != PL_OK || turn_replay(r, next, &next->failure) != PL_OK)
        forward_end(r, next);
}

void pl_replica_forward_continues(pl_replica_t *r, const pl_error_t *failure)
{
    pl_forward_t *forward = r->turn;
    if (failure)
        forward->failure = *failure;
    else if (turn_replay(r, forward, &forward->failure) == PL_OK)
        return;
    forward_end(r, forward);
}

int pl_replica_evaluate(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    pl_replica_t *r = self;
    const pl_batch_t *batch = (const pl_batch_t *)body->evaluate_batch.batch;
    const pl_replica_plan_t like = {.stage = (pl_stage_t)body->evaluate_batch.stage,
                                    .size = {pl_replica_piece(r, batch, 0),
                                             batch->length}},
                            *plan = NULL;
    /* Without samples any plan of the stage: all have the same metrics. */
    const bool is_empty = r->sync_hooks && !batch->count;
    for (int k = 0; k < r->plan_count && is_empty && !plan; k++)
        if (r->plan[k].kind == PL_PLAN_BATCH && r->plan[k].stage == like.stage)
            plan = &r->plan[k];
    if (!plan)
        plan = pl_replica_plan(r, &like, err);
    const bool waits = plan && pl_replica_collectives(r, plan)->count > 0;
    if (waits && body->evaluate_batch.alone)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "one rank evaluates this batch alone, but the module waits for all "
            "ranks (all_gather, all_reduce)");
    pl_forward_t *forward = plan ? pl_alloc(sizeof *forward) : NULL;
    if (!forward)
        return plan ? pl_no_memory(err) : err->code;
    *forward = (pl_forward_t){.next = r->forward,
                              .from = &r->forward,
                              .call = call,
                              .plan = plan,
                              .batch = batch,
                              .samples = batch->count,
                              .gathers = r->sync_hooks && !body->evaluate_batch.alone};
    if (r->forward)
        r->forward->from = &forward->next;
    r->forward = forward;
    int code = PL_OK;
    if (forward->gathers) {          /* ranks gather in the order in which batches came */
        forward->metric_count = pl_replica_metrics(forward->plan)
                                * (r->micro.micro_shards ? r->micro.micro_shards : 1);
        forward->metrics = pl_alloc_array(forward->metric_count + 1, sizeof(double));
        code = forward->metrics ? r->sync_hooks->gather(r, forward, err)
                                : pl_no_memory(err);
    }
    if (code != PL_OK) {
        forward_free(forward);
        return code;
    }
    bool failed = false;
    if (plan->stage == PL_PREDICT && !is_empty)
        forward->outputs = outputs_new(plan, forward->samples, &failed,
                                       &forward->failure);
    forward->waits = waits;
    if (waits)
        turn_next(r);
    else if (is_empty
             || ((failed || forward_send(r, forward, &forward->failure) != PL_OK)
                 && !forward->sent))
        forward_end(r, forward);
    return PL_OK;
}

size_t pl_replica_max_metrics(const pl_replica_t *r)
{
    size_t max = 0;
    for (int k = 0; k < r->plan_count; k++) {
        const size_t numbers = pl_replica_metrics(&r->plan[k]);
        max = numbers > max ? numbers : max;
    }
    return max;
}

int64_t pl_replica_gradients(const pl_replica_t *r, pl_dtype_t *dtype)
{
    *dtype = pl_region_dtype(r->model->precision, PL_REGION_GRADS);
    return pl_replica_region_count(r, PL_REGION_GRADS);
}

bool pl_replica_range(const pl_replica_t *r, int objective, int64_t *from, int64_t *to)
{
    return pl_trained_range(r->model, objective, from, to);
}

void pl_replica_drop_forwards(pl_replica_t *r)
{
    while (r->forward)
        forward_free(r->forward);
}

/* ---- metrics ---- */

/* Appends a line in the form of messages.def; NULL if there is no memory. */
static PL_PRINTF(2, 3) char *names_add(char *names, const char *format, ...)
{
    char name[192];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    char *longer = names ? pl_text("%s%s\n", names, name) : NULL;
    pl_free(names);
    return longer;
}

int pl_replica_other_metrics(const pl_replica_t *r)
{
    int metrics = 2 * r->objectives + 2;
    for (int k = 0; k < r->objectives; k++) {
        const pl_optimizer_t *optimizer = r->objective[k].optimizer;
        metrics += optimizer->group_count;
        for (int i = 0; i < PL_STEPPED; i++)
            if (optimizer->stepped[i].option)
                metrics += 1 + optimizer->group_count;
    }
    return metrics;
}

/* The fields of a line for a custom metric. */
static void custom_text(const pl_custom_metric_t *custom, char text[static 256])
{
    int length = snprintf(text, 256, "\t%s\t%d\t%d", custom->name, custom->slots,
                          custom->states);
    for (int k = 0; k < custom->states; k++)
        length += snprintf(text + length, (size_t)(256 - length), "\t%d\t%lld\t%lld",
                           (int)custom->state[k].combine,
                           (long long)custom->state[k].rows,
                           (long long)custom->state[k].columns);
}

char *pl_replica_names(const pl_replica_t *r, pl_stage_t stage, pl_error_t *err)
{
    char *names = pl_strdup("");
    for (int k = 0; k < r->plan_count; k++) {
        const pl_replica_plan_t *plan = &r->plan[k], *first = r->plan;
        if (plan->kind != PL_PLAN_BATCH || plan->stage != stage)
            continue;
        /* All plans of a stage and objective have the same metrics. */
        while (first->kind != PL_PLAN_BATCH || first->stage != stage
               || first->objective != plan->objective)
            first++;
        if (first != plan)
            continue;
        const pl_module_objective_t *objective = stage == PL_TRAIN
                                                     ? r->objective[plan->objective].table
                                                     : NULL;
        const char *name = objective ? objective->name : "";
        for (int i = 0; i < plan->fetch_count; i++) {
            const pl_fetch_t *f = &plan->fetch[i];
            if (f->kind != PL_FETCH_METRIC)
                continue;
            char states[256] = "";
            if (f->metric == PL_METRIC_CUSTOM)
                custom_text(&plan->custom[f->custom], states);
            names = names_add(names, "%s%s%s%s\t%d\t%d\t%lld\t%lld\t%.17g%s", name,
                              *name ? "_" : "", f->name, f->when & PL_ON_STEP ? "*" : "",
                              f->metric, f->average, (long long)f->sums,
                              (long long)f->columns, f->parameter, states);
        }
    }
    for (int k = 0; k < r->objectives && stage == PL_TRAIN; k++) {
        const pl_module_objective_t *objective = r->objective[k].table;
        const pl_optimizer_t *optimizer = r->objective[k].optimizer;
        const char *name = objective ? objective->name : optimizer->ops->name;
        /* The learning rate, and what schedules set besides. */
        static const char *const values[] = {"lr", "momentum", "weight_decay"};
        for (int v = 0; v <= PL_STEPPED; v++) {
            if (v && !optimizer->stepped[v - 1].option)
                continue;
            names = names_add(names, "=%s-%s", values[v], name);
            for (int i = 1; i <= optimizer->group_count; i++)
                names = names_add(names, "=%s-%s/pg%d", values[v], name, i);
        }
        names = names_add(names, "=grad_norm%s%s", objective ? "-" : "",
                          objective ? objective->name : "");
    }
    if (stage == PL_TRAIN && r->model->scaling)
        names = names_add(names, "=loss_scale\n=skipped_steps");
    if (!names)
        pl_no_memory(err);
    return names;
}
