/* dashboard_parts.h - the page's server, for dashboard.c (its life), connections.c,
 * http.c (paths and answers), access.c (token and other checks) and live.c (events and
 * commands) */
#ifndef PL_TELEMETRY_DASHBOARD_PARTS_H
#define PL_TELEMETRY_DASHBOARD_PARTS_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>

#include "base/log.h"
#include "telemetry/run_view.h"
#include "telemetry/dashboard.h"

#define PL_TOKEN_TEXT 129                                   /* with the NUL */

enum {
    CONNECTIONS_MAX = 128,
    CONNECTIONS_FEW = 16,                                  /* while descriptors are few */
    VIEWERS_MAX = 64,
    HEAD_MAX = 8192,                                      /* bytes of a request's lines */
    BODY_MAX = 4096,
    BODY_READ_MAX = 64 << 10,                 /* longer ones evhttp refuses, in its way */
    REQUEST_SECONDS = 10,                     /* for a request to come as a whole */
    ANSWER_SECONDS = 30,                      /* for its answer to be taken */
    SILENT_MS = 250,                          /* the same while others wait */
    TICK_MS = 250,
    UPDATE_TICKS = 2,
    PULSE_SECONDS = 10,                     /* without a pulse a thread counts as stuck */
};

/* evhttp has no list of its connections. */
typedef struct connection {
    pl_dashboard_t *dashboard;
    struct bufferevent *bev;                                /* counted reference */
    int64_t came, until;                                    /* pl_now(); 0: it may stay */
    bool has_asked;                                         /* its request has arrived */
    struct connection *next;
} connection_t;

/* An open page. */
typedef struct viewer {
    struct pl_dashboard *dashboard;
    struct evhttp_request *request;
    uint64_t since;                                    /* the newest item that it has */
    int64_t received_at;                               /* pl_now(), of its newest event */
    struct viewer *next, **pprev;
} viewer_t;

typedef struct open_command open_command_t;

struct pl_dashboard {
    pl_runtime_t *runtime;
    pl_reactor_t *control;
    pl_commander_t commander;
    pl_run_view_t *view;
    pl_log_listener_t ear;
    char token[PL_TOKEN_TEXT], url[256], cookie[32], host[64];
    uint32_t boot;                      /* random: items of another server mean nothing */
    bool is_closing;                    /* atomic */
    int64_t control_pulse, hub_pulse;   /* atomic: pl_now() */
    bool is_asked;                      /* atomic: a pulse was requested */
    pthread_mutex_t lock;               /* of these two, for late replies */
    bool is_stopped;
    open_command_t *pending;                                /* open commands */

    /* The server's thread: */
    pl_reactor_t *reactor;
    struct evhttp *http;
    struct evconnlistener *listener;
    bool is_full;                                          /* no connection is accepted */
    struct event *tick;
    uint64_t ticks;
    connection_t *connections;
    int connection_count;
    viewer_t *viewers;
    int viewer_count;
    struct {
        uint64_t since, until;
        bool has_more;                              /* points than it could hold */
        char *text;                                 /* [NULL: none yet] */
    } update;                                       /* for all pages with the same item */
    uint64_t answered[6];                           /* by hundreds of the status */
};

/* ---- http.c ---- */

void http_request(struct evhttp_request *request, void *dashboard);
/* Answers with the headers that all answers have; consumes body  [none]. */
void http_answer(pl_dashboard_t *d, struct evhttp_request *request, int status,
                 const char *type, struct evbuffer *body);
void http_refuse(pl_dashboard_t *d, struct evhttp_request *request, int status,
                 const char *why);
/* For the close callback of a connection whose request is not answered. */
void http_forget(struct evhttp_request *request);
void http_head(struct evhttp_request *request, const char *type);
/* So many bytes were written to a connection that has no answer of ours: if they begin an
 * error, adds the headers. */
void http_add_to_error(pl_dashboard_t *d, struct evbuffer *out, size_t added);

/* ---- access.c ---- */

/* Reads the token of the file that PACELINE_DASHBOARD_TOKEN_FILE names, which it makes if
 * there is none; without the variable a new random one.  PL_EINVAL: the file belongs to
 * another user, or others may read or write it; PL_EFORMAT: it holds no token. */
int token_open(char token[static PL_TOKEN_TEXT], pl_error_t *err);
/* Each returns false, and answers the request, if it is not allowed. */
bool guard_host(pl_dashboard_t *d, struct evhttp_request *request);
bool guard_token(pl_dashboard_t *d, struct evhttp_request *request);
bool guard_post(pl_dashboard_t *d, struct evhttp_request *request);
/* The token in the address of the page becomes a cookie; true: the request is
 * answered. */
bool guard_login(pl_dashboard_t *d, struct evhttp_request *request, const char *query);

/* ---- connections.c ---- */

int connections_listen(pl_dashboard_t *d, const char *address, pl_error_t *err);
void connections_tick(pl_dashboard_t *d);
/* The request has arrived; its answer may take that long  [0: any time]. */
void connection_extend(pl_dashboard_t *d, struct evhttp_request *request, int seconds);
void connections_close(pl_dashboard_t *d);

/* ---- live.c ---- */

void live_begin(pl_dashboard_t *d, struct evhttp_request *request);
void live_tick(pl_dashboard_t *d);
/* After the server's thread has ended: the last event. */
void live_last(pl_dashboard_t *d);
void command_begin(pl_dashboard_t *d, struct evhttp_request *request);
/* When nothing can be answered any more. */
void live_end(pl_dashboard_t *d);

#endif
