/* socket_peers.c - who connects to a socket, how fast, and how they greet
 *
 * ZeroMQ tells of a greeting that fails, then, with the descriptor, that the connection
 * has ended; by that the descriptor names nobody any more, so who comes is asked for its
 * address when it comes.  Of many that come at once only the latest are known. */
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

/* ---- nobody is let in ---- */

/* Who waits outside makes nothing happen here. */
static void look_soon(pl_socket_t *socket)
{
    const struct timeval soon = {0, INTAKE_US}, later = {1, 0};
    if (socket->look && !event_pending(socket->look, EV_TIMEOUT, NULL))
        event_add(socket->look, socket->intake.is_full ? &soon : &later);
}

/* ZeroMQ takes in whoever has come as far as that; so who comes is dropped before, by the
 * kernel, and tries again. */
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

/* Each who comes takes some 60 us of a processor that training wants, and who floods a
 * port comes again. */
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

/* ---- what happens ---- */

/* "10.0.0.2, port 4711"; "" where that cannot be told. */
static void address_of(int fd, char text[SOCKET_WHO])
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char host[SOCKET_WHO - 16], port[8];
    text[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&at, &length) == 0
        && getnameinfo((struct sockaddr *)&at, length, host, sizeof host, port,
                       sizeof port, NI_NUMERICHOST | NI_NUMERICSERV)
               == 0)
        snprintf(text, SOCKET_WHO, "%s, port %s", host, port);
}

static void came(pl_socket_t *socket, int fd)
{
    if (socket->intake.a_second) {
        socket->intake.capacity--;
        intake_update(socket);
    }
    if (!socket->on_greeting)
        return;
    socket_comer_t *comer = &socket->comer[socket->comers++ % SOCKET_COMERS];
    comer->fd = fd;
    address_of(fd, comer->who);
}

static const char *who_was(const pl_socket_t *socket, int fd)
{
    for (unsigned k = 1; k <= SOCKET_COMERS && k <= socket->comers; k++) {
        const socket_comer_t *comer =
            &socket->comer[(socket->comers - k) % SOCKET_COMERS];
        if (comer->fd == fd && *comer->who)
            return comer->who;
    }
    return "a client";
}

/* Who has another key cannot be understood; who has none speaks otherwise. */
static pl_greeting_t greeting_of(int32_t wrong)
{
    return wrong == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC        ? PL_GREETING_OTHER_KEY
           : wrong == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH ? PL_GREETING_NO_KEY
                                                                 : PL_GREETING_BAD;
}

static void greeted(pl_socket_t *socket, pl_greeting_t how, const char *who)
{
    if (socket->on_greeting)
        socket->on_greeting(socket->user, how, who);
}

static void has_gone(pl_socket_t *socket, int fd)
{
    const pl_greeting_t wrong = socket->wrong;
    socket->wrong = PL_GREETING_DONE;
    socket->on_peers(socket->user, --socket->peer_count);
    if (wrong != PL_GREETING_DONE)
        greeted(socket, wrong, who_was(socket, fd));
}

static void peer_happened(pl_socket_t *socket, int event, int32_t value)
{
    switch (event) {
    case ZMQ_EVENT_LISTENING:
        socket->port = socket->listen_path.path[0] ? -1 : value;
        return;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: greeted(socket, PL_GREETING_DONE, ""); return;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL: socket->wrong = greeting_of(value); return;
    case ZMQ_EVENT_DISCONNECTED: has_gone(socket, value); return;
    default:
        if (event == ZMQ_EVENT_ACCEPTED)
            came(socket, value);
        socket->on_peers(socket->user, ++socket->peer_count);
    }
}

/* An event and its value; the endpoint is a part of its own. */
static void peer_event(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity;
    pl_bytes_t bytes = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    uint16_t event;
    int32_t value;
    if (bytes.size != sizeof event + sizeof value)
        return;
    memcpy(&event, bytes.data, sizeof event);
    memcpy(&value, (const char *)bytes.data + sizeof event, sizeof value);
    peer_happened(user, event, value);
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
