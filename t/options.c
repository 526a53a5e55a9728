/* options.c - tests of run files: engine/base/options.c, run_check.c, run_fill.c, bind.c and what they stand on */
#include "base/options.h"

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/range.h"
#include "base/utf8.h"
#include "sample_parts.h"
#include "scarce.h"
#include "tap.h"

static pl_error_t err;

/* jansson's parser writes where it must not when its memory runs out (lex_save() ignores it), so it never does while
 * jansson parses; everywhere else it may. */
json_t *__real_json_loadb(const char *text, size_t length, size_t flags, json_error_t *error);
json_t *__wrap_json_loadb(const char *text, size_t length, size_t flags, json_error_t *error);

json_t *__wrap_json_loadb(const char *text, size_t length, size_t flags, json_error_t *error)
{
    bool before = scarce_spare(true);
    json_t *value = __real_json_loadb(text, length, flags, error);
    scarce_spare(before);
    return value;
}

static pl_options_t *parse(const char *text)
{
    pl_options_t *o = pl_options_parse(text, "run.json", &err);
    if (!o)
        tap_diag("%s", err.text);
    return o;
}

/* ---- Errors ---- */

typedef struct wrong {
    const char *text, *error;
} wrong_t;

/* Each is refused with exactly that error, by reading or by checking it. */
static void refuse(const wrong_t *wrong, int count)
{
    for (int i = 0; i < count; i++) {
        err = (pl_error_t){0};
        pl_options_t *o = pl_options_parse(wrong[i].text, "run.json", &err);
        int rc = o ? pl_options_check(o, &err) : err.code;
        ok(rc < 0 && rc == err.code, "refused");
        is_text(err.text, wrong[i].error, "%s", wrong[i].error);
        pl_options_free(o);
    }
}
#define REFUSE(...) refuse((const wrong_t[]){__VA_ARGS__}, sizeof((const wrong_t[]){__VA_ARGS__}) / sizeof(wrong_t))

static void what_is_not_json_is_refused_where_it_stops_being_so(void)
{
    REFUSE({"", "run.json:1:1: empty: an object such as {\"module\": …} is expected"},
           {"[]", "run.json:1:1: a list: an object such as {\"module\": …} is expected"},
           {"5", "run.json:1:1: not JSON: '[' or '{' expected near '5'"},
           {"{\n  \"trainer\": {\"depth\": NaN}}", "run.json:2:24: not JSON: invalid token near 'NaN'"},
           {"{\"trainer\": {\"depth\": -Infinity}}", "run.json:1:23: not JSON: invalid token near '-'"},
           {"{\"a\": 1e999}", "run.json:1:7: not JSON: real number overflow near '1e999'"},
           {"{\"a\": 9223372036854775808}", "run.json:1:7: not JSON: too big integer near '9223372036854775808'"},
           {"{\"a\": 1,\n}", "run.json:2:1: not JSON: string or '}' expected near '}'"},
           {"{\"a\": \"b\n\"}", "run.json:1:7: not JSON: unexpected newline near '\"b'"},
           {"{\"a\": \"\\u0000\"}", "run.json:1:7: not JSON: \\u0000 is not allowed without JSON_ALLOW_NUL near '\"\\u0000\"'"},
           {"{\"é\": \"é\xff\"}", "run.json:1:9: not JSON: unable to decode byte 0xff near '\"é'"},
           {"{\"a\":\n\n", "run.json:3:1: not JSON: unexpected token near end of file"},
           {"{} {}", "run.json:1:4: not JSON: end of file expected near '{'"}, );
}

static void a_key_twice_is_refused_at_the_second(void)
{
    REFUSE({"{\"trainer\": {\"depth\": 1,\n\t\"depth\" : 2}}", "run.json:2:2: key \"depth\" is there twice: remove one"},
           {"{\"module\": \"mlp\", \"modul\\u0065\": \"mlp\"}",
            "run.json:1:19: key \"modul\\u0065\" is there twice: remove one"}, );
}

static void an_unknown_key_is_refused_with_the_nearest(void)
{
    REFUSE({"{\n  \"module\": \"mlp\",\n  \"trainer\":    {\"max_epoch\": 3}\n}",
            "run.json:3:18: unknown key \"trainer.max_epoch\": did you mean \"max_epochs\"?"},
           {"{\"modul\": \"mlp\"}", "run.json:1:2: unknown key \"modul\": did you mean \"module\"?"},
           {"{\"x\": 1}", "run.json:1:2: unknown key \"x\": known are module, data, optimizer, scheduler, trainer, "
                         "callbacks, loggers, plugins"},
           {"{\"module\": {\"name\": \"mlp\", \"hiden\": [1]}}",
            "run.json:1:28: unknown key \"module.hiden\": did you mean \"hidden\"?"},
           {"{\"callbacks\": [\"early_stopping\", {\"name\": \"early_stopping\",\n\"\\u006donito\": 1}]}",
            "run.json:2:1: unknown key \"callbacks.1.monito\": did you mean \"monitor\"?"},
           {"{\"data\": {\"name\": \"idx\", \"path\": \"a\", \"batchsize\": 1}}",
            "run.json:1:39: unknown key \"data.batchsize\": did you mean \"batch_size\"?"},
           {"{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"a\", \"shuffle\": true}}}",
            "run.json:1:49: unknown key \"data.train.shuffle\": known are name, path"},
           {"{\"trainer\": {\"strategy\": {\"name\": \"ddp\", \"collective\": {\"name\": \"shm\", \"slot\": 1}}}}",
            "run.json:1:72: unknown key \"trainer.strategy.collective.slot\": did you mean \"slots\"?"},
           {"{\"trainer\": {\"accelerator\": {\"thread\": 1}}}",
            "run.json:1:30: unknown key \"trainer.accelerator.thread\": did you mean \"threads\"?"},
           {"{\"trainer\": {\"a\\nb\\u001b.c\": 1}}", "run.json:1:14: unknown key \"trainer.a?b?.c\": known are accelerator, "
            "devices, strategy, launcher, precision, max_epochs, max_steps, accumulate_grad_batches, gradient_clip_val, "
            "val_check_interval, limit_train_batches, limit_val_batches, limit_predict_batches, log_every_n_steps, seed, "
            "default_root_dir, depth, step_timeout, …"}, );
}

