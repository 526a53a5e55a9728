/* elastic.c - tests of strategies/elastic.c: any number of ranks comes to the same bits */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "rig.h"
#include "strategies/shards.h"
#include "tap.h"

#define QUIET "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1, "
#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.02}"
#define SAMPLES 98

static bool has_cpu(void)
{
    bool there = pl_part_find("accelerator", "cpu", NULL) != NULL;
    if (!there)
        tap_skip("this build has no accelerator cpu");
    return there;
}

/* ---- a module with all that could depend on who computes what ---- */

static void wild_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t x = pl_linear(g, "fc1", pl_input(g, "x"), 8);
    x = pl_relu(g, pl_batch_norm(g, "norm", x, 0.1, 1e-5));
    if (stage == PL_TRAIN)
        x = pl_dropout(g, x, 0.25);
    x = pl_linear(g, "fc2", x, 3);
    pl_output(g, "logits", x);
    if (stage == PL_PREDICT)
        return;
    const pl_node_t y = pl_input(g, "y");
    pl_loss(g, pl_cross_entropy(g, x, y, NULL));
    pl_log(g, "acc", pl_accuracy(g, x, y, NULL), PL_ON_EPOCH);
    if (stage == PL_TRAIN)
        pl_assign(g, pl_state(g, "seen", pl_shape(0), pl_zeros(), PL_AGREE_RANK0),
                  pl_sum(g, pl_input(g, "x"), NULL, 0, false));
}

static const pl_module_ops_t wild = {.name = "wild", .size = 1, .step = wild_step};

/* What each rank keeps for itself. */
static void own_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_node_t x = pl_input(g, "x");
    pl_assign(g, pl_state(g, "own", pl_shape(0), pl_zeros(), PL_AGREE_NONE),
              pl_sum(g, x, NULL, 0, false));
    pl_loss(g, pl_cross_entropy(g, pl_linear(g, "fc", x, 3), pl_input(g, "y"), NULL));
}

static const pl_module_ops_t own = {.name = "own", .size = 1, .step = own_step};

/* ---- samples that are augmented, and may not come out even ---- */

static int noisy_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                      pl_error_t *err)
{
    (void)self, (void)request, (void)err;
    *info = (pl_data_info_t){.samples = SAMPLES,
                             .field_count = 2,
                             .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                       {"y", PL_I64, {0, {0}}}},
                             .facts = pl_strdup("{\"classes\": 3}")};
    return PL_OK;
}

static int noisy_read(const void *self, const pl_read_request_t *request, void *const field[],
                      pl_error_t *err)
{
    (void)self, (void)err;
    float *x = field[0];
    int64_t *y = field[1];
    for (int i = 0; i < request->count; i++) {
        const int64_t sample = request->index[i];
        rig_sample(sample, x + i * RIG_FEATURES, &y[i]);
        for (int k = 0; k < RIG_FEATURES && request->stage == PL_TRAIN; k++)
            x[i * RIG_FEATURES + k] +=
                (float)(pl_mix(request->seed + request->epoch, (uint64_t)sample) >> 44)
                / (1 << 24);
    }
    return PL_OK;
}

static const pl_dataset_ops_t noisy = {.name = "noisy",
                                       .size = 1,
                                       .open = noisy_open,
                                       .read = noisy_read};

/* ---- runs ---- */

typedef struct run {
    const char *device, *module, *trainer, *data, *from;
    int ranks, until;
} run_t;

/* 12 shards of 3, unless it says otherwise; it ends with step `until`. */
static rig_result_t *fit_run(run_t run)
{
    char trainer[512], data[200];
    snprintf(trainer, sizeof trainer,
             QUIET "\"max_epochs\": 9, \"deterministic\": \"elastic\", \"devices\": %d, "
                   "\"max_steps\": %d%s",
             run.ranks, run.until ? run.until : 7, run.trainer ? run.trainer : "");
    snprintf(data, sizeof data, "{\"name\": \"noisy\", \"val_split\": 0.2, %s}",
             run.data ? run.data : "\"batch_size\": 3");
    rig_t *rig = rig_new(.accelerator = run.device ? run.device : "cpu",
                         .module = run.module ? run.module : "\"wild\"",
                         .optimizer = ADAMW, .trainer = trainer, .dataset = data,
                         .callbacks = "[{\"name\": \"model_checkpoint\", "
                                      "\"every_n_train_steps\": 3, \"save_top_k\": -1}]");
    if (!rig) {
        tap_diag("%s", rig_error.text);
        return calloc(1, sizeof(rig_result_t));
    }
    if (run.from && !rig_begin_again(rig, run.from))
        tap_diag("%s", rig_error.text);
    rig_result_t *result = rig_keep(run.from ? rig_wait(rig) : rig_fit(rig));
    if (strcmp(result->status, "ok"))
        tap_diag("%s", result->error.text);
    rig_free(&rig);
    return result;
}

#define fit(...) fit_run((run_t){__VA_ARGS__})

static bool same_series(const rig_result_t *a, const rig_result_t *b, const char *name)
{
    const rig_series_t x = rig_series(a, name), y = rig_series(b, name);
    bool same = x.count == y.count && x.count > 0;
    for (int k = 0; k < x.count && same; k++)
        same = !memcmp(&x.value[k], &y.value[k], sizeof x.value[k]);
    return same;
}

static void compare(const rig_result_t *one, const rig_result_t *many, const char *what)
{
    is_text(many->status, "ok", "%s", what);
    ok(rig_same_bits(one, many), "the weights of one rank, bit for bit (%g)",
       rig_distance(one, many));
    ok(same_series(one, many, "train_loss"), "and its losses");
    ok(same_series(one, many, "val_loss"), "and what it validates");
}

static void any_number_comes_to_the_same_bits_of(run_t run)
{
    char what[100];
    run.ranks = 1;
    rig_result_t *one = fit_run(run);
    is_text(one->status, "ok", "one rank trains");
    for (run.ranks = 2; run.ranks <= 5; run.ranks++) {
        snprintf(what, sizeof what, "%d ranks%s", run.ranks,
                 run.trainer ? run.trainer : "");
        rig_result_t *many = fit_run(run);
        compare(one, many, what);
        rig_result_free(many);
    }
    rig_result_free(one);
}

static void any_number_of_ranks_comes_to_the_same_bits(void)
{
    if (!has_cpu())
        return;
    any_number_comes_to_the_same_bits_of((run_t){0});
    any_number_comes_to_the_same_bits_of(
        (run_t){.trainer = ", \"accumulate_grad_batches\": 2"});
}

int main(void)
{
    static const pl_registration_t more[] = {{"module", &wild},
                                             {"module", &own},
                                             {"dataset", &noisy},
                                             {NULL, NULL}};
    rig_init(more);
    any_number_of_ranks_comes_to_the_same_bits();
    return tap_done();
}
