/* shm.c - the collective of one machine: ranks reduce in each other's memory
 *
 * All ranks, be they processes or threads of one, map the registered buffers. When
 * all have begun an operation, each rank reduces its chunk of the elements: it reads
 * them where they lie and writes the result to where all need it. When all have
 * finished, the operation is over. Few elements lie in the rank's shm_control_t, and
 * each rank reduces all of them for itself: then no rank waits a second time.
 *
 * A rank that waits polls for a moment, then sleeps until it is rung
 * (shm_memory.c). To be woken takes many times as long as to see that another rank
 * has come, but a rank that polls keeps a processor from others. So the time of
 * polling grows while polling succeeds and shrinks while it does not. It is longer
 * after this rank has woken another: two ranks that wait for each other to wake up
 * would never be awake together. With fewer processors than ranks no rank polls: it
 * would keep the others from coming. */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/placement.h"
#include "strategies/collectives/shm.h"
#include "strategies/collectives/tree.h"

enum { SLICE_BYTES = 32 << 10, LOOKS = 16, ALONE = 4, SPIN_PART_MIN = 16, SPIN_RANG = 4 };

static const int64_t TURN = PL_MILLISECOND;

/* ---- waiting ---- */

static inline void pause_processor(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#endif
}

static bool is_there(const shm_t *s, int rank)
{
    const shm_control_t *control = s->peer[rank].control;
    const uint64_t *counter = s->phase == SHM_ENTERING ? &control->entered
                                                       : &control->finished;
    return __atomic_load_n(counter, __ATOMIC_SEQ_CST) >= s->number;
}

/* The first rank that has not come, or -1. */
static int missing(const shm_t *s)
{
    int first = -1;
    for (int rank = s->size - 1; rank >= 0; rank--) {
        const bool there = is_there(s, rank);
        s->now.req->arrived[rank] = there;
        if (!there)
            first = rank;
    }
    return first;
}

/* Polls while that is worth it; returns what missing() does. */
static int poll_ranks(const shm_t *s)
{
    int rank = missing(s);
    if (rank < 0)
        return rank;
    const int64_t now = pl_now() + s->spin.now,
                  rang = s->spin.rang + SPIN_RANG * s->spin.max;
    const int64_t until = !s->spin.max ? 0 : now > rang ? now : rang;
    for (int times = 0; rank >= 0 && until && pl_now() < until; times++) {
        for (int k = 0; k < LOOKS && !is_there(s, rank); k++)
            pause_processor();
        if (times > ALONE)
            sched_yield();          /* the other rank may be waiting for this processor */
        rank = missing(s);
    }
    return rank;
}

/* Whether all ranks have come; false also if one never will, and the operation has
 * failed. */
static bool all_there(shm_t *s)
{
    int rank = poll_ranks(s);
    if (rank >= 0) {
        if (!s->spin.since)
            s->spin.since = pl_now();
        __atomic_store_n(&s->own->asleep, 1, __ATOMIC_SEQ_CST);
        rank =
            missing(s);   /* once more: a rank that came before that store did not ring */
    }
    if (rank < 0) {
        /* The rank polls longer next time if it slept for little longer than it polls,
         * else shorter. */
        shm_spin_t *p = &s->spin;
        const int64_t min = p->max / SPIN_PART_MIN, half = p->now / 2;
        if (p->since)
            p->now = pl_now() - p->since < 2 * p->max ? p->max : half > min ? half : min;
        p->since = 0;
        return true;
    }
    /* A rank that has not come and is gone will never come. */
    for (rank = 0; rank < s->size && s->now.req; rank++)
        if (s->mesh.peer[rank].left && !is_there(s, rank)) {
            pl_error_t err;
            mesh_fail_left(&s->mesh, rank, pl_coll_op_name(s->now.req->desc.op), &err);
            mesh_break(&s->mesh, &err);
        }
    return false;
}

/* ---- beginning ---- */

