/* mesh_rendezvous.c - how ranks meet
 *
 * The rank with the higher number connects. Both sides say hello with two random
 * numbers from the table of addresses: the other's and their own. On connections
 * beyond one machine everything after the preamble is sealed under the key of the job
 * (mesh.h), so that nothing of a sender without the key is read; a UNIX socket leads to
 * a process of the same user. Connections whose hello does not come soon make room for
 * others.
 *
 * The side that accepts has met the other before that one knows. So a side that has
 * said hello does not close while the other's machine answers. Until the user ends the
 * rendezvous nothing is lost with a connection on which nothing but the hello has
 * come: the side that connected does so again, and the newer connection replaces the
 * older one, whose end may arrive later. */
#include "strategies/collectives/mesh.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

enum {
    CONNECT_MS = 20,
    LINK_MS = 1000,
    STRANGERS = 16              /* connections without a hello, besides the other ranks */
};

static const int64_t HELLO_MAX = 10 * PL_SECOND;

/* The sources of events in epoll: below PL_RANKS_MAX a rank. */
enum {
    FROM_LISTENER = PL_RANKS_MAX,
    FROM_TIMER,
    FROM_SOON,
    FROM_STRANGER,                                          /* + index of the stranger */
    FROM_ATTEMPT = 3 * PL_RANKS_MAX                         /* + rank */
};

/* ---- opening and joining ---- */

static bool is_watched(const mesh_t *m, int fd, uint32_t from)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = from};
    return fd >= 0 && epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

int mesh_fail_to_listen(pl_error_t *err)
{
    return pl_fail(err, PL_EIO, "cannot listen for other ranks: %s", strerror(errno));
}

int mesh_open(mesh_t *m, const mesh_listen_t *how, const mesh_user_t *ops, void *user,
              pl_underway_t *now, char address[PL_ADDRESS_TEXT], pl_error_t *err)
{
    *m = (mesh_t){.ops = ops,
                  .user = user,
                  .now = now,
                  .is_local = how->is_local,
                  .encrypt = how->encrypt,
                  .has_key = how->key != NULL,
                  .descriptor = -1,
                  .listener = -1};
    if (how->key)
        memcpy(m->key, how->key, sizeof m->key);
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    m->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    m->soon = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!is_watched(m, m->timer, FROM_TIMER) || !is_watched(m, m->soon, FROM_SOON)
        || getrandom(m->token, sizeof m->token, 0) != sizeof m->token)
        return mesh_fail_to_listen(err);
    return mesh_listen(m, how, address, err);
}

bool mesh_is_listening(const mesh_t *m)
{
    return m->listener >= 0;
}

bool mesh_all_met(const mesh_t *m, unsigned char *arrived)
{
    bool all = true;
    for (int rank = 0; rank < m->size; rank++) {
        arrived[rank] = rank == m->rank || m->peer[rank].connection;
        all = all && arrived[rank];
    }
    return all;
}

static int fail_gone(const mesh_peer_t *peer, pl_error_t *err)
{
    return pl_fail(err, PL_EPEER, "rank %d is gone: nothing listens at its address",
                   peer->number);
}

/* Connections to loopback are plain. */
static const unsigned char *key_for(const mesh_t *m, bool near)
{
    return near && !m->encrypt ? NULL : m->key;
}

/* Connects to ranks with a lower number, and only checks that those with a higher number
 * are there: a rank that does not listen is gone; anything else is tried again. */
static int peers_connect(mesh_t *m, pl_error_t *err)
{
    for (int rank = 0; rank < m->size; rank++) {
        mesh_peer_t *peer = &m->peer[rank];
        if (rank == m->rank || peer->connection || peer->attempt)
            continue;
        const int fd = mesh_dial(m, peer);
        if (fd < 0) {
            peer->wrong = errno;
            if (peer->wrong == ECONNREFUSED)
                return fail_gone(peer, err);
            continue;
        }
        peer->attempt =
            mesh_connection_new(m->epoll, fd, FROM_ATTEMPT + (uint32_t)rank,
                                rank < m->rank ? key_for(m, peer->is_near) : NULL, err);
        if (!peer->attempt || !mesh_connection_watch(peer->attempt, false, true))
            return pl_no_memory(err);
        peer->attempt->connects = true;
    }
    return PL_OK;
}

