/* watchdog.h - how long a loop waits for the next result: trainer.step_timeout
 *
 * Each result only sets a time; a timer checks now and then whether that is too long
 * ago. */
#ifndef PL_LOOPS_WATCHDOG_H
#define PL_LOOPS_WATCHDOG_H

#include "runtime/payload.h"

typedef struct pl_watchdog {
    int64_t limit;                                 /* ns */
    const char *is;                                /* name of the limit, for errors */
    int64_t since;                                 /* pl_now() of the last result */
    const pl_pulse_t *pulse;                       /* of the devices whose progress counts
                                                      [none]; set once */
    void (*look)(void *self);                      /* calls pl_watchdog_has_expired() */
} pl_watchdog_t;

/* From now on look(self) is called until pl_watchdog_has_expired() returns true.  The
 * limit is trainer.step_timeout; or another, which `is` names. */
void pl_watchdog_begin(pl_watchdog_t *p, void *self, double seconds,
                       void (*look)(void *self));
void pl_watchdog_begin_custom(pl_watchdog_t *p, void *self, double seconds,
                              const char *is, void (*look)(void *self));

/* A result has come, or the loop begins to wait for one. */
void pl_watchdog_reset(pl_watchdog_t *p);

/* For look(): true if there was no result for the whole time, and no progress on a
 * device; *err then names what the loop waits for (printf).  Otherwise look() is called
 * again later. */
bool pl_watchdog_has_expired(pl_watchdog_t *p, void *self, pl_error_t *err,
                             const char *what, ...) PL_PRINTF(4, 5);

#endif
