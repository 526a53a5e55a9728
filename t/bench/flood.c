/* flood.c - what a flood of connections costs the steps of a run
 *
 *     flood [PAIRS]
 *
 * A stream is open on a port of loopback.  A process tries to connect to it some
 * thousand times a second, with idle processor time: a flood comes from outside, and
 * making it is no work of the run's.  Each connection says nothing or nonsense, and is
 * left half open until a thousand newer ones are there.  One fit on one thread
 * continues all the time; the flood comes and rests by turns of 200 ms, and counted
 * are the batches that the fit takes in each.  So short, because the machine's own
 * speed changes by more than a flood costs, in seconds. */
#include <netinet/in.h>
#include <pthread.h>
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

enum {
    SAMPLES = 6400,
    FEATURES = 784,
    CLASSES = 10,
    OPEN = 1000,
    A_SECOND = 5000,                       /* at most */
    WARM_BATCHES = 1000,                   /* batches until a fit goes at its own speed */
    TURN_MS = 200,
    MAX = 999,
};

const pl_registration_t *mlp_plugin(void);

/* ---- the flood ---- */

typedef struct flood {
    pid_t process;
    struct shared {
        int port;                                           /* 0: not known yet */
        long long connections;                              /* atomic */
    } * shared;
} flood_t;

static void connect_one(int *fd, const struct sockaddr_in *at, long long number)
{
    if (*fd > 0)
        close(*fd);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(*fd, (const struct sockaddr *)at, sizeof *at);
    if (number % 2)
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
        usleep(1000000 / A_SECOND);
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

static float images[SAMPLES][FEATURES];
static int64_t labels[SAMPLES];
static long long batches;                                   /* atomic */

static int read_samples(void *user, const pl_read_request_t *request, void *const field[],
                        pl_error_t *err)
{
    (void)user, (void)err;
    for (int k = 0; k < request->count; k++) {
        memcpy((float *)field[0] + (size_t)k * FEATURES, images[request->index[k]],
               sizeof images[0]);
        ((int64_t *)field[1])[k] = labels[request->index[k]];
    }
    __atomic_fetch_add(&batches, 1, __ATOMIC_RELAXED);
    return PL_OK;
}

static void data_register(void)
{
    pl_error_t err;
    for (int k = 0; k < SAMPLES; k++) {
        labels[k] = (int64_t)(pl_random_u64(2, (uint64_t)k) % CLASSES);
        for (int i = 0; i < FEATURES; i++)
            images[k][i] = (float)pl_random_uniform(1, (uint64_t)(k * FEATURES + i));
    }
    const pl_memory_data_t all = {.samples = SAMPLES,
                                  .field_count = 2,
                                  .field = {{"x", PL_F32, {1, {FEATURES}}},
                                            {"y", PL_I64, {0, {0}}}},
                                  .read = read_samples};
    bench_must(pl_memory_data("bench", &all, &err), &err);
}

static void fit(pl_engine_t *engine, int seconds)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"module\": {\"name\": \"mlp\", \"hidden\": [128], \"classes\": %d}, "
             "\"data\": {\"name\": \"memory\", \"source\": \"bench\", "
             "\"batch_size\": 64}, "
             "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.01}, \"loggers\": [], "
             "\"trainer\": {\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
             "\"enable_checkpointing\": false, \"max_epochs\": -1, "
             "\"max_time\": \"00:00:%02d:%02d\", \"default_root_dir\": \"%s\"}}",
             CLASSES, seconds / 60, seconds % 60, bench_folder());
    bench_fit(engine, text);
}

/* ---- turns ---- */

typedef struct turns {
    flood_t flood;
    int pairs;
    double *ratio;                                          /* [pairs] */
} turns_t;

/* Batches a second. */
static double turn(flood_t *flood, bool is_flooded)
{
    if (is_flooded)
        kill(flood->process, SIGCONT);
    const int64_t began = pl_now();
    const long long before = __atomic_load_n(&batches, __ATOMIC_RELAXED);
    usleep(TURN_MS * 1000);
    const long long taken = __atomic_load_n(&batches, __ATOMIC_RELAXED) - before;
    const double seconds = (double)(pl_now() - began) / 1e9;
    if (is_flooded)
        kill(flood->process, SIGSTOP);
    return (double)taken / seconds;
}

static void *turns_run(void *self)
{
    turns_t *turns = self;
    while (__atomic_load_n(&batches, __ATOMIC_RELAXED) < WARM_BATCHES)
        usleep(1000);
    for (int k = 0; k < turns->pairs; k++) {
        const double before = k % 2 ? turn(&turns->flood, false) : 0,
                     during = turn(&turns->flood, true),
                     rested = k % 2 ? before : turn(&turns->flood, false);
        turns->ratio[k] = during / rested;
    }
    return NULL;
}

static void report(turns_t *turns)
{
    double low, high;
    bench_interval(turns->ratio, turns->pairs, &low, &high);
    const double middle = bench_median(turns->ratio, turns->pairs);
    printf("{\"name\": \"fit mlp 1 thread, flood of connections\", \"against\": \"fit "
           "without\", \"ratio\": %.4f, \"interval\": [%.4f, %.4f], \"pairs\": %d, "
           "\"bar\": 0.99, \"holds\": %s}\n"
           "{\"name\": \"attempts a second to connect to a stream\", \"ours\": %.0f}\n",
           middle, low, high, turns->pairs, middle >= 0.99 ? "true" : "false",
           (double)turns->flood.shared->connections * 1e3 / TURN_MS / turns->pairs);
}

int main(int argc, char **argv)
{
    static double ratio[MAX];
    turns_t turns = {.pairs = bench_runs(argc, argv, 151, MAX), .ratio = ratio};
    pl_error_t err;
    pthread_t thread;
    flood_start(&turns.flood);
    bench_must(pl_init(&argc, &argv, mlp_plugin(), &err), &err);
    data_register();
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    bench_must(engine ? PL_OK : err.code, &err);
    bench_must(pl_engine_monitor(engine, "tcp://127.0.0.1:*", &err), &err);
    turns.flood.shared->port = atoi(strrchr(pl_engine_monitor_endpoint(engine), ':') + 1);
    pthread_create(&thread, NULL, turns_run, &turns);
    fit(engine, 3 + turns.pairs * 2 * TURN_MS / 1000);
    pthread_join(thread, NULL);
    report(&turns);
    flood_end(&turns.flood);
    pl_engine_free(engine);
    return 0;
}