static bool ticks_set(const mesh_t *m, int milliseconds)
{
    const struct timespec often = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    const struct itimerspec times = {often, often};
    return timerfd_settime(m->timer, 0, &times, NULL) == 0;
}

int mesh_join(mesh_t *m, const pl_world_t *world, pl_error_t *err)
{
    const int strangers = world->size + STRANGERS;
    int code = PL_OK;
    m->peer = pl_alloc_array((size_t)world->size, sizeof *m->peer);
    m->stranger = pl_alloc_array((size_t)strangers, sizeof(mesh_connection_t *));
    if (!m->peer || !m->stranger)
        return pl_no_memory(err);
    m->stranger_count = strangers;
    m->rank = world->rank, m->size = world->size;
    for (int rank = 0; rank < m->size; rank++)
        m->peer[rank].number = world->number ? world->number[rank] : rank;
    const mesh_peer_t *own = &m->peer[m->rank];
    for (int rank = 0; rank < m->size && code == PL_OK; rank++)
        code = mesh_address_read(m, &m->peer[rank], world->address[rank], err);
    if (code == PL_OK && memcmp(own->token, m->token, MESH_TOKEN) != 0)
        code = pl_fail(err, PL_EINVAL,
                       "rank %d received the address of another rank as its own",
                       own->number);
    if (code != PL_OK)
        return code;
    if (!is_watched(m, m->listener, FROM_LISTENER) || !ticks_set(m, CONNECT_MS))
        return mesh_fail_to_listen(err);
    return peers_connect(m, err);
}

static void drop(mesh_connection_t **connection)
{
    mesh_connection_free(*connection);
    *connection = NULL;
}

void mesh_rendezvous_end(mesh_t *m)
{
    for (int k = 0; k < m->stranger_count; k++)
        drop(&m->stranger[k]);
    for (int rank = 0; rank < m->size; rank++)
        drop(&m->peer[rank].attempt);
    if (m->listener >= 0)
        close(m->listener);
    m->listener = -1;
    ticks_set(m, m->is_local ? 0 : LINK_MS);
}

void mesh_advance_soon(const mesh_t *m)
{
    const uint64_t more = 1;
    ssize_t written = write(m->soon, &more, sizeof more);
    (void)written;                                   /* a full counter is readable, too */
}

/* ---- the greeting on a new connection ---- */

enum { PREAMBLE = 8 + CIPHER_NONCE };

static const char magic[8] = {'p', 'l', 'm', 'e', 's', 'h', '0', '1'};

typedef struct hello {
    uint32_t rank, size;
    unsigned char from[MESH_TOKEN], to[MESH_TOKEN];
} hello_t;

typedef enum greeting {
    GREETING_BAD = -1,
    GREETING_WAITS,
    GREETING_DONE,
} greeting_t;

static bool preamble_send(const mesh_t *m, mesh_connection_t *connection)
{
    unsigned char preamble[PREAMBLE] = {0};
    struct ucred other;
    socklen_t length = sizeof other;
    if (m->is_local
        && (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0
            || other.uid != geteuid()))
        return false;
    memcpy(preamble, magic, sizeof magic);
    if (connection->cipher)
        cipher_nonce(connection->cipher, preamble + sizeof magic);
    connection->state = MESH_PREAMBLE;
    return mesh_connection_send_raw(connection, preamble, sizeof preamble);
}

