/* run_options.c - tests of trainer options: what each changes of a run, and what is
 * refused */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "runtime/actor.h"
#include "tap.h"

#define EIGHT "\"batch_size\": 4, \"val_split\": 0.2"       /* batches of 40 samples */

/* One run in an engine of its own; the result is the caller's. */
#define fit(...) fit_once(&(rig_spec_t){__VA_ARGS__})

static rig_result_t *fit_once(const rig_spec_t *spec)
{
    rig_t *rig = rig_make(spec);
    rig_result_t *result = rig ? rig_keep(rig_fit(rig)) : calloc(1, sizeof *result);
    if (!rig)
        ok(false, "the run is taken: %s", rig_error.text);
    rig_free(&rig);
    return result;
}

static void refused(const char *trainer, const char *why)
{
    char text[512];
    pl_error_t err = {0};
    snprintf(text, sizeof text, "{\"trainer\": {%s}}", trainer);
    pl_options_t *o = pl_options_parse(text, "run.json", &err);
    int code = o ? pl_options_check(o, &err) : err.code;
    is_int(code, PL_EINVAL, "%s is refused", trainer);
    like(err.text, why, "and the error says why");
    pl_options_free(o);
}

/* ---- A callback that requests a stop ---- */

typedef struct quitter {
    int64_t step;
    const char *at;
} quitter_t;

static const pl_option_t quitter_options[] = {
    PL_INT(quitter_t, step, "1", "0..", "at or after which it requests the stop"),
    PL_TEXT(quitter_t, at, "\"step\"", "step|epoch|fit", "where"),
    PL_OPTIONS_END,
};

static int quitter_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                      pl_callback_request_t *request, pl_error_t *err)
{
    (void)err;
    const quitter_t *q = self;
    bool here = point == PL_HOOK_TRAIN_BATCH_END   ? !strcmp(q->at, "step")
                : point == PL_HOOK_TRAIN_EPOCH_END ? !strcmp(q->at, "epoch")
                                                   : !strcmp(q->at, "fit");
    request->stop = here && event->global_step >= (uint64_t)q->step;
    snprintf(request->reason, sizeof request->reason, "enough");
    return PL_OK;
}

static const pl_callback_ops_t quitter = {.name = "quitter",
                                          .size = sizeof(quitter_t),
                                          .options = quitter_options,
                                          .points = PL_AT(TRAIN_BATCH_END)
                                                    | PL_AT(TRAIN_EPOCH_END)
                                                    | PL_AT(FIT_START),
                                          .on = quitter_on};

/* ---- Least ---- */

static uint64_t steps_with(const char *callback, const char *trainer)
{
    rig_result_t *result = fit(.data = "\"batch_size\": 8", .callbacks = callback,
                               .trainer = trainer);
    uint64_t steps = result->global_step;
    is_text(result->status, "stopped", "%s %s: %s", callback, trainer,
            result->error.text);
    rig_result_free(result);
    return steps;
}

static void a_stop_request_waits_for_min_epochs_and_min_steps(void)
{
    static const char at_step[] = "[{\"name\": \"quitter\", \"step\": 2}]",
                      at_epoch[] = "[{\"name\": \"quitter\", \"at\": \"epoch\"}]",
                      at_once[] = "[{\"name\": \"quitter\", \"step\": 0, \"at\": "
                                  "\"fit\"}]";
    is_int(steps_with(at_step, "\"max_epochs\": 9"), 2, "where it is requested");
    is_int(steps_with(at_step, "\"max_epochs\": 9, \"min_steps\": 4"), 4,
           "at the least of steps, within an epoch");
    is_int(steps_with(at_step, "\"max_epochs\": 9, \"min_steps\": 4, \"depth\": 7"), 4,
           "whatever is under way");
    is_int(steps_with(at_step, "\"max_epochs\": 9, \"min_steps\": 7"), 7,
           "in a later one");
    is_int(steps_with(at_step, "\"max_epochs\": 9, \"min_epochs\": 2"), 10,
           "of epochs, whole ones");
    is_int(steps_with(at_step, "\"max_epochs\": 9, \"min_epochs\": 1, \"min_steps\": 12"),
           12, "or the later of both");
    is_int(steps_with(at_epoch, "\"max_epochs\": 9"), 5, "at an epoch's end");
    is_int(steps_with(at_epoch, "\"max_epochs\": 9, \"min_epochs\": 3"), 15, "likewise");
    is_int(steps_with(at_once, "\"max_epochs\": 9"), 0, "before there was one");
    is_int(steps_with(at_once, "\"max_epochs\": 9, \"min_steps\": 3"), 3, "likewise");
}

