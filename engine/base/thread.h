/* thread.h - starts threads of the engine */
#ifndef PL_BASE_THREAD_H
#define PL_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

#include "paceline.h"

/* Starts a thread that runs main(argument).  Debuggers show the name (15 bytes of it).
 * The thread blocks all signals but those in `open`, because signals belong to the
 * program's threads  [blocks all].  PL_ENOMEM: no memory for a stack; PL_EBUSY: too many
 * threads. */
int pl_thread_start(pthread_t *thread, const char *name, const sigset_t *open,
                    void *(*main)(void *argument), void *argument, pl_error_t *err);

#endif
