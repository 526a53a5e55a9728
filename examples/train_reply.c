/* train_reply.c - the replies of the service, in JSON */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdlib.h>

#include "train_service.h"

enum { AHEAD_MAX = 4096 };                                  /* bytes after a request */

/* Replies are not cached, and their type is not guessed.  Each connection carries one
 * request. */
void service_head(struct evhttp_request *request, const char *type)
{
    struct evkeyvalq *head = evhttp_request_get_output_headers(request);
    evhttp_add_header(head, "Content-Type", type);
    evhttp_add_header(head, "Cache-Control", "no-store");
    evhttp_add_header(head, "X-Content-Type-Options", "nosniff");
    evhttp_add_header(head, "Connection", "close");
}

void service_reply(struct evhttp_request *request, int status, json_t *body)
{
    struct evbuffer *buffer = evbuffer_new();
    char *text = json_dumps(body, JSON_COMPACT);
    evbuffer_add_printf(buffer, "%s\n", text ? text : "{}");
    service_head(request, "application/json");
    evhttp_send_reply(request, status, NULL, buffer);
    evbuffer_free(buffer);
    free(text);
    json_decref(body);
}

void service_error(struct evhttp_request *request, int status, const char *text)
{
    service_reply(request, status, json_pack("{s:{s:s}}", "error", "text", text));
}

/* evhttp does not read after a request.  Here a client must send nothing more, and the
 * end of its connection is noticed. */
void service_hold(struct evhttp_request *request,
                  void (*on_gone)(struct evhttp_connection *, void *), void *user)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    struct bufferevent *bev = evhttp_connection_get_bufferevent(connection);
    bufferevent_data_cb on_read, on_write;
    bufferevent_event_cb on_event;
    void *own;
    bufferevent_getcb(bev, &on_read, &on_write, &on_event, &own);
    bufferevent_setcb(bev, NULL, on_write, on_event, own);
    bufferevent_setwatermark(bev, EV_READ, 0, AHEAD_MAX);
    bufferevent_enable(bev, EV_READ);
    evhttp_connection_set_closecb(connection, on_gone, user);
}

void service_release(struct evhttp_request *request)
{
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
}

/* evhttp frees a request whose connection it closes itself. */
void service_forget(struct evhttp_request *request)
{
    if (!evhttp_request_get_connection(request))
        evhttp_request_free(request);
}

json_t *run_show(const run_t *run)
{
    return json_pack("{s:i, s:s, s:I, s:s, s:O, s:s}", "id", run->id, "state", run->state,
                     "global_step", (json_int_t)run->global_step, "run_dir", run->run_dir,
                     "metrics", run->metrics, "error", run->error);
}
