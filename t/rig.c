/* rig.c - whole runs through paceline.h: an engine, a trainer, data by formula, and a
 * wait with a limit */
#include "rig.h"

#include <event2/event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors/api/host.h"
#include "fake.h"
#include "rig_stream.h"
#include "tap.h"
#include "tensor/graph.h"

#define LIMIT_S 900         /* under a sanitizer emulated cards take minutes */
#define GRACE_MS 300

const pl_registration_t *mlp_plugin(void), *gpt_plugin(void);

struct rig {
    rig_spec_t spec;
    struct event_base *base;
    pl_engine_t *engine;
    pl_trainer_t *trainer;
    char source[24];
    int begun, done;
    bool waiting;
    rig_result_t result;
    rig_stream_t *stream;
    rig_t *left, *next;                     /* beside this one, freed before its engine */
};

pl_error_t rig_error;
static json_t *last_stream;

/* ---- Parts and logs ---- */

static void log_line(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    (void)level, (void)rank, (void)user;
    fprintf(stderr, "# %s: %s\n", actor, text);
}

static int received;                                        /* atomic */

static void line_count(pl_log_level_t level, int rank, const char *actor,
                       const char *text, void *user)
{
    (void)level, (void)rank, (void)actor;
    if (strstr(text, user))
        __atomic_add_fetch(&received, 1, __ATOMIC_RELEASE);
}

void rig_listen(const char *text)
{
    if (text)
        __atomic_store_n(&received, 0, __ATOMIC_RELAXED);
    pl_log_hook(text ? line_count : NULL, PL_LOG_INFO, (void *)text);
}

int rig_lines_received(void)
{
    return __atomic_load_n(&received, __ATOMIC_ACQUIRE);
}

static void table_add(pl_registration_t *all, const pl_registration_t *more)
{
    while (all->role)
        all++;
    for (; more && more->role; more++)
        *all++ = *more;
}

/* In one table, as a program gives it: where ranks are processes pl_init() does not
 * return in them. */
void rig_init(const pl_registration_t *more)
{
    pl_registration_t all[64] = {{"accelerator", &fake_accelerator}};
    pl_error_t err;
    table_add(all, mlp_plugin());
    table_add(all, gpt_plugin());
    table_add(all, more);
    if (getenv("RIG_LOG"))
        pl_log_hook(log_line, PL_LOG_DEBUG, NULL);
    if (pl_init(NULL, NULL, all, &err) != PL_OK) {
        ok(false, "parts can be registered: %s", err.text);
        exit(tap_done());
    }
}

/* ---- Data ---- */

/* Three classes, each around a place of its own, with some that lie with the others. */
void rig_sample(int64_t index, float x[RIG_FEATURES], int64_t *y)
{
    *y = index % RIG_CLASSES;
    for (int k = 0; k < RIG_FEATURES; k++)
        x[k] =
            (float)(sin((double)(*y * 5 + k)) + 0.5 * sin((double)(index * 7 + k * 3)));
}

static int samples_read(void *user, const pl_read_request_t *request, void *const field[],
                        pl_error_t *err)
{
    const rig_t *rig = user;
    nanosleep(&(struct timespec){.tv_nsec = rig->spec.reading_ms * 1000000L}, NULL);
    for (int i = 0; i < request->count; i++) {
        float *x = (float *)field[0] + i * RIG_FEATURES;
        int64_t record = request->index[i] + 1;
        rig_sample(request->index[i], x, (int64_t *)field[1] + i);
        while (record == rig->spec.hanging)
            pause();
        if (record == rig->spec.nan)
            x[2] = NAN;
        if (record == rig->spec.torn)
            return pl_fail(err, PL_EIO, "it is torn");
    }
    return PL_OK;
}

void rig_samples(const char *name, int samples)
{
    enum { MAX = 64 };
    static float x[MAX][RIG_FEATURES];
    static int64_t y[MAX];
    static pl_arrays_t arrays;
    pl_error_t err;
    arrays = (pl_arrays_t){.samples = samples < MAX ? samples : MAX,
                           .field_count = 2,
                           .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                     {"y", PL_I64, {0, {0}}}},
                           .data = {x, y},
                           .data_info = "{\"classes\": 3}"};
    for (int i = 0; i < arrays.samples; i++)
        rig_sample(i, x[i], &y[i]);
    ok(pl_memory_arrays(name, &arrays, &err) == PL_OK, "there are samples");
}

bool rig_has(const char *accelerator)
{
    const bool there = pl_component_find("accelerator", accelerator, NULL) != NULL;
    if (!there)
        tap_skip("this build has no accelerator %s", accelerator);
    return there;
}

