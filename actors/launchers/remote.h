/* remote.h - a worker that is elsewhere: stands in for a rank in another process */
#ifndef PL_LAUNCHERS_REMOTE_H
#define PL_LAUNCHERS_REMOTE_H

#include "runtime/actor.h"

/* Takes `run`, `join` and `stop` as a worker does, and its `start` ends when the process
 * has.  Option "rank"; the context of its start is the launcher's pl_wires_t. */
extern const pl_actor_ops_t pl_remote;

#endif
