/* trace.h - a trace of actors, calls and steps, as Perfetto opens it */
#ifndef PL_TELEMETRY_TRACE_H
#define PL_TELEMETRY_TRACE_H

#include "runtime/tap.h"

/* A tap that writes one, until the stream ends. */
int pl_trace_tap(pl_runtime_t *runtime, const char *path, pl_error_t *err);

#endif
