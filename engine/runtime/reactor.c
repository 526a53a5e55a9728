/* reactor.c - one thread's event loop, its inbound socket and the actors that live there
 *
 * A turn of the loop handles waiting messages, up to a budget, and then lets libevent
 * handle its events, without waiting while messages are left.  Messages from other
 * threads join the same queue.  A message within the thread uses the queue and no
 * socket: 0.05 µs instead of the 5 µs through inproc and the loop (t/bench/runtime).
 * Encoding, checks and the stream are the same.
 *
 * To wake another thread costs far more than a message (25 µs where a hypervisor has
 * to wake an idle processor), so messages to other threads are held and leave
 * together.  They leave when no message waits here; when the handler that sent the
 * first of them began eight milliseconds ago; from a quarter of a millisecond on, when
 * as many are held as wait; and at once if a handler took eight milliseconds recently.
 * So a thread that computes step after step wakes the thread that feeds it once in
 * many steps and does not starve.  A thread with quick handlers wakes others once for
 * all waiting messages.  And a thread with long steps does not delay its answers to
 * the end of the next step. */
#include "runtime/reactor.h"

#include <event2/event.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "runtime/monitor.h"

enum { TURN_MESSAGES = 64, ENDPOINT_TEXT = 48, EXPECT_WAKES = 16, LONGEST_HANDLERS = 8 };
static const int64_t TURN_TIME = PL_MILLISECOND, HOLD_MAX = 8 * PL_MILLISECOND,
                     HOLD_MIN = PL_MILLISECOND / 4, LOOP_MIN = PL_MILLISECOND / 4;

/* ---- receiving ---- */

static void deliver_first(pl_reactor_t *reactor)
{
    pl_frame_t frame;
    if (!pl_queue_take(&reactor->queue, &frame))
        return;
    pl_actors_deliver(reactor, &frame);
    pl_frame_release(&frame);
}

static void message_came(pl_reactor_t *reactor, pl_frame_t *frame, uint32_t sender)
{
    pl_error_t err;
    pl_envelope_t e = {0};
    int code = frame ? pl_envelope_read(pl_frame_bytes(frame), &e, &err)
                     : pl_fail(&err, PL_EPROTOCOL, "it is not a single frame");
    if (code == PL_OK && sender && sender != e.from_thread)
        code = pl_fail(&err, PL_EPROTOCOL,
                       "the message of thread %u names thread %u as its sender", sender,
                       e.from_thread);
    if (code != PL_OK) {
        pl_count(&reactor->runtime->malformed);
        pl_log_line(PL_LOG_WARNING, reactor->rank, "", "dropped a message: %s", err.text);
        return;
    }
    /* Without memory for the queue, earlier messages are handled now, in their order. */
    while (pl_queue_reserve(&reactor->queue) != PL_OK && reactor->queue.count)
        deliver_first(reactor);
    if (pl_queue_reserve(&reactor->queue) == PL_OK)
        pl_queue_put(&reactor->queue, frame);
    else
        pl_actors_deliver(reactor, frame);
}

static void inbound_message(void *user, uint32_t identity, pl_frame_t *frame)
{
    const uint32_t no_thread = UINT32_MAX;
    message_came(user, frame, identity ? identity : no_thread);
}

static void inbox_message(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity;
    message_came(user, frame, 0);
}

/* The request to leave is read before the posted functions run.  A request that
 * arrives while they run may follow another posted function, and that one runs in a
 * later turn. */
static void woken(evutil_socket_t fd, short what, void *user)
{
    (void)what;
    pl_reactor_t *reactor = user;
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0)
        return;
    const bool is_last = __atomic_load_n(&reactor->asked_to_leave, __ATOMIC_ACQUIRE);
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
    if (__atomic_exchange_n(&reactor->thread_gone, false, __ATOMIC_ACQUIRE)) {
        /* Closes the inboxes of threads that have ended. The answers that such a
         * thread sent before are handled first. */
        for (size_t k = 0; k < reactor->inboxes.capacity; k++) {
            const uint32_t thread = (uint32_t)reactor->inboxes.key[k];
            if (!thread || pl_thread_is_there(thread))
                continue;
            pl_socket_drain(pl_map_get(&reactor->inboxes, thread));
            pl_socket_close(pl_map_take(&reactor->inboxes, thread));
            while (reactor->queue.count)
                deliver_first(reactor);
            pl_actors_lost_thread(reactor, thread);
            k = (size_t)-1;                                 /* the map has changed */
        }
    }
    if (is_last)
        pl_reactor_leave(reactor);
}

