/* gpu_runs.c - tests of whole runs of several ranks on GPUs that are emulated: every
 * strategy, each format, to the weights that the processor trains */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend_emulated.h"
#include "rig.h"
#include "tap.h"
#include "tensor/operators.h"

/* A bias before a batch norm has no gradient but noise, which AdamW would follow. */
#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.01}"
#define SGD "{\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9}"

typedef struct one {
    const char *name, *module, *trainer;
    double tolerance;
    int nan;
    bool library;                                           /* of products */
} one_t;

/* ---- Runs ---- */

static const one_t runs[] = {
    {.name = "ddp on two", .trainer = "\"devices\": 2"},
    {.name = "ddp on four", .trainer = "\"devices\": 4"},
    {.name = "ddp, three batches a step",
     .trainer = "\"devices\": 2, \"accumulate_grad_batches\": 3"},
    {.name = "ddp, small buckets",
     .trainer =
         "\"devices\": 2, \"strategy\": {\"name\": \"ddp\", \"bucket_mb\": 0.0001}"},
    {.name = "ddp, a NaN is skipped",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\"",
     .nan = 9},
    {.name = "ddp, small buckets, a NaN is skipped",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\", \"depth\": 3, "
                "\"strategy\": {\"name\": \"ddp\", \"bucket_mb\": 0.0001}",
     .nan = 9},
    {.name = "zero1 on two", .trainer = "\"devices\": 2, \"strategy\": \"zero1\""},
    {.name = "zero1 on three, clipped",
     .trainer = "\"devices\": 3, \"strategy\": \"zero1\", \"gradient_clip_val\": 0.1"},
    {.name = "local_sgd", .trainer = "\"devices\": 2, \"strategy\": \"local_sgd\""},
    {.name = "elastic",
     .trainer =
         "\"devices\": 2, \"strategy\": {\"name\": \"elastic\", \"micro_shards\": 4}"},
    {.name = "batch norm of all ranks",
     .module = "{\"name\": \"normed\"}",
     .trainer = "\"devices\": 2, \"sync_batchnorm\": true"},
    {.name = "batch norm of all ranks, a NaN is skipped",
     .module = "{\"name\": \"normed\"}",
     .trainer = "\"devices\": 2, \"sync_batchnorm\": true, \"nan_policy\": \"skip\"",
     .nan = 9},
    {.name = "batch norm of each rank",
     .module = "{\"name\": \"normed\"}",
     .trainer = "\"devices\": 2"},
    {.name = "bf16-mixed",
     .trainer = "\"devices\": 2, \"precision\": \"bf16-mixed\"",
     .tolerance = 2e-2},
    {.name = "bf16-true",
     .trainer = "\"devices\": 2, \"precision\": \"bf16-true\"",
     .tolerance = 5e-2},
    {.name = "64-true",
     .trainer = "\"devices\": 2, \"precision\": \"64-true\"",
     .tolerance = 1e-6},
    {.name = "ddp with a library of products, three batches a step",
     .trainer = "\"devices\": 2, \"accumulate_grad_batches\": 3",
     .library = true},
    {.name = "a NaN is skipped with a library of products",
     .trainer = "\"devices\": 2, \"nan_policy\": \"skip\"",
     .nan = 9,
     .library = true},
    {.name = "bf16-mixed with a library of products",
     .trainer = "\"devices\": 2, \"precision\": \"bf16-mixed\"",
     .tolerance = 2e-2,
     .library = true},
    {.name = "64-true with a library of products",
     .trainer = "\"devices\": 2, \"precision\": \"64-true\"",
     .tolerance = 1e-6,
     .library = true},
};

static rig_result_t *train(const one_t *one, const char *accelerator)
{
    char trainer[256];
    snprintf(trainer, sizeof trainer, "%s, \"max_epochs\": 2", one->trainer);
    return rig_train(&(rig_spec_t){.accelerator = accelerator,
                                   .module = one->module,
                                   .optimizer = one->module ? SGD : ADAMW,
                                   .data = "\"batch_size\": 4",
                                   .nan = one->nan,
                                   .trainer = trainer});
}

