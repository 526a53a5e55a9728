/* callback.h - the callback connector: asks the run's callbacks */
#ifndef PL_CONNECTORS_CALLBACK_H
#define PL_CONNECTORS_CALLBACK_H

#include "runtime/actor.h"

/* `start`: context is the pl_job_t whose "callbacks" are meant. */
extern const pl_actor_ops_t pl_callback_connector;

#endif
