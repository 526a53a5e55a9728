/* checkpoint.h - the checkpoint connector: checkpoints of a run, and its last weights
 *
 * It says what a checkpoint holds and which older ones it takes the place of; the writers
 * below it (checkpoint_io.h, writer.h) know the disk. */
#ifndef PL_CONNECTORS_CHECKPOINT_H
#define PL_CONNECTORS_CHECKPOINT_H

#include "runtime/actor.h"

/* `start`: options are {"run_dir": …}, or empty when nothing is to be saved: saves then
 * fail with PL_ESTATE; the context is the pl_job_t.  Peers are a "writer" for the weights
 * and a "keeper" (io.checkpoint) for checkpoints. */
extern const pl_actor_ops_t pl_checkpoint_connector;

#endif