static void a_value_of_the_wrong_type_is_refused(void)
{
    REFUSE({"{\"trainer\": {\"depth\": \"two\"}}", "run.json:1:23: \"trainer.depth\" takes an integer from 1 to 16, not \"two\""},
           {"{\"trainer\": {\"depth\": 2.0}}", "run.json:1:23: \"trainer.depth\" takes an integer from 1 to 16, not 2.0"},
           {"{\"trainer\": {\"devices\": []}}", "run.json:1:25: \"trainer.devices\" takes an integer from 1 up or \"auto\", not []"},
           {"{\"trainer\": {\"seed\": \"auto\"}}", "run.json:1:22: \"trainer.seed\" takes an integer from 0 up, not \"auto\""},
           {"{\"trainer\": {\"step_timeout\": null}}",
            "run.json:1:30: \"trainer.step_timeout\" takes a number above 0, not null"},
           {"{\"trainer\": {\"enable_progress_bar\": 1}}",
            "run.json:1:37: \"trainer.enable_progress_bar\" takes true or false, not 1"},
           {"{\"trainer\": {\"run_name\": 7}}", "run.json:1:26: \"trainer.run_name\" takes text, not 7"},
           {"{\"trainer\": {\"limit_val_batches\": \"all\"}}",
            "run.json:1:35: \"trainer.limit_val_batches\" takes a share up to 1.0 or a whole count, not \"all\""},
           {"{\"trainer\": {\"strategy\": 1}}",
            "run.json:1:26: \"trainer.strategy\" takes a name or an object with a \"name\", not 1"},
           {"{\"trainer\": {\"strategy\": {\"name\": 1}}}",
            "run.json:1:26: \"trainer.strategy\" takes a name or an object with a \"name\", not {\"name\":1}"},
           {"{\"trainer\": \"ddp\"}", "run.json:1:13: \"trainer\" takes an object, not \"ddp\""},
           {"{\"callbacks\": {}}", "run.json:1:15: \"callbacks\" takes a list of parts, not {}"},
           {"{\"callbacks\": [[]]}", "run.json:1:16: \"callbacks.0\" takes a name or an object with a \"name\", not []"},
           {"{\"plugins\": \"x.so\"}", "run.json:1:13: \"plugins\" takes a list of file names, not \"x.so\""},
           {"{\"plugins\": [\"\"]}", "run.json:1:14: \"plugins.0\" takes the name of a shared object, not \"\""},
           {"{\"module\": {\"name\": \"mlp\", \"hidden\": 128}}",
            "run.json:1:38: \"module.hidden\" takes a list of at most 16 integers from 1 up, not 128"},
           {"{\"data\": 3}", "run.json:1:10: \"data\" takes a name, an object with a \"name\", or one with \"train\", "
                            "\"val\", …, not 3"}, );
}

static void a_value_out_of_range_is_refused(void)
{
    REFUSE({"{\"trainer\": {\"depth\": 17}}", "run.json:1:23: \"trainer.depth\" takes an integer from 1 to 16, not 17"},
           {"{\"trainer\": {\"seed\": -1}}", "run.json:1:22: \"trainer.seed\" takes an integer from 0 up, not -1"},
           {"{\"trainer\": {\"devices\": 0}}", "run.json:1:25: \"trainer.devices\" takes an integer from 1 up or \"auto\", not 0"},
           {"{\"data\": {\"val_split\": 1.0}}", "run.json:1:24: \"data.val_split\" takes a number from 0 to below 1, not 1.0"},
           {"{\"trainer\": {\"val_check_interval\": 0}}", "run.json:1:36: \"trainer.val_check_interval\" takes a share up to "
                                                         "1.0 or a whole count above 0, not 0"},
           {"{\"trainer\": {\"val_check_interval\": 1.5}}", "run.json:1:36: \"trainer.val_check_interval\" takes a share up "
                                                           "to 1.0 or a whole count above 0, not 1.5"},
           {"{\"trainer\": {\"precision\": \"bf16-mixed\"}}",
            "run.json:1:27: \"trainer.precision\" takes 32-true, not \"bf16-mixed\""},
           {"{\"module\": {\"name\": \"mlp\", \"activation\": \"rely\"}}",
            "run.json:1:42: \"module.activation\" takes relu|gelu|tanh, not \"rely\": did you mean \"relu\"?"},
           {"{\"module\": {\"name\": \"mlp\", \"hidden\": [3, 0]}}",
            "run.json:1:38: \"module.hidden\" takes a list of at most 16 integers from 1 up, not [3,0]"},
           {"{\"module\": {\"name\": \"mlp\", \"hidden\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}",
            "run.json:1:38: \"module.hidden\" takes a list of at most 16 integers from 1 up, not "
            "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"},
           {"{\"trainer\": {\"accelerator\": {\"stream\": 10}}}",
            "run.json:1:40: \"trainer.accelerator.stream\" takes an integer from 0 to 9, not 10"}, );
}

