/* traffic.c - what it costs a program that the ranks which it leads make steps
 *
 *     traffic [RUNS]
 *
 * Four ranks in processes of their own train in steps of about 1 ms; this process
 * computes nothing, so its processor time is what control takes: reports, signs of life,
 * metrics for the loggers, the links.  Of a short and a long run, so that what begins and
 * ends them is not in it. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "t/bench/bench.h"

enum {
    RUNS = 5,
    RUNS_MAX = 101,
    RANKS = 4,
    BATCH = 32,
    SHORT = 500,                                            /* steps */
    LONG = 2500,
    SAMPLES = 1000 * RANKS * BATCH,
    LIMIT_US = 10
};

const pl_registration_t *mlp_plugin(void);

static double processor_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6
           + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void points_write(char path[static 512])
{
    snprintf(path, 512, "%s/points.csv", bench_folder());
    FILE *file = fopen(path, "we");
    for (int k = 0; file && k < SAMPLES; k++)
        fprintf(file, "%d,%d,%d\n", k % 7, k % 11, k % 7 > k % 11);
    if (!file || fclose(file) != 0)
        bench_must(PL_EIO, NULL);
}

typedef struct spent {
    double processor, seconds;                              /* µs; s */
} timings_t;

static timings_t train(pl_engine_t *engine, const char *data, int steps)
{
    char run[2048];
    const double before = processor_us();
    snprintf(run, sizeof run,
             "{\"module\": {\"name\": \"mlp\", \"hidden\": [256, 256]},"
             " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.01},"
             " \"data\": {\"name\": \"csv\", \"path\": \"%s\", \"header\": \"no\","
             "            \"batch_size\": %d},"
             " \"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 1},"
             "               \"strategy\": \"ddp\", \"launcher\": \"spawn\","
             "               \"devices\": %d, \"max_epochs\": -1, \"max_steps\": %d,"
             "               \"enable_checkpointing\": false,"
             "               \"default_root_dir\": \"%s\"}}",
             data, BATCH, RANKS, steps, bench_folder());
    const double seconds = bench_fit(engine, run);
    return (timings_t){processor_us() - before, seconds};
}

static void measure(pl_engine_t *engine, const char *data, int runs)
{
    double us[RUNS_MAX], step[RUNS_MAX];
    for (int k = 0; k < runs; k++) {
        const timings_t some = train(engine, data, SHORT),
                        more = train(engine, data, LONG);
        us[k] = (more.processor - some.processor) / (LONG - SHORT);
        step[k] = (more.seconds - some.seconds) / (LONG - SHORT) * 1e3;
    }
    const double middle = bench_median(us, runs);
    printf("{\"name\": \"control of 4 ranks, a step\", \"unit\": \"us\", "
           "\"ours\": %.2f, \"against\": \"1 %% of 1 ms\", \"theirs\": %d, "
           "\"ratio\": %.2f, \"runs\": %d, \"bar\": 1, \"holds\": %s, "
           "\"a step in ms\": %.2f}\n",
           middle, LIMIT_US, LIMIT_US / middle, runs,
           middle <= LIMIT_US ? "true" : "false", bench_median(step, runs));
}

int main(int argc, char **argv)
{
    pl_error_t err = {0};
    char data[512];
    bench_must(pl_init(&argc, &argv, mlp_plugin(), &err), &err);
    const int runs = bench_runs(argc, argv, RUNS, RUNS_MAX);
    points_write(data);
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    bench_must(engine ? PL_OK : err.code, &err);
    measure(engine, data, runs);
    pl_engine_free(engine);
    return 0;
}
