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
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/collectives/tcp.h"
#include "strategies/collectives/tree.h"

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

/* A rank that is gone with frames of the operation missing will never send them. */
static void left_check(tcp_t *t)
{
    for (int rank = 0; rank < t->size && t->now.req; rank++) {
        const mesh_peer_t *other = &t->mesh.peer[rank];
        if (other->left && (other->left_busy || !is_done_with(t, &t->peer[rank]))) {
            pl_error_t err;
            mesh_fail_left(&t->mesh, rank, pl_coll_op_name(t->now.req->desc.op), &err);
            mesh_break(&t->mesh, &err);
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
        mesh_break(&t->mesh, &err);
}

/* The other side of a new connection does not know that this rank has begun. */
static bool tcp_met(void *user, int rank, int descriptor)
{
    (void)descriptor;
    ((tcp_t *)user)->peer[rank].entry_sent = false;
    return true;
}

static void *tcp_place(void *user, int rank, const mesh_frame_t *frame)
{
    const tcp_t *t = user;
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
    case TCP_FINISH: place = now && !peer->finished ? peer : NULL; break;
    default: break;
    }
    return frame->length == bytes ? place : NULL;
}

static void tcp_take(void *user, int rank, const mesh_frame_t *frame, int descriptor)
{
    tcp_t *t = user;
    tcp_peer_t *peer = &t->peer[rank];
    (void)descriptor;
    switch (frame->kind) {
    case TCP_ENTER:
        peer->entered = frame->number;
        request_compare(t, rank);
        break;
    case TCP_GIVE: peer->taken.done++; break;
    case TCP_RESULT: peer->received.done++; break;
    default: peer->finished = true;
    }
}

static const mesh_user_t tcp_user = {tcp_met, tcp_place, tcp_take};

/* ---- what goes ---- */

/* Returns 1: the next frame is sent or under way; 0: there is nothing to send. */
static int next_put(const tcp_t *t, int rank)
{
    tcp_peer_t *peer = &t->peer[rank];
    mesh_frame_t head = {.number = t->number};
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
    return mesh_connection_put(t->mesh.peer[rank].connection, &head, body, -1) < 0 ? -1
                                                                                   : 1;
}

static void peer_send(tcp_t *t, int rank)
{
    mesh_connection_t *connection = t->mesh.peer[rank].connection;
    int code = mesh_connection_flush(connection);
    while (code == 1 && mesh_connection_is_idle(connection)) {
        code = next_put(t, rank);
        if (code == 0)
            break;
    }
    if (code < 0)
        mesh_read(&t->mesh, rank);         /* the reason of its end may still be unread */
    else
        mesh_connection_watch(connection, true, !mesh_connection_is_idle(connection));
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
        const mesh_connection_t *connection = t->mesh.peer[rank].connection;
        const bool has_come =
            rank == t->rank ? true
            : !all_begun    ? peer->entered >= t->number
            : !all_given    ? peer->taken.done > t->ready || !peer->taken.all
                            : is_done_with(t, peer)
                               && (!connection || mesh_connection_is_idle(connection));
        t->now.req->arrived[rank] = has_come;
        over = over && has_come;
    }
    return over;
}

static void advance(tcp_t *t)
{
    left_check(t);
    if (t->now.req && t->now.req->desc.op == PL_COLL_OP_join) {
        if (mesh_all_met(&t->mesh, t->now.req->arrived))
            pl_underway_end(&t->now, NULL);
        return;
    }
    if (t->now.req && mesh_is_listening(&t->mesh) && have_all_begun(t))
        mesh_rendezvous_end(&t->mesh);
    if (t->now.req && t->moves && !tcp_work(t))
        mesh_advance_soon(&t->mesh);
    for (int rank = 0; rank < t->size && t->now.req; rank++)
        if (t->mesh.peer[rank].connection)
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

/* ---- the table ---- */

static int tcp_alive(void *self, pl_error_t *err)
{
    return mesh_alive(&((tcp_t *)self)->mesh, err);
}

static void tcp_advance(void *self)
{
    tcp_t *t = self;
    if (mesh_read_all(&t->mesh))
        advance(t);
}

static int tcp_open(void *self, const pl_collective_context_t *context,
                    char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    tcp_t *t = self;
    const mesh_listen_t how = {.host = *t->host        ? t->host
                                       : context->host ? context->host
                                                       : "127.0.0.1",
                               .port = (int)t->port,
                               .encrypt = t->encrypt,
                               .key = context->key};
    const int code = mesh_open(&t->mesh, &how, &tcp_user, t, &t->now, address, err);
    *descriptor = t->mesh.epoll;
    return code;
}

static int tcp_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    tcp_t *t = self;
    int code = pl_underway_check(&t->now, req, t->size, err);
    if (code != PL_OK)
        return code;
    t->rank = req->world->rank, t->size = req->world->size;
    code = tcp_share(t, req->world, err);
    if (code == PL_OK)
        code = mesh_join(&t->mesh, req->world, err);
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
    mesh_abort(&((tcp_t *)self)->mesh, why);
}

static void tcp_close(void *self)
{
    tcp_t *t = self;
    mesh_close(&t->mesh);
    tcp_unshare(t);
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
