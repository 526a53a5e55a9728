/* fit.c - tests of whole runs: what is computed, and that nothing but what it depends on
 * changes it */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/loops/epoch.h"
#include "rig.h"
#include "tap.h"

#define DROPOUT "{\"name\": \"mlp\", \"hidden\": [8, 5], \"dropout\": 0.25}"
#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.02}"

static const char *const devices[] = {"fake", "cpu"};
#define DEVICES 2

/* One run in an engine of its own; the result is the caller's. */
#define fit(...) rig_train(&(rig_spec_t){__VA_ARGS__})

/* ---- What is computed ---- */

static double series_distance(const rig_series_t *a, const rig_series_t *b)
{
    double worst = a->count == b->count && a->count ? 0 : INFINITY;
    for (int k = 0; k < a->count && isfinite(worst); k++)
        worst = tap_larger(worst, fabs(a->value[k] - b->value[k]));
    return worst;
}

static void devices_train_alike(void)
{
    rig_result_t *result[DEVICES];
    rig_series_t loss[DEVICES], norm[DEVICES];
    if (!rig_has("cpu"))
        return;
    for (int k = 0; k < DEVICES; k++) {
        result[k] = fit(.accelerator = devices[k], .module = DROPOUT, .optimizer = ADAMW,
                        .data = "\"batch_size\": 7, \"val_split\": 0.2",
                        .trainer = "\"max_epochs\": 6, \"log_every_n_steps\": 1,"
                                   "\"gradient_clip_val\": 0.5");
        loss[k] = rig_series(result[k], "train_loss");
        norm[k] = rig_series(result[k], "grad_norm");
    }
    ok(series_distance(&loss[0], &loss[1]) < 1e-5, "the same %d losses", loss[0].count);
    ok(series_distance(&norm[0], &norm[1]) < 1e-5, "norms");
    ok(fabs(rig_metric(result[0], "val_loss") - rig_metric(result[1], "val_loss")) < 1e-5,
       "val_loss");
    ok(rig_distance(result[0], result[1]) < 1e-4, "and weights, within float32");
    ok(loss[0].value[loss[0].count - 1] < loss[0].value[0] * 0.7, "and they learn");
    rig_result_free(result[0]);
    rig_result_free(result[1]);
}

static void a_batch_may_be_accumulated(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_result_t *whole = fit(.accelerator = devices[k], .optimizer = ADAMW,
                                  .data = "\"batch_size\": 12",
                                  .trainer = "\"max_epochs\": 3");
        rig_result_t *parts = fit(.accelerator = devices[k], .optimizer = ADAMW,
                                  .data = "\"batch_size\": 3",
                                  .trainer = "\"max_epochs\": 3,"
                                             "\"accumulate_grad_batches\": 4");
        is_int(parts->global_step, whole->global_step, "as many steps");
        ok(rig_distance(whole, parts) < 1e-5,
           "batches of 3, 4 to a step, are batches of 12");
        rig_result_free(whole);
        rig_result_free(parts);
    }
}

static void a_ragged_batch_weighs_what_it_holds(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_result_t *whole = fit(.accelerator = devices[k], .data = "\"batch_size\": 40",
                                  .trainer = "\"max_epochs\": 2");
        rig_result_t *parts = fit(.accelerator = devices[k], .data = "\"batch_size\": 11",
                                  .trainer = "\"max_epochs\": 2,"
                                             "\"accumulate_grad_batches\": 4");
        ok(rig_distance(whole, parts) < 1e-5,
           "11 + 11 + 11 + 7 samples give the gradient of 40");
        ok(fabs(rig_metric(whole, "train_loss") - rig_metric(parts, "train_loss")) < 1e-5,
           "and the loss");
        rig_result_free(whole);
        rig_result_free(parts);
    }
}

static void the_last_incomplete_accumulation_steps(void)
{
    rig_result_t *result = fit(.data = "\"batch_size\": 8",
                               .trainer = "\"max_epochs\": 2, \"log_every_n_steps\": 1,"
                                          "\"accumulate_grad_batches\": 2");
    rig_result_t *rest = fit(.data = "\"batch_size\": 32, \"shuffle\": false",
                             .trainer = "\"max_epochs\": 1");
    rig_result_t *parts = fit(.data = "\"batch_size\": 8, \"shuffle\": false",
                              .trainer = "\"max_epochs\": 1,"
                                         "\"accumulate_grad_batches\": 4");
    is_int(result->global_step, 6, "5 batches by 2 are 3 steps, in each of 2 epochs");
    is_int(rig_series(result, "lr-sgd").count, 6, "and each is a step that is logged");
    is_int(parts->global_step, 2, "5 batches by 4 are 2 steps");
    ok(rig_distance(rest, parts) < 1e-5, "the 2nd of 8 samples as if they were a batch");
    rig_result_free(result);
    rig_result_free(rest);
    rig_result_free(parts);
}