static void a_part_that_is_not_there_is_refused(void)
{
    REFUSE({"{\"trainer\": {\n \"strategy\": \"dpd\"}}",
            "run.json:2:14: \"trainer.strategy\": there is no strategy \"dpd\": did you mean \"ddp\"?"},
           {"{\"optimizer\": {\"lr\": 1, \"name\": \"muon\"}}",
            "run.json:1:33: \"optimizer.name\": there is no optimizer \"muon\": known are adamw, sgd"},
           {"{\"module\": \"auto\"}", "run.json:1:12: \"module\": there is no module \"auto\": known are mlp"},
           {"{\"optimizer\": {\"lr\": 1}}", "run.json:1:15: \"optimizer\" needs \"name\": which optimizer it is"},
           {"{\"plugins\": [\"./none.so\"]}", "run.json:1:14: there is no plug-in ./none.so"}, );
}

static void what_has_no_default_must_be_given(void)
{
    REFUSE({"{\"data\": \"idx\"}", "run.json:1:10: \"data\" needs \"path\": folder of the files"},
           {"{\"data\": {\"train\": {\"name\": \"idx\"}}}", "run.json:1:20: \"data.train\" needs \"path\": folder of the files"}, );
}

static void keys_that_contradict_each_other_are_refused(void)
{
    REFUSE({"{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"a\"}, \"name\": \"idx\"}}",
            "run.json:1:50: \"data\" is one source with a \"name\", or has \"train\", \"val\", \"test\", \"predict\": not both"},
           {"{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"a\"}, \"val\": {\"name\": \"idx\", \"path\": \"b\"},\n"
            "\"val_split\": 0.1}}",
            "run.json:2:1: \"data.val_split\" and \"data.val\" contradict each other: remove one"}, );
}

static void columns_count_characters(void)
{
    REFUSE({"{\"trainer\": {\"run_name\": \"äöü\", \"depht\": 1}}",
            "run.json:1:33: unknown key \"trainer.depht\": did you mean \"depth\"?"},
           {"{\"trainer\": {\"run_name\": \"a\\\"}b{\\\\\", \"depth\": 0}}",
            "run.json:1:47: \"trainer.depth\" takes an integer from 1 to 16, not 0"}, );
}

/* ---- Files ---- */

static const char *file_of(const char *name, const char *text, size_t length)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", tap_folder(), name);
    FILE *file = fopen(path, "wb");
    fwrite(text, 1, length, file);
    fclose(file);
    return path;
}

static void refuse_file(const char *path, int code, const char *pattern)
{
    err = (pl_error_t){0};
    pl_options_t *o = pl_options_load(path, &err);
    ok(!o, "%s is refused", strrchr(path, '/'));
    pl_options_free(o);
    is_int(err.code, code, "with its code");
    like(err.text, pattern, "and a reason: %s", err.text);
}

static void what_is_no_run_file_is_refused(void)
{
    char path[4096], *deep = malloc(200000);
    refuse_file(tap_folder(), PL_EIO, "^cannot read /.*: not a file$");
    snprintf(path, sizeof path, "%s/none", tap_folder());
    refuse_file(path, PL_ENOTFOUND, "^cannot read /.*/none: No such file or directory$");
    snprintf(path, sizeof path, "%s/pipe", tap_folder());
    ok(mkfifo(path, 0600) == 0, "a pipe that nobody writes");
    refuse_file(path, PL_EIO, "not a file$");
    refuse_file(file_of("empty", "", 0), PL_EFORMAT, "^/.*/empty:1:1: empty: ");
    refuse_file(file_of("nul", "{}\0{}", 5), PL_EFORMAT, "^/.*/nul:1:3: not JSON: end of file expected");
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    refuse_file(file_of("deep", deep, 200000), PL_EFORMAT, "^/.*/deep:1:2049: not JSON: maximum parsing depth reached");
    free(deep);
}

static void a_large_file_is_refused_before_it_is_read_whole(void)
{
    const char *path = file_of("large", "{}", 2);
    ok(truncate(path, INT64_C(1) << 30) == 0, "a file of 1 GiB");
    refuse_file(path, PL_EFORMAT, "^cannot read /.*/large: larger than 16 MiB");
    ok(truncate(path, 16 << 20) == 0, "one of 16 MiB");
    refuse_file(path, PL_EFORMAT, "^/.*/large:1:3: not JSON");
}

static void a_file_reads_as_its_text(void)
{
    static const char text[] = "{\"trainer\": {\"seed\": 9223372036854775807}}";
    pl_options_t *o = pl_options_load(file_of("run.json", text, strlen(text)), &err);
    char *seed = pl_options_get(o, "trainer.seed");
    is_text(seed, "9223372036854775807", "a seed of 63 bits stays exact");
    pl_text_free(seed);
    pl_options_free(o);
}

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

static void set_value(pl_options_t *o, const char *key, const char *value, const char *want)
{
    if (!ok(pl_options_set(o, key, value, &err) == PL_OK, "set %s", key))
        tap_diag("%s", err.text);
    is_value(o, key, want);
}

