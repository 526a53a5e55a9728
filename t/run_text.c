/* run_text.c - tests of runs on text: a language model is trained and writes */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "rig.h"
#include "tap.h"

#define GPT "{\"name\": \"gpt\", \"layers\": 1, \"heads\": 2, \"width\": 16}"
#define ADAMW "{\"name\": \"adamw\", \"lr\": 0.02}"
#define FIT "\"max_steps\": 60"

static char data[512], weights[4200];

/* A text that says the same again and again. */
static void text_make(void)
{
    char text[2048] = "";
    for (int k = 0; k < 100; k++)
        strcat(text, "abcd efg.\n");
    snprintf(data, sizeof data,
             "{\"name\": \"text\", \"path\": \"%s\", \"context\": 8, \"batch_size\": 8}",
             file_put_text("text.txt", text));
}

/* Written text as it is reported piece by piece. */
static char reported[256];

static void copy_text(rig_t *rig, const pl_progress_t *progress)
{
    (void)rig;
    if (strcmp(progress->event, "text"))
        return;
    json_t *piece = json_loads(progress->metrics, JSON_DECODE_ANY, NULL);
    const char *text = json_string_value(piece);
    snprintf(reported + strlen(reported), sizeof reported - strlen(reported), "%s",
             text ? text : "?");
    json_decref(piece);
}

static rig_t *writer_new(const char *script, const char *trainer)
{
    reported[0] = '\0';
    return rig_new(.module = GPT, .dataset = data, .script = script, .trainer = trainer,
                   .on_progress = copy_text);
}

static const rig_result_t *write_on(rig_t *rig, pl_prediction_t what)
{
    what.checkpoint = weights;
    if (!rig_begin_prediction(rig, &what))
        tap_diag("%s", rig_error.text);
    return rig_wait(rig);
}

static void a_model_learns_a_text(void)
{
    rig_t *rig = rig_new(.module = GPT, .dataset = data, .optimizer = ADAMW,
                         .trainer = FIT);
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a fit");
    ok(rig_metric(result, "train_loss") < 1.5, "it has learned: %g",
       rig_metric(result, "train_loss"));
    snprintf(weights, sizeof weights, "%s", result->run_dir);
    rig_free(&rig);
}

/* Lines of different length in batches of several buckets, by a causal model. */
static void a_model_learns_lines(void)
{
    char text[4096] = "", kept[sizeof data];
    memcpy(kept, data, sizeof data);
    for (int k = 0; k < 60; k++)
        strcat(text, "anna\notto\nbo\nelizabeth\nmaximilian\n");
    snprintf(data, sizeof data,
             "{\"name\": \"lines\", \"path\": \"%s\", \"context\": 12, "
             "\"batch_size\": 8, \"val_split\": 0.2}",
             file_put_text("lines.txt", text));
    rig_t *rig = rig_new(.module = GPT, .dataset = data, .optimizer = ADAMW,

                         .trainer = "\"max_steps\": 160");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "a fit: %s", result->error.text);
    ok(rig_metric(result, "val_loss") < 0.8, "it has learned: %g",
       rig_metric(result, "val_loss"));
    snprintf(weights, sizeof weights, "%s", result->run_dir);
    rig_free(&rig);
    rig = writer_new("", "\"seed\": 1");
    result = write_on(rig, (pl_prediction_t){.prompt = "\nmaxi", .tokens = 7});
    is_text(reported, "milian\n", "and writes one to its end");
    rig_free(&rig);
    memcpy(data, kept, sizeof data);
}

static void a_model_continues_a_prompt(void)
{
    rig_t *rig = writer_new("", "\"seed\": 1");
    const rig_result_t *result =
        write_on(rig, (pl_prediction_t){.prompt = "abcd e", .tokens = 14});
    is_text(result->text, "fg.\nabcd efg.\n", "what comes next, beyond its context");
    is_text(reported, result->text, "reported piece by piece");
    is_text(write_on(rig, (pl_prediction_t){.prompt = "abcd e", .tokens = 0})->text, "",
            "nothing when nothing is wanted");
    rig_free(&rig);
}

