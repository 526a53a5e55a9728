/* taps.h - files that taps of the stream write, until it ends */
#ifndef PL_TELEMETRY_TAPS_H
#define PL_TELEMETRY_TAPS_H

#include "runtime/tap.h"

/* Every message, for pl_journal_open() (journal.h). */
int pl_journal_tap(pl_runtime_t *runtime, const char *path, pl_error_t *err);
/* Actors, calls and steps, as Perfetto opens them. */
int pl_trace_tap(pl_runtime_t *runtime, const char *path, pl_error_t *err);

#endif