static void what_was_set_is_what_is_got(void)
{
    pl_options_t *o = pl_options_new(&err);
    set_value(o, "trainer.devices", "2", "2");
    set_value(o, "trainer.devices", "auto", "auto");
    set_value(o, "trainer.seed", "9223372036854775806", "9223372036854775806");
    set_value(o, "trainer.gradient_clip_val", "0.1", "0.1");
    set_value(o, "trainer.run_name", "\"7\"", "7");
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

static void a_part_takes_options_however_it_was_written(void)
{
    static const char *const ways[] = {"{}", "{\"trainer\": {\"accelerator\": \"auto\"}}",
                                       "{\"trainer\": {\"accelerator\": \"cpu\"}}",
                                       "{\"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 3}}}"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pl_options_t *o = parse(ways[i]);
        set_value(o, "trainer.accelerator.threads", "1", "1");
        is_value(o, "trainer.accelerator.name", i < 2 ? "auto" : "cpu");
        is_int(pl_options_check(o, &err), PL_OK, "%s", ways[i]);
        pl_options_free(o);
    }
}

static void refuse_set(const char *key, const char *value, const char *error)
{
    pl_options_t *o = parse("{\n\"trainer\": {\"depth\": 3}, \"loggers\": [\"csv\"]}");
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
    refuse_set("trainer.max_epoch", "1", "unknown key \"trainer.max_epoch\": did you mean \"max_epochs\"?");
    refuse_set("trainer.depth", "17", "\"trainer.depth\" takes an integer from 1 to 16, not 17");
    refuse_set("trainer.depth", "two", "\"trainer.depth\" takes an integer from 1 to 16, not \"two\"");
    refuse_set("trainer.accelerator.threds", "2", "unknown key \"trainer.accelerator.threds\": did you mean \"threads\"?");
    refuse_set("tariner.depth", "1", "unknown key \"tariner\": did you mean \"trainer\"?");
    refuse_set("loggers.0.x", "1", "unknown key \"loggers.0.x\": known are name");
    refuse_set("loggers.2", "csv",
               "cannot set \"loggers.2\": \"2\" is no place in a list of 1: the first is 0, the next new one 1");
    refuse_set("loggers.x", "csv",
               "cannot set \"loggers.x\": \"x\" is no place in a list of 1: the first is 0, the next new one 1");
    refuse_set("loggers.1", "cvs", "\"loggers.1\": there is no logger \"cvs\": did you mean \"csv\"?");
    refuse_set("trainer.depth.x", "1", "cannot set \"trainer.depth.x\": \"depth\" is 3, which has no keys");
    refuse_set("", "1", "cannot set \"\": a key is names with dots between, such as trainer.devices");
    refuse_set("trainer..depth", "1",
               "cannot set \"trainer..depth\": a key is names with dots between, such as trainer.devices");
    refuse_set("a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a", "1",
               "cannot set \"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a\": a key is names with dots between, such as trainer.devices");
    refuse_set("trainer.run_name", "\xff", "the value is not UTF-8");
    refuse_set("\xff", "1", "the key is not UTF-8");
}

static void a_refused_change_leaves_no_trace(void)
{
    pl_options_t *o = parse("{\n\"trainer\": {\"depth\": 3}}");
    ok(pl_options_set(o, "trainer.depth", "0", &err) != PL_OK, "refused");
    ok(pl_options_set(o, "loggers.7.x", "0", &err) != PL_OK, "refused half-way");
    char *text = pl_options_text(o, &err);
    is_text(text, "{\"trainer\":{\"depth\":3}}", "as it was");
    pl_text_free(text);
    pl_options_free(o);
}

static void a_file_is_blamed_only_for_what_it_says(void)
{
    pl_options_t *o = parse("{\"optimizer\": {\"name\": \"adamw\",\n\"lr\": -1}, \"module\": \"mpl\"}");
    ok(pl_options_set(o, "module", "mlp2", &err) == PL_OK, "a wrong module over a wrong module");
    pl_options_check(o, &err);
    is_text(err.text, "\"module\": there is no module \"mlp2\": did you mean \"mlp\"?", "has no place in the file");
    ok(pl_options_set(o, "module", "mlp", &err) == PL_OK, "the right one");
    pl_options_check(o, &err);
    is_text(err.text, "run.json:2:7: \"optimizer.lr\" takes a number above 0, not -1", "the rest has");
    pl_options_free(o);
}

static void a_clone_goes_its_own_way(void)
{
    pl_options_t *o = parse("{\"trainer\": {\"depth\": 3}}"), *clone = pl_options_clone(o, &err);
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
    pl_options_t *o = parse(text);
    char *printed = o ? pl_options_print(o, &err) : NULL;
    if (!printed)
        tap_diag("%s", err.text);
    pl_options_free(o);
    return printed;
}

static void what_is_printed_reads_as_the_same_run(void)
{
    static const char *const texts[] = {
        "{}",
        "{\"trainer\": {\"max_steps\": 3}, \"module\": \"mlp\"}",
        "{\"trainer\": {\"accelerator\": {\"threads\": 2}, \"strategy\": {\"name\": \"ddp\", \"collective\": \"shm\"}}}",
        "{\"data\": {\"batch_size\": 3, \"path\": \"\\u00e9\\n\\\"\\\\\", \"name\": \"idx\"}, \"scheduler\": null}",
        "{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"\"}, \"val\": null}}",
        "{\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.30000000000000004, \"weight_decay\": 1e-300}}",
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
    char *text = print("{\"trainer\": {\"max_steps\": 5, \"strategy\": \"ddp\"}, \"optimizer\": {\"lr\": 0.1, \"name\": "
                       "\"adamw\"}, \"module\": {\"hidden\": [64, 32], \"name\": \"mlp\"}}");
    is_text(text, "{\n"
                  "  \"module\": {\n    \"name\": \"mlp\",\n    \"hidden\": [64, 32],\n    \"activation\": \"relu\",\n"
                  "    \"classes\": \"auto\",\n    \"vocabulary\": \"\",\n    \"shape\": \"auto\",\n    \"dropout\": 0.1\n  },\n"
                  "  \"optimizer\": {\n    \"name\": \"adamw\",\n    \"lr\": 0.1,\n    \"weight_decay\": 0.01\n  },\n"
                  "  \"trainer\": {\n    \"accelerator\": \"auto\",\n    \"devices\": \"auto\",\n    \"strategy\": {\n"
                  "      \"name\": \"ddp\",\n      \"bucket_mb\": 25,\n      \"replace_sampler\": true,\n"
                  "      \"collective\": \"auto\",\n      \"share\": 0.5\n    },\n    \"launcher\": \"auto\",\n"
                  "    \"precision\": \"32-true\",\n    \"max_epochs\": -1,\n    \"max_steps\": 5,\n"
                  "    \"accumulate_grad_batches\": 1,\n    \"gradient_clip_val\": 0,\n    \"val_check_interval\": 1.0,\n"
                  "    \"limit_train_batches\": 1.0,\n    \"limit_val_batches\": 1.0,\n"
                  "    \"limit_predict_batches\": 1.0,\n    \"log_every_n_steps\": 50,\n    \"seed\": 42,\n"
                  "    \"default_root_dir\": \"runs\",\n    \"depth\": 2,\n    \"step_timeout\": 60,\n"
                  "    \"run_name\": \"\",\n    \"enable_progress_bar\": true\n  },\n"
                  "  \"callbacks\": [],\n  \"loggers\": [],\n  \"plugins\": []\n}",
            "to the letter");
    pl_text_free(text);
}

static void the_locale_of_the_host_changes_nothing(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = setlocale(LC_ALL, names[i]) != NULL;
    if (!found) {
        tap_skip("no locale with a decimal comma");
        return;
    }
    char *text = print("{\"data\": {\"name\": \"idx\", \"path\": \"\", \"val_split\": 0.25}}");
    like(text, "\"val_split\": 0\\.25,", "a point stays a point");
    pl_text_free(text);
    setlocale(LC_ALL, "C");
}

static void a_worker_reads_the_run_it_was_sent(void)
{
    pl_options_t *o = parse("{\"module\": \"mlp\"}");
    pl_options_set(o, "trainer.strategy.bucket_mb", "1", &err);
    char *text = pl_options_text(o, &err);
    is_text(text, "{\"module\":\"mlp\",\"trainer\":{\"strategy\":{\"bucket_mb\":1}}}", "on one line");
    pl_options_t *sent = parse(text);
    is_value(sent, "trainer.strategy.bucket_mb", "1");
    pl_text_free(text);
    pl_options_free(o);
    pl_options_free(sent);
}

/* ---- Binding ---- */

static void the_trainer_gets_its_struct(void)
{
    pl_trainer_options_t t;
    pl_binding_t *binding;
    pl_options_t *o = parse("{\"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 2}, \"limit_val_batches\": 7, "
                            "\"val_check_interval\": 0.5, \"seed\": 9223372036854775807, \"run_name\": \"first\"}}");
    is_int(pl_options_trainer(o, &t, &binding, &err), PL_OK, "bound");
    pl_options_free(o);
    is_text(t.accelerator.name, "cpu", "a part by name");
    is_text(t.accelerator.options, "{\"threads\":2}", "with its options");
    is_text(t.launcher.name, "auto", "one not given");
    is_int(t.devices, 0, "devices are the accelerator's business");
    is_int(t.max_epochs, 1000, "epochs are limited when steps are not");
    ok(t.limit_val_batches.value == 7 && !t.limit_val_batches.is_share, "a count");
    ok(t.val_check_interval.value == 0.5 && t.val_check_interval.is_share, "a share");
    ok(t.limit_train_batches.value == 1 && t.limit_train_batches.is_share, "all");
    is_int(t.seed, INT64_MAX, "a seed of 63 bits");
    is_text(t.run_name, "first", "a text, after the run is gone");
    is_text(t.default_root_dir, "runs", "and a default");
    ok(t.enable_progress_bar && t.step_timeout == 60 && t.gradient_clip_val == 0, "and others");
    pl_binding_free(binding);
}

static void limits_of_steps_and_epochs_depend_on_each_other(void)
{
    static const struct {
        const char *text;
        int64_t epochs, devices;
    } cases[] = {{"{\"trainer\": {\"max_steps\": 9}}", -1, 0},
                 {"{\"trainer\": {\"max_steps\": -1, \"devices\": 3}}", 1000, 3},
                 {"{\"trainer\": {\"max_steps\": 9, \"max_epochs\": 2, \"devices\": \"auto\"}}", 2, 0},
                 {"{\"trainer\": {\"max_epochs\": -1}}", -1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_trainer_options_t t;
        pl_binding_t *binding;
        pl_options_t *o = parse(cases[i].text);
        is_int(pl_options_trainer(o, &t, &binding, &err), PL_OK, "%s", cases[i].text);
        ok(t.max_epochs == cases[i].epochs && t.devices == cases[i].devices, "epochs and devices");
        pl_binding_free(binding);
        pl_options_free(o);
    }
}

static void the_data_connector_gets_the_general_keys_and_the_data_set_the_others(void)
{
    pl_data_options_t data;
    pl_binding_t *binding;
    pl_instance_t source = {0};
    pl_options_t *o = parse("{\"data\": {\"name\": \"idx\", \"batch_size\": 64, \"path\": \"here\", \"val_split\": 0.1}}");
    is_int(pl_options_data(o, &data, &binding, &err), PL_OK, "bound");
    ok(data.batch_size == 64 && data.val_split == 0.1 && data.shuffle && data.prefetch == 4 && data.workers == 1, "right");
    pl_binding_free(binding);
    ok(!pl_options_has_sources(o), "one source");
    is_int(pl_options_source(o, PL_TEST, &source, &err), PL_OK, "for every stage");
    is_text(((sample_idx_t *)source.self)->path, "here", "with its options");
    pl_instance_release(&source);
    pl_options_free(o);
}

static void sources_may_be_apart(void)
{
    pl_instance_t source = {0};
    pl_options_t *o = parse("{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"a\"}, \"val\": {\"name\": \"idx\", "
                            "\"path\": \"b\"}, \"batch_size\": 2}}");
    ok(pl_options_has_sources(o), "several");
    is_int(pl_options_source(o, PL_VALIDATE, &source, &err), PL_OK, "one of them");
    is_text(((sample_idx_t *)source.self)->path, "b", "is its own");
    pl_instance_release(&source);
    is_int(pl_options_source(o, PL_PREDICT, &source, &err), PL_ENOTFOUND, "one that is not there");
    is_text(err.text, "the run names no such source: give \"data.predict\"", "says what to give");
    pl_options_free(o);
}

static int make_module(const pl_options_t *o, const char *facts, pl_instance_t *module)
{
    pl_part_request_t request = {.role = "module", .path = "module", .facts = facts};
    return pl_options_part(o, &request, module, &err);
}

static void what_the_data_knows_fills_what_is_auto(void)
{
    pl_instance_t module = {0};
    pl_options_t *o = parse("{\"module\": {\"name\": \"mlp\", \"classes\": \"auto\", \"vocabulary\": \"abc\"}}");
    is_int(make_module(o, "{\"classes\": 10, \"shape\": [28, 28], \"vocabulary\": \"xyz\"}", &module), PL_OK, "made");
    const sample_mlp_t *mlp = module.self;
    is_int(mlp->classes, 10, "classes");
    ok(mlp->shape.count == 2 && mlp->shape.value[1] == 28, "shape");
    is_text(mlp->vocabulary, "abc", "but not what was given");
    ok(mlp->hidden.count == 1 && mlp->hidden.value[0] == 128, "nor what has a default");
    is_text(((const pl_part_t *)module.ops)->name, "mlp", "with its table");
    pl_instance_release(&module);
    pl_options_free(o);
}

static void what_nobody_knows_must_be_given(void)
{
    pl_instance_t module = {0};
    pl_options_t *o = parse("{\"module\": {\"name\": \"mlp\", \"shape\": [1]}}");
    is_int(make_module(o, "{\"shape\": [28]}", &module), PL_EINVAL, "refused");
    is_text(err.text,
            "module \"mlp\" needs \"classes\", which the data does not tell: give \"classes\" yourself (classes)", "says so");
    is_int(make_module(o, NULL, &module), PL_EINVAL, "without any facts too");
    is_int(make_module(o, "{\"classes\": 1}", &module), PL_EINVAL, "a fact out of range");
    is_text(err.text, "module \"mlp\" \"classes\" takes an integer from 2 up or \"auto\", not 1", "as well");
    is_int(make_module(o, "{", &module), PL_EFORMAT, "facts that are none");
    ok(!module.ops && !module.self, "and nothing was made");
    pl_options_free(o);
}

static void auto_is_what_the_caller_says(void)
{
    pl_instance_t part = {0};
    pl_options_t *o = parse("{\"trainer\": {\"accelerator\": {\"threads\": 3}}}");
    pl_part_request_t request = {.role = "accelerator", .path = "trainer.accelerator", .automatic = "cpu"};
    is_text(pl_options_part_name(o, "trainer.accelerator"), "auto", "auto");
    is_text(pl_options_part_name(o, "trainer.strategy"), "auto", "auto when not given");
    ok(!pl_options_part_name(o, "module") && !pl_options_part_name(o, "trainer.seed"), "others are just not there");
    is_int(pl_options_part(o, &request, &part, &err), PL_OK, "made");
    is_int(((sample_number_t *)part.self)->number, 3, "its options are kept");
    pl_instance_release(&part);
    request.automatic = "cuda";
    is_int(pl_options_part(o, &request, &part, &err), PL_EINVAL, "unless it has no such option");
    is_text(err.text, "accelerator \"cuda\" has no option \"threads\": known are stream", "which is said");
    request = (pl_part_request_t){.role = "strategy", .path = "trainer.strategy", .automatic = "single"};
    is_int(pl_options_part(o, &request, &part, &err), PL_OK, "one that is not given at all");
    is_text(((const pl_part_t *)part.ops)->name, "single", "is that too");
    pl_instance_release(&part);
    request = (pl_part_request_t){.role = "module", .path = "module"};
    is_int(pl_options_part(o, &request, &part, &err), PL_ENOTFOUND, "one that must be named");
    is_text(err.text, "the run names no module: give \"module\"", "must be");
    pl_options_free(o);
}

static void a_part_may_choose_a_part(void)
{
    pl_instance_t strategy = {0}, collective = {0};
    pl_options_t *o = parse("{\"trainer\": {\"strategy\": {\"name\": \"ddp\", \"collective\": {\"name\": \"shm\", "
                            "\"slots\": 7}}}}");
    pl_part_request_t request = {.role = "strategy", .path = "trainer.strategy"};
    is_int(pl_options_part(o, &request, &strategy, &err), PL_OK, "the strategy");
    const sample_ddp_t *ddp = strategy.self;
    ok(!ddp->spare.name && ddp->replace_sampler && ddp->share.is_share, "what is not given");
    is_int(pl_instance_of_choice(&collective, "collective", &ddp->collective, NULL, &err), PL_OK, "its collective");
    is_int(((sample_number_t *)collective.self)->number, 7, "with options");
    pl_instance_release(&collective);
    is_int(pl_instance_of_choice(&collective, "collective", &ddp->spare, NULL, &err), PL_EINVAL, "none");
    pl_choice_t any = {"auto", "{}"};
    is_int(pl_instance_of_choice(&collective, "collective", &any, "shm", &err), PL_OK, "or any");
    pl_instance_release(&collective);
    pl_instance_release(&strategy);
    pl_options_free(o);
}

static void lists_are_counted_and_their_parts_made(void)
{
    pl_instance_t callback = {0};
    pl_options_t *o = parse("{\"callbacks\": [\"early_stopping\", {\"name\": \"model_checkpoint\", \"monitor\": \"x\"}]}");
    is_int(pl_options_count(o, "callbacks"), 2, "two");
    is_int(pl_options_count(o, "loggers"), 0, "none");
    is_text(pl_options_part_name(o, "callbacks.1"), "model_checkpoint", "by name");
    pl_part_request_t request = {.role = "callback", .path = "callbacks.1"};
    is_int(pl_options_part(o, &request, &callback, &err), PL_OK, "and made");
    pl_instance_release(&callback);
    pl_options_free(o);
}

static void a_plugin_that_the_run_names_is_loaded(void)
{
    char text[8192];
    const char *build = getenv("top_builddir");
    snprintf(text, sizeof text, "{\"plugins\": [\"%s/t/.libs/sample_plugin.so\"], \"module\": {\"name\": \"guest\", "
                                "\"beds\": 3}}", build ? build : ".");
    pl_options_t *o = parse(text);
    ok(!pl_part_find("module", "guest", &err), "not known before");
    is_int(pl_options_check(o, &err), PL_OK, "the run is in order");
    ok(pl_part_find("module", "guest", &err), "and its part known");
    pl_options_free(o);
}

/* ---- Memory ---- */

static char *expected;                                      /* what a run prints while there is memory */

static int use_run(void *user)
{
    pl_error_t why = {0};
    pl_trainer_options_t trainer;
    pl_data_options_t data;
    pl_binding_t *trainer_binding = NULL, *data_binding = NULL;
    pl_instance_t module = {0}, source = {0};
    pl_part_request_t request = {"module", "module", NULL, "{\"classes\": 3, \"shape\": [2]}"};
    pl_options_t *o = pl_options_load(user, &why), *clone = NULL;
    char *printed = NULL, *text = NULL;
    int rc = o ? pl_options_set(o, "trainer.strategy.collective.slots", "3", &why) : why.code;
    if (rc == PL_OK)
        rc = (clone = pl_options_clone(o, &why)) && (printed = pl_options_print(clone, &why)) ? PL_OK : why.code;
    if (rc == PL_OK)
        rc = (text = pl_options_text(o, &why)) ? PL_OK : why.code;
    if (rc == PL_OK)
        rc = pl_options_trainer(o, &trainer, &trainer_binding, &why);
    if (rc == PL_OK)
        rc = pl_options_data(o, &data, &data_binding, &why);
    if (rc == PL_OK)
        rc = pl_options_part(o, &request, &module, &why);
    if (rc == PL_OK)
        rc = pl_options_source(o, PL_TRAIN, &source, &why);
    if (rc == PL_OK && (strcmp(printed, expected) || strcmp(data_binding ? trainer.strategy.options : "",
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
        "{\"module\": {\"name\": \"mlp\", \"dropout\": 0.25}, \"data\": {\"name\": \"idx\", \"path\": \"a\"},\n"
        "\"trainer\": {\"accelerator\": {\"threads\": 1}, \"strategy\": {\"name\": \"ddp\", \"collective\": \"shm\"}},\n"
        "\"callbacks\": [\"early_stopping\"]}";
    char path[4096];
    strcpy(path, file_of("run.json", text, strlen(text)));
    pl_options_t *o = parse(text);
    pl_options_set(o, "trainer.strategy.collective.slots", "3", &err);
    expected = pl_options_print(o, &err);
    pl_options_free(o);
    scarce_try(use_run, path, "a whole run");
    pl_text_free(expected);
}

static int get_values(void *user)
{
    char *given = pl_options_get(user, "trainer.depth"), *fallback = pl_options_get(user, "module.dropout");
    int rc = given && fallback ? PL_OK : PL_ENOMEM;
    pl_text_free(given);
    pl_text_free(fallback);
    return rc;
}

static int refuse_run(void *user)
{
    pl_error_t why = {0};
    pl_options_t *o = pl_options_parse(user, "run.json", &why);
    pl_options_free(o);
    return o || !why.code || !why.text[0] ? PL_EBUG : why.code == PL_EINVAL ? PL_OK : why.code;
}

static void memory_may_run_out_while_an_error_is_found(void)
{
    pl_options_t *o = parse("{\"trainer\": {\"depth\": 3}, \"module\": \"mlp\"}");
    scarce_try(get_values, o, "getting");
    pl_options_free(o);
    scarce_try(refuse_run, (void *)(uintptr_t)"{\"tr\\u0061iner\": {\"depth\": [1.5, {\"a\": \"b\"}]}}", "an error");
}

static void text_is_shown_as_one_line_of_utf8(void)
{
    char shown[12];
    is_text(pl_utf8_show("a\nb\x7f\xff", shown, sizeof shown), "a?b??", "controls and bytes");
    is_text(pl_utf8_show("äöüäöüäöü", shown, sizeof shown), "äöüä…", "cut between characters");
    is_text(pl_utf8_show("12345678901", shown, sizeof shown), "12345678901", "not cut when it fits");
    is_text(pl_utf8_show("123456789012", shown, sizeof shown), "12345678…", "cut when it does not");
    ok(!pl_utf8_ok("\xc0\x80", 2) && !pl_utf8_ok("\xed\xa0\x80", 3) && !pl_utf8_ok("\xf4\x90\x80\x80", 4) &&
           !pl_utf8_ok("\xe2\x82", 2) && pl_utf8_ok("\xf0\x9f\x98\x80", 4), "what is UTF-8");
}

/* ---- Ranges ---- */

static void a_range_holds_what_its_words_say(void)
{
    static const struct {
        const char *text, *words;
        bool holds[5];                                      /* 0, 0.5, 1, 2, 3 */
    } cases[] = {{"1..", " from 1 up", {0, 0, 1, 1, 1}},
                 {"(1..", " above 1", {0, 0, 0, 1, 1}},
                 {"..1", " up to 1", {1, 1, 1, 0, 0}},
                 {"..1)", " below 1", {1, 1, 0, 0, 0}},
                 {"1..2", " from 1 to 2", {0, 0, 1, 1, 0}},
                 {"[0..1]", " from 0 to 1", {1, 1, 1, 0, 0}},
                 {"[0..1)", " from 0 to below 1", {1, 1, 0, 0, 0}},
                 {"(0..1]", " above 0, up to 1", {0, 1, 1, 0, 0}},
                 {"(0..1)", " above 0, below 1", {0, 1, 0, 0, 0}},
                 {"0.5..2.5", " from 0.5 to 2.5", {0, 1, 1, 1, 0}},
                 {"-1..1e0", " from -1 to 1e0", {1, 1, 1, 0, 0}},
                 {"..", "", {1, 1, 1, 1, 1}},
                 {NULL, "", {1, 1, 1, 1, 1}}};
    static const double numbers[] = {0, 0.5, 1, 2, 3};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_range_t range;
        char words[PL_RANGE_WORDS];
        bool right = pl_range_parse(cases[i].text, &range, &err) == PL_OK;
        for (int k = 0; right && k < 5; k++)
            right = pl_range_holds_number(&range, numbers[k]) == cases[i].holds[k] &&
                    (k == 1 || pl_range_holds_integer(&range, (int64_t)numbers[k]) == cases[i].holds[k]);
        ok(right, "%s", cases[i].text ? cases[i].text : "no range");
        is_text(pl_range_words(&range, words), cases[i].words, "in words");
    }
}

static void integers_are_compared_exactly(void)
{
    pl_range_t range;
    pl_range_parse("..9223372036854775806", &range, &err);
    ok(pl_range_holds_integer(&range, INT64_MAX - 1) && !pl_range_holds_integer(&range, INT64_MAX), "at 63 bits");
    is_int(pl_range_parse("1", &range, &err), PL_EINVAL, "no dots");
    is_int(pl_range_parse("", &range, &err), PL_EINVAL, "nothing");
    is_int(pl_range_parse("a..b", &range, &err), PL_EINVAL, "no numbers");
}

int main(void)
{
    scarce_init();
    is_int(pl_register(sample_parts, &err), PL_OK, "the samples are in order: %s", err.text);
    run(what_is_not_json_is_refused_where_it_stops_being_so);
    run(a_key_twice_is_refused_at_the_second);
    run(an_unknown_key_is_refused_with_the_nearest);
    run(a_value_of_the_wrong_type_is_refused);
    run(a_value_out_of_range_is_refused);
    run(a_part_that_is_not_there_is_refused);
    run(what_has_no_default_must_be_given);
    run(keys_that_contradict_each_other_are_refused);
    run(columns_count_characters);
    run(what_is_no_run_file_is_refused);
    run(a_large_file_is_refused_before_it_is_read_whole);
    run(a_file_reads_as_its_text);
    run(an_empty_run_has_all_defaults);
    run(what_was_set_is_what_is_got);
    run(a_part_takes_options_however_it_was_written);
    run(setting_nonsense_is_refused);
    run(a_refused_change_leaves_no_trace);
    run(a_file_is_blamed_only_for_what_it_says);
    run(a_clone_goes_its_own_way);
    run(what_is_printed_reads_as_the_same_run);
    run(a_printed_run_is_in_order_and_complete);
    run(the_locale_of_the_host_changes_nothing);
    run(a_worker_reads_the_run_it_was_sent);
    run(the_trainer_gets_its_struct);
    run(limits_of_steps_and_epochs_depend_on_each_other);
    run(the_data_connector_gets_the_general_keys_and_the_data_set_the_others);
    run(sources_may_be_apart);
    run(what_the_data_knows_fills_what_is_auto);
    run(what_nobody_knows_must_be_given);
    run(auto_is_what_the_caller_says);
    run(a_part_may_choose_a_part);
    run(lists_are_counted_and_their_parts_made);
    run(memory_may_run_out_anywhere);
    run(memory_may_run_out_while_an_error_is_found);
    run(a_plugin_that_the_run_names_is_loaded);
    run(a_range_holds_what_its_words_say);
    run(integers_are_compared_exactly);
    run(text_is_shown_as_one_line_of_utf8);
    return tap_done();
}
