/* actor.h - the accelerator actor: a device on a thread of its own, driven by messages */
#ifndef PL_ACCELERATORS_ACTOR_H
#define PL_ACCELERATORS_ACTOR_H

#include "accelerators/accelerator.h"
#include "runtime/actor.h"
#include "runtime/payload.h"

/* The actor for the device kind that is registered as `name`; its name in the stream
 * is, for example, "accelerator.cpu". The context of `start` is the pl_job_t whose
 * trainer.accelerator selects the device.  NULL: PL_ENOTFOUND, PL_EBUSY. */
const pl_actor_ops_t *pl_accelerator_actor(const char *name, pl_error_t *err);

/* Whether a device kind answers measure_device. */
bool pl_accelerator_measures(const char *name);
/* The kind of memory that a device kind registers, or NULL. */
const char *pl_accelerator_memory_kind(const char *name);
/* Whether a device kind has details of its plans for describe_plans. */
bool pl_accelerator_describes(const char *name);
/* Whether a device kind can keep compiled kernels, by its option "cache". */
bool pl_accelerator_keeps_kernels(const char *name);

/* Describes the device of a job by opening it for a moment, as rank `local_rank` of
 * `ranks` ranks of this machine. */
int pl_accelerator_describe(const pl_job_t *job, int ranks, int local_rank,
                            pl_device_info_t *info, pl_error_t *err);

#endif
