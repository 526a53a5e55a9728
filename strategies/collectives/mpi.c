/* mpi.c - the collective over the cluster's own MPI, which knows its network
 *
 * MPI does not name the rank that is missing, cannot end an operation that was begun,
 * and has no descriptor to wait for.  So the ranks first agree on the operation they
 * begin, which shows whether all requests are the same.  A rank that waits for long
 * tells the others that it is there; a rank that aborts tells them why.  A timer says
 * when to poll again.  An aborted operation stays under way: its memory is never
 * freed, and the process uses MPI no more.  MPI chooses the order in which elements
 * are added: the bits are its own. */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "strategies/collectives/mpi.h"

enum {
    TAG = 1,
    TEXT = 240,
    PIECE = 1 << 28                            /* elements of one step of an all_reduce */
};

static const int64_t TURN = PL_MILLISECOND, SOON = 20000, LATE = 10 * PL_MILLISECOND,
                     STUCK = PL_SECOND;

typedef enum phase {
    AGREEING,                          /* whether all requests are the same */
    COMPARING,                         /* the requests differ: which rank requests what */
    MOVING,
} phase_t;

/* Sent from rank to rank: the sender has begun operation `number`, or aborts, and why. */
typedef struct note {
    uint64_t number;
    uint32_t gives_up;
    char text[TEXT];
} note_t;

/* Memory that MPI may still write to after an abort. */
typedef struct exchange {
    MPI_Request request;
    uint64_t own[2], all[2];                 /* hash of the request, and its complement */
    pl_coll_desc_t desc, *descs;             /* [size] */
    int *counts, *places;                    /* [size], elements */
    void *scratch;                           /* this rank's chunk of a reduce_scatter */
    pl_reg_buffer_t *memory;                 /* counted  [NULL] */
} exchange_t;

typedef struct mpi {
    mpi_options_t options;
    int timer;
    bool is_open;                                  /* this is the process's user of MPI */
    int rank, size;
    bool joined, reported;                         /* the other ranks know of the abort */
    uint32_t buffers;
    uint64_t *entered;         /* [size], newest operation of each rank, from its notes */

    pl_underway_t now;
    phase_t phase;
    uint64_t number;
    uint64_t at;                                            /* elements that were moved */
    int64_t since;                                          /* when the phase began */
    bool begin_reported;
    exchange_t *x;
} mpi_t;

/* ---- the end of an operation ---- */

static void timer_set(const mpi_t *m, int64_t delay)
{
    const struct itimerspec times = {.it_value = {0, delay}};
    timerfd_settime(m->timer, 0, &times, NULL);
}

static void mpi_break(mpi_t *m, const pl_error_t *why)
{
    timer_set(m, 0);
    pl_underway_break(&m->now, why);
}

/* ---- notes ---- */

static void note_send(const mpi_t *m, const note_t *note)
{
    MPI_Request request;
    for (int rank = 0; rank < m->size; rank++)
        if (rank != m->rank
            && MPI_Isend(note, sizeof *note, MPI_BYTE, rank, TAG, mpi_process.notes,
                         &request)
                   == MPI_SUCCESS)
            MPI_Wait(&request,
                     MPI_STATUS_IGNORE);    /* the note is short, so it is sent at once */
}

static void notes_read(mpi_t *m)
{
    pl_error_t err;
    note_t note;
    MPI_Status status;
    int is = 1, bytes = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, TAG, mpi_process.notes, &is, &status) == MPI_SUCCESS
           && is) {
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        if (bytes != sizeof note
            || MPI_Recv(&note, sizeof note, MPI_BYTE, status.MPI_SOURCE, TAG,
                        mpi_process.notes, MPI_STATUS_IGNORE)
                   != MPI_SUCCESS)
            return;
        const int from = status.MPI_SOURCE;
        note.text[TEXT - 1] = '\0';
        if (m->entered[from] < note.number)
            m->entered[from] = note.number;
        if (note.gives_up && !m->now.broken.code) {
            m->reported = true;
            pl_fail(&err, PL_EPEER, "rank %d aborted: %s", from, note.text);
            mpi_break(m, &err);
        }
    }
}

/* ---- what is sent ---- */

static MPI_Datatype datatype_of(uint32_t dtype)
{
    switch (dtype) {
    case PL_F32: return MPI_FLOAT;
    case PL_F64: return MPI_DOUBLE;
    case PL_I64: return MPI_INT64_T;
    case PL_I32: return MPI_INT32_T;
    case PL_U8: return MPI_UINT8_T;
    default: return MPI_UINT16_T;                          /* moved only, never reduced */
    }
}

