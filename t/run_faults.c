/* run_faults.c - tests of runs that fail: reports, files that stay, and runs that
 * continue */
#include <event2/event.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/api/host.h"
#include "actors/connectors/datasets/datasets.h"
#include "base/clock.h"
#include "fake.h"
#include "rig.h"
#include "runtime/actor.h"
#include "tap.h"

static const char *const devices[] = {"fake", "cpu"};
#define DEVICES 2

/* ---- Parts that go wrong ---- */

typedef struct trouble {
    int64_t at;                                             /* a step */
    const char *what;
} trouble_t;

static const pl_option_t trouble_options[] = {
    PL_INT(trouble_t, at, "2", "0..", "the step"),
    PL_TEXT(trouble_t, what, "\"none\"",
            "none|stop|fail|mute|halve|silly|start|block|wreck|vanish", "which"),
    PL_OPTIONS_END,
};

/* A data set of which nothing ever comes, as a file on a server that is gone. */
static int shut_opens;                                      /* atomic: it does now */

static int shut_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                     pl_error_t *err)
{
    (void)self, (void)request, (void)info, (void)err;
    __atomic_store_n(&shut_opens, 1, __ATOMIC_RELAXED);
    while (true)
        pause();
    return PL_OK;
}

static int shut_read(const void *self, const pl_read_request_t *request,
                     void *const field[], pl_error_t *err)
{
    (void)self, (void)request, (void)field;
    return pl_fail(err, PL_EIO, "it is shut");
}

static const pl_dataset_ops_t shut = {.name = "shut",
                                      .open = shut_open,
                                      .read = shut_read};

/* One that opens in steps, which together take longer than the limits below. */
static int slow_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                     pl_error_t *err)
{
    (void)self, (void)request, (void)info;
    const int64_t end = pl_now() + 900 * PL_MILLISECOND;
    while (pl_now() < end) {
        poll(NULL, 0, 60);
        pl_dataset_progress();
    }
    return pl_fail(err, PL_EIO, "it has come to its end");
}

static const pl_dataset_ops_t slow = {.name = "slow",
                                      .open = slow_open,
                                      .read = shut_read};

static int trouble_start(void *self, pl_error_t *err)
{
    const trouble_t *t = self;
    return strcmp(t->what, "start") ? PL_OK
                                    : pl_fail(err, PL_EIO, "no bed to get out of");
}

/* Puts folders where the weights of the run "wrecked" belong. */
static void wreck(void)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/runs/wrecked/model.safetensors", tap_folder());
    mkdir(path, 0777);
    strcat(path, "/folder");
    mkdir(path, 0777);
}

/* Removes the directory of the run "removed". */
static void vanish(void)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/runs/removed/run.json", tap_folder());
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

static int trouble_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *err)
{
    const trouble_t *t = self;
    (void)point;
    if (event->global_step != (uint64_t)t->at)
        return PL_OK;
    if (!strcmp(t->what, "fail"))
        return pl_fail(err, PL_EIO, "the glass is empty");
    if (!strcmp(t->what, "mute"))
        return -1;
    while (!strcmp(t->what, "block"))
        pause();
    if (!strcmp(t->what, "wreck"))
        wreck();
    if (!strcmp(t->what, "vanish"))
        vanish();
    request->stop = !strcmp(t->what, "stop");
    if (!strcmp(t->what, "halve"))
        request->lr_factor = 0.5;
    if (!strcmp(t->what, "silly"))
        request->lr_factor = NAN;
    return PL_OK;
}

static const pl_callback_ops_t trouble = {.name = "trouble",
                                          .size = sizeof(trouble_t),
                                          .options = trouble_options,
                                          .points = PL_AT(TRAIN_BATCH_END),
                                          .start = trouble_start,
                                          .on = trouble_on};

#define LATE_TROUBLE(hook, point) \
    static const pl_callback_ops_t hook = {.name = #hook, \
                                           .size = sizeof(trouble_t), \
                                           .options = trouble_options, \
                                           .points = PL_AT(point), \
                                           .on = trouble_on}

LATE_TROUBLE(at_fit_end, FIT_END);
LATE_TROUBLE(at_epoch_end, TRAIN_EPOCH_END);
LATE_TROUBLE(at_validation_end, VALIDATION_END);

static void bad_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_graph_fail(g, PL_EINVAL, "7 heads do not share 10 channels");
}

static void odd_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_linear(g, "fc", pl_input(g, "x"), 4);
    pl_add(g, x, pl_linear(g, "fc2", pl_input(g, "x"), 5));
}

static void lossless_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_output(g, "y", pl_linear(g, "fc", pl_input(g, "x"), 4));
}

static const pl_module_ops_t bad = {.name = "bad", .size = 1, .step = bad_step};
static const pl_module_ops_t odd = {.name = "odd", .size = 1, .step = odd_step};
static const pl_module_ops_t lossless = {.name = "lossless",
                                         .size = 1,
                                         .step = lossless_step};