static bool hello_send(const mesh_t *m, mesh_connection_t *connection, int to)
{
    const mesh_frame_t head = {.kind = MESH_HELLO, .length = sizeof(hello_t)};
    hello_t hello = {.rank = (uint32_t)m->rank, .size = (uint32_t)m->size};
    memcpy(hello.from, m->token, MESH_TOKEN);
    memcpy(hello.to, m->peer[to].token, MESH_TOKEN);
    return mesh_connection_put(connection, &head, &hello, m->descriptor) == 1;
}

/* The side that connects knows the other rank, and sends its hello first. */
static greeting_t greeting_begin(const mesh_t *m, mesh_connection_t *connection)
{
    connection->state = MESH_GREETING;
    return !connection->connects
                   || hello_send(m, connection, (int)(connection->tag - FROM_ATTEMPT))
               ? GREETING_DONE
               : GREETING_BAD;
}

/* Reads the preamble, or the header of the cipher. */
static greeting_t raw_read(const mesh_t *m, mesh_connection_t *connection)
{
    unsigned char header[CIPHER_HEADER];
    const bool is_header = connection->state == MESH_HEADER;
    int code = mesh_connection_read_raw(connection, is_header ? CIPHER_HEADER : PREAMBLE);
    if (code <= 0)
        return code < 0 ? GREETING_BAD : GREETING_WAITS;
    if (is_header)
        return cipher_accept(connection->cipher, connection->raw)
                   ? greeting_begin(m, connection)
                   : GREETING_BAD;
    if (memcmp(connection->raw, magic, sizeof magic) != 0 || connection->descriptor >= 0)
        return GREETING_BAD;
    if (!connection->cipher)
        return greeting_begin(m, connection);
    connection->state = MESH_HEADER;
    return cipher_agree(connection->cipher, connection->raw + sizeof magic, header)
                   && mesh_connection_send_raw(connection, header, sizeof header)
               ? GREETING_DONE
               : GREETING_BAD;
}

/* The hello comes from another rank that knows both numbers; the rank has not been met,
 * or it connects again. */
static greeting_t hello_read(mesh_t *m, mesh_connection_t *connection, int *rank)
{
    hello_t hello;
    int code = mesh_connection_head(connection);
    if (code > 0
        && (connection->head.kind != MESH_HELLO
            || connection->head.length != sizeof hello))
        return GREETING_BAD;
    if (code > 0)
        code = mesh_connection_body(connection, connection->raw);
    if (code <= 0)
        return code < 0 ? GREETING_BAD : GREETING_WAITS;
    memcpy(&hello, connection->raw, sizeof hello);
    if (hello.size != (uint32_t)m->size || hello.rank >= hello.size
        || hello.rank == (uint32_t)m->rank)
        return GREETING_BAD;
    const mesh_peer_t *peer = &m->peer[hello.rank];
    const bool lower = hello.rank < (uint32_t)m->rank,
               again = !peer->has_spoken && !connection->connects && peer->connection
                       && connection->since >= peer->connection->since;
    if ((peer->connection && !again) || lower != connection->connects
        || (lower && hello.rank != connection->tag - FROM_ATTEMPT)
        || memcmp(hello.to, m->token, MESH_TOKEN) != 0
        || memcmp(hello.from, peer->token, MESH_TOKEN) != 0
        || (!connection->connects && !hello_send(m, connection, (int)hello.rank))
        || !m->ops->met(m->user, (int)hello.rank, connection->descriptor))
        return GREETING_BAD;
    mesh_connection_drop_descriptor(connection);
    *rank = (int)hello.rank;
    return GREETING_DONE;
}

/* Goes through the stages of the greeting as far as data has come. The connection
 * becomes the rank's, or is dropped if the greeting is refused. */
