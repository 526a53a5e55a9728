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

/* Properties of a device kind; zeros: it is not registered. */
typedef struct pl_accelerator_traits {
    const char *memory_kind;               /* of its memory for collectives  [none] */
    bool measures;                         /* it answers measure_device */
    bool describes;                        /* its plans have details for describe_plans */
    bool keeps_kernels;                    /* its option "cache" keeps compiled kernels */
} pl_accelerator_traits_t;

pl_accelerator_traits_t pl_accelerator_traits(const char *name);

/* Describes the device of a job by opening it for a moment, as rank `local_rank` of
 * `ranks` ranks of this machine. */
int pl_accelerator_describe(const pl_job_t *job, int ranks, int local_rank,
                            pl_device_info_t *info, pl_error_t *err);

#endif
