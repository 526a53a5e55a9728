/* watchdog.c - how long a loop waits for the next result: trainer.step_timeout */
#include "actors/loops/watchdog.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/actor.h"

static const int64_t LONGEST = INT64_C(3600) * PL_SECOND;   /* between two looks */

static void look_later(const pl_watchdog_t *p, void *self, int64_t wait)
{
    pl_after(self, (int)((wait < LONGEST ? wait : LONGEST) / PL_MILLISECOND) + 1, p->look,
             NULL);
}

void pl_watchdog_begin_custom(pl_watchdog_t *p, void *self, double seconds,
                              const char *is, void (*look)(void *))
{
    int64_t limit = seconds < 1e9 ? (int64_t)(seconds * 1e9) : (int64_t)1e18;
    *p = (pl_watchdog_t){
        .limit = limit, .is = is, .since = pl_now(), .pulse = p->pulse, .look = look};
    look_later(p, self, p->limit);
}

void pl_watchdog_begin(pl_watchdog_t *p, void *self, double seconds, void (*look)(void *))
{
    pl_watchdog_begin_custom(p, self, seconds, "trainer.step_timeout", look);
}

void pl_watchdog_reset(pl_watchdog_t *p)
{
    p->since = pl_now();
}

bool pl_watchdog_has_expired(pl_watchdog_t *p, void *self, pl_error_t *err,
                             const char *what, ...)
{
    uint64_t put = 0, ended = 0;
    const int64_t awake = pl_actor_awake_since(self),
                  moved = p->pulse ? pl_pulse_last(p->pulse, &put, &ended) : 0;
    int64_t since = p->since > awake ? p->since : awake;
    since = since > moved ? since : moved;
    int64_t left = since + p->limit - pl_now();
    if (left > 0) {
        look_later(p, self, left);
        return false;
    }
    char text[160];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    pl_fail(err, PL_ESTUCK, "%s has not ended for %g s (%s)", text,
            (double)p->limit / 1e9, p->is);
    if (put > ended)
        snprintf(err->text + strlen(err->text), sizeof err->text - strlen(err->text),
                 ": the device has computed %llu of %llu launches, and none in that "
                 "time; raise the limit for a slow device",
                 (unsigned long long)ended, (unsigned long long)put);
    return true;
}
