/* options.c - tests of runs in memory: engine/base/options.c,
 * run_defaults.c, json_path.c */
#include "base/options.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample_components.h"
#include "scarce.h"
#include "tap.h"

static pl_error_t err;

/* ---- Setting and getting ---- */

static void is_value(const pl_options_t *o, const char *key, const char *want)
{
    char *got = pl_options_get(o, key);
    is_text(got, want, "%s is %s", key, want ? want : "not there");
    pl_text_free(got);
}

static void an_empty_run_has_all_defaults(void)
{
    pl_options_t *o = pl_options_new(&err);
    is_int(pl_options_check(o, &err), PL_OK, "it is in order");
    is_value(o, "trainer.devices", "auto");
    is_value(o, "trainer.max_epochs", "1000");
    is_value(o, "trainer.val_check_interval", "1.0");
    is_value(o, "trainer.accelerator.name", "auto");
    is_value(o, "trainer.default_root_dir", "runs");
    is_value(o, "callbacks", "[]");
    is_value(o, "module", NULL);
    is_value(o, "trainer.none", NULL);
    is_value(o, "", NULL);
    pl_options_free(o);
}

static void set_value(pl_options_t *o, const char *key, const char *value,
                      const char *want)
{
    if (!ok(pl_options_set(o, key, value, &err) == PL_OK, "set %s", key))
        tap_diag("%s", err.text);
    is_value(o, key, want);
}

static void a_set_option_is_returned(void)
{
    pl_options_t *o = pl_options_new(&err);
    set_value(o, "trainer.devices", "2", "2");
    set_value(o, "trainer.devices", "2:4", "2:4");
    set_value(o, "trainer.devices", "[0, 2]", "[0,2]");
    set_value(o, "trainer.devices", "auto", "auto");
    set_value(o, "trainer.seed", "9223372036854775806", "9223372036854775806");
    set_value(o, "trainer.gradient_clip_val", "0.1", "0.1");
    set_value(o, "trainer.run_name", "\"7\"", "7");
    set_value(o, "trainer.run_name", "07", "07");
    set_value(o, "trainer.max_time", "60", "60");
    set_value(o, "trainer.run_name", "a b", "a b");
    set_value(o, "trainer.limit_val_batches", "1e-1", "0.1");
    set_value(o, "module.hidden", "[1, 2]", "[1,2]");
    set_value(o, "module.name", "mlp", "mlp");
    set_value(o, "callbacks.0.name", "early_stopping", "early_stopping");
    set_value(o, "callbacks.1", "model_checkpoint", "model_checkpoint");
    set_value(o, "callbacks.1.monitor", "lr", "lr");
    is_value(o, "callbacks.1.name", "model_checkpoint");
    is_value(o, "callbacks.0.patience", "3");
    set_value(o, "plugins.0", "./x.so", "./x.so");
    set_value(o, "plugins", "[]", "[]");
    set_value(o, "scheduler", "null", NULL);
    is_int(pl_options_check(o, &err), PL_OK, "and the whole is in order");
    pl_options_free(o);
}

static void an_option_of_type_text_takes_what_is_set_as_text(void)
{
    static const char *const texts[] = {"2024", "1e3",  "007",    "1.0", "-0",
                                        "true", "null", "[1, 2]", "{}",  "\"7\""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pl_options_t *o = sample_run("{\"data\": \"idx\"}");
        const char *want = texts[i][0] == '"' ? "7" : texts[i];
        pl_options_set(o, "data.path", texts[i], &err);
        pl_options_set(o, "trainer.default_root_dir", texts[i], &err);
        is_int(pl_options_check(o, &err), PL_OK, "%s is in order: %s", texts[i],
               err.text);
        is_value(o, "data.path", want);
        is_value(o, "trainer.default_root_dir", want);
        pl_options_free(o);
    }
    pl_options_t *o = sample_run("{}");
    pl_options_set(o, "data.path", "12", &err);
    pl_options_set(o, "data.name", "idx", &err);
    is_int(pl_options_check(o, &err), PL_OK, "the part may be named afterwards");
    is_value(o, "data.path", "12");
    pl_options_free(o);
}

