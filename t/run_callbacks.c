/* run_callbacks.c - tests of callbacks in whole runs: when they are called, with which
 * data, and the effect of their requests */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

/* ---- A callback that writes down what it is asked and requests one thing once ---- */

typedef struct witness {
    int64_t every, at;
    bool every_step;
    const char *point, *request;
} witness_t;

static const pl_option_t witness_options[] = {
    PL_INT(witness_t, every, "1", "1..", "steps between two calls"),
    PL_BOOL(witness_t, every_step, "false", "log a metric at each step"),
    PL_INT(witness_t, at, "-1", "-1..", "step of the request"),
    PL_TEXT(witness_t, point, "\"on_train_batch_end\"", NULL, "point of the request"),
    PL_TEXT(witness_t, request, "\"none\"", "none|stop|skip|halve|metric", "the request"),
    PL_OPTIONS_END,
};

static char seen[2048], failure[512];
static double train_loss;
static bool knows_too_much;

static int64_t witness_every(const void *self)
{
    return ((const witness_t *)self)->every;
}

static int witness_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *err)
{
    static const char *const names[] = {
#define PL_X(name, text, may, when) text,
        PL_HOOKS(PL_X)
#undef PL_X
    };
    static const char *const letters = "FEBVvceftTpbPx";
    const witness_t *w = self;
    snprintf(failure, sizeof failure, "%s", event->error);
    size_t length = strlen(seen);
    snprintf(seen + length, sizeof seen - length, "%s%c%u.%d", length ? " " : "",
             letters[point], event->epoch, (int)event->global_step);
    pl_hook_metric(event, "train_loss", &train_loss);
    knows_too_much |= pl_hook_metric(event, "train_los", &train_loss);
    if (w->every_step && point == PL_HOOK_TRAIN_BATCH_END)
        return pl_callback_log(request, "weather", (double)event->samples, err);
    if (strcmp(names[point], w->point) || (int64_t)event->global_step != w->at)
        return PL_OK;
    request->stop = !strcmp(w->request, "stop");
    request->skip = !strcmp(w->request, "skip");
    request->lr_factor = !strcmp(w->request, "halve") ? 0.5 : 1;
    if (!strcmp(w->request, "metric"))
        return pl_callback_log(request, "weather", (double)event->samples, err);
    return PL_OK;
}

static const pl_callback_ops_t witness = {.name = "witness",
                                          .size = sizeof(witness_t),
                                          .options = witness_options,
                                          .points = (1u << PL_HOOK_COUNT) - 1,
                                          .every_n_steps = witness_every,
                                          .on = witness_on};

static const pl_callback_ops_t onlooker = {.name = "onlooker",
                                           .size = sizeof(witness_t),
                                           .options = witness_options,
                                           .points = (1u << PL_HOOK_COUNT) - 1,
                                           .requests = PL_LOOKS_ON,
                                           .every_n_steps = witness_every,
                                           .on = witness_on};

#define FOUR "\"batch_size\": 8, \"val_split\": 0.2"        /* batches of 40 samples */

static rig_t *rig_with(const char *callback, const char *trainer)
{
    char callbacks[256];
    snprintf(callbacks, sizeof callbacks, "[{\"name\": \"witness\"%s%s}]",
             *callback ? ", " : "", callback);
    seen[0] = '\0';
    return rig_new(.data = FOUR, .trainer = trainer, .callbacks = callbacks);
}

/* ---- When they are asked ---- */

static void callbacks_are_called_at_each_point(void)
{
    rig_t *rig = rig_with("", "\"max_epochs\": 2, \"depth\": 3");
    is_text(rig_fit(rig)->status, "ok", "a run");
    is_text(seen,
            "F0.0 E0.0 B0.1 B0.2 B0.3 B0.4 V0.4 v0.4 e0.4 "
            "E1.4 B1.5 B1.6 B1.7 B1.8 V1.8 v1.8 e1.8 f2.8",
            "F, E, B, V, v, e, f");
    rig_free(&rig);
    rig = rig_with("\"every\": 3", "\"max_epochs\": 2, \"accumulate_grad_batches\": 2,"
                                   "\"val_check_interval\": 0.5");
    rig_fit(rig);
    is_text(seen,
            "F0.0 E0.0 V0.1 v0.1 V0.2 v0.2 e0.2 E1.2 B1.3 V1.3 v1.3 V1.4 v1.4 e1.4 f2.4",
            "steps are the optimizer's, each third is asked");
    rig_free(&rig);
}

