/* run_file.c - tests of the checks of run files: engine/base/run_check.c,
 * json_path.c, json_text.c, utf8.c */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/option.h"
#include "base/options.h"
#include "base/utf8.h"
#include "sample_components.h"
#include "scarce.h"
#include "tap.h"

static pl_error_t err;

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
#define REFUSE(...) \
    refuse((const wrong_t[]){__VA_ARGS__}, \
           sizeof((const wrong_t[]){__VA_ARGS__}) / sizeof(wrong_t))

static void text_that_is_not_json_is_refused_at_its_first_error(void)
{
    REFUSE({"", "run.json:1:1: empty: an object such as {\"module\": …} is expected"},
           {"[]", "run.json:1:1: a list: an object such as {\"module\": …} is expected"},
           {"\xEF\xBB\xBF{}",
            "run.json:1:1: starts with a byte order mark: save the file as "
            "UTF-8 without one"},
           {"{\"a\": \"\\u0000\"}",
            "run.json:1:7: not JSON: \\u0000 is not allowed in a text"},
           {"5", "run.json:1:1: not JSON: '[' or '{' expected near '5'"},
           {"{\n  \"trainer\": {\"depth\": NaN}}",
            "run.json:2:24: not JSON: invalid token near 'NaN'"},
           {"{\"trainer\": {\"depth\": -Infinity}}",
            "run.json:1:23: not JSON: invalid token near '-'"},
           {"{\"a\": 1e999}",
            "run.json:1:7: not JSON: real number overflow near '1e999'"},
           {"{\"a\": 9223372036854775808}",
            "run.json:1:7: not JSON: too big integer near '9223372036854775808'"},
           {"{\"a\": 1,\n,}", "run.json:2:1: not JSON: string or '}' expected near ','"},
           {"{\"a\": \"b\n\"}", "run.json:1:7: not JSON: unexpected newline near '\"b'"},
           {"{\"é\": \"é\xff\"}",
            "run.json:1:9: not JSON: unable to decode byte 0xff near '\"é'"},
           {"{\"a\":\n\n", "run.json:3:1: not JSON: unexpected token near end of file"},
           {"{} {}", "run.json:1:4: not JSON: end of file expected near '{'"}, );
}

static void a_key_twice_is_refused_at_the_second(void)
{
    REFUSE({"{\"trainer\": {\"depth\": 1,\n\t\"depth\" : 2}}",
            "run.json:2:2: key \"depth\" occurs twice: remove one"},
           {"{\"module\": \"mlp\", \"modul\\u0065\": \"mlp\"}",
            "run.json:1:19: key \"modul\\u0065\" occurs twice: remove one"}, );
}

static void a_name_of_another_engine_suggests_ours(void)
{
    REFUSE(
        {"{\"trainer\": {\"gpus\": 2}}", "run.json:1:14: unknown key \"trainer.gpus\": "
                                         "set trainer.accelerator to \"cuda\"; "
                                         "trainer.devices is the number of GPUs, or a "
                                         "list of theirs"},
        {"{\"trainer\": {\"inference_mode\": true}}",
         "run.json:1:14: unknown key \"trainer.inference_mode\": only training computes "
         "gradients: remove it"}, );
}

