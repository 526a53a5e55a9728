/* connections.c - the connections of the page's server: their number and time limits
 *
 * evhttp accepts every connection and waits without end for each next byte.  Here a
 * request must arrive, and its answer must be read, by a deadline.  At the limit further
 * connections wait in the system's queue, and silent ones are closed to make room.  Each
 * connection carries one request.
 *
 * evhttp does not report when it drops a connection.  So a reference to each is held, and
 * a connection without callbacks was dropped. */
#include <errno.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <arpa/inet.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/descriptors.h"
#include "telemetry/dashboard_parts.h"

enum { QUEUE = 128, SEND_BUFFER = 256 << 10 };

static void accept_more(pl_dashboard_t *d, bool more)
{
    d->is_full = !more;
    if (more)
        evconnlistener_enable(d->listener);
    else
        evconnlistener_disable(d->listener);
}

static void output_grew(struct evbuffer *out, const struct evbuffer_cb_info *info,
                        void *user)
{
    const connection_t *c = user;
    if (!c->has_asked && info->n_added)
        http_add_to_error(c->dashboard, out, info->n_added);
}

static void connection_free(connection_t *c)
{
    evbuffer_remove_cb(bufferevent_get_output(c->bev), output_grew, c);
    bufferevent_decref(c->bev);
    pl_free(c);
}

/* evhttp calls it for a new connection.  For lack of memory evhttp makes its own, which
 * has evhttp's time limits only. */
static struct bufferevent *connection_new(struct event_base *base, void *user)
{
    pl_dashboard_t *d = user;
    struct bufferevent *bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    connection_t *c = bev ? pl_alloc(sizeof *c) : NULL;
    if (!c)
        return bev;
    bufferevent_incref(bev);
    const int64_t now = pl_now();
    *c = (connection_t){.dashboard = d,
                        .bev = bev,
                        .came = now,
                        .until = now + REQUEST_SECONDS * PL_SECOND,
                        .next = d->connections};
    evbuffer_add_cb(bufferevent_get_output(bev), output_grew, c);
    d->connections = c;
    d->connection_count++;
    if (d->connection_count >= CONNECTIONS_MAX)
        accept_more(d, false);
    return bev;
}

void connections_tick(pl_dashboard_t *d)
{
    const int64_t now = pl_now();
    for (connection_t **at = &d->connections, *c; (c = *at);) {
        bufferevent_data_cb on_read, on_write;
        bufferevent_event_cb on_event;
        void *user;
        bufferevent_getcb(c->bev, &on_read, &on_write, &on_event, &user);
        if (!on_read && !on_write && !on_event) {           /* evhttp has dropped it */
            *at = c->next;
            connection_free(c);
            d->connection_count--;
            continue;
        }
        if ((c->until && now > c->until)
            || (d->is_full
                && !c->has_asked
                /* evhttp drops it then */
                && now > c->came + SILENT_MS * PL_MILLISECOND))
            shutdown(bufferevent_getfd(c->bev), SHUT_RDWR);
        at = &c->next;
    }
    accept_more(d, d->connection_count
                       < (pl_descriptors_are_few() ? CONNECTIONS_FEW : CONNECTIONS_MAX));
}

void connection_extend(pl_dashboard_t *d, struct evhttp_request *request, int seconds)
{
    const struct bufferevent *bev =
        evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
    for (connection_t *c = d->connections; c; c = c->next)
        if (c->bev == bev) {
            c->until = seconds ? pl_now() + seconds * PL_SECOND : 0;
            c->has_asked = true;
        }
}

void connections_close(pl_dashboard_t *d)
{
    for (connection_t *c; (c = d->connections);) {
        d->connections = c->next;
        connection_free(c);
    }
    d->connection_count = 0;
}

/* ---- listening ---- */

/* The system has no descriptor or memory for a connection: the next tick tries again.
 * The user of the listener is evhttp. */
static void accept_failed(struct evconnlistener *listener, void *evhttp)
{
    (void)evhttp;
    evconnlistener_disable(listener);
}

typedef struct peer_address {
    struct sockaddr_storage address;
    socklen_t size;
} peer_address_t;

static bool port_read(const char *text, uint16_t *port)
{
    char *end;
    const unsigned long value = strtoul(text, &end, 10);
    *port = htons((uint16_t)value);
    return *text >= '0' && *text <= '9' && !*end && value <= 65535;
}

/* "[HOST:]PORT"; false: it is malformed, or not on this machine. */
static bool place_read(const char *text, peer_address_t *place)
{
    char host[64] = "127.0.0.1";
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    struct sockaddr_in *four = (struct sockaddr_in *)&place->address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&place->address;
    *place = (peer_address_t){.size = sizeof *four};
    if (colon && (size_t)(colon - text) < sizeof host)
        snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    else if (colon)
        return false;
    if (!strcmp(host, "localhost"))
        strcpy(host, "127.0.0.1");
    four->sin_family = AF_INET;
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1)
        return ntohl(four->sin_addr.s_addr) >> 24 == 127
               && port_read(port, &four->sin_port);
    *place = (peer_address_t){.size = sizeof *six};
    six->sin6_family = AF_INET6;
    six->sin6_addr = in6addr_loopback;
    return !strcmp(host, "[::1]") && port_read(port, &six->sin6_port);
}

int connections_listen(pl_dashboard_t *d, const char *address, pl_error_t *err)
{
    peer_address_t place;
    const int max = SEND_BUFFER;
    if (!place_read(address, &place))
        return pl_fail(
            err, PL_EINVAL,
            "dashboard \"%.100s\" is not [HOST:]PORT with a HOST of 127.0.0.1, "
            "localhost or [::1]; for other machines use ssh -L or a reverse "
            "proxy (doc/monitoring.md)",
            address);
    d->listener = evconnlistener_new_bind(d->reactor->loop.base, NULL, NULL,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC
                                              | LEV_OPT_REUSEABLE,
                                          QUEUE, (struct sockaddr *)&place.address,
                                          (int)place.size);
    if (!d->listener)
        return pl_fail(err, PL_EBUSY,
                       "the dashboard cannot listen at %s: %s: choose another port, or 0 "
                       "for any",
                       address, strerror(errno));
    const evutil_socket_t fd = evconnlistener_get_fd(d->listener);
    /* Connections inherit the size of the buffer for data that is not read. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &max, sizeof max);
    int code = PL_OK;
    if (getsockname(fd, (struct sockaddr *)&place.address, &place.size) != 0)
        code = pl_fail(err, PL_EIO, "dashboard: %s", strerror(errno));
    else if (!evhttp_bind_listener(d->http, d->listener))
        code = pl_no_memory(err);
    if (code != PL_OK) {
        evconnlistener_free(d->listener);
        d->listener = NULL;
        return code;
    }
    char host[INET6_ADDRSTRLEN] = "";
    if (place.address.ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)&place.address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(d->host, sizeof d->host, "%s:%d", host, ntohs(four->sin_port));
    } else {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&place.address;
        snprintf(d->host, sizeof d->host, "[::1]:%d", ntohs(six->sin6_port));
    }
    evhttp_set_bevcb(d->http, connection_new, d);
    evconnlistener_set_error_cb(d->listener, accept_failed);
    return PL_OK;
}
