/* batch_size.c - tests of actors/loops/batch_size.c: the search for a batch size */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/loops/search_result.h"
#include "rig_runs.h"
#include "tap.h"

/* The sizes that were tried, with a ! behind those that do not fit. */
static const char *sizes_of(const rig_result_t *result, char text[static 512])
{
    json_t *found = json_loads(result->text ? result->text : "{}", 0, NULL), *trial;
    size_t k;
    *text = '\0';
    json_array_foreach(json_object_get(found, "trials"), k, trial)
        snprintf(text + strlen(text), 512 - strlen(text), "%s%lld%s", k ? " " : "",
                 (long long)json_integer_value(json_object_get(trial, "batch_size")),
                 json_is_true(json_object_get(trial, "fits")) ? "" : "!");
    json_decref(found);
    return text;
}

static void sizes_double_up_to_the_data(void)
{
    char sizes[512];
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1");
    const rig_result_t *result = rig_tune(rig, &(pl_tuning_t){.batch_size = "power"});
    is_text(result->status, "ok", "it ends well: %s", result->error.text);
    is_text(sizes_of(result, sizes), "2 4 8 16 32 40", "all samples are the last size");
    is_near(rig_metric(result, "batch_size"), 40, 0, "and the largest");
    double quickest = rig_metric(result, "quickest_batch_size");
    ok(quickest >= 2 && quickest <= 40, "the quickest is one of them");
    is_text(result->run_dir, "", "nothing is written");
    rig_free(&rig);
}

static void a_search_may_be_short(void)
{
    char sizes[512];
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1");
    const rig_result_t *result = rig_tune(rig, &(pl_tuning_t){.batch_size = "power",
                                                              .init_val = 3,
                                                              .max_trials = 2,
                                                              .steps_per_trial = 1});
    is_text(sizes_of(result, sizes), "3 6", "from the first size, so many");
    rig_free(&rig);
}

/* Batches twice as large are at most about twice as quick: ten times that is a wrong
 * clock. */
static bool speeds_are_likely(const rig_result_t *result)
{
    json_t *found = json_loads(result->text ? result->text : "{}", 0, NULL), *trial;
    size_t k, bad = 0;
    double before = 0;
    json_array_foreach(json_object_get(found, "trials"), k, trial) {
        double rate = json_number_value(json_object_get(trial, "samples_per_second"));
        bad += rate <= 0 || (k && rate > 20 * before);
        before = rate;
    }
    json_decref(found);
    return k == 6 && bad == 0;
}

/* Another process that computes may slow all timings of a size, but not in each
 * search. */
static void speeds_are_measured(void)
{
    enum { SEARCHES = 5 };
    const pl_tuning_t what = {.batch_size = "power", .init_val = 16, .max_trials = 6};
    bool are_likely = false;
    for (int k = 0; k < SEARCHES && !are_likely; k++) {
        rig_t *rig = rig_new(.samples = 4000, .trainer = "\"max_epochs\": 1");
        const rig_result_t *result = rig_tune(rig, &what);
        are_likely = speeds_are_likely(result);
        if (are_likely || k == SEARCHES - 1) {
            ok(are_likely, "none is many times as quick as half of it: %s", result->text);
            ok(rig_metric(result, "quickest_batch_size") >= 16, "one is advised");
        }
        rig_free(&rig);
    }
}

static int64_t advised(double rate, double noise)
{
    const pl_size_trial_t trials[] = {
        {.size = 8, .rate = rate, .noise = noise, .fits = true},
        {.size = 16, .rate = 1000, .noise = 0, .fits = true},
        {.size = 32, .rate = 0}};
    return pl_size_fastest(trials, 3)->size;
}

static void noise_hides_small_differences_alone(void)
{
    is_int(advised(940, 0), 16, "a measurable difference counts as slower");
    is_int(advised(960, 0), 8, "what is within a twentieth is as quick");
    is_int(advised(920, 0.09), 8, "within what its timings differ, too");
    is_int(advised(70, 1.5), 16, "however far they lie apart, a fourteenth is not");
    is_int(advised(890, 1.5), 16, "nor what lacks more than a tenth");
    ok(!pl_size_fastest(NULL, 0), "of none there is none");
}

/* The advised size of 8 to 32768, whose speeds are given, for an epoch of so many
 * samples. */
static int64_t suggested(double growth, int64_t samples)
{
    enum { SIZES = 13 };
    pl_size_trial_t trials[SIZES];
    for (int k = 0; k < SIZES; k++)
        trials[k] = (pl_size_trial_t){.size = 8 << k,
                                      .rate = 1000 * pow(growth, k),
                                      .fits = true};
    return pl_size_suggested(trials, SIZES, samples)->size;
}

