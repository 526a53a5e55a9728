/* save.c - what saving 500 MB costs a run, and how soon it resumes from them
 *
 *     save [ROUNDS]
 *
 * Parameters of an embedding and Adam's two tensors for each of them; all but a few are
 * frozen, so that a step takes no time beside a save.  A callback of ours is asked after
 * each step.  Stall: from its request for a save until it is asked after the next step,
 * held against one copy of as many bytes by one thread, in memory that was used before.
 * Throughput: from the request until the checkpoint has its name, in turns with dd. 
 * Resume: from exec to the first step, in turns with dd that reads each file into memory
 * in one piece, with the files in the page cache and, where it can be dropped, on the
 * disk.  The two that take turns change places each time, and the ratio is the pairs'
 * median: the machine is quick and slow in phases. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "t/bench/bench.h"

enum { ROWS = 40690, WIDTH = 1024, BYTES = 3 * ROWS * WIDTH * 4, ROUNDS_MAX = 31 };
extern char **environ;

static void *must_have(void *memory)
{
    bench_must(memory ? PL_OK : PL_ENOMEM, NULL);
    return memory;
}

/* ---- the run ---- */

static void ballast_step(pl_graph_t *g, const void *self, pl_stage_t stage)
{
    (void)self, (void)stage;
    pl_node_t x = pl_embedding(g, "big", pl_input(g, "x"), ROWS, WIDTH, pl_uniform(0.1));
    pl_loss(g, pl_cross_entropy(g, pl_linear(g, "head", x, 10), pl_input(g, "y"), NULL));
}

static const pl_module_ops_t ballast = {.name = "ballast", .step = ballast_step};

static int read_samples(void *user, const pl_read_request_t *request, void *const field[],
                        pl_error_t *err)
{
    (void)user, (void)err;
    for (int k = 0; k < request->count; k++)
        ((int64_t *)field[0])[k] = ((int64_t *)field[1])[k] = request->index[k] % 10;
    return PL_OK;
}

typedef enum phase {
    PHASE_BEGIN,
    PHASE_STALLED,                                  /* a save was requested */
    PHASE_WRITING,                                  /* it is not yet durable */
    PHASE_SECOND,                                   /* one more, behind one that is not */
    PHASE_RESUMED                                   /* another process: the first step */
} phase_t;

static struct {
    phase_t phase;
    int rounds, round;
    int64_t began, requested;
    char *from, *to;                                        /* [BYTES] */
    double copy[ROUNDS_MAX], stall[ROUNDS_MAX];             /* ms */
    double saving[ROUNDS_MAX], dd[ROUNDS_MAX];              /* s */
    double second;                                          /* ms */
} probe;

/* Seconds of a command. */
static double command_run(const char *format, ...) PL_PRINTF(1, 2);

static double command_run(const char *format, ...)
{
    char command[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    const char *arguments[] = {"sh", "-c", command, NULL};
    pid_t child;
    int status = 1;
    int64_t began = pl_now();
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, (char **)arguments, environ) == 0)
        waitpid(child, &status, 0);
    if (status != 0)
        fprintf(stderr, "save: %s failed\n", command);
    return (double)(pl_now() - began) / 1e9;
}

static const char *checkpoint_path(int number)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/run/checkpoints/s%d", bench_folder(), number);
    return path;
}

static void copy_measure(void)
{
    int64_t began = pl_now();
    memcpy(probe.to, probe.from, BYTES);
    probe.copy[probe.round] = (double)(pl_now() - began) / 1e6;
}

static void dd_measure(void)
{
    probe.dd[probe.round] = command_run("dd if=/dev/zero of=%s/dd bs=1M count=%d "
                                        "conv=fsync status=none",
                                        bench_folder(), BYTES >> 20);
    command_run("rm %s/dd; sync", bench_folder());
}

static void save_request(pl_callback_request_t *request, phase_t next)
{
    snprintf(request->save, sizeof request->save, "s%d", probe.round);
    probe.phase = next;
    probe.requested = pl_now();
}

static void round_begin(pl_callback_request_t *request)
{
    copy_measure();
    if (probe.round % 2 == 0)
        dd_measure();
    save_request(request, PHASE_STALLED);
}

/* Looked for without a step in between: the disk has the machine for itself. */
static void durable_wait(int number)
{
    while (access(checkpoint_path(number), F_OK) != 0)
        usleep(200);
}

