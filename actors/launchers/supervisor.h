/* supervisor.h - a child process from its start to its death, and how often it may be
 * started again */
#ifndef PL_LAUNCHERS_SUPERVISOR_H
#define PL_LAUNCHERS_SUPERVISOR_H

#include "transport/process.h"

typedef struct pl_supervisor pl_supervisor_t;

/* Keeps the arguments that started this program, before the program changes them. */
void pl_supervisor_init(void);

/* Starts a process as pl_process_start() does; without `argv` it is this program,
 * whatever lies at its path by now, with the same arguments. */
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

/* ---- Restarts ---- */

#define PL_TRIES_MAX 100

typedef struct pl_restart {
    int64_t when;
    uint64_t global_step;                        /* that it had come to  [0: not known] */
    int rank;                                    /* that failed  [-1: none alone] */
} pl_restart_t;

typedef struct pl_restart_policy {
    int64_t max;                                        /* within the window, PL_TRIES_MAX
                                                           at most */
    int count;
    pl_restart_t one[PL_TRIES_MAX];               /* within the window, the newest last */
} pl_restart_policy_t;

/* Counts a restart: how long to wait before it, in ms; -1: the limit is reached. */
int pl_restart_policy_add(pl_restart_policy_t *policy, uint64_t global_step, int rank);
/* Whether that rank was the one that failed the last time, too. */
bool pl_restart_policy_is_same(pl_restart_policy_t *policy, int rank);
/* No more restarts: adds to the error how often the job was started again
 * and, where steps are known, after which step it failed each time. */
void pl_restart_policy_report(const pl_restart_policy_t *policy,
                              const uint64_t *global_step, pl_error_t *error);

#endif
