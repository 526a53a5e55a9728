/* intervals.h - the intervals, in steps, at which callbacks are called */
#ifndef PL_INTERVALS_H
#define PL_INTERVALS_H

#include "runtime/actor.h"

enum { PL_INTERVALS_MAX = 8 };

/* Of several callbacks; all zero: never. */
typedef struct pl_intervals {
    uint64_t steps[PL_INTERVALS_MAX];
    int count;
} pl_intervals_t;

/* 0: never.  If there are too many, the last becomes a common divisor. */
void pl_intervals_add(pl_intervals_t *intervals, uint64_t steps);
/* Whether one of them ends with that step. */
bool pl_intervals_match(const pl_intervals_t *intervals, uint64_t step);

/* As in a message: uint64 each. */
pl_bytes_t pl_intervals_bytes(const pl_intervals_t *intervals);
void pl_intervals_read(pl_intervals_t *intervals, pl_bytes_t bytes);

#endif
