/* manual_loop.c - tests of actors/api/manual_loop.c and actors/loops/manual.c: a program
 * that sends its batches itself */
#include <event2/event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/api/host.h"
#include "rig.h"
#include "rig_stream.h"
#include "runtime/message.h"
#include "runtime/runtime.h"
#include "scarce.h"
#include "tap.h"

enum { BATCH = 8, SAMPLES = 40, STEPS = SAMPLES / BATCH };

#define RUN \
    "\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.02}, \"trainer\": {" \
    "\"accelerator\": %s, \"max_epochs\": 1, " \
    "\"default_root_dir\": \"%s\"%s}, " \
    "\"data\": {\"name\": \"memory\", \"source\": \"own\", \"batch_size\": 8, " \
    "\"shuffle\": false}}"
#define MLP "\"module\": {\"name\": \"mlp\", \"hidden\": [8], \"classes\": 3}, "

static float x[SAMPLES][RIG_FEATURES];
static int64_t y[SAMPLES];
static const pl_field_t fields[] = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                    {"y", PL_I64, {0, {0}}}};
#define CPU "{\"name\": \"cpu\", \"threads\": 1}"
#define FAKE(script) "{\"name\": \"fake\", \"script\": \"" script "\"}"
static const char *device = CPU;

/* ---- a program ---- */

/* The newest notifications. */
typedef struct report {
    int times;
    pl_error_t error;
    uint64_t step;
    double loss, norm;
    bool skipped;
    char metrics[512], run_dir[256];
    rig_result_t tensors;
} report_t;

typedef struct program {
    struct event_base *base;
    pl_engine_t *engine;
    pl_loop_t *loop;
    report_t ready, step, closed;
    uint64_t order[64];
    pl_error_t err;
} program_t;

static void report_clear(report_t *report)
{
    for (int k = 0; k < report->tensors.weight_count; k++)
        free(report->tensors.weight[k].data);
    free(report->tensors.weight);
    *report = (report_t){0};
}

static void tensors_copy(rig_result_t *to, const pl_loop_result_t *from)
{
    to->weight_count = from->output_count;
    to->weight = calloc((size_t)from->output_count + 1, sizeof *to->weight);
    for (int k = 0; k < from->output_count; k++) {
        rig_tensor_t *t = &to->weight[k];
        const pl_result_tensor_t *f = &from->output[k];
        snprintf(t->name, sizeof t->name, "%s", f->name);
        t->shape = f->shape;
        t->count = 1;
        for (int i = 0; i < f->shape.rank; i++)
            t->count *= (size_t)f->shape.dim[i];
        t->data = malloc(t->count * sizeof(float));
        memcpy(t->data, f->data, t->count * sizeof(float));
    }
}

static void keep(report_t *report, const pl_loop_result_t *result)
{
    const int times = report->times;
    report_clear(report);
    *report = (report_t){.times = times + 1,
                         .error = result->error,
                         .step = result->global_step,
                         .loss = result->loss,
                         .norm = result->grad_norm,
                         .skipped = *result->skipped != '\0'};
    snprintf(report->metrics, sizeof report->metrics, "%s", result->metrics);
    snprintf(report->run_dir, sizeof report->run_dir, "%s", result->run_dir);
    tensors_copy(&report->tensors, result);
}

static void on_ready(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    keep(&((program_t *)user)->ready, result);
}

static void on_step(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    program_t *p = user;
    keep(&p->step, result);
    if (p->step.times <= 64)
        p->order[p->step.times - 1] = result->global_step;
}

static void on_closed(pl_loop_t *loop, const pl_loop_result_t *result, void *user)
{
    (void)loop;
    keep(&((program_t *)user)->closed, result);
}

static void on_time(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    *(bool *)user = true;
}

/* Turns the program's loop until so many notifications came. */
static bool until(program_t *p, const report_t *report, int times)
{
    bool late = false;
    struct event *timer = event_new(p->base, -1, 0, on_time, &late);
    event_add(timer, &(struct timeval){.tv_sec = 30});
    while (report->times < times && !late)
        event_base_loop(p->base, EVLOOP_ONCE);
    event_free(timer);
    return ok(!late, "notifications come in time");
}