static double norm_of_change(const rig_result_t *from, const rig_result_t *to)
{
    double sum = 0;
    for (int k = 0; k < from->weight_count; k++)
        for (size_t i = 0; i < from->weight[k].count; i++)
            sum += pow((double)to->weight[k].data[i] - (double)from->weight[k].data[i],
                       2);
    return sqrt(sum);
}

static void a_gradient_is_clipped_by_its_norm(void)
{
    const char *once = "\"max_steps\": 1", *clipped = "\"max_steps\": 1,"
                                                      "\"gradient_clip_val\": 0.01";
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_result_t *before = fit(.accelerator = devices[k], .trainer = once,
                                   .optimizer = "{\"name\": \"sgd\", \"lr\": 0}");
        rig_result_t *after = fit(.accelerator = devices[k], .trainer = clipped,
                                  .optimizer = "{\"name\": \"sgd\", \"lr\": 1}");
        is_near(norm_of_change(before, after), 0.01, 1e-5, "a step as long as the limit");
        is_near(rig_metric(after, "grad_norm"), rig_metric(before, "grad_norm"), 1e-6,
                "the reported norm is the one before");
        rig_result_free(before);
        rig_result_free(after);
    }
}

static void a_gradient_is_clipped_by_its_elements(void)
{
    const char *clipped = "\"max_steps\": 1, \"gradient_clip_val\": 0.01,"
                          "\"gradient_clip_algorithm\": \"value\"";
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_result_t *before = fit(.accelerator = devices[k], .trainer = clipped,
                                   .optimizer = "{\"name\": \"sgd\", \"lr\": 0}");
        rig_result_t *after = fit(.accelerator = devices[k], .trainer = clipped,
                                  .optimizer = "{\"name\": \"sgd\", \"lr\": 1}");
        is_near(rig_distance(before, after), 0.01, 1e-6, "no element moves further");
        ok(norm_of_change(before, after) > 0.02, "each has the limit for itself");
        rig_result_free(before);
        rig_result_free(after);
    }
}

/* ---- What does not change it ---- */

#define SAME(device, seed, data_more, trainer_more) \
    fit(.accelerator = device, .module = DROPOUT, .optimizer = ADAMW, \
        .data = "\"batch_size\": 6, \"val_split\": 0.2" data_more, \
        .trainer = "\"max_epochs\": 3, \"seed\": " seed trainer_more)

static void bits_depend_on_the_seed_alone(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_result_t *first = SAME(devices[k], "7", "", "");
        rig_result_t *again = SAME(devices[k], "7", "", "");
        rig_result_t *other = SAME(devices[k], "8", "", "");
        ok(rig_same_bits(first, again), "%s: the same seed twice", devices[k]);
        ok(rig_distance(first, other) > 1e-3, "another seed");
        rig_result_free(first);
        rig_result_free(again);
        rig_result_free(other);
    }
}

static void bits_do_not_depend_on_timing(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_result_t *first = SAME(devices[k], "7", "", "");
        rig_result_t *others[] = {
            SAME(devices[k], "7", ", \"workers\": 2", ""),
            SAME(devices[k], "7", ", \"workers\": 3, \"prefetch\": 1", ""),
            SAME(devices[k], "7", ", \"prefetch\": 40", ""),
            SAME(devices[k], "7", "", ", \"depth\": 1"),
            SAME(devices[k], "7", ", \"prefetch\": 2", ", \"depth\": 5"),
            SAME(devices[k], "7", "", ", \"depth\": 16"),
        };
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            ok(rig_same_bits(first, others[i]), "%s: readers, prefetch, depth, %zu",
               devices[k], i);
            is_text(others[i]->metrics, first->metrics, "metrics too");
            rig_result_free(others[i]);
        }
        rig_result_free(first);
    }
}

static void slow_replays_change_no_bit(void)
{
    rig_result_t *first = SAME("fake", "7", "", "");
    rig_result_t *slow = fit(.module = DROPOUT, .optimizer = ADAMW,
                             .script = "replay of forward_backward takes 3 ms;"
                                       "replay 2 of optimizer_step takes 20 ms",
                             .data = "\"batch_size\": 6, \"val_split\": 0.2",
                             .trainer = "\"max_epochs\": 3, \"seed\": 7");
    ok(rig_same_bits(first, slow), "a device that takes its time");
    rig_result_free(first);
    rig_result_free(slow);
}

/* ---- How long ---- */

typedef struct received {
    int validated, epochs;
    double val_loss;
    uint64_t step, total;
} received_t;

