/* replica_own.c - the plans that no module describes: of the optimizers, of a batch
 * without samples, of what a guarded step goes back to, of what a strategy does where
 * ranks meet */
#include <string.h>

#include "base/error.h"
#include "base/run.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica_parts.h"
#include "tensor/model.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

static pl_graph_t *describe_optimizer(pl_replica_t *r, int step, pl_error_t *err)
{
    const pl_trainer_options_t *trainer = r->job->trainer;
    const bool by_value = !strcmp(trainer->gradient_clip_algorithm, "value");
    pl_optimizer_t *optimizer = r->step[step].optimizer;
    if (pl_replica_is_partitioned(r)) {
        int64_t count;
        pl_replica_partition(r, &optimizer->first, &count);
        optimizer->end = optimizer->first + count;
    }
    optimizer->clip_value = by_value ? trainer->gradient_clip_val : 0;
    return pl_optimizer_graph(optimizer, r->model, r->nominal,
                              by_value ? 0 : trainer->gradient_clip_val, err);
}

static void assign_zeros(pl_graph_t *g, int64_t from, pl_shape_t shape)
{
    const pl_node_t grads = pl_region_view(g, PL_REGION_GRADS, from, shape);
    pl_assign(g, grads, pl_broadcast_to(g, pl_scalar(g, 0), shape));
}

/* Of the parameters that a step trains, and of its loss. */
static void describe_zeros(const pl_replica_t *r, int step, pl_graph_t *g)
{
    for (int64_t from = 0, to = 0; pl_replica_range(r, step, &from, &to);)
        assign_zeros(g, from, PL_SHAPE(to - from));
    assign_zeros(g, r->model->params + 2 * step, pl_shape(0));
    assign_zeros(g, r->model->params + 2 * step + 1, pl_shape(0));
}

static pl_graph_t *describe_empty(const pl_replica_t *r, const pl_replica_plan_t *plan,
                                  pl_error_t *err)
{
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    if (!plan->accumulate)
        describe_zeros(r, plan->step, g);
    pl_replica_exchange_nothing(r, plan->step, g);
    if (pl_graph_check(g, err) == PL_OK
        && pl_graph_cast(g, r->model->precision, err) == PL_OK)
        return g;
    pl_graph_free(g);
    return NULL;
}

/* What a guarded step goes back to is kept by each that is not. */
static pl_graph_t *describe_restore(const pl_replica_t *r, pl_error_t *err)
{
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    const pl_shape_t shape = PL_SHAPE(r->model->state);
    pl_assign(g, pl_region_view(g, PL_REGION_STATE, 0, shape),
              pl_region_view(g, PL_REGION_KEPT, 0, shape));
    if (pl_graph_check(g, err) == PL_OK)
        return g;
    pl_graph_free(g);
    return NULL;
}

pl_graph_t *pl_replica_describe_own(pl_replica_t *r, const pl_replica_plan_t *plan,
                                    pl_error_t *err)
{
    switch (plan->kind) {
    case PL_PLAN_RESTORE: return describe_restore(r, err);
    case PL_PLAN_EMPTY: return describe_empty(r, plan, err);
    case PL_PLAN_OWN: return r->meets->describe(r, plan->step, err);
    default: return describe_optimizer(r, plan->step, err);
    }
}

int pl_replica_replay(pl_replica_t *r, int k, const char *what, pl_how_t how,
                      pl_error_t *err)
{
    const pl_replica_plan_t *plan = pl_replica_plan_of(r, PL_PLAN_OWN, k);
    const pl_replay_plan_t msg = {.plan = plan->number, .what = what};
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err) ? PL_OK : err->code;
}
