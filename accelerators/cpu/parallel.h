/* parallel.h - the only place with parallel loops, and the pool of threads that runs them
 *
 * A loop is cut into pieces by its size and the number of threads alone, so that sums
 * come out the same; who computes a piece does not matter.  Whoever is free takes the
 * next one, its own first: a helper that the system keeps from running is waited for only
 * in the middle of a piece.  One pool serves our kernels and the compute library's
 * products: two would fight for the cores. */
#ifndef PL_CPU_PARALLEL_H
#define PL_CPU_PARALLEL_H

#include <stdint.h>

#include "paceline.h"

/* Below so many elements of work a second thread costs more than it saves. */
#define PL_PARALLEL_MIN 16384

typedef struct pl_pool pl_pool_t;

/* Works on items [from, to); `part` numbers the pieces of one loop from 0 on, for scratch
 * memory and partial sums. */
typedef void (*pl_parallel_body_t)(void *job, int64_t from, int64_t to, int part);

/* Loops of the thread that calls and threads - 1 helpers.  When the system has fewer to
 * give, loops take longer and come out the same. */
pl_pool_t *pl_pool_new(int threads, pl_error_t *err);
/* No loop runs any more. */
void pl_pool_free(pl_pool_t *pool);

/* How many items of n make one piece, a multiple of grain. */
static inline int64_t pl_parallel_piece(int threads, int64_t n, int64_t grain)
{
    const int64_t grains = (n + grain - 1) / grain;
    return (grains + threads - 1) / threads * grain;
}

/* Runs the body over [0, n) in up to `threads` pieces at once, no more than the pool's;
 * returns when all ran.  Always on the same thread, one loop at a time. */
void pl_parallel_for(pl_pool_t *pool, int threads, int64_t n, int64_t grain,
                     pl_parallel_body_t body, void *job);

#endif
