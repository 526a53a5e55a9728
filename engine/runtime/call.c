/* call.c - calls: made, delivered, answered, limited, cancelled
 *
 * The rule of levels is held here: a call is refused both where it is made and where it arrives unless it goes down. */
#include <event2/event.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/actors.h"

static const int CREDIT = 64;

static void count(uint64_t *counter)
{
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static pl_envelope_t envelope_of(const actor_t *from, pl_address_t to, pl_kind_t kind, uint32_t message, uint64_t call)
{
    const pl_runtime_t *runtime = from->reactor->runtime;
    return (pl_envelope_t){
        .version = PL_PROTOCOL_VERSION, .kind = (uint8_t)kind, .message = (uint16_t)message, .epoch = runtime->epoch,
        .run = runtime->run, .call = call, .cause = from->reactor->cause, .remaining = -1,
        .from_thread = from->address.thread, .from_actor = from->address.actor, .from_kind = from->address.kind,
        .to_thread = to.thread, .to_actor = to.actor, .to_kind = to.kind};
}

/* ---- making ---- */

static void limited_add(pl_reactor_t *reactor, pl_made_call_t *made)
{
    made->next_limited = reactor->limited;
    made->limited_link = &reactor->limited;
    if (reactor->limited)
        reactor->limited->limited_link = &made->next_limited;
    reactor->limited = made;
}

static void limited_remove(pl_made_call_t *made)
{
    if (!made->limited_link)
        return;
    *made->limited_link = made->next_limited;
    if (made->next_limited)
        made->next_limited->limited_link = made->limited_link;
    made->limited_link = NULL;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return !a || (b && b < a) ? b : a;
}

void limits_schedule(pl_reactor_t *reactor, int64_t when)
{
    if (!when || (reactor->limit_next && reactor->limit_next <= when))
        return;
    int64_t wait = when - pl_now();
    if (wait < 0)
        wait = 0;
    struct timeval in = {wait / PL_SECOND, wait % PL_SECOND / 1000 + 1};
    reactor->limit_next = when;
    event_add(reactor->limit_timer, &in);
}

static void limit_set(pl_made_call_t *made, const pl_how_t *how)
{
    pl_reactor_t *reactor = made->actor->reactor;
    int64_t now = how->total_ms || how->silence_ms ? pl_now() : 0;
    made->deadline = how->total_ms ? now + how->total_ms * PL_MILLISECOND : 0;
    made->deadline = sooner(made->deadline, made->is_child ? 0 : reactor->deadline);
    made->silence = how->silence_ms * PL_MILLISECOND;
    made->silent_until = made->silence ? now + made->silence : 0;
    if (!made->deadline && !made->silence)
        return;
    limited_add(reactor, made);
    limits_schedule(reactor, sooner(made->deadline, made->silent_until));
}

static int call_allowed(const actor_t *from, pl_address_t to, uint32_t message, pl_error_t *err)
{
    const pl_message_info_t *info = pl_message_info(message);
    if (!info)
        return pl_fail(err, PL_EBUG, "%s calls an unknown message %" PRIu32, actor_name(from), message);
    if (from->state == ACTOR_ENDING || from->state == ACTOR_DEAD)
        return pl_fail(err, PL_ESTATE, "%s is ending and calls nobody", actor_name(from));
    if (!to.actor)
        return pl_fail(err, PL_ENOTFOUND, "%s has nobody to call %s on", actor_name(from), info->name);
    if (pl_kind_level(to.kind) < from->ops->level)
        return PL_OK;
    count(&from->reactor->runtime->refused);
    return pl_fail(err, PL_EHIERARCHY, "%s (level %d) may not call %s on %s (level %d): calls only go down",
                   actor_name(from), from->ops->level, info->name, pl_kind_name(to.kind), pl_kind_level(to.kind));
}

static pl_made_call_t *made_new(actor_t *from, pl_address_t to, uint32_t message, const pl_how_t *how)
{
    pl_reactor_t *reactor = from->reactor;
    pl_made_call_t *made = pl_alloc(sizeof *made);
    if (!made)
        return NULL;
    uint64_t number = (uint64_t)reactor->thread << 40 | ++reactor->next_call;
    if (pl_map_put(&reactor->calls, number, made) != PL_OK) {
        pl_free(made);
        return NULL;
    }
    *made = (pl_made_call_t){.actor = from, .number = number, .cause = reactor->cause, .message = message, .to = to,
                             .on_answer = how->on_answer, .context = how->context, .next = from->made,
                             .link = &from->made, .is_child = message == PL_MESSAGE_start};
    if (from->made)
        from->made->link = &made->next;
    from->made = made;
    return made;
}

void made_drop(pl_made_call_t *made)
{
    if (made->thread)                                       /* it has not ended: nobody will join it */
        count(&made->actor->reactor->runtime->stuck);
    limited_remove(made);
    *made->link = made->next;
    if (made->next)
        made->next->link = made->link;
    pl_map_take(&made->actor->reactor->calls, made->number);
    pl_free(made);
}

uint64_t pl_call(void *self, pl_address_t to, pl_message_t message, const void *fields, pl_how_t how, pl_error_t *err)
{
    actor_t *from = actor_of(self);
    if (call_allowed(from, to, message, err) != PL_OK)
        return 0;
    pl_made_call_t *made = made_new(from, to, message, &how);
    if (!made) {
        pl_no_memory(err);
        return 0;
    }
    limit_set(made, &how);
    pl_envelope_t e = envelope_of(from, to, PL_KIND_CALL, message, made->number);
    if (made->deadline)
        e.remaining = made->deadline - pl_now();
    pl_frame_t *frame = pl_frame_new(&e, fields, err);
    uint64_t number = made->number;
    if (frame && pl_reactor_send(from->reactor, &frame, err) == PL_OK)
        return number;
    made_drop(made);
    return 0;
}

void made_cancel(pl_made_call_t *made)
{
    if (made->cancelled)
        return;
    made->cancelled = true;
    pl_envelope_t e = envelope_of(made->actor, made->to, PL_KIND_CANCEL, made->message, made->number);
    pl_frame_t *frame = pl_frame_new(&e, NULL, NULL);
    if (!frame || pl_reactor_send(made->actor->reactor, &frame, NULL) != PL_OK)
        made->cancelled = false;                            /* whoever asks again tries again */
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
        made_cancel(made);
}

void pl_abandon(void *self, uint64_t number)
{
    pl_made_call_t *made = made_find(self, number);
    if (made)
        made_drop(made);
}

/* ---- answering ---- */

int call_answer(pl_call_t *call, pl_kind_t kind, const void *fields, pl_error_t *err)
{
    pl_envelope_t e = envelope_of(call->actor, call->caller, kind, call->message, call->number);
    e.cause = pl_frame_envelope(call->frame).cause;
    pl_frame_t *frame = pl_frame_new(&e, fields, err);
    return frame ? pl_reactor_send(call->actor->reactor, &frame, err) : err ? err->code : PL_ENOMEM;
}

void call_drop(pl_call_t *call)
{
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    if (call->actor->start == call)
        call->actor->start = NULL;
    else
        call->actor->open_count--;
    pl_frame_free(call->frame);
    pl_free(call);
}

int pl_progress(pl_call_t *call, const void *fields)
{
    return call_answer(call, PL_KIND_PROGRESS, fields, NULL);
}

/* A reply that cannot be made (memory) becomes an error, and that, being small, is tried until it is out: the caller
 * must hear an end. */
static void call_end(pl_call_t *call, pl_kind_t kind, const void *fields)
{
    pl_error_t err = {0};
    if (call_answer(call, kind, fields, &err) != PL_OK && err.code != PL_EPEER)
        for (int tries = 0; tries < 100 && call_answer(call, PL_KIND_ERROR, &err, NULL) != PL_OK; tries++)
            continue;
    call_drop(call);
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
    if (filled.code >= 0)
        pl_fail(&filled, PL_EBUG, "%s failed without saying why", actor_name(call->actor));
    if (!filled.where[0] && call->actor->reactor->rank >= 0)
        snprintf(filled.where, sizeof filled.where, "rank %d %s", call->actor->reactor->rank, actor_name(call->actor));
    else if (!filled.where[0])
        snprintf(filled.where, sizeof filled.where, "%s", actor_name(call->actor));
    if (call == call->actor->start)
        actor_begin_end(call->actor, &filled);
    else
        call_end(call, PL_KIND_ERROR, &filled);
}

/* ---- delivery of calls ---- */

static const pl_handler_t *handler_of(const pl_actor_ops_t *ops, uint32_t message)
{
    for (const pl_handler_t *h = ops->handlers; h->on_call; h++)
        if (h->message == message)
            return h;
    return NULL;
}

static int peers_check(const actor_t *actor, const pl_peers_t *peers, pl_error_t *err)
{
    for (uint32_t k = 0; k < peers->count; k++)
        if (pl_kind_level(peers->peer[k].at.kind) >= actor->ops->level)
            return pl_fail(err, PL_EHIERARCHY, "%s (level %d) was given an address of %s (level %d)", actor_name(actor),
                           actor->ops->level, pl_kind_name(peers->peer[k].at.kind),
                           pl_kind_level(peers->peer[k].at.kind));
    return PL_OK;
}

static int call_admit(actor_t *actor, const pl_envelope_t *e, pl_error_t *err)
{
    const pl_message_info_t *info = pl_message_info(e->message);
    const char *name = actor_name(actor);
    if (pl_kind_level(e->from_kind) <= actor->ops->level)
        return pl_fail(err, PL_EHIERARCHY, "%s (level %d) called %s on %s (level %d): calls only go down",
                       pl_kind_name(e->from_kind), pl_kind_level(e->from_kind), info->name, name, actor->ops->level);
    if (info->to_level && info->to_level != actor->ops->level)
        return pl_fail(err, PL_EPROTOCOL, "%s is for level %s, not for %s", info->name, info->to, name);
    if (e->epoch != actor->reactor->runtime->epoch)
        return pl_fail(err, PL_EPROTOCOL, "%s of epoch %u; this is epoch %u", info->name, e->epoch,
                       actor->reactor->runtime->epoch);
    if ((e->message == PL_MESSAGE_start) != (actor->state == ACTOR_NEW))
        return pl_fail(err, PL_ESTATE, actor->state == ACTOR_NEW ? "%s has not started" : "%s is alive already", name);
    if (e->message == PL_MESSAGE_start && e->from_actor != actor->parent)
        return pl_fail(err, PL_EPROTOCOL, "%s is started by its parent only", name);
    if (actor->state != ACTOR_NEW && actor->state != ACTOR_ALIVE)
        return pl_fail(err, PL_ESTATE, "%s is ending", name);
    if (actor->open_count >= (actor->ops->credit ? actor->ops->credit : CREDIT))
        return pl_fail(err, PL_EBUSY, "%s has %d calls open and takes no more", name, actor->open_count);
    if (!handler_of(actor->ops, e->message))
        return pl_fail(err, PL_EPROTOCOL, "%s does not take %s", name, info->name);
    return PL_OK;
}

/* Answers a call that got no pl_call_t. */
static void refuse(pl_reactor_t *reactor, const pl_envelope_t *e, const pl_error_t *error)
{
    pl_envelope_t back = *e;
    back.kind = PL_KIND_ERROR;
    back.from_thread = reactor->thread, back.from_actor = e->to_actor, back.from_kind = e->to_kind;
    back.to_thread = e->from_thread, back.to_actor = e->from_actor, back.to_kind = e->from_kind;
    pl_frame_t *frame = pl_frame_new(&back, error, NULL);
    if (frame)
        pl_reactor_send(reactor, &frame, NULL);
}

static pl_call_t *call_new(actor_t *actor, const pl_envelope_t *e, pl_frame_t *frame)
{
    pl_call_t *call = pl_alloc(sizeof *call);
    if (!call)
        return NULL;
    *call = (pl_call_t){.actor = actor, .number = e->call, .message = e->message, .frame = frame,
                        .caller = {e->from_thread, e->from_actor, e->from_kind},
                        .deadline = e->remaining >= 0 ? pl_now() + e->remaining + 1 : 0};
    if (e->message == PL_MESSAGE_start) {
        actor->start = call;
        call->link = &actor->start;
        return call;
    }
    call->next = actor->open;
    call->link = &actor->open;
    if (actor->open)
        actor->open->link = &call->next;
    actor->open = call;
    actor->open_count++;
    return call;
}

/* Runs a handler with the call as the cause of all that it does. */
static int handle(actor_t *actor, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_reactor_t *reactor = actor->reactor;
    uint64_t cause = reactor->cause;
    int64_t deadline = reactor->deadline;
    reactor->cause = call->number;
    reactor->deadline = call->deadline;
    int code = handler_of(actor->ops, call->message)->on_call(actor->self, call, body, err);
    reactor->cause = cause;
    reactor->deadline = deadline;
    return code;
}

static int call_start(actor_t *actor, const pl_body_t *body, pl_error_t *err)
{
    actor->state = ACTOR_ALIVE;
    actor->peers = body->start.peers;
    return peers_check(actor, &actor->peers, err);
}

static void deliver_call(pl_reactor_t *reactor, const pl_envelope_t *e, pl_frame_t *frame)
{
    actor_t *actor = pl_map_get(&reactor->actors, e->to_actor);
    pl_error_t err = {0};
    pl_body_t body;
    int code = actor ? call_admit(actor, e, &err)
                     : pl_fail(&err, PL_EPEER, "%s is gone", pl_kind_name(e->to_kind));
    if (code == PL_OK)
        code = pl_frame_decode(frame, &body, NULL, &err);
    pl_call_t *call = code == PL_OK ? call_new(actor, e, frame) : NULL;
    if (code == PL_OK && !call)
        code = pl_no_memory(&err);
    if (!call) {
        count(&reactor->runtime->refused);
        refuse(reactor, e, &err);
        pl_frame_free(frame);
        return;
    }
    if (call->message == PL_MESSAGE_start)
        code = call_start(actor, &body, &err);
    if (code == PL_OK)
        code = handle(actor, call, &body, &err);
    if (code != PL_OK && actor->state != ACTOR_DEAD)        /* the dead have failed all their calls */
        pl_call_fail(call, &err);
}

static void deliver_cancel(pl_reactor_t *reactor, const pl_envelope_t *e)
{
    actor_t *actor = pl_map_get(&reactor->actors, e->to_actor);
    if (!actor)
        return;
    pl_call_t *call = actor->start && actor->start->number == e->call ? actor->start : actor->open;
    while (call && call->number != e->call)
        call = call->next;
    if (!call || call->caller.actor != e->from_actor)
        return;
    if (actor->ops->on_cancel && actor->state == ACTOR_ALIVE)
        actor->ops->on_cancel(actor->self, call);
    else if (call == actor->start)
        actor_begin_end(actor, NULL);
}

/* ---- delivery of answers ---- */

static void answer_pass(pl_made_call_t *made, const pl_answer_t *answer)
{
    actor_t *actor = made->actor;
    pl_reactor_t *reactor = actor->reactor;
    if (made->on_answer && actor->state == ACTOR_ALIVE) {
        reactor->cause = made->cause;
        reactor->deadline = made->is_child ? 0 : made->deadline;
        made->on_answer(actor->self, answer);
        reactor->cause = 0;
        reactor->deadline = 0;
    } else if (answer->kind == PL_ANSWER_ERROR && actor->state == ACTOR_ALIVE) {
        pl_log_line(PL_LOG_WARNING, reactor->rank, actor_name(actor), "%s failed: %s",
                    pl_message_info(made->message)->name, answer->error->text);
    }
}

static void answer_late(pl_made_call_t *made, const char *what)
{
    pl_error_t err;
    made->late = true;
    limited_remove(made);
    pl_fail(&err, PL_ETIMEOUT, "%s has not answered %s within its %s", pl_kind_name(made->to.kind),
            pl_message_info(made->message)->name, what);
    made_cancel(made);
    answer_pass(made, &(pl_answer_t){PL_ANSWER_LATE, made->number, made->context, NULL, &err});
}

static void deliver_answer(pl_reactor_t *reactor, const pl_envelope_t *e, pl_frame_t *frame)
{
    pl_made_call_t *made = pl_map_get(&reactor->calls, e->call);
    if (!made || made->to.actor != e->from_actor || made->message != e->message) {
        count(&reactor->runtime->stale);
        return;
    }
    pl_error_t error = {0};
    pl_body_t body;
    bool last = e->kind != PL_KIND_PROGRESS;
    pl_answer_t answer = {.call = made->number, .context = made->context, .body = &body, .error = &error,
                          .kind = e->kind == PL_KIND_REPLY ? PL_ANSWER_REPLY : PL_ANSWER_PROGRESS};
    if (pl_frame_decode(frame, &body, &error, &error) != PL_OK || e->kind == PL_KIND_ERROR)
        answer.kind = last ? PL_ANSWER_ERROR : PL_ANSWER_PROGRESS;
    if (error.code && !last)
        return;
    if (made->silence && !last)
        made->silent_until = pl_now() + made->silence;
    if (!last) {
        answer_pass(made, &answer);
        return;
    }
    pl_made_call_t ended = *made;
    made->thread = NULL;
    made_drop(made);
    if (ended.is_child)
        actor_child_ended(ended.actor, &ended);
    answer_pass(&ended, &answer);
    if (ended.actor->state == ACTOR_ENDING)
        actor_go_on_ending(ended.actor);
}

void pl_actors_deliver(pl_reactor_t *reactor, pl_frame_t *frame)
{
    pl_envelope_t e = pl_frame_envelope(frame);
    switch (e.kind) {
    case PL_KIND_CALL:
        deliver_call(reactor, &e, frame);                   /* which keeps the frame */
        return;
    case PL_KIND_CANCEL:
        deliver_cancel(reactor, &e);
        break;
    default:
        deliver_answer(reactor, &e, frame);
    }
    pl_frame_free(frame);
}

/* ---- limits ---- */

void pl_actors_check_limits(pl_reactor_t *reactor)
{
    int64_t now = pl_now(), next = 0;
    pl_made_call_t *made = reactor->limited;
    while (made) {
        const char *passed = made->deadline && made->deadline <= now ? "limit"
                             : made->silent_until && made->silent_until <= now ? "limit of silence" : NULL;
        if (passed) {
            answer_late(made, passed);                      /* may change the list */
            made = reactor->limited;
            next = 0;
            continue;
        }
        next = sooner(next, sooner(made->deadline, made->silent_until));
        made = made->next_limited;
    }
    limits_schedule(reactor, next);
}