static bool source_register(rig_t *rig)
{
    static int rigs;
    pl_memory_data_t data = {.samples = rig->spec.samples ? rig->spec.samples : 40,
                             .field_count = 2,
                             .field = {{"x", PL_F32, pl_shape(1, RIG_FEATURES)},
                                       {"y", PL_I64, pl_shape(0)}},
                             .data_info = "{\"classes\": 3}",
                             .read = samples_read,
                             .user = rig};
    snprintf(rig->source, sizeof rig->source, "rig %d", rigs++);
    return pl_memory_data(rig->source, &data, &rig_error) == PL_OK;
}

/* ---- The run file ---- */

static const char *given_or(const char *given, const char *usual)
{
    return given ? given : usual;
}

static void accelerator_text(const rig_spec_t *s, char text[static 512])
{
    const char *name = given_or(s->accelerator, "fake");
    if (!strcmp(name, "cpu"))
        snprintf(text, 512, "{\"name\": \"cpu\", \"threads\": 1}");
    else if (*name == '{')
        snprintf(text, 512, "%s", name);
    else if (strcmp(name, "fake"))
        snprintf(text, 512, "{\"name\": \"%s\"}", name);
    else
        snprintf(text, 512, "{\"name\": \"fake\", \"launches\": %d, \"script\": \"%s\"}",
                 s->launches, given_or(s->script, ""));
}

static void data_text(const rig_t *rig, char text[static 512])
{
    const rig_spec_t *s = &rig->spec;
    if (s->dataset)
        snprintf(text, 512, "%s", s->dataset);
    else
        snprintf(text, 512, "{\"name\": \"memory\", \"source\": \"%s\"%s%s}", rig->source,
                 s->data ? ", " : "", given_or(s->data, ""));
}

/* From libc's memory: requests for Paceline's are counted. */
static char *run_text(const rig_t *rig)
{
    const rig_spec_t *s = &rig->spec;
    char accelerator[512], data[512], *text;
    accelerator_text(s, accelerator);
    data_text(rig, data);
    int length = asprintf(
        &text,
        "{\"module\": %s, \"optimizer\": %s, \"scheduler\": %s, "
        "\"momentum_scheduler\": %s, \"weight_decay_scheduler\": %s, \"callbacks\": %s,"
        " \"averaging\": %s,"
        " \"data\": %s, \"trainer\": {\"accelerator\": %s, \"default_root_dir\": "
        "\"%s/runs\"%s"
        "%s%s}%s%s}",
        given_or(s->module, "{\"name\": \"mlp\", \"hidden\": [8]}"),
        given_or(s->optimizer, "{\"name\": \"sgd\", \"lr\": 0.1}"),
        given_or(s->scheduler, "null"), given_or(s->momentum_scheduler, "null"),
        given_or(s->weight_decay_scheduler, "null"), given_or(s->callbacks, "[]"),
        given_or(s->averaging, "null"), data, accelerator, tap_folder(),
        strstr(given_or(s->trainer, ""), "num_sanity") ? ""
                                                       : ", \"num_sanity_val_steps\": 0",
        s->trainer ? ", " : "", given_or(s->trainer, ""),
        s->loggers ? ", \"loggers\": " : "", given_or(s->loggers, ""));
    return length < 0 ? NULL : text;
}

static bool trainer_make(rig_t *rig)
{
    char *text = run_text(rig);
    pl_options_t *options = text ? pl_options_parse(text, "rig", &rig_error) : NULL;
    if (options)
        rig->trainer = pl_trainer_new(rig->engine, options, &rig_error);
    pl_options_free(options);
    free(text);
    return rig->trainer != NULL;
}

/* ---- Life ---- */

static void on_progress(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    rig_t *rig = user;
    (void)trainer;
    if (rig->spec.on_progress)
        rig->spec.on_progress(rig, progress);
}

static bool engine_make(rig_t *rig)
{
    const rig_t *other = rig->spec.beside ? rig->spec.beside : rig->spec.loop_of;
    rig->base = other ? other->base : event_base_new();
    rig->engine = rig->spec.beside ? rig->spec.beside->engine
                                   : pl_engine_new(rig->base, &rig_error);
    if (!rig->engine || rig->spec.beside)
        return rig->engine;
    rig->engine->runtime.grace_ms = GRACE_MS;
    if (rig->spec.stream)
        rig->stream = rig_stream_new(&rig->engine->runtime);
    return !rig->spec.stream || rig->stream;
}

