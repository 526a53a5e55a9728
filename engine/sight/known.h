/* known.h - what an engine keeps of its active runs, for pages that open later
 *
 * A stream without subscribers sends nothing: one that connects in the middle of a
 * run has missed its name, its options, its beginning, and the report before a pause. */
#ifndef PL_SIGHT_KNOWN_H
#define PL_SIGHT_KNOWN_H

#include <pthread.h>

#include "runtime/message.h"

enum { PL_KNOWN_RUNS = 16, PL_KNOWN_METRICS = 2048 };

typedef struct pl_known_run {
    uint64_t call;                                /* by which it was asked for; 0: free */
    uint64_t number;                              /* of the engine's runs, from 1 */
    int64_t began, paused;                        /* ns, as pl_now(); of pauses before */
    int64_t paused_at;                            /* since when  [it is not] */
    int64_t told;                                 /* when the report came */
    pl_run_progress_t report;                     /* the newest that tells something, its
                                                     texts below */
    char event[16], dir[256], module[48], metrics[PL_KNOWN_METRICS];
    char *options;                                          /* JSON  [NULL: unknown] */
} pl_known_run_t;

typedef struct pl_known {
    pthread_mutex_t lock;
    uint64_t begun;                                         /* runs there have been */
    pl_known_run_t run[PL_KNOWN_RUNS];                      /* of more nothing is known */
} pl_known_t;

void pl_known_init(pl_known_t *known);
void pl_known_release(pl_known_t *known);

/* Any thread, each of these.  A run of that call begins, reports, pauses or goes on
 * behind a step, and ends. */
void pl_known_begin(pl_known_t *known, uint64_t call);
void pl_known_report(pl_known_t *known, uint64_t call, const pl_run_progress_t *report);
void pl_known_pause(pl_known_t *known, uint64_t call, bool pauses, uint64_t global_step);
void pl_known_end(pl_known_t *known, uint64_t call);

/* Each run that goes on, in the order in which they began; take() is not to wait.  -> how
 * many there have been in all. */
uint64_t pl_known_each(pl_known_t *known,
                       void (*take)(void *user, const pl_known_run_t *run), void *user);

#endif