static void greeting_advance(mesh_t *m, mesh_connection_t **place)
{
    int rank = -1;
    mesh_connection_t *connection = *place;
    greeting_t is = GREETING_DONE;
    while (is == GREETING_DONE && rank < 0)
        is = connection->state == MESH_PREAMBLE || connection->state == MESH_HEADER
                 ? raw_read(m, connection)
                 : hello_read(m, connection, &rank);
    if (is == GREETING_WAITS)
        return;
    *place = NULL;
    mesh_connection_watch(connection, false, false);
    connection->tag = (uint32_t)rank;
    connection->state = MESH_OPEN;
    if (is == GREETING_DONE && mesh_connection_watch(connection, true, false)) {
        mesh_connection_free(m->peer[rank].connection);
        drop(&m->peer[rank].attempt);                       /* a late refusal would look
                                                               like the end of the rank */
        m->peer[rank].connection = connection;
    } else {
        mesh_connection_free(connection);
    }
}

/* The connection was made, or was refused. */
static void attempt_advance(mesh_t *m, int rank)
{
    mesh_peer_t *peer = &m->peer[rank];
    int why = 0;
    socklen_t length = sizeof why;
    pl_error_t err;
    if (peer->attempt->state != MESH_CONNECTING) {
        greeting_advance(m, &peer->attempt);
        return;
    }
    getsockopt(peer->attempt->fd, SOL_SOCKET, SO_ERROR, &why, &length);
    peer->wrong = why;
    if (why || rank > m->rank || !preamble_send(m, peer->attempt)
        || !mesh_connection_watch(peer->attempt, true, false))
        drop(&peer->attempt);
    if (why == ECONNREFUSED) {
        fail_gone(peer, &err);
        mesh_break(m, &err);
    }
}

static void strangers_accept(mesh_t *m)
{
    pl_error_t err;
    for (int fd;
         (fd = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        /* A free slot; if there is none, the slot of the oldest. */
        int k = m->stranger_next;
        for (int tried = 0; tried < m->stranger_count && m->stranger[k]; tried++)
            k = (k + 1) % m->stranger_count;
        drop(&m->stranger[k]);
        m->stranger_next = (k + 1) % m->stranger_count;
        m->stranger[k] = mesh_connection_new(m->epoll, fd, FROM_STRANGER + (uint32_t)k,
                                             key_for(m, m->is_near), &err);
        if (m->stranger[k]
            && (!preamble_send(m, m->stranger[k])
                || !mesh_connection_watch(m->stranger[k], true, false)))
            drop(&m->stranger[k]);
    }
}

static bool has_expired(const mesh_connection_t *connection)
{
    const bool has_said_hello = connection->connects
                                && connection->state == MESH_GREETING;
    return connection->since < pl_now() - HELLO_MAX
           && (!has_said_hello || mesh_connection_is_dead(connection));
}

/* In the rendezvous connects again; later drops the connections to machines that do not
 * answer. */
static void tick(mesh_t *m)
{
    uint64_t times;
    pl_error_t err;
    if (read(m->timer, &times, sizeof times) != sizeof times)
        return;
    if (!mesh_is_listening(m))
        mesh_check_connections(m);
    if (!mesh_is_listening(m) || !m->now->req)
        return;
    for (int k = 0; k < m->stranger_count; k++)
        if (m->stranger[k] && has_expired(m->stranger[k]))
            drop(&m->stranger[k]);
    for (int rank = 0; rank < m->size; rank++)
        if (m->peer[rank].attempt && has_expired(m->peer[rank].attempt))
            drop(&m->peer[rank].attempt);
    if (peers_connect(m, &err) != PL_OK)
        mesh_break(m, &err);
}

void mesh_handle(mesh_t *m, uint32_t from)
{
    uint64_t times;
    if (from == FROM_LISTENER)
        strangers_accept(m);
    else if (from == FROM_TIMER)
        tick(m);
    else if (from == FROM_SOON && read(m->soon, &times, sizeof times) < 0)
        return;
    else if (from >= FROM_ATTEMPT && m->peer[from - FROM_ATTEMPT].attempt)
        attempt_advance(m, (int)(from - FROM_ATTEMPT));
    else if (from >= FROM_STRANGER && from < FROM_ATTEMPT
             && m->stranger[from - FROM_STRANGER])
        greeting_advance(m, &m->stranger[from - FROM_STRANGER]);
}
