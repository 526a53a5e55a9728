/* step.c - milliseconds of a whole training step, replayed in a bare loop
 *
 *     step WORKLOAD [THREADS [REPETITIONS [SECONDS [PRECISION]]]]
 *
 * Forward, backward and optimizer of a workload (t/bench/workloads.c) through the
 * accelerator's table, without actors: what PyTorch's step is measured against, and what
 * the engine's overhead is measured against.  Prints one JSON line with the median, least
 * and most of the repetitions, each of about so many seconds, and the processor time of a
 * step, which says more where the machine has other work.  A precision is 32-true,
 * bf16-mixed or 16-mixed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accelerators/cpu/device.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "t/bench/workloads.h"
#include "tensor/precision.h"

#define BATCHES 100
#define REPETITIONS 99

typedef struct bench {
    training_t training;
    pl_cpu_t cpu;
    pl_plan_t *step, *update;
    void *batch[BATCHES][2];
    int batches, steps;
    double loss;                                            /* of the last step */
} bench_t;

static void fail(const char *what, const pl_error_t *err)
{
    fprintf(stderr, "step: %s%s%s\n", what, err ? ": " : "", err ? err->text : "");
    exit(1);
}

static void on_done(pl_replay_t *replay, const pl_error_t *err)
{
    (void)replay;
    if (err)
        fail("a replay failed", err);
}

/* Batches in memory of their own, as a data set's are. */
static void make_batches(bench_t *b)
{
    const training_case_t *c = b->training.of;
    const size_t n = (size_t)pl_elements(c->shape),
                 rows = c->tokens ? n : (size_t)c->shape.dim[0];
    const size_t bytes[] = {n * (c->tokens ? sizeof(int64_t) : sizeof(float)),
                            rows * sizeof(int64_t)};
    b->batches = n > 100000 ? 8 : BATCHES;
    for (int k = 0; k < b->batches; k++) {
        const void *input[2];
        training_batch(&b->training, k, input);
        for (int i = 0; i < 2; i++) {
            b->batch[k][i] = pl_alloc(bytes[i]);
            if (!b->batch[k][i])
                fail("out of memory", NULL);
            memcpy(b->batch[k][i], input[i], bytes[i]);
        }
    }
}

static void fill_region(bench_t *b, pl_region_t region, size_t n)
{
    double *from = pl_alloc_array(n + 1, sizeof *from);
    float *to = pl_alloc_array(n + 1, sizeof *to);
    pl_error_t err;
    if (!from || !to)
        fail("out of memory", NULL);
    training_fill(&b->training, region, from);
    for (size_t i = 0; i < n; i++)
        to[i] = (float)from[i];
    if (pl_cpu_accelerator.write(&b->cpu, region, 0, to, n, &err) != PL_OK)
        fail("cannot write", &err);
    pl_free(from);
    pl_free(to);
}

static void bench_start(bench_t *b, const training_case_t *workload, int threads)
{
    pl_error_t err;
    pl_device_info_t info = {0};
    b->cpu = (pl_cpu_t){.threads = threads, .instructions = getenv("INSTRUCTIONS")};
    if (training_init(&b->training, workload, &err) != PL_OK
        || pl_cpu_accelerator.open(&b->cpu, &info, &err) != PL_OK)
        fail(workload->name, &err);
    const pl_model_t *model = b->training.model;
    for (int r = 0; r < PL_REGIONS; r++) {
        size_t n = (size_t)(r == PL_REGION_STATE ? model->state : model->params + 2);
        if (pl_cpu_accelerator.region(&b->cpu, (pl_region_t)r, PL_F32, n, &err) != PL_OK)
            fail("no memory for a region", &err);
    }
    fill_region(b, PL_REGION_PARAMS, (size_t)model->params);
    fill_region(b, PL_REGION_STATE, (size_t)model->state);
    if (pl_cpu_accelerator.compile(&b->cpu, b->training.step, &b->step, &err) != PL_OK
        || pl_cpu_accelerator.compile(&b->cpu, b->training.update, &b->update, &err)
               != PL_OK)
        fail("cannot compile", &err);
    make_batches(b);
}

