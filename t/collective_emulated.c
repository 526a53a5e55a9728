/* collective_emulated.c - a collective that moves memory of emulated GPUs, for tests */
#include "collective_emulated.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bind.h"
#include "base/error.h"
#include "strategies/collectives/collective.h"
#include "t/streams.h"

bool emu_forgets_after, emu_forgets_fence;
int emu_fails_at, emu_operations, emu_overlaps, emu_scatters;
int emu_gathers_overlap;

enum { RANKS = 16 };

/* Of all ranks, by the address of rank 0. */
typedef struct group {
    struct group *next;
    char name[PL_ADDRESS_TEXT];
    int size, users;
    struct shared *first;                             /* that are not over on all ranks */
    uint64_t begun[RANKS];
    pl_fence_t *newest, *newest_gather;  /* that an operation of rank 0 waits for, and one
                                            that gathers; counted  [NULL] */
    int update;                          /* other operations that rank 0 has begun: those
                                            that gather between two are of one update */
} group_t;

/* One operation of all ranks. */
typedef struct shared {
    struct shared *next;
    group_t *of;
    pl_coll_desc_t desc;
    uint64_t number;
    int users, given, update;
    bool is_aborted;
    void *in[RANKS];
    streams_event_t *gate[RANKS];                         /* passes when all have given */
    streams_t *streams[RANKS];                            /* [not begun, or given up] */
} shared_op_t;

typedef struct emu_collective {
    pl_instance_t inner;
    const pl_collective_ops_t *ops;
    group_t *group;
    int rank, size;
    uint32_t shared;
    void *stream;
    pl_underway_t now;
} emu_collective_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static group_t *groups;

/* ---- Ranks find each other ---- */

static group_t *group_find(const pl_world_t *world)
{
    pthread_mutex_lock(&lock);
    group_t *g = groups;
    while (g && strcmp(g->name, world->address[0]))
        g = g->next;
    if (!g) {
        g = calloc(1, sizeof *g);
        strcpy(g->name, world->address[0]);
        g->size = world->size;
        g->next = groups;
        groups = g;
    }
    g->users++;
    pthread_mutex_unlock(&lock);
    return g;
}

/* With the lock. */
static void shared_op_free(shared_op_t *m)
{
    shared_op_t **next = &m->of->first;
    while (*next != m)
        next = &(*next)->next;
    *next = m->next;
    for (int k = 0; k < m->of->size; k++) {
        free(m->in[k]);
        streams_event_free(m->gate[k]);
    }
    free(m);
}

static void group_leave(group_t *g)
{
    pthread_mutex_lock(&lock);
    group_t **next = &groups;
    while (*next != g)
        next = &(*next)->next;
    if (!--g->users) {
        *next = g->next;
        while (g->first)
            shared_op_free(g->first);
        pl_object_unref(g->newest);
        pl_object_unref(g->newest_gather);
        free(g);
    }
    pthread_mutex_unlock(&lock);
}

/* With the lock: the operation that a rank comes to next. */
static shared_op_t *shared_op_of(group_t *g, int rank, const pl_coll_desc_t *desc)
{
    const uint64_t number = ++g->begun[rank];
    shared_op_t *m = g->first;
    while (m && m->number != number)
        m = m->next;
    if (m)
        return m;
    m = calloc(1, sizeof *m);
    *m = (shared_op_t){.next = g->first, .of = g, .desc = *desc, .number = number};
    m->users = g->size;
    g->first = m;
    for (int k = 0; k < g->size; k++) {
        m->gate[k] = streams_event_new();
        streams_expect(m->gate[k]);
    }
    return m;
}

/* ---- On the streams ---- */

typedef struct item {
    shared_op_t *shared;
    int rank;
    char *at;
} item_t;

static size_t bytes_of(const pl_coll_desc_t *desc)
{
    return desc->count * pl_dtype_bytes(desc->dtype);
}

