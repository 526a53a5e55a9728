/* host.h - what is inside an engine, for tests: programs see paceline.h only */
#ifndef PL_ACTORS_HOST_H
#define PL_ACTORS_HOST_H

#include "runtime/reactor.h"

/* What all threads of an engine share.  To be changed only before its first trainer
 * runs. */
pl_runtime_t *pl_engine_runtime(pl_engine_t *engine);

#endif
