/* gpu_ranks.c - tests of ranks whose gradients stay on GPUs: they have the bits of a
 * run through the host, in any order that fences allow; a missing wait is found */
#include <stdio.h>
#include <string.h>

#include "gpu_ranks_parts.h"
#include "backend_emulated.h"
#include "collective_emulated.h"
#include "tap.h"

#define FAR "\"precision\": {\"name\": \"16-mixed\", \"init_scale\": 16777216}"
#define SHARDS "\"micro_shards\": 5"

static const gpu_run_t runs[] = {
    {.name = "two ranks", .trainer = "\"devices\": 2"},
    {.name = "four ranks", .trainer = "\"devices\": 4", .strategy = SMALL},
    {.name = "small buckets", .trainer = "\"devices\": 2", .strategy = SMALL},
    {.name = "three batches a step",
     .trainer = "\"devices\": 2, \"accumulate_grad_batches\": 3",
     .strategy = SMALL},
    {.name = "many steps in flight, clipped",
     .trainer = "\"devices\": 3, \"depth\": 4, \"gradient_clip_val\": 0.1",
     .strategy = SMALL},
    {.name = "a NaN is skipped",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\", \"depth\": 3",
     .strategy = SMALL,
     .nan = 9},
    {.name = "a NaN is skipped, two batches a step",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\", \"depth\": 4, "
                "\"accumulate_grad_batches\": 2",
     .nan = 9},
    {.name = "frozen", .trainer = "\"devices\": 2, \"freeze\": \"*.bias\""},
    {.name = "averaged", .trainer = "\"devices\": 2", .averaging = "\"ema\""},
    {.name = "bf16-mixed",
     .trainer = "\"devices\": 2, \"precision\": \"bf16-mixed\"",
     .strategy = SMALL},
    {.name = "16-mixed",
     .trainer = "\"devices\": 2, \"precision\": \"16-mixed\", \"depth\": 3"},
    {.name = "16-mixed, batch norms, a factor that is too large at first",
     .trainer = "\"devices\": 2, \"depth\": 4, " FAR,
     .strategy = SMALL,
     .module = "\"normed\""},
    {.name = "elastic, 16-mixed, a factor that is too large at first",
     .trainer = "\"devices\": 3, \"depth\": 4, " FAR,
     .by = "elastic",
     .strategy = SHARDS},
    {.name = "64-true", .trainer = "\"devices\": 2, \"precision\": \"64-true\""},
    {.name = "a library of products",
     .trainer = "\"devices\": 2, \"accumulate_grad_batches\": 2",
     .strategy = SMALL,
     .accelerator = "emulated_library"},
    {.name = "a NaN is skipped with a library of products",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\", \"depth\": 4",
     .strategy = SMALL,
     .accelerator = "emulated_library",
     .nan = 9},
    {.name = "bf16-true", .trainer = "\"devices\": 2, \"precision\": \"bf16-true\""},
    {.name = "zero1, three batches a step, bf16-mixed",
     .trainer = "\"devices\": 2, \"accumulate_grad_batches\": 3, "
                "\"precision\": \"bf16-mixed\"",
     .by = "zero1"},
    {.name = "two objectives",
     .trainer = "\"devices\": 2, \"depth\": 3, \"nan_policy\": \"skip\"",
     .module = "\"pair\"",
     .loss = "train_first_loss",
     .nan = 9},
    {.name = "two objectives, zero1",
     .trainer = "\"devices\": 2",
     .by = "zero1",
     .module = "\"pair\"",
     .loss = "train_second_loss"},
    {.name = "parameters that are trained from the second epoch on",
     .trainer = "\"devices\": 2, \"depth\": 3",
     .strategy = SMALL,
     .callbacks = FINETUNING},
    {.name = "local_sgd",
     .trainer = "\"devices\": 2",
     .by = "local_sgd",
     .strategy = "\"sync_every\": 3"},
    {.name = "local_sgd on three, weights of their own for each rank, bf16-mixed",
     .trainer = "\"devices\": 3, \"depth\": 4, \"precision\": \"bf16-mixed\"",
     .by = "local_sgd",
     .strategy = "\"sync_every\": 2"},
    {.name = "local_sgd, 64-true, two batches a step",
     .trainer = "\"devices\": 2, \"precision\": \"64-true\", "
                "\"accumulate_grad_batches\": 2",
     .by = "local_sgd",
     .strategy = "\"sync_every\": 2, \"nesterov\": false"},
    {.name = "local_sgd, batch norms, the mean of ranks",
     .trainer = "\"devices\": 2",
     .by = "local_sgd",
     .strategy = "\"sync_every\": 2, \"outer_lr\": 1, \"outer_momentum\": 0",
     .module = "\"normed\""},
    {.name = "local_sgd, a NaN is skipped by one rank",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\", \"depth\": 3",
     .by = "local_sgd",
     .strategy = "\"sync_every\": 2",
     .nan = 9},
    {.name = "elastic", .trainer = "\"devices\": 2", .by = "elastic", .strategy = SHARDS},
    {.name = "elastic on three, many steps in flight, clipped",
     .trainer = "\"devices\": 3, \"depth\": 4, \"gradient_clip_val\": 0.1",
     .by = "elastic",
     .strategy = SHARDS},
    {.name = "elastic on four, three batches a step, bf16-mixed",
     .trainer = "\"devices\": 4, \"depth\": 4, \"accumulate_grad_batches\": 3, "
                "\"precision\": \"bf16-mixed\"",
     .by = "elastic",
     .strategy = SHARDS},
    {.name = "elastic, batch norms, a NaN is skipped",
     .trainer = "\"devices\": 2, \"depth\": 4, \"nan_policy\": \"skip\"",
     .by = "elastic",
     .strategy = SHARDS,
     .module = "\"normed\"",
     .nan = 9},
    {.name = "elastic, 16-mixed, a NaN is skipped",
     .trainer = "\"devices\": 2, \"depth\": 3, \"nan_policy\": \"skip\", "
                "\"precision\": \"16-mixed\"",
     .by = "elastic",
     .strategy = SHARDS,
     .nan = 9},
    {.name = "elastic, a NaN is skipped, two batches a step",
     .trainer = "\"devices\": 2, \"depth\": 3, \"nan_policy\": \"skip\", "
                "\"accumulate_grad_batches\": 2",
     .by = "elastic",
     .strategy = "\"micro_shards\": 2",
     .nan = 9},
    {.name = "elastic, 64-true, parameters trained from the second epoch on",
     .trainer = "\"devices\": 2, \"depth\": 3, \"precision\": \"64-true\"",
     .by = "elastic",
     .strategy = SHARDS,
     .callbacks = FINETUNING},
    {.name = "batch norms", .trainer = "\"devices\": 2", .module = "\"normed\""},
    {.name = "batch norms, many steps in flight, a NaN is skipped",
     .trainer = "\"devices\": 2, \"depth\": 4, \"nan_policy\": \"skip\"",
     .strategy = SMALL,
     .module = "\"normed\"",
     .nan = 9},
    {.name = "batch norms of all ranks",
     .trainer = "\"devices\": 2, \"sync_batchnorm\": true",
     .module = "\"normed\""},
    {.name = "batch norms of all ranks, small buckets, many steps in flight, a NaN is "
             "skipped",
     .trainer = "\"devices\": 2, \"sync_batchnorm\": true, \"depth\": 4, "
                "\"nan_policy\": \"skip\"",
     .strategy = SMALL,
     .module = "\"normed\"",
     .nan = 9},
    {.name = "batch norms of all ranks, batches without samples, two batches a step",
     .trainer = "\"devices\": 3, \"sync_batchnorm\": true, \"depth\": 3, "
                "\"accumulate_grad_batches\": 2",
     .strategy = SMALL,
     .module = "\"spaced\"",
     .data = "\"batch_size\": 13"},
    {.name = "batch norms of all ranks, zero1 by buckets, bf16-mixed",
     .trainer = "\"devices\": 2, \"sync_batchnorm\": true, \"depth\": 3, "
                "\"precision\": \"bf16-mixed\"",
     .by = "zero1",
     .strategy = SMALL,
     .module = "\"normed\""},
    {.name = "rows of all ranks, batches without samples, small buckets",
     .trainer = "\"devices\": 3, \"depth\": 3",
     .strategy = SMALL,
     .module = "\"pairs\"",
     .data = "\"batch_size\": 13, \"val_split\": 0.3"},
};

