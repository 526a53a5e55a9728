/* command.c - what a button of the page says, on its way to the engine and back
 *
 * The request waits for the engine's thread, which answers in its own time: by then its
 * connection may be gone, or the server. */
#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "telemetry/dashboard_parts.h"

struct pending {
    pl_dashboard_t *dashboard;
    struct evhttp_request *request;                         /* [its connection is gone] */
    size_t size;
    char *reply;
    pending_t *next, **pprev;                               /* list of the dashboard's */
};

static void pending_free(pending_t *p)
{
    pthread_mutex_lock(&p->dashboard->lock);
    *p->pprev = p->next;
    if (p->next)
        p->next->pprev = p->pprev;
    pthread_mutex_unlock(&p->dashboard->lock);
    pl_free(p->reply);
    pl_free(p);
}

static pending_t *pending_new(pl_dashboard_t *d, struct evhttp_request *request)
{
    pending_t *p = pl_alloc(sizeof *p);
    if (!p)
        return NULL;
    pthread_mutex_lock(&d->lock);
    *p = (pending_t){.dashboard = d,
                     .request = request,
                     .next = d->pending,
                     .pprev = &d->pending};
    if (p->next)
        p->next->pprev = &p->next;
    d->pending = p;
    pthread_mutex_unlock(&d->lock);
    return p;
}

static void pending_gone(struct evhttp_connection *connection, void *user)
{
    (void)connection;
    pending_t *p = user;
    http_forget(p->request);
    p->request = NULL;
}

/* What is not there, what cannot be done now, and what is wrong. */
static int status_of(const char *reply, size_t size)
{
    json_t *said = json_loadb(reply, size, 0, NULL);
    const char *code =
        json_string_value(json_object_get(json_object_get(said, "error"), "code"));
    int status = code ? 400 : 200;
    if (code && !strcmp(code, pl_code_name(PL_ENOTFOUND)))
        status = 404;
    else if (code
             && (!strcmp(code, pl_code_name(PL_ESTATE))
                 || !strcmp(code, pl_code_name(PL_EBUSY))))
        status = 409;
    json_decref(said);
    return status;
}

static void pending_answer(void *argument)
{
    pending_t *p = argument;
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

/* The engine's thread.  What cannot be passed on is freed with the dashboard. */
static void replied(const char *reply, size_t size, void *user)
{
    pending_t *p = user;
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
    pending_t *p = pending_new(d, request);
    if (!p) {
        http_refuse(d, request, 503, "out of memory");
        return;
    }
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

void command_end(pl_dashboard_t *d)
{
    while (d->pending)
        pending_free(d->pending);
}
