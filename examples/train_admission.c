/* train_admission.c - admission of requests: host name, origin, content and number
 *
 * Any page that the user has open can send requests to a port of this machine.  A request
 * that changes something has an Origin header, which shows the page's origin.  To read an
 * answer, the page must have this service's host name, made to resolve to this machine;
 * the Host header shows that.
 *
 * evhttp accepts every connection and waits for each next byte.  This file keeps further
 * connections in the system's queue while too many are open, and closes silent ones when
 * capacity is needed.  evhttp does not report when it frees a connection, so this file
 * holds a reference to each: a connection without callbacks was freed. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "train_service.h"

enum {
    BODY_MAX = 1 << 20,
    CLIENTS_MAX = 128,
    REQUEST_SECONDS = 10,                                 /* for each part of a request */
    ANSWER_SECONDS = 60,
    SILENT_MS = 250                                  /* for a request while others wait */
};

/* A connection. */
typedef struct client {
    struct bufferevent *bev;                                /* NULL: unused */
    bool has_asked, was_seen;
} client_t;

struct admission {
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *later;                             /* pending: the listener is closed */
    struct event *sweep;                             /* periodic */
    client_t client[CLIENTS_MAX];
    int max;
};

static admission_t *only_admission;  /* a listener callback has no user pointer of ours */

/* ---- requests ---- */

static const char *header(struct evhttp_request *request, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(request), name);
}

/* Any port is permitted: a tunnel may have changed it. */
static bool is_this_machine(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    for (int k = 0; host && k < 3; k++) {
        const size_t length = strlen(names[k]);
        const char *rest = host + length;
        if (!strncasecmp(host, names[k], length)
            && (!*rest
                || (*rest == ':' && strspn(rest + 1, "0123456789") == strlen(rest + 1))))
            return true;
    }
    return false;
}

/* "http://HOST" is our own origin; programs other than browsers send none. */
static bool is_foreign(const char *origin, const char *host)
{
    const char *at = origin ? strstr(origin, "://") : NULL;
    return origin && (!at || strcasecmp(at + 3, host));
}

static bool is_json(const char *type)
{
    const size_t length = strlen("application/json");
    return type && !strncasecmp(type, "application/json", length)
           && (!type[length] || strchr("; ", type[length]));
}

static bool refuse(struct evhttp_request *request, int status, const char *text)
{
    service_error(request, status, text);
    return false;
}

/* The request of this client is complete; its answer has no time limit. */
static void client_has_asked(admission_t *admission, struct evhttp_request *request)
{
    struct bufferevent *bev =
        evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
    bufferevent_set_timeouts(bev, NULL, &(struct timeval){.tv_sec = ANSWER_SECONDS});
    for (int k = 0; k < CLIENTS_MAX; k++)
        if (admission->client[k].bev == bev)
            admission->client[k].has_asked = true;
}

/* A request of another page for an image has no Origin, but browsers send this header. */
static bool is_from_elsewhere(const char *site)
{
    return site && strcmp(site, "same-origin") && strcmp(site, "none");
}

bool admission_check(admission_t *admission, struct evhttp_request *request)
{
    const char *host = header(request, "Host");
    const enum evhttp_cmd_type method = evhttp_request_get_command(request);
    const size_t size = evbuffer_get_length(evhttp_request_get_input_buffer(request));
    client_has_asked(admission, request);
    if (!is_this_machine(host))
        return refuse(request, 421,
                      "Host must be 127.0.0.1, localhost or [::1]; configure a reverse "
                      "proxy to send one of these");
    if (is_foreign(header(request, "Origin"), host)
        || is_from_elsewhere(header(request, "Sec-Fetch-Site")))
        return refuse(request, 403, "requests from pages of another origin are refused");
    if (method != EVHTTP_REQ_POST && method != EVHTTP_REQ_GET)
        return refuse(request, 405, "only GET and POST are supported");
    if (size > BODY_MAX)
        return refuse(request, 413, "a body is limited to 1 MiB");
    if (size && !is_json(header(request, "Content-Type")))
        return refuse(request, 415, "a body needs Content-Type: application/json");
    return true;
}

/* ---- connections ---- */

static bool was_let_go(struct bufferevent *bev)
{
    bufferevent_data_cb on_read, on_write;
    bufferevent_event_cb on_event;
    void *user;
    bufferevent_getcb(bev, &on_read, &on_write, &on_event, &user);
    return !on_read && !on_write && !on_event;
}

