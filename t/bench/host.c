/* host.c - what the host's loop feels while four trainers keep all cores busy
 *
 *     host [SECONDS]
 *
 * A libevent host with a timer of 2 ms trains four MLPs at once, each with a thread that
 * computes, on epochs as long as MNIST's: each saves a checkpoint every few seconds, as
 * people's runs do.  Printed: the share of ticks that came, how late they were (p99,
 * p99.9), and how long pl_engine_dispatch() held the host's thread at a time (p99.9), and
 * of its processor time the longest, also of calls that begin and stop runs: the rest is
 * of other threads.  How late they are is the system's doing too: "theirs" is the same
 * timer beside four threads that only count.  Without a limit: what calls take that a
 * program makes before it serves, and when it has. */
#include <event2/event.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/random.h"
#include "t/bench/bench.h"

enum { TRAINERS = 4, TICK_US = 2000, SECONDS = 20, COUNTERS_SECONDS = 5, MAX = 1 << 20 };
enum { SAMPLES = 60000, MADE = 6000, FEATURES = 784 };      /* others repeat those made */

const pl_registration_t *mlp_plugin(void);

/* Times of one sort. */
typedef struct times {
    int count;
    double *us;
} times_t;

typedef struct host {
    struct event_base *base;
    pl_engine_t *engine;
    pl_trainer_t *trainer[TRAINERS];
    int timer;                                             /* descriptor */
    int64_t due, began, ended;                             /* of the timer; of the runs */
    int ticks, reports, done;
    times_t late, held;
    double longest_us;                                    /* processor time of one call */
    const char *longest;                                  /* which */
} host_t;

static void times_add(times_t *times, int64_t ns)
{
    if (times->count < MAX)
        times->us[times->count++] = (double)ns / 1e3;
}

static double times_at(times_t *times, double share)
{
    bench_median(times->us, times->count);                  /* sorts */
    return times->count ? times->us[(int)(share * (times->count - 1))] : NAN;
}

static int64_t own_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * PL_SECOND + t.tv_nsec;
}

static void called(host_t *h, const char *call, int64_t began)
{
    const double us = (double)(own_time() - began) / 1e3;
    if (us <= h->longest_us)
        return;
    h->longest_us = us;
    h->longest = call;
}

/* ---- a timer ---- */

/* Each that was due is as late as it is. */
static void tick(evutil_socket_t fd, short what, void *user)
{
    (void)what;
    host_t *h = user;
    uint64_t expired = 0;
    const int64_t now = pl_now();
    if (read(fd, &expired, sizeof expired) != sizeof expired)
        return;
    h->ticks++;
    for (; expired; expired--, h->due += TICK_US * 1000)
        times_add(&h->late, now - h->due);
}

static struct event *timer_start(host_t *h)
{
    const struct itimerspec interval = {{0, TICK_US * 1000}, {0, TICK_US * 1000}};
    h->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct event *event = event_new(h->base, h->timer, EV_READ | EV_PERSIST, tick, h);
    event_add(event, NULL);
    timerfd_settime(h->timer, 0, &interval, NULL);
    h->due = pl_now() + TICK_US * 1000;
    h->ticks = h->late.count = 0;
    return event;
}

static void timer_stop(host_t *h, struct event *event)
{
    event_free(event);
    close(h->timer);
}

/* ---- threads that only count ---- */

static int counters_end;                                    /* atomic */

static void *counter(void *user)
{
    volatile double sum = 0;
    (void)user;
    while (!__atomic_load_n(&counters_end, __ATOMIC_RELAXED))
        sum = sum + 1;
    return NULL;
}

static void late_beside_counters(host_t *h, int seconds, double late[2])
{
    pthread_t thread[TRAINERS];
    for (int k = 0; k < TRAINERS; k++)
        pthread_create(&thread[k], NULL, counter, NULL);
    struct event *event = timer_start(h);
    event_base_loopexit(h->base, &(struct timeval){seconds, 0});
    event_base_dispatch(h->base);
    timer_stop(h, event);
    __atomic_store_n(&counters_end, 1, __ATOMIC_RELAXED);
    for (int k = 0; k < TRAINERS; k++)
        pthread_join(thread[k], NULL);
    late[0] = times_at(&h->late, 0.99);
    late[1] = times_at(&h->late, 0.999);
}

/* ---- trainers ---- */

