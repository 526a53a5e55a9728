/* model_checkpoint.c - tests of actors/connectors/callbacks/model_checkpoint.c */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bind.h"
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

static void a_validation_metric_is_waited_for(void)
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
    like(result->error.text, "no metric \"val_los\"", "fails");
    rig_free(&rig);
}

static void a_metric_missing_in_validation_is_reported_after_the_first(void)
{
    static const char *const wrong[] = {
        CHECKPOINT(", \"monitor\": \"val_los\", \"every_n_epochs\": 3"),
        CHECKPOINT(", \"filename\": \"{val_loss}-{val_los:.2f}\", \"every_n_epochs\": 3"),
        CHECKPOINT(", \"monitor\": \"val_los\", \"every_n_train_steps\": 1000")};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        rig_t *rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 4",
                             .callbacks = wrong[k]);
        const rig_result_t *result = rig_fit(rig);
        is_text(result->status, "failed", "long before a checkpoint is due");
        is_int(result->epoch, 0, "in the first epoch");
        like(result->error.text, "no metric \"val_los\"", "with the name");
        rig_free(&rig);
    }
}

static void an_existing_metric_may_be_in_a_name(void)
{
    rig_t *rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 1",
                         .callbacks = CHECKPOINT(", \"monitor\": \"val_loss\", "
                                                 "\"filename\": \"{val_loss:.0f}\""));
    is_text(rig_fit(rig)->status, "ok", "and is found");
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

static void refused(const char *callbacks, const char *data, const char *trainer)
{
    rig_t *rig = rig_new(.data = data, .callbacks = callbacks, .trainer = trainer);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "failed", "a run without validations");
    like(result->error.text, "on_fit_start: \"val_loss\" .*the run has none", "at once");
    is_int(result->global_step, 0, "before its first step");
    rig_free(&rig);
}

static void a_metric_that_can_never_exist_is_reported_before_the_start(void)
{
    refused(CHECKPOINT(", \"monitor\": \"val_loss\""), "\"batch_size\": 8",
            "\"max_epochs\": 2");
    refused("[\"early_stopping\"]", "\"batch_size\": 8", "\"max_epochs\": 2");
    refused("[\"early_stopping\"]", FOUR, "\"limit_val_batches\": 0");
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    rig_t *rig = rig_with(CHECKPOINT(", \"monitor\": \"val_loss\", "
                                     "\"every_n_train_steps\": 50"),
                          "\"max_epochs\": 2");
    is_text(rig_fit(rig)->status, "ok", "a run of fewer steps than it waits for");
    like(said, "ended before a checkpoint was due: none is kept by \"val_loss\"",
         "says so");
    rig_free(&rig);
    pl_log_hook(NULL, PL_LOG_WARNING, NULL);
}

static void stop_behind_a_step(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->global_step)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void a_run_that_is_stopped_before_one_is_due_has_kept_one(void)
{
    *said = '\0';
    pl_log_hook(on_log, PL_LOG_WARNING, NULL);
    rig_t *rig = rig_new(.data = "\"batch_size\": 8", .trainer = "\"max_epochs\": 100000",
                         .callbacks = CHECKPOINT(", \"every_n_epochs\": 200000"),
                         .on_progress = stop_behind_a_step);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "stopped", "by its user");
    ok(result->global_step > 0, "behind a step");
    is_int(step_of(result, "stopped"), (int64_t)result->global_step, "where it stopped");
    is_text(said, "", "and nothing is missing");
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
    is_int(step_of(result, "epoch=0-step=4"), 4, "a metric is of whole epochs");
    is_int(step_of(result, "stopped"), 6, "the rest is kept beside");
    rig_free(&rig);
    rig = rig_with(CHECKPOINT(", \"monitor\": \"val_loss\", \"save_top_k\": -1"),
                   "\"max_steps\": 6");
    result = rig_fit(rig);
    is_int(step_of(result, "epoch=1-step=6"), 6, "after a validation");
    ok(!rig_has_file(result, "checkpoints/stopped"), "it is kept once");
    rig_free(&rig);
}

