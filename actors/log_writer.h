/* log_writer.h - an actor that appends texts to files, on a thread of its own */
#ifndef PL_LOG_WRITER_H
#define PL_LOG_WRITER_H

#include "runtime/actor.h"

/* Accepts `append_log`.  `start`: needs nothing.  Also the base of pl_io_writer. */
extern const pl_actor_ops_t pl_log_writer;

#endif
