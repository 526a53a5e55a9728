/* gpu_ranks.c - tests of ranks whose gradients stay on GPUs: they have the bits of a
 * run through the host, in any order that fences allow; a missing wait is found */
#include <stdio.h>
#include <string.h>

#include "gpu_ranks_parts.h"
#include "backend_emulated.h"
#include "collective_emulated.h"
#include "rig.h"
#include "tap.h"

#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.01}"
#define FINETUNING \
    "[{\"name\": \"finetuning\", \"freeze\": \"*.bias\", \"epochs\": [1], " \
    "\"unfreeze\": \"*\"}]"
#define SMALL "\"bucket_mb\": 0.0001"
#define FAR "\"precision\": {\"name\": \"16-mixed\", \"init_scale\": 16777216}"
#define SHARDS "\"micro_shards\": 5"

typedef struct one {
    const char *name;
    const char *trainer, *strategy;                         /* members */
    const char *by;                                         /* ["ddp"] */
    const char *module, *accelerator, *averaging, *callbacks, *data;
    int nan;
    const char *loss;                                       /* ["train_loss"] */
} one_t;

static const one_t runs[] = {
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
};

/* ---- Runs ---- */

static rig_spec_t spec_of(const one_t *one, const char *collective)
{
    static char trainer[320];
    snprintf(trainer, sizeof trainer,
             "%s, \"max_epochs\": 2, \"strategy\": {\"name\": \"%s\", "
             "\"collective\": \"%s\"%s%s}",
             one->trainer, one->by ? one->by : "ddp", collective,
             one->strategy ? ", " : "", one->strategy ? one->strategy : "");
    return (rig_spec_t){.accelerator = one->accelerator ? one->accelerator : "emulated",
                        .module = one->module,
                        .optimizer = ADAMW,
                        .averaging = one->averaging,
                        .callbacks = one->callbacks,
                        .data = one->data ? one->data : "\"batch_size\": 4",
                        .nan = one->nan,
                        .trainer = trainer};
}

static rig_result_t *train(const one_t *one, const char *collective)
{
    const rig_spec_t spec = spec_of(one, collective);
    return rig_train(&spec);
}

static int moved(void)
{
    return __atomic_exchange_n(&emu_operations, 0, __ATOMIC_RELAXED);
}

static void gradients_that_stay_on_devices_have_the_same_bits(void)
{
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        const one_t *one = &runs[k];
        rig_result_t *host = train(one, "best");
        moved();
        rig_result_t *device = train(one, "emulated");
        is_text(host->status, "ok", "%s, by the host: %s", one->name, host->error.text);
        is_text(device->status, "ok", "on the devices: %s", device->error.text);
        ok(rig_same_bits(host, device), "to the same bits");
        ok(moved() > 0, "moved there");
        const char *loss = one->loss ? one->loss : "train_loss";
        is_near(rig_metric(device, loss), rig_metric(host, loss), 0,
                "with the same loss");
        rig_result_free(host), rig_result_free(device);
    }
}

/* The host has to move them. */
static void a_strategy_that_reads_gradients_gets_them_on_the_host(void)
{
    const one_t one = {.trainer = "\"devices\": 2, \"depth\": 3",
                       .by = "reading",
                       .strategy = SMALL};
    rig_result_t *host = train(&one, "best");
    moved();
    rig_result_t *device = train(&one, "emulated");
    is_text(device->status, "ok", "it trains: %s", device->error.text);
    ok(!moved() && rig_same_bits(host, device), "and nothing is moved on the devices");
    rig_result_free(host), rig_result_free(device);
}

/* The host sends the next batch, and what follows its sums, while the device has not
 * computed the one before. */