static void ranks_train_as_on_the_processor(void)
{
    const char *only = getenv("CASE");
    for (size_t k = 0; k < sizeof runs / sizeof *runs && rig_has("cpu"); k++) {
        const one_t *one = &runs[k];
        const double tolerance = one->tolerance > 0 ? one->tolerance : 1e-4;
        if (only && !strstr(one->name, only))
            continue;
        rig_result_t *cpu = train(one, "cpu"),
                     *gpu = train(one, one->library ? "emulated_library" : "emulated");
        is_text(cpu->status, "ok", "%s on the processor: %s", one->name, cpu->error.text);
        is_text(gpu->status, "ok", "%s on GPUs: %s", one->name, gpu->error.text);
        const double off = rig_distance(cpu, gpu);
        ok(off < tolerance, "to the same weights, but for %g", off);
        is_near(rig_metric(gpu, "train_loss"), rig_metric(cpu, "train_loss"), tolerance,
                "and the same loss");
        rig_result_free(cpu), rig_result_free(gpu);
    }
}

/* ---- Steps that are not finite ---- */

#define FAR "\"precision\": {\"name\": \"16-mixed\", \"init_scale\": 16777216%s}"

static rig_result_t *train_far(const char *accelerator, const char *module,
                               const char *trainer, const char *scaling)
{
    char precision[120], all[400];
    snprintf(precision, sizeof precision, FAR, scaling);
    snprintf(all, sizeof all,
             "%s, %s, \"max_epochs\": 2, \"depth\": 4, \"log_every_n_steps\": 1", trainer,
             precision);
    rig_t *rig = rig_new(.accelerator = accelerator, .module = module, .trainer = all,
                         .data = "\"batch_size\": 4");
    rig_result_t *result = rig_keep(rig_fit(rig));
    rig_free(&rig);
    return result;
}

static bool same_series(const rig_result_t *a, const rig_result_t *b, const char *name)
{
    const rig_series_t x = rig_series(a, name), y = rig_series(b, name);
    return x.count > 1 && x.count == y.count
           && !memcmp(x.value, y.value, (size_t)x.count * sizeof *x.value);
}

/* The gradients of the first steps are no numbers of float16. */
static void a_factor_that_is_too_large_falls_as_on_the_processor(void)
{
    static const struct {
        const char *module, *trainer, *gpu;
    } ones[] = {{NULL, "\"devices\": 1", "emulated"},
                {"\"normed\"", "\"devices\": 1", "emulated"},
                {"\"normed\"", "\"devices\": 1", "emulated_library"},
                {"\"normed\"", "\"devices\": 2", "emulated"},
                {"\"normed\"", "\"devices\": 2, \"sync_batchnorm\": true", "emulated"},
                {NULL, "\"devices\": 2, \"strategy\": \"zero1\"", "emulated"}};
    for (size_t k = 0; k < sizeof ones / sizeof *ones && rig_has("cpu"); k++) {
        rig_result_t *cpu = train_far("cpu", ones[k].module, ones[k].trainer, ""),
                     *gpu = train_far(ones[k].gpu, ones[k].module, ones[k].trainer, "");
        is_text(cpu->status, "ok", "%s, %s: %s", ones[k].gpu, ones[k].trainer,
                cpu->error.text);
        is_text(gpu->status, "ok", "on GPUs: %s", gpu->error.text);
        ok(rig_metric(gpu, "skipped_steps") > 3 && same_series(cpu, gpu, "skipped_steps"),
           "the same of them are skipped, %g", rig_metric(gpu, "skipped_steps"));
        ok(same_series(cpu, gpu, "loss_scale"), "and the factors are the same");
        ok(rig_distance(cpu, gpu) < 1e-2, "the weights, but for %g",
           rig_distance(cpu, gpu));
        rig_result_free(cpu), rig_result_free(gpu);
    }
}

