/* state.h - the state of an engine's runs, told in its stream to those who want that
 * alone */
#ifndef PL_TELEMETRY_STATE_H
#define PL_TELEMETRY_STATE_H

#include "runtime/runtime.h"
#include "telemetry/run_registry.h"

/* From now on whoever subscribes to the topic "state" gets it four times a second, and
 * once more when the stream ends; doc/formats.md has its form.  registry: what there was
 * before somebody did; it lasts as long as the runtime. */
int pl_state_tap(pl_runtime_t *runtime, pl_run_registry_t *registry, pl_error_t *err);

#endif
