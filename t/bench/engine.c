/* engine.c - what the engine costs: fit against a bare loop that replays the same
 * compiled step
 *
 *     engine [PAIRS [STEPS]]
 *
 * MLP 784-128-10, batch 64, SGD, one thread, data in memory.  Runs of the bare loop and
 * of fit take turns; each pair gives one ratio, so that what the machine does to both
 * cancels.  First nobody watches, then a process that takes the whole stream.  Printed:
 * medians, the 95 % confidence interval of the ratio, and the processor time of a step of
 * fit beyond that of the bare step and of making its batch.  Before that, in the same
 * way, fit with all the callbacks that there are and two loggers against fit with
 * none. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/random.h"
#include "runtime/socket.h"
#include "strategies/optimizers/optimizer.h"
#include "t/bench/bench.h"

enum {
    BATCH = 64,
    FEATURES = 784,
    CLASSES = 10,
    BATCHES = 100,
    SAMPLES = BATCH * BATCHES,
    EPOCH = 60000,
    STEPS = 9380,                        /* ten epochs of MNIST, as the run that people
                                            start with: a run's beginning and end cost
                                            10 ms, of 4000 steps of 0.16 ms 1.6 % */
};

const pl_registration_t *mlp_plugin(void);

static float *images;                                  /* [SAMPLES, FEATURES] */
static int64_t *labels;                                /* [SAMPLES] */
static double read_seconds;                            /* processor time; of one reader */

static double processor_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void make_data(void)
{
    images = pl_alloc((size_t)SAMPLES * FEATURES * sizeof *images);
    labels = pl_alloc((size_t)SAMPLES * sizeof *labels);
    for (int64_t k = 0; k < (int64_t)SAMPLES * FEATURES; k++)
        images[k] = (float)pl_random_uniform(1, (uint64_t)k);
    for (int64_t k = 0; k < SAMPLES; k++)
        labels[k] = (int64_t)(pl_random_u64(2, (uint64_t)k) % CLASSES);
}

/* An epoch as long as MNIST's, of the same samples over and over. */
static int read_samples(void *user, const pl_read_request_t *request, void *const field[],
                        pl_error_t *err)
{
    (void)user, (void)err;
    double began = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int k = 0; k < request->count; k++) {
        size_t at = (size_t)(request->index[k] % SAMPLES);
        memcpy((float *)field[0] + (size_t)k * FEATURES, images + at * FEATURES,
               FEATURES * sizeof *images);
        ((int64_t *)field[1])[k] = labels[at];
    }
    read_seconds += processor_seconds(CLOCK_THREAD_CPUTIME_ID) - began;
    return PL_OK;
}

/* ---- the bare loop ---- */

typedef struct mlp_options {
    int64_t hidden;
} mlp_options_t;

typedef struct bare {
    pl_instance_t accelerator, module, optimizer;
    const pl_accelerator_ops_t *ops;
    pl_model_t *model;
    pl_plan_t *step, *update;
    uint64_t steps;
} bare_t;

static const pl_field_t fields[] = {{"x", PL_F32, {1, {FEATURES}}},
                                    {"y", PL_I64, {0, {0}}}};

static void bare_part(pl_instance_t *instance, const char *role, const char *text)
{
    pl_error_t err;
    json_t *value = json_loads(text, 0, NULL);
    pl_instance_request_t request = {.role = role, .value = value};
    bench_must(pl_instance_make(instance, &request, &err), &err);
    json_decref(value);
}

static void bare_compile(bare_t *b)
{
    pl_error_t err;
    pl_graph_t *g = pl_graph_new(b->model, PL_TRAIN, fields, 2, BATCH, &err);
    ((const pl_module_ops_t *)b->module.ops)->step(g, b->module.self, PL_TRAIN);
    bench_must(pl_graph_gradients(g, BATCH, false, &err), &err);
    pl_graph_prune(g);
    size_t n = (size_t)b->model->params;
    float *first = pl_alloc(n * sizeof *first);
    pl_model_init(b->model, PL_REGION_PARAMS, 42, PL_F32, first);
    bench_must(b->ops->region(b->accelerator.self, PL_REGION_PARAMS, PL_F32, n, &err),
               &err);
    bench_must(b->ops->region(b->accelerator.self, PL_REGION_GRADS, PL_F32, n + 2, &err),
               &err);
    bench_must(b->ops->write(b->accelerator.self, PL_REGION_PARAMS, 0, first, n, &err),
               &err);
    pl_optimizer_t optimizer = {.ops = b->optimizer.ops, .self = b->optimizer.self};
    pl_graph_t *u = pl_optimizer_graph(&optimizer, b->model, BATCH, 0, &err);
    bench_must(b->ops->compile(b->accelerator.self, g, &b->step, &err), &err);
    bench_must(b->ops->compile(b->accelerator.self, u, &b->update, &err), &err);
    pl_graph_free(g);
    pl_graph_free(u);
    pl_free(first);
}

