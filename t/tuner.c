/* tuner.c - tests of actors/loops/tuner.c: the search for a learning rate */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

enum { MAX = 200 };

typedef struct trials {
    int count;
    double lr[MAX], loss[MAX];
} trials_t;

static trials_t trials_of(const rig_result_t *result)
{
    trials_t trials = {0};
    json_t *text = json_loads(result->text ? result->text : "{}", 0, NULL), *trial;
    size_t k;
    json_array_foreach(json_object_get(text, "trials"), k, trial) {
        if (trials.count == MAX)
            break;
        trials.lr[trials.count] = json_number_value(json_object_get(trial, "lr"));
        trials.loss[trials.count++] = json_number_value(json_object_get(trial, "loss"));
    }
    json_decref(text);
    return trials;
}

static void the_rates_grow_exponentially(void)
{
    const pl_tuning_t what = {.min_lr = 1e-4, .max_lr = 1, .num_training = 40};
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1");
    const rig_result_t *result = rig_tune(rig, &what);
    is_text(result->status, "ok", "tuned: %s", result->error.text);
    trials_t trials = trials_of(result);
    bool grow = trials.count == 40 && trials.lr[0] == 1e-4;
    for (int k = 1; grow && k < 40; k++)
        grow = fabs(log10(trials.lr[k]) + 4 - 4 * (k + 1) / 40.0) < 1e-9;
    ok(grow, "from the first to the last, in as many epochs as it takes");
    is_text(result->run_dir ? result->run_dir : "", "", "nothing is written");
    rig_free(&rig);
}

/* By plain loops: np.gradient(loss[10:-1]).argmin() of Lightning's lr_find. */
static void the_rate_is_the_one_of_the_steepest_fall(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1");
    const rig_result_t *result = rig_tune(rig, &(pl_tuning_t){.max_lr = 10});
    trials_t t = trials_of(result);
    int best = -1;
    double min = INFINITY;
    for (int k = 10; k < t.count - 1; k++) {
        double slope = k == 10            ? t.loss[11] - t.loss[10]
                       : k == t.count - 2 ? t.loss[k] - t.loss[k - 1]
                                          : (t.loss[k + 1] - t.loss[k - 1]) / 2;
        if (slope < min) {
            min = slope;
            best = k;
        }
    }
    ok(best > 10 && rig_metric(result, "lr") == t.lr[best], "%g of %d trials",
       rig_metric(result, "lr"), t.count);
    ok(rig_metric(result, "lr") > 1e-3 && rig_metric(result, "lr") < 10,
       "no rate at which nothing moves");
    rig_free(&rig);
}

static void losses_are_the_smoothed_losses_of_training(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3, \"log_every_n_steps\": 1",
                         .optimizer = "{\"name\": \"sgd\", \"lr\": 1e-30}");
    rig_series_t fitted = rig_series(rig_fit(rig), "train_loss");
    trials_t trials = trials_of(
        rig_tune(rig,
                 &(pl_tuning_t){.min_lr = 1e-30, .max_lr = 1e-29, .num_training = 3}));
    double average = 0;
    for (int k = 0; k < 3 && fitted.count == 3 && trials.count == 3; k++) {
        average = 0.98 * average + 0.02 * fitted.value[k];
        double smooth = average / (1 - pow(0.98, k + 1));
        ok(fabs(trials.loss[k] - smooth) < 1e-9, "step %d: %g", k + 1, trials.loss[k]);
    }
    is_int(trials.count, 3, "the same batches in the same order");
    ok(isnan(rig_metric(rig_tune(rig, &(pl_tuning_t){.num_training = 3}), "lr")),
       "so few suggest nothing");
    rig_free(&rig);
}

static void a_rate_too_high_ends_the_search(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1");
    const pl_tuning_t wild = {.min_lr = 1e-6, .max_lr = 1e6};
    const rig_result_t *result = rig_tune(rig, &wild);
    is_text(result->status, "ok", "what is not finite fails nothing: %s",
            result->error.text);
    pl_tuning_t careful = wild;
    careful.early_stop_threshold = 1.5;
    trials_t all = trials_of(result), some = trials_of(rig_tune(rig, &careful));
    ok(some.count > 10 && some.count < 100 && some.count <= all.count,
       "%d steps, %d without a threshold", some.count, all.count);
    double lowest = INFINITY;
    for (int k = 0; k < some.count - 1; k++)
        lowest = fmin(lowest, some.loss[k]);
    ok(some.count > 1 && some.loss[some.count - 1] > 1.5 * lowest,
       "the last is that much above the lowest");
    rig_free(&rig);
}

static void a_fit_after_a_search_equals_one_without(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 2",
                         .scheduler = "{\"name\": \"cosine\"}");
    rig_result_t *before = rig_keep(rig_fit(rig));
    rig_tune(rig, &(pl_tuning_t){.num_training = 20});
    ok(rig_same_bits(before, rig_fit(rig)), "bit for bit");
    rig_result_free(before);
    rig_free(&rig);
}

static void an_impossible_search_is_refused(void)
{
    const pl_tuning_t wrong[] = {{.min_lr = 1, .max_lr = 0.1},
                                 {.min_lr = -1},
                                 {.num_training = -5},
                                 {.early_stop_threshold = NAN}};
    rig_tunings_refused(wrong, sizeof wrong / sizeof *wrong);
}

int main(void)
{
    rig_init(NULL);
    run(the_rates_grow_exponentially);
    run(the_rate_is_the_one_of_the_steepest_fall);
    run(losses_are_the_smoothed_losses_of_training);
    run(a_rate_too_high_ends_the_search);
    run(a_fit_after_a_search_equals_one_without);
    run(an_impossible_search_is_refused);
    return tap_done();
}
