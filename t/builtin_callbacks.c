/* builtin_callbacks.c - tests of the callbacks that are built in */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/connectors/connectors.h"
#include "base/clock.h"
#include "queen.h"
#include "rig.h"
#include "tap.h"

static pl_address_t callbacks;
static asked_t life;

static void start(const char *callback)
{
    queen_open();
    pl_job_t *job = queen_job("{\"callbacks\": [%s]}", callback);
    callbacks = queen_spawn(&pl_callback_connector,
                            &(pl_start_t){.options = "", .context = &job->object}, &life);
    pl_object_unref(job);
}

static asked_t *ask(pl_hook_t point, const char *metrics)
{
    const pl_run_hook_t fields = {.point = point, .metrics = metrics};
    return queen_call(callbacks, PL_MESSAGE_run_hook, &fields);
}

/* Asks after a validation with that val_loss; whether the run is to stop. */
static bool stops(const char *loss)
{
    char metrics[64];
    snprintf(metrics, sizeof metrics, "{\"val_loss\": %s}", loss);
    asked_t *asked = ask(PL_HOOK_VALIDATION_END, metrics);
    return asked->error.code == PL_OK && asked->body.run_hook_reply.stop;
}

/* How many of those losses are asked about until the run stops; 99: it does not. */
static int stops_after(const char *const losses[])
{
    for (int k = 0; losses[k]; k++)
        if (stops(losses[k]))
            return k + 1;
    return 99;
}

#define STOPS_AFTER(...) stops_after((const char *const[]){__VA_ARGS__, NULL})

/* ---- early_stopping ---- */

static void a_metric_that_stops_improving_stops_the_run(void)
{
    start("{\"name\": \"early_stopping\", \"patience\": 2}");
    is_int(STOPS_AFTER("0.5", "0.4", "0.45", "0.39", "0.39", "0.4", "0.1"), 6,
           "after as many checks without a better one as it has patience");
    queen_close();
    start("{\"name\": \"early_stopping\", \"patience\": 2}");
    STOPS_AFTER("0.5", "0.6");
    is_text(ask(PL_HOOK_VALIDATION_END, "{\"val_loss\": 0.7}")->text,
            "early_stopping: val_loss has not improved in the last 2 checks; the best is "
            "0.5 (mode \"min\")",
            "and says why");
    queen_close();
    start("{\"name\": \"early_stopping\", \"patience\": 1, \"mode\": \"max\"}");
    is_int(STOPS_AFTER("0.5", "0.6", "0.7", "0.69"), 4, "upwards, where more is better");
    queen_close();
    start("{\"name\": \"early_stopping\", \"patience\": 1, \"min_delta\": 0.1}");
    is_int(STOPS_AFTER("0.5", "0.35", "0.3"), 3, "a little better is no better");
    queen_close();
}

static void thresholds_stop_the_run(void)
{
    start("{\"name\": \"early_stopping\", \"stopping_threshold\": 0.2}");
    is_int(STOPS_AFTER("0.5", "0.3", "0.19"), 3, "good enough");
    like(ask(PL_HOOK_VALIDATION_END, "{\"val_loss\": 0.1}")->text,
         "val_loss 0.1 is better than the threshold 0.2", "and says so");
    queen_close();
    start("{\"name\": \"early_stopping\", \"divergence_threshold\": 2}");
    is_int(STOPS_AFTER("0.5", "1.9", "2.1"), 3, "lost");
    like(ask(PL_HOOK_VALIDATION_END, "{\"val_loss\": 3}")->text,
         "val_loss 3 is worse than the threshold 2", "and says so");
    queen_close();
    start("{\"name\": \"early_stopping\", \"mode\": \"max\", \"patience\": 9,"
          " \"stopping_threshold\": 0.9, \"divergence_threshold\": 0.1}");
    is_int(STOPS_AFTER("0.5", "0.2", "0.91"), 3, "upwards too");
    is_int(stops("0.05"), 1, "both of them");
    queen_close();
}

