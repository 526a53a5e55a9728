/* worker_pool.h - processes that run the program's script, and stay from one of its
 * runs to the next
 *
 * Each goes through the whole program: what the program does for the k-th time they do
 * for the k-th time.  So they are started with its first run; one that takes the place of
 * another later receives the results of the runs before.  They belong to an engine; all
 * on its control thread. */
#ifndef PL_LAUNCHERS_WORKER_POOL_H
#define PL_LAUNCHERS_WORKER_POOL_H

#include "transport/bulk.h"
#include "actors/launchers/supervisor.h"
#include "runtime/runtime.h"

typedef struct pl_worker_pool pl_worker_pool_t;

/* The engine's, for a run of a launcher that is at work with it from now on.  PL_ESTATE:
 * another one is; PL_EINVAL: it has another number of processes. */
pl_worker_pool_t *pl_worker_pool_begin_run(void *launcher, int count, pl_error_t *err);
void pl_worker_pool_end_run(pl_worker_pool_t *pool);

/* Where its processes look for the launcher. */
const char *pl_worker_pool_folder(const pl_worker_pool_t *pool);
/* Which incarnation the next of its runs is. */
uint32_t pl_worker_pool_incarnation(const pl_worker_pool_t *pool);
/* It took as many as that. */
void pl_worker_pool_advance(pl_worker_pool_t *pool, uint32_t incarnation);

/* A rank's process, which is started if there is none yet; from now on its lines and its
 * death are reported as the spec says.  PL_EDIED: it is gone since an earlier run, and
 * what came of that is not known. */
pl_supervisor_t *pl_worker_pool_acquire(pl_worker_pool_t *pool, int rank,
                                        const pl_process_spec_t *spec, pl_error_t *err);
/* Unless another has acquired it. */
void pl_worker_pool_return(pl_worker_pool_t *pool, int rank, const void *user);

/* Records the result of the run that has just ended, as pl_result_broadcast_outcome()
 * says; a line in the log when that cannot be. */
void pl_worker_pool_record(pl_worker_pool_t *pool, const pl_blob_t *outcome,
                           const pl_error_t *failed);
/* How many of its runs are over. */
int pl_worker_pool_past_runs(const pl_worker_pool_t *pool);
/* Whether its processes may be started again: all results were recorded. */
bool pl_worker_pool_has_history(const pl_worker_pool_t *pool);
/* Kills them all; false: some still live. */
bool pl_worker_pool_kill(pl_worker_pool_t *pool);

/* A new engine, which belongs to a rank if the process is a worker of a pool: its
 * threads and its part of the stream go with the program's. */
void pl_worker_pool_enter(pl_runtime_t *runtime);
/* The engine ends: true when there are processes that have not come to their end, which
 * have some seconds for that; then `then` is called, and asks again. */
bool pl_worker_pool_ends(const pl_runtime_t *runtime, void (*then)(void *user),
                         void *user);

#endif
