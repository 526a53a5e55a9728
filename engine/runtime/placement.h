/* placement.h - keeps threads that pass messages off the processors of threads that
 * compute */
#ifndef PL_RUNTIME_PLACEMENT_H
#define PL_RUNTIME_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

/* Of one thread; all zero is a thread that passes messages and has not run yet. */
typedef struct pl_placement {
    bool computes;                     /* and leaves a processor to others */
    int busy;                          /* processor it is counted on, from 1  [0: none] */
    int64_t moved;                     /* when it was moved last */
} pl_placement_t;

/* Each on the thread itself: it begins to work; it has nothing to do. */
void pl_placement_work(pl_placement_t *placement);
void pl_placement_rest(pl_placement_t *placement);

#endif
