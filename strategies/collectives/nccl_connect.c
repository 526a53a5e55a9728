/* nccl_connect.c - how the communicator of the collective "nccl" is made and closed
 *
 * The ranks gather by the host's collective what each has: its version of NCCL, its card,
 * and the id that rank 0 made.  So mixed versions, and two ranks on one card, are errors
 * that name the ranks before NCCL is asked. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "strategies/collectives/nccl.h"
#include "strategies/collectives/tree.h"

enum { CLOSE_MS = 1000 };

typedef struct record {
    int32_t version, ordinal;
    CUuuid card;
    char host[48];                                          /* NCCL_HOSTID  [""] */
    ncclUniqueId id;                                        /* of rank 0 */
    char rest[56];
} record_t;

/* What is never freed. */
typedef struct kept {
    struct kept *next;
    cuda_sums_t *sums;
    CUstream stream;
} kept_t;

_Static_assert(sizeof(record_t) == 256, "a chunk of all_gather is a record");

static record_t *record_of(const nccl_t *n, int rank)
{
    return (record_t *)n->records->data + rank;
}

/* ---- what each rank has ---- */

static int record_fill(nccl_t *n, pl_error_t *err)
{
    const char *host = getenv("NCCL_HOSTID");
    record_t *own = record_of(n, n->world.rank);
    own->version = n->library->version;
    own->ordinal = n->device.ordinal;
    snprintf(own->host, sizeof own->host, "%s", host ? host : "");
    const int code = nccl_check_driver(n,
                                       n->driver->call.device_uuid(&own->card, n->card),
                                       "describing the card", err);
    if (code != PL_OK || n->world.rank)
        return code;
    return nccl_check(n, n->library->call.id_new(&own->id), "making an id", err);
}

static int versions_compare(const nccl_t *n, pl_error_t *err)
{
    char first[CUDA_VERSION_TEXT], other[CUDA_VERSION_TEXT];
    for (int rank = 1; rank < n->world.size; rank++)
        if (record_of(n, rank)->version != record_of(n, 0)->version)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "the ranks have different versions of NCCL: rank 0 has %s, "
                           "rank %d has %s; install the same version everywhere",
                           cuda_nccl_version(record_of(n, 0)->version, first), rank,
                           cuda_nccl_version(record_of(n, rank)->version, other));
    return PL_OK;
}

/* Processes that call themselves different machines may share one: NCCL lets them, for
 * tests. */
static int cards_compare(const nccl_t *n, pl_error_t *err)
{
    for (int rank = 1; rank < n->world.size; rank++)
        for (int other = 0; other < rank; other++) {
            const record_t *a = record_of(n, other), *b = record_of(n, rank);
            if (memcmp(&a->card, &b->card, sizeof a->card) == 0
                && strcmp(a->host, b->host) == 0)
                return pl_fail(err, PL_EINVAL,
                               "rank %d and rank %d use the same card (cuda:%d): each "
                               "rank needs one of its own; see trainer.devices",
                               other, rank, b->ordinal);
        }
    return PL_OK;
}

static int comm_begin(nccl_t *n, pl_error_t *err)
{
    ncclConfig_t config = {.size = sizeof config,
                           .magic = NCCL_MAGIC,
                           .version = NCCL_MIN,
                           .blocking = 0,
                           .cgaClusterSize = NCCL_UNSET,
                           .minCTAs = NCCL_UNSET,
                           .maxCTAs = NCCL_UNSET,
                           .splitShare = NCCL_UNSET};
    n->phase = NCCL_CONNECTING;
    n->since = pl_now();
    const int code = nccl_check(n,
                                n->library->call.comm_new(&n->comm, n->world.size,
                                                          record_of(n, 0)->id,
                                                          n->world.rank, &config),
                                "connecting the ranks", err);
    n->is_busy = false;
    return code;
}

static void gathered(pl_coll_request_t *step, const pl_error_t *failure)
{
    nccl_t *n = (nccl_t *)step;
    pl_error_t err = {0};
    if (failure) {
        nccl_break(n, failure);
        return;
    }
    int code = versions_compare(n, &err);
    if (code == PL_OK)
        code = cards_compare(n, &err);
    if (code == PL_OK)
        code = nccl_check_driver(n, n->driver->call.context_use(n->context),
                                 "using the card", &err);
    if (code == PL_OK)
        code = comm_begin(n, &err);
    if (code != PL_OK)
        nccl_break(n, &err);
    else
        nccl_connect_poll(n);
}

static void buffer_allocated(pl_coll_request_t *step, const pl_error_t *failure)
{
    nccl_t *n = (nccl_t *)step;
    pl_error_t err = {0};
    n->records = step->memory;
    if (failure) {
        nccl_break(n, failure);
        return;
    }
    int code = record_fill(n, &err);
    *step =
        (pl_coll_request_t){.desc = {.op = PL_COLL_OP_all_gather,
                                     .dtype = PL_U8,
                                     .memory = n->records->number,
                                     .count = (uint64_t)n->world.size * sizeof(record_t)},
                            .memory = n->records,
                            .arrived = n->now.req->arrived,
                            .done = gathered};
    if (code == PL_OK)
        code = n->side->all_gather(n->component[1].self, step, &err);
    if (code != PL_OK)
        nccl_break(n, &err);
}

/* ---- the card ---- */

