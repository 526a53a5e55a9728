/* gpu_zero1.c - tests of zero1 on GPUs: the bits are those of ddp and of the way through
 * the host; parameters are gathered while others are updated; a missing wait is found */
#include <stdio.h>
#include <string.h>

#include "gpu_ranks_parts.h"
#include "backend_emulated.h"
#include "collective_emulated.h"
#include "tap.h"

#define SGD "{\"name\": \"sgd\", \"lr\": 0.1}"
#define SAMPLES "{\"name\": \"memory\", \"source\": \"samples\", \"batch_size\": 4}"

static const gpu_run_t runs[] = {
    {.name = "zero1", .trainer = "\"devices\": 2", .by = "zero1"},
    {.name = "zero1 by buckets",
     .trainer = "\"devices\": 2",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1 by buckets on three, many steps in flight, clipped by value",
     .trainer = "\"devices\": 3, \"depth\": 4, \"gradient_clip_val\": 0.01, "
                "\"gradient_clip_algorithm\": \"value\"",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1 by buckets on four, three batches a step, bf16-mixed",
     .trainer = "\"devices\": 4, \"accumulate_grad_batches\": 3, "
                "\"precision\": \"bf16-mixed\"",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1 by buckets, 16-mixed, a NaN is skipped",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\", \"depth\": 3, "
                "\"precision\": \"16-mixed\"",
     .by = "zero1",
     .strategy = SMALL,
     .nan = 9},
    {.name = "zero1 by buckets, clipped, 16-mixed, a factor that is too large at first",
     .trainer = "\"devices\": 2, \"depth\": 4, \"gradient_clip_val\": 0.1, "
                "\"precision\": {\"name\": \"16-mixed\", \"init_scale\": 16777216}",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1 by buckets, 64-true, frozen",
     .trainer = "\"devices\": 2, \"freeze\": \"*.bias\", \"precision\": \"64-true\"",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1 by buckets, parameters trained from the second epoch on",
     .trainer = "\"devices\": 2, \"depth\": 3",
     .by = "zero1",
     .strategy = SMALL,
     .callbacks = FINETUNING},
    {.name = "zero1 by buckets, batch norms",
     .trainer = "\"devices\": 2, \"depth\": 3",
     .by = "zero1",
     .strategy = SMALL,
     .module = "\"normed\""},
    {.name = "zero1 on three, clipped, many steps in flight",
     .trainer = "\"devices\": 3, \"depth\": 4, \"gradient_clip_val\": 0.1",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1 by buckets on four, clipped, a NaN is skipped, two batches a step",
     .trainer = "\"devices\": 4, \"depth\": 3, \"gradient_clip_val\": 0.1, "
                "\"nan_policy\": \"skip\", \"accumulate_grad_batches\": 2",
     .by = "zero1",
     .strategy = SMALL,
     .nan = 9},
    {.name = "zero1 by buckets, clipped, 16-mixed",
     .trainer = "\"devices\": 2, \"depth\": 3, \"gradient_clip_val\": 0.1, "
                "\"precision\": \"16-mixed\"",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1 by buckets, clipped, bf16-mixed, batch norms",
     .trainer = "\"devices\": 2, \"depth\": 3, \"gradient_clip_val\": 0.1, "
                "\"precision\": \"bf16-mixed\"",
     .by = "zero1",
     .strategy = SMALL,
     .module = "\"normed\""},
    {.name = "zero1 by buckets, clipped, 64-true, frozen",
     .trainer = "\"devices\": 2, \"gradient_clip_val\": 0.1, \"freeze\": \"*.bias\", "
                "\"precision\": \"64-true\"",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1 by buckets, clipped, parameters trained from the second epoch on",
     .trainer = "\"devices\": 3, \"depth\": 3, \"gradient_clip_val\": 0.1",
     .by = "zero1",
     .strategy = SMALL,
     .callbacks = FINETUNING},
    {.name = "zero1 by buckets, clipped, groups",
     .trainer = "\"devices\": 3, \"gradient_clip_val\": 0.1",
     .by = "zero1",
     .strategy = SMALL,
     .optimizer = "{\"name\": \"adamw\", \"lr\": 0.01, \"groups\": [{\"match\": "
                  "\"*.bias\", \"weight_decay\": 0}]}"},
    {.name = "zero1 by buckets, clipped, blocks of more than a cache line",
     .trainer = "\"devices\": 2, \"max_steps\": 1, \"gradient_clip_val\": 0.001",
     .by = "zero1",
     .optimizer = SGD,
     .strategy = "\"bucket_mb\": 0.5",
     .module = "\"wide\""},
    {.name = "zero1 of one rank, clipped",
     .trainer = "\"devices\": 1, \"gradient_clip_val\": 0.1",
     .by = "zero1",
     .strategy = SMALL},
    {.name = "zero1, a NaN is skipped",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\", \"depth\": 3",
     .by = "zero1",
     .nan = 9},
    {.name = "two objectives, zero1, clipped, a NaN is skipped",
     .trainer = "\"devices\": 3, \"depth\": 3, \"nan_policy\": \"skip\", "
                "\"gradient_clip_val\": 0.1",
     .by = "zero1",
     .module = "\"pair\"",
     .loss = "train_second_loss",
     .nan = 9},
    {.name = "two objectives with every other parameter, zero1, clipped",
     .trainer = "\"devices\": 2, \"depth\": 3, \"gradient_clip_val\": 0.1",
     .by = "zero1",
     .module = "\"zip\"",
     .loss = "train_first_loss"},
    {.name = "two objectives with every other parameter, zero1, clipped, many blocks",
     .trainer = "\"devices\": 2, \"max_steps\": 1, \"gradient_clip_val\": 0.001",
     .by = "zero1",
     .optimizer = SGD,
     .module = "\"wide_zip\"",
     .loss = "train_first_loss"},
    {.name = "two objectives with every other parameter, zero1, clipped, frozen",
     .trainer = "\"devices\": 3, \"gradient_clip_val\": 0.1",
     .by = "zero1",
     .module = "\"zip\"",
     .callbacks = "[{\"name\": \"finetuning\", \"freeze\": \"a.*\", \"epochs\": [1], "
                  "\"unfreeze\": \"*\"}]",
     .loss = "train_second_loss"},
    {.name = "parameters that are trained from the second epoch on, zero1",
     .trainer = "\"devices\": 2",
     .by = "zero1",
     .callbacks = FINETUNING},
    {.name = "batch norms, three batches a step, zero1",
     .trainer = "\"devices\": 2, \"accumulate_grad_batches\": 3",
     .by = "zero1",
     .module = "\"normed\""},
};

