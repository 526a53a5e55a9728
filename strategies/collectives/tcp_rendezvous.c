/* tcp_rendezvous.c - rendezvous over TCP
 *
 * The rank with the higher number connects, and both say hello (tcp_greet.c).
 * Connections whose hello does not come soon make room for others.
 *
 * The side that accepts has met the other before that one knows. So a side that has
 * said hello does not close while the other's machine answers. Until all ranks have
 * begun the first operation nothing is lost with a connection: the side that connected
 * does so again, and the newer connection replaces the older one, whose end may arrive
 * later. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/port_holder.h"
#include "strategies/collectives/tcp.h"

enum { CONNECT_MS = 20, LINK_MS = 1000, BACKLOG = 128 };

static const int64_t HELLO_MAX = 10 * PL_SECOND;

/* ---- opening ---- */

static bool is_loopback(const char *host)
{
    struct in6_addr six;
    return !strncmp(host, "127.", 4)
           || (inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

/* At t->port; if that is 0, at the first free port of the launcher's range, or at any.
 * After listen() has found its port taken, a socket may not be bound again. */
static int listener_open(tcp_t *t, const struct addrinfo *at, pl_error_t *err)
{
    const int yes = 1;
    const bool in_range = !t->port && pl_ports().first;
    const pl_ports_t range = in_range ? pl_ports()
                                      : (pl_ports_t){(int)t->port, (int)t->port};
    for (int port = range.first; port <= range.last; port++) {
        if (at->ai_family == AF_INET6)
            ((struct sockaddr_in6 *)at->ai_addr)->sin6_port = htons((uint16_t)port);
        else
            ((struct sockaddr_in *)at->ai_addr)->sin_port = htons((uint16_t)port);
        t->listener = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                             0);
        if (t->listener >= 0 && t->port)
            setsockopt(t->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (t->listener >= 0 && bind(t->listener, at->ai_addr, at->ai_addrlen) == 0
            && listen(t->listener, BACKLOG) == 0)
            return PL_OK;
        const int why = errno;
        if (t->listener >= 0)
            close(t->listener);
        t->listener = -1;
        if (!in_range || (why != EADDRINUSE && why != EACCES))
            return pl_fail(err, PL_EIO, "a rank cannot listen at %s, port %d: %s",
                           t->own_host, port, strerror(why));
    }
    return pl_ports_fail(t->own_host, err);
}

static int host_check(tcp_t *t, const struct addrinfo *at, pl_error_t *err)
{
    if (getnameinfo(at->ai_addr, at->ai_addrlen, t->own_host, sizeof t->own_host, NULL, 0,
                    NI_NUMERICHOST)
        != 0)
        return pl_fail(err, PL_EINVAL, "the host of this rank has no numeric address");
    if (!strcmp(t->own_host, "0.0.0.0") || !strcmp(t->own_host, "::"))
        return pl_fail(err, PL_EINVAL,
                       "other ranks cannot reach this machine at %s: set the host to an "
                       "address of this machine",
                       t->own_host);
    t->is_near = is_loopback(t->own_host);
    if (t->is_near && !t->encrypt)
        return PL_OK;
    if (t->has_key) {            /* an error here, and not when the first rank connects */
        tcp_cipher_t *cipher = cipher_new(t->key, err);
        cipher_free(cipher);
        return cipher ? PL_OK : PL_EUNSUPPORTED;
    }
    return pl_fail(
        err, PL_EINVAL,
        "ranks that connect at %s%s need the key of the job: set PACELINE_JOB_KEY_FILE",
        t->own_host, t->is_near ? " with encryption" : ", beyond this machine,");
}

int tcp_open_context(tcp_t *t, const pl_collective_context_t *context,
                     char address[PL_ADDRESS_TEXT], pl_error_t *err)
{
    const char *host = *t->host ? t->host : context->host ? context->host : "127.0.0.1";
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char port[8];
    t->has_key = context->key != NULL;
    if (context->key)
        memcpy(t->key, context->key, sizeof t->key);
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (t->epoll < 0 || t->timer < 0)
        return pl_fail(err, PL_EIO, "cannot listen for other ranks: %s", strerror(errno));
    /* Resolves the name of this host once; the other ranks get its numeric address. */
    snprintf(port, sizeof port, "%d", (int)t->port);
    const int wrong = getaddrinfo(host, port, &hints, &found);
    if (wrong)
        return pl_fail(err, PL_EINVAL,
                       "the host \"%s\" of this rank cannot be resolved: %s", host,
                       gai_strerror(wrong));
    int code = host_check(t, found, err);
    if (code == PL_OK)
        code = listener_open(t, found, err);
    freeaddrinfo(found);
    if (code != PL_OK)
        return code;
    if (getsockname(t->listener, (struct sockaddr *)&at, &length) != 0
        || getnameinfo((struct sockaddr *)&at, length, NULL, 0, port, sizeof port,
                       NI_NUMERICSERV)
               != 0
        || getrandom(t->token, sizeof t->token, 0) != sizeof t->token)
        return pl_fail(err, PL_EIO, "cannot determine the address of this rank: %s",
                       strerror(errno));
    int at_end = snprintf(address, PL_ADDRESS_TEXT, "tcp %s %s ", t->own_host, port);
    for (int k = 0; k < TCP_TOKEN; k++)
        at_end += snprintf(address + at_end, PL_ADDRESS_TEXT - (size_t)at_end, "%02x",
                           t->token[k]);
    return PL_OK;
}

/* ---- the table ---- */

static int address_read(tcp_t *t, int rank, const char *address, pl_error_t *err)
{
    tcp_peer_t *peer = &t->peer[rank];
    char kind[8], token[2 * TCP_TOKEN + 1], rest[2];
    bool is_good = sscanf(address, "%7s %63s %7s %32s%1s", kind, peer->host, peer->port,
                          token, rest)
                       == 4
                   && strcmp(kind, "tcp") == 0 && strlen(token) == 2 * TCP_TOKEN;
    for (int k = 0; k < TCP_TOKEN && is_good; k++)
        is_good = sscanf(token + 2 * k, "%2hhx", &peer->token[k]) == 1;
    if (!is_good)
        return pl_fail(
            err, PL_EINVAL,
            "the address of rank %d is not one of collective \"tcp\": \"%.80s\"", rank,
            address);
    peer->is_near = is_loopback(peer->host);
    if (!peer->is_near && !t->has_key)
        return pl_fail(err, PL_EINVAL,
                       "rank %d listens at %s, beyond this machine: that needs the key "
                       "of the job; set PACELINE_JOB_KEY_FILE",
                       rank, peer->host);
    return PL_OK;
}

static int peers_make(tcp_t *t, const pl_world_t *world, pl_error_t *err)
{
    t->peer = pl_alloc_array((size_t)world->size, sizeof *t->peer);
    t->in = pl_alloc_array((size_t)world->size, sizeof *t->in);
    const int strangers = world->size + TCP_STRANGERS;
    t->stranger = pl_alloc_array((size_t)strangers, sizeof(tcp_connection_t *));
    if (!t->peer || !t->in || !t->stranger)
        return pl_no_memory(err);
    t->stranger_count = strangers;
    t->rank = world->rank, t->size = world->size;
    t->window = t->size > 1 ? TCP_WINDOWS / (uint64_t)(t->size - 1) : 1;
    t->window = t->window > TCP_WINDOW ? TCP_WINDOW : t->window < 2 ? 2 : t->window;
    int code = PL_OK;
    for (int rank = 0; rank < t->size && code == PL_OK; rank++)
        code = address_read(t, rank, world->address[rank], err);
    if (code == PL_OK && memcmp(t->peer[t->rank].token, t->token, TCP_TOKEN) != 0)
        code = pl_fail(err, PL_EINVAL,
                       "rank %d received the address of another rank as its own",
                       t->rank);
    return code == PL_OK ? tcp_share(t, world, err) : code;
}

/* ---- looking for the others ---- */

/* Connections to loopback are plain. */
static const unsigned char *key_for(const tcp_t *t, bool near)
{
    return near && !t->encrypt ? NULL : t->key;
}

static int fail_gone(int rank, pl_error_t *err)
{
    return pl_fail(err, PL_EPEER, "rank %d is gone: nothing listens at its address",
                   rank);
}

/* Connects to a rank with a lower number, and only checks that one with a higher
 * number is there: a rank that does not listen is gone; anything else is tried again. */
static int peer_connect(tcp_t *t, int rank, pl_error_t *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    tcp_peer_t *peer = &t->peer[rank];
    struct addrinfo *at = NULL;
    int fd = -1, wrong = EADDRNOTAVAIL;
    if (getaddrinfo(peer->host, peer->port, &hints, &at) == 0) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        wrong = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
        freeaddrinfo(at);
    }
    if (wrong && wrong != EINPROGRESS) {
        if (fd >= 0)
            close(fd);
        peer->wrong = wrong;
        return wrong == ECONNREFUSED ? fail_gone(rank, err) : PL_OK;
    }
    peer->attempt = tcp_connection_new(t->epoll, fd, FROM_ATTEMPT + (uint32_t)rank,
                                       rank < t->rank ? key_for(t, peer->is_near) : NULL,
                                       err);
    if (!peer->attempt || !tcp_connection_watch(peer->attempt, false, true))
        return pl_no_memory(err);
    peer->attempt->connects = true;
    return PL_OK;
}

static int peers_connect(tcp_t *t, pl_error_t *err)
{
    int code = PL_OK;
    for (int rank = 0; rank < t->size && code == PL_OK; rank++)
        if (rank != t->rank && !t->peer[rank].connection && !t->peer[rank].attempt)
            code = peer_connect(t, rank, err);
    return code;
}

static bool ticks_set(const tcp_t *t, int milliseconds)
{
    const struct timespec often = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    const struct itimerspec times = {often, often};
    return timerfd_settime(t->timer, 0, &times, NULL) == 0;
}

void tcp_advance_soon(const tcp_t *t)
{
    const struct itimerspec times = {{LINK_MS / 1000, 0}, {0, 1}};
    timerfd_settime(t->timer, 0, &times, NULL);
}

int tcp_rendezvous(tcp_t *t, const pl_world_t *world, pl_error_t *err)
{
    struct epoll_event listens = {.events = EPOLLIN, .data.u32 = FROM_LISTENER},
                       ticks = {.events = EPOLLIN, .data.u32 = FROM_TIMER};
    int code = peers_make(t, world, err);
    if (code != PL_OK)
        return code;
    if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->listener, &listens) != 0
        || epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->timer, &ticks) != 0
        || !ticks_set(t, CONNECT_MS))
        return pl_fail(err, PL_EIO, "cannot listen for other ranks: %s", strerror(errno));
    return peers_connect(t, err);
}

