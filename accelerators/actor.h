/* actor.h - the accelerator actor: a device on a thread of its own, driven by messages */
#ifndef PL_ACCELERATORS_ACTOR_H
#define PL_ACCELERATORS_ACTOR_H

#include "runtime/actor.h"

/* `start`: context is the pl_job_t whose trainer.accelerator says which device. */
extern const pl_actor_ops_t pl_accelerator_actor;

#endif