/* Returns the number of connections that remain. */
static int clients_count(admission_t *admission)
{
    int count = 0;
    for (int k = 0; k < CLIENTS_MAX; k++) {
        client_t *client = &admission->client[k];
        if (client->bev && was_let_go(client->bev)) {
            bufferevent_decref(client->bev);
            client->bev = NULL;
        }
        count += client->bev != NULL;
    }
    return count;
}

static void admission_pause(admission_t *admission)
{
    evconnlistener_disable(admission->listener);
    event_add(admission->later, &(struct timeval){.tv_usec = SILENT_MS * 1000});
}

static void on_later(evutil_socket_t fd, short what, void *user)
{
    admission_t *admission = user;
    (void)fd, (void)what;
    if (clients_count(admission) < admission->max) {
        evconnlistener_enable(admission->listener);
        return;
    }
    for (int k = 0; k < CLIENTS_MAX; k++) {
        client_t *client = &admission->client[k];
        if (client->bev && !client->has_asked && client->was_seen)
            shutdown(bufferevent_getfd(client->bev), SHUT_RDWR);  /* evhttp sees it */
        client->was_seen = true;
    }
    admission_pause(admission);
}

static void on_sweep(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    clients_count(user);
}

/* Called by evhttp for a new connection. */
static struct bufferevent *client_new(struct event_base *base, void *user)
{
    admission_t *admission = user;
    struct bufferevent *bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    const int count = clients_count(admission);
    int k = 0;
    while (k < CLIENTS_MAX && admission->client[k].bev)
        k++;
    if (bev && k < CLIENTS_MAX) {
        bufferevent_incref(bev);
        admission->client[k] = (client_t){.bev = bev};
    }
    if (count + 1 >= admission->max)
        admission_pause(admission);
    return bev;
}

/* The system has no descriptor for a new connection: tries again later, when closed
 * connections have freed theirs.  user is evhttp's. */
static void accept_failed(struct evconnlistener *listener, void *user)
{
    (void)listener, (void)user;
    admission_pause(only_admission);
}

/* Leaves descriptors for the engine. */
static int clients_max(void)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t part = limit.rlim_cur / 4;
    return part < 1 ? 1 : part < CLIENTS_MAX ? (int)part : CLIENTS_MAX;
}

int admission_streams_max(const admission_t *admission)
{
    return (admission->max + 1) / 2;
}

int admission_open(service_t *service, int port,
                   void (*on_request)(struct evhttp_request *, void *), pl_error_t *err)
{
    admission_t *admission = only_admission = service->admission =
        calloc(1, sizeof *admission);
    struct evhttp *http = admission->http = evhttp_new(service->base);
    struct evhttp_bound_socket *bound = evhttp_bind_socket_with_handle(http, "127.0.0.1",
                                                                       (uint16_t)port);
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    if (!bound)
        return pl_fail(err, PL_EIO, "127.0.0.1:%d: %s", port,
                       evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    admission->max = clients_max();
    admission->later = evtimer_new(service->base, on_later, admission);
    admission->sweep = event_new(service->base, -1, EV_PERSIST, on_sweep, admission);
    event_add(admission->sweep, &(struct timeval){.tv_sec = 1});
    admission->listener = evhttp_bound_socket_get_listener(bound);
    evconnlistener_set_error_cb(admission->listener, accept_failed);
    evhttp_set_bevcb(http, client_new, admission);
    evhttp_set_timeout(http, REQUEST_SECONDS);
    /* evhttp itself answers longer requests and data that is not HTTP, with fixed HTML
     * without our headers.  Version 2.1 has no way to change that. */
    evhttp_set_max_body_size(http, 4 * BODY_MAX);
    evhttp_set_max_headers_size(http, 16384);
    evhttp_set_allowed_methods(http, (ev_uint16_t)~0);
    evhttp_set_gencb(http, on_request, service);
    getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&at, &size);
    printf("listening on http://127.0.0.1:%d\n", ntohs(at.sin_port));
    fflush(stdout);
    return PL_OK;
}

void admission_free(admission_t *admission)
{
    if (!admission)
        return;
    evhttp_free(admission->http);
    for (int k = 0; k < CLIENTS_MAX; k++)
        if (admission->client[k].bev)
            bufferevent_decref(admission->client[k].bev);
    if (admission->later)
        event_free(admission->later);
    if (admission->sweep)
        event_free(admission->sweep);
    free(admission);
}
