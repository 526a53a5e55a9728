/* mover.c - a collective that moves memory of emulated GPUs, for tests */
#include "mover.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bind.h"
#include "base/error.h"
#include "strategies/collectives/collective.h"
#include "t/streams.h"

bool mover_forgets_after, mover_forgets_fence;
int mover_fails_at, mover_operations, mover_overlaps, mover_scatters;
int mover_gathers_overlap;

enum { RANKS = 16 };

/* Of all ranks, by the address of rank 0. */
typedef struct group {
    struct group *next;
    char name[PL_ADDRESS_TEXT];
    int size, users;
    struct meeting *first;                            /* that are not over on all ranks */
    uint64_t begun[RANKS];
    pl_fence_t *newest, *newest_gather;  /* that an operation of rank 0 waits for, and one
                                            that gathers; counted  [NULL] */
    int update;                          /* other operations that rank 0 has begun: those
                                            that gather between two are of one update */
} group_t;

/* One operation of all ranks. */
typedef struct meeting {
    struct meeting *next;
    group_t *of;
    pl_want_t want;
    uint64_t number;
    int users, given, update;
    bool is_aborted;
    void *in[RANKS];
    streams_event_t *gate[RANKS];                         /* passes when all have given */
    streams_t *streams[RANKS];                            /* [not begun, or given up] */
} meeting_t;

typedef struct mover {
    pl_instance_t inner;
    const pl_collective_ops_t *ops;
    group_t *group;
    int rank, size;
    uint32_t shared;
    void *stream;
    pl_underway_t now;
} mover_t;

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
static void meeting_free(meeting_t *m)
{
    meeting_t **next = &m->of->first;
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
            meeting_free(g->first);
        pl_object_unref(g->newest);
        pl_object_unref(g->newest_gather);
        free(g);
    }
    pthread_mutex_unlock(&lock);
}

/* With the lock: the operation that a rank comes to next. */
static meeting_t *meeting_of(group_t *g, int rank, const pl_want_t *want)
{
    const uint64_t number = ++g->begun[rank];
    meeting_t *m = g->first;
    while (m && m->number != number)
        m = m->next;
    if (m)
        return m;
    m = calloc(1, sizeof *m);
    *m = (meeting_t){.next = g->first, .of = g, .want = *want, .number = number};
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
    meeting_t *meeting;
    int rank;
    char *at;
} item_t;

static size_t bytes_of(const pl_want_t *want)
{
    return want->count * pl_dtype_bytes(want->dtype);
}

