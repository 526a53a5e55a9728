/* launchers.h - the launchers that are built in, and the process of a rank
 *
 * A launcher is an actor of level LAUNCHER that accepts `run` and `stop`; the reply to
 * `run` is the result of rank zero.  All are registered by name, as those of users. */
#ifndef PL_LAUNCHERS_H
#define PL_LAUNCHERS_H

#include "runtime/actor.h"

extern const pl_actor_ops_t pl_external_launcher;
extern const pl_actor_ops_t pl_inline_launcher;
extern const pl_actor_ops_t pl_script_launcher;
extern const pl_actor_ops_t pl_spawn_launcher;

/* For pl_init(): if a launcher has started this process as a rank, it is one until its
 * end, and this never returns.  If it executes the program for a rank, that is noted. */
void pl_entry_if_rank(void);

#endif
