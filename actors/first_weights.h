/* first_weights.h - what is wrong with weights that a run starts with */
#ifndef PL_FIRST_WEIGHTS_H
#define PL_FIRST_WEIGHTS_H

#include "runtime/payload.h"

/* Where they come from  [NULL: nowhere]. */
const char *pl_first_weights_path(const pl_job_t *job);
/* PL_EINVAL when they say that they are of another module than the run's; a log line of
 * the worker when they hold what is not finite. */
int pl_first_weights_check(void *worker, const pl_job_t *job, const pl_weights_t *weights,
                           pl_error_t *err);
/* The steps and epochs that made them, as options of the measure loop. */
void pl_first_weights_made(const pl_weights_t *weights, char options[64]);
/* Whether what does not fit of them is left out: module.init_strict. */
bool pl_first_weights_partly(const pl_job_t *job);

#endif