static const pl_actor_ops_t crowd = {.name = "crowd",
                                     .size = 1,
                                     .role = "strategy",
                                     .level = PL_LEVEL_STRATEGY};

/* ---- One run that fails, in an engine of its own ---- */

#define fails(code, pattern, ...) fails_with(code, pattern, &(rig_spec_t){__VA_ARGS__})

static void fails_with(int code, const char *pattern, const rig_spec_t *spec)
{
    rig_t *rig = rig_make(spec);
    if (!ok(rig != NULL, "it begins"))
        return;
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "the run fails");
    is_text(pl_code_name(result->error.code), pl_code_name(code), "with its code");
    like(result->error.text, pattern, "and says what");
    ok(!result->weight_count, "without weights");
    is_int(rig_done(rig), 1, "one on_done");
    rig_free(&rig);
}

#define refused(code, pattern, ...) \
    refused_with(code, pattern, &(rig_spec_t){__VA_ARGS__})

static void refused_with(int code, const char *pattern, const rig_spec_t *spec)
{
    rig_t *rig = rig_make(spec);
    ok(!rig, "no trainer is made");
    is_text(pl_code_name(rig_error.code), pl_code_name(code), "with its code");
    like(rig_error.text, pattern, "and what is wrong");
    rig_free(&rig);
}

/* ---- Callbacks ---- */

#define CALLBACK(what, at) \
    "[{\"name\": \"trouble\", \"what\": \"" what "\", \"at\": " at "}]"

static void a_callback_stops_the_run(void)
{
    rig_t *rig = rig_new(.callbacks = CALLBACK("stop", "7"), .trainer = "\"depth\": 5",
                         .data = "\"batch_size\": 8");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "stopped", "it stops");
    is_int(result->global_step, 7, "after exactly that step");
    ok(rig_has_file(result, "model.safetensors"), "with its weights saved");
    rig_free(&rig);
}

static void a_callback_that_fails_ends_the_run(void)
{
    fails(PL_EUSER, "trouble.*on_train_batch_end.*the glass is empty",
          .callbacks = CALLBACK("fail", "3"));
    fails(PL_EUSER, "trouble.*failed without an error text",
          .callbacks = CALLBACK("mute", "3"));
    fails(PL_EUSER, "trouble.*in start.*no bed", .callbacks = CALLBACK("start", "0"));
    fails(PL_EUSER, "learning-rate factor .*nan", .callbacks = CALLBACK("silly", "3"));
}

static void a_failure_after_the_last_step_costs_no_weights(void)
{
    static const char *const late[] = {
        "[{\"name\": \"at_fit_end\", \"what\": \"fail\", \"at\": 8}]",
        "[{\"name\": \"at_fit_end\", \"what\": \"silly\", \"at\": 8}]",
        "[{\"name\": \"at_epoch_end\", \"what\": \"fail\", \"at\": 8}]",
        "[{\"name\": \"at_validation_end\", \"what\": \"mute\", \"at\": 8}]",
        "[]",
    };
    for (int k = 0; k < 5; k++) {
        rig_t *rig = rig_new(.callbacks = late[k], .trainer = "\"max_epochs\": 2",
                             .data = "\"batch_size\": 8, \"val_split\": 0.2",
                             .script = k < 4 ? "" : "replay 2 of forward fails");
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "the run fails");
        like(result->error.text, k < 4 ? "callback \"at_" : "failed in forward",
             "and says why");
        is_int(result->global_step, 8, "all steps were made");
        is_int(result->weight_count, 4, "their weights are handed over");
        ok(rig_has_file(result, "model.safetensors"), "and saved");
        rig_free(&rig);
    }
}

static void a_callback_changes_the_learning_rate(void)
{
    rig_t *rig = rig_new(.callbacks = CALLBACK("halve", "3"), .data = "\"batch_size\": 8",
                         .trainer = "\"max_steps\": 6, \"log_every_n_steps\": 1");
    rig_series_t lr = rig_series(rig_fit(rig), "lr-sgd");
    is_near(lr.value[2], 0.1, 1e-9, "the step it is asked after has the old one");
    is_near(lr.value[3], 0.05, 1e-9, "the next the new one");
    is_near(lr.value[5], 0.05, 1e-9, "and it stays");
    rig_free(&rig);
}

/* ---- Modules and options ---- */

static void a_module_that_fails_is_reported(void)
{
    fails(PL_EINVAL, "module bad.*7 heads", .module = "\"bad\"");
    fails(PL_EINVAL, "module odd.*add", .module = "\"odd\"");
    fails(PL_EINVAL, "loss", .module = "\"lossless\"");
}

