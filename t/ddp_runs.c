/* ddp_runs.c - tests of a run of several ranks besides training: roll back,
 * reopen its data, search for a rate; and of the collectives
 *
 * Each is held against one rank with the same samples in a step, or against itself done
 * in another way. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rig_runs.h"
#include "strategies/collectives/collective.h"
#include "tap.h"

#define QUIET "\"num_sanity_val_steps\": 0, \"log_every_n_steps\": 1"
#define EVERY_STEP "[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 1}]"

#define EVERY_STEP_KEPT \
    "[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 1, \"save_top_k\": -1}]"

#define fit(...) rig_train(&(rig_spec_t){__VA_ARGS__})

/* ---- Going back ---- */

static void a_rollback_is_done_by_all_ranks(void)
{
    if (!rig_has("cpu"))
        return;
    for (int record = 5; record <= 6; record++) {           /* of rank 0, of rank 1 */
        rig_result_t *skipped =
            fit(.accelerator = "cpu", .nan = record, .data = "\"batch_size\": 4",
                .callbacks = EVERY_STEP,
                .trainer = "\"devices\": 2, \"nan_policy\": \"skip\", "
                           "\"max_epochs\": 2, " QUIET);
        rig_result_t *back =
            fit(.accelerator = "cpu", .nan = record, .data = "\"batch_size\": 4",
                .callbacks = EVERY_STEP,
                .trainer = "\"devices\": 2, \"nan_policy\": \"rollback\", "
                           "\"max_epochs\": 2, " QUIET);
        is_int(back->global_step, skipped->global_step, "as many steps");
        is_near(rig_metric(back, "rollbacks"), 2, 0, "one in each epoch");
        ok(rig_same_bits(back, skipped), "and what was led there leaves nothing");
        rig_result_free(skipped);
        rig_result_free(back);
    }
}

static void rollbacks_have_a_limit(void)
{
    rig_t *rig = rig_new(.nan = 5, .data = "\"batch_size\": 20",
                         .trainer = "\"devices\": 2, \"nan_policy\": \"rollback\", "
                                    "\"nan_limit\": 2, " QUIET);
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_ENAN, "every step is bad: %s", result->error.text);
    like(result->error.text, "went back 2 times", "it says why");
    rig_free(&rig);
}

/* One rank sees it before the ranks meet: there is nothing that all could go back to. */
static void an_anomaly_of_one_rank_ends_all(void)
{
    static const char *const policies[] = {"stop", "rollback"};
    for (int k = 0; k < 2; k++) {
        char trainer[160];
        snprintf(
            trainer, sizeof trainer,
            "\"devices\": 3, \"detect_anomaly\": true, \"nan_policy\": \"%s\", " QUIET,
            policies[k]);
        rig_t *rig = rig_new(.nan = 6, .data = "\"batch_size\": 2", .trainer = trainer,
                             .callbacks = EVERY_STEP);
        const rig_result_t *result = rig_fit(rig);
        is_text(pl_code_name(result->error.code), "PL_ENAN", "%s: %s", policies[k],
                result->error.text);
        like(result->error.where, "rank [012] ", "a rank is named");
        ok(result->seconds < 20, "at once");
        rig_free(&rig);
    }
}

/* ---- reopened data ---- */

static void reopened_data_gives_the_same_bits(void)
{
    if (!rig_has("cpu"))
        return;
    rig_result_t *once = fit(.accelerator = "cpu", .data = "\"batch_size\": 3",
                             .trainer = "\"devices\": 3, \"max_epochs\": 3, " QUIET);
    rig_result_t *again =
        fit(.accelerator = "cpu", .data = "\"batch_size\": 3",
            .trainer = "\"devices\": 3, \"max_epochs\": 3, "
                       "\"reload_dataloaders_every_n_epochs\": 1, " QUIET);
    ok(rig_same_bits(once, again), "the order is the same");
    is_text(again->metrics, once->metrics, "and all metrics");
    rig_result_free(once);
    rig_result_free(again);
}

/* ---- Searches ---- */

static void ranks_find_the_rate_that_one_finds(void)
{
    const pl_tuning_t what = {.min_lr = 1e-4, .max_lr = 1, .num_training = 40};
    rig_t *one = rig_new(.data = "\"batch_size\": 8"),
          *two = rig_new(.data = "\"batch_size\": 4", .trainer = "\"devices\": 2");
    const rig_result_t *desc = rig_tune(one, &what), *got = rig_tune(two, &what);
    is_text(got->status, "ok", "two ranks search: %s", got->error.text);
    is_near(rig_metric(got, "lr"), rig_metric(desc, "lr"), 1e-9, "the same rate");
    is_int(got->global_step, desc->global_step, "after as many trials");
    rig_free(&one);
    rig_free(&two);
}

