/* nccl.c - the collective over NCCL: memory of NVIDIA's cards, moved from card to card
 *
 * It has two collectives inside. One moves memory of the host. The other carries
 * what NCCL needs to connect, and notices ranks that are gone: NCCL itself would wait
 * for them without end. Before each operation on memory of cards the ranks compare
 * their requests with it, so that what would hang NCCL is an error that names a rank.
 *
 * The communicator is nonblocking and belongs to the thread of the collective, so that
 * thread can abort it at any time. An operation is done when it is on the stream; the
 * errors of its work are polled every 10 ms until all work has run. The abort follows
 * a moment after the failure was reported: kernels that are aborted leave garbage,
 * which is no result. */
#include "strategies/collectives/nccl.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/clock.h"
#include "base/error.h"

static const int64_t SPIN = 50000, SOON = 100000, LATER = PL_MILLISECOND,
                     WATCH = 10 * PL_MILLISECOND, ABORT = 20 * PL_MILLISECOND,
                     GRACE = 250 * PL_MILLISECOND, DOUBT = 500 * PL_MILLISECOND;

/* ---- what fails ---- */

/* A fence behind all work on the stream; it becomes n->last. */
static int fence_new(nccl_t *n, pl_error_t *err)
{
    pl_fence_t *fence = NULL;
    const int code = n->device.ops->fence_new(n->device.device, n->stream, &fence, err);
    if (code != PL_OK)
        return code;
    pl_object_unref(n->last);
    n->last = fence;
    return PL_OK;
}

int nccl_check(nccl_t *n, cu_result_t result, const char *what, pl_error_t *err)
{
    char version[CUDA_VERSION_TEXT];
    bool passed;
    int code = PL_OK;
    n->is_busy |= result == NCCL_IN_PROGRESS;
    if (result == NCCL_OK || result == NCCL_IN_PROGRESS)
        return PL_OK;
    /* If the card is lost, its own error explains more than NCCL's. */
    if (result == NCCL_CUDA_FAILED && n->last)
        code = n->last->ops->passed(n->last, &passed, err);
    else if (result == NCCL_CUDA_FAILED && n->stream)
        code = fence_new(n, err);
    if (code != PL_OK)
        return PL_EIO;
    const char *more = n->library->call.last_error(n->comm);
    const int length = more ? (int)strcspn(more, "\n") : 0;
    return pl_fail(err,
                   result == NCCL_REMOTE_FAILED || result == NCCL_SYSTEM_FAILED
                           || result == NCCL_INTERNAL
                       ? PL_EPEER
                       : PL_EIO,
                   "NCCL %s on cuda:%d: %s failed: %s (%u)%s%.*s",
                   cuda_nccl_version(n->library->version, version), n->device.ordinal,
                   what, n->library->call.error_text(result), result, length ? ": " : "",
                   length, length ? more : "");
}

int nccl_check_driver(const nccl_t *n, cu_result_t result, const char *what,
                      pl_error_t *err)
{
    return cuda_driver_check(&n->driver->call, n->device.ordinal, result, what, err);
}

void nccl_break(nccl_t *n, const pl_error_t *why)
{
    const pl_error_t kept = *why;
    pl_error_t err;
    size_t left, all;
    /* A lost card answers every call with an error and runs nothing any more. */
    if (n->phase == NCCL_MOVING && fence_new(n, &err) != PL_OK
        && n->driver->call.memory_info(&left, &all) == CU_OK)
        n->is_stuck = true;
    n->phase = NCCL_IDLE;
    n->is_busy = false;
    n->doubt.code = PL_OK;
    if (!n->now.broken.code)
        n->abort_at = pl_now() + ABORT;
    pl_underway_break(&n->now, &kept);
}

void nccl_end(nccl_t *n)
{
    n->phase = NCCL_IDLE;
    pl_underway_end(&n->now, NULL);
}

/* NCCL may notice before the side collective that a rank is gone, and its error says
 * less. */
