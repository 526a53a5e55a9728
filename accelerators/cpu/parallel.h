/* parallel.h - parallel loops, and the pool of threads that runs them
 *
 * The pieces of a loop depend only on its size and the number of threads, so that sums
 * have the same bits on whatever thread a piece runs.  A free thread takes the next
 * piece, its own first: the loop waits for a suspended helper only if that is in the
 * middle of a piece.  One pool serves our kernels and the products of the compute
 * library: two pools would compete for the cores. */
#ifndef PL_CPU_PARALLEL_H
#define PL_CPU_PARALLEL_H

#include <stdint.h>

#include "paceline.h"

/* With fewer elements a second thread costs more time than it saves. */
#define PL_PARALLEL_MIN 16384

typedef struct pl_pool pl_pool_t;

/* Processes items [from, to); `part` is the number of the piece from 0, for scratch
 * memory and partial sums. */
typedef void (*pl_parallel_body_t)(void *job, int64_t from, int64_t to, int part);

/* A pool of the calling thread and threads - 1 helpers.  If the system starts fewer
 * threads, loops take longer; their results are the same. */
pl_pool_t *pl_pool_new(int threads, pl_error_t *err);
/* Ends the helpers; no loop may be running. */
void pl_pool_free(pl_pool_t *pool);

/* Number of items in one piece of a loop over n items, a multiple of grain. */
int64_t pl_parallel_piece(int threads, int64_t n, int64_t grain);

/* Runs the body over [0, n) in up to `threads` pieces at once, no more than the pool has
 * threads, and returns when all have ended.  Always call it on the same thread. */
void pl_parallel_for(pl_pool_t *pool, int threads, int64_t n, int64_t grain,
                     pl_parallel_body_t body, void *job);

/* The same for a body that needs no number of its piece: a kernel. */
void pl_parallel_run(pl_pool_t *pool, int threads, int64_t n, int64_t grain,
                     void (*run)(const void *job, int64_t from, int64_t to),
                     const void *job);

#endif