/* The engine without a base: the host watches its descriptor itself and so can look at
 * its watch. */
static void readable(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    host_t *h = user;
    const int64_t began = pl_now(), own = own_time();
    pl_engine_dispatch(h->engine);
    called(h, "pl_engine_dispatch", own);
    times_add(&h->held, pl_now() - began);
}

static void stop(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    host_t *h = user;
    for (int k = 0; k < TRAINERS; k++) {
        const int64_t own = own_time();
        pl_trainer_stop(h->trainer[k], "time is over", NULL);
        called(h, "pl_trainer_stop", own);
    }
}

static void report(pl_trainer_t *trainer, const pl_progress_t *progress, void *user)
{
    (void)trainer, (void)progress;
    ((host_t *)user)->reports++;
}

static void done(pl_trainer_t *trainer, const pl_result_t *result, void *user)
{
    (void)trainer;
    host_t *h = user;
    bench_must(strcmp(result->status, "failed") ? PL_OK : result->error.code,
               &result->error);
    h->ended = pl_now();
    if (++h->done == TRAINERS)
        event_base_loopbreak(h->base);
}

static void data_make(void)
{
    float *x = pl_alloc_array((size_t)SAMPLES * FEATURES, sizeof *x);
    int64_t *y = pl_alloc_array(SAMPLES, sizeof *y);
    const pl_arrays_t arrays = {.samples = SAMPLES,
                                .field_count = 2,
                                .data = {x, y},
                                .field = {{"x", PL_F32, {1, {FEATURES}}},
                                          {"y", PL_I64, {0, {0}}}}};
    pl_error_t err;
    for (size_t k = 0; k < (size_t)MADE * FEATURES; k++)
        x[k] = (float)pl_random_uniform(1, k);
    for (size_t k = MADE; k < SAMPLES; k += MADE)
        memcpy(x + k * FEATURES, x, (size_t)MADE * FEATURES * sizeof *x);
    for (size_t k = 0; k < SAMPLES; k++)
        y[k] = (int64_t)(pl_random_u64(2, k) % 10);
    bench_must(pl_memory_arrays("bench", &arrays, &err), &err);
}

static void fits_start(host_t *h)
{
    pl_error_t err;
    char text[512];
    snprintf(
        text, sizeof text,
        "{\"module\": {\"name\": \"mlp\", \"hidden\": [512, 512], \"classes\": 10},"
        " \"data\": {\"name\": \"memory\", \"source\": \"bench\", \"batch_size\": 128},"
        " \"optimizer\": \"adamw\", \"trainer\": {\"max_epochs\": -1, "
        "\"accelerator\": {\"name\": \"cpu\", \"threads\": 1}, "
        "\"default_root_dir\": \"%s\"}}",
        bench_folder());
    pl_options_t *options = pl_options_parse(text, "bench", &err);
    bench_must(options ? PL_OK : err.code, &err);
    for (int k = 0; k < TRAINERS; k++) {
        int64_t own = own_time();
        h->trainer[k] = pl_trainer_new(h->engine, options, &err);
        called(h, "pl_trainer_new", own);
        bench_must(h->trainer[k] ? PL_OK : err.code, &err);
        pl_trainer_on_progress(h->trainer[k], report, h);
        own = own_time();
        bench_must(pl_trainer_fit(h->trainer[k], done, h, &err), &err);
        called(h, "pl_trainer_fit", own);
    }
    pl_options_free(options);
}

static void late_beside_trainers(host_t *h, int seconds, double late[2])
{
    pl_error_t err;
    h->engine = pl_engine_new(NULL, &err);
    bench_must(h->engine ? PL_OK : err.code, &err);
    struct event *watch = event_new(h->base, pl_engine_fd(h->engine),
                                    EV_READ | EV_PERSIST, readable, h);
    event_add(watch, NULL);
    fits_start(h);
    struct event *event = timer_start(h);
    event_base_once(h->base, -1, EV_TIMEOUT, stop, h, &(struct timeval){seconds, 0});
    h->began = pl_now();
    event_base_dispatch(h->base);
    timer_stop(h, event);
    event_free(watch);
    pl_engine_free(h->engine);
    late[0] = times_at(&h->late, 0.99);
    late[1] = times_at(&h->late, 0.999);
}

/* ---- calls that an engine's life begins and ends with ---- */

