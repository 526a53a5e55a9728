/* wire.c - a wire between a socket that listens on a port and those that connect to it,
 * for tests that cut it */
#include "wire.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes on a long way. */
typedef struct packet {
    struct pair *pair;
    struct bufferevent *to;
    struct evbuffer *bytes;
    struct event *timer;
    struct packet *next;
} packet_t;

typedef struct pair {
    struct bufferevent *near, *far;
    packet_t *packets;
    struct pair *next;
} pair_t;

static struct {
    struct event_base *base;
    struct evconnlistener *listener;
    pair_t *pairs;
    uint16_t to;
    bool holds;
    int delay_ms;
} wire;

/* ---- a long way ---- */

static void packet_free(packet_t *packet)
{
    event_free(packet->timer);
    evbuffer_free(packet->bytes);
    free(packet);
}

static void packet_arrives(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    packet_t *packet = user, **at = &packet->pair->packets;
    while (*at != packet)
        at = &(*at)->next;
    *at = packet->next;
    if (packet->pair->near)
        bufferevent_write_buffer(packet->to, packet->bytes);
    packet_free(packet);
}

/* What takes equally long arrives in order. */
static void packet_send(pair_t *pair, struct bufferevent *to, struct evbuffer *bytes)
{
    const struct timeval in = {wire.delay_ms / 1000, wire.delay_ms % 1000 * 1000};
    packet_t *packet = calloc(1, sizeof *packet);
    *packet = (packet_t){pair, to, evbuffer_new(), NULL, pair->packets};
    pair->packets = packet;
    evbuffer_add_buffer(packet->bytes, bytes);
    packet->timer = event_new(wire.base, -1, 0, packet_arrives, packet);
    event_add(packet->timer, event_base_init_common_timeout(wire.base, &in));
}

void wire_delay(int milliseconds)
{
    wire.delay_ms = milliseconds;
}

/* ---- connections ---- */

static void pair_cut(pair_t *pair)
{
    pair_t **at = &wire.pairs;
    while (*at && *at != pair)
        at = &(*at)->next;
    if (*at)
        *at = pair->next;
    for (packet_t *packet = pair->packets, *next; packet; packet = next) {
        next = packet->next;
        packet_free(packet);
    }
    if (pair->near)
        bufferevent_free(pair->near);
    bufferevent_free(pair->far);
    free(pair);
}

void wire_cut(void)
{
    while (wire.pairs)
        pair_cut(wire.pairs);
}

void wire_cut_near(void)
{
    for (pair_t *pair = wire.pairs; pair; pair = pair->next) {
        bufferevent_disable(pair->far, EV_READ);
        if (pair->near)
            bufferevent_free(pair->near);
        pair->near = NULL;
    }
}

void wire_cut_for_good(void)
{
    evconnlistener_disable(wire.listener);
    wire_cut();
}

void wire_hold(bool holds)
{
    wire.holds = holds;
    for (pair_t *pair = wire.pairs; pair; pair = pair->next) {
        const short what = EV_READ;
        if (!pair->near)
            continue;
        if (holds) {
            bufferevent_disable(pair->near, what);
            bufferevent_disable(pair->far, what);
        } else {
            bufferevent_enable(pair->near, what);
            bufferevent_enable(pair->far, what);
        }
    }
}

static void readable(struct bufferevent *from, void *user)
{
    pair_t *pair = user;
    struct bufferevent *to = from == pair->near ? pair->far : pair->near;
    if (wire.delay_ms)
        packet_send(pair, to, bufferevent_get_input(from));
    else
        bufferevent_write_buffer(to, bufferevent_get_input(from));
}

static void ended(struct bufferevent *from, short what, void *user)
{
    (void)from;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        pair_cut(user);
}

static void accepted(struct evconnlistener *listener, evutil_socket_t fd,
                     struct sockaddr *from, int size, void *user)
{
    (void)listener, (void)from, (void)size, (void)user;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(wire.to)};
    pair_t *pair = calloc(1, sizeof *pair);
    *pair = (pair_t){bufferevent_socket_new(wire.base, fd, BEV_OPT_CLOSE_ON_FREE),
                     bufferevent_socket_new(wire.base, -1, BEV_OPT_CLOSE_ON_FREE), NULL,
                     wire.pairs};
    wire.pairs = pair;
    bufferevent_setcb(pair->near, readable, NULL, ended, pair);
    bufferevent_setcb(pair->far, readable, NULL, ended, pair);
    bufferevent_enable(pair->near, wire.holds ? EV_WRITE : EV_READ | EV_WRITE);
    bufferevent_enable(pair->far, wire.holds ? EV_WRITE : EV_READ | EV_WRITE);
    bufferevent_socket_connect(pair->far, (struct sockaddr *)&to, sizeof to);
}

const char *wire_open(struct event_base *base, const char *endpoint)
{
    static char through[64];
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    memset(&wire, 0, sizeof wire);
    wire.base = base;
    wire.to = (uint16_t)atoi(strrchr(endpoint, ':') + 1);
    wire.listener = evconnlistener_new_bind(base, accepted, NULL, LEV_OPT_CLOSE_ON_FREE,
                                            -1, (struct sockaddr *)&at, sizeof at);
    getsockname(evconnlistener_get_fd(wire.listener), (struct sockaddr *)&at, &size);
    snprintf(through, sizeof through, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    return through;
}

void wire_close(void)
{
    evconnlistener_free(wire.listener);
    wire_cut();
}
