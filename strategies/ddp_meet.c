/* ddp_meet.c - one meeting after the other
 *
 * All ranks come to the same meetings in the same order; a rank that is ahead waits.  A
 * meeting that fails is the last. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/ddp_parts.h"

/* Linked in nowhere yet; NULL: PL_ENOMEM, or the error of one before. */
static pl_meeting_t *meeting_new(pl_ddp_t *ddp, pl_error_t *err)
{
    pl_meeting_t *meeting = ddp->spare;
    if (ddp->failure.code != PL_OK) {
        *err = ddp->failure;
        return NULL;
    }
    if (meeting)
        ddp->spare = meeting->next;
    else if (!(meeting = pl_alloc(sizeof *meeting))) {
        pl_no_memory(err);
        return NULL;
    }
    *meeting = (pl_meeting_t){0};
    return meeting;
}

pl_meeting_t *pl_ddp_meeting(pl_ddp_t *ddp, pl_error_t *err)
{
    pl_meeting_t *meeting = meeting_new(ddp, err);
    if (!meeting)
        return NULL;
    *ddp->last = meeting;
    ddp->last = &meeting->next;
    return meeting;
}

pl_meeting_t *pl_ddp_meeting_of(const pl_ddp_t *ddp, const pl_forward_t *forward)
{
    pl_meeting_t *meeting = ddp->first;
    while (meeting && meeting->forward != forward)
        meeting = meeting->next;
    return meeting;
}

static void meeting_end(pl_ddp_t *ddp)
{
    pl_meeting_t *meeting = ddp->under_way;
    const pl_error_t failure = ddp->failure;
    ddp->first = meeting->next;
    if (!ddp->first)
        ddp->last = &ddp->first;
    ddp->under_way = NULL;
    meeting->end(ddp, meeting, failure.code == PL_OK ? NULL : &failure);
    pl_free(meeting->text);
    meeting->text = NULL;
    meeting->next = ddp->spare;
    ddp->spare = meeting;
}

/* What could not be called for fails it, once all that was has ended. */
static void meeting_begin(pl_ddp_t *ddp, pl_meeting_t *meeting)
{
    pl_error_t err = {0};
    const pl_call_t *call = meeting->forward ? meeting->forward->call : meeting->call;
    if (call)
        pl_actor_does(ddp, call);
    ddp->under_way = meeting;
    if (ddp->failure.code == PL_OK && meeting->begin(ddp, meeting, &err) != PL_OK)
        ddp->failure = err;
    if (!ddp->pending)
        meeting_end(ddp);
}

void pl_ddp_go_on(pl_ddp_t *ddp)
{
    while (!ddp->under_way && ddp->first && ddp->first->ready)
        meeting_begin(ddp, ddp->first);
}

int pl_ddp_meet(pl_ddp_t *ddp, const pl_meeting_t *like, pl_error_t *err)
{
    pl_meeting_t *meeting = pl_ddp_meeting(ddp, err);
    if (!meeting)
        return err->code;
    *meeting = *like;
    meeting->ready = true;
    pl_ddp_go_on(ddp);
    return PL_OK;
}

int pl_ddp_meet_next(pl_ddp_t *ddp, const pl_meeting_t *like, pl_error_t *err)
{
    pl_meeting_t *meeting = meeting_new(ddp, err);
    if (!meeting)
        return err->code;
    *meeting = *like;
    meeting->ready = true;
    meeting->next = ddp->first;
    if (!ddp->first)
        ddp->last = &meeting->next;
    ddp->first = meeting;
    pl_ddp_go_on(ddp);
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
    meeting_end(ddp);
    pl_ddp_go_on(ddp);
}

int pl_ddp_call_sum(pl_ddp_t *ddp, pl_lent_at_t at, size_t count, pl_dtype_t dtype,
                    pl_error_t *err)
{
    const pl_all_reduce_t msg = {.memory = &at.memory->object,
                                 .offset = at.offset,
                                 .count = count,
                                 .dtype = dtype,
                                 .reduction = PL_REDUCE_SUM};
    const pl_how_t how = {.on_answer = call_ended};
    if (!pl_call_all_reduce(ddp, ddp->mover, &msg, how, err))
        return err->code;
    ddp->pending++;
    return PL_OK;
}

int pl_ddp_call_broadcast(pl_ddp_t *ddp, size_t offset, size_t bytes, pl_error_t *err)
{
    const pl_broadcast_t msg = {.memory = &ddp->texts->object,
                                .offset = offset,
                                .count = bytes,
                                .dtype = PL_U8};
    const pl_how_t how = {.on_answer = call_ended};
    if (!pl_call_broadcast(ddp, ddp->mover, &msg, how, err))
        return err->code;
    ddp->pending++;
    return PL_OK;
}

int pl_ddp_call_gather(pl_ddp_t *ddp, pl_lent_at_t at, size_t count, pl_dtype_t dtype,
                       pl_error_t *err)
{
    return pl_ddp_call_gather_by(ddp, at, count, 0, dtype, err);
}

int pl_ddp_call_gather_by(pl_ddp_t *ddp, pl_lent_at_t at, size_t count, int64_t step,
                          pl_dtype_t dtype, pl_error_t *err)
{
    const pl_all_gather_t msg = {.memory = &at.memory->object,
                                 .offset = at.offset,
                                 .count = count,
                                 .dtype = dtype,
                                 .step = (uint64_t)step};
    const pl_how_t how = {.on_answer = call_ended};
    if (!pl_call_all_gather(ddp, ddp->mover, &msg, how, err))
        return err->code;
    ddp->pending++;
    return PL_OK;
}

static void list_free(pl_meeting_t *meeting)
{
    while (meeting) {
        pl_meeting_t *next = meeting->next;
        pl_free(meeting->text);
        pl_free(meeting);
        meeting = next;
    }
}

void pl_ddp_meetings_release(pl_ddp_t *ddp)
{
    list_free(ddp->first);
    list_free(ddp->spare);
}
