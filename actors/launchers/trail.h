/* trail.h - where the runs of a job have their folders, for when it is started again
 *
 * A process that is started in the place of one that has died goes through its program
 * from the beginning.  What its k-th training had come to is found by this file, which
 * PACELINE_TRAIL names and only rank zero reads and writes. */
#ifndef PL_LAUNCHERS_TRAIL_H
#define PL_LAUNCHERS_TRAIL_H

#include "paceline.h"

/* The folder of that run, from 1, to be freed; NULL: none was noted, or, with an error,
 * memory is out. */
char *pl_trail_find(int run, pl_error_t *err);
/* Notes it; a line in the log when that cannot be. */
void pl_trail_note(int run, const char *folder);

#endif