static void a_value_that_is_not_finite_stops_the_run(void)
{
    start("\"early_stopping\"");
    is_int(STOPS_AFTER("0.5", "null"), 2, "at once");
    queen_close();
    start("{\"name\": \"early_stopping\", \"check_finite\": false, \"patience\": 3}");
    is_int(STOPS_AFTER("0.5", "null", "null", "0.4"), 99, "unless the option is off");
    queen_close();
    start("{\"name\": \"early_stopping\", \"check_finite\": false, \"patience\": 3}");
    is_int(STOPS_AFTER("0.5", "null", "null", "0.6", "0.4"), 4,
           "then it counts as no improvement");
    queen_close();
    start("{\"name\": \"early_stopping\", \"check_finite\": false, \"patience\": 2}");
    is_int(STOPS_AFTER("null", "null", "0.4"), 2, "also where there is no best yet");
    queen_close();
    start("{\"name\": \"early_stopping\", \"check_finite\": false, \"patience\": 2}");
    is_int(STOPS_AFTER("null", "0.5", "null", "0.4", "null"), 99,
           "and the first number is an improvement");
    queen_close();
}

static void a_missing_metric_is_named(void)
{
    start("\"early_stopping\"");
    like(ask(PL_HOOK_VALIDATION_END, "{\"val_lost\": 1, \"b\": 2}")->error.text,
         "no metric \"val_loss\" to monitor; the metrics are: val_lost, b",
         "with those there");
    queen_close();
    start("{\"name\": \"early_stopping\", \"strict\": false}");
    is_int(ask(PL_HOOK_VALIDATION_END, "{\"b\": 2}")->error.code, PL_OK,
           "or passed over");
    queen_close();
}

static void metrics_of_training_are_monitored_after_epochs(void)
{
    static const char metrics[] = "{\"train_loss\": 1, \"val_loss\": 1}";
    start("{\"name\": \"early_stopping\", \"monitor\": \"train_loss\", \"patience\": 1}");
    ask(PL_HOOK_TRAIN_EPOCH_END, metrics);
    is_int(ask(PL_HOOK_VALIDATION_END, metrics)->body.run_hook_reply.stop, 0,
           "not after a validation");
    is_int(ask(PL_HOOK_TRAIN_EPOCH_END, metrics)->body.run_hook_reply.stop, 1,
           "after an epoch");
    queen_close();
    start("{\"name\": \"early_stopping\", \"patience\": 1,"
          " \"check_on_train_epoch_end\": true}");
    ask(PL_HOOK_TRAIN_EPOCH_END, metrics);
    is_int(stops("9"), 0, "others too");
    is_int(ask(PL_HOOK_TRAIN_EPOCH_END, metrics)->body.run_hook_reply.stop, 1,
           "when the option is on");
    queen_close();
}

/* The callback in a run that resumes the one before. */
static void start_again(const char *callback)
{
    char kept[sizeof life.text];
    asked_t *asked = queen_call(callbacks, PL_MESSAGE_get_state, &(pl_get_state_t){0});
    snprintf(kept, sizeof kept, "%s", asked->text);
    queen_close();
    start(callback);
    const pl_set_state_t back = {.state = kept};
    is_int(queen_call(callbacks, PL_MESSAGE_set_state, &back)->error.code, PL_OK,
           "it takes its state back");
}

static void early_stopping_resumes_from_a_checkpoint(void)
{
    static const char callback[] = "{\"name\": \"early_stopping\", \"patience\": 2}";
    start(callback);
    is_int(STOPS_AFTER("0.5", "0.1234567890123456", "0.2"), 99, "a run is cut off");
    start_again(callback);
    is_int(STOPS_AFTER("0.1234567890123456"), 1, "and stops where it would have");
    queen_close();
    start(callback);
    start_again(callback);
    is_int(STOPS_AFTER("0.5", "0.6", "0.7"), 3, "one that had not begun begins");
    const pl_set_state_t broken = {
        .state = "[{\"name\": \"early_stopping\", \"state\": \"1\"}]"};
    like(queen_call(callbacks, PL_MESSAGE_set_state, &broken)->error.text,
         "early_stopping", "a state that is none is refused");
    queen_close();
}