static void keep_progress(rig_t *rig, const pl_progress_t *progress)
{
    received_t *received = rig_user(rig);
    pl_result_t as_result = {.metrics = progress->metrics};
    received->total = progress->total_steps;
    received->step = progress->global_step;
    received->epochs += !strcmp(progress->event, "epoch");
    if (strcmp(progress->event, "validated"))
        return;
    received->validated++;
    pl_result_metric(&as_result, "val_loss", &received->val_loss);
}

static void steps_and_epochs_have_limits(void)
{
    rig_result_t *result = fit(.data = "\"batch_size\": 8",
                               .trainer = "\"max_steps\": 7");
    is_int(result->global_step, 7, "max_steps ends within an epoch of 5 batches");
    rig_result_free(result);
    result = fit(.data = "\"batch_size\": 8", .trainer = "\"max_epochs\": 3");
    is_int(result->global_step, 15, "max_epochs after whole ones");
    is_int(result->epoch, 3, "which are counted");
    rig_result_free(result);
    result = fit(.data = "\"batch_size\": 8",
                 .trainer = "\"max_epochs\": 2, \"max_steps\": 100");
    is_int(result->global_step, 10, "the limit that comes first ends it");
    rig_result_free(result);
    result = fit(.data = "\"batch_size\": 8",
                 .trainer = "\"max_epochs\": 9, \"max_steps\": 3,"
                            "\"accumulate_grad_batches\": 3");
    is_int(result->global_step, 3, "steps are the optimizer's");
    rig_result_free(result);
    result = fit(.data = "\"batch_size\": 8", .trainer = "\"max_steps\": 5");
    is_int(result->epoch, 1, "as many steps as an epoch has are one epoch");
    rig_result_free(result);
}

static void limits_may_be_as_large_as_numbers_go(void)
{
    static const char *const parts[] = {"4294967295", "4294967296", "4294967297",
                                        "9223372036854775807"};
    for (int k = 0; k < 4; k++) {
        char trainer[96];
        snprintf(trainer, sizeof trainer,
                 "\"max_epochs\": 2, \"accumulate_grad_batches\": %s", parts[k]);
        rig_result_t *result = fit(.data = "\"batch_size\": 8", .trainer = trainer);
        is_int(result->global_step, 2, "%s batches to a step: one in each epoch",
               parts[k]);
        rig_result_free(result);
    }
    received_t received = {0};
    rig_result_t *result = fit(.data = "\"batch_size\": 9223372036854775807",
                               .on_progress = keep_progress, .user = &received,
                               .trainer = "\"max_epochs\": 9223372036854775807,"
                                          "\"val_check_interval\": 9223372036854775807,"
                                          "\"max_steps\": 3");
    is_int(result->global_step, 3, "a batch of all there is, one step to an epoch");
    is_int(received.total, 3, "and the limit that counts is reported");
    rig_result_free(result);
    pl_trainer_options_t options = {.max_epochs = INT64_MAX / 2 + 2,
                                    .max_steps = -1,
                                    .accumulate_grad_batches = 1};
    pl_batch_schedule_t schedule = {.options = &options, .accumulate = 1};
    is_int(pl_batch_schedule_begin(&schedule, 0, 0, 0, 4), 0,
           "more steps than can be counted are no limit");
}

static void epochs_can_be_cut_short(void)
{
    rig_result_t *result =
        fit(.data = "\"batch_size\": 8",
            .trainer = "\"max_epochs\": 2, \"limit_train_batches\": 3");
    is_int(result->global_step, 6, "a count of batches");
    rig_result_free(result);
    result = fit(.data = "\"batch_size\": 8",
                 .trainer = "\"max_epochs\": 2, \"limit_train_batches\": 0.5");
    is_int(result->global_step, 4, "a share of them, rounded down");
    rig_result_free(result);
    result = fit(.data = "\"batch_size\": 8",
                 .trainer = "\"max_epochs\": 2, \"limit_train_batches\": 100");
    is_int(result->global_step, 10, "no more than there are");
    rig_result_free(result);
}

static void epochs_of_no_batch_are_refused(void)
{
    rig_t *rig = rig_new(.trainer = "\"limit_train_batches\": 0.001");
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_EINVAL, "nothing to train on");
    like(result->error.text, "limit_train_batches", "the key is named");
    rig_free(&rig);
}

/* How many forward replays a validation of 20 samples by 4 makes: the first that the
 * script lets fail and is not reached. */
static int validation_batches(const char *trainer)
{
    int batches = 0;
    bool failed;
    do {
        char script[64];
        snprintf(script, sizeof script, "replay %d of forward fails", batches + 1);
        rig_t *rig = rig_new(.script = script, .trainer = trainer,
                             .data = "\"batch_size\": 4, \"val_split\": 0.5");
        failed = !strcmp(rig_fit(rig)->status, "failed");
        batches += failed;
        rig_free(&rig);
    } while (failed && batches < 10);
    return batches;
}

