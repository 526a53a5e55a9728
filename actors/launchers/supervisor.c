/* supervisor.c - a child process: its start, its end, and its last words; and a pool of
 * child processes
 *
 * The signals escalate: a process that hangs first gets SIGABRT, so that it writes the
 * backtraces of its threads, and then SIGKILL. */
#include "actors/launchers/supervisor.h"

#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "actors/launchers/bootstrap.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"
#include "runtime/actor.h"
#include "transport/socket.h"

enum { COMMAND_MAX = 64 << 10 };

struct pl_supervisor {
    pl_process_t *process;
    struct event *timer;                                    /* SIGKILL follows */
};

/* ---- The start ---- */

/* Arguments of this program, as they were before the program changed them. */
static char words[COMMAND_MAX + 1];
static size_t words_length;

void pl_supervisor_init(void)
{
    FILE *file = words_length ? NULL : fopen("/proc/self/cmdline", "rbe");
    if (!file)
        return;
    words_length = fread(words, 1, COMMAND_MAX, file);
    fclose(file);
}

static void kill_due(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_process_signal(((pl_supervisor_t *)user)->process, SIGKILL);
}

pl_supervisor_t *pl_supervisor_start(const pl_process_spec_t *spec,
                                     struct event_base *loop, pl_error_t *err)
{
    pl_process_spec_t own = *spec;
    size_t count = 0;
    for (size_t k = 0; k < words_length; k++)
        count += words[k] == '\0';
    const char *word = words, **argv = pl_alloc_array(count + 2, sizeof *argv);
    for (size_t k = 0; argv && k < count; k++, word += strlen(word) + 1)
        argv[k] = word;
    if (argv && !count)
        argv[0] = "paceline";
    pl_supervisor_t *s = pl_alloc(sizeof *s);
    if (s)
        s->timer = event_new(loop, -1, 0, kill_due, s);
    if (!spec->argv) {
        own.program = "/proc/self/exe";
        own.argv = argv;
    }
    if (!s || !s->timer || !own.argv)
        pl_no_memory(err);
    else
        s->process = pl_process_start(&own, loop, err);
    pl_free(argv);
    if (s && s->process)
        return s;
    pl_supervisor_free(s);
    return NULL;
}

void pl_supervisor_free(pl_supervisor_t *s)
{
    if (!s)
        return;
    pl_process_free(s->process);
    if (s->timer)
        event_free(s->timer);
    pl_free(s);
}

int pl_supervisor_process_id(const pl_supervisor_t *s)
{
    return pl_process_id(s->process);
}

/* ---- The end ---- */

void pl_supervisor_signal(pl_supervisor_t *s, int number)
{
    pl_process_signal(s->process, number);
}

void pl_supervisor_kill(pl_supervisor_t *s, int after_ms)
{
    const struct timeval wait = {after_ms / 1000, after_ms % 1000 * 1000};
    if (after_ms <= 0 || event_add(s->timer, &wait) != 0)
        pl_process_signal(s->process, SIGKILL);
}

void pl_supervisor_spare(pl_supervisor_t *s)
{
    event_del(s->timer);
}

void pl_supervisor_abort(pl_supervisor_t *s)
{
    pl_process_signal(s->process, SIGABRT);
    pl_process_signal(s->process, SIGCONT);
    pl_supervisor_kill(s, PL_BACKTRACE_MS);
}

/* ---- Its last words ---- */

enum { WORDS_MAX = 256 };                                   /* of its tail */