/* The run ends before its first epoch does, and so its first checkpoint by a metric. */
static void a_resumed_run_replaces_what_the_engine_itself_has_saved(void)
{
    rig_spec_t spec = {.dataset = "{\"name\": \"memory\", \"source\": \"replaced\", " FOUR
                                  "}",
                       .trainer = "\"nan_policy\": \"rollback\", \"max_steps\": 3",
                       .callbacks = CHECKPOINT(", \"monitor\": \"train_loss\"")};
    rig_samples("replaced", 40);
    rig_t *rig = rig_make(&spec);
    spec.trainer = "\"nan_policy\": \"rollback\", \"max_epochs\": 1";
    rig_t *again = rig_make(&spec);
    const rig_result_t *result = rig_fit(rig);
    ok(rig_has_file(result, "checkpoints/start"), "a rollback could return to the start");
    is_int(step_of(result, "stopped"), 3, "the run can be resumed from its end");
    result = rig_resume(again, result->run_dir);
    is_text(result->status, "ok", "more steps are possible: %s", result->error.text);
    is_int(step_of(result, "epoch=0-step=4"), 4, "the next checkpoint of the callback");
    ok(!rig_has_file(result, "checkpoints/stopped"),
       "replaces the checkpoint \"stopped\"");
    ok(!rig_has_file(result, "checkpoints/start"), "and the checkpoint \"start\"");
    rig_free(&again);
    rig_free(&rig);
}

/* ---- options ---- */

static void refused_at(const char *options, const char *column, const char *text)
{
    pl_error_t err = {0};
    char run[512], wanted[256];
    snprintf(run, sizeof run,
             "{\n\"callbacks\": [\n{\"name\": \"model_checkpoint\",\n%s}]}", options);
    pl_options_t *o = pl_options_parse(run, "run.json", &err);
    is_int(o ? pl_options_check(o, &err) : PL_OK, PL_EINVAL, "%s", options);
    snprintf(wanted, sizeof wanted, "^run.json:4:%s: \"callbacks.0.%s", column, text);
    like(err.text, wanted, "before anything starts");
    pl_options_free(o);
}

static void options_that_do_not_go_together_are_refused_where_they_stand(void)
{
    refused_at("\"save_top_k\": 2", "15",
               "save_top_k\": 2 needs a metric as \"monitor\"");
    refused_at("\"filename\": \"a/b\"", "13", "filename\": .*name of one directory");
    refused_at("\"filename\": \"..\"", "13", "filename\": .*name of one directory");
    refused_at("\"filename\": \"\"", "13", "filename\": .*name of one directory");
    refused_at("\"filename\": \"stopped\"", "13", "filename\": .*reserved");
    refused_at("\"filename\": \"start\"", "13", "filename\": .*reserved");
    refused_at("\"filename\": \"last\", \"save_last\": true", "13",
               "filename\": .*reserved");
    refused_at("\"filename\": \"a{step\"", "13", "filename\": a '}' is missing");
    refused_at("\"filename\": \"{}\"", "13", "filename\": .*is not possible in a name");
    refused_at("\"filename\": \"{x:.2}\"", "13",
               "filename\": .*is not possible in a name");
    refused_at("\"filename\": \"{x:d}\"", "13",
               "filename\": .*is not possible in a name");
    refused_at("\"train_time_interval\": 1, \"every_n_train_steps\": 1", "50",
               "every_n_train_steps\": give");
}

/* ---- what is kept ---- */

