/* socket_turn.c - receives and sends messages of a socket
 *
 * When to look at a socket again: a turn that found no further message has read all of
 * them, and a later message raises a new edge.  A turn that ended by its budget continues
 * at once.  After a send the edge may be gone, so ZMQ_EVENTS is read once before the loop
 * waits, however many sends there were.
 *
 * A look that finds nothing costs a system call or two.  Usually one message arrives and
 * an answer is sent, so an edge takes just one message, and the look before the loop
 * waits finds further ones. */
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket_parts.h"
#include "transport/tsan_annotations.h"

#ifdef __SANITIZE_THREAD__
char pl_tsan_address;
#endif

enum { TURN_MESSAGES = 64, FLUSH_TURNS = 16 };
static const int64_t TURN_TIME = PL_MILLISECOND;

/* ---- when to look again ---- */

void socket_look_later(pl_socket_t *socket)
{
    if (!socket->loop || socket->sent_pprev)
        return;
    socket->next_sent = socket->loop->sent;
    socket->sent_pprev = &socket->loop->sent;
    if (socket->next_sent)
        socket->next_sent->sent_pprev = &socket->next_sent;
    socket->loop->sent = socket;
}

void socket_looked(pl_socket_t *socket)
{
    if (!socket->sent_pprev)
        return;
    *socket->sent_pprev = socket->next_sent;
    if (socket->next_sent)
        socket->next_sent->sent_pprev = socket->sent_pprev;
    socket->sent_pprev = NULL;
}

static void continue_soon(pl_socket_t *socket)
{
    static const struct timeval zero;
    if (socket->again)
        event_add(socket->again, &zero);
}

static bool has_message(pl_socket_t *socket)
{
    int events = 0, got;
    size_t size = sizeof events;
    do
        got = zmq_getsockopt(socket->zmq, ZMQ_EVENTS, &events, &size);
    while (got != 0 && zmq_errno() == EINTR);
    return got == 0 && (events & ZMQ_POLLIN);
}

/* ---- receiving ---- */

static bool receive_part(pl_socket_t *socket, zmq_msg_t *part)
{
    int size;
    do
        size = zmq_msg_recv(part, socket->zmq, ZMQ_DONTWAIT);
    while (size < 0 && zmq_errno() == EINTR);
    return size >= 0;
}

/* The identity of a ROUTER's first part; 0: no socket of Paceline uses it. */
static uint32_t identity_of(zmq_msg_t *part)
{
    uint32_t identity = 0;
    const char *id = zmq_msg_data(part);
    if (zmq_msg_size(part) == SOCKET_IDENTITY && id[0] == 1)
        memcpy(&identity, id + 1, sizeof identity);
    return identity;
}

/* Receives one message with all its parts and keeps the last part; -> the number of
 * parts, 0: no message.  From an XPUB each part is a message, because it joins messages
 * of subscribers with its own.  So is each part from a PAIR, a REP and a DESK. */
static int receive_all(pl_socket_t *socket, zmq_msg_t *last, uint32_t *identity)
{
    int parts = 0;
    *identity = 0;
    do {
        if (!receive_part(socket, last))
            return 0;
        if (parts++ == 0 && socket->type == PL_SOCKET_ROUTER)
            *identity = identity_of(last);
    } while (zmq_msg_more(last)
             && (socket->type == PL_SOCKET_ROUTER || socket->type == PL_SOCKET_DEALER
                 || socket->type == PL_SOCKET_SUB));
    if (socket->type == PL_SOCKET_REP || socket->type == PL_SOCKET_DESK)
        *identity = (uint32_t)zmq_msg_more(last);
    PL_TSAN_ACQUIRE();
    return parts;
}

/* Receives the next of several messages that were sent together. */
static int receive_one(pl_socket_t *socket, zmq_msg_t *message, uint32_t *identity)
{
    const bool is_first = !socket->has_more;
    if (!receive_part(socket, message))
        return 0;
    socket->has_more = zmq_msg_more(message);
    *identity = 0;
    if (is_first && socket->type == PL_SOCKET_ROUTER) {
        socket->from = identity_of(message);
        if (!socket->has_more || !receive_part(socket, message))
            return 1;
        socket->has_more = zmq_msg_more(message);
    }
    *identity = socket->from;
    PL_TSAN_ACQUIRE();
    return socket->type == PL_SOCKET_ROUTER ? 2 : 1;
}

