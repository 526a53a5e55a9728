/* trainer.h - the trainer: a run, its state and its result */
#ifndef PL_TRAINER_H
#define PL_TRAINER_H

#include "runtime/actor.h"

/* Accepts `run` any number of times, one at a time, `stop` and `control`. */
extern const pl_actor_ops_t pl_trainer_actor;

#endif