/* Names of the checkpoints of a run, sorted, with spaces between. */
static const char *kept_by(const char *options, const char *trainer)
{
    static char all[1024];
    char callbacks[512], path[1024];
    struct dirent **entries;
    snprintf(callbacks, sizeof callbacks, CHECKPOINT("%s"), options);
    rig_t *rig = rig_with(callbacks, trainer);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "%s %s", options, result->error.text);
    snprintf(path, sizeof path, "%s/checkpoints", result->run_dir);
    int count = scandir(path, &entries, NULL, alphasort);
    *all = '\0';
    for (int k = 0; k < count; k++) {
        if (entries[k]->d_name[0] != '.')
            snprintf(all + strlen(all), sizeof all - strlen(all), " %s",
                     entries[k]->d_name);
        free(entries[k]);
    }
    if (count >= 0)
        free(entries);
    rig_free(&rig);
    return all;
}

#define FIVE "\"max_epochs\": 5"

static void options_decide_which_checkpoints_stay(void)
{
    is_text(kept_by("", FIVE), " epoch=4-step=20", "the newest");
    is_text(kept_by(", \"every_n_epochs\": 2, \"save_top_k\": -1", FIVE),
            " epoch=1-step=8 epoch=3-step=16", "of each other epoch");
    is_text(kept_by(", \"every_n_epochs\": 0, \"save_last\": true", FIVE), "",
            "never at the end of one");
    is_text(kept_by(", \"every_n_train_steps\": 6, \"save_top_k\": -1", FIVE),
            " epoch=1-step=6 epoch=2-step=12 epoch=4-step=18", "by steps");
    is_text(kept_by(", \"save_top_k\": 0", FIVE), "", "none");
    is_text(kept_by(", \"save_top_k\": 0, \"save_last\": true", FIVE), " last",
            "the last alone");
    is_text(kept_by(", \"train_time_interval\": 1e-9, \"save_top_k\": -1",
                    "\"max_steps\": 2"),
            " epoch=0-step=1 epoch=0-step=2", "by time: each step is late");
    is_text(kept_by(", \"train_time_interval\": 1e6", FIVE), "", "by time: none is");
}

static void a_metric_decides_which_are_best(void)
{
    is_text(kept_by(", \"monitor\": \"train_loss_epoch\", \"save_top_k\": 2", FIVE),
            " epoch=3-step=16 epoch=4-step=20", "less is better");
    is_text(kept_by(", \"monitor\": \"train_loss_epoch\", \"mode\": \"max\", "
                    "\"save_top_k\": 2",
                    FIVE),
            " epoch=0-step=4 epoch=1-step=8", "or more is");
    is_text(kept_by(", \"monitor\": \"val_loss\", \"save_on_train_epoch_end\": true, "
                    "\"filename\": \"e{epoch}\"",
                    FIVE ", \"check_val_every_n_epoch\": 5"),
            " eepoch=4", "after epochs, though it comes from validations");
}

static void a_name_has_metrics(void)
{
    const char *names = kept_by(", \"filename\": \"{step}-{train_loss_epoch:.2f}\"",
                                "\"max_epochs\": 1");
    like(names, "^ step=4-train_loss_epoch=[0-9]\\.[0-9][0-9]$", "rounded");
    names = kept_by(", \"filename\": \"at {train_loss_epoch}\"", "\"max_epochs\": 1");
    like(names, "^ at train_loss_epoch=[0-9]\\.[0-9][0-9][0-9]+$", "or as it is");
}

/* ---- metrics given by hand ---- */

static char wanted[512], dropped[1024];

/* The answer after an epoch whose metric was that. */
static void after(pl_instance_t *component, uint32_t epoch, const char *value)
{
    const pl_callback_ops_t *ops = component->ops;
    char metrics[64];
    pl_callback_request_t request = {.lr_factor = 1};
    pl_error_t err = {0};
    snprintf(metrics, sizeof metrics, "{\"x\": %s}", value);
    const pl_hook_event_t event = {.epoch = epoch,
                                   .global_step = epoch + 1,
                                   .metrics = metrics};
    is_int(ops->on(component->self, PL_HOOK_TRAIN_EPOCH_END, &event, &request, &err),
           PL_OK, "x is %s %s", value, err.text);
    snprintf(wanted, sizeof wanted, "%s", request.save);
    snprintf(dropped, sizeof dropped, "%s", request.drop);
}

