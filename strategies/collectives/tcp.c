/* tcp.c - the collective over TCP: each rank reduces its chunk
 *
 * Each pair of ranks has a connection. Each rank tells the others that it has begun.
 * Then it gives them the elements that they reduce, segment by segment, receives the
 * elements of its own chunk, adds them up in the order of the canonical tree, and
 * sends the result: as many bytes as in a ring, in an order that does not depend on
 * which rank is fast. A result also permits its receiver to give one segment more.
 * So no rank keeps more than a few segments, and what arrives can always be read: an
 * abort is never behind a frame that has to wait. Where ranks share memory, one gives
 * and receives for others: tcp_elements.c.
 *
 * Few elements go along in TCP_ENTER, and each rank reduces all of them for itself. */
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/collectives/tcp.h"
#include "strategies/collectives/tree.h"

enum { FRAMES_A_TURN = 16, CLOSE_MS = 200 };

/* ---- the end of an operation ---- */

void tcp_break(tcp_t *t, const pl_error_t *why)
{
    if (!t->now.broken.code)
        t->origin = t->rank, t->reason = t->now.broken.text;
    pl_underway_break(&t->now, why);
}

static tcp_peer_t *own_of(const tcp_t *t)
{
    return &t->peer[t->rank];
}

/* ---- losing a rank ---- */

/* Whether no more frames of the operation go to or come from this rank. */
static bool is_done_with(const tcp_t *t, const tcp_peer_t *peer)
{
    return peer->entered >= t->number && peer->entry_sent
           && peer->taken.done == peer->taken.all && peer->given.done == peer->given.all
           && peer->reported.done == peer->reported.all
           && peer->received.done == peer->received.all && peer->finished
           && peer->finish_sent;
}

/* Frames that it sent before, and reports of others about it, count first: see
 * left_check(). A rank that has not begun any operation yet is met again. */
static void peer_lost(tcp_t *t, int rank)
{
    tcp_peer_t *peer = &t->peer[rank];
    peer->left_busy = !tcp_connection_is_idle(peer->connection);
    peer->left = peer->entered || !tcp_is_listening(t);
    tcp_connection_free(peer->connection);
    peer->connection = NULL;
}

void tcp_check_connections(tcp_t *t)
{
    for (int rank = 0; rank < t->size; rank++)
        if (t->peer[rank].connection && tcp_connection_is_dead(t->peer[rank].connection))
            peer_lost(t, rank);
}

/* A rank that is gone with frames of the operation missing will never send them. */
static void left_check(tcp_t *t)
{
    for (int rank = 0; rank < t->size && t->now.req; rank++) {
        const tcp_peer_t *peer = &t->peer[rank];
        if (peer->left && (peer->left_busy || !is_done_with(t, peer))) {
            pl_error_t err;
            pl_fail(&err, PL_EPEER,
                    "rank %d is gone in the middle of %s: its process or thread has "
                    "ended, or the connection to it",
                    rank, pl_coll_op_name(t->now.req->desc.op));
            tcp_break(t, &err);
        }
    }
}

/* ---- what comes ---- */

/* Fails if the request of a rank differs from ours. */
static void request_compare(tcp_t *t, int rank)
{
    pl_error_t err;
    const tcp_peer_t *peer = &t->peer[rank];
    if (!t->now.req || peer->entered != t->number)
        return;
    if (pl_coll_desc_compare(&t->now.req->desc, rank, &peer->entry[t->number & 1].desc,
                             &err)
        != PL_OK)
        tcp_break(t, &err);
}

