/* tcp_elements.c - which elements a rank of the collective over TCP adds, gives and
 * receives
 *
 * Each rank reduces one chunk of the elements and sends the result. Ranks that share
 * a machine reach each other's memory (pl_world_t), so less has to travel. Ranks of a
 * machine that are a subtree of the canonical tree are a unit: one of them gives the
 * sum of all. One rank of a machine receives the results and writes them to where all
 * need them. Which rank that is depends on the owner of the chunk, so that all have a
 * part of the work. Where no ranks share memory, each rank is a unit and a machine.
 *
 * In all_to_all and send the elements go straight from rank to rank. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/collectives/tcp.h"
#include "strategies/collectives/tree.h"

enum { SEGMENTS_A_TURN = 16 };

/* ---- the ranks that share memory ---- */

/* The rank of a unit that gives to the owner of a chunk. */
static int giver_of(int first, int count, int owner)
{
    return first + owner % count;
}

static bool is_first_of_machine(const int *machine, int rank)
{
    for (int other = 0; other < rank; other++)
        if (machine[other] == machine[rank])
            return false;
    return true;
}

int tcp_share(tcp_t *t, const pl_world_t *world, pl_error_t *err)
{
    const size_t size = (size_t)t->size;
    int *alone = pl_alloc_array(size, sizeof *alone), code = PL_OK;
    t->in = pl_alloc_array(size, sizeof *t->in);
    t->peer = pl_alloc_array(size, sizeof *t->peer);
    if (!alone || !t->in || !t->peer) {
        pl_free(alone);
        return pl_no_memory(err);
    }
    t->window = t->size > 1 ? TCP_WINDOWS / (uint64_t)(t->size - 1) : 1;
    t->window = t->window > TCP_WINDOW ? TCP_WINDOW : t->window < 2 ? 2 : t->window;
    for (int rank = 0; rank < t->size; rank++)
        alone[rank] = rank;
    const int *machine = world->machine ? world->machine : alone;
    t->reach = world->reach, t->reach_user = world->user;
    pl_tree_unit(machine, t->size, t->rank, &t->unit, &t->unit_size);
    for (int rank = 0; rank < t->size && code == PL_OK; rank++) {
        tcp_peer_t *peer = &t->peer[rank];
        int first, count;
        pl_tree_unit(machine, t->size, rank, &first, &count);
        const int giver = giver_of(first, count, t->rank);
        const bool is_near = machine[rank] == machine[t->rank];
        peer->is_local = is_near && rank != t->rank;
        peer->giver = is_near ? rank : rank == first ? giver : -1;
        peer->gives_sums = !is_near && rank == giver;
        peer->takes_sums = !is_near && giver_of(t->unit, t->unit_size, rank) == t->rank;
        peer->takes_results = peer->gives_sums && is_first_of_machine(machine, first);
        peer->gives_results = peer->takes_sums && is_first_of_machine(machine, t->unit);
        const bool adds_up = peer->takes_sums && t->unit_size > 1;
        t->local_others += peer->is_local;
        peer->window = peer->gives_sums ? pl_alloc(t->window * TCP_SEGMENT) : NULL;
        peer->partial = adds_up ? pl_alloc(TCP_SEGMENT) : NULL;
        if ((peer->gives_sums && !peer->window) || (adds_up && !peer->partial))
            code = pl_no_memory(err);
    }
    pl_free(alone);
    return code;
}

void tcp_unshare(tcp_t *t)
{
    for (int rank = 0; rank < t->size && t->peer; rank++) {
        pl_free(t->peer[rank].window);
        pl_free(t->peer[rank].partial);
    }
    pl_free(t->peer);
    pl_free(t->in);
    pl_free(t->kept);
}

/* ---- where elements are ---- */

/* Whether each rank has other elements for each other rank. */
static bool is_direct(const tcp_t *t)
{
    const uint32_t op = t->now.req->desc.op;
    return op == PL_COLL_OP_all_to_all || op == PL_COLL_OP_send;
}

static bool reduces(const tcp_t *t)
{
    const uint32_t op = t->now.req->desc.op;
    return op == PL_COLL_OP_all_reduce || op == PL_COLL_OP_reduce_scatter;
}

/* The bytes that a rank sends as its result, or keeps. */
static void partition_of(const tcp_t *t, int owner, uint64_t *first, uint64_t *length)
{
    const pl_coll_desc_t *desc = &t->now.req->desc;
    const size_t size = pl_dtype_bytes(desc->dtype);
    if (desc->op == PL_COLL_OP_broadcast || desc->op == PL_COLL_OP_send)
        *first = 0, *length = desc->root == (uint32_t)owner ? desc->count : 0;
    else if (desc->op == PL_COLL_OP_all_to_all)
        pl_partition_of(desc->count, t->size, owner, first, length);
    else
        pl_coll_chunk(desc, t->size, owner, first, length);
    *first *= size, *length *= size;
}