/* Batches before a halt are under way when the first of them ends. */
static void an_observer_is_called_after_the_same_steps(void)
{
    seen[0] = '\0';
    rig_t *rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 2, \"depth\": 4",
                         .callbacks = "[{\"name\": \"onlooker\", \"at\": 2, "
                                      "\"request\": \"metric\"}]");
    const rig_result_t *result = rig_fit(rig);
    is_text(seen,
            "F0.0 E0.0 B0.1 B0.2 B0.3 B0.4 V0.4 v0.4 e0.4 "
            "E1.4 B1.5 B1.6 B1.7 B1.8 V1.8 v1.8 e1.8 f2.8",
            "each of them, and before what is decided there");
    is_int(rig_series(result, "weather").count, 1, "its metric is logged");
    is_int(rig_series(result, "weather").step[0], 2, "for the step that it was asked at");
    rig_free(&rig);
    rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 2",
                  .callbacks = "[{\"name\": \"onlooker\", \"at\": 2, \"request\": "
                               "\"halve\"}]");
    result = rig_fit(rig);
    is_int(result->error.code, PL_EUSER, "a request that would come too late");
    like(result->error.text, "onlooker.*lr_factor", "is an error");
    rig_free(&rig);
}

static void callbacks_receive_the_newest_metrics(void)
{
    rig_t *rig = rig_with("", "\"max_epochs\": 2, \"log_every_n_steps\": 1");
    const rig_result_t *result = rig_fit(rig);
    is_near(train_loss, rig_metric(result, "train_loss"), 1e-9,
            "at the end the result's");
    ok(!knows_too_much, "a metric that does not exist is not known");
    rig_free(&rig);
}

/* ---- What becomes of their requests ---- */

static void stops_at(const char *point, int at, int steps, const char *last)
{
    char callback[160];
    snprintf(callback, sizeof callback,
             "\"point\": \"%s\", \"at\": %d, \"request\": \"stop\"", point, at);
    rig_t *rig = rig_with(callback, "\"max_epochs\": 3, \"depth\": 4");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "stopped", "%s at step %d: the run stops", point, at);
    is_text(result->reason, "witness", "and the result names the callback");
    is_int(result->global_step, steps, "after that many steps");
    ok(rig_has_file(result, "model.safetensors"), "with its weights saved");
    const char *end = strlen(seen) > strlen(last) ? seen + strlen(seen) - strlen(last)
                                                  : seen;
    is_text(end, last, "and goes through the points of the end");
    rig_free(&rig);
}

static void callbacks_stop_the_run_at_each_point(void)
{
    stops_at("on_fit_start", 0, 0, "F0.0 f0.0");
    stops_at("on_train_epoch_start", 4, 4, "e0.4 E1.4 f1.4");
    stops_at("on_train_batch_end", 6, 6, "B1.6 c1.6 e1.6 f1.6");
    stops_at("on_train_batch_end", 4, 4, "B0.4 V0.4 v0.4 e0.4 f1.4");
    stops_at("on_validation_end", 4, 4, "v0.4 e0.4 f1.4");
    stops_at("on_train_epoch_end", 8, 8, "e1.8 f2.8");
}

static void callbacks_skip_what_a_point_allows(void)
{
    rig_t *rig = rig_with("\"at\": 2, \"request\": \"skip\"",
                          "\"max_epochs\": 2, \"depth\": 3");
    const rig_result_t *result = rig_fit(rig);
    is_text(seen,
            "F0.0 E0.0 B0.1 B0.2 V0.2 v0.2 e0.2 E1.2 B1.3 B1.4 B1.5 B1.6 V1.6 v1.6 "
            "e1.6 f2.6",
            "the rest of an epoch's batches");
    is_text(result->status, "ok", "and the run continues");
    is_int(rig_series(result, "train_loss_epoch").step[0], 2,
           "with metrics of the epoch");
    rig_free(&rig);
    rig = rig_with("\"point\": \"on_validation_start\", \"at\": 4, \"request\": \"skip\"",
                   "\"max_epochs\": 2");
    result = rig_fit(rig);
    is_text(seen,
            "F0.0 E0.0 B0.1 B0.2 B0.3 B0.4 V0.4 e0.4 E1.4 B1.5 B1.6 B1.7 B1.8 V1.8 "
            "v1.8 e1.8 f2.8",
            "a validation");
    is_int(rig_series(result, "val_loss").count, 1, "of which there are no metrics");
    rig_free(&rig);
}

