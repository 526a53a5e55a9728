/* actors.h - the structs behind actor.h, which actor.c (life), call.c (calls) and
 * deliver.c (received messages) share */
#ifndef PL_RUNTIME_ACTORS_H
#define PL_RUNTIME_ACTORS_H

#include <stddef.h>

#include "base/bind.h"
#include "runtime/reactor.h"

typedef enum actor_state {
    ACTOR_NEW,                                          /* has not received `start` yet */
    ACTOR_ALIVE,
    ACTOR_ENDING,                               /* waits for its children to end */
    ACTOR_DEAD,                                 /* is freed after the handler that runs */
} actor_state_t;

/* A received call that has not ended.  Its frame keeps texts, bytes and handles alive. */
struct pl_call {
    struct actor *actor;
    uint64_t number, cause;
    uint32_t message;
    pl_address_t caller;
    int64_t deadline;                                  /* 0: none */
    bool late;                                         /* cancelled, because of a limit */
    pl_frame_t frame;
    pl_call_t *next, **pprev;                               /* list of the actor's */
};

/* A call that an actor has made and that has not ended. */
typedef struct pl_made_call {
    struct actor *actor;
    uint64_t number;
    uint32_t message;
    pl_address_t to;
    pl_doing_t doing;
    pl_on_answer_t on_answer;
    void *context;
    pl_profile_row_t *row;                   /* of its answers  [not counted] */
    int64_t since;                           /* when it was made */
    int64_t deadline, total;                 /* when, and how long it was then; 0: none */
    int64_t silence, silent_until;           /* ns; 0: none */
    bool cancelled, owns_context;
    pl_reactor_t *thread;                 /* a child's own thread [not a child, or on this
                                             thread] */
    bool is_child;
    bool suspect;                                          /* a child that may be stuck */
    struct pl_made_call *next, **pprev;                    /* list of the actor's, newest
                                                              first */
    struct pl_made_call *next_limited, **limited_pprev;    /* list of the reactor's; link
                                                              NULL: not in it */
} pl_made_call_t;

/* A time or a descriptor that an actor waits for. */
typedef struct pl_timer {
    struct actor *actor;
    struct event *event;
    void (*then)(void *self);
    int64_t due;                                            /* 0: a descriptor */
    pl_doing_t doing;
    struct pl_timer *next;
} pl_timer_t;

typedef struct actor {
    const pl_actor_ops_t *ops;
    pl_reactor_t *reactor;
    pl_address_t address;
    uint32_t parent;                            /* the actor that may start it; 0: none */
    actor_state_t state;
    bool lived;                              /* its start was handled: release() is due */
    pl_binding_t *binding;                   /* of its options  [it has none] */
    pl_peers_t peers;
    pl_call_t *start;                                       /* its life */
    pl_call_t *open;                                        /* others received */
    int open_count;
    pl_made_call_t *made;
    pl_timer_t *timers;
    pl_error_t end_error;                                 /* code 0: in order */
    bool late;                                            /* it ends because of a limit */
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
void actor_continue_ending(actor_t *actor);  /* after something it waited for has ended */
void actor_discard(actor_t *actor);        /* it is freed soon; its end is not reported */
void actor_child_ended(actor_t *actor, pl_made_call_t *made, const pl_error_t *error);
void actor_child_late(actor_t *actor, pl_made_call_t *child);  /* did not end within
                                                                  its grace */
void actor_child_alive(actor_t *actor, pl_made_call_t *child);  /* gave a sign of life */

/* call.c */
pl_envelope_t envelope_of(const actor_t *from, pl_address_t to, pl_kind_t kind,
                          uint32_t message, uint64_t call);
pl_call_t *call_of(const actor_t *actor, uint64_t number);  /* an open one, `start`
                                                               included, or NULL */
void call_drop(pl_call_t *call);                            /* out of its list, freed;
                                                               no answer */
/* the answer, then dropped */
void call_end(pl_call_t *call, pl_kind_t kind, const void *fields);
/* Ends a call with an error in the callee's name; e is the call's envelope. */
void call_refuse(pl_reactor_t *reactor, const pl_envelope_t *e, const pl_error_t *error);
void made_drop(pl_made_call_t *made);
void made_cancel(pl_made_call_t *made, bool late);
/* Gives a call the limit of so many ns from now, whatever it had before. */
void limits_renew(pl_made_call_t *made, int64_t wait);

/* deliver.c */
void answer_pass(pl_made_call_t *made, const pl_answer_t *answer);

#endif