static void wrong_runs_are_refused_before_anything_starts(void)
{
    refused(PL_ENOTFOUND, "\"mpl\".*\"mlp\"", .module = "\"mpl\"");
    refused(PL_EINVAL, "hiden", .module = "{\"name\": \"mlp\", \"hiden\": [3]}");
    refused(PL_EINVAL, "dropout", .module = "{\"name\": \"mlp\", \"dropout\": 2}");
    refused(PL_EINVAL, "max_epoch", .trainer = "\"max_epoch\": 3");
    refused(PL_EINVAL, "depth", .trainer = "\"depth\": -1");
    refused(PL_EINVAL, "data.workers", .data = "\"workers\": 1000");
}

#define unbegun(code, pattern, ...) \
    unbegun_with(code, pattern, &(rig_spec_t){__VA_ARGS__})

static void unbegun_with(int code, const char *pattern, const rig_spec_t *spec)
{
    rig_t *rig = rig_make(spec);
    ok(!rig_begin(rig), "no run begins");
    is_text(pl_code_name(rig_error.code), pl_code_name(code), "with its code");
    like(rig_error.text, pattern, "and what would work");
    is_int(rig_done(rig), 0, "no on_done");
    rig_free(&rig);
}

static void contradictions_are_refused_before_anything_starts(void)
{
    unbegun(PL_EINVAL,
            "rig:1:.*trainer.devices\" is 2, but strategy \"single\" .* 1.*ddp",
            .trainer = "\"devices\": 2, \"strategy\": \"single\"");
    unbegun(PL_EINVAL,
            "rig:1:.*the number of ranks is 2, but strategy \"single\" .* 1.*ddp",
            .trainer = "\"devices\": [0, 2], \"strategy\": \"single\"");
    unbegun(PL_EINVAL, "launcher \"inline\" works with at most 256",
            .trainer = "\"devices\": 257, \"strategy\": \"crowd\"");
    unbegun(PL_ENOTFOUND, "set \"module\"", .module = "null");
    unbegun(PL_ENOTFOUND, "set \"optimizer\"", .optimizer = "null");
    unbegun(PL_ENOTFOUND, "set \"data\"", .dataset = "null");
    unbegun(PL_ENOTFOUND, "set \"data.train\"",
            .dataset = "{\"test\": {\"name\": \"memory\", \"source\": \"x\"}}");
}

static void each_rank_opens_the_device_of_its_entry(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1, \"devices\": [3, 1]");
    rig_result_t *result = rig_keep(rig_fit(rig));
    is_text(result->status, "ok", "a list of two numbers trains: %s", result->error.text);
    is_int(fake_device(0), 3, "rank 0 opens device 3");
    is_int(fake_device(1), 1, "rank 1 opens device 1");
    rig_result_free(result);
    rig_free(&rig);
    rig = rig_new(.trainer = "\"max_epochs\": 1, \"devices\": 2");
    result = rig_keep(rig_fit(rig));
    is_text(result->status, "ok", "a count trains: %s", result->error.text);
    is_int(fake_device(1), -1, "and names no device");
    rig_result_free(result);
    rig_free(&rig);
}

static void more_ranks_than_can_join_are_refused_before_anything_starts(void)
{
    setenv("PACELINE_RANK", "0", 1);
    setenv("PACELINE_WORLD_SIZE", "1025", 1);
    unbegun(PL_EINVAL, "1025 ranks: at most 1024");
    unsetenv("PACELINE_RANK");
    unsetenv("PACELINE_WORLD_SIZE");
}

static void a_prediction_needs_data_or_a_prompt(void)
{
    rig_t *rig = rig_new(.dataset = "null", .optimizer = "null");
    ok(!rig_begin_prediction(rig, &(pl_prediction_t){.checkpoint = "x"}), "neither");
    like(rig_error.text, "set \"data\"", "is refused");
    ok(rig_begin_prediction(rig, &(pl_prediction_t){.checkpoint = "x", .prompt = "y"}),
       "a prompt alone is enough");
    rig_wait(rig);
    rig_free(&rig);
}

/* ---- Data ---- */

static void a_record_that_cannot_be_read_is_named(void)
{
    fails(PL_EUSER, "record 16.*rig.*it is torn", .torn = 17);
    fails(PL_EUSER, "record 16.*it is torn", .torn = 17,
          .data = "\"workers\": 2, \"val_split\": 0.5, \"batch_size\": 3");
}

static void a_label_out_of_range_is_placed(void)
{
    rig_t *rig = rig_has("cpu")
                     ? rig_new(.accelerator = "cpu", .data = "\"batch_size\": 8",
                               .module = "{\"name\": \"mlp\", \"classes\": 2}")
                     : NULL;
    if (!rig)
        return;
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_EINVAL, "two classes, and data of three");
    like(result->error.text,
         "^epoch 1, batch 1: cross_entropy got index 2, outside \\[0, 2\\)"
         ".*labels.*module.classes",
         "where, what, and what to look at");
    rig_free(&rig);
}

