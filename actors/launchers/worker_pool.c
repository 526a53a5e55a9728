/* worker_pool.c - processes that run the program's script, and stay from one of its
 * runs to the next */
#include "actors/launchers/worker_pool.h"

#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "actors/launchers/bootstrap.h"
#include "actors/launchers/job_state.h"
#include "actors/launchers/rank_links.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"
#include "transport/socket.h"

static const uint64_t PAST_MAX = UINT64_C(1) << 30;         /* bytes of all results */

typedef struct worker {
    pl_worker_pool_t *pool;
    int rank;
    pl_supervisor_t *process;                            /* [not begun] */
    pl_process_spec_t acquired;                          /* by its user  [not acquired] */
    bool is_dead;
    char end[PL_DEATH_TEXT];                                /* how it ended */
} worker_t;

struct pl_worker_pool {
    pl_worker_pool_t *next;                                 /* another engine's */
    const pl_runtime_t *runtime;
    pl_sockets_t *loop;
    char folder[PL_SOCKET_FOLDER];
    int lock;
    uint32_t incarnation;                  /* of its newest run */
    int runs, noted, living;               /* runs begun; those whose outcome was noted */
    bool is_taken;
    struct event *late;                                     /* [it does not end yet] */
    void (*then)(void *user);
    void *user;
    int count;
    worker_t worker[];
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static pl_worker_pool_t *pools;                             /* of all engines */

static pl_worker_pool_t *pool_of(const pl_runtime_t *runtime)
{
    pthread_mutex_lock(&pools_lock);
    pl_worker_pool_t *pool = pools;
    while (pool && pool->runtime != runtime)
        pool = pool->next;
    pthread_mutex_unlock(&pools_lock);
    return pool;
}

static void pool_enter(pl_worker_pool_t *pool)
{
    pthread_mutex_lock(&pools_lock);
    pool->next = pools;
    pools = pool;
    pthread_mutex_unlock(&pools_lock);
}

static void pool_leave(pl_worker_pool_t *pool)
{
    pthread_mutex_lock(&pools_lock);
    pl_worker_pool_t **at = &pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    pthread_mutex_unlock(&pools_lock);
}

/* ---- what happens ---- */

static void worker_line(void *user, const char *line)
{
    const worker_t *worker = user;
    if (worker->acquired.user)
        worker->acquired.on_line(worker->acquired.user, line);
    else
        pl_log_line(PL_LOG_WARNING, worker->rank, "stderr", "%s", line);
}

static void worker_died(void *user, const pl_death_t *death)
{
    worker_t *worker = user;
    pl_worker_pool_t *pool = worker->pool;
    worker->is_dead = true;
    pl_death_text(death, worker->end);
    if (worker->acquired.user)
        worker->acquired.on_death(worker->acquired.user, death);
    if (--pool->living == 0 && pool->then)
        pool->then(pool->user);
}

/* ---- workers ---- */

static int worker_start(worker_t *worker, const char *const *environment, pl_error_t *err)
{
    const pl_process_spec_t spec = {.environment = environment,
                                    .on_line = worker_line,
                                    .on_death = worker_died,
                                    .user = worker};
    pl_supervisor_free(worker->process);
    worker->process = pl_supervisor_start(&spec, worker->pool->loop->base, err);
    if (!worker->process)
        return err->code;
    worker->is_dead = false;
    worker->pool->living++;
    return PL_OK;
}

pl_supervisor_t *pl_worker_pool_acquire(pl_worker_pool_t *pool, int rank,
                                        const pl_process_spec_t *spec, pl_error_t *err)
{
    worker_t *worker = &pool->worker[rank];
    const bool is_missing = !worker->process || worker->is_dead;
    if (is_missing && !pl_worker_pool_has_history(pool)) {
        pl_fail(err, PL_EDIED,
                "the process of this rank %s before this run and cannot be replaced, "
                "because the results of earlier runs were not kept: set "
                "\"max_restarts\" above 0 and make room in %s",
                worker->process ? worker->end : "could not be started", pool->folder);
        return NULL;
    }
    if (is_missing && worker_start(worker, spec->environment, err) != PL_OK)
        return NULL;
    worker->acquired = *spec;
    worker->acquired.environment = NULL;
    return worker->process;
}

void pl_worker_pool_return(pl_worker_pool_t *pool, int rank, const void *user)
{
    worker_t *worker = &pool->worker[rank];
    if (worker->acquired.user != user)
        return;
    worker->acquired = (pl_process_spec_t){0};
    pl_supervisor_spare(worker->process);
}

bool pl_worker_pool_kill(pl_worker_pool_t *pool)
{
    for (int k = 0; k < pool->count; k++)
        if (pool->worker[k].process && !pool->worker[k].is_dead)
            pl_supervisor_kill(pool->worker[k].process, 0);
    return pool->living == 0;
}

/* ---- runs ---- */

const char *pl_worker_pool_folder(const pl_worker_pool_t *pool)
{
    return pool->folder;
}

uint32_t pl_worker_pool_incarnation(const pl_worker_pool_t *pool)
{
    return pool->incarnation + 1;
}

void pl_worker_pool_advance(pl_worker_pool_t *pool, uint32_t incarnation)
{
    pool->incarnation = incarnation;
}

void pl_worker_pool_record(pl_worker_pool_t *pool, const pl_blob_t *outcome,
                           const pl_error_t *failed)
{
    pl_error_t err = {0};
    if (pool->noted < pl_worker_pool_past_runs(pool))
        return;
    if (pl_run_history_add(pool->folder, PAST_MAX, outcome, failed, &err) == PL_OK)
        pool->noted++;
    else
        pl_log_line(PL_LOG_WARNING, -1, "launcher.script",
                    "later runs cannot start a process again, because the result of "
                    "this run cannot be kept: %s",
                    err.text);
}

int pl_worker_pool_past_runs(const pl_worker_pool_t *pool)
{
    return pool->runs - 1;
}

bool pl_worker_pool_has_history(const pl_worker_pool_t *pool)
{
    return pool->noted == pl_worker_pool_past_runs(pool);
}

static pl_worker_pool_t *pool_new(void *launcher, int count, pl_error_t *err)
{
    pl_worker_pool_t *pool =
        pl_alloc(sizeof *pool + (size_t)count * sizeof *pool->worker);
    if (!pool) {
        pl_no_memory(err);
        return NULL;
    }
    pool->runtime = pl_actor_runtime(launcher);
    pool->loop = pl_actor_loop(launcher);
    pool->count = count;
    for (int k = 0; k < count; k++)
        pool->worker[k] = (worker_t){.pool = pool, .rank = k};
    if (pl_folder_make(pool->folder, &pool->lock, err) == PL_OK) {
        pool_enter(pool);
        return pool;
    }
    pl_folder_remove(pool->folder, pool->lock);
    pl_free(pool);
    return NULL;
}

pl_worker_pool_t *pl_worker_pool_begin_run(void *launcher, int count, pl_error_t *err)
{
    pl_worker_pool_t *pool = pool_of(pl_actor_runtime(launcher));
    if (!pool)
        pool = pool_new(launcher, count, err);
    else if (pool->is_taken)
        pl_fail(err, PL_ESTATE,
                "launcher \"script\" is busy with another run of this engine: wait for "
                "its result, or use launcher \"spawn\"");
    else if (pool->count != count)
        pl_fail(err, PL_EINVAL,
                "the first run of this program with launcher \"script\" had %d ranks, "
                "but this run requests %d: all its runs must have the same number of "
                "ranks",
                pool->count, count);
    if (!pool || pool->is_taken || pool->count != count)
        return NULL;
    pool->is_taken = true;
    pool->runs++;
    return pool;
}

void pl_worker_pool_end_run(pl_worker_pool_t *pool)
{
    pool->is_taken = false;
}

/* ---- engines ---- */

void pl_worker_pool_enter(pl_runtime_t *runtime)
{
    const pl_bootstrap_t *bootstrap = pl_bootstrap_in_script();
    if (bootstrap)
        pl_bootstrap_enter(bootstrap, runtime);
}

static void pool_free(pl_worker_pool_t *pool)
{
    pool_leave(pool);
    for (int k = 0; k < pool->count; k++)
        pl_supervisor_free(pool->worker[k].process);
    if (pool->late)
        event_free(pool->late);
    pl_folder_remove(pool->folder, pool->lock);
    pl_free(pool);
}

static void pool_late(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_worker_pool_kill(user);
}

bool pl_worker_pool_ends(const pl_runtime_t *runtime, void (*then)(void *user),
                         void *user)
{
    const struct timeval grace = {PL_SCRIPT_END_MS / 1000, 0};
    pl_worker_pool_t *pool = pool_of(runtime);
    if (!pool)
        return false;
    if (!pool->living) {
        pool_free(pool);
        return false;
    }
    if (pool->then)
        return true;
    pool->then = then;
    pool->user = user;
    pool->late = event_new(pool->loop->base, -1, 0, pool_late, pool);
    if (!pool->late || event_add(pool->late, &grace) != 0)
        pl_worker_pool_kill(pool);
    return true;
}