static char *run_text(const char *module, const char *trainer, const char *root)
{
    static char text[2048];
    const int at = snprintf(text, sizeof text, "{%s", module);
    snprintf(text + at, sizeof text - (size_t)at, RUN, device, root, trainer);
    return text;
}

static void program_begin(program_t *p)
{
    *p = (program_t){.base = event_base_new()};
    p->engine = pl_engine_new(p->base, &p->err);
    if (p->engine)
        p->engine->runtime.grace_ms = 500;
}

static const char *root(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/runs", tap_folder());
    return path;
}

static pl_loop_spec_t usual(void)
{
    return (pl_loop_spec_t){.field_count = 2, .field = fields, .targets = 1};
}

static bool loop_try(program_t *p, const char *module, const char *trainer,
                     pl_loop_spec_t spec)
{
    pl_options_t *options = pl_options_parse(run_text(module, trainer, root()), "run",
                                             &p->err);
    p->loop = options ? pl_loop_open(p->engine, options, &spec, on_ready, p, &p->err)
                      : NULL;
    pl_options_free(options);
    return p->loop;
}

/* A program with a loop that is open. */
static void program_open(program_t *p, const char *trainer, pl_loop_spec_t spec)
{
    program_begin(p);
    if (!ok(loop_try(p, MLP, trainer, spec), "a loop is opened: %s", p->err.text))
        return;
    until(p, &p->ready, 1);
    is_text(p->ready.error.text, "", "it is ready");
}

static void program_end(program_t *p)
{
    if (p->loop) {
        pl_loop_close(p->loop, on_closed, p);
        until(p, &p->closed, 1);
    }
    pl_engine_free(p->engine);
    event_base_free(p->base);
    report_clear(&p->ready), report_clear(&p->step), report_clear(&p->closed);
}

/* Samples from `first` on. */
static pl_arrays_t batch(int first, int count)
{
    return (pl_arrays_t){.samples = count,
                         .field_count = 2,
                         .field = {fields[0], fields[1]},
                         .data = {x[first], &y[first]}};
}

static bool train(program_t *p, int first, int count)
{
    const pl_arrays_t samples = batch(first, count);
    return ok(pl_loop_train(p->loop, &samples, on_step, p, &p->err) == PL_OK,
              "a batch is sent: %s", p->err.text);
}

static void train_all(program_t *p)
{
    const int before = p->step.times;
    for (int k = 0; k < STEPS; k++)
        train(p, k * BATCH, BATCH);
    until(p, &p->step, before + STEPS);
}

/* The same as a fit over the same samples in the same order. */
static rig_result_t *fit_of(const char *trainer, const char *from)
{
    static const pl_arrays_t all = {.samples = SAMPLES,
                                    .field_count = 2,
                                    .field = {{"x", PL_F32, {1, {RIG_FEATURES}}},
                                              {"y", PL_I64, {0, {0}}}},
                                    .data = {x, y}};
    char data[200];
    pl_memory_arrays("own", &all, NULL);
    snprintf(data, sizeof data,
             "{\"name\": \"memory\", \"source\": \"own\", \"batch_size\": %d, "
             "\"shuffle\": false}",
             BATCH);
    rig_t *rig = rig_new(.accelerator = "cpu", .dataset = data, .trainer = trainer,
                         .module = "{\"name\": \"mlp\", \"hidden\": [8], "
                                   "\"classes\": 3}",
                         .optimizer = "{\"name\": \"adamw\", \"lr\": 0.02}");
    rig_result_t *result = rig ? rig_keep(from ? rig_resume(rig, from) : rig_fit(rig))
                               : NULL;
    if (result)
        is_text(result->status, "ok", "a fit: %s", result->error.text);
    else
        ok(false, "a fit: %s", rig_error.text);
    rig_free(&rig);
    return result;
}