static void wake(pl_reactor_t *reactor)
{
    const uint64_t one = 1;
    while (write(reactor->wake_fd, &one, sizeof one) < 0)
        continue;                                     /* only a signal can interrupt it */
}

void pl_reactor_thread_gone(pl_reactor_t *reactor)
{
    __atomic_store_n(&reactor->thread_gone, true, __ATOMIC_RELEASE);
    wake(reactor);
}

static void limit_timer_fired(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_reactor_t *reactor = user;
    pl_reactor_fired(reactor, reactor->limit_next);
    reactor->limit_next = 0;
    pl_actors_check_limits(reactor);
}

/* ---- making and freeing ---- */

/* Opens the event loop and the inbound socket. */
static int reactor_open(pl_reactor_t *reactor, pl_error_t *err)
{
    char endpoint[ENDPOINT_TEXT];
    const int code = pl_sockets_open(&reactor->loop, err);
    if (code != PL_OK)
        return code;
    reactor->wake = event_new(reactor->loop.base, reactor->wake_fd, EV_READ | EV_PERSIST,
                              woken, reactor);
    reactor->limit_timer = event_new(reactor->loop.base, -1, 0, limit_timer_fired,
                                     reactor);
    if (!reactor->wake || !reactor->limit_timer || event_add(reactor->wake, NULL) != 0)
        return pl_no_memory(err);
    snprintf(endpoint, ENDPOINT_TEXT, "inproc://paceline-%d-%u", (int)getpid(),
             reactor->thread);
    pl_socket_spec_t spec = {.type = PL_SOCKET_ROUTER,
                             .endpoint = endpoint,
                             .company = true,
                             .bind = true};
    reactor->inbound = pl_socket_open(&spec, &reactor->loop, inbound_message, reactor,
                                      err);
    return reactor->inbound ? PL_OK : PL_EIO;
}

pl_reactor_t *pl_reactor_new(pl_runtime_t *runtime, int rank, pl_error_t *err)
{
    pl_reactor_t *reactor = pl_alloc(sizeof *reactor);
    if (!reactor) {
        pl_no_memory(err);
        return NULL;
    }
    reactor->runtime = runtime;
    reactor->rank = rank;
    reactor->posted_last = &reactor->posted;
    pthread_mutex_init(&reactor->post_lock, NULL);
    reactor->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    reactor->seq = pl_runtime_seq(runtime, rank);
    if (reactor->wake_fd < 0)
        pl_fail(err, PL_EBUSY,
                "no descriptor left for an event loop: raise the limit (ulimit -n)");
    else if (!reactor->seq || !(reactor->thread = pl_thread_enter(reactor)))
        pl_no_memory(err);
    else if (reactor_open(reactor, err) == PL_OK)
        return reactor;
    pl_reactor_free(reactor);
    return NULL;
}

void pl_reactor_free(pl_reactor_t *reactor)
{
    if (!reactor)
        return;
    uint64_t key;
    if (reactor->thread)
        pl_thread_leave(reactor->thread);
    pl_actors_release(reactor);
    pl_object_unref(reactor->profiler);
    pl_queue_release(&reactor->queue);
    pl_queue_release(&reactor->held);
    while (reactor->posted) {
        pl_posted_t *next = reactor->posted->next;
        pl_free(reactor->posted);
        reactor->posted = next;
    }
    while (pl_map_any(&reactor->inboxes, &key))
        pl_socket_close(pl_map_take(&reactor->inboxes, key));
    pl_map_release(&reactor->inboxes);
    pl_socket_close(reactor->inbound);
    if (reactor->wake)
        event_free(reactor->wake);
    if (reactor->limit_timer)
        event_free(reactor->limit_timer);
    pl_sockets_close(&reactor->loop);
    if (reactor->wake_fd >= 0)
        close(reactor->wake_fd);
    pthread_mutex_destroy(&reactor->post_lock);
    pl_free(reactor);
}

/* ---- held messages to other threads ---- */

static bool is_answer(const pl_envelope_t *e)
{
    return e->kind != PL_KIND_CALL && e->kind != PL_KIND_CANCEL;
}

/* The socket of a message; NULL: its thread has ended, and inboxes_check() ended the
 * call. */
static pl_socket_t *socket_of(pl_reactor_t *reactor, const pl_envelope_t *e)
{
    return is_answer(e) ? reactor->inbound : pl_map_get(&reactor->inboxes, e->to_thread);
}

