/* nccl_ops.c - operations of the collective "nccl" on memory of cards
 *
 * A sum in the canonical order is an exchange, after which each rank has the elements
 * of all ranks for its own chunk, an addition on the card, and a gathering: a rank
 * sends as many bytes as in a ring. Chunks are those of pl_chunk_by(), which fit
 * NCCL's own operations only if all are equal. */
#include "base/error.h"
#include "strategies/collectives/nccl.h"

typedef struct card_range {
    CUdeviceptr at;
    uint64_t count;                                         /* elements */
} card_range_t;

static const struct {
    cu_choice_t type, bytes;
} types[] = {
    [PL_F32] = {NCCL_F32, 4}, [PL_F64] = {NCCL_F64, 8}, [PL_I32] = {NCCL_I32, 4},
    [PL_I64] = {NCCL_I64, 8}, [PL_U8] = {NCCL_U8, 1},   [PL_BF16] = {NCCL_BF16, 2},
    [PL_F16] = {NCCL_F16, 2},
};

static void *pointer(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

static CUdeviceptr elements(const nccl_t *n)
{
    const pl_coll_request_t *req = n->now.req;
    return req->memory->device->address + req->desc.offset;
}

static card_range_t chunk(const nccl_t *n, int rank)
{
    uint64_t first, count;
    const pl_coll_desc_t *desc = &n->now.req->desc;
    pl_coll_chunk(desc, n->world.size, rank, &first, &count);
    return (card_range_t){elements(n) + first * types[desc->dtype].bytes, count};
}

static card_range_t partition(const nccl_t *n, int rank)
{
    uint64_t first, count;
    const pl_coll_desc_t *desc = &n->now.req->desc;
    pl_partition_of(desc->count, n->world.size, rank, &first, &count);
    return (card_range_t){elements(n) + first * types[desc->dtype].bytes, count};
}

/* Whether all chunks are equal, as NCCL's own operations need it. */
static bool is_even(const nccl_t *n)
{
    return chunk(n, n->world.size - 1).count == chunk(n, 0).count;
}

/* ---- groups of calls: the end of a group reports again what one of them refused ---- */

static int group(nccl_t *n, pl_error_t *err, int (*calls)(nccl_t *n, pl_error_t *err))
{
    const cuda_nccl_t *call = &n->library->call;
    const char *name = pl_coll_op_name(n->now.req->desc.op);
    int code = nccl_check(n, call->group_begin(), name, err);
    if (code != PL_OK)
        return code;
    code = calls(n, err);
    n->is_busy = false;
    pl_error_t why;
    const int end = nccl_check(n, call->group_end(), name, code == PL_OK ? err : &why);
    return code == PL_OK ? end : code;
}

static int send(nccl_t *n, card_range_t range, int peer, pl_error_t *err)
{
    if (!range.count)
        return PL_OK;
    return nccl_check(n,
                      n->library->call.send(pointer(range.at), range.count,
                                            types[n->now.req->desc.dtype].type, peer,
                                            n->comm, n->stream),
                      "sending", err);
}

static int receive(nccl_t *n, card_range_t range, int peer, pl_error_t *err)
{
    if (!range.count)
        return PL_OK;
    return nccl_check(n,
                      n->library->call.receive(pointer(range.at), range.count,
                                               types[n->now.req->desc.dtype].type, peer,
                                               n->comm, n->stream),
                      "receiving", err);
}

/* ---- sums ---- */

/* Bytes from the elements of one rank to those of the next in the staging memory. */
static size_t spacing(const nccl_t *n, uint64_t count)
{
    return (count * types[n->now.req->desc.dtype].bytes + 255) / 256 * 256;
}

/* Each rank receives the elements of the others for its chunk, or its partition in
 * all_to_all: there they stay in the staging memory until all were sent. */
static int exchange(nccl_t *n, pl_error_t *err)
{
    const int own = n->world.rank;
    const bool direct = n->now.req->desc.op == PL_COLL_OP_all_to_all;
    const uint64_t count = direct ? partition(n, own).count : chunk(n, own).count;
    const size_t apart = spacing(n, direct ? count : chunk(n, 0).count);
    const CUdeviceptr staging = cuda_sums_staging(n->sums, apart, err);
    int code = staging ? PL_OK : err->code;
    for (int peer = 0; peer < n->world.size && code == PL_OK; peer++) {
        if (peer == own)
            continue;
        code = send(n, direct ? partition(n, peer) : chunk(n, peer), peer, err);
        if (code == PL_OK)
            code = receive(n, (card_range_t){staging + (size_t)peer * apart, count}, peer,
                           err);
    }
    return code;
}

static int gather(nccl_t *n, pl_error_t *err)
{
    int code = PL_OK;
    for (int peer = 0; peer < n->world.size && code == PL_OK; peer++) {
        if (peer == n->world.rank)
            continue;
        code = send(n, chunk(n, n->world.rank), peer, err);
        if (code == PL_OK)
            code = receive(n, chunk(n, peer), peer, err);
    }
    return code;
}

static int gather_all(nccl_t *n, pl_error_t *err)
{
    const card_range_t own = chunk(n, n->world.rank);
    if (!is_even(n))
        return group(n, err, gather);
    return nccl_check(n,
                      n->library->call.all_gather(pointer(own.at), pointer(elements(n)),
                                                  own.count,
                                                  types[n->now.req->desc.dtype].type,
                                                  n->comm, n->stream),
                      "all_gather", err);
}

static cu_choice_t reduction(const nccl_t *n)
{
    return n->now.req->desc.reduction == PL_REDUCE_SUM ? NCCL_SUM : NCCL_MAX;
}

static int reduce_chunks(nccl_t *n, pl_error_t *err)
{
    int code = PL_OK;
    for (int rank = 0; rank < n->world.size && code == PL_OK; rank++) {
        const card_range_t of = chunk(n, rank);
        if (of.count)
            code = nccl_check(n,
                              n->library->call.reduce(pointer(of.at), pointer(of.at),
                                                      of.count,
                                                      types[n->now.req->desc.dtype].type,
                                                      reduction(n), rank, n->comm,
                                                      n->stream),
                              "reduce_scatter", err);
    }
    return code;
}

/* Sums in NCCL's own order. */
static int reduce_by_library(nccl_t *n, pl_error_t *err)
{
    const pl_coll_desc_t *desc = &n->now.req->desc;
    const cuda_nccl_t *call = &n->library->call;
    void *all = pointer(elements(n));
    const card_range_t own = chunk(n, n->world.rank);
    if (desc->op == PL_COLL_OP_all_reduce)
        return nccl_check(n,
                          call->all_reduce(all, all, desc->count, types[desc->dtype].type,
                                           reduction(n), n->comm, n->stream),
                          "all_reduce", err);
    if (!is_even(n))
        return group(n, err, reduce_chunks);
    return nccl_check(n,
                      call->reduce_scatter(all, pointer(own.at), own.count,
                                           types[desc->dtype].type, reduction(n), n->comm,
                                           n->stream),
                      "reduce_scatter", err);
}

/* A maximum has the same bits in any order, but NCCL's maximum loses a NaN. */
static int reduce(nccl_t *n, bool *more, pl_error_t *err)
{
    const bool gathers = n->now.req->desc.op == PL_COLL_OP_all_reduce;
    const bool by_library = !nccl_is_canonical(n) && reduction(n) == NCCL_SUM;
    *more = n->stage < (by_library ? 1 : 1 + gathers);
    if (by_library)
        return n->stage ? PL_OK : reduce_by_library(n, err);
    const pl_coll_desc_t *desc = &n->now.req->desc;
    switch (n->stage) {
    case 0: {
        const int code = cuda_sums_prepare(n->sums, (pl_dtype_t)desc->dtype,
                                           desc->reduction == PL_REDUCE_MAX, err);
        return code == PL_OK ? group(n, err, exchange) : code;
    }
    case 1: {
        const card_range_t own = chunk(n, n->world.rank);
        const cuda_sum_t sum = {n->world.rank,
                                own.at,
                                spacing(n, chunk(n, 0).count),
                                own.count,
                                (pl_dtype_t)desc->dtype,
                                desc->reduction == PL_REDUCE_MAX};
        const int code = own.count ? cuda_sums_add(n->sums, &sum, n->stream, err) : PL_OK;
        return code == PL_OK && gathers ? gather_all(n, err) : code;
    }
    default: return PL_OK;
    }
}

/* ---- moves ---- */

int nccl_stage(nccl_t *n, bool *more, pl_error_t *err)
{
    const pl_coll_desc_t *desc = &n->now.req->desc;
    *more = false;
    if (n->world.size == 1 || !desc->count)
        return PL_OK;
    if (desc->op == PL_COLL_OP_all_reduce || desc->op == PL_COLL_OP_reduce_scatter)
        return reduce(n, more, err);
    if (desc->op == PL_COLL_OP_all_to_all && n->stage == 1) {
        int code = PL_OK;
        for (int peer = 0; peer < n->world.size && code == PL_OK; peer++) {
            const card_range_t of = partition(n, peer);
            const CUdeviceptr staging = cuda_sums_staging(n->sums, spacing(n, of.count),
                                                          err);
            if (!staging)
                return err->code;
            if (peer != n->world.rank && of.count)
                code = nccl_check_driver(
                    n,
                    n->driver->call.copy(of.at,
                                         staging + (size_t)peer * spacing(n, of.count),
                                         of.count * types[n->now.req->desc.dtype].bytes,
                                         n->stream),
                    "copying", err);
        }
        return code;
    }
    *more = n->stage == 0;
    if (n->stage)
        return PL_OK;
    switch (desc->op) {
    case PL_COLL_OP_all_gather: return gather_all(n, err);
    case PL_COLL_OP_all_to_all: return group(n, err, exchange);
    case PL_COLL_OP_broadcast: {
        void *all = pointer(elements(n));
        return nccl_check(n,
                          n->library->call.broadcast(all, all, desc->count,
                                                     types[desc->dtype].type,
                                                     (int)desc->root, n->comm, n->stream),
                          "broadcast", err);
    }
    default: {
        const card_range_t all = {elements(n), desc->count};
        if (desc->root == (uint32_t)n->world.rank)
            return send(n, all, (int)desc->to, err);
        if (desc->to == (uint32_t)n->world.rank)
            return receive(n, all, (int)desc->root, err);
        return PL_OK;
    }
    }
}