static void a_suggested_size_is_worth_it_and_leaves_steps(void)
{
    const pl_size_trial_t none = {.size = 8};
    is_int(suggested(2, 54000), 1024, "however quick: an epoch keeps 50 steps");
    is_int(suggested(1.01, 54000), 8, "what gains less than a tenth is not worth it");
    is_int(suggested(1.2, 54000), 1024, "what gains more is");
    is_int(suggested(2, 0), 32768, "of unknown data the quickest");
    is_int(suggested(2, 150), 32, "of few samples the usual size");
    is_int(suggested(2, 20), 8, "of next to none the smallest");
    ok(!pl_size_suggested(&none, 1, 100), "what does not fit is not suggested");
}

/* NULL, and a skipped test, in a build without the device. */
static rig_t *rig_that_needs_memory(void)
{
    if (pl_component_find("accelerator", "cpu", NULL))
        return rig_new(.accelerator = "cpu", .samples = 20000,
                       .module = "{\"name\": \"mlp\", \"hidden\": [600, 600]}",
                       .trainer = "\"max_epochs\": 1");
    tap_skip("this build has no accelerator cpu");
    return NULL;
}

static void a_lack_of_memory_ends_a_search(void)
{
    char sizes[512];
    rig_t *rig = rig_that_needs_memory();
    if (!rig)
        return;
    const pl_tuning_t power = {.batch_size = "power",
                               .init_val = 256,
                               .steps_per_trial = 1,
                               .max_memory = 30 << 20};
    const rig_result_t *result = rig_tune(rig, &power);
    is_text(result->status, "ok", "what does not fit fails nothing: %s",
            result->error.text);
    double fits = rig_metric(result, "batch_size");
    ok(fits >= 256 && fits < 16384, "%g of 20000 samples fit: %s", fits,
       sizes_of(result, sizes));
    ok(strchr(sizes, '!') && sizes[strlen(sizes) - 1] == '!', "it ends there");
    rig_free(&rig);
}

static void a_binary_search_continues_between_two_sizes(void)
{
    char sizes[512];
    rig_t *rig = rig_that_needs_memory();
    if (!rig)
        return;
    const pl_tuning_t search = {.batch_size = "binsearch",
                                .init_val = 256,
                                .steps_per_trial = 1,
                                .max_trials = 8,
                                .max_memory = 30 << 20};
    const rig_result_t *result = rig_tune(rig, &search);
    is_text(result->status, "ok", "it ends well: %s", result->error.text);
    const char *failed = strchr(sizes_of(result, sizes), '!');
    ok(failed && failed[1] == ' ', "beyond the first that does not fit: %s", sizes);
    rig_free(&rig);
}

static void a_stopped_search_reports_its_results(void)
{
    const rig_result_t *result;
    rig_t *rig = rig_search_stopped("\"max_epochs\": 1", &result);
    json_t *found = json_loads(result->text ? result->text : "{}", 0, NULL), *trial;
    size_t k, wrong = 0;
    json_int_t largest = 0;
    json_array_foreach(json_object_get(found, "trials"), k, trial) {
        wrong += !(json_number_value(json_object_get(trial, "samples_per_second")) > 0);
        largest = json_integer_value(json_object_get(trial, "batch_size"));
    }
    ok(k >= 2 && k < 12 && !wrong, "sizes of which nothing is known are not among the %d",
       (int)k);
    is_near(rig_metric(result, "batch_size"), (double)largest, 0, "the largest so far");
    json_decref(found);
    rig_free(&rig);
}

static void a_fit_after_a_search_equals_one_without(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 2");
    rig_result_t *before = rig_keep(rig_fit(rig));
    rig_tune(rig, &(pl_tuning_t){.batch_size = "power"});
    ok(rig_same_bits(before, rig_fit(rig)), "bit for bit");
    rig_result_free(before);
    rig_free(&rig);
}

static void an_impossible_search_is_refused(void)
{
    const pl_tuning_t wrong[] = {{.batch_size = "luck"},
                                 {.batch_size = "power", .init_val = -1},
                                 {.batch_size = "power", .steps_per_trial = -1},
                                 {.batch_size = "power", .max_trials = -1},
                                 {.batch_size = "power", .max_memory = -1}};
    rig_tunings_refused(wrong, sizeof wrong / sizeof *wrong);
}

int main(void)
{
    rig_init(NULL);
    run(sizes_double_up_to_the_data);
    run(a_search_may_be_short);
    run(speeds_are_measured);
    run(noise_hides_small_differences_alone);
    run(a_suggested_size_is_worth_it_and_leaves_steps);
    run(a_lack_of_memory_ends_a_search);
    run(a_binary_search_continues_between_two_sizes);
    run(a_stopped_search_reports_its_results);
    run(a_fit_after_a_search_equals_one_without);
    run(an_impossible_search_is_refused);
    return tap_done();
}
