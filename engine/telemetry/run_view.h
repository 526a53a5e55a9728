/* run_view.h - the runs of an engine: what the page, /metrics and the topic "state" show
 *
 * There is one for each engine.  While nothing shows it, it has of each active run only
 * what the engine itself reports: so a page that opens later knows the run's name,
 * options, step and pause.  While something shows it, it takes every message of the
 * stream.  Its memory is bounded. */
#ifndef PL_TELEMETRY_RUN_VIEW_H
#define PL_TELEMETRY_RUN_VIEW_H

#include "runtime/tap.h"

typedef struct pl_run_view pl_run_view_t;

/* began: pl_now() at the zero of the stream's time. */
pl_run_view_t *pl_run_view_new(int64_t began, pl_error_t *err);
void pl_run_view_free(pl_run_view_t *view);

/* ---- the engine's control thread: a run begins, reports, pauses or continues after a
 * step, and ends; call: the engine's call of the run ---- */

void pl_run_view_begin(pl_run_view_t *view, uint64_t call);
void pl_run_view_report(pl_run_view_t *view, uint64_t call,
                        const pl_run_progress_t *report);
void pl_run_view_pause(pl_run_view_t *view, uint64_t call, bool pauses,
                       uint64_t global_step);
void pl_run_view_end(pl_run_view_t *view, uint64_t call);

/* ---- any thread ---- */

/* Something shows it from now on; no longer. */
void pl_run_view_open(pl_run_view_t *view);
void pl_run_view_close(pl_run_view_t *view);

/* A message; messages are missing; a line of the log. */
void pl_run_view_record(pl_run_view_t *view, const pl_tap_record_t *record);
void pl_run_view_gap(pl_run_view_t *view, uint64_t count);
void pl_run_view_log(pl_run_view_t *view, pl_log_level_t level, int rank,
                     const char *actor, const char *text);

/* The number of active runs. */
int pl_run_view_living(pl_run_view_t *view);

/* Items after `since` [0: all] and the newest value of everything else, as a JSON object.
 * *until is the number of its last item.  more: whether there are more points than one
 * object holds  [NULL].  pl_text_free() frees it; NULL: out of memory. */
char *pl_run_view_json(pl_run_view_t *view, uint64_t since, uint64_t *until, bool *more);

/* Everything in one object, with at most 1000 points of each run; as above. */
char *pl_run_view_state(pl_run_view_t *view);

/* Prometheus' text format, version 0.0.4; as above. */
char *pl_run_view_metrics(pl_run_view_t *view);

/* Publishes it to the subscribers of the topic "state", four times a second and when the
 * stream ends (doc/formats.md).  The view must outlive the stream. */
int pl_run_view_publish(pl_run_view_t *view, pl_runtime_t *runtime, pl_error_t *err);
/* The hub's thread: whether the subscribers of "state" bring it the messages. */
bool pl_run_view_is_fed(const pl_run_view_t *view);

#endif
