/* replica_calls.c - calls of the accelerator that together answer one */
#include "strategies/replica_calls.h"

#include "base/error.h"

bool pl_replica_all_ended(pl_replica_t *r, const pl_answer_t *answer)
{
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return false;
    if (answer->kind == PL_ANSWER_ERROR && r->failure.code == PL_OK)
        r->failure = *answer->error;
    if (--r->pending > 0)
        return false;
    if (r->failure.code == PL_OK)
        return true;
    pl_call_fail(r->waiting, &r->failure);
    r->waiting = NULL;
    return false;
}

int pl_replica_begin_calls(pl_replica_t *r, pl_call_t *call, pl_error_t *err)
{
    if (r->pending)
        return pl_fail(err, PL_EBUSY,
                       "the strategy is still setting up, exporting or importing");
    r->waiting = call;
    r->failure.code = PL_OK;
    return PL_OK;
}

int pl_replica_made_call(pl_replica_t *r, uint64_t call, const pl_error_t *err)
{
    r->pending += call != 0;
    return call ? PL_OK : err->code;
}

int pl_replica_made_all(pl_replica_t *r, int code, const pl_error_t *err)
{
    if (!r->pending)
        return code;
    if (code != PL_OK)
        r->failure = *err;
    return PL_OK;
}
