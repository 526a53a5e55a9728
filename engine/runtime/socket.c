/* socket.c - the one wrapper around ZeroMQ: opens, sends, receives, tells libevent
 *
 * When to look at a socket again: a turn that ended because nothing was left has read all
 * there was, and what comes later raises a new edge.  A turn that ended by its budget
 * goes on at once.  After a send the edge may be gone, so ZMQ_EVENTS is read once before
 * the loop waits, however many sends there were.
 *
 * Each look that finds nothing costs a system call or two.  Mostly one message comes and
 * an answer is sent, so an edge takes just one message: the look before the loop waits
 * finds out whether there were more. */
#include "runtime/socket.h"

#include <errno.h>
#include <event2/event.h>
#include <linux/filter.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/descriptors.h"
#include "runtime/endpoint.h"
#include "runtime/gate.h"
#include "runtime/marks.h"
#include "runtime/port_holder.h"

#ifdef __SANITIZE_THREAD__
char pl_mark;
#endif

enum { TURN_MESSAGES = 64, SETTLE_TURNS = 16, IDENTITY_SIZE = 5, SOCKET_DESCRIPTORS = 8 };
static const int64_t TURN_TIME = PL_MILLISECOND;

struct pl_socket {
    void *zmq;
    pl_socket_type_t type;
    bool bounded;                                           /* has a high water mark */
    pl_sockets_t *loop;
    struct event *readable;                            /* the edge of ZMQ_FD */
    struct event *again;                               /* a zero timeout: there is more */
    pl_on_message_t on_message;
    void *user;
    pl_door_t door;                            /* of an ipc endpoint that it listens at */
    int port;                                  /* ZeroMQ's descriptor of a tcp one [-1] */
    bool is_shut;                              /* the port */
    char domain[PL_GATE_DOMAIN];               /* that its gate is open in  ["": none] */
    pl_socket_t *peers;                        /* tells who connects  [nobody asks] */
    int peer_count;
    void (*on_peers)(void *user, int peers);
    bool *closed;                               /* set when closed from inside a turn [not
                                                   in a turn] */
    pl_socket_t *next_sent, **sent_link;        /* in loop->sent; link NULL: not in it */
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

static int option_text(void *zmq, int option, const char *text)
{
    return zmq_setsockopt(zmq, option, text, strlen(text));
}

/* What connects over a file must be of this user, or root. */
static int option_users(void *zmq)
{
    uid_t own = getuid(), root = 0;
    return zmq_setsockopt(zmq, ZMQ_IPC_FILTER_UID, &own, sizeof own)
           | zmq_setsockopt(zmq, ZMQ_IPC_FILTER_UID, &root, sizeof root);
}

static int option_identity(void *zmq, uint32_t identity)
{
    char id[IDENTITY_SIZE] = {1};                    /* must not start with a zero byte */
    memcpy(id + 1, &identity, sizeof identity);
    return zmq_setsockopt(zmq, ZMQ_ROUTING_ID, id, sizeof id);
}

static int options_set(void *zmq, const pl_socket_spec_t *spec)
{
    int64_t most = spec->message_most ? spec->message_most : PL_MESSAGE_MOST;
    /* viewers are on this machine, and a silent one holds a descriptor for so long */
    const int greet_ms = spec->type == PL_SOCKET_XPUB && spec->bind ? 500 : 2000;
    int failed = option_int(zmq, ZMQ_LINGER, spec->linger_ms)
                 | option_int(zmq, ZMQ_SNDHWM, spec->high_water_mark)
                 | option_int(zmq, ZMQ_RCVHWM, spec->high_water_mark)
                 | zmq_setsockopt(zmq, ZMQ_MAXMSGSIZE, &most, sizeof most)
                 | option_int(zmq, ZMQ_HANDSHAKE_IVL, greet_ms)
                 | option_int(zmq, ZMQ_RECONNECT_IVL_MAX, 5000);
    if (!strncmp(spec->endpoint, "tcp:", 4))
        failed |= option_int(zmq, ZMQ_HEARTBEAT_IVL, 1000)
                  | option_int(zmq, ZMQ_HEARTBEAT_TIMEOUT, 3000)
                  | option_int(zmq, ZMQ_IPV6, spec->endpoint[6] == '[');
    if (!strncmp(spec->endpoint, "ipc:", 4) && spec->bind)
        failed |= option_users(zmq);
    if (spec->type == PL_SOCKET_ROUTER)
        failed |= option_int(zmq, ZMQ_ROUTER_MANDATORY, 1);
    if (spec->type == PL_SOCKET_DEALER && !spec->waits)
        failed |= option_int(zmq, ZMQ_IMMEDIATE, 1);
    if (spec->identity)
        failed |= option_identity(zmq, spec->identity);
    return failed;
}

/* Who binds asks the gate about the key of who connects. */
static int keys_set(pl_socket_t *socket, const pl_socket_spec_t *spec, pl_error_t *err)
{
    enum {
        ZAP_ENFORCE_DOMAIN = 93
    };                                      /* refuse all where there is no gate; declared
                                               for drafts only */
    const pl_keys_t *keys = spec->keys;
    int code = spec->bind ? pl_gate_open(keys, socket->domain, err) : PL_OK, failed;
    if (code != PL_OK)
        return code;
    if (spec->bind)
        failed = option_int(socket->zmq, ZMQ_CURVE_SERVER, 1)
                 | option_int(socket->zmq, ZAP_ENFORCE_DOMAIN, 1)
                 | option_text(socket->zmq, ZMQ_ZAP_DOMAIN, socket->domain)
                 | option_text(socket->zmq, ZMQ_CURVE_SECRETKEY, keys->server_secret);
    else
        failed = option_text(socket->zmq, ZMQ_CURVE_SERVERKEY, keys->server_public)
                 | option_text(socket->zmq, ZMQ_CURVE_PUBLICKEY, keys->client_public)
                 | option_text(socket->zmq, ZMQ_CURVE_SECRETKEY, keys->client_secret);
    return failed ? zmq_fail(err, PL_EUNSUPPORTED, "cannot encrypt", spec->endpoint)
                  : PL_OK;
}

/* An event and its value; the endpoint is a part of its own. */
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
    if (event == ZMQ_EVENT_LISTENING) {
        socket->port = socket->door.path[0] ? -1 : value;
        return;
    }
    socket->peer_count += event == ZMQ_EVENT_DISCONNECTED ? -1 : 1;
    socket->on_peers(socket->user, socket->peer_count);
}