#define COUNT(array) (sizeof array / sizeof *array)

static void gradients_that_stay_on_devices_have_the_same_bits(void)
{
    gpu_runs_equal_the_host(runs, COUNT(runs), false);
}

/* The host has to move them. */
static void a_strategy_that_reads_gradients_gets_them_on_the_host(void)
{
    const gpu_run_t one = {.trainer = "\"devices\": 2, \"depth\": 3",
                           .by = "reading",
                           .strategy = SMALL};
    rig_result_t *host = gpu_run_train(&one, "best");
    gpu_moved();
    rig_result_t *device = gpu_run_train(&one, "emulated");
    is_text(device->status, "ok", "it trains: %s", device->error.text);
    ok(!gpu_moved() && rig_same_bits(host, device),
       "and nothing is moved on the devices");
    rig_result_free(host), rig_result_free(device);
}

/* The host sends the next batch, and what follows its sums, while the device has not
 * computed the one before. */
static void a_device_that_is_slow_changes_no_bits(void)
{
    static const gpu_run_t ones[] = {
        {.trainer = "\"devices\": 2, \"depth\": 4, \"accumulate_grad_batches\": 2",
         .by = "elastic",
         .strategy = "\"micro_shards\": 2",
         .module = "\"normed\""},
        {.trainer = "\"devices\": 2, \"depth\": 4, \"nan_policy\": \"skip\"",
         .by = "elastic",
         .strategy = "\"micro_shards\": 2",
         .nan = 9},
        {.trainer = "\"devices\": 2, \"depth\": 4, \"nan_policy\": \"skip\"",
         .by = "local_sgd",
         .strategy = "\"sync_every\": 3",
         .module = "\"normed\"",
         .nan = 9},
        {.trainer = "\"devices\": 2, \"depth\": 4, \"sync_batchnorm\": true, "
                    "\"nan_policy\": \"skip\"",
         .strategy = SMALL,
         .module = "\"normed\"",
         .nan = 9},
        /* The second batch has samples on rank 0 alone. */
        {.trainer = "\"devices\": 3, \"depth\": 4",
         .by = "local_sgd",
         .strategy = "\"sync_every\": 2",
         .module = "\"spaced\"",
         .data = "\"batch_size\": 13"}};
    for (size_t k = 0; k < COUNT(ones); k++) {
        rig_result_t *host = gpu_run_train(&ones[k], "best");
        emulated_slow_us = 300;
        rig_result_t *device = gpu_run_train(&ones[k], "emulated");
        emulated_slow_us = 0;
        is_text(device->status, "ok", "%s: %s", ones[k].by ? ones[k].by : "ddp",
                device->error.text);
        ok(rig_same_bits(host, device), "to the bits of the way through the host");
        is_near(rig_metric(device, "train_loss"), rig_metric(host, "train_loss"), 0,
                "with the same loss");
        rig_result_free(host), rig_result_free(device);
    }
}

