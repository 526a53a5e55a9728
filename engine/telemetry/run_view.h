/* run_view.h - what the stream has said by now, in bounded memory: what the page and the
 * metrics are made of */
#ifndef PL_TELEMETRY_RUN_VIEW_H
#define PL_TELEMETRY_RUN_VIEW_H

#include "runtime/tap.h"
#include "telemetry/run_registry.h"

typedef struct pl_run_view pl_run_view_t;

/* began: the runtime's, the zero of the stream's time. */
pl_run_view_t *pl_run_view_new(int64_t began, pl_error_t *err);
void pl_run_view_free(pl_run_view_t *view);

/* What a tap of the hub gets.  Any thread, each of these: they share a lock. */
void pl_run_view_record(pl_run_view_t *view, const pl_tap_record_t *record);
void pl_run_view_gap(pl_run_view_t *view, uint64_t count);
void pl_run_view_log(pl_run_view_t *view, pl_log_level_t level, int rank,
                     const char *actor, const char *text);

/* Runs that have gone on since before the run view was there, and how many there were;
 * before anything is recorded. */
void pl_run_view_recall(pl_run_view_t *view, pl_run_registry_t *registry);

/* How many runs go on. */
int pl_run_view_living(pl_run_view_t *view);

/* Items behind `since` (0: from the first on) with the newest of everything else, as a
 * JSON object; *until is the number of its last item.  more: there are more points behind
 * it than one object holds  [NULL].  pl_text_free() frees it; NULL: out of memory. */
char *pl_run_view_json(pl_run_view_t *view, uint64_t since, uint64_t *until, bool *more);

/* All of it in one object, with at most a thousand points of each run; as above. */
char *pl_run_view_state(pl_run_view_t *view);

/* In Prometheus' text format, version 0.0.4; as above. */
char *pl_run_view_metrics(pl_run_view_t *view);

#endif
