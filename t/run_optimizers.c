/* run_optimizers.c - tests of optimizers and schedules in whole runs */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

#define BATCHES .data = "\"batch_size\": 10"
#define fit(...) \
    fit_once(&(rig_spec_t){.trainer = "\"max_epochs\": 4, \"log_every_n_steps\": 1", \
                           __VA_ARGS__})

/* For rig_result_free(). */
static rig_result_t *fit_once(const rig_spec_t *spec)
{
    rig_t *rig = rig_make(spec);
    rig_result_t *result = rig_keep(rig_fit(rig));
    rig_free(&rig);
    return result;
}

/* The learning rates of 16 steps, 4 to an epoch, must be `first` times these. */
static void check_rates(const rig_result_t *result, double first, const double want[4],
                        const char *sentence)
{
    rig_series_t lr = rig_series(result, "lr-sgd");
    bool same = lr.count == 16;
    for (int k = 0; k < 16 && same; k++)
        same = lr.value[k] > first * want[k / 4] * (1 - 1e-9)
               && lr.value[k] < first * want[k / 4] * (1 + 1e-9);
    if (!ok(same, "%s", sentence))
        tap_diag("%d: %g %g %g %g", lr.count, lr.value[0], lr.value[4], lr.value[8],
                 lr.value[12]);
}

static void rates_of_groups_are_logged(void)
{
    rig_result_t *result =
        fit(BATCHES,
            .optimizer = "{\"name\": \"sgd\", \"lr\": 0.1, \"groups\": [{\"match\": "
                         "\"*.bias\", \"lr\": 0.2}, {\"match\": \"*\", \"lr\": "
                         "0.4}]}",
            .scheduler =
                "{\"name\": \"multi_step\", \"milestones\": [1, 3], \"gamma\": 0.5}");
    rig_series_t one = rig_series(result, "lr-sgd/pg1"),
                 two = rig_series(result, "lr-sgd/pg2");
    check_rates(result, 0.1, (double[]){1, 0.5, 0.5, 0.25}, "the optimizer's own");
    ok(one.count == 16 && two.count == 16, "and those of both groups");
    is_near(one.value[0], 0.2, 1e-9, "the first's");
    is_near(two.value[0], 0.4, 1e-9, "the second's");
    is_near(two.value[15], 0.1, 1e-9, "which follow the schedule");
    rig_result_free(result);
}

static void a_schedule_may_count_epochs(void)
{
    rig_result_t *result =
        fit(BATCHES,
            .scheduler =
                "{\"name\": \"multi_step\", \"milestones\": [1, 3], \"gamma\": 0.5}");
    check_rates(result, 0.1, (double[]){1, 0.5, 0.5, 0.25}, "at the given ones");
    rig_result_free(result);
    result = fit(BATCHES, .scheduler = "{\"name\": \"linear\", \"interval\": \"epoch\"}");
    check_rates(result, 0.1, (double[]){1, 0.75, 0.5, 0.25}, "up to the last");
    rig_result_free(result);
}

/* No metric is ever so much better. */
#define PLATEAU(more) \
    "{\"name\": \"reduce_on_plateau\", \"factor\": 0.5, \"patience\": 0, " \
    "\"threshold\": 0.99" more "}"

static void a_plateau_lowers_the_rate_after_a_validation(void)
{
    rig_result_t *result = fit(.scheduler = PLATEAU(""), .samples = 50,
                               .data = "\"batch_size\": 10, \"val_split\": 0.2");
    check_rates(result, 0.1, (double[]){1, 1, 0.5, 0.25}, "from the second on");
    rig_result_free(result);
}

static void without_validation_a_plateau_counts_epochs(void)
{
    rig_result_t *result = fit(BATCHES,
                               .scheduler = PLATEAU(", \"monitor\": \"train_loss\""));
    check_rates(result, 0.1, (double[]){1, 1, 0.5, 0.25}, "and their metrics");
    rig_result_free(result);
}

static void a_plateau_of_an_unknown_metric_fails_the_run(void)
{
    rig_result_t *result = fit(BATCHES,
                               .scheduler = PLATEAU(", \"monitor\": \"train_los\""));
    is_int((int)result->global_step, 0, "before the first step");
    like(result->error.text, "no metric \"train_los\", did you mean \"train_loss\"",
         "and says which there are");
    rig_result_free(result);
    result = fit(.scheduler = PLATEAU(", \"monitor\": \"loss\""), .samples = 50,
                 .data = "\"batch_size\": 10, \"val_split\": 0.2");
    is_text(result->status, "failed", "with validations as well");
    like(result->error.text, "no metric \"loss\"; the metrics are: val_loss, ",
         "which are among them");
    rig_result_free(result);
}

static void a_plateau_of_a_validation_that_never_comes_is_refused(void)
{
    rig_result_t *result = fit(BATCHES, .scheduler = PLATEAU(""));
    is_int(result->error.code, PL_EINVAL, "there is no validation data");
    is_int((int)result->global_step, 0, "and that is found before the first step");
    like(result->error.text, "\"val_loss\", and the run has no validation data: set",
         "and said");
    rig_result_free(result);
}