/* The canonical order of elastic sums, in the memory of devices, too. */
static void any_number_of_ranks_gives_the_same_bits(void)
{
    static const char *const devices[] = {"\"devices\": 1",
                                          "\"devices\": 2, \"depth\": 3",
                                          "\"devices\": 3",
                                          "\"devices\": 4, \"depth\": 4"};
    rig_result_t *alone = NULL;
    for (int k = 0; k < 4; k++) {
        const gpu_run_t one = {.trainer = devices[k],
                               .by = "elastic",
                               .strategy = "\"micro_shards\": 4",
                               .module = "\"normed\""};
        gpu_moved();
        rig_result_t *result = gpu_run_train(&one, "emulated");
        is_text(result->status, "ok", "%d ranks: %s", k + 1, result->error.text);
        ok(gpu_moved() > 0, "move what they have on their devices");
        ok(!alone || rig_same_bits(alone, result), "to the bits of one");
        if (alone)
            rig_result_free(result);
        else
            alone = result;
    }
    rig_result_free(alone);
}

static void a_resumed_run_gives_the_same_bits(void)
{
    static const gpu_run_t ones[] = {
        {.trainer = "\"devices\": 2, \"depth\": 3", .strategy = SMALL},
        {.trainer = "\"devices\": 2, \"depth\": 3", .by = "elastic", .strategy = SHARDS},
        {.trainer = "\"devices\": 2", .by = "local_sgd"}};
    gpu_runs_resume_to_the_same_bits(ones, COUNT(ones));
}