static MPI_Op op_of(const pl_coll_desc_t *desc)
{
    if (desc->reduction == PL_REDUCE_SUM)
        return MPI_SUM;
    return desc->dtype == PL_F32   ? mpi_process.max_float
           : desc->dtype == PL_F64 ? mpi_process.max_double
                                   : MPI_MAX;
}

static char *elements(const mpi_t *m)
{
    return (char *)m->now.req->memory->data + m->now.req->desc.offset;
}

static int move_begin(mpi_t *m)
{
    exchange_t *x = m->x;
    const pl_coll_desc_t *desc = &m->now.req->desc;
    const MPI_Datatype type = datatype_of(desc->dtype);
    if (desc->op == PL_COLL_OP_all_reduce) {
        const uint64_t left = desc->count - m->at;
        const int count = left < PIECE ? (int)left : PIECE;
        char *data = elements(m) + m->at * pl_dtype_bytes(desc->dtype);
        m->at += (uint64_t)count;
        return MPI_Iallreduce(MPI_IN_PLACE, data, count, datatype_of(desc->dtype),
                              op_of(desc), mpi_process.data, &m->x->request);
    }
    m->at = desc->count;
    if (desc->op == PL_COLL_OP_all_to_all)
        return MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, elements(m),
                             (int)(desc->count / (uint64_t)m->size), type,
                             mpi_process.data, &x->request);
    if (desc->op == PL_COLL_OP_send)
        return desc->root == (uint32_t)m->rank
                   ? MPI_Isend(elements(m), (int)desc->count, type, (int)desc->to, TAG,
                               mpi_process.data, &x->request)
               : desc->to == (uint32_t)m->rank
                   ? MPI_Irecv(elements(m), (int)desc->count, type, (int)desc->root, TAG,
                               mpi_process.data, &x->request)
                   : MPI_SUCCESS;
    for (int rank = 0; rank < m->size; rank++) {
        uint64_t first, length;
        pl_coll_chunk(&m->now.req->desc, m->size, rank, &first, &length);
        m->x->places[rank] = (int)first, m->x->counts[rank] = (int)length;
    }
    if (desc->op == PL_COLL_OP_broadcast)
        return MPI_Ibcast(elements(m), (int)desc->count, type, (int)desc->root,
                          mpi_process.data, &x->request);
    if (desc->op == PL_COLL_OP_all_gather)
        return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, elements(m), x->counts,
                               x->places, type, mpi_process.data, &x->request);
    const size_t bytes = (size_t)m->x->counts[m->rank]
                         * pl_dtype_bytes(m->now.req->desc.dtype);
    pl_free(m->x->scratch);
    m->x->scratch = pl_alloc(bytes ? bytes : 1);
    int code = m->x->scratch ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    return code == MPI_SUCCESS
               ? MPI_Ireduce_scatter(elements(m), x->scratch, x->counts, type,
                                     op_of(desc), mpi_process.data, &x->request)
               : code;
}

/* ---- from one phase to the next ---- */

static bool has_elements(const pl_coll_desc_t *desc)
{
    return pl_has_elements(desc) && desc->count;
}

/* MPI has finished its part: begins the next, if there is one. */
static int next(mpi_t *m, pl_error_t *err)
{
    exchange_t *x = m->x;
    const phase_t before = m->phase;
    if (before == AGREEING && (x->all[0] != x->own[0] || x->all[1] != x->own[1])) {
        const int bytes = sizeof x->desc;
        m->phase = COMPARING;
        return mpi_fail(MPI_Iallgather(&x->desc, bytes, MPI_BYTE, x->descs, bytes,
                                       MPI_BYTE, mpi_process.data, &x->request),
                        "exchange the operations of the ranks", err);
    }
    if (before == COMPARING) {
        pl_fail(err, PL_EPROTOCOL,
                "the ranks do different operations, but all must make the same calls in "
                "the same order");
        for (int rank = 0; rank < m->size; rank++)
            if (pl_coll_desc_compare(&x->desc, rank, &x->descs[rank], err) != PL_OK)
                break;
        return PL_EPROTOCOL;
    }
    m->phase = MOVING;
    m->since = pl_now();
    const pl_coll_desc_t *desc = &m->now.req->desc;
    if (has_elements(desc) && (before == AGREEING || m->at < desc->count))
        return mpi_fail(move_begin(m), pl_coll_op_name(desc->op), err);
    if (has_elements(desc)) {
        const size_t bytes = pl_dtype_bytes(desc->dtype);
        if (desc->op == PL_COLL_OP_reduce_scatter)
            memcpy(elements(m) + (size_t)m->x->places[m->rank] * bytes, m->x->scratch,
                   (size_t)m->x->counts[m->rank] * bytes);
    }
    timer_set(m, 0);
    pl_underway_end(&m->now, NULL);
    return PL_OK;
}

