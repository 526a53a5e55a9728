/* parallel.c - parallel loops on OpenMP's pool */
#include "accelerators/cpu/parallel.h"

#include <omp.h>

/* The number is a property of the calling thread: the host's own OpenMP regions do not
 * notice. */
void pl_parallel_bind(int threads)
{
    omp_set_num_threads(threads);
}

void pl_parallel_for(int threads, int64_t n, int64_t grain, pl_parallel_body_t body,
                     void *job)
{
    int64_t piece = pl_parallel_piece(threads, n, grain);
    if (piece >= n) {
        body(job, 0, n, 0);
        return;
    }
    int pieces = (int)((n + piece - 1) / piece);
#pragma omp parallel for num_threads(pieces) schedule(static, 1)
    for (int k = 0; k < pieces; k++) {
        int64_t from = k * piece, to = from + piece;
        body(job, from, to < n ? to : n, k);
    }
}
