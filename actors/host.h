/* host.h - what is inside an engine, for tests and what is started with one: programs see
 * paceline.h only */
#ifndef PL_ACTORS_HOST_H
#define PL_ACTORS_HOST_H

#include "runtime/reactor.h"
#include "sight/commander.h"

/* What all threads of an engine share.  To be changed only before its first trainer
 * runs. */
pl_runtime_t *pl_engine_runtime(pl_engine_t *engine);

/* Through which its runs take commands from elsewhere, such as a page's buttons. */
pl_commander_t pl_engine_commander(pl_engine_t *engine);

#endif