static void a_place_that_cannot_be_written_is_named(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 1, \"run_name\": \"twice\"");
    is_text(rig_fit(rig)->status, "ok", "a run with a name");
    ok(!rig_begin(rig), "may not take the place of another");
    is_int(rig_error.code, PL_EEXIST, "which is there");
    like(rig_error.text, "runs/twice", "and named");
    rig_free(&rig);
    refused(PL_EINVAL, "rig:1:[0-9]*: .*run_name.*a/b",
            .trainer = "\"run_name\": \"a/b\"");
    refused(PL_EINVAL, "latest", .trainer = "\"run_name\": \"latest\"");
    refused(PL_EINVAL, "\\.hidden", .trainer = "\"run_name\": \".hidden\"");
}

static void weights_that_cannot_be_saved_are_still_reported(void)
{
    rig_t *rig = rig_new(.callbacks = CALLBACK("wreck", "3"),
                         .trainer = "\"max_steps\": 5, \"run_name\": \"wrecked\"");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "the run fails");
    is_int(result->error.code, PL_EIO, "at its file");
    like(result->error.text, "wrecked/model.safetensors", "which is named");
    is_int(result->global_step, 5, "all steps were made");
    is_int(result->weight_count, 4, "and the weights are handed over");
    rig_free(&rig);
}

static void a_directory_that_is_removed_is_made_again_for_the_weights(void)
{
    rig_t *rig = rig_new(.callbacks = CALLBACK("vanish", "3"),
                         .trainer = "\"max_steps\": 5, \"run_name\": \"removed\"");
    const rig_result_t *result = rig_fit(rig);
    ok(!rig_has_file(result, "run.json"), "it was removed");
    is_text(result->status, "ok", "the run continues and ends well");
    ok(rig_has_file(result, "model.safetensors"), "with its weights");
    rig_free(&rig);
}

/* ---- What is not finite ---- */

static void not_finite(int depth, const char *pattern, rig_spec_t spec)
{
    char trainer[128];
    snprintf(trainer, sizeof trainer, "\"depth\": %d, \"max_epochs\": 3%s%s", depth,
             spec.trainer ? ", " : "", spec.trainer ? spec.trainer : "");
    spec.trainer = trainer;
    rig_t *rig = rig_make(&spec);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "the run fails");
    is_int(result->error.code, PL_ENAN, "as not finite");
    like(result->error.text, pattern, "step, loss or gradient, and tensor are named");
    ok(!result->weight_count, "has no weights");
    ok(!rig_has_file(result, "model.safetensors"), "nothing is saved as good");
    rig_free(&rig);
}

static void a_loss_that_is_not_finite_stops_the_run(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++)
        for (int depth = 1; depth <= 5; depth += 4) {
            not_finite(depth, "step 2: the loss is not finite.*fc1.weight",
                       (rig_spec_t){.accelerator = devices[k],
                                    .nan = 10,
                                    .data = "\"batch_size\": 8, \"shuffle\": false"});
            not_finite(depth, "step 1: the loss is not finite.*fc1.weight",
                       (rig_spec_t){.accelerator = devices[k],
                                    .nan = 10,
                                    .data = "\"batch_size\": 8, \"shuffle\": false",
                                    .trainer = "\"accumulate_grad_batches\": 4"});
        }
}

static void a_gradient_that_is_not_finite_stops_the_run(void)
{
    for (int depth = 1; depth <= 5; depth += 4) {
        not_finite(
            depth, "step 4: the gradient is not finite.*\"fc2.weight\"",
            (rig_spec_t){.data = "\"batch_size\": 8",
                         .script = "step 4 of forward_backward gives nan in fc2.weight"});
        not_finite(depth, "step 3: the loss is not finite",
                   (rig_spec_t){.data = "\"batch_size\": 8",
                                .script =
                                    "step 3 of forward_backward gives nan in loss"});
    }
}

static char warnings[4096];

/* Ranks log on their threads, and only one is there. */
static void on_warning(pl_log_level_t level, int rank, const char *actor,
                       const char *text, void *user)
{
    (void)level, (void)rank, (void)user;
    size_t used = strlen(warnings);
    snprintf(warnings + used, sizeof warnings - used, "%s: %s\n", actor, text);
}

static void a_metric_that_is_not_finite_is_null(void)
{
    int nulls = 0;
    warnings[0] = '\0';
    pl_log_hook(on_warning, PL_LOG_WARNING, NULL);
    for (int record = 1; record <= 6; record++) {           /* some are held out */
        rig_t *rig = rig_new(.data = "\"val_split\": 0.5", .nan = record,
                             .trainer = "\"max_steps\": 1, \"limit_train_batches\": 1");
        const rig_result_t *result = rig_fit(rig);
        nulls += !strcmp(result->status, "ok")
                 && strstr(result->metrics, "\"val_loss\":null");
        rig_free(&rig);
    }
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
    ok(nulls > 0, "%d of 6 runs validate with a NaN: the metric is null", nulls);
    like(warnings, "val_loss is not finite after step 1", "and a warning names it");
}