static void validations_can_be_cut_short(void)
{
    is_int(validation_batches("\"max_epochs\": 1"), 5, "all of 5 batches");
    is_int(validation_batches("\"max_epochs\": 1, \"limit_val_batches\": 2"), 2,
           "a count");
    is_int(validation_batches("\"max_epochs\": 1, \"limit_val_batches\": 0.6"), 3,
           "a share");
    is_int(validation_batches("\"max_epochs\": 1, \"limit_val_batches\": 0"), 0, "none");
}

/* ---- When it validates and logs ---- */

#define EIGHT "\"batch_size\": 4, \"val_split\": 0.2"       /* batches of 40 samples */

static void validations_come_at_their_interval(void)
{
    rig_result_t *result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 2");
    rig_steps_are(result, "val_loss", "8 16", "by default after each epoch");
    rig_result_free(result);
    result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 2,"
                                           "\"val_check_interval\": 0.5");
    rig_steps_are(result, "val_loss", "4 8 12 16", "after each half of one");
    rig_result_free(result);
    result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 2,"
                                           "\"val_check_interval\": 5");
    rig_steps_are(result, "val_loss", "5 13 16", "after 5 of an epoch, and at the end");
    rig_result_free(result);
    result = fit(.data = EIGHT, .trainer = "\"max_steps\": 11");
    rig_steps_are(result, "val_loss", "8 11", "and where a limit ends the run");
    rig_result_free(result);
    result = fit(.data = EIGHT,
                 .trainer = "\"max_steps\": 11, \"val_check_interval\": 0.5");
    rig_steps_are(result, "val_loss", "4 8 11",
                  "a limit does not make halves of an epoch smaller");
    is_int(result->epoch, 1, "nor an epoch whole");
    rig_result_free(result);
    result = fit(.data = EIGHT,
                 .trainer = "\"max_steps\": 11, \"val_check_interval\": 3");
    rig_steps_are(result, "val_loss", "3 6 11", "nor batches fewer");
    rig_result_free(result);
}

static void steps_are_logged_at_their_interval(void)
{
    rig_result_t *result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 2,"
                                                         "\"log_every_n_steps\": 3");
    rig_steps_are(result, "train_loss", "3 6 8 9 12 15 16",
                  "each third step, and each epoch");
    rig_steps_are(result, "train_acc", "8 16", "what is of an epoch with the epoch");
    rig_result_free(result);
}

static void a_logged_loss_is_the_mean_since_the_last(void)
{
    const char *still = "{\"name\": \"sgd\", \"lr\": 0}";
    rig_result_t *every = fit(.data = EIGHT, .optimizer = still,
                              .trainer = "\"max_epochs\": 1, \"log_every_n_steps\": 1");
    rig_result_t *third = fit(.data = EIGHT, .optimizer = still,
                              .trainer = "\"max_epochs\": 1, \"log_every_n_steps\": 3");
    rig_series_t a = rig_series(every, "train_loss"), b = rig_series(third, "train_loss");
    rig_series_t epoch = rig_series(third, "train_loss_epoch");
    is_near(b.value[0], (a.value[0] + a.value[1] + a.value[2]) / 3, 1e-6, "of 3 steps");
    is_near(b.value[2], (a.value[6] + a.value[7]) / 2, 1e-6, "at an epoch's end too");
    is_int(epoch.count, 1, "whose own mean has a name of its own");
    is_near(epoch.value[0], (3 * b.value[0] + 3 * b.value[1] + 2 * b.value[2]) / 8, 1e-6,
            "and is of all its steps");
    is_int(rig_series(every, "lr-sgd").count, 8, "a learning rate of 0 is one");
    rig_result_free(every);
    rig_result_free(third);
}

/* Of progress: the step, what it is, and its training loss. */
typedef struct reports {
    int count;
    uint64_t step[256];
    double loss[256];
} reports_t;

static void keep_loss(rig_t *rig, const pl_progress_t *progress)
{
    reports_t *reports = rig_user(rig);
    const pl_result_t as_result = {.metrics = progress->metrics};
    const int k = reports->count;
    if (k == 256 || !pl_result_metric(&as_result, "train_loss", &reports->loss[k]))
        return;
    reports->step[k] = progress->global_step;
    reports->count++;
}

/* Whether a loss is the mean of those of the steps from one that was reported before up
 * to this one; what the host had not read in time was replaced by a newer report. */
static bool is_mean_since(const rig_series_t *every, uint64_t before, uint64_t step,
                          double loss)
{
    double sum = 0;
    for (uint64_t k = step; k > before && k <= (uint64_t)every->count; k--) {
        sum += every->value[k - 1];
        if (fabs(sum / (double)(step - k + 1) - loss) < 1e-6)
            return true;
    }
    return false;
}

