/* monitor.c - the stream: offers every message once to viewers, without waiting
 *
 * The thread that sends on a ZeroMQ socket pays for publishing, so rank threads do not
 * publish.  They put one copy of each frame on a stack.  The hub, a thread of its own,
 * takes the whole stack, reverses it and publishes.  It is one stack and not a socket
 * for each thread, so a message is in the stream before all messages that it caused,
 * on any thread.  Messages that the hub cannot take, or that have no viewer, are
 * dropped and counted, and `seq` shows the gap.  Calls of whole runs and their ends
 * are never dropped.
 *
 * To wake the hub costs a rank more than to copy a frame.  So while messages arrive, the
 * hub looks at the stack every few milliseconds, less often without a live viewer, and
 * only the first message after a pause wakes it. */
#include "runtime/monitor.h"

#include <event2/event.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/monitor_parts.h"
#include "transport/endpoint.h"

enum {
    BACKLOG_BYTES = 16 << 20,                               /* limit of waiting frames */
    LOOK_EVERY_US = 3000,
    LOOK_SELDOM_US = 15000,                                 /* without a live viewer */
};

typedef struct stream_record {
    struct stream_record *next;
    pl_rank_seq_t *seq;
    uint64_t dropped;                       /* messages of the rank before it that have no
                                               record */
    int64_t time;                           /* ns since the runtime began */
    size_t size;
    _Alignas(8) unsigned char frame[];
} stream_record_t;

/* ---- the rank's side ---- */

/* NULL: the backlog is full, or no memory. */
static stream_record_t *record_new(pl_monitor_t *m, pl_bytes_t frame, size_t size)
{
    pl_envelope_t e = {0};
    size_t bytes = sizeof(stream_record_t) + size;
    size_t waiting = __atomic_add_fetch(&m->waiting, bytes, __ATOMIC_RELAXED);
    bool has_capacity = m->lossless || waiting <= BACKLOG_BYTES;
    if (!has_capacity && frame.size >= sizeof e) {
        memcpy(&e, frame.data, sizeof e);
        has_capacity = monitor_is_of_whole_run(&e);
    }
    stream_record_t *record = has_capacity ? pl_resize(NULL, bytes) : NULL;
    if (!record)
        __atomic_sub_fetch(&m->waiting, bytes, __ATOMIC_RELAXED);
    return record;
}

void pl_monitor_offer(pl_reactor_t *reactor, pl_bytes_t frame)
{
    pl_monitor_t *m = monitor_of(reactor->runtime);
    if (!m)
        return;
    const size_t size = frame.size < PL_TAP_FRAME_MAX ? frame.size : PL_TAP_FRAME_MAX;
    bool is_watched = __atomic_load_n(&m->watchers, __ATOMIC_RELAXED) > 0;
    stream_record_t *record = is_watched ? record_new(m, frame, size) : NULL;
    if (!record) {
        pl_count(&reactor->seq->dropped);
        return;
    }
    record->seq = reactor->seq;
    record->dropped = __atomic_load_n(&reactor->seq->dropped, __ATOMIC_RELAXED)
                          ? __atomic_exchange_n(&reactor->seq->dropped, 0,
                                                __ATOMIC_RELAXED)
                          : 0;
    record->time = pl_now() - reactor->runtime->began;
    record->size = size;
    memcpy(record->frame, frame.data, size);
    stream_record_t *below = __atomic_load_n(&m->top, __ATOMIC_RELAXED);
    do
        record->next = below;
    while (!__atomic_compare_exchange_n(&m->top, &below, record, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED));
    const uint64_t one = 1;                              /* the hub owns the record now */
    if (!below && !__atomic_load_n(&m->looks, __ATOMIC_SEQ_CST)
        && write(m->wake_fd, &one, sizeof one) < 0)
        return;                               /* cannot fail: an eventfd counts to 2^64 */
}

/* ---- the hub's side ---- */

void monitor_show(pl_monitor_t *m, const pl_tap_record_t *record)
{
    monitor_taps_show(m, record);
    monitor_publish(m, record);
}

/* Only messages of ranks belong to the stream of another process. */
static void hub_pass(pl_monitor_t *m, stream_record_t *record)
{
    pl_rank_seq_t *seq = record->seq;
    seq->next += record->dropped;
    pl_tap_record_t r = {.stamp = {.seq = seq->next++,
                                   .time = record->time + m->shift,
                                   .rank = seq->rank},
                         .frame = {record->frame, record->size}};
    if (pl_envelope_read(r.frame, &r.envelope, NULL) != PL_OK)
        return;
    if (m->run) {
        r.envelope.run = m->run;
        memcpy(record->frame, &r.envelope, sizeof r.envelope);
    }
    monitor_show(m, &r);
    if (m->other.topics.count > 0 && seq->rank >= 0)
        monitor_bring(m, &r);
}