static void stop_it(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->global_step)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void a_stop_from_outside_does_not_wait(void)
{
    rig_result_t *result = fit(.on_progress = stop_it,
                               .trainer = "\"max_steps\": 1000000000, \"min_steps\": "
                                          "1000000000");
    is_text(result->status, "stopped", "it ends");
    rig_result_free(result);
}

static void a_stop_waits_for_an_accumulated_step(void)
{
    rig_result_t *stopped = fit(.data = "\"batch_size\": 1", .on_progress = stop_it,
                                .script = "replay of forward_backward takes 5 ms",
                                .trainer = "\"max_epochs\": 99, \"depth\": 1,"
                                           "\"accumulate_grad_batches\": 8");
    char trainer[96];
    snprintf(trainer, sizeof trainer, "\"max_steps\": %d, \"accumulate_grad_batches\": 8",
             (int)stopped->global_step);
    rig_result_t *whole = fit(.data = "\"batch_size\": 1", .trainer = trainer);
    is_text(stopped->status, "stopped", "it ends early");
    ok(rig_same_bits(stopped, whole), "with whole steps alone, %d of them",
       (int)stopped->global_step);
    rig_result_free(stopped);
    rig_result_free(whole);
}

static void minimum_and_maximum_must_agree(void)
{
    refused("\"max_epochs\": 2, \"min_epochs\": 3", "run.json:1:45: .*min_epochs.* is 3");
    refused("\"max_steps\": 2, \"min_steps\": 3",
            "min_steps.* is 3, more than .*max_steps.* is 2");
    refused("\"min_epochs\": -1", "min_epochs.* takes an integer from 0 up");
    refused("\"min_steps\": \"few\"", "takes an integer");
}

/* ---- Time ---- */

static void a_run_ends_when_its_time_is_over(void)
{
    rig_result_t *result = fit(.trainer = "\"max_time\": \"00:00:00:01\"");
    is_text(result->status, "stopped", "without another limit: %s", result->error.text);
    ok(result->seconds >= 1 && result->seconds < 10, "after that time: %g s",
       result->seconds);
    ok(result->global_step > 0, "having trained");
    rig_result_free(result);
    result = fit(.trainer = "\"max_time\": \"1:00:00\", \"max_steps\": 3");
    is_int(result->global_step, 3, "or at another limit that comes first");
    is_text(result->status, "ok", "which is its end");
    rig_result_free(result);
}

static void times_are_checked(void)
{
    refused("\"max_time\": \"soon\"",
            "run.json:1:26: .*max_time.*\"soon\" is not a time");
    refused("\"max_time\": 5", "max_time.* takes text");
    refused("\"max_time\": \"1:00\", \"deterministic\": true",
            "ends the run by the clock");
    refused("\"val_check_interval\": \"1:00\", \"deterministic\": true",
            "is a time, and .*deterministic");
    refused("\"val_check_interval\": \"often\"", "is not a time");
}

/* ---- Validation ---- */

static void validations_come_in_each_nth_epoch(void)
{
    rig_result_t *result = fit(.data = EIGHT,
                               .trainer = "\"max_epochs\": 5,"
                                          "\"check_val_every_n_epoch\": 2");
    rig_steps_are(result, "val_loss", "16 32 40", "each second, and at the end");
    rig_result_free(result);
    result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 3, \"val_check_interval\": 4,"
                                           "\"check_val_every_n_epoch\": 2");
    rig_steps_are(result, "val_loss", "12 16 24",
                  "there at the same batches as in other epochs");
    rig_result_free(result);
}

static void batches_count_within_an_epoch_or_across(void)
{
    rig_result_t *result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 2,"
                                                         "\"val_check_interval\": 3");
    rig_steps_are(result, "val_loss", "3 6 11 14 16", "within");
    rig_result_free(result);
    result = fit(.data = EIGHT,
                 .trainer = "\"max_epochs\": 4, \"val_check_interval\": 10,"
                            "\"check_val_every_n_epoch\": 0");
    rig_steps_are(result, "val_loss", "10 20 30 32", "across");
    rig_result_free(result);
    result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 2,"
                                           "\"val_check_interval\": 9");
    is_int(result->error.code, PL_EINVAL, "more than there are would never come");
    like(result->error.text, "9, but an epoch has 8 batches: .*check_val_every_n_epoch",
         "which is reported");
    rig_result_free(result);
    refused("\"check_val_every_n_epoch\": 0", "give .*val_check_interval.* as a count");
    refused("\"check_val_every_n_epoch\": -1", "from 0 up");
}

