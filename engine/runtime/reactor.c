/* reactor.c - one thread's event loop, its inbound socket and the actors that live there
 *
 * A turn of the loop: first the messages from within the thread, up to a budget, then libevent, without waiting when
 * some are left.  A message within the thread takes a queue and not a socket: the way through inproc cost four times as
 * much, and encoding, checks and the stream are the same. */
#include "runtime/reactor.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "runtime/monitor.h"

enum { TURN_MESSAGES = 64, GRACE_MS = 10000 };

/* Threads that have an inbound socket: ZeroMQ would let us connect to one that is gone, and wait. */
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static pl_map_t threads;
static uint32_t threads_made;                               /* a number is never used again */

static uint32_t thread_enter(pl_reactor_t *reactor)
{
    pthread_mutex_lock(&threads_lock);
    uint32_t number = pl_map_put(&threads, threads_made + 1, reactor) == PL_OK ? ++threads_made : 0;
    pthread_mutex_unlock(&threads_lock);
    return number;
}

static void thread_leave(uint32_t number)
{
    pthread_mutex_lock(&threads_lock);
    pl_map_take(&threads, number);
    if (threads.count == 0)
        pl_map_release(&threads);
    pthread_mutex_unlock(&threads_lock);
}

static bool thread_is_there(uint32_t number)
{
    pthread_mutex_lock(&threads_lock);
    bool there = pl_map_get(&threads, number) != NULL;
    pthread_mutex_unlock(&threads_lock);
    return there;
}

int pl_runtime_init(pl_runtime_t *runtime, pl_error_t *err)
{
    static uint64_t runs_made;
    uint64_t seed[2] = {(uint64_t)getpid(), __atomic_add_fetch(&runs_made, 1, __ATOMIC_RELAXED)};
    *runtime = (pl_runtime_t){.run = pl_mix(pl_mix(seed[0], seed[1]), (uint64_t)pl_now()),
                              .began = pl_now(), .grace_ms = GRACE_MS};
    pthread_mutex_init(&runtime->lock, NULL);
    if (pl_context_acquire(err))
        return PL_OK;
    pthread_mutex_destroy(&runtime->lock);
    return PL_ENOMEM;
}

void pl_runtime_release(pl_runtime_t *runtime)
{
    while (runtime->seqs) {
        pl_rank_seq_t *other = runtime->seqs->other;
        pl_free(runtime->seqs);
        runtime->seqs = other;
    }
    pthread_mutex_destroy(&runtime->lock);
    pl_context_release();
}

static pl_rank_seq_t *seq_of(pl_runtime_t *runtime, int rank)
{
    pthread_mutex_lock(&runtime->lock);
    pl_rank_seq_t *seq = runtime->seqs;
    while (seq && seq->rank != rank)
        seq = seq->other;
    if (!seq && (seq = pl_alloc(sizeof *seq))) {
        *seq = (pl_rank_seq_t){.rank = rank, .other = runtime->seqs};
        runtime->seqs = seq;
    }
    pthread_mutex_unlock(&runtime->lock);
    return seq;
}

/* ---- making and freeing ---- */

static void inbound_message(void *user, uint32_t identity, void *zmq_message)
{
    (void)identity;
    pl_reactor_t *reactor = user;
    pl_error_t err;
    pl_frame_t *frame = pl_frame_receive(zmq_message, &err);
    if (frame) {
        pl_actors_deliver(reactor, frame);
        return;
    }
    __atomic_add_fetch(&reactor->runtime->malformed, 1, __ATOMIC_RELAXED);
    pl_log_line(PL_LOG_WARNING, reactor->rank, "", "dropped a message: %s", err.text);
}

static void endpoint_of(uint32_t thread, char text[static 48])
{
    snprintf(text, 48, "inproc://paceline-%d-%u", (int)getpid(), thread);
}

static void posted_run(evutil_socket_t fd, short what, void *user)
{
    (void)what;
    pl_reactor_t *reactor = user;
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&reactor->post_lock);
    pl_posted_t *list = reactor->posted;
    reactor->posted = NULL;
    reactor->posted_last = &reactor->posted;
    pthread_mutex_unlock(&reactor->post_lock);
    while (list) {
        pl_posted_t *next = list->next;
        list->then(list->argument);
        pl_free(list);
        list = next;
    }
}