/* Takes the elements that are there now; the last rank to come wakes the others. */
static int give(void *data)
{
    const item_t *item = data;
    shared_op_t *m = item->shared;
    void *copy = malloc(bytes_of(&m->desc) + 1);
    memcpy(copy, item->at, bytes_of(&m->desc));
    pthread_mutex_lock(&lock);
    free(m->in[item->rank]);
    m->in[item->rank] = copy;
    m->given++;
    for (int k = 0; k < m->of->size && m->given == m->of->size; k++)
        if (m->streams[k])
            streams_pass(m->streams[k], m->gate[k]);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Whether what a later operation waits for is not there yet. */
static void overlap_count(pl_fence_t *fence, int *count)
{
    bool passed = true;
    pl_fence_t *newest = pl_object_ref(fence);
    if (newest && newest->ops->passed(newest, &passed, NULL) == PL_OK && !passed)
        __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
    pl_object_unref(newest);
}

static int take(void *data)
{
    const item_t *item = data;
    shared_op_t *m = item->shared;
    pthread_mutex_lock(&lock);
    if (!m->is_aborted) {
        char *fresh = malloc(bytes_of(&m->desc) + 1);
        memcpy(fresh, m->in[item->rank], bytes_of(&m->desc));
        pl_few_elements(&m->desc, m->of->size, item->rank, (const void **)m->in, fresh);
        uint64_t first = 0, count = m->desc.count;
        const size_t width = pl_dtype_bytes(m->desc.dtype);
        if (m->desc.op == PL_COLL_OP_reduce_scatter)
            pl_coll_chunk(&m->desc, m->of->size, item->rank, &first, &count);
        memcpy(item->at + first * width, fresh + first * width, count * width);
        free(fresh);
        if (item->rank == 0)
            overlap_count(m->of->newest, &emu_overlaps);
        if (item->rank == 0 && m->desc.op == PL_COLL_OP_all_gather
            && m->update == m->of->update)
            overlap_count(m->of->newest_gather, &emu_gathers_overlap);
        if (--m->users == 0)
            shared_op_free(m);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static int device_begin(emu_collective_t *m, pl_coll_request_t *req, pl_error_t *err)
{
    const pl_device_memory_t *memory = req->memory->device;
    int code = pl_underway_check(&m->now, req, m->size, err);
    if (code == PL_OK && m->rank == 1 && emu_fails_at
        && m->group->begun[1] + 1 == (uint64_t)emu_fails_at)
        code = pl_fail(err, PL_EIO, "the wire is cut");
    if (code == PL_OK && !m->stream)
        code = memory->ops->stream_new(memory->device, &m->stream, err);
    if (code == PL_OK && req->after && !emu_forgets_after)
        code = req->after->ops->join(req->after, m->stream, err);
    if (code != PL_OK)
        return code;
    const streams_handle_t *stream = m->stream;
    pthread_mutex_lock(&lock);
    shared_op_t *shared = shared_op_of(m->group, m->rank, &req->desc);
    shared->streams[m->rank] = stream->of;
    code = pl_coll_desc_compare(&req->desc, 0, &shared->desc, err);
    if (m->rank == 0) {
        pl_object_unref(m->group->newest);
        m->group->newest = pl_object_ref(req->after);
    }
    m->group->update += m->rank == 0 && req->desc.op != PL_COLL_OP_all_gather;
    if (m->rank == 0 && req->desc.op == PL_COLL_OP_all_gather) {
        shared->update = m->group->update;
        pl_object_unref(m->group->newest_gather);
        m->group->newest_gather = pl_object_ref(req->after);
    }
    pthread_mutex_unlock(&lock);
    if (code != PL_OK)
        return code;
    const item_t item = {shared, m->rank,
                         (char *)(uintptr_t)memory->address + req->desc.offset};
    __atomic_add_fetch(&emu_operations, 1, __ATOMIC_RELAXED);
    if (req->desc.op == PL_COLL_OP_reduce_scatter)
        __atomic_add_fetch(&emu_scatters, 1, __ATOMIC_RELAXED);
    if (emu_forgets_fence)
        code = memory->ops->fence_new(memory->device, m->stream, &req->fence, err);
    streams_put(stream->of, stream->number, give, &item, sizeof item);
    streams_wait(stream->of, stream->number, shared->gate[m->rank]);
    streams_put(stream->of, stream->number, take, &item, sizeof item);
    if (!emu_forgets_fence)
        code = memory->ops->fence_new(memory->device, m->stream, &req->fence, err);
    if (code == PL_OK)
        req->done(req, NULL);
    return code;
}

/* ---- The table ---- */

static int emu_open(void *self, const pl_collective_context_t *context,
                    char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    emu_collective_t *m = self;
    json_t *value = json_string("best");
    const pl_instance_request_t request = {.role = "collective", .value = value};
    int code = pl_instance_make(&m->inner, &request, err);
    json_decref(value);
    if (code != PL_OK)
        return code;
    m->ops = m->inner.ops;
    m->now.device = "emulated";
    return m->ops->open(m->inner.self, context, address, descriptor, err);
}

static int emu_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    emu_collective_t *m = self;
    m->rank = req->world->rank, m->size = req->world->size;
    m->group = group_find(req->world);
    return m->ops->join(m->inner.self, req, err);
}

static int emu_alloc_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    emu_collective_t *m = self;
    return m->ops->alloc_buffer(m->inner.self, req, err);
}

static int emu_register_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    emu_collective_t *m = self;
    const int code = pl_underway_check(&m->now, req, m->size, err);
    if (code != PL_OK)
        return code;
    req->memory->number = m->shared++;
    req->done(req, NULL);
    return PL_OK;
}

