/* runtime.h - what all threads of an engine share, and which threads there are */
#ifndef PL_RUNTIME_RUNTIME_H
#define PL_RUNTIME_RUNTIME_H

#include <pthread.h>

#include "paceline.h"

typedef struct pl_monitor pl_monitor_t;
struct pl_reactor;

/* A rank's place in the stream. */
typedef struct pl_rank_seq {
    int rank;
    char topic[16];                       /* how its topics begin: "0." */
    uint64_t next;                        /* number of its next message; the hub's */
    uint64_t dropped;                     /* atomic: newest messages that the hub will not
                                             see */
    struct pl_rank_seq *other;
} pl_rank_seq_t;

typedef struct pl_runtime {
    uint64_t run;                                           /* id, in every envelope */
    uint32_t incarnation;
    int64_t began;                     /* pl_now() when it was made: zero of the stream's
                                          time */
    int grace_ms;                      /* for a child to end before it counts as stuck: of
                                          the lowest level; up to six times as much of
                                          higher ones; a twentieth of one that is taken
                                          for stuck already */
    bool is_child;                     /* a launcher has started this process for a rank:
                                          it kills one that is stuck, and asks it before
                                          where it is, by SIGABRT, which no thread
                                          blocks */
    pl_monitor_t *monitor;             /* atomic  [no stream] */
    pl_rank_seq_t *seqs;               /* one for each rank */
    pthread_mutex_t lock;              /* of seqs */
    /* Counted, atomic: for the stream and for tests. */
    uint64_t refused;                     /* well-formed but not allowed */
    uint64_t malformed;                   /* frames dropped */
    uint64_t stale;                       /* answers nobody waits for any more */
    uint64_t stuck;                       /* threads given up; while there is one,
                                             pl_runtime_release() keeps all and the struct
                                             itself must stay */
} pl_runtime_t;

int pl_runtime_init(pl_runtime_t *runtime, pl_error_t *err);
void pl_runtime_release(pl_runtime_t *runtime);

/* Any thread. */
void pl_count(uint64_t *counter);
pl_rank_seq_t *pl_runtime_seq(pl_runtime_t *runtime, int rank);  /* NULL when memory is
                                                                    out */

/* Threads that have an inbound socket, of the whole process.  ZeroMQ would let us connect
 * to one that is gone, and wait; so whoever leaves tells all others by
 * pl_reactor_thread_gone(). */
uint32_t pl_thread_enter(struct pl_reactor *reactor);     /* its number, never used again;
                                                             0 when memory is out */
void pl_thread_leave(uint32_t number);
bool pl_thread_is_there(uint32_t number);

#endif
