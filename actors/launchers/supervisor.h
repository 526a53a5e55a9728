/* supervisor.h - a child process: its start, its end, and its last words */
#ifndef PL_LAUNCHERS_SUPERVISOR_H
#define PL_LAUNCHERS_SUPERVISOR_H

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

#endif