#define MOVES(name) \
    static int emu_##name(void *self, pl_coll_request_t *req, pl_error_t *err) \
    { \
        emu_collective_t *m = self; \
        return req->desc.is_device ? device_begin(m, req, err) \
                                   : m->ops->name(m->inner.self, req, err); \
    }

MOVES(all_reduce)
MOVES(reduce_scatter)
MOVES(all_gather)
MOVES(all_to_all)
MOVES(broadcast)
MOVES(send)

static int emu_barrier(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    emu_collective_t *m = self;
    return m->ops->barrier(m->inner.self, req, err);
}

static void emu_advance(void *self)
{
    emu_collective_t *m = self;
    m->ops->advance(m->inner.self);
}

/* The work on this rank's stream ends, and does nothing. */
static void release(emu_collective_t *m)
{
    pthread_mutex_lock(&lock);
    for (shared_op_t *of = m->group ? m->group->first : NULL; of; of = of->next) {
        of->is_aborted = true;
        if (of->streams[m->rank])
            streams_pass(of->streams[m->rank], of->gate[m->rank]);
        of->streams[m->rank] = NULL;
    }
    pthread_mutex_unlock(&lock);
}

static void emu_abort(void *self, const pl_error_t *why)
{
    emu_collective_t *m = self;
    release(m);
    pl_underway_break(&m->now, why);
    m->ops->abort(m->inner.self, why);
}

static void emu_close(void *self)
{
    emu_collective_t *m = self;
    if (m->ops)
        m->ops->close(m->inner.self);
    pl_instance_release(&m->inner);
    release(m);
    if (m->stream)
        streams_finish(((streams_handle_t *)m->stream)->of,
                       ((streams_handle_t *)m->stream)->number);
    if (m->group)
        group_leave(m->group);
}

const pl_collective_ops_t emu_collective = {
    .name = "emulated",
    .help = "moves memory of emulated GPUs, for tests",
    .size = sizeof(emu_collective_t),
    .device = "emulated",
    .open = emu_open,
    .join = emu_join,
    .alloc_buffer = emu_alloc_buffer,
    .register_buffer = emu_register_buffer,
    .all_reduce = emu_all_reduce,
    .reduce_scatter = emu_reduce_scatter,
    .all_gather = emu_all_gather,
    .all_to_all = emu_all_to_all,
    .broadcast = emu_broadcast,
    .send = emu_send,
    .barrier = emu_barrier,
    .advance = emu_advance,
    .abort = emu_abort,
    .close = emu_close,
};
