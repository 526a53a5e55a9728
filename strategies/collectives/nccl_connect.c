/* nccl_connect.c - how the ranks of the collective "nccl" meet, connect and disconnect
 *
 * Operations on memory of the host and operations on memory of cards have an order
 * each, and a collective has one order. So there are two collectives inside; the
 * first carries the addresses of the second. With the second the ranks gather what
 * each has: its version of NCCL, its card, and the id that rank 0 made. So mixed
 * versions, and two ranks on one card, are errors that name the ranks before NCCL is
 * called. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "strategies/collectives/nccl.h"
#include "strategies/collectives/tree.h"

enum { CLOSE_MS = 1000 };

typedef struct rank_record {
    int32_t version, ordinal;
    CUuuid card;
    char host[48];                                          /* NCCL_HOSTID  [""] */
    ncclUniqueId id;                                        /* of rank 0 */
    char rest[56];
} rank_record_t;

/* Memory that is never freed. */
typedef struct kept_stream {
    struct kept_stream *next;
    cuda_sums_t *sums;
    CUstream stream;
} kept_stream_t;

_Static_assert(sizeof(rank_record_t) == 256, "a chunk of all_gather is a record");

/* ---- two collectives of the host ---- */

static const char suffix[] = " | nccl";

static int watched(const nccl_t *n, int fd, pl_error_t *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (fd >= 0 && epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return PL_OK;
    return pl_fail(err, PL_EIO, "cannot wait for other ranks: %s", strerror(errno));
}

/* Opens a collective inside and watches its descriptor. */
static int component_open(const nccl_t *n, pl_instance_t *component,
                          const pl_collective_context_t *context,
                          char address[PL_ADDRESS_TEXT], pl_error_t *err)
{
    const pl_collective_ops_t *ops = component->ops;
    int descriptor = -1;
    const int code = ops->open(component->self, context, address, &descriptor, err);
    return code == PL_OK ? watched(n, descriptor, err) : code;
}

static int components_open(nccl_t *n, const pl_collective_context_t *context,
                           char address[PL_ADDRESS_TEXT], pl_error_t *err)
{
    const pl_choice_t best = {.name = "best", .options = "{}"};
    int code = pl_instance_of_choice(&n->component[0], "collective", &n->host, "best",
                                     err);
    if (code == PL_OK)
        code = pl_instance_of_choice(&n->component[1], "collective", &best, NULL, err);
    if (code != PL_OK)
        return code;
    n->inner = n->component[0].ops;
    if (n->inner->device) {
        n->inner = NULL;
        return pl_fail(err, PL_EINVAL,
                       "\"host\" of the collective nccl is one that moves memory of the "
                       "host, not %s",
                       n->host.name);
    }
    code = component_open(n, &n->component[0], context, address, err);
    if (code != PL_OK)
        return code;
    const pl_collective_context_t inner = {.host = context->host,
                                           .key = context->key,
                                           .is_inner = true};
    n->side = n->component[1].ops;
    code = component_open(n, &n->component[1], &inner, n->side_address, err);
    if (code == PL_OK && strlen(address) + sizeof suffix > PL_ADDRESS_TEXT)
        code = pl_fail(err, PL_EBUG, "the address of a rank is too long");
    if (code == PL_OK)
        strcat(address, suffix);
    return code;
}

int nccl_open(void *self, const pl_collective_context_t *context,
              char address[PL_ADDRESS_TEXT], int *descriptor, pl_error_t *err)
{
    nccl_t *n = self;
    n->now.device = "cuda";
    *descriptor = n->epoll = epoll_create1(EPOLL_CLOEXEC);
    n->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    n->library = cuda_communicator_open(err);
    if (!n->library)
        return err ? err->code : PL_ENOTFOUND;
    const int code = watched(n, n->timer, err);
    return code == PL_OK ? components_open(n, context, address, err) : code;
}

/* Removes the suffix from the address of each rank: the rest is the address of
 * `inner`. */
static int addresses_cut(nccl_t *n, const pl_world_t *world, pl_error_t *err)
{
    n->text = pl_alloc_array((size_t)world->size, PL_ADDRESS_TEXT);
    n->address = pl_alloc_array((size_t)world->size, sizeof *n->address);
    n->side_table = pl_alloc_array((size_t)world->size, sizeof *n->side_table);
    if (!n->text || !n->address || !n->side_table)
        return pl_no_memory(err);
    for (int rank = 0; rank < world->size; rank++) {
        char *text = n->text + (size_t)rank * PL_ADDRESS_TEXT;
        const size_t length = strlen(world->address[rank]);
        if (length >= PL_ADDRESS_TEXT || length < strlen(suffix)
            || strcmp(world->address[rank] + length - strlen(suffix), suffix) != 0)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "rank %d does not use the collective nccl, which this rank "
                           "uses: install NCCL on its machine, or set the strategy's "
                           "\"collective\"",
                           rank);
        memcpy(text, world->address[rank], length - strlen(suffix));
        n->address[rank] = text;
    }
    return PL_OK;
}