/* The place for the body of a frame; NULL: the frame is not allowed now, or malformed. */
static void *body_place(const tcp_t *t, int rank, const tcp_frame_t *frame)
{
    tcp_peer_t *peer = &t->peer[rank];
    const bool now = t->now.req && frame->number == t->number
                     && peer->entered == t->number;
    size_t bytes = 0;
    void *place = NULL;
    switch (frame->kind) {
    case TCP_ENTER:
        if (frame->number == peer->entered + 1 && frame->number <= t->number + 1
            && frame->length >= sizeof(pl_coll_desc_t)
            && frame->length <= sizeof(tcp_entry_t))
            return &peer->entry[frame->number & 1];
        return NULL;
    case TCP_GIVE:
        if (!now || frame->at != peer->taken.done || frame->at >= peer->taken.all
            || frame->at >= t->ready + t->window)
            return NULL;
        tcp_segment(t, t->rank, frame->at, &bytes);
        place = tcp_window(t, rank, frame->at);
        break;
    case TCP_RESULT:
        if (!now || frame->at != peer->received.done || frame->at >= peer->received.all)
            return NULL;
        place = tcp_segment(t, rank, frame->at, &bytes);
        if (!tcp_carries(t, peer->gives_results))
            bytes = 0;
        break;
    case TCP_FINISH: place = now && !peer->finished ? peer->reason : NULL; break;
    case TCP_ABORT:
        return frame->length < sizeof peer->reason && frame->at < (uint64_t)t->size
                   ? peer->reason
                   : NULL;
    default: break;
    }
    return frame->length == bytes ? place : NULL;
}

/* Reads as much as one turn allows; epoll reports the rest again. */
static void peer_read(tcp_t *t, int rank)
{
    tcp_peer_t *peer = &t->peer[rank];
    for (int k = 0; k < FRAMES_A_TURN && !t->now.broken.code; k++) {
        int code = tcp_connection_head(peer->connection);
        const tcp_frame_t frame = peer->connection->head;
        void *place = code > 0 ? body_place(t, rank, &frame) : NULL;
        if (code > 0)
            code = place ? tcp_connection_body(peer->connection, place) : -1;
        if (code < 0)
            peer_lost(t, rank);
        if (code <= 0)
            return;
        switch (frame.kind) {
        case TCP_ENTER:
            peer->entered = frame.number;
            request_compare(t, rank);
            break;
        case TCP_GIVE: peer->taken.done++; break;
        case TCP_RESULT: peer->received.done++; break;
        case TCP_FINISH: peer->finished = true; break;
        default:                                            /* an abort */
            peer->reason[frame.length] = '\0';
            pl_fail(&t->now.broken, PL_EPEER, "rank %d aborted: %s", (int)frame.at,
                    peer->reason);
            t->origin = (int)frame.at, t->reason = peer->reason;
            tcp_break(t, &t->now.broken);
        }
    }
}

/* ---- what goes ---- */

/* Returns 1: the next frame is sent or under way; 0: there is nothing to send. */
static int next_put(const tcp_t *t, int rank)
{
    tcp_peer_t *peer = &t->peer[rank];
    tcp_frame_t head = {.number = t->number};
    const void *body = NULL;
    size_t bytes = 0;
    if (!peer->entry_sent) {
        const tcp_entry_t *entry = &own_of(t)->entry[t->number & 1];
        const pl_coll_desc_t *desc = &entry->desc;
        const bool gives =
            t->few
            && ((desc->op != PL_COLL_OP_broadcast && desc->op != PL_COLL_OP_send)
                || desc->root == (uint32_t)t->rank);
        head.kind = TCP_ENTER;
        bytes = sizeof *desc + (gives ? desc->count * pl_dtype_bytes(desc->dtype) : 0);
        body = entry;
        peer->entry_sent = true;
    } else if (peer->entered < t->number) {
        return 0;
    } else if (peer->reported.done < t->ready
               && peer->reported.done < peer->reported.all) {
        head.kind = TCP_RESULT;
        head.at = peer->reported.done++;
        body = tcp_result_for(t, rank, head.at, &bytes);
        if (!tcp_carries(t, peer->takes_results))
            bytes = 0;
    } else if (tcp_may_give(t, peer)) {
        head.kind = TCP_GIVE;
        body = tcp_given(t, rank);
        head.at = peer->given.done++;
        tcp_segment(t, rank, head.at, &bytes);
    } else if (t->finished && !peer->finish_sent) {
        head.kind = TCP_FINISH;
        peer->finish_sent = true;
    } else {
        return 0;
    }
    head.length = (uint32_t)bytes;
    return tcp_connection_put(peer->connection, &head, body, false) < 0 ? -1 : 1;
}

