/* resume_state.c - tests that what a run has come to know by a checkpoint is known by the
 * run that resumes from it
 *
 * A run keeps a checkpoint of each step and each epoch, and resumes from each of them: to
 * the same weights, optimizer, state of all parts, and metrics in metrics.jsonl.  Killed
 * processes are in resume.c. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "files.h"
#include "rig.h"
#include "tap.h"

/* ---- callbacks with requests ---- */

/* The rate changes wherever it may. */
static int slower_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                     pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)err;
    if (point != PL_HOOK_TRAIN_BATCH_END || event->global_step % 3 == 0)
        request->lr_factor = 0.9 - 0.05 * point;
    return PL_OK;
}

static const pl_callback_ops_t slower = {
    .name = "slower",
    .size = 1,
    .points = PL_AT(FIT_START) | PL_AT(TRAIN_EPOCH_START) | PL_AT(TRAIN_BATCH_END)
              | PL_AT(VALIDATION_START) | PL_AT(VALIDATION_END) | PL_AT(TRAIN_EPOCH_END),
    .on = slower_on};

/* A stop is requested after one step. */
static int ender_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                    pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)err;
    request->stop = event->global_step == 3;
    strcpy(request->reason, "three are enough");
    return PL_OK;
}

static const pl_callback_ops_t ender = {.name = "ender",
                                        .size = 1,
                                        .points = PL_AT(TRAIN_BATCH_END),
                                        .on = ender_on};

/* It logs its input. */
static int teller_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                     pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point;
    return pl_callback_log(request, "samples", (double)event->samples, err);
}

static const pl_callback_ops_t teller = {.name = "teller",
                                         .size = 1,
                                         .points = PL_AT(TRAIN_BATCH_END)
                                                   | PL_AT(TRAIN_EPOCH_END),
                                         .on = teller_on};

/* The table is longer from the end of the second epoch on. */
static void table_write(int rows)
{
    char text[4096] = "";
    for (int i = 0; i < rows; i++)
        sprintf(text + strlen(text), "%d,%d,%d\n", i * 7 % 11, i * 3 % 5, i % 3);
    file_put_text("table.csv", text);
}

/* As it was when that step was made. */
static void table_as_of(int step)
{
    table_write(step > 6 ? 35 : 24);
}

static int adder_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                    pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)request, (void)err;
    if (event->epoch == 1)
        table_write(35);
    return PL_OK;
}

static const pl_callback_ops_t adder = {.name = "adder",
                                        .size = 1,
                                        .points = PL_AT(TRAIN_EPOCH_END),
                                        .on = adder_on};

/* ---- sentences of 2 to 9 words, and in which order they were read ---- */

enum { SENTENCES = 37 };

static struct {
    pthread_mutex_t lock;
    int count;
    int64_t read[40 * SENTENCES];                  /* which, and a -1 before each batch */
    int took_ms;
} sentences = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t sentence_length(void *user, int64_t index)
{
    (void)user;
    return 2 + index * 5 % 8;
}

static int sentences_read(void *user, const pl_read_request_t *request,
                          void *const field[], pl_error_t *err)
{
    (void)err;
    nanosleep(&(struct timespec){.tv_nsec = sentences.took_ms * 1000000L}, NULL);
    pthread_mutex_lock(&sentences.lock);
    if (sentences.count + request->count >= 39 * SENTENCES)
        sentences.count = 0;
    sentences.read[sentences.count++] = -1;
    for (int i = 0; i < request->count; i++) {
        int64_t *words = (int64_t *)field[0] + i * request->length,
                *next = (int64_t *)field[1] + i * request->length,
                index = sentences.read[sentences.count++] = request->index[i];
        for (int64_t t = 0; t < sentence_length(user, index); t++) {
            words[t] = (index * 3 + t * t) % 5;
            next[t] = (words[t] + index) % 5;
        }
    }
    pthread_mutex_unlock(&sentences.lock);
    return PL_OK;
}

static const pl_memory_data_t sentences_data = {
    .samples = SENTENCES,
    .field_count = 2,
    .field = {{"x", PL_I64, {1, {PL_VARIES}}}, {"y", PL_I64, {1, {PL_VARIES}}}},
    .read = sentences_read,
    .length = sentence_length,
    .padding = {0, -1}};