static void poison_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_param(g, "poison", pl_shape(1, 2), pl_constant(NAN));
    pl_node_t x = pl_linear(g, "fc", pl_input(g, "x"), 3);
    pl_output(g, "y", x);
    if (stage != PL_PREDICT)
        pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

static const pl_module_ops_t poison = {.name = "poison", .size = 1, .step = poison_step};

static void weights_that_are_not_finite_are_warned_of(void)
{
    rig_t *rig = rig_new(.module = "\"poison\"", .trainer = "\"max_steps\": 1");
    char *run = strdup(rig_fit(rig)->run_dir);
    warnings[0] = '\0';
    pl_log_hook(on_warning, PL_LOG_WARNING, NULL);
    is_text(rig_predict(rig, run)->status, "ok", "they are predicted with");
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
    like(warnings, "tensor \"poison\" has values that are not finite",
         "and a warning names one");
    free(run);
    rig_free(&rig);
}

/* ---- A device that fails ---- */

static void an_error_of_the_device_is_reported(void)
{
    fails(PL_EIO, "open 1: the device failed", .script = "open fails");
    fails(PL_EINVAL, "no rule", .script = "open sesame");
    fails(PL_ENOMEM, "region 1: out of device memory", .script = "region 1 fails");
    fails(PL_EIO, "plan train.*compile 1", .script = "compile 1 fails");
    fails(PL_EIO, "plan optimizer.*compile 3: the device failed",
          .script = "compile 3 fails");
    fails(PL_EIO, "write 1", .script = "write 1 fails");
    fails(PL_EIO, "read 1", .script = "read 1 fails",
          .trainer = "\"max_steps\": 2, \"enable_checkpointing\": false");
    fails(PL_EIO, "takes no replay of forward_backward",
          .script = "replay 3 of forward_backward is refused");
    fails(PL_EIO, "failed in forward_backward",
          .script = "replay 3 of forward_backward fails");
    fails(PL_EIO, "failed in optimizer_step",
          .script = "replay 3 of optimizer_step fails");
    fails(PL_EIO, "takes no replay of optimizer_step",
          .script = "replay 3 of optimizer_step is refused");
    fails(PL_EIO, "failed in forward$", .script = "replay 2 of forward fails",
          .data = "\"val_split\": 0.5, \"batch_size\": 4");
}

static void an_engine_trains_again_after_a_failed_run(void)
{
    rig_t *rig = rig_new(.script = "replay 3 of forward_backward fails");
    rig_t *other = rig_new(.trainer = "\"max_steps\": 3", .beside = rig);
    is_text(rig_fit(rig)->status, "failed", "one run fails");
    is_text(rig_fit(rig)->status, "failed", "and again");
    is_text(rig_fit(other)->status, "ok", "another goes well");
    rig_free(&other);
    rig_free(&rig);
}

static void came_to(int step, const rig_spec_t *spec)
{
    rig_t *rig = rig_make(spec);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "it fails");
    is_int(result->global_step, step, "after this step");
    is_int(result->epoch, step / 5, "in this epoch");
    ok(rig_has_file(result, "run.json"), "the result has its folder");
    ok(rig_metric(result, "train_loss") > 0 && rig_metric(result, "grad_norm") > 0,
       "the newest metrics");
    ok(result->seconds > 0, "and how long it took");
    rig_free(&rig);
}

#define EIGHT "\"batch_size\": 8"                           /* 5 steps an epoch */

static void a_failed_run_reports_its_last_step(void)
{
    static const char *const scripts[] = {"replay 8 of forward_backward fails",
                                          "step 8 of forward_backward gives nan in loss",
                                          "replay 8 of forward_backward hangs"};
    for (int k = 0; k < 3; k++)
        came_to(7, &(rig_spec_t){.script = scripts[k],
                                 .data = EIGHT,
                                 .trainer = "\"step_timeout\": 0.3, \"depth\": 1"});
    came_to(8, &(rig_spec_t){.callbacks = CALLBACK("fail", "8"), .data = EIGHT});
    rig_t *rig = rig_new(.callbacks = CALLBACK("block", "8"), .data = EIGHT,
                         .trainer = "\"step_timeout\": 0.3");
    const rig_result_t *result = rig_fit(rig);
    ok(rig_has_file(result, "run.json") && result->global_step >= 5,
       "the last report of a stuck rank is known");
    rig_free(&rig);
    rig = rig_new(.script = "compile 1 fails");
    is_text(rig_fit(rig)->run_dir, "", "one that has not begun has no folder");
    rig_free(&rig);
}

