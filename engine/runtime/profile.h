/* profile.h - where the time of a rank goes: how long handlers run, by actor and message
 *
 * A profile belongs to a thread and to those that were started from it.  Handlers are
 * never interrupted by each other, so what is counted is the time of that handler alone;
 * what is left of a thread's time it waited. */
#ifndef PL_RUNTIME_PROFILE_H
#define PL_RUNTIME_PROFILE_H

#include <pthread.h>

#include "runtime/actor.h"

enum { PL_PROFILE_ROWS = 256, PL_PROFILE_WHAT = 24 };

typedef struct pl_profile_row {
    int stage;                                  /* of the run: a pl_stage_t, or another */
    uint32_t kind, message;
    bool answer;                             /* to a call of the actor's, not one to it */
    char what[PL_PROFILE_WHAT];              /* "forward_backward"  [""] */
    uint64_t count;
    int64_t total, longest;                                 /* ns */
} pl_profile_row_t;

typedef struct pl_profile {
    pl_object_t object;
    pthread_mutex_t lock;
    int64_t began;
    int count;
    pl_profile_row_t row[PL_PROFILE_ROWS];
} pl_profile_t;

pl_profile_t *pl_profile_new(pl_error_t *err);

/* The row of an actor's handler of such a call, or of its answers, which pl_profile_add()
 * adds to when it has run; NULL when there is no profile or no room.  Any thread. */
pl_profile_row_t *pl_profile_row(pl_profile_t *profile, uint32_t kind, uint32_t message,
                                 const void *fields, bool answer);
void pl_profile_add(pl_profile_t *profile, pl_profile_row_t *row, int64_t time);

/* A table as log lines of the actor `self`, by part of the run, longest first. */
void pl_profile_log(pl_profile_t *profile, void *self);

#endif
