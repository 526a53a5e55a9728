/* bare.c - libevent and ZeroMQ without actors: what the runtime is measured against */
#include "t/bench/bare.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"

enum { ORDER = 1000, ORDERS_OPEN = 4, MESSAGE_MAX = 256 };

typedef struct side {
    void *zmq;
    struct event_base *base;
    struct event *readable;
} side_t;

static void *context;
static pthread_t server_thread;
static side_t client, server;
static size_t message_bytes;
static int trips_left, messages_left, orders_left;

static bool has_message(const side_t *side)
{
    int events = 0;
    size_t size = sizeof events;
    zmq_getsockopt(side->zmq, ZMQ_EVENTS, &events, &size);
    return events & ZMQ_POLLIN;
}

static void side_open(side_t *side, int type, event_callback_fn callback)
{
    int fd, none = 0;
    size_t size = sizeof fd;
    side->zmq = zmq_socket(context, type);
    zmq_setsockopt(side->zmq, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(side->zmq, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(side->zmq, ZMQ_RCVHWM, &none, sizeof none);
    if (type == ZMQ_ROUTER)
        zmq_bind(side->zmq, "inproc://bare");
    else
        zmq_connect(side->zmq, "inproc://bare");
    zmq_getsockopt(side->zmq, ZMQ_FD, &fd, &size);
    side->base = event_base_new();
    side->readable = event_new(side->base, fd, EV_READ | EV_PERSIST, callback, NULL);
    event_add(side->readable, NULL);
}

static void side_close(side_t *side)
{
    event_free(side->readable);
    event_base_free(side->base);
    zmq_close(side->zmq);
}

/* ---- the server: one message is answered, more are carried out, none ends it ---- */

static void server_readable(evutil_socket_t fd, short what, void *user)
{
    char id[16], bytes[MESSAGE_MAX] = "";
    (void)fd, (void)what, (void)user;
    while (has_message(&server)) {
        int id_size = zmq_recv(server.zmq, id, sizeof id, 0), count = 0;
        zmq_recv(server.zmq, &count, sizeof count, 0);
        for (int k = 0; k < count; k++) {
            zmq_send(server.zmq, id, (size_t)id_size, ZMQ_SNDMORE);
            zmq_send(server.zmq, bytes, message_bytes, 0);
        }
        if (count == 0)
            event_base_loopbreak(server.base);
    }
}

static void *server_main(void *user)
{
    event_base_dispatch(server.base);
    return user;
}

/* ---- the client ---- */

static void order(int count)
{
    char bytes[MESSAGE_MAX] = "";
    memcpy(bytes, &count, sizeof count);
    zmq_send(client.zmq, bytes, message_bytes, 0);
}

static void client_message(void)
{
    if (trips_left > 0 && --trips_left > 0)
        order(1);
    if (messages_left > 0 && --messages_left % ORDER == 0 && orders_left > 0) {
        orders_left--;
        order(ORDER);
    }
    if (!trips_left && !messages_left)
        event_base_loopbreak(client.base);
}

static void client_readable(evutil_socket_t fd, short what, void *user)
{
    char bytes[MESSAGE_MAX];
    (void)fd, (void)what, (void)user;
    while (has_message(&client)) {
        zmq_recv(client.zmq, bytes, sizeof bytes, 0);
        client_message();
    }
}

void bare_open(size_t bytes)
{
    message_bytes = bytes;
    context = zmq_ctx_new();
    side_open(&server, ZMQ_ROUTER, server_readable);
    side_open(&client, ZMQ_DEALER, client_readable);
    pthread_create(&server_thread, NULL, server_main, NULL);
}

void bare_close(void)
{
    order(0);
    pthread_join(server_thread, NULL);
    side_close(&client);
    side_close(&server);
    zmq_ctx_term(context);
}

static double run(int64_t began)
{
    client_readable(-1, 0, NULL);              /* the sends may have swallowed the edge */
    if (trips_left || messages_left)
        event_base_dispatch(client.base);
    return (double)(pl_now() - began) / 1e9;
}

double bare_round_trips(int count)
{
    int64_t began = pl_now();
    trips_left = count;
    order(1);
    return run(began);
}

double bare_messages(int count)
{
    int64_t began = pl_now();
    messages_left = count / ORDER * ORDER;
    orders_left = count / ORDER;
    for (int k = 0; k < ORDERS_OPEN && orders_left > 0; k++, orders_left--)
        order(ORDER);
    return run(began);
}
