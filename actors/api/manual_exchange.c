/* manual_exchange.c - numbers that the programs of a manual loop's ranks exchange */
#include "actors/api/manual_loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "tensor/operators.h"

void pl_loop_exchange_free(pl_loop_exchange_t *x)
{
    if (x)
        pl_free(x->data);
    pl_free(x);
}

/* ---- the answer ---- */

int pl_loop_exchange_receive(pl_loop_exchange_t *x, pl_bytes_t data, pl_error_t *err)
{
    pl_free(x->data);
    x->bytes = data.size;
    x->data = pl_alloc(data.size + 1);
    if (!x->data)
        return pl_no_memory(err);
    if (data.size)
        memcpy(x->data, data.data, data.size);
    return PL_OK;
}

static double number_of(pl_dtype_t dtype, const void *data, int64_t k)
{
    switch (dtype) {
    case PL_F32: return ((const float *)data)[k];
    case PL_F64: return ((const double *)data)[k];
    case PL_I32: return ((const int32_t *)data)[k];
    default: return ((const uint8_t *)data)[k];
    }
}

/* Whether element k of `from` replaces the one of `to`. */
static bool is_taken(const pl_loop_exchange_t *x, const void *to, const void *from,
                     int64_t k)
{
    const pl_dtype_t dtype = (pl_dtype_t)x->msg.dtype;
    const bool is_max = x->reduction == PL_LOOP_MAX;
    if (dtype == PL_I64) {
        const int64_t a = ((const int64_t *)to)[k], b = ((const int64_t *)from)[k];
        return is_max ? b > a : b < a;
    }
    const double a = number_of(dtype, to, k), b = number_of(dtype, from, k);
    return isnan(b) || (is_max ? b > a : b < a);
}

static void element_fold(const pl_loop_exchange_t *x, void *to, const void *from,
                         int64_t k)
{
    const pl_dtype_t dtype = (pl_dtype_t)x->msg.dtype;
    const size_t width = pl_dtype_size(dtype), at = (size_t)k * width;
    if (x->reduction != PL_LOOP_SUM) {
        if (is_taken(x, to, from, k))
            memcpy((char *)to + at, (const char *)from + at, width);
    } else if (dtype == PL_I64) {
        ((uint64_t *)to)[k] += ((const uint64_t *)from)[k];
    } else if (dtype == PL_I32) {
        ((uint32_t *)to)[k] += ((const uint32_t *)from)[k];
    } else {
        ((uint8_t *)to)[k] = (uint8_t)(((uint8_t *)to)[k] + ((const uint8_t *)from)[k]);
    }
}

void pl_loop_exchange_finish(pl_loop_exchange_t *x, int ranks, pl_loop_result_t *result)
{
    const pl_dtype_t dtype = (pl_dtype_t)x->msg.dtype;
    const size_t own = (size_t)x->count * pl_dtype_size(dtype);
    for (int rank = 1; x->folds && rank < ranks; rank++)
        for (int64_t k = 0; k < x->count; k++)
            element_fold(x, x->data, (char *)x->data + (size_t)rank * own, k);
    if (x->folds)
        x->bytes = own;
    for (int64_t k = 0; x->reduction == PL_LOOP_MEAN && k < x->count; k++)
        if (dtype == PL_F64)
            ((double *)x->data)[k] /= ranks;
        else
            ((float *)x->data)[k] /= (float)ranks;
    result->data = x->data;
    result->data_count = (int64_t)(x->bytes / pl_dtype_size(dtype));
}

/* ---- the calls ---- */

enum { EXCHANGE_MAX = 1 << 28 };                            /* bytes */