bool monitor_flush(pl_monitor_t *m)
{
    stream_record_t *newest = __atomic_exchange_n(&m->top, NULL, __ATOMIC_SEQ_CST),
                    *oldest = NULL;
    const bool any = newest != NULL;
    while (newest) {
        stream_record_t *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        stream_record_t *next = oldest->next;
        hub_pass(m, oldest);
        __atomic_sub_fetch(&m->waiting, sizeof *oldest + oldest->size, __ATOMIC_RELAXED);
        pl_free(oldest);
        oldest = next;
    }
    return any;
}

/* Looks again as long as it finds records.  It looks once more after it has cleared
 * `looks`: a record that arrived before that did not wake the hub. */
static void hub_look(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    static const struct timeval soon = {0, LOOK_EVERY_US}, later = {0, LOOK_SELDOM_US};
    pl_monitor_t *m = user;
    if (m->held_until && pl_now() >= m->held_until) {
        m->held_until = 0;
        monitor_count_watchers(m);
    }
    bool any = m->held_until || monitor_flush(m);
    __atomic_store_n(&m->looks, any, __ATOMIC_SEQ_CST);
    if (!any && monitor_flush(m)) {
        any = true;
        __atomic_store_n(&m->looks, true, __ATOMIC_SEQ_CST);
    }
    const bool is_awaited = m->own.topics.count || m->other.topics.count || m->held_until;
    if (any)
        event_add(m->look, is_awaited ? &soon : &later);
}

static void hub_woken(evutil_socket_t fd, short what, void *user)
{
    uint64_t count;
    if (read(fd, &count, sizeof count) == sizeof count)
        hub_look(fd, what, user);
}

/* ---- life ---- */

static void hub_free(pl_monitor_t *m)
{
    if (m->wake_fd >= 0)
        close(m->wake_fd);
    pl_free(m);
}

static void hub_close(pl_monitor_t *m)
{
    monitor_taps_close(m);
    monitor_feeds_close(m);
    monitor_outlet_close(&m->own);
    monitor_bring_end(m);
    if (m->wake)
        event_free(m->wake);
    if (m->look)
        event_free(m->look);
    pl_reactor_free(m->reactor);
    m->reactor = NULL;
}

static pl_monitor_t *hub_new(pl_runtime_t *runtime, bool lossless, pl_error_t *err)
{
    pl_monitor_t *m = pl_alloc(sizeof *m);
    if (!m) {
        pl_no_memory(err);
        return NULL;
    }
    m->runtime = runtime;
    m->lossless = lossless;
    m->own.monitor = m->other.monitor = m;
    m->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    m->reactor = pl_reactor_new(m->runtime, -1, err);
    if (m->reactor && m->wake_fd >= 0) {
        m->wake = event_new(m->reactor->loop.base, m->wake_fd, EV_READ | EV_PERSIST,
                            hub_woken, m);
        m->look = event_new(m->reactor->loop.base, -1, 0, hub_look, m);
        if (!m->wake || !m->look || event_add(m->wake, NULL) != 0)
            pl_no_memory(err);
        else if (pl_reactor_start(m->reactor, "monitor", err) == PL_OK)
            return m;
    } else if (m->reactor) {
        pl_fail(err, PL_EBUSY,
                "no descriptor left for the stream: raise the limit (ulimit -n)");
    }
    hub_close(m);
    hub_free(m);
    return NULL;
}

typedef struct asked {
    pl_monitor_t *monitor;
    monitor_ask_t ask;
    const void *argument;
    pl_error_t *err;
    int code;
    bool is_done;
    pthread_mutex_t lock;
    pthread_cond_t done;
} asked_t;

static void asked_run(void *argument)
{
    asked_t *asked = argument;
    const int code = asked->ask(asked->monitor, asked->argument, asked->err);
    pthread_mutex_lock(&asked->lock);
    asked->code = code;
    asked->is_done = true;
    pthread_cond_signal(&asked->done);
    pthread_mutex_unlock(&asked->lock);
}