static void a_cycle_moves_the_momentum(void)
{
#define CYCLE(more) "{\"name\": \"one_cycle\"" more "}"
#define NO_MOMENTUM ", \"cycle_momentum\": false"
#define SAME(momentum) ", \"base_momentum\": " momentum ", \"max_momentum\": " momentum
    rig_result_t *cycle = fit(BATCHES, .scheduler = CYCLE("")),
                 *same = fit(BATCHES, .scheduler = CYCLE(SAME("0.9"))),
                 *zero = fit(BATCHES, .scheduler = CYCLE(SAME("0"))),
                 *none = fit(BATCHES, .scheduler = CYCLE(NO_MOMENTUM)),
                 *option = fit(BATCHES, .scheduler = CYCLE(NO_MOMENTUM),
                               .optimizer = "{\"name\": \"sgd\", \"lr\": 0.1, "
                                            "\"momentum\": 0.9}");
    ok(rig_distance(cycle, none) > 1e-3 && rig_distance(cycle, same) > 1e-3,
       "from step to step");
    ok(rig_distance(zero, none) < 1e-6, "of 0 it is none");
    ok(rig_distance(same, option) < 1e-6, "and a constant one is the option's");
    rig_result_free(cycle);
    rig_result_free(same);
    rig_result_free(zero);
    rig_result_free(none);
    rig_result_free(option);
    cycle = fit(BATCHES, .scheduler = CYCLE(""), .optimizer = "{\"name\": \"adagrad\"}");
    like(cycle->error.text, "optimizer \"adagrad\" has none: set", "%s",
         cycle->error.text);
    rig_result_free(cycle);
}

/* ---- Momentum and weight decay ---- */

static void momentum_and_weight_decay_follow_schedules(void)
{
#define DECAYS \
    "{\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.8, " \
    "\"weight_decay\": 0.1, \"groups\": [{\"match\": \"*.bias\", " \
    "\"weight_decay\": 0}]}"
#define RAMP(from, to) \
    "{\"name\": \"ramp\", \"start_factor\": " from ", \"end_factor\": " to \
    ", \"length\": 8}"
    rig_result_t *both = fit(BATCHES, .optimizer = DECAYS,
                             .momentum_scheduler = RAMP("0.5", "1"),
                             .weight_decay_scheduler = RAMP("2", "0")),
                 *ones = fit(BATCHES, .optimizer = DECAYS,
                             .momentum_scheduler = RAMP("1", "1"),
                             .weight_decay_scheduler = RAMP("1", "1")),
                 *none = fit(BATCHES, .optimizer = DECAYS);
    rig_series_t momentum = rig_series(both, "momentum-sgd"),
                 decay = rig_series(both, "weight_decay-sgd"),
                 of_group = rig_series(both, "weight_decay-sgd/pg1");
    is_int(momentum.count, 16, "the momentum is logged");
    is_near(momentum.value[0], 0.4, 1e-9, "from its first");
    is_near(momentum.value[4], 0.6, 1e-9, "to the middle");
    is_near(momentum.value[15], 0.8, 1e-9, "and the last");
    is_near(decay.value[4], 0.1, 1e-9, "and so is the weight decay");
    is_near(of_group.value[4], 0, 0, "of each group its own");
    ok(rig_distance(both, none) > 1e-3, "the weights follow");
    ok(rig_distance(ones, none) < 1e-6, "a factor of 1 changes nothing");
    rig_result_free(both);
    rig_result_free(ones);
    rig_result_free(none);
    both = fit(BATCHES, .optimizer = "\"adagrad\"", .momentum_scheduler = "\"constant\"");
    is_int(both->error.code, PL_EINVAL, "a schedule of a value that the optimizer lacks");
    like(both->error.text, "\"adagrad\" has no momentum", "%s", both->error.text);
    rig_result_free(both);
    both = fit(BATCHES, .optimizer = DECAYS, .momentum_scheduler = RAMP("1", "2"));
    is_text(both->status, "failed", "a momentum that leaves its range");
    like(both->error.text, "\"momentum\" of optimizer \"sgd\" to 1, .*below 1", "%s",
         both->error.text);
    rig_result_free(both);
}

/* ---- Averages ---- */

#define VALIDATED .samples = 50, .data = "\"batch_size\": 10, \"val_split\": 0.2"

static void an_average_does_not_change_training(void)
{
    rig_result_t *plain = fit(VALIDATED),
                 *averaged = fit(VALIDATED,
                                 .averaging = "{\"name\": \"ema\", \"decay\": 0.9}");
    ok(rig_metric(averaged, "train_loss") == rig_metric(plain, "train_loss"),
       "the losses are the same");
    ok(rig_metric(averaged, "val_loss") != rig_metric(plain, "val_loss"),
       "but it is the average that is validated");
    ok(rig_distance(averaged, plain) > 1e-3, "and kept");
    rig_result_free(averaged);
    averaged = fit(VALIDATED, .averaging = "{\"name\": \"ema\", \"decay\": 0.9, "
                                           "\"validate\": false}");
    ok(rig_metric(averaged, "val_loss") == rig_metric(plain, "val_loss"),
       "unless it is asked not to be");
    rig_result_free(averaged);
    averaged = fit(VALIDATED, .averaging = "{\"name\": \"ema\", \"decay\": 0}");
    ok(rig_same_bits(averaged, plain),
       "one that keeps nothing is the weights, to the bit");
    ok(rig_metric(averaged, "val_loss") == rig_metric(plain, "val_loss"),
       "also where they are validated");
    rig_result_free(averaged);
    rig_result_free(plain);
}