static uint64_t segments_of(const tcp_t *t, int owner)
{
    uint64_t first, length;
    partition_of(t, owner, &first, &length);
    return (length + TCP_SEGMENT - 1) / TCP_SEGMENT;
}

/* A segment in the memory of this rank or of a local rank. */
static char *segment_at(const tcp_t *t, int rank, int owner, uint64_t k, size_t *bytes)
{
    uint64_t first, length;
    const pl_coll_request_t *req = t->now.req;
    partition_of(t, owner, &first, &length);
    const uint64_t left = length - k * TCP_SEGMENT;
    char *data = rank == t->rank ? req->memory->data
                                 : t->reach(t->reach_user, rank, req->desc.memory);
    *bytes = left < TCP_SEGMENT ? left : TCP_SEGMENT;
    return data + req->desc.offset + first + k * TCP_SEGMENT;
}

char *tcp_segment(const tcp_t *t, int owner, uint64_t k, size_t *bytes)
{
    return segment_at(t, t->rank, owner, k, bytes);
}

const char *tcp_result_for(const tcp_t *t, int rank, uint64_t k, size_t *bytes)
{
    const pl_coll_request_t *req = t->now.req;
    if (req->desc.op != PL_COLL_OP_all_to_all)
        return tcp_segment(t, t->rank, k, bytes);
    return t->kept
           + (tcp_segment(t, rank, k, bytes) - (char *)req->memory->data
              - req->desc.offset);
}

bool tcp_carries(const tcp_t *t, bool is_for_all)
{
    return is_direct(t)
           || (is_for_all && t->now.req->desc.op != PL_COLL_OP_reduce_scatter);
}

int tcp_keep(tcp_t *t, const pl_coll_request_t *req, size_t bytes, pl_error_t *err)
{
    if (t->kept_bytes < bytes) {
        char *fresh = pl_alloc(bytes);
        if (!fresh)
            return pl_no_memory(err);
        pl_free(t->kept);
        t->kept = fresh, t->kept_bytes = bytes;
    }
    memcpy(t->kept, (const char *)req->memory->data + req->desc.offset, bytes);
    return PL_OK;
}

char *tcp_window(const tcp_t *t, int rank, uint64_t k)
{
    return (char *)t->peer[rank].window + k % t->window * TCP_SEGMENT;
}

int tcp_check_reach(const tcp_t *t, const pl_coll_desc_t *desc, pl_error_t *err)
{
    for (int rank = 0; rank < t->size && pl_has_elements(desc); rank++)
        if (t->peer[rank].is_local && !t->reach(t->reach_user, rank, desc->memory))
            return pl_fail(err, PL_EINVAL, "rank %d has not registered buffer %llu", rank,
                           (unsigned long long)desc->memory);
    return PL_OK;
}

/* ---- what there is to do ---- */

/* The segments of the operation under way between this rank and another with which it
 * may share memory. */
static void count_direct(tcp_t *t)
{
    const pl_coll_desc_t *desc = &t->now.req->desc;
    const bool sends = desc->op == PL_COLL_OP_send;
    const bool gives = !sends || desc->root == (uint32_t)t->rank,
               takes = !sends || desc->to == (uint32_t)t->rank;
    for (int rank = 0; rank < t->size; rank++) {
        tcp_peer_t *peer = &t->peer[rank];
        const bool is_other = rank != t->rank;
        const bool reported = is_other && gives && (!sends || desc->to == (uint32_t)rank);
        peer->taken = peer->given = (tcp_count_t){0, 0};
        peer->reported =
            (tcp_count_t){0, reported ? segments_of(t, sends ? t->rank : rank) : 0};
        peer->received = (tcp_count_t){0, is_other && takes ? segments_of(t, rank) : 0};
        peer->passed = 0;
        peer->entry_sent = false;
        peer->finished = peer->finish_sent = true;
    }
    t->parts = t->ready = segments_of(t, t->rank);
    t->finished = true;
}