static bool memory_missing(const shm_t *s)
{
    const uint64_t memory = s->now.req->desc.memory;
    for (int rank = 0; rank < s->size; rank++)
        if (!shm_reach(s, rank, memory)
            || s->peer[rank].block[memory].bytes < s->now.req->memory->bytes)
            return true;
    return false;
}

/* All ranks have begun: checks that their requests are the same and their buffers are
 * mapped here. False: the operation has failed. */
static bool agreed(shm_t *s)
{
    const pl_coll_desc_t *desc = &s->now.req->desc;
    pl_error_t err;
    for (int rank = 0; rank < s->size; rank++)
        if (pl_coll_desc_compare(desc, s->mesh.peer[rank].number,
                                 &s->peer[rank].control->desc[s->number & 1], &err)
            != PL_OK) {
            mesh_break(&s->mesh, &err);
            return false;
        }
    if (desc->op == PL_COLL_OP_barrier)
        return true;
    if (memory_missing(s))
        mesh_read_all(&s->mesh);    /* the buffer was sent before the operation began, and
                                       few rings before it */
    if (s->now.req && memory_missing(s)) {
        pl_fail(&err, PL_EPROTOCOL,
                "a rank has not registered buffer %llu, or less of it than this rank",
                (unsigned long long)desc->memory);
        mesh_break(&s->mesh, &err);
    }
    if (!s->now.req)
        return false;
    if (desc->op == PL_COLL_OP_alloc_buffer)
        shm_touch(s, s->now.req->memory);
    /* The memory that the elements of each rank are read from. */
    for (int rank = 0; rank < s->size && pl_has_elements(desc); rank++)
        s->in[rank] = s->small
                          ? (const char *)s->peer[rank].control->small[s->number & 1]
                          : (const char *)shm_reach(s, rank, desc->memory) + desc->offset;
    return true;
}

/* ---- working ---- */

/* The k-th piece of this rank's work: reduces a range (from < 0), copies it from a
 * rank, or swaps it with a rank, which one of the two does; false: there is no k-th. */
static bool piece_of(const shm_t *s, int k, int *from, uint64_t *first, uint64_t *length)
{
    const pl_coll_desc_t *desc = &s->now.req->desc;
    *from = k;
    switch (desc->op) {
    case PL_COLL_OP_all_gather: pl_coll_chunk(desc, s->size, k, first, length); break;
    case PL_COLL_OP_all_to_all:
        pl_partition_of(desc->count, s->size, k, first, length);
        if ((k < s->rank) == ((k + s->rank) % 2 == 0))
            *length = 0;
        break;
    case PL_COLL_OP_broadcast:
    case PL_COLL_OP_send:
        *from = (int)desc->root;
        *first = 0;
        *length = desc->op == PL_COLL_OP_send && desc->to != (uint32_t)s->rank
                      ? 0
                      : desc->count;
        break;
    default: *from = -1; pl_coll_chunk(desc, s->size, s->rank, first, length);
    }
    if (*from == s->rank)
        *length = 0;
    return k < (desc->op == PL_COLL_OP_all_gather || desc->op == PL_COLL_OP_all_to_all
                    ? s->size
                    : 1);
}

static char *own_elements(const shm_t *s)
{
    return (char *)s->now.req->memory->data + s->now.req->desc.offset;
}

/* A sum goes to all ranks that need it while it is in the cache. */
static void slice_do(shm_t *s, int from, uint64_t first, uint64_t n)
{
    const pl_coll_desc_t *desc = &s->now.req->desc;
    const size_t size = pl_dtype_bytes(desc->dtype);
    char *own = own_elements(s) + first * size;
    for (int rank = 0; rank < s->size && from < 0; rank++)
        s->part[rank] = (const char *)s->in[rank] + first * size;
    if (from < 0) {
        pl_tree_reduce(own, s->part, s->size, n, desc->dtype, desc->reduction);
        for (int rank = 0; rank < s->size && desc->op == PL_COLL_OP_all_reduce; rank++)
            if (rank != s->rank)
                memcpy((char *)(uintptr_t)s->part[rank], own, n * size);
    } else if (desc->op == PL_COLL_OP_all_to_all) {
        char kept[SLICE_BYTES];
        uint64_t here, there, length;
        pl_partition_of(desc->count, s->size, from, &here, &length);
        pl_partition_of(desc->count, s->size, s->rank, &there, &length);
        char *theirs = (char *)(uintptr_t)s->in[from] + (there + first - here) * size;
        memcpy(kept, theirs, n * size);
        memcpy(theirs, own, n * size);
        memcpy(own, kept, n * size);
    } else
        memcpy(own, (const char *)s->in[from] + first * size, n * size);
}

