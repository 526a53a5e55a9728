/* limits.c - time limits of calls
 *
 * A limit that passes does not end a call: the callee gets a cancel, and the caller gets
 * PL_ANSWER_LATE once.
 *
 * The watching thread must have been awake.  While a process is stopped, or a machine
 * sleeps, the clock continues, and the thread's own timers fire late.  So while there are
 * limits a timer fires often, and a late one gives every call its full time again. */
#include <event2/event.h>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/actors.h"

static const int64_t LOOK_EVERY = PL_SECOND / 4, LATE = PL_SECOND / 4;

void pl_reactor_fired(pl_reactor_t *reactor, int64_t due)
{
    int64_t now = pl_now();
    if (due && now - due > LATE)
        reactor->awake_since = now;
}

static void limited_add(pl_reactor_t *reactor, pl_made_call_t *made)
{
    if (made->limited_pprev)
        return;
    made->next_limited = reactor->limited;
    made->limited_pprev = &reactor->limited;
    if (reactor->limited)
        reactor->limited->limited_pprev = &made->next_limited;
    reactor->limited = made;
}

void limits_forget(pl_made_call_t *made)
{
    if (!made->limited_pprev)
        return;
    *made->limited_pprev = made->next_limited;
    if (made->next_limited)
        made->next_limited->limited_pprev = made->limited_pprev;
    made->limited_pprev = NULL;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return !a || (b && b < a) ? b : a;
}

static void limits_schedule(pl_reactor_t *reactor, int64_t when)
{
    if (!when || (reactor->limit_next && reactor->limit_next <= when))
        return;
    int64_t now = pl_now(), wait = when < now                ? 0
                                   : when - now < LOOK_EVERY ? when - now
                                                             : LOOK_EVERY;
    struct timeval in = {0, wait / 1000 + 1};
    reactor->limit_next = now + wait;
    event_add(reactor->limit_timer, &in);
}

void limits_set(pl_made_call_t *made, const pl_how_t *how)
{
    pl_reactor_t *reactor = made->actor->reactor;
    const int64_t inherited = made->is_child ? 0 : made->doing.deadline;
    const int64_t now = how->total_ms || how->silence_ms || inherited ? pl_now() : 0;
    made->deadline = how->total_ms ? now + how->total_ms * PL_MILLISECOND : 0;
    made->deadline = sooner(made->deadline, inherited);
    made->total = made->deadline - now;
    made->silence = how->silence_ms * PL_MILLISECOND;
    made->silent_until = made->silence ? now + made->silence : 0;
    if (!made->deadline && !made->silence)
        return;
    limited_add(reactor, made);
    limits_schedule(reactor, sooner(made->deadline, made->silent_until));
}

void limits_renew(pl_made_call_t *made, int64_t wait)
{
    pl_reactor_t *reactor = made->actor->reactor;
    made->deadline = pl_now() + wait;
    made->total = wait;
    made->silence = made->silent_until = 0;
    limited_add(reactor, made);
    limits_schedule(reactor, made->deadline);
}

void pl_actors_check_limits(pl_reactor_t *reactor)
{
    int64_t now = pl_now(), next = 0;
    pl_made_call_t *made = reactor->limited;
    while (made) {
        const int64_t awake = reactor->awake_since;    /* time before it does not count */
        if (made->deadline && made->deadline - made->total < awake)
            made->deadline = awake + made->total;
        if (made->silent_until && made->silent_until - made->silence < awake)
            made->silent_until = awake + made->silence;
        const char *passed = made->deadline && made->deadline <= now ? "limit"
                             : made->silent_until && made->silent_until <= now
                                 ? "limit of silence"
                                 : NULL;
        if (!passed) {
            next = sooner(next, sooner(made->deadline, made->silent_until));
            made = made->next_limited;
            continue;
        }
        limits_forget(made);
        if (made->is_child && made->actor->state == ACTOR_ENDING) {
            actor_child_late(made->actor, made);
        } else {
            pl_error_t err;
            pl_fail(&err, PL_ETIMEOUT, "%s has not replied to %s within its %s",
                    pl_kind_name(made->to.kind), pl_message_info(made->message)->name,
                    passed);
            made_cancel(made, true);
            answer_pass(made, &(pl_answer_t){PL_ANSWER_LATE, made->number, made->context,
                                             NULL, &err});
        }
        made = reactor->limited;                           /* the list may have changed */
        next = 0;
    }
    limits_schedule(reactor, next);
}
