/* run_measure.c - tests of evaluations as runs of their own: validate and test */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"
#include "tap.h"

#define SPLIT "\"batch_size\": 6, \"val_split\": 0.25"

typedef struct received {
    int tests, validations, others;
} received_t;

static void keep_events(rig_t *rig, const pl_progress_t *progress)
{
    received_t *received = rig_user(rig);
    bool test = !strcmp(progress->event, "test"),
         validate = !strcmp(progress->event, "validate");
    received->tests += test;
    received->validations += validate;
    received->others += !test && !validate;
}

static void a_validation_gives_what_the_fit_did(void)
{
    rig_t *rig = rig_new(.data = SPLIT, .trainer = "\"max_epochs\": 2");
    rig_result_t *fitted = rig_keep(rig_fit(rig));
    const rig_result_t *result = rig_validate(rig, fitted->run_dir);
    is_text(result->status, "ok", "it goes well: %s", result->error.text);
    is_near(rig_metric(result, "val_loss"), rig_metric(fitted, "val_loss"), 1e-7,
            "val_loss, and not the sum of two validations");
    ok(rig_metric(result, "val_acc") == rig_metric(fitted, "val_acc"), "val_acc");
    ok(isnan(rig_metric(result, "train_loss")), "and nothing of training");
    is_int((int)result->global_step, (int)fitted->global_step, "at the step of the fit");
    rig_result_free(fitted);
    rig_free(&rig);
}

#define LOGS "[\"jsonl\", \"csv\", \"tensorboard\"]"

/* What runs/latest, or the latest test, is. */
static const char *latest_of(const rig_result_t *result)
{
    static char latest[4200], name[4200];
    snprintf(latest, sizeof latest, "%s/../latest", result->run_dir);
    char *path = pl_run_path(latest);
    snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    pl_text_free(path);
    return name;
}

static void metrics_go_to_the_loggers(void)
{
    rig_t *rig = rig_new(.data = SPLIT, .loggers = LOGS,
                         .trainer = "\"max_epochs\": 2, \"run_name\": \"logged\"");
    rig_result_t *fitted = rig_keep(rig_fit(rig));
    rig_result_t *first = rig_keep(rig_test(rig, fitted->run_dir));
    const rig_result_t *result = rig_test(rig, fitted->run_dir);
    like(result->run_dir, "/test/[0-9]{4}$", "each has a directory of its own");
    ok(strcmp(first->run_dir, result->run_dir), "which is never another's");
    is_text(latest_of(result), strrchr(result->run_dir, '/') + 1, "latest of its kind");
    is_text(latest_of(fitted), "logged", "and latest of the root is still the training");
    ok(rig_has_file(result, "run.json"), "with the run in it");
    const rig_series_t loss = rig_series(result, "test_loss");
    is_int(loss.count, 1, "metrics.jsonl has the metric");
    ok(loss.step[0] == (double)fitted->global_step, "at the step of the weights");
    ok(loss.value[0] == rig_metric(result, "test_loss"), "as the result has it");
    is_int((int)result->epoch, 2, "and of their epoch");
    ok(rig_has_file(result, "metrics.csv"), "so has the table");
    is_int(rig_series(fitted, "test_loss").count, 0,
           "the training's own are as they were");
    rig_result_free(first);
    rig_result_free(fitted);
    rig_free(&rig);
}

static void a_checkpoint_is_measured_at_its_step(void)
{
    char path[4200];
    rig_t *rig = rig_new(.data = SPLIT, .trainer = "\"max_epochs\": 3",
                         .callbacks = "[{\"name\": \"model_checkpoint\", "
                                      "\"save_top_k\": -1}]");
    const rig_result_t *result = rig_fit(rig);
    int step = (int)result->global_step / 3;
    snprintf(path, sizeof path, "%s/checkpoints/epoch=0-step=%d", result->run_dir, step);
    result = rig_validate(rig, path);
    is_text(result->status, "ok", "it goes well: %s", result->error.text);
    like(result->run_dir, "/validate/[0-9]{4}$", "in a directory of its own");
    ok(rig_series(result, "val_loss").step[0] == step, "the metrics are of that step");
    is_int((int)result->epoch, 1, "and that epoch");
    rig_free(&rig);
}