/* Whether the operation went a step further; false also if it has ended. */
static bool step(mpi_t *m)
{
    pl_error_t err;
    int is = 0, code = mpi_fail(MPI_Test(&m->x->request, &is, MPI_STATUS_IGNORE),
                                pl_coll_op_name(m->now.req->desc.op), &err);
    if (code == PL_OK && !is)
        return false;
    if (code == PL_OK)
        code = next(m, &err);
    if (code != PL_OK)
        mpi_break(m, &err);
    return m->now.req != NULL;
}

/* Polls for a while, then sets the timer: to soon while bytes move, which they do only
 * while the process polls; else to later the longer a rank is waited for. */
static void proceed(mpi_t *m)
{
    const int64_t began = pl_now(),
                  max = m->phase == MOVING ? TURN : m->options.spin_us * 1000;
    while (m->now.req) {
        if (step(m))
            continue;
        const int64_t at = pl_now();
        if (!m->now.req || at - began > max || at - m->since > STUCK)
            break;
        sched_yield();
    }
    if (!m->now.req)
        return;
    const int64_t waited = pl_now() - m->since, max_wait = TURN;
    int64_t delay = m->phase == MOVING ? (waited > STUCK ? TURN : 1) : waited / 8 + SOON;
    if (!m->begin_reported && m->phase == AGREEING && pl_now() - m->since >= LATE) {
        m->begin_reported = true;
        note_send(m, &(note_t){.number = m->number});
    }
    for (int rank = 0; rank < m->size; rank++)
        m->now.req->arrived[rank] = rank == m->rank || m->phase != AGREEING
                                    || m->entered[rank] >= m->number;
    timer_set(m, delay < max_wait ? delay : max_wait);
}

/* ---- the table ---- */

static int mpi_open(void *self, const pl_collective_context_t *context,
                    char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    (void)context;
    mpi_t *m = self;
    *descriptor = m->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int code = m->timer >= 0 ? mpi_take(err)
                             : pl_fail(err, PL_EIO, "cannot wait for other ranks: %s",
                                       strerror(errno));
    if (code != PL_OK)
        return code;
    m->is_open = true;
    MPI_Comm_rank(mpi_process.data, &m->rank);
    MPI_Comm_size(mpi_process.data, &m->size);
    m->entered = pl_alloc_array((size_t)m->size, sizeof *m->entered);
    exchange_t *x = m->x = pl_alloc(sizeof *x);
    if (x) {
        x->request = MPI_REQUEST_NULL;
        x->descs = pl_alloc_array((size_t)m->size, sizeof *x->descs);
        x->counts = pl_alloc_array((size_t)m->size, sizeof *x->counts);
        x->places = pl_alloc_array((size_t)m->size, sizeof *x->places);
    }
    if (!m->entered || !x || !x->descs || !x->counts || !x->places)
        return pl_no_memory(err);
    snprintf(address, PL_ADDRESS_TEXT, "mpi %d %d", m->rank, m->size);
    return PL_OK;
}

static int joined_size(const mpi_t *m)
{
    return m->joined ? m->size : 0;
}

static int enter(mpi_t *m, pl_coll_request_t *req, pl_error_t *err)
{
    pl_object_t *before = m->x->memory ? &m->x->memory->object : NULL;
    m->now.req = req;
    m->number++;
    m->at = 0;
    m->begin_reported = false;
    m->x->memory = req->memory ? pl_object_ref(req->memory) : NULL;
    pl_object_unref(before);
    exchange_t *x = m->x;
    x->desc = m->now.req->desc;
    /* All requests are the same if the greatest and the least hash are equal. */
    x->own[0] = pl_hash(PL_HASH_EMPTY, &x->desc, sizeof x->desc);
    x->own[1] = ~x->own[0];
    m->phase = AGREEING;
    m->since = pl_now();
    int code = mpi_fail(MPI_Iallreduce(x->own, x->all, 2, MPI_UINT64_T, MPI_MAX,
                                       mpi_process.data, &x->request),
                        "compare the operations of the ranks", err);
    if (code == PL_OK) {
        notes_read(m);
        if (m->now.req)
            proceed(m);
        return PL_OK;
    }
    m->now.req = NULL;
    return code;
}