void tcp_count(tcp_t *t)
{
    t->moves = pl_has_elements(&t->now.req->desc) && !t->few;
    if (t->moves && is_direct(t)) {
        count_direct(t);
        return;
    }
    const bool adds = t->moves && reduces(t);
    const uint64_t own = t->moves ? segments_of(t, t->rank) : 0;
    for (int rank = 0; rank < t->size; rank++) {
        tcp_peer_t *peer = &t->peer[rank];
        const uint64_t theirs = t->moves ? segments_of(t, rank) : 0;
        const bool receives = adds ? peer->gives_sums : peer->takes_results,
                   reports = adds ? peer->takes_sums : peer->gives_results;
        peer->taken = (tcp_count_t){0, adds && peer->gives_sums ? own : 0};
        peer->given = (tcp_count_t){0, adds && peer->takes_sums ? theirs : 0};
        peer->reported = (tcp_count_t){0, receives ? own : 0};
        peer->received = (tcp_count_t){0, reports ? theirs : 0};
        peer->passed = 0;
        peer->entry_sent = false;
        peer->finished = peer->finish_sent = !t->moves || !peer->is_local;
    }
    t->parts = own;
    t->ready = adds || t->local_others ? 0 : own;
    t->finished = !t->moves || !t->local_others;
}

static bool locals_have_begun(const tcp_t *t)
{
    for (int rank = 0; rank < t->size && t->local_others; rank++)
        if (t->peer[rank].is_local && t->peer[rank].entered < t->number)
            return false;
    return true;
}

static bool all_gave(const tcp_t *t)
{
    for (int rank = 0; rank < t->size; rank++)
        if (t->peer[rank].taken.done <= t->ready && t->peer[rank].taken.all)
            return false;
    return true;
}

/* ---- doing it ---- */

static void locals_write(const tcp_t *t, int owner, uint64_t k)
{
    size_t bytes;
    const char *own = tcp_segment(t, owner, k, &bytes);
    for (int rank = 0; rank < t->size; rank++)
        if (t->peer[rank].is_local)
            memcpy(segment_at(t, rank, owner, k, &bytes), own, bytes);
}

const void *tcp_given(const tcp_t *t, int owner)
{
    const tcp_peer_t *peer = &t->peer[owner];
    const pl_coll_desc_t *desc = &t->now.req->desc;
    size_t bytes;
    if (t->unit_size == 1)
        return tcp_segment(t, owner, peer->given.done, &bytes);
    for (int rank = t->unit; rank < t->unit + t->unit_size; rank++)
        t->in[rank] = segment_at(t, rank, owner, peer->given.done, &bytes);
    pl_tree_reduce(peer->partial, t->in + t->unit, t->unit_size,
                   bytes / pl_dtype_bytes(desc->dtype), desc->dtype, desc->reduction);
    return peer->partial;
}

bool tcp_may_give(const tcp_t *t, const tcp_peer_t *peer)
{
    return peer->given.done < peer->given.all
           && peer->given.done < peer->received.done + t->window && locals_have_begun(t);
}

bool tcp_work(tcp_t *t)
{
    const bool adds = reduces(t),
               shares = t->now.req->desc.op != PL_COLL_OP_reduce_scatter;
    int left = SEGMENTS_A_TURN;
    if (is_direct(t) || !locals_have_begun(t))
        return true;
    for (; t->ready < t->parts && all_gave(t) && left; t->ready++, left--) {
        if (adds) {
            const pl_coll_desc_t *desc = &t->now.req->desc;
            size_t bytes;
            for (int rank = 0; rank < t->size; rank++) {
                const int giver = t->peer[rank].giver;
                t->in[rank] = giver < 0 ? NULL
                              : giver == rank && !t->peer[rank].gives_sums
                                  ? segment_at(t, rank, t->rank, t->ready, &bytes)
                                  : tcp_window(t, giver, t->ready);
            }
            char *own = tcp_segment(t, t->rank, t->ready, &bytes);
            pl_tree_reduce(own, t->in, t->size, bytes / pl_dtype_bytes(desc->dtype),
                           desc->dtype, desc->reduction);
        }
        if (shares)
            locals_write(t, t->rank, t->ready);
    }
    for (int rank = 0; rank < t->size; rank++) {
        tcp_peer_t *peer = &t->peer[rank];
        for (; peer->passed < peer->received.done && left; peer->passed++, left--)
            if (shares && peer->gives_results)
                locals_write(t, rank, peer->passed);
    }
    bool is_complete = t->ready == t->parts;
    for (int rank = 0; rank < t->size; rank++) {
        const tcp_peer_t *peer = &t->peer[rank];
        is_complete &= peer->taken.done == peer->taken.all
                       && peer->given.done == peer->given.all
                       && peer->received.done == peer->received.all
                       && peer->passed == peer->received.done;
    }
    t->finished |= is_complete;
    return left > 0;
}