static void wrong_options_are_refused(void)
{
    start("{\"name\": \"early_stopping\", \"monitor\": \"\"}");
    queen_wait(&life);
    like(life.error.text, "\"early_stopping\".*set \"monitor\" to the name",
         "no monitor");
    queen_close();
    start("{\"name\": \"early_stopping\", \"stopping_threshold\": \"low\"}");
    queen_wait(&life);
    like(life.error.text, "\"stopping_threshold\" takes a number, not \"low\"", "a word");
    queen_close();
    start("{\"name\": \"timer\", \"duration\": \"00:00:61\"}");
    queen_wait(&life);
    like(life.error.text, "\"timer\".*\"00:00:61\" is not a time: write DD:HH:MM:SS",
         "no time");
    queen_close();
}

/* ---- timer ---- */

static void durations_are_read(void)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } right[] = {{"90", 90},
                 {"01:30", 90},
                 {"02:00:00", 7200},
                 {"01:00:00:01", 86401},
                 {"100000", 100000}};
    static const char *const wrong[] = {"",      "0",   "1:",          ":1",
                                        "a",     "-1",  "1:60",        "24:00:00",
                                        "1 min", "1.5", "0:0:0:0:001", "99999999999"};
    int64_t duration;
    for (size_t k = 0; k < sizeof right / sizeof *right; k++) {
        int code = pl_duration_read(right[k].text, &duration, NULL);
        ok(code == PL_OK && duration == right[k].seconds * PL_SECOND, "%s",
           right[k].text);
    }
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        is_int(pl_duration_read(wrong[k], &duration, NULL), PL_EINVAL, "not \"%s\"",
               wrong[k]);
}

static void a_timer_stops_the_run(void)
{
    start("{\"name\": \"timer\", \"duration\": \"00:01:00:00\"}");
    is_int(ask(PL_HOOK_FIT_START, "{}")->body.run_hook_reply.stop, 0, "not yet");
    const pl_set_state_t hour = {
        .state = "[{\"name\": \"timer\", \"state\": \"{\\\"seconds\\\": 3600}\"}]"};
    queen_call(callbacks, PL_MESSAGE_set_state, &hour);
    asked_t *asked = ask(PL_HOOK_TRAIN_BATCH_END, "{}");
    is_int(asked->body.run_hook_reply.stop, 1, "once the time is over");
    is_text(asked->text, "timer: the time limit of 00:01:00:00 has passed",
            "and says so");
    start_again("{\"name\": \"timer\", \"duration\": \"00:01:00:00\"}");
    is_int(ask(PL_HOOK_FIT_START, "{}")->body.run_hook_reply.stop, 1,
           "the time before a checkpoint counts");
    queen_close();
}

/* ---- Metrics, in whole runs ---- */

#define FOUR "\"batch_size\": 8, \"val_split\": 0.2"        /* batches of 40 samples */

static void rates_are_logged_at_their_interval(void)
{
    rig_t *rig =
        rig_new(.data = FOUR, .trainer = "\"max_epochs\": 2",
                .callbacks = "[{\"name\": \"lr_monitor\", \"every_n_steps\": 3}]");
    rig_series_t lr = rig_series(rig_fit(rig), "lr-sgd");
    is_int(lr.count, 4, "two lines of their own, two of epochs");
    is_int(lr.step[0], 3, "after the third step");
    is_near(lr.value[0], 0.1, 1e-12, "with the rate");
    rig_free(&rig);
    rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 2",
                  .callbacks =
                      "[{\"name\": \"lr_monitor\", \"logging_interval\": \"epoch\"}]");
    lr = rig_series(rig_fit(rig), "lr-sgd");
    is_int(lr.count, 4, "after epochs");
    is_int(lr.step[1], 4, "each twice then");
    rig_free(&rig);
}

static void the_speed_is_logged(void)
{
    rig_t *rig =
        rig_new(.data = FOUR, .trainer = "\"max_epochs\": 2",
                .callbacks =
                    "[{\"name\": \"throughput_monitor\", \"every_n_steps\": 2}]");
    const rig_result_t *result = rig_fit(rig);
    rig_series_t samples = rig_series(result, "samples_per_second");
    rig_series_t steps = rig_series(result, "steps_per_second");
    is_int(samples.count, 4, "at its steps");
    ok(samples.value[3] > 0 && isfinite(samples.value[3]), "some samples a second");
    is_near(samples.value[3] / steps.value[3], 8, 1e-9, "eight in a step");
    rig_series_t flops = rig_series(result, "model_flops_per_second");
    is_near(flops.value[3] / samples.value[3], 3 * 2 * (6 * 8 + 8 * 3), 1e-9,
            "three times the forward pass's products for each");
    ok(rig_metric(result, "model_flops_utilization") > 0, "a share of the device's peak");
    ok(isnan(rig_metric(result, "tokens_per_second")), "samples that are no sequences");
    rig_free(&rig);
    rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 2",
                  .callbacks = "[{\"name\": \"throughput_monitor\", \"every_n_steps\": 2,"
                               " \"peak_flops\": 1e6}]");
    result = rig_fit(rig);
    is_near(rig_metric(result, "model_flops_utilization")
                / rig_metric(result, "model_flops_per_second"),
            1e-6, 1e-12, "or of a given value");
    rig_free(&rig);
}

