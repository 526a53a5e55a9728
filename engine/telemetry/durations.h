/* durations.h - how long things took: a histogram of logarithmic cells */
#ifndef PL_TELEMETRY_DURATIONS_H
#define PL_TELEMETRY_DURATIONS_H

#include <stdint.h>

enum {
    PL_DURATION_CELLS = 480,              /* 16 for each doubling, from 1 µs to 17 min */
};

/* Starts as zeros. */
typedef struct pl_durations {
    uint64_t count, cell[PL_DURATION_CELLS];
    double sum;                                             /* s */
} pl_durations_t;

void pl_durations_add(pl_durations_t *d, double seconds);
/* That of which so large a share is no longer, within 5 %; NaN: of none. */
double pl_durations_quantile(const pl_durations_t *d, double share);
/* How many took at most so long, within 5 %. */
uint64_t pl_durations_within(const pl_durations_t *d, double seconds);

#endif
