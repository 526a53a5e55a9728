/* replica_calls.c - calls of the accelerator that together answer one */
#include "strategies/replica_calls.h"

#include "base/error.h"

bool pl_replica_all_ended(pl_replica_calls_t *calls, const pl_answer_t *answer)
{
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return false;
    if (answer->kind == PL_ANSWER_ERROR && calls->failure.code == PL_OK)
        calls->failure = *answer->error;
    if (--calls->pending > 0)
        return false;
    if (calls->failure.code == PL_OK)
        return true;
    if (calls->waiting)
        pl_call_fail(calls->waiting, &calls->failure);
    calls->waiting = NULL;
    return false;
}

int pl_replica_begin_calls(pl_replica_calls_t *calls, pl_call_t *call, pl_error_t *err)
{
    if (calls->pending)
        return pl_fail(err, PL_EBUSY,
                       "the strategy is still setting up, exporting or importing");
    calls->waiting = call;
    calls->failure.code = PL_OK;
    return PL_OK;
}

int pl_replica_made_call(pl_replica_calls_t *calls, uint64_t call, const pl_error_t *err)
{
    calls->pending += call != 0;
    return call ? PL_OK : err->code;
}

int pl_replica_made_all(pl_replica_calls_t *calls, int code, const pl_error_t *err)
{
    if (!calls->pending)
        return code;
    if (code != PL_OK)
        calls->failure = *err;
    return PL_OK;
}
