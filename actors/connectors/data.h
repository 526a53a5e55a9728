/* data.h - the data connector: batches for the loops */
#ifndef PL_CONNECTORS_DATA_H
#define PL_CONNECTORS_DATA_H

#include "runtime/actor.h"

/* `start`: context is the pl_job_t whose "data" and "trainer.seed" are meant. */
extern const pl_actor_ops_t pl_data_connector;

#endif