static void a_measurement_without_loggers_leaves_no_files(void)
{
    rig_t *rig = rig_new(.data = SPLIT, .trainer = "\"max_epochs\": 1", .loggers = "[]");
    char *weights = strdup(rig_fit(rig)->run_dir);
    is_text(rig_test(rig, weights)->run_dir, "", "no directory without loggers");
    rig_free(&rig);
    rig = rig_new(.data = SPLIT, .trainer = "\"fast_dev_run\": true");
    is_text(rig_test(rig, weights)->run_dir, "", "nor with fast_dev_run");
    rig_free(&rig);
    free(weights);
}

/* Samples of three classes, each called the one that comes `by` after it. */
static void register_called(const char *name, int by, int samples, float x[12][6],
                            int64_t y[12])
{
    for (int i = 0; i < samples; i++) {
        y[i] = (i + by) % 3;
        for (int k = 0; k < 6; k++)
            x[i][k] = (float)sin((double)(i % 3 * 5 + k));
    }
    const pl_arrays_t arrays = {.samples = samples,
                                .field_count = 2,
                                .field = {{"x", PL_F32, pl_shape(1, 6)},
                                          {"y", PL_I64, pl_shape(0)}},
                                .data = {x, y},
                                .data_info = "{\"classes\": 3}"};
    pl_memory_arrays(name, &arrays, NULL);
}

#define SOURCES \
    "{\"train\": {\"name\": \"memory\", \"source\": \"straight\"}, \"test\": " \
    "{\"name\": " \
    "\"memory\", \"source\": \"twisted\"}, \"batch_size\": 5}"

static void a_test_reads_the_test_source(void)
{
    static float x[2][12][6];
    static int64_t y[2][12];
    received_t received = {0};
    register_called("straight", 0, 12, x[0], y[0]);
    register_called("twisted", 1, 12, x[1], y[1]);
    rig_t *rig = rig_new(.dataset = SOURCES, .on_progress = keep_events,
                         .user = &received, .trainer = "\"max_epochs\": 30");
    rig_result_t *fitted = rig_keep(rig_fit(rig));
    received = (received_t){0};
    const rig_result_t *result = rig_test(rig, fitted->run_dir);
    is_text(result->status, "ok", "it goes well: %s", result->error.text);
    is_near(rig_metric(fitted, "train_acc"), 1, 1e-9, "what was trained on was learnt");
    is_near(rig_metric(result, "test_acc"), 0, 1e-9, "the test source says otherwise");
    ok(isnan(rig_metric(result, "val_loss")), "its metrics have a prefix of their own");
    ok(received.tests > 0, "progress tells of a test");
    is_int(received.validations + received.others, 0, "and of nothing else");
    rig_result_free(fitted);
    rig_free(&rig);
}

static void a_test_can_be_cut_short(void)
{
    rig_t *rig = rig_new(.data = SPLIT, .stream = true,
                         .trainer = "\"max_epochs\": 1, \"limit_test_batches\": 3");
    char *weights = strdup(rig_fit(rig)->run_dir);
    rig_test(rig, weights);
    rig_free(&rig);
    json_t *message, *stream = rig_stream();
    size_t k;
    int replies = 0, batches = -1;
    json_array_foreach(stream, k, message) {
        const json_t *stage = json_object_get(json_object_get(message, "fields"),
                                              "stage");
        const char *name = json_string_value(json_object_get(message, "name")),
                   *kind = json_string_value(json_object_get(message, "kind"));
        if (!strcmp(name, "evaluate") && !strcmp(kind, "reply"))
            batches = (int)json_integer_value(
                json_object_get(json_object_get(message, "fields"), "batches"));
        replies += !strcmp(name, "evaluate_batch") && !strcmp(kind, "call")
                   && json_integer_value(stage) == PL_TEST;
    }
    is_int(batches, 3, "the loop has forwarded as many as it may");
    is_int(replies, 3, "and asked for no more");
    json_decref(stream);
    free(weights);
}

static void wrong_requests_are_refused(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1");
    pl_error_t err = {0};
    is_int(pl_trainer_validate(rig_trainer(rig), "x", NULL, NULL, &err), PL_ENOTFOUND,
           "a run without validation data");
    like(err.text, "data.val_split", "what is missing is named");
    is_int(pl_trainer_test(rig_trainer(rig), NULL, NULL, NULL, &err), PL_EINVAL,
           "a test of no weights");
    like(err.text, "testing needs weights", "says so");
    const rig_result_t *result = rig_test(rig, "/nowhere");
    is_text(result->status, "failed", "a test of weights that are not there fails");
    like(result->error.text, "/nowhere", "with their name");
    rig_free(&rig);
    rig = rig_new(.dataset = "{\"train\": {\"name\": \"memory\", \"source\": \"x\"}}");
    is_int(pl_trainer_test(rig_trainer(rig), "x", NULL, NULL, &err), PL_ENOTFOUND,
           "a test without a source");
    like(err.text, "data.test", "which is named");
    rig_free(&rig);
}