static void a_text_does_not_depend_on_the_number_of_ranks(void)
{
    static const char *const trainers[] = {
        "\"seed\": 1, \"devices\": 2", "\"seed\": 1, \"launcher\": \"spawn\"",
        "\"seed\": 1, \"launcher\": \"spawn\", \"devices\": 2"};
    for (int k = 0; k < 3; k++) {
        rig_t *rig = writer_new("", trainers[k]);
        const rig_result_t *result =
            write_on(rig, (pl_prediction_t){.prompt = "abcd e", .tokens = 14});
        is_text(result->text, "fg.\nabcd efg.\n", "%s: %s", trainers[k],
                result->error.text);
        is_text(reported, result->text, "reported piece by piece");
        like(write_on(rig, (pl_prediction_t){.prompt = "xyz", .tokens = 3})->error.text,
             "prompt.*x", "and wrong ones are refused");
        rig_free(&rig);
    }
}

/* Trains a module and writes 50 characters, with a context of 32, both ways. */
static void both_ways(const char *module, const char *why)
{
    char kept[sizeof data], kept_weights[sizeof weights];
    memcpy(kept, data, sizeof data);
    memcpy(kept_weights, weights, sizeof weights);
    snprintf(data, sizeof data,
             "{\"name\": \"text\", \"path\": \"%s/text.txt\", \"context\": 32, "
             "\"batch_size\": 8}",
             tap_folder());
    rig_t *rig = rig_new(.module = module, .dataset = data, .optimizer = ADAMW,
                         .trainer = "\"max_steps\": 20");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "%s: %s", module, result->error.text);
    snprintf(weights, sizeof weights, "%s", result->run_dir);
    rig_free(&rig);
    pl_prediction_t what = {.prompt = "ab", .tokens = 50, .temperature = 2};
    rig = rig_new(.module = module, .dataset = data, .trainer = "\"seed\": 1");
    what.no_cache = true;
    char *whole = strdup(write_on(rig, what)->text);
    what.no_cache = false;
    rig_listen(why);
    is_text(write_on(rig, what)->text, whole, "the text is the same");
    is_int(rig_lines_received(), *why != '-', "%s", why);
    rig_listen(NULL);
    rig_free(&rig);
    free(whole);
    memcpy(data, kept, sizeof data);
    memcpy(weights, kept_weights, sizeof weights);
}

static void keys_and_values_of_earlier_tokens_are_kept(void)
{
    both_ways(GPT, "- the whole text");
    both_ways("{\"name\": \"layers\", \"layers\": [\"embedding 10 16\", \"positions\", "
              "{\"residual\": [\"attention 4 causal kv_heads=2\"]}, \"linear 10\"]}",
              "- the whole text");
    both_ways("{\"name\": \"layers\", \"layers\": [\"embedding 10 16\", "
              "{\"residual\": [\"attention 2 causal window=5 rotary\"]}, "
              "{\"residual\": [\"attention 1 causal rotary\"]}, \"linear 10\"]}",
              "- the whole text");
}

static void a_module_that_mixes_tokens_otherwise_gets_the_whole_text(void)
{
    both_ways("{\"name\": \"layers\", \"layers\": [\"embedding 10 16\", \"cumsum 1\", "
              "\"layer_norm\", \"linear 10\"]}",
              "the whole text is computed again for each token: the module mixes tokens "
              "by other means than causal attention");
    both_ways(
        "{\"name\": \"layers\", \"layers\": [\"embedding 10 16\", \"slice 1 0 32\", "
        "\"linear 10\"]}",
        "the whole text is computed again for each token: the module cannot take "
        "one token alone");
}