/* Whether all work is done; false: the turn is over, because others use this thread
 * too. */
static bool work(shm_t *s)
{
    const int64_t until = pl_now() + TURN;
    int from;
    uint64_t first, length;
    for (; piece_of(s, s->piece, &from, &first, &length); s->piece++, s->piece_at = 0)
        while (s->piece_at < length) {
            const uint64_t left = length - s->piece_at;
            const uint64_t max = SLICE_BYTES / pl_dtype_bytes(s->now.req->desc.dtype);
            if (s->piece_at && pl_now() > until)
                return false;
            slice_do(s, from, first + s->piece_at, left < max ? left : max);
            s->piece_at += left < max ? left : max;
        }
    return true;
}

/* ---- from one phase to the next ---- */

/* Goes one phase further; false: something has to come first, or the operation is
 * over. */
static bool step(shm_t *s)
{
    switch (s->phase) {
    case SHM_RENDEZVOUS:
        if (!mesh_all_met(&s->mesh, s->now.req->arrived))
            return false;
        mesh_rendezvous_end(&s->mesh);
        pl_underway_end(&s->now, NULL);
        return false;
    case SHM_ENTERING:
        if (!all_there(s) || !agreed(s))
            return false;
        s->phase = SHM_WORKING;
        if (!s->small)
            return true;
        if (pl_has_elements(&s->now.req->desc))
            pl_few_elements(&s->now.req->desc, s->size, s->rank, s->in, own_elements(s));
        pl_underway_end(&s->now, NULL);
        return false;
    case SHM_WORKING:
        if (!work(s)) {
            mesh_advance_soon(&s->mesh);
            return false;
        }
        s->phase = SHM_FINISHING;
        __atomic_store_n(&s->own->finished, s->number, __ATOMIC_SEQ_CST);
        shm_ring(s);
        return true;
    case SHM_FINISHING:
        if (all_there(s))
            pl_underway_end(&s->now, NULL);
        return false;
    }
    return false;
}

static void proceed(shm_t *s)
{
    while (s->now.req && step(s))
        continue;
}

/* ---- the table ---- */

static int shm_open(void *self, const pl_collective_context_t *context,
                    char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    (void)context;
    shm_t *s = self;
    const mesh_listen_t how = {.is_local = true};
    s->own_fd = -1;
    const int code = mesh_open(&s->mesh, &how, &shm_user, s, &s->now, address, err);
    *descriptor = s->mesh.epoll;
    return code == PL_OK ? shm_make_own(s, err) : code;
}

static int shm_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    shm_t *s = self;
    const size_t size = (size_t)req->world->size;
    int code = pl_underway_check(&s->now, req, s->size, err);
    if (code != PL_OK)
        return code;
    s->peer = pl_alloc_array(size, sizeof *s->peer);
    s->in = pl_alloc_array(size, sizeof *s->in);
    s->part = pl_alloc_array(size, sizeof *s->part);
    if (!s->peer || !s->in || !s->part)
        return pl_no_memory(err);
    s->rank = req->world->rank, s->size = req->world->size;
    s->peer[s->rank].control = s->own;
    code = mesh_join(&s->mesh, req->world, err);
    if (code != PL_OK)
        return code;
    cpu_set_t processors;
    CPU_ZERO(&processors);
    s->spin = (shm_spin_t){0};
    if (sched_getaffinity(0, sizeof processors, &processors) == 0
        && (CPU_COUNT(&processors) >= s->size || pl_share_is_taken()))
        s->spin.max = s->spin.now = s->spin_us * 1000;
    s->phase = SHM_RENDEZVOUS;
    s->now.req = req;
    proceed(s);
    return PL_OK;
}

