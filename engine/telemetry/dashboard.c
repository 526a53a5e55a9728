/* dashboard.c - a page that shows the runs of an engine: the life of its server
 *
 * Three threads meet here and none waits for another: the hub writes to the run view, any
 * thread writes log lines, and the server reads on its own thread. */
#include "telemetry/dashboard.h"

#include <event2/listener.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/monitor.h"
#include "telemetry/dashboard_parts.h"

/* ---- what the run view gets ---- */

/* While the topic "state" has subscribers, its tap brings the view the messages. */
static void tap_record(void *self, const pl_tap_record_t *record)
{
    pl_run_view_t *view = ((pl_dashboard_t *)self)->view;
    if (!pl_run_view_is_fed(view))
        pl_run_view_record(view, record);
}

static void tap_gap(void *self, int rank, uint64_t count)
{
    (void)rank;
    pl_run_view_t *view = ((pl_dashboard_t *)self)->view;
    if (!pl_run_view_is_fed(view))
        pl_run_view_gap(view, count);
}

static void tap_tick(void *self)
{
    __atomic_store_n(&((pl_dashboard_t *)self)->hub_pulse, pl_now(), __ATOMIC_RELAXED);
}

static void log_came(pl_log_level_t level, int rank, const char *actor, const char *text,
                     void *user)
{
    pl_run_view_log(((pl_dashboard_t *)user)->view, level, rank, actor, text);
}

/* ---- the server's clock ---- */

/* The engine's thread. */
static void control_beats(void *argument)
{
    pl_dashboard_t *d = argument;
    __atomic_store_n(&d->control_pulse, pl_now(), __ATOMIC_RELAXED);
    __atomic_store_n(&d->is_asked, false, __ATOMIC_RELEASE);
}

static void server_tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_dashboard_t *d = user;
    if (!__atomic_exchange_n(&d->is_asked, true, __ATOMIC_ACQUIRE)
        && pl_reactor_post(d->control, control_beats, d, NULL) != PL_OK)
        __atomic_store_n(&d->is_asked, false, __ATOMIC_RELEASE);
    connections_tick(d);
    if (++d->ticks % UPDATE_TICKS == 0)
        live_tick(d);
}

/* ---- life ---- */

static int dashboard_open(pl_dashboard_t *d, const char *address, pl_error_t *err)
{
    static const struct timeval every = {0, TICK_MS * 1000};
    int code = token_open(d->token, err);
    if (code != PL_OK)
        return code;
    if (getrandom(&d->boot, sizeof d->boot, 0) != sizeof d->boot)
        return pl_fail(err, PL_EIO, "no random numbers");
    d->reactor = pl_reactor_new(d->runtime, -1, err);
    if (!d->reactor)
        return PL_ENOMEM;
    d->http = evhttp_new(d->reactor->loop.base);
    d->tick = event_new(d->reactor->loop.base, -1, EV_PERSIST, server_tick, d);
    if (!d->http || !d->tick || event_add(d->tick, &every) != 0)
        return pl_no_memory(err);
    evhttp_set_allowed_methods(d->http, (ev_uint16_t)~0);   /* the routes refuse */
    evhttp_set_max_headers_size(d->http, HEAD_MAX);
    evhttp_set_max_body_size(d->http, BODY_READ_MAX);
    evhttp_set_timeout(d->http, REQUEST_SECONDS);
    evhttp_set_gencb(d->http, http_request, d);
    code = connections_listen(d, address, err);
    if (code != PL_OK)
        return code;
    /* Browsers keep one set of cookies for all ports of a host. */
    snprintf(d->cookie, sizeof d->cookie, "paceline_%s", strrchr(d->host, ':') + 1);
    snprintf(d->url, sizeof d->url, "http://%s/?token=%s", d->host, d->token);
    d->control_pulse = d->hub_pulse = pl_now();
    return pl_reactor_start(d->reactor, "dashboard", err);
}

pl_dashboard_t *pl_dashboard_start(pl_runtime_t *runtime, pl_reactor_t *control,
                                   const pl_commander_t *commander, pl_run_view_t *view,
                                   const char *address, pl_error_t *err)
{
    static const pl_tap_ops_t tap = {.record = tap_record,
                                     .gap = tap_gap,
                                     .tick = tap_tick};  /* freed after the stream ends */
    pl_error_t own = {0};
    pl_dashboard_t *d = pl_alloc(sizeof *d);
    if (!d) {
        pl_no_memory(err);
        return NULL;
    }
    d->runtime = runtime;
    d->control = control;
    d->commander = *commander;
    d->view = view;
    pl_run_view_open(view);
    d->ear = (pl_log_listener_t){.hook = log_came, .level = PL_LOG_INFO, .user = d};
    pthread_mutex_init(&d->lock, NULL);
    int code = dashboard_open(d, address, &own);
    if (code == PL_OK && pl_tap_add(runtime, &tap, d, &own) == PL_OK) {
        pl_log_listener_add(&d->ear);
        return d;
    }
    pl_fail(err, own.code, "%s", own.text);
    pl_dashboard_stop(d);
    pl_dashboard_free(d);
    return NULL;
}

const char *pl_dashboard_url(const pl_dashboard_t *dashboard)
{
    return dashboard->url;
}

void pl_dashboard_closing(pl_dashboard_t *dashboard)
{
    if (dashboard)
        __atomic_store_n(&dashboard->is_closing, true, __ATOMIC_RELEASE);
}

void pl_dashboard_stop(pl_dashboard_t *d)
{
    if (!d)
        return;
    pl_log_listener_remove(&d->ear);
    pthread_mutex_lock(&d->lock);
    d->is_stopped = true;
    pthread_mutex_unlock(&d->lock);
    if (d->reactor)
        pl_reactor_join(d->reactor);
    pl_monitor_catch_up(d->runtime);
    live_last(d);
    if (d->http)
        evhttp_free(d->http);
    connections_close(d);
    if (d->tick)
        event_free(d->tick);
    pl_reactor_free(d->reactor);
}

void pl_dashboard_free(pl_dashboard_t *d)
{
    if (!d)
        return;
    live_end(d);
    pl_run_view_close(d->view);
    pthread_mutex_destroy(&d->lock);
    explicit_bzero(d->token, sizeof d->token);
    explicit_bzero(d->url, sizeof d->url);
    pl_free(d);
}