/* The run file's "data" may be the size of a batch alone. */
static void a_loop_needs_no_data_set(void)
{
    static const char text[] = "{\"module\": {\"name\": \"mlp\", \"hidden\": [8], "
                               "\"classes\": 3}, \"optimizer\": \"adamw\", "
                               "\"data\": {\"batch_size\": 32}}";
    program_t p;
    program_begin(&p);
    pl_options_t *options = pl_options_parse(text, "run", &p.err);
    const pl_loop_spec_t spec = usual();
    p.loop = pl_loop_open(p.engine, options, &spec, on_ready, &p, &p.err);
    if (ok(p.loop, "it is opened: %s", p.err.text)) {
        until(&p, &p.ready, 1);
        is_text(p.ready.error.text, "", "it is ready");
    }
    pl_trainer_t *trainer = pl_trainer_new(p.engine, options, &p.err);
    is_int(pl_trainer_fit(trainer, NULL, NULL, &p.err), PL_ENOTFOUND, "a fit needs one");
    is_text(p.err.text, "run:1:88: \"data\" names no data set: set \"data.name\"",
            "and says which key is missing");
    pl_trainer_free(trainer);
    pl_options_free(options);
    program_end(&p);
}

/* ---- what holds ---- */

static void the_same_batches_give_the_bits_of_a_fit(void)
{
    program_t p;
    program_open(&p, "", usual());
    train_all(&p);
    is_int(p.step.step, STEPS, "so many steps");
    ok(isfinite(p.step.loss) && p.step.norm > 0, "with a loss and a norm: %s",
       p.step.metrics);
    ok(strstr(p.step.metrics, "\"lr-adamw\":0.02") != NULL, "and other metrics: %s",
       p.step.metrics);
    for (int k = 0; k < STEPS; k++)
        is_int(p.order[k], k + 1, "notified in order");
    pl_loop_close(p.loop, on_closed, &p);
    until(&p, &p.closed, 1);
    rig_result_t *fit = fit_of("\"max_epochs\": 1", NULL);
    ok(fit && rig_same_bits(&p.closed.tensors, fit), "the weights are those of the fit");
    rig_result_free(fit);
    p.loop = NULL;
    program_end(&p);
}

static void batches_of_any_size_and_type_are_taken(void)
{
    program_t p;
    program_open(&p, "", usual());
    const pl_arrays_t some = batch(0, 5);
    pl_arrays_t unlabelled = batch(0, 3);
    unlabelled.field_count = 1;
    ok(pl_loop_evaluate(p.loop, &some, on_step, &p, NULL) == PL_OK,
       "first one is measured");
    until(&p, &p.step, 1);
    is_text(p.step.error.text, "", "that goes well");
    ok(isfinite(p.step.loss) && strstr(p.step.metrics, "val_acc"), "it has metrics: %s",
       p.step.metrics);
    const double before = p.step.loss;
    is_int(p.step.step, 0, "and is no step");
    for (int k = 1; k <= BATCH; k++)
        train(&p, 0, k), until(&p, &p.step, 1 + k);
    is_text(p.step.error.text, "", "batches of all sizes are trained on");
    is_int(p.step.step, BATCH, "each is a step");
    pl_loop_evaluate(p.loop, &some, on_step, &p, NULL);
    pl_loop_predict(p.loop, &unlabelled, on_step, &p, NULL);
    until(&p, &p.step, BATCH + 3);
    is_text(p.step.error.text, "", "without labels it is predicted");
    is_int(p.step.tensors.weight_count, 1, "one output");
    is_int(p.step.tensors.weight[0].shape.dim[0], 3, "of three samples");
    pl_loop_evaluate(p.loop, &some, on_step, &p, NULL);
    until(&p, &p.step, BATCH + 4);
    ok(p.step.loss < before, "what was trained on is better known: %g, %g", before,
       p.step.loss);
    program_end(&p);
}

