/* sync.c - the work of ranks together in a training step: sums of gradients, what
 * follows the update, and collectives in the middle of a plan
 *
 * The sums of a step, and what follows its update, belong to the oldest step that
 * waits for them, because all ranks reach everything in the same order.
 *
 * trainer.sync_batchnorm, pl_all_gather() and pl_all_reduce() need values of all ranks
 * before a plan can continue, once in forward and once in backward. The plan waits there
 * (an operation `collective`), the ranks synchronize on a piece of
 * PL_REGION_COLLECTIVE, and the plan continues. The collectives, and the buckets of
 * gradients that are there before each, follow from the graph alone. So all ranks
 * reach everything in the same order, also a rank without samples, which brings zeros. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/replica/train.h"
#include "tensor/model.h"
#include "tensor/operators.h"

/* ---- sums, and what follows the update ---- */

/* This rank's data of the step. */
pl_replica_sums_t pl_train_sums(const pl_replica_t *r, const pl_objective_state_t *o)
{
    const pl_inflight_t *f = o->inflight;
    const size_t from = pl_metrics_before(r, o->objective),
                 to = pl_metrics_before(r, o->objective + 1);
    return (pl_replica_sums_t){.objective = o->objective,
                               .number = f->number,
                               .batch = f->micro_batch,
                               .is_last = f->step_due,
                               .has_samples = r->pipeline->has_samples[o->objective],
                               .metrics = f->metrics + from,
                               .metric_count = to - from};
}

/* Sums that were requested before the batch was computed wait for its metrics. */
void pl_train_computed(pl_replica_t *r, pl_objective_state_t *o, bool has_run)
{
    if (!pl_train_runs_ahead(r) || !pl_objective_owes(&o->stages, PL_STAGE_REDUCE))
        return;
    pl_replica_sums_t sums = pl_train_sums(r, o);
    if (!has_run)
        sums.metrics = NULL, sums.metric_count = 0;
    r->sync_hooks->computed(r, &sums);
}

/* Ranks may have equal weights only behind an optimizer step: then nothing else begins
 * before that is over. */
void pl_train_follow(pl_replica_t *r, pl_objective_state_t *o, bool was_made)
{
    pl_error_t err = {0};
    pl_replica_sums_t sums = pl_train_sums(r, o);
    if (!was_made)
        sums.metrics = NULL, sums.metric_count = 0;
    pl_train_take(r, o, PL_OBJECTIVE_ON_FOLLOW_SENT);
    pl_actor_does(r, o->inflight->call);
    if (!pl_train_gradients_stay(r))
        pl_train_sync_begin(r);
    if (r->sync_hooks->stepped(r, &sums, &err) != PL_OK)
        pl_replica_reported(r, &err, false);
}

/* The oldest that waits for the other ranks: for its sums to be ordered, or reported. 
 * A skipped or failed one need not be ordered any more. */
static pl_objective_state_t *syncing(pl_replica_t *r, bool to_order)
{
    pl_error_t err = {0};
    for (pl_inflight_t *f = r->pipeline->first; f && to_order; f = f->next)
        for (int k = 0; k < r->objectives; k++)
            if (f->objective[k].stages.phase == PL_OBJECTIVE_REDUCING
                || f->objective[k].stages.phase == PL_OBJECTIVE_FOLLOWING)
                return &f->objective[k];
    pl_objective_state_t *o = pl_train_owing(r, PL_STAGES_OF_RANKS);
    if (o)
        return o;
    pl_fail(&err, PL_EBUG, "the ranks have synchronized, and no training step waits");
    pl_actor_end(r, &err);
    return NULL;
}

/* Its sums are reported before what follows the update, which may be ordered earlier. */
static bool syncing_order(pl_replica_t *r)
{
    pl_objective_state_t *o = syncing(r, true);
    return o
           && pl_train_take(r, o,
                            o->stages.phase != PL_OBJECTIVE_FOLLOWING
                                    && pl_objective_owes(&o->stages, PL_STAGE_REDUCE)
                                ? PL_OBJECTIVE_ON_REDUCE_ORDERED
                                : PL_OBJECTIVE_ON_FOLLOW_ORDERED);
}

void pl_replica_ordered(pl_replica_t *r)
{
    if (syncing_order(r))
        pl_train_advance(r);
}