/* The sizes that were tried, with a ! behind those that do not fit. */
static const char *sizes_of(const rig_result_t *result)
{
    static char text[512];
    json_t *found = json_loads(result->text ? result->text : "{}", 0, NULL), *trial;
    size_t k;
    *text = '\0';
    json_array_foreach(json_object_get(found, "trials"), k, trial)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld%s",
                 k ? " " : "",
                 (long long)json_integer_value(json_object_get(trial, "batch_size")),
                 json_is_true(json_object_get(trial, "fits")) ? "" : "!");
    json_decref(found);
    return text;
}

static void ranks_search_for_a_batch_size_together(void)
{
    static const char *const strategies[] = {"ddp", "zero1", "local_sgd"};
    for (int k = 0; k < 3; k++) {
        char trainer[80];
        snprintf(trainer, sizeof trainer, "\"devices\": 2, \"strategy\": \"%s\"",
                 strategies[k]);
        rig_t *rig = rig_new(.trainer = trainer);
        const rig_result_t *result = rig_tune(rig, &(pl_tuning_t){.batch_size = "power"});
        is_text(result->status, "ok", "%s: %s", strategies[k], result->error.text);
        is_text(sizes_of(result), "2 4 8 16 20", "up to all samples of a rank");
        const double quickest = rig_metric(result, "quickest_batch_size");
        ok(quickest >= 2 && quickest <= 20, "with the quickest of them: %g", quickest);
        rig_free(&rig);
    }
}

static void a_size_has_to_fit_on_all_ranks(void)
{
    if (!rig_has("cpu"))
        return;
    const pl_tuning_t power = {.batch_size = "binsearch",
                               .init_val = 256,
                               .steps_per_trial = 1,
                               .max_trials = 8,
                               .max_memory = 60 << 20};
    rig_t *rig = rig_new(.accelerator = "cpu", .samples = 40000,
                         .module = "{\"name\": \"mlp\", \"hidden\": [600, 600]}",
                         .trainer = "\"devices\": 2");
    const rig_result_t *result = rig_tune(rig, &power);
    is_text(result->status, "ok", "what does not fit fails nothing: %s",
            result->error.text);
    const char *failed = strchr(sizes_of(result), '!');
    ok(failed && failed[1] == ' ', "and smaller ones are tried: %s", sizes_of(result));
    rig_free(&rig);
}

static void a_search_is_stopped_on_all_ranks(void)
{
    const rig_result_t *result;
    rig_t *rig = rig_search_stopped("\"devices\": 2", &result);
    ok(rig_metric(result, "batch_size") >= 4, "with the known sizes: %s",
       sizes_of(result));
    rig_free(&rig);
}

static void a_prompt_is_refused_where_several_ranks_were_started(void)
{
    rig_t *rig = rig_new();
    const pl_prediction_t prompt = {.checkpoint = "x", .prompt = "y"};
    pl_error_t err = {0};
    setenv("PACELINE_RANK", "0", 1);
    setenv("PACELINE_WORLD_SIZE", "2", 1);
    is_int(pl_trainer_predict(rig_trainer(rig), &prompt, NULL, NULL, &err), PL_EINVAL,
           "writing on takes one");
    like(err.text, "has started 2 ranks.*start one process", "and says so: %s", err.text);
    unsetenv("PACELINE_RANK");
    unsetenv("PACELINE_WORLD_SIZE");
    rig_free(&rig);
}

/* ---- Resuming with other ranks ---- */

typedef struct world {
    int ranks, batch;
} world_t;

/* A run with checkpoints; or one that resumes from a checkpoint of another. */
static rig_result_t *run_of(world_t world, const char *from)
{
    char trainer[120], data[120];
    snprintf(trainer, sizeof trainer, "\"devices\": %d, \"max_epochs\": 2, " QUIET,
             world.ranks);
    snprintf(data, sizeof data,
             "{\"name\": \"memory\", \"source\": \"samples\", \"batch_size\": %d}",
             world.batch);
    rig_t *rig = rig_new(.accelerator = "cpu", .dataset = data, .trainer = trainer,
                         .callbacks = EVERY_STEP_KEPT);
    if (from && !rig_begin_again(rig, from))
        tap_diag("%s", rig_error.text);
    rig_result_t *result = rig_keep(from ? rig_wait(rig) : rig_fit(rig));
    is_text(result->status, "ok", "%d ranks, batches of %d%s: %s", world.ranks,
            world.batch, from ? ", on from a checkpoint" : "", result->error.text);
    rig_free(&rig);
    return result;
}