static void a_wrong_batch_is_refused_at_once(void)
{
    program_t p;
    program_open(&p, "", usual());
    pl_arrays_t wrong = batch(0, BATCH + 1);
    is_int(pl_loop_train(p.loop, &wrong, on_step, &p, &p.err), PL_EINVAL, "too many");
    like(p.err.text, "9 samples.*data.batch_size", "why");
    wrong = batch(0, 4), wrong.field_count = 1;
    is_int(pl_loop_train(p.loop, &wrong, on_step, &p, &p.err), PL_EINVAL, "no labels");
    like(p.err.text, "no field \"y\"", "why");
    wrong = batch(0, 4), wrong.field[0].shape.dim[0] = 5;
    is_int(pl_loop_train(p.loop, &wrong, on_step, &p, &p.err), PL_EINVAL,
           "another shape");
    like(p.err.text, "\"x\".*has shape .5.*has .6.", "why");
    wrong = batch(0, 4), wrong.field[0].dtype = PL_F64;
    is_int(pl_loop_train(p.loop, &wrong, on_step, &p, &p.err), PL_EINVAL, "another type");
    is_int(pl_loop_save(p.loop, "now", on_step, &p, &p.err), PL_ESTATE, "no folder");
    is_int(pl_loop_scale_lr(p.loop, NAN, &p.err), PL_EINVAL, "no rate");
    is_int(p.step.times, 0, "no notification comes");
    train_all(&p);
    is_int(p.step.step, STEPS, "and it can be used");
    program_end(&p);
}

static void no_more_than_the_limit_is_in_flight(void)
{
    program_t p;
    pl_loop_spec_t spec = usual();
    spec.depth = 2;
    program_open(&p, "", spec);
    const pl_arrays_t samples = batch(0, BATCH);
    train(&p, 0, BATCH), train(&p, 0, BATCH);
    is_int(pl_loop_train(p.loop, &samples, on_step, &p, &p.err), PL_EBUSY, "not a third");
    until(&p, &p.step, 1);
    train(&p, 0, BATCH);
    until(&p, &p.step, 3);
    program_end(&p);
}

static void a_step_that_is_not_finite_fails_alone(void)
{
    program_t p, clean;
    static float torn[BATCH][RIG_FEATURES];
    program_open(&p, "", usual());
    program_open(&clean, "", usual());
    pl_arrays_t bad = batch(0, BATCH);
    bad.data[0] = torn;
    torn[3][1] = NAN;
    train(&p, 0, BATCH);
    ok(pl_loop_train(p.loop, &bad, on_ready, &p, NULL) == PL_OK,
       "one with a NaN is sent");
    for (int k = 1; k < STEPS; k++)
        train(&p, k * BATCH, BATCH);
    until(&p, &p.step, STEPS);
    is_int(p.ready.times, 2, "it is notified");
    is_int(p.ready.error.code, PL_ENAN, "as what it is: %s", p.ready.error.text);
    is_text(p.step.error.text, "", "those behind it are done");
    is_int(p.step.step, STEPS, "and counted");
    train_all(&clean);
    pl_loop_close(p.loop, on_closed, &p), pl_loop_close(clean.loop, on_closed, &clean);
    until(&p, &p.closed, 1), until(&clean, &clean.closed, 1);
    ok(rig_same_bits(&p.closed.tensors, &clean.closed.tensors),
       "the weights are as if it had not been there");
    p.loop = clean.loop = NULL;
    program_end(&p), program_end(&clean);
}

static void a_measurement_behind_a_failed_step_has_its_metrics(void)
{
    program_t p;
    static float torn[BATCH][RIG_FEATURES];
    const pl_arrays_t samples = batch(0, BATCH);
    pl_arrays_t bad = samples;
    program_open(&p, "", usual());
    bad.data[0] = torn;
    torn[3][1] = NAN;
    pl_loop_train(p.loop, &bad, on_ready, &p, NULL);
    for (int k = 1; k <= 2; k++) {
        pl_loop_evaluate(p.loop, &samples, on_step, &p, NULL);
        until(&p, &p.step, k);
        ok(isfinite(p.step.loss), "measurement %d has a loss: %g", k, p.step.loss);
    }
    program_end(&p);
}

static void a_step_that_the_device_fails_at_fails_alone(void)
{
    program_t p;
    const pl_arrays_t samples = batch(0, BATCH);
    device = FAKE("replay 2 of forward_backward fails");
    program_open(&p, "", usual());
    train(&p, 0, BATCH);
    pl_loop_train(p.loop, &samples, on_ready, &p, NULL);
    train(&p, 0, BATCH), train(&p, 0, BATCH);
    until(&p, &p.step, 3);
    ok(p.ready.error.code != PL_OK, "the second: %s", p.ready.error.text);
    is_text(p.step.error.text, "", "the others are done");
    is_int(p.step.step, 3, "and counted");
    program_end(&p);
    device = CPU;
}

