/* job_state.h - files of a job for its processes that start later */
#ifndef PL_LAUNCHERS_JOB_STATE_H
#define PL_LAUNCHERS_JOB_STATE_H

#include "paceline.h"
#include "transport/bulk.h"
#include "runtime/payload.h"

/* The run directory of that run, from 1, to be freed; NULL: it is not known, or, with an
 * error, out of memory. */
char *pl_run_dir_index_find(int run, pl_error_t *err);
/* Adds a run directory; logs a warning if that fails. */
void pl_run_dir_index_add(int run, const char *folder);

/* Adds a rank with a line of text.  A lost line costs only time. */
void pl_finished_ranks_add(const char *file, int rank, const char *text);
/* Whether the rank has ended, and the text about it. */
bool pl_finished_ranks_find(int rank, char *text, size_t capacity);
/* Whether this job reports them. */
bool pl_finished_ranks_are_reported(void);

/* Adds the run that is over now: its packed outcome or, NULL, its error.  If all would
 * have more bytes than `max`, the file is removed. */
int pl_run_history_add(const char *folder, uint64_t max, const pl_blob_t *outcome,
                       const pl_error_t *failed, pl_error_t *err);
/* The outcome of a run, from 0, counted; NULL: the run failed, or cannot be read. */
pl_outcome_t *pl_run_history_read(const char *folder, int run, pl_error_t *failed);

#endif