static void a_number_in_a_run_file_is_no_text(void)
{
    pl_options_t *o = sample_run("{\"data\": {\"name\": \"idx\", \"path\": 5}}");
    is_int(pl_options_check(o, &err), PL_EINVAL, "refused");
    is_text(err.text, "run.json:1:34: \"data.path\" takes text, not 5", "%s", err.text);
    pl_options_free(o);
    o = sample_run("{}");
    pl_options_set(o, "data.path", "5", &err);
    pl_options_set(o, "data", "{\"name\": \"idx\", \"path\": 6}", &err);
    is_int(pl_options_check(o, &err), PL_EINVAL, "nor what another value has replaced");
    pl_options_free(o);
}

static void a_stratified_split_needs_a_share(void)
{
    pl_options_t *o = sample_run("{\"data\": {\"name\": \"idx\", \"path\": \"x\", "
                                 "\"stratify\": true}}");
    is_int(pl_options_check(o, &err), PL_EINVAL, "refused");
    like(err.text, "^run.json:1:[0-9]+: \"data.stratify\" needs \"data.val_split\"", "%s",
         err.text);
    pl_options_set(o, "data.val_split", "0.1", &err);
    is_int(pl_options_check(o, &err), PL_OK, "and taken with one");
    pl_options_free(o);
}

static void a_component_takes_options_however_it_was_written(void)
{
    static const char *const ways[] = {
        "{}", "{\"trainer\": {\"accelerator\": \"auto\"}}",
        "{\"trainer\": {\"accelerator\": \"cpu\"}}",
        "{\"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 3}}}"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pl_options_t *o = sample_run(ways[i]);
        set_value(o, "trainer.accelerator.threads", "1", "1");
        is_value(o, "trainer.accelerator.name", i < 2 ? "auto" : "cpu");
        is_int(pl_options_check(o, &err), PL_OK, "%s", ways[i]);
        pl_options_free(o);
    }
}

static void refuse_set(const char *key, const char *value, const char *error)
{
    pl_options_t *o =
        sample_run("{\n\"trainer\": {\"depth\": 3}, \"loggers\": [\"csv\"]}");
    char *before = pl_options_text(o, &err);
    int rc = pl_options_set(o, key, value, &err);
    rc = rc == PL_OK ? pl_options_check(o, &err) : rc;
    ok(rc < 0 && rc == err.code, "%s=%s is refused", key, value);
    is_text(err.text, error, "%s", error);
    pl_text_free(before);
    pl_options_free(o);
}

static void setting_nonsense_is_refused(void)
{
    refuse_set("trainer.max_epoch", "1",
               "unknown key \"trainer.max_epoch\": did you mean \"max_epochs\"?");
    refuse_set("trainer.depth", "17",
               "\"trainer.depth\" takes an integer from 0 to 16, not 17");
    refuse_set("trainer.depth", "two",
               "\"trainer.depth\" takes an integer from 0 to 16, not \"two\"");
    refuse_set("trainer.accelerator.threds", "2",
               "unknown key \"trainer.accelerator.threds\": did you mean \"threads\"?");
    refuse_set("tariner.depth", "1",
               "unknown key \"tariner\": did you mean \"trainer\"?");
    refuse_set("accelerator.threads", "1",
               "unknown key \"accelerator\": did you mean \"trainer.accelerator\"?");
    refuse_set("loggers.0.x", "1", "unknown key \"loggers.0.x\": known are name");
    refuse_set("loggers.2", "csv",
               "cannot set \"loggers.2\": \"2\" is not an index of a list of 1: indices "
               "start at 0, and 1 appends");
    refuse_set("loggers.x", "csv",
               "cannot set \"loggers.x\": \"x\" is not an index of a list of 1: indices "
               "start at 0, and 1 appends");
    refuse_set("loggers.1", "cvs",
               "\"loggers.1\": there is no logger \"cvs\": did you mean \"csv\"?");
    refuse_set("trainer.depth.x", "1",
               "cannot set \"trainer.depth.x\": \"depth\" is 3, which has no keys");
    refuse_set(
        "", "1",
        "cannot set \"\": a key is names separated by dots, such as trainer.devices");
    refuse_set("trainer..depth", "1",
               "cannot set \"trainer..depth\": a key is names separated by dots, such as "
               "trainer.devices");
    refuse_set("a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a", "1",
               "cannot set \"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a\": a key is names "
               "separated by dots, such as trainer.devices");
    refuse_set("trainer.run_name", "\xff", "the value is not UTF-8");
    refuse_set("\xff", "1", "the key is not UTF-8");
}