#define COUNT(array) (sizeof array / sizeof *array)

static void gradients_that_stay_on_devices_have_the_same_bits(void)
{
    gpu_runs_equal_the_host(runs, COUNT(runs), true);
}

/* For any chunks the norm is the norm of the same blocks. */
static void zero1_has_the_bits_of_ddp(void)
{
    static const char *const trainers[] = {
        "\"devices\": 2", "\"devices\": 2, \"gradient_clip_val\": 0.1",
        "\"devices\": 3, \"gradient_clip_val\": 0.1, \"freeze\": \"*.bias\"",
        "\"devices\": 4, \"gradient_clip_val\": 0.1, \"accumulate_grad_batches\": 2"};
    static const gpu_run_t ones[] = {{.by = "ddp"},
                                     {.by = "ddp", .strategy = SMALL},
                                     {.by = "zero1"},
                                     {.by = "zero1", .strategy = SMALL},
                                     {.by = "zero1",
                                      .strategy = "\"bucket_mb\": 0.0004"}};
    rig_result_t *before = NULL;
    for (size_t t = 0; t < COUNT(trainers); t++) {
        rig_result_t *first = NULL;
        for (size_t k = 0; k < COUNT(ones); k++) {
            gpu_run_t one = ones[k];
            one.trainer = trainers[t];
            one.module = "{\"name\": \"mlp\", \"hidden\": [24, 16]}";
            rig_result_t *result = gpu_run_train(&one, "emulated");
            if (!first) {
                first = result;
                continue;
            }
            const rig_series_t norms[] = {rig_series(first, "grad_norm"),
                                          rig_series(result, "grad_norm")};
            ok(rig_same_bits(first, result), "%s%s%s with %s: the same bits", one.by,
               one.strategy ? ", " : "", one.strategy ? one.strategy : "", one.trainer);
            ok(norms[0].count > 1 && norms[0].count == norms[1].count
                   && !memcmp(norms[0].value, norms[1].value,
                              (size_t)norms[0].count * sizeof *norms[0].value),
               "and the same %d norms", norms[0].count);
            rig_result_free(result);
        }
        if (t == 1)
            ok(!rig_same_bits(before, first), "clipping changes them");
        rig_result_free(before);
        before = first;
    }
    rig_result_free(before);
}

/* By the host, or by devices. */
static rig_result_t *resume(const gpu_run_t *one, const char *collective,
                            const char *from)
{
    rig_spec_t spec = gpu_run_spec(one, collective);
    spec.dataset = SAMPLES;
    spec.callbacks = ALL_KEPT;
    rig_t *rig = rig_make(&spec);
    rig_result_t *result = rig_keep(rig_resume(rig, from));
    is_text(result->status, "ok", "%s, by %s: %s", one->trainer, collective,
            result->error.text);
    rig_free(&rig);
    return result;
}

