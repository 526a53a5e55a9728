/* restarts.h - how often something may be started again, a run that is, and what its
 * processes find of the job */
#ifndef PL_LAUNCHERS_RESTARTS_H
#define PL_LAUNCHERS_RESTARTS_H

#include "actors/launchers/ranks.h"
#include "transport/bulk.h"

/* ---- How often a process may be started again ---- */

#define PL_TRIES_MAX 100

typedef struct pl_restart {
    int64_t when;
    uint64_t global_step;                        /* at the failure  [0: not known] */
    int rank;                                    /* that failed  [-1: not a single one] */
} pl_restart_t;

typedef struct pl_restart_policy {
    int64_t max;                                     /* within the window, PL_TRIES_MAX at
                                                        most */
    int count;
    pl_restart_t one[PL_TRIES_MAX];               /* within the window, the newest last */
} pl_restart_policy_t;

/* Counts a restart: how long to wait before it, in ms; -1: the limit is reached. */
int pl_restart_policy_add(pl_restart_policy_t *policy, uint64_t global_step, int rank);
/* No more restarts: adds their number to the error and, if steps are known, the step of
 * each failure. */
void pl_restart_policy_report(const pl_restart_policy_t *policy,
                              const uint64_t *global_step, pl_error_t *error);

/* ---- A run that starts again when a process has died ----
 *
 * In a range of ranks, a rank that dies again as soon as it was started again is left out
 * and started later: the run pauses for that, so that no step is repeated. */

#define PL_RESTARTS_OPTION(type) \
    PL_INT(type, max_restarts, "3", "0..100", \
           "restarts of the run within 10 minutes after ranks died")

/* A launcher's, for one run: pl_ranks_t has its address. */
typedef struct pl_restarts {
    int64_t max;
    void (*begin)(void *launcher);            /* calls pl_restarts_begin() at the end
                                                 [at once] */
    double return_after;                      /* s; for a range of ranks  [0: a rank stays
                                                 left out] */
    pl_restart_policy_t policy;
    int left_out;                                           /* the last rank that was */
    bool waits;                                             /* until it begins */
} pl_restarts_t;

/* `again` of pl_ranks_ops_t: true when the run begins once more, by `begin` after a
 * while: without a rank that has died again, or with all ranks after a pause.  False:
 * the run is over, and the error of a failed one has the number of restarts. */
bool pl_restarts_try(pl_ranks_t *ranks);
/* `now` of pl_ranks_ops_t: begins the run from the newest checkpoint, or answers it;
 * only the first call after pl_restarts_try() does.  A run that received a stop since
 * then stops as soon as it trains. */
void pl_restarts_begin(void *launcher);

/* ---- What a process that starts later finds of the job: files ---- */

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
