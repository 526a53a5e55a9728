/* parallel_pthread.c - parallel loops for the ThreadSanitizer build, which cannot see
 * into OpenMP's pool
 *
 * A thread for each piece, started and joined by the loop: slow, and nothing to be
 * overlooked. */
#include <omp.h>
#include <pthread.h>
#include <stdbool.h>

#include "accelerators/cpu/parallel.h"

#define THREADS 64

typedef struct piece {
    pl_parallel_body_t body;
    void *job;
    int64_t from, to;
    int part;
    pthread_t thread;
    bool started;
} piece_t;

/* The library's own loops stay on the calling thread: they are what cannot be seen. */
void pl_parallel_bind(int threads)
{
    (void)threads;
    omp_set_num_threads(1);
}

static void *piece_run(void *user)
{
    piece_t *p = user;
    p->body(p->job, p->from, p->to, p->part);
    return NULL;
}

void pl_parallel_for(int threads, int64_t n, int64_t grain, pl_parallel_body_t body,
                     void *job)
{
    piece_t piece[THREADS];
    int count = 0;
    const int64_t size =
        pl_parallel_piece(threads < THREADS ? threads : THREADS, n, grain);
    for (int64_t from = 0; from < n; from += size, count++) {
        piece[count] = (piece_t){.body = body,
                                 .job = job,
                                 .from = from,
                                 .to = from + size < n ? from + size : n,
                                 .part = count};
        piece[count].started = n > size && pthread_create(&piece[count].thread, NULL,
                                                          piece_run, &piece[count]) == 0;
        if (!piece[count].started)
            piece_run(&piece[count]);
    }
    for (int k = 0; k < count; k++)
        if (piece[k].started)
            pthread_join(piece[k].thread, NULL);
}
