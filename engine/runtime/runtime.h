/* runtime.h - the data that all threads of an engine share, and the list of threads */
#ifndef PL_RUNTIME_RUNTIME_H
#define PL_RUNTIME_RUNTIME_H

#include <pthread.h>

#include "paceline.h"

typedef struct pl_monitor pl_monitor_t;
struct pl_reactor;

/* The numbers of a rank's messages in the stream. */
typedef struct pl_rank_seq {
    int rank;
    char topic[16];                      /* the start of its topics: "0." */
    uint64_t next;                       /* number of its next message; used by the hub */
    uint64_t dropped;                    /* atomic: newest messages that the hub does not
                                            get */
    struct pl_rank_seq *other;
} pl_rank_seq_t;

typedef struct pl_runtime {
    uint64_t run;                                           /* id, in every envelope */
    uint32_t incarnation;
    int64_t began;                      /* pl_now() at its start: zero of the stream's
                                           time */
    int grace_ms;                       /* time for a child of the lowest level to end
                                           before it is stuck; up to six times as long for
                                           higher levels, a twentieth for a suspected
                                           child */
    bool is_child;                      /* a launcher has started this process for a rank.
                                           It kills a stuck process, and before that asks
                                           for its stack by SIGABRT, which no thread
                                           blocks */
    pl_monitor_t *monitor;              /* atomic  [no stream] */
    pl_rank_seq_t *seqs;                /* one for each rank */
    pthread_mutex_t lock;               /* of seqs */
    /* Counted, atomic: for the stream and for tests. */
    uint64_t refused;                       /* well-formed but not allowed */
    uint64_t malformed;                     /* frames dropped */
    uint64_t stale;                         /* answers to calls that are no longer open */
    uint64_t stuck;                         /* abandoned threads; if there is one,
                                               pl_runtime_release() frees nothing and the
                                               struct itself must stay */
} pl_runtime_t;

int pl_runtime_init(pl_runtime_t *runtime, pl_error_t *err);
void pl_runtime_release(pl_runtime_t *runtime);

/* Any thread. */
void pl_count(uint64_t *counter);
pl_rank_seq_t *pl_runtime_seq(pl_runtime_t *runtime, int rank);  /* NULL when memory is
                                                                    out */

/* The threads of the process that have an inbound socket.  ZeroMQ connects to a socket
 * that is closed, and waits; so a thread that ends notifies all others by
 * pl_reactor_thread_gone(). */
uint32_t pl_thread_enter(struct pl_reactor *reactor);       /* a number that is never used
                                                               again; 0: no memory */
void pl_thread_leave(uint32_t number);
bool pl_thread_is_there(uint32_t number);

#endif
