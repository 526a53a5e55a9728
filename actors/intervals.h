/* intervals.h - after how many steps callbacks want to be asked, each after its own */
#ifndef PL_INTERVALS_H
#define PL_INTERVALS_H

#include "runtime/actor.h"

enum { PL_INTERVALS_MAX = 8 };

/* Those of several callbacks; all zero: never. */
typedef struct pl_intervals {
    uint64_t steps[PL_INTERVALS_MAX];
    int count;
} pl_intervals_t;

/* 0: never.  Of too many, the last is one that at least each of them meets. */
void pl_intervals_add(pl_intervals_t *intervals, uint64_t steps);
/* Whether some of them end with that step. */
bool pl_intervals_match(const pl_intervals_t *intervals, uint64_t step);

/* As a message has them: uint64 each. */
pl_bytes_t pl_intervals_bytes(const pl_intervals_t *intervals);
void pl_intervals_read(pl_intervals_t *intervals, pl_bytes_t bytes);

#endif