static void round_end(pl_callback_request_t *request)
{
    durable_wait(probe.round);
    probe.saving[probe.round] = (double)(pl_now() - probe.requested) / 1e9;
    if (probe.round % 2)
        dd_measure();
    probe.round++;
    if (probe.round < probe.rounds)
        round_begin(request);
    else
        save_request(request, PHASE_WRITING);
}

static int probe_on(void *self, pl_hook_t point, const pl_hook_event_t *event,
                    pl_callback_request_t *request, pl_error_t *err)
{
    (void)self, (void)point, (void)event, (void)err;
    double since = (double)(pl_now() - probe.requested) / 1e6;
    if (probe.phase == PHASE_RESUMED) {
        printf("%lld\n", (long long)pl_now());
        fflush(stdout);
        _exit(0);
    } else if (probe.phase == PHASE_BEGIN && pl_now() - probe.began > PL_SECOND * 2) {
        round_begin(request);
    } else if (probe.phase == PHASE_STALLED) {
        probe.stall[probe.round] = since;
        round_end(request);
    } else if (probe.phase == PHASE_WRITING) {
        probe.round++;
        save_request(request, PHASE_SECOND);
    } else if (probe.phase == PHASE_SECOND) {
        probe.second = since;
        durable_wait(probe.round);
        request->stop = true;
    }
    return PL_OK;
}

static const pl_callback_ops_t probe_callback = {
    .name = "probe",
    .size = 1,
    .points = PL_AT(TRAIN_BATCH_END),
    .requests = PL_MAY_SAVE,
    .on = probe_on,
};

static void fit_done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    *(bool *)user = true;
    bench_must(strcmp(result->status, "failed") ? PL_OK : result->error.code,
               &result->error);
}

/* A run in FOLDER/run; or on from a checkpoint. */
static void train(const char *folder, const char *from)
{
    static const pl_memory_data_t data = {.samples = 1 << 20,
                                          .field_count = 2,
                                          .field = {{"x", PL_I64, {0, {0}}},
                                                    {"y", PL_I64, {0, {0}}}},
                                          .read = read_samples};
    char text[1024];
    pl_error_t err = {0};
    bool done = false;
    snprintf(text, sizeof text,
             "{\"module\": {\"name\": \"ballast\"}, \"optimizer\": {\"name\": \"adam\"},"
             " \"data\": {\"name\": \"memory\", \"source\": \"bench\", \"batch_size\": "
             "8},"
             " \"callbacks\": [{\"name\": \"probe\"}], \"loggers\": [],"
             " \"trainer\": {\"run_name\": \"run\", \"freeze\": \"big.weight\","
             " \"enable_model_summary\": false, \"default_root_dir\": \"%s\"}}",
             folder);
    bench_must(pl_memory_data("bench", &data, &err), &err);
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    pl_options_t *options = engine ? pl_options_parse(text, "bench", &err) : NULL;
    pl_trainer_t *trainer = options ? pl_trainer_new(engine, options, &err) : NULL;
    bench_must(trainer ? PL_OK : err.code, &err);
    probe.began = pl_now();
    bench_must(from ? pl_trainer_resume(trainer, from, fit_done, &done, &err)
                    : pl_trainer_fit(trainer, fit_done, &done, &err),
               &err);
    bench_must(pl_engine_run_until(engine, &done, &err), &err);
    pl_trainer_free(trainer);
    pl_options_free(options);
    pl_engine_free(engine);
}

/* ---- resume ---- */

/* Seconds from exec until the process says that it has made a step. */
static double resume_measure(const char *self)
{
    const char *arguments[] = {self, "--resume", bench_folder(),
                               checkpoint_path(probe.round), NULL};
    posix_spawn_file_actions_t files;
    pid_t child;
    int out[2], status = 1;
    long long first = 0;
    bench_must(pipe(out) == 0 ? PL_OK : PL_EIO, NULL);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    int64_t began = pl_now();
    if (posix_spawn(&child, self, &files, NULL, (char **)arguments, environ) != 0)
        bench_must(PL_EIO, NULL);
    close(out[1]);
    FILE *reported = fdopen(out[0], "r");
    if (!reported || fscanf(reported, "%lld", &first) != 1)
        fprintf(stderr, "save: the run did not resume\n");
    if (reported)
        fclose(reported);
    waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&files);
    if (status != 0)
        exit(1);
    return (double)(first - began) / 1e9;
}