/* ---- A device that hangs ---- */

static void stuck(const char *what, const char *script, const char *more,
                  const char *text)
{
    char trainer[128];
    snprintf(trainer, sizeof trainer, "\"step_timeout\": 0.3, \"max_epochs\": 2%s", more);
    rig_t *rig = rig_new(.script = script, .trainer = trainer,
                         .data = "\"val_split\": 0.5, \"batch_size\": 4");
    rig_t *other = rig_new(.trainer = "\"max_steps\": 3", .beside = rig);
    int64_t began = pl_now();
    const rig_result_t *result = rig_fit(rig);
    double took = (double)(pl_now() - began) / 1e9;
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "%s: the run is stuck", what);
    like(result->error.text, text, "the error names the call");
    like(result->error.text, "accelerator.fake does not end",
         "and the actor that does not end");
    ok(took < 20, "after %.1f s", took);
    result = rig_fit(other);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the engine takes no run");
    like(result->error.text, "new engine", "and says what to do");
    rig_free(&other);
    rig_free(&rig);
}

/* Each step takes three times the limit, and a launch a third of it. */
static void a_slow_device_is_not_stuck_while_launches_end(void)
{
    rig_t *rig = rig_new(.script = "replay of forward_backward takes 1200 ms",
                         .launches = 12,
                         .trainer = "\"step_timeout\": 0.4, \"max_steps\": 2");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "the run ends well: %s", result->error.text);
    rig_free(&rig);
    rig = rig_new(.script = "replay 2 of forward_backward hangs", .launches = 12,
                  .trainer = "\"step_timeout\": 0.4, \"max_steps\": 2, \"depth\": 1");
    result = rig_fit(rig);
    like(result->error.text,
         "has not ended for 0.4 s .trainer.step_timeout.: the device has computed "
         "[0-9]+ of [0-9]+ launches, and none in that time; raise the limit",
         "one whose launches do not end is: %s", result->error.text);
    rig_free(&rig);
}

/* Its only launch takes longer than the limit, but ends. */
static void a_slow_device_is_waited_for_at_the_end(void)
{
    rig_t *rig = rig_new(.script = "replay 1 of forward_backward takes 3800 ms",
                         .launches = 1,
                         .trainer = "\"step_timeout\": 2, \"max_steps\": 2, "
                                    "\"depth\": 1");
    rig_engine(rig)->runtime.grace_ms = 500;
    const rig_result_t *result = rig_fit(rig);
    like(result->error.text,
         "has computed 0 of [0-9]+ launches.*raise the limit for a slow device$",
         "the run fails, and nothing hangs: %s", result->error.text);
    rig_free(&rig);
}

static void a_device_that_hangs_is_noticed(void)
{
    stuck("training", "replay 3 of forward_backward hangs", "",
          "step 3, in epoch 1, has not ended for 0.3 s");
    stuck("training", "replay 5 of optimizer_step hangs", ", \"depth\": 4",
          "step 5, in epoch 1, has not ended");
    stuck("validation", "replay 2 of forward hangs", "", "batch 1 of the validation");
    stuck("set up", "compile 2 hangs", "", "compiling");
    stuck("the end", "read 1 hangs", ", \"enable_checkpointing\": false",
          "reading the weights after step 10");
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3");
    is_text(rig_fit(rig)->status, "ok", "a new engine works");
    rig_free(&rig);
}

static void a_prediction_that_hangs_is_noticed(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3");
    char *weights = strdup(rig_fit(rig)->run_dir);
    rig_free(&rig);
    rig = rig_new(.script = "replay 2 of forward hangs", .data = "\"batch_size\": 4",
                  .trainer = "\"step_timeout\": 0.3");
    const rig_result_t *result = rig_predict(rig, weights);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the prediction is stuck");
    like(result->error.text, "batch 1 of the prediction", "where");
    rig_free(&rig);
    free(weights);
}

static void a_device_that_is_known_to_hang_is_not_waited_for_again(void)
{
    static const char *const scripts[] = {"replay 3 of forward_backward hangs",
                                          "replay 2 of forward hangs", "compile 2 hangs"};
    for (int k = 0; k < 3; k++) {
        rig_t *rig = rig_new(.script = scripts[k], .trainer = "\"step_timeout\": 0.3",
                             .data = "\"val_split\": 0.5, \"batch_size\": 4");
        rig_engine(rig)->runtime.grace_ms = 10000;
        int64_t began = pl_now();
        const rig_result_t *result = rig_fit(rig);
        like(result->error.text, "accelerator.fake does not end", "%s: named",
             scripts[k]);
        ok(pl_now() - began < 10 * PL_SECOND, "long before 20 s of grace");
        began = pl_now();
        rig_free(&rig);
        ok(pl_now() - began < 10 * PL_SECOND,
           "and the engine's end does not wait either");
    }
}