static void a_device_that_is_slow_changes_no_bits(void)
{
    static const one_t ones[] = {
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
    for (size_t k = 0; k < sizeof ones / sizeof *ones; k++) {
        rig_result_t *host = train(&ones[k], "best");
        emulated_slow_us = 300;
        rig_result_t *device = train(&ones[k], "emulated");
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
        const one_t one = {.trainer = devices[k],
                           .by = "elastic",
                           .strategy = "\"micro_shards\": 4",
                           .module = "\"normed\""};
        moved();
        rig_result_t *result = train(&one, "emulated");
        is_text(result->status, "ok", "%d ranks: %s", k + 1, result->error.text);
        ok(moved() > 0, "move what they have on their devices");
        ok(!alone || rig_same_bits(alone, result), "to the bits of one");
        if (alone)
            rig_result_free(result);
        else
            alone = result;
    }
    rig_result_free(alone);
}

/* The other half of the steps from a checkpoint of the first. */
static void a_resumed_run_gives_the_same_bits(void)
{
    static const one_t ones[] = {
        {.trainer = "\"devices\": 2, \"depth\": 3", .strategy = SMALL},
        {.trainer = "\"devices\": 2", .by = "zero1"},
        {.trainer = "\"devices\": 2", .by = "zero1", .strategy = SMALL},
        {.trainer = "\"devices\": 2, \"depth\": 3", .by = "elastic", .strategy = SHARDS},
        {.trainer = "\"devices\": 2", .by = "local_sgd"}};
    for (size_t k = 0; k < sizeof ones / sizeof *ones; k++) {
        char path[4200];
        rig_spec_t spec = spec_of(&ones[k], "emulated");
        spec.callbacks = "[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 1, "
                         "\"save_top_k\": -1}]";
        rig_t *rig = rig_make(&spec);
        rig_result_t *whole = rig_keep(rig_fit(rig));
        is_text(whole->status, "ok", "a run of %s: %s", ones[k].by ? ones[k].by : "ddp",
                whole->error.text);
        snprintf(path, sizeof path, "%s/checkpoints/epoch=1-step=%d", whole->run_dir,
                 (int)whole->global_step / 2 + 1);
        moved();
        const rig_result_t *again = rig_resume(rig, path);
        is_text(again->status, "ok", "resumes from its middle: %s", again->error.text);
        ok(moved() > 0 && rig_same_bits(whole, again), "to the same bits");
        rig_result_free(whole);
        rig_free(&rig);
    }
}

static void sums_overlap_backward(void)
{
    static const char *const by[] = {"ddp", "zero1"};
    for (int k = 0; k < 2; k++) {
        const one_t deep = {.trainer = "\"devices\": 2, \"depth\": 4",
                            .by = by[k],
                            .strategy = SMALL,
                            .module = "{\"name\": \"mlp\", \"hidden\": [8, 8, 8]}"};
        emu_overlaps = emu_scatters = 0;
        emulated_slow_us = 500;
        rig_result_free(train(&deep, "emulated"));
        emulated_slow_us = 0;
        ok(emu_overlaps > 5, "%s: %d sums were over before backward was", by[k],
           emu_overlaps);
        ok((emu_scatters > 0) == (k == 1), "%d gave each rank its chunk alone",
           emu_scatters);
    }
}

/* After a skipped step, no rank reduces the next batch that is in order, not even a
 * rank that receives the end of the step late.  The first step is skipped, and one of
 * the second epoch, but not the last step of an epoch, because no batch follows it. */
static void a_late_rank_makes_the_same_reductions_as_the_others(void)
{
    static const char trainer[] = "\"devices\": 2, \"depth\": 4, \"step_timeout\": 30, "
                                  "\"nan_policy\": \"skip\"";
    static const one_t ones[] = {
        {.name = "ddp", .trainer = trainer, .strategy = SMALL, .nan = 1},
        {.name = "zero1", .trainer = trainer, .by = "zero1", .strategy = SMALL, .nan = 1},
        {.name = "two objectives", .trainer = trainer, .module = "\"pair\"", .nan = 1}};
    for (size_t k = 0; k < sizeof ones / sizeof *ones; k++) {
        one_t one = ones[k];
        moved();
        rig_result_t *even = train(&one, "emulated");
        const int operations = moved();
        gpu_ranks_late = 0;
        one.accelerator = "uneven";
        rig_result_t *result = train(&one, "emulated");
        is_text(result->status, "ok", "%s: %s", one.name, result->error.text);
        ok(rig_same_bits(even, result), "to the bits of ranks without delay");
        is_int(moved(), operations, "by as many operations");
        ok(gpu_ranks_late >= 2, "%d batches were in order before the news of an update",
           gpu_ranks_late);
        rig_result_free(even), rig_result_free(result);
    }
}

/* Whether some run ends with other weights than the right ones. */
static bool differs(const one_t *one, bool *fault)
{
    bool found = false;
    rig_result_t *right = train(one, "best");
    *fault = true;
    for (int times = 0; times < 20 && !found; times++) {
        rig_result_t *wrong = train(one, "emulated");
        found = !rig_same_bits(right, wrong);
        rig_result_free(wrong);
    }
    *fault = false;
    rig_result_free(right);
    return found;
}

static void a_missing_wait_is_found(void)
{
    ok(differs(&runs[2], &emu_forgets_after), "sums that do not wait for backward");
    ok(differs(&runs[2], &emu_forgets_fence), "updates that do not wait for sums");
    static const one_t zero1 = {.trainer = "\"devices\": 2", .by = "zero1"};
    ok(differs(&zero1, &emu_forgets_fence), "steps that do not wait for parameters");
    static const one_t chunks = {.trainer = "\"devices\": 2",
                                 .by = "zero1",
                                 .strategy = SMALL};
    ok(differs(&chunks, &emu_forgets_after), "chunks that do not wait for backward");
    static const one_t norms = {.trainer = "\"devices\": 2, \"sync_batchnorm\": true",
                                .strategy = SMALL,
                                .module = "\"normed\""};
    ok(differs(&norms, &emu_forgets_after), "or for work after a collective");
    static const one_t shards = {.trainer = "\"devices\": 2, \"depth\": 3",
                                 .by = "elastic",
                                 .strategy = SHARDS};
    ok(differs(&shards, &emu_forgets_after),
       "parts that do not wait for their micro-shards");
    ok(differs(&shards, &emu_forgets_fence), "a sum that does not wait for the parts");
    static const one_t apart = {.trainer = "\"devices\": 2",
                                .by = "local_sgd",
                                .strategy = "\"sync_every\": 2"};
    ok(differs(&apart, &emu_forgets_after), "means that do not wait for the changes");
    ok(differs(&apart, &emu_forgets_fence), "outer steps that do not wait for means");
}

/* At the first operation, in the middle of a step, and in a later one. */
static void a_failed_transfer_ends_the_run(void)
{
    static const int at[] = {1, 2, 3, 9};
    static const one_t ones[] = {
        {.trainer = "\"devices\": 2", .strategy = SMALL},
        {.trainer = "\"devices\": 2, \"depth\": 3, \"accumulate_grad_batches\": 2",
         .by = "elastic",
         .strategy = "\"micro_shards\": 2"},
        {.trainer = "\"devices\": 2",
         .by = "local_sgd",
         .strategy = "\"sync_every\": 2"}};
    for (size_t k = 0; k < 3 * sizeof at / sizeof *at; k++) {
        const rig_spec_t spec = spec_of(&ones[k % 3], "emulated");
        rig_t *rig = rig_make(&spec);
        emu_fails_at = at[k / 3];
        const rig_result_t *result = rig_fit(rig);
        emu_fails_at = 0;
        is_text(result->status, "failed", "operation %d fails", at[k / 3]);
        like(result->error.text, "the wire is cut", "with the reason: %s",
             result->error.text);
        rig_free(&rig);
    }
}

/* The other ranks wait on their devices for a rank that is gone. */
static void a_rank_that_fails_ends_the_others(void)
{
    static const one_t ones[] = {
        {.trainer = "\"devices\": 3, \"depth\": 4", .strategy = SMALL},
        {.trainer = "\"devices\": 3", .by = "zero1"},
        {.trainer = "\"devices\": 3", .by = "zero1", .strategy = SMALL},
        {.trainer = "\"devices\": 3, \"depth\": 4", .by = "elastic", .strategy = SHARDS},
        {.trainer = "\"devices\": 3", .by = "local_sgd"},
        {.trainer = "\"devices\": 3, \"depth\": 4, \"sync_batchnorm\": true",
         .module = "\"normed\""}};
    for (size_t k = 0; k < sizeof ones / sizeof *ones; k++) {
        rig_spec_t spec = spec_of(&ones[k], "emulated");
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
    static const one_t ones[] = {{.trainer = "\"devices\": 2, \"depth\": 4",
                                  .strategy = SMALL,
                                  .accelerator = "failing",
                                  .module = "\"normed\""},
                                 {.trainer = "\"devices\": 2, \"depth\": 3",
                                  .by = "zero1",
                                  .strategy = SMALL,
                                  .accelerator = "failing",
                                  .module = "\"normed\""}};
    for (size_t k = 0; k < sizeof ones / sizeof *ones; k++) {
        int ended = 0;
        for (fails_at = 1; fails_at <= 16; fails_at++) {
            replays = 0;
            rig_spec_t spec = spec_of(&ones[k], "emulated");
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
    run(sums_overlap_backward);
    run(a_missing_wait_is_found);
    run(a_failed_transfer_ends_the_run);
    run(a_rank_that_fails_ends_the_others);
    run(a_replay_that_fails_after_its_fence_ends_the_run);
    return tap_done();
}
