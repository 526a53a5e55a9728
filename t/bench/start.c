/* start.c - how long a run takes from exec to its first optimizer step
 *
 *     start [RUNS]
 *
 * `paceline fit` on the digits, files in the page cache.  The time of the first step is
 * what stands in the first line of metrics.jsonl, so the step is over and its metrics are
 * on their way to the disk by then.
 *
 * A run takes its defaults, so one rank alone has a thread for each core, and each of two
 * has fewer.  With several threads a product is cut, and a piece may go to a part of
 * oneDNN that makes all of its machine code when it is first run, which takes some 20 ms:
 * so two processes are not always the slower ones. */
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "t/bench/bench.h"

extern char **environ;
enum { RUNS_MAX = 101 };

static double wall_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A run, and what is measured of it. */
typedef struct start {
    const char *name, *launcher, *devices, *strategy;
    double limit;                                           /* ms */
} start_t;

static const start_t starts[] = {
    {"exec to first step, digits", "trainer.launcher=inline", "trainer.devices=1",
     "trainer.strategy=auto", 100},
    {"exec to first step, digits, 2 processes", "trainer.launcher=spawn",
     "trainer.devices=2", "trainer.strategy=ddp", 300},
};

static void fit(const start_t *start, const char *command, const char *run_file,
                const char *data, const char *root)
{
    char data_set[600], root_set[600];
    snprintf(data_set, sizeof data_set, "data.path=%s", data);
    snprintf(root_set, sizeof root_set, "trainer.default_root_dir=%s", root);
    const char *arguments[] = {command,
                               "fit",
                               run_file,
                               "--set",
                               data_set,
                               "--set",
                               root_set,
                               "--set",
                               "trainer.max_steps=1",
                               "--set",
                               "trainer.log_every_n_steps=1",
                               "--set",
                               start->launcher,
                               "--set",
                               start->devices,
                               "--set",
                               start->strategy,
                               NULL};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child;
    int status = 1;
    if (posix_spawn(&child, command, &files, NULL, (char **)arguments, environ) == 0)
        waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&files);
    if (status != 0) {
        fprintf(stderr, "start: %s fit %s failed\n", command, run_file);
        exit(1);
    }
}

static double first_step_time(const char *root)
{
    char path[512];
    snprintf(path, sizeof path, "%s/latest/metrics.jsonl", root);
    json_error_t why;
    char *whole = pl_run_path(path);
    json_t *line = json_load_file(whole, JSON_DISABLE_EOF_CHECK, &why);
    pl_text_free(whole);
    json_t *at = json_object_get(line, "time");
    if (!at) {
        fprintf(stderr, "start: no time in %s: %s\n", path, why.text);
        exit(1);
    }
    double time = json_number_value(at);
    json_decref(line);
    return time;
}

static void measure(const start_t *start, int runs, const char *run_file,
                    const char *data)
{
    double ms[RUNS_MAX];
    for (int k = -1; k < runs; k++) {             /* the first one warms the page cache */
        double began = wall_now();
        fit(start, "./paceline", run_file, data, bench_folder());
        ms[k < 0 ? 0 : k] = (first_step_time(bench_folder()) - began) * 1e3;
    }
    bench_limit(start->name, ms, runs, start->limit);
}

int main(int argc, char **argv)
{
    const int runs = bench_runs(argc, argv, 21, RUNS_MAX);
    bench_digits_t digits;
    for (size_t k = 0; k < sizeof starts / sizeof *starts; k++)
        if (bench_digits(&digits, starts[k].name))
            measure(&starts[k], runs, digits.run_file, digits.data);
    return 0;
}
