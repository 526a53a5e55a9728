/* actors.h - what actor.c (life) and call.c (messages) share: the structs behind actor.h */
#ifndef PL_RUNTIME_ACTORS_H
#define PL_RUNTIME_ACTORS_H

#include <stddef.h>

#include "runtime/reactor.h"

typedef enum actor_state {
    ACTOR_NEW,                                              /* its start has not come yet */
    ACTOR_ALIVE,
    ACTOR_ENDING,                                           /* waits for its children to end */
    ACTOR_DEAD,                                             /* waits to be freed */
} actor_state_t;

/* A call received and not yet ended.  Its frame keeps texts, bytes and handles alive. */
struct pl_call {
    struct actor *actor;
    uint64_t number;
    uint32_t message;
    pl_address_t caller;
    int64_t deadline;                                       /* 0: none */
    pl_frame_t *frame;
    pl_call_t *next, **link;                                /* list of the actor's */
};

/* A call made and not yet ended. */
typedef struct pl_made_call {
    struct actor *actor;
    uint64_t number, cause;
    uint32_t message;
    pl_address_t to;
    pl_on_answer_t on_answer;
    void *context;
    int64_t deadline;                                       /* total; 0: none */
    int64_t silence, silent_until;                          /* ns; 0: none */
    bool late, cancelled;
    pl_reactor_t *thread;                                   /* a child's own thread  [not a child, or on this thread] */
    bool is_child;
    struct pl_made_call *next, **link;                      /* list of the actor's, newest first */
    struct pl_made_call *next_limited, **limited_link;      /* list of the reactor's; link NULL: not in it */
} pl_made_call_t;

/* A time or a descriptor that an actor waits for. */
typedef struct pl_timer {
    struct actor *actor;
    struct event *event;
    void (*then)(void *self);
    uint64_t cause;
    struct pl_timer *next;
} pl_timer_t;

typedef struct actor {
    const pl_actor_ops_t *ops;
    pl_reactor_t *reactor;
    pl_address_t address;
    uint32_t parent;                                        /* who may start it; 0: a root */
    actor_state_t state;
    pl_peers_t peers;
    pl_call_t *start;                                       /* its life */
    pl_call_t *open;                                        /* others received */
    int open_count;
    pl_made_call_t *made;
    pl_timer_t *timers;
    pl_error_t end_error;                                   /* code 0: in order */
    int64_t end_by;                                         /* when ending children count as stuck */
    struct actor *next_dead;
    _Alignas(max_align_t) char self[];
} actor_t;

static inline actor_t *actor_of(const void *self)
{
    return (actor_t *)((char *)self - offsetof(actor_t, self));
}

/* "strategy.single" */
static inline const char *actor_name(const actor_t *actor)
{
    return pl_kind_name(actor->address.kind);
}

/* actor.c */
void actor_begin_end(actor_t *actor, const pl_error_t *error);
void actor_go_on_ending(actor_t *actor);                    /* after something it waited for has ended */
void actor_child_ended(actor_t *actor, pl_made_call_t *made);

/* call.c */
void call_drop(pl_call_t *call);                            /* out of its list, freed; no answer */
int call_answer(pl_call_t *call, pl_kind_t kind, const void *fields, pl_error_t *err);
void made_drop(pl_made_call_t *made);
void made_cancel(pl_made_call_t *made);
void limits_schedule(pl_reactor_t *reactor, int64_t when);

#endif
