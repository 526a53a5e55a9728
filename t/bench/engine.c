/* engine.c - what the engine costs: fit against a bare loop that replays the same
 * compiled step
 *
 *     engine [PAIRS [STEPS [ROW]]]
 *
 * ROW: parts, bare, viewer, viewers or shown; all without.
 *
 * MLP 784-128-10, batch 64, SGD, one thread, data in memory.  Runs of the bare loop and
 * of fit take turns; each run of fit and the bare loop's steps before and behind it give
 * one ratio, so that what the machine does to both cancels.  First without a viewer, then
 * a process that takes the whole stream, then a thousand viewers, of which one is
 * stopped, against none; at last all that shows a run, at once: a page that is open,
 * metrics that are fetched each second, a trace and a journal.  Printed: medians, the
 * 95 % confidence interval of the ratio, and the processor time of a step of fit beyond
 * the bare step's and the making of its batch.
 * Before that, in the same way, fit with all the callbacks that there are and two loggers
 * against fit with none. */
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accelerators/accelerator.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/random.h"
#include "strategies/optimizers/optimizer.h"
#include "t/bench/bench.h"
#include "t/crowd.h"

enum {
    BATCH = 64,
    FEATURES = 784,
    CLASSES = 10,
    BATCHES = 100,
    SAMPLES = BATCH * BATCHES,
    EPOCH = 60000,
    PAIRS = 15,
    STEPS = 9380,                           /* ten epochs of MNIST, as the run that people
                                               start with: a run's beginning and end cost
                                               10 ms, of 4000 steps of 0.16 ms 1.6 % */
    RUN_MS = 1600,                          /* that is long enough where a step is longer:
                                               all rows take about 5 minutes */
    VIEWERS = 1000,
    BURSTS_SECONDS = 13,                     /* two turns and a half of so many viewers */
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

/* Seconds of so many steps; used: of a processor. */
static double bare_run(bare_t *b, int steps, double *used)
{
    const int64_t began = pl_now();
    const double before = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int k = 0; k < steps; k++) {
        pl_error_t err;
        double metrics[8][2];
        int at = k % BATCHES * BATCH;
        pl_replay_t step = {.seed = 42,
                            .step = ++b->steps,
                            .metrics = metrics[0],
                            .done = bare_done,
                            .input = {images + (size_t)at * FEATURES, labels + at}};
        pl_replay_t update = {.scalar = {0.01},
                              .seed = 42,
                              .step = b->steps,
                              .metrics = metrics[0],
                              .done = bare_done};
        bench_must(b->ops->replay(b->accelerator.self, b->step, &step, &err), &err);
        bench_must(b->ops->replay(b->accelerator.self, b->update, &update, &err), &err);
    }
    *used = processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
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

/* ---- pairs ---- */

typedef struct pairs {
    int count, steps;
    double *ratio, *bare_ms, *fit_ms, *own_us;              /* [count] */
} pairs_t;

/* A fit of so many steps: its seconds; used: of a processor, without what the data
 * took. */
typedef double (*measure_t)(void *of, int steps, double *used);

static double fit_measure(void *engine, int steps, double *used)
{
    double before = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    read_seconds = 0;
    double seconds = fit_run(engine, steps, usual);
    *used = processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - before - read_seconds;
    return seconds;
}

static void pair_set(pairs_t *p, int k, double against, double fit, double own)
{
    p->ratio[k] = against / fit;
    p->bare_ms[k] = against / p->steps * 1e3;
    p->fit_ms[k] = fit / p->steps * 1e3;
    p->own_us[k] = own / p->steps * 1e6;
}

/* Half of the bare loop's steps before, half behind: a machine that slows down in between
 * slows both. */
static void pairs_run(pairs_t *p, bare_t *bare, measure_t measure, void *of)
{
    for (int k = 0; k < p->count; k++) {
        double used[3];
        double b = bare_run(bare, p->steps / 2, &used[0]);
        double f = measure(of, p->steps, &used[1]);
        b += bare_run(bare, p->steps - p->steps / 2, &used[2]);
        pair_set(p, k, b, f, used[1] - used[0] - used[2]);
    }
}

/* Of two engines. */
static void engines_run(pairs_t *p, pl_engine_t *one, pl_engine_t *other)
{
    for (int k = 0; k < p->count; k++) {
        bool one_first = k % 2 == 0;
        double used, used_other, b = one_first ? fit_measure(one, p->steps, &used) : 0;
        double f = fit_measure(other, p->steps, &used_other);
        if (!one_first)
            b = fit_measure(one, p->steps, &used);
        pair_set(p, k, b, f, used_other - used);
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
        pair_set(p, k, none, all, 0);
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

static pl_engine_t *engine_new(void)
{
    pl_error_t err;
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    bench_must(engine ? PL_OK : err.code, &err);
    return engine;
}

/* A stream without a reader costs nothing, and would prove nothing. */
static void must_read(const char *what, bool is_read)
{
    const pl_error_t err = {PL_ESTATE, "the stream of this row has no reader"};
    if (!is_read)
        fprintf(stderr, "%s: ", what);
    bench_must(is_read ? PL_OK : err.code, &err);
}

/* ---- a stream of many viewers ---- */

enum { ONE, MANY, STOPPED, CROWDS };

typedef struct streams {
    char endpoint[2][256];
    crowd_t crowd[CROWDS];
    pl_engine_t *engine[2], *unwatched;
} streams_t;

/* Before any thread is made.  What a thousand viewers themselves take of a processor
 * is not the engine's: they take what it leaves, and nothing before their row: a
 * viewer that looks for a stream that is not there yet calls ten times a second, each
 * of them. */
static void viewers_start(streams_t *s)
{
    for (int k = 0; k < 2; k++)
        snprintf(s->endpoint[k], sizeof s->endpoint[k], "ipc://%s/stream%d",
                 bench_folder(), k);
    crowd_start(&s->crowd[ONE], s->endpoint[0], 1, NULL, false);
    crowd_start(&s->crowd[MANY], s->endpoint[1], VIEWERS, NULL, true);
    crowd_start(&s->crowd[STOPPED], s->endpoint[1], 1, NULL, false);
    for (int k = 0; k < CROWDS; k++)
        kill(s->crowd[k].process, SIGSTOP);
}

static void streams_open(streams_t *s)
{
    pl_error_t err;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int k = 0; k < 2; k++) {
        s->engine[k] = engine_new();
        bench_must(pl_engine_monitor(s->engine[k], s->endpoint[k], &err), &err);
    }
    s->unwatched = engine_new();
}

static void streams_close(streams_t *s)
{
    for (int k = 0; k < 2; k++)
        pl_engine_free(s->engine[k]);
    pl_engine_free(s->unwatched);
    for (int k = 0; k < CROWDS; k++)
        crowd_stop(&s->crowd[k]);
}

/* What many get leaves in bursts, one as soon as a fit begins: a short fit has more of
 * them than a long one.  A third of the pairs, as each takes longer. */
static pairs_t pairs_for_bursts(const pairs_t *usual_pairs, pl_engine_t *engine)
{
    pairs_t p = *usual_pairs;
    const double seconds = fit_run(engine, p.steps, usual);
    if (seconds < BURSTS_SECONDS)
        p.steps = (int)(p.steps * BURSTS_SECONDS / seconds);
    p.count = (p.count + 2) / 3;
    return p;
}

static bool are_many_there(const streams_t *s)
{
    return crowd_lines(&s->crowd[STOPPED]) && crowd_lines(&s->crowd[MANY]) > 10 * VIEWERS;
}

static void streams_bench(streams_t *s, const pairs_t *usual_pairs)
{
    pairs_t long_pairs = pairs_for_bursts(usual_pairs, s->unwatched), *p = &long_pairs;
    kill(s->crowd[MANY].process, SIGCONT);
    kill(s->crowd[STOPPED].process, SIGCONT);
    for (int k = 0; k < 100 && !are_many_there(s); k++)
        fit_run(s->engine[1], usual_pairs->steps / 4, usual);
    kill(s->crowd[STOPPED].process, SIGSTOP);
    const long long lines = crowd_lines(&s->crowd[MANY]);
    engines_run(p, s->unwatched, s->engine[1]);
    must_read("the many viewers", crowd_lines(&s->crowd[MANY]) - lines > 10 * VIEWERS);
    ratio_report(", 1000 viewers, one of them stopped", "fit without a viewer", p, 0.99);
    const double seconds = bench_median(p->fit_ms, p->count) / 1e3 * p->steps * p->count;
    printf("{\"name\": \"lines a second to each of 1000 viewers\", \"ours\": %.0f}\n"
           "{\"name\": \"processor time of a step, 1000 viewers less none\", "
           "\"unit\": \"us\", \"ours\": %.1f}\n",
           (double)(crowd_lines(&s->crowd[MANY]) - lines) / seconds / VIEWERS,
           bench_median(p->own_us, p->count));
    fflush(stdout);
}

/* ---- all that shows a run ---- */

typedef struct shown {
    pl_engine_t *engine;
    char trace[300], journal[300];
    pid_t page;
    double trace_bytes, journal_bytes;                      /* of all runs */
} shown_t;

/* A browser with an open page, and a client that fetches metrics. */
static pid_t page_open(const char *url)
{
    extern char **environ;
    static char script[] = "base=${0%%/\\?*}; token=${0##*token=}\n"
                           "head=\"Authorization: Bearer $token\"\n"
                           "get() { curl -sfN -H \"$head\" \"$base/$1\"; }\n"
                           "get events >\"$1/events\" &\n"
                           "while :; do get metrics; sleep 1; done >\"$1/metrics\"\n";
    static char shell[] = "sh", option[] = "-c";
    char text[512], folder[256], *argv[] = {shell, option, script, text, folder, NULL};
    posix_spawnattr_t group;
    pid_t page = 0;
    snprintf(text, sizeof text, "%s", url);
    snprintf(folder, sizeof folder, "%s", bench_folder());
    posix_spawnattr_init(&group);
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    posix_spawnp(&page, "sh", NULL, &group, argv, environ);
    posix_spawnattr_destroy(&group);
    return page;
}

static void shown_open(shown_t *s)
{
    pl_error_t err;
    snprintf(s->trace, sizeof s->trace, "%s/run.trace", bench_folder());
    snprintf(s->journal, sizeof s->journal, "%s/run.journal", bench_folder());
    s->engine = engine_new();
    bench_must(pl_engine_trace(s->engine, s->trace, &err), &err);
    bench_must(pl_engine_journal(s->engine, s->journal, &err), &err);
    bench_must(pl_engine_dashboard(s->engine, "0", &err), &err);
    s->page = page_open(pl_engine_dashboard_url(s->engine));
}

static double file_end(const char *path)
{
    struct stat status = {0};
    stat(path, &status);
    unlink(path);
    return (double)status.st_size;
}

static void page_must_read(const char *what)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", bench_folder(), what);
    must_read(what, file_end(path) > 0);
}

static void shown_close(shown_t *s)
{
    pl_engine_free(s->engine);
    if (s->page > 0) {
        kill(-s->page, SIGKILL);
        waitpid(s->page, NULL, 0);
    }
    page_must_read("events");
    page_must_read("metrics");
    s->trace_bytes += file_end(s->trace);
    s->journal_bytes += file_end(s->journal);
}

/* With the end of the files, which is written when the engine ends. */
static double shown_measure(void *of, int steps, double *used)
{
    shown_t *s = of;
    shown_open(s);
    const double seconds = fit_measure(s->engine, steps, used);
    const double after = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    shown_close(s);
    *used += processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - after;
    return seconds;
}

/* ---- rows ---- */

typedef struct bench {
    pairs_t pairs;
    bare_t bare;
    streams_t streams;
    const char *only;                                       /* rows of that name  [all] */
} bench_t;

static bool is_wanted(const bench_t *b, const char *row)
{
    return !b->only || !strcmp(b->only, row);
}

static void rows_unseen(bench_t *b)
{
    pl_engine_t *engine = engine_new();
    fit_run(engine, b->pairs.steps / 4, usual);
    if (is_wanted(b, "parts")) {
        parts_run(&b->pairs, engine);
        ratio_report(", all callbacks, two loggers", "fit without", &b->pairs, 0.97);
    }
    if (is_wanted(b, "bare")) {
        pairs_run(&b->pairs, &b->bare, fit_measure, engine);
        pairs_report("", &b->pairs, 0.97);
    }
    pl_engine_free(engine);
}

static void rows_streams(bench_t *b)
{
    streams_t *s = &b->streams;
    streams_open(s);
    kill(s->crowd[ONE].process, SIGCONT);
    fit_run(s->engine[0], b->pairs.steps / 4, usual);       /* the viewer finds its way */
    if (is_wanted(b, "viewer")) {
        const long long lines = crowd_lines(&s->crowd[ONE]);
        pairs_run(&b->pairs, &b->bare, fit_measure, s->engine[0]);
        must_read("the viewer", crowd_lines(&s->crowd[ONE]) > lines);
        pairs_report(", one viewer", &b->pairs, 0.95);
    }
    if (is_wanted(b, "viewers"))
        streams_bench(s, &b->pairs);
    streams_close(s);
}

static void row_shown(bench_t *b)
{
    shown_t s = {0};
    if (!is_wanted(b, "shown"))
        return;
    pairs_run(&b->pairs, &b->bare, shown_measure, &s);
    pairs_report(", page, metrics, trace and journal", &b->pairs, 0.95);
    printf("{\"name\": \"bytes a step: trace; journal\", \"ours\": [%.0f, %.0f]}\n",
           s.trace_bytes / b->pairs.count / b->pairs.steps,
           s.journal_bytes / b->pairs.count / b->pairs.steps);
    fflush(stdout);
}

static void pairs_open(pairs_t *p)
{
    double *sample = pl_alloc_array((size_t)p->count * 4, sizeof *sample);
    p->ratio = sample, p->bare_ms = sample + p->count, p->fit_ms = p->bare_ms + p->count,
    p->own_us = p->fit_ms + p->count;
}

int main(int argc, char **argv)
{
    bench_t b = {.pairs = {.count = argc > 1 ? atoi(argv[1]) : PAIRS,
                           .steps = argc > 2 ? atoi(argv[2]) : STEPS},
                 .only = argc > 3 ? argv[3] : NULL};
    pl_error_t err;
    pairs_open(&b.pairs);
    viewers_start(&b.streams);
    bench_must(pl_init(&argc, &argv, mlp_plugin(), &err), &err);
    make_data();
    const pl_memory_data_t data = {.samples = EPOCH,
                                   .field_count = 2,
                                   .field = {fields[0], fields[1]},
                                   .read = read_samples};
    bench_must(pl_memory_data("bench", &data, &err), &err);
    bare_open(&b.bare);
    double used;
    const double step = bare_run(&b.bare, STEPS / 8, &used) / (STEPS / 8) * 1e3;
    if (argc <= 2 && RUN_MS / step < STEPS)
        b.pairs.steps = (int)(RUN_MS / step);
    rows_unseen(&b);
    rows_streams(&b);
    row_shown(&b);
    bare_close(&b.bare);
    pl_free(b.pairs.ratio);
    pl_free(images);
    pl_free(labels);
    return 0;
}
