/* logger.h - the logger connector: figures into the run's files */
#ifndef PL_CONNECTORS_LOGGER_H
#define PL_CONNECTORS_LOGGER_H

#include "runtime/actor.h"

/* `start`: options are {"run_dir": …}; the context is the pl_job_t; peers has a
 * "writer". */
extern const pl_actor_ops_t pl_logger_connector;

#endif
