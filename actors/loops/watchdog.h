/* watchdog.h - how long a loop waits for the next result: trainer.step_timeout
 *
 * Nothing is done for each batch but noting the time; a timer looks now and then whether
 * it is long ago. */
#ifndef PL_LOOPS_WATCHDOG_H
#define PL_LOOPS_WATCHDOG_H

#include "runtime/payload.h"

typedef struct pl_watchdog {
    int64_t limit;                                /* ns */
    const char *is;                               /* what the limit is, for errors */
    int64_t since;                                /* pl_now() when something ended last */
    const pl_pulse_t *pulse;                      /* of the devices that may be waited for
                                                     [NULL: of none]; set once */
    void (*look)(void *self);                     /* calls pl_watchdog_has_expired() */
} pl_watchdog_t;

/* From now on look(self) is called until pl_watchdog_has_expired() or `idle`, see
 * there.  The limit is trainer.step_timeout; or another, which `is` describes. */
void pl_watchdog_begin(pl_watchdog_t *p, void *self, double seconds,
                       void (*look)(void *self));
void pl_watchdog_begin_custom(pl_watchdog_t *p, void *self, double seconds,
                              const char *is, void (*look)(void *self));

/* Something has ended, or is waited for from now on. */
void pl_watchdog_reset(pl_watchdog_t *p);

/* For look(): whether nothing has ended for the whole time, and no launch on a device;
 * *err then says what the loop waits for (printf).  Otherwise it looks again later. */
bool pl_watchdog_has_expired(pl_watchdog_t *p, void *self, pl_error_t *err,
                             const char *what, ...) PL_PRINTF(4, 5);

#endif