static void one_step(bench_t *b)
{
    pl_error_t err;
    double metrics[2][2];
    void *const *batch = b->batch[b->steps % b->batches];
    pl_replay_t forward = {.seed = 1,
                           .step = (uint64_t)b->steps + 1,
                           .input = {batch[0], batch[1]},
                           .done = on_done};
    pl_replay_t update = {.seed = 1,
                          .step = forward.step,
                          .metrics = metrics[0],
                          .done = on_done};
    training_scalars(&b->training, b->steps++, update.scalar);
    if (pl_cpu_accelerator.replay(&b->cpu, b->step, &forward, &err) != PL_OK
        || pl_cpu_accelerator.replay(&b->cpu, b->update, &update, &err) != PL_OK)
        fail("cannot replay", &err);
    b->loss = metrics[0][0] / metrics[0][1];
}

static double time_steps(bench_t *b, int steps)
{
    int64_t start = pl_now();
    for (int i = 0; i < steps; i++)
        one_step(b);
    return (double)(pl_now() - start) / steps * 1e-6;
}

/* Of all threads. */
static double processor_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Trained numbers, without what lies between tensors. */
static long long parameters_of(const bench_t *b)
{
    const pl_model_t *model = b->training.model;
    long long count = 0;
    for (int k = 0; k < model->count; k++)
        if (model->tensor[k].region == PL_REGION_PARAMS)
            count += model->tensor[k].count;
    return count;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static const training_case_t *find_workload(const char *name)
{
    for (int i = 0; i < bench_workload_count; i++)
        if (strcmp(name, bench_workloads[i].name) == 0)
            return &bench_workloads[i];
    fprintf(stderr, "step: no workload \"%s\"; there are", name);
    for (int i = 0; i < bench_workload_count; i++)
        fprintf(stderr, " %s", bench_workloads[i].name);
    fprintf(stderr, "\n");
    exit(1);
}

static const pl_precision_ops_t *find_precision(const char *name)
{
    const pl_registration_t *one = pl_precision_components;
    while (one->role && strcmp(((const pl_precision_ops_t *)one->table)->name, name) != 0)
        one++;
    const pl_precision_ops_t *found = one->table;
    if (!found || found->params != PL_F32) {
        fprintf(stderr, "step: \"%s\" is no precision of float32 weights\n", name);
        exit(1);
    }
    return found;
}

int main(int argc, char **argv)
{
    training_case_t workload = *find_workload(argc > 1 ? argv[1] : "mlp");
    const int threads = argc > 2 ? atoi(argv[2]) : 1,
              wanted = argc > 3 ? atoi(argv[3]) : 7;
    const int repetitions = wanted < 1 ? 1 : wanted > REPETITIONS ? REPETITIONS : wanted;
    const double seconds = argc > 4 ? atof(argv[4]) : 1;
    static bench_t b;
    double ms[REPETITIONS];
    workload.precision = find_precision(argc > 5 ? argv[5] : "32-true");
    bench_start(&b, &workload, threads);
    time_steps(&b, 2);
    int steps = (int)(seconds * 1e3 / time_steps(&b, 2)) + 1;
    time_steps(&b, steps / 4 + 1);
    const double began = processor_ms();
    for (int i = 0; i < repetitions; i++)
        ms[i] = time_steps(&b, steps);
    const double used = (processor_ms() - began) / repetitions / steps;
    qsort(ms, (size_t)repetitions, sizeof *ms, by_value);
    printf("{\"name\": \"step %s\", \"threads\": %d, \"instructions\": \"%s\", \"ms\": "
           "%.4f, \"min\": %.4f, \"max\": %.4f, \"processor_ms\": %.4f, "
           "\"parameters\": %lld, \"loss\": %.4f}\n",
           b.training.of->name, b.cpu.thread_count, b.cpu.kernels->name,
           ms[repetitions / 2], ms[0], ms[repetitions - 1], used, parameters_of(&b),
           b.loss);
    for (int k = 0; k < b.batches; k++)
        for (int i = 0; i < 2; i++)
            pl_free(b.batch[k][i]);
    training_release(&b.training);
    pl_cpu_accelerator.close(&b.cpu);
    return 0;
}
