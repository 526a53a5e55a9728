/* host.c - what the host's loop feels while the engine trains with all cores
 *
 *     host [SECONDS]
 *
 * A libevent host with a 10 ms timer of its own trains an MLP on all cores.  Printed: the
 * share of ticks that came, and how long pl_engine_dispatch() held the host's thread at a
 * time (p99.9). */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/random.h"
#include "t/bench/bench.h"

enum { TICK_MS = 10, HOLDS_MOST = 1 << 20, SAMPLES = 6400, FEATURES = 784 };

const pl_registration_t *mlp_plugin(void);

typedef struct host {
    struct event_base *base;
    pl_engine_t *engine;
    pl_trainer_t *trainer;
    int64_t began, ended;
    int ticks, holds;
    double *hold;                                           /* us */
    int reports;
} host_t;

static void tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    ((host_t *)user)->ticks++;
}

/* The engine without a base: the host watches its descriptor itself and so can look at
 * its watch. */
static void readable(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    host_t *h = user;
    int64_t began = pl_now();
    pl_engine_dispatch(h->engine);
    if (h->holds < HOLDS_MOST)
        h->hold[h->holds++] = (double)(pl_now() - began) / 1e3;
}

static void stop(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_trainer_stop(((host_t *)user)->trainer, "time is over", NULL);
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
    event_base_loopbreak(h->base);
}

static void data_make(void)
{
    static float x[SAMPLES * FEATURES];
    static int64_t y[SAMPLES];
    static pl_arrays_t arrays = {.samples = SAMPLES,
                                 .field_count = 2,
                                 .data = {x, y},
                                 .field = {{"x", PL_F32, {1, {FEATURES}}},
                                           {"y", PL_I64, {0, {0}}}}};
    pl_error_t err;
    for (size_t k = 0; k < sizeof x / sizeof *x; k++)
        x[k] = (float)pl_random_uniform(1, k);
    for (size_t k = 0; k < SAMPLES; k++)
        y[k] = (int64_t)(pl_random_u64(2, k) % 10);
    bench_must(pl_memory_arrays("bench", &arrays, &err), &err);
}

static void fit_start(host_t *h)
{
    pl_error_t err;
    char text[512];
    snprintf(
        text, sizeof text,
        "{\"module\": {\"name\": \"mlp\", \"hidden\": [512, 512], \"classes\": 10},"
        " \"data\": {\"name\": \"memory\", \"source\": \"bench\", \"batch_size\": 128},"
        " \"optimizer\": \"adamw\", \"trainer\": {\"max_epochs\": -1, "
        "\"default_root_dir\": \"%s\"}}",
        bench_folder());
    pl_options_t *options = pl_options_parse(text, "bench", &err);
    h->trainer = options ? pl_trainer_new(h->engine, options, &err) : NULL;
    bench_must(h->trainer ? PL_OK : err.code, &err);
    pl_trainer_on_progress(h->trainer, report, h);
    bench_must(pl_trainer_fit(h->trainer, done, h, &err), &err);
    pl_options_free(options);
}

int main(int argc, char **argv)
{
    int seconds = argc > 1 ? atoi(argv[1]) : 5;
    host_t h = {.base = event_base_new(),
                .hold = pl_alloc_array(HOLDS_MOST, sizeof(double))};
    pl_error_t err;
    bench_must(pl_init(&argc, &argv, mlp_plugin(), &err), &err);
    data_make();
    h.engine = pl_engine_new(NULL, &err);
    bench_must(h.engine ? PL_OK : err.code, &err);
    struct event *timer = event_new(h.base, -1, EV_PERSIST, tick, &h);
    struct event *watch = event_new(h.base, pl_engine_fd(h.engine), EV_READ | EV_PERSIST,
                                    readable, &h);
    event_add(timer, &(struct timeval){0, TICK_MS * 1000});
    event_add(watch, NULL);
    fit_start(&h);
    event_base_once(h.base, -1, EV_TIMEOUT, stop, &h, &(struct timeval){seconds, 0});
    h.began = pl_now();
    event_base_dispatch(h.base);
    double share = h.ticks / ((double)(h.ended - h.began) / 1e6 / TICK_MS);
    bench_median(h.hold, h.holds);                          /* sorts */
    double held = h.hold[(int)(0.999 * (h.holds - 1))];
    printf("{\"name\": \"host timer ticks\", \"unit\": \"share\", \"ours\": %.4f, "
           "\"against\": \"all\", \"theirs\": 1, "
           "\"ratio\": %.4f, \"bar\": 0.95, \"holds\": %s}\n",
           share, share, share >= 0.95 ? "true" : "false");
    printf("{\"name\": \"host thread held, p99.9\", \"unit\": \"us\", \"ours\": %.1f, "
           "\"against\": \"limit\", "
           "\"theirs\": 200, \"ratio\": %.2f, \"bar\": 1, \"holds\": %s}\n",
           held, 200 / held, held <= 200 ? "true" : "false");
    event_free(timer);
    event_free(watch);
    pl_engine_free(h.engine);
    event_base_free(h.base);
    pl_free(h.hold);
    return 0;
}