static void a_device_that_comes_back_late_is_not_stuck(void)
{
    rig_t *rig = rig_new(.script = "replay 3 of forward_backward takes 700 ms",
                         .trainer = "\"max_steps\": 6, \"step_timeout\": 0.3");
    rig_engine(rig)->runtime.grace_ms = 60000;
    rig_t *other = rig_new(.trainer = "\"max_steps\": 3", .beside = rig);
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the step took too long");
    ok(!strstr(result->error.text, "does not end"), "but no actor is stuck");
    is_text(rig_fit(other)->status, "ok", "the engine continues");
    rig_free(&other);
    rig_free(&rig);
}

static void late_batches_of_a_validation_do_no_harm(void)
{
    rig_t *rig = rig_new(.script = "replay 3 of forward takes 700 ms",
                         .data = "\"val_split\": 0.5, \"batch_size\": 4",
                         .trainer = "\"max_steps\": 6, \"step_timeout\": 0.3");
    rig_engine(rig)->runtime.grace_ms = 60000;
    is_text(pl_code_name(rig_fit(rig)->error.code), "PL_ESTUCK", "too long");
    is_text(pl_code_name(rig_fit(rig)->error.code), "PL_ESTUCK", "and again: it ran");
    rig_free(&rig);
}

static void data_that_hang_are_noticed(void)
{
    rig_t *rig = rig_new(.hanging = 30, .data = "\"batch_size\": 4",
                         .trainer = "\"step_timeout\": 0.3");
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the run is stuck");
    like(result->error.text, "io.reader does not end", "a reader is");
    rig_free(&rig);
}

static void data_that_do_not_open_are_noticed(void)
{
    rig_t *rig = rig_new(.dataset = "{\"name\": \"shut\"}",
                         .trainer = "\"step_timeout\": 0.3");
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the run is stuck");
    like(result->error.text, "^opening the data has not ended for 0.3 s .*io.reader does",
         "as is said: %s", result->error.text);
    rig_free(&rig);
}

static void data_that_open_slowly_are_no_failure(void)
{
    rig_t *rig = rig_new(.dataset = "{\"name\": \"slow\"}",
                         .trainer = "\"step_timeout\": 0.3");
    const rig_result_t *result = rig_fit(rig);
    like(result->error.text, "it has come to its end", "it may open for three limits: %s",
         result->error.text);
    rig_free(&rig);
}

static void stop_when_it_opens(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    if (__atomic_exchange_n(&shut_opens, 0, __ATOMIC_RELAXED))
        pl_trainer_stop(rig_trainer(user), "enough", NULL);
}

static void a_stop_ends_the_wait_for_data_that_do_not_open(void)
{
    const struct timeval interval = {0, 10000};
    __atomic_store_n(&shut_opens, 0, __ATOMIC_RELAXED);
    rig_t *rig = rig_new(.dataset = "{\"name\": \"shut\"}");
    struct event *timer = event_new(rig_base(rig), -1, EV_PERSIST, stop_when_it_opens,
                                    rig);
    event_add(timer, &interval);
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ECANCELLED", "the run is over");
    like(result->error.text,
         "^stopped before the first step \\(enough\\), while opening the data: io.reader",
         "as is said: %s", result->error.text);
    event_free(timer);
    rig_free(&rig);
}

static void a_callback_that_blocks_is_noticed(void)
{
    rig_t *rig = rig_new(.callbacks = CALLBACK("block", "3"),
                         .trainer = "\"step_timeout\": 0.3");
    const rig_result_t *result = rig_fit(rig);
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the run is stuck");
    like(result->error.text, "rank 0 has given no sign of life", "its rank is");
    ok(!rig_begin(rig) || rig_wait(rig)->error.code == PL_ESTUCK, "no other run begins");
    rig_free(&rig);
}

static void a_stream_ends_with_an_engine_that_is_stuck(void)
{
    char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/stuck", tap_folder());
    rig_t *rig = rig_new(.script = "replay 3 of forward_backward hangs",
                         .trainer = "\"step_timeout\": 0.3");
    is_int(pl_engine_monitor(rig_engine(rig), endpoint, NULL), PL_OK, "a stream");
    is_text(pl_code_name(rig_fit(rig)->error.code), "PL_ESTUCK", "the run is stuck");
    ok(access(endpoint + 6, F_OK) == 0, "the stream is there");
    rig_free(&rig);
    ok(access(endpoint + 6, F_OK) != 0, "and ends with the engine");
}

static void count_closed(pl_engine_t *engine, void *user)
{
    (void)engine;
    ++*(int *)user;
}

static bool is_closed(rig_t *rig)
{
    return *(int *)rig_user(rig) > 0;
}