static void speaker_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    const pl_cross_entropy_options_t ignored = {.has_ignore = true, .ignore_index = -1};
    pl_node_t words = pl_embedding(g, "words", pl_input(g, "x"), 5, 8, pl_normal(0.5));
    pl_loss(g, pl_cross_entropy(g, pl_linear(g, "say", words, 5), pl_input(g, "y"),
                                &ignored));
}

static const pl_module_ops_t speaker = {.name = "speaker",
                                        .size = 1,
                                        .step = speaker_step};

/* ---- the rest of the state ---- */

static json_t *log_without_time(const rig_result_t *result)
{
    json_t *line, *lines = rig_log(result);
    size_t k;
    json_array_foreach(lines, k, line)
        json_object_del(line, "time");
    return lines;
}

/* What the newest checkpoint says: of files the checksums.  How long it took differs. */
static json_t *state_of(const rig_result_t *result)
{
    static const char *const kept[] = {"epoch", "global_step", "metrics", "progress",
                                       "files", "strategy",    NULL};
    char path[4200];
    snprintf(path, sizeof path, "%s/checkpoints/last/manifest.json", result->run_dir);
    json_t *manifest = json_load_file(path, 0, NULL), *state = json_object();
    for (int k = 0; kept[k]; k++)
        json_object_set(state, kept[k], json_object_get(manifest, kept[k]));
    json_object_del(json_object_get(state, "progress"), "nanoseconds");
    json_decref(manifest);
    return state;
}

typedef struct left {
    rig_result_t *result;
    json_t *log, *state;
} left_t;

static left_t left_by(const rig_result_t *result)
{
    return (left_t){rig_keep(result), log_without_time(result), state_of(result)};
}

static void left_free(left_t *left)
{
    rig_result_free(left->result);
    json_decref(left->log);
    json_decref(left->state);
}

/* The first of two lists' or objects' members that differs. */
static void show_difference(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    size_t k;
    json_array_foreach(a, k, value) {
        if (json_equal(value, json_array_get(b, k)))
            continue;
        char *one = json_dumps(value, 0), *two = json_dumps(json_array_get(b, k), 0);
        tap_diag("line %d: %s, not %s", (int)k + 1, two ? two : "none", one);
        free(one), free(two);
        return;
    }
    json_object_foreach((json_t *)a, key, value) {
        if (json_equal(value, json_object_get(b, key)))
            continue;
        tap_diag("another \"%s\"", key);
        show_difference(value, json_object_get(b, key));
    }
}

static bool same_json(const json_t *a, const json_t *b)
{
    if (json_equal(a, b))
        return true;
    show_difference(a, b);
    return false;
}

/* From the last checkpoint nothing is trained, which is the reason of an "ok" run. */
static bool same_ends(const left_t *a, const left_t *b)
{
    bool ends = !strcmp(a->result->status, b->result->status)
                && (!strcmp(a->result->status, "ok")
                    || !strcmp(a->result->reason, b->result->reason))
                && a->result->global_step == b->result->global_step,
         weights = rig_same_bits(a->result, b->result);
    if (!ends)
        tap_diag("it ends %s at step %d: %s%s", b->result->status,
                 (int)b->result->global_step, b->result->reason, b->result->error.text);
    if (!weights)
        tap_diag("other weights");
    return ends && weights;
}

static bool same_left(const left_t *a, const left_t *b)
{
    return same_ends(a, b) && same_json(a->log, b->log) && same_json(a->state, b->state);
}

/* ---- from each checkpoint ---- */

#define KEEPS_STEPS \
    "{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 1, \"save_top_k\": -1, " \
    "\"save_last\": true}"
#define KEEPS(metric, name) \
    "{\"name\": \"model_checkpoint\", \"save_top_k\": -1, \"monitor\": \"" metric \
    "\", \"filename\": \"" name "-{epoch}-{step}\"}"
#define KEEPS_ALL \
    KEEPS_STEPS ", " KEEPS("val_loss", "validated") ", " KEEPS("train_loss", "ended")
#define RAGGED "\"batch_size\": 5, \"val_split\": 0.2"      /* 7 batches, the last of 2 */
#define STEPS "\"log_every_n_steps\": 1, "

