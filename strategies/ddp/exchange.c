/* exchange.c - bytes that the programs of a manual loop exchange
 *
 * First all ranks see which exchange each of them makes, so that the error of programs
 * that differ names both. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "strategies/ddp/ddp.h"

enum { WORDS = 128, ALIGN = 64 };                           /* bytes */

/* Bytes of a rank's place in the buffer. */
static size_t place_bytes(const pl_exchange_t *msg)
{
    return (msg->data.size + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- the data ---- */

static int data_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    const pl_exchange_t *msg = &point->exchange;
    const size_t bytes = place_bytes(msg), ranks = ddp->replica.ranks;
    const bool gathers = msg->kind == PL_EXCHANGE_KIND_GATHER;
    const pl_reg_ptr_t at = {ddp->exchanged, 0};
    char *own = (char *)ddp->exchanged->data + (gathers ? ddp->replica.rank * bytes : 0);
    memcpy(own, msg->data.data, msg->data.size);
    if (gathers)
        return pl_ddp_call_gather(ddp, at, ranks * bytes, (int64_t)bytes, PL_U8, err);
    if (msg->kind == PL_EXCHANGE_KIND_BROADCAST)
        return pl_ddp_call_broadcast(ddp, at, msg->data.size, msg->root, err);
    const pl_dtype_t dtype = (pl_dtype_t)msg->dtype;
    return pl_ddp_call_sum(ddp, at, msg->data.size / pl_dtype_size(dtype), dtype, err);
}

/* The bytes of ranks lie one behind the other then, without space between. */
static void data_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    const pl_exchange_t *msg = &point->exchange;
    const size_t bytes = place_bytes(msg), size = msg->data.size,
                 places = msg->kind == PL_EXCHANGE_KIND_GATHER ? ddp->replica.ranks : 1;
    char *data = ddp->exchanged->data;
    for (size_t k = 1; k < places; k++)
        memmove(data + k * size, data + k * bytes, size);
    if (failure)
        pl_call_fail(point->call, failure);
    else
        pl_reply_exchange(point->call,
                          &(pl_exchange_reply_t){.data = {data, places * size}});
}

static void data_sync(pl_ddp_t *ddp)
{
    pl_error_t err = {0};
    if (pl_ddp_sync(ddp, &ddp->exchange, &err) != PL_OK)
        pl_call_fail(ddp->exchange.call, &err);
}

/* ---- the buffer: as large as the largest exchange until now, on all ranks ---- */

static void allocated(void *self, const pl_answer_t *answer)
{
    pl_ddp_t *ddp = self;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_call_fail(ddp->exchange.call, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    pl_object_unref(ddp->exchanged);
    ddp->exchanged = pl_object_ref(answer->body->alloc_buffer_reply.memory);
    data_sync(ddp);
}

static void buffer_need(pl_ddp_t *ddp, const pl_sync_point_t *point)
{
    const pl_exchange_t *msg = &point->exchange;
    const size_t need = place_bytes(msg)
                        * (msg->kind == PL_EXCHANGE_KIND_GATHER ? ddp->replica.ranks : 1);
    const pl_alloc_buffer_t alloc = {.bytes = need};
    const pl_how_t how = {.on_answer = allocated};
    pl_error_t err = {0};
    ddp->exchange = (pl_sync_point_t){.begin = data_begin,
                                      .end = data_end,
                                      .call = point->call,
                                      .exchange = *msg};
    if (ddp->exchanged && ddp->exchanged->bytes >= need)
        data_sync(ddp);
    else if (!pl_call_alloc_buffer(ddp, ddp->collective_actor, &alloc, how, &err))
        pl_call_fail(point->call, &err);
}

/* ---- the exchange of each rank, in words ---- */

static int words_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    char *own = (char *)ddp->decided->data + (size_t)ddp->replica.rank * WORDS;
    memset(own, 0, WORDS);
    snprintf(own, WORDS, "%s", point->exchange.what);
    return pl_ddp_call_gather(ddp, (pl_reg_ptr_t){ddp->decided, 0},
                              (size_t)ddp->replica.ranks * WORDS, WORDS, PL_U8, err);
}

static void words_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    const char *words = ddp->decided->data;
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    for (uint32_t k = 1; k < ddp->replica.ranks && err.code == PL_OK; k++)
        if (strncmp(words, words + (size_t)k * WORDS, WORDS) != 0)
            pl_fail(&err, PL_EINVAL,
                    "rank 0 calls %.*s, and rank %u %.*s: the programs of all ranks must "
                    "make the same calls in the same order",
                    WORDS - 1, words, (unsigned)k, WORDS - 1, words + (size_t)k * WORDS);
    if (err.code != PL_OK)
        pl_call_fail(point->call, &err);
    else if (point->exchange.data.size)
        buffer_need(ddp, point);
    else
        pl_reply_exchange(point->call, &(pl_exchange_reply_t){0});
}

int pl_ddp_exchange(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    const pl_sync_point_t point = {.begin = words_begin,
                                   .end = words_end,
                                   .call = call,
                                   .exchange = body->exchange};
    return pl_ddp_sync(self, &point, err);
}
