/* gpu_ranks_parts.c - runs, modules, a strategy and an accelerator for the tests of ranks
 * on GPUs */
#include "gpu_ranks_parts.h"

#include <stdio.h>

#include "backend_emulated.h"
#include "collective_emulated.h"
#include "strategies/ddp/ddp.h"
#include "tap.h"
#include "two_sides.h"

/* ---- Runs ---- */

rig_spec_t gpu_run_spec(const gpu_run_t *run, const char *collective)
{
    /* A step of the emulator under the thread sanitizer takes a minute. */
    static char trainer[384];
    snprintf(trainer, sizeof trainer,
             "%s, \"max_epochs\": 2, \"step_timeout\": 600, "
             "\"strategy\": {\"name\": \"%s\", \"collective\": \"%s\"%s%s}",
             run->trainer, run->by ? run->by : "ddp", collective,
             run->strategy ? ", " : "", run->strategy ? run->strategy : "");
    return (rig_spec_t){.accelerator = run->accelerator ? run->accelerator : "emulated",
                        .module = run->module,
                        .optimizer = run->optimizer ? run->optimizer : ADAMW,
                        .averaging = run->averaging,
                        .callbacks = run->callbacks,
                        .data = run->data ? run->data : "\"batch_size\": 4",
                        .nan = run->nan,
                        .trainer = trainer};
}

rig_result_t *gpu_run_train(const gpu_run_t *run, const char *collective)
{
    const rig_spec_t spec = gpu_run_spec(run, collective);
    return rig_train(&spec);
}

int gpu_moved(void)
{
    return __atomic_exchange_n(&emu_operations, 0, __ATOMIC_RELAXED);
}

void gpu_runs_equal_the_host(const gpu_run_t *runs, size_t count, bool scatters)
{
    for (const gpu_run_t *one = runs; one < runs + count; one++) {
        rig_result_t *host = gpu_run_train(one, "best");
        gpu_moved();
        emu_scatters = 0;
        rig_result_t *device = gpu_run_train(one, "emulated");
        is_text(host->status, "ok", "%s, by the host: %s", one->name, host->error.text);
        is_text(device->status, "ok", "on the devices: %s", device->error.text);
        ok(rig_same_bits(host, device), "to the same bits");
        ok(gpu_moved() > 0 && (!scatters || emu_scatters > 0),
           "moved there, %d sums left each rank its chunk", emu_scatters);
        const char *loss = one->loss ? one->loss : "train_loss";
        is_near(rig_metric(device, loss), rig_metric(host, loss), 0,
                "with the same loss");
        rig_result_free(host), rig_result_free(device);
    }
}

void gpu_runs_resume_to_the_same_bits(const gpu_run_t *runs, size_t count)
{
    for (const gpu_run_t *one = runs; one < runs + count; one++) {
        char path[4200];
        rig_spec_t spec = gpu_run_spec(one, "emulated");
        spec.callbacks = ALL_KEPT;
        rig_t *rig = rig_make(&spec);
        rig_result_t *whole = rig_keep(rig_fit(rig));
        is_text(whole->status, "ok", "a run of %s: %s", one->by ? one->by : "ddp",
                whole->error.text);
        snprintf(path, sizeof path, "%s/checkpoints/epoch=1-step=%d", whole->run_dir,
                 (int)whole->global_step / 2 + 1);
        gpu_moved();
        const rig_result_t *again = rig_resume(rig, path);
        is_text(again->status, "ok", "resumes from its middle: %s", again->error.text);
        ok(gpu_moved() > 0 && rig_same_bits(whole, again), "to the same bits");
        rig_result_free(whole);
        rig_free(&rig);
    }
}

bool gpu_run_differs(const gpu_run_t *run, bool *fault)
{
    bool found = false;
    rig_result_t *right = gpu_run_train(run, "best");
    *fault = true;
    for (int times = 0; times < 20 && !found; times++) {
        rig_result_t *wrong = gpu_run_train(run, "emulated");
        found = !rig_same_bits(right, wrong);
        rig_result_free(wrong);
    }
    *fault = false;
    rig_result_free(right);
    return found;
}

void gpu_run_fails_at(const gpu_run_t *run, int operation)
{
    const rig_spec_t spec = gpu_run_spec(run, "emulated");
    rig_t *rig = rig_make(&spec);
    emu_fails_at = operation;
    const rig_result_t *result = rig_fit(rig);
    emu_fails_at = 0;
    is_text(result->status, "failed", "%s: operation %d fails", run->by ? run->by : "ddp",
            operation);
    like(result->error.text, "the wire is cut", "with the reason: %s",
         result->error.text);
    rig_free(&rig);
}

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

/* ---- Rows that find each other among those of all ranks ---- */

static void pairs_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t x = pl_flatten(g, pl_input(g, "x"), 1);
    pl_loss(g, pl_info_nce(g, pl_linear(g, "a", x, 8),
                           pl_tanh(g, pl_linear(g, "b", x, 8)), pl_scalar(g, 0.5)));
}

const pl_module_ops_t gpu_ranks_pairs = {.name = "pairs", .size = 1, .step = pairs_step};

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
