/* loops.h - the loop actors: when to fetch, step, validate, log and stop
 *
 * Each takes the pl_job_t as the context of `start`, and these addresses: fit: "data",
 * "epoch", "evaluate", "callback", "logger", "checkpoint", "strategy"; epoch: "evaluate",
 * "data", "callback", "logger", "strategy"; evaluate, predict and tuners: "data",
 * "strategy"; measure: "evaluate"; generate: "strategy"; own: "checkpoint",
 * "logger", "strategy".  Of a fit without validation
 * data there is no "evaluate".  `start` options are for generate the data info that the
 * weights bring along. */
#ifndef PL_LOOPS_H
#define PL_LOOPS_H

#include "runtime/payload.h"

extern const pl_actor_ops_t pl_fit_loop, pl_epoch_loop, pl_evaluate_loop, pl_measure_loop,
    pl_predict_loop, pl_generate_loop, pl_manual_loop, pl_tuner, pl_batch_size_finder;

/* What the generate loop will feed the module, from the data info of the weights; counted
 * once. */
pl_batch_signature_t *pl_generate_signature(const char *data_info, pl_error_t *err);

#endif
