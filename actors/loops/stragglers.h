/* stragglers.h - step times of all ranks, and which rank is the slowest */
#ifndef PL_LOOPS_STRAGGLERS_H
#define PL_LOOPS_STRAGGLERS_H

#include <jansson.h>

#include "runtime/actor.h"

/* All zero: nothing was told yet. */
typedef struct pl_stragglers {
    double *sum;                                        /* [ranks][PL_TIMINGS], seconds */
    size_t capacity;                                    /* numbers */
    uint64_t steps;                                     /* they are of */
    int64_t since;                                      /* when the first was told */
    json_t *reported;                                   /* of the second before  [none] */
} pl_stragglers_t;

/* What the reply to train_batch tells; of the only rank nothing.  now: pl_now(). */
void pl_stragglers_add(pl_stragglers_t *stragglers, pl_bytes_t timings, int64_t now);

/* {"steps": …, "data": {"min": …, "median": …, "max": …, "slowest": …}, …, "spread": …,
 * "slowest": …}: milliseconds a step, of the newest whole second; the spread of what
 * ranks do alone, as a share of its median, and who takes most of that.  Borrowed; NULL:
 * there is none. */
json_t *pl_stragglers_report(pl_stragglers_t *stragglers, int64_t now);

void pl_stragglers_release(pl_stragglers_t *stragglers);

#endif