static int is_kept(const struct dirent *entry)
{
    return strchr(entry->d_name, '=') != NULL;
}

/* With state outside of the run as it was at that step  [none]. */
static void resumes_from_each(rig_t *rig, const left_t *whole, void (*set)(int step))
{
    char path[4200];
    struct dirent **entry = NULL;
    int same = 0;
    snprintf(path, sizeof path, "%s/checkpoints", whole->result->run_dir);
    int count = scandir(path, &entry, is_kept, NULL);
    for (int k = 0; k < count; k++) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", whole->result->run_dir,
                 entry[k]->d_name);
        if (set)
            set(atoi(strstr(entry[k]->d_name, "step=") + 5));
        left_t again = left_by(rig_resume(rig, path));
        bool equal = same_left(whole, &again);
        if (!equal)
            tap_diag("not from %s", entry[k]->d_name);
        same += equal;
        left_free(&again);
        free(entry[k]);
    }
    free(entry);
    ok(count > 5, "it keeps %d checkpoints", count);
    is_int(same, count, "and resumes from each to the same end, metrics and state");
}

static left_t fit_and_resume(rig_t *rig)
{
    left_t whole = left_by(rig_fit(rig));
    ok(json_array_size(whole.log) > 10 && json_object_size(whole.state) == 6,
       "a run, %s, leaves metrics and state: %s", whole.result->status,
       whole.result->error.text);
    resumes_from_each(rig, &whole, NULL);
    return whole;
}

static void a_resume_keeps_the_factor_of_the_loss_and_its_counts(void)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .data = RAGGED,
                         .callbacks = "[" KEEPS_ALL "]", .optimizer = "\"adam\"",
                         .trainer = STEPS "\"max_epochs\": 2, \"precision\": "
                                          "{\"name\": \"16-mixed\", \"init_scale\": 1e6, "
                                          "\"growth_interval\": 4}");
    left_t whole = fit_and_resume(rig);
    rig_series_t factor = rig_series(whole.result, "loss_scale");
    bool fell = false, rose = false;
    for (int k = 1; k < factor.count; k++) {
        fell |= factor.value[k] < factor.value[k - 1];
        rose |= factor.value[k] > factor.value[k - 1];
    }
    ok(fell && rose, "it fell and rose in between");
    left_free(&whole);
    rig_free(&rig);
}

static void a_resume_keeps_the_rate_that_callbacks_set(void)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .data = RAGGED,
                         .callbacks = "[\"slower\", " KEEPS_ALL "]",
                         .trainer = STEPS "\"max_epochs\": 2, \"val_check_interval\": 3");
    left_t whole = fit_and_resume(rig);
    rig_series_t rate = rig_series(whole.result, "lr-sgd");
    ok(rate.count > 9 && rate.value[rate.count - 1] < rate.value[0] / 10,
       "it was lowered again and again");
    left_free(&whole);
    rig_free(&rig);
}

static void a_resume_keeps_a_stop_request_that_must_wait(void)
{
    static const char *const until[] = {"\"min_epochs\": 2", "\"min_steps\": 11"};
    for (int k = 0; k < 2; k++) {
        char trainer[128];
        snprintf(trainer, sizeof trainer, STEPS "\"max_epochs\": 4, %s", until[k]);
        rig_t *rig = rig_new(.accelerator = "cpu", .data = RAGGED, .trainer = trainer,
                             .callbacks = "[\"ender\", " KEEPS_ALL "]");
        left_t whole = fit_and_resume(rig);
        is_text(whole.result->reason, "ender: three are enough", "it was stopped");
        is_int(whole.result->global_step, k ? 11 : 14, "no sooner than it might");
        left_free(&whole);
        rig_free(&rig);
    }
}

static void a_resume_keeps_the_count_of_samples(void)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .data = RAGGED,
                         .callbacks = "[\"teller\", " KEEPS_ALL "]",
                         .trainer = STEPS "\"max_epochs\": 2, "
                                          "\"accumulate_grad_batches\": 2");
    left_t whole = fit_and_resume(rig);
    rig_series_t samples = rig_series(whole.result, "samples");
    is_int(samples.count ? samples.value[samples.count - 1] : 0, 64,
           "twice those there are");
    left_free(&whole);
    rig_free(&rig);
}