void rig_grace(rig_t *rig, int milliseconds)
{
    rig->engine->runtime.grace_ms = milliseconds;
}

rig_t *rig_make(const rig_spec_t *spec)
{
    rig_t *rig = calloc(1, sizeof *rig);
    rig->spec = *spec;
    rig_error = (pl_error_t){0};
    if (engine_make(rig) && source_register(rig) && trainer_make(rig)) {
        pl_trainer_on_progress(rig->trainer, on_progress, rig);
        return rig;
    }
    rig_free(&rig);
    return NULL;
}

static void tensors_free(rig_tensor_t *tensor, int count)
{
    for (int k = 0; k < count; k++)
        free(tensor[k].data);
    free(tensor);
}

static void result_release(rig_result_t *result)
{
    tensors_free(result->weight, result->weight_count);
    tensors_free(result->output, result->output_count);
    free(result->metrics);
    free(result->run_dir);
    free(result->best_checkpoint);
    free(result->callbacks);
    free(result->text);
    *result = (rig_result_t){.status = "none"};
}

/* A run that has not ended yet reads its samples by the rig: until its engine ends, or
 * for ever when the reader hangs. */
static void rig_leave(rig_t *rig)
{
    while (rig->left) {
        rig_t *other = rig->left;
        rig->left = other->next;
        rig_leave(other);
    }
    if (rig->spec.beside) {
        rig->next = rig->spec.beside->left;
        rig->spec.beside->left = rig;
        rig->spec.beside = NULL;
    } else if (!rig->spec.hanging) {
        free(rig);
    }
}

void rig_free(rig_t **rig_p)
{
    rig_t *rig = *rig_p;
    *rig_p = NULL;
    if (!rig)
        return;
    if (rig->spec.beside)
        pl_trainer_free(rig->trainer);
    else
        pl_engine_free(rig->engine);
    if (rig->stream)
        last_stream = rig_stream_take(&rig->stream);
    if (rig->source[0])
        pl_memory_data(rig->source, NULL, NULL);
    if (!rig->spec.beside && !rig->spec.loop_of && rig->base)
        event_base_free(rig->base);
    result_release(&rig->result);
    rig_leave(rig);
}

json_t *rig_stream(void)
{
    json_t *stream = last_stream;
    last_stream = NULL;
    return stream;
}

pl_trainer_t *rig_trainer(rig_t *rig)
{
    return rig->trainer;
}

pl_engine_t *rig_engine(rig_t *rig)
{
    return rig->engine;
}

void *rig_user(rig_t *rig)
{
    return rig->spec.user;
}

struct event_base *rig_base(rig_t *rig)
{
    return rig->base;
}

int rig_begun(const rig_t *rig)
{
    return rig->begun;
}

int rig_done(const rig_t *rig)
{
    return rig->done;
}

/* ---- Results ---- */

static rig_tensor_t *tensors_copy(const pl_result_tensor_t *from, int count)
{
    rig_tensor_t *to = calloc((size_t)count + 1, sizeof *to);
    for (int k = 0; k < count; k++) {
        snprintf(to[k].name, sizeof to[k].name, "%s", from[k].name);
        to[k].shape = from[k].shape;
        to[k].count = (size_t)pl_elements(from[k].shape);
        to[k].data = malloc((to[k].count + 1) * sizeof(float));
        memcpy(to[k].data, from[k].data, to[k].count * sizeof(float));
    }
    return to;
}

static void result_copy(rig_result_t *to, const pl_result_t *from)
{
    result_release(to);
    snprintf(to->status, sizeof to->status, "%s", from->status);
    snprintf(to->reason, sizeof to->reason, "%s", from->reason);
    to->error = from->error;
    to->global_step = from->global_step;
    to->epoch = from->epoch;
    to->seconds = from->seconds;
    to->metrics = strdup(from->metrics);
    to->run_dir = strdup(from->run_dir);
    to->best_checkpoint = strdup(from->best_checkpoint);
    to->callbacks = strdup(from->callbacks);
    to->text = strdup(from->text);
    to->weight = tensors_copy(from->weight, to->weight_count = from->weight_count);
    to->output = tensors_copy(from->output, to->output_count = from->output_count);
}

static char *text_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