static void a_refused_change_leaves_no_trace(void)
{
    pl_options_t *o = sample_run("{\n\"trainer\": {\"depth\": 3}}");
    ok(pl_options_set(o, "trainer.depth", "17", &err) != PL_OK, "refused");
    ok(pl_options_set(o, "loggers.7.x", "0", &err) != PL_OK, "refused half-way");
    char *text = pl_options_text(o, &err);
    is_text(text, "{\"trainer\":{\"depth\":3}}", "as it was");
    pl_text_free(text);
    pl_options_free(o);
}

static void a_file_is_blamed_only_for_what_it_says(void)
{
    pl_options_t *o = sample_run(
        "{\"optimizer\": {\"name\": \"adamw\",\n\"lr\": -1}, \"module\": \"mpl\"}");
    ok(pl_options_set(o, "module", "mlp2", &err) == PL_OK,
       "a wrong module over a wrong module");
    pl_options_check(o, &err);
    is_text(err.text, "\"module\": there is no module \"mlp2\": did you mean \"mlp\"?",
            "has no place in the file");
    ok(pl_options_set(o, "module", "mlp", &err) == PL_OK, "the right one");
    pl_options_check(o, &err);
    is_text(err.text, "run.json:2:7: \"optimizer.lr\" takes a number above 0, not -1",
            "the rest has");
    pl_options_free(o);
}

static void a_clone_goes_its_own_way(void)
{
    pl_options_t *o = sample_run("{\"trainer\": {\"depth\": 3}}"),
                 *clone = pl_options_clone(o, &err);
    pl_options_set(clone, "trainer.depth", "4", &err);
    is_value(o, "trainer.depth", "3");
    pl_options_free(o);
    is_value(clone, "trainer.depth", "4");
    pl_options_free(clone);
    pl_options_free(NULL);
}

/* ---- Printing ---- */

static char *print(const char *text)
{
    pl_options_t *o = sample_run(text);
    char *printed = o ? pl_options_print(o, &err) : NULL;
    if (!printed)
        tap_diag("%s", err.text);
    pl_options_free(o);
    return printed;
}

static void a_printed_run_reads_as_the_same_run(void)
{
    static const char *const texts[] = {
        "{}",
        "{\"trainer\": {\"max_steps\": 3}, \"module\": \"mlp\"}",
        "{\"trainer\": {\"accelerator\": {\"threads\": 2}, \"strategy\": {\"name\": "
        "\"ddp\", \"collective\": \"shm\"}}}",
        "{\"data\": {\"batch_size\": 3, \"path\": \"\\u00e9\\n\\\"\\\\\", \"name\": "
        "\"idx\"}, \"scheduler\": null}",
        "{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"\"}, \"val\": null}}",
        "{\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.30000000000000004, "
        "\"weight_decay\": 1e-300}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *once = print(texts[i]), *twice = once ? print(once) : NULL;
        ok(once && twice && !strcmp(once, twice), "%s", texts[i]);
        pl_text_free(once);
        pl_text_free(twice);
    }
}