/* Before it is bound or connected, so that nobody waits to be told of. */
static int peers_watch(pl_socket_t *socket, pl_error_t *err)
{
    static unsigned watched;
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "inproc://paceline-peers-%u",
             __atomic_add_fetch(&watched, 1, __ATOMIC_RELAXED));
    if (zmq_socket_monitor(socket->zmq, endpoint,
                           ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED
                               | ZMQ_EVENT_DISCONNECTED)
        != 0)
        return zmq_fail(err, PL_EBUSY, "cannot watch", endpoint);
    pl_socket_spec_t spec = {.type = PL_SOCKET_PAIR, .endpoint = endpoint};
    socket->peers = pl_socket_open(&spec, socket->loop, peer_event, socket, err);
    return socket->peers ? PL_OK : PL_EBUSY;
}

static int in_use(const char *endpoint, pl_error_t *err)
{
    char holder[32] = "another process";
    const int process = pl_port_holder(endpoint);
    if (process)
        snprintf(holder, sizeof holder, "process %d", process);
    return pl_fail(err, PL_EBUSY, "%s is in use by %s: choose another port", endpoint,
                   holder);
}

/* At a file of ours; elsewhere ZeroMQ finds the place. */
static int listen_at(pl_socket_t *socket, const char *endpoint, pl_error_t *err)
{
    const char *file = pl_endpoint_file(endpoint);
    int fd = file ? pl_door_open(&socket->door, file, err) : -1;
    if (file && fd < 0)
        return fd;
    if ((!file || option_int(socket->zmq, ZMQ_USE_FD, fd) == 0)
        && zmq_bind(socket->zmq, endpoint) == 0)
        return PL_OK;
    int code = zmq_errno() == EADDRINUSE
                   ? in_use(endpoint, err)
                   : zmq_fail(err, PL_EIO, "cannot listen on", endpoint);
    if (fd >= 0)
        close(fd);
    return code;
}