static void component_open(pl_instance_t *component, const char *state)
{
    pl_error_t err = {0};
    json_t *value = json_pack("{s:s, s:s, s:i, s:s}", "name", "model_checkpoint",
                              "monitor", "x", "save_top_k", 2, "filename", "{epoch}");
    const pl_instance_request_t request = {.role = "callback", .value = value};
    is_int(pl_instance_make(component, &request, &err), PL_OK, "a callback %s", err.text);
    const pl_callback_ops_t *ops = component->ops;
    ops->start(component->self, &err);
    if (state)
        is_int(ops->restore(component->self, state, &err), PL_OK, "is restored");
    json_decref(value);
}

static void component_close(pl_instance_t *component)
{
    ((const pl_callback_ops_t *)component->ops)->stop(component->self);
    pl_instance_release(component);
}

static void kept_checkpoints_survive_a_resume(void)
{
    pl_instance_t component = {0}, next = {0};
    pl_error_t err = {0};
    component_open(&component, NULL);
    after(&component, 0, "null");
    is_text(wanted, "epoch=0", "what is no number is kept as long as there is room");
    after(&component, 1, "0.5");
    after(&component, 2, "0.5");
    is_text(wanted, "epoch=2", "an equal one replaces one that is not a number");
    is_text(dropped, "epoch=0", "which goes");
    after(&component, 3, "0.5");
    is_text(wanted, "", "of equal ones the first stay");
    after(&component, 4, "null");
    is_text(wanted, "", "no number is never better");
    char *state = ((const pl_callback_ops_t *)component.ops)->state(component.self, &err);
    component_open(&next, state);
    after(&next, 5, "0.6");
    is_text(wanted, "", "a resumed run knows their scores");
    after(&next, 6, "0.4");
    is_text(wanted, "epoch=6", "and what is better");
    is_text(dropped, "epoch=2", "takes the place of the worst");
    pl_text_free(state);
    component_close(&component), component_close(&next);
}

static void a_score_that_is_not_finite_stays_what_it_is(void)
{
    static const char kept[] = "{\"step\": 3, \"monitor\": \"x\", \"kept\": [{\"name\": "
                               "\"a\", \"score\": \"-inf\"}, {\"name\": \"b\", "
                               "\"score\": \"inf\"}]}";
    pl_instance_t component = {0};
    pl_error_t err = {0};
    component_open(&component, kept);
    char *state = ((const pl_callback_ops_t *)component.ops)->state(component.self, &err);
    like(state, "\"a\",\"score\":\"-inf\".*\"b\",\"score\":\"inf\"", "%s", state);
    pl_text_free(state);
    after(&component, 7, "0.5");
    is_text(dropped, "b", "the worst goes");
    after(&component, 8, "0.4");
    is_text(dropped, "epoch=7", "the best stays");
    component_close(&component);
}

int main(void)
{
    rig_init(NULL);
    run(options_that_do_not_go_together_are_refused_where_they_stand);
    run(options_decide_which_checkpoints_stay);
    run(a_metric_decides_which_are_best);
    run(a_name_has_metrics);
    run(kept_checkpoints_survive_a_resume);
    run(a_score_that_is_not_finite_stays_what_it_is);
    run(names_that_do_not_differ_are_numbered);
    run(a_validation_metric_is_waited_for);
    run(a_metric_missing_in_validation_is_reported_after_the_first);
    run(an_existing_metric_may_be_in_a_name);
    run(a_metric_that_can_never_exist_is_reported_before_the_start);
    run(a_run_that_is_stopped_before_one_is_due_has_kept_one);
    run(a_run_that_ends_within_an_epoch_is_kept);
    run(a_resumed_run_replaces_what_the_engine_itself_has_saved);
    return tap_done();
}
