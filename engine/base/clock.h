/* clock.h - time: monotonic for every deadline, wall for what people read */
#ifndef PL_BASE_CLOCK_H
#define PL_BASE_CLOCK_H

#include <stdint.h>

#include "paceline.h"

#define PL_SECOND INT64_C(1000000000)
#define PL_MILLISECOND INT64_C(1000000)

PL_API int64_t pl_now(void);                  /* ns, monotonic, from an arbitrary start */
int pl_milliseconds(double seconds);          /* for limits and timers: 1 to some days */
double pl_wall_clock(void);                   /* s since 1970 */

/* "DD:HH:MM:SS" in ns; parts may be left out from the front: "90" is seconds. */
int pl_duration_read(const char *text, int64_t *duration, pl_error_t *err);
#endif
