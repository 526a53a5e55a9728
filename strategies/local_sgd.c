/* local_sgd.c - ranks train by themselves and synchronize now and then, for slow
 * networks
 *
 * DiLoCo (Douillard et al., arXiv 2311.08105): each rank takes sync_every optimizer
 * steps with its own samples. Then the mean of their distances, weighted by the
 * samples of each rank, is taken as a gradient, and an outer optimizer, SGD with
 * Nesterov momentum, steps with it from the outer parameters. The state of the inner
 * optimizer is averaged as well (Yu et al., arXiv 1905.03817). Afterwards all ranks
 * have the same bits of everything, so a checkpoint has one state and any number of
 * ranks can resume from it.
 *
 * Built on ddp. Before the weights are read the ranks synchronize; the metrics of the
 * steps in between are reported then. Where gradients stay on devices, the averages
 * stay there too. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/run.h"
#include "strategies/ddp/ddp.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

typedef struct local {
    pl_ddp_t ddp;                                      /* first: this strategy is a ddp */
    int64_t sync_every;
    double outer_lr, outer_momentum;
    bool nesterov;
    pl_sync_hooks_t sync_hooks;
    bool apart;             /* this rank has taken steps since the last synchronization */
    double *metrics;        /* [count], sums since the last synchronization  [none yet] */
    size_t count;
    bool has_samples;
    double weight;             /* of the losses since the last synchronization */
    double *reported;          /* destination of the sums of all ranks  [not known yet] */
    pl_call_t *synchronizing;  /* the call that requested it  [a step] */
    bool compared;             /* the summands are there, or in order */
} local_t;

static const pl_option_t local_options[] = {
    PL_DDP_OPTIONS,
    PL_INT(local_t, sync_every, "100", "1..",
           "optimizer steps between two synchronizations"),
    PL_FLOAT(local_t, outer_lr, "0.7", "(0..",
             "learning rate of the outer step; 1 without momentum gives the mean of the "
             "ranks"),
    PL_FLOAT(local_t, outer_momentum, "0.9", "[0..1)", "momentum of the outer step"),
    PL_BOOL(local_t, nesterov, "true", "the outer step looks ahead by one momentum step"),
    PL_OPTIONS_END,
};

/* ---- graphs ---- */

enum { BEGIN, COMPARE, STEP, GRAPHS };

/* Its own region, [parameters]: the parameters after the last synchronization. The
 * region before it belongs to ddp/state.c. */
enum { OUTER_PARAMS = PL_REGION_STRATEGY0 + 1 };

/* Step scalars of a rank: the weight of its losses, and those of ddp/state.c. */
enum { WEIGHT, STATE, SCALARS = STATE + PL_DDP_STATE_SCALARS };

/* The weight of a rank without samples: it counts only if no rank has any. */
static const double NEARLY_NOTHING = 0x1p-40;

static int inner_slots(const pl_replica_t *r)
{
    return pl_replica_slots(r) - r->sync_hooks->slots;
}

static pl_node_t view(const pl_replica_t *r, pl_graph_t *g, int region)
{
    return pl_region_view(g, (pl_region_t)region, 0, PL_SHAPE(r->model->params));
}

/* The weights that the optimizer updates. */
static pl_node_t weights(const pl_replica_t *r, pl_graph_t *g)
{
    return view(r, g,
                pl_has_master(r->model->precision) ? PL_REGION_MASTER : PL_REGION_PARAMS);
}

/* Where backward leaves the weight of a batch, and the sum over all ranks is. */
static pl_node_t weight_view(const pl_replica_t *r, pl_graph_t *g)
{
    return pl_region_view(g, PL_REGION_GRADS, r->model->params + 1, PL_SHAPE(1));
}

/* Each summand is weighted. */
static void describe_compare(const local_t *local, pl_graph_t *g)
{
    const pl_replica_t *r = &local->ddp.replica;
    const pl_node_t weight = pl_step_scalar(g, WEIGHT),
                    outer_grad = pl_sub(g, view(r, g, OUTER_PARAMS), weights(r, g));
    pl_assign(g, view(r, g, PL_REGION_GRADS), pl_mul(g, outer_grad, weight));
    pl_assign(g, weight_view(r, g), pl_broadcast_to(g, weight, PL_SHAPE(1)));
    for (int k = 0; k < inner_slots(r); k++) {
        const pl_node_t slot = view(r, g, PL_REGION_SLOT0 + k);
        pl_assign(g, slot, pl_mul(g, slot, weight));
    }
    if (local->ddp.agrees)
        pl_ddp_state_give_present(g, STATE);
    for (int k = 0; k < r->model->count && local->ddp.agrees; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (t->region == PL_REGION_STATE)
            pl_assign(g,
                      pl_region_view(g, PL_REGION_STATE, t->offset, PL_SHAPE(t->count)),
                      pl_ddp_state_share(t, STATE, g));
    }
}