bool tcp_all_met(const tcp_t *t)
{
    for (int rank = 0; rank < t->size; rank++)
        if (rank != t->rank && !t->peer[rank].connection)
            return false;
    return true;
}

void tcp_describe_unmet(const tcp_t *t, pl_error_t *why)
{
    size_t length = strlen(why->text);
    for (int rank = 0; rank < t->size && length + 1 < sizeof why->text; rank++) {
        const tcp_peer_t *peer = &t->peer[rank];
        if (rank == t->rank || peer->connection)
            continue;
        const char *reason = peer->wrong ? strerror(peer->wrong)
                             : peer->attempt && peer->attempt->state == TCP_CONNECTING
                                 ? "it does not answer; is there a firewall between?"
                                 : "it accepts the connection and sends nothing";
        snprintf(why->text + length, sizeof why->text - length,
                 "; rank %d at %s, port %s: %s", rank, peer->host, peer->port, reason);
        length = strlen(why->text);
    }
}

bool tcp_is_listening(const tcp_t *t)
{
    return t->listener >= 0;
}

static void drop(tcp_connection_t **connection)
{
    tcp_connection_free(*connection);
    *connection = NULL;
}

void tcp_rendezvous_end(tcp_t *t)
{
    for (int k = 0; k < t->stranger_count; k++)
        drop(&t->stranger[k]);
    for (int rank = 0; rank < t->size; rank++)
        drop(&t->peer[rank].attempt);
    if (t->listener >= 0)
        close(t->listener);
    t->listener = -1;
    ticks_set(t, LINK_MS);
}