static void another_number_of_ranks_continues_at_the_same_samples(void)
{
    static const world_t alike[] = {{1, 12}, {3, 4}, {4, 3}};
    char from[600];
    if (!rig_has("cpu"))
        return;
    rig_samples("samples", 48);
    rig_result_t *whole = run_of((world_t){2, 6}, NULL);
    snprintf(from, sizeof from, "%s/checkpoints/epoch=1-step=6", whole->run_dir);
    for (int k = 0; k < 3; k++) {
        rig_result_t *rest = run_of(alike[k], from);
        is_int(rest->global_step, 8, "as many steps");
        ok(rig_distance(whole, rest) < 1e-5, "and weights as those of 2: %g",
           rig_distance(whole, rest));
        rig_result_free(rest);
    }
    rig_result_t *rest = run_of((world_t){1, 6}, from);
    is_int(rest->global_step, 6 + 4, "24 samples are left, 6 at once");
    rig_result_free(rest);
    rest = run_of((world_t){3, 6}, from);
    is_int(rest->global_step, 6 + 2, "30, 18 at once: whole steps alone are passed over");
    rig_result_free(rest);
    rig_result_free(whole);
}

/* ---- What moves the bytes ---- */

#define WITH(collective) \
    "\"devices\": 3, \"max_epochs\": 2, \"strategy\": {\"name\": \"ddp\", " \
    "\"collective\": \"" collective "\"}, " QUIET

static void shm_and_tcp_give_the_same_bits(void)
{
    if (!rig_has("cpu"))
        return;
    rig_result_t *shm = fit(.accelerator = "cpu", .trainer = WITH("shm"),
                            .data = "\"batch_size\": 4, \"val_split\": 0.2"),
                 *tcp = fit(.accelerator = "cpu", .trainer = WITH("tcp"),
                            .data = "\"batch_size\": 4, \"val_split\": 0.2");
    ok(rig_same_bits(shm, tcp), "the same weights");
    is_text(tcp->metrics, shm->metrics, "and metrics");
    rig_result_free(shm);
    rig_result_free(tcp);
}

/* Each parameter by itself, while backward continues; also where some have no samples. */
static void buckets_change_no_bit(void)
{
    static const char *const modules[] = {
        "{\"name\": \"mlp\", \"hidden\": [8, 8, 8], \"dropout\": 0.2}"};
    if (!rig_has("cpu"))
        return;
    rig_result_t *whole = fit(.accelerator = "cpu", .module = modules[0], .samples = 37,
                              .data = "\"batch_size\": 4",
                              .trainer = "\"devices\": 3, \"max_epochs\": 3, "
                                         "\"accumulate_grad_batches\": 2, " QUIET);
    rig_result_t *cut =
        fit(.accelerator = "cpu", .module = modules[0], .samples = 37, .stream = true,
            .data = "\"batch_size\": 4",
            .trainer = "\"devices\": 3, \"max_epochs\": 3, \"strategy\": {\"name\": "
                       "\"ddp\", \"bucket_mb\": 0.000001}, "
                       "\"accumulate_grad_batches\": 2, " QUIET);
    ok(rig_same_bits(whole, cut), "weights are the same");
    is_text(cut->metrics, whole->metrics, "and metrics");
    rig_result_free(whole);
    rig_result_free(cut);
    int reported = 0;
    size_t k;
    json_t *stream = rig_stream(), *message;
    json_array_foreach(stream, k, message)
        reported += json_integer_value(
                        json_object_get(json_object_get(message, "fields"), "buckets"))
                    > 0;
    json_decref(stream);
    ok(reported > 3, "buckets were reported before backward was over: %d", reported);
}

/* ---- while backward continues ---- */

enum { CONTROL, TENSORS };      /* registered buffers, in the order of their allocation */

/* Sums of gradients that ranks have begun. */
static int sums_begun;                                      /* atomic */
static bool began_in_time;                                  /* atomic, as that is */

static int counted_all_reduce(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    if (req->desc.memory == TENSORS)
        __atomic_add_fetch(&sums_begun, 1, __ATOMIC_RELAXED);
    return pl_shm_collective.all_reduce(self, req, err);
}

