/* bind.c - tests of engine/base/bind.c: what actors get from a run */
#include "base/bind.h"

#include <string.h>

#include "base/options.h"
#include "sample_components.h"
#include "scarce.h"
#include "tap.h"

static pl_error_t err;

/* ---- Binding ---- */

static void the_trainer_gets_its_struct(void)
{
    pl_trainer_options_t t;
    pl_binding_t *binding;
    pl_options_t *o = sample_run(
        "{\"trainer\": {\"accelerator\": {\"name\": \"cpu\", "
        "\"threads\": 2}, \"limit_val_batches\": 7, "
        "\"val_check_interval\": 0.5, \"seed\": 9223372036854775807, "
        "\"run_name\": \"first\"}}");
    is_int(pl_options_trainer(o, &t, &binding, &err), PL_OK, "bound");
    pl_options_free(o);
    is_text(t.accelerator.name, "cpu", "a part by name");
    is_text(t.accelerator.options, "{\"threads\":2}", "with its options");
    is_text(t.launcher.name, "auto", "one not given");
    is_int(t.devices.max, 0, "devices are the accelerator's business");
    is_int(t.max_epochs, 1000, "epochs are limited when steps are not");
    ok(t.limit_val_batches.value == 7 && !t.limit_val_batches.is_share, "a count");
    ok(t.val_check_interval.value == 0.5 && t.val_check_interval.is_share, "a share");
    ok(t.limit_train_batches.value == 1 && t.limit_train_batches.is_share, "all");
    is_int(t.seed, INT64_MAX, "a seed of 63 bits");
    is_text(t.run_name, "first", "a text, after the run is gone");
    is_text(t.default_root_dir, "runs", "and a default");
    ok(t.enable_progress_bar && t.step_timeout == 60 && t.gradient_clip_val == 0,
       "and others");
    pl_binding_free(binding);
}

static void a_word_becomes_its_place_in_the_list(void)
{
    pl_trainer_options_t t;
    pl_binding_t *binding;
    pl_options_t *o = sample_run("{\"trainer\": {\"nan_policy\": \"rollback\", "
                                 "\"deterministic\": true}}");
    is_int(pl_options_trainer(o, &t, &binding, &err), PL_OK, "bound");
    pl_options_free(o);
    is_int(t.nan_policy, PL_NAN_ROLLBACK, "the last word");
    is_int(t.deterministic, PL_DETERMINISTIC, "a word that is also a value of JSON");
    is_int(t.gradient_clip_algorithm, PL_CLIP_NORM, "a default");
    pl_binding_free(binding);
    o = sample_run("{}");
    is_int(pl_options_trainer(o, &t, &binding, &err), PL_OK, "bound");
    pl_options_free(o);
    is_int(t.deterministic, PL_NOT_DETERMINISTIC, "a default that is false");
    pl_binding_free(binding);
}