static void bare_open(bare_t *b)
{
    pl_error_t err;
    pl_device_info_t info = {0};
    bare_part(&b->accelerator, "accelerator", "{\"name\": \"cpu\", \"threads\": 1}");
    bare_part(&b->module, "module",
              "{\"name\": \"mlp\", \"hidden\": [128], \"classes\": 10}");
    bare_part(&b->optimizer, "optimizer", "{\"name\": \"sgd\", \"lr\": 0.01}");
    b->ops = b->accelerator.ops;
    b->model = pl_model_new(&err);
    bench_must(b->ops->open(b->accelerator.self, &info, &err), &err);
    bare_compile(b);
}

static void bare_done(pl_replay_t *replay, const pl_error_t *err)
{
    (void)replay;
    bench_must(err ? err->code : PL_OK, err);
}

/* Seconds of so many steps. */
static double bare_run(bare_t *b, int steps)
{
    int64_t began = pl_now();
    for (int k = 0; k < steps; k++) {
        pl_error_t err;
        double figures[8][2];
        int at = k % BATCHES * BATCH;
        pl_replay_t step = {.seed = 42,
                            .step = ++b->steps,
                            .figures = figures[0],
                            .done = bare_done,
                            .input = {images + (size_t)at * FEATURES, labels + at}};
        pl_replay_t update = {.scalar = {0.01},
                              .seed = 42,
                              .step = b->steps,
                              .figures = figures[0],
                              .done = bare_done};
        bench_must(b->ops->replay(b->accelerator.self, b->step, &step, &err), &err);
        bench_must(b->ops->replay(b->accelerator.self, b->update, &update, &err), &err);
    }
    return (double)(pl_now() - began) / 1e9;
}

static void bare_close(bare_t *b)
{
    b->ops->close(b->accelerator.self);
    pl_model_free(b->model);
    pl_instance_release(&b->accelerator);
    pl_instance_release(&b->module);
    pl_instance_release(&b->optimizer);
}

/* ---- fit ---- */

/* As the run file is without them. */
static const char usual[] = "";
static const char nothing[] = "\"loggers\": [], ";
static const char everything[] =
    "\"loggers\": [{\"name\": \"csv\"}, {\"name\": \"tensorboard\"}], \"callbacks\": "
    "[{\"name\": \"device_stats_monitor\"}, {\"name\": \"early_stopping\", \"monitor\": "
    "\"train_loss\", \"patience\": 1000}, {\"name\": \"finetuning\", \"freeze\": "
    "\"fc2.bias\", \"epochs\": [0], \"unfreeze\": \"fc2.bias\"}, {\"name\": "
    "\"gradient_accumulation_scheduler\", \"epochs\": [0], \"batches\": [1]}, "
    "{\"name\": \"lr_monitor\"}, {\"name\": \"model_checkpoint\", \"monitor\": "
    "\"train_loss\"}, {\"name\": \"model_summary\"}, {\"name\": "
    "\"on_exception_checkpoint\"}, {\"name\": \"prediction_writer\"}, {\"name\": "
    "\"progress\"}, {\"name\": \"throughput_monitor\", \"every_n_steps\": 70}, "
    "{\"name\": \"timer\", \"duration\": \"01:00:00:00\", \"every_n_steps\": 30}], ";

static double fit_run(pl_engine_t *engine, int steps, const char *parts)
{
    char text[2048];
    snprintf(
        text, sizeof text,
        "{%s\"module\": {\"name\": \"mlp\", \"hidden\": [128], \"classes\": 10},"
        " \"data\": {\"name\": \"memory\", \"source\": \"bench\", \"batch_size\": %d},"
        " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.01},"
        " \"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
        "\"max_steps\": %d,"
        " \"default_root_dir\": \"%s\"}}",
        parts, BATCH, steps, bench_folder());
    return bench_fit(engine, text);
}

/* ---- a viewer ---- */

/* A process that reads all that is published, for as long as its parent lives.  Made
 * before any thread is. */
static pid_t viewer_start(const char *endpoint)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pl_error_t err;
    static char line[65536];
    pl_socket_spec_t spec = {.type = PL_SOCKET_SUB, .endpoint = endpoint};
    pl_socket_t *socket = pl_socket_open(&spec, NULL, NULL, NULL, &err);
    bench_must(socket ? pl_socket_subscribe(socket, "", &err) : err.code, &err);
    while (pl_socket_receive(socket, line, sizeof line, 1000, NULL) >= 0)
        continue;
    _exit(1);
}

