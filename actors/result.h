/* result.h - a run's outcome as the program gets it */
#ifndef PL_RESULT_H
#define PL_RESULT_H

#include "runtime/cargo.h"

/* Calls on_done with what came of a run: its outcome, or NULL and the error. */
void pl_result_tell(const pl_outcome_t *o, const pl_error_t *error, pl_trainer_t *trainer, pl_on_done_t on_done,
                    void *user);

#endif