static void gate_pass(const pl_kernel_call_t *call, int64_t from, int64_t to)
{
    memcpy((float *)call->output + from, (const float *)call->input[0] + from,
           (size_t)(to - from) * sizeof(float));
}

/* Backward stays here until both ranks have begun to add up the first bucket: no rank
 * begins the second sum before all have begun the first. */
static void gate_wait(const pl_kernel_call_t *call, int64_t from, int64_t to)
{
    bool began = false;
    for (int looks = 0; looks < 10000 && !began; looks++) {
        began = __atomic_load_n(&sums_begun, __ATOMIC_RELAXED) >= 2;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (began)
        __atomic_store_n(&began_in_time, true, __ATOMIC_RELAXED);
    gate_pass(call, from, to);
}

static void gate_gradient(pl_graph_t *g, const pl_use_t *use, pl_node_t dy,
                          pl_node_t dx[])
{
    (void)use;
    dx[0] = pl_apply(g, "gate_back", &dy, 1, NULL);
}

static const pl_operator_ops_t gate = {
    .name = "gate",
    .inputs = 1,
    .gradient = gate_gradient,
    .kernels = (const pl_kernel_t[]){{"cpu", gate_pass}, PL_KERNELS_END}};

static const pl_operator_ops_t gate_back = {
    .name = "gate_back",
    .inputs = 1,
    .kernels = (const pl_kernel_t[]){{"cpu", gate_wait}, PL_KERNELS_END}};

static void gated_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_linear(g, "fc1", pl_input(g, "x"), 8);
    x = pl_linear(g, "fc2", pl_apply(g, "gate", &x, 1, NULL), 3);
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t gated = {.name = "gated", .size = 1, .step = gated_step};

static void a_bucket_travels_before_backward_is_over(void)
{
    if (!rig_has("cpu"))
        return;
    rig_result_free(fit(.accelerator = "cpu", .module = "\"gated\"",
                        .data = "\"batch_size\": 4",
                        .trainer = "\"devices\": 2, \"max_steps\": 1, \"strategy\": "
                                   "{\"name\": \"ddp\", \"bucket_mb\": 0.000001, "
                                   "\"collective\": \"counted\"}, " QUIET));
    ok(began_in_time, "the last layer's gradients are added up before the first's are "
                      "there");
}

/* ---- Slow ranks ---- */

/* The samples of rank 1 of 2 lie on a slow disk. */
static int read_slowly(void *user, const pl_read_request_t *request, void *const field[],
                       pl_error_t *err)
{
    for (int k = 0; k < request->count; k++)
        if (request->index[k] % 2)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return pl_arrays_read(user, request, field, err);
}

static bool has_cpu(void)
{
    return pl_component_find("accelerator", "cpu", NULL) != NULL;
}

static double max_of(const json_t *ranks, const char *what)
{
    return json_number_value(json_object_get(json_object_get(ranks, what), "max"));
}

static int slowest;

static void stop_at_report(rig_t *rig, const pl_progress_t *progress)
{
    json_t *metrics = json_loads(progress->metrics, JSON_DECODE_ANY, NULL);
    const json_t *ranks = json_object_get(metrics, "ranks"),
                 *data = json_object_get(ranks, "data");
    const bool is_reported = json_integer_value(json_object_get(ranks, "slowest")) == 1;
    if (is_reported && slowest < 0) {            /* the other may get no processor once */
        slowest = 1;
        is_int(json_integer_value(json_object_get(data, "slowest")), 1,
               "its data are slow");
        ok(json_number_value(json_object_get(ranks, "spread")) > 0.2, "by a fifth");
        ok(!has_cpu() || (max_of(ranks, "forward") > 0 && max_of(ranks, "backward") > 0),
           "forward and backward have separate times");
        pl_trainer_stop(rig_trainer(rig), "it is known", NULL);
    }
    json_decref(metrics);
}

static void a_slow_rank_is_named_in_the_progress(void)
{
    static float x[4096][6];
    static int64_t y[4096];
    static pl_arrays_t arrays = {.samples = 4096,
                                 .field_count = 2,
                                 .field = {{"x", PL_F32, {1, {6}}},
                                           {"y", PL_I64, {0, {0}}}},
                                 .data = {x, y}};
    const pl_memory_data_t data = {.samples = 4096,
                                   .field_count = 2,
                                   .field = {arrays.field[0], arrays.field[1]},
                                   .data_info = "{\"classes\": 3}",
                                   .read = read_slowly,
                                   .user = &arrays};
    pl_error_t err;
    ok(pl_memory_data("slow", &data, &err) == PL_OK, "there is a slow disk");
    slowest = -1;
    rig_t *rig = rig_new(.accelerator = has_cpu() ? "cpu" : NULL,
                         .dataset = "{\"name\": \"memory\", \"source\": \"slow\", "
                                    "\"batch_size\": 4, \"shuffle\": false}",
                         .trainer = "\"devices\": 2, \"max_epochs\": -1, " QUIET,
                         .on_progress = stop_at_report);
    is_text(rig_fit(rig)->status, "stopped", "the run reports it");
    is_int(slowest, 1, "which rank is slow");
    rig_free(&rig);
}

/* ---- Each sample once ---- */

static void metrics_count_each_sample_once(void)
{
    static const char *const names[] = {"val_loss", "val_acc"};
    static const int samples[] = {41, 17, 7};
    for (int k = 0; k < 3; k++) {
        rig_result_t *one = fit(.samples = samples[k],
                                .data = "\"batch_size\": 6, \"val_split\": 0.4",
                                .trainer = "\"max_epochs\": 2, " QUIET);
        for (int ranks = 2; ranks <= 3; ranks++) {
            char trainer[120], data[80];
            snprintf(trainer, sizeof trainer,
                     "\"devices\": %d, \"max_epochs\": 2, " QUIET, ranks);
            snprintf(data, sizeof data, "\"batch_size\": %d, \"val_split\": 0.4",
                     6 / ranks);
            rig_result_t *many = fit(.samples = samples[k], .data = data,
                                     .trainer = trainer);
            for (int i = 0; i < 2; i++)
                is_near(rig_metric(many, names[i]), rig_metric(one, names[i]), 1e-5,
                        "%d samples, %d ranks: %s", samples[k], ranks, names[i]);
            rig_t *rig = rig_new(.samples = samples[k], .data = data, .trainer = trainer),
                  *alone = rig_new(.samples = samples[k], .data = "\"batch_size\": 5");
            const double desc = rig_metric(rig_test(alone, one->run_dir), "test_loss");
            is_near(rig_metric(rig_test(rig, one->run_dir), "test_loss"), desc, 1e-5,
                    "and test_loss");
            rig_free(&rig);
            rig_free(&alone);
            rig_result_free(many);
        }
        rig_result_free(one);
    }
}

/* 41 samples: one is left out of each epoch. */
static void samples_of_an_incomplete_round_may_be_left_out(void)
{
    rig_result_t *all = fit(.samples = 41, .data = "\"batch_size\": 4",
                            .trainer = "\"devices\": 2, \"max_epochs\": 2, " QUIET),
                 *even = fit(.samples = 41, .data = "\"batch_size\": 4",
                             .trainer = "\"devices\": 2, \"max_epochs\": 2, "
                                        "\"strategy\": {\"name\": \"ddp\", "
                                        "\"drop_last\": true}, " QUIET);
    is_int(all->global_step, 12, "six steps an epoch, the last of one sample");
    is_int(even->global_step, 10, "or five");
    rig_result_free(all);
    rig_result_free(even);
}

/* Twice as many gradients, all of them twice, and twice as many to divide by. */
static void an_empty_epoch_is_refused(void)
{
    rig_t *rig = rig_new(.samples = 3,
                         .trainer = "\"devices\": 4, \"max_epochs\": 1, \"strategy\": "
                                    "{\"name\": \"ddp\", \"drop_last\": true}, " QUIET);
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_EINVAL", "all samples were left out");
    like(result->error.text, "no batch: .*drop_last", "it says why: %s",
         result->error.text);
    rig_free(&rig);
}

static void each_rank_may_read_all_samples_of_its_own_data_set(void)
{
    const char *own = "\"devices\": 2, \"max_epochs\": 2, \"strategy\": {\"name\": "
                      "\"ddp\", \"replace_sampler\": false}, " QUIET;
    rig_result_t *one = fit(.data = "\"batch_size\": 4, \"val_split\": 0.2",
                            .trainer = "\"max_epochs\": 2, " QUIET),
                 *two = fit(.data = "\"batch_size\": 4, \"val_split\": 0.2",
                            .trainer = own);
    is_int(two->global_step, one->global_step, "an epoch has all batches of the data");
    ok(rig_distance(one, two) < 1e-6, "of which both see the same: %g",
       rig_distance(one, two));
    is_near(rig_metric(two, "val_loss"), rig_metric(one, "val_loss"), 1e-6,
            "and so in validation");
    rig_t *rig = rig_new(.trainer = own);
    const rig_result_t *predicted = rig_predict(rig, one->run_dir);
    is_int(predicted->output_count ? predicted->output[0].shape.dim[0] : 0, 40,
           "a prediction has each sample once");
    rig_free(&rig);
    rig_result_free(one);
    rig_result_free(two);
}

/* ---- Data that are not the same ---- */

/* As on machines with other files: the second rank that opens it finds less. */
static int opened;

static int uneven_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                       pl_error_t *err)
{
    (void)self, (void)request, (void)err;
    const int before = __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED);
    *info = (pl_data_info_t){.samples = before ? 20 : 24,
                             .field_count = 2,
                             .field = {{"x", PL_F32, pl_shape(1, RIG_FEATURES)},
                                       {"y", PL_I64, pl_shape(0)}},
                             .data_info = pl_text("{\"classes\": %d}", RIG_CLASSES)};
    return info->data_info ? PL_OK : PL_ENOMEM;
}