/* False: the socket was closed inside. */
static bool turn(pl_socket_t *socket, int max)
{
    bool closed = false, *outer = socket->closed;
    int64_t end = pl_now() + TURN_TIME;
    int wanted = socket->type == PL_SOCKET_ROUTER ? 2 : 1, parts = 0, budget = max;
    pl_frame_t frame;
    zmq_msg_t *message = (zmq_msg_t *)frame.zmq_msg;
    uint32_t identity;
    zmq_msg_init(message);
    socket->closed = &closed;
    do {
        parts = socket->company ? receive_one(socket, message, &identity)
                                : receive_all(socket, message, &identity);
        if (parts)
            socket->on_message(socket->user, identity, parts == wanted ? &frame : NULL);
    } while (parts && !closed && --budget > 0 && pl_now() < end);
    zmq_msg_close(message);
    if (closed) {
        if (outer)
            *outer = true;
        return false;
    }
    socket->closed = outer;
    socket_looked(socket);
    if (parts && max == 1)
        socket_look_later(socket);
    else if (parts)
        continue_soon(socket);
    return true;
}

void socket_ready(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    turn(user, 1);
}

void socket_continue(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    turn(user, TURN_MESSAGES);
}

void pl_sockets_flush(pl_sockets_t *loop)
{
    for (int turns = 0; loop->sent; turns++) {
        pl_socket_t *socket = loop->sent;
        socket_looked(socket);
        if (!has_message(socket))
            continue;
        if (turns < FLUSH_TURNS)
            turn(socket, TURN_MESSAGES);
        else
            continue_soon(socket);                          /* timers run in between */
    }
}

void pl_socket_look(pl_socket_t *socket)
{
    if (has_message(socket))
        turn(socket, TURN_MESSAGES);
}

void pl_socket_drain(pl_socket_t *socket)
{
    while (has_message(socket))
        if (!turn(socket, TURN_MESSAGES))
            return;
}

int64_t pl_socket_receive(pl_socket_t *socket, void *data, size_t capacity,
                          int timeout_ms, pl_error_t *err)
{
    zmq_pollitem_t item = {.socket = socket->zmq, .events = ZMQ_POLLIN};
    int ready = zmq_poll(&item, 1, timeout_ms);
    if (ready < 0 && zmq_errno() != EINTR)
        return socket_fail(err, PL_EIO, "cannot wait for", "messages");
    zmq_msg_t message;
    uint32_t identity;
    zmq_msg_init(&message);
    int64_t size = 0;
    if (ready > 0 && receive_all(socket, &message, &identity)) {
        size = (int64_t)zmq_msg_size(&message);
        memcpy(data, zmq_msg_data(&message),
               (size_t)size < capacity ? (size_t)size : capacity);
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
    bool full = zmq_errno() == EAGAIN && socket->bounded;   /* without a limit a send
                                                               waits only without peer */
    return socket_fail(err, full ? PL_EBUSY : PL_EPEER, "cannot send", "a message");
}

int pl_socket_send_with(pl_socket_t *socket, uint32_t identity, pl_frame_t *frame,
                        bool more, pl_error_t *err)
{
    int sent = PL_OK;
    PL_TSAN_RELEASE();
    if (socket->type == PL_SOCKET_ROUTER && !socket->sends_more) {
        zmq_msg_t part;
        zmq_msg_init_size(&part, SOCKET_IDENTITY);          /* so short that nothing is
                                                               allocated */
        char *id = zmq_msg_data(&part);
        id[0] = 1;
        memcpy(id + 1, &identity, sizeof identity);
        sent = send_part(socket, &part, ZMQ_SNDMORE, err);
        zmq_msg_close(&part);
    }
    if (sent == PL_OK)
        sent = send_part(socket, (zmq_msg_t *)frame->zmq_msg, more ? ZMQ_SNDMORE : 0,
                         err);
    socket->sends_more = more && sent == PL_OK;
    pl_frame_release(frame);
    socket_look_later(socket);
    return sent;
}

int pl_socket_send(pl_socket_t *socket, uint32_t identity, pl_frame_t *frame,
                   pl_error_t *err)
{
    return pl_socket_send_with(socket, identity, frame, false, err);
}

int pl_socket_send_parts(pl_socket_t *socket, const pl_bytes_t *parts, int count,
                         pl_error_t *err)
{
    int sent = PL_OK;
    PL_TSAN_RELEASE();
    for (int k = 0; k < count && sent == PL_OK; k++) {
        zmq_msg_t part;
        if (zmq_msg_init_size(&part, parts[k].size) != 0) {
            sent = pl_no_memory(err);
            break;
        }
        memcpy(zmq_msg_data(&part), parts[k].data, parts[k].size);
        sent = send_part(socket, &part, k + 1 < count ? ZMQ_SNDMORE : 0, err);
        zmq_msg_close(&part);
    }
    socket_look_later(socket);
    return sent;
}

int pl_socket_publish(pl_socket_t *socket, pl_bytes_t topic, pl_bytes_t text,
                      pl_error_t *err)
{
    return pl_socket_send_parts(socket, (const pl_bytes_t[]){topic, text}, 2, err);
}
