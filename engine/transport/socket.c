/* socket.c - the one wrapper around ZeroMQ: opens and closes
 *
 * socket_turn.c receives and sends, socket_peers.c observes connections. */
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/timeouts.h"
#include "transport/port_holder.h"
#include "transport/socket_parts.h"

enum {
    CONTEXT_DESCRIPTORS = 2,
    LOOP_DESCRIPTORS = 8,
    SOCKET_DESCRIPTORS = 8,
    GREET_MS = 2000,
    GREET_FAR_MS = 10000,                        /* keys need four round trips, and a lost
                                                    packet a second */
    GREET_VIEWER_MS = 500,                       /* on this machine */
};

int socket_fail(pl_error_t *err, int code, const char *what, const char *about)
{
    return pl_fail(err, code, "%s %s: %s", what, about, zmq_strerror(zmq_errno()));
}

/* ---- the context ---- */

/* One for the process, because inproc does not cross contexts and several with CURVE can
 * crash in 4.3.4. */
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static void *context;
static int context_users;

void *pl_context_acquire(pl_error_t *err)
{
    pthread_mutex_lock(&context_lock);
    if (!context && pl_descriptors_check(CONTEXT_DESCRIPTORS, "messages", err) == PL_OK) {
        context = zmq_ctx_new();
        if (context) {
            zmq_ctx_set(context, ZMQ_BLOCKY, 0);
            zmq_ctx_set(context, ZMQ_MAX_SOCKETS, zmq_ctx_get(context, ZMQ_SOCKET_LIMIT));
        } else {
            pl_fail(err, PL_ENOMEM, "ZeroMQ cannot start: %s", zmq_strerror(zmq_errno()));
        }
    }
    if (context)
        context_users++;
    void *acquired = context;
    pthread_mutex_unlock(&context_lock);
    return acquired;
}

void pl_context_release(void)
{
    pthread_mutex_lock(&context_lock);
    if (--context_users == 0) {
        while (zmq_ctx_term(context) != 0 && zmq_errno() == EINTR)
            continue;
        context = NULL;
    }
    pthread_mutex_unlock(&context_lock);
}

/* ---- a loop ---- */

int pl_sockets_open(pl_sockets_t *loop, pl_error_t *err)
{
    if (pl_descriptors_check(LOOP_DESCRIPTORS, "an event loop", err) != PL_OK)
        return PL_EBUSY;
    struct event_config *config = event_config_new();
    *loop = (pl_sockets_t){0};
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
        loop->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    return loop->base ? PL_OK : pl_no_memory(err);
}