static void a_foreign_key_is_refused_with_our_key(void)
{
    static const struct {
        const char *text, *key, *meant;
    } wrong[] = {
        {"{\"epochs\": 3}", "epochs", "trainer.max_epochs"},
        {"{\"lr\": 3}", "lr", "optimizer.lr"},
        {"{\"weight_decay\": 3}", "weight_decay", "optimizer.weight_decay"},
        {"{\"batch_size\": 3}", "batch_size", "data.batch_size"},
        {"{\"max_time\": 3}", "max_time", "trainer.max_time"},
        {"{\"trainer\": {\"batch_size\": 3}}", "trainer.batch_size", "data.batch_size"},
        {"{\"trainer\": {\"learning_rate\": 3}}", "trainer.learning_rate",
         "optimizer.lr"},
        {"{\"trainer\": {\"logger\": true}}", "trainer.logger", "loggers"},
        {"{\"trainer\": {\"callbacks\": []}}", "trainer.callbacks", "callbacks"},
        {"{\"trainer\": {\"lr\": 1}}", "trainer.lr", "optimizer.lr"},
        {"{\"trainer\": {\"device\": \"cpu\"}}", "trainer.device", "trainer.accelerator"},
        {"{\"num_epochs\": 1}", "num_epochs", "trainer.max_epochs"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        char want[200];
        pl_options_t *o = pl_options_parse(wrong[k].text, "run.json", &err);
        ok(!o, "%s is refused", wrong[k].text);
        pl_options_free(o);
        snprintf(want, sizeof want, "unknown key \"%s\": did you mean \"%s\"?",
                 wrong[k].key, wrong[k].meant);
        is_text(strstr(err.text, "unknown") ? strstr(err.text, "unknown") : err.text,
                want, "with the key that is meant");
    }
    REFUSE({"{\"trainer\": {\"barebones\": true}}",
            "run.json:1:14: unknown key \"trainer.barebones\": set "
            "\"trainer.enable_checkpointing\" and \"trainer.enable_model_summary\" to "
            "false, and \"loggers\" to []"}, );
}

static void comments_and_last_commas_are_allowed(void)
{
    static const char text[] = "// a run\n{\"trainer\": {\"depth\": 3, /* é\n */ },\n"
                               " \"loggers\": [\"csv\", ], // \"jsonl\"\n"
                               " \"plugins\": [\"http://a/*b*/,]\",],}\n";
    pl_options_t *o = pl_options_parse(text, "run.json", &err);
    ok(o, "a run: %s", err.text);
    char *depth = pl_options_get(o, "trainer.depth"),
         *lists = pl_options_get(o, "loggers"), *plugins = pl_options_get(o, "plugins");
    is_text(depth, "3", "an object ends with a comma");
    is_text(lists, "[\"csv\"]", "a list does, too");
    is_text(plugins, "[\"http://a/*b*/,]\"]", "texts stay as they are");
    pl_text_free(depth), pl_text_free(lists), pl_text_free(plugins);
    pl_options_free(o);
    REFUSE({"/* é */ {\"trainer\": {\"depth\": 99}}",
            "run.json:1:31: \"trainer.depth\" takes an integer from 0 to 16, not 99"},
           {"// é\n/*\n*/ {\"modul\": \"mlp\"}",
            "run.json:3:5: unknown key \"modul\": did you mean \"module\"?"},
           {"{\"loggers\": [,]}", "run.json:1:14: not JSON: unexpected token near ','"},
           {"{\"loggers\": [\"csv\",,]}",
            "run.json:1:20: not JSON: unexpected token near ','"},
           {"{} /* no end", "run.json:1:4: not JSON: end of file expected near '/'"}, );
}

/* By another thread: the pipe is opened first. */
static void *pipe_write(void *path)
{
    FILE *pipe = fopen(path, "w");
    fputs("{\"trainer\": ", pipe);
    fflush(pipe);
    fputs("{\"depth\": 3}}", pipe);
    fclose(pipe);
    return NULL;
}

static void a_run_file_may_be_a_pipe(void)
{
    char path[4096];
    pthread_t writer;
    snprintf(path, sizeof path, "%s/written", tap_folder());
    ok(mkfifo(path, 0600) == 0, "a pipe");
    pthread_create(&writer, NULL, pipe_write, path);
    pl_options_t *o = pl_options_load(path, &err);
    pthread_join(writer, NULL);
    char *depth = o ? pl_options_get(o, "trainer.depth") : NULL;
    ok(o, "it is read: %s", err.text);
    ok(depth && !strcmp(depth, "3"), "to its end");
    pl_text_free(depth);
    pl_options_free(o);
}

static void an_unknown_key_is_refused_with_the_nearest(void)
{
    REFUSE(
        {"{\n  \"module\": \"mlp\",\n  \"trainer\":    {\"max_epoch\": 3}\n}",
         "run.json:3:18: unknown key \"trainer.max_epoch\": did you mean "
         "\"max_epochs\"?"},
        {"{\"modul\": \"mlp\"}",
         "run.json:1:2: unknown key \"modul\": did you mean \"module\"?"},
        {"{\"x\": 1}", "run.json:1:2: unknown key \"x\": known are module, data, "
                       "optimizer, scheduler, momentum_scheduler, "
                       "weight_decay_scheduler, averaging, trainer, callbacks, loggers, "
                       "plugins"},
        {"{\"module\": {\"name\": \"mlp\", \"hiden\": [1]}}",
         "run.json:1:28: unknown key \"module.hiden\": did you mean \"hidden\"?"},
        {"{\"callbacks\": [\"early_stopping\", {\"name\": "
         "\"early_stopping\",\n\"\\u006donito\": 1}]}",
         "run.json:2:1: unknown key \"callbacks.1.monito\": did you mean \"monitor\"?"},
        {"{\"data\": {\"name\": \"idx\", \"path\": \"a\", \"batchsize\": 1}}",
         "run.json:1:39: unknown key \"data.batchsize\": did you mean \"batch_size\"?"},
        {"{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"a\", \"shuffle\": "
         "true}}}",
         "run.json:1:49: unknown key \"data.train.shuffle\": known are name, path"},
        {"{\"trainer\": {\"strategy\": {\"name\": \"ddp\", \"collective\": {\"name\": "
         "\"shm\", \"slot\": 1}}}}",
         "run.json:1:72: unknown key \"trainer.strategy.collective.slot\": did you mean "
         "\"slots\"?"},
        {"{\"trainer\": {\"accelerator\": {\"thread\": 1}}}",
         "run.json:1:30: unknown key \"trainer.accelerator.thread\": did you mean "
         "\"threads\"?"},
        {"{\"optimizer\": {\"name\": \"adamw\", \"a\\nb\\u001b.c\": 1}}",
         "run.json:1:33: unknown key \"optimizer.a?b?.c\": known are name, lr, "
         "weight_decay, decay, groups"}, );
}

static void a_value_of_the_wrong_type_is_refused(void)
{
    REFUSE(
        {"{\"trainer\": {\"depth\": \"two\"}}",
         "run.json:1:23: \"trainer.depth\" takes an integer from 0 to 16, not \"two\""},
        {"{\"trainer\": {\"depth\": 2.0}}",
         "run.json:1:23: \"trainer.depth\" takes an integer from 0 to 16: write 2"},
        {"{\"trainer\": {\"devices\": []}}", "run.json:1:25: \"trainer.devices\" "
                                             "is a list of 0 device numbers: give 1 to "
                                             "1024, such as [0, 2]"},
        {"{\"trainer\": {\"devices\": [0, \"1\"]}}",
         "run.json:1:25: \"trainer.devices\" is a list of device numbers, integers from "
         "0, and entry 1 is \"1\""},
        {"{\"trainer\": {\"devices\": [-1]}}",
         "run.json:1:25: \"trainer.devices\" is a list of device numbers, integers from "
         "0, and entry 0 is -1"},
        {"{\"trainer\": {\"devices\": [0.5]}}",
         "run.json:1:25: \"trainer.devices\" is a list of device numbers, integers from "
         "0, and entry 0 is 0.5"},
        {"{\"trainer\": {\"devices\": [2, 0, 2]}}",
         "run.json:1:25: \"trainer.devices\" lists device 2 twice: each rank needs a "
         "device of its own"},
        {"{\"trainer\": {\"seed\": \"auto\"}}",
         "run.json:1:22: \"trainer.seed\" takes an integer from 0 up, not \"auto\""},
        {"{\"trainer\": {\"step_timeout\": null}}",
         "run.json:1:30: \"trainer.step_timeout\" takes a number above 0, not null"},
        {"{\"trainer\": {\"enable_progress_bar\": 1}}",
         "run.json:1:37: \"trainer.enable_progress_bar\" takes true or false, not 1"},
        {"{\"trainer\": {\"run_name\": 7}}",
         "run.json:1:26: \"trainer.run_name\" takes text, not 7"},
        {"{\"trainer\": {\"limit_val_batches\": \"all\"}}",
         "run.json:1:35: \"trainer.limit_val_batches\" takes a share up to 1.0 or a "
         "whole count, not \"all\""},
        {"{\"trainer\": {\"strategy\": 1}}",
         "run.json:1:26: \"trainer.strategy\" takes a name or an object with a \"name\", "
         "not 1"},
        {"{\"trainer\": {\"strategy\": {\"name\": 1}}}",
         "run.json:1:26: \"trainer.strategy\" takes a name or an object with a \"name\", "
         "not {\"name\":1}"},
        {"{\"trainer\": \"ddp\"}",
         "run.json:1:13: \"trainer\" takes an object, not \"ddp\""},
        {"{\"callbacks\": {}}",
         "run.json:1:15: \"callbacks\" takes a list of components, not {}"},
        {"{\"callbacks\": [[]]}", "run.json:1:16: \"callbacks.0\" takes a name or an "
                                  "object with a \"name\", not []"},
        {"{\"plugins\": \"x.so\"}",
         "run.json:1:13: \"plugins\" takes a list of file names, not \"x.so\""},
        {"{\"plugins\": [\"\"]}",
         "run.json:1:14: \"plugins.0\" takes the name of a shared object, not \"\""},
        {"{\"module\": {\"name\": \"mlp\", \"hidden\": 1e9}}",
         "run.json:1:38: \"module.hidden\" takes a list of at most 16 integers from 1 "
         "up, not 1000000000.0: write [1000000000]"},
        {"{\"data\": {\"name\": \"idx\", \"batch_size\": 1e2}}",
         "run.json:1:40: \"data.batch_size\" takes an integer from 1 up: write 100"},
        {"{\"data\": {\"name\": \"idx\", \"batch_size\": 1.5}}",
         "run.json:1:40: \"data.batch_size\" takes an integer from 1 up, not 1.5"},
        {"{\"module\": {\"name\": \"mlp\", \"hidden\": 128}}",
         "run.json:1:38: \"module.hidden\" takes a list of at most 16 integers from 1 "
         "up, not 128: write [128]"},
        {"{\"data\": 3}", "run.json:1:10: \"data\" takes a name, an object with a "
                          "\"name\", or one with \"train\", "
                          "\"val\", …, not 3"}, );
}

static void a_value_out_of_range_is_refused(void)
{
    REFUSE(
        {"{\"trainer\": {\"depth\": 17}}",
         "run.json:1:23: \"trainer.depth\" takes an integer from 0 to 16, not 17"},
        {"{\"trainer\": {\"seed\": -1}}",
         "run.json:1:22: \"trainer.seed\" takes an integer from 0 up, not -1"},
        {"{\"trainer\": {\"devices\": 0}}", "run.json:1:25: \"trainer.devices\" takes an "
                                            "integer from 1 up or \"auto\", not 0"},
        {"{\"trainer\": {\"devices\": \"4:2\"}}",
         "run.json:1:25: \"trainer.devices\" takes a list of device numbers, or an "
         "integer or \"MIN:MAX\" from 1 up or "
         "\"auto\", not \"4:2\""},
        {"{\"data\": {\"val_split\": 1.0}}",
         "run.json:1:24: \"data.val_split\" takes a number from 0 to below 1, not 1.0"},
        {"{\"trainer\": {\"val_check_interval\": 0}}",
         "run.json:1:36: \"trainer.val_check_interval\" takes a share up to "
         "1.0 or a whole count above 0, not 0"},
        {"{\"trainer\": {\"val_check_interval\": 1.5}}",
         "run.json:1:36: \"trainer.val_check_interval\" takes a share up "
         "to 1.0 or a whole count above 0, not 1.5"},
        {"{\"module\": {\"name\": \"mlp\", \"activation\": \"rely\"}}",
         "run.json:1:42: \"module.activation\" takes relu|gelu|tanh, not \"rely\": did "
         "you mean \"relu\"?"},
        {"{\"module\": {\"name\": \"mlp\", \"hidden\": [3, 0]}}",
         "run.json:1:38: \"module.hidden\" takes a list of at most 16 integers from 1 "
         "up, not [3,0]"},
        {"{\"module\": {\"name\": \"mlp\", \"hidden\": "
         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}",
         "run.json:1:38: \"module.hidden\" takes a list of at most 16 integers from 1 "
         "up, not "
         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"},
        {"{\"trainer\": {\"accelerator\": {\"stream\": 10}}}",
         "run.json:1:40: \"trainer.accelerator.stream\" takes an integer from 0 to 9, "
         "not 10"}, );
}

static void a_missing_component_is_refused(void)
{
    REFUSE({"{\"trainer\": {\n \"strategy\": \"dpd\"}}",
            "run.json:2:14: \"trainer.strategy\": there is no strategy \"dpd\": did you "
            "mean \"ddp\"?"},
           {"{\"optimizer\": {\"lr\": 1, \"name\": \"muon\"}}",
            "run.json:1:33: \"optimizer.name\": there is no optimizer \"muon\": known "
            "are adamw, sgd"},
           {"{\"module\": \"auto\"}",
            "run.json:1:12: \"module\": there is no module \"auto\": known are mlp"},
           {"{\"optimizer\": {\"lr\": 1}}",
            "run.json:1:15: \"optimizer\" needs \"name\": the name of the optimizer"},
           {"{\"plugins\": [\"./none.so\"]}",
            "run.json:1:14: plug-in ./none.so does not exist"}, );
}

static void a_key_without_a_default_must_be_given(void)
{
    REFUSE({"{\"data\": \"idx\"}",
            "run.json:1:10: \"data\" needs \"path\": folder of the files"},
           {"{\"data\": {\"train\": {\"name\": \"idx\"}}}",
            "run.json:1:20: \"data.train\" needs \"path\": folder of the files"}, );
}

static void the_name_of_a_run_is_the_name_of_a_directory(void)
{
#define NO_NAME(name) \
    {"{\"trainer\": {\"run_name\": \"" name "\"}}", \
     "run.json:1:26: \"trainer.run_name\" takes the name of the run's directory in " \
     "trainer.default_root_dir, without '/', not beginning with '.' and other than " \
     "\"latest\", not \"" name "\""}
    REFUSE(NO_NAME("latest"), NO_NAME(".."), NO_NAME("a/b"), NO_NAME("/"), );
    pl_options_t *o = pl_options_new(&err);
    is_int(pl_options_set(o, "trainer.run_name", ".git", &err), PL_EINVAL, "when set");
    is_int(pl_options_set(o, "trainer.run_name", "latest.2", &err), PL_OK, "others may");
    pl_options_free(o);
}

static void keys_that_contradict_each_other_are_refused(void)
{
    REFUSE({"{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"a\"}, \"name\": "
            "\"idx\"}}",
            "run.json:1:50: \"data\" is one source with a \"name\", or has \"train\", "
            "\"val\", \"test\", \"predict\": not both"},
           {"{\"data\": {\"train\": {\"name\": \"idx\", \"path\": \"a\"}, \"val\": "
            "{\"name\": \"idx\", \"path\": \"b\"},\n"
            "\"val_split\": 0.1}}",
            "run.json:2:1: \"data.val_split\" and \"data.val\" contradict each other: "
            "remove one"}, );
}

static void columns_count_characters(void)
{
    REFUSE({"{\"trainer\": {\"run_name\": \"äöü\", \"depht\": 1}}",
            "run.json:1:33: unknown key \"trainer.depht\": did you mean \"depth\"?"},
           {"{\"trainer\": {\"run_name\": \"a\\\"}b{\\\\\", \"depth\": -1}}",
            "run.json:1:47: \"trainer.depth\" takes an integer from 0 to 16, not -1"}, );
}

/* ---- Files ---- */

static void refuse_file(const char *path, int code, const char *pattern)
{
    err = (pl_error_t){0};
    pl_options_t *o = pl_options_load(path, &err);
    ok(!o, "%s is refused", strrchr(path, '/'));
    pl_options_free(o);
    is_int(err.code, code, "with its code");
    like(err.text, pattern, "and a reason: %s", err.text);
}

static void a_file_that_is_no_run_file_is_refused(void)
{
    char path[4096], *deep = malloc(200000);
    refuse_file(tap_folder(), PL_EIO, "^cannot read /.*: not a file$");
    snprintf(path, sizeof path, "%s/none", tap_folder());
    refuse_file(path, PL_ENOTFOUND, "^cannot read /.*/none: No such file or directory$");
    snprintf(path, sizeof path, "%s/pipe", tap_folder());
    ok(mkfifo(path, 0600) == 0, "a pipe without a writer");
    pl_run_file_wait_ms = 50;
    refuse_file(path, PL_EIO, "no data for 0.05 s: does a program write to this pipe?");
    pl_run_file_wait_ms = 30000;
    refuse_file(sample_file("empty", "", 0), PL_EFORMAT, "^/.*/empty:1:1: empty: ");
    refuse_file(sample_file("nul", "{}\0{}", 5), PL_EFORMAT,
                "^/.*/nul:1:3: not JSON: end of file expected");
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    refuse_file(sample_file("deep", deep, 200000), PL_EFORMAT,
                "^/.*/deep:1:2049: not JSON: maximum parsing depth reached");
    free(deep);
}

static void a_large_file_is_refused_before_it_is_read_whole(void)
{
    const char *path = sample_file("large", "{}", 2);
    ok(truncate(path, INT64_C(1) << 30) == 0, "a file of 1 GiB");
    refuse_file(path, PL_EFORMAT, "^cannot read /.*/large: larger than 16 MiB");
    ok(truncate(path, 16 << 20) == 0, "one of 16 MiB");
    refuse_file(path, PL_EFORMAT, "^/.*/large:1:3: not JSON");
}

static void a_file_reads_as_its_text(void)
{
    static const char text[] = "{\"trainer\": {\"seed\": 9223372036854775807}}";
    pl_options_t *o = pl_options_load(sample_file("run.json", text, strlen(text)), &err);
    char *seed = pl_options_get(o, "trainer.seed");
    is_text(seed, "9223372036854775807", "a seed of 63 bits stays exact");
    pl_text_free(seed);
    pl_options_free(o);
}

static int refuse_run(void *user)
{
    pl_error_t why = {0};
    pl_options_t *o = pl_options_parse(user, "run.json", &why);
    pl_options_free(o);
    return o || !why.code || !why.text[0] ? PL_EBUG
           : why.code == PL_EINVAL        ? PL_OK
                                          : why.code;
}

static void memory_may_run_out_while_an_error_is_found(void)
{
    static char text[] = "{\"tr\\u0061iner\": {\"depth\": [1.5, {\"a\": \"b\"}]}}";
    scarce_try(refuse_run, text, "an error");
}

/* ---- Ranges ---- */

static void a_range_holds_the_numbers_of_its_text(void)
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
            right = pl_range_holds_number(&range, numbers[k]) == cases[i].holds[k]
                    && (k == 1
                        || pl_range_holds_integer(&range, (int64_t)numbers[k])
                               == cases[i].holds[k]);
        ok(right, "%s", cases[i].text ? cases[i].text : "no range");
        is_text(pl_range_words(&range, words), cases[i].words, "in words");
    }
}