static void a_reported_loss_is_the_mean_since_the_report_before(void)
{
    static const char *const every[] = {"1000", "7", "1"};
    const char *still = "{\"name\": \"sgd\", \"lr\": 0}", *data = "\"batch_size\": 2";
    rig_result_t *one = fit(.data = data, .optimizer = still,
                            .trainer = "\"max_epochs\": 2, \"log_every_n_steps\": 1");
    const rig_series_t losses = rig_series(one, "train_loss");
    is_int(losses.count, 40, "the loss of each step is known");
    for (int k = 0; k < 3; k++) {
        reports_t reports = {0};
        char trainer[96];
        int wrong = 0;
        snprintf(trainer, sizeof trainer, "\"max_epochs\": 2, \"log_every_n_steps\": %s",
                 every[k]);
        rig_result_t *result = fit(.data = data, .optimizer = still, .trainer = trainer,
                                   .script = "replay of forward_backward takes 20 ms",
                                   .on_progress = keep_loss, .user = &reports);
        for (int r = 1; r < reports.count; r++)
            wrong += reports.step[r] > reports.step[r - 1]
                     && !is_mean_since(&losses, reports.step[r - 1], reports.step[r],
                                       reports.loss[r]);
        ok(reports.count > 3, "log_every_n_steps %s: %d reports", every[k],
           reports.count);
        is_int(wrong, 0, "have the mean of the steps since the one before");
        is_int(reports.step[reports.count - 1], 40, "the last of them too");
        const rig_series_t logged = rig_series(result, "train_loss");
        ok(k < 2 || !series_distance(&logged, &losses), "log lines keep their values");
        rig_result_free(result);
    }
    rig_result_free(one);
}

static void files_progress_and_result_agree(void)
{
    received_t received = {0};
    rig_result_t *result = fit(.data = EIGHT, .on_progress = keep_progress,
                               .user = &received, .trainer = "\"max_epochs\": 3");
    rig_series_t logged = rig_series(result, "val_loss");
    is_int(received.validated, 3, "each validation is reported");
    is_int(received.epochs, 3, "and each epoch");
    is_int(logged.count, 3, "and logged");
    is_int(received.total, 24, "the steps of the run are known");
    ok(logged.value[2] == rig_metric(result, "val_loss"),
       "the last logged is the result's");
    ok(received.val_loss == rig_metric(result, "val_loss"), "and the reported one");
    ok(rig_has_file(result, "model.safetensors"), "the weights are kept");
    ok(rig_has_file(result, "run.json"), "and the run");
    rig_result_free(result);
}

static void the_last_validation_is_one_like_others(void)
{
    received_t received = {0};
    rig_result_t *result = fit(.data = EIGHT, .on_progress = keep_progress,
                               .user = &received,
                               .trainer = "\"max_epochs\": 1, \"val_check_interval\": 5");
    is_int(received.validated, 2, "it is reported");
    ok(received.val_loss == rig_metric(result, "val_loss"), "with the result's metric");
    is_int(received.total, 8, "and the steps of the run");
    json_t *lines = rig_log(result),
           *last = json_array_get(lines, json_array_size(lines) - 1);
    ok(json_object_get(last, "val_loss") != NULL, "and logged");
    is_int(json_integer_value(json_object_get(last, "epoch")), 0, "in the only epoch");
    json_decref(lines);
    rig_result_free(result);
}

static void a_schedule_reaches_its_end(void)
{
    rig_result_t *result = fit(.data = "\"batch_size\": 7",
                               .scheduler = "{\"name\": \"linear\", \"warmup_steps\": 3}",
                               .trainer = "\"max_epochs\": 2, \"log_every_n_steps\": 1,"
                                          "\"accumulate_grad_batches\": 2");
    rig_series_t lr = rig_series(result, "lr-sgd");
    is_int(lr.count, 6, "6 steps");
    is_near(lr.value[0], 0.1 / 4, 1e-9, "it warms up");
    is_near(lr.value[3], 0.1, 1e-9, "to the whole");
    is_near(lr.value[5], 0.1 / 3, 1e-9, "and falls to the last of 3 steps");
    rig_result_free(result);
    result =
        fit(.data = "\"batch_size\": 8", .scheduler = "\"cosine\"",
            .trainer = "\"max_epochs\": 9, \"max_steps\": 8, \"log_every_n_steps\": 1");
    lr = rig_series(result, "lr-sgd");
    is_near(lr.value[7], 0.05 * (1 + cos(M_PI * 7 / 8)), 1e-9,
            "max_steps is the end where it comes first");
    rig_result_free(result);
}

/* ---- One run after the other ---- */

