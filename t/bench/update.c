/* update.c - optimizer steps on ten million parameters, beside the memory's own speed
 *
 *     update [THREADS [REPETITIONS]]
 *
 * One step reads the gradients for their norm, then gradients, parameters and slots, and
 * writes the last two: AdamW moves 32 bytes a parameter.  The limit is a loop that does
 * nothing but the second part on as many arrays.  Repetitions of both take turns; prints
 * one JSON line with the medians for each optimizer. */
#include <stdio.h>
#include <stdlib.h>

#include "accelerators/cpu/device.h"
#include "accelerators/cpu/parallel.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "t/training_cases.h"

#define PARAMS 10000000
#define REPETITIONS 99

typedef struct bench {
    pl_cpu_t cpu;
    pl_model_t *model;
    pl_graph_t *graph;
    pl_plan_t *plan;
    void *options;
    pl_optimizer_t optimizer;
    int written;                                            /* arrays */
    float *array[1 + PL_SLOTS];                             /* the last is only read */
    uint64_t steps;
} bench_t;

static void fail(const char *what, const pl_error_t *err)
{
    fprintf(stderr, "update: %s%s%s\n", what, err ? ": " : "", err ? err->text : "");
    exit(1);
}

static void on_done(pl_replay_t *replay, const pl_error_t *err)
{
    if (err || replay->skipped)
        fail("the step failed", err);
}

typedef struct kind {
    const char *name;
    const pl_optimizer_ops_t *ops;
    const char *options;
    bool averages;
} kind_t;

static const kind_t kinds[] = {
    {"sgd, momentum", &pl_sgd_optimizer, "{\"momentum\": 0.9}", false},
    {"adam", &pl_adam_optimizer, "{}", false},
    {"adamw", &pl_adamw_optimizer, "{\"weight_decay\": 0.1}", false},
    {"adamw, averaged", &pl_adamw_optimizer, "{\"weight_decay\": 0.1}", true},
    {"adagrad", &pl_adagrad_optimizer, "{}", false},
    {"rmsprop", &pl_rmsprop_optimizer, "{\"momentum\": 0.9}", false},
    {"lion", &pl_lion_optimizer, "{\"weight_decay\": 0.1}", false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void describe(bench_t *b, const kind_t *kind, pl_error_t *err)
{
    b->options = training_component((const pl_component_t *)kind->ops, kind->options);
    b->optimizer = (pl_optimizer_t){.ops = kind->ops,
                                    .self = b->options,
                                    .averages = kind->averages};
    b->written = 1 + pl_optimizer_slots(&b->optimizer) + kind->averages;
    b->model = pl_model_new(err);
    pl_graph_t *g = b->model && b->options
                        ? pl_graph_new(b->model, PL_TRAIN, NULL, 0, 1, err)
                        : NULL;
    if (!g)
        fail("cannot describe", err);
    pl_param(g, "w", PL_SHAPE(PARAMS), pl_zeros());
    pl_graph_free(g);
    b->graph = pl_optimizer_graph(&b->optimizer, b->model, 1, 1, err);
    if (!b->graph)
        fail("cannot describe", err);
}

static void start(bench_t *b, const kind_t *kind, int threads)
{
    pl_error_t err = {0};
    pl_device_info_t info = {0};
    const size_t n = PARAMS + 16;
    b->cpu = (pl_cpu_t){.threads = threads, .instructions = getenv("INSTRUCTIONS")};
    describe(b, kind, &err);
    if (pl_cpu_accelerator.open(&b->cpu, &info, &err) != PL_OK)
        fail("cannot open", &err);
    float *wave = pl_alloc_array(n, sizeof *wave);
    for (size_t i = 0; i < n && wave; i++)
        wave[i] = (float)(i % 1000 + 1) * 1e-3f;
    for (int r = 0; r < PL_REGIONS; r++)
        if (!wave
            || pl_cpu_accelerator.region(&b->cpu, (pl_region_t)r, PL_F32, n, &err)
                   != PL_OK
            || pl_cpu_accelerator.write(&b->cpu, (pl_region_t)r, 0, wave, n, &err)
                   != PL_OK)
            fail("no memory", &err);
    pl_free(wave);
    for (int k = 0; k <= b->written; k++)
        if (!(b->array[k] = pl_alloc_array(PARAMS, sizeof(float))))
            fail("no memory", NULL);
    if (pl_cpu_accelerator.compile(&b->cpu, b->graph, &b->plan, &err) != PL_OK)
        fail("cannot compile", &err);
}

static double time_step(bench_t *b)
{
    pl_error_t err;
    pl_replay_t replay = {.done = on_done};
    pl_optimizer_scalars(&b->optimizer, 1, ++b->steps, replay.scalar);
    int64_t from = pl_now();
    if (pl_cpu_accelerator.replay(&b->cpu, b->plan, &replay, &err) != PL_OK)
        fail("cannot replay", &err);
    return (double)(pl_now() - from) * 1e-6;
}

/* As many lines as arrays are written, so that each loop is one the compiler knows. */
static void stream(void *user, int64_t from, int64_t to, int part)
{
    (void)part;
    const bench_t *b = user;
    float *restrict p = b->array[0], *restrict q = b->array[1], *restrict r = b->array[2],
                    *restrict s = b->array[3];
    const float *restrict g = b->array[b->written];
    if (b->written == 2)
        for (int64_t i = from; i < to; i++)
            p[i] += g[i], q[i] += g[i];
    else if (b->written == 3)
        for (int64_t i = from; i < to; i++)
            p[i] += g[i], q[i] += g[i], r[i] += g[i];
    else
        for (int64_t i = from; i < to; i++)
            p[i] += g[i], q[i] += g[i], r[i] += g[i], s[i] += g[i];
}

static double time_stream(bench_t *b)
{
    int64_t from = pl_now();
    pl_parallel_for(b->cpu.pool, b->cpu.thread_count, PARAMS, 16, stream, b);
    return (double)(pl_now() - from) * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

static void measure(const kind_t *kind, int threads, int n)
{
    bench_t b = {0};
    double step[REPETITIONS], limit[REPETITIONS];
    start(&b, kind, threads);
    time_step(&b);
    time_stream(&b);
    for (int i = 0; i < n; i++) {
        step[i] = time_step(&b);
        limit[i] = time_stream(&b);
    }
    const double read = 4e-6 * PARAMS, moved = read + 8e-6 * PARAMS * b.written;
    double ms = median(step, n), ours = (read + moved) / ms,
           theirs = moved / median(limit, n);
    printf("{\"name\": \"%s on 10 million parameters\", \"threads\": %d, \"ms\": "
           "%.3f, \"gigabytes per second\": %.2f, \"memory\": %.2f, \"share\": %.3f}\n",
           kind->name, b.cpu.thread_count, ms, ours, theirs, ours / theirs);
    for (int k = 0; k <= b.written; k++)
        pl_free(b.array[k]);
    pl_graph_free(b.graph);
    pl_model_free(b.model);
    pl_free(b.options);
    pl_cpu_accelerator.close(&b.cpu);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1,
              wanted = argc > 2 ? atoi(argv[2]) : 15;
    const int n = wanted < 1 ? 1 : wanted > REPETITIONS ? REPETITIONS : wanted;
    for (int k = 0; k < KINDS; k++)
        measure(&kinds[k], threads, n);
    return 0;
}