/* After a skipped step, no rank reduces the next batch that is in order, not even a
 * rank that receives the end of the step late.  The first step is skipped, and one of
 * the second epoch, but not the last step of an epoch, because no batch follows it. */
static void a_late_rank_makes_the_same_reductions_as_the_others(void)
{
    static const char trainer[] = "\"devices\": 2, \"depth\": 4, "
                                  "\"nan_policy\": \"skip\"";
    static const gpu_run_t ones[] = {
        {.name = "ddp", .trainer = trainer, .strategy = SMALL, .nan = 1},
        {.name = "zero1", .trainer = trainer, .by = "zero1", .strategy = SMALL, .nan = 1},
        {.name = "two objectives", .trainer = trainer, .module = "\"pair\"", .nan = 1}};
    for (size_t k = 0; k < COUNT(ones); k++) {
        gpu_run_t one = ones[k];
        gpu_moved();
        rig_result_t *even = gpu_run_train(&one, "emulated");
        const int operations = gpu_moved();
        gpu_ranks_late = 0;
        one.accelerator = "uneven";
        rig_result_t *result = gpu_run_train(&one, "emulated");
        is_text(result->status, "ok", "%s: %s", one.name, result->error.text);
        ok(rig_same_bits(even, result), "to the bits of ranks without delay");
        is_int(gpu_moved(), operations, "by as many operations");
        ok(gpu_ranks_late >= 2, "%d batches were in order before the news of an update",
           gpu_ranks_late);
        rig_result_free(even), rig_result_free(result);
    }
}

static void a_missing_wait_is_found(void)
{
    ok(gpu_run_differs(&runs[2], &emu_forgets_after),
       "sums that do not wait for backward");
    ok(gpu_run_differs(&runs[2], &emu_forgets_fence),
       "updates that do not wait for sums");
    static const gpu_run_t norms = {.trainer = "\"devices\": 2, \"sync_batchnorm\": true",
                                    .strategy = SMALL,
                                    .module = "\"normed\""};
    ok(gpu_run_differs(&norms, &emu_forgets_after), "or for work after a collective");
    static const gpu_run_t shards = {.trainer = "\"devices\": 2, \"depth\": 3",
                                     .by = "elastic",
                                     .strategy = SHARDS};
    ok(gpu_run_differs(&shards, &emu_forgets_after),
       "parts that do not wait for their micro-shards");
    ok(gpu_run_differs(&shards, &emu_forgets_fence),
       "a sum that does not wait for the parts");
    static const gpu_run_t apart = {.trainer = "\"devices\": 2",
                                    .by = "local_sgd",
                                    .strategy = "\"sync_every\": 2"};
    ok(gpu_run_differs(&apart, &emu_forgets_after),
       "means that do not wait for the changes");
    ok(gpu_run_differs(&apart, &emu_forgets_fence),
       "outer steps that do not wait for means");
}

/* At the first operation, in the middle of a step, and in a later one. */
static void a_failed_transfer_ends_the_run(void)
{
    static const int at[] = {1, 2, 3, 9};
    static const gpu_run_t ones[] = {
        {.trainer = "\"devices\": 2", .strategy = SMALL},
        {.trainer = "\"devices\": 2, \"depth\": 3, \"accumulate_grad_batches\": 2",
         .by = "elastic",
         .strategy = "\"micro_shards\": 2"},
        {.trainer = "\"devices\": 2",
         .by = "local_sgd",
         .strategy = "\"sync_every\": 2"}};
    for (size_t k = 0; k < 3 * COUNT(at); k++)
        gpu_run_fails_at(&ones[k % 3], at[k / 3]);
}