static void stop_at_once(rig_t *rig, const pl_progress_t *progress)
{
    if (!strcmp(progress->event, "validate"))
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void a_validation_can_be_stopped(void)
{
    rig_t *rig = rig_new(.data = "\"batch_size\": 1, \"val_split\": 0.9",
                         .trainer = "\"max_epochs\": 1, \"depth\": 1");
    char *weights = strdup(rig_fit(rig)->run_dir);
    rig_free(&rig);
    rig = rig_new(.data = "\"batch_size\": 1, \"val_split\": 0.9",
                  .script = "replay of forward takes 20 ms", .on_progress = stop_at_once,
                  .trainer = "\"depth\": 1");
    const rig_result_t *result = rig_validate(rig, weights);
    is_text(result->status, "stopped", "it ends early: %s", result->error.text);
    is_text(result->metrics, "{}", "and says nothing of a part of the data");
    rig_free(&rig);
    free(weights);
}

static void a_failing_forward_pass_is_named(void)
{
    rig_t *rig = rig_new(.data = SPLIT, .trainer = "\"max_epochs\": 1");
    char *weights = strdup(rig_fit(rig)->run_dir);
    rig_free(&rig);
    rig = rig_new(.data = SPLIT, .script = "replay 2 of forward fails");
    const rig_result_t *result = rig_test(rig, weights);
    is_text(result->status, "failed", "the test fails");
    like(result->error.text, "the test .*batch 1", "and says where");
    rig_free(&rig);
    free(weights);
}

/* ---- Several sources ---- */

#define SEVERAL(stage) \
    "{\"train\": {\"name\": \"memory\", \"source\": \"straight\"}, \"" stage \
    "\": [{\"name\": \"memory\", \"source\": \"straight\"}, {\"name\": \"memory\", " \
    "\"source\": \"twisted\"}, {\"name\": \"memory\", \"source\": \"few\"}], " \
    "\"batch_size\": 5}"

static void register_several(void)
{
    static float x[3][12][6];
    static int64_t y[3][12];
    register_called("straight", 0, 12, x[0], y[0]);
    register_called("twisted", 1, 12, x[1], y[1]);
    register_called("few", 0, 4, x[2], y[2]);
}

static void several_sources_are_validated_one_after_the_other(void)
{
    register_several();
    rig_t *rig = rig_new(.dataset = SEVERAL("val"), .trainer = "\"max_epochs\": 30");
    rig_result_t *fitted = rig_keep(rig_fit(rig));
    is_text(fitted->status, "ok", "it goes well: %s", fitted->error.text);
    is_near(rig_metric(fitted, "val_acc/dataloader_idx_0"), 1, 1e-9, "what was learnt");
    is_near(rig_metric(fitted, "val_acc/dataloader_idx_1"), 0, 1e-9, "the opposite");
    is_near(rig_metric(fitted, "val_acc/dataloader_idx_2"), 1, 1e-9,
            "and batches of a size that others have not");
    ok(isnan(rig_metric(fitted, "val_acc")), "each has a name of its own");
    is_int(rig_series(fitted, "val_loss/dataloader_idx_1").count, 30, "and is logged");
    const rig_result_t *result = rig_validate(rig, fitted->run_dir);
    is_near(rig_metric(result, "val_loss/dataloader_idx_2"),
            rig_metric(fitted, "val_loss/dataloader_idx_2"), 1e-6, "alone as well");
    rig_result_free(fitted);
    rig_free(&rig);
}

static void monitor_is_refused(const char *callbacks, const char *scheduler,
                               const char *key)
{
    char wanted[256];
    rig_t *rig = rig_new(.dataset = SEVERAL("val"), .callbacks = callbacks,
                         .scheduler = scheduler, .trainer = "\"max_epochs\": 1");
    ok(!rig_begin(rig), "not begun");
    snprintf(wanted, sizeof wanted,
             "^rig[^ ]*:[0-9]+:[0-9]+: \"%s\": .*val_loss/dataloader_idx_0.* to .*idx_2",
             key);
    like(rig_error.text, wanted, "what there is, is said");
    rig_free(&rig);
}

static void a_monitor_names_one_of_several_sources(void)
{
    register_several();
    monitor_is_refused("[\"model_summary\", {\"name\": \"early_stopping\"}]", NULL,
                       "callbacks.1.monitor");
    monitor_is_refused("[{\"name\": \"model_checkpoint\", \"monitor\": \"val_loss\"}]",
                       NULL, "callbacks.0.monitor");
    monitor_is_refused(NULL, "\"reduce_on_plateau\"", "scheduler.monitor");
    rig_t *rig = rig_new(.dataset = SEVERAL("val"), .trainer = "\"max_epochs\": 1",
                         .callbacks = "[{\"name\": \"model_checkpoint\", \"monitor\": "
                                      "\"val_loss/dataloader_idx_1\", \"filename\": "
                                      "\"at-{val_acc/dataloader_idx_0:.0f}\"}]");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "one of them is followed: %s", result->error.text);
    ok(rig_has_file(result, "checkpoints/at-val_acc_dataloader_idx_0=1")
           || rig_has_file(result, "checkpoints/at-val_acc_dataloader_idx_0=0"),
       "and names a checkpoint");
    rig_free(&rig);
}

