/* again.c - how long until a rank that was killed is noticed, and until all train again
 *
 *     again [RUNS]
 *
 * The command trains the digits on two ranks.  When it has saved a checkpoint rank 1 gets
 * SIGKILL.  It is noticed when the command says so, which is after all ranks have ended;
 * they train again when the first epoch after that is printed. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "t/bench/bench.h"

extern char **environ;
enum { RUNS_MAX = 101, WORDS = 24, LINE = 4096 };

typedef struct way {
    const char *name;
    const char *before[6], *set;                        /* words; an option */
    const char *mark;                                   /* in the environment of rank 1 */
} way_t;

static const way_t ways[] = {
    {"spawn", {"./paceline"}, "trainer.launcher=spawn", "PACELINE_BOOTSTRAP=1 "},
    {"launch",
     {"./paceline", "launch", "--devices", "2", "--", "./paceline"},
     "trainer.launcher=external",
     "PACELINE_RANK=1"},
};

typedef struct again {
    double noticed, trains;                                 /* ms */
} again_t;

static void fail(const char *why)
{
    fprintf(stderr, "again: %s\n", why);
    exit(1);
}

/* ---- rank 1 ---- */

static bool has_variable(int process, const char *mark)
{
    char path[64], text[16384];
    snprintf(path, sizeof path, "/proc/%d/environ", process);
    FILE *file = fopen(path, "re");
    const size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    bool found = false;
    text[size] = '\0';
    for (size_t at = 0; at < size && !found; at += strlen(text + at) + 1)
        found = !strncmp(text + at, mark, strlen(mark));
    if (file)
        fclose(file);
    return found;
}

static int parent_of(int process)
{
    char path[64], line[256] = "";
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "re");
    if (file && fgets(line, sizeof line, file) && strrchr(line, ')'))
        sscanf(strrchr(line, ')') + 1, " %*c %d", &parent);
    if (file)
        fclose(file);
    return parent;
}

static int child_find(int parent, const char *mark)
{
    DIR *all = opendir("/proc");
    int found = 0;
    for (const struct dirent *e; all && !found && (e = readdir(all));) {
        const int process = atoi(e->d_name);
        if (process > 0 && parent_of(process) == parent && has_variable(process, mark))
            found = process;
    }
    if (all)
        closedir(all);
    return found;
}

/* ---- a run ---- */

static int command_start(const way_t *way, const char *run_file, const char *data,
                         pid_t *child)
{
    char data_set[600], root_set[600];
    const char *words[WORDS];
    int count = 0, pipes[2];
    snprintf(data_set, sizeof data_set, "data.path=%s", data);
    snprintf(root_set, sizeof root_set, "trainer.default_root_dir=%s", bench_folder());
    const char *const sets[] = {
        data_set,
        root_set,
        way->set,
        "trainer.devices=2",
        "trainer.max_epochs=-1",
        "callbacks=[{\"name\": \"model_checkpoint\", \"every_n_train_steps\": 20}]"};
    for (int k = 0; k < 6 && way->before[k]; k++)
        words[count++] = way->before[k];
    words[count++] = "fit";
    words[count++] = run_file;
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
        words[count++] = "--set";
        words[count++] = sets[k];
    }
    words[count] = NULL;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    if (pipe2(pipes, O_CLOEXEC) != 0)
        fail("no pipe");
    posix_spawn_file_actions_adddup2(&files, pipes[1], STDERR_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(child, words[0], &files, NULL, (char **)words, environ) != 0)
        fail("./paceline cannot be started");
    posix_spawn_file_actions_destroy(&files);
    close(pipes[1]);
    return pipes[0];
}

static int64_t line_wait(FILE *said, const char *what)
{
    char line[LINE];
    while (fgets(line, sizeof line, said))
        if (strstr(line, what))
            return pl_now();
    fail(what);
    return 0;
}

static again_t again(const way_t *way, const char *run_file, const char *data)
{
    pid_t child;
    char rest[LINE];
    FILE *said = fdopen(command_start(way, run_file, data, &child), "r");
    line_wait(said, "saved step");
    const int rank = child_find(child, way->mark);
    if (!rank)
        fail("there is no rank 1");
    const int64_t began = pl_now();
    kill(rank, SIGKILL);
    const int64_t noticed = line_wait(said, "are started again");
    const int64_t trains = line_wait(said, "epoch ");
    kill(child, SIGTERM);
    while (fgets(rest, sizeof rest, said))
        ;
    fclose(said);
    waitpid(child, NULL, 0);
    return (again_t){(double)(noticed - began) / PL_MILLISECOND,
                     (double)(trains - began) / PL_MILLISECOND};
}

/* ---- metrics ---- */

static void reported(const char *what, const way_t *way, double *ms, int runs,
                     double limit)
{
    char name[80];
    snprintf(name, sizeof name, "%s, %s", what, way->name);
    bench_limit(name, ms, runs, limit);
}

static void measure(const way_t *way, int runs, const char *run_file, const char *data)
{
    double noticed[RUNS_MAX], trains[RUNS_MAX];
    for (int k = 0; k < runs; k++) {
        const again_t one = again(way, run_file, data);
        noticed[k] = one.noticed;
        trains[k] = one.trains;
    }
    reported("kill -9 of a rank to noticed, all ended", way, noticed, runs, 100);
    reported("kill -9 of a rank to training again", way, trains, runs, 2000);
}

int main(int argc, char **argv)
{
    const int runs = bench_runs(argc, argv, 7, RUNS_MAX);
    bench_digits_t digits;
    const bool there = bench_digits(&digits, "kill -9 of a rank");
    for (size_t k = 0; k < sizeof ways / sizeof *ways && there; k++)
        measure(&ways[k], runs, digits.run_file, digits.data);
    return 0;
}
