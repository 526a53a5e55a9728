/* deliver.c - received messages: calls go to handlers, answers to callers
 *
 * No message is trusted.  Levels, incarnations and states decide whether it is allowed;
 * the codec decides whether it can be read.  A message that is not allowed is refused and
 * counted, an unreadable one is counted, and in both cases the caller gets an error. */
#include <string.h>

#include "base/alloc.h"
#include "base/bind.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/run.h"
#include "runtime/actors.h"

static const int CREDIT = 64, TRIES = 100;
static const int64_t LONGEST = 366 * 24 * 3600 * PL_SECOND;

/* A received message; code: whether its body could be read. */
typedef struct incoming {
    pl_envelope_t e;
    pl_body_t body;
    pl_error_t error;                   /* of an error message; or why it is unreadable */
    int code;
    pl_frame_t *frame;
} incoming_t;

/* ---- calls ---- */

static const pl_handler_t *handler_of(const pl_actor_ops_t *ops, uint32_t message)
{
    for (; ops; ops = ops->base)
        for (const pl_handler_t *h = ops->handlers; h && h->on_call; h++)
            if (h->message == message)
                return h;
    return NULL;
}

static int sender_check(const actor_t *actor, const pl_envelope_t *e, pl_error_t *err)
{
    const pl_message_info_t *info = pl_message_info(e->message);
    const pl_runtime_t *runtime = actor->reactor->runtime;
    const char *name = actor_name(actor);
    if (pl_kind_level(e->from_kind) <= actor->ops->level)
        return pl_fail(err, PL_EHIERARCHY,
                       "%s (level %d) called %s on %s (level %d): calls only go down",
                       pl_kind_name(e->from_kind), pl_kind_level(e->from_kind),
                       info->name, name, actor->ops->level);
    if (!pl_level_is_in(info->from_levels, pl_kind_level(e->from_kind)))
        return pl_fail(err, PL_EHIERARCHY,
                       "%s (level %d) called %s on %s: only level %s may",
                       pl_kind_name(e->from_kind), pl_kind_level(e->from_kind),
                       info->name, name, info->from);
    if (!pl_level_is_in(info->to_levels, actor->ops->level))
        return pl_fail(err, PL_EPROTOCOL, "%s is for level %s, not for %s", info->name,
                       info->to, name);
    if (e->run != runtime->run)
        return pl_fail(err, PL_EPROTOCOL, "%s of another run", info->name);
    if (e->incarnation != runtime->incarnation)
        return pl_fail(err, PL_EPROTOCOL, "%s of incarnation %u; this is incarnation %u",
                       info->name, e->incarnation, runtime->incarnation);
    return PL_OK;
}

static int state_check(const actor_t *actor, const pl_envelope_t *e, pl_error_t *err)
{
    const char *name = actor_name(actor);
    const int credit = actor->ops->credit ? actor->ops->credit : CREDIT;
    bool is_start = e->message == PL_MESSAGE_start, is_new = actor->state == ACTOR_NEW;
    if (is_start != is_new)
        return pl_fail(err, PL_ESTATE,
                       is_new ? "%s has not started" : "%s has already started", name);
    if (is_start && e->from_actor != actor->parent)
        return pl_fail(err, PL_EPROTOCOL, "%s is started by its parent only", name);
    if (!is_start && actor->state != ACTOR_ALIVE)
        return actor->end_error.code
                   ? pl_fail(err, actor->end_error.code, "%s", actor->end_error.text)
                   : pl_fail(err, PL_ESTATE, "%s is ending", name);
    if (e->message != PL_MESSAGE_stop && actor->open_count >= credit)
        return pl_fail(err, PL_EBUSY, "%s has %d open calls, which is the limit", name,
                       actor->open_count);
    if (!is_start && !handler_of(actor->ops, e->message))
        return pl_fail(err, PL_EPROTOCOL, "%s has no handler for %s", name,
                       pl_message_info(e->message)->name);
    return PL_OK;
}

/* A lack of memory that passes does not refuse a call: later calls would still arrive,
 * and in a collective other ranks would meet them in the place of this one. */