static void several_sources_are_tested(void)
{
    register_several();
    rig_t *rig = rig_new(.dataset = SEVERAL("test"), .trainer = "\"max_epochs\": 30");
    rig_result_t *fitted = rig_keep(rig_fit(rig));
    const rig_result_t *result = rig_test(rig, fitted->run_dir);
    is_text(result->status, "ok", "it goes well: %s", result->error.text);
    is_near(rig_metric(result, "test_acc/dataloader_idx_0"), 1, 1e-9, "the first");
    is_near(rig_metric(result, "test_acc/dataloader_idx_1"), 0, 1e-9, "and the second");
    pl_error_t err = {0};
    is_int(pl_trainer_predict(rig_trainer(rig),
                              &(pl_prediction_t){.checkpoint = fitted->run_dir}, NULL,
                              NULL, &err),
           PL_EINVAL, "which of them to predict is not said");
    like(err.text, "data.predict", "but where to say it");
    rig_result_free(fitted);
    rig_free(&rig);
}

static void sources_that_do_not_go_together_are_refused(void)
{
    static float x[12][5];
    const pl_arrays_t narrow = {.samples = 12,
                                .field_count = 1,
                                .field = {{"x", PL_F32, pl_shape(1, 5)}},
                                .data = {x}};
    register_several();
    pl_memory_arrays("narrow", &narrow, NULL);
    rig_t *rig = rig_new(.dataset = "{\"train\": {\"name\": \"memory\", \"source\": "
                                    "\"straight\"}, \"val\": [{\"name\": \"memory\", "
                                    "\"source\": \"straight\"}, {\"name\": \"memory\", "
                                    "\"source\": \"narrow\"}]}");
    like(rig_fit(rig)->error.text, "data.val.1 has other fields than data.val.0",
         "other fields");
    rig_free(&rig);
    pl_error_t err = {0};
    pl_options_t *o = pl_options_parse("{\"data\": {\"train\": \"memory\", \"val\": []}}",
                                       "run.json", &err);
    int code = o ? pl_options_check(o, &err) : err.code;
    is_int(code, PL_EINVAL, "no source at all");
    like(err.text, "run.json:1:37: \"data.val\" takes a list of 1 to 8", "is no list");
    pl_options_free(o);
    o = pl_options_parse("{\"data\": {\"train\": {\"name\": \"memory\", \"source\": "
                         "\"x\"}, \"val\": [{\"name\": \"nothing\"}]}}",
                         "run.json", &err);
    code = o ? pl_options_check(o, &err) : err.code;
    is_int(code, PL_ENOTFOUND, "one that there is not");
    like(err.text, "data.val.0.name.*nothing", "is named");
    pl_options_free(o);
}

int main(void)
{
    rig_init(NULL);
    run(a_validation_gives_what_the_fit_did);
    run(metrics_go_to_the_loggers);
    run(a_checkpoint_is_measured_at_its_step);
    run(a_measurement_without_loggers_leaves_no_files);
    run(a_test_reads_the_test_source);
    run(a_test_can_be_cut_short);
    run(wrong_requests_are_refused);
    run(a_validation_can_be_stopped);
    run(a_failing_forward_pass_is_named);
    run(several_sources_are_validated_one_after_the_other);
    run(a_monitor_names_one_of_several_sources);
    run(several_sources_are_tested);
    run(sources_that_do_not_go_together_are_refused);
    return tap_done();
}
