/* times.h - what the steps of each of several ranks take, and which rank is slow */
#ifndef PL_LOOPS_TIMES_H
#define PL_LOOPS_TIMES_H

#include <jansson.h>

#include "runtime/actor.h"

/* All zero: nothing was told yet. */
typedef struct pl_times {
    double *sum;                                    /* [ranks][PL_SPENT_KINDS], seconds */
    size_t capacity;                                /* numbers */
    uint64_t steps;                                 /* they are of */
    int64_t since;                                  /* when the first was told */
    json_t *told;                                   /* of the second before  [none] */
} pl_times_t;

/* What the reply to train_batch tells; of the only rank nothing.  now: pl_now(). */
void pl_times_add(pl_times_t *times, pl_bytes_t spent, int64_t now);

/* {"steps": …, "data": {"min": …, "median": …, "max": …, "slowest": …}, …, "spread": …,
 * "slowest": …}: milliseconds a step, of the newest whole second; the spread of what
 * ranks do alone, as a share of its median, and who takes most of that.  Borrowed; NULL:
 * there is none. */
json_t *pl_times_tell(pl_times_t *times, int64_t now);

void pl_times_release(pl_times_t *times);

#endif
