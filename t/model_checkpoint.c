/* model_checkpoint.c - tests of actors/connectors/callbacks/model_checkpoint.c */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

#define FOUR "\"batch_size\": 8, \"val_split\": 0.2"        /* batches of 40 samples */
#define CHECKPOINT(options) "[{\"name\": \"model_checkpoint\"" options "}]"

/* The step of a checkpoint of a run, 0: there is none of that name. */
static int64_t step_of(const rig_result_t *result, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/checkpoints/%s/manifest.json", result->run_dir, name);
    json_t *manifest = json_load_file(path, 0, NULL);
    const int64_t step = json_integer_value(json_object_get(manifest, "global_step"));
    json_decref(manifest);
    return step;
}

static rig_t *rig_with(const char *callbacks, const char *trainer)
{
    return rig_new(.data = FOUR, .trainer = trainer, .callbacks = callbacks);
}

static void names_that_do_not_differ_are_numbered(void)
{
    rig_t *rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 4",
                         .optimizer = "{\"name\": \"sgd\", \"lr\": 0.05}",
                         .callbacks = CHECKPOINT(
                             ", \"filename\": \"best\", \"monitor\": \"val_loss\", "
                             "\"mode\": \"max\", \"save_top_k\": 2"));
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a run whose validations get better");
    is_int(step_of(result, "best"), 4, "the worst keeps its name");
    is_int(step_of(result, "best-v1"), 8, "the next gets one of its own");
    ok(!rig_has_file(result, "checkpoints/best-v2"), "more are not kept");
    rig_free(&rig);
    rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 3",
                  .callbacks = CHECKPOINT(", \"filename\": \"newest\""));
    result = rig_fit(rig);
    is_int(step_of(result, "newest"), 12, "what is to go leaves its name to the new one");
    ok(!rig_has_file(result, "checkpoints/newest-v1"), "and there is no other");
    rig_free(&rig);
}

static void a_figure_of_validation_is_waited_for(void)
{
    rig_t *rig = rig_with(CHECKPOINT(", \"monitor\": \"val_loss\", \"save_top_k\": -1, "
                                     "\"every_n_train_steps\": 1"),
                          "\"max_epochs\": 2");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "before the first validation there is none");
    ok(!rig_has_file(result, "checkpoints/epoch=0-step=3"), "nothing is kept by it");
    is_int(step_of(result, "epoch=1-step=5"), 5, "after it there is");
    rig_free(&rig);
    rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 2",
                  .callbacks = CHECKPOINT(", \"monitor\": \"val_los\""));
    result = rig_fit(rig);
    is_text(result->status, "failed", "one that validation does not bring");
    like(result->error.text, "no figure \"val_los\"", "fails");
    rig_free(&rig);
}

/* ---- what is never there ---- */

static char said[1024];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)rank, (void)actor, (void)user;
    if (level <= PL_LOG_WARNING)
        snprintf(said, sizeof said, "%s", text);
}

static void refused(const char *callbacks)
{
    rig_t *rig = rig_new(.data = "\"batch_size\": 8", .callbacks = callbacks,
                         .trainer = "\"max_epochs\": 2");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "a run without validations");
    like(result->error.text, "on_fit_start: \"val_loss\" .*the run has none", "at once");
    is_int(result->global_step, 0, "before its first step");
    rig_free(&rig);
}

static void a_figure_that_can_never_come_is_told_before_the_start(void)
{
    refused(CHECKPOINT(", \"monitor\": \"val_loss\""));
    refused("[\"early_stopping\"]");
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    rig_t *rig = rig_with(CHECKPOINT(", \"monitor\": \"val_los\", "
                                     "\"every_n_train_steps\": 50"),
                          "\"max_epochs\": 2");
    is_text(rig_fit(rig)->status, "ok", "a run of fewer steps than it waits for");
    like(said, "ended before one was due: it has kept none by \"val_los\"", "says so");
    rig_free(&rig);
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
}

static void a_run_that_ends_within_an_epoch_is_kept(void)
{
    rig_t *rig = rig_with("[]", "\"max_steps\": 6");
    is_int(step_of(rig_fit(rig), "epoch=1-step=6"), 6, "by what is there of itself");
    rig_free(&rig);
    rig = rig_with(CHECKPOINT(", \"save_top_k\": -1, \"save_last\": true"),
                   "\"max_steps\": 6");
    const rig_result_t *result = rig_fit(rig);
    is_int(step_of(result, "epoch=0-step=4"), 4, "one that is listed keeps epochs");
    is_int(step_of(result, "epoch=1-step=6"), 6, "and the part of one");
    is_int(step_of(result, "last"), 6, "which is the last");
    rig_free(&rig);
    rig = rig_with(CHECKPOINT(", \"monitor\": \"train_loss\""), "\"max_steps\": 6");
    result = rig_fit(rig);
    is_int(step_of(result, "epoch=0-step=4"), 4, "a figure is of whole epochs");
    is_int(step_of(result, "stopped"), 6, "the rest is kept beside");
    rig_free(&rig);
    rig = rig_with(CHECKPOINT(", \"monitor\": \"val_loss\", \"save_top_k\": -1"),
                   "\"max_steps\": 6");
    result = rig_fit(rig);
    is_int(step_of(result, "epoch=1-step=6"), 6, "after a validation");
    ok(!rig_has_file(result, "checkpoints/stopped"), "it is kept once");
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    run(names_that_do_not_differ_are_numbered);
    run(a_figure_of_validation_is_waited_for);
    run(a_figure_that_can_never_come_is_told_before_the_start);
    run(a_run_that_ends_within_an_epoch_is_kept);
    return tap_done();
}