/* ---- what comes from those not met ---- */

/* The connection becomes the rank's, or is dropped if the greeting is refused. */
static void greeting_advance(tcp_t *t, tcp_connection_t **place)
{
    int rank;
    tcp_connection_t *connection = *place;
    tcp_greeting_t is = tcp_greet(t, connection, &rank);
    if (is == TCP_GREETING_WAITS)
        return;
    *place = NULL;
    tcp_connection_watch(connection, false, false);
    connection->tag = (uint32_t)rank;
    connection->state = TCP_OPEN;
    if (is == TCP_GREETING_DONE && tcp_connection_watch(connection, true, false)) {
        tcp_connection_free(t->peer[rank].connection);
        drop(&t->peer[rank].attempt);                       /* a late refusal would look
                                                               like the end of the rank */
        t->peer[rank].connection = connection;
        t->peer[rank].entry_sent = false;
    } else {
        tcp_connection_free(connection);
    }
}

/* The connection was made, or was refused. */
static void attempt_advance(tcp_t *t, int rank)
{
    tcp_peer_t *peer = &t->peer[rank];
    int why = 0;
    socklen_t length = sizeof why;
    pl_error_t err;
    if (peer->attempt->state != TCP_CONNECTING) {
        greeting_advance(t, &peer->attempt);
        return;
    }
    getsockopt(peer->attempt->fd, SOL_SOCKET, SO_ERROR, &why, &length);
    peer->wrong = why;
    if (why || rank > t->rank || !tcp_preamble_send(peer->attempt)
        || !tcp_connection_watch(peer->attempt, true, false))
        drop(&peer->attempt);
    if (why == ECONNREFUSED) {
        fail_gone(rank, &err);
        tcp_break(t, &err);
    }
}

