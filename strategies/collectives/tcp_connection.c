/* tcp_connection.c - frames over a connection that never blocks, sealed or plain */
#include "strategies/collectives/tcp_connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/timeouts.h"

/* A machine that is gone says nothing: asked every second while there is silence.  While
 * something is on its way the kernel does not ask, but waits for minutes. */
enum { ALIVE_SECONDS = PL_TCP_ASK_MS / 1000, ALIVE_TIMES = 3 };

static void options_set(int fd)
{
    const int yes = 1, seconds = ALIVE_SECONDS, times = ALIVE_TIMES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

static bool cipher_make(tcp_connection_t *connection, const unsigned char *key,
                        pl_error_t *err)
{
    connection->cipher = cipher_new(key, err);
    connection->sealed_in = connection->cipher ? pl_alloc(TCP_SEGMENT + CIPHER_MORE)
                                               : NULL;
    connection->sealed_out = connection->sealed_in ? pl_alloc(TCP_SEGMENT + CIPHER_MORE)
                                                   : NULL;
    if (connection->cipher && !connection->sealed_out)
        pl_no_memory(err);
    return connection->sealed_out;
}

tcp_connection_t *tcp_connection_new(int epoll, int fd, uint32_t tag,
                                     const unsigned char *key, pl_error_t *err)
{
    tcp_connection_t *connection = pl_alloc(sizeof *connection);
    if (!connection) {
        close(fd);
        pl_no_memory(err);
        return NULL;
    }
    connection->fd = fd, connection->epoll = epoll, connection->tag = tag,
    connection->since = pl_now();
    options_set(fd);
    if (!key || cipher_make(connection, key, err))
        return connection;
    tcp_connection_free(connection);
    return NULL;
}

void tcp_connection_free(tcp_connection_t *connection)
{
    if (!connection)
        return;
    close(connection->fd);
    cipher_free(connection->cipher);
    pl_free(connection->sealed_in);
    pl_free(connection->sealed_out);
    pl_free(connection);
}

bool tcp_connection_watch(tcp_connection_t *connection, bool in, bool out)
{
    const uint32_t mask = (in ? EPOLLIN : 0) | (out ? EPOLLOUT : 0);
    struct epoll_event event = {.events = mask, .data.u32 = connection->tag};
    const int what = !mask              ? EPOLL_CTL_DEL
                     : connection->mask ? EPOLL_CTL_MOD
                                        : EPOLL_CTL_ADD;
    if (mask == connection->mask)
        return true;
    connection->mask = mask;
    return epoll_ctl(connection->epoll, what, connection->fd, &event) == 0;
}

bool tcp_connection_is_dead(const tcp_connection_t *connection)
{
    struct tcp_info info;
    socklen_t length = sizeof info;
    return getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0
           && info.tcpi_last_ack_recv > PL_TCP_SILENCE_MS
           && (info.tcpi_unacked || info.tcpi_probes >= ALIVE_TIMES);
}

/* ---- before frames ---- */

bool tcp_connection_send_raw(tcp_connection_t *connection, const void *bytes,
                             size_t count)
{
    return send(connection->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT)
           == (ssize_t)count;
}

/* -> bytes, 0: none yet, -1: gone. */
static ssize_t read_some(const tcp_connection_t *connection, void *to, size_t bytes)
{
    ssize_t got = recv(connection->fd, to, bytes, MSG_DONTWAIT);
    if (got > 0)
        return got;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

int tcp_connection_read_raw(tcp_connection_t *connection, size_t count)
{
    while (connection->raw_have < count) {
        ssize_t got = read_some(connection, connection->raw + connection->raw_have,
                                count - connection->raw_have);
        if (got <= 0)
            return (int)got;
        connection->raw_have += (size_t)got;
    }
    connection->raw_have = 0;
    return 1;
}

/* ---- frames out ---- */

bool tcp_connection_is_idle(const tcp_connection_t *connection)
{
    return connection->out[0].iov_len + connection->out[1].iov_len == 0;
}

static void out_advance(tcp_connection_t *connection, size_t sent)
{
    for (int k = 0; k < 2 && sent > 0; k++) {
        const size_t part = sent < connection->out[k].iov_len
                                ? sent
                                : connection->out[k].iov_len;
        connection->out[k].iov_base = (char *)connection->out[k].iov_base + part;
        connection->out[k].iov_len -= part;
        sent -= part;
    }
}

int tcp_connection_flush(tcp_connection_t *connection, bool more)
{
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
    while (!tcp_connection_is_idle(connection)) {
        const struct msghdr message = {.msg_iov = connection->out, .msg_iovlen = 2};
        ssize_t sent = sendmsg(connection->fd, &message, flags);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        out_advance(connection, (size_t)sent);
    }
    return 1;
}

int tcp_connection_put(tcp_connection_t *connection, const tcp_frame_t *head,
                       const void *body, bool more)
{
    connection->out_head = *head;
    if (!connection->cipher) {
        connection->out[0] = (struct iovec){&connection->out_head, sizeof *head};
        connection->out[1] = (struct iovec){(void *)(uintptr_t)body, head->length};
    } else {
        cipher_seal(connection->cipher, connection->sealed_head, head, sizeof *head);
        if (head->length)
            cipher_seal(connection->cipher, connection->sealed_out, body, head->length);
        connection->out[0] = (struct iovec){connection->sealed_head,
                                            sizeof connection->sealed_head};
        connection->out[1] = (struct iovec){connection->sealed_out,
                                            head->length ? head->length + CIPHER_MORE
                                                         : 0};
    }
    return tcp_connection_flush(connection, more);
}

/* ---- frames in ---- */

int tcp_connection_head(tcp_connection_t *connection)
{
    if (connection->has_head)
        return 1;
    int code = tcp_connection_read_raw(connection,
                                       sizeof connection->head
                                           + (connection->cipher ? CIPHER_MORE : 0));
    if (code <= 0)
        return code;
    if (!connection->cipher)
        memcpy(&connection->head, connection->raw, sizeof connection->head);
    else if (!cipher_open(connection->cipher, &connection->head, connection->raw,
                          sizeof connection->head))
        return -1;
    if (connection->head.length > TCP_SEGMENT)
        return -1;
    connection->has_head = true;
    connection->body_have = 0;
    return 1;
}

int tcp_connection_body(tcp_connection_t *connection, void *to)
{
    const size_t length = connection->head.length,
                 wanted = length + (connection->cipher && length ? CIPHER_MORE : 0);
    unsigned char *into = connection->cipher ? connection->sealed_in : to;
    while (connection->body_have < wanted) {
        ssize_t got = read_some(connection, into + connection->body_have,
                                wanted - connection->body_have);
        if (got <= 0)
            return (int)got;
        connection->body_have += (size_t)got;
    }
    if (connection->cipher && length
        && !cipher_open(connection->cipher, to, connection->sealed_in, length))
        return -1;
    connection->has_head = false;
    return 1;
}