/* Takes what is there now; who comes last lets all go on. */
static int give(void *data)
{
    const item_t *item = data;
    meeting_t *m = item->meeting;
    void *copy = malloc(bytes_of(&m->want) + 1);
    memcpy(copy, item->at, bytes_of(&m->want));
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
    meeting_t *m = item->meeting;
    pthread_mutex_lock(&lock);
    if (!m->is_aborted) {
        char *fresh = malloc(bytes_of(&m->want) + 1);
        memcpy(fresh, m->in[item->rank], bytes_of(&m->want));
        pl_few_elements(&m->want, m->of->size, item->rank, (const void **)m->in, fresh);
        uint64_t first = 0, count = m->want.count;
        const size_t width = pl_dtype_bytes(m->want.dtype);
        if (m->want.move == PL_MOVE_reduce_scatter)
            pl_want_chunk(&m->want, m->of->size, item->rank, &first, &count);
        memcpy(item->at + first * width, fresh + first * width, count * width);
        free(fresh);
        if (item->rank == 0)
            overlap_count(m->of->newest, &mover_overlaps);
        if (item->rank == 0 && m->want.move == PL_MOVE_all_gather
            && m->update == m->of->update)
            overlap_count(m->of->newest_gather, &mover_gathers_overlap);
        if (--m->users == 0)
            meeting_free(m);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static int device_begin(mover_t *m, pl_operation_t *op, pl_error_t *err)
{
    const pl_device_memory_t *memory = op->memory->device;
    int code = pl_underway_check(&m->now, op, m->size, err);
    if (code == PL_OK && m->rank == 1 && mover_fails_at
        && m->group->begun[1] + 1 == (uint64_t)mover_fails_at)
        code = pl_fail(err, PL_EIO, "the wire is cut");
    if (code == PL_OK && !m->stream)
        code = memory->ops->stream_new(memory->device, &m->stream, err);
    if (code == PL_OK && op->after && !mover_forgets_after)
        code = op->after->ops->join(op->after, m->stream, err);
    if (code != PL_OK)
        return code;
    const streams_handle_t *stream = m->stream;
    pthread_mutex_lock(&lock);
    meeting_t *meeting = meeting_of(m->group, m->rank, &op->want);
    meeting->streams[m->rank] = stream->of;
    code = pl_want_compare(&op->want, 0, &meeting->want, err);
    if (m->rank == 0) {
        pl_object_unref(m->group->newest);
        m->group->newest = pl_object_ref(op->after);
    }
    m->group->update += m->rank == 0 && op->want.move != PL_MOVE_all_gather;
    if (m->rank == 0 && op->want.move == PL_MOVE_all_gather) {
        meeting->update = m->group->update;
        pl_object_unref(m->group->newest_gather);
        m->group->newest_gather = pl_object_ref(op->after);
    }
    pthread_mutex_unlock(&lock);
    if (code != PL_OK)
        return code;
    const item_t item = {meeting, m->rank,
                         (char *)(uintptr_t)memory->address + op->want.offset};
    __atomic_add_fetch(&mover_operations, 1, __ATOMIC_RELAXED);
    if (op->want.move == PL_MOVE_reduce_scatter)
        __atomic_add_fetch(&mover_scatters, 1, __ATOMIC_RELAXED);
    if (mover_forgets_fence)
        code = memory->ops->fence_new(memory->device, m->stream, &op->fence, err);
    streams_put(stream->of, stream->number, give, &item, sizeof item);
    streams_wait(stream->of, stream->number, meeting->gate[m->rank]);
    streams_put(stream->of, stream->number, take, &item, sizeof item);
    if (!mover_forgets_fence)
        code = memory->ops->fence_new(memory->device, m->stream, &op->fence, err);
    if (code == PL_OK)
        op->done(op, NULL);
    return code;
}

/* ---- The table ---- */

static int mover_open(void *self, const pl_seat_t *seat, char address[PL_ADDRESS_TEXT],
                      int *descriptor, pl_error_t *err)
{
    mover_t *m = self;
    json_t *value = json_string("best");
    const pl_instance_request_t request = {.role = "collective", .value = value};
    int code = pl_instance_make(&m->inner, &request, err);
    json_decref(value);
    if (code != PL_OK)
        return code;
    m->ops = m->inner.ops;
    m->now.device = "emulated";
    return m->ops->open(m->inner.self, seat, address, descriptor, err);
}

static int mover_join(void *self, pl_operation_t *op, pl_error_t *err)
{
    mover_t *m = self;
    m->rank = op->world->rank, m->size = op->world->size;
    m->group = group_find(op->world);
    return m->ops->join(m->inner.self, op, err);
}

static int mover_lend_memory(void *self, pl_operation_t *op, pl_error_t *err)
{
    mover_t *m = self;
    return m->ops->lend_memory(m->inner.self, op, err);
}

static int mover_share_memory(void *self, pl_operation_t *op, pl_error_t *err)
{
    mover_t *m = self;
    const int code = pl_underway_check(&m->now, op, m->size, err);
    if (code != PL_OK)
        return code;
    op->memory->number = m->shared++;
    op->done(op, NULL);
    return PL_OK;
}

#define MOVES(name) \
    static int mover_##name(void *self, pl_operation_t *op, pl_error_t *err) \
    { \
        mover_t *m = self; \
        return op->want.is_device ? device_begin(m, op, err) \
                                  : m->ops->name(m->inner.self, op, err); \
    }

MOVES(all_reduce)
MOVES(reduce_scatter)
MOVES(all_gather)
MOVES(all_to_all)
MOVES(broadcast)
MOVES(send)

static int mover_barrier(void *self, pl_operation_t *op, pl_error_t *err)
{
    mover_t *m = self;
    return m->ops->barrier(m->inner.self, op, err);
}

static void mover_advance(void *self)
{
    mover_t *m = self;
    m->ops->advance(m->inner.self);
}

/* What is on this rank's stream goes on, and does nothing. */
static void release(mover_t *m)
{
    pthread_mutex_lock(&lock);
    for (meeting_t *of = m->group ? m->group->first : NULL; of; of = of->next) {
        of->is_aborted = true;
        if (of->streams[m->rank])
            streams_pass(of->streams[m->rank], of->gate[m->rank]);
        of->streams[m->rank] = NULL;
    }
    pthread_mutex_unlock(&lock);
}

static void mover_give_up(void *self, const pl_error_t *why)
{
    mover_t *m = self;
    release(m);
    pl_underway_break(&m->now, why);
    m->ops->give_up(m->inner.self, why);
}

static void mover_close(void *self)
{
    mover_t *m = self;
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

const pl_collective_ops_t mover_collective = {
    .name = "mover",
    .help = "moves memory of emulated GPUs, for tests",
    .size = sizeof(mover_t),
    .device = "emulated",
    .open = mover_open,
    .join = mover_join,
    .lend_memory = mover_lend_memory,
    .share_memory = mover_share_memory,
    .all_reduce = mover_all_reduce,
    .reduce_scatter = mover_reduce_scatter,
    .all_gather = mover_all_gather,
    .all_to_all = mover_all_to_all,
    .broadcast = mover_broadcast,
    .send = mover_send,
    .barrier = mover_barrier,
    .advance = mover_advance,
    .give_up = mover_give_up,
    .close = mover_close,
};
