/* parallel.h - the only place with parallel loops
 *
 * OpenMP's pool runs them, the one that the compute library uses too: two pools would
 * fight for the cores.  The ThreadSanitizer build, which cannot see into OpenMP, has
 * parallel_pthread.c in its place. */
#ifndef PL_CPU_PARALLEL_H
#define PL_CPU_PARALLEL_H

#include <stdint.h>

/* Below so many elements of work a second thread costs more than it saves. */
#define PL_PARALLEL_LEAST 16384

/* Works on items [from, to); `part` numbers the pieces of one loop from 0 on, for scratch
 * memory and partial sums. */
typedef void (*pl_parallel_body_t)(void *job, int64_t from, int64_t to, int part);

/* Makes the compute library use as many threads, when it is called on this thread. */
void pl_parallel_bind(int threads);

/* How many items of n make one piece, a multiple of grain: a pure function, so that sums
 * come out the same. */
static inline int64_t pl_parallel_piece(int threads, int64_t n, int64_t grain)
{
    const int64_t grains = (n + grain - 1) / grain;
    return (grains + threads - 1) / threads * grain;
}

/* Runs the body over [0, n) in up to `threads` pieces at once; returns when all ran. */
void pl_parallel_for(int threads, int64_t n, int64_t grain, pl_parallel_body_t body,
                     void *job);

#endif