static void describe_step(const local_t *local, pl_graph_t *g)
{
    const pl_replica_t *r = &local->ddp.replica;
    const pl_node_t share = pl_div(g, pl_scalar(g, 1), weight_view(r, g));
    const pl_node_t outer_grad = pl_mul(g, view(r, g, PL_REGION_GRADS), share);
    const double momentum = local->outer_momentum;
    pl_node_t step = outer_grad;
    if (r->sync_hooks->slots) {                            /* v = momentum v + d; the step
                                                              is v, or d + momentum v */
        const pl_node_t slot = view(r, g, PL_REGION_SLOT0 + inner_slots(r));
        step = pl_add(g, pl_scale(g, slot, momentum), outer_grad);
        pl_assign(g, slot, step);
        if (local->nesterov)
            step = pl_add(g, outer_grad, pl_scale(g, step, momentum));
    }
    step = pl_scale(g, step, local->outer_lr);
    const pl_node_t newest = pl_sub(g, view(r, g, OUTER_PARAMS), step);
    pl_assign(g, weights(r, g), newest);
    if (pl_has_master(r->model->precision))
        pl_assign(g, view(r, g, PL_REGION_PARAMS), newest);
    for (int k = 0; k < inner_slots(r); k++) {
        const pl_node_t slot = view(r, g, PL_REGION_SLOT0 + k);
        pl_assign(g, slot, pl_mul(g, slot, share));
    }
    /* The state that a skipped step restores. */
    const pl_model_t *model = r->model;
    const pl_shape_t all = PL_SHAPE(model->state);
    if (model->state && !local->ddp.agrees)
        pl_assign(g, pl_region_view(g, PL_REGION_STATE_BACKUP, 0, all),
                  pl_region_view(g, PL_REGION_STATE, 0, all));
    for (int k = 0; k < model->count && local->ddp.agrees; k++) {
        const pl_tensor_info_t *t = &model->tensor[k];
        const pl_shape_t shape = PL_SHAPE(t->count);
        if (t->region != PL_REGION_STATE)
            continue;
        const pl_node_t mean = pl_ddp_state_mean(t, g);
        pl_assign(g, pl_region_view(g, PL_REGION_STATE_BACKUP, t->offset, shape), mean);
        pl_assign(g, pl_region_view(g, PL_REGION_STATE, t->offset, shape), mean);
    }
}

static int run_check(const pl_replica_t *r, pl_error_t *err)
{
    if (r->objectives > 1)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "strategy \"local_sgd\" trains modules with one objective; this "
                       "one has %d: use \"ddp\"",
                       r->objectives);
    if (r->averaging.ops)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "averaging needs one history of the weights, and with strategy "
                       "\"local_sgd\" each rank has its own: use \"ddp\"");
    if (r->model->scaling)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "with strategy \"local_sgd\" each rank would have a loss scale of "
                       "its own: use another trainer.precision, or \"ddp\"");
    if (r->job->trainer->nan_policy == PL_NAN_ROLLBACK)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "with strategy \"local_sgd\" a step belongs to one rank, so all ranks "
            "together cannot roll it back: set trainer.nan_policy to skip or stop");
    if (pl_replica_slots(r) > PL_SLOTS)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "the optimizer keeps %d numbers per parameter, which leaves no room for the "
            "outer momentum: set trainer.strategy.outer_momentum to 0",
            inner_slots(r));
    return PL_OK;
}

static pl_graph_t *local_describe(pl_replica_t *r, int k, pl_error_t *err)
{
    if (run_check(r, err) != PL_OK)
        return NULL;
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    if (k == BEGIN)
        pl_assign(g, view(r, g, OUTER_PARAMS), weights(r, g));
    else if (k == COMPARE)
        describe_compare((const local_t *)r, g);
    else
        describe_step((const local_t *)r, g);
    return pl_graph_finish(g, r->model->precision, err);
}

/* ---- coming together ---- */

static bool local_shares(const pl_ddp_t *ddp, pl_region_t region)
{
    return region >= PL_REGION_SLOT0
           && (int)region < PL_REGION_SLOT0 + inner_slots(&ddp->replica);
}

static void metrics_clear(local_t *local)
{
    if (local->count)
        memset(local->metrics, 0, local->count * sizeof *local->metrics);
    local->has_samples = false;
}