static void peer_send(tcp_t *t, int rank)
{
    tcp_peer_t *peer = &t->peer[rank];
    int code = tcp_connection_flush(peer->connection, false);
    while (code == 1 && tcp_connection_is_idle(peer->connection)) {
        code = next_put(t, rank);
        if (code == 0)
            break;
    }
    if (code < 0)
        peer_read(t, rank);                /* the reason of its end may still be unread */
    else
        tcp_connection_watch(peer->connection, true,
                             !tcp_connection_is_idle(peer->connection));
}

static bool have_all_begun(const tcp_t *t)
{
    for (int rank = 0; rank < t->size; rank++)
        if (t->peer[rank].entered < t->number)
            return false;
    return true;
}

/* Whether the operation is over; else sets the ranks that are waited for: first until
 * they begin; when all have begun, for the segments to reduce next; when all gave
 * those, for everything else. */
static bool is_over(const tcp_t *t)
{
    const bool all_begun = have_all_begun(t), all_given = t->ready == t->parts;
    bool over = all_begun && all_given && t->finished;
    for (int rank = 0; rank < t->size; rank++) {
        const tcp_peer_t *peer = &t->peer[rank];
        const bool has_come = rank == t->rank ? true
                              : !all_begun    ? peer->entered >= t->number
                              : !all_given
                                  ? peer->taken.done > t->ready || !peer->taken.all
                                  : is_done_with(t, peer)
                                        && (!peer->connection
                                            || tcp_connection_is_idle(peer->connection));
        t->now.req->arrived[rank] = has_come;
        over = over && has_come;
    }
    return over;
}

static void advance(tcp_t *t)
{
    left_check(t);
    if (t->now.req && t->now.req->desc.op == PL_COLL_OP_join) {
        for (int rank = 0; rank < t->size; rank++)
            t->now.req->arrived[rank] = rank == t->rank || t->peer[rank].connection;
        if (tcp_all_met(t))
            pl_underway_end(&t->now, NULL);
        return;
    }
    if (t->now.req && tcp_is_listening(t) && have_all_begun(t))
        tcp_rendezvous_end(t);
    if (t->now.req && t->moves && !tcp_work(t))
        tcp_advance_soon(t);
    for (int rank = 0; rank < t->size && t->now.req; rank++)
        if (t->peer[rank].connection)
            peer_send(t, rank);
    left_check(t);
    if (!t->now.req || !is_over(t))
        return;
    if (t->few) {
        const pl_coll_desc_t *desc = &t->now.req->desc;
        for (int rank = 0; rank < t->size; rank++)
            t->in[rank] = t->peer[rank].entry[t->number & 1].few;
        pl_few_elements(desc, t->size, t->rank, t->in,
                        (char *)t->now.req->memory->data + desc->offset);
    }
    pl_underway_end(&t->now, NULL);
}

/* ---- after a failure ----
 *
 * No more is read, and the abort is sent to all others, also an abort that another rank
 * sent: it may not have reached all. */

static void abort_put(tcp_t *t)
{
    const size_t length = strnlen(t->reason, sizeof t->peer->reason - 1);
    const tcp_frame_t head = {.kind = TCP_ABORT,
                              .length = (uint32_t)length,
                              .at = (uint64_t)t->origin};
    for (int rank = 0; rank < t->size; rank++) {
        tcp_peer_t *peer = &t->peer[rank];
        if (!peer->connection)
            continue;
        int code = tcp_connection_flush(peer->connection, false);
        if (code == 1 && t->reports && !peer->knows) {
            peer->knows = true;
            code = tcp_connection_put(peer->connection, &head, t->reason, false);
        }
        tcp_connection_watch(peer->connection, false, code == 0);
        if (code < 0)
            peer_lost(t, rank);
    }
}

