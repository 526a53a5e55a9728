/* call.c - calls: made, limited in time, cancelled, answered
 *
 * Calls only go down the levels: this file refuses others where they are made, and
 * deliver.c where they arrive.  An error that ends a call and a cancel are small, and
 * another actor waits for them, so a lack of memory that passes does not stop them. */
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/actors.h"

enum { TRIES = 100 };

pl_envelope_t envelope_of(const actor_t *from, pl_address_t to, pl_kind_t kind,
                          uint32_t message, uint64_t call)
{
    const pl_runtime_t *runtime = from->reactor->runtime;
    return (pl_envelope_t){.version = PL_PROTOCOL_VERSION,
                           .kind = (uint8_t)kind,
                           .message = (uint16_t)message,
                           .incarnation = runtime->incarnation,
                           .run = runtime->run,
                           .call = call,
                           .cause = from->reactor->doing.cause,
                           .remaining = -1,
                           .from_thread = from->address.thread,
                           .from_actor = from->address.actor,
                           .from_kind = from->address.kind,
                           .to_thread = to.thread,
                           .to_actor = to.actor,
                           .to_kind = to.kind};
}

static int message_send(pl_reactor_t *reactor, const pl_envelope_t *e, const void *fields,
                int tries, pl_error_t *err)
{
    int code = PL_ENOMEM;
    for (int k = 0; k < tries && code == PL_ENOMEM; k++) {
        pl_frame_t frame;
        code = pl_frame_make(&frame, e, fields, err);
        if (code == PL_OK)
            code = pl_reactor_send(reactor, &frame, err);
    }
    return code;
}

/* ---- time limits ----
 *
 * A limit that passes does not end a call: the callee gets a cancel, and the caller gets
 * PL_ANSWER_LATE once.
 *
 * The watching thread must have been awake.  While a process is stopped, or a machine
 * sleeps, the clock continues, and the thread's own timers fire late.  So while there are
 * limits a timer fires often, and a late one gives every call its full time again. */

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

static void limits_forget(pl_made_call_t *made)
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

static void limits_set(pl_made_call_t *made, const pl_how_t *how)
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

/* ---- making calls ---- */

static int call_allowed(const actor_t *from, pl_address_t to, uint32_t message,
                        pl_error_t *err)
{
    const pl_message_info_t *info = pl_message_info(message);
    if (!info)
        return pl_fail(err, PL_EBUG, "%s calls an unknown message %" PRIu32,
                       actor_name(from), message);
    if (from->state == ACTOR_ENDING || from->state == ACTOR_DEAD)
        return pl_fail(err, PL_ESTATE, "%s is ending and makes no calls",
                       actor_name(from));
    if (!to.actor)
        return pl_fail(err, PL_ENOTFOUND, "%s: no address for %s", actor_name(from),
                       info->name);
    const bool goes_down = pl_kind_level(to.kind) < from->ops->level;
    if (goes_down && pl_level_is_in(info->from_levels, from->ops->level))
        return PL_OK;
    pl_count(&from->reactor->runtime->refused);
    if (goes_down)
        return pl_fail(err, PL_EHIERARCHY,
                       "%s (level %d) may not call %s on %s: only level %s may",
                       actor_name(from), from->ops->level, info->name,
                       pl_kind_name(to.kind), info->from);
    return pl_fail(err, PL_EHIERARCHY,
                   "%s (level %d) may not call %s on %s (level %d): calls only go down",
                   actor_name(from), from->ops->level, info->name, pl_kind_name(to.kind),
                   pl_kind_level(to.kind));
}

void pl_actor_does(void *self, const pl_call_t *call)
{
    actor_of(self)->reactor->doing = (pl_doing_t){call->number, call->deadline};
}