static void validations_may_come_at_an_interval_of_time(void)
{
    rig_result_t *result = fit(.data = EIGHT,
                               .script = "replay of optimizer_step takes 100 ms",
                               .trainer = "\"max_steps\": 32,"
                                          "\"val_check_interval\": \"00:00:00:01\"");
    rig_series_t losses = rig_series(result, "val_loss");
    ok(losses.count >= 2 && losses.count < 10, "each second of three or more: %d",
       losses.count);
    ok(losses.step[0] >= 2 && losses.step[0] < 32, "at a step like others: %g",
       losses.step[0]);
    rig_result_t *plain = fit(.data = EIGHT, .trainer = "\"max_steps\": 32");
    ok(rig_same_bits(result, plain), "and changes nothing");
    rig_result_free(result);
    rig_result_free(plain);
}

static void some_batches_are_validated_before_training(void)
{
    rig_result_t *result = fit(.data = EIGHT, .script = "replay 1 of forward fails",
                               .trainer = "\"max_epochs\": 1, "
                                          "\"num_sanity_val_steps\": 2");
    is_text(result->status, "failed", "what cannot be validated is found");
    is_int(result->global_step, 0, "before a step is made");
    rig_result_free(result);
    result = fit(.data = EIGHT, .script = "replay 3 of forward fails",
                 .trainer = "\"max_epochs\": 1, \"num_sanity_val_steps\": 2");
    is_int(result->global_step, 8, "two batches and no more");
    rig_result_free(result);
    rig_result_t *plain = fit(.data = EIGHT, .trainer = "\"max_epochs\": 2");
    result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 2, "
                                           "\"num_sanity_val_steps\": -1");
    ok(rig_same_bits(result, plain), "it changes no bit");
    rig_steps_are(result, "val_loss", "8 16", "and is not logged");
    rig_result_free(plain);
    rig_result_free(result);
    refused("\"num_sanity_val_steps\": -2", "from -1 up");
}

/* ---- Few batches ---- */

static void a_run_may_overfit_some_batches(void)
{
    rig_result_t *result = fit(.data = EIGHT, .stream = true,
                               .trainer = "\"max_epochs\": 3, \"overfit_batches\": 2");
    is_int(result->global_step, 6, "as many in each epoch");
    rig_result_t *ordered = fit(.data = EIGHT ", \"shuffle\": false",
                                .trainer = "\"max_epochs\": 3, "
                                           "\"limit_train_batches\": 2, "
                                           "\"limit_val_batches\": 2");
    ok(rig_same_bits(result, ordered), "always the same ones");
    is_text(result->metrics, ordered->metrics, "validated on as many");
    rig_result_free(result);
    rig_result_free(ordered);
    result = fit(.data = EIGHT, .trainer = "\"max_epochs\": 1, \"overfit_batches\": 0.5");
    is_int(result->global_step, 4, "or a share of them");
    rig_result_free(result);
    refused("\"overfit_batches\": 1.5", "share up to 1.0");
    refused("\"overfit_batches\": -1", "share up to 1.0 or a whole count");
}

static void a_fast_run_tries_everything_and_keeps_nothing(void)
{
    rig_result_t *result = fit(.data = EIGHT, .trainer = "\"fast_dev_run\": true");
    is_text(result->status, "ok", "it goes well: %s", result->error.text);
    is_int(result->global_step, 1, "a step");
    ok(isfinite(rig_metric(result, "val_loss")), "and a validation");
    is_text(result->run_dir, "", "and there is no directory");
    rig_result_free(result);
    result = fit(.data = EIGHT, .trainer = "\"fast_dev_run\": 3, \"max_epochs\": 9");
    is_int(result->global_step, 3, "or as many as are given");
    rig_result_free(result);
    result = fit(.data = EIGHT, .trainer = "\"fast_dev_run\": false, \"max_epochs\": 1");
    is_int(result->global_step, 8, "false is none");
    ok(*result->run_dir, "and keeps all");
    rig_result_free(result);
    refused("\"fast_dev_run\": -1", "from 0 up");
    refused("\"fast_dev_run\": \"yes\"", "takes an integer");
}

/* ---- What is not finite ---- */

