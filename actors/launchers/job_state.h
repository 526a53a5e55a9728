/* job_state.h - what the processes of a job leave in files for those that start later */
#ifndef PL_LAUNCHERS_JOB_STATE_H
#define PL_LAUNCHERS_JOB_STATE_H

#include "paceline.h"
#include "transport/bulk.h"
#include "runtime/payload.h"

/* The folder of that run, from 1, to be freed; NULL: it is not there, or, with an error,
 * memory is out. */
char *pl_run_dir_index_find(int run, pl_error_t *err);
/* Adds it; logs a line when that fails. */
void pl_run_dir_index_add(int run, const char *folder);

/* Adds one, with a line of text; a lost line costs only time. */
void pl_finished_ranks_add(const char *file, int rank, const char *text);
/* Whether the rank has ended, and the text about it. */
bool pl_finished_ranks_find(int rank, char *text, size_t capacity);
/* Whether this job reports them. */
bool pl_finished_ranks_are_reported(void);

/* Adds the run that is over now: its outcome, as packed, or, NULL, how it failed.  When
 * all come to more bytes than that, none is kept any more, and the room is free again. */
int pl_run_history_add(const char *folder, uint64_t max, const pl_blob_t *outcome,
                       const pl_error_t *failed, pl_error_t *err);
/* The outcome of a run, from 0, counted; NULL: it failed, or cannot be read, as told. */
pl_outcome_t *pl_run_history_read(const char *folder, int run, pl_error_t *failed);

#endif