/* ---- turns ---- */

static int tcp_alive(void *self, pl_error_t *err)
{
    const tcp_t *t = self;
    if (t->now.broken.code)
        return pl_fail(err, t->now.broken.code, "%s", t->now.broken.text);
    for (int rank = 0; rank < t->size; rank++)
        if (t->peer[rank].left)
            return pl_fail(err, PL_EPEER,
                           "rank %d is gone: its process or thread has ended, or the "
                           "connection to it",
                           rank);
    return PL_OK;
}

static void tcp_advance(void *self)
{
    enum { EVENTS = 64 };
    tcp_t *t = self;
    struct epoll_event event[EVENTS];
    /* Each connection once, however many there are: left_check() blames a rank for its
     * loss unless another connection has already reported the reason. One call of
     * epoll_wait() returns as many events as its array holds; the next call continues
     * behind them. */
    const int watched = 2 * t->size + t->stranger_count + 2;
    for (int seen = 0, count = EVENTS; count == EVENTS && seen < watched; seen += count) {
        count = epoll_wait(t->epoll, event, EVENTS, 0);
        for (int k = 0; k < count && !t->now.broken.code; k++) {
            const uint32_t from = event[k].data.u32;
            if (from >= PL_RANKS_MAX)
                tcp_handle(t, from);
            else if (t->peer[from].connection && event[k].events & ~(uint32_t)EPOLLOUT)
                peer_read(t, (int)from);
        }
    }
    if (t->now.broken.code)
        abort_put(t);
    else
        advance(t);
}

/* ---- the table ---- */

static int tcp_open(void *self, const pl_collective_context_t *context,
                    char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    tcp_t *t = self;
    t->epoll = t->listener = t->timer = -1;
    int code = tcp_open_context(t, context, address, err);
    *descriptor = t->epoll;
    return code;
}

static int tcp_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    tcp_t *t = self;
    int code = pl_underway_check(&t->now, req, t->size, err);
    if (code == PL_OK)
        code = tcp_rendezvous(t, req->world, err);
    if (code != PL_OK)
        return code;
    t->now.req = req;
    advance(t);
    return PL_OK;
}

static int enter(tcp_t *t, pl_coll_request_t *req, bool few)
{
    t->now.req = req;
    t->few = few;
    t->number++;
    own_of(t)->entry[t->number & 1].desc = req->desc;
    own_of(t)->entered = t->number;
    tcp_count(t);
    for (int rank = 0; rank < t->size; rank++)
        request_compare(t, rank);
    advance(t);
    return PL_OK;
}

static int tcp_begin(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    tcp_t *t = self;
    const pl_coll_desc_t *desc = &req->desc;
    int code = pl_underway_check(&t->now, req, t->size, err);
    if (code == PL_OK)
        code = tcp_check_reach(t, desc, err);
    if (code != PL_OK)
        return code;
    const size_t bytes = pl_has_elements(desc) ? desc->count * pl_dtype_bytes(desc->dtype)
                                               : 0;
    if (desc->op == PL_COLL_OP_all_to_all && bytes > TCP_FEW)
        code = tcp_keep(t, req, bytes, err);
    if (code != PL_OK)
        return code;
    if (bytes && bytes <= TCP_FEW)
        memcpy(own_of(t)->entry[(t->number + 1) & 1].few,
               (const char *)req->memory->data + desc->offset, bytes);
    return enter(t, req, bytes && bytes <= TCP_FEW);
}

