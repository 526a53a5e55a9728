/* run_memory.c - tests of whole runs in which one request for memory fails: the first,
 * the second, …
 *
 * Each run must end, well or as out of memory; the engine must be of use afterwards; and
 * when it is freed, nothing may be left.  All requests are tried when PACELINE_TEST_LONG
 * is set, else every one at the beginning and some of the many after that. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "far.h"
#include "rig.h"
#include "scarce.h"
#include "tap.h"

static const int64_t LONGEST = 20 * PL_SECOND;

typedef struct tally {
    int runs, wrong;
} tally_t;

/* A fit, or a prediction from these weights, or a search. */
static char *weights;
static const pl_tuning_t *tuning;

static bool begin(rig_t *rig)
{
    if (tuning)
        return rig_begin_tuning(rig, tuning);
    return weights ? rig_begin_prediction(rig, &(pl_prediction_t){.checkpoint = weights})
                   : rig_begin(rig);
}

static void complain(tally_t *tally, int n, const char *what, const pl_error_t *error)
{
    if (tally->wrong++ < 8)
        tap_diag("request %d: %s: %s %s", n, what, pl_code_name(error->code),
                 error->text);
}

static void expect_no_memory(tally_t *tally, int n, const char *what,
                             const pl_error_t *error)
{
    if (error->code != PL_ENOMEM)
        complain(tally, n, what, error);
}

/* What a run that went well must have. */
static bool is_whole(const rig_result_t *result)
{
    if (tuning)
        return result->text && strstr(result->text, "trials");
    if (weights)
        return result->output_count == 1 && result->output[0].shape.dim[0] == 40;
    return result->weight_count == 4 && rig_metric(result, "train_loss") > 0
           && rig_metric(result, "val_loss") > 0
           && rig_has_file(result, "model.safetensors");
}

/* Whether each checkpoint of a run can be resumed. */
static bool all_are_kept(const rig_result_t *result)
{
    char path[600];
    bool all = true;
    snprintf(path, sizeof path, "%s/checkpoints", result->run_dir ? result->run_dir : "");
    DIR *entries = opendir(path);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        snprintf(path, sizeof path, "%s/checkpoints/%s/manifest.json", result->run_dir,
                 entry->d_name);
        json_t *manifest = entry->d_name[0] == '.' ? NULL : json_load_file(path, 0, NULL),
               *progress = json_object_get(manifest, "progress");
        all = all
              && (!manifest
                  || (json_is_object(json_object_get(progress, "epoch"))
                      && json_is_object(json_object_get(progress, "validate"))));
        json_decref(manifest);
    }
    if (entries)
        closedir(entries);
    return all;
}

/* A run with the n-th request failing and one more in the same engine; false when there
 * are fewer. */
static bool try(tally_t *tally, int n, const rig_spec_t *spec)
{
    const pl_error_t none = {0};
    long before = scarce_live();
    const int64_t began = pl_now();
    scarce_fail(n);
    rig_t *rig = rig_make(spec);
    if (!rig)
        expect_no_memory(tally, n, "no rig", &rig_error);
    else if (!begin(rig))
        expect_no_memory(tally, n, "no run", &rig_error);
    else if (strcmp(rig_wait(rig)->status, "ok"))
        expect_no_memory(tally, n, "the run", &rig_wait(rig)->error);
    else if (!is_whole(rig_wait(rig)))
        complain(tally, n, "a result that lacks something", &none);
    bool failed = scarce_failed();
    scarce_fail(0);
    if (pl_now() - began > LONGEST)
        complain(tally, n, "it took too long", rig ? &rig_wait(rig)->error : &none);
    if (rig && rig_begun(rig) && !all_are_kept(rig_wait(rig)))
        complain(tally, n, "a checkpoint that lacks something", &none);
    if (rig && (!begin(rig) || strcmp(rig_wait(rig)->status, "ok")))
        complain(tally, n, "the next run", &rig_wait(rig)->error);
    rig_free(&rig);
    if (scarce_live() != before) {
        tap_diag("request %d leaves %ld blocks", n, scarce_live() - before);
        complain(tally, n, "blocks are left", &none);
    }
    tally->runs++;
    return failed;
}

/* Of runs that take long fewer are tried. */
static int stride = 1;

static int step_of(int n)
{
    if (getenv("PACELINE_TEST_LONG"))
        return 1;
    return n < 40 ? stride : stride + n / 40;
}