/* A run with a callback, or a schedule, that follows a metric. */
static rig_t *monitoring(const char *callbacks, const char *scheduler)
{
    return rig_new(.data = "\"batch_size\": 8, \"val_split\": 0.2",
                   .trainer = "\"max_epochs\": 1", .callbacks = callbacks,
                   .scheduler = scheduler);
}

/* How many warnings with a text a run gives. */
static void monitor_is_warned_of(const char *callbacks, const char *scheduler,
                                 const char *text, int warnings)
{
    rig_listen(text);
    rig_t *rig = monitoring(callbacks, scheduler);
    rig_fit(rig);
    is_int(rig_lines_received(), warnings, "%s%s: %s", callbacks ? callbacks : "",
           scheduler ? scheduler : "", text);
    rig_free(&rig);
    rig_listen(NULL);
}

static void monitor_is_refused(const char *callbacks, const char *scheduler,
                               const char *pattern)
{
    rig_t *rig = monitoring(callbacks, scheduler);
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_ENOTFOUND, "%s%s is an error",
           callbacks ? callbacks : "", scheduler ? scheduler : "");
    is_int((int)result->global_step, 0, "before the first step");
    like(result->error.text, pattern, "which names the metrics");
    rig_free(&rig);
}

static void a_monitored_metric_that_does_not_exist_fails_before_the_first_step(void)
{
    monitor_is_refused("[\"model_summary\", {\"name\": \"early_stopping\", "
                       "\"monitor\": \"val_los\"}]",
                       NULL,
                       "\"callbacks.1.monitor\": the module computes no metric "
                       "\"val_los\", did you mean \"val_loss\"; the metrics are: "
                       "val_loss, val_acc, train_loss, train_loss_epoch, train_acc");
    monitor_is_refused("[\"throughput_monitor\", {\"name\": \"model_checkpoint\", "
                       "\"monitor\": \"val_banana\"}]",
                       NULL,
                       "\"callbacks.1.monitor\": the module computes no metric "
                       "\"val_banana\"; the metrics are: val_loss");
    monitor_is_refused(NULL, "{\"name\": \"reduce_on_plateau\", \"monitor\": \"acc\"}",
                       "\"scheduler.monitor\": the module computes no metric \"acc\"");
}

static void a_monitored_metric_that_may_come_is_warned_of(void)
{
    monitor_is_warned_of("[{\"name\": \"early_stopping\", \"monitor\": \"val_los\", "
                         "\"strict\": false}]",
                         NULL, "the module computes no metric", 1);
    monitor_is_warned_of("[\"throughput_monitor\", {\"name\": \"model_checkpoint\", "
                         "\"monitor\": \"steps_per_second\"}]",
                         NULL, "only a callback could add it", 1);
    monitor_is_warned_of("[{\"name\": \"witness\"}, {\"name\": \"model_checkpoint\", "
                         "\"monitor\": \"val_weather\"}]",
                         NULL, "only a callback could add it", 1);
}

static void a_monitored_metric_that_exists_is_not_warned_of(void)
{
    static const char *const names[] = {"val_loss",         "val_acc",   "train_loss",
                                        "train_loss_epoch", "train_acc", "grad_norm"};
    char callbacks[200];
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        snprintf(callbacks, sizeof callbacks,
                 "[{\"name\": \"early_stopping\", \"monitor\": \"%s\", "
                 "\"check_on_train_epoch_end\": true}]",
                 names[k]);
        monitor_is_warned_of(callbacks, NULL, "computes no metric", 0);
    }
}

static void a_metric_to_maximize_needs_a_mode(void)
{
    static const char text[] = "mode\" is not set, so a lower";
    monitor_is_warned_of("[{\"name\": \"model_checkpoint\", \"monitor\": \"val_acc\"}]",
                         NULL,
                         "\"callbacks.0.mode\" is not set, so a lower \"val_acc\" counts "
                         "as better: set it to \"max\" or \"min\"",
                         1);
    monitor_is_warned_of("[{\"name\": \"early_stopping\", \"monitor\": \"train_acc\"}]",
                         NULL, text, 1);
    monitor_is_warned_of(NULL,
                         "{\"name\": \"reduce_on_plateau\", \"monitor\": \"val_acc\"}",
                         "\"scheduler.mode\" is not set", 1);
    monitor_is_warned_of("[{\"name\": \"model_checkpoint\", \"monitor\": \"val_loss\"}]",
                         NULL, text, 0);
    monitor_is_warned_of("[{\"name\": \"model_checkpoint\", \"monitor\": \"val_acc\", "
                         "\"mode\": \"min\"}, {\"name\": \"early_stopping\", "
                         "\"monitor\": \"val_acc\", \"mode\": \"max\"}]",
                         NULL, text, 0);
}

