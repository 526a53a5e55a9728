/* connectors.h - the actors between loops and the outer world: data, checkpoints, loggers
 * and callbacks
 *
 * The four connectors decide; the readers, recorders and writers below them may block,
 * each on a thread of its own.  writer.h and checkpoint_io.h declare the writers. */
#ifndef PL_CONNECTORS_CONNECTORS_H
#define PL_CONNECTORS_CONNECTORS_H

#include "runtime/actor.h"

/* Batches for the loops.  `start`: the context is the pl_job_t. */
extern const pl_actor_ops_t pl_data_connector;

/* Opens data sets and reads samples for the data connector.  `start` needs nothing. */
extern const pl_actor_ops_t pl_io_reader;

/* Checkpoints of a run, and its last weights.  `start`: the options are {"run_dir":
 * …}, or empty when nothing is to be saved: then saves fail with PL_ESTATE.  The
 * context is the pl_job_t.  Peers are a "writer" for the weights and a "checkpoint_io"
 * (io.checkpoint) for checkpoints. */
extern const pl_actor_ops_t pl_checkpoint_connector;

/* Metrics for the run's loggers.  `start`: the options are {"run_dir": …}; the context is
 * the pl_job_t. */
extern const pl_actor_ops_t pl_logger_connector;

/* Gives metrics to one logger, for the logger connector.  `start`: the context is the
 * pl_log_component_t. */
extern const pl_actor_ops_t pl_io_recorder;

/* Calls the run's callbacks.  `start`: the context is the pl_job_t. */
extern const pl_actor_ops_t pl_callback_connector;

/* The run file lists a callback of that name. */
bool pl_callback_is_listed(const pl_options_t *options, const char *name);

#endif
