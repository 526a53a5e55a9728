/* actor.h - the accelerator actor: a device on a thread of its own, driven by messages */
#ifndef PL_ACCELERATORS_ACTOR_H
#define PL_ACCELERATORS_ACTOR_H

#include "accelerators/accelerator.h"
#include "runtime/actor.h"
#include "runtime/payload.h"

/* The table of the actor for a device kind of that name, which is the registry's:
 * "accelerator.cpu" in the stream. `start`: context is the pl_job_t whose
 * trainer.accelerator says which device.  NULL: PL_ENOTFOUND, PL_EBUSY. */
const pl_actor_ops_t *pl_accelerator_actor(const char *name, pl_error_t *err);

/* Whether devices of that kind answer measure_device. */
bool pl_accelerator_measures(const char *name);

/* The kind of memory that they register, or NULL. */
const char *pl_accelerator_memory_kind(const char *name);

/* Whether they know anything of their plans for describe_plans. */
bool pl_accelerator_describes(const char *name);

/* Whether they can keep compiled kernels, by an option: "cache". */
bool pl_accelerator_keeps_kernels(const char *name);

/* What the device of a job is, by opening it for a moment: of one among so many ranks on
 * this machine. */
int pl_accelerator_describe(const pl_job_t *job, int ranks, int local_rank,
                            pl_device_info_t *info, pl_error_t *err);

#endif