static void a_device_that_hangs_ends_the_loop(void)
{
    program_t p;
    const pl_arrays_t samples = batch(0, BATCH);
    device = FAKE("replay 2 of forward_backward hangs");
    program_open(&p, ", \"step_timeout\": 0.3", usual());
    train(&p, 0, BATCH), train(&p, 0, BATCH), train(&p, 0, BATCH);
    until(&p, &p.step, 3);
    is_int(p.step.error.code, PL_ESTUCK, "all in flight are notified: %s",
           p.step.error.text);
    while (pl_loop_train(p.loop, &samples, on_ready, &p, &p.err) != PL_ESTATE)
        event_base_loop(p.base, EVLOOP_ONCE);
    like(p.err.text, "ended: .*step_timeout", "no more can be sent");
    pl_loop_close(p.loop, on_closed, &p);
    until(&p, &p.closed, 1);
    is_int(p.closed.error.code, PL_ESTUCK, "and it can be closed");
    p.loop = NULL;
    program_end(&p);
    device = CPU;
}

static void a_step_that_is_not_finite_can_be_skipped(void)
{
    program_t p;
    static float torn[BATCH][RIG_FEATURES];
    program_open(&p, ", \"nan_policy\": \"skip\"", usual());
    pl_arrays_t bad = batch(0, BATCH);
    bad.data[0] = torn;
    torn[0][0] = INFINITY;
    pl_loop_train(p.loop, &bad, on_step, &p, NULL);
    until(&p, &p.step, 1);
    is_text(p.step.error.text, "", "it is no error");
    ok(p.step.skipped, "it is reported as skipped");
    is_int(p.step.step, 1, "and counts");
    program_end(&p);
}

static void a_fit_resumes_from_the_loops_checkpoint(void)
{
    program_t p;
    pl_loop_spec_t spec = usual();
    pl_error_t err = {0};
    char path[400];
    spec.enable_checkpointing = true;
    program_open(&p, "", spec);
    for (int k = 0; k < STEPS; k++) {
        train(&p, k * BATCH, BATCH);
        if (k == 1)
            ok(pl_loop_save(p.loop, "second", on_ready, &p, &err) == PL_OK,
               "it is saved");
    }
    until(&p, &p.step, STEPS);
    until(&p, &p.ready, 2);
    is_text(p.ready.error.text, "", "that goes well");
    is_int(p.ready.step, 2, "after the steps that were sent before");
    snprintf(path, sizeof path, "%s/checkpoints/second", p.ready.run_dir);
    pl_loaded_model_t *model = pl_model_load(path, 1, &err);
    ok(model != NULL, "it can answer: %s", err.text);
    pl_model_unload(model);
    pl_loop_close(p.loop, on_closed, &p);
    until(&p, &p.closed, 1);
    rig_result_t closed = {.run_dir = p.closed.run_dir};
    ok(rig_has_file(&closed, "model.safetensors"), "its weights are kept");

    spec.resume = path;
    report_clear(&p.ready);
    if (ok(loop_try(&p, MLP, "", spec), "another resumes from there: %s", p.err.text)) {
        until(&p, &p.ready, 1);
        is_int(p.ready.step, 2, "where it was saved");
        report_t first = p.closed;
        p.closed = (report_t){0};
        const int before = p.step.times;
        for (int k = 2; k < STEPS; k++)
            train(&p, k * BATCH, BATCH);
        until(&p, &p.step, before + STEPS - 2);
        pl_loop_close(p.loop, on_closed, &p);
        until(&p, &p.closed, 1);
        ok(rig_same_bits(&p.closed.tensors, &first.tensors), "to the same bits");
        report_clear(&first);
    }
    p.loop = NULL;
    rig_result_t *fit = fit_of("\"max_epochs\": 1", path);
    is_int(fit ? fit->global_step : 0, 2 + STEPS, "and so does a fit");
    rig_result_free(fit);
    program_end(&p);
}

