/* launch.h - what launch.c (this node and its children; the nodes that obey) and
 * launch_host.c (node 0, which decides) share */
#ifndef PL_LAUNCHERS_LAUNCH_H
#define PL_LAUNCHERS_LAUNCH_H

#include <limits.h>

#include "actors/launchers/bootstrap.h"
#include "actors/launchers/forwarding.h"
#include "paceline.h"
#include "transport/keys.h"
#include "transport/socket.h"

struct pl_sockets;

/* Status of a rank that lost another, so the cause is elsewhere: EX_TEMPFAIL of BSD. */
#define PL_STATUS_LOST 75

/* The first failure; a cause takes the place of a rank that only lost another. */
typedef struct pl_failure {
    int status;                                 /* in the form of a shell */
    bool may_pass;                              /* it may not occur in the next attempt */
    pl_error_t error;                           /* which rank, and why  [code 0: none] */
} pl_failure_t;

typedef struct launch_host launch_host_t;
typedef struct launch_node launch_node_t;

enum {
    LAUNCH_ENDPOINT = 300,
    LAUNCH_JOB = 64,
    LAUNCH_TURN_MS = 20,             /* between checks for messages that a send delayed */
    LAUNCH_WRONG = 2,                /* status: nothing could be started */
    LAUNCH_ABORTED = 130,            /* status: a second signal has ended all ranks */
};
static const uint64_t LAUNCH_RUN = 0x6c61756e6368;          /* of the nodes' link */

struct pl_launch {
    pl_launch_spec_t spec;                               /* with defaults: no 0 is left */
    pl_sockets_t loop;
    char folder[PL_SOCKET_FOLDER];
    int lock;
    char endpoint[LAUNCH_ENDPOINT];         /* of nodes; of ranks, if there is one node */
    char job_key[PATH_MAX];                 /* [""] */
    pl_keys_t keys;                         /* with job_key */
    struct event *turn;                     /* [there is one node] */
    struct launch_child *child;             /* [devices] of this attempt  [none] */
    int living;                             /* children */
    int reported;                           /* status of a failure  [0: none] */
    uint64_t sent;                          /* signals to them, a bit each */
    bool was_signalled;
    launch_host_t *host;                                    /* one of the two */
    launch_node_t *node;
};

/* One attempt of this node's ranks. */
typedef struct launch_attempt {
    uint32_t number;                                        /* from 1 */
    int nodes, node_rank;
    const char *endpoint, *job;
} launch_attempt_t;

/* launch.c */
int launch_begin(pl_launch_t *launch, const launch_attempt_t *attempt, pl_error_t *err);
void launch_signal(pl_launch_t *launch, int number);
/* Ranks that wait for that rank to join fail. */
void launch_rank_finished(const pl_launch_t *launch, int rank, const char *text);
void launch_note(const pl_launch_t *launch, const char *format, ...) PL_PRINTF(2, 3);
/* The link of the nodes, on which node 0 listens.  The spec has the endpoint, the time to
 * join, what only node 0 sets, and what receives. */
pl_link_t *launch_link(pl_launch_t *launch, pl_link_spec_t spec, pl_error_t *err);
/* The job has ended; the last call. */
void launch_end(pl_launch_t *launch, const pl_failure_t *failure);

/* launch_host.c */
launch_host_t *host_open(pl_launch_t *launch, pl_error_t *err);
void host_failed(launch_host_t *host, int number, const pl_failure_t *failure);
void host_ended(launch_host_t *host, int number);
/* A rank, of this node or another, has ended with status 0. */
void host_rank_finished(launch_host_t *host, int number, int rank, const char *text);
/* This process has received a signal, for the first or the second time. */
void host_signalled(launch_host_t *host, int number, bool is_second);
void host_free(launch_host_t *host);

#endif
