/* socket.c - the one wrapper around ZeroMQ: opens, sends, receives, tells libevent */
#include "runtime/socket.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/marks.h"

#ifdef __SANITIZE_THREAD__
char pl_mark;
#endif

enum { TURN_MESSAGES = 64 };
static const int64_t TURN_TIME = PL_MILLISECOND;

struct pl_socket {
    void *zmq;
    pl_socket_type_t type;
    struct event *readable;                                 /* the edge of ZMQ_FD */
    struct event *again;                                    /* a zero timeout: there is more */
    pl_on_message_t on_message;
    void *user;
    bool in_turn;                                           /* the turn's end looks again anyway */
    bool *closed;                                           /* set when closed from inside a turn */
};

static int zmq_fail(pl_error_t *err, int code, const char *what, const char *about)
{
    return pl_fail(err, code, "%s %s: %s", what, about, zmq_strerror(zmq_errno()));
}

/* ---- opening ---- */

static int option_int(void *zmq, int option, int value)
{
    return zmq_setsockopt(zmq, option, &value, sizeof value);
}

static int options_set(void *zmq, const pl_socket_spec_t *spec)
{
    int64_t most = PL_MESSAGE_MOST;
    int failed = option_int(zmq, ZMQ_LINGER, spec->linger_ms) | option_int(zmq, ZMQ_SNDHWM, spec->high_water_mark)
                 | option_int(zmq, ZMQ_RCVHWM, spec->high_water_mark)
                 | zmq_setsockopt(zmq, ZMQ_MAXMSGSIZE, &most, sizeof most)
                 | option_int(zmq, ZMQ_HANDSHAKE_IVL, 2000) | option_int(zmq, ZMQ_RECONNECT_IVL_MAX, 5000);
    if (!strncmp(spec->endpoint, "tcp:", 4))
        failed |= option_int(zmq, ZMQ_HEARTBEAT_IVL, 1000) | option_int(zmq, ZMQ_HEARTBEAT_TIMEOUT, 3000);
    if (spec->type == PL_SOCKET_ROUTER)
        failed |= option_int(zmq, ZMQ_ROUTER_MANDATORY, 1);
    if (spec->type == PL_SOCKET_DEALER) {
        char id[5] = {1};                                   /* an identity must not start with a zero byte */
        memcpy(id + 1, &spec->identity, sizeof spec->identity);
        failed |= zmq_setsockopt(zmq, ZMQ_ROUTING_ID, id, sizeof id);
    }
    return failed;
}

static void *zmq_open(const pl_socket_spec_t *spec, pl_error_t *err)
{
    static const int types[] = {ZMQ_ROUTER, ZMQ_DEALER, ZMQ_PUSH, ZMQ_PULL, ZMQ_XPUB, ZMQ_SUB};
    void *context = pl_context_acquire(err);
    if (!context)
        return NULL;
    void *zmq = zmq_socket(context, types[spec->type]);
    if (!zmq) {
        zmq_fail(err, PL_EBUSY, "no socket for", spec->endpoint);
        pl_context_release();
        return NULL;
    }
    if (options_set(zmq, spec) == 0
        && (spec->bind ? zmq_bind(zmq, spec->endpoint) : zmq_connect(zmq, spec->endpoint)) == 0)
        return zmq;
    zmq_fail(err, PL_EIO, spec->bind ? "cannot listen on" : "cannot connect to", spec->endpoint);
    zmq_close(zmq);
    pl_context_release();
    return NULL;
}

static int events_now(pl_socket_t *socket)
{
    int events = 0;
    size_t size = sizeof events;
    return zmq_getsockopt(socket->zmq, ZMQ_EVENTS, &events, &size) == 0 ? events : 0;
}

static void look_again(pl_socket_t *socket)
{
    static const struct timeval zero;
    if (socket->again && !socket->in_turn && (events_now(socket) & ZMQ_POLLIN))
        event_add(socket->again, &zero);
}