void pl_replica_reported(pl_replica_t *r, const pl_error_t *failure, bool halt)
{
    pl_objective_state_t *o = syncing(r, false);
    if (!o)
        return;
    const pl_objective_stage_t stage = pl_objective_owes(&o->stages, PL_STAGE_REDUCE)
                                           ? PL_STAGE_REDUCE
                                           : PL_STAGE_FOLLOW;
    if (stage == PL_STAGE_REDUCE ? !pl_train_runs_ahead(r) : !pl_train_gradients_stay(r))
        pl_train_sync_end(r);
    o->inflight->halt |= halt;
    if (failure)
        pl_train_stage_fail(r, o, stage, failure);
    else if (pl_train_take(r, o,
                           pl_objective_event_of(stage, PL_OBJECTIVE_ON_COMPUTE_REPORTED))
             && stage == PL_STAGE_REDUCE && pl_train_syncs_batches(r))
        pl_train_carry(r, o);
    if (r->pipeline->state == PL_PIPELINE_FOLLOWING) {
        pl_train_followed(r);
        return;
    }
    pl_train_advance(r);
    pl_train_answer(r);
}

void pl_replica_reduced(pl_replica_t *r, const pl_error_t *failure, bool halt)
{
    if (failure || syncing_order(r))
        pl_replica_reported(r, failure, halt);
}

/* ---- which in-graph collectives there are ---- */

int pl_replica_bind_norms(pl_replica_t *r, pl_error_t *err)
{
    if (!r->job->trainer->sync_batchnorm || r->ranks < 2 || r->job->stage != PL_TRAIN)
        return PL_OK;
    if (!r->sync_hooks->collective)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "\"trainer.sync_batchnorm\" synchronizes ranks in the middle of a "
                       "step, which this \"trainer.strategy\" does not support: use "
                       "another, such as \"ddp\"");
    r->model->together = true;
    return PL_OK;
}

pl_replica_collectives_t *pl_replica_collectives(pl_replica_t *r,
                                                 const pl_replica_plan_t *plan)
{
    return plan->stage == PL_TRAIN ? &r->objective[plan->objective].collectives
                                   : &r->evaluated[plan->stage];
}

static int collectives_depend(pl_error_t *err)
{
    return pl_fail(
        err, PL_EUNSUPPORTED,
        "what the module does with all ranks (all_gather, all_reduce, and "
        "batch_norm with \"trainer.sync_batchnorm\") depends on the size of the "
        "batch: it must be the same for all sizes, and the first batch of a "
        "manual loop the largest");
}

/* Whether the next plan of a list begins with other collectives than the plans before.
 * Those of backward depend on which parameters are frozen. */
static bool begins_otherwise(const pl_replica_collectives_t *before,
                             const pl_replica_collectives_t *next)
{
    for (int k = 0; k < before->count || k < next->count; k++) {
        const pl_replica_collective_t *a = k < before->count ? &before->of[k] : NULL,
                                      *b = k < next->count ? &next->of[k] : NULL;
        const bool is_backward = (!a || a->is_backward) && (!b || b->is_backward);
        if (!is_backward && !(a && b && a->how == b->how && a->count == b->count))
            return true;
    }
    return false;
}

int pl_replica_find_collectives(pl_replica_t *r, const pl_replica_plan_t *plan,
                                const pl_graph_t *g, pl_error_t *err)
{
    pl_replica_collectives_t *list = pl_replica_collectives(r, plan);
    pl_replica_collective_t *found =
        g->collectives ? pl_alloc_array((size_t)g->collectives, sizeof *found) : NULL;
    const pl_replica_collectives_t next = {found, g->collectives};
    if (g->collectives && !found)
        return pl_no_memory(err);
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        if (op->code != PL_OP_collective)
            continue;
        const pl_value_t *piece = &g->value[op->input[0]];
        found[op->attr.axis] =
            (pl_replica_collective_t){.how = (pl_graph_collective_t)op->attr.from,
                                      .running = op->attr.running,
                                      .from = piece->offset,
                                      .count = pl_elements(piece->shape),
                                      .evaluates = plan->stage != PL_TRAIN,
                                      .is_backward = op->gradient_of != NULL};
    }
    if (list->is_found && begins_otherwise(list, &next)) {
        pl_free(found);
        return collectives_depend(err);
    }
    pl_free(list->of);
    *list = next;
    list->is_found = true;
    return PL_OK;
}

/* Whether one of the operations from `from` on assigns to gradients from an element
 * on. */
static bool assigns_later(const pl_graph_t *g, int from, int64_t element, int64_t end)
{
    for (int i = from; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        const pl_value_t *target = op->input_count ? &g->value[op->input[0]] : NULL;
        if (op->code == PL_OP_assign && target->index == PL_REGION_GRADS
            && target->offset >= element && target->offset < end)
            return true;
    }
    return false;
}

