/* actor.h - the collective actor: moves bytes among ranks, on a thread of its own,
 * driven by messages */
#ifndef PL_COLLECTIVES_ACTOR_H
#define PL_COLLECTIVES_ACTOR_H

#include "runtime/actor.h"
#include "strategies/collectives/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The context of `start`: which collective, and what it is opened with. */
typedef struct pl_collective_component {
    pl_object_t object;
    pl_instance_t component;                       /* pl_collective_ops_t */
    pl_collective_context_t context;               /* text and key belong to the object */
} pl_collective_component_t;

/* Takes ownership of `component`, also on failure, and copies the context  [loopback,
 * without a key]. */
PL_API pl_collective_component_t *pl_collective_component_new(
    pl_instance_t *component, const pl_collective_context_t *context, pl_error_t *err);

/* The actor table of the collective `name`, as the registry spells it:
 * "collective.shm" in the stream. Start it on a thread of its own.
 *
 * When it is ready, its `start` reports the address that `join` of all ranks needs.
 * It does all other calls one at a time, in the order of their arrival. A call that
 * fails, or that is cancelled because its limit has passed, ends all calls that
 * follow, on all ranks; its error names the ranks that arrived and those that did not.
 * NULL: PL_ENOTFOUND, PL_EBUSY. */
PL_API const pl_actor_ops_t *pl_collective_actor(const char *name, pl_error_t *err);

#ifdef __cplusplus
}
#endif

#endif
