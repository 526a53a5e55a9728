/* worker.h - the worker: one rank's actors, and their one address */
#ifndef PL_WORKER_H
#define PL_WORKER_H

#include "runtime/actor.h"

/* Takes `run` once, and `stop`.  No context or peers are needed for its `start`. */
PL_API extern const pl_actor_ops_t pl_worker;

#endif
