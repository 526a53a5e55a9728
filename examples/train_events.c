/* train_events.c - events of runs for their subscribers: server-sent events
 *
 * Each event has a number.  A client that reconnects with its last number receives the
 * later ones.  Numbers start at the microsecond in which the service started, so numbers
 * of an earlier service are smaller, and a client with one of them receives all events.
 * Memory is bounded: a client that does not read is disconnected and may reconnect; each
 * run keeps its newest events, and of the ended runs the newest keep theirs. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <stdlib.h>
#include <string.h>

#include "train_service.h"

enum {
    UNREAD_MAX = 1 << 20,
    ENDED_KEPT = 16                             /* runs that have ended and keep events */
};

/* A client that follows a run. */
struct stream {
    stream_t *next;
    run_t *run;
    struct evhttp_request *request;
};

static void stream_drop(stream_t *stream)
{
    stream_t **from = &stream->run->streams;
    while (*from != stream)
        from = &(*from)->next;
    *from = stream->next;
    stream->run->service->streams--;
    free(stream);
}

static void stream_closed(struct evhttp_connection *connection, void *user)
{
    stream_t *stream = user;
    (void)connection;
    service_forget(stream->request);
    stream_drop(stream);
}

static void stream_end(stream_t *stream)
{
    struct evhttp_request *request = stream->request;
    service_release(request);
    stream_drop(stream);
    evhttp_send_reply_end(request);
}

/* false: the client has too much unread data and is disconnected. */
static bool stream_send(stream_t *stream, uint64_t number)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(stream->request);
    const struct evbuffer *unread =
        bufferevent_get_output(evhttp_connection_get_bufferevent(connection));
    const char *event = stream->run->event[number % EVENTS_KEPT];
    if (!event)
        return true;
    if (evbuffer_get_length(unread) > UNREAD_MAX) {
        stream_end(stream);
        return false;
    }
    struct evbuffer *buffer = evbuffer_new();
    evbuffer_add_printf(buffer, "id: %llu\ndata: %s\n\n", (unsigned long long)number,
                        event);
    evhttp_send_reply_chunk(stream->request, buffer);
    evbuffer_free(buffer);
    return true;
}

void run_tell(run_t *run, const char *event)
{
    json_t *object = run_show(run);
    json_object_set_new(object, "event", json_string(event));
    char **slot = &run->event[run->events % EVENTS_KEPT];
    free(*slot);
    *slot = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    for (stream_t *s = run->streams, *next; s; s = next) {
        next = s->next;
        stream_send(s, run->events);
    }
    run->events++;
}

/* Keeps the last event, which says how the run ended. */
static void events_forget(run_t *run)
{
    for (uint64_t k = 0; k < EVENTS_KEPT; k++) {
        if (k == (run->events - 1) % EVENTS_KEPT)
            continue;
        free(run->event[k]);
        run->event[k] = NULL;
    }
}

void events_end(run_t *run)
{
    service_t *service = run->service;
    while (run->streams)
        stream_end(run->streams);
    run->end = ++service->ended;
    for (run_t *other = service->runs; other; other = other->next)
        if (other->end + ENDED_KEPT == service->ended && run_has_ended(other))
            events_forget(other);
}

void events_get(run_t *run, struct evhttp_request *request)
{
    const char *last = evhttp_find_header(evhttp_request_get_input_headers(request),
                                          "Last-Event-ID");
    uint64_t from = last ? strtoull(last, NULL, 10) + 1 : 0;
    if (from > run->events)                                 /* there is no such event */
        from = 0;
    const uint64_t kept = run->events - EVENTS_KEPT;
    if (run->service->streams >= admission_streams_max(run->service->admission)) {
        service_error(request, 503, "too many subscribers of runs: try again later");
        return;
    }
    stream_t *stream = malloc(sizeof *stream);
    *stream = (stream_t){run->streams, run, request};
    run->streams = stream;
    run->service->streams++;
    service_hold(request, stream_closed, stream);
    service_head(request, "text/event-stream");
    evhttp_send_reply_start(request, 200, "OK");
    for (from = from > kept ? from : kept; from < run->events; from++)
        if (!stream_send(stream, from))
            return;
    if (run_has_ended(run))
        stream_end(stream);
}
