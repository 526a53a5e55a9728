/* socket_peers.c - observes connections of a socket: their number, rate and greeting
 *
 * ZeroMQ reports that a greeting failed, and then, with the descriptor, that the
 * connection has ended.  The descriptor has no address any more at that time, so the
 * address is read when the connection is accepted.  Only the newest addresses are kept.
 */
#include <event2/event.h>
#include <linux/filter.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket_parts.h"

enum { COMERS_AT_ONCE = 2048, INTAKE_US = 100000 };

/* ---- closing a port ---- */

/* Clients that wait outside raise no event here, so a timer looks again. */
static void look_soon(pl_socket_t *socket)
{
    const struct timeval soon = {0, INTAKE_US}, later = {1, 0};
    if (socket->look && !event_pending(socket->look, EV_TIMEOUT, NULL))
        event_add(socket->look, socket->intake.is_full ? &soon : &later);
}

/* ZeroMQ accepts every connection, so the kernel drops new ones before; clients try
 * again. */
static void port_update(pl_socket_t *socket)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog all = {1, &drop};
    const bool shut = socket->shut || socket->intake.is_full;
    if (shut)
        look_soon(socket);
    if (socket->port < 0 || shut == socket->is_shut)
        return;
    socket->is_shut = shut;
    setsockopt(socket->port, SOL_SOCKET, shut ? SO_ATTACH_FILTER : SO_DETACH_FILTER, &all,
               sizeof all);
}

void pl_socket_shut(pl_socket_t *socket, bool shut)
{
    socket->listen_shut = shut;
    if (shut)
        look_soon(socket);
    pl_socket_path_shut(&socket->listen_path, shut);
}

void pl_socket_shut_port(pl_socket_t *socket, bool shut)
{
    socket->shut = shut;
    port_update(socket);
}

bool pl_socket_is_flooded(const pl_socket_t *socket)
{
    return socket->intake.is_full;
}

/* Each new connection takes about 60 us of a processor that training needs, and clients
 * that flood a port connect again and again. */
static void intake_update(pl_socket_t *socket)
{
    socket_intake_t *intake = &socket->intake;
    const int64_t now = pl_now(), gone = now - intake->grown,
                  grown = gone < PL_SECOND * COMERS_AT_ONCE / intake->a_second
                              ? gone * intake->a_second / PL_SECOND
                              : COMERS_AT_ONCE;
    intake->grown += grown * PL_SECOND / intake->a_second;
    intake->capacity += (int)grown;
    if (intake->capacity >= COMERS_AT_ONCE) {
        intake->capacity = COMERS_AT_ONCE;
        intake->grown = now;
    }
    intake->is_full = intake->capacity <= 0;
    port_update(socket);
}

static void look(int fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_socket_t *socket = user;
    if (socket->intake.a_second)
        intake_update(socket);
    if (socket->shut || socket->listen_shut)
        socket->on_peers(socket->user, socket->peer_count);
}

/* ---- events ---- */

/* Keeps the address of a new connection, "10.0.0.2, port 4711", or "" if it is
 * unknown. */
static void accepted(pl_socket_t *socket, int fd)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char host[SOCKET_ADDRESS - 16], port[8];
    if (socket->intake.a_second) {
        socket->intake.capacity--;
        intake_update(socket);
    }
    if (!socket->on_greeting)
        return;
    socket_comer_t *comer = &socket->comer[socket->comers++ % SOCKET_COMERS];
    comer->fd = fd;
    comer->address[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&at, &length) == 0
        && getnameinfo((struct sockaddr *)&at, length, host, sizeof host, port,
                       sizeof port, NI_NUMERICHOST | NI_NUMERICSERV)
               == 0)
        snprintf(comer->address, sizeof comer->address, "%s, port %s", host, port);
}

static const char *address_of(const pl_socket_t *socket, int fd)
{
    for (unsigned k = 1; k <= SOCKET_COMERS && k <= socket->comers; k++) {
        const socket_comer_t *comer =
            &socket->comer[(socket->comers - k) % SOCKET_COMERS];
        if (comer->fd == fd && *comer->address)
            return comer->address;
    }
    return "a client";
}

/* An event and its value; the endpoint is a message of its own.  A client with another
 * key sends what cannot be decrypted; a client without a key uses another mechanism. */
static void peer_event(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity;
    pl_socket_t *socket = user;
    pl_bytes_t bytes = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    uint16_t event;
    int32_t value;
    if (bytes.size != sizeof event + sizeof value)
        return;
    memcpy(&event, bytes.data, sizeof event);
    memcpy(&value, (const char *)bytes.data + sizeof event, sizeof value);
    switch (event) {
    case ZMQ_EVENT_LISTENING:
        socket->port = socket->listen_path.path[0] ? -1 : value;
        return;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        if (socket->on_greeting)
            socket->on_greeting(socket->user, PL_GREETING_DONE, "");
        return;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        socket->wrong = value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC
                            ? PL_GREETING_OTHER_KEY
                        : value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
                            ? PL_GREETING_NO_KEY
                            : PL_GREETING_BAD;
        return;
    case ZMQ_EVENT_DISCONNECTED: {
        const pl_greeting_t wrong = socket->wrong;
        socket->wrong = PL_GREETING_DONE;
        socket->on_peers(socket->user, --socket->peer_count);
        if (wrong != PL_GREETING_DONE && socket->on_greeting)
            socket->on_greeting(socket->user, wrong, address_of(socket, value));
        return;
    }
    default:
        if (event == ZMQ_EVENT_ACCEPTED)
            accepted(socket, value);
        socket->on_peers(socket->user, ++socket->peer_count);
    }
}

int socket_watch(pl_socket_t *socket, int comers_a_second, pl_error_t *err)
{
    static unsigned watched;
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "inproc://paceline-peers-%u",
             __atomic_add_fetch(&watched, 1, __ATOMIC_RELAXED));
    if (zmq_socket_monitor(socket->zmq, endpoint,
                           ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED
                               | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED
                               | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)
        != 0)
        return socket_fail(err, PL_EBUSY, "cannot watch", endpoint);
    pl_socket_spec_t spec = {.type = PL_SOCKET_PAIR, .endpoint = endpoint};
    socket->peers = pl_socket_open(&spec, socket->loop, peer_event, socket, err);
    if (!socket->peers)
        return PL_EBUSY;
    socket->intake = (socket_intake_t){.a_second = comers_a_second,
                                       .capacity = COMERS_AT_ONCE,
                                       .grown = pl_now()};
    socket->look = event_new(socket->loop->base, -1, 0, look, socket);
    return socket->look ? PL_OK : pl_no_memory(err);
}

void socket_unwatch(pl_socket_t *socket)
{
    if (socket->look)
        event_free(socket->look);
    if (socket->peers)
        zmq_socket_monitor(socket->zmq, NULL, 0);
    pl_socket_close(socket->peers);
}
