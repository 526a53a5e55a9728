/* logger.h - the logger connector: metrics to the run's loggers */
#ifndef PL_CONNECTORS_LOGGER_H
#define PL_CONNECTORS_LOGGER_H

#include "runtime/actor.h"

/* `start`: options are {"run_dir": …}; the context is the pl_job_t. */
extern const pl_actor_ops_t pl_logger_connector;

#endif
