/* recorder.h - the actor that hands metrics to one logger, on a thread of its own */
#ifndef PL_CONNECTORS_RECORDER_H
#define PL_CONNECTORS_RECORDER_H

#include "runtime/actor.h"

/* `start`: the context is the pl_log_component_t. */
extern const pl_actor_ops_t pl_io_recorder;

#endif