static int connect_to(pl_socket_t *socket, const char *endpoint, pl_error_t *err)
{
    return zmq_connect(socket->zmq, endpoint) == 0
               ? PL_OK
               : zmq_fail(err, PL_EIO, "cannot connect to", endpoint);
}

static int zmq_open(pl_socket_t *socket, const pl_socket_spec_t *spec, pl_error_t *err)
{
    static const int types[] = {ZMQ_ROUTER, ZMQ_DEALER, ZMQ_XPUB,
                                ZMQ_SUB,    ZMQ_PAIR,   ZMQ_REP};
    int code = pl_endpoint_check(spec->endpoint, spec->keys != NULL, err);
    if (code != PL_OK)
        return code;
    void *context = pl_context_acquire(err);
    if (!context)
        return PL_ENOMEM;
    /* the first one makes threads */
    code = pl_descriptors_check(SOCKET_DESCRIPTORS, "a socket", err);
    socket->zmq = code == PL_OK ? zmq_socket(context, types[spec->type]) : NULL;
    if (!socket->zmq) {
        pl_context_release();
        return code != PL_OK ? code
                             : zmq_fail(err, PL_EBUSY, "no socket for", spec->endpoint);
    }
    if (options_set(socket->zmq, spec) != 0)
        code = zmq_fail(err, PL_EIO, "cannot prepare", spec->endpoint);
    else if (spec->keys)
        code = keys_set(socket, spec, err);
    if (code == PL_OK && spec->on_peers)
        code = peers_watch(socket, err);
    if (code == PL_OK)
        code = spec->bind ? listen_at(socket, spec->endpoint, err)
                          : connect_to(socket, spec->endpoint, err);
    return code;
}

static void socket_ready(evutil_socket_t fd, short what, void *user);
static void socket_goes_on(evutil_socket_t fd, short what, void *user);
static void look_later(pl_socket_t *socket);

static int events_new(pl_socket_t *socket, pl_error_t *err)
{
    int fd;
    size_t size = sizeof fd;
    if (zmq_getsockopt(socket->zmq, ZMQ_FD, &fd, &size) != 0)
        return zmq_fail(err, PL_EIO, "no descriptor of", "a socket");
    socket->readable = event_new(socket->loop->base, fd, EV_READ | EV_PERSIST,
                                 socket_ready, socket);
    socket->again = event_new(socket->loop->base, -1, 0, socket_goes_on, socket);
    if (!socket->readable || !socket->again || event_add(socket->readable, NULL) != 0)
        return pl_no_memory(err);
    look_later(socket);
    return PL_OK;
}

pl_socket_t *pl_socket_open(const pl_socket_spec_t *spec, pl_sockets_t *loop,
                            pl_on_message_t on_message, void *user, pl_error_t *err)
{
    pl_socket_t *socket = pl_alloc(sizeof *socket);
    if (!socket) {
        pl_no_memory(err);
        return NULL;
    }
    *socket = (pl_socket_t){.type = spec->type,
                            .bounded = spec->high_water_mark > 0,
                            .loop = loop,
                            .port = -1,
                            .on_message = on_message,
                            .on_peers = spec->on_peers,
                            .user = user};
    if (zmq_open(socket, spec, err) == PL_OK
        && (!loop || events_new(socket, err) == PL_OK))
        return socket;
    pl_socket_close(socket);
    return NULL;
}

int pl_socket_attach(pl_socket_t *socket, pl_sockets_t *loop, pl_on_message_t on_message,
                     void *user, pl_error_t *err)
{
    socket->loop = loop;
    socket->on_message = on_message;
    socket->user = user;
    return events_new(socket, err);
}

