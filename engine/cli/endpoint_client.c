/* endpoint_client.c - a connection to the engine of another process: to its stream, or to
 * the socket where it takes commands */
#include "cli/endpoint_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum {
    QUEUE = 100000,                  /* messages that may wait here */
    MESSAGE_MAX = 64 << 20,          /* bytes */
    TOPIC_MAX = 199,                 /* longer ones are framed wrongly by some versions */
};

static int zmq_fail(pl_error_t *err, const char *what, const char *which)
{
    return pl_fail(err, PL_EINVAL, "%s \"%s\": %s", what, which,
                   zmq_strerror(zmq_errno()));
}

static void set_int(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

static bool is_loopback(const char *host, size_t length)
{
    char text[INET_ADDRSTRLEN];
    struct in_addr address;
    if ((length == 9 && !strncmp(host, "localhost", length))
        || (length == 5 && !strncmp(host, "[::1]", length)))
        return true;
    snprintf(text, sizeof text, "%.*s", (int)length, host);
    return length < sizeof text && inet_pton(AF_INET, text, &address) == 1
           && ntohl(address.s_addr) >> 24 == 127;
}

/* Runs listen on their own machine only. At another address there may be a process of
 * another kind, which never answers. */
static int check_address(const char *endpoint, pl_error_t *err)
{
    const char *host = endpoint + strlen("tcp://");
    if (!strncmp(endpoint, "ipc://", strlen("ipc://")))
        return PL_OK;
    struct stat status;
    if (stat(endpoint, &status) == 0 && S_ISDIR(status.st_mode))
        return pl_fail(err, PL_EINVAL,
                       "%s is a directory, not the address of a run: use the address "
                       "that fit --monitor or --control has, such as ipc:///tmp/run",
                       endpoint);
    if (!strstr(endpoint, "://") && strchr(endpoint, '/'))
        return pl_fail(err, PL_EINVAL, "cannot connect to \"%s\": did you mean ipc://%s?",
                       endpoint, endpoint);
    const char *colon = strncmp(endpoint, "tcp://", strlen("tcp://"))
                            ? NULL
                            : strrchr(host, ':');
    if (colon && is_loopback(host, (size_t)(colon - host)))
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "cannot connect to \"%s\": runs listen at ipc://FILE or "
                   "tcp://127.0.0.1:PORT of their own machine only; for a run on another "
                   "machine use ssh -L PORT:127.0.0.1:PORT HOST",
                   endpoint);
}

/* Refuses files at which no run can listen, or which cannot be reached: the wait would
 * not end. A file that does not exist yet is fine. */
static int check_file(const char *endpoint, pl_error_t *err)
{
    char folder[PATH_MAX];
    struct stat status;
    const char *path = endpoint + strlen("ipc://");
    if (strncmp(endpoint, "ipc://", strlen("ipc://")) || *path == '@')
        return PL_OK;
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    if (stat(path, &status) == 0 && !S_ISSOCK(status.st_mode))
        return pl_fail(err, PL_EINVAL, "%s is a regular file, not the socket of a run",
                       path);
    if ((access(path, R_OK | W_OK) != 0 && errno != ENOENT) || access(folder, X_OK) != 0)
        return pl_fail(err, PL_EINVAL, "cannot connect to \"%s\": %s", endpoint,
                       strerror(errno));
    return PL_OK;
}

static int sockets_open(cli_endpoint_client_t *c, cli_endpoint_kind_t kind,
                        pl_error_t *err)
{
    c->context = zmq_ctx_new();
    if (!c->context)
        return pl_fail(err, PL_ENOMEM, "no ZeroMQ context: %s",
                       zmq_strerror(zmq_errno()));
    const int64_t max = MESSAGE_MAX;
    zmq_ctx_set(c->context, ZMQ_BLOCKY, 0);
    c->socket = zmq_socket(c->context, kind == CLI_STREAM ? ZMQ_SUB : ZMQ_DEALER);
    c->events = zmq_socket(c->context, ZMQ_PAIR);
    c->frame = malloc(sizeof(zmq_msg_t));
    if (!c->socket || !c->events)
        return pl_fail(err, PL_EBUSY, "no ZeroMQ socket: %s", zmq_strerror(zmq_errno()));
    if (!c->frame)
        return pl_fail(err, PL_ENOMEM, "out of memory");
    zmq_msg_init(c->frame);
    set_int(c->events, ZMQ_LINGER, 0);
    set_int(c->socket, ZMQ_LINGER, 0);
    set_int(c->socket, ZMQ_RCVHWM, QUEUE);
    set_int(c->socket, ZMQ_SNDHWM, 0);                      /* otherwise some of many
                                                               subscriptions are lost */
    set_int(c->socket, ZMQ_HANDSHAKE_IVL, 2000);
    set_int(c->socket, ZMQ_HEARTBEAT_IVL, 1000);
    set_int(c->socket, ZMQ_HEARTBEAT_TIMEOUT, 3000);
    zmq_setsockopt(c->socket, ZMQ_MAXMSGSIZE, &max, sizeof max);
    return PL_OK;
}