static void steps_that_are_not_finite_may_be_skipped(void)
{
    rig_result_t *stopped = fit(.nan = 5, .data = "\"batch_size\": 8",
                                .trainer = "\"max_epochs\": 2");
    is_int(stopped->error.code, PL_ENAN, "by default such a step ends the run");
    rig_result_free(stopped);
    static const char *const depths[] = {"1", "4", "16"};
    rig_result_t *first = NULL;
    for (int k = 0; k < 3; k++) {
        char trainer[128];
        snprintf(trainer, sizeof trainer,
                 "\"max_epochs\": 2, \"nan_policy\": \"skip\", \"log_every_n_steps\": 1, "
                 "\"depth\": %s",
                 depths[k]);
        rig_result_t *result = fit(.nan = 5, .data = "\"batch_size\": 8",
                                   .trainer = trainer);
        is_text(result->status, "ok", "it continues: %s", result->error.text);
        is_int(result->global_step, 10, "the step counts");
        is_near(rig_metric(result, "skipped_steps"), 2, 0,
                "one in each epoch is reported");
        ok(isfinite(rig_metric(result, "train_loss_epoch")), "metrics leave it out");
        if (first)
            ok(rig_same_bits(first, result), "whatever is under way");
        else
            first = rig_keep(result);
        rig_result_free(result);
    }
    rig_result_free(first);
    refused("\"nan_policy\": \"pray\"", "takes stop|skip|rollback");
}

static void repeated_skips_have_a_limit(void)
{
    rig_result_t *result = fit(.nan = 5, .data = "\"batch_size\": 40",
                               .trainer = "\"max_epochs\": 50, \"nan_policy\": "
                                          "\"skip\", \"nan_limit\": 3");
    is_int(result->error.code, PL_ENAN, "every step is bad: no endless run");
    like(result->error.text, "step 3: .*steps skipped before it .*: 2, .*nan_limit",
         "it says why");
    rig_result_free(result);
}

/* ---- Going back ---- */

#define BACK "\"nan_policy\": \"rollback\", \"log_every_n_steps\": 1"

/* A step that is passed over after a rollback leaves as little as one that is skipped. */
static void a_run_that_went_back_is_one_that_skipped(const char *callbacks,
                                                     const char *data, const char *more)
{
    char trainer[256];
    if (!rig_has("cpu"))                            /* the fake one rounds what it kept */
        return;
    snprintf(trainer, sizeof trainer, "\"nan_policy\": \"skip\", %s", more);
    rig_result_t *skipped = fit(.accelerator = "cpu", .nan = 5, .data = data,
                                .trainer = trainer, .callbacks = callbacks);
    snprintf(trainer, sizeof trainer, BACK ", %s", more);
    rig_result_t *back = fit(.accelerator = "cpu", .nan = 5, .data = data,
                             .trainer = trainer, .callbacks = callbacks);
    is_text(back->status, "ok", "it continues: %s", back->error.text);
    is_int(back->global_step, skipped->global_step, "as many steps");
    ok(rig_same_bits(back, skipped), "the same weights");
    is_near(rig_metric(back, "rollbacks"), 2, 0, "one in each epoch is reported");
    is_near(rig_metric(back, "skipped_steps"), 2, 0, "and what was passed over");
    if (!strstr(more, "accumulate"))                /* parts of a step that were finite */
        is_near(rig_metric(back, "train_loss_epoch"),
                rig_metric(skipped, "train_loss_epoch"), 0, "metrics are the same");
    ok(!rig_has_file(back, "checkpoints/start"),
       "the first checkpoint goes with the next");
    rig_result_free(skipped);
    rig_result_free(back);
}

static void a_run_goes_back_to_its_newest_checkpoint(void)
{
    a_run_that_went_back_is_one_that_skipped("[{\"name\": \"model_checkpoint\"}]",
                                             "\"batch_size\": 8", "\"max_epochs\": 2");
    a_run_that_went_back_is_one_that_skipped(
        "[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 1}]",
        "\"batch_size\": 8", "\"max_epochs\": 2, \"depth\": 4");
}

static rig_series_t rollbacks_after(const char *callbacks)
{
    rig_result_t *result = fit(.accelerator = "cpu", .nan = 5, .callbacks = callbacks,
                               .data = "\"batch_size\": 8",
                               .trainer = "\"max_epochs\": 2, " BACK);
    rig_series_t series = rig_series(result, "rollbacks");
    rig_result_free(result);
    return series;
}

static void a_rollback_is_reported_at_the_step_that_failed(void)
{
    rig_series_t far = rollbacks_after(NULL),
                 near = rollbacks_after("[{\"name\": \"model_checkpoint\", "
                                        "\"every_n_train_steps\": 1}]");
    is_int(far.count, 2, "one in each epoch");
    is_int(near.count, 2, "after each rollback");
    for (int k = 0; k < 2; k++) {
        is_near(near.step[k], far.step[k], 0, "at the same step");
        is_near(near.value[k], k + 1, 0, "with its number");
    }
}