static void the_memory_and_time_of_the_process_are_logged(void)
{
    rig_t *rig =
        rig_new(.data = FOUR, .trainer = "\"max_epochs\": 1",
                .callbacks =
                    "[{\"name\": \"device_stats_monitor\", \"every_n_steps\": 2}]");
    const rig_result_t *result = rig_fit(rig);
    is_int(rig_series(result, "cpu_percent").count, 2, "at its steps");
    ok(rig_metric(result, "cpu_percent") >= 0, "processor time");
    ok(rig_metric(result, "memory_rss_mb") > 1, "memory of the process");
    ok(rig_metric(result, "memory_peak_mb") >= rig_metric(result, "memory_rss_mb"),
       "and the most of it");
    ok(rig_metric(result, "memory_available_mb") > 1, "memory that is left");
    is_int(rig_series(result, "device_memory_used_mb").count, 0,
           "nothing of a device that measures nothing");
    rig_free(&rig);
}

/* ---- on_exception_checkpoint ---- */

static void a_run_that_fails_leaves_a_checkpoint(void)
{
    start("\"on_exception_checkpoint\"");
    is_text(ask(PL_HOOK_EXCEPTION, "{}")->text, "on_exception",
            "the name of the requested checkpoint");
    queen_close();
}

/* ---- finetuning ---- */

static bool is_as_begun(const rig_result_t *result, const rig_result_t *begun,
                        const char *name)
{
    const rig_tensor_t *a = rig_find(result->weight, result->weight_count, name);
    const rig_tensor_t *b = rig_find(begun->weight, begun->weight_count, name);
    return a && b && !memcmp(a->data, b->data, a->count * sizeof *a->data);
}

static rig_result_t *tuned(int epochs, const char *callbacks_list)
{
    char trainer[64];
    snprintf(trainer, sizeof trainer, "\"max_epochs\": %d", epochs);
    rig_t *rig = rig_new(.data = FOUR, .trainer = trainer, .callbacks = callbacks_list);
    rig_result_t *result = rig_keep(rig_fit(rig));
    rig_free(&rig);
    return result;
}

static void parameters_train_from_their_epoch(void)
{
    static const char list[] = "[{\"name\": \"finetuning\", \"freeze\": \"fc1.*\","
                               " \"epochs\": [1, 2],"
                               " \"unfreeze\": \"fc1.bias; fc1.weight\"}]";
    rig_result_t *begun = tuned(0, "[]"), *one = tuned(1, list), *two = tuned(2, list),
                 *three = tuned(3, list);
    ok(is_as_begun(one, begun, "fc1.weight") && is_as_begun(one, begun, "fc1.bias"),
       "frozen at first");
    ok(!is_as_begun(one, begun, "fc2.weight"), "while others are trained");
    ok(is_as_begun(two, begun, "fc1.weight") && !is_as_begun(two, begun, "fc1.bias"),
       "the first group from its epoch on");
    ok(!is_as_begun(three, begun, "fc1.weight"), "then the second");
    rig_result_free(begun);
    rig_result_free(one);
    rig_result_free(two);
    rig_result_free(three);
}

static void finetuning_needs_a_group_for_each_epoch(void)
{
    start("{\"name\": \"finetuning\", \"freeze\": \"a\", \"epochs\": [1, 2],"
          " \"unfreeze\": \"a\"}");
    queen_wait(&life);
    like(life.error.text, "\"epochs\" has 2 entries, but \"unfreeze\" has 1", "no less");
    queen_close();
}

/* ---- gradient_accumulation_scheduler ---- */

