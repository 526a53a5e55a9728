/* scribe.h - writes what the processes of ranks say to files, on a thread of its own */
#ifndef PL_LAUNCHERS_SCRIBE_H
#define PL_LAUNCHERS_SCRIBE_H

#include "runtime/actor.h"

/* Takes `append_log`. */
extern const pl_actor_ops_t pl_scribe;

#endif
