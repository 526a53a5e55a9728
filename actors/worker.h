/* worker.h - the worker: the actors of one rank, and its one address */
#ifndef PL_WORKER_H
#define PL_WORKER_H

#include "runtime/actor.h"

/* Accepts `run` once, and `stop`.  Its `start` needs no context and no peers. */
PL_API extern const pl_actor_ops_t pl_worker;

#endif
