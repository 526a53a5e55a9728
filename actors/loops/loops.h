/* loops.h - the loop actors: when to fetch, step, validate, log and stop
 *
 * Each takes the pl_job_t as the context of `start`, and these addresses: fit: "epoch", "evaluate", "callback",
 * "logger", "checkpoint", "strategy"; epoch: "evaluate", "data", "callback", "logger", "strategy"; evaluate and
 * predict: "data", "strategy". */
#ifndef PL_LOOPS_H
#define PL_LOOPS_H

#include "runtime/actor.h"

extern const pl_actor_ops_t pl_fit_loop, pl_epoch_loop, pl_evaluate_loop, pl_predict_loop;

#endif
