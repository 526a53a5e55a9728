/* actor.c - actors: their kinds; made, started, ended
 *
 * An actor ends in order: it takes no new calls; its children end one after the other;
 * then, after the handler that runs, it answers its open calls, `start` last.  A child
 * that does not end within its grace period is abandoned as stuck, and its memory is
 * kept: a thread cannot be killed. */
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/timeouts.h"
#include "runtime/actors.h"

_Static_assert((PL_GRACE_LEVELS + PL_LEVEL_WORKER) * PL_GRACE_MS / PL_GRACE_LEVELS
                   < PL_RANK_END_MS,
               "a rank reports what hangs before it is killed");

enum {
    KINDS_MAX = 1024,
    TABLES_MAX = 64,
    SUSPECT_PART = 20                  /* divides the grace period of a suspected child */
};

static uint32_t actors_made;                    /* atomic; a number is never used again */

/* ---- kinds ----
 *
 * A kind is a name and a level, with a number in the whole process.  Addresses and
 * envelopes have the number; checks use the level, texts the name.  There are few kinds,
 * so the table only grows, and reading it needs no lock. */

typedef struct kind_entry {
    char name[48];
    int level;
} kind_entry_t;

static pthread_mutex_t kind_lock = PTHREAD_MUTEX_INITIALIZER;
static kind_entry_t kinds[KINDS_MAX];
static uint32_t kind_count = 1;                             /* atomic; 0 is no kind */