static void a_rate_is_changed_at(const char *point, int at, int from)
{
    char callback[160];
    snprintf(callback, sizeof callback,
             "\"point\": \"%s\", \"at\": %d, \"request\": \"halve\"", point, at);
    rig_t *rig = rig_with(callback, "\"max_epochs\": 3, \"log_every_n_steps\": 1");
    rig_series_t lr = rig_series(rig_fit(rig), "lr-sgd");
    int first = 0;
    while (first < lr.count && lr.value[first] > 0.09)
        first++;
    ok(first < lr.count && fabs(lr.value[first] - 0.05) < 1e-9, "%s: the rate is halved",
       point);
    is_int(lr.step[first], from, "from the next step on");
    rig_free(&rig);
}

static void callbacks_change_the_rate_at_each_point(void)
{
    a_rate_is_changed_at("on_fit_start", 0, 1);
    a_rate_is_changed_at("on_train_epoch_start", 4, 5);
    a_rate_is_changed_at("on_train_batch_end", 2, 3);
    a_rate_is_changed_at("on_validation_start", 4, 5);
    a_rate_is_changed_at("on_validation_end", 8, 9);
    a_rate_is_changed_at("on_train_epoch_end", 4, 5);
}

static void metrics_of_callbacks_are_logged(void)
{
    rig_t *rig = rig_with("\"at\": 3, \"request\": \"metric\"", "\"max_epochs\": 2");
    const rig_result_t *result = rig_fit(rig);
    rig_series_t weather = rig_series(result, "weather");
    is_int(weather.count, 1, "a line");
    is_int(weather.step[0], 3, "at its step");
    is_near(weather.value[0], 24, 0, "with the samples until then");
    is_near(rig_metric(result, "weather"), 24, 0, "and in the result");
    rig_free(&rig);
}

/* Those that look on answer while further steps end. */
static void lines_come_in_the_order_of_steps(void)
{
    rig_t *rig = rig_new(.data = "\"batch_size\": 2, \"val_split\": 0.2", .samples = 200,
                         .trainer = "\"max_epochs\": 2, \"log_every_n_steps\": 1, "
                                    "\"depth\": 16",
                         .callbacks = "[{\"name\": \"onlooker\", \"every\": 2, "
                                      "\"every_step\": true}, \"lr_monitor\"]");
    const rig_result_t *result = rig_fit(rig);
    json_t *lines = rig_log(result), *line;
    json_int_t newest = 0;
    size_t k;
    int unordered = 0;
    json_array_foreach(lines, k, line) {
        const json_int_t step = json_integer_value(json_object_get(line, "global_step"));
        unordered += step < newest;
        newest = step;
    }
    is_int((int)rig_series(result, "weather").count, 80, "each second step of 160");
    ok(json_array_size(lines) > 200, "there are many lines");
    is_int(unordered, 0, "none is behind one of a later step");
    json_decref(lines);
    rig_free(&rig);
}

/* The program's locale has a comma in numbers: what is written has none. */
static void files_and_texts_do_not_depend_on_the_locale(void)
{
    char command[600];
    snprintf(command, sizeof command,
             "cd %s && printf 'LC_NUMERIC\ndecimal_point \",\"\nthousands_sep "
             "\"\"\ngrouping -1\nEND LC_NUMERIC\n' >comma.src && localedef -c -i "
             "comma.src ./comma >localedef.log 2>&1; test -d comma",
             tap_folder());
    const bool made = system(command) == 0;
    setenv("LOCPATH", tap_folder(), 1);
    if (!made || !setlocale(LC_NUMERIC, "comma")) {
        tap_skip("a locale cannot be made here (localedef)");
        return;
    }
    char number[16];
    snprintf(number, sizeof number, "%g", 0.5);
    is_text(number, "0,5", "the program writes a comma");
    rig_t *rig = rig_new(.data = FOUR, .loggers = "[\"jsonl\", \"csv\"]",
                         .trainer = "\"max_epochs\": 1",
                         .callbacks = "[{\"name\": \"model_checkpoint\", \"monitor\": "
                                      "\"val_loss\", \"filename\": "
                                      "\"{epoch}-{val_loss}\"}]");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a run ends: %s", result->error.text);
    like(result->best_checkpoint, "val_loss=[0-9]+[.][0-9]+$", "%s",
         result->best_checkpoint);
    ok(isfinite(rig_metric(result, "val_loss")), "its metrics are JSON");
    pl_error_t err;
    pl_options_t *options = pl_options_new(&err);
    pl_options_set(options, "trainer.max_epochs", "2.5e0", &err);
    like(err.text, "not 2[.]5$", "%s", err.text);
    pl_fail(&err, PL_EINVAL, "%g", 0.25);
    is_text(err.text, "0.25", "errors have the C locale");
    char *text = pl_text("%.2f", 1.5);
    is_text(text, "1.50", "so have texts");
    pl_text_free(text);
    pl_options_free(options);
    rig_free(&rig);
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
}

