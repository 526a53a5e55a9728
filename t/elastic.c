/* elastic.c - tests of strategies/elastic/: any number of ranks comes to
 * the same bits */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "rig.h"
#include "strategies/elastic/elastic.h"
#include "tap.h"

#define QUIET "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1, "
#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.02}"
#define SAMPLES 98

static bool has_cpu(void)
{
    bool there = pl_component_find("accelerator", "cpu", NULL) != NULL;
    if (!there)
        tap_skip("this build has no accelerator cpu");
    return there;
}

/* ---- a module with everything that could depend on the ranks' shares ---- */

static void wild_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t x = pl_linear(g, "fc1", pl_input(g, "x"), 8);
    x = pl_relu(g, pl_batch_norm(g, "norm", x, 0.1, 1e-5));
    if (stage == PL_TRAIN)
        x = pl_dropout(g, x, 0.25);
    x = pl_linear(g, "fc2", x, 3);
    pl_output(g, "logits", x);
    const pl_node_t seen = pl_state(g, "seen", pl_shape(0), pl_zeros(), PL_AGREE_RANK0);
    if (stage == PL_PREDICT)
        return;
    const pl_node_t y = pl_input(g, "y");
    pl_loss(g, pl_cross_entropy(g, x, y, NULL));
    pl_log(g, "acc", pl_accuracy(g, x, y, NULL), PL_ON_EPOCH);
    if (stage == PL_TRAIN)
        pl_assign(g, seen, pl_sum(g, pl_input(g, "x"), NULL, 0, false));
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
                             .data_info = pl_strdup("{\"classes\": 3}")};
    return PL_OK;
}

static int noisy_read(const void *self, const pl_read_request_t *request,
                      void *const field[], pl_error_t *err)
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

/* 12 micro-shards of 3, unless it says otherwise; it ends with step `until`. */
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

static void any_number_of_ranks_gives_the_same_bits(void)
{
    if (!has_cpu())
        return;
    any_number_comes_to_the_same_bits_of((run_t){0});
    any_number_comes_to_the_same_bits_of(
        (run_t){.trainer = ", \"accumulate_grad_batches\": 2"});
}

static void micro_shards_need_not_be_distributed_evenly(void)
{
    if (!has_cpu())
        return;
    any_number_comes_to_the_same_bits_of((
        run_t){.trainer = ", \"strategy\": {\"name\": \"elastic\", \"micro_shards\": 7}, "
                          "\"global_batch_size\": 35",
               .data = "\"workers\": 2"});
    any_number_comes_to_the_same_bits_of(
        (run_t){.trainer = ", \"strategy\": {\"name\": \"elastic\", \"micro_shards\": 5, "
                           "\"drop_last\": true, \"collective\": \"tcp\"}",
                .data = "\"batch_size\": 13"});
}

static void ranks_train_as_one_rank_does(void)
{
    if (!has_cpu())
        return;
    static const char mlp[] = "{\"name\": \"mlp\", \"hidden\": [8]}";
    rig_result_t *many = fit(.module = mlp, .ranks = 3);
    rig_t *rig = rig_new(.accelerator = "cpu", .module = mlp, .optimizer = ADAMW,
                         .trainer = QUIET "\"max_steps\": 7, \"max_epochs\": 9",
                         .dataset = "{\"name\": \"noisy\", \"val_split\": 0.2, "
                                    "\"batch_size\": 36}");
    const rig_result_t *one = rig_fit(rig);
    const rig_series_t x = rig_series(one, "train_loss"),
                       y = rig_series(many, "train_loss");
    is_int(x.count, y.count, "as many steps");
    for (int k = 0; k < x.count && k < y.count; k++)
        ok(fabs(x.value[k] - y.value[k]) < 1e-5, "a loss is the loss of whole batches");
    ok(rig_distance(one, many) < 1e-5, "and so are the weights (%g)",
       rig_distance(one, many));
    rig_free(&rig);
    rig_result_free(many);
}

