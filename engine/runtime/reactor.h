/* reactor.h - one thread's event loop, its inbound socket and the actors that live
 * there */
#ifndef PL_RUNTIME_REACTOR_H
#define PL_RUNTIME_REACTOR_H

#include <pthread.h>

#include "base/map.h"
#include "runtime/message.h"
#include "runtime/placement.h"
#include "runtime/runtime.h"
#include "runtime/share.h"
#include "transport/socket.h"

struct event;

typedef struct pl_posted {
    struct pl_posted *next;
    void (*then)(void *argument);
    void *argument;
} pl_posted_t;

/* What a thread is working at; it goes on with that when an answer or a timer calls it
 * back. */
typedef struct pl_doing {
    uint64_t cause;                                  /* the call being handled; 0: none */
    int64_t deadline;                                /* of that call; 0: none */
    bool late;                                       /* a cancel, because of a limit */
} pl_doing_t;

/* Measures how long handlers run; telemetry/profile.c implements it.  Any thread. */
typedef struct pl_profile_row pl_profile_row_t;
typedef struct pl_profiler {
    pl_object_t object;
    /* The row of an actor's handler of such a call, or of its answers  [not measured] */
    pl_profile_row_t *(*row)(struct pl_profiler *self, uint32_t kind, uint32_t message,
                             const void *fields, bool answer);
    void (*add)(struct pl_profiler *self, pl_profile_row_t *row, int64_t ns);
} pl_profiler_t;

typedef struct pl_reactor {
    pl_runtime_t *runtime;
    pl_sockets_t loop;
    uint32_t thread;                                        /* its number; 0 is nobody */
    int rank;                                               /* -1 on the control thread */
    pl_rank_seq_t *seq;
    pl_placement_t placement;
    bool shares;                              /* its starter is kept on some processors */
    pthread_t pthread;
    bool has_pthread, leave;
    bool abandoned;                                         /* atomic */

    pl_socket_t *inbound;      /* ROUTER: calls come in, answers go out */
    pl_map_t inboxes;          /* by thread, DEALER: calls go out, answers come in */
    pl_queue_t queue;          /* messages to actors of this thread */
    pl_queue_t held;           /* to other threads, not yet sent */
    int64_t looped_at;         /* when libevent was last asked while some waited */
    int64_t held_at;           /* when the handler began that the first is of */
    int64_t longest;           /* that a handler took; an eighth is forgotten with each */
    int expects;               /* messages in company, for so many waits yet */

    pl_map_t actors;                             /* by number */
    pl_map_t calls;                              /* by number: made here, not yet ended */
    struct pl_made_call *limited;                /* those of them with a limit */
    struct event *limit_timer;
    int64_t limit_next;                /* when it fires; 0: not set */
    int64_t awake_since;               /* the thread's timers come in time  [0: always] */
    uint64_t next_call;
    struct actor *dead;                             /* to be freed between two handlers */
    pl_doing_t doing;
    pl_profiler_t *profiler;                                /* counted  [not measured] */

    pthread_mutex_t post_lock;
    pl_posted_t *posted, **posted_last;
    bool asked_to_leave, thread_gone;         /* atomic */
    int wake_fd;                              /* eventfd: one of these four has changed */
    struct event *wake;
} pl_reactor_t;

/* NULL with an error; the thread that will run it need not be the one that makes it. */
pl_reactor_t *pl_reactor_new(pl_runtime_t *runtime, int rank, pl_error_t *err);
/* Frees it with what is left in it, children on threads of their own included; its thread
 * must have ended. */
void pl_reactor_free(pl_reactor_t *reactor);

/* Runs it on a thread of its own, named for debuggers, all signals blocked. */
int pl_reactor_start(pl_reactor_t *reactor, const char *name, pl_error_t *err);
/* Asks a started one to leave, when it has run what was posted before, and waits for its
 * thread.  Not from its own thread. */
void pl_reactor_join(pl_reactor_t *reactor);
void pl_reactor_stop(pl_reactor_t *reactor);                /* joins, then frees */
/* Runs until told to leave, on the calling thread. */
void pl_reactor_run(pl_reactor_t *reactor);

/* The profiler of an actor's thread, which threads that it starts later inherit; set
 * once, takes over the reference. */
pl_profiler_t *pl_actor_profiler(const void *self);
void pl_actor_set_profiler(void *self, pl_profiler_t *profiler);

/* The call that an actor is handling; 0: none.  Its own thread. */
uint64_t pl_actor_doing(const void *self);

/* Gives a thread up that does not end: what it holds is kept, and should it wake it
 * handles nothing more.  Any thread. */
void pl_reactor_abandon(pl_reactor_t *reactor);
bool pl_reactor_is_abandoned(const pl_reactor_t *reactor);

/* then(argument) will be called on the reactor's thread, in order of posting, unless that
 * leaves by itself before.  Any thread. */
int pl_reactor_post(pl_reactor_t *reactor, void (*then)(void *argument), void *argument,
                    pl_error_t *err);
void pl_reactor_leave(pl_reactor_t *reactor);               /* own thread */
/* Some thread is gone: open calls to it will fail.  Any thread. */
void pl_reactor_thread_gone(pl_reactor_t *reactor);

/* Sends a frame where its envelope says, consumed also on failure; to another thread when
 * the handler that runs has returned, or later: see reactor.c. */
int pl_reactor_send(pl_reactor_t *reactor, pl_frame_t *frame, pl_error_t *err);

/* What reaches the actors: a checked frame has come and may be moved from; the ended are
 * freed; limits have passed; a thread with all its actors is gone; all goes. */
void pl_actors_deliver(pl_reactor_t *reactor, pl_frame_t *frame);
void pl_actors_reap(pl_reactor_t *reactor);
void pl_actors_check_limits(pl_reactor_t *reactor);
/* A timer of this thread fired that was due then: when that is long ago, the thread did
 * not run meanwhile. */
void pl_reactor_fired(pl_reactor_t *reactor, int64_t due);
void pl_actors_lost_thread(pl_reactor_t *reactor, uint32_t thread);
void pl_actors_release(pl_reactor_t *reactor);
void pl_actors_abandon_children(pl_reactor_t *reactor);     /* those on threads of their
                                                               own */

/* The first actor of an engine: one that nobody of higher level started.  Its number is
 * known at once. */
int pl_actor_root(pl_reactor_t *reactor, const struct pl_actor_ops *ops, void **self,
                  pl_error_t *err);

#endif
