/* reactor.h - one thread's event loop, its inbound socket and the actors that live
 * there */
#ifndef PL_RUNTIME_REACTOR_H
#define PL_RUNTIME_REACTOR_H

#include <pthread.h>

#include "base/map.h"
#include "runtime/message.h"
#include "runtime/placement.h"
#include "runtime/runtime.h"
#include "transport/socket.h"

struct event;

typedef struct pl_posted {
    struct pl_posted *next;
    void (*then)(void *argument);
    void *argument;
} pl_posted_t;

/* The call that a thread works for.  Answers and timers restore it. */
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
    uint32_t thread;                                        /* its number, from 1 */
    int rank;                                               /* -1 on the control thread */
    pl_rank_seq_t *seq;
    pl_placement_t placement;
    bool shares;                               /* its starter has a share of processors */
    pthread_t pthread;
    bool has_pthread, leave;
    bool abandoned;                                         /* atomic */

    pl_socket_t *inbound;      /* ROUTER: calls come in, answers go out */
    pl_map_t inboxes;          /* by thread, DEALER: calls go out, answers come in */
    pl_queue_t queue;          /* messages to actors of this thread */
    pl_queue_t held;           /* to other threads, not yet sent */
    int64_t looped_at;         /* when libevent last ran while messages waited */
    int64_t held_at;           /* start of the handler that sent the first held message */
    int64_t longest;           /* longest handler of late: each handler lowers it by an
                                  eighth */
    int expects;               /* messages are expected together for so many waits */

    pl_map_t actors;                                 /* by number */
    pl_map_t calls;                                  /* by number: made here, not ended */
    struct pl_made_call *limited;                    /* calls with a limit */
    struct event *limit_timer;
    int64_t limit_next;                                   /* when it fires; 0: not set */
    int64_t awake_since;                                  /* see pl_actor_awake_since() */
    uint64_t next_call;
    struct actor *dead;                                   /* freed between two handlers */
    pl_doing_t doing;
    pl_profiler_t *profiler;                                /* counted  [not measured] */

    pthread_mutex_t post_lock;
    pl_posted_t *posted, **posted_last;
    bool asked_to_leave, thread_gone;       /* atomic */
    int wake_fd;                            /* eventfd: one of the fields above changed */
    struct event *wake;
} pl_reactor_t;

/* NULL with an error.  Any thread; another thread may run it. */
pl_reactor_t *pl_reactor_new(pl_runtime_t *runtime, int rank, pl_error_t *err);
/* Frees a reactor with its actors, and their children on other threads; its own thread
 * must have ended. */
void pl_reactor_free(pl_reactor_t *reactor);

/* Runs it on a new thread with that name, with all signals blocked. */
int pl_reactor_start(pl_reactor_t *reactor, const char *name, pl_error_t *err);
/* Makes a started reactor leave after the functions posted before, and waits for its
 * thread. Not from its own thread. */
void pl_reactor_join(pl_reactor_t *reactor);
void pl_reactor_stop(pl_reactor_t *reactor);                /* joins, then frees */
/* Runs on the calling thread until pl_reactor_leave(). */
void pl_reactor_run(pl_reactor_t *reactor);

/* The profiler of an actor's thread, which threads that it starts later inherit; set
 * once, takes over the reference. */
pl_profiler_t *pl_actor_profiler(const void *self);
void pl_actor_set_profiler(void *self, pl_profiler_t *profiler);

/* The call that an actor is handling; 0: none.  Its own thread. */
uint64_t pl_actor_doing(const void *self);

/* Abandons a thread that does not end: its memory is kept, and it handles no more
 * messages if it wakes.  Any thread. */
void pl_reactor_abandon(pl_reactor_t *reactor);
bool pl_reactor_is_abandoned(const pl_reactor_t *reactor);

/* Calls then(argument) on the reactor's thread, in the order of posting, unless the
 * reactor leaves by itself before.  Any thread. */
int pl_reactor_post(pl_reactor_t *reactor, void (*then)(void *argument), void *argument,
                    pl_error_t *err);
void pl_reactor_leave(pl_reactor_t *reactor);               /* own thread */
/* Reports that some thread has ended: open calls to it fail.  Any thread. */
void pl_reactor_thread_gone(pl_reactor_t *reactor);

/* Sends a frame to the actor of its envelope; consumes it, also on failure.  A frame to
 * another thread leaves after the running handler, or later: see reactor.c. */
int pl_reactor_send(pl_reactor_t *reactor, pl_frame_t *frame, pl_error_t *err);

/* Delivers a checked frame, which may be moved from. */
void pl_actors_deliver(pl_reactor_t *reactor, pl_frame_t *frame);
/* Frees the actors that have ended. */
void pl_actors_reap(pl_reactor_t *reactor);
void pl_actors_check_limits(pl_reactor_t *reactor);
/* A timer of this thread fired that was due at `due`: if that is long ago, the thread was
 * not running. */
void pl_reactor_fired(pl_reactor_t *reactor, int64_t due);
/* Ends the open calls to a thread that has ended with all its actors. */
void pl_actors_lost_thread(pl_reactor_t *reactor, uint32_t thread);
/* Frees all actors. */
void pl_actors_release(pl_reactor_t *reactor);
/* Abandons the children that have threads of their own. */
void pl_actors_abandon_children(pl_reactor_t *reactor);

/* Creates an actor without a parent, such as the first one of an engine. */
int pl_actor_root(pl_reactor_t *reactor, const struct pl_actor_ops *ops, void **self,
                  pl_error_t *err);

#endif