rig_result_t *rig_keep(const rig_result_t *result)
{
    rig_result_t *copy = malloc(sizeof *copy);
    *copy = *result;
    copy->metrics = text_copy(result->metrics);
    copy->run_dir = text_copy(result->run_dir);
    copy->best_checkpoint = text_copy(result->best_checkpoint);
    copy->callbacks = text_copy(result->callbacks);
    copy->text = text_copy(result->text);
    copy->weight = calloc((size_t)result->weight_count + 1, sizeof *copy->weight);
    copy->output = NULL, copy->output_count = 0;
    for (int k = 0; k < result->weight_count; k++) {
        copy->weight[k] = result->weight[k];
        size_t bytes = result->weight[k].count * sizeof(float);
        copy->weight[k].data = memcpy(malloc(bytes + 1), result->weight[k].data, bytes);
    }
    return copy;
}

void rig_result_free(rig_result_t *result)
{
    if (result)
        result_release(result);
    free(result);
}

double rig_metric(const rig_result_t *result, const char *name)
{
    double value = NAN;
    if (result->metrics)
        pl_result_metric(&(pl_result_t){.metrics = result->metrics}, name, &value);
    return value;
}

const rig_tensor_t *rig_find(const rig_tensor_t *list, int count, const char *name)
{
    for (int k = 0; k < count; k++)
        if (!strcmp(list[k].name, name))
            return &list[k];
    return NULL;
}

double rig_distance(const rig_result_t *a, const rig_result_t *b)
{
    double worst = a->weight_count && a->weight_count == b->weight_count ? 0 : INFINITY;
    for (int k = 0; k < a->weight_count && isfinite(worst); k++) {
        const rig_tensor_t *x = &a->weight[k],
                           *y = rig_find(b->weight, b->weight_count, x->name);
        for (size_t i = 0; y && y->count == x->count && i < x->count; i++)
            worst = tap_larger(worst, fabs((double)x->data[i] - (double)y->data[i]));
        if (!y || y->count != x->count)
            worst = INFINITY;
    }
    return worst;
}

bool rig_same_tensor(const rig_result_t *a, const rig_result_t *b, const char *name)
{
    const rig_tensor_t *x = rig_find(a->weight, a->weight_count, name),
                       *y = rig_find(b->weight, b->weight_count, name);
    return x && y && x->count == y->count
           && !memcmp(x->data, y->data, x->count * sizeof *x->data);
}

bool rig_same_bits(const rig_result_t *a, const rig_result_t *b)
{
    bool same = a->weight_count && a->weight_count == b->weight_count;
    for (int k = 0; same && k < a->weight_count; k++)
        same = a->weight[k].count == b->weight[k].count
               && !memcmp(a->weight[k].data, b->weight[k].data,
                          a->weight[k].count * sizeof(float));
    return same;
}

/* ---- Runs ---- */

static void on_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    rig_t *rig = user;
    (void)trainer;
    rig->done++;
    rig->waiting = false;
    result_copy(&rig->result, result);
    if (rig->spec.on_done)
        rig->spec.on_done(rig, &rig->result);
}

static bool begun(rig_t *rig, int code)
{
    if (code != PL_OK)
        return false;
    result_release(&rig->result);
    rig->begun++;
    return rig->waiting = true;
}

bool rig_begin(rig_t *rig)
{
    return begun(rig, pl_trainer_fit(rig->trainer, on_done, rig, &rig_error));
}

bool rig_begin_again(rig_t *rig, const char *from)
{
    return begun(rig, pl_trainer_resume(rig->trainer, from, on_done, rig, &rig_error));
}

bool rig_begin_prediction(rig_t *rig, const pl_prediction_t *what)
{
    return begun(rig, pl_trainer_predict(rig->trainer, what, on_done, rig, &rig_error));
}

bool rig_begin_tuning(rig_t *rig, const pl_tuning_t *what)
{
    return begun(rig, pl_trainer_tune(rig->trainer, what, on_done, rig, &rig_error));
}

static void too_long(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    *(bool *)user = true;
}

bool rig_until(rig_t *rig, bool (*holds)(rig_t *rig))
{
    bool late = false;
    const struct timeval limit = {LIMIT_S, 0};
    struct event *timer = event_new(rig->base, -1, 0, too_long, &late);
    event_add(timer, &limit);
    while (!late && !holds(rig))
        event_base_loop(rig->base, EVLOOP_ONCE);
    event_free(timer);
    return !late;
}

static bool is_over(rig_t *rig)
{
    return !rig->waiting;
}

const rig_result_t *rig_wait(rig_t *rig)
{
    if (!rig_until(rig, is_over))
        ok(false, "on_done comes within %d s", LIMIT_S);
    return &rig->result;
}