/* Each of them ends an epoch or not, with a batch that is whole or not. */
static void the_number_of_ranks_may_change_at_a_resume(void)
{
    static const int ranks[] = {1, 4, 3, 2};
    if (!has_cpu())
        return;
    rig_result_t *whole = fit(.ranks = 2, .until = 9);
    rig_result_t *part = fit(.ranks = ranks[0], .until = 2);
    for (int k = 1; k < 4; k++) {
        rig_result_t *next = fit(.ranks = ranks[k], .until = 2 + 7 * k / 3,
                                 .from = part->run_dir);
        is_text(next->status, "ok", "%d ranks resume", ranks[k]);
        rig_result_free(part);
        part = next;
    }
    ok(rig_same_bits(whole, part), "as if there had been the same all the way (%g)",
       rig_distance(whole, part));
    rig_result_free(part);
    rig_result_free(whole);
}

static void metrics_and_predictions_are_the_same_too(void)
{
    if (!has_cpu())
        return;
    static const char *const ranks[] = {"\"deterministic\": \"elastic\"",
                                        "\"deterministic\": \"elastic\", \"devices\": 3"};
    rig_result_t *trained = fit(.ranks = 1, .until = 2);
    const rig_result_t *reported[2];
    rig_t *rig[2];
    double loss[2];
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", trained->run_dir);
    for (int k = 0; k < 2; k++) {
        rig[k] = rig_new(.accelerator = "cpu", .module = "\"wild\"", .trainer = ranks[k],
                         .dataset = "{\"name\": \"noisy\", \"batch_size\": 3}");
        loss[k] = rig_metric(rig_test(rig[k], path), "test_loss");
        reported[k] = rig_predict(rig[k], path);
        is_text(reported[k]->status, "ok", "a prediction: %s", reported[k]->error.text);
    }
    ok(isfinite(loss[0]) && !memcmp(&loss[0], &loss[1], sizeof loss[0]),
       "three ranks measure what one does");
    const size_t count = reported[0]->output_count ? reported[0]->output[0].count : 0;
    const bool whole = count == SAMPLES * 3 && reported[1]->output_count == 1
                       && reported[1]->output[0].count == count;
    ok(whole
           && !memcmp(reported[0]->output[0].data, reported[1]->output[0].data,
                      count * sizeof(float)),
       "and predict the same, in order");
    rig_free(&rig[0]);
    rig_free(&rig[1]);
    rig_result_free(trained);
}

/* ---- what cannot be ---- */

static void the_strategy_has_the_option_and_needs_no_other(void)
{
    rig_t *rig = rig_new(.trainer = QUIET "\"devices\": 3, \"strategy\": {\"name\": "
                                          "\"elastic\", \"micro_shards\": 2}");
    ok(!rig_begin(rig), "the number of micro-shards is the strategy's");
    like(rig_error.text, "3 ranks cannot share 2", "%s", rig_error.text);
    rig_free(&rig);
    rig = rig_new(.trainer = QUIET "\"max_epochs\": 1, \"devices\": 2, "
                                   "\"strategy\": \"elastic\"");
    ok(rig_begin(rig), "the strategy alone is enough: %s", rig_error.text);
    is_text(rig_wait(rig)->status, "ok", "and trains");
    rig_free(&rig);
}

