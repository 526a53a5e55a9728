/* worker.h - the worker: one rank's actors, and their one address */
#ifndef PL_WORKER_H
#define PL_WORKER_H

#include "runtime/actor.h"

/* Takes `run` once, and `stop`.  No context or peers are needed for its `start`. */
PL_API extern const pl_actor_ops_t pl_worker;

/* Why a launcher stops a run that it is to start again: nobody asked for it. */
#define PL_OTHER_RANKS "the run continues with other ranks"

#endif