/* Neighbours of one socket leave together, so they wake its thread once. */
static void held_send(pl_reactor_t *reactor)
{
    pl_frame_t frame;
    while (pl_queue_take(&reactor->held, &frame)) {
        const pl_frame_t *next = pl_queue_first(&reactor->held);
        const pl_envelope_t e = pl_frame_envelope(&frame),
                            then = next ? pl_frame_envelope(next) : (pl_envelope_t){0};
        pl_socket_t *socket = socket_of(reactor, &e);
        const bool more = next && then.to_thread == e.to_thread
                          && socket_of(reactor, &then) == socket;
        if (socket)
            pl_socket_send_with(socket, e.to_thread, &frame, more, NULL);
        else
            pl_frame_release(&frame);
    }
}

static bool is_overdue(const pl_reactor_t *reactor, int64_t now)
{
    return now - reactor->held_at >= HOLD_MAX || reactor->longest >= HOLD_MAX;
}

/* ---- running ---- */

/* Handles waiting messages, up to the budget of a turn. */
static void queue_turn(pl_reactor_t *reactor)
{
    int64_t now = pl_now(), end = now + TURN_TIME;
    for (int k = 0;
         k < TURN_MESSAGES && now < end && !reactor->leave && reactor->queue.count; k++) {
        const int64_t began = now;
        if (!reactor->held.count)
            reactor->held_at = now;
        deliver_first(reactor);
        now = pl_now();
        reactor->longest -= reactor->longest / LONGEST_HANDLERS;
        if (reactor->longest < now - began)
            reactor->longest = now - began;
        if (!reactor->held.count || !reactor->queue.count)
            continue;            /* an empty queue: pl_reactor_run() sends what is held */
        bool is_due = is_overdue(reactor, now);
        if (!is_due && now - reactor->held_at >= HOLD_MIN
            && reactor->held.count >= reactor->queue.count) {
            pl_socket_look(reactor->inbound);       /* more may have arrived since then */
            is_due = reactor->held.count >= reactor->queue.count;
        }
        if (is_due)
            held_send(reactor);
    }
}

void pl_reactor_abandon(pl_reactor_t *reactor)
{
    pl_count(&reactor->runtime->stuck);
    __atomic_store_n(&reactor->abandoned, true, __ATOMIC_RELEASE);
    pthread_detach(reactor->pthread);                       /* no thread joins it */
}

bool pl_reactor_is_abandoned(const pl_reactor_t *reactor)
{
    return __atomic_load_n(&reactor->abandoned, __ATOMIC_ACQUIRE);
}

/* Reads what has arrived.  If several messages came together, the next ones are expected
 * to do so, too: then a look for them before answers leave is worth its system calls. */
static void look(pl_reactor_t *reactor)
{
    const size_t waiting = reactor->queue.count;
    pl_sockets_flush(&reactor->loop);
    if (reactor->queue.count > waiting + 1)
        reactor->expects = EXPECT_WAKES;
}

/* Actors read and write files, JSON and texts with numbers of the C locale; the locale of
 * the program may write a comma.  newlocale() returns a constant for the C locale.
 *
 * libevent handles timers and other descriptors when no message waits, and otherwise each
 * quarter of a millisecond, because each time costs a system call. */
void pl_reactor_run(pl_reactor_t *reactor)
{
    const locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    while (!reactor->leave && !pl_reactor_is_abandoned(reactor)) {
        pl_placement_work(&reactor->placement);
        queue_turn(reactor);
        pl_actors_reap(reactor);
        if (reactor->held.count && reactor->expects)
            look(reactor);
        if (!reactor->queue.count || reactor->leave
            || (reactor->held.count && is_overdue(reactor, pl_now())))
            held_send(reactor);
        look(reactor);
        const bool waits = reactor->queue.count > 0;
        if (!waits) {
            pl_placement_rest(&reactor->placement);
            reactor->expects -= reactor->expects > 0;
        }
        if (reactor->leave || pl_reactor_is_abandoned(reactor)
            || (waits && pl_now() - reactor->looped_at < LOOP_MIN))
            continue;
        event_base_loop(reactor->loop.base, EVLOOP_ONCE | (waits ? EVLOOP_NONBLOCK : 0));
        if (waits)
            reactor->looped_at = pl_now();
    }
    pl_placement_rest(&reactor->placement);
    if (!pl_reactor_is_abandoned(reactor))
        held_send(reactor);
    uselocale(before);
}