static void a_second_fit_starts_from_the_beginning(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 2");
    rig_result_t *first = rig_keep(rig_fit(rig));
    const rig_result_t *second = rig_fit(rig);
    is_text(second->status, "ok", "the same trainer fits again");
    ok(rig_same_bits(first, second), "to the same bits");
    ok(strcmp(first->run_dir, second->run_dir) != 0, "in a directory of its own");
    rig_result_free(first);
    rig_free(&rig);
}

static void a_fit_can_be_predicted_with(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_t *rig = rig_new(.accelerator = devices[k], .optimizer = ADAMW,
                             .data = "\"batch_size\": 7",
                             .trainer = "\"max_epochs\": 12");
        rig_result_t *fitted = rig_keep(rig_fit(rig));
        const rig_result_t *result = rig_predict(rig, fitted->run_dir);
        const rig_tensor_t *logits = rig_find(result->output, result->output_count,
                                              "logits");
        is_text(result->status, "ok", "%s: a prediction", devices[k]);
        if (ok(logits && logits->shape.dim[0] == 40 && logits->shape.dim[1] == 3,
               "a row of logits for each sample")) {
            int right = 0;
            for (int i = 0; i < 40; i++) {
                const float *row = logits->data + 3 * i;
                int best = row[1] > row[0];
                best = row[2] > row[best] ? 2 : best;
                right += best == i % 3;
            }
            ok(right >= 38, "in the data's order: %d of 40 are right", right);
        }
        rig_result_free(fitted);
        rig_free(&rig);
    }
}

static void predictions_can_be_cut_short(void)
{
    rig_t *rig = rig_new(.data = "\"batch_size\": 7",
                         .trainer = "\"max_steps\": 2, \"limit_predict_batches\": 2");
    char *weights = strdup(rig_fit(rig)->run_dir);
    const rig_result_t *result = rig_predict(rig, weights);
    is_int(result->output_count ? result->output[0].shape.dim[0] : 0, 14,
           "2 batches of 7");
    rig_free(&rig);
    free(weights);
}

/* ---- Outputs that are no float32 ---- */

static void chooser_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t x = pl_linear(g, "fc", pl_input(g, "x"), 3);
    pl_output(g, "class", pl_argmax(g, x, 1));
    if (stage != PL_PREDICT)
        pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
    pl_output(g, "logits", x);
}

static void parrot_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    chooser_step(g, self, stage);
    pl_output(g, "said", pl_input(g, "y"));
}

static const pl_module_ops_t chooser = {.name = "chooser",
                                        .size = 1,
                                        .step = chooser_step};
static const pl_module_ops_t parrot = {.name = "parrot", .size = 1, .step = parrot_step};

static void classes_may_be_predicted(void)
{
    for (int k = 0; k < DEVICES && rig_has(devices[k]); k++) {
        rig_t *rig = rig_new(.accelerator = devices[k], .module = "\"chooser\"",
                             .data = "\"batch_size\": 7", .trainer = "\"max_epochs\": 3");
        char *weights = strdup(rig_fit(rig)->run_dir);
        const rig_result_t *result = rig_predict(rig, weights);
        const rig_tensor_t *class = rig_find(result->output, result->output_count,
                                             "class");
        const rig_tensor_t *logits = rig_find(result->output, result->output_count,
                                              "logits");
        int right = 0;
        for (int i = 0; class && logits && i < 40; i++) {
            int best = (int)class->data[i] % 3;
            right += logits->data[3 * i + best] >= logits->data[3 * i + (best + 1) % 3]
                     && logits->data[3 * i + best]
                            >= logits->data[3 * i + (best + 2) % 3];
        }
        is_int(right, 40, "%s: int32 outputs come as numbers", devices[k]);
        rig_free(&rig);
        free(weights);
    }
}

static void outputs_of_other_types_are_refused(void)
{
    rig_t *rig = rig_new(.module = "\"parrot\"", .trainer = "\"max_steps\": 2");
    char *weights = strdup(rig_fit(rig)->run_dir);
    const rig_result_t *result = rig_predict(rig, weights);
    is_int(result->error.code, PL_EUNSUPPORTED, "an int64 output");
    like(result->error.text, "\"said\"", "is named");
    rig_free(&rig);
    free(weights);
}

/* ---- targets that are ignored ---- */

/* As torch.nn.functional.cross_entropy: the mean is over the others, as if those samples
 * were not there. */