static int uneven_read(const void *self, const pl_read_request_t *request,
                       void *const field[], pl_error_t *err)
{
    (void)self, (void)err;
    for (int i = 0; i < request->count; i++)
        rig_sample(request->index[i], (float *)field[0] + i * RIG_FEATURES,
                   (int64_t *)field[1] + i);
    return PL_OK;
}

static const pl_dataset_ops_t uneven = {.name = "uneven",
                                        .size = 1,
                                        .open = uneven_open,
                                        .read = uneven_read};

static void ranks_with_other_data_are_an_error(void)
{
    rig_t *rig = rig_new(.dataset = "{\"name\": \"uneven\", \"batch_size\": 4}",
                         .trainer = "\"devices\": 2, " QUIET);
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_EINVAL", "%s", result->error.text);
    like(result->error.text,
         "rank 1 found other data than rank 0: train data of 2[04] samples with x "
         "float32 \\[6\\], y int64 .*; rank 0: train data of 2[04] samples",
         "it says in what");
    like(result->error.where, "rank 1", "and names the rank");
    rig_free(&rig);
}

static void options_without_a_meaning_here_are_refused(void)
{
    static const struct {
        const char *option, *says;
    } others[] = {{"find_unused", "unused parameters are 0"},
                  {"static_graph", "always static"},
                  {"bucket_cap_mb", "use \"bucket_mb\""},
                  {"use_distributed_sampler", "replace_sampler"}};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        char trainer[160];
        snprintf(trainer, sizeof trainer,
                 "\"devices\": 2, \"strategy\": {\"name\": \"ddp\", \"%s\": true}",
                 others[k].option);
        rig_t *rig = rig_new(.trainer = trainer);
        ok(!rig || !rig_begin(rig), "%s is refused", others[k].option);
        like(rig_error.text, others[k].says, "with what there is: %s", rig_error.text);
        rig_free(&rig);
    }
}