/* ---- when to look again ---- */

static void look_later(pl_socket_t *socket)
{
    if (!socket->loop || socket->sent_link)
        return;
    socket->next_sent = socket->loop->sent;
    socket->sent_link = &socket->loop->sent;
    if (socket->next_sent)
        socket->next_sent->sent_link = &socket->next_sent;
    socket->loop->sent = socket;
}

static void looked(pl_socket_t *socket)
{
    if (!socket->sent_link)
        return;
    *socket->sent_link = socket->next_sent;
    if (socket->next_sent)
        socket->next_sent->sent_link = socket->sent_link;
    socket->sent_link = NULL;
}

static void go_on(pl_socket_t *socket)
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

void pl_socket_close(pl_socket_t *socket)
{
    if (!socket)
        return;
    if (socket->closed)
        *socket->closed = true;
    looked(socket);
    if (socket->readable)
        event_free(socket->readable);
    if (socket->again)
        event_free(socket->again);
    pl_door_close(&socket->door);
    if (socket->peers)
        zmq_socket_monitor(socket->zmq, NULL, 0);
    pl_socket_close(socket->peers);
    if (socket->zmq) {
        zmq_close(socket->zmq);
        if (socket->domain[0])
            pl_gate_close(socket->domain);
        pl_context_release();
    }
    pl_free(socket);
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

/* The identity of a ROUTER's first part; 0 for one that no socket of ours uses. */
static uint32_t identity_of(zmq_msg_t *part)
{
    uint32_t identity = 0;
    const char *id = zmq_msg_data(part);
    if (zmq_msg_size(part) == IDENTITY_SIZE && id[0] == 1)
        memcpy(&identity, id + 1, sizeof identity);
    return identity;
}

/* One message with all its parts, of which the last is kept; how many there were, 0 for
 * none.  From an XPUB each part is a message: it strings what subscribers sent of their
 * own together with what it tells itself.  From a PAIR and a REP, too. */
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
    if (socket->type == PL_SOCKET_REP)
        *identity = (uint32_t)zmq_msg_more(last);
    PL_MARK_ACQUIRE();
    return parts;
}