static void a_resume_keeps_the_place_in_an_epoch_without_its_last_batch(void)
{
    rig_t *rig = rig_new(.accelerator = "cpu", .data = RAGGED ", \"drop_last\": true",
                         .callbacks = "[" KEEPS_ALL "]",
                         .trainer = STEPS "\"max_epochs\": 2");
    left_t whole = fit_and_resume(rig);
    is_int(whole.result->global_step, 12, "six full batches an epoch");
    left_free(&whole);
    rig_free(&rig);
}

/* Of a new run, or of a resumed one. */
typedef struct order {
    int count;
    int64_t read[40 * SENTENCES];
} order_t;

static void order_take(order_t *order)
{
    pthread_mutex_lock(&sentences.lock);
    order->count = sentences.count;
    memcpy(order->read, sentences.read, sizeof order->read);
    sentences.count = 0;
    pthread_mutex_unlock(&sentences.lock);
}

static bool is_tail(const order_t *part, const order_t *whole)
{
    return part->count && part->count < whole->count
           && !memcmp(part->read, whole->read + whole->count - part->count,
                      (size_t)part->count * sizeof *part->read);
}

#define SPOKEN "{\"name\": \"memory\", \"source\": \"sentences\", \"batch_size\": 5}"

static void a_resume_keeps_the_order_of_sentences_that_vary(void)
{
    static order_t whole_order, order;
    char path[4200];
    rig_t *rig = rig_new(.accelerator = "cpu", .module = "\"speaker\"", .dataset = SPOKEN,
                         .callbacks = "[" KEEPS_STEPS "]",
                         .trainer = STEPS "\"max_epochs\": 2");
    sentences.took_ms = 0;
    sentences.count = 0;
    rig_result_t *whole = rig_keep(rig_fit(rig));
    order_take(&whole_order);
    const int half = whole_order.count / 2;
    ok(whole->global_step > 2 * SENTENCES / 5 && whole_order.count == half * 2
           && memcmp(whole_order.read, whole_order.read + half, sizeof(int64_t) * half),
       "two epochs, each in an order of its own: %s", whole->error.text);
    for (int step = 1; step < (int)whole->global_step; step += 3) {
        snprintf(path, sizeof path, "%s/checkpoints/epoch=%d-step=%d", whole->run_dir,
                 step > (int)whole->global_step / 2, step);
        rig_resume(rig, path);
        order_take(&order);
        if (!is_tail(&order, &whole_order))
            break;
    }
    ok(is_tail(&order, &whole_order), "the rest of which a resumed run reads");
    rig_result_free(whole);
    rig_free(&rig);
}

/* 3 batches an epoch, then 5. */
static void a_resume_keeps_reopened_data(void)
{
    char data[4400];
    snprintf(data, sizeof data,
             "{\"name\": \"csv\", \"path\": \"%s/table.csv\", \"batch_size\": 8}",
             tap_folder());
    rig_t *rig = rig_new(.accelerator = "cpu", .dataset = data,
                         .callbacks = "[\"adder\", " KEEPS_STEPS "]",
                         .trainer = STEPS "\"max_epochs\": 4, "
                                          "\"reload_dataloaders_every_n_epochs\": 2");
    table_write(24);
    left_t whole = left_by(rig_fit(rig));
    is_int(whole.result->global_step, 16, "rows that were added are seen: %s",
           whole.result->error.text);
    resumes_from_each(rig, &whole, table_as_of);
    left_free(&whole);
    rig_free(&rig);
}

/* Some blocks of a table that stays on the disk, as csv or as JSON Lines. */
static void streamed_write(const char *name, bool is_json)
{
    enum { ROWS = 6000 };
    const char *row = is_json ? "{\"a\": %d.5, \"b\": \"w%d\", \"c\": %d}\n"
                              : "%d.5,w%d,%d\n";
    char *text = malloc(ROWS * 40), *to = text;
    to += is_json ? 0 : sprintf(to, "a,b,c\n");
    for (int i = 0; i < ROWS; i++)
        to += sprintf(to, row, i * 7 % 1009, i * 3 % 5, i * 31 % 3);
    file_put(name, text, (size_t)(to - text));
    free(text);
}