static void options_that_contradict_each_other_are_refused(void)
{
    static const struct {
        const char *trainer, *module, *data, *says;
    } wrong[] = {
        {"\"devices\": 3, \"strategy\": {\"name\": \"elastic\", \"micro_shards\": 2}",
         NULL, NULL, "3 ranks cannot share 2"},
        {"\"global_batch_size\": 30", NULL, NULL, "not a multiple of 12 micro-shards"},
        {"\"global_batch_size\": 24", NULL, "\"batch_size\": 3", "are 2 each"},
        {"\"devices\": 2, \"strategy\": \"ddp\"", NULL, NULL, "depend on the number"},
        {"\"strategy\": \"single\"", NULL, NULL, "depend on the number"},
        {"\"max_time\": \"00:00:00:09\"", NULL, NULL, "is elastic: remove one"},
        {"\"devices\": 1", "\"own\"", NULL, "\"own\" differs between ranks"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        char trainer[256];
        snprintf(trainer, sizeof trainer, QUIET "\"deterministic\": \"elastic\", %s",
                 wrong[k].trainer);
        rig_t *rig = rig_new(.trainer = trainer, .module = wrong[k].module,
                             .data = wrong[k].data, .samples = 24);
        const bool began = rig && rig_begin(rig);
        const char *text = began ? rig_wait(rig)->error.text : rig_error.text;
        like(text, wrong[k].says, "refused: %s", text);
        rig_free(&rig);
    }
}

static void a_step_that_is_not_finite_is_skipped_by_all_ranks(void)
{
    rig_result_t *result[2];
    if (!has_cpu())
        return;
    for (int k = 0; k < 2; k++) {
        rig_t *rig = rig_new(.accelerator = "cpu", .nan = 6, .optimizer = ADAMW,
                             .data = "\"batch_size\": 1",
                             .trainer = k ? QUIET "\"devices\": 3, \"max_epochs\": 2, "
                                                  "\"deterministic\": \"elastic\", "
                                                  "\"nan_policy\": \"skip\""
                                          : QUIET "\"max_epochs\": 2, "
                                                  "\"deterministic\": \"elastic\", "
                                                  "\"nan_policy\": \"skip\"");
        result[k] = rig_keep(rig_fit(rig));
        is_text(result[k]->status, "ok", "it continues: %s", result[k]->error.text);
        ok(rig_metric(result[k], "skipped_steps") >= 1, "and reports it");
        rig_free(&rig);
    }
    ok(rig_same_bits(result[0], result[1]), "one rank and three, to the same bits (%g)",
       rig_distance(result[0], result[1]));
    rig_result_free(result[0]);
    rig_result_free(result[1]);
}

/* ---- sums of micro-shards ---- */

static void partitions_make_up_all_micro_shards_in_order(void)
{
    int worst = 0;
    bool whole = true;
    for (int micro_shards = 1; micro_shards <= 64; micro_shards++)
        for (int ranks = 1; ranks <= micro_shards; ranks++) {
            int next = 0;
            for (int rank = 0; rank < ranks; rank++) {
                pl_micro_sums_t stack;
                pl_micro_sums_of(&stack, micro_shards, ranks, rank);
                for (int k = 0; k < stack.count; next += stack.range[k++].count)
                    whole &= stack.range[k].first == next;
                whole &= stack.count > 0
                         && stack.count <= pl_micro_sums_max(micro_shards, ranks);
            }
            whole &= next == micro_shards;
            worst = pl_micro_sums_max(micro_shards, ranks) > worst
                        ? pl_micro_sums_max(micro_shards, ranks)
                        : worst;
        }
    ok(whole && worst <= PL_MICRO_SUMS_MAX, "up to 64 micro-shards: %d parts at most",
       worst);
    is_int(pl_micro_sums_max(12, 1), 1, "of 12 one rank has one");
    is_int(pl_micro_sums_max(12, 2), 2, "two have two each");
    is_int(pl_micro_sums_max(12, 3), 1, "three have one each");
}

int main(void)
{
    static const pl_registration_t more[] = {{"module", &wild},
                                             {"module", &own},
                                             {"dataset", &noisy},
                                             {NULL, NULL}};
    rig_init(more);
    run(any_number_of_ranks_gives_the_same_bits);
    run(micro_shards_need_not_be_distributed_evenly);
    run(ranks_train_as_one_rank_does);
    run(the_number_of_ranks_may_change_at_a_resume);
    run(metrics_and_predictions_are_the_same_too);
    run(the_strategy_has_the_option_and_needs_no_other);
    run(options_that_contradict_each_other_are_refused);
    run(a_step_that_is_not_finite_is_skipped_by_all_ranks);
    run(partitions_make_up_all_micro_shards_in_order);
    return tap_done();
}
