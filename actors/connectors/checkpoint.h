/* checkpoint.h - the checkpoint connector: keeps the weights of a run */
#ifndef PL_CONNECTORS_CHECKPOINT_H
#define PL_CONNECTORS_CHECKPOINT_H

#include "runtime/actor.h"

/* `start`: options are {"run_dir": …}, or empty when nothing is to be saved; peers has a
 * "writer". */
extern const pl_actor_ops_t pl_checkpoint_connector;

#endif