static void join_end(nccl_t *n, const pl_error_t *err)
{
    pl_coll_request_t *req = n->joining;
    n->joining = NULL;
    if (req)
        req->done(req, err);
}

/* Begins the next operation of joining. */
static void join_step(nccl_t *n, const pl_coll_desc_t *desc, pl_reg_buffer_t *memory,
                      void (*done)(pl_coll_request_t *req, const pl_error_t *err))
{
    pl_error_t err = {0};
    const bool joins = desc->op == PL_COLL_OP_join;
    n->step = (pl_coll_request_t){.desc = *desc,
                                  .world = &n->side_world,
                                  .memory = memory,
                                  .arrived = n->joining->arrived,
                                  .done = done};
    int (*begin)(void *, pl_coll_request_t *, pl_error_t *) =
        joins                                 ? n->side->join
        : desc->op == PL_COLL_OP_alloc_buffer ? n->inner->alloc_buffer
                                              : n->inner->all_gather;
    if (begin(n->component[joins].self, &n->step, &err) != PL_OK)
        join_end(n, &err);
}

static void side_joined(pl_coll_request_t *step, const pl_error_t *err)
{
    join_end((nccl_t *)step, err);
}

static void addresses_gathered(pl_coll_request_t *step, const pl_error_t *err)
{
    nccl_t *n = (nccl_t *)step;
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_join};
    if (err) {
        join_end(n, err);
        return;
    }
    for (int rank = 0; rank < n->world.size; rank++)
        n->side_table[rank] = (char *)n->addresses->data + rank * PL_ADDRESS_TEXT;
    n->side_world = (pl_world_t){n->world.rank, n->world.size, n->side_table};
    join_step(n, &desc, NULL, side_joined);
}

static void addresses_allocated(pl_coll_request_t *step, const pl_error_t *err)
{
    nccl_t *n = (nccl_t *)step;
    n->addresses = step->memory;
    if (err) {
        join_end(n, err);
        return;
    }
    memcpy((char *)n->addresses->data + n->world.rank * PL_ADDRESS_TEXT, n->side_address,
           PL_ADDRESS_TEXT);
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_all_gather,
                                 .dtype = PL_U8,
                                 .memory = n->addresses->number,
                                 .count = (uint64_t)n->world.size * PL_ADDRESS_TEXT};
    join_step(n, &desc, n->addresses, addresses_gathered);
}

static void host_joined(pl_coll_request_t *step, const pl_error_t *err)
{
    nccl_t *n = (nccl_t *)step;
    const pl_coll_desc_t desc = {.op = PL_COLL_OP_alloc_buffer,
                                 .count = (uint64_t)n->world.size * PL_ADDRESS_TEXT};
    if (err)
        join_end(n, err);
    else
        join_step(n, &desc, NULL, addresses_allocated);
}

/* The host's collective joins first; it then carries the addresses of the side
 * collective. */
int nccl_join(void *self, pl_coll_request_t *req, pl_error_t *err)
{
    nccl_t *n = self;
    int code = pl_underway_check(&n->now, req, n->world.size, err);
    if (code == PL_OK)
        code = addresses_cut(n, req->world, err);
    if (code != PL_OK)
        return code;
    n->world = *req->world;
    n->world.address = n->address;
    n->joining = req;
    n->step = (pl_coll_request_t){.desc = req->desc,
                                  .world = &n->world,
                                  .arrived = req->arrived,
                                  .done = host_joined};
    code = n->inner->join(n->component[0].self, &n->step, err);
    if (code != PL_OK)
        n->joining = NULL;
    return code;
}

/* ---- the records ---- */

static rank_record_t *record_of(const nccl_t *n, int rank)
{
    return (rank_record_t *)n->records->data + rank;
}

/* All versions must be the same, and all cards different. Processes with different
 * host ids may share a card: NCCL allows it, for tests. */