static void accumulation_grows_at_its_epoch(void)
{
    rig_t *rig = rig_new(.data = FOUR,
                         .trainer = "\"max_epochs\": 3, \"log_every_n_steps\": 1",
                         .callbacks = "[{\"name\": \"gradient_accumulation_scheduler\","
                                      " \"epochs\": [1, 2], \"batches\": [2, 4]}]");
    const rig_result_t *result = rig_fit(rig);
    is_int(result->global_step, 4 + 2 + 1, "four batches, by one, two and four");
    rig_result_t *scheduled = rig_keep(result);
    rig_free(&rig);
    rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 3",
                  .callbacks = "[{\"name\": \"gradient_accumulation_scheduler\","
                               " \"epochs\": [0], \"batches\": [4]}]");
    rig_result_t *four = rig_keep(rig_fit(rig));
    rig_free(&rig);
    rig = rig_new(.data = FOUR,
                  .trainer = "\"max_epochs\": 3, \"accumulate_grad_batches\": 4");
    ok(rig_same_bits(rig_fit(rig), four), "from the first on it is the trainer's option");
    ok(!rig_same_bits(scheduled, four), "which from a later one on it is not");
    rig_free(&rig);
    rig_result_free(scheduled);
    rig_result_free(four);
}

static void accumulation_must_ascend(void)
{
    start("{\"name\": \"gradient_accumulation_scheduler\", \"epochs\": [2, 1],"
          " \"batches\": [1, 2]}");
    queen_wait(&life);
    like(life.error.text, "\"epochs\" must ascend, but 1 follows 2", "the epochs");
    queen_close();
    start("{\"name\": \"gradient_accumulation_scheduler\", \"epochs\": [1],"
          " \"batches\": [1, 2]}");
    queen_wait(&life);
    like(life.error.text, "\"epochs\" has 1 entries, but \"batches\" has 2",
         "one for each");
    queen_close();
}

/* ---- Tables in the log ---- */

static char table[16384];

static void on_log(pl_log_level_t level, int rank, const char *actor, const char *text,
                   void *user)
{
    (void)level, (void)rank, (void)user;
    size_t length = strlen(table);
    if (!*actor)
        snprintf(table + length, sizeof table - length, "%s\n", text);
}

/* ---- the profile ---- */

/* Of many steps, so that what is done once does not crowd out what each step does. */
static void a_profile_shows_the_time_of_each_part(void)
{
    pl_log_hook(on_log, PL_LOG_INFO, NULL);
    table[0] = '\0';
    rig_t *rig = rig_new(.data = FOUR, .reading_ms = 2,
                         .trainer = "\"max_epochs\": 20, \"profiler\": \"simple\","
                                    "\"enable_checkpointing\": false,"
                                    "\"enable_model_summary\": false");
    is_text(rig_fit(rig)->status, "ok", "a run");
    like(table, "accelerator.fake +replay_plan training_step +80 .* %",
         "each call of the device, with its count");
    like(table, "loop.epoch +answer to train_batch +80 ", "and the loop's");
    like(table, "io.reader +read_batch +[0-9]+ +[0-9.]+ ms ", "threads of the data too");
    like(table,
         "\n  train +[0-9.]+ .*replay_plan training_step .*\n  validate +[0-9.]+ "
         ".*replay_plan forward .*\n  save +[0-9.]+ ",
         "by stage, each with its sum");
    rig_free(&rig);
    table[0] = '\0';
    rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 1,"
                                           "\"enable_model_summary\": false");
    rig_fit(rig);
    is_text(table, "", "unless it is not requested");
    rig_free(&rig);
}

/* ---- prediction_writer ---- */

/* Whether a file holds those rows of a tensor, behind its header. */
static bool is_written(const char *name, const rig_tensor_t *wanted, int64_t from,
                       int64_t count)
{
    char path[4200], data[4096];
    size_t row = wanted->count / (size_t)wanted->shape.dim[0] * sizeof(float);
    snprintf(path, sizeof path, "%s/predicted/%s", tap_folder(), name);
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(data, 1, sizeof data, file) : 0;
    if (file)
        fclose(file);
    size_t bytes = (size_t)count * row;
    return size > bytes && (size - bytes) % 64 == 0 && !memcmp(data + 1, "NUMPY", 5)
           && !memcmp(data + size - bytes,
                      (const char *)wanted->data + (size_t)from * row, bytes);
}