/* False when the socket was closed meanwhile. */
static bool turn(pl_socket_t *socket, int most)
{
    bool closed = false, *outer = socket->closed;
    int64_t end = pl_now() + TURN_TIME;
    int wanted = socket->type == PL_SOCKET_ROUTER ? 2 : 1, parts = 0, budget = most;
    pl_frame_t frame;
    zmq_msg_t *message = (zmq_msg_t *)frame.zmq_msg;
    uint32_t identity;
    zmq_msg_init(message);
    socket->closed = &closed;
    do {
        parts = receive_all(socket, message, &identity);
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
    looked(socket);
    if (parts && most == 1)
        look_later(socket);
    else if (parts)
        go_on(socket);
    return true;
}

static void socket_ready(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    turn(user, 1);
}

static void socket_goes_on(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    turn(user, TURN_MESSAGES);
}

void pl_sockets_settle(pl_sockets_t *loop)
{
    for (int turns = 0; loop->sent; turns++) {
        pl_socket_t *socket = loop->sent;
        looked(socket);
        if (!has_message(socket))
            continue;
        if (turns < SETTLE_TURNS)
            turn(socket, TURN_MESSAGES);
        else
            go_on(socket);                                  /* timers come in between */
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

int64_t pl_socket_receive(pl_socket_t *socket, void *data, size_t room, int timeout_ms,
                          pl_error_t *err)
{
    zmq_pollitem_t item = {.socket = socket->zmq, .events = ZMQ_POLLIN};
    int ready = zmq_poll(&item, 1, timeout_ms);
    if (ready < 0 && zmq_errno() != EINTR)
        return zmq_fail(err, PL_EIO, "cannot wait for", "messages");
    zmq_msg_t message;
    uint32_t identity;
    zmq_msg_init(&message);
    int64_t size = 0;
    if (ready > 0 && receive_all(socket, &message, &identity)) {
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
    bool full = zmq_errno() == EAGAIN && socket->bounded;   /* without a limit only
                                                               nobody makes it wait */
    return zmq_fail(err, full ? PL_EBUSY : PL_EPEER, "cannot send", "a message");
}

static int send_identity(pl_socket_t *socket, uint32_t identity, pl_error_t *err)
{
    zmq_msg_t part;
    zmq_msg_init_size(&part, IDENTITY_SIZE);  /* so short that ZeroMQ allocates nothing */
    char *id = zmq_msg_data(&part);
    id[0] = 1;
    memcpy(id + 1, &identity, sizeof identity);
    int sent = send_part(socket, &part, ZMQ_SNDMORE, err);
    zmq_msg_close(&part);
    return sent;
}

int pl_socket_send(pl_socket_t *socket, uint32_t identity, pl_frame_t *frame,
                   pl_error_t *err)
{
    int sent = PL_OK;
    PL_MARK_RELEASE();
    if (socket->type == PL_SOCKET_ROUTER)
        sent = send_identity(socket, identity, err);
    if (sent == PL_OK)
        sent = send_part(socket, (zmq_msg_t *)frame->zmq_msg, 0, err);
    pl_frame_release(frame);
    look_later(socket);
    return sent;
}

static int send_copy(pl_socket_t *socket, pl_bytes_t bytes, int more, pl_error_t *err)
{
    zmq_msg_t part;
    if (zmq_msg_init_size(&part, bytes.size) != 0)
        return pl_no_memory(err);
    memcpy(zmq_msg_data(&part), bytes.data, bytes.size);
    int sent = send_part(socket, &part, more, err);
    zmq_msg_close(&part);
    return sent;
}

int pl_socket_send_parts(pl_socket_t *socket, const pl_bytes_t *parts, int count,
                         pl_error_t *err)
{
    int sent = PL_OK;
    PL_MARK_RELEASE();
    for (int k = 0; k < count && sent == PL_OK; k++)
        sent = send_copy(socket, parts[k], k + 1 < count ? ZMQ_SNDMORE : 0, err);
    look_later(socket);
    return sent;
}

int pl_socket_publish(pl_socket_t *socket, pl_bytes_t topic, pl_bytes_t text,
                      pl_error_t *err)
{
    return pl_socket_send_parts(socket, (const pl_bytes_t[]){topic, text}, 2, err);
}

/* ---- small things ---- */

void pl_socket_shut(pl_socket_t *socket, bool shut)
{
    pl_door_shut(&socket->door, shut);
}

/* ZeroMQ takes in whoever has come as far as that; so who comes is dropped before, by the
 * kernel, and tries again. */
void pl_socket_shut_port(pl_socket_t *socket, bool shut)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog all = {1, &drop};
    if (socket->port < 0 || shut == socket->is_shut)
        return;
    socket->is_shut = shut;
    setsockopt(socket->port, SOL_SOCKET, shut ? SO_ATTACH_FILTER : SO_DETACH_FILTER, &all,
               sizeof all);
}

static int subscription_set(pl_socket_t *socket, int option, const char *topic,
                            pl_error_t *err)
{
    if (zmq_setsockopt(socket->zmq, option, topic, strlen(topic)) == 0)
        return PL_OK;
    return zmq_fail(err, PL_EINVAL, "cannot subscribe to", topic);
}

int pl_socket_subscribe(pl_socket_t *socket, const char *topic, pl_error_t *err)
{
    return subscription_set(socket, ZMQ_SUBSCRIBE, topic, err);
}

int pl_socket_unsubscribe(pl_socket_t *socket, const char *topic, pl_error_t *err)
{
    return subscription_set(socket, ZMQ_UNSUBSCRIBE, topic, err);
}

int pl_socket_endpoint(pl_socket_t *socket, char *text, size_t room, pl_error_t *err)
{
    if (zmq_getsockopt(socket->zmq, ZMQ_LAST_ENDPOINT, text, &room) == 0)
        return PL_OK;
    return zmq_fail(err, PL_EIO, "no endpoint of", "a socket");
}
