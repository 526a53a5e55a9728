/* live.c - answers that take time: the events of an open page, and commands
 *
 * A page gets server-sent events: twice a second everything after the item that it has.
 * After a disconnection it sends that item as Last-Event-ID.  A page that has not yet
 * read what was sent gets nothing until it has, and then all that it missed.
 *
 * A command waits for the engine's thread, which answers in its own time: by then the
 * connection may be closed, or the server stopped. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "telemetry/dashboard_parts.h"

enum { UNREAD_MAX = 4096 };

static const char EVENTS[] = "text/event-stream; charset=utf-8";

static struct bufferevent *bev_of(struct evhttp_request *request)
{
    return evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
}

/* ---- events ---- */

static void viewer_send(viewer_t *v, bool is_new_tick);

static void viewer_has_taken(struct evhttp_connection *connection, void *viewer)
{
    (void)connection;
    viewer_send(viewer, false);
}

/* An update is made once for all viewers that have the same item.  Many points come in
 * several events, each after the one before was sent. */
static void viewer_send(viewer_t *v, bool is_new_tick)
{
    pl_dashboard_t *d = v->dashboard;
    if (!d->update.text || d->update.since != v->since || is_new_tick) {
        pl_text_free(d->update.text);
        d->update.since = v->since;
        d->update.text = pl_run_view_json(d->view, v->since, &d->update.until,
                                          &d->update.has_more);
    }
    struct evbuffer *event = d->update.text ? evbuffer_new() : NULL;
    if (!event)
        return;
    evbuffer_add_printf(event, "id: %08" PRIx32 "-%" PRIu64 "\ndata: ", d->boot,
                        d->update.until);
    evbuffer_add(event, d->update.text, strlen(d->update.text));
    evbuffer_add(event, "\n\n", 2);
    v->since = d->update.until;
    v->received_at = pl_now();
    evhttp_send_reply_chunk_with_cb(v->request, event,
                                    d->update.has_more ? viewer_has_taken : NULL, v);
    evbuffer_free(event);
}

static void viewer_gone(struct evhttp_connection *connection, void *user)
{
    (void)connection;
    viewer_t *v = user;
    *v->pprev = v->next;
    if (v->next)
        v->next->pprev = v->pprev;
    v->dashboard->viewer_count--;
    http_forget(v->request);
    pl_free(v);
}

void live_begin(pl_dashboard_t *d, struct evhttp_request *request)
{
    if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
        http_answer(d, request, 200, EVENTS, NULL);
        return;
    }
    viewer_t *v = d->viewer_count < VIEWERS_MAX ? pl_alloc(sizeof *v) : NULL;
    if (!v) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Retry-After",
                          "10");
        http_refuse(
            d, request, 503,
            "Too many pages are open. This page connects when another one is closed.");
        return;
    }
    const char *last = evhttp_find_header(evhttp_request_get_input_headers(request),
                                          "Last-Event-ID");
    uint32_t boot;
    uint64_t item;
    const bool has_item = last && sscanf(last, "%8" SCNx32 "-%" SCNu64, &boot, &item) == 2
                          && boot == d->boot;
    *v = (viewer_t){.dashboard = d,
                    .request = request,
                    .since = has_item ? item : 0,
                    .next = d->viewers,
                    .pprev = &d->viewers};
    if (v->next)
        v->next->pprev = &v->next;
    d->viewers = v;
    d->viewer_count++;
    d->answered[2]++;
    connection_extend(d, request, 0);
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), viewer_gone, v);
    http_head(request, EVENTS);
    evhttp_add_header(evhttp_request_get_output_headers(request), "X-Accel-Buffering",
                      "no");
    evhttp_send_reply_start(request, 200, "OK");
    /* evhttp no longer notices a closed connection, and reads nothing. */
    bufferevent_set_timeouts(bev_of(request), NULL, NULL);
    bufferevent_setwatermark(bev_of(request), EV_READ, 0, UNREAD_MAX);
    bufferevent_enable(bev_of(request), EV_READ);
    viewer_send(v, true);
}

void live_tick(pl_dashboard_t *d)
{
    bool is_new_tick = true;
    for (viewer_t *v = d->viewers, *next; v; v = next) {
        next = v->next;
        if (!evbuffer_get_length(bufferevent_get_output(bev_of(v->request)))) {
            viewer_send(v, is_new_tick);
            is_new_tick = false;
        } else if (pl_now() - v->received_at > ANSWER_SECONDS * PL_SECOND) {
            shutdown(bufferevent_getfd(bev_of(v->request)), SHUT_RDWR);  /* evhttp frees
                                                                            it then */
        }
    }
}

