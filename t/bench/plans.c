/* plans.c - how long a run whose kernels are in the cache takes to load its plans
 *
 *     plans [RUNS]
 *
 * A model with the layers of GPT-2 124M, of a small width, because kernels depend on
 * their number alone.  A replacement of NVRTC fills the cache once, and no card is
 * needed; what a driver needs to take the kernels is not in it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "t/bench/bench.h"

enum { RUNS_MAX = 101 };

static double compile(void)
{
    char command[600];
    snprintf(command, sizeof command,
             "./paceline compile %s/run.json --card sm_90 --json", bench_folder());
    FILE *from = popen(command, "re");
    json_t *result = from ? json_loadf(from, 0, NULL) : NULL;
    const json_t *seconds = json_object_get(result, "seconds");
    if (!from || pclose(from) != 0 || !seconds) {
        fprintf(stderr, "plans: %s failed\n", command);
        exit(1);
    }
    const double is = json_number_value(seconds);
    json_decref(result);
    return is;
}

/* Of a text that fills each batch, so that there is one plan to train. */
static void run_write(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/text.txt", bench_folder());
    FILE *text = fopen(path, "we");
    for (int k = 0; text && k < 129; k++)
        putc('a' + k % 26, text);
    snprintf(path, sizeof path, "%s/run.json", bench_folder());
    FILE *run = fopen(path, "we");
    if (text && run)
        fprintf(run,
                "{\"module\": {\"name\": \"gpt\", \"layers\": 12, \"heads\": 2, "
                "\"width\": 32}, \"data\": {\"name\": \"text\", \"path\": "
                "\"%s/text.txt\", \"context\": 16, \"batch_size\": 8}, \"optimizer\": "
                "\"adamw\", \"trainer\": {\"precision\": \"bf16-mixed\"}}",
                bench_folder());
    if (!text || !run || fclose(text) != 0 || fclose(run) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    const int runs = bench_runs(argc, argv, 11, RUNS_MAX);
    double ms[RUNS_MAX];
    setenv("PACELINE_CUDA_PATH", "t/stand_in/.libs", 1);
    setenv("XDG_CACHE_HOME", bench_folder(), 1);
    run_write();
    for (int k = -1; k < runs; k++)                        /* the first fills the cache */
        ms[k < 0 ? 0 : k] = compile() * 1e3;
    bench_limit("plans of 12 layers from the kernel cache", ms, runs, 500);
    return 0;
}
