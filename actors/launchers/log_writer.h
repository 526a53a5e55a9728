/* log_writer.h - writes the output of rank processes to files, on a thread of its own */
#ifndef PL_LAUNCHERS_LOG_WRITER_H
#define PL_LAUNCHERS_LOG_WRITER_H

#include "runtime/actor.h"

/* Takes `append_log`. */
extern const pl_actor_ops_t pl_log_writer;

#endif