/* Begins a run, and comes back when its device hangs. */
static void begin_to_hang(rig_t *rig)
{
    int before = fake_hangs();
    rig_begin(rig);
    ok(fake_wait_hang(before), "the device hangs");
}

static void an_engine_that_is_stuck_can_be_closed(void)
{
    int closed = 0;
    rig_t *rig = rig_new(.script = "replay 3 of forward_backward hangs", .user = &closed);
    begin_to_hang(rig);
    int64_t began = pl_now();
    pl_engine_close(rig_engine(rig), count_closed, &closed);
    const rig_result_t *result = rig_wait(rig);
    is_text(result->status, "failed", "its run ends");
    like(pl_code_name(result->error.code), "PL_ECANCELLED|PL_ESTUCK", "with a reason");
    ok(rig_until(rig, is_closed), "and the engine closes");
    ok(pl_now() - began < 20 * PL_SECOND, "in bounded time");
    is_int(rig_done(rig), 1, "one on_done");
    rig_free(&rig);
}

static void an_engine_that_is_stuck_can_be_freed(void)
{
    static const char *const scripts[] = {"replay 3 of forward_backward hangs",
                                          "compile 1 hangs", "open hangs"};
    for (int k = 0; k < 3; k++) {
        rig_t *rig = rig_new(.script = scripts[k]);
        begin_to_hang(rig);
        int64_t began = pl_now();
        rig_free(&rig);
        ok(pl_now() - began < 20 * PL_SECOND, "%s: freed", scripts[k]);
    }
}

static void a_trainer_that_is_stuck_can_be_freed(void)
{
    rig_t *other = rig_new(.trainer = "\"max_steps\": 3");
    rig_t *rig = rig_new(.script = "replay 3 of forward_backward hangs", .beside = other);
    begin_to_hang(rig);
    rig_free(&rig);
    is_text(rig_fit(other)->status, "ok",
            "others run as long as no actor is known as stuck");
    rig_free(&other);
}

static void steps_may_be_slow(void)
{
    rig_t *rig = rig_new(.script = "replay of forward_backward takes 100 ms",
                         .trainer = "\"max_steps\": 12, \"step_timeout\": 1");
    is_text(rig_fit(rig)->status, "ok", "each is in time, all together take longer");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {{"callback", &trouble},
                                                   {"callback", &at_fit_end},
                                                   {"callback", &at_epoch_end},
                                                   {"callback", &at_validation_end},
                                                   {"dataset", &shut},
                                                   {"dataset", &slow},
                                                   {"module", &bad},
                                                   {"module", &poison},
                                                   {"strategy", &crowd},
                                                   {"module", &odd},
                                                   {"module", &lossless},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(a_callback_stops_the_run);
    run(a_callback_that_fails_ends_the_run);
    run(a_failure_after_the_last_step_costs_no_weights);
    run(a_callback_changes_the_learning_rate);
    run(a_module_that_fails_is_reported);
    run(wrong_runs_are_refused_before_anything_starts);
    run(contradictions_are_refused_before_anything_starts);
    run(each_rank_opens_the_device_of_its_entry);
    run(more_ranks_than_can_join_are_refused_before_anything_starts);
    run(a_prediction_needs_data_or_a_prompt);
    run(a_record_that_cannot_be_read_is_named);
    run(a_label_out_of_range_is_placed);
    run(a_place_that_cannot_be_written_is_named);
    run(weights_that_cannot_be_saved_are_still_reported);
    run(a_directory_that_is_removed_is_made_again_for_the_weights);
    run(a_loss_that_is_not_finite_stops_the_run);
    run(a_gradient_that_is_not_finite_stops_the_run);
    run(a_metric_that_is_not_finite_is_null);
    run(weights_that_are_not_finite_are_warned_of);
    run(an_error_of_the_device_is_reported);
    run(an_engine_trains_again_after_a_failed_run);
    run(a_failed_run_reports_its_last_step);
    run(a_device_that_is_known_to_hang_is_not_waited_for_again);
    run(a_device_that_comes_back_late_is_not_stuck);
    run(late_batches_of_a_validation_do_no_harm);
    run(steps_may_be_slow);
    run(a_slow_device_is_not_stuck_while_launches_end);
    run(a_slow_device_is_waited_for_at_the_end);
    run(a_device_that_hangs_is_noticed);
    run(a_prediction_that_hangs_is_noticed);
    run(data_that_hang_are_noticed);
    run(data_that_do_not_open_are_noticed);
    run(data_that_open_slowly_are_no_failure);
    run(a_stop_ends_the_wait_for_data_that_do_not_open);
    run(a_callback_that_blocks_is_noticed);
    run(a_stream_ends_with_an_engine_that_is_stuck);
    run(an_engine_that_is_stuck_can_be_closed);
    run(an_engine_that_is_stuck_can_be_freed);
    run(a_trainer_that_is_stuck_can_be_freed);
    return tap_done();
}