void pl_sockets_close(pl_sockets_t *loop)
{
    if (loop->base)
        event_base_free(loop->base);
    loop->base = NULL;
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

static int options_set(void *zmq, const pl_socket_spec_t *spec)
{
    const uid_t own = getuid(), root = 0;
    const int64_t max = spec->message_max ? spec->message_max : PL_MESSAGE_MAX;
    const bool is_far = !strncmp(spec->endpoint, "tcp:", 4),
               has_viewers = spec->type == PL_SOCKET_XPUB && spec->bind;
    /* a silent client holds a descriptor for this time */
    const int greet_ms = has_viewers ? GREET_VIEWER_MS : is_far ? GREET_FAR_MS : GREET_MS;
    int failed = option_int(zmq, ZMQ_LINGER, spec->linger_ms)
                 | option_int(zmq, ZMQ_SNDHWM, spec->high_water_mark)
                 | option_int(zmq, ZMQ_RCVHWM, spec->high_water_mark)
                 | zmq_setsockopt(zmq, ZMQ_MAXMSGSIZE, &max, sizeof max)
                 | option_int(zmq, ZMQ_HANDSHAKE_IVL, greet_ms)
                 | option_int(zmq, ZMQ_RECONNECT_IVL_MAX, 5000);
    if (is_far)
        failed |= option_int(zmq, ZMQ_HEARTBEAT_IVL, PL_SOCKET_BEAT_MS)
                  | option_int(zmq, ZMQ_HEARTBEAT_TIMEOUT, PL_SOCKET_SILENCE_MS)
                  | option_int(zmq, ZMQ_IPV6, spec->endpoint[6] == '[');
    if (!strncmp(spec->endpoint, "ipc:", 4) && spec->bind)  /* this user and root alone */
        failed |= zmq_setsockopt(zmq, ZMQ_IPC_FILTER_UID, &own, sizeof own)
                  | zmq_setsockopt(zmq, ZMQ_IPC_FILTER_UID, &root, sizeof root);
    if (spec->type == PL_SOCKET_ROUTER)
        failed |= option_int(zmq, ZMQ_ROUTER_MANDATORY, 1);
    if (spec->type == PL_SOCKET_DEALER && !spec->waits)
        failed |= option_int(zmq, ZMQ_IMMEDIATE, 1);
    /* otherwise a full peer would be dropped, and the sender would not see that it is
     * full */
    if (spec->type == PL_SOCKET_XPUB && !spec->bind)
        failed |= option_int(zmq, ZMQ_XPUB_NODROP, 1);
    if (spec->identity) {
        char id[SOCKET_IDENTITY] = {1};              /* must not start with a zero byte */
        memcpy(id + 1, &spec->identity, sizeof spec->identity);
        failed |= zmq_setsockopt(zmq, ZMQ_ROUTING_ID, id, sizeof id);
    }
    return failed;
}

/* The binding side asks the ZAP handler (zap.c) about the key of each peer. */
static int keys_set(pl_socket_t *socket, const pl_socket_spec_t *spec, pl_error_t *err)
{
    enum {
        ZAP_ENFORCE_DOMAIN = 93
    };                                         /* refuse all without a ZAP handler; ZeroMQ
                                                  declares it for drafts only */
    const pl_keys_t *keys = spec->keys;
    int code = spec->bind ? pl_zap_open(keys, socket->domain, err) : PL_OK, failed;
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
    return failed ? socket_fail(err, PL_EUNSUPPORTED, "cannot encrypt", spec->endpoint)
                  : PL_OK;
}

static int in_use(const char *endpoint, pl_error_t *err)
{
    char holder[32] = "another process";
    const int process = pl_port_holder(endpoint);
    const int port = atoi(strrchr(endpoint, ':') ? strrchr(endpoint, ':') + 1 : "");
    if (process)
        snprintf(holder, sizeof holder, "process %d", process);
    if (pl_ports().first && port >= pl_ports().first && port <= pl_ports().last
        && (process == getpid() || pl_ports().first == pl_ports().last))
        return pl_ports_fail(endpoint, err);
    return pl_fail(err, PL_EBUSY, "%s is in use by %s: choose another port", endpoint,
                   holder);
}

static int listen_at(pl_socket_t *socket, const char *endpoint, pl_error_t *err)
{
    const size_t length = strlen(endpoint);
    const bool is_any_port = !strncmp(endpoint, "tcp://", 6)
                             && !strcmp(endpoint + length - 2, ":*");
    const char *file = pl_endpoint_file(endpoint);
    int fd = file ? pl_socket_path_open(&socket->listen_path, file, err) : -1;
    if (file && fd < 0)
        return fd;
    if (pl_ports().first && is_any_port) {
        /* "tcp://HOST:*" at the first port of the range that is free. */
        const pl_ports_t range = pl_ports();
        const int name = (int)strlen(endpoint) - 1;
        char at[512];
        for (int port = range.first; port <= range.last; port++) {
            snprintf(at, sizeof at, "%.*s%d", name, endpoint, port);
            if (zmq_bind(socket->zmq, at) == 0)
                return PL_OK;
            if (zmq_errno() != EADDRINUSE && zmq_errno() != EACCES)
                return socket_fail(err, PL_EIO, "cannot listen on", at);
        }
        return pl_ports_fail(endpoint, err);
    }
    if ((!file || option_int(socket->zmq, ZMQ_USE_FD, fd) == 0)
        && zmq_bind(socket->zmq, endpoint) == 0)
        return PL_OK;
    int code = zmq_errno() == EADDRINUSE
                   ? in_use(endpoint, err)
                   : socket_fail(err, PL_EIO, "cannot listen on", endpoint);
    if (fd >= 0)
        close(fd);
    return code;
}

static int zmq_open(pl_socket_t *socket, const pl_socket_spec_t *spec, pl_error_t *err)
{
    static const int types[] = {ZMQ_ROUTER, ZMQ_DEALER, ZMQ_XPUB,  ZMQ_SUB,
                                ZMQ_PAIR,   ZMQ_REP,    ZMQ_ROUTER};
    int code = pl_endpoint_check(spec->endpoint, spec->keys != NULL, err);
    if (code != PL_OK)
        return code;
    void *zmq_context = pl_context_acquire(err);
    if (!zmq_context)
        return PL_ENOMEM;
    /* the first socket starts threads */
    code = pl_descriptors_check(SOCKET_DESCRIPTORS, "a socket", err);
    socket->zmq = code == PL_OK ? zmq_socket(zmq_context, types[spec->type]) : NULL;
    if (!socket->zmq) {
        pl_context_release();
        return code != PL_OK ? code
                             : socket_fail(err, PL_EBUSY, "cannot create a socket for",
                                           spec->endpoint);
    }
    if (options_set(socket->zmq, spec) != 0)
        code = socket_fail(err, PL_EIO, "cannot prepare", spec->endpoint);
    else if (spec->keys)
        code = keys_set(socket, spec, err);
    if (code == PL_OK && spec->on_peers)
        code = socket_watch(socket, spec->comers_a_second, err);
    if (code == PL_OK && spec->bind)
        code = listen_at(socket, spec->endpoint, err);
    else if (code == PL_OK && zmq_connect(socket->zmq, spec->endpoint) != 0)
        code = socket_fail(err, PL_EIO, "cannot connect to", spec->endpoint);
    return code;
}

static int events_new(pl_socket_t *socket, pl_error_t *err)
{
    int fd;
    size_t size = sizeof fd;
    if (zmq_getsockopt(socket->zmq, ZMQ_FD, &fd, &size) != 0)
        return socket_fail(err, PL_EIO, "cannot get the descriptor of", "a socket");
    socket->readable = event_new(socket->loop->base, fd, EV_READ | EV_PERSIST,
                                 socket_ready, socket);
    socket->again = event_new(socket->loop->base, -1, 0, socket_continue, socket);
    if (!socket->readable || !socket->again || event_add(socket->readable, NULL) != 0)
        return pl_no_memory(err);
    socket_look_later(socket);
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
                            .company = spec->company,
                            .loop = loop,
                            .port = -1,
                            .on_message = on_message,
                            .on_peers = spec->on_peers,
                            .on_greeting = spec->on_greeting,
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

void pl_socket_close(pl_socket_t *socket)
{
    if (!socket)
        return;
    if (socket->closed)
        *socket->closed = true;
    socket_looked(socket);
    if (socket->readable)
        event_free(socket->readable);
    if (socket->again)
        event_free(socket->again);
    pl_socket_path_close(&socket->listen_path);
    socket_unwatch(socket);
    if (socket->zmq) {
        zmq_close(socket->zmq);
        if (socket->domain[0])
            pl_zap_close(socket->domain);
        pl_context_release();
    }
    pl_free(socket);
}

/* ---- small things ---- */

int pl_socket_subscribe(pl_socket_t *socket, const char *topic, bool receives,
                        pl_error_t *err)
{
    if (zmq_setsockopt(socket->zmq, receives ? ZMQ_SUBSCRIBE : ZMQ_UNSUBSCRIBE, topic,
                       strlen(topic))
        == 0)
        return PL_OK;
    return socket_fail(err, PL_EINVAL, "cannot subscribe to", topic);
}

int pl_socket_endpoint(pl_socket_t *socket, char *text, size_t capacity, pl_error_t *err)
{
    if (zmq_getsockopt(socket->zmq, ZMQ_LAST_ENDPOINT, text, &capacity) == 0)
        return PL_OK;
    return socket_fail(err, PL_EIO, "cannot get the endpoint of", "a socket");
}
