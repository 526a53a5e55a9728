/* gpu_ranks_parts.c - modules, a strategy and an accelerator for the tests of ranks on
 * GPUs */
#include "gpu_ranks_parts.h"

#include "backend_emulated.h"
#include "rig.h"
#include "strategies/ddp/ddp.h"
#include "two_sides.h"

/* ---- Two objectives; the second one has every other step ---- */

static int64_t second_every(const void *self)
{
    (void)self;
    return 2;
}

static const pl_module_objective_t pair_objectives[] = {
    {.name = "first", .parameters = "a.*", .describe = two_sides_first_objective},
    {.name = "second",
     .parameters = "b.*",
     .describe = two_sides_second_objective,
     .every_n_steps = second_every},
    PL_OBJECTIVES_END,
};

const pl_module_ops_t gpu_ranks_pair = {.name = "pair",
                                        .size = 1,
                                        .step = two_sides_step,
                                        .objectives = pair_objectives};

/* The same sides; one objective has the weights and the other the biases. */
static const pl_module_objective_t zip_objectives[] = {
    {.name = "first", .parameters = "*.weight", .describe = two_sides_second_objective},
    {.name = "second", .parameters = "*.bias", .describe = two_sides_second_objective},
    PL_OBJECTIVES_END,
};

const pl_module_ops_t gpu_ranks_zip = {.name = "zip",
                                       .size = 1,
                                       .step = two_sides_step,
                                       .objectives = zip_objectives};

/* So many parameters that blocks are of more than a cache line, and neither buckets nor
 * objectives begin where one does. */
static pl_node_t wide_part(pl_graph_t *g, const char *name)
{
    pl_node_t x = pl_param(g, name, PL_SHAPE(270000), pl_normal(0.001));
    return pl_scale(g, pl_sum(g, pl_mul(g, x, x), (int[]){0}, 1, false), 2);
}

static void wide_step(pl_graph_t *g, const void *self)
{
    (void)self;
    pl_node_t factor = wide_part(g, "c.weight");
    factor = pl_add(g, factor, wide_part(g, "c.bias"));
    pl_loss(g, pl_cross_entropy(g, pl_mul(g, two_sides_first(g), factor),
                                pl_input(g, "y"), NULL));
}

static void wide_stage(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)stage;
    wide_step(g, self);
}

static const pl_module_objective_t wide_objectives[] = {
    {.name = "first", .parameters = "*.weight", .describe = wide_step},
    {.name = "second", .parameters = "*.bias", .describe = wide_step},
    PL_OBJECTIVES_END,
};

const pl_module_ops_t gpu_ranks_wide = {.name = "wide", .size = 1, .step = wide_stage};
const pl_module_ops_t gpu_ranks_wide_zip = {.name = "wide_zip",
                                            .size = 1,
                                            .step = wide_stage,
                                            .objectives = wide_objectives};

/* ---- A batch norm for which one sample is enough ---- */

static void spaced_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_linear(g, "fc1", pl_flatten(g, pl_input(g, "x"), 1), 8);
    x = pl_reshape(g, x, PL_SHAPE(pl_dim(g, x, 0), 2, 4));
    x = pl_flatten(g, pl_relu(g, pl_batch_norm(g, "norm", x, 0.1, 1e-5)), 1);
    pl_loss(g, pl_cross_entropy(g, pl_linear(g, "fc2", x, RIG_CLASSES), pl_input(g, "y"),
                                NULL));
}

const pl_module_ops_t gpu_ranks_spaced = {.name = "spaced",
                                          .size = 1,
                                          .step = spaced_step};

/* ---- A strategy that reads gradients ---- */

static void read_take(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                      const pl_error_t *failure, bool halt)
{
    (void)sums;
    const volatile float *gradients = pl_ddp_gradients(ddp);
    if (!failure)
        (void)*gradients;
    pl_replica_reduced(&ddp->replica, failure, halt);
}

static int read_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    static const pl_ddp_reduce_hooks_t hooks = {.take = read_take};
    ((pl_ddp_t *)self)->reduce_hooks = &hooks;
    return pl_ddp_start(self, call, body, err);
}

static const pl_option_t read_options[] = {PL_DDP_BUCKETS, PL_DDP_OPTIONS,
                                           PL_OPTIONS_END};
static const pl_handler_t read_handlers[] = {PL_ON(start, read_start), PL_HANDLERS_END};
const pl_actor_ops_t gpu_ranks_reading = {.name = "reading",
                                          .help = "ddp whose code reads gradients",
                                          .size = sizeof(pl_ddp_t),
                                          .options = read_options,
                                          .role = "strategy",
                                          .level = PL_LEVEL_STRATEGY,
                                          .handlers = read_handlers,
                                          .base = &pl_ddp_strategy};

/* ---- A GPU whose ends one rank receives before the other ---- */

pl_accelerator_ops_t gpu_ranks_uneven;
int gpu_ranks_late;

/* Of the rank whose accelerator has the thread. */
static _Thread_local struct uneven {
    int rank;
    pl_replay_t *update;                       /* whose end is not reported yet  [NULL] */
    void (*done)(pl_replay_t *replay, const pl_error_t *err);
    bool is_skipped;                              /* it is over, too */
    bool is_followed;                             /* the batch after it is in order */
    pl_replay_t *batch;                           /* in order, not reported yet  [NULL] */
    void (*ordered)(pl_replay_t *replay, pl_fence_t *fence);
    pl_fence_t *fence;
} uneven;

static int uneven_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    uneven = (struct uneven){.rank = info->local_rank};
    return emulated_accelerator.open(self, info, err);
}

static void update_tell(const pl_error_t *err)
{
    pl_replay_t *update = uneven.update, *batch = uneven.batch;
    uneven.update = uneven.batch = NULL;
    uneven.done(update, err);
    if (!batch)
        return;
    uneven.ordered(batch, uneven.fence);
    pl_object_unref(uneven.fence);
}

static void update_done(pl_replay_t *replay, const pl_error_t *err)
{
    uneven.is_skipped = replay->skipped && !err;
    if (uneven.rank == 0 || !uneven.is_skipped || uneven.is_followed)
        update_tell(err);
}

static void batch_ordered(pl_replay_t *replay, pl_fence_t *fence)
{
    uneven.batch = replay;
    uneven.fence = pl_object_ref(fence);
}

static int uneven_replay(void *self, pl_plan_t *plan, pl_replay_t *replay,
                         pl_error_t *err)
{
    const bool is_batch = replay->ordered && replay->fail_fast && replay->input[0],
               is_update = replay->ordered && replay->fail_fast && !replay->input[0];
    if (is_update && !uneven.update) {
        uneven.update = replay, uneven.done = replay->done;
        uneven.is_skipped = uneven.is_followed = false;
        replay->done = update_done;
    } else if (is_batch && uneven.rank == 0 && uneven.update) {
        uneven.ordered = replay->ordered;
        replay->ordered = batch_ordered;
    }
    const int code = emulated_accelerator.replay(self, plan, replay, err);
    if (!is_batch || uneven.rank == 0 || !uneven.update)
        return code;
    uneven.is_followed = true;
    if (uneven.is_skipped)
        update_tell(NULL);
    __atomic_add_fetch(&gpu_ranks_late, 1, __ATOMIC_RELAXED);
    return code;
}

void gpu_ranks_uneven_make(void)
{
    gpu_ranks_uneven = emulated_accelerator;
    gpu_ranks_uneven.name = "uneven";
    gpu_ranks_uneven.open = uneven_open;
    gpu_ranks_uneven.replay = uneven_replay;
}