static rig_t *rig_that_writes(const char *interval)
{
    char list[4400];
    snprintf(list, sizeof list,
             "[{\"name\": \"prediction_writer\", \"output_dir\": \"%s/predicted\","
             " \"write_interval\": \"%s\"}]",
             tap_folder(), interval);
    return rig_new(.data = "\"batch_size\": 16", .trainer = "\"max_epochs\": 1",
                   .callbacks = list);
}

static void predictions_are_written(void)
{
    rig_t *plain = rig_new(.data = "\"batch_size\": 16", .trainer = "\"max_epochs\": 1");
    const rig_result_t *fit = rig_fit(plain);
    char *checkpoint = strdup(fit->run_dir);
    const rig_tensor_t *logits = rig_predict(plain, checkpoint)->output;
    rig_t *rig = rig_that_writes("epoch");
    is_int(rig_predict(rig, checkpoint)->output_count, 1, "all at the end");
    ok(is_written("logits.r0.npy", logits, 0, 40), "into one file");
    rig_free(&rig);
    rig = rig_that_writes("batch");
    is_int(rig_predict(rig, checkpoint)->output_count, 0, "or each batch, not kept then");
    ok(is_written("logits.r0.b000000.npy", logits, 0, 16), "into files of their own");
    ok(is_written("logits.r0.b000002.npy", logits, 32, 8), "the last one too");
    rig_free(&rig);
    rig_free(&plain);
    free(checkpoint);
}

/* ---- model_summary ---- */

static void a_fit_begins_with_a_table_of_the_layers(void)
{
    pl_log_hook(on_log, PL_LOG_INFO, NULL);
    table[0] = '\0';
    rig_t *rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 1");
    rig_fit(rig);
    is_text(table,
            "  name  type    parameters  in      out\n"
            "  fc1   linear          56  [8, 6]  [8, 8]\n"
            "  fc2   linear          27  [8, 8]  [8, 3]\n"
            "  83 parameters (332 B in float32), 0 elements of state, "
            "432 FLOP to train on a sample\n",
            "with type, size and shapes");
    rig_free(&rig);
    table[0] = '\0';
    rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 1",
                  .callbacks = "[{\"name\": \"model_summary\", \"max_depth\": 0}]");
    rig_fit(rig);
    like(table, "^  83 parameters", "only the sums, once, when it is listed so");
    rig_free(&rig);
}

static void a_summary_may_be_left_out(void)
{
    table[0] = '\0';
    rig_t *rig = rig_new(.data = FOUR, .trainer = "\"max_epochs\": 1,"
                                                  "\"enable_model_summary\": false");
    rig_fit(rig);
    is_text(table, "", "by an option");
    rig_free(&rig);
    rig = rig_new(.data = FOUR, .callbacks = "[\"model_summary\"]",
                  .trainer = "\"max_epochs\": 1, \"enable_model_summary\": false");
    like(rig_fit(rig)->error.text,
         "\"model_summary\" is listed, but \"trainer.enable_model_summary\" is false: "
         "remove one of them",
         "but not both");
    rig_free(&rig);
}

int main(void)
{
    rig_init(NULL);
    run(a_metric_that_stops_improving_stops_the_run);
    run(thresholds_stop_the_run);
    run(a_value_that_is_not_finite_stops_the_run);
    run(a_missing_metric_is_named);
    run(metrics_of_training_are_monitored_after_epochs);
    run(early_stopping_resumes_from_a_checkpoint);
    run(wrong_options_are_refused);
    run(durations_are_read);
    run(a_timer_stops_the_run);
    run(rates_are_logged_at_their_interval);
    run(the_speed_is_logged);
    run(the_memory_and_time_of_the_process_are_logged);
    run(predictions_are_written);
    run(accumulation_grows_at_its_epoch);
    run(accumulation_must_ascend);
    run(parameters_train_from_their_epoch);
    run(finetuning_needs_a_group_for_each_epoch);
    run(a_run_that_fails_leaves_a_checkpoint);
    run(a_profile_shows_the_time_of_each_part);
    run(a_fit_begins_with_a_table_of_the_layers);
    run(a_summary_may_be_left_out);
    return tap_done();
}
