/* parallel.c - parallel loops on a pool of threads that sleep when there is nothing to do
 *
 * Loops follow each other within microseconds, so a helper spins for a short while before
 * it sleeps.  It does not spin longer, because on a busy machine spinning takes time that
 * other threads need. */
#include "accelerators/cpu/parallel.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#define SPIN (PL_MILLISECOND / 20)
#define LOOKS 16                                      /* between two looks at the clock */
#define LINE 64                                       /* bytes of a cache line */

typedef struct helper {
    pl_pool_t *pool;
    int own;                                                /* the piece it prefers */
    pthread_t thread;
} helper_t;

struct pl_pool {
    /* The loop.  A thread that has claimed a piece may read it: it stays the same until
     * all pieces are done. */
    pl_parallel_body_t body;
    void *job;
    int64_t n, piece;
    int pieces;                         /* atomic, as are the following ones */
    uint32_t *claimed;                  /* [threads] newest loop whose piece k is taken */
    char apart[LINE];
    uint32_t loop;                          /* its number; helpers spin and sleep on it */
    int asleep;                             /* helpers */
    bool ending;
    char apart_too[LINE];
    uint32_t left;                      /* pieces not done; the caller spins and sleeps on
                                           it */
    bool waiting;                       /* the caller is asleep */

    int threads, helpers;
    helper_t *helper;
};

/* ---- Waiting ---- */

static uint32_t look(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* Spins until the word changes; false: it did not change within SPIN. */
static bool changes_soon(const uint32_t *word, uint32_t value)
{
    int64_t now = 0, until = 0;
    do {
        for (int k = 0; k < LOOKS; k++) {
            if (look(word) != value)
                return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        now = pl_now();
        until = until ? until : now + SPIN;
    } while (now < until);
    return false;
}

/* ---- Pieces ---- */

static bool claim(pl_pool_t *pool, int k, uint32_t loop)
{
    uint32_t newest = look(&pool->claimed[k]);
    return (int32_t)(newest - loop) < 0
           && __atomic_compare_exchange_n(&pool->claimed[k], &newest, loop, false,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Runs the pieces that no other thread has claimed, from the `own`-th on.  A late helper
 * finds every piece of its loop claimed, even if the number of pieces has changed. */
static void pieces_run(pl_pool_t *pool, uint32_t loop, int own)
{
    const int pieces = __atomic_load_n(&pool->pieces, __ATOMIC_SEQ_CST);
    for (int i = 0; i < pieces; i++) {
        const int k = (own + i) % pieces;
        if (!claim(pool, k, loop))
            continue;
        const int64_t from = k * pool->piece, to = from + pool->piece;
        pool->body(pool->job, from, to < pool->n ? to : pool->n, k);
        if (__atomic_sub_fetch(&pool->left, 1, __ATOMIC_SEQ_CST) == 0
            && __atomic_load_n(&pool->waiting, __ATOMIC_SEQ_CST))
            syscall(SYS_futex, &pool->left, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

/* ---- Helpers ---- */

static void *helper_main(void *user)
{
    const helper_t *helper = user;
    pl_pool_t *pool = helper->pool;
    uint32_t seen = 0;
    for (;;) {
        const uint32_t loop = look(&pool->loop);
        if (__atomic_load_n(&pool->ending, __ATOMIC_SEQ_CST))
            return NULL;
        if (loop != seen) {
            pieces_run(pool, seen = loop, helper->own);
        } else if (!changes_soon(&pool->loop, seen)) {
            __atomic_add_fetch(&pool->asleep, 1, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, &pool->loop, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
            __atomic_sub_fetch(&pool->asleep, 1, __ATOMIC_SEQ_CST);
        }
    }
}

pl_pool_t *pl_pool_new(int threads, pl_error_t *err)
{
    pl_pool_t *pool = pl_alloc(sizeof *pool);
    if (pool) {
        pool->threads = threads;
        pool->claimed = pl_alloc_array((size_t)threads, sizeof *pool->claimed);
        pool->helper = pl_alloc_array((size_t)threads, sizeof *pool->helper);
    }
    if (!pool || !pool->claimed || !pool->helper) {
        pl_no_memory(err);
        pl_pool_free(pool);
        return NULL;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);   /* the host's threads handle signals */
    for (int k = 0; k < threads - 1; k++) {
        helper_t *helper = &pool->helper[k];
        *helper = (helper_t){.pool = pool, .own = k + 1};
        if (pthread_create(&helper->thread, NULL, helper_main, helper) != 0)
            break;
        pthread_setname_np(helper->thread, "compute");
        pool->helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool;
}

/* Increases the loop's number and wakes the helpers that sleep on it. */
static uint32_t loop_begin(pl_pool_t *pool, int helpers)
{
    const uint32_t loop = __atomic_add_fetch(&pool->loop, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST) > 0)
        syscall(SYS_futex, &pool->loop, FUTEX_WAKE_PRIVATE, helpers, NULL, NULL, 0);
    return loop;
}

void pl_pool_free(pl_pool_t *pool)
{
    if (!pool)
        return;
    __atomic_store_n(&pool->ending, true, __ATOMIC_SEQ_CST);
    loop_begin(pool, INT_MAX);
    for (int k = 0; k < pool->helpers; k++)
        pthread_join(pool->helper[k].thread, NULL);
    pl_free(pool->helper);
    pl_free(pool->claimed);
    pl_free(pool);
}

/* ---- Loops ---- */

void pl_parallel_for(pl_pool_t *pool, int threads, int64_t n, int64_t grain,
                     pl_parallel_body_t body, void *job)
{
    const int64_t piece = pl_parallel_piece(threads, n, grain);
    if (piece >= n) {
        body(job, 0, n, 0);
        return;
    }
    const int pieces = (int)((n + piece - 1) / piece);
    pool->body = body, pool->job = job, pool->n = n, pool->piece = piece;
    __atomic_store_n(&pool->pieces, pieces, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pool->left, (uint32_t)pieces, __ATOMIC_SEQ_CST);
    for (int k = pieces; k < pool->threads; k++)            /* no thread runs these */
        __atomic_store_n(&pool->claimed[k], pool->loop + 1, __ATOMIC_SEQ_CST);
    pieces_run(pool, loop_begin(pool, pieces - 1), 0);
    for (uint32_t left; (left = look(&pool->left)) > 0;) {
        if (changes_soon(&pool->left, left))
            continue;
        __atomic_store_n(&pool->waiting, true, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &pool->left, FUTEX_WAIT_PRIVATE, left, NULL, NULL, 0);
        __atomic_store_n(&pool->waiting, false, __ATOMIC_SEQ_CST);
    }
}

typedef struct numberless {
    void (*run)(const void *job, int64_t from, int64_t to);
    const void *job;
} numberless_t;

static void numberless_piece(void *user, int64_t from, int64_t to, int part)
{
    (void)part;
    const numberless_t *body = user;
    body->run(body->job, from, to);
}

void pl_parallel_run(pl_pool_t *pool, int threads, int64_t n, int64_t grain,
                     void (*run)(const void *job, int64_t from, int64_t to),
                     const void *job)
{
    pl_parallel_for(pool, threads, n, grain, numberless_piece, &(numberless_t){run, job});
}