static bool has_expired(const tcp_connection_t *connection)
{
    const bool has_said_hello = connection->connects && connection->state == TCP_GREETING;
    return connection->since < pl_now() - HELLO_MAX
           && (!has_said_hello || tcp_connection_is_dead(connection));
}

static void tick(tcp_t *t)
{
    uint64_t times;
    if (read(t->timer, &times, sizeof times) != sizeof times)
        return;
    if (!tcp_is_listening(t))
        tcp_check_connections(t);
    else if (t->now.req) {
        pl_error_t err;
        for (int k = 0; k < t->stranger_count; k++)
            if (t->stranger[k] && has_expired(t->stranger[k]))
                drop(&t->stranger[k]);
        for (int rank = 0; rank < t->size; rank++)
            if (t->peer[rank].attempt && has_expired(t->peer[rank].attempt))
                drop(&t->peer[rank].attempt);
        if (peers_connect(t, &err) != PL_OK)
            tcp_break(t, &err);
    }
}

void tcp_handle(tcp_t *t, uint32_t from)
{
    if (from >= FROM_ATTEMPT) {
        if (t->peer[from - FROM_ATTEMPT].attempt)
            attempt_advance(t, (int)(from - FROM_ATTEMPT));
    } else if (from >= FROM_STRANGER) {
        if (t->stranger[from - FROM_STRANGER])
            greeting_advance(t, &t->stranger[from - FROM_STRANGER]);
    } else if (from == FROM_TIMER) {
        tick(t);
    } else {
        pl_error_t err;
        for (int fd; (fd = accept4(t->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC))
                     >= 0;) {
            /* A free slot; if there is none, the slot of the oldest. */
            int k = t->stranger_next;
            for (int tried = 0; tried < t->stranger_count && t->stranger[k]; tried++)
                k = (k + 1) % t->stranger_count;
            drop(&t->stranger[k]);
            t->stranger_next = (k + 1) % t->stranger_count;
            t->stranger[k] = tcp_connection_new(t->epoll, fd, FROM_STRANGER + (uint32_t)k,
                                                key_for(t, t->is_near), &err);
            if (t->stranger[k]
                && (!tcp_preamble_send(t->stranger[k])
                    || !tcp_connection_watch(t->stranger[k], true, false)))
                drop(&t->stranger[k]);
        }
    }
}

void tcp_release(tcp_t *t)
{
    tcp_rendezvous_end(t);
    for (int rank = 0; rank < t->size; rank++) {
        drop(&t->peer[rank].connection);
        pl_free(t->peer[rank].window);
        pl_free(t->peer[rank].partial);
    }
    if (t->timer >= 0)
        close(t->timer);
    if (t->epoll >= 0)
        close(t->epoll);
    pl_free(t->peer);
    pl_free(t->in);
    pl_free(t->kept);
    pl_free(t->stranger);
    explicit_bzero(t->key, sizeof t->key);
}
