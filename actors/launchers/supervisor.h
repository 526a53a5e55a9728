/* supervisor.h - a child process: its start, its end, and its last words; and a pool of
 * child processes */
#ifndef PL_LAUNCHERS_SUPERVISOR_H
#define PL_LAUNCHERS_SUPERVISOR_H

#include "runtime/runtime.h"
#include "transport/endpoint.h"
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

/* ---- A pool: processes that stay from one run of the program to the next ----
 *
 * Each executes the whole program: its k-th run is the k-th run of the program.  So all
 * are started with the first run; a process that replaces another later receives the
 * results of earlier runs.  They belong to an engine; all on its control thread. */

/* Fields are for reading, except incarnation. */
typedef struct pl_worker_pool {
    struct pl_worker_pool *next;                            /* of another engine */
    const pl_runtime_t *runtime;
    struct pl_sockets *loop;
    char folder[PL_SOCKET_FOLDER];         /* where its processes look for the launcher */
    int lock;
    uint32_t incarnation;                    /* the newest that one of its runs has had */
    int runs, recorded;                      /* begun; those whose result is recorded */
    int living;                              /* processes */
    bool is_taken;                           /* by a run */
    struct event *late;                      /* [it does not end yet] */
    void (*then)(void *user);
    void *user;
    int count;
    struct pl_pool_worker *worker;                          /* [count] */
} pl_worker_pool_t;

/* The engine's pool, for a run of a launcher, until is_taken is cleared.  PL_ESTATE:
 * another run has taken it; PL_EINVAL: it has another number of processes. */
pl_worker_pool_t *pl_worker_pool_begin_run(void *launcher, int count, pl_error_t *err);

/* A rank's process, which is started if there is none yet; from now on its lines and
 * its death are reported to the spec.  PL_EDIED: it has ended since an earlier
 * run, whose result is not recorded. */
pl_supervisor_t *pl_worker_pool_acquire(pl_worker_pool_t *pool, int rank,
                                        const pl_process_spec_t *spec, pl_error_t *err);
/* Unless another has acquired it. */
void pl_worker_pool_return(pl_worker_pool_t *pool, int rank, const void *user);

/* Runs that are over. */
static inline int pl_worker_pool_past_runs(const pl_worker_pool_t *pool)
{
    return pool->runs - 1;
}

/* Whether its processes may be started again: the results of all those runs are
 * recorded. */
bool pl_worker_pool_may_restart(const pl_worker_pool_t *pool);

/* Kills all processes; false: some still live. */
bool pl_worker_pool_kill(pl_worker_pool_t *pool);

/* The engine ends: true if some processes still live.  They have some seconds to end;
 * then `then` is called, and calls this function again. */
bool pl_worker_pool_ends(const pl_runtime_t *runtime, void (*then)(void *user),
                         void *user);

#endif