static void ignored_targets_count_neither_in_the_loss_nor_in_the_accuracy(void)
{
    static const char *const module[] = {
        "{\"name\": \"mlp\", \"classes\": 3}", "{\"name\": \"mlp\", \"classes\": 3}",
        "{\"name\": \"mlp\", \"classes\": 3, \"ignore_index\": 7}"};
    static float x[3][40][RIG_FEATURES];
    static int64_t y[3][40];
    rig_result_t *result[3];
    int count[3] = {0};
    for (int i = 0; i < 40; i++)
        for (int k = 0; k < 3; k++)
            if (k || i % 4) {
                rig_sample(i, x[k][count[k]], &y[k][count[k]]);
                if (k && i % 4 == 0)
                    y[k][count[k]] = k == 1 ? -100 : 7;
                count[k]++;
            }
    for (int k = 0; k < 3; k++) {
        char name[24], dataset[200];
        snprintf(name, sizeof name, "ignored%d", k);
        snprintf(dataset, sizeof dataset,
                 "{\"name\": \"memory\", \"source\": \"%s\", \"batch_size\": 40, "
                 "\"shuffle\": false}",
                 name);
        const pl_arrays_t arrays = {.samples = count[k],
                                    .field_count = 2,
                                    .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                              {"y", PL_I64, {0, {0}}}},
                                    .data = {x[k], y[k]}};
        pl_memory_arrays(name, &arrays, NULL);
        result[k] = fit(.accelerator = "cpu", .module = module[k], .dataset = dataset,
                        .trainer = "\"max_epochs\": 10");
        is_text(result[k]->status, "ok", "%d samples: %s", count[k],
                result[k]->error.text);
    }
    for (int k = 1; k < 3; k++) {
        is_near(rig_metric(result[k], "train_loss"), rig_metric(result[0], "train_loss"),
                1e-6, "the same loss");
        is_near(rig_metric(result[k], "train_acc"), rig_metric(result[0], "train_acc"),
                1e-6, "the same accuracy");
        ok(rig_distance(result[0], result[k]) < 1e-5, "the same weights");
    }
    for (int k = 0; k < 3; k++)
        rig_result_free(result[k]);
}

static void ignored_y(int64_t y[20], bool all)
{
    for (int i = 0; i < 20; i++)
        y[i] = all || i % 2 ? -100 : i % 3;
}

static void a_run_whose_targets_are_all_ignored_warns(void)
{
    static float x[20][RIG_FEATURES];
    static int64_t y[20];
    for (int k = 0; k < 2; k++) {
        const pl_arrays_t arrays = {.samples = 20,
                                    .field_count = 2,
                                    .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                              {"y", PL_I64, {0, {0}}}},
                                    .data = {x, y}};
        ignored_y(y, k == 0);
        pl_memory_arrays("none", &arrays, NULL);
        rig_listen("epoch 2 changes no weight: the weight of its loss is 0");
        rig_result_t *result = fit(.accelerator = "cpu",
                                   .module = "{\"name\": \"mlp\", \"classes\": 3}",
                                   .dataset = "{\"name\": \"memory\", "
                                              "\"source\": \"none\", "
                                              "\"batch_size\": 5}",
                                   .trainer = "\"max_epochs\": 2");
        is_text(result->status, "ok", "it ends well: %s", result->error.text);
        is_int(rig_lines_received(), !k,
               k ? "no warning" : "a warning counts epochs from 1");
        rig_listen(NULL);
        rig_result_free(result);
    }
}

static void a_batch_larger_than_the_data_is_warned_of(void)
{
    static const struct {
        const char *data, *trainer;
        int warnings;
    } want[] = {{"\"batch_size\": 40", "\"max_epochs\": 1", 0},
                {"\"batch_size\": 41", "\"max_epochs\": 1", 1},
                {"\"batch_size\": 33, \"val_split\": 0.2", "\"max_epochs\": 1", 1},
                {"\"batch_size\": 21", "\"max_epochs\": 1, \"devices\": 2", 1},
                {"\"batch_size\": 20", "\"max_epochs\": 1, \"devices\": 2", 0}};
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        rig_listen("training samples: an epoch is one step");
        rig_result_t *result = fit(.data = want[k].data, .trainer = want[k].trainer);
        is_text(result->status, "ok", "%s: %s", want[k].data, result->error.text);
        is_int(rig_lines_received(), want[k].warnings, "%d warnings", want[k].warnings);
        rig_listen(NULL);
        rig_result_free(result);
    }
    rig_listen("data.batch_size is 41, more than the 40 training samples");
    rig_result_free(fit(.data = "\"batch_size\": 41", .trainer = "\"max_epochs\": 1"));
    is_int(rig_lines_received(), 1, "the warning counts no ranks where there is one");
    rig_listen("data.batch_size is 4 for each of 12 micro-shards, more than the 40 ");
    rig_result_t *result = fit(.data = "\"batch_size\": 4",
                               .trainer = "\"max_epochs\": 1, \"strategy\": {\"name\": "
                                          "\"elastic\", \"micro_shards\": 12}");
    is_text(result->status, "ok", "elastic: %s", result->error.text);
    is_int(rig_lines_received(), 1, "the warning counts micro-shards");
    rig_listen(NULL);
    rig_result_free(result);
}

