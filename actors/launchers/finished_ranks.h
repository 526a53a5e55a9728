/* finished_ranks.h - which ranks of a job have ended well, for those that wait for them
 *
 * paceline launch cannot know whether its programs have anything to do with each other:
 * one that ends with status 0 fails nobody.  Ranks that wait for it to join can, and find
 * out by this file, which PACELINE_FINISHED_RANKS names and each node has. */
#ifndef PL_LAUNCHERS_FINISHED_RANKS_H
#define PL_LAUNCHERS_FINISHED_RANKS_H

#include "paceline.h"

/* Adds one, with a line of text; a lost line costs only time. */
void pl_finished_ranks_add(const char *file, int rank, const char *text);
/* Whether the rank has ended, and the text about it. */
bool pl_finished_ranks_find(int rank, char *text, size_t capacity);
/* Whether this job reports them. */
bool pl_finished_ranks_are_reported(void);

#endif