static void synchronize_end(local_t *local, const pl_error_t *failure)
{
    pl_call_t *call = local->synchronizing;
    const pl_synchronize_reply_t reply = {
        .metrics = {local->metrics, local->count * sizeof *local->metrics}};
    local->synchronizing = NULL;
    if (failure)
        pl_call_fail(call, failure);
    else
        pl_reply_synchronize(call, &reply);
    metrics_clear(local);
}

static void local_take(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                       const pl_error_t *failure, bool halt)
{
    (void)sums;
    local_t *local = (local_t *)ddp;
    local->apart = false;
    if (local->synchronizing) {
        synchronize_end(local, failure);
        return;
    }
    if (local->reported && local->count) {
        memcpy(local->reported, local->metrics, local->count * sizeof *local->metrics);
        metrics_clear(local);
    }
    pl_replica_reduced(&ddp->replica, failure, halt);
}

static int local_combine(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_how_t how,
                         pl_error_t *err)
{
    (void)sums;
    return pl_replica_replay(&ddp->replica, STEP, "outer_step", how, err);
}

static int local_give(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err)
{
    const pl_replica_t *r = &ddp->replica;
    const size_t params = (size_t)r->model->params, losses = ddp->on_device ? 2 : 0;
    int code = pl_ddp_all_reduce_region(ddp, PL_REGION_GRADS, 0, params + losses, err);
    for (int k = 0; k < inner_slots(r) && code == PL_OK; k++)
        code = pl_ddp_all_reduce_region(ddp, (pl_region_t)(PL_REGION_SLOT0 + k), 0,
                                        params, err);
    if (code == PL_OK && ddp->agrees)
        code = pl_ddp_state_sum(ddp, err);
    return code == PL_OK && !ddp->on_device ? pl_ddp_sum_tail(ddp, sums, err) : code;
}

static void together(local_t *local)
{
    pl_error_t err = {0};
    const pl_replica_sums_t sums = {.has_samples = local->has_samples,
                                    .metrics = local->metrics,
                                    .metric_count = local->count};
    local->compared = true;
    if (pl_ddp_reduce(&local->ddp.replica, &sums, &err) != PL_OK)
        local_take(&local->ddp, NULL, &err, false);
}

/* On devices the answer comes when the replay is in order, before it is over. */
static void compared(void *self, const pl_answer_t *answer)
{
    local_t *local = self;
    pl_replica_t *r = self;
    if (local->compared) {
        pl_ddp_device_replayed(self, answer);
    } else if (answer->kind == PL_ANSWER_ERROR) {
        local_take(&local->ddp, NULL, answer->error, false);
    } else if (answer->kind == PL_ANSWER_REPLY) {
        together(local);
    } else if (local->ddp.on_device) {
        pl_object_unref(r->computed);
        r->computed = pl_object_ref(answer->body->replay_plan_progress.fence);
        together(local);
    }
}

/* Begins a synchronization, which ends with local_take(); after a step its metrics are
 * reported. */
static int sync_begin(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    local_t *local = (local_t *)r;
    const double scalars[SCALARS] = {[WEIGHT] = local->weight > 0 ? local->weight
                                                                  : NEARLY_NOTHING,
                                     [STATE] = local->has_samples,
                                     [STATE + 1] = r->rank == 0};
    const pl_replay_plan_t msg = {.plan =
                                      pl_replica_plan_of(r, PL_PLAN_OWN, COMPARE)->number,
                                  .what = "compare",
                                  .scalars = {scalars, sizeof scalars},
                                  .after = pl_replica_reduced_fence(r)};
    const pl_how_t how = {.on_answer = compared};
    local->reported = sums->metrics;
    local->compared = false;
    return pl_call_replay_plan(r, r->accelerator, &msg, how, err) ? PL_OK : err->code;
}

/* ---- a step ---- */

/* A step with a result that is not finite concerns only this rank and adds nothing;
 * nor does a step that has not run. */
static void metrics_keep(local_t *local, const pl_replica_sums_t *sums)
{
    if (!sums->metric_count || !isfinite(sums->metrics[0]))
        return;
    local->weight += sums->metrics[1];
    for (size_t k = 0; k < sums->metric_count; k++)
        local->metrics[k] += sums->metrics[k];
    memset(sums->metrics, 0, sums->metric_count * sizeof *sums->metrics);
}

static void begun(void *self, const pl_answer_t *answer)
{
    local_t *local = self;
    if (local->ddp.on_device)
        pl_ddp_device_replayed(self, answer);
    else if (answer->kind == PL_ANSWER_ERROR)
        pl_replica_reduced(&local->ddp.replica, answer->error, false);
    else if (answer->kind == PL_ANSWER_REPLY)
        pl_replica_reduced(&local->ddp.replica, NULL, false);
}