static pl_made_call_t *made_new(actor_t *from, pl_address_t to, uint32_t message,
                                const pl_how_t *how)
{
    pl_reactor_t *reactor = from->reactor;
    pl_doing_t doing = reactor->doing;
    const pl_call_t *oldest = from->open;
    pl_made_call_t *made = pl_alloc(sizeof *made);
    if (!made)
        return NULL;
    /* The call that the actor works for.  If that call is already answered, it is the
     * oldest open one, because actors with several open calls end them in order.  Without
     * an open call, such as for a batch that is fetched ahead, it stays the answered
     * one. */
    while (oldest && oldest->next)
        oldest = oldest->next;
    if (oldest && doing.cause && !call_of(from, doing.cause)) {
        doing.cause = oldest->number;
        doing.deadline = oldest->deadline;
    }
    uint64_t number = (uint64_t)reactor->thread << 40 | ++reactor->next_call;
    if (pl_map_put(&reactor->calls, number, made) != PL_OK) {
        pl_free(made);
        return NULL;
    }
    *made = (pl_made_call_t){.actor = from,
                             .number = number,
                             .doing = doing,
                             .message = message,
                             .to = to,
                             .since = pl_now(),
                             .on_answer = how->on_answer,
                             .context = how->context,
                             .next = from->made,
                             .pprev = &from->made,
                             .is_child = message == PL_MESSAGE_start};
    if (from->made)
        from->made->pprev = &made->next;
    from->made = made;
    return made;
}

void made_drop(pl_made_call_t *made)
{
    limits_forget(made);
    *made->pprev = made->next;
    if (made->next)
        made->next->pprev = made->pprev;
    pl_map_take(&made->actor->reactor->calls, made->number);
    if (made->owns_context)
        pl_free(made->context);
    pl_free(made);
}

uint64_t pl_call(void *self, pl_address_t to, pl_message_t message, const void *fields,
                 pl_how_t how, pl_error_t *err)
{
    actor_t *from = actor_of(self);
    if (call_allowed(from, to, message, err) != PL_OK)
        return 0;
    pl_made_call_t *made = made_new(from, to, message, &how);
    if (!made) {
        pl_no_memory(err);
        return 0;
    }
    pl_profiler_t *profiler = from->reactor->profiler;
    if (profiler)
        made->row = profiler->row(profiler, from->address.kind, message, fields, true);
    limits_set(made, &how);
    pl_envelope_t e = envelope_of(from, to, PL_KIND_CALL, message, made->number);
    e.cause = made->doing.cause;
    if (made->deadline) {
        int64_t left = made->deadline - pl_now();
        e.remaining = left > 0 ? left : 0;
    }
    if (message_send(from->reactor, &e, fields, 1, err) == PL_OK)
        return made->number;
    made_drop(made);
    return 0;
}

/* A cancel says whether a limit is the reason: then 0 ns remain. */
void made_cancel(pl_made_call_t *made, bool late)
{
    if (made->cancelled)
        return;
    late = late || made->actor->late || made->actor->reactor->doing.late;
    pl_envelope_t e = envelope_of(made->actor, made->to, PL_KIND_CANCEL, made->message,
                                  made->number);
    e.cause = made->doing.cause;
    e.remaining = late ? 0 : -1;
    made->cancelled = message_send(made->actor->reactor, &e, NULL, TRIES, NULL) == PL_OK;
}

static pl_made_call_t *made_find(void *self, uint64_t number)
{
    actor_t *actor = actor_of(self);
    pl_made_call_t *made = number ? pl_map_get(&actor->reactor->calls, number) : NULL;
    return made && made->actor == actor ? made : NULL;
}

void pl_cancel(void *self, uint64_t number)
{
    pl_made_call_t *made = made_find(self, number);
    if (made)
        made_cancel(made, false);
}

void pl_abandon(void *self, uint64_t number)
{
    pl_made_call_t *made = made_find(self, number);
    if (made && made->thread)
        pl_reactor_abandon(made->thread);
    if (made)
        made_drop(made);
}