/* what: the call, without type and number of elements.  data  [it is not read]. */
static int exchange_post(pl_loop_t *loop, const pl_loop_exchange_t *like,
                         const char *what, const void *data, pl_on_loop_t then,
                         void *user, pl_error_t *err)
{
    const pl_dtype_t dtype = (pl_dtype_t)like->msg.dtype;
    const bool is_known = dtype >= PL_F32 && dtype <= PL_U8;
    const size_t width = is_known ? pl_dtype_size(dtype) : 1;
    const int64_t count = like->count;
    if (!is_known || count < 0 || (uint64_t)count > EXCHANGE_MAX / width)
        return pl_fail(err, PL_EINVAL,
                       "%lld numbers of type %d cannot be exchanged: give at most %d "
                       "bytes of float32, float64, int32, int64 or uint8",
                       (long long)count, (int)dtype, EXCHANGE_MAX);
    pl_loop_exchange_t *x = pl_alloc(sizeof *x);
    if (!x)
        return pl_no_memory(err);
    *x = *like;
    x->bytes = (size_t)count * width;
    x->data = pl_alloc(x->bytes + 1);                       /* zeros */
    if (!x->data) {
        pl_loop_exchange_free(x);
        return pl_no_memory(err);
    }
    if (data && x->bytes)
        memcpy(x->data, data, x->bytes);
    snprintf(x->what, sizeof x->what, "%s of %lld %s", what, (long long)count,
             pl_dtype_name(dtype));
    x->msg.what = x->what;
    x->msg.data = (pl_bytes_t){x->data, x->bytes};
    return pl_loop_send_exchange(loop, x, then, user, err);
}

int pl_loop_all_gather(pl_loop_t *loop, pl_dtype_t dtype, const void *data, int64_t count,
                       pl_on_loop_t then, void *user, pl_error_t *err)
{
    const pl_loop_exchange_t x = {.msg = {.kind = PL_EXCHANGE_KIND_GATHER,
                                          .dtype = dtype},
                                  .count = count};
    int code = pl_require(data, "the numbers to gather", err);
    return code == PL_OK ? exchange_post(loop, &x, "all_gather", data, then, user, err)
                         : code;
}

int pl_loop_all_reduce(pl_loop_t *loop, pl_loop_reduction_t reduction, pl_dtype_t dtype,
                       const void *data, int64_t count, pl_on_loop_t then, void *user,
                       pl_error_t *err)
{
    static const char *const names[] = {"sum", "mean", "max", "min"};
    const bool is_float = dtype == PL_F32 || dtype == PL_F64;
    int code = pl_require(data, "the numbers to reduce", err);
    if (code == PL_OK && (reduction < PL_LOOP_SUM || reduction > PL_LOOP_MIN))
        code = pl_fail(err, PL_EINVAL, "%d is no reduction of a loop", (int)reduction);
    if (code == PL_OK && reduction == PL_LOOP_MEAN && !is_float)
        code = pl_fail(err, PL_EINVAL,
                       "whole numbers have no mean: add them and divide, or send them as "
                       "float64");
    if (code != PL_OK)
        return code;
    char what[32];
    snprintf(what, sizeof what, "all_reduce (%s)", names[reduction]);
    const bool sums = is_float && reduction <= PL_LOOP_MEAN;
    const pl_loop_exchange_t x = {.msg = {.kind = sums ? PL_EXCHANGE_KIND_SUM
                                                       : PL_EXCHANGE_KIND_GATHER,
                                          .dtype = dtype},
                                  .reduction = reduction,
                                  .folds = !sums,
                                  .count = count};
    return exchange_post(loop, &x, what, data, then, user, err);
}

int pl_loop_broadcast(pl_loop_t *loop, int root, pl_dtype_t dtype, const void *data,
                      int64_t count, pl_on_loop_t then, void *user, pl_error_t *err)
{
    const pl_loop_exchange_t x = {.msg = {.kind = PL_EXCHANGE_KIND_BROADCAST,
                                          .dtype = dtype,
                                          .root = (uint32_t)root},
                                  .count = count};
    char what[64];
    if (root == pl_rank() && pl_require(data, "the numbers to broadcast", err) != PL_OK)
        return PL_EINVAL;
    snprintf(what, sizeof what, "broadcast from rank %d", root);
    return exchange_post(loop, &x, what, data, then, user, err);
}

int pl_loop_barrier(pl_loop_t *loop, pl_on_loop_t then, void *user, pl_error_t *err)
{
    const pl_loop_exchange_t x = {
        .msg = {.kind = PL_EXCHANGE_KIND_GATHER, .dtype = PL_U8}};
    return exchange_post(loop, &x, "barrier", NULL, then, user, err);
}