/* A loss; and a gradient where the factor cannot fall any more. */
static void a_step_that_is_not_finite_is_reported_as_on_the_processor(void)
{
    static const char *const words[] = {"the loss is not finite",
                                        "the gradient is not finite.*min_scale"};
    for (int k = 0; k < 2 && rig_has("cpu"); k++) {
        rig_result_t *result[2];
        for (int on = 0; on < 2; on++) {
            const char *accelerator = on ? "emulated" : "cpu";
            if (k == 1) {
                result[on] = train_far(accelerator, NULL, "\"devices\": 1",
                                       ", \"min_scale\": 8388608");
                continue;
            }
            rig_t *rig = rig_new(.accelerator = accelerator, .nan = 9,
                                 .trainer = "\"max_epochs\": 1");
            result[on] = rig_keep(rig_fit(rig));
            rig_free(&rig);
        }
        is_text(result[0]->status, "failed", "a run fails");
        like(result[0]->error.text, words[k], "%s", result[0]->error.text);
        is_text(result[1]->error.text, result[0]->error.text, "on a GPU, too");
        rig_result_free(result[0]), rig_result_free(result[1]);
    }
}

/* Elastic sums have one order however many ranks there are. */
static void any_number_of_ranks_gives_the_same_bits(void)
{
    rig_result_t *result[3] = {NULL};
    for (int k = 0; k < 3; k++) {
        char trainer[160];
        snprintf(trainer, sizeof trainer,
                 "\"devices\": %d, \"strategy\": {\"name\": \"elastic\", "
                 "\"micro_shards\": 4}",
                 1 << k);
        result[k] = train(&(one_t){.trainer = trainer}, "emulated");
        ok(rig_same_bits(result[0], result[k]), "%d ranks", 1 << k);
    }
    for (int k = 0; k < 3; k++)
        rig_result_free(result[k]);
}

/* ---- Reads during replays ---- */

enum { PARAMS = 530000 /* halves of so many are converted in two parts */ };

typedef struct reading {
    pl_transfer_t transfer;
    float host[PARAMS];
    int times;
} reading_t;

static void on_read(pl_transfer_t *transfer, const pl_error_t *err)
{
    ((reading_t *)transfer)->times += err ? 100 : 1;
}

static void on_replayed(pl_replay_t *replay, const pl_error_t *err)
{
    replay->step = err ? 100 : 1;
}

/* Parameters become twice what they are. */
static pl_plan_t *doubling(emulated_t *device, pl_dtype_t dtype, pl_error_t *err)
{
    pl_plan_t *plan = NULL;
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    pl_node_t x = pl_region_view(g, PL_REGION_PARAMS, 0, PL_SHAPE(PARAMS));
    pl_assign(g, x, pl_add(g, x, x));
    for (int v = 0; v < g->value_count; v++)
        g->value[v].dtype = dtype;
    emulated_accelerator.compile(device, g, &plan, err);
    pl_graph_free(g);
    return plan;
}

static void collect_all(emulated_t *device, const reading_t *reading, int reads,
                        const pl_replay_t *replay, int replays)
{
    const pl_accelerator_ops_t *ops = &emulated_accelerator;
    for (int done = 0; done < reads + replays;) {
        struct pollfd news = {.fd = ops->descriptor(device), .events = POLLIN};
        if (poll(&news, 1, 30000) != 1) {
            ok(false, "there is nothing new");
            return;
        }
        ops->collect(device);
        done = 0;
        for (int k = 0; k < reads; k++)
            done += reading[k].times > 0;
        for (int k = 0; k < replays; k++)
            done += replay[k].step > 0;
    }
}

/* Each read finds what the replays before it leave, with a snapshot or without. */
static void reads_do_not_hold_replays(void)
{
    static reading_t reading[4];
    pl_replay_t replay[4];
    static float ones[PARAMS];
    static const pl_dtype_t dtypes[] = {PL_F32, PL_F32, PL_BF16, PL_F16};
    pl_error_t err = {0};
    const pl_accelerator_ops_t *ops = &emulated_accelerator;
    for (int k = 0; k < PARAMS; k++)
        ones[k] = 1;
    for (int form = 0; form < 4; form++) {
        const pl_dtype_t dtype = dtypes[form];
        const bool scarce = form % 2;
        emulated_t device = {.seed = 1};
        pl_device_info_t info = {.ranks = 1};
        ok(ops->open(&device, &info, &err) == PL_OK
               && ops->region(&device, PL_REGION_PARAMS, dtype, PARAMS, &err) == PL_OK
               && ops->write(&device, PL_REGION_PARAMS, 0, ones, PARAMS, &err) == PL_OK,
           "a device: %s", err.text);
        pl_plan_t *plan = doubling(&device, dtype, &err);
        ok(plan != NULL, "a plan: %s", err.text);
        device.limit = scarce ? 64 : 0;
        for (int k = 0; k < 4; k++) {
            reading[k] = (reading_t){.transfer = {.region = PL_REGION_PARAMS,
                                                  .offset = 3,
                                                  .count = PARAMS - 3,
                                                  .host = reading[k].host,
                                                  .done = on_read}};
            replay[k] = (pl_replay_t){.done = on_replayed};
            ok(ops->replay(&device, plan, &replay[k], &err) == PL_OK
                   && ops->read_later(&device, &reading[k].transfer, &err) == PL_OK,
               "replay and read %d: %s", k, err.text);
        }
        collect_all(&device, reading, 4, replay, 4);
        for (int k = 0; k < 4; k++) {
            int wrong = reading[k].times != 1 || replay[k].step != 1;
            for (int i = 0; i < PARAMS - 3; i++)
                wrong += reading[k].host[i] != (float)(2 << k);
            ok(wrong == 0, "read %d, %s, %s", k, pl_dtype_name(dtype),
               scarce ? "no snapshots" : "by snapshots");
        }
        ops->close(&device);
    }
}