int cli_connect(cli_endpoint_client_t *c, cli_endpoint_kind_t kind, const char *endpoint,
                pl_error_t *err)
{
    int code = check_address(endpoint, err);
    if (code == PL_OK)
        code = check_file(endpoint, err);
    if (code == PL_OK)
        code = sockets_open(c, kind, err);
    if (code != PL_OK)
        return code;
    if (zmq_socket_monitor(c->socket, "inproc://connection",
                           ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED
                               | ZMQ_EVENT_DISCONNECTED
                               | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
            != 0
        || zmq_connect(c->events, "inproc://connection") != 0)
        return zmq_fail(err, "cannot watch", "the connection");
    set_int(c->socket, ZMQ_IPV6, endpoint[strlen("tcp://")] == '[');
    if (zmq_connect(c->socket, endpoint) != 0)
        return zmq_fail(err, "cannot connect to", endpoint);
    return PL_OK;
}

void cli_disconnect(cli_endpoint_client_t *c)
{
    if (c->frame)
        zmq_msg_close(c->frame);
    free(c->frame);
    if (c->socket)
        zmq_close(c->socket);
    if (c->events)
        zmq_close(c->events);
    if (c->context)
        zmq_ctx_term(c->context);
    *c = (cli_endpoint_client_t){0};
}

int cli_subscribe(cli_endpoint_client_t *c, const char *topic, pl_error_t *err)
{
    const size_t length = strlen(topic);
    if (length > TOPIC_MAX)
        return pl_fail(err, PL_EINVAL, "--topic takes at most %d characters", TOPIC_MAX);
    if (zmq_setsockopt(c->socket, ZMQ_SUBSCRIBE, topic, length) != 0)
        return zmq_fail(err, "cannot subscribe to", topic);
    return PL_OK;
}

/* An empty frame comes first, as from a REQ socket. */
bool cli_send(cli_endpoint_client_t *c, const char *text)
{
    return zmq_send(c->socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0
           && zmq_send(c->socket, text, strlen(text), ZMQ_DONTWAIT) >= 0;
}

void cli_wait(cli_endpoint_client_t *c, int other, double seconds)
{
    zmq_pollitem_t items[] = {{c->socket, 0, ZMQ_POLLIN, 0},
                              {c->events, 0, ZMQ_POLLIN, 0},
                              {NULL, other, ZMQ_POLLIN, 0}};
    zmq_poll(items, other < 0 ? 2 : 3, seconds > 0 ? (long)(seconds * 1e3) + 1 : 0);
    /* An event has two frames; the first begins with its number. ZeroMQ reports a failed
     * handshake before the end of the connection if the peer hung up or was silent, but
     * not if it speaks another protocol. */
    zmq_msg_t frame;
    uint16_t event;
    zmq_msg_init(&frame);
    while (zmq_msg_recv(&frame, c->events, ZMQ_DONTWAIT) >= 0) {
        if (!zmq_msg_more(&frame) || zmq_msg_size(&frame) < sizeof event)
            continue;
        memcpy(&event, zmq_msg_data(&frame), sizeof event);
        const bool ends = event == ZMQ_EVENT_DISCONNECTED,
                   begins = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
        c->connected = c->connected || begins;
        c->parted = !begins && (c->parted || (ends && c->connected));
        c->refused = c->refused || (ends && !c->connected && !c->was_silent);
        c->was_silent = event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
        c->reached = event == ZMQ_EVENT_CONNECTED || begins || (c->reached && !ends);
    }
    zmq_msg_close(&frame);
}

const char *cli_receive(cli_endpoint_client_t *c, size_t *length)
{
    while (zmq_msg_recv(c->frame, c->socket, ZMQ_DONTWAIT) >= 0) {
        if (zmq_msg_more(c->frame))
            continue;
        *length = zmq_msg_size(c->frame);
        return zmq_msg_data(c->frame);
    }
    return NULL;
}
