/* worker_pool.h - processes that run the program's script, and stay from one of its runs
 * to the next: script.c
 *
 * Each executes the whole program: its k-th run is the k-th run of the program.  So all
 * are started with the first run; a process that replaces another later receives the
 * results of earlier runs.  They belong to an engine; all on its control thread. */
#ifndef PL_LAUNCHERS_WORKER_POOL_H
#define PL_LAUNCHERS_WORKER_POOL_H

#include "actors/launchers/bootstrap.h"
#include "actors/launchers/supervisor.h"
#include "runtime/runtime.h"

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

/* Kills all processes; false: some still live. */
bool pl_worker_pool_kill(pl_worker_pool_t *pool);

/* A new engine, which belongs to a rank if the process is a worker of a pool: its
 * threads and its part of the stream go with the program's. */
void pl_worker_pool_enter(pl_runtime_t *runtime);
/* The engine ends: true if some processes still live.  They have some seconds to end;
 * then `then` is called, and calls this function again. */
bool pl_worker_pool_ends(const pl_runtime_t *runtime, void (*then)(void *user),
                         void *user);

#endif