static void limit_timer_fired(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_reactor_t *reactor = user;
    reactor->limit_next = 0;
    pl_actors_check_limits(reactor);
}

static int reactor_events(pl_reactor_t *reactor, pl_error_t *err)
{
    struct event_config *config = event_config_new();
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_PRECISE_TIMER);
        reactor->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (!reactor->base)
        return pl_no_memory(err);
    reactor->wake = event_new(reactor->base, reactor->wake_fd, EV_READ | EV_PERSIST, posted_run, reactor);
    reactor->limit_timer = event_new(reactor->base, -1, 0, limit_timer_fired, reactor);
    if (!reactor->wake || !reactor->limit_timer || event_add(reactor->wake, NULL) != 0)
        return pl_no_memory(err);
    return PL_OK;
}

pl_reactor_t *pl_reactor_new(pl_runtime_t *runtime, int rank, pl_error_t *err)
{
    pl_reactor_t *reactor = pl_alloc(sizeof *reactor);
    if (!reactor) {
        pl_no_memory(err);
        return NULL;
    }
    *reactor = (pl_reactor_t){.runtime = runtime, .rank = rank, .thread = thread_enter(reactor)};
    reactor->last = &reactor->first;
    reactor->posted_last = &reactor->posted;
    pthread_mutex_init(&reactor->post_lock, NULL);
    reactor->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    char endpoint[48];
    endpoint_of(reactor->thread, endpoint);
    pl_socket_spec_t inbound = {.type = PL_SOCKET_ROUTER, .endpoint = endpoint, .bind = true};
    reactor->seq = seq_of(runtime, rank);
    if (!reactor->seq || !reactor->thread)
        pl_no_memory(err);
    else if (reactor->wake_fd < 0)
        pl_fail(err, PL_EBUSY, "no descriptor left for an event loop: raise the limit (ulimit -n)");
    else if (reactor_events(reactor, err) == PL_OK
             && (reactor->inbound = pl_socket_open(&inbound, reactor->base, inbound_message, reactor, err)))
        return reactor;
    pl_reactor_free(reactor);
    return NULL;
}

static void queue_release(pl_reactor_t *reactor)
{
    while (reactor->first) {
        pl_frame_t *frame = reactor->first;
        reactor->first = *pl_frame_next(frame);
        pl_frame_free(frame);
    }
}

static void posted_release(pl_reactor_t *reactor)
{
    while (reactor->posted) {
        pl_posted_t *next = reactor->posted->next;
        pl_free(reactor->posted);
        reactor->posted = next;
    }
}

void pl_reactor_free(pl_reactor_t *reactor)
{
    if (!reactor)
        return;
    uint64_t key;
    thread_leave(reactor->thread);
    pl_actors_release(reactor);
    queue_release(reactor);
    posted_release(reactor);
    while (pl_map_any(&reactor->links, &key))
        pl_socket_close(pl_map_take(&reactor->links, key));
    pl_map_release(&reactor->links);
    pl_socket_close(reactor->inbound);
    pl_socket_close(reactor->to_monitor);
    if (reactor->wake)
        event_free(reactor->wake);
    if (reactor->limit_timer)
        event_free(reactor->limit_timer);
    if (reactor->base)
        event_base_free(reactor->base);
    if (reactor->wake_fd >= 0)
        close(reactor->wake_fd);
    pthread_mutex_destroy(&reactor->post_lock);
    pl_free(reactor);
}

/* ---- running ---- */

static void queue_turn(pl_reactor_t *reactor)
{
    for (int k = 0; k < TURN_MESSAGES && reactor->first && !reactor->leave; k++) {
        pl_frame_t *frame = reactor->first;
        reactor->first = *pl_frame_next(frame);
        if (!reactor->first)
            reactor->last = &reactor->first;
        pl_actors_deliver(reactor, frame);
    }
}