static int card_open(nccl_t *n, pl_error_t *err)
{
    n->driver = cuda_library_open(err);
    if (!n->driver)
        return err->code;
    const cuda_driver_t *call = &n->driver->call;
    CUcontext context = NULL;
    cu_result_t result = call->device_get(&n->card, n->device.ordinal);
    if (result == CU_OK)
        result = call->context_retain(&context, n->card);
    n->context = result == CU_OK ? context : NULL;
    if (result == CU_OK)
        result = call->context_use(n->context);
    if (result == CU_OK)
        result = call->stream_new(&n->stream, CU_STREAM_APART);
    const int code = nccl_check_driver(n, result, "opening the card", err);
    if (code != PL_OK || n->world.size == 1)
        return code;
    n->sums = cuda_sums_new(n->driver, &n->device, n->world.size, pl_tree_left, err);
    if (!n->sums)
        return err->code;
    return nccl_is_canonical(n) && n->world.size > 1
               ? cuda_sums_prepare(n->sums, PL_F32, false, err)
               : PL_OK;
}

void nccl_connect(nccl_t *n)
{
    pl_error_t err = {0};
    n->device = *n->now.req->memory->device;
    int code = card_open(n, &err);
    n->step =
        (pl_coll_request_t){.desc = {.op = PL_COLL_OP_alloc_buffer,
                                     .count = (uint64_t)n->world.size * sizeof(record_t)},
                            .arrived = n->now.req->arrived,
                            .done = buffer_allocated};
    if (code == PL_OK)
        code = n->side->alloc_buffer(n->component[1].self, &n->step, &err);
    if (code != PL_OK)
        nccl_break(n, &err);
}

int nccl_compile_sums(void *self, const pl_device_memory_t *memory, pl_dtype_t dtype,
                      pl_error_t *err)
{
    const nccl_t *n = self;
    if (n->world.size == 1 || !nccl_is_canonical(n))
        return PL_OK;
    /* Of a card that is not there nothing is loaded, so no driver is needed. */
    cuda_sums_t *sums = cuda_sums_new(cuda_library_open(NULL), memory, n->world.size,
                                      pl_tree_left, err);
    const int code = sums ? cuda_sums_prepare(sums, dtype, false, err) : PL_ENOMEM;
    cuda_sums_free(sums);
    return code;
}

static void connected_tell(const nccl_t *n)
{
    char version[CUDA_VERSION_TEXT];
    pl_log_line(n->world.rank ? PL_LOG_DEBUG : PL_LOG_INFO, n->world.rank,
                "collective.nccl",
                "NCCL %s moves the memory of cards of the %d ranks; order of sums: %s",
                cuda_nccl_version(n->library->version, version), n->world.size, n->order);
}

void nccl_connect_poll(nccl_t *n)
{
    cu_result_t state = NCCL_IN_PROGRESS;
    pl_error_t err = {0};
    const cu_result_t result = n->library->call.comm_state(n->comm, &state);
    const int code = nccl_check(n, result == NCCL_OK ? state : result,
                                "connecting the ranks", &err);
    const bool is_there = !n->is_busy;
    n->is_busy = false;               /* the next operation may begin inside nccl_end() */
    if (code != PL_OK) {
        nccl_break(n, &err);
    } else if (is_there) {
        connected_tell(n);
        n->is_connected = true;
        n->now.req->memory->number = n->shared++;
        nccl_end(n);
    }
}

/* ---- closing ---- */

/* On a device that is lost, or was closed before, nothing runs any more. */
static bool has_passed(const nccl_t *n)
{
    pl_error_t err;
    bool passed = false;
    if (n->is_stuck)
        return false;
    return !n->last || n->last->ops->passed(n->last, &passed, &err) != PL_OK || passed;
}

/* A rank that aborts while others still receive from it would fail them. */
static bool finished(const nccl_t *n)
{
    const cuda_nccl_t *call = &n->library->call;
    cu_result_t state = NCCL_IN_PROGRESS;
    int left = CLOSE_MS;
    for (; left > 0 && !has_passed(n); left--)
        poll(NULL, 0, 1);
    if (!has_passed(n))
        return false;
    cu_result_t result = call->comm_finish(n->comm);
    for (; left > 0 && result == NCCL_IN_PROGRESS; left--) {
        if (call->comm_state(n->comm, &state) != NCCL_OK)
            return false;
        result = state;
        if (result == NCCL_IN_PROGRESS)
            poll(NULL, 0, 1);
    }
    return result == NCCL_OK;
}

/* Memory that kernels may still use stays: freeing it would wait for them. */
static void keep(nccl_t *n)
{
    static _Atomic(kept_t *) first;
    kept_t *kept = pl_alloc(sizeof *kept);
    *kept = (kept_t){atomic_load(&first), n->sums, n->stream};
    while (!atomic_compare_exchange_weak(&first, &kept->next, kept))
        ;
}

void nccl_disconnect(nccl_t *n)
{
    const cuda_driver_t *call = n->driver ? &n->driver->call : NULL;
    if (n->context)
        call->context_use(n->context);
    if (n->comm && n->is_connected && !n->now.broken.code && finished(n))
        n->library->call.comm_free(n->comm);
    else if (n->comm)
        n->library->call.comm_abort(n->comm);
    n->comm = NULL;
    for (int left = CLOSE_MS; left > 0 && !n->is_stuck && !has_passed(n); left--)
        poll(NULL, 0, 1);
    const bool is_free = has_passed(n);
    pl_object_unref(n->last);
    n->last = NULL;
    if (n->context && is_free) {
        cuda_sums_free(n->sums);
        if (n->stream)
            call->stream_free(n->stream);
    } else if (n->context)
        keep(n);
    if (n->context) {
        call->context_use(NULL);
        call->context_release(n->card);
    }
    n->context = NULL;
}