static int tcp_alloc_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    tcp_t *t = self;
    int code = pl_underway_check(&t->now, req, t->size, err);
    if (code == PL_OK
        && PL_GROW(t->buffers, t->buffer_count, t->buffer_capacity) != PL_OK)
        code = pl_no_memory(err);
    if (code != PL_OK)
        return code;
    req->desc.memory = (uint64_t)t->buffer_count;
    req->memory = pl_reg_buffer_new(req->desc.count, (uint32_t)t->buffer_count, NULL,
                                    err);
    if (!req->memory)
        return PL_ENOMEM;
    t->buffers[t->buffer_count++] = pl_object_ref(req->memory);
    return enter(t, req, false);
}

static void tcp_abort(void *self, const pl_error_t *why)
{
    tcp_t *t = self;
    pl_error_t reported = *why;
    if (reported.code == PL_ETIMEOUT && t->now.req
        && t->now.req->desc.op == PL_COLL_OP_join)
        tcp_describe_unmet(t, &reported);
    tcp_break(t, &reported);
    t->reports = true;
    abort_put(t);
}

/* Reads and drops what others send, so that they continue and read what we sent. */
static void connections_drain(const tcp_t *t)
{
    char rest[16 << 10];
    for (int rank = 0; rank < t->size; rank++)
        for (int k = 0; k < FRAMES_A_TURN && t->peer[rank].connection; k++)
            if (recv(t->peer[rank].connection->fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
                break;
}

static bool abort_is_out(const tcp_t *t)
{
    for (int rank = 0; rank < t->size; rank++) {
        const tcp_peer_t *peer = &t->peer[rank];
        if (peer->connection
            && !(peer->knows && tcp_connection_is_idle(peer->connection)))
            return false;
    }
    return true;
}

/* Whether the kernels of the others have all bytes: when a connection is closed with
 * unread data, the bytes that the other kernel lacks are thrown away. */
static bool abort_has_come(const tcp_t *t)
{
    int bytes = 0;
    for (int rank = 0; rank < t->size && bytes == 0; rank++)
        if (t->peer[rank].connection
            && ioctl(t->peer[rank].connection->fd, SIOCOUTQ, &bytes))
            bytes = 0;
    return bytes == 0;
}

/* Sends the reason of an abort even behind frames that are under way. */
static void tcp_close(void *self)
{
    tcp_t *t = self;
    int left = t->reports ? CLOSE_MS : 0;
    for (; left > 0 && !abort_is_out(t); left--) {
        connections_drain(t);
        abort_put(t);
        poll(NULL, 0, 1);
    }
    for (int rank = 0; rank < t->size; rank++)
        if (t->peer[rank].connection)
            shutdown(t->peer[rank].connection->fd, SHUT_WR);
    connections_drain(t);
    for (; left > 0 && !abort_has_come(t); left--) {
        poll(NULL, 0, 1);
        connections_drain(t);
    }
    tcp_release(t);
    while (t->buffer_count)
        pl_object_unref(t->buffers[--t->buffer_count]);
    pl_free(t->buffers);
}

static const pl_option_t tcp_options[] = {
    PL_TEXT(tcp_t, host, "\"\"", NULL,
            "address at which other ranks reach this machine; empty: the launcher's, or "
            "loopback"),
    PL_INT(tcp_t, port, "0", "0..65535",
           "port to listen at; 0: one of the launcher's port range, or any"),
    PL_BOOL(tcp_t, encrypt, "false",
            "encrypt on loopback, too; between machines everything is encrypted"),
    PL_OPTIONS_END};

const pl_collective_ops_t pl_tcp_collective = {
    .name = "tcp",
    .help = "ranks of several machines, over TCP",
    .size = sizeof(tcp_t),
    .options = tcp_options,
    .open = tcp_open,
    .join = tcp_join,
    .alloc_buffer = tcp_alloc_buffer,
    .all_reduce = tcp_begin,
    .reduce_scatter = tcp_begin,
    .all_gather = tcp_begin,
    .all_to_all = tcp_begin,
    .broadcast = tcp_begin,
    .send = tcp_begin,
    .barrier = tcp_begin,
    .alive = tcp_alive,
    .advance = tcp_advance,
    .abort = tcp_abort,
    .close = tcp_close,
};
