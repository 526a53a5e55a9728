/* state.h - the state of an engine's runs, told in its stream to those who want that
 * alone */
#ifndef PL_SIGHT_STATE_H
#define PL_SIGHT_STATE_H

#include "runtime/runtime.h"
#include "sight/known.h"

/* From now on whoever subscribes to the topic "state" gets it four times a second, and
 * once more when the stream ends; doc/formats.md has its form.  known: what there was
 * before somebody did; it lasts as long as the runtime. */
int pl_state_tap(pl_runtime_t *runtime, pl_known_t *known, pl_error_t *err);

#endif
