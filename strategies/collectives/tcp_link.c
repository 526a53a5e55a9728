/* tcp_link.c - frames over a connection that never blocks, sealed or plain */
#include "strategies/collectives/tcp_link.h"

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
#include "runtime/deaths.h"

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

static bool cipher_make(tcp_link_t *link, const unsigned char *key, pl_error_t *err)
{
    link->cipher = cipher_new(key, err);
    link->sealed_in = link->cipher ? pl_alloc(TCP_SEGMENT + CIPHER_MORE) : NULL;
    link->sealed_out = link->sealed_in ? pl_alloc(TCP_SEGMENT + CIPHER_MORE) : NULL;
    if (link->cipher && !link->sealed_out)
        pl_no_memory(err);
    return link->sealed_out;
}

tcp_link_t *tcp_link_new(int epoll, int fd, uint32_t tag, const unsigned char *key,
                         pl_error_t *err)
{
    tcp_link_t *link = pl_alloc(sizeof *link);
    if (!link) {
        close(fd);
        pl_no_memory(err);
        return NULL;
    }
    link->fd = fd, link->epoll = epoll, link->tag = tag, link->since = pl_now();
    options_set(fd);
    if (!key || cipher_make(link, key, err))
        return link;
    tcp_link_free(link);
    return NULL;
}

void tcp_link_free(tcp_link_t *link)
{
    if (!link)
        return;
    close(link->fd);
    cipher_free(link->cipher);
    pl_free(link->sealed_in);
    pl_free(link->sealed_out);
    pl_free(link);
}

bool tcp_link_watch(tcp_link_t *link, bool in, bool out)
{
    const uint32_t mask = (in ? EPOLLIN : 0) | (out ? EPOLLOUT : 0);
    struct epoll_event event = {.events = mask, .data.u32 = link->tag};
    const int what = !mask ? EPOLL_CTL_DEL : link->mask ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (mask == link->mask)
        return true;
    link->mask = mask;
    return epoll_ctl(link->epoll, what, link->fd, &event) == 0;
}

bool tcp_link_is_dead(const tcp_link_t *link)
{
    struct tcp_info info;
    socklen_t length = sizeof info;
    return getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0
           && info.tcpi_last_ack_recv > PL_TCP_SILENCE_MS
           && (info.tcpi_unacked || info.tcpi_probes >= ALIVE_TIMES);
}

/* ---- before frames ---- */

bool tcp_link_send_raw(tcp_link_t *link, const void *bytes, size_t count)
{
    return send(link->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)count;
}

/* -> bytes, 0: none yet, -1: gone. */
static ssize_t read_some(const tcp_link_t *link, void *to, size_t bytes)
{
    ssize_t got = recv(link->fd, to, bytes, MSG_DONTWAIT);
    if (got > 0)
        return got;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

int tcp_link_read_raw(tcp_link_t *link, size_t count)
{
    while (link->raw_have < count) {
        ssize_t got = read_some(link, link->raw + link->raw_have, count - link->raw_have);
        if (got <= 0)
            return (int)got;
        link->raw_have += (size_t)got;
    }
    link->raw_have = 0;
    return 1;
}

/* ---- frames out ---- */

bool tcp_link_is_idle(const tcp_link_t *link)
{
    return link->out[0].iov_len + link->out[1].iov_len == 0;
}

static void out_advance(tcp_link_t *link, size_t sent)
{
    for (int k = 0; k < 2 && sent > 0; k++) {
        const size_t part = sent < link->out[k].iov_len ? sent : link->out[k].iov_len;
        link->out[k].iov_base = (char *)link->out[k].iov_base + part;
        link->out[k].iov_len -= part;
        sent -= part;
    }
}

int tcp_link_flush(tcp_link_t *link, bool more)
{
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
    while (!tcp_link_is_idle(link)) {
        const struct msghdr message = {.msg_iov = link->out, .msg_iovlen = 2};
        ssize_t sent = sendmsg(link->fd, &message, flags);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        out_advance(link, (size_t)sent);
    }
    return 1;
}

int tcp_link_put(tcp_link_t *link, const tcp_frame_t *head, const void *body, bool more)
{
    link->out_head = *head;
    if (!link->cipher) {
        link->out[0] = (struct iovec){&link->out_head, sizeof *head};
        link->out[1] = (struct iovec){(void *)(uintptr_t)body, head->length};
    } else {
        cipher_seal(link->cipher, link->sealed_head, head, sizeof *head);
        if (head->length)
            cipher_seal(link->cipher, link->sealed_out, body, head->length);
        link->out[0] = (struct iovec){link->sealed_head, sizeof link->sealed_head};
        link->out[1] = (struct iovec){link->sealed_out,
                                      head->length ? head->length + CIPHER_MORE : 0};
    }
    return tcp_link_flush(link, more);
}

/* ---- frames in ---- */

int tcp_link_head(tcp_link_t *link)
{
    if (link->has_head)
        return 1;
    int code = tcp_link_read_raw(link,
                                 sizeof link->head + (link->cipher ? CIPHER_MORE : 0));
    if (code <= 0)
        return code;
    if (!link->cipher)
        memcpy(&link->head, link->raw, sizeof link->head);
    else if (!cipher_open(link->cipher, &link->head, link->raw, sizeof link->head))
        return -1;
    if (link->head.length > TCP_SEGMENT)
        return -1;
    link->has_head = true;
    link->body_have = 0;
    return 1;
}

int tcp_link_body(tcp_link_t *link, void *to)
{
    const size_t length = link->head.length,
                 wanted = length + (link->cipher && length ? CIPHER_MORE : 0);
    unsigned char *into = link->cipher ? link->sealed_in : to;
    while (link->body_have < wanted) {
        ssize_t got = read_some(link, into + link->body_have, wanted - link->body_have);
        if (got <= 0)
            return (int)got;
        link->body_have += (size_t)got;
    }
    if (link->cipher && length && !cipher_open(link->cipher, to, link->sealed_in, length))
        return -1;
    link->has_head = false;
    return 1;
}