uint32_t pl_kind_enter(const char *name, int level, pl_error_t *err)
{
    pthread_mutex_lock(&kind_lock);
    uint32_t k = 1;
    while (k < kind_count
           && (kinds[k].level != level
               || strncmp(kinds[k].name, name, sizeof kinds[k].name - 1)))
        k++;
    if (k == kind_count && k < KINDS_MAX) {
        snprintf(kinds[k].name, sizeof kinds[k].name, "%s", name);
        kinds[k].level = level;
        __atomic_store_n(&kind_count, k + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&kind_lock);
    if (k < KINDS_MAX)
        return k;
    pl_fail(err, PL_EBUSY, "more than %d kinds of actors in one process", KINDS_MAX - 1);
    return 0;
}

static const kind_entry_t *kind_of(uint32_t kind)
{
    return kind && kind < __atomic_load_n(&kind_count, __ATOMIC_ACQUIRE) ? &kinds[kind]
                                                                         : NULL;
}

const char *pl_kind_name(uint32_t kind)
{
    const kind_entry_t *k = kind_of(kind);
    return k ? k->name : "?";
}

int pl_kind_level(uint32_t kind)
{
    const kind_entry_t *k = kind_of(kind);
    return k ? k->level : 0;
}

const pl_actor_ops_t *pl_actor_kind(const pl_actor_ops_t *like, const char *name,
                                    pl_error_t *err)
{
    static pl_actor_ops_t tables[TABLES_MAX];
    int k = 0;
    pthread_mutex_lock(&kind_lock);
    while (k < TABLES_MAX && tables[k].name
           && (tables[k].name != name || tables[k].handlers != like->handlers))
        k++;
    if (k < TABLES_MAX && !tables[k].name) {
        tables[k] = *like;
        tables[k].name = name;
    }
    pthread_mutex_unlock(&kind_lock);
    if (k < TABLES_MAX)
        return &tables[k];
    pl_fail(err, PL_EBUSY,
            "more than %d kinds of accelerators and collectives in one "
            "process",
            TABLES_MAX);
    return NULL;
}

/* ---- making ---- */

static actor_t *actor_new(const pl_actor_ops_t *ops, pl_reactor_t *reactor,
                          uint32_t parent, pl_error_t *err)
{
    char name[48];
    snprintf(name, sizeof name, "%s%s%s", ops->role ? ops->role : "",
             ops->role ? "." : "", ops->name);
    uint32_t kind = pl_kind_enter(name, ops->level, err);
    if (!kind)
        return NULL;
    actor_t *actor = pl_alloc(sizeof *actor + ops->size);
    if (!actor) {
        pl_no_memory(err);
        return NULL;
    }
    actor->ops = ops;
    actor->reactor = reactor;
    actor->parent = parent;
    actor->address = (pl_address_t){reactor->thread,
                                    __atomic_add_fetch(&actors_made, 1, __ATOMIC_RELAXED),
                                    kind};
    if (pl_map_put(&reactor->actors, actor->address.actor, actor) == PL_OK)
        return actor;
    pl_free(actor);
    pl_no_memory(err);
    return NULL;
}

int pl_actor_root(pl_reactor_t *reactor, const pl_actor_ops_t *ops, void **self,
                  pl_error_t *err)
{
    actor_t *actor = actor_new(ops, reactor, 0, err);
    if (!actor)
        return err ? err->code : PL_ENOMEM;
    actor->state = ACTOR_ALIVE;
    actor->lived = true;
    *self = actor->self;
    return PL_OK;
}

static void self_release(actor_t *actor)
{
    while (actor->timers) {       /* first: release() closes the descriptors they watch */
        pl_timer_t *next = actor->timers->next;
        event_free(actor->timers->event);
        pl_free(actor->timers);
        actor->timers = next;
    }
    for (const pl_actor_ops_t *ops = actor->ops; ops && actor->lived; ops = ops->base)
        if (ops->release)
            ops->release(actor->self);
    pl_binding_free(actor->binding);
    actor->binding = NULL;
    actor->lived = false;
}

/* Frees an actor with its calls and the threads of its children; sends no answers. */
static void actor_free(actor_t *actor)
{
    self_release(actor);
    while (actor->open)
        call_drop(actor->open);
    if (actor->start)
        call_drop(actor->start);
    while (actor->made) {
        if (actor->made->thread)
            pl_reactor_stop(actor->made->thread);
        made_drop(actor->made);
    }
    pl_map_take(&actor->reactor->actors, actor->address.actor);
    pl_free(actor);
}

/* Answers the open calls of ended actors, `start` last and after release(): its caller
 * may use what the actor had. */
void pl_actors_reap(pl_reactor_t *reactor)
{
    while (reactor->dead) {
        actor_t *actor = reactor->dead;
        pl_error_t gone;
        reactor->dead = actor->next_dead;
        pl_fail(&gone, PL_ECANCELLED, "%s has ended", actor_name(actor));
        if (actor->end_error.code)
            gone = actor->end_error;
        while (actor->open)
            pl_call_fail(actor->open, &gone);
        self_release(actor);
        if (actor->start && actor->end_error.code)
            call_end(actor->start, PL_KIND_ERROR, &actor->end_error);
        else if (actor->start)
            call_end(actor->start, PL_KIND_REPLY, &(pl_start_reply_t){0});
        actor_free(actor);
    }
}

void pl_actors_abandon_children(pl_reactor_t *reactor)
{
    for (size_t k = 0; k < reactor->calls.capacity; k++) {
        pl_made_call_t *made = reactor->calls.key[k] ? reactor->calls.value[k] : NULL;
        if (made && made->thread)
            pl_reactor_abandon(made->thread);
    }
}

void pl_actors_release(pl_reactor_t *reactor)
{
    uint64_t key;
    pl_actors_reap(reactor);
    for (actor_t *actor; (actor = pl_map_any(&reactor->actors, &key));)
        actor_free(actor);
    pl_map_release(&reactor->actors);
    pl_map_release(&reactor->calls);
}

/* ---- spawning ---- */

uint64_t pl_spawn(void *self, const pl_actor_ops_t *ops, pl_where_t where,
                  const pl_start_t *start, pl_how_t how, pl_address_t *at,
                  pl_error_t *err)
{
    actor_t *parent = actor_of(self);
    const int rank = where == PL_OWN_THREAD ? parent->reactor->rank : (int)where;
    pl_reactor_t *own = NULL;
    if (where != PL_SAME_THREAD)
        own = pl_reactor_new(parent->reactor->runtime, rank, err);
    if (own)
        own->profiler = pl_object_ref(parent->reactor->profiler);
    pl_reactor_t *reactor = where == PL_SAME_THREAD ? parent->reactor : own;
    actor_t *child = reactor ? actor_new(ops, reactor, parent->address.actor, err) : NULL;
    if (!child || (own && pl_reactor_start(own, ops->name, err) != PL_OK)) {
        pl_reactor_free(own);
        return 0;
    }
    pl_address_t address = child->address;
    uint64_t number = pl_call_start(self, address, start, how, err);
    if (number) {
        ((pl_made_call_t *)pl_map_get(&parent->reactor->calls, number))->thread = own;
        *at = address;
    } else if (own) {
        pl_reactor_stop(own);
    } else {
        actor_free(child);
    }
    return number;
}

pl_profiler_t *pl_actor_profiler(const void *self)
{
    return actor_of(self)->reactor->profiler;
}

void pl_actor_set_profiler(void *self, pl_profiler_t *profiler)
{
    actor_of(self)->reactor->profiler = profiler;
}

void pl_actor_ready_at(void *self, const char *address)
{
    actor_t *actor = actor_of(self);
    const pl_start_progress_t ready = {.state = PL_START_STATE_READY, .address = address};
    pl_error_t err;
    if (!actor->start || pl_progress_start(actor->start, &ready) == PL_OK)
        return;
    pl_fail(&err, PL_ENOMEM, "out of memory: the ready report could not be sent");
    pl_actor_end(self, &err);
}

void pl_actor_ready(void *self)
{
    pl_actor_ready_at(self, "");
}

/* ---- ending ---- */

/* How long a child may take to end.  A child of a higher level has more time, so in a
 * chain of actors that wait for each other the parent of the stuck actor is the first
 * whose time passes, and it names the stuck actor. */
static int64_t grace_of(const pl_made_call_t *child)
{
    int64_t grace = child->actor->reactor->runtime->grace_ms * PL_MILLISECOND;
    grace += grace * pl_kind_level(child->to.kind) / PL_GRACE_LEVELS;
    return child->suspect ? grace / SUSPECT_PART : grace;
}

void pl_actor_suspect(void *self, int milliseconds)
{
    pl_reactor_t *reactor = actor_of(self)->reactor;
    const int64_t before = pl_now() - milliseconds * PL_MILLISECOND;
    const pl_map_t *calls = &reactor->calls;
    for (size_t k = 0; k < calls->capacity; k++) {
        const pl_made_call_t *late = calls->key[k] ? calls->value[k] : NULL;
        if (!late || late->is_child || late->to.thread == reactor->thread
            || late->since > before)
            continue;
        for (size_t i = 0; i < calls->capacity; i++) {
            pl_made_call_t *made = calls->key[i] ? calls->value[i] : NULL;
            if (made && made->is_child && made->to.actor == late->to.actor)
                made->suspect = true;
        }
    }
}

void actor_discard(actor_t *actor)
{
    if (actor->state == ACTOR_DEAD)
        return;
    actor->state = ACTOR_DEAD;
    actor->next_dead = actor->reactor->dead;
    actor->reactor->dead = actor;
}

static void actor_still_ends(actor_t *actor)
{
    if (actor->start)
        pl_progress_start(actor->start,
                          &(pl_start_progress_t){.state = PL_START_STATE_ENDING});
}

void actor_continue_ending(actor_t *actor)
{
    pl_made_call_t *child = actor->made;                    /* the newest first */
    while (child && !child->is_child)
        child = child->next;
    if (!child) {
        actor_discard(actor);
        return;
    }
    if (child->cancelled)
        return;
    made_cancel(child, false);
    limits_renew(child, grace_of(child));
    actor_still_ends(actor);
}

/* A child that gives a sign of life is no longer suspected; the parent reports one
 * too, so that actors above it also wait longer. */
void actor_child_alive(actor_t *actor, pl_made_call_t *child)
{
    if (actor->state != ACTOR_ENDING || !child->cancelled)
        return;
    child->suspect = false;
    limits_renew(child, grace_of(child));
    actor_still_ends(actor);
}

void actor_child_ended(actor_t *actor, pl_made_call_t *made, const pl_error_t *error)
{
    if (made->thread)
        pl_reactor_stop(made->thread);
    if (actor->state == ACTOR_ENDING && error && error->code != PL_ECANCELLED
        && !actor->end_error.code)
        actor->end_error = *error;
}

/* A child that does not end keeps its thread, memory and sockets. */
void actor_child_late(actor_t *actor, pl_made_call_t *child)
{
    if (child->cancelled) {
        pl_fail(&actor->end_error, PL_ESTUCK, "%s does not end; its memory is kept%s",
                pl_kind_name(child->to.kind),
                actor->reactor->runtime->is_child
                    ? " until its process has ended"
                    : ": use a launcher that runs ranks as processes, which can be "
                      "killed");
        pl_log_line(PL_LOG_ERROR, actor->reactor->rank, actor_name(actor), "%s",
                    actor->end_error.text);
        if (child->thread)
            pl_reactor_abandon(child->thread);
        made_drop(child);
    }
    actor_continue_ending(actor);
}

void actor_begin_end(actor_t *actor, const pl_error_t *error)
{
    if (actor->state != ACTOR_ALIVE)
        return;
    actor->state = ACTOR_ENDING;
    actor->late = actor->reactor->doing.late || (error && error->code == PL_ETIMEOUT);
    if (error)
        actor->end_error = *error;
    for (pl_made_call_t *made = actor->made, *next; made; made = next) {
        next = made->next;
        if (made->is_child)
            continue;
        made_cancel(made, false);
        made_drop(made);
    }
    actor_continue_ending(actor);
}

void pl_actor_end(void *self, const pl_error_t *error)
{
    actor_t *actor = actor_of(self);
    if (error && actor->start)
        pl_call_fail(actor->start, error);
    else
        actor_begin_end(actor, error);
}

/* ---- timers and descriptors ---- */

static void timer_fired(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_timer_t *timer = user;
    actor_t *actor = timer->actor;
    pl_reactor_fired(actor->reactor, timer->due);
    if (actor->state != ACTOR_ALIVE || pl_reactor_is_abandoned(actor->reactor))
        return;
    actor->reactor->doing = timer->doing;
    timer->then(actor->self);
    actor->reactor->doing = (pl_doing_t){0};
}

static pl_timer_t *timer_new(actor_t *actor, int fd, short what, void (*then)(void *))
{
    pl_timer_t *timer = pl_alloc(sizeof *timer);
    if (!timer)
        return NULL;
    *timer = (pl_timer_t){.actor = actor, .then = then, .next = actor->timers};
    timer->event = event_new(actor->reactor->loop.base, fd, what, timer_fired, timer);
    if (!timer->event) {
        pl_free(timer);
        return NULL;
    }
    return actor->timers = timer;
}

int pl_after(void *self, int milliseconds, void (*then)(void *self), pl_error_t *err)
{
    actor_t *actor = actor_of(self);
    pl_timer_t *timer = actor->timers;
    while (timer && timer->then != then)
        timer = timer->next;
    if (!timer)
        timer = timer_new(actor, -1, 0, then);
    struct timeval in = {milliseconds / 1000, milliseconds % 1000 * 1000};
    if (!timer || event_add(timer->event, &in) != 0)
        return pl_no_memory(err);
    timer->doing = actor->reactor->doing;
    timer->due = pl_now() + milliseconds * PL_MILLISECOND;
    return PL_OK;
}

int pl_watch(void *self, int fd, void (*then)(void *self), pl_error_t *err)
{
    pl_timer_t *watch = timer_new(actor_of(self), fd, EV_READ | EV_PERSIST, then);
    return watch && event_add(watch->event, NULL) == 0 ? PL_OK : pl_no_memory(err);
}

/* ---- what an actor knows ---- */

bool pl_is_life(void *self, const pl_call_t *call)
{
    return call == actor_of(self)->start;
}

bool pl_is_late(const pl_call_t *call)
{
    return call->late;
}

int64_t pl_actor_awake_since(void *self)
{
    return actor_of(self)->reactor->awake_since;
}

pl_sockets_t *pl_actor_loop(void *self)
{
    return &actor_of(self)->reactor->loop;
}

void pl_actor_take_share(void *self, int ranks)
{
    const int rank = actor_of(self)->reactor->rank;
    if (rank >= 0 && ranks > 1)
        pl_share_take(rank % ranks, ranks);
}

void pl_actor_computes(void *self)
{
    actor_of(self)->reactor->placement.computes = true;
}

void pl_peers_add(pl_peers_t *peers, const char *role, pl_address_t at)
{
    if (peers->count == PL_PEERS_MAX)
        return;
    snprintf(peers->peer[peers->count].role, sizeof peers->peer[0].role, "%s", role);
    peers->peer[peers->count++].at = at;
}

pl_address_t pl_peer(void *self, const char *role)
{
    const pl_peers_t *peers = &actor_of(self)->peers;
    for (uint32_t k = 0; k < peers->count; k++)
        if (!strcmp(peers->peer[k].role, role))
            return peers->peer[k].at;
    return (pl_address_t){0};
}

bool pl_actor_sees_stuck(void *self)
{
    return __atomic_load_n(&actor_of(self)->reactor->runtime->stuck, __ATOMIC_RELAXED)
           > 0;
}

bool pl_is_nobody(pl_address_t at)
{
    return at.actor == 0;
}

const char *pl_actor_name(void *self)
{
    return actor_name(actor_of(self));
}

int pl_actor_rank(void *self)
{
    return actor_of(self)->reactor->rank;
}

uint64_t pl_actor_doing(const void *self)
{
    return actor_of(self)->reactor->doing.cause;
}

pl_runtime_t *pl_actor_runtime(void *self)
{
    return actor_of(self)->reactor->runtime;
}