static pl_call_t *call_new(actor_t *actor, incoming_t *l)
{
    const pl_envelope_t *e = &l->e;
    pl_call_t *call = NULL;
    for (int tries = 0; tries < TRIES && !call; tries++)
        call = pl_alloc(sizeof *call);
    if (!call)
        return NULL;
    *call = (pl_call_t){.actor = actor,
                        .number = e->call,
                        .cause = e->cause,
                        .message = e->message,
                        .caller = {e->from_thread, e->from_actor, e->from_kind}};
    if (e->remaining >= 0)
        call->deadline = pl_now() + (e->remaining < LONGEST ? e->remaining : LONGEST);
    pl_frame_move(&call->frame, l->frame);
    if (e->message == PL_MESSAGE_start) {
        actor->start = call;
        call->pprev = &actor->start;
        return call;
    }
    call->next = actor->open;
    call->pprev = &actor->open;
    if (actor->open)
        actor->open->pprev = &call->next;
    actor->open = call;
    actor->open_count++;
    return call;
}

/* Binds the options and takes the peers, before the handler of `start` runs. */
static int call_start(actor_t *actor, const pl_body_t *body, pl_error_t *err)
{
    const char *options = body->start.options;
    int code = PL_OK;
    if (actor->ops->options) {
        json_t *object = *options ? pl_json_value(options, strlen(options), err) : NULL;
        code = *options && !object ? err->code
                                   : pl_bind(actor->ops->options, object, NULL,
                                             actor->self, &actor->binding, err);
        json_decref(object);
    }
    actor->state = ACTOR_ALIVE;
    actor->lived = code == PL_OK;
    actor->peers = body->start.peers;
    for (uint32_t k = 0; code == PL_OK && k < actor->peers.count; k++) {
        const uint32_t kind = actor->peers.peer[k].at.kind;
        if (pl_kind_level(kind) >= actor->ops->level)
            code = pl_fail(err, PL_EHIERARCHY,
                           "%s (level %d) was given an address of %s (level %d)",
                           actor_name(actor), actor->ops->level, pl_kind_name(kind),
                           pl_kind_level(kind));
    }
    return code;
}

/* Runs a handler; the call is the cause of the calls that it makes.  An actor without a
 * handler of `start` is ready at once. */
static int handle(actor_t *actor, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_reactor_t *reactor = actor->reactor;
    const pl_handler_t *handler = handler_of(actor->ops, call->message);
    int code = call->message == PL_MESSAGE_start ? call_start(actor, body, err) : PL_OK;
    if (code != PL_OK)
        return code;
    reactor->doing = (pl_doing_t){call->number, call->deadline};
    pl_profiler_t *profiler = reactor->profiler;
    pl_profile_row_t *row = profiler ? profiler->row(profiler, actor->address.kind,
                                                     call->message, body, false)
                                     : NULL;
    int64_t began = row ? pl_now() : 0;
    if (handler)
        code = handler->on_call(actor->self, call, body, err);
    else
        pl_actor_ready(actor->self);
    if (row)
        profiler->add(profiler, row, pl_now() - began);
    reactor->doing = (pl_doing_t){0};
    return code;
}

static void deliver_call(pl_reactor_t *reactor, incoming_t *l)
{
    actor_t *actor = pl_map_get(&reactor->actors, l->e.to_actor);
    int code = l->code;
    if (code == PL_OK && !actor)
        code = pl_fail(&l->error, PL_EPEER, "%s is gone", pl_kind_name(l->e.to_kind));
    if (code == PL_OK)
        code = sender_check(actor, &l->e, &l->error);
    if (code == PL_OK)
        code = state_check(actor, &l->e, &l->error);
    pl_call_t *call = code == PL_OK ? call_new(actor, l) : NULL;
    if (code == PL_OK && !call)
        pl_no_memory(&l->error);
    if (!call) {
        pl_count(&reactor->runtime->refused);
        call_refuse(reactor, &l->e, &l->error);
        if (actor && actor->state == ACTOR_NEW && l->e.from_actor == actor->parent) {
            actor->end_error = l->error;                   /* its only start has failed */
            actor_discard(actor);
        }
        return;
    }
    if (handle(actor, call, &l->body, &l->error) == PL_OK)
        return;
    call = call_of(actor, l->e.call);           /* the handler may have answered before it
                                                   failed */
    if (call)
        pl_call_fail(call, &l->error);
    else
        pl_log_line(PL_LOG_ERROR, reactor->rank, actor_name(actor),
                    "failed after its reply: %s", l->error.text);
}

