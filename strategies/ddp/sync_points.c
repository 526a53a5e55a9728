/* sync_points.c - sync points, one after the other
 *
 * All ranks reach the same sync points in the same order; a rank that is ahead waits. A
 * sync point that fails is the last. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/ddp/ddp.h"

pl_sync_point_t *pl_ddp_sync_point_new(pl_ddp_t *ddp, const pl_sync_point_t *like,
                                       pl_error_t *err)
{
    pl_sync_point_t *point = ddp->spare;
    if (ddp->failure.code != PL_OK) {
        *err = ddp->failure;
        return NULL;
    }
    if (point)
        ddp->spare = point->next;
    else if (!(point = pl_alloc(sizeof *point))) {
        pl_no_memory(err);
        return NULL;
    }
    *point = *like;
    pl_sync_point_t **at = like->is_next ? &ddp->first : ddp->last;
    if (like->is_within)
        for (at = &ddp->first; *at && (*at)->ready; at = &(*at)->next)
            ;
    point->next = *at;
    *at = point;
    if (!point->next)
        ddp->last = &point->next;
    return point;
}

static void sync_point_end(pl_ddp_t *ddp)
{
    pl_sync_point_t *point = ddp->under_way;
    const pl_error_t failure = ddp->failure;
    ddp->first = point->next;
    if (!ddp->first)
        ddp->last = &ddp->first;
    ddp->under_way = NULL;
    point->end(ddp, point, failure.code == PL_OK ? NULL : &failure);
    pl_messages_release(&point->messages);
    point->next = ddp->spare;
    ddp->spare = point;
}

void pl_ddp_advance(pl_ddp_t *ddp)
{
    while (!ddp->under_way && ddp->first && ddp->first->ready) {
        pl_error_t err = {0};
        pl_sync_point_t *point = ddp->first;
        const pl_call_t *call = point->forward ? point->forward->call : point->call;
        if (call)
            pl_actor_does(ddp, call);
        ddp->under_way = point;
        /* After a failure of begin() the calls that it has made still end first. */
        if (ddp->failure.code == PL_OK && point->begin
            && point->begin(ddp, point, &err) != PL_OK)
            ddp->failure = err;
        if (!ddp->pending)
            sync_point_end(ddp);
    }
}

int pl_ddp_sync(pl_ddp_t *ddp, const pl_sync_point_t *like, pl_error_t *err)
{
    pl_sync_point_t *point = pl_ddp_sync_point_new(ddp, like, err);
    if (!point)
        return err->code;
    point->ready = true;
    pl_ddp_advance(ddp);
    return PL_OK;
}

static void call_ended(void *self, const pl_answer_t *answer)
{
    pl_ddp_t *ddp = self;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    if (answer->kind == PL_ANSWER_ERROR && ddp->failure.code == PL_OK)
        ddp->failure = *answer->error;
    if (--ddp->pending > 0 || !ddp->under_way)
        return;
    sync_point_end(ddp);
    pl_ddp_advance(ddp);
}

int pl_ddp_call_sum(pl_ddp_t *ddp, pl_reg_ptr_t at, size_t count, pl_dtype_t dtype,
                    pl_error_t *err)
{
    const pl_all_reduce_t msg = {.memory = &at.memory->object,
                                 .offset = at.offset,
                                 .count = count,
                                 .dtype = dtype,
                                 .reduction = PL_REDUCE_SUM};
    const pl_how_t how = {.on_answer = call_ended};
    if (!pl_call_all_reduce(ddp, ddp->collective_actor, &msg, how, err))
        return err->code;
    ddp->pending++;
    return PL_OK;
}

int pl_ddp_call_broadcast(pl_ddp_t *ddp, pl_reg_ptr_t at, size_t bytes, uint32_t root,
                          pl_error_t *err)
{
    const pl_broadcast_t msg = {.memory = &at.memory->object,
                                .offset = at.offset,
                                .count = bytes,
                                .dtype = PL_U8,
                                .root = root};
    const pl_how_t how = {.on_answer = call_ended};
    if (!pl_call_broadcast(ddp, ddp->collective_actor, &msg, how, err))
        return err->code;
    ddp->pending++;
    return PL_OK;
}

int pl_ddp_call_gather(pl_ddp_t *ddp, pl_reg_ptr_t at, size_t count, int64_t step,
                       pl_dtype_t dtype, pl_error_t *err)
{
    const pl_all_gather_t msg = {.memory = &at.memory->object,
                                 .offset = at.offset,
                                 .count = count,
                                 .dtype = dtype,
                                 .step = (uint64_t)step};
    const pl_how_t how = {.on_answer = call_ended};
    if (!pl_call_all_gather(ddp, ddp->collective_actor, &msg, how, err))
        return err->code;
    ddp->pending++;
    return PL_OK;
}

void pl_ddp_sync_points_release(pl_ddp_t *ddp)
{
    if (ddp->last)
        *ddp->last = ddp->spare;                            /* one list of both */
    for (pl_sync_point_t *point = ddp->first, *next; point; point = next) {
        next = point->next;
        pl_messages_release(&point->messages);
        pl_free(point);
    }
}