static void impossible_calls_are_refused_with_the_reason(void)
{
    static const struct {
        const char *trainer, *text;
    } wrong[] = {
        {", \"launcher\": \"spawn\"", "\"spawn\".*other processes"},
        {", \"launcher\": \"script\"", "\"script\".*other processes"},
        {", \"devices\": 2", "2 ranks.*trainer.devices"},
        {", \"nan_policy\": \"rollback\"", "rollback|go back"},
    };
    program_t p;
    program_begin(&p);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        ok(!loop_try(&p, MLP, wrong[k].trainer, usual()), "%s", wrong[k].trainer);
        like(p.err.text, wrong[k].text, "it is said why");
    }
    pl_loop_spec_t none = usual();
    none.field_count = 0;
    ok(!loop_try(&p, MLP, "", none), "without fields");
    ok(loop_try(&p, "\"module\": {\"name\": \"mlp\", \"hidden\": [8]}, ", "", usual()),
       "what only the module can tell is found later");
    until(&p, &p.ready, 1);
    like(p.ready.error.text, "classes", "with the reason");
    const pl_arrays_t samples = batch(0, BATCH);
    is_int(pl_loop_train(p.loop, &samples, on_step, &p, &p.err), PL_ESTATE, "it is over");
    program_end(&p);
}

static void an_engine_ends_its_loops(void)
{
    program_t p;
    const int before = pl_flight_count();           /* what a device that hung has kept */
    program_open(&p, "", usual());
    train(&p, 0, BATCH), train(&p, 0, BATCH);
    pl_engine_close(p.engine, NULL, NULL);
    const pl_arrays_t late = batch(0, BATCH);
    is_int(pl_loop_train(p.loop, &late, on_step, &p, &p.err), PL_ESTATE,
           "a closing loop takes no more: %s", p.err.text);
    p.loop = NULL;
    program_end(&p);
    is_int(pl_flight_count(), before, "nothing of the batches under way is left");
    program_begin(&p);
    ok(loop_try(&p, MLP, "", usual()), "and while it is opened");
    p.loop = NULL;
    program_end(&p);
}

static void gradients_of_several_batches_make_a_step(void)
{
    program_t p;
    program_open(&p, ", \"accumulate_grad_batches\": 2", usual());
    train_all(&p);
    is_int(p.step.step, STEPS / 2, "two batches each");
    ok(isnan(p.step.norm), "the last has no step yet");
    train(&p, 0, BATCH);
    until(&p, &p.step, STEPS + 1);
    is_int(p.step.step, STEPS / 2 + 1, "it comes with the next");
    ok(p.step.norm > 0, "and its norm");
    program_end(&p);
}

/* Of progress, what the loop itself has sent. */
static int check_reports(const json_t *stream, const double *losses)
{
    int reports = 0;
    int64_t before = 0;
    size_t k;
    json_t *message;
    json_array_foreach(stream, k, message) {
        const json_t *sent = json_object_get(message, "fields");
        const char *from = json_string_value(json_object_get(message, "from")),
                   *event = json_string_value(json_object_get(sent, "event"));
        if (!from || strcmp(from, "loop.manual") || !event || strcmp(event, "train"))
            continue;
        const pl_result_t as_result = {
            .metrics = json_string_value(json_object_get(sent, "metrics"))};
        const int64_t step = json_integer_value(json_object_get(sent, "global_step"));
        double sum = 0, reported = NAN;
        pl_result_metric(&as_result, "train_loss", &reported);
        for (int64_t s = before; s < step; s++)
            sum += losses[s];
        is_near(reported, sum / (double)(step - before), 1e-6,
                "the mean of steps %lld to %lld", (long long)before + 1, (long long)step);
        before = step;
        reports++;
    }
    return reports;
}