static bool cache_drop(void)
{
    sync();
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    bool dropped = fd >= 0 && write(fd, "1\n", 2) == 2;
    if (fd >= 0)
        close(fd);
    return dropped;
}

static double read_measure(void)
{
    return command_run("for f in %s/*; do dd if=$f of=/dev/null bs=1G iflag=fullblock "
                       "status=none; done",
                       checkpoint_path(probe.round));
}

/* ---- reports ---- */

static void report(const char *name, const char *unit, double ours, const char *against,
                   double theirs, double ratio, double bar)
{
    printf("{\"name\": \"%s\", \"unit\": \"%s\", \"ours\": %.1f, \"against\": \"%s\", "
           "\"theirs\": %.1f, \"ratio\": %.2f, \"bar\": %.2f, \"holds\": %s}\n",
           name, unit, ours, against, theirs, ratio, bar,
           ratio >= bar ? "true" : "false");
    fflush(stdout);
}

static void resume_report(const char *self, int rounds, bool cold)
{
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX], ratio[ROUNDS_MAX];
    if (cold && !cache_drop()) {
        printf("{\"name\": \"resume of 500 MB, cold\", \"skipped\": \"the page cache "
               "cannot be dropped\"}\n");
        return;
    }
    if (!cold)
        read_measure();                           /* a save leaves it on the disk alone */
    for (int k = 0; k < 2 * rounds; k++) {
        if (cold)
            cache_drop();
        if (k % 4 == 0 || k % 4 == 3)
            theirs[k / 2] = read_measure();
        else
            ours[k / 2] = resume_measure(self);
    }
    for (int k = 0; k < rounds; k++)
        ratio[k] = theirs[k] / ours[k];
    report(cold ? "exec to first step from 500 MB, cold"
                : "exec to first step from 500 MB, warm",
           "ms", 1e3 * bench_median(ours, rounds), "dd",
           1e3 * bench_median(theirs, rounds), bench_median(ratio, rounds), 1 / 1.5);
}

static void save_report(void)
{
    double first = probe.stall[0], copy = bench_median(probe.copy, probe.rounds);
    double stall = bench_median(probe.stall, probe.rounds);
    double ratio[ROUNDS_MAX];
    for (int k = 0; k < probe.rounds; k++)
        ratio[k] = probe.dd[k] / probe.saving[k];
    report("stall of the first save of 500 MB", "ms", first, "a copy + 5 ms", copy + 5,
           (copy + 5) / first, 1);
    report("stall of a save of 500 MB", "ms", stall, "a copy + 5 ms", copy + 5,
           (copy + 5) / stall, 1);
    printf("{\"name\": \"stall of a save behind another\", \"unit\": \"ms\", \"ours\": "
           "%.1f}\n",
           probe.second);
    printf("{\"name\": \"save of 500 MB\", \"unit\": \"MB/s\", \"ours\": %.0f, "
           "\"against\": \"dd conv=fsync\", \"theirs\": %.0f, \"ratio\": %.2f, "
           "\"pairs\": %d, \"bar\": 0.8, ",
           BYTES / 1e6 / bench_median(probe.saving, probe.rounds),
           BYTES / 1e6 / bench_median(probe.dd, probe.rounds),
           bench_median(ratio, probe.rounds), probe.rounds);
    printf("\"holds\": %s}\n",
           bench_median(ratio, probe.rounds) >= 0.8 ? "true" : "false");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const pl_registration_t components[] = {{"module", &ballast},
                                                   {"callback", &probe_callback},
                                                   PL_REGISTRATIONS_END};
    pl_error_t err;
    bool resumes = argc > 3 && !strcmp(argv[1], "--resume");
    bench_must(pl_init(&argc, &argv, components, &err), &err);
    if (resumes) {
        probe.phase = PHASE_RESUMED;
        train(argv[2], argv[3]);
        return 1;
    }
    int rounds = argc > 1 ? atoi(argv[1]) : 7;
    probe.rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    probe.from = memset(must_have(pl_alloc(BYTES)), 1, BYTES);
    probe.to = memset(must_have(pl_alloc(BYTES)), 1, BYTES);
    train(bench_folder(), NULL);
    save_report();
    resume_report(argv[0], probe.rounds, false);
    resume_report(argv[0], probe.rounds, true);
    pl_free(probe.from);
    pl_free(probe.to);
    return 0;
}