static void sampling_depends_on_the_seed(void)
{
    pl_prediction_t what = {.prompt = "a", .tokens = 40, .temperature = 3};
    rig_t *rig = writer_new("", "\"seed\": 1"), *other = writer_new("", "\"seed\": 2");
    char *first = strdup(write_on(rig, what)->text);
    is_int(strlen(first), 40, "as many characters as were asked for");
    is_text(write_on(rig, what)->text, first, "the same again with the same seed");
    ok(strcmp(write_on(other, what)->text, first) != 0, "others with another");
    what.top_k = 1;
    is_text(write_on(rig, what)->text, "bcd efg.\nabcd efg.\nabcd efg.\nabcd efg.\na",
            "the likeliest when it is the only choice");
    rig_free(&rig);
    rig_free(&other);
    free(first);
}

static void wrong_requests_are_reported(void)
{
    rig_t *rig = writer_new("", "\"seed\": 1");
    like(write_on(rig, (pl_prediction_t){.prompt = "xyz", .tokens = 3})->error.text,
         "prompt.*x", "a character that was never seen");
    like(write_on(rig, (pl_prediction_t){.prompt = "", .tokens = 3})->error.text, "empty",
         "no prompt to continue");
    is_int(pl_trainer_predict(rig_trainer(rig), &(pl_prediction_t){.prompt = "a"}, NULL,
                              NULL, &rig_error),
           PL_EINVAL, "no weights");
    rig_free(&rig);
    rig = rig_new(.trainer = "\"max_steps\": 1");
    char *others = strdup(rig_fit(rig)->run_dir);
    pl_prediction_t what = {.checkpoint = others, .prompt = "a", .tokens = 3};
    rig_begin_prediction(rig, &what);
    like(rig_wait(rig)->error.text, "trained on text", "weights that know no vocabulary");
    what = (pl_prediction_t){.checkpoint = weights};
    rig_begin_prediction(rig, &what);
    like(rig_wait(rig)->error.text, "weights are of module \"gpt\"",
         "weights of another module");
    what = (pl_prediction_t){.checkpoint = "/nowhere/weights"};
    rig_begin_prediction(rig, &what);
    like(rig_wait(rig)->error.text, "/nowhere/weights", "weights that are not there");
    rig_free(&rig);
    free(others);
}

static void stop_soon(rig_t *rig, const pl_progress_t *progress)
{
    if (progress->batch > 5)
        pl_trainer_stop(rig_trainer(rig), "enough", NULL);
}

static void writing_can_be_stopped(void)
{
    static const char *const trainers[] = {"\"launcher\": \"inline\"",
                                           "\"launcher\": \"spawn\""};
    for (int k = 0; k < 2; k++) {
        rig_t *rig = rig_new(.module = GPT, .dataset = data, .on_progress = stop_soon,
                             .trainer = trainers[k],
                             .script = "replay of forward takes 1 ms");
        const rig_result_t *result =
            write_on(rig, (pl_prediction_t){.prompt = "a", .tokens = 100000});
        is_text(result->status, "stopped", "it stops: %s", result->error.text);
        ok(strlen(result->text) > 5, "with what it has written");
        rig_free(&rig);
    }
}

static void a_device_that_hangs_is_noticed(void)
{
    rig_t *rig = writer_new("replay 4 of forward hangs", "\"step_timeout\": 0.3");
    const rig_result_t *result = write_on(rig,
                                          (pl_prediction_t){.prompt = "a", .tokens = 10});
    is_text(pl_code_name(result->error.code), "PL_ESTUCK", "the run is stuck");
    like(result->error.text, "token 3 of the text", "where");
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    text_make();
    run(a_model_learns_lines);
    run(a_model_learns_a_text);
    run(a_model_continues_a_prompt);
    run(a_text_does_not_depend_on_the_number_of_ranks);
    run(keys_and_values_of_earlier_tokens_are_kept);
    run(a_module_that_mixes_tokens_otherwise_gets_the_whole_text);
    run(sampling_depends_on_the_seed);
    run(wrong_requests_are_reported);
    run(writing_can_be_stopped);
    run(a_device_that_hangs_is_noticed);
    return tap_done();
}