static void fail(nccl_t *n, const pl_error_t *why)
{
    if (why->code != PL_EPEER || n->doubt.code) {
        nccl_break(n, why);
        return;
    }
    n->doubt = *why;
    n->doubt_until = pl_now() + DOUBT;
}

/* Whether a rank is gone, which fails the operation. A rank that has ended well has
 * done its part of the work that still runs here; that work gets `grace` to end. */
static bool is_lost(nccl_t *n, int64_t grace)
{
    pl_error_t err = {0};
    if (n->side->alive(n->component[1].self, &err) == PL_OK)
        return false;
    if (!n->lost_since)
        n->lost_since = pl_now();
    if (pl_now() - n->lost_since < grace)
        return false;
    nccl_break(n, &err);
    return true;
}

/* ---- the timer ---- */

static void timer_set(const nccl_t *n)
{
    const int64_t now = pl_now();
    int64_t delay = 0;
    if (n->last || n->doubt.code)
        delay = WATCH;
    if (n->phase == NCCL_CONNECTING || n->is_busy)
        delay = now - n->since < LATER ? SOON : LATER;
    if (n->abort_at && (!delay || n->abort_at - now < delay))
        delay = n->abort_at > now ? n->abort_at - now : 1;
    const struct itimerspec times = {.it_value = {0, delay}};
    timerfd_settime(n->timer, 0, &times, NULL);
}

/* ---- operations on memory of cards ---- */

/* Whether NCCL has done the last stage; false also if it has failed. */
static bool stage_is_done(nccl_t *n)
{
    cu_result_t state = NCCL_IN_PROGRESS;
    const int64_t until = pl_now() + SPIN;
    while (n->is_busy) {
        pl_error_t err;
        cu_result_t result = n->library->call.comm_state(n->comm, &state);
        if (result == NCCL_OK)
            result = state;
        n->is_busy = false;
        if (nccl_check(n, result, pl_coll_op_name(n->now.req->desc.op), &err) != PL_OK) {
            fail(n, &err);
            return false;
        }
        if (n->is_busy && pl_now() > until)
            return false;
        if (n->is_busy)
            sched_yield();
    }
    return true;
}

static void proceed(nccl_t *n)
{
    while (n->phase == NCCL_MOVING && !n->doubt.code && stage_is_done(n)) {
        pl_error_t err = {0};
        bool more = true;
        n->since = pl_now();
        int code = nccl_stage(n, &more, &err);
        n->stage++;
        if (code == PL_OK && !more)
            code = fence_new(n, &err);
        if (code != PL_OK) {
            fail(n, &err);
        } else if (!more) {
            n->now.req->fence = pl_object_ref(n->last);
            nccl_end(n);
        }
    }
}

/* All ranks request the same. */
static void agreed(pl_coll_request_t *step, const pl_error_t *err)
{
    nccl_t *n = (nccl_t *)step;
    pl_error_t why = {0};
    if (err) {
        nccl_break(n, err);
    } else if (n->now.req->desc.op != PL_COLL_OP_register_buffer) {
        pl_fence_t *after = n->now.req->after;
        n->phase = NCCL_MOVING;
        n->stage = 0;
        n->is_busy = false;
        int code = nccl_check_driver(n, n->driver->call.context_use(n->context),
                                     "using the card", &why);
        if (code == PL_OK && after)
            code = after->ops->join(after, n->stream, &why);
        if (code != PL_OK)
            nccl_break(n, &why);
        else
            proceed(n);
    } else if (n->is_connected) {
        n->now.req->memory->number = n->shared++;
        nccl_end(n);
    } else {
        nccl_connect(n);
    }
    timer_set(n);
}

