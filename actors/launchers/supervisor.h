/* supervisor.h - a child process: its start, its output, its end, and restarts */
#ifndef PL_LAUNCHERS_SUPERVISOR_H
#define PL_LAUNCHERS_SUPERVISOR_H

#include "actors/launchers/rank_links.h"
#include "actors/launchers/ranks.h"
#include "transport/process.h"

typedef struct pl_supervisor pl_supervisor_t;

/* Keeps the arguments that started this program, before the program changes them. */
void pl_supervisor_init(void);

/* Starts a process as pl_process_start() does; without `argv` it is this program with the
 * same arguments, even if another file lies at its path by now. */
pl_supervisor_t *pl_supervisor_start(const pl_process_spec_t *spec,
                                     struct event_base *loop, pl_error_t *err);
/* Ends the process by SIGKILL if it still lives; on_death is not called. */
void pl_supervisor_free(pl_supervisor_t *supervisor);
int pl_supervisor_process_id(const pl_supervisor_t *supervisor);

/* A dead process receives no signals. */
void pl_supervisor_signal(pl_supervisor_t *supervisor, int number);
/* Kills the process after so many milliseconds, or at once [0], unless it has died. */
void pl_supervisor_kill(pl_supervisor_t *supervisor, int after_ms);
/* The process is not killed after all. */
void pl_supervisor_spare(pl_supervisor_t *supervisor);
/* The process hangs: requests the backtraces of its threads, and kills it
 * PL_BACKTRACE_MS later.  A stopped process takes the request when it is continued. */
void pl_supervisor_abort(pl_supervisor_t *supervisor);

/* Appends the last whole lines of its standard error to the error, as many as fit; the
 * last line alone if all lines are shown as they come. */
void pl_supervisor_last_words(pl_supervisor_t *supervisor, bool is_shown,
                              pl_error_t *error);

/* ---- The output of a rank's process: a file in the run directory ---- */

/* Accepts `append_log`. */
extern const pl_actor_ops_t pl_log_writer;

typedef struct pl_rank_log {
    void *self;                                            /* the proxy of the rank */
    pl_rank_links_t *links;                                /* run directory, log writer */
    int rank;
    char *text;                  /* lines that are not written yet, to be freed  [NULL] */
    size_t size;
    bool is_writing;
} pl_rank_log_t;

void pl_rank_log_append(pl_rank_log_t *log, const char *line);
/* No more output comes, and the proxy ends now. */
void pl_rank_log_close(pl_rank_log_t *log);

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

#endif