static void a_printed_run_is_in_order_and_complete(void)
{
    static const char beginning[] =
        "{\n"
        "  \"module\": {\n    \"name\": \"mlp\",\n    \"hidden\": [64, 32],\n    "
        "\"activation\": \"relu\",\n"
        "    \"classes\": \"auto\",\n    \"vocabulary\": \"\",\n    \"shape\": "
        "\"auto\",\n    \"dropout\": 0.1,\n    \"init_from\": \"\",\n    "
        "\"init_strict\": true\n  },\n"
        "  \"optimizer\": {\n    \"name\": \"adamw\",\n    \"lr\": 0.1,\n    "
        "\"weight_decay\": 0.01,\n    \"decay\": \"all\",\n    \"groups\": []\n  },\n"
        "  \"trainer\": {\n    \"accelerator\": \"auto\",\n    \"devices\": "
        "\"auto\",\n    \"num_nodes\": \"auto\",\n    \"strategy\": {\n"
        "      \"name\": \"ddp\",\n      \"bucket_mb\": 25,\n      "
        "\"replace_sampler\": true,\n"
        "      \"collective\": \"auto\",\n      \"share\": 0.5\n    },\n    "
        "\"launcher\": \"auto\",\n";
    static const char end[] =
        "  },\n  \"callbacks\": [],\n  \"loggers\": [\n    {\n      \"name\": "
        "\"jsonl\"\n    }\n  ],\n  \"plugins\": []\n}";
    char *text = print(
        "{\"trainer\": {\"max_steps\": 5, \"strategy\": \"ddp\"}, \"optimizer\": "
        "{\"lr\": 0.1, \"name\": "
        "\"adamw\"}, \"module\": {\"hidden\": [64, 32], \"name\": \"mlp\"}}");
    const char *at = text, *tail = text + strlen(text) - strlen(end);
    ok(!strncmp(text, beginning, strlen(beginning)), "to the letter");
    is_text(tail, end, "up to the end");
    for (const pl_option_t *o = pl_options_of("trainer"); at && o->name; o++) {
        char key[64];
        snprintf(key, sizeof key, "\n    \"%s\": ", o->name);
        at = strstr(at, key);
        ok(at && at < tail, "%s, in its place", o->name);
    }
    like(text, "\"max_epochs\": -1,.*\"max_steps\": 5,",
         "what follows from a step limit");
    pl_text_free(text);
}

static void the_locale_of_the_host_changes_nothing(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                        "fr_FR.utf8"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = setlocale(LC_ALL, names[i]) != NULL;
    if (!found) {
        tap_skip("no locale with a decimal comma");
        return;
    }
    char *text =
        print("{\"data\": {\"name\": \"idx\", \"path\": \"\", \"val_split\": 0.25}}");
    like(text, "\"val_split\": 0\\.25,", "a point stays a point");
    pl_text_free(text);
    setlocale(LC_ALL, "C");
}

static void a_worker_reads_the_run_it_was_sent(void)
{
    pl_options_t *o = sample_run("{\"module\": \"mlp\"}");
    pl_options_set(o, "trainer.strategy.bucket_mb", "1", &err);
    char *text = pl_options_text(o, &err);
    is_text(text, "{\"module\":\"mlp\",\"trainer\":{\"strategy\":{\"bucket_mb\":1}}}",
            "on one line");
    pl_options_t *sent = sample_run(text);
    is_value(sent, "trainer.strategy.bucket_mb", "1");
    pl_text_free(text);
    pl_options_free(o);
    pl_options_free(sent);
}

/* ---- Plug-ins and memory ---- */

static char *expected;                       /* what a run prints while there is memory */

static int use_run(void *user)
{
    pl_error_t why = {0};
    pl_trainer_options_t trainer;
    pl_data_options_t data;
    pl_binding_t *trainer_binding = NULL, *data_binding = NULL;
    pl_instance_t module = {0}, source = {0};
    pl_component_request_t request = {"module", "module", NULL,
                                      "{\"classes\": 3, \"shape\": [2]}"};
    pl_options_t *o = pl_options_load(user, &why), *clone = NULL;
    char *printed = NULL, *text = NULL;
    int rc = o ? pl_options_set(o, "trainer.strategy.collective.slots", "3", &why)
               : why.code;
    if (rc == PL_OK)
        rc = (clone = pl_options_clone(o, &why))
                     && (printed = pl_options_print(clone, &why))
                 ? PL_OK
                 : why.code;
    if (rc == PL_OK)
        rc = (text = pl_options_text(o, &why)) ? PL_OK : why.code;
    if (rc == PL_OK)
        rc = pl_options_trainer(o, &trainer, &trainer_binding, &why);
    if (rc == PL_OK)
        rc = pl_options_general(o, "data", pl_data_table, &data, &data_binding, &why);
    if (rc == PL_OK)
        rc = pl_options_component(o, &request, &module, &why);
    if (rc == PL_OK)
        rc = pl_options_source(o, PL_TRAIN, 0, &source, &why);
    if (rc == PL_OK
        && (strcmp(printed, expected)
            || strcmp(data_binding ? trainer.strategy.options : "",
                      "{\"collective\":{\"name\":\"shm\",\"slots\":3}}")))
        rc = PL_EBUG;
    pl_instance_release(&module);
    pl_instance_release(&source);
    pl_binding_free(trainer_binding);
    pl_binding_free(data_binding);
    pl_text_free(printed);
    pl_text_free(text);
    pl_options_free(clone);
    pl_options_free(o);
    return rc == why.code ? rc : PL_EBUG;
}