/* Gradients stay on this rank. The outer parameters are kept before the first update,
 * which on devices is sent at once. */
static int local_reduce(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    local_t *local = (local_t *)r;
    const bool is_first = !local->apart;
    const pl_how_t how = {.on_answer = begun};
    if (!local->metrics) {
        local->metrics = pl_alloc_array(sums->metric_count + 1, sizeof *local->metrics);
        local->count = local->metrics ? sums->metric_count : 0;
    }
    int code = local->metrics ? PL_OK : pl_no_memory(err);
    if (code != PL_OK)
        return code;
    if (is_first)
        local->weight = 0;
    local->apart = true;
    local->has_samples |= sums->has_samples;
    if (!local->ddp.on_device)
        metrics_keep(local, sums);
    if (is_first)
        code = pl_replica_replay(r, BEGIN, "begin", how, err);
    if (code == PL_OK && local->ddp.on_device)
        pl_replica_ordered(r);
    else if (code == PL_OK && !is_first)
        pl_replica_reduced(r, NULL, false);
    return code;
}

static void local_computed(pl_replica_t *r, const pl_replica_sums_t *sums)
{
    local_t *local = (local_t *)r;
    const pl_error_t *failure = &local->ddp.failure;
    metrics_keep(local, sums);
    pl_replica_reported(r, failure->code == PL_OK ? NULL : failure, false);
}

/* A learning-rate search looks at each step. */
static bool local_follows(const pl_replica_t *r, uint64_t number)
{
    const local_t *local = (const local_t *)r;
    return r->job->tuning.num_training || number % (uint64_t)local->sync_every == 0;
}

static void local_described(pl_replica_t *r)
{
    local_t *local = (local_t *)r;
    pl_ddp_described(r);
    if (local->ddp.on_device)
        local->sync_hooks.computed = local_computed;
}

/* ---- calls ---- */

static int local_synchronize(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    (void)body;
    local_t *local = self;
    int code = PL_OK;
    local->synchronizing = call;
    if (!local->apart)
        synchronize_end(local, NULL);
    else if ((code = sync_begin(self, &(pl_replica_sums_t){0}, err)) != PL_OK)
        local->synchronizing = NULL;
    return code;
}

/* Weights of one rank before a synchronization are not the state of the run. */
static int local_export(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    const local_t *local = self;
    if (local->apart)
        return pl_fail(err, PL_ESTATE,
                       "the ranks have made steps since their last synchronization: they "
                       "have no common state to save");
    return pl_replica_export(self, call, body, err);
}

static int local_import(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err)
{
    local_t *local = self;
    local->apart = false;
    metrics_clear(local);
    return pl_replica_import(self, call, body, err);
}

static const pl_ddp_reduce_hooks_t local_reduce_hooks = {
    .give = local_give,
    .combine = local_combine,
    .shares = local_shares,
    .gradients_stay = true,
    .take = local_take,
};

static int64_t local_region(const pl_replica_t *r, int k)
{
    return PL_REGION_STRATEGY0 + k == OUTER_PARAMS ? r->model->params
                                                   : pl_ddp_state_region(r, k);
}

static int local_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    local_t *local = self;
    pl_replica_t *r = self;
    local->ddp.reduce_hooks = &local_reduce_hooks;
    local->sync_hooks = pl_ddp_sync_hooks;
    local->sync_hooks.slots = local->outer_momentum > 0;
    local->sync_hooks.region = local_region;
    local->sync_hooks.reduce = local_reduce;
    local->sync_hooks.collective = NULL;
    local->sync_hooks.described = local_described;
    local->sync_hooks.follows = local_follows;
    local->sync_hooks.stepped = sync_begin;
    local->sync_hooks.describe = local_describe;
    local->sync_hooks.graphs = GRAPHS;
    r->sync_hooks = &local->sync_hooks;
    return pl_ddp_start(self, call, body, err);
}

static void local_release(void *self)
{
    pl_free(((local_t *)self)->metrics);
}

static const pl_handler_t local_handlers[] = {
    PL_ON(start, local_start),
    PL_ON(synchronize, local_synchronize),
    PL_ON(export_weights, local_export),
    PL_ON(import_weights, local_import),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_local_sgd_strategy = {
    .name = "local_sgd",
    .help = "ranks train alone and synchronize every sync_every steps: for slow networks",
    .size = sizeof(local_t),
    .options = local_options,
    .role = "strategy",
    .independent_steps = true,
    .level = PL_LEVEL_STRATEGY,
    .handlers = local_handlers,
    .base = &pl_ddp_strategy,
    .release = local_release,
};
