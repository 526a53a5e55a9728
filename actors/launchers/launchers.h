/* launchers.h - the launchers that are built in: how ranks are started, watched and ended
 *
 * A launcher is an actor of level LAUNCHER that takes `run` and `stop`; the reply to
 * `run` is rank zero's result. Registered by name like a user's own. */
#ifndef PL_LAUNCHERS_H
#define PL_LAUNCHERS_H

#include "runtime/actor.h"

extern const pl_actor_ops_t pl_external_launcher;
extern const pl_actor_ops_t pl_inline_launcher;
extern const pl_actor_ops_t pl_script_launcher;
extern const pl_actor_ops_t pl_spawn_launcher;

#endif