static void deliver_cancel(pl_reactor_t *reactor, const incoming_t *l)
{
    actor_t *actor = pl_map_get(&reactor->actors, l->e.to_actor);
    pl_call_t *call = actor && l->code == PL_OK ? call_of(actor, l->e.call) : NULL;
    if (!call || call->caller.actor != l->e.from_actor)
        return;
    call->late = l->e.remaining == 0;
    reactor->doing = (pl_doing_t){.cause = call->number, .late = call->late};
    if (actor->ops->on_cancel && actor->state == ACTOR_ALIVE)
        actor->ops->on_cancel(actor->self, call);
    else if (call == actor->start)
        actor_begin_end(actor, NULL);
    reactor->doing = (pl_doing_t){0};
}

/* ---- answers ---- */

void answer_pass(pl_made_call_t *made, const pl_answer_t *answer)
{
    actor_t *actor = made->actor;
    pl_reactor_t *reactor = actor->reactor;
    if (made->on_answer && actor->state == ACTOR_ALIVE) {
        pl_profile_row_t *row = made->row;
        int64_t began = row ? pl_now() : 0;
        reactor->doing = made->doing;
        made->on_answer(actor->self, answer);
        reactor->doing = (pl_doing_t){0};
        if (row)
            reactor->profiler->add(reactor->profiler, row, pl_now() - began);
    } else if (answer->kind == PL_ANSWER_ERROR && actor->state == ACTOR_ALIVE) {
        pl_log_line(PL_LOG_WARNING, reactor->rank, actor_name(actor), "%s failed: %s",
                    pl_message_info(made->message)->name, answer->error->text);
    }
}

static void deliver_answer(pl_reactor_t *reactor, const incoming_t *l)
{
    pl_made_call_t *made = l->e.call ? pl_map_get(&reactor->calls, l->e.call) : NULL;
    if (!made || made->to.actor != l->e.from_actor || made->message != l->e.message) {
        pl_count(&reactor->runtime->stale);
        return;
    }
    pl_answer_t answer = {.kind = PL_ANSWER_PROGRESS,
                          .call = made->number,
                          .context = made->context,
                          .body = &l->body};
    if (l->e.kind == PL_KIND_PROGRESS) {
        if (l->code != PL_OK)
            return;
        if (made->silence)
            made->silent_until = pl_now() + made->silence;
        if (made->is_child)
            actor_child_alive(made->actor, made);
        if (!made->is_child || l->body.start_progress.state != PL_START_STATE_ENDING)
            answer_pass(made, &answer);                  /* "ending" is for the runtime */
        return;
    }
    answer.kind = PL_ANSWER_REPLY;
    if (l->e.kind == PL_KIND_ERROR || l->code != PL_OK) {
        answer.kind = PL_ANSWER_ERROR;
        answer.body = NULL;
        answer.error = &l->error;
    }
    pl_made_call_t ended = *made;
    made->owns_context = false;
    made_drop(made);
    if (ended.is_child)
        actor_child_ended(ended.actor, &ended, answer.error);
    answer_pass(&ended, &answer);
    if (ended.owns_context)
        pl_free(ended.context);
    if (ended.actor->state == ACTOR_ENDING)
        actor_continue_ending(ended.actor);
}

void pl_actors_deliver(pl_reactor_t *reactor, pl_frame_t *frame)
{
    if (pl_reactor_is_abandoned(reactor))
        return;
    incoming_t l;                             /* large, so not zeroed for every message */
    l.e = pl_frame_envelope(frame);
    l.frame = frame;
    l.error.code = PL_OK;
    l.error.where[0] = l.error.text[0] = '\0';
    l.code = pl_frame_decode(pl_frame_bytes(frame), &l.body, &l.error, &l.error);
    if (l.code != PL_OK)
        pl_count(&reactor->runtime->malformed);
    if (l.e.kind == PL_KIND_CALL)
        deliver_call(reactor, &l);
    else if (l.e.kind == PL_KIND_CANCEL)
        deliver_cancel(reactor, &l);
    else
        deliver_answer(reactor, &l);
}

/* Ends calls to actors whose thread has ended: no answer will arrive. */
void pl_actors_lost_thread(pl_reactor_t *reactor, uint32_t thread)
{
    for (size_t k = 0; k < reactor->calls.capacity; k++) {
        pl_made_call_t *made = reactor->calls.key[k] ? reactor->calls.value[k] : NULL;
        if (!made || made->to.thread != thread)
            continue;
        pl_error_t err;
        pl_fail(&err, PL_EPEER, "%s ended before it replied to %s",
                pl_kind_name(made->to.kind), pl_message_info(made->message)->name);
        pl_envelope_t e = envelope_of(made->actor, made->to, PL_KIND_CALL, made->message,
                                      made->number);
        e.cause = made->doing.cause;
        call_refuse(reactor, &e, &err);
    }
}
