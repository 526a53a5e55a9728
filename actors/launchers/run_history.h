/* run_history.h - results of the finished runs of a program, for its processes that
 * are started in the middle of it
 *
 * They go through the program from its first line on, as all do; but runs that are over
 * when they are started are not made again for them: what came of those lies in a file of
 * the folder where the program's processes meet. */
#ifndef PL_LAUNCHERS_RUN_HISTORY_H
#define PL_LAUNCHERS_RUN_HISTORY_H

#include "runtime/bulk.h"
#include "runtime/payload.h"

/* Adds the run that is over now: its outcome, as packed, or, NULL, how it failed.  When
 * all come to more bytes than that, none is kept any more, and the room is free again. */
int pl_run_history_add(const char *folder, uint64_t max, const pl_blob_t *outcome,
                       const pl_error_t *failed, pl_error_t *err);
/* The outcome of a run, from 0, counted; NULL: it failed, or cannot be read, as told. */
pl_outcome_t *pl_run_history_read(const char *folder, int run, pl_error_t *failed);

#endif