static void integers_are_compared_exactly(void)
{
    pl_range_t range;
    pl_range_parse("..9223372036854775806", &range, &err);
    ok(pl_range_holds_integer(&range, INT64_MAX - 1)
           && !pl_range_holds_integer(&range, INT64_MAX),
       "at 63 bits");
    is_int(pl_range_parse("1", &range, &err), PL_EINVAL, "no dots");
    is_int(pl_range_parse("", &range, &err), PL_EINVAL, "nothing");
    is_int(pl_range_parse("a..b", &range, &err), PL_EINVAL, "no numbers");
}

/* ---- Text ---- */

static void text_is_shown_as_one_line_of_utf8(void)
{
    char shown[12];
    is_text(pl_utf8_show("a\nb\x7f\xff", shown, sizeof shown), "a?b??",
            "controls and bytes");
    is_text(pl_utf8_show("äöüäöüäöü", shown, sizeof shown), "äöüä…",
            "cut between characters");
    is_text(pl_utf8_show("12345678901", shown, sizeof shown), "12345678901",
            "not cut when it fits");
    is_text(pl_utf8_show("123456789012", shown, sizeof shown), "12345678…",
            "cut when it does not");
    ok(!pl_utf8_ok("\xc0\x80", 2) && !pl_utf8_ok("\xed\xa0\x80", 3)
           && !pl_utf8_ok("\xf4\x90\x80\x80", 4) && !pl_utf8_ok("\xe2\x82", 2)
           && pl_utf8_ok("\xf0\x9f\x98\x80", 4),
       "what is UTF-8");
}