void pl_give_context(void *self, uint64_t number)
{
    pl_made_call_t *made = made_find(self, number);
    if (made)
        made->owns_context = true;
}

/* ---- answering calls ---- */

static pl_envelope_t answer_envelope(const pl_call_t *call, pl_kind_t kind)
{
    pl_envelope_t e = envelope_of(call->actor, call->caller, kind, call->message,
                                  call->number);
    e.cause = call->cause;
    return e;
}

pl_call_t *call_of(const actor_t *actor, uint64_t number)
{
    if (actor->start && actor->start->number == number)
        return actor->start;
    pl_call_t *call = actor->open;
    while (call && call->number != number)
        call = call->next;
    return call;
}

void call_drop(pl_call_t *call)
{
    *call->pprev = call->next;
    if (call->next)
        call->next->pprev = call->pprev;
    if (call->message != PL_MESSAGE_start)
        call->actor->open_count--;
    pl_frame_release(&call->frame);
    pl_free(call);
}

int pl_progress(pl_call_t *call, const void *fields)
{
    pl_envelope_t e = answer_envelope(call, PL_KIND_PROGRESS);
    return message_send(call->actor->reactor, &e, fields, 1, NULL);
}

static int frame_surely(pl_frame_t *frame, const pl_envelope_t *e, const void *fields,
                        pl_error_t *err)
{
    int code = PL_ENOMEM;
    for (int tries = 0; tries < TRIES && code == PL_ENOMEM; tries++)
        code = pl_frame_make(frame, e, fields, err);
    return code;
}

/* A reply that cannot be encoded becomes an error, because the caller needs an answer.
 * The objects of the call are released before the answer is sent, so the caller finds
 * a batch back in its pool. */
void call_end(pl_call_t *call, pl_kind_t kind, const void *fields)
{
    pl_reactor_t *reactor = call->actor->reactor;
    pl_error_t err = {0};
    pl_frame_t frame;
    pl_envelope_t e = answer_envelope(call, kind);
    int code = frame_surely(&frame, &e, fields, &err);
    if (code != PL_OK) {
        e.kind = PL_KIND_ERROR;
        code = frame_surely(&frame, &e, &err, NULL);
    }
    call_drop(call);
    if (code == PL_OK)
        pl_reactor_send(reactor, &frame, NULL);
}

pl_message_t pl_call_message(const pl_call_t *call)
{
    return call->message;
}

int pl_reply(pl_call_t *call, const void *fields)
{
    if (call == call->actor->start)
        actor_begin_end(call->actor, NULL);
    else
        call_end(call, PL_KIND_REPLY, fields);
    return PL_OK;
}

void pl_call_fail(pl_call_t *call, const pl_error_t *error)
{
    pl_error_t filled = *error;
    const actor_t *actor = call->actor;
    if (filled.code >= 0)
        pl_fail(&filled, PL_EBUG, "%s failed without an error text", actor_name(actor));
    if (!filled.where[0] && actor->reactor->rank >= 0)
        snprintf(filled.where, sizeof filled.where, "rank %d %s", actor->reactor->rank,
                 actor_name(actor));
    else if (!filled.where[0])
        snprintf(filled.where, sizeof filled.where, "%s", actor_name(actor));
    if (call == actor->start)
        actor_begin_end(call->actor, &filled);
    else
        call_end(call, PL_KIND_ERROR, &filled);
}

void call_refuse(pl_reactor_t *reactor, const pl_envelope_t *e, const pl_error_t *error)
{
    pl_envelope_t back = *e;
    back.kind = PL_KIND_ERROR;
    back.from_thread = e->to_thread, back.from_actor = e->to_actor,
    back.from_kind = e->to_kind;
    back.to_thread = e->from_thread, back.to_actor = e->from_actor,
    back.to_kind = e->from_kind;
    back.remaining = -1;
    message_send(reactor, &back, error, TRIES, NULL);
}

/* ---- limits that have passed ---- */

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