static rig_result_t *after_epochs(int epochs, const char *averaging)
{
    char trainer[64];
    snprintf(trainer, sizeof trainer, "\"max_epochs\": %d", epochs);
    return fit_once(&(rig_spec_t){.trainer = trainer, .averaging = averaging, BATCHES});
}

static void the_ends_of_the_last_epochs_are_averaged(void)
{
    rig_result_t *a = after_epochs(3, "null"), *b = after_epochs(4, "null"),
                 *mean = after_epochs(4, "{\"name\": \"swa\", \"start\": 2}");
    double worst = 0;
    for (int k = 0; k < mean->weight_count; k++)
        for (size_t i = 0; i < mean->weight[k].count; i++) {
            const double x = (double)a->weight[k].data[i] + (double)b->weight[k].data[i];
            worst = tap_larger(worst, fabs(x / 2 - (double)mean->weight[k].data[i]));
        }
    ok(mean->weight_count > 0 && worst < 1e-6, "to the mean of both (%.1g)", worst);
    rig_result_free(a);
    rig_result_free(b);
    rig_result_free(mean);
}

static void an_average_may_have_a_rate_of_its_own(void)
{
    rig_result_t *result = fit(BATCHES,
                               .averaging = "{\"name\": \"swa\", \"start\": 1, "
                                            "\"swa_lrs\": 0.02, \"annealing_epochs\": 2, "
                                            "\"annealing_strategy\": \"linear\"}");
    check_rates(result, 0.1, (double[]){1, 1, 0.6, 0.2}, "to which it goes by epochs");
    rig_result_free(result);
    result = fit(BATCHES,
                 .averaging = "{\"name\": \"swa\", \"start\": 2, "
                              "\"swa_lrs\": 0.02, \"annealing_epochs\": 2, "
                              "\"annealing_strategy\": \"linear\"}",
                 .scheduler = "{\"name\": \"linear\", \"interval\": \"epoch\"}");
    check_rates(result, 0.1, (double[]){1, 0.75, 0.5, 0.35},
                "from where the schedule was");
    rig_result_free(result);
}

static char warning[PL_ERROR_TEXT];

static void on_warning(pl_log_level_t level, int rank, const char *actor,
                       const char *text, void *user)
{
    (void)level, (void)rank, (void)actor, (void)user;
    snprintf(warning, sizeof warning, "%s", text);
}

/* What a run of so many epochs is warned of. */
static const char *warned(int epochs, const char *averaging)
{
    warning[0] = '\0';
    pl_log_hook(on_warning, PL_LOG_WARNING, NULL);
    rig_result_free(after_epochs(epochs, averaging));
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
    return warning;
}

static void an_average_of_fewer_than_two_states_is_reported(void)
{
    like(warned(4, "\"swa\""),
         "\"swa\" would average fewer than two states of the weights in a run "
         "of 4 epochs, .*begin sooner",
         "of the last fifth of four epochs");
    like(warned(3, "{\"name\": \"swa\", \"start\": 2}"), "fewer than two",
         "of one epoch");
    is_text(warned(4, "{\"name\": \"swa\", \"start\": 2}"), "",
            "of two there is no warning");
    is_text(warned(4, "{\"name\": \"swa\", \"start\": 1, \"every\": 2}"), "",
            "nor where the last epoch is left out");
    like(warned(1, "{\"name\": \"ema\", \"start_step\": 1000}"),
         "\"ema\" would average fewer", "one that would begin later");
    is_text(warned(1, "\"ema\""), "", "another is fine");
}

static void an_average_of_an_unknown_kind_is_refused(void)
{
    rig_t *rig =
        rig_make(&(rig_spec_t){.averaging = "{\"name\": \"ema\", \"dekay\": 1}"});
    ok(!rig, "before anything starts");
    like(rig_error.text, "unknown key \"averaging.dekay\": did you mean \"decay\"",
         "with the nearest name");
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    run(rates_of_groups_are_logged);
    run(a_schedule_may_count_epochs);
    run(a_plateau_lowers_the_rate_after_a_validation);
    run(without_validation_a_plateau_counts_epochs);
    run(a_plateau_of_an_unknown_metric_fails_the_run);
    run(a_plateau_of_a_validation_that_never_comes_is_refused);
    run(a_cycle_moves_the_momentum);
    run(momentum_and_weight_decay_follow_schedules);
    run(an_average_does_not_change_training);
    run(the_ends_of_the_last_epochs_are_averaged);
    run(an_average_may_have_a_rate_of_its_own);
    run(an_average_of_fewer_than_two_states_is_reported);
    run(an_average_of_an_unknown_kind_is_refused);
    return tap_done();
}