static void memory_may_run_out_anywhere(void)
{
    static const char text[] =
        "{\"module\": {\"name\": \"mlp\", \"dropout\": 0.25}, \"data\": {\"name\": "
        "\"idx\", \"path\": \"a\"},\n"
        "\"trainer\": {\"accelerator\": {\"threads\": 1}, \"strategy\": {\"name\": "
        "\"ddp\", \"collective\": \"shm\"}},\n"
        "\"callbacks\": [\"early_stopping\"]}";
    char path[4096];
    strcpy(path, sample_file("run.json", text, strlen(text)));
    pl_options_t *o = sample_run(text);
    pl_options_set(o, "trainer.strategy.collective.slots", "3", &err);
    expected = pl_options_print(o, &err);
    pl_options_free(o);
    scarce_try(use_run, path, "a whole run");
    pl_text_free(expected);
}

static int get_values(void *user)
{
    char *given = pl_options_get(user, "trainer.depth"),
         *fallback = pl_options_get(user, "module.dropout");
    int rc = given && fallback ? PL_OK : PL_ENOMEM;
    pl_text_free(given);
    pl_text_free(fallback);
    return rc;
}

static void memory_may_run_out_while_getting(void)
{
    pl_options_t *o = sample_run("{\"trainer\": {\"depth\": 3}, \"module\": \"mlp\"}");
    scarce_try(get_values, o, "getting");
    pl_options_free(o);
}

static void a_plugin_that_the_run_names_is_loaded(void)
{
    char text[8192];
    const char *build = getenv("top_builddir");
    snprintf(text, sizeof text,
             "{\"plugins\": [\"%s/t/.libs/sample_plugin.so\"], \"module\": {\"name\": "
             "\"guest\", "
             "\"beds\": 3}}",
             build ? build : ".");
    pl_options_t *o = sample_run(text);
    ok(!pl_component_find("module", "guest", &err), "not known before");
    is_int(pl_options_check(o, &err), PL_OK, "the run is in order");
    ok(pl_component_find("module", "guest", &err), "and its component known");
    pl_options_free(o);
}

int main(void)
{
    scarce_init();
    is_int(pl_register(sample_components, &err), PL_OK, "the samples are in order");
    run(an_empty_run_has_all_defaults);
    run(a_set_option_is_returned);
    run(an_option_of_type_text_takes_what_is_set_as_text);
    run(a_number_in_a_run_file_is_no_text);
    run(a_stratified_split_needs_a_share);
    run(a_component_takes_options_however_it_was_written);
    run(setting_nonsense_is_refused);
    run(a_refused_change_leaves_no_trace);
    run(a_file_is_blamed_only_for_what_it_says);
    run(a_clone_goes_its_own_way);
    run(a_printed_run_reads_as_the_same_run);
    run(a_printed_run_is_in_order_and_complete);
    run(the_locale_of_the_host_changes_nothing);
    run(a_worker_reads_the_run_it_was_sent);
    run(memory_may_run_out_anywhere);
    run(memory_may_run_out_while_getting);
    run(a_plugin_that_the_run_names_is_loaded);
    return tap_done();
}