static void errors_are_utf8_for_any_quoted_text(void)
{
    char long_text[2 * PL_ERROR_TEXT];
    for (size_t k = 0; k + 1 < sizeof long_text; k += 2)
        memcpy(long_text + k, "é", 2);
    long_text[sizeof long_text - 2] = '\0';
    pl_fail(&err, PL_EIO, "no file %s", "a\xff/ö");
    is_text(err.text, "no file a?/ö", "a path");
    pl_error_prefix(&err, "in %s", "\xfe");
    is_text(err.text, "in ?: no file a?/ö", "and what is put in front");
    pl_fail(&err, PL_EIO, "%s", long_text);
    ok(pl_utf8_ok(err.text, strlen(err.text)), "nor is a character cut");
    pl_fail(&err, PL_EIO, "x%s", long_text);
    ok(pl_utf8_ok(err.text, strlen(err.text)), "wherever it lies");
}

int main(void)
{
    scarce_init();
    is_int(pl_register(sample_components, &err), PL_OK, "the samples are in order");
    run(text_that_is_not_json_is_refused_at_its_first_error);
    run(a_key_twice_is_refused_at_the_second);
    run(a_name_of_another_engine_suggests_ours);
    run(a_foreign_key_is_refused_with_our_key);
    run(comments_and_last_commas_are_allowed);
    run(a_run_file_may_be_a_pipe);
    run(an_unknown_key_is_refused_with_the_nearest);
    run(a_value_of_the_wrong_type_is_refused);
    run(a_value_out_of_range_is_refused);
    run(a_missing_component_is_refused);
    run(the_name_of_a_run_is_the_name_of_a_directory);
    run(a_key_without_a_default_must_be_given);
    run(keys_that_contradict_each_other_are_refused);
    run(columns_count_characters);
    run(a_file_that_is_no_run_file_is_refused);
    run(a_large_file_is_refused_before_it_is_read_whole);
    run(a_file_reads_as_its_text);
    run(memory_may_run_out_while_an_error_is_found);
    run(a_range_holds_the_numbers_of_its_text);
    run(integers_are_compared_exactly);
    run(text_is_shown_as_one_line_of_utf8);
    run(errors_are_utf8_for_any_quoted_text);
    return tap_done();
}