static void survives(const char *what, const rig_spec_t *spec)
{
    tally_t tally = {0};
    rig_t *first = rig_make(spec);                     /* what is kept for ever is made */
    begin(first);
    rig_wait(first);
    rig_free(&first);
    int n = 1;
    while (try(&tally, n, spec) && tally.wrong < 30)
        n += step_of(n);
    is_int(tally.wrong, 0, "%s: %d of about %d requests may fail", what, tally.runs, n);
}

static void memory_may_run_out_on_a_device_of_ones_own(void)
{
    survives("fake", &(rig_spec_t){.data = "\"batch_size\": 8, \"val_split\": 0.2",
                                   .trainer = "\"max_steps\": 3",
                                   .callbacks = "[{\"name\": \"model_checkpoint\", "
                                                "\"every_n_train_steps\": 1}]",
                                   .scheduler = "\"cosine\""});
}

static void memory_may_run_out_on_the_cpu(void)
{
    if (!rig_has("cpu"))
        return;
    survives("cpu", &(rig_spec_t){.accelerator = "cpu",
                                  .trainer = "\"max_steps\": 2",
                                  .data = "\"batch_size\": 16, \"val_split\": 0.2"});
}

/* No rank waits for one that is gone: a failed run has ended long before the limit of
 * a step. */
static void memory_may_run_out_on_one_of_several_ranks(void)
{
    survives("2 ranks", &(rig_spec_t){.data = "\"batch_size\": 8, \"val_split\": 0.2",
                                      .trainer = "\"devices\": 2, \"max_steps\": 2"});
}

static void memory_may_run_out_while_ranks_gather_their_results(void)
{
    stride = 5;
    survives("zero1", &(rig_spec_t){.data = "\"batch_size\": 8, \"val_split\": 0.2",
                                    .optimizer = "{\"name\": \"adamw\", \"lr\": 0.01}",
                                    .trainer = "\"strategy\": \"zero1\", \"devices\": 2, "
                                               "\"max_steps\": 2"});
    survives("local_sgd",
             &(rig_spec_t){.data = "\"batch_size\": 8, \"val_split\": 0.2",
                           .optimizer = "{\"name\": \"adamw\", \"lr\": 0.01}",
                           .trainer = "\"strategy\": {\"name\": \"local_sgd\", "
                                      "\"sync_every\": 2}, \"devices\": 2, "
                                      "\"max_steps\": 3"});
    stride = 1;
}

static void memory_may_run_out_in_a_prediction(void)
{
    rig_t *rig = rig_new(.trainer = "\"max_steps\": 3");
    weights = strdup(rig_fit(rig)->run_dir);
    rig_free(&rig);
    survives("predict", &(rig_spec_t){.data = "\"batch_size\": 15"});
    free(weights);
    weights = NULL;
}

/* A size for which one rank has none is one that does not fit, for all. */
static void memory_may_run_out_in_a_search_of_several_ranks(void)
{
    static const pl_tuning_t what = {.batch_size = "power",
                                     .init_val = 4,
                                     .steps_per_trial = 1,
                                     .max_trials = 2};
    tuning = &what;
    stride = 20;
    survives("tune", &(rig_spec_t){.trainer = "\"devices\": 2"});
    tuning = NULL;
    stride = 1;
}

/* In the program alone: each rank has memory of its own. */
static void memory_may_run_out_beside_ranks_that_are_processes(void)
{
    stride = 5;
    survives("spawn",
             &(rig_spec_t){.dataset = "{\"name\": \"far\", \"samples\": 8, "
                                      "\"batch_size\": 4, \"val_split\": 0.25}",
                           .trainer = "\"launcher\": \"spawn\", \"max_steps\": 1"});
}

static void weights_that_no_memory_holds_are_reported_with_their_number(void)
{
    rig_t *rig = rig_new(.module = "{\"name\": \"mlp\", \"hidden\": [100000000000]}");
    const rig_result_t *result = rig_fit(rig);
    is_int(result->error.code, PL_ENOMEM, "the run fails");
    like(result->error.text,
         "^weights of module mlp: out of memory: [0-9]+ values of 4 bytes",
         "the error says how many");
    rig_free(&rig);
}

int main(void)
{
    scarce_init_own();
    far_init(NULL);
    run(memory_may_run_out_on_a_device_of_ones_own);
    run(memory_may_run_out_on_the_cpu);
    run(memory_may_run_out_on_one_of_several_ranks);
    run(memory_may_run_out_while_ranks_gather_their_results);
    run(weights_that_no_memory_holds_are_reported_with_their_number);
    run(memory_may_run_out_in_a_prediction);
    run(memory_may_run_out_in_a_search_of_several_ranks);
    run(memory_may_run_out_beside_ranks_that_are_processes);
    return tap_done();
}
