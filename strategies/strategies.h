/* strategies.h - the strategies that are built in
 *
 * A strategy is an actor of level STRATEGY; its start has the address of an
 * "accelerator".  It is registered by name, like a user's own strategy, which may name
 * one of these as its base.  doc/extending.md lists the messages that it must accept. */
#ifndef PL_STRATEGIES_H
#define PL_STRATEGIES_H

#include "runtime/actor.h"

#ifdef __cplusplus
extern "C" {
#endif

extern PL_API const pl_actor_ops_t pl_ddp_strategy, pl_elastic_strategy,
    pl_local_sgd_strategy, pl_single_strategy, pl_zero1_strategy;

#ifdef __cplusplus
}
#endif

#endif
