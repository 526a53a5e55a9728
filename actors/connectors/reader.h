/* reader.h - the actor that opens data sets and reads samples, on a thread of its own */
#ifndef PL_CONNECTORS_READER_H
#define PL_CONNECTORS_READER_H

#include "runtime/actor.h"

/* `start`: needs nothing. */
extern const pl_actor_ops_t pl_io_reader;

#endif