static int world_check(const mpi_t *m, const pl_world_t *world, pl_error_t *err)
{
    if (world->size != m->size)
        return pl_fail(
            err, PL_EINVAL,
            "the run has %d ranks and MPI has %d: start the run with mpirun -n "
            "%d",
            world->size, m->size, world->size);
    for (int rank = 0; rank < world->size; rank++) {
        char text[PL_ADDRESS_TEXT];
        snprintf(text, sizeof text, "mpi %d %d", rank, m->size);
        if (strcmp(text, world->address[rank]) != 0)
            return pl_fail(err, PL_EINVAL,
                           "rank %d has another number in MPI: its address is \"%.80s\"",
                           rank, world->address[rank]);
    }
    if (world->rank != m->rank)
        return pl_fail(
            err, PL_EINVAL,
            "rank %d of the run is rank %d of MPI: their numbers must be the same",
            world->rank, m->rank);
    return PL_OK;
}

static int mpi_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    mpi_t *m = self;
    int code = pl_underway_check(&m->now, req, joined_size(m), err);
    if (code == PL_OK)
        code = world_check(m, req->world, err);
    if (code != PL_OK)
        return code;
    m->joined = true;
    return enter(m, req, err);
}

static int mpi_alloc_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    mpi_t *m = self;
    int code = pl_underway_check(&m->now, req, joined_size(m), err);
    if (code != PL_OK)
        return code;
    req->desc.memory = m->buffers;
    req->memory = pl_reg_buffer_new(req->desc.count, m->buffers, NULL, err);
    if (!req->memory)
        return PL_ENOMEM;
    m->buffers++;
    return enter(m, req, err);
}

static int mpi_enter(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    mpi_t *m = self;
    int code = pl_underway_check(&m->now, req, joined_size(m), err);
    if (code == PL_OK && req->desc.op != PL_COLL_OP_all_reduce
        && req->desc.count > INT_MAX)
        code = pl_fail(err, PL_EUNSUPPORTED,
                       "MPI moves at most %d elements at once, not %llu", INT_MAX,
                       (unsigned long long)req->desc.count);
    return code == PL_OK ? enter(m, req, err) : code;
}

static void mpi_advance(void *self)
{
    mpi_t *m = self;
    uint64_t times;
    if (read(m->timer, &times, sizeof times) != sizeof times || !m->now.req)
        return;
    notes_read(m);
    if (m->now.req)
        proceed(m);
}

/* Reports once; an abort that another rank reported is not reported again. */
static void mpi_abort(void *self, const pl_error_t *why)
{
    mpi_t *m = self;
    note_t note = {.gives_up = 1, .number = m->number};
    snprintf(note.text, sizeof note.text, "%.*s", TEXT - 1,
             m->now.broken.code ? m->now.broken.text : why->text);
    if (m->is_open && m->entered && !m->reported)
        note_send(m, &note);
    m->reported = true;
    mpi_break(m, why);
}

static void mpi_close(void *self)
{
    mpi_t *m = self;
    const bool open = m->x && m->x->request != MPI_REQUEST_NULL;
    if (m->timer >= 0)
        close(m->timer);
    if (!open) {
        if (m->x) {
            pl_free(m->x->descs);
            pl_free(m->x->counts);
            pl_free(m->x->places);
            pl_free(m->x->scratch);
            pl_object_unref(m->x->memory);
            pl_free(m->x);
        }
    }
    pl_free(m->entered);
    if (m->is_open)
        mpi_leave(open ? m->x : NULL);
}

static const pl_collective_ops_t mpi_collective = {
    .name = "mpi",
    .help = MPI_HELP,
    .size = sizeof(mpi_t),
    .options = mpi_table,
    .own_order = mpi_own_order,
    .open = mpi_open,
    .join = mpi_join,
    .alloc_buffer = mpi_alloc_buffer,
    .all_reduce = mpi_enter,
    .reduce_scatter = mpi_enter,
    .all_gather = mpi_enter,
    .all_to_all = mpi_enter,
    .broadcast = mpi_enter,
    .send = mpi_enter,
    .barrier = mpi_enter,
    .advance = mpi_advance,
    .abort = mpi_abort,
    .close = mpi_close,
};

PL_PLUGIN({"collective", &mpi_collective})