static int device_begin(nccl_t *n, pl_coll_request_t *req, pl_error_t *err)
{
    if (n->joining)
        return pl_fail(err, PL_ESTATE, "%s of memory of a device while the ranks join",
                       pl_coll_op_name(req->desc.op));
    int code = pl_underway_check(&n->now, req, n->world.size, err);
    if (code != PL_OK)
        return code;
    const pl_device_memory_t *memory = req->memory->device;
    if (n->context && memory->ordinal != n->device.ordinal)
        return pl_fail(err, PL_EINVAL,
                       "%s of memory of cuda:%d: a rank has one card, cuda:%d",
                       pl_coll_op_name(req->desc.op), memory->ordinal, n->device.ordinal);
    if (!n->is_connected && req->desc.op != PL_COLL_OP_register_buffer)
        return pl_fail(err, PL_ESTATE, "%s of memory of a device before register_buffer",
                       pl_coll_op_name(req->desc.op));
    /* The side collective compares the requests in a barrier and does nothing else
     * with them. */
    n->now.req = req;
    n->phase = NCCL_AGREEING;
    n->step =
        (pl_coll_request_t){.desc = req->desc, .arrived = req->arrived, .done = agreed};
    n->step.desc.op = PL_COLL_OP_barrier;
    n->step.desc.is_device = 0;
    n->step.desc.agrees = req->desc.op + 1;
    code = n->side->barrier(n->component[1].self, &n->step, err);
    if (code == PL_OK)
        return PL_OK;
    n->now.req = NULL;
    n->phase = NCCL_IDLE;
    return code;
}

/* ---- the table ---- */

static int broken(const nccl_t *n, pl_error_t *err)
{
    return n->now.broken.code ? pl_fail(err, n->now.broken.code, "%s", n->now.broken.text)
                              : PL_OK;
}

#define COLL_OP(op) \
    static int nccl_##op(void *self, pl_coll_request_t *req, pl_error_t *err) \
    { \
        nccl_t *n = self; \
        if (req->memory && req->memory->device) \
            return device_begin(n, req, err); \
        if (!n->inner->op) \
            return pl_fail(err, PL_EUNSUPPORTED, \
                           "the collective \"%s\" does not support " #op, \
                           n->inner->name); \
        const int code = broken(n, err); \
        return code == PL_OK ? n->inner->op(n->component[0].self, req, err) : code; \
    }

COLL_OP(alloc_buffer)
COLL_OP(all_reduce)
COLL_OP(reduce_scatter)
COLL_OP(all_gather)
COLL_OP(all_to_all)
COLL_OP(broadcast)
COLL_OP(send)
COLL_OP(barrier)

static int nccl_register_buffer(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    return device_begin(self, req, err);
}

/* Polls until all work on the stream has run. */
static void watch(nccl_t *n)
{
    pl_error_t err = {0};
    cu_result_t state = NCCL_OK;
    bool passed = false;
    if (!n->last || n->doubt.code || n->now.broken.code || is_lost(n, GRACE))
        return;
    int code = n->last->ops->passed(n->last, &passed, &err);
    if (code == PL_OK && !n->is_busy) {
        const cu_result_t result = n->library->call.comm_state(n->comm, &state);
        code = nccl_check(n, result == NCCL_OK ? state : result,
                          "an operation on the card", &err);
        n->is_busy = false;
    }
    if (code != PL_OK) {
        fail(n, &err);
    } else if (passed) {
        pl_object_unref(n->last);
        n->last = NULL;
    }
}

static void nccl_advance(void *self)
{
    nccl_t *n = self;
    uint64_t times;
    if (read(n->timer, &times, sizeof times) < 0 && errno != EAGAIN)
        return;
    n->inner->advance(n->component[0].self);
    n->side->advance(n->component[1].self);
    if (n->abort_at && pl_now() >= n->abort_at) {
        n->abort_at = 0;
        if (n->comm)
            n->library->call.comm_abort(n->comm);
        n->comm = NULL;
    }
    if (n->doubt.code) {
        const pl_error_t why = n->doubt;
        if (!is_lost(n, 0) && pl_now() > n->doubt_until)
            nccl_break(n, &why);
    } else if (n->phase == NCCL_CONNECTING && !is_lost(n, 0))
        nccl_connect_poll(n);
    else if (n->phase == NCCL_MOVING && !is_lost(n, GRACE))
        proceed(n);
    watch(n);
    timer_set(n);
}