/* The event loop has ended: only what the system takes at once is sent. */
void live_last(pl_dashboard_t *d)
{
    bool is_new_tick = true;
    for (viewer_t *v = d->viewers; v; v = v->next) {
        struct evbuffer *out = bufferevent_get_output(bev_of(v->request));
        if (evbuffer_get_length(out))
            continue;
        viewer_send(v, is_new_tick);
        is_new_tick = false;
        evbuffer_unfreeze(out, 1);
        evbuffer_write(out, bufferevent_getfd(bev_of(v->request)));
        evbuffer_freeze(out, 1);
    }
}

/* ---- commands ---- */

struct open_command {
    pl_dashboard_t *dashboard;
    struct evhttp_request *request;                         /* [NULL: its connection is
                                                               closed] */
    size_t size;
    char *reply;
    open_command_t *next, **pprev;                          /* list of the dashboard */
};

static void pending_free(open_command_t *p)
{
    pthread_mutex_lock(&p->dashboard->lock);
    *p->pprev = p->next;
    if (p->next)
        p->next->pprev = p->pprev;
    pthread_mutex_unlock(&p->dashboard->lock);
    pl_free(p->reply);
    pl_free(p);
}

static void pending_gone(struct evhttp_connection *connection, void *user)
{
    (void)connection;
    open_command_t *p = user;
    http_forget(p->request);
    p->request = NULL;
}

/* 404: the run does not exist; 409: the command is not possible now; 400: it is wrong. */
static int status_of(const char *reply, size_t size)
{
    json_t *answer = json_loadb(reply, size, 0, NULL);
    const char *code =
        json_string_value(json_object_get(json_object_get(answer, "error"), "code"));
    const int status = !code                                       ? 200
                       : !strcmp(code, pl_code_name(PL_ENOTFOUND)) ? 404
                       : !strcmp(code, pl_code_name(PL_ESTATE))    ? 409
                       : !strcmp(code, pl_code_name(PL_EBUSY))     ? 409
                                                                   : 400;
    json_decref(answer);
    return status;
}

static void pending_answer(void *argument)
{
    open_command_t *p = argument;
    struct evbuffer *body = p->request && p->reply ? evbuffer_new() : NULL;
    if (body)
        evbuffer_add(body, p->reply, p->size);
    if (p->request) {
        evhttp_connection_set_closecb(evhttp_request_get_connection(p->request), NULL,
                                      NULL);
        http_answer(p->dashboard, p->request, body ? status_of(p->reply, p->size) : 503,
                    "application/json", body);
    }
    pending_free(p);
}

/* The engine's thread.  An answer after the server's stop is freed with the
 * dashboard. */
static void replied(const char *reply, size_t size, void *user)
{
    open_command_t *p = user;
    pl_dashboard_t *d = p->dashboard;
    p->reply = pl_alloc(size + 1);
    if (p->reply)
        memcpy(p->reply, reply, size);
    p->size = size;
    pthread_mutex_lock(&d->lock);
    if (!d->is_stopped)
        pl_reactor_post(d->reactor, pending_answer, p, NULL);
    pthread_mutex_unlock(&d->lock);
}

void command_begin(pl_dashboard_t *d, struct evhttp_request *request)
{
    struct evbuffer *in = evhttp_request_get_input_buffer(request);
    const size_t size = evbuffer_get_length(in);
    if (!guard_post(d, request))
        return;
    pl_error_t err = {0};
    open_command_t *p = pl_alloc(sizeof *p);
    if (!p) {
        http_refuse(d, request, 503, "out of memory");
        return;
    }
    pthread_mutex_lock(&d->lock);
    *p = (open_command_t){.dashboard = d,
                          .request = request,
                          .next = d->pending,
                          .pprev = &d->pending};
    if (p->next)
        p->next->pprev = &p->next;
    d->pending = p;
    pthread_mutex_unlock(&d->lock);
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), pending_gone,
                                  p);
    connection_extend(d, request, 0);                /* as long as the command may take */
    const char *text = (const char *)evbuffer_pullup(in, -1);
    if (d->commander.post(d->commander.self, text ? text : "", size, replied, p, &err)
        == PL_OK)
        return;
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
    pending_free(p);
    http_refuse(d, request, 503, err.text);
}

void live_end(pl_dashboard_t *d)
{
    pl_text_free(d->update.text);
    while (d->pending)
        pending_free(d->pending);
}