enum { NEW, MONITOR, DASHBOARD, JOURNAL, TRACE, FREE, LIFE_CALLS };

static const char *const life_calls[LIFE_CALLS] = {[NEW] = "pl_engine_new",
                                                   [MONITOR] = "pl_engine_monitor",
                                                   [DASHBOARD] = "pl_engine_dashboard",
                                                   [JOURNAL] = "pl_engine_journal",
                                                   [TRACE] = "pl_engine_trace",
                                                   [FREE] = "pl_engine_free"};

/* Of each call, of this life. */
static void life(double us[LIFE_CALLS])
{
    char at[3][300];
    pl_error_t err = {0};
    static const char *const forms[] = {"ipc://%s/m", "%s/journal", "%s/trace"};
    for (int k = 0; k < 3; k++)
        snprintf(at[k], sizeof at[k], forms[k], bench_folder());
    int64_t since = pl_now();
    pl_engine_t *engine = NULL;
    for (int k = 0; k < LIFE_CALLS; k++) {
        int code = PL_OK;
        switch (k) {
        case NEW: code = (engine = pl_engine_new(NULL, &err)) ? PL_OK : err.code; break;
        case MONITOR: code = pl_engine_monitor(engine, at[0], &err); break;
        case DASHBOARD: code = pl_engine_dashboard(engine, "0", &err); break;
        case JOURNAL: code = pl_engine_journal(engine, at[1], &err); break;
        case TRACE: code = pl_engine_trace(engine, at[2], &err); break;
        default: pl_engine_free(engine);
        }
        bench_must(code, &err);
        const int64_t now = pl_now();
        us[k] = (double)(now - since) / 1e3;
        since = now;
    }
}

static void lives_tell(void)
{
    enum { ROUNDS = 15 };
    double us[LIFE_CALLS], all[LIFE_CALLS][ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        life(us);
        for (int k = 0; k < LIFE_CALLS; k++)
            all[k][round] = us[k];
    }
    for (int k = 0; k < LIFE_CALLS; k++)
        printf("{\"name\": \"before and behind all work: %s\", \"unit\": \"us\", "
               "\"ours\": %.0f}\n",
               life_calls[k], bench_median(all[k], ROUNDS));
}

/* ---- lines ---- */

static void line_of(const char *name, double us, double limit, double otherwise)
{
    printf("{\"name\": \"%s\", \"unit\": \"us\", \"ours\": %.1f, \"against\": \"limit\", "
           "\"theirs\": %.0f, \"ratio\": %.2f, \"bar\": 1, \"holds\": %s",
           name, us, limit, limit / us, us <= limit ? "true" : "false");
    if (isfinite(otherwise))
        printf(", \"beside four that count\": %.1f", otherwise);
    printf("}\n");
}

int main(int argc, char **argv)
{
    const int seconds = argc > 1 ? atoi(argv[1]) : SECONDS;
    host_t h = {.base = event_base_new(),
                .late = {.us = pl_alloc_array(MAX, sizeof(double))},
                .held = {.us = pl_alloc_array(MAX, sizeof(double))}};
    pl_error_t err;
    double alone[2], late[2];
    bench_must(pl_init(&argc, &argv, mlp_plugin(), &err), &err);
    data_make();
    late_beside_counters(&h, COUNTERS_SECONDS, alone);
    late_beside_trainers(&h, seconds, late);
    const double share = h.ticks / ((double)(h.ended - h.began) / 1e3 / TICK_US);
    printf("{\"name\": \"host timer ticks\", \"unit\": \"share\", \"ours\": %.4f, "
           "\"against\": \"all\", \"theirs\": 1, "
           "\"ratio\": %.4f, \"bar\": 0.95, \"holds\": %s}\n",
           share, share, share >= 0.95 ? "true" : "false");
    line_of("host loop late with four trainers, p99", late[0], 1000, alone[0]);
    line_of("host loop late with four trainers, p99.9", late[1], 5000, alone[1]);
    line_of("host thread held, p99.9", times_at(&h.held, 0.999), 200, NAN);
    char name[80];
    snprintf(name, sizeof name, "host thread held, longest own time: %s", h.longest);
    line_of(name, h.longest_us, 200, NAN);
    lives_tell();
    event_base_free(h.base);
    pl_free(h.late.us);
    pl_free(h.held.us);
    return 0;
}
