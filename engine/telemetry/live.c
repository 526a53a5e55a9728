/* live.c - server-sent events: the page while it is open
 *
 * Twice a second each viewer gets what has come since the item that it has; one that was
 * cut off says by Last-Event-ID which that was.  Who has not taken what it was sent gets
 * nothing until it has, and then all that it missed at once, up to the newest. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "telemetry/dashboard_parts.h"

enum { UNREAD_MAX = 4096 };

/* What leads from `since` to now, made once for all that have the same. */
static const char *update_for(pl_dashboard_t *d, uint64_t since, bool is_new_tick)
{
    if (d->update.text && d->update.since == since && !is_new_tick)
        return d->update.text;
    pl_text_free(d->update.text);
    d->update.since = since;
    d->update.text = pl_run_view_json(d->view, since, &d->update.until,
                                      &d->update.has_more);
    return d->update.text;
}

static void viewer_send(viewer_t *v, bool is_new_tick);

static void viewer_has_taken(struct evhttp_connection *connection, void *viewer)
{
    (void)connection;
    viewer_send(viewer, false);
}

/* Many points come in several events, each as soon as the one before has been taken. */
static void viewer_send(viewer_t *v, bool is_new_tick)
{
    pl_dashboard_t *d = v->dashboard;
    const char *text = update_for(d, v->since, is_new_tick);
    struct evbuffer *event = text ? evbuffer_new() : NULL;
    if (!event)
        return;
    evbuffer_add_printf(event, "id: %08" PRIx32 "-%" PRIu64 "\ndata: ", d->boot,
                        d->update.until);
    evbuffer_add(event, text, strlen(text));
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

/* The item that it has already; 0: none. */
static uint64_t item_it_has(const pl_dashboard_t *d, struct evhttp_request *request)
{
    const char *last = evhttp_find_header(evhttp_request_get_input_headers(request),
                                          "Last-Event-ID");
    uint32_t boot;
    uint64_t item;
    return last && sscanf(last, "%8" SCNx32 "-%" SCNu64, &boot, &item) == 2
                   && boot == d->boot
               ? item
               : 0;
}

static const char EVENTS[] = "text/event-stream; charset=utf-8";

void live_begin(pl_dashboard_t *d, struct evhttp_request *request)
{
    if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
        http_answer(d, request, 200, EVENTS, NULL);
        return;
    }
    viewer_t *v = d->viewer_count < VIEWERS_MAX ? pl_alloc(sizeof *v) : NULL;
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    struct bufferevent *bev = evhttp_connection_get_bufferevent(connection);
    if (!v) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Retry-After",
                          "10");
        http_refuse(
            d, request, 503,
            "Too many pages are open. This page connects when another one is closed.");
        return;
    }
    *v = (viewer_t){.dashboard = d,
                    .request = request,
                    .since = item_it_has(d, request),
                    .next = d->viewers,
                    .pprev = &d->viewers};
    if (v->next)
        v->next->pprev = &v->next;
    d->viewers = v;
    d->viewer_count++;
    d->answered[2]++;
    connection_extend(d, request, 0);
    evhttp_connection_set_closecb(connection, viewer_gone, v);
    http_head(request, EVENTS);
    evhttp_add_header(evhttp_request_get_output_headers(request), "X-Accel-Buffering",
                      "no");
    evhttp_send_reply_start(request, 200, "OK");
    /* evhttp does not look any more whether it is still there, nor at what it says. */
    bufferevent_set_timeouts(bev, NULL, NULL);
    bufferevent_setwatermark(bev, EV_READ, 0, UNREAD_MAX);
    bufferevent_enable(bev, EV_READ);
    viewer_send(v, true);
}

static bool has_taken_all(const viewer_t *v)
{
    struct bufferevent *bev =
        evhttp_connection_get_bufferevent(evhttp_request_get_connection(v->request));
    return !evbuffer_get_length(bufferevent_get_output(bev));
}

/* Its end is seen by evhttp, which then lets go of it. */
static void viewer_drop(const viewer_t *v)
{
    shutdown(bufferevent_getfd(evhttp_connection_get_bufferevent(
                 evhttp_request_get_connection(v->request))),
             SHUT_RDWR);
}

void live_tick(pl_dashboard_t *d)
{
    bool is_new_tick = true;
    for (viewer_t *v = d->viewers, *next; v; v = next) {
        next = v->next;
        if (has_taken_all(v)) {
            viewer_send(v, is_new_tick);
            is_new_tick = false;
        } else if (pl_now() - v->received_at > ANSWER_SECONDS * PL_SECOND) {
            viewer_drop(v);
        }
    }
}

/* Nobody turns the loop any more: what the system takes at once goes out. */
void live_last(pl_dashboard_t *d)
{
    bool is_new_tick = true;
    for (viewer_t *v = d->viewers; v; v = v->next) {
        struct bufferevent *bev =
            evhttp_connection_get_bufferevent(evhttp_request_get_connection(v->request));
        if (!has_taken_all(v))
            continue;
        viewer_send(v, is_new_tick);
        is_new_tick = false;
        evbuffer_unfreeze(bufferevent_get_output(bev), 1);
        evbuffer_write(bufferevent_get_output(bev), bufferevent_getfd(bev));
        evbuffer_freeze(bufferevent_get_output(bev), 1);
    }
}

void live_end(pl_dashboard_t *d)
{
    pl_text_free(d->update.text);
    d->update.text = NULL;
}
