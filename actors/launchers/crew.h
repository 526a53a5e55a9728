/* crew.h - processes that run the program's script, and stay from one of its runs to the
 * next
 *
 * Each goes through the whole program: what the program does for the k-th time they do
 * for the k-th time.  So they are started with its first run; one that takes the place of
 * another later is told what the runs before have come to.  They belong to an engine; all
 * on its control thread. */
#ifndef PL_LAUNCHERS_CREW_H
#define PL_LAUNCHERS_CREW_H

#include "runtime/bulk.h"
#include "runtime/process.h"
#include "runtime/runtime.h"

typedef struct pl_crew pl_crew_t;

/* The engine's, for a run of a launcher that is at work with it from now on.  PL_ESTATE:
 * another one is; PL_EINVAL: it has another number of processes. */
pl_crew_t *pl_crew_take(void *launcher, int count, pl_error_t *err);
void pl_crew_leave(pl_crew_t *crew);

/* Where its processes look for the launcher. */
const char *pl_crew_folder(const pl_crew_t *crew);
/* Which incarnation the next of its runs is. */
uint32_t pl_crew_incarnation(const pl_crew_t *crew);
/* It took as many as that. */
void pl_crew_came_to(pl_crew_t *crew, uint32_t incarnation);

/* A rank's process, which is started if there is none yet; from now on what it says and
 * its death are told as the spec says.  PL_EDIED: it is gone since an earlier run, and
 * what came of that is not known. */
pl_process_t *pl_crew_hire(pl_crew_t *crew, int rank, const pl_process_spec_t *spec,
                           pl_error_t *err);
/* Unless somebody else has hired it. */
void pl_crew_dismiss(pl_crew_t *crew, int rank, const void *user);

/* Notes what the run that is over now came to, as pl_result_broadcast_outcome() says;
 * a line in the log when that cannot be. */
void pl_crew_note(pl_crew_t *crew, const pl_blob_t *outcome, const pl_error_t *failed);
/* How many of its runs are over. */
int pl_crew_past(const pl_crew_t *crew);
/* Whether its processes may be started anew: all that is over was noted. */
bool pl_crew_knows_past(const pl_crew_t *crew);
/* Kills them all; false: some still live. */
bool pl_crew_kill(pl_crew_t *crew);

/* A new engine, which belongs to a rank if the process is one of a crew: its threads and
 * its part of the stream go with the program's. */
void pl_crew_enter(pl_runtime_t *runtime);
/* The engine ends: true when there are processes that have not come to their end, which
 * have some seconds for that; then `then` is called, and asks again. */
bool pl_crew_ends(const pl_runtime_t *runtime, void (*then)(void *user), void *user);

#endif