int monitor_ask(pl_runtime_t *runtime, bool lossless, monitor_ask_t ask,
                const void *argument, pl_error_t *err)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    pl_error_t own;
    if (!err)
        err = &own;
    pthread_mutex_lock(&one_at_a_time);
    pl_monitor_t *there = monitor_of(runtime),
                 *m = there ? there : hub_new(runtime, lossless, err);
    asked_t asked = {.monitor = m, .ask = ask, .argument = argument, .err = err};
    pthread_mutex_init(&asked.lock, NULL);
    pthread_cond_init(&asked.done, NULL);
    int code = !m ? err->code
               : m->reactor
                   ? pl_reactor_post(m->reactor, asked_run, &asked, err)
                   : pl_fail(err, PL_ESTATE, "the stream of this engine has ended");
    pthread_mutex_lock(&asked.lock);
    while (code == PL_OK && !asked.is_done)
        pthread_cond_wait(&asked.done, &asked.lock);
    if (code == PL_OK)
        code = asked.code;
    pthread_mutex_unlock(&asked.lock);
    pthread_cond_destroy(&asked.done);
    pthread_mutex_destroy(&asked.lock);
    /* Ranks find a new hub only after its first success: a hub that failed is freed, and
     * no thread may be about to use it. */
    if (m && !there && code == PL_OK) {
        __atomic_store_n(&runtime->monitor, m, __ATOMIC_RELEASE);
    } else if (m && !there) {
        pl_reactor_join(m->reactor);
        hub_close(m);
        hub_free(m);
    }
    pthread_mutex_unlock(&one_at_a_time);
    return code;
}

static int hub_publish(pl_monitor_t *m, const void *argument, pl_error_t *err)
{
    const pl_socket_spec_t spec = {.endpoint = argument, .bind = true};
    if (m->publishes)
        return pl_fail(err, PL_ESTATE, "the stream is already published, at %s",
                       m->endpoint);
    if (m->brings)
        return pl_fail(err, PL_ESTATE,
                       "the messages of this process are in the stream of rank 0: "
                       "subscribe there");
    int code = monitor_outlet_open(m, &m->own, &spec, err);
    if (code == PL_OK)
        code = pl_socket_endpoint(m->own.socket, m->endpoint, sizeof m->endpoint, err);
    if (code != PL_OK)
        monitor_outlet_close(&m->own);
    __atomic_store_n(&m->publishes, code == PL_OK, __ATOMIC_RELEASE);
    return code;
}

int pl_monitor_start(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                     pl_error_t *err)
{
    int code = pl_endpoint_is_public("monitor", endpoint, err);
    return code == PL_OK ? monitor_ask(runtime, lossless, hub_publish, endpoint, err)
                         : code;
}

static int hub_show(pl_monitor_t *m, const void *argument, pl_error_t *err)
{
    (void)err;
    monitor_show(m, argument);
    return PL_OK;
}

int pl_monitor_show(pl_runtime_t *runtime, const pl_tap_record_t *record, pl_error_t *err)
{
    return monitor_ask(runtime, false, hub_show, record, err);
}

static int hub_catch_up(pl_monitor_t *m, const void *argument, pl_error_t *err)
{
    (void)argument, (void)err;
    monitor_flush(m);
    return PL_OK;
}

void pl_monitor_catch_up(pl_runtime_t *runtime)
{
    if (monitor_of(runtime))
        monitor_ask(runtime, false, hub_catch_up, NULL, NULL);
}

bool pl_monitor_publishes(const pl_runtime_t *runtime)
{
    const pl_monitor_t *m = monitor_of(runtime);
    return m && __atomic_load_n(&m->publishes, __ATOMIC_ACQUIRE);
}

bool pl_monitor_gathers(const pl_runtime_t *runtime)
{
    const pl_monitor_t *m = monitor_of(runtime);
    return pl_monitor_publishes(runtime)
           || (m && __atomic_load_n(&m->tap_count, __ATOMIC_ACQUIRE));
}

bool pl_monitor_is_lossless(const pl_runtime_t *runtime)
{
    const pl_monitor_t *m = monitor_of(runtime);
    return m && m->lossless;
}

const char *pl_monitor_endpoint(const pl_runtime_t *runtime)
{
    return pl_monitor_publishes(runtime) ? monitor_of(runtime)->endpoint : "";
}

int pl_monitor_watchers(const pl_runtime_t *runtime)
{
    const pl_monitor_t *m = monitor_of(runtime);
    return m ? __atomic_load_n(&m->watchers, __ATOMIC_ACQUIRE) : 0;
}

/* A stuck thread may still offer a frame, so the monitor is kept then, without
 * viewers. */
void pl_monitor_stop(pl_runtime_t *runtime)
{
    pl_monitor_t *m = monitor_of(runtime);
    if (!m || !m->reactor)
        return;
    pl_reactor_join(m->reactor);
    monitor_flush(m);
    __atomic_store_n(&m->watchers, 0, __ATOMIC_RELAXED);
    hub_close(m);
    if (__atomic_load_n(&runtime->stuck, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&runtime->monitor, NULL, __ATOMIC_RELEASE);
    hub_free(m);
}