int main(void)
{
    static pl_collective_ops_t counted;
    static const pl_registration_t components[] = {
        {"collective", &counted}, {"dataset", &uneven}, {"operator", &gate},
        {"operator", &gate_back}, {"module", &gated},   {"dataset", &uneven},
        PL_REGISTRATIONS_END};
    counted = pl_shm_collective;
    counted.name = "counted";
    counted.all_reduce = counted_all_reduce;
    rig_init(components);
    run(ranks_with_other_data_are_an_error);
    run(a_rollback_is_done_by_all_ranks);
    run(rollbacks_have_a_limit);
    run(an_anomaly_of_one_rank_ends_all);
    run(reopened_data_gives_the_same_bits);
    run(ranks_find_the_rate_that_one_finds);
    run(ranks_search_for_a_batch_size_together);
    run(a_size_has_to_fit_on_all_ranks);
    run(a_search_is_stopped_on_all_ranks);
    run(a_prompt_is_refused_where_several_ranks_were_started);
    run(another_number_of_ranks_continues_at_the_same_samples);
    run(shm_and_tcp_give_the_same_bits);
    run(buckets_change_no_bit);
    run(a_bucket_travels_before_backward_is_over);
    run(a_slow_rank_is_named_in_the_progress);
    run(metrics_count_each_sample_once);
    run(samples_of_an_incomplete_round_may_be_left_out);
    run(an_empty_epoch_is_refused);
    run(each_rank_may_read_all_samples_of_its_own_data_set);
    run(options_without_a_meaning_here_are_refused);
    return tap_done();
}
