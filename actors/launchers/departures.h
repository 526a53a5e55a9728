/* departures.h - which ranks of a job have ended well, for those that wait for them
 *
 * paceline launch cannot know whether its programs have anything to do with each other:
 * one that ends with status 0 fails nobody.  Ranks that wait for it to join can, and find
 * out by this file, which PACELINE_DEPARTURES names and each node has. */
#ifndef PL_LAUNCHERS_DEPARTURES_H
#define PL_LAUNCHERS_DEPARTURES_H

#include "paceline.h"

/* Notes one, with a line of text; a lost line costs time alone. */
void pl_departures_note(const char *file, int rank, const char *text);
/* Whether the rank has ended, and what was said of that. */
bool pl_departures_find(int rank, char *text, size_t capacity);
/* Some may be told of later. */
bool pl_departures_are_told(void);

#endif