static void without_a_checkpoint_a_rollback_goes_to_the_start(void)
{
    a_run_that_went_back_is_one_that_skipped(NULL, "\"batch_size\": 8",
                                             "\"max_epochs\": 2");
}

static void a_range_skips_an_accumulated_step_as_a_whole(void)
{
    a_run_that_went_back_is_one_that_skipped(
        NULL, "\"batch_size\": 2", "\"max_epochs\": 2, \"accumulate_grad_batches\": 4");
}

static void rollbacks_have_a_limit(void)
{
    rig_result_t *result = fit(.nan = 5, .data = "\"batch_size\": 40",
                               .trainer = "\"max_epochs\": 50, \"nan_limit\": 3, " BACK);
    is_int(result->error.code, PL_ENAN, "every step is bad: no endless run");
    like(result->error.text, "went back 3 times.*nan_limit.*step 4", "it says why");
    rig_result_free(result);
    refused("\"enable_checkpointing\": false, " BACK, "no checkpoint to resume");
}

static void an_accumulated_step_is_skipped_as_a_whole(void)
{
    rig_result_t *result = fit(.nan = 3, .data = "\"batch_size\": 2, \"shuffle\": false",
                               .trainer = "\"max_epochs\": 1, \"nan_policy\": \"skip\", "
                                          "\"accumulate_grad_batches\": 4");
    is_text(result->status, "ok", "it continues: %s", result->error.text);
    is_near(rig_metric(result, "skipped_steps"), 1, 0, "one of five steps");
    ok(isfinite(rig_metric(result, "train_loss_epoch")), "metrics leave it out");
    for (int k = 0; k < result->weight_count; k++)
        ok(isfinite(result->weight[k].data[0]), "and weights stay finite");
    rig_result_free(result);
}

/* ---- Splits ---- */

static void a_split_follows_the_seed(void)
{
    rig_result_t *result[3];
    static const char *const seeds[] = {"1", "1", "2"};
    for (int k = 0; k < 3; k++) {
        char trainer[64];
        snprintf(trainer, sizeof trainer, "\"max_epochs\": 1, \"seed\": %s", seeds[k]);
        result[k] = fit(.data = EIGHT, .trainer = trainer,
                        .module = "{\"name\": \"still\"}");
    }
    ok(rig_metric(result[0], "val_loss") == rig_metric(result[1], "val_loss"),
       "the same seed validates on the same samples");
    ok(rig_metric(result[0], "val_loss") != rig_metric(result[2], "val_loss"),
       "another on others: the module has nothing else that depends on it");
    for (int k = 0; k < 3; k++)
        rig_result_free(result[k]);
}

/* A module whose loss is of the samples alone: its parameter starts at 0 and has no
 * gradient. */
static void still_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_input(g, "x");
    pl_node_t w = pl_param(g, "w", pl_shape(1, 6), pl_zeros());
    pl_output(g, "x", x);
    pl_loss(g, pl_mse(g, x, pl_mul(g, pl_mul(g, x, w), pl_scalar(g, 0))));
}

static const pl_module_ops_t still = {.name = "still", .size = 1, .step = still_step};

int main(void)
{
    static const pl_registration_t components[] = {{"callback", &quitter},
                                                   {"module", &still},
                                                   PL_REGISTRATIONS_END};
    rig_init(components);
    run(a_stop_request_waits_for_min_epochs_and_min_steps);
    run(a_stop_from_outside_does_not_wait);
    run(a_stop_waits_for_an_accumulated_step);
    run(minimum_and_maximum_must_agree);
    run(a_run_ends_when_its_time_is_over);
    run(times_are_checked);
    run(validations_come_in_each_nth_epoch);
    run(batches_count_within_an_epoch_or_across);
    run(validations_may_come_at_an_interval_of_time);
    run(some_batches_are_validated_before_training);
    run(a_run_may_overfit_some_batches);
    run(a_fast_run_tries_everything_and_keeps_nothing);
    run(steps_that_are_not_finite_may_be_skipped);
    run(an_accumulated_step_is_skipped_as_a_whole);
    run(repeated_skips_have_a_limit);
    run(a_run_goes_back_to_its_newest_checkpoint);
    run(a_rollback_is_reported_at_the_step_that_failed);
    run(without_a_checkpoint_a_rollback_goes_to_the_start);
    run(a_range_skips_an_accumulated_step_as_a_whole);
    run(rollbacks_have_a_limit);
    run(a_split_follows_the_seed);
    return tap_done();
}