static void a_request_without_effect_is_an_error(void)
{
    rig_t *rig = rig_with("\"point\": \"on_fit_end\", \"at\": 8, \"request\": \"stop\"",
                          "\"max_epochs\": 2");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "a stop at the end");
    like(result->error.text,
         "\"witness\", on_fit_end: a callback cannot request stop at this hook",
         "says so");
    ok(rig_has_file(result, "model.safetensors"), "the weights are there all the same");
    rig_free(&rig);
}

/* ---- Runs that do not train ---- */

static void tests_and_predictions_have_points_of_their_own(void)
{
    rig_t *rig = rig_with("", "\"max_epochs\": 1, \"limit_predict_batches\": 2");
    char *checkpoint = strdup(rig_fit(rig)->run_dir);
    seen[0] = '\0';
    rig_test(rig, checkpoint);
    is_text(seen, "t1.4 T1.4", "a test, at the step of its weights");
    seen[0] = '\0';
    is_int(rig_predict(rig, checkpoint)->output[0].shape.dim[0], 16, "a prediction");
    is_text(seen, "p0.0 b0.0 b0.0 P0.0", "with its batches");
    rig_free(&rig);
    rig =
        rig_with("\"point\": \"on_predict_batch_end\", \"at\": 0, \"request\": \"stop\"",
                 "\"max_epochs\": 1, \"depth\": 1");
    const rig_result_t *result = rig_predict(rig, checkpoint);
    is_text(result->status, "stopped", "which may be stopped");
    is_int(result->output[0].shape.dim[0], 8, "after a batch");
    rig_free(&rig);
    rig = rig_with("\"point\": \"on_test_start\", \"at\": 4, \"request\": \"stop\"",
                   "\"max_epochs\": 1");
    is_text(rig_test(rig, checkpoint)->status, "stopped", "as a test may be");
    is_text(seen, "t1.4", "before it begins");
    rig_free(&rig);
    free(checkpoint);
}

/* ---- A failure ---- */

static void callbacks_get_the_reason_of_a_failure(void)
{
    seen[0] = '\0';
    rig_t *rig = rig_new(.data = FOUR, .script = "replay 7 of forward_backward fails",
                         .trainer = "\"max_epochs\": 3, \"depth\": 1",
                         .callbacks = "[\"witness\"]");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "a run");
    like(seen, "B1.6 x1.6$", "the failure is their last call");
    is_text(failure, result->error.text, "with its text");
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {{"callback", &witness},
                                                   {"callback", &onlooker},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(callbacks_are_called_at_each_point);
    run(an_observer_is_called_after_the_same_steps);
    run(callbacks_receive_the_newest_metrics);
    run(callbacks_stop_the_run_at_each_point);
    run(callbacks_skip_what_a_point_allows);
    run(callbacks_change_the_rate_at_each_point);
    run(tests_and_predictions_have_points_of_their_own);
    run(a_monitored_metric_that_does_not_exist_fails_before_the_first_step);
    run(a_monitored_metric_that_may_come_is_warned_of);
    run(a_metric_to_maximize_needs_a_mode);
    run(a_monitored_metric_that_exists_is_not_warned_of);
    run(metrics_of_callbacks_are_logged);
    run(lines_come_in_the_order_of_steps);
    run(files_and_texts_do_not_depend_on_the_locale);
    run(a_request_without_effect_is_an_error);
    run(callbacks_get_the_reason_of_a_failure);
    return tap_done();
}