static void limits_of_steps_and_epochs_depend_on_each_other(void)
{
    static const struct {
        const char *text;
        int64_t epochs, devices;
    } cases[] = {
        {"{\"trainer\": {\"max_steps\": 9}}", -1, 0},
        {"{\"trainer\": {\"max_steps\": -1, \"devices\": 3}}", 1000, 3},
        {"{\"trainer\": {\"max_steps\": 9, \"max_epochs\": 2, \"devices\": \"auto\"}}", 2,
         0},
        {"{\"trainer\": {\"max_epochs\": -1}}", -1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_trainer_options_t t;
        pl_binding_t *binding;
        pl_options_t *o = sample_run(cases[i].text);
        is_int(pl_options_trainer(o, &t, &binding, &err), PL_OK, "%s", cases[i].text);
        ok(t.max_epochs == cases[i].epochs && t.devices.max == cases[i].devices,
           "epochs and devices");
        pl_binding_free(binding);
        pl_options_free(o);
    }
}

static void the_data_connector_gets_the_general_keys_and_the_data_set_the_others(void)
{
    pl_data_options_t data;
    pl_binding_t *binding;
    pl_instance_t source = {0};
    pl_options_t *o = sample_run("{\"data\": {\"name\": \"idx\", \"batch_size\": 64, "
                                 "\"path\": \"here\", \"val_split\": 0.1}}");
    is_int(pl_options_general(o, "data", pl_data_table, &data, &binding, &err), PL_OK,
           "bound");
    ok(data.batch_size == 64 && data.val_split == 0.1 && data.loader.shuffle
           && data.prefetch == 4 && data.workers == 1,
       "right");
    pl_binding_free(binding);
    ok(!pl_options_has_sources(o), "one source");
    is_int(pl_options_source(o, PL_TEST, 0, &source, &err), PL_OK, "for every stage");
    is_text(((sample_idx_t *)source.self)->path, "here", "with its options");
    pl_instance_release(&source);
    pl_options_free(o);
}

static void sources_may_be_separate(void)
{
    pl_instance_t source = {0};
    pl_options_t *o = sample_run("{\"data\": {\"train\": {\"name\": \"idx\", \"path\": "
                                 "\"a\"}, \"val\": {\"name\": \"idx\", "
                                 "\"path\": \"b\"}, \"batch_size\": 2}}");
    ok(pl_options_has_sources(o), "several");
    is_int(pl_options_source(o, PL_VALIDATE, 0, &source, &err), PL_OK, "one of them");
    is_text(((sample_idx_t *)source.self)->path, "b", "is its own");
    pl_instance_release(&source);
    is_int(pl_options_source(o, PL_PREDICT, 0, &source, &err), PL_ENOTFOUND,
           "one that is not there");
    is_text(err.text,
            "run.json: the run has no data set for this stage: set \"data.predict\"",
            "says what to give");
    pl_options_free(o);
}

static int make_module(const pl_options_t *o, const char *data_info,
                       pl_instance_t *module)
{
    pl_component_request_t request = {.role = "module",
                                      .path = "module",
                                      .data_info = data_info};
    return pl_options_component(o, &request, module, &err);
}

static void the_data_fill_options_that_are_auto(void)
{
    pl_instance_t module = {0};
    pl_options_t *o = sample_run(
        "{\"module\": {\"name\": \"mlp\", \"classes\": \"auto\", "
        "\"vocabulary\": \"abc\"}}");
    is_int(make_module(o,
                       "{\"classes\": 10, \"shape\": [28, 28], \"vocabulary\": \"xyz\"}",
                       &module),
           PL_OK, "made");
    const sample_mlp_t *mlp = module.self;
    is_int(mlp->classes, 10, "classes");
    ok(mlp->shape.count == 2 && mlp->shape.value[1] == 28, "shape");
    is_text(mlp->vocabulary, "abc", "but not what was given");
    ok(mlp->hidden.count == 1 && mlp->hidden.value[0] == 128, "nor what has a default");
    is_text(((const pl_component_t *)module.ops)->name, "mlp", "with its table");
    pl_instance_release(&module);
    pl_options_free(o);
}

static void an_unknown_value_must_be_given(void)
{
    pl_instance_t module = {0};
    pl_options_t *o = sample_run("{\"module\": {\"name\": \"mlp\", \"shape\": [1]}}");
    is_int(make_module(o, "{\"shape\": [28]}", &module), PL_EINVAL, "refused");
    is_text(
        err.text,
        "module \"mlp\" needs \"classes\", which the data does not provide (classes): "
        "set \"classes\" if the data suits",
        "says so");
    is_int(make_module(o, NULL, &module), PL_EINVAL, "without any data info too");
    is_int(make_module(o, "{\"classes\": 1}", &module), PL_EINVAL, "a fact out of range");
    is_text(err.text,
            "module \"mlp\" \"classes\" takes an integer from 2 up or \"auto\", not 1",
            "as well");
    is_int(make_module(o, "{", &module), PL_EFORMAT, "invalid data info");
    ok(!module.ops && !module.self, "and nothing was made");
    pl_options_free(o);
}

static void auto_is_the_callers_value(void)
{
    pl_instance_t component = {0};
    pl_options_t *o = sample_run("{\"trainer\": {\"accelerator\": {\"threads\": 3}}}");
    pl_component_request_t request = {.role = "accelerator",
                                      .path = "trainer.accelerator",
                                      .automatic = "cpu"};
    is_text(pl_options_component_name(o, "trainer.accelerator"), "auto", "auto");
    is_text(pl_options_component_name(o, "trainer.strategy"), "auto",
            "auto when not given");
    ok(!pl_options_component_name(o, "module")
           && !pl_options_component_name(o, "trainer.seed"),
       "others are just not there");
    is_int(pl_options_component(o, &request, &component, &err), PL_OK, "made");
    is_int(((sample_number_t *)component.self)->number, 3, "its options are kept");
    pl_instance_release(&component);
    request.automatic = "cuda";
    is_int(pl_options_component(o, &request, &component, &err), PL_EINVAL,
           "unless it has no such option");
    is_text(err.text, "accelerator \"cuda\" has no option \"threads\": known are stream",
            "which is said");
    request = (pl_component_request_t){.role = "strategy",
                                       .path = "trainer.strategy",
                                       .automatic = "single"};
    is_int(pl_options_component(o, &request, &component, &err), PL_OK,
           "one that is not given at all");
    is_text(((const pl_component_t *)component.ops)->name, "single", "is that too");
    pl_instance_release(&component);
    request = (pl_component_request_t){.role = "module", .path = "module"};
    is_int(pl_options_component(o, &request, &component, &err), PL_ENOTFOUND,
           "one that must be named");
    is_text(err.text, "run.json: the run has no module: set \"module\"", "must be");
    pl_options_free(o);
}

static void a_component_may_choose_a_component(void)
{
    pl_instance_t strategy = {0}, collective = {0};
    pl_options_t *o = sample_run("{\"trainer\": {\"strategy\": {\"name\": \"ddp\", "
                                 "\"collective\": {\"name\": \"shm\", "
                                 "\"slots\": 7}}}}");
    pl_component_request_t request = {.role = "strategy", .path = "trainer.strategy"};
    is_int(pl_options_component(o, &request, &strategy, &err), PL_OK, "the strategy");
    const sample_ddp_t *ddp = strategy.self;
    ok(!ddp->spare.name && ddp->replace_sampler && ddp->share.is_share,
       "what is not given");
    is_int(pl_instance_of_choice(&collective, "collective", &ddp->collective, NULL, &err),
           PL_OK, "its collective");
    is_int(((sample_number_t *)collective.self)->number, 7, "with options");
    pl_instance_release(&collective);
    is_int(pl_instance_of_choice(&collective, "collective", &ddp->spare, NULL, &err),
           PL_EINVAL, "none");
    pl_choice_t any = {"auto", "{}"};
    is_int(pl_instance_of_choice(&collective, "collective", &any, "shm", &err), PL_OK,
           "or any");
    pl_instance_release(&collective);
    pl_instance_release(&strategy);
    pl_options_free(o);
}

static void lists_are_counted_and_their_components_made(void)
{
    pl_instance_t callback = {0};
    pl_options_t *o = sample_run("{\"callbacks\": [\"early_stopping\", {\"name\": "
                                 "\"model_checkpoint\", \"monitor\": \"x\"}]}");
    is_int(pl_options_count(o, "callbacks"), 2, "two");
    is_int(pl_options_count(o, "loggers"), 0, "none");
    is_text(pl_options_component_name(o, "callbacks.1"), "model_checkpoint", "by name");
    pl_component_request_t request = {.role = "callback", .path = "callbacks.1"};
    is_int(pl_options_component(o, &request, &callback, &err), PL_OK, "and made");
    pl_instance_release(&callback);
    pl_options_free(o);
}

int main(void)
{
    scarce_init();
    is_int(pl_register(sample_components, &err), PL_OK, "the samples are in order");
    run(the_trainer_gets_its_struct);
    run(a_word_becomes_its_place_in_the_list);
    run(limits_of_steps_and_epochs_depend_on_each_other);
    run(the_data_connector_gets_the_general_keys_and_the_data_set_the_others);
    run(sources_may_be_separate);
    run(the_data_fill_options_that_are_auto);
    run(an_unknown_value_must_be_given);
    run(auto_is_the_callers_value);
    run(a_component_may_choose_a_component);
    run(lists_are_counted_and_their_components_made);
    return tap_done();
}