static void socket_turn(evutil_socket_t fd, short what, void *user);

static int events_new(pl_socket_t *socket, struct event_base *base, pl_error_t *err)
{
    int fd;
    size_t size = sizeof fd;
    if (zmq_getsockopt(socket->zmq, ZMQ_FD, &fd, &size) != 0)
        return zmq_fail(err, PL_EIO, "no descriptor of", "a socket");
    socket->readable = event_new(base, fd, EV_READ | EV_PERSIST, socket_turn, socket);
    socket->again = event_new(base, -1, 0, socket_turn, socket);
    if (!socket->readable || !socket->again || event_add(socket->readable, NULL) != 0)
        return pl_no_memory(err);
    look_again(socket);
    return PL_OK;
}

pl_socket_t *pl_socket_open(const pl_socket_spec_t *spec, struct event_base *base, pl_on_message_t on_message, void *user,
                            pl_error_t *err)
{
    pl_socket_t *socket = pl_alloc(sizeof *socket);
    if (!socket) {
        pl_no_memory(err);
        return NULL;
    }
    *socket = (pl_socket_t){.type = spec->type, .on_message = on_message, .user = user};
    socket->zmq = zmq_open(spec, err);
    if (!socket->zmq) {
        pl_free(socket);
        return NULL;
    }
    if (base && events_new(socket, base, err) != PL_OK) {
        pl_socket_close(socket);
        return NULL;
    }
    return socket;
}

void pl_socket_close(pl_socket_t *socket)
{
    if (!socket)
        return;
    if (socket->closed)
        *socket->closed = true;
    if (socket->readable)
        event_free(socket->readable);
    if (socket->again)
        event_free(socket->again);
    zmq_close(socket->zmq);
    pl_context_release();
    pl_free(socket);
}

/* ---- receiving ---- */

/* The identity of a ROUTER's first part; 0 for one that no socket of ours uses. */
static uint32_t identity_of(zmq_msg_t *part)
{
    uint32_t identity = 0;
    if (zmq_msg_size(part) == 5)
        memcpy(&identity, (char *)zmq_msg_data(part) + 1, sizeof identity);
    return identity;
}

/* One message with all its parts: the first as identity, the last is what counts.  False when none is there. */
static bool receive_one(pl_socket_t *socket, zmq_msg_t *last, uint32_t *identity)
{
    bool first = true;
    *identity = 0;
    do {
        if (zmq_msg_recv(last, socket->zmq, ZMQ_DONTWAIT) < 0)
            return false;
        if (first && zmq_msg_more(last))
            *identity = identity_of(last);
        first = false;
    } while (zmq_msg_more(last));
    PL_MARK_ACQUIRE();
    return true;
}

static void socket_turn(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_socket_t *socket = user;
    bool closed = false;
    int64_t end = pl_now() + TURN_TIME;
    zmq_msg_t message;
    uint32_t identity;
    zmq_msg_init(&message);
    socket->in_turn = true;
    socket->closed = &closed;
    for (int k = 0; k < TURN_MESSAGES && receive_one(socket, &message, &identity); k++) {
        socket->on_message(socket->user, identity, &message);
        if (closed || pl_now() > end)
            break;
    }
    zmq_msg_close(&message);
    if (closed)
        return;
    socket->in_turn = false;
    socket->closed = NULL;
    look_again(socket);
}

void pl_socket_drain(pl_socket_t *socket)
{
    while (events_now(socket) & ZMQ_POLLIN)
        socket_turn(-1, 0, socket);
}

int64_t pl_socket_receive(pl_socket_t *socket, void *data, size_t room, int timeout_ms, pl_error_t *err)
{
    zmq_pollitem_t item = {.socket = socket->zmq, .events = ZMQ_POLLIN};
    int ready = zmq_poll(&item, 1, timeout_ms);
    if (ready < 0 && zmq_errno() != EINTR)
        return zmq_fail(err, PL_EIO, "cannot wait for", "messages");
    zmq_msg_t message;
    uint32_t identity;
    zmq_msg_init(&message);
    int64_t size = 0;
    if (ready > 0 && receive_one(socket, &message, &identity)) {
        size = (int64_t)zmq_msg_size(&message);
        memcpy(data, zmq_msg_data(&message), (size_t)size < room ? (size_t)size : room);
    }
    zmq_msg_close(&message);
    return size;
}

