/* placement.h - the processors of threads: a share for each rank, and threads that pass
 * messages off the processors of threads that compute */
#ifndef PL_RUNTIME_PLACEMENT_H
#define PL_RUNTIME_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

/* Keeps the calling thread, and threads that it starts from now on, on one of `shares`
 * equal shares of its processors.  Changes nothing where that is not possible or there
 * are fewer processors than shares. */
void pl_share_take(int share, int shares);

/* Whether this thread is kept on a share; a thread inherits that from its starter. */
bool pl_share_is_taken(void);
void pl_share_inherit(bool taken);

/* A thread; all zero: it passes messages and has not run yet. */
typedef struct pl_placement {
    bool computes;                    /* threads that pass messages avoid its processor */
    int busy;                         /* processor it is counted on, from 1  [0: none] */
    int64_t moved;                    /* when it was moved last */
} pl_placement_t;

/* On the thread itself: it begins to work; it waits. */
void pl_placement_work(pl_placement_t *placement);
void pl_placement_rest(pl_placement_t *placement);

#endif
