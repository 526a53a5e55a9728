/* flood.c - what a flood of connections costs the steps of a run
 *
 *     flood [PAIRS]
 *
 * A stream is open on a port of loopback.  A process makes connections to it, as many as
 * it can with the processor time that nobody else wants; each says nothing or nonsense,
 * and each is left half open until a thousand newer ones are there.  A fit on one thread
 * during the flood against a fit while it rests; they take turns. */
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "t/bench/bench.h"

enum { SAMPLES = 6400, FEATURES = 784, CLASSES = 10, OPEN = 1000, STEPS = 6000 };

const pl_registration_t *mlp_plugin(void);

/* ---- the flood ---- */

typedef struct flood {
    pid_t process;
    struct shared {
        int port;                                           /* 0: not known yet */
        long long connections;                              /* atomic */
    } *shared;
} flood_t;

static void connect_one(int *fd, const struct sockaddr_in *at, long long number)
{
    if (*fd > 0)
        close(*fd);
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(*fd, (const struct sockaddr *)at, sizeof *at) == 0 && number % 2)
        send(*fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
}

static void flood_main(struct shared *shared)
{
    static int fd[OPEN];
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
    raise(SIGSTOP);
    at.sin_port = htons((uint16_t)shared->port);
    for (long long k = 0;; k++) {
        connect_one(&fd[k % OPEN], &at, k);
        __atomic_store_n(&shared->connections, k + 1, __ATOMIC_RELAXED);
    }
}

/* Before any thread is made. */
static void flood_start(flood_t *flood)
{
    int status;
    flood->shared = mmap(NULL, sizeof *flood->shared, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    flood->process = fork();
    if (flood->process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        flood_main(flood->shared);
    }
    waitpid(flood->process, &status, WUNTRACED);
}

static void flood_end(flood_t *flood)
{
    kill(flood->process, SIGKILL);
    waitpid(flood->process, NULL, 0);
    munmap(flood->shared, sizeof *flood->shared);
}

/* ---- the fit ---- */

static void data_register(void)
{
    static float images[SAMPLES][FEATURES];
    static int64_t labels[SAMPLES];
    pl_error_t err;
    for (int k = 0; k < SAMPLES; k++) {
        labels[k] = (int64_t)(pl_random_u64(2, (uint64_t)k) % CLASSES);
        for (int i = 0; i < FEATURES; i++)
            images[k][i] = (float)pl_random_uniform(1, (uint64_t)(k * FEATURES + i));
    }
    const pl_arrays_t all = {.samples = SAMPLES,
                             .field_count = 2,
                             .field = {{"x", PL_F32, {1, {FEATURES}}},
                                       {"y", PL_I64, {0, {0}}}},
                             .data = {images, labels}};
    bench_must(pl_memory_arrays("bench", &all, &err), &err);
}

static double fit(pl_engine_t *engine)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"module\": {\"name\": \"mlp\", \"hidden\": [128], \"classes\": %d}, "
             "\"data\": {\"name\": \"memory\", \"source\": \"bench\", "
             "\"batch_size\": 64}, "
             "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.01}, \"loggers\": [], "
             "\"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
             "\"enable_checkpointing\": false, \"max_steps\": %d, "
             "\"default_root_dir\": \"%s\"}}",
             CLASSES, STEPS, bench_folder());
    return bench_fit(engine, text);
}

static double fit_flooded(pl_engine_t *engine, flood_t *flood)
{
    kill(flood->process, SIGCONT);
    const double seconds = fit(engine);
    kill(flood->process, SIGSTOP);
    return seconds;
}

static void report(flood_t *flood, double *ratio, int pairs, double seconds)
{
    double low, high;
    bench_interval(ratio, pairs, &low, &high);
    const double middle = bench_median(ratio, pairs);
    printf("{\"name\": \"fit mlp 1 thread, flood of connections\", \"against\": \"fit "
           "without\", \"ratio\": %.4f, \"interval\": [%.4f, %.4f], \"pairs\": %d, "
           "\"bar\": 0.99, \"holds\": %s}\n"
           "{\"name\": \"connections a second to the port of a stream\", \"ours\": "
           "%.0f}\n",
           middle, low, high, pairs, middle >= 0.99 ? "true" : "false",
           (double)flood->shared->connections / seconds);
}

int main(int argc, char **argv)
{
    double ratio[99], seconds = 0;
    const int pairs = bench_runs(argc, argv, 31, 99);
    pl_error_t err;
    flood_t flood;
    flood_start(&flood);
    bench_must(pl_init(&argc, &argv, mlp_plugin(), &err), &err);
    data_register();
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    bench_must(engine ? PL_OK : err.code, &err);
    bench_must(pl_engine_monitor(engine, "tcp://127.0.0.1:*", &err), &err);
    flood.shared->port = atoi(strrchr(pl_engine_monitor_endpoint(engine), ':') + 1);
    fit(engine);
    for (int k = 0; k < pairs; k++) {
        const double before = k % 2 ? fit(engine) : 0,
                     during = fit_flooded(engine, &flood),
                     rested = k % 2 ? before : fit(engine);
        ratio[k] = rested / during;
        seconds += during;
    }
    report(&flood, ratio, pairs, seconds);
    flood_end(&flood);
    pl_engine_free(engine);
    return 0;
}