static int records_compare(const nccl_t *n, pl_error_t *err)
{
    char first[CUDA_VERSION_TEXT], second[CUDA_VERSION_TEXT];
    for (int rank = 1; rank < n->world.size; rank++)
        if (record_of(n, rank)->version != record_of(n, 0)->version)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "the ranks have different versions of NCCL: rank 0 has %s, "
                           "rank %d has %s; install the same version everywhere",
                           cuda_nccl_version(record_of(n, 0)->version, first), rank,
                           cuda_nccl_version(record_of(n, rank)->version, second));
    for (int rank = 1; rank < n->world.size; rank++)
        for (int other = 0; other < rank; other++) {
            const rank_record_t *a = record_of(n, other), *b = record_of(n, rank);
            if (memcmp(&a->card, &b->card, sizeof a->card) == 0
                && strcmp(a->host, b->host) == 0)
                return pl_fail(err, PL_EINVAL,
                               "rank %d and rank %d use the same card (cuda:%d): each "
                               "rank needs one of its own; see trainer.devices",
                               other, rank, b->ordinal);
        }
    return PL_OK;
}

static void records_gathered(pl_coll_request_t *step, const pl_error_t *failure)
{
    nccl_t *n = (nccl_t *)step;
    pl_error_t err = {0};
    if (failure) {
        nccl_break(n, failure);
        return;
    }
    int code = records_compare(n, &err);
    if (code == PL_OK)
        code = nccl_check_driver(n, n->driver->call.context_use(n->context),
                                 "using the card", &err);
    if (code == PL_OK) {
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
        code = nccl_check(n,
                          n->library->call.comm_new(&n->comm, n->world.size,
                                                    record_of(n, 0)->id, n->world.rank,
                                                    &config),
                          "connecting the ranks", &err);
        n->is_busy = false;
    }
    if (code != PL_OK)
        nccl_break(n, &err);
    else
        nccl_connect_poll(n);
}

static void records_allocated(pl_coll_request_t *step, const pl_error_t *failure)
{
    nccl_t *n = (nccl_t *)step;
    pl_error_t err = {0};
    n->records = step->memory;
    if (failure) {
        nccl_break(n, failure);
        return;
    }
    const char *host = getenv("NCCL_HOSTID");
    rank_record_t *own = record_of(n, n->world.rank);
    own->version = n->library->version;
    own->ordinal = n->device.ordinal;
    snprintf(own->host, sizeof own->host, "%s", host ? host : "");
    int code = nccl_check_driver(n, n->driver->call.device_uuid(&own->card, n->card),
                                 "describing the card", &err);
    if (code == PL_OK && n->world.rank == 0)
        code = nccl_check(n, n->library->call.id_new(&own->id), "making an id", &err);
    *step = (pl_coll_request_t){.desc = {.op = PL_COLL_OP_all_gather,
                                         .dtype = PL_U8,
                                         .memory = n->records->number,
                                         .count = (uint64_t)n->world.size
                                                  * sizeof(rank_record_t)},
                                .memory = n->records,
                                .arrived = n->now.req->arrived,
                                .done = records_gathered};
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
    n->step = (pl_coll_request_t){.desc = {.op = PL_COLL_OP_alloc_buffer,
                                           .count = (uint64_t)n->world.size
                                                    * sizeof(rank_record_t)},
                                  .arrived = n->now.req->arrived,
                                  .done = records_allocated};
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
    /* If the card is not there nothing is loaded, so no driver is needed. */
    cuda_sums_t *sums = cuda_sums_new(cuda_library_open(NULL), memory, n->world.size,
                                      pl_tree_left, err);
    const int code = sums ? cuda_sums_prepare(sums, dtype, false, err) : PL_ENOMEM;
    cuda_sums_free(sums);
    return code;
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
        char version[CUDA_VERSION_TEXT];
        pl_log_line(
            n->world.rank ? PL_LOG_DEBUG : PL_LOG_INFO, n->world.rank, "collective.nccl",
            "NCCL %s moves the memory of cards of the %d ranks; order of sums: %s",
            cuda_nccl_version(n->library->version, version), n->world.size, n->order);
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
    } else if (n->context) {
        /* Memory that kernels may still use stays: freeing it would wait for them. */
        static _Atomic(kept_stream_t *) first;
        kept_stream_t *kept = pl_alloc(sizeof *kept);
        *kept = (kept_stream_t){atomic_load(&first), n->sums, n->stream};
        while (!atomic_compare_exchange_weak(&first, &kept->next, kept))
            ;
    }
    if (n->context) {
        call->context_use(NULL);
        call->context_release(n->card);
    }
    n->context = NULL;
}