/* Whole lines: the last lines explain a death. */
void pl_supervisor_last_words(pl_supervisor_t *s, bool is_shown, pl_error_t *error)
{
    static const char between[] = " | ";
    const char *tail = pl_process_tail(s->process), *from = tail;
    size_t length = strlen(tail), at = strlen(error->text);
    while (length && tail[length - 1] == '\n')
        length--;
    if (length > WORDS_MAX) {
        from = tail + length - WORDS_MAX;
        const char *line = memchr(from, '\n', WORDS_MAX);
        from = from[-1] == '\n' || !line ? from : line + 1;
    }
    if (is_shown) {
        const char *end = memrchr(from, '\n', length - (size_t)(from - tail));
        from = end ? end + 1 : from;
    }
    if (!length)
        return;
    at += (size_t)snprintf(error->text + at, sizeof error->text - at,
                           "; its last words: ");
    while (from < tail + length && at < sizeof error->text) {
        const size_t rest = (size_t)(tail + length - from);
        const char *end = memchr(from, '\n', rest);
        const size_t line = end ? (size_t)(end - from) : rest;
        at += (size_t)snprintf(error->text + at, sizeof error->text - at, "%.*s%s",
                               (int)line, from, end ? between : "");
        from += line + 1;
    }
}

/* ---- A pool of processes ---- */

typedef struct pl_pool_worker {
    pl_worker_pool_t *pool;
    int rank;
    pl_supervisor_t *process;                            /* [not started] */
    pl_process_spec_t acquired;                          /* by its user  [not acquired] */
    bool is_dead;
    char end[PL_DEATH_TEXT];                                /* how it ended */
} worker_t;

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

bool pl_worker_pool_may_restart(const pl_worker_pool_t *pool)
{
    return pool->recorded == pl_worker_pool_past_runs(pool);
}

pl_supervisor_t *pl_worker_pool_acquire(pl_worker_pool_t *pool, int rank,
                                        const pl_process_spec_t *spec, pl_error_t *err)
{
    worker_t *worker = &pool->worker[rank];
    const bool is_missing = !worker->process || worker->is_dead;
    const pl_process_spec_t own = {.environment = spec->environment,
                                   .on_line = worker_line,
                                   .on_death = worker_died,
                                   .user = worker};
    if (is_missing && !pl_worker_pool_may_restart(pool)) {
        pl_fail(err, PL_EDIED,
                "the process of this rank %s before this run and cannot be replaced, "
                "because the results of earlier runs were not kept: set "
                "\"max_restarts\" above 0 and make room in %s",
                worker->process ? worker->end : "could not be started", pool->folder);
        return NULL;
    }
    if (is_missing) {
        pl_supervisor_free(worker->process);
        worker->process = pl_supervisor_start(&own, pool->loop->base, err);
        if (!worker->process)
            return NULL;
        worker->is_dead = false;
        pool->living++;
    }
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

static void pool_free(pl_worker_pool_t *pool)
{
    pthread_mutex_lock(&pools_lock);
    pl_worker_pool_t **at = &pools;
    while (*at && *at != pool)
        at = &(*at)->next;
    if (*at)
        *at = pool->next;
    pthread_mutex_unlock(&pools_lock);
    for (int k = 0; k < pool->count; k++)
        pl_supervisor_free(pool->worker[k].process);
    if (pool->late)
        event_free(pool->late);
    pl_folder_remove(pool->folder, pool->lock);
    pl_free(pool->worker);
    pl_free(pool);
}

static pl_worker_pool_t *pool_new(void *launcher, int count, pl_error_t *err)
{
    pl_worker_pool_t *pool = pl_alloc(sizeof *pool);
    if (!pool) {
        pl_no_memory(err);
        return NULL;
    }
    pool->lock = -1;
    pool->runtime = pl_actor_runtime(launcher);
    pool->loop = pl_actor_loop(launcher);
    pool->worker = pl_alloc_array((size_t)count, sizeof *pool->worker);
    int code = pool->worker ? pl_folder_make(pool->folder, &pool->lock, err)
                            : pl_no_memory(err);
    if (code != PL_OK) {
        pool_free(pool);
        return NULL;
    }
    pool->count = count;
    for (int k = 0; k < count; k++)
        pool->worker[k] = (worker_t){.pool = pool, .rank = k};
    pthread_mutex_lock(&pools_lock);
    pool->next = pools;
    pools = pool;
    pthread_mutex_unlock(&pools_lock);
    return pool;
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
