/* clock.h - time: monotonic for deadlines, wall clock for people */
#ifndef PL_BASE_CLOCK_H
#define PL_BASE_CLOCK_H

#include <stdint.h>

#include "paceline.h"

#define PL_SECOND INT64_C(1000000000)
#define PL_MILLISECOND INT64_C(1000000)

PL_API int64_t pl_now(void);                  /* ns, monotonic, from an arbitrary start */
int pl_milliseconds(
    double seconds);            /* for limits and timers: at least 1, at most some days */
double pl_wall_clock(void);     /* s since 1970 */

/* Reads "DD:HH:MM:SS" in ns; leading fields may be omitted: "90" is seconds. */
int pl_duration_read(const char *text, int64_t *duration, pl_error_t *err);
#endif
