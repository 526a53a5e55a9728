/* run_registry.h - the active runs of an engine, for pages that open later
 *
 * A stream without subscribers sends nothing: one that connects in the middle of a
 * run has missed its name, its options, its beginning, and the report before a pause. */
#ifndef PL_TELEMETRY_RUN_REGISTRY_H
#define PL_TELEMETRY_RUN_REGISTRY_H

#include <pthread.h>

#include "runtime/message.h"

enum { PL_RUN_REGISTRY_RUNS = 16, PL_RUN_REGISTRY_METRICS = 2048 };

typedef struct pl_registered_run {
    uint64_t call;                                /* by which it was asked for; 0: free */
    uint64_t number;                              /* of the engine's runs, from 1 */
    int64_t began, paused;                        /* ns, as pl_now(); of pauses before */
    int64_t paused_at;                            /* since when  [it is not] */
    int64_t reported_at;                          /* when the report came */
    pl_run_progress_t report;                     /* the newest that tells something, its
                                                     texts below */
    char dir[256], module[48], metrics[PL_RUN_REGISTRY_METRICS];
    char *options;                                          /* JSON  [NULL: unknown] */
} pl_registered_run_t;

typedef struct pl_run_registry {
    pthread_mutex_t lock;
    uint64_t begun;                                         /* runs there have been */
    pl_registered_run_t run[PL_RUN_REGISTRY_RUNS];          /* of more nothing is known */
} pl_run_registry_t;

void pl_run_registry_init(pl_run_registry_t *registry);
void pl_run_registry_release(pl_run_registry_t *registry);

/* Any thread, each of these.  A run of that call begins, reports, pauses or goes on
 * behind a step, and ends. */
void pl_run_registry_begin(pl_run_registry_t *registry, uint64_t call);
void pl_run_registry_report(pl_run_registry_t *registry, uint64_t call,
                            const pl_run_progress_t *report);
void pl_run_registry_pause(pl_run_registry_t *registry, uint64_t call, bool pauses,
                           uint64_t global_step);
void pl_run_registry_end(pl_run_registry_t *registry, uint64_t call);

/* Each run that goes on, in the order in which they began; take() is not to wait.  -> how
 * many there have been in all. */
uint64_t pl_run_registry_each(pl_run_registry_t *registry,
                              void (*take)(void *user, const pl_registered_run_t *run),
                              void *user);

#endif