/* The other ranks wait on their devices for a rank that is gone. */
static void a_rank_that_fails_ends_the_others(void)
{
    static const gpu_run_t ones[] = {
        {.trainer = "\"devices\": 3, \"depth\": 4", .strategy = SMALL},
        {.trainer = "\"devices\": 3", .by = "zero1"},
        {.trainer = "\"devices\": 3", .by = "zero1", .strategy = SMALL},
        {.trainer = "\"devices\": 3, \"depth\": 4", .by = "elastic", .strategy = SHARDS},
        {.trainer = "\"devices\": 3", .by = "local_sgd"},
        {.trainer = "\"devices\": 3, \"depth\": 4, \"sync_batchnorm\": true",
         .module = "\"normed\""}};
    for (size_t k = 0; k < COUNT(ones); k++) {
        rig_spec_t spec = gpu_run_spec(&ones[k], "emulated");
        spec.torn = 23;
        rig_t *rig = rig_make(&spec);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "a record cannot be read");
        like(result->error.text, "torn|record|read", "the error reports it: %s",
             result->error.text);
        rig_free(&rig);
    }
}

/* ---- Replays that fail after their fence ---- */

static pl_accelerator_ops_t failing;  /* an emulated GPU */
static int fails_at, replays;      /* which replay of rank 1 it is  [0]; atomic: so far */
static void (*replay_done)(pl_replay_t *replay, const pl_error_t *err);

static void failing_done(pl_replay_t *replay, const pl_error_t *err)
{
    const pl_error_t lost = {.code = PL_EIO, .text = "the emulated card is lost"};
    (void)err;
    replay_done(replay, &lost);
}

static int failing_replay(void *self, pl_plan_t *plan, pl_replay_t *replay,
                          pl_error_t *err)
{
    if (replay->ordered
        && __atomic_add_fetch(&replays, 1, __ATOMIC_RELAXED) == fails_at) {
        replay_done = replay->done;
        replay->done = failing_done;
    }
    return emulated_accelerator.replay(self, plan, replay, err);
}

/* What ranks agree on, and norms, are replays of their own: the error comes when what
 * follows is in order. */
static void a_replay_that_fails_after_its_fence_ends_the_run(void)
{
    static const gpu_run_t ones[] = {{.trainer = "\"devices\": 2, \"depth\": 4",
                                      .strategy = SMALL,
                                      .accelerator = "failing",
                                      .module = "\"normed\""},
                                     {.trainer = "\"devices\": 2, \"depth\": 3",
                                      .by = "zero1",
                                      .strategy = SMALL,
                                      .accelerator = "failing",
                                      .module = "\"normed\""}};
    for (size_t k = 0; k < COUNT(ones); k++) {
        int ended = 0;
        for (fails_at = 1; fails_at <= 16; fails_at++) {
            replays = 0;
            rig_spec_t spec = gpu_run_spec(&ones[k], "emulated");
            rig_t *rig = rig_make(&spec);
            const rig_result_t *result = rig_fit(rig);
            const bool is_right = !strcmp(result->status, "failed")
                                  && strstr(result->error.text,
                                            "the emulated card is lost");
            if (!is_right)
                tap_diag("replay %d: %s, %s", fails_at, result->status,
                         result->error.text);
            ended += is_right;
            rig_free(&rig);
        }
        fails_at = 0;
        is_int(ended, 16, "%s: at each of 16", ones[k].by ? ones[k].by : "ddp");
    }
}

static const pl_registration_t components[] = {{"accelerator", &emulated_accelerator},
                                               {"accelerator",
                                                &emulated_library_accelerator},
                                               {"accelerator", &failing},
                                               {"accelerator", &gpu_ranks_uneven},
                                               {"collective", &emu_collective},
                                               {"strategy", &gpu_ranks_reading},
                                               {"module", &gpu_ranks_pair},
                                               {"module", &gpu_ranks_spaced},
                                               {"module", &gpu_ranks_pairs},
                                               {"module", &rig_normed},
                                               PL_REGISTRATIONS_END};

int main(void)
{
    failing = emulated_accelerator;
    failing.name = "failing";
    failing.replay = failing_replay;
    gpu_ranks_uneven_make();
    rig_init(components);
    run(gradients_that_stay_on_devices_have_the_same_bits);
    run(a_strategy_that_reads_gradients_gets_them_on_the_host);
    run(a_device_that_is_slow_changes_no_bits);
    run(any_number_of_ranks_gives_the_same_bits);
    run(a_resumed_run_gives_the_same_bits);
    run(a_late_rank_makes_the_same_reductions_as_the_others);
    run(a_missing_wait_is_found);
    run(a_failed_transfer_ends_the_run);
    run(a_rank_that_fails_ends_the_others);
    run(a_replay_that_fails_after_its_fence_ends_the_run);
    return tap_done();
}
