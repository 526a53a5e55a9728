/* mesh.c - what comes from connected ranks, the end of connections, and aborts
 *
 * A connection ends when the other side does, in whatever way: a killed rank is noticed
 * at once, and a machine that does not answer, soon. */
#include "strategies/collectives/mesh.h"

#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

enum { CLOSE_MS = 200, FRAMES_A_TURN = 16 };

/* ---- ranks that are gone ---- */

/* What it sent before, and reports of others about it, count first: the user decides
 * when it is missed. */
static void peer_lost(mesh_t *m, int rank)
{
    mesh_peer_t *peer = &m->peer[rank];
    peer->left_busy = !mesh_connection_is_idle(peer->connection);
    peer->left = peer->has_spoken || !mesh_is_listening(m);
    mesh_connection_free(peer->connection);
    peer->connection = NULL;
}

void mesh_check_connections(mesh_t *m)
{
    for (int rank = 0; rank < m->size; rank++) {
        const mesh_connection_t *connection = m->peer[rank].connection;
        if (connection && mesh_connection_is_dead(connection))
            peer_lost(m, rank);
    }
}

int mesh_fail_left(const mesh_t *m, int rank, const char *operation, pl_error_t *err)
{
    return pl_fail(err, PL_EPEER,
                   "rank %d is gone%s%s: its process or thread has ended%s",
                   m->peer[rank].number, operation ? " in the middle of " : "",
                   operation ? operation : "",
                   m->is_local ? "" : ", or the connection to it");
}

int mesh_alive(const mesh_t *m, pl_error_t *err)
{
    if (m->now->broken.code)
        return pl_fail(err, m->now->broken.code, "%s", m->now->broken.text);
    for (int rank = 0; rank < m->size; rank++)
        if (m->peer[rank].left)
            return mesh_fail_left(m, rank, NULL, err);
    return PL_OK;
}

/* ---- what comes ---- */

static void *abort_place(const mesh_t *m, int rank, const mesh_frame_t *frame)
{
    mesh_peer_t *peer = &m->peer[rank];
    return frame->length < sizeof peer->reason && frame->at < (uint64_t)m->size
               ? peer->reason
               : NULL;
}

static void abort_take(mesh_t *m, int rank, const mesh_frame_t *frame)
{
    char *reason = m->peer[rank].reason;
    reason[frame->length] = '\0';
    pl_fail(&m->now->broken, PL_EPEER, "rank %d aborted: %s", m->peer[frame->at].number,
            reason);
    m->origin = (int)frame->at, m->reason = reason;
    mesh_break(m, &m->now->broken);
}

void mesh_read(mesh_t *m, int rank)
{
    mesh_peer_t *peer = &m->peer[rank];
    for (int k = 0; k < FRAMES_A_TURN && !m->now->broken.code; k++) {
        int code = mesh_connection_head(peer->connection);
        const mesh_frame_t frame = peer->connection->head;
        const bool aborts = frame.kind == MESH_ABORT;
        void *place = code <= 0 ? NULL
                      : aborts  ? abort_place(m, rank, &frame)
                                : m->ops->place(m->user, rank, &frame);
        if (code > 0)
            code = place ? mesh_connection_body(peer->connection, place) : -1;
        if (code < 0)
            peer_lost(m, rank);
        if (code <= 0)
            return;
        peer->has_spoken = true;
        if (aborts)
            abort_take(m, rank, &frame);
        else
            m->ops->take(m->user, rank, &frame, peer->connection->descriptor);
        if (peer->connection)
            mesh_connection_drop_descriptor(peer->connection);
    }
}

/* ---- aborts ----
 *
 * No more is read, and the abort is sent to all others, also an abort that another rank
 * sent: it may not have reached all. */

void mesh_break(mesh_t *m, const pl_error_t *why)
{
    if (!m->now->broken.code)
        m->origin = m->rank, m->reason = m->now->broken.text;
    pl_underway_break(m->now, why);
}

static void abort_put(mesh_t *m)
{
    const size_t length = strnlen(m->reason, sizeof m->peer->reason - 1);
    const mesh_frame_t head = {.kind = MESH_ABORT,
                               .length = (uint32_t)length,
                               .at = (uint64_t)m->origin};
    for (int rank = 0; rank < m->size; rank++) {
        mesh_peer_t *peer = &m->peer[rank];
        if (!peer->connection)
            continue;
        int code = mesh_connection_flush(peer->connection);
        if (code == 1 && m->reports && !peer->knows) {
            peer->knows = true;
            code = mesh_connection_put(peer->connection, &head, m->reason, -1);
        }
        mesh_connection_watch(peer->connection, false, code == 0);
        if (code < 0)
            peer_lost(m, rank);
    }
}

