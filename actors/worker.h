/* worker.h - the worker: the actors of one rank, and its one address */
#ifndef PL_WORKER_H
#define PL_WORKER_H

#include "runtime/actor.h"

/* Accepts `run` once, and `stop`.  Its `start` needs no context and no peers. */
PL_API extern const pl_actor_ops_t pl_worker;

/* The reason for which a launcher stops a run that it starts again; no user asked for
 * it. */
#define PL_OTHER_RANKS "the run continues with other ranks"

#endif