const rig_result_t *rig_fit(rig_t *rig)
{
    if (!rig) {
        ok(false, "a rig is made: %s", rig_error.text);
        exit(1);
    }
    if (!rig_begin(rig))
        ok(false, "a run can begin: %s", rig_error.text);
    return rig_wait(rig);
}

rig_result_t *rig_train(const rig_spec_t *spec)
{
    rig_t *rig = rig_make(spec);
    rig_result_t *result = rig ? rig_keep(rig_fit(rig)) : calloc(1, sizeof *result);
    if (!ok(!strcmp(result->status, "ok"), "a run with %s",
            given_or(spec->trainer, "nothing said")))
        tap_diag("%s", rig ? result->error.text : rig_error.text);
    rig_free(&rig);
    return result;
}

const rig_result_t *rig_predict(rig_t *rig, const char *checkpoint)
{
    if (!rig_begin_prediction(rig, &(pl_prediction_t){.checkpoint = checkpoint}))
        ok(false, "a run can begin: %s", rig_error.text);
    return rig_wait(rig);
}

static const rig_result_t *measured(rig_t *rig, int code)
{
    if (!begun(rig, code))
        ok(false, "a run can begin: %s", rig_error.text);
    return rig_wait(rig);
}

const rig_result_t *rig_tune(rig_t *rig, const pl_tuning_t *what)
{
    return measured(rig, pl_trainer_tune(rig->trainer, what, on_done, rig, &rig_error));
}

void rig_tunings_refused(const pl_tuning_t wrong[], size_t count)
{
    rig_t *rig = rig_new(.trainer = "\"max_epochs\": 1");
    for (size_t k = 0; k < count; k++) {
        pl_error_t err = {0};
        is_int(pl_trainer_tune(rig_trainer(rig), &wrong[k], NULL, NULL, &err), PL_EINVAL,
               "refused: %s", err.text);
    }
    rig_free(&rig);
}

const rig_result_t *rig_resume(rig_t *rig, const char *from)
{
    return measured(rig, pl_trainer_resume(rig->trainer, from, on_done, rig, &rig_error));
}

const rig_result_t *rig_validate(rig_t *rig, const char *checkpoint)
{
    return measured(rig, pl_trainer_validate(rig->trainer, checkpoint, on_done, rig,
                                             &rig_error));
}

const rig_result_t *rig_test(rig_t *rig, const char *checkpoint)
{
    return measured(rig,
                    pl_trainer_test(rig->trainer, checkpoint, on_done, rig, &rig_error));
}

/* ---- What a run leaves behind ---- */

json_t *rig_log(const rig_result_t *result)
{
    char path[4200], line[4096];
    json_t *lines = json_array();
    snprintf(path, sizeof path, "%s/metrics.jsonl",
             result->run_dir ? result->run_dir : "");
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!object)
            ok(false, "each line of metrics.jsonl is JSON: %s", line);
        else
            json_array_append_new(lines, object);
    }
    if (file)
        fclose(file);
    return lines;
}

rig_series_t rig_series(const rig_result_t *result, const char *name)
{
    rig_series_t series = {0};
    json_t *line, *lines = rig_log(result);
    size_t k;
    json_array_foreach(lines, k, line) {
        const json_t *value = json_object_get(line, name);
        if (!json_is_number(value) || series.count == 255)
            continue;
        series.step[series.count] =
            json_number_value(json_object_get(line, "global_step"));
        series.value[series.count++] = json_number_value(value);
    }
    json_decref(lines);
    series.value[series.count] = NAN;
    return series;
}

void rig_steps_are(const rig_result_t *result, const char *metric, const char *steps,
                   const char *text)
{
    rig_series_t series = rig_series(result, metric);
    char found[256] = "";
    for (int k = 0; k < series.count; k++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%g",
                 k ? " " : "", series.step[k]);
    is_text(found, steps, "%s", text);
}

bool rig_has_file(const rig_result_t *result, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", result->run_dir ? result->run_dir : "", name);
    return access(path, F_OK) == 0;
}

/* ---- A module with a batch norm ---- */

static void normed_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self;
    pl_node_t x = pl_linear(g, "fc1", pl_input(g, "x"), 8);
    x = pl_relu(g, pl_batch_norm(g, "norm", x, 0.1, 1e-5));
    x = pl_linear(g, "fc2", x, 3);
    pl_output(g, "logits", x);
    if (stage == PL_PREDICT)
        return;
    pl_loss(g, pl_cross_entropy(g, x, pl_input(g, "y"), NULL));
}

const pl_module_ops_t rig_normed = {.name = "normed", .size = 1, .step = normed_step};