/* The failure of an operation was already reported by that operation. */
static int nccl_alive(void *self, pl_error_t *err)
{
    const nccl_t *n = self;
    return n->given_up ? PL_OK : broken(n, err);
}

static void nccl_abort(void *self, const pl_error_t *why)
{
    nccl_t *n = self;
    const pl_error_t kept = n->now.broken.code ? n->now.broken : *why;
    const bool reports = !n->given_up;
    n->given_up = true;
    if (reports && n->inner)
        n->inner->abort(n->component[0].self, &kept);
    if (reports && n->side)
        n->side->abort(n->component[1].self, &kept);
    nccl_break(n, &kept);
    timer_set(n);
}

static void nccl_close(void *self)
{
    nccl_t *n = self;
    nccl_disconnect(n);
    if (n->side)
        n->side->close(n->component[1].self);
    if (n->inner)
        n->inner->close(n->component[0].self);
    pl_instance_release(&n->component[1]);
    pl_instance_release(&n->component[0]);
    pl_object_unref(n->records);
    pl_object_unref(n->addresses);
    if (n->timer > 0)
        close(n->timer);
    if (n->epoll > 0)
        close(n->epoll);
    pl_free(n->text);
    pl_free(n->address);
    pl_free(n->side_table);
}

static bool nccl_own_order(const void *self)
{
    const nccl_t *n = self;
    pl_instance_t host = {0};
    if (!nccl_is_canonical(n))
        return true;
    if (pl_instance_of_choice(&host, "collective", &n->host, "best", NULL) != PL_OK)
        return false;
    const pl_collective_ops_t *ops = host.ops;
    const bool own = ops->own_order && ops->own_order(host.self);
    pl_instance_release(&host);
    return own;
}

static int nccl_available(pl_error_t *why)
{
    return cuda_communicator_open(why) ? PL_OK : why ? why->code : PL_ENOTFOUND;
}

static void nccl_report(pl_fact_t fact, void *user)
{
    char text[PATH_MAX + 64], version[CUDA_VERSION_TEXT];
    pl_error_t err = {0};
    const cuda_communicator_t *library = cuda_communicator_open(&err);
    if (library)
        snprintf(text, sizeof text, "%s (%s)",
                 cuda_nccl_version(library->version, version), library->path);
    fact(user, "NCCL", library ? text : err.text);
}

static const pl_option_t nccl_options[] = {
    PL_CHOICE(nccl_t, host, "\"auto\"", "collective",
              "collective that moves memory of the host, and notices ranks that are "
              "gone"),
    PL_TEXT(nccl_t, order, "\"canonical\"", "canonical|library",
            "how the elements of ranks are added: canonical: in the order of the other "
            "collectives, to the same bits on any number of cards; library: as NCCL does "
            "it, which may be faster within a machine"),
    PL_OPTIONS_END,
};

static const pl_collective_ops_t nccl_collective = {
    .name = "nccl",
    .help = "NVIDIA's cards, by NCCL",
    .size = sizeof(nccl_t),
    .options = nccl_options,
    .own_order = nccl_own_order,
    .device = "cuda",
    .available = nccl_available,
    .report = nccl_report,
    .open = nccl_open,
    .join = nccl_join,
    .alloc_buffer = nccl_alloc_buffer,
    .register_buffer = nccl_register_buffer,
    .compile_sums = nccl_compile_sums,
    .all_reduce = nccl_all_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .all_gather = nccl_all_gather,
    .all_to_all = nccl_all_to_all,
    .broadcast = nccl_broadcast,
    .send = nccl_send,
    .barrier = nccl_barrier,
    .alive = nccl_alive,
    .advance = nccl_advance,
    .abort = nccl_abort,
    .close = nccl_close,
};

PL_PLUGIN({"collective", &nccl_collective})
