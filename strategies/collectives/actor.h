/* actor.h - the collective actor: what moves bytes among ranks, on a thread of its own,
 * driven by messages */
#ifndef PL_COLLECTIVES_ACTOR_H
#define PL_COLLECTIVES_ACTOR_H

#include "runtime/actor.h"
#include "strategies/collectives/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The context of `start`: which collective, and where this rank sits. */
typedef struct pl_collective_component {
    pl_object_t object;
    pl_instance_t component;                                /* pl_collective_ops_t */
    pl_collective_context_t context;                        /* its text and key are the
                                                               object's */
} pl_collective_component_t;

/* Takes the part over, also on failure, and copies the context [on loopback, without a
 * key]. */
PL_API pl_collective_component_t *pl_collective_component_new(
    pl_instance_t *component, const pl_collective_context_t *context, pl_error_t *err);

/* The table of the actor for a collective of that name, which is the registry's:
 * "collective.shm" in the stream; to be started on a thread of its own.
 *
 * Its `start` tells, when it is ready, the address that `join` of all ranks must be told.
 * All other calls are done in the order they came, one at a time.  A call that fails, or
 * that is cancelled because its limit has passed, ends all that follow, here and on the
 * other ranks; its error names the ranks that had come and those that had not.
 * NULL: PL_ENOTFOUND, PL_EBUSY. */
PL_API const pl_actor_ops_t *pl_collective_actor(const char *name, pl_error_t *err);

#ifdef __cplusplus
}
#endif

#endif
