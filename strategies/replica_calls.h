/* replica_calls.h - calls of the accelerator that together answer one
 *
 * One at a time: setup, an export or an import.  The first failure is what it ends with,
 * once all that were made are over. */
#ifndef PL_STRATEGIES_REPLICA_CALLS_H
#define PL_STRATEGIES_REPLICA_CALLS_H

#include "strategies/replica.h"

/* `call` is to be answered.  PL_EBUSY: another is. */
int pl_replica_begin_calls(pl_replica_calls_t *calls, pl_call_t *call, pl_error_t *err);

/* Counts a call that was made, or was not: 0. */
int pl_replica_made_call(pl_replica_calls_t *calls, uint64_t call, const pl_error_t *err);

/* All calls are made, or those before a failure: these end first, then the strategy's
 * call fails. */
int pl_replica_made_all(pl_replica_calls_t *calls, int code, const pl_error_t *err);

/* True when the last of them has ended well; the first failure ends the strategy's
 * call. */
bool pl_replica_all_ended(pl_replica_calls_t *calls, const pl_answer_t *answer);

#endif
