/* reactor.h - one thread's event loop, its inbound socket and the actors that live there */
#ifndef PL_RUNTIME_REACTOR_H
#define PL_RUNTIME_REACTOR_H

#include <pthread.h>

#include "base/map.h"
#include "runtime/message.h"
#include "runtime/socket.h"

struct event;
struct event_base;
typedef struct pl_monitor pl_monitor_t;

/* Numbers of a rank's messages in the stream. */
typedef struct pl_rank_seq {
    int rank;
    uint64_t next;                                          /* atomic */
    struct pl_rank_seq *other;
} pl_rank_seq_t;

/* What all threads of an engine share. */
typedef struct pl_runtime {
    uint64_t run;                                           /* id, in every envelope */
    uint32_t epoch;
    int64_t began;                                          /* pl_now() when it was made: zero of the stream's time */
    int grace_ms;                                           /* for a child to end before it counts as stuck */
    pl_monitor_t *monitor;                                   /* atomic  [no stream] */
    struct pl_rank_seq *seqs;                               /* one for each rank */
    pthread_mutex_t lock;                                   /* of seqs */
    /* Counted, atomic: for the stream and for tests. */
    uint64_t refused;                                       /* well-formed but not allowed */
    uint64_t malformed;                                     /* frames dropped */
    uint64_t stuck;                                         /* threads given up */
    uint64_t stale;                                         /* answers nobody waits for any more */
} pl_runtime_t;

int pl_runtime_init(pl_runtime_t *runtime, pl_error_t *err);
void pl_runtime_release(pl_runtime_t *runtime);

typedef struct pl_posted {
    struct pl_posted *next;
    void (*then)(void *argument);
    void *argument;
} pl_posted_t;

typedef struct pl_reactor {
    pl_runtime_t *runtime;
    struct event_base *base;
    uint32_t thread;                                        /* its number; 0 is nobody */
    int rank;                                               /* -1 on the control thread */
    pl_rank_seq_t *seq;
    pl_socket_t *to_monitor;                                /* PUSH  [not used yet] */
    pthread_t pthread;
    bool has_pthread, leave;

    pl_socket_t *inbound;                                   /* ROUTER: calls come in, answers go out */
    pl_map_t links;                                         /* by thread, DEALER: calls go out, answers come in */
    pl_frame_t *first, **last;                              /* messages within this thread */

    pl_map_t actors;                                        /* by number */
    pl_map_t calls;                                         /* by number: made here, not yet ended */
    struct pl_made_call *limited;                           /* those of them with a limit */
    struct event *limit_timer;
    int64_t limit_next;                                     /* when it fires; 0: not set */
    uint64_t next_call;
    struct actor *dead;                                     /* to be freed between two handlers */
    uint64_t cause;                                         /* the call being handled; 0: none */
    int64_t deadline;                                       /* of that call; 0: none */

    pthread_mutex_t post_lock;
    pl_posted_t *posted, **posted_last;
    int wake_fd;                                            /* eventfd */
    struct event *wake;
} pl_reactor_t;

/* NULL with an error; the thread that will run it need not be the one that makes it. */
pl_reactor_t *pl_reactor_new(pl_runtime_t *runtime, int rank, pl_error_t *err);
/* Frees it with what is left in it; its thread must have ended. */
void pl_reactor_free(pl_reactor_t *reactor);

/* Runs it on a thread of its own, named for debuggers, all signals blocked. */
int pl_reactor_start(pl_reactor_t *reactor, const char *name, pl_error_t *err);
/* Asks a started one to leave, waits for its thread and frees it.  Not from its own thread. */
void pl_reactor_stop(pl_reactor_t *reactor);
/* Runs until told to leave, on the calling thread. */
void pl_reactor_run(pl_reactor_t *reactor);

/* then(argument) will be called on the reactor's thread, in order of posting.  Any thread. */
int pl_reactor_post(pl_reactor_t *reactor, void (*then)(void *argument), void *argument, pl_error_t *err);
void pl_reactor_leave(pl_reactor_t *reactor);               /* own thread */

/* Sends a frame where its envelope says, consumed also on failure. */
int pl_reactor_send(pl_reactor_t *reactor, pl_frame_t **frame_p, pl_error_t *err);

/* Closes the link to a thread that is gone. */
void pl_reactor_unlink(pl_reactor_t *reactor, uint32_t thread);

/* The door to the actors, in actor.c: a frame has come; dead ones are freed; limits have passed. */
void pl_actors_deliver(pl_reactor_t *reactor, pl_frame_t *frame);
void pl_actors_reap(pl_reactor_t *reactor);
void pl_actors_check_limits(pl_reactor_t *reactor);
void pl_actors_release(pl_reactor_t *reactor);

/* The first actor of an engine: one that nobody of higher level started.  Its number is known at once. */
int pl_actor_root(pl_reactor_t *reactor, const struct pl_actor_ops *ops, void **self, pl_error_t *err);

#endif