/* Adds to `why` the addresses of ranks that have not been met, and what keeps them
 * away. */
static void describe_unmet(const mesh_t *m, pl_error_t *why)
{
    size_t length = strlen(why->text);
    for (int rank = 0; rank < m->size && length + 1 < sizeof why->text; rank++) {
        const mesh_peer_t *peer = &m->peer[rank];
        if (rank == m->rank || peer->connection)
            continue;
        const char *reason = peer->wrong ? strerror(peer->wrong)
                             : peer->attempt && peer->attempt->state == MESH_CONNECTING
                                 ? "it does not answer; is there a firewall between?"
                                 : "it accepts the connection and sends nothing";
        snprintf(why->text + length, sizeof why->text - length,
                 "; rank %d at %s, port %s: %s", peer->number, peer->host, peer->port,
                 reason);
        length = strlen(why->text);
    }
}

void mesh_abort(mesh_t *m, const pl_error_t *why)
{
    pl_error_t reported = *why;
    if (reported.code == PL_ETIMEOUT && mesh_is_listening(m) && !m->is_local
        && m->now->req)
        describe_unmet(m, &reported);
    mesh_break(m, &reported);
    m->reports = true;
    abort_put(m);
}

bool mesh_read_all(mesh_t *m)
{
    enum { EVENTS = 64 };
    struct epoll_event event[EVENTS];
    /* Each source once, however many there are: a rank is blamed for its loss unless
     * another connection has already reported the reason. One call of epoll_wait()
     * returns as many events as its array holds; the next call continues behind
     * them. */
    const int watched = 2 * m->size + m->stranger_count + 3;
    for (int seen = 0, count = EVENTS; count == EVENTS && seen < watched; seen += count) {
        count = epoll_wait(m->epoll, event, EVENTS, 0);
        for (int k = 0; k < count && !m->now->broken.code; k++) {
            const uint32_t from = event[k].data.u32;
            if (from >= PL_RANKS_MAX)
                mesh_handle(m, from);
            else if (m->peer[from].connection && event[k].events & ~(uint32_t)EPOLLOUT)
                mesh_read(m, (int)from);
        }
    }
    if (m->now->broken.code)
        abort_put(m);
    return !m->now->broken.code;
}

/* ---- closing ---- */

/* Reads and drops what others send, so that they continue and read what we sent. */
static void connections_drain(const mesh_t *m)
{
    char rest[16 << 10];
    for (int rank = 0; rank < m->size; rank++)
        for (int k = 0; k < FRAMES_A_TURN && m->peer[rank].connection; k++)
            if (recv(m->peer[rank].connection->fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
                break;
}

static bool abort_is_out(const mesh_t *m)
{
    for (int rank = 0; rank < m->size; rank++) {
        const mesh_peer_t *peer = &m->peer[rank];
        if (peer->connection
            && !(peer->knows && mesh_connection_is_idle(peer->connection)))
            return false;
    }
    return true;
}

/* Whether the kernels of the others have all bytes: when a connection over TCP is closed
 * with unread data, the bytes that the other kernel lacks are thrown away. */
static bool abort_has_come(const mesh_t *m)
{
    int bytes = 0;
    for (int rank = 0; rank < m->size && bytes == 0 && !m->is_local; rank++)
        if (m->peer[rank].connection
            && ioctl(m->peer[rank].connection->fd, SIOCOUTQ, &bytes))
            bytes = 0;
    return bytes == 0;
}

/* Sends the reason of an abort even behind frames that are under way. */
void mesh_close(mesh_t *m)
{
    int left = m->reports ? CLOSE_MS : 0;
    for (; left > 0 && !abort_is_out(m); left--) {
        connections_drain(m);
        abort_put(m);
        poll(NULL, 0, 1);
    }
    for (int rank = 0; rank < m->size; rank++)
        if (m->peer[rank].connection)
            shutdown(m->peer[rank].connection->fd, SHUT_WR);
    connections_drain(m);
    for (; left > 0 && !abort_has_come(m); left--) {
        poll(NULL, 0, 1);
        connections_drain(m);
    }
    mesh_rendezvous_end(m);
    const int fds[] = {m->timer, m->soon, m->epoll};
    for (int rank = 0; rank < m->size; rank++)
        mesh_connection_free(m->peer[rank].connection);
    for (size_t k = 0; k < sizeof fds / sizeof *fds; k++)
        if (fds[k] >= 0)
            close(fds[k]);
    pl_free(m->peer);
    pl_free(m->stranger);
    explicit_bzero(m->key, sizeof m->key);
}