/* Tells the others that this rank has begun. */
static int enter(shm_t *s, pl_coll_request_t *req, bool small)
{
    s->now.req = req;
    s->small = small;
    s->piece = 0, s->piece_at = 0;
    s->phase = SHM_ENTERING;
    s->number++;
    s->own->desc[s->number & 1] = req->desc;
    __atomic_store_n(&s->own->entered, s->number, __ATOMIC_SEQ_CST);
    shm_ring(s);
    proceed(s);
    return PL_OK;
}

static int shm_begin(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    shm_t *s = self;
    const pl_coll_desc_t *desc = &req->desc;
    int code = pl_underway_check(&s->now, req, s->size, err);
    if (code != PL_OK)
        return code;
    const size_t bytes = pl_has_elements(desc) ? desc->count * pl_dtype_bytes(desc->dtype)
                                               : 0;
    if (bytes && bytes <= SHM_SMALL)
        memcpy(s->own->small[(s->number + 1) & 1],
               (const char *)req->memory->data + desc->offset, bytes);
    return enter(s, req, bytes <= SHM_SMALL);
}

static int shm_alloc_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    shm_t *s = self;
    int fd = -1, code = pl_underway_check(&s->now, req, s->size, err);
    if (code != PL_OK)
        return code;
    req->desc.memory = (uint64_t)s->buffer_count;
    pl_reg_buffer_t *buffer = pl_reg_buffer_new(req->desc.count,
                                                (uint32_t)s->buffer_count, &fd, err);
    if (!buffer)
        return PL_ENOMEM;
    shm_peer_t *own = &s->peer[s->rank];
    code = shm_send_memory(s, buffer, fd, err);
    if (code == PL_OK
        && (PL_GROW(s->buffers, s->buffer_count, s->buffer_capacity) != PL_OK
            || PL_GROW(own->block, own->block_count, own->block_capacity) != PL_OK))
        code = pl_no_memory(err);
    close(fd);
    if (code != PL_OK) {
        pl_object_unref(buffer);
        return code;
    }
    own->block[own->block_count++] = (shm_block_t){buffer->data, buffer->bytes};
    s->buffers[s->buffer_count++] = pl_object_ref(buffer);
    req->memory = buffer;
    return enter(s, req, true);
}

static void shm_advance(void *self)
{
    shm_t *s = self;
    if (mesh_read_all(&s->mesh))
        proceed(s);
}

static int shm_alive(void *self, pl_error_t *err)
{
    return mesh_alive(&((shm_t *)self)->mesh, err);
}

static void shm_abort(void *self, const pl_error_t *why)
{
    mesh_abort(&((shm_t *)self)->mesh, why);
}

static void shm_close(void *self)
{
    shm_t *s = self;
    mesh_close(&s->mesh);
    shm_release(s);
    pl_free(s->in);
    pl_free(s->part);
    while (s->buffer_count)
        pl_object_unref(s->buffers[--s->buffer_count]);
    pl_free(s->buffers);
}

static const pl_option_t shm_options[] = {
    PL_INT(shm_t, spin_us, "100", "0..10000",
           "microseconds to poll for other ranks before sleeping, if each rank has a "
           "processor of its own"),
    PL_OPTIONS_END};

const pl_collective_ops_t pl_shm_collective = {
    .name = "shm",
    .help = "ranks of one machine, in shared memory",
    .size = sizeof(shm_t),
    .options = shm_options,
    .open = shm_open,
    .join = shm_join,
    .alloc_buffer = shm_alloc_buffer,
    .all_reduce = shm_begin,
    .reduce_scatter = shm_begin,
    .all_gather = shm_begin,
    .all_to_all = shm_begin,
    .broadcast = shm_begin,
    .send = shm_begin,
    .barrier = shm_begin,
    .alive = shm_alive,
    .advance = shm_advance,
    .abort = shm_abort,
    .close = shm_close,
};