static void progress_has_the_mean_since_the_report_before(void)
{
    enum { MANY = 20 };
    double losses[MANY];
    program_t p;
    device = FAKE("replay of forward_backward takes 20 ms");
    program_begin(&p);
    rig_stream_t *stream = rig_stream_new(&p.engine->runtime);
    ok(loop_try(&p, MLP, "", usual()), "a loop is opened: %s", p.err.text);
    until(&p, &p.ready, 1);
    for (int k = 0; k < MANY; k++) {
        train(&p, k % STEPS * BATCH, BATCH);
        until(&p, &p.step, k + 1);
        losses[k] = p.step.loss;
    }
    program_end(&p);
    json_t *messages = rig_stream_take(&stream);
    ok(check_reports(messages, losses) > 2, "several reports have come");
    json_decref(messages);
    device = CPU;
}

static void the_rate_follows_the_program(void)
{
    program_t p;
    program_open(&p, "", usual());
    ok(pl_loop_scale_lr(p.loop, 0.5, NULL) == PL_OK, "half of it");
    train(&p, 0, BATCH);
    until(&p, &p.step, 1);
    ok(strstr(p.step.metrics, "\"lr-adamw\":0.01") != NULL, "%s", p.step.metrics);
    program_end(&p);
}

/* Batches, a measurement and a save; whether each of them is notified. */
static bool work(program_t *p)
{
    const pl_arrays_t samples = batch(0, BATCH), some = batch(3, 5);
    int sent = 0;
    sent += pl_loop_train(p->loop, &samples, on_step, p, NULL) == PL_OK;
    sent += pl_loop_train(p->loop, &some, on_step, p, NULL) == PL_OK;
    sent += pl_loop_evaluate(p->loop, &samples, on_step, p, NULL) == PL_OK;
    sent += pl_loop_save(p->loop, "kept", on_step, p, NULL) == PL_OK;
    sent += pl_loop_train(p->loop, &samples, on_step, p, NULL) == PL_OK;
    return until(p, &p->step, sent);
}

/* With the n-th request for memory failing; false: there are fewer. */
static bool scarce_once(int n)
{
    const long before = scarce_live();
    program_t p;
    pl_loop_spec_t spec = usual();
    spec.enable_checkpointing = true;
    program_begin(&p);
    scarce_fail(n);
    if (loop_try(&p, MLP, "", spec)) {
        until(&p, &p.ready, 1);
        if (p.ready.error.code == PL_OK)
            work(&p);
        else
            is_int(p.ready.error.code, PL_ENOMEM, "request %d: %s", n,
                   p.ready.error.text);
    } else {
        is_int(p.err.code, PL_ENOMEM, "request %d: %s", n, p.err.text);
    }
    const bool failed = scarce_failed();
    scarce_stop();
    program_end(&p);
    is_int(scarce_live(), before, "request %d: nothing is left", n);
    return failed;
}

static void lack_of_memory_harms_nothing(void)
{
    const bool all = getenv("PACELINE_TEST_LONG") != NULL;
    int n = 1000000;
    scarce_once(n);                                         /* what stays for ever */
    for (n = 1; scarce_once(n); n += all || n < 10 ? 1 : 1 + n / 12)
        continue;
    ok(n > 100, "there are many requests: %d", n);
}

int main(void)
{
    scarce_init_own();
    rig_init(NULL);
    for (int k = 0; k < SAMPLES; k++)
        rig_sample(k, x[k], &y[k]);
    if (!rig_has("cpu"))
        return tap_done();
    run(the_same_batches_give_the_bits_of_a_fit);
    run(a_loop_needs_no_data_set);
    run(batches_of_any_size_and_type_are_taken);
    run(a_wrong_batch_is_refused_at_once);
    run(no_more_than_the_limit_is_in_flight);
    run(a_step_that_is_not_finite_fails_alone);
    run(a_step_that_is_not_finite_can_be_skipped);
    run(a_measurement_behind_a_failed_step_has_its_metrics);
    run(a_step_that_the_device_fails_at_fails_alone);
    run(a_device_that_hangs_ends_the_loop);
    run(a_fit_resumes_from_the_loops_checkpoint);
    run(impossible_calls_are_refused_with_the_reason);
    run(an_engine_ends_its_loops);
    run(gradients_of_several_batches_make_a_step);
    run(progress_has_the_mean_since_the_report_before);
    run(the_rate_follows_the_program);
    run(lack_of_memory_harms_nothing);
    return tap_done();
}