#define WIDE "{\"name\": \"mlp\", \"hidden\": [64]}"

/* A model that does not fit: the error has the requested memory, its purpose, the
 * owners of the rest and a remedy; and the next run finds the engine as it was. */
static void a_model_that_does_not_fit_is_reported(void)
{
    static const char *const limits[] = {"2000", "4000"}, *const needs[] = {
                                                              "for parameters",
                                                              "for values of a step"};
    for (int k = 0; k < 2; k++) {
        rig_t *rig = rig_new(.accelerator = "emulated", .module = WIDE,
                             .data = "\"batch_size\": 32",
                             .trainer = "\"max_epochs\": 1");
        setenv("EMULATED_LIMIT", limits[k], 1);
        const rig_result_t *result = rig_fit(rig);
        unsetenv("EMULATED_LIMIT");
        is_text(result->status, "failed", "with blocks of %s bytes at most", limits[k]);
        ok(strstr(result->error.text, "out of memory: ")
               && strstr(result->error.text, needs[k])
               && strstr(result->error.text, ": use a smaller batch_size"),
           "%s", result->error.text);
        result = rig_fit(rig);
        is_text(result->status, "ok", "and with more it trains: %s", result->error.text);
        rig_free(&rig);
    }
}

static double share_of_peak(const char *accelerator, const char *precision)
{
    char trainer[80];
    snprintf(trainer, sizeof trainer, "\"max_epochs\": 1, \"precision\": \"%s\"",
             precision);
    rig_t *rig =
        rig_new(.accelerator = accelerator,
                .callbacks = "[{\"name\": \"throughput_monitor\", \"every_n_steps\": 2}]",
                .trainer = trainer);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a run in %s: %s", precision, result->error.text);
    const double share = rig_metric(result, "model_flops_utilization");
    ok(share > 0, "takes %g of the device's peak", share);
    rig_free(&rig);
    return share;
}

/* The device's peak is measured by replays that end later, in the format of the run:
 * float64, which a processor computes as slowly in products as in steps, tells that. */
static void a_run_knows_its_share_of_the_peak(void)
{
    share_of_peak("emulated", "32-true");
    share_of_peak("emulated", "bf16-mixed");
    share_of_peak("emulated", "16-true");
    const double narrow = share_of_peak("cpu", "32-true");
    ok(share_of_peak("cpu", "64-true") > 2 * narrow, "the peak is the format's");
}

static const pl_registration_t components[] = {{"accelerator", &emulated_accelerator},
                                               {"accelerator",
                                                &emulated_library_accelerator},
                                               {"module", &rig_normed},
                                               PL_REGISTRATIONS_END};

int main(void)
{
    rig_init(components);
    run(reads_do_not_hold_replays);
    run(a_model_that_does_not_fit_is_reported);
    run(a_run_knows_its_share_of_the_peak);
    run(ranks_train_as_on_the_processor);
    run(a_factor_that_is_too_large_falls_as_on_the_processor);
    run(a_step_that_is_not_finite_is_reported_as_on_the_processor);
    run(any_number_of_ranks_gives_the_same_bits);
    return tap_done();
}
