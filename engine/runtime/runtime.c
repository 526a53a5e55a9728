/* runtime.c - the data that all threads of an engine share, and the list of threads */
#include "runtime/runtime.h"

#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/random.h"
#include "base/timeouts.h"
#include "runtime/reactor.h"

void pl_count(uint64_t *counter)
{
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

int pl_runtime_init(pl_runtime_t *runtime, pl_error_t *err)
{
    static uint64_t runs_made;
    uint64_t number = __atomic_add_fetch(&runs_made, 1, __ATOMIC_RELAXED);
    *runtime = (pl_runtime_t){.run = pl_mix(pl_mix((uint64_t)getpid(), number),
                                            (uint64_t)pl_now()),
                              .began = pl_now(),
                              .grace_ms = PL_GRACE_MS};
    if (!pl_context_acquire(err))
        return err ? err->code : PL_ENOMEM;
    pthread_mutex_init(&runtime->lock, NULL);
    return PL_OK;
}

void pl_runtime_release(pl_runtime_t *runtime)
{
    if (__atomic_load_n(&runtime->stuck, __ATOMIC_ACQUIRE))
        return;
    while (runtime->seqs) {
        pl_rank_seq_t *other = runtime->seqs->other;
        pl_free(runtime->seqs);
        runtime->seqs = other;
    }
    pthread_mutex_destroy(&runtime->lock);
    pl_context_release();
}

pl_rank_seq_t *pl_runtime_seq(pl_runtime_t *runtime, int rank)
{
    pthread_mutex_lock(&runtime->lock);
    pl_rank_seq_t *seq = runtime->seqs;
    while (seq && seq->rank != rank)
        seq = seq->other;
    if (!seq && (seq = pl_alloc(sizeof *seq))) {
        *seq = (pl_rank_seq_t){.rank = rank, .other = runtime->seqs};
        snprintf(seq->topic, sizeof seq->topic, "%d.", rank);
        runtime->seqs = seq;
    }
    pthread_mutex_unlock(&runtime->lock);
    return seq;
}

/* ---- threads ---- */

static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static pl_map_t threads;                                    /* number -> reactor */
static uint32_t threads_made;

uint32_t pl_thread_enter(pl_reactor_t *reactor)
{
    pthread_mutex_lock(&threads_lock);
    uint32_t number = pl_map_put(&threads, threads_made + 1, reactor) == PL_OK
                          ? ++threads_made
                          : 0;
    pthread_mutex_unlock(&threads_lock);
    return number;
}

void pl_thread_leave(uint32_t number)
{
    pthread_mutex_lock(&threads_lock);
    if (number)
        pl_map_take(&threads, number);
    for (size_t k = 0; k < threads.capacity; k++)
        if (threads.key[k])
            pl_reactor_thread_gone(threads.value[k]);
    if (threads.count == 0)
        pl_map_release(&threads);
    pthread_mutex_unlock(&threads_lock);
}

bool pl_thread_is_there(uint32_t number)
{
    pthread_mutex_lock(&threads_lock);
    bool there = pl_map_get(&threads, number) != NULL;
    pthread_mutex_unlock(&threads_lock);
    return there;
}
