/* profile.h - the time of a rank: how long handlers run, by stage, actor and message
 *
 * A profile belongs to a thread and to the threads that are started from it.  Handlers
 * never interrupt each other, so a row counts the time of its handler alone.  In the rest
 * of its time a thread waits. */
#ifndef PL_TELEMETRY_PROFILE_H
#define PL_TELEMETRY_PROFILE_H

#include "paceline.h"

/* Counts from now on, on the thread of the actor `self` and on threads that it starts. */
int pl_profile_start(void *self, pl_error_t *err);

/* Writes the table to the log, by stage of the run, longest total first  [no profile
 * was started: nothing]. */
void pl_profile_log(void *self);

#endif