void pl_reactor_run(pl_reactor_t *reactor)
{
    while (!reactor->leave) {
        queue_turn(reactor);
        pl_actors_reap(reactor);
        if (!reactor->leave)
            event_base_loop(reactor->base, EVLOOP_ONCE | (reactor->first ? EVLOOP_NONBLOCK : 0));
    }
}

static void *thread_main(void *user)
{
    pl_reactor_run(user);
    return NULL;
}

int pl_reactor_start(pl_reactor_t *reactor, const char *name, pl_error_t *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);            /* signals belong to the host's threads */
    int failed = pthread_create(&reactor->pthread, NULL, thread_main, reactor);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return pl_fail(err, PL_EBUSY, "cannot start a thread for %s: raise the limit of threads (ulimit -u)", name);
    reactor->has_pthread = true;
    char short_name[16];
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(reactor->pthread, short_name);
    return PL_OK;
}

void pl_reactor_leave(pl_reactor_t *reactor)
{
    reactor->leave = true;
}

static void leave_posted(void *reactor)
{
    pl_reactor_leave(reactor);
}

void pl_reactor_stop(pl_reactor_t *reactor)
{
    if (reactor->has_pthread) {
        while (pl_reactor_post(reactor, leave_posted, reactor, NULL) != PL_OK)
            usleep(1000);                                   /* memory was out for a moment */
        pthread_join(reactor->pthread, NULL);
    }
    pl_reactor_free(reactor);
}

int pl_reactor_post(pl_reactor_t *reactor, void (*then)(void *), void *argument, pl_error_t *err)
{
    pl_posted_t *posted = pl_alloc(sizeof *posted);
    if (!posted)
        return pl_no_memory(err);
    *posted = (pl_posted_t){.then = then, .argument = argument};
    pthread_mutex_lock(&reactor->post_lock);
    *reactor->posted_last = posted;
    reactor->posted_last = &posted->next;
    pthread_mutex_unlock(&reactor->post_lock);
    const uint64_t one = 1;
    while (write(reactor->wake_fd, &one, sizeof one) < 0)
        ;                                                   /* only a signal can interrupt it */
    return PL_OK;
}

/* ---- sending ---- */

static pl_socket_t *link_to(pl_reactor_t *reactor, uint32_t thread, pl_error_t *err)
{
    pl_socket_t *link = pl_map_get(&reactor->links, thread);
    if (link)
        return link;
    if (!thread_is_there(thread)) {
        pl_fail(err, PL_EPEER, "the thread of this actor is gone");
        return NULL;
    }
    char endpoint[48];
    endpoint_of(thread, endpoint);
    pl_socket_spec_t spec = {.type = PL_SOCKET_DEALER, .endpoint = endpoint, .identity = reactor->thread};
    link = pl_socket_open(&spec, reactor->base, inbound_message, reactor, err);
    if (link && pl_map_put(&reactor->links, thread, link) != PL_OK) {
        pl_socket_close(link);
        pl_no_memory(err);
        return NULL;
    }
    return link;
}

void pl_reactor_unlink(pl_reactor_t *reactor, uint32_t thread)
{
    pl_socket_close(pl_map_take(&reactor->links, thread));
}

int pl_reactor_send(pl_reactor_t *reactor, pl_frame_t **frame_p, pl_error_t *err)
{
    pl_envelope_t e = pl_frame_envelope(*frame_p);
    pl_monitor_offer(reactor, *frame_p);
    if (e.to_thread == reactor->thread) {
        *reactor->last = *frame_p;
        reactor->last = pl_frame_next(*frame_p);
        *frame_p = NULL;
        return PL_OK;
    }
    if (e.kind != PL_KIND_CALL && e.kind != PL_KIND_CANCEL)
        return pl_socket_send(reactor->inbound, e.to_thread, frame_p, err);
    pl_socket_t *link = link_to(reactor, e.to_thread, err);
    if (link)
        return pl_socket_send(link, 0, frame_p, err);
    pl_frame_free(*frame_p);
    *frame_p = NULL;
    return PL_EPEER;
}