static void viewer_stop(pid_t viewer)
{
    kill(viewer, SIGKILL);
    waitpid(viewer, NULL, 0);
}

/* ---- pairs ---- */

typedef struct pairs {
    int count, steps;
    double *ratio, *bare_ms, *fit_ms, *own_us;              /* [count] */
} pairs_t;

/* fit and what it needed beside the step and the data, in µs of a processor a step. */
static double fit_measure(pl_engine_t *engine, int steps, double *used)
{
    double before = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    read_seconds = 0;
    double seconds = fit_run(engine, steps, usual);
    *used = processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - before - read_seconds;
    return seconds;
}

static void pairs_run(pairs_t *p, bare_t *bare, pl_engine_t *engine)
{
    for (int k = 0; k < p->count; k++) {
        bool bare_first = k % 2 == 0;
        double used, b = bare_first ? bare_run(bare, p->steps) : 0;
        double f = fit_measure(engine, p->steps, &used);
        if (!bare_first)
            b = bare_run(bare, p->steps);
        p->ratio[k] = b / f;
        p->bare_ms[k] = b / p->steps * 1e3;
        p->fit_ms[k] = f / p->steps * 1e3;
        p->own_us[k] = (used - b) / p->steps * 1e6;
    }
}

static void parts_run(pairs_t *p, pl_engine_t *engine)
{
    for (int k = 0; k < p->count; k++) {
        bool all_first = k % 2;
        double all = all_first ? fit_run(engine, p->steps, everything) : 0;
        double none = fit_run(engine, p->steps, nothing);
        if (!all_first)
            all = fit_run(engine, p->steps, everything);
        p->ratio[k] = none / all;
        p->bare_ms[k] = none / p->steps * 1e3;
        p->fit_ms[k] = all / p->steps * 1e3;
    }
}

static void ratio_report(const char *name, const char *against, const pairs_t *p,
                         double bar)
{
    double low, high;
    bench_interval(p->ratio, p->count, &low, &high);
    double middle = bench_median(p->ratio, p->count);
    printf("{\"name\": \"fit mlp 1 thread%s\", \"unit\": \"ms\", \"ours\": %.4f, "
           "\"against\": \"%s\", "
           "\"theirs\": %.4f, \"ratio\": %.4f, \"interval\": [%.4f, %.4f], \"pairs\": "
           "%d, \"bar\": %.2f, \"holds\": %s}\n",
           name, bench_median(p->fit_ms, p->count), against,
           bench_median(p->bare_ms, p->count), middle, low, high, p->count, bar,
           middle >= bar ? "true" : "false");
    fflush(stdout);
}

static void pairs_report(const char *name, const pairs_t *p, double bar)
{
    ratio_report(name, "bare loop", p, bar);
    printf("{\"name\": \"processor time of the engine a step%s\", \"unit\": \"us\", "
           "\"ours\": %.1f}\n",
           name, bench_median(p->own_us, p->count));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pairs_t p = {.count = argc > 1 ? atoi(argv[1]) : 31,
                 .steps = argc > 2 ? atoi(argv[2]) : STEPS};
    double *figure = pl_alloc_array((size_t)p.count * 4, sizeof *figure);
    p.ratio = figure, p.bare_ms = figure + p.count, p.fit_ms = p.bare_ms + p.count,
    p.own_us = p.fit_ms + p.count;
    char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/stream", bench_folder());
    pid_t viewer = viewer_start(endpoint);
    pl_error_t err;
    bench_must(pl_init(&argc, &argv, mlp_plugin(), &err), &err);
    make_data();
    const pl_memory_data_t data = {.samples = EPOCH,
                                   .field_count = 2,
                                   .field = {fields[0], fields[1]},
                                   .read = read_samples};
    bench_must(pl_memory_data("bench", &data, &err), &err);
    bare_t bare = {0};
    bare_open(&bare);
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    bench_must(engine ? PL_OK : err.code, &err);
    bare_run(&bare, p.steps / 4);
    fit_run(engine, p.steps / 4, usual);
    parts_run(&p, engine);
    ratio_report(", all callbacks, two loggers", "fit without", &p, 0.97);
    pairs_run(&p, &bare, engine);
    pairs_report("", &p, 0.97);
    bench_must(pl_engine_monitor(engine, endpoint, &err), &err);
    fit_run(engine, p.steps / 4, usual);          /* the viewer finds its way meanwhile */
    pairs_run(&p, &bare, engine);
    pairs_report(", one viewer", &p, 0.95);
    viewer_stop(viewer);
    pl_engine_free(engine);
    bare_close(&bare);
    pl_free(figure);
    pl_free(images);
    pl_free(labels);
    return 0;
}
