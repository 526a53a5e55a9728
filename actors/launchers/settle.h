/* settle.h - the end of a run, told to every rank whose process waits for it */
#ifndef PL_LAUNCHERS_SETTLE_H
#define PL_LAUNCHERS_SETTLE_H

#include "actors/launchers/wires.h"
#include "runtime/cargo.h"

typedef struct pl_settling pl_settling_t;

/* For a launcher whose stand-ins have all ended: tells the outcome, or the error, to all
 * ranks that are there.  NULL: out of memory. */
pl_settling_t *pl_settle_new(void *launcher, pl_wires_t *wires, int count,
                             const pl_outcome_t *outcome, const pl_error_t *error,
                             void (*done)(void *launcher), pl_error_t *err);
/* From now on done() is called once, perhaps at once, when all have it and have left, or
 * are gone. */
void pl_settle_wait(pl_settling_t *settle);
void pl_settle_free(pl_settling_t *settle);

#endif