/* ---- sending ---- */

static int send_part(pl_socket_t *socket, zmq_msg_t *part, int more, pl_error_t *err)
{
    int sent;
    do
        sent = zmq_msg_send(part, socket->zmq, ZMQ_DONTWAIT | more);
    while (sent < 0 && zmq_errno() == EINTR);
    if (sent >= 0)
        return PL_OK;
    bool nobody = zmq_errno() == EHOSTUNREACH || socket->type == PL_SOCKET_DEALER;  /* links have no high water mark */
    return zmq_fail(err, nobody ? PL_EPEER : PL_EBUSY, "cannot send", "a message");
}

static int send_identity(pl_socket_t *socket, uint32_t identity, pl_error_t *err)
{
    zmq_msg_t part;
    zmq_msg_init_size(&part, 5);                            /* so short that ZeroMQ allocates nothing */
    char *id = zmq_msg_data(&part);
    id[0] = 1;
    memcpy(id + 1, &identity, sizeof identity);
    int sent = send_part(socket, &part, ZMQ_SNDMORE, err);
    zmq_msg_close(&part);
    return sent;
}

int pl_socket_send(pl_socket_t *socket, uint32_t identity, pl_frame_t **frame_p, pl_error_t *err)
{
    int sent = PL_OK;
    PL_MARK_RELEASE();
    if (socket->type == PL_SOCKET_ROUTER)
        sent = send_identity(socket, identity, err);
    if (sent == PL_OK)
        sent = send_part(socket, pl_frame_zmq(*frame_p), 0, err);
    pl_frame_free(*frame_p);
    *frame_p = NULL;
    look_again(socket);
    return sent;
}

static int send_copy(pl_socket_t *socket, pl_bytes_t head, pl_bytes_t tail, int more, pl_error_t *err)
{
    zmq_msg_t part;
    if (zmq_msg_init_size(&part, head.size + tail.size) != 0)
        return pl_no_memory(err);
    memcpy(zmq_msg_data(&part), head.data, head.size);
    if (tail.size)
        memcpy((char *)zmq_msg_data(&part) + head.size, tail.data, tail.size);
    int sent = send_part(socket, &part, more, err);
    zmq_msg_close(&part);
    return sent;
}

int pl_socket_send_bytes(pl_socket_t *socket, pl_bytes_t head, pl_bytes_t tail, pl_error_t *err)
{
    const pl_bytes_t nothing = {0};
    PL_MARK_RELEASE();
    int sent = PL_OK;
    if (socket->type != PL_SOCKET_XPUB)
        sent = send_copy(socket, head, tail, 0, err);
    else if ((sent = send_copy(socket, head, nothing, ZMQ_SNDMORE, err)) == PL_OK)
        sent = send_copy(socket, tail, nothing, 0, err);
    look_again(socket);
    return sent;
}

/* ---- small things ---- */

int pl_socket_subscribe(pl_socket_t *socket, const char *topic, pl_error_t *err)
{
    if (zmq_setsockopt(socket->zmq, ZMQ_SUBSCRIBE, topic, strlen(topic)) == 0)
        return PL_OK;
    return zmq_fail(err, PL_EINVAL, "cannot subscribe to", topic);
}

int pl_socket_endpoint(pl_socket_t *socket, char *text, size_t room, pl_error_t *err)
{
    if (zmq_getsockopt(socket->zmq, ZMQ_LAST_ENDPOINT, text, &room) == 0)
        return PL_OK;
    return zmq_fail(err, PL_EIO, "no endpoint of", "a socket");
}