static void *thread_main(void *user)
{
    pl_share_inherit(((pl_reactor_t *)user)->shares);
    pl_reactor_run(user);
    if (pl_reactor_is_abandoned(user))
        pl_actors_abandon_children(user);                 /* no other thread knows them */
    return NULL;
}

int pl_reactor_start(pl_reactor_t *reactor, const char *name, pl_error_t *err)
{
    sigset_t open;
    sigemptyset(&open);
    if (reactor->runtime->is_child)
        sigaddset(&open, SIGABRT);
    reactor->shares = pl_share_is_taken();
    const int code = pl_thread_start(&reactor->pthread, name, &open, thread_main, reactor,
                                     err);
    reactor->has_pthread = code == PL_OK;
    return code;
}

void pl_reactor_leave(pl_reactor_t *reactor)
{
    reactor->leave = true;
}

void pl_reactor_join(pl_reactor_t *reactor)
{
    if (!reactor->has_pthread)
        return;
    __atomic_store_n(&reactor->asked_to_leave, true, __ATOMIC_RELEASE);
    wake(reactor);
    pthread_join(reactor->pthread, NULL);
    reactor->has_pthread = false;
}

void pl_reactor_stop(pl_reactor_t *reactor)
{
    pl_reactor_join(reactor);
    pl_reactor_free(reactor);
}

int pl_reactor_post(pl_reactor_t *reactor, void (*then)(void *), void *argument,
                    pl_error_t *err)
{
    pl_posted_t *posted = pl_alloc(sizeof *posted);
    if (!posted)
        return pl_no_memory(err);
    *posted = (pl_posted_t){.then = then, .argument = argument};
    pthread_mutex_lock(&reactor->post_lock);
    *reactor->posted_last = posted;
    reactor->posted_last = &posted->next;
    pthread_mutex_unlock(&reactor->post_lock);
    wake(reactor);
    return PL_OK;
}

/* ---- sending ---- */

static pl_socket_t *inbox_of(pl_reactor_t *reactor, uint32_t thread, pl_error_t *err)
{
    pl_socket_t *inbox = pl_map_get(&reactor->inboxes, thread);
    if (inbox)
        return inbox;
    if (!pl_thread_is_there(thread)) {
        pl_fail(err, PL_EPEER, "the thread of this actor has ended");
        return NULL;
    }
    char endpoint[ENDPOINT_TEXT];
    snprintf(endpoint, ENDPOINT_TEXT, "inproc://paceline-%d-%u", (int)getpid(), thread);
    pl_socket_spec_t spec = {.type = PL_SOCKET_DEALER,
                             .endpoint = endpoint,
                             .company = true,
                             .identity = reactor->thread};
    inbox = pl_socket_open(&spec, &reactor->loop, inbox_message, reactor, err);
    if (inbox && pl_map_put(&reactor->inboxes, thread, inbox) != PL_OK) {
        pl_socket_close(inbox);
        pl_no_memory(err);
        return NULL;
    }
    return inbox;
}

static int queue_send(pl_reactor_t *reactor, pl_queue_t *queue, pl_frame_t *frame,
                      pl_error_t *err)
{
    int tries = 100;                               /* an actor may wait for the message */
    while (pl_queue_reserve(queue) != PL_OK && tries > 0)
        tries--;
    if (tries == 0) {
        pl_frame_release(frame);
        return pl_no_memory(err);
    }
    pl_monitor_offer(reactor, pl_frame_bytes(frame));
    pl_queue_put(queue, frame);
    return PL_OK;
}

/* The stream gets a message before its receiver, and only if it is sent.  A call to a
 * thread that has just ended counts as sent: inboxes_check() ends it.  Progress is
 * sent at once. */
int pl_reactor_send(pl_reactor_t *reactor, pl_frame_t *frame, pl_error_t *err)
{
    pl_envelope_t e = pl_frame_envelope(frame);
    if (e.to_thread == reactor->thread)
        return queue_send(reactor, &reactor->queue, frame, err);
    if (!is_answer(&e) && !inbox_of(reactor, e.to_thread, err)) {
        pl_frame_release(frame);
        return err ? err->code : PL_EPEER;
    }
    int code = queue_send(reactor, &reactor->held, frame, err);
    if (e.kind == PL_KIND_PROGRESS)
        held_send(reactor);
    return code;
}
