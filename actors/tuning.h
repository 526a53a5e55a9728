/* tuning.h - what a search for a learning rate or a batch size is told */
#ifndef PL_TUNING_H
#define PL_TUNING_H

#include "runtime/payload.h"

/* Fills in what is left to be chosen; PL_EINVAL: what cannot be. */
int pl_tuning_defaults(pl_tuning_t *what, pl_error_t *err);

/* The job of such a search, or NULL. */
pl_job_t *pl_tuning_job(const pl_options_t *options, const pl_tuning_t *what,
                        pl_error_t *err);

#endif
