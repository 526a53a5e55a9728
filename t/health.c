/* health.c - tests of the answers of engine/telemetry/http.c at /healthz and /readyz:
 * whether all threads live, and whether work is taken
 *
 * The engine's thread is the test's here, which turns it or does not; the test
 * sets the time of the last sign of life of a thread back by ten seconds. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actor_rig.h"
#include "base/clock.h"
#include "runtime/monitor.h"
#include "telemetry/dashboard_parts.h"
#include "tap.h"

static pl_error_t err;

/* ---- a client ---- */

/* Connected to the port of "http://127.0.0.1:PORT/…", or -1. */
static int client_open(const char *url)
{
    const struct timeval max = {30, 0};
    const struct sockaddr_in there = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                      .sin_port =
                                          htons((uint16_t)atoi(strrchr(url, ':') + 1))};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &max, sizeof max);
    if (connect(fd, (const struct sockaddr *)&there, sizeof there) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The status of an answer, or 0; the whole of it in answer. */
static char answer[2048];

static int get(const char *url, const char *path)
{
    char request[128];
    size_t length = 0;
    int status = 0;
    const int fd = client_open(url);
    const int size =
        snprintf(request, sizeof request,
                 "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    ssize_t got = fd >= 0 && write(fd, request, (size_t)size) == size ? 1 : 0;
    while (got > 0 && length < sizeof answer - 1) {
        got = read(fd, answer + length, sizeof answer - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    answer[length] = '\0';
    if (fd >= 0)
        close(fd);
    return sscanf(answer, "HTTP/1.1 %d", &status) == 1 ? status : 0;
}

/* ---- a dashboard without an engine ---- */

static int nothing_is_carried_out(void *self, const char *request, size_t size,
                                  pl_on_reply_t on_reply, void *user, pl_error_t *error)
{
    (void)self, (void)request, (void)size, (void)on_reply, (void)user, (void)error;
    return PL_ESTATE;
}

static pl_run_view_t *view;

static pl_dashboard_t *show(void)
{
    const pl_commander_t commander = {.post = nothing_is_carried_out};
    view = pl_run_view_new(rig.runtime->began, NULL);
    pl_dashboard_t *d = pl_dashboard_start(rig.runtime, rig.reactor, &commander, view,
                                           "0", &err);
    ok(d, "a dashboard %s", err.text);
    return d;
}

static void show_no_more(pl_dashboard_t *d)
{
    pl_dashboard_stop(d);
    pl_monitor_stop(rig.runtime);
    pl_dashboard_free(d);
    pl_run_view_free(view);
    rig_close();
}

static void fall_silent(int64_t *pulse)
{
    __atomic_store_n(pulse, pl_now() - PULSE_SECONDS * PL_SECOND, __ATOMIC_RELAXED);
}

/* Whether the answer comes to that, while the engine's thread turns. */
static bool is_or_becomes(pl_dashboard_t *d, const char *path, int status)
{
    return eventually((rig_turn(), get(d->url, path) == status));
}

static void an_engine_whose_thread_is_silent_is_neither_healthy_nor_ready(void)
{
    rig_open();
    pl_dashboard_t *d = show();
    ok(is_or_becomes(d, "/healthz", 200), "an engine that lives is healthy: 200");
    like(answer, "\nok\ncontrol thread: ok\nhub: ok\nthreads of ranks: ok\n",
         "and says so");
    is_int(get(d->url, "/readyz"), 200, "and ready: 200");
    rig_turn();                                /* what the server has asked is answered */
    ok(eventually(__atomic_load_n(&d->is_asked, __ATOMIC_ACQUIRE)),
       "it is asked again, and turns no more");
    fall_silent(&d->control_pulse);
    is_int(get(d->url, "/healthz"), 503, "after ten seconds of silence: 503");
    like(answer, "\nfailed\ncontrol thread: silent\nhub: ok\nthreads of ranks: ok\n",
         "which names the thread");
    is_int(get(d->url, "/readyz"), 503, "nor does it take work: 503");
    like(answer, "\nnot ready\nruns: 0\n", "which is said");
    ok(is_or_becomes(d, "/healthz", 200), "when it turns again it is healthy");
    is_int(get(d->url, "/readyz"), 200, "and ready");
    show_no_more(d);
}

/* ---- a tap that does not come back ---- */

typedef struct gate {
    pthread_mutex_t lock;
    bool is_inside;                                         /* atomic */
} gate_t;

static void gate_record(void *self, const pl_tap_record_t *record)
{
    (void)record;
    gate_t *gate = self;
    __atomic_store_n(&gate->is_inside, true, __ATOMIC_RELEASE);
    pthread_mutex_lock(&gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_close(void *self)
{
    (void)self;
}

static const pl_tap_ops_t gate_ops = {.record = gate_record, .close = gate_close};

static void a_hub_that_is_silent_is_no_health(void)
{
    gate_t gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pl_address_t bee;
    rig_open();
    pl_dashboard_t *d = show();
    is_int(pl_tap_add(rig.runtime, &gate_ops, &gate, &err), PL_OK, "a tap");
    ok(is_or_becomes(d, "/healthz", 200), "a hub that turns is healthy");
    pthread_mutex_lock(&gate.lock);
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    rig_ask(bee, DO_REPLY);
    rig_wait(1);
    ok(eventually(__atomic_load_n(&gate.is_inside, __ATOMIC_ACQUIRE)),
       "one that waits in a tap");
    fall_silent(&d->hub_pulse);
    is_int(get(d->url, "/healthz"), 503, "is not, after ten seconds: 503");
    like(answer, "\nhub: silent\n", "which names it");
    pthread_mutex_unlock(&gate.lock);
    ok(is_or_becomes(d, "/healthz", 200), "and is again when it turns");
    show_no_more(d);
}

/* ---- engines that take nothing ---- */

static void an_engine_that_is_stuck_is_neither_healthy_nor_ready(void)
{
    pl_address_t boss;
    rig_open();
    rig.runtime->grace_ms = 20;
    pl_dashboard_t *d = show();
    const uint64_t life = rig_spawn(&boss_ops, PL_OWN_THREAD, "same", &boss);
    rig_order(boss, DO_STICK);
    pl_cancel(rig.queen, life);
    rig_wait(2);
    is_int(rig.queen->code, PL_ESTUCK, "a thread does not end: %s", rig.queen->text);
    is_int(get(d->url, "/healthz"), 503, "which is no health: 503");
    like(answer, "threads of ranks: one is stuck", "with the reason");
    is_int(get(d->url, "/readyz"), 503, "and no run is taken any more: 503");
    like(answer, "\nnot ready\nstuck, runs: 0\n", "for the same reason");
    rig_unstick();
    show_no_more(d);
}

static void an_engine_that_is_closing_is_not_ready(void)
{
    pl_engine_t *engine = pl_engine_new(NULL, &err);
    ok(engine && pl_engine_dashboard(engine, "0", &err) == PL_OK, "an engine %s",
       err.text);
    char url[256];
    snprintf(url, sizeof url, "%s", pl_engine_dashboard_url(engine));
    is_int(get(url, "/readyz"), 200, "it takes work: 200");
    pl_engine_close(engine, NULL, NULL);
    is_int(get(url, "/readyz"), 503, "when it is to close it does not: 503");
    like(answer, "\nnot ready\nclosing, runs: 0\n", "with the reason");
    is_int(get(url, "/healthz"), 200, "though it lives: 200");
    pl_engine_free(engine);
    is_int(get(url, "/readyz"), 0, "and no server is there when it has gone");
}

int main(void)
{
    run(an_engine_whose_thread_is_silent_is_neither_healthy_nor_ready);
    run(a_hub_that_is_silent_is_no_health);
    run(an_engine_that_is_stuck_is_neither_healthy_nor_ready);
    run(an_engine_that_is_closing_is_not_ready);
    return tap_done();
}