static void another_number_of_ranks_resumes(void)
{
    static const gpu_run_t ones[] = {
        {.trainer = "\"devices\": 4, \"gradient_clip_val\": 0.1",
         .by = "zero1",
         .strategy = SMALL},
        {.trainer = "\"devices\": 3, \"gradient_clip_val\": 0.1", .by = "zero1"},
        {.trainer = "\"devices\": 1, \"gradient_clip_val\": 0.1",
         .by = "zero1",
         .strategy = SMALL},
        {.trainer = "\"devices\": 4, \"gradient_clip_val\": 0.1", .strategy = SMALL}};
    const gpu_run_t two = {.trainer = "\"devices\": 2, \"gradient_clip_val\": 0.1",
                           .by = "zero1",
                           .strategy = SMALL};
    rig_spec_t spec = gpu_run_spec(&two, "emulated");
    rig_samples("samples", 40);
    spec.dataset = SAMPLES;
    spec.callbacks = ALL_KEPT;
    rig_t *rig = rig_make(&spec);
    const rig_result_t *whole = rig_fit(rig);
    char path[4200];
    snprintf(path, sizeof path, "%s/checkpoints/epoch=1-step=%d", whole->run_dir,
             (int)whole->global_step / 2 + 1);
    for (size_t k = 0; k < COUNT(ones); k++) {
        rig_result_t *host = resume(&ones[k], "best", path);
        gpu_moved();
        rig_result_t *device = resume(&ones[k], "emulated", path);
        ok(gpu_moved() > 0 && rig_same_bits(host, device), "to the same bits");
        rig_result_free(host), rig_result_free(device);
    }
    rig_free(&rig);
}

static void a_resumed_run_gives_the_same_bits(void)
{
    static const gpu_run_t ones[] = {
        {.trainer = "\"devices\": 2", .by = "zero1"},
        {.trainer = "\"devices\": 2", .by = "zero1", .strategy = SMALL},
        {.trainer = "\"devices\": 3, \"depth\": 3, \"gradient_clip_val\": 0.1",
         .by = "zero1",
         .strategy = SMALL},
        {.trainer = "\"devices\": 2, \"gradient_clip_val\": 0.1",
         .by = "zero1",
         .module = "\"zip\""}};
    gpu_runs_resume_to_the_same_bits(ones, COUNT(ones));
}

static void sums_overlap_backward(void)
{
    static const char *const by[] = {"ddp", "zero1"};
    for (int k = 0; k < 2; k++) {
        const gpu_run_t deep = {.trainer = "\"devices\": 2, \"depth\": 4",
                                .by = by[k],
                                .strategy = SMALL,
                                .module = "{\"name\": \"mlp\", \"hidden\": [8, 8, 8]}"};
        emu_overlaps = emu_scatters = emu_gathers_overlap = 0;
        emulated_slow_us = 500;
        rig_result_free(gpu_run_train(&deep, "emulated"));
        emulated_slow_us = 0;
        ok(emu_overlaps > 5, "%s: %d sums were over before backward was", by[k],
           emu_overlaps);
        ok((emu_scatters > 0) == (k == 1), "%d gave each rank its chunk alone",
           emu_scatters);
        ok((emu_gathers_overlap > 5) == (k == 1),
           "%d had gathered parameters before others were updated", emu_gathers_overlap);
    }
}

static void a_missing_wait_is_found(void)
{
    static const gpu_run_t zero1 = {.trainer = "\"devices\": 2", .by = "zero1"};
    ok(gpu_run_differs(&zero1, &emu_forgets_fence),
       "steps that do not wait for parameters");
    static const gpu_run_t chunks = {.trainer = "\"devices\": 2",
                                     .by = "zero1",
                                     .strategy = SMALL};
    ok(gpu_run_differs(&chunks, &emu_forgets_after),
       "chunks that do not wait for backward");
    ok(gpu_run_differs(&chunks, &emu_forgets_fence),
       "updates that do not wait for chunks");
}

/* At the first operation, in the middle of a step, and in a later one. */
static void a_failed_transfer_ends_the_run(void)
{
    static const gpu_run_t ones[] = {
        {.trainer = "\"devices\": 2", .by = "ddp", .strategy = SMALL},
        {.trainer = "\"devices\": 2, \"gradient_clip_val\": 0.1",
         .by = "zero1",
         .strategy = SMALL}};
    for (int k = 0; k < 24; k++)
        gpu_run_fails_at(&ones[k % 2], 1 + k / 2);
}

static const pl_registration_t components[] = {{"accelerator", &emulated_accelerator},
                                               {"accelerator",
                                                &emulated_library_accelerator},
                                               {"collective", &emu_collective},
                                               {"module", &gpu_ranks_pair},
                                               {"module", &gpu_ranks_zip},
                                               {"module", &gpu_ranks_wide},
                                               {"module", &gpu_ranks_wide_zip},
                                               {"module", &rig_normed},
                                               PL_REGISTRATIONS_END};

int main(void)
{
    rig_init(components);
    run(gradients_that_stay_on_devices_have_the_same_bits);
    run(zero1_has_the_bits_of_ddp);
    run(another_number_of_ranks_resumes);
    run(a_resumed_run_gives_the_same_bits);
    run(sums_overlap_backward);
    run(a_missing_wait_is_found);
    run(a_failed_transfer_ends_the_run);
    return tap_done();
}