int pl_replica_place_collectives(pl_replica_t *r, const pl_replica_plan_t *plan,
                                 const pl_graph_t *g, pl_error_t *err)
{
    const pl_replica_collectives_t *list = pl_replica_collectives(r, plan);
    if (g->collectives != list->count)
        return collectives_depend(err);
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        if (op->code != PL_OP_collective)
            continue;
        pl_replica_collective_t *collective = &list->of[op->attr.axis];
        int buckets = 0;
        if (collective->from + collective->count > r->collective_elements)
            return collectives_depend(err);
        while (buckets < r->bucket_count
               && !assigns_later(g, i, r->bucket[buckets + 1], r->bucket[0]))
            buckets++;
        collective->buckets = buckets;
    }
    return PL_OK;
}

/* Elements of the pieces of forward. Backward has no more than forward, and fewer while
 * parameters are frozen. */
static int64_t forward_elements(const pl_replica_collectives_t *list)
{
    int64_t elements = 0;
    for (int k = 0; k < list->count; k++)
        elements += list->of[k].is_backward ? 0
                                            : (list->of[k].count + PL_REGION_ALIGN - 1)
                                                  / PL_REGION_ALIGN * PL_REGION_ALIGN;
    return elements;
}

int64_t pl_replica_collectives_end(const pl_replica_t *r)
{
    int64_t max = 0;
    for (int k = 0; k < r->objectives && r->job->stage == PL_TRAIN; k++) {
        const int64_t both = 2 * forward_elements(&r->objective[k].collectives);
        max = both > max ? both : max;
    }
    for (int stage = 0; stage <= PL_PREDICT; stage++) {
        const int64_t elements = forward_elements(&r->evaluated[stage]);
        max = elements > max ? elements : max;
    }
    return max;
}

/* ---- a rank without samples ---- */

/* A rank without samples enters the same collectives with zeros, and after those of
 * moments it updates its running statistics as the others do. */
void pl_replica_empty_collectives(const pl_replica_collectives_t *list, pl_graph_t *g)
{
    for (int k = 0; k < list->count; k++) {
        const pl_replica_collective_t *collective = &list->of[k];
        const pl_shape_t shape = PL_SHAPE(collective->count);
        pl_assign(g, pl_region_view(g, PL_REGION_COLLECTIVE, collective->from, shape),
                  pl_broadcast_to(g, pl_scalar(g, 0), shape));
        const bool moments = collective->how == PL_GRAPH_COLLECTIVE_MOMENTS;
        pl_graph_collective(g, collective->how, collective->from, collective->count,
                            moments ? &collective->running : NULL);
        if (moments)
            pl_running_follow(g, collective->from, &collective->running);
    }
}

const pl_replica_plan_t *pl_train_empty_plan(const pl_replica_t *r,
                                             const pl_objective_state_t *o)
{
    const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_EMPTY, o->objective);
    const bool accumulates = o->inflight->micro_batch > 0;
    while (plan < r->plan + r->plan_count
           && (plan->kind != PL_PLAN_EMPTY || plan->objective != o->objective
               || plan->accumulate != accumulates))
        plan++;
    return plan;
}

/* ---- in-graph collectives in a step ---- */

int pl_train_buckets(const pl_replica_t *r, const pl_objective_state_t *o, int ready)
{
    const pl_replica_collectives_t *list = &r->objective[o->objective].collectives;
    const int max = o->collectives_begun < list->count
                        ? list->of[o->collectives_begun].buckets
                        : r->bucket_count;
    return ready < max ? ready : max;
}

int pl_train_collective(pl_replica_t *r, pl_objective_state_t *o, int number,
                        pl_error_t *err)
{
    const pl_replica_collectives_t *list = &r->objective[o->objective].collectives;
    if (number != o->collectives_begun + 1 || number > list->count)
        return collectives_depend(err);
    if (o->inflight->step_due && r->sync_hooks->ready)
        r->sync_hooks->ready(r, pl_train_buckets(r, o, r->bucket_count), NULL);
    o->collectives_begun = number;
    pl_actor_does(r, o->inflight->call);
    pl_train_sync_begin(r);
    return r->sync_hooks->collective(r, &list->of[number - 1], err);
}

void pl_replica_collective_done(pl_replica_t *r, const pl_error_t *failure)
{
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    if (r->turn) {
        pl_replica_forward_continues(r, failure);
        return;
    }
    pl_objective_state_t *o = pl_train_owing(r, 1u << PL_STAGE_COMPUTE);
    pl_train_sync_end(r);
    if (!o) {
        pl_fail(&err, PL_EBUG,
                "an in-graph collective has ended, and no training step waits");
        pl_actor_end(r, &err);
        return;
    }
    if (!failure
        && (!pl_train_take(r, o, PL_OBJECTIVE_ON_COLLECTIVE_DONE)
            || pl_train_replay(r, o, &err) == PL_OK))
        return;
    pl_train_stage_fail(r, o, PL_STAGE_COMPUTE, &err);
    pl_train_replay_ended(r);
}