static void a_resume_keeps_the_place_in_a_table_that_stays_on_the_disk(void)
{
    static const char *const names[] = {"streamed.csv", "streamed.jsonl"};
    for (int k = 0; k < 2; k++) {
        char data[4400];
        snprintf(data, sizeof data,
                 "{\"name\": \"csv\", \"path\": \"%s/%s\", \"batch_size\": 1000, "
                 "\"stream\": true, \"shuffle_window\": 700, \"val_split\": 0.1, "
                 "\"fields\": {\"y\": \"c\"}}",
                 tap_folder(), names[k]);
        streamed_write(names[k], k == 1);
        rig_t *rig = rig_new(.accelerator = "cpu", .dataset = data,
                             .callbacks = "[" KEEPS_STEPS "]",
                             .trainer = STEPS "\"max_epochs\": 2");
        left_t whole = left_by(rig_fit(rig));
        is_int(whole.result->global_step, 12, "six batches an epoch: %s",
               whole.result->error.text);
        resumes_from_each(rig, &whole, NULL);
        left_free(&whole);
        rig_free(&rig);
    }
}

static rig_t *rig_with_time(const char *seconds)
{
    char trainer[128];
    snprintf(trainer, sizeof trainer,
             "\"max_epochs\": -1, \"depth\": 1, \"max_time\": \"00:00:00:%s\"", seconds);
    return rig_new(.accelerator = "cpu", .module = "\"speaker\"", .dataset = SPOKEN,
                   .trainer = trainer);
}

static void a_resume_keeps_full_batches_of_sentences(void)
{
    static order_t order;
    rig_t *rig = rig_new(.accelerator = "cpu", .module = "\"speaker\"",
                         .dataset = "{\"name\": \"memory\", \"source\": \"sentences\", "
                                    "\"batch_size\": 5, \"drop_last\": true}",
                         .trainer = STEPS "\"max_epochs\": 1");
    sentences.took_ms = 0;
    sentences.count = 0;
    const rig_result_t *result = rig_fit(rig);
    order_take(&order);
    int batches = 0, full = 0, samples = 0;
    for (int k = 0; k <= order.count; k++) {
        if (k == order.count || order.read[k] < 0) {
            full += k && samples == 5;
            batches += k > 0;
            samples = 0;
        } else {
            samples++;
        }
    }
    is_text(result->status, "ok", "it ends well: %s", result->error.text);
    ok(batches > 3 && full == batches, "%d batches, %d of them full", batches, full);
    rig_free(&rig);
}

/* Whether time is over is looked at after a step. */
static void a_resume_keeps_the_elapsed_time(void)
{
    rig_t *rig = rig_with_time("01"), *longer = rig_with_time("02");
    sentences.took_ms = 5;
    rig_result_t *first = rig_keep(rig_fit(rig));
    is_text(first->reason, "trainer.max_time has passed", "a run ends by its time");
    const uint64_t again = rig_resume(rig, first->run_dir)->global_step;
    is_int(again, first->global_step + 1, "and has none left");
    ok(rig_resume(longer, first->run_dir)->global_step > again + 1, "unless given more");
    rig_result_free(first);
    rig_free(&longer);
    rig_free(&rig);
}

int main(void)
{
    static const pl_registration_t components[] = {
        {"callback", &slower}, {"callback", &ender}, {"callback", &teller},
        {"callback", &adder},  {"module", &speaker}, PL_REGISTRATIONS_END};
    rig_init(components);
    pl_memory_data("sentences", &sentences_data, NULL);
    run(a_resume_keeps_the_factor_of_the_loss_and_its_counts);
    run(a_resume_keeps_the_rate_that_callbacks_set);
    run(a_resume_keeps_a_stop_request_that_must_wait);
    run(a_resume_keeps_the_count_of_samples);
    run(a_resume_keeps_the_place_in_an_epoch_without_its_last_batch);
    run(a_resume_keeps_full_batches_of_sentences);
    run(a_resume_keeps_the_order_of_sentences_that_vary);
    run(a_resume_keeps_reopened_data);
    run(a_resume_keeps_the_place_in_a_table_that_stays_on_the_disk);
    run(a_resume_keeps_the_elapsed_time);
    return tap_done();
}