/* ---- the last batch ---- */

static void normed_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_batch_norm(g, "norm", pl_linear(g, "in", pl_input(g, "x"), 4), 0.1,
                                1e-5);
    pl_loss(g, pl_cross_entropy(g, pl_linear(g, "out", x, 3), pl_input(g, "y"), NULL));
}

static const pl_module_ops_t normed = {.name = "normed", .size = 1, .step = normed_step};

/* 41 samples in batches of 8: the last has one, of which a batch norm has no variance. */
static rig_result_t *fit_normed(const char *data, const char *trainer)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .module = "\"normed\"", .samples = 41,
                         .data = data, .trainer = trainer);
    rig_result_t *result = rig_keep(rig_fit(rig));
    rig_free(&rig);
    return result;
}

static void the_last_batch_may_be_left_out(void)
{
    static const struct {
        const char *data, *trainer;
        int steps;
    } want[] = {
        {"\"batch_size\": 8, \"drop_last\": true", "\"max_epochs\": 2", 10},
        {"\"batch_size\": 8, \"drop_last\": true", "\"max_epochs\": 2, \"devices\": 2",
         4},
        {"\"batch_size\": 8", "\"max_epochs\": 2, \"limit_train_batches\": 5", 10},
        {"\"batch_size\": 8", "\"max_epochs\": 2, \"limit_train_batches\": 0.9", 10},
        {"\"batch_size\": 41, \"drop_last\": true", "\"max_epochs\": 2", 2},
    };
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        rig_result_t *result = fit_normed(want[k].data, want[k].trainer);
        is_text(result->status, "ok", "%s, %s: %s", want[k].data, want[k].trainer,
                result->error.text);
        is_int(result->global_step, want[k].steps, "%d steps", want[k].steps);
        rig_result_free(result);
    }
    rig_result_t *result = fit_normed("\"batch_size\": 8", "\"max_epochs\": 2");
    like(result->error.text, "batch_norm.*data.drop_last", "the error names the option");
    rig_result_free(result);
    result = fit_normed("\"batch_size\": 42, \"drop_last\": true", "\"max_epochs\": 2");
    like(result->error.text,
         "data.drop_last leaves no batch: the training data has 41 samples",
         "a batch that the data does not fill is an error: %s", result->error.text);
    rig_result_free(result);
}

static void validation_has_its_last_batch_in_any_case(void)
{
    double loss[2];
    for (int k = 0; k < 2; k++) {
        rig_result_t *result = fit(.accelerator = "cpu", .samples = 45,
                                   .optimizer = "{\"name\": \"sgd\", \"lr\": 0}",
                                   .data = k ? "\"batch_size\": 4, \"val_split\": 0.2, "
                                               "\"drop_last\": true"
                                             : "\"batch_size\": 9, \"val_split\": 0.2",
                                   .trainer = "\"max_epochs\": 1");
        loss[k] = rig_metric(result, "val_loss");
        rig_result_free(result);
    }
    is_near(loss[1], loss[0], 1e-6, "nine samples in batches of four");
}

int main(void)
{
    static const pl_registration_t components[] = {{"module", &chooser},
                                                   {"module", &parrot},
                                                   {"module", &normed},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(devices_train_alike);
    run(ignored_targets_count_neither_in_the_loss_nor_in_the_accuracy);
    run(a_run_whose_targets_are_all_ignored_warns);
    run(a_batch_larger_than_the_data_is_warned_of);
    run(the_last_batch_may_be_left_out);
    run(validation_has_its_last_batch_in_any_case);
    run(a_batch_may_be_accumulated);
    run(a_ragged_batch_weighs_what_it_holds);
    run(the_last_incomplete_accumulation_steps);
    run(a_gradient_is_clipped_by_its_norm);
    run(a_gradient_is_clipped_by_its_elements);
    run(bits_depend_on_the_seed_alone);
    run(bits_do_not_depend_on_timing);
    run(slow_replays_change_no_bit);
    run(steps_and_epochs_have_limits);
    run(limits_may_be_as_large_as_numbers_go);
    run(epochs_can_be_cut_short);
    run(epochs_of_no_batch_are_refused);
    run(validations_can_be_cut_short);
    run(validations_come_at_their_interval);
    run(steps_are_logged_at_their_interval);
    run(a_logged_loss_is_the_mean_since_the_last);
    run(a_reported_loss_is_the_mean_since_the_report_before);
    run(files_progress_and_result_agree);
    run(the_last_validation_is_one_like_others);
    run(a_schedule_reaches_its_end);
    run(a_second_fit_starts_from_the_beginning);
    run(a_fit_can_be_predicted_with);
    run(predictions_can_be_cut_short);
    run(classes_may_be_predicted);
    run(outputs_of_other_types_are_refused);
    return tap_done();
}
