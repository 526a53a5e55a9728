/* children.h - the ranks of one node, for one attempt: children that are told their place
 */
#ifndef PL_LAUNCHERS_CHILDREN_H
#define PL_LAUNCHERS_CHILDREN_H

#include "paceline.h"

struct pl_sockets;

typedef struct pl_children pl_children_t;

/* Of a rank that has lost another: EX_TEMPFAIL of BSD.  It has a cause elsewhere. */
#define PL_STATUS_LOST 75

/* The first that failed; behind one that has but lost another, the first that has not. */
typedef struct pl_failure {
    int status;                             /* as a shell has it */
    bool may_pass;                          /* it died of what may not come again */
    pl_error_t error;                       /* which it was and why  [code 0: none has] */
} pl_failure_t;

typedef struct pl_children_spec {
    const char *const *argv;
    int count;
    int nodes, node_rank;                        /* that take part; this one among them */
    uint32_t attempt;                            /* from 1 */
    const char *endpoint;                        /* where rank zero is met */
    const char *job;
    const char *job_key, *run_dir_index, *finished_ranks;   /* [""] */
    void (*on_line)(void *user, int rank, const char *line);
    /* The others go on; again when a cause comes behind a rank that was lost by it.  None
     * may free the children. */
    void (*on_failed)(void *user, const pl_failure_t *failure);
    /* One has ended with status 0, which fails nobody but ranks that wait for it. */
    void (*on_left)(void *user, int rank, const char *text);
    void (*on_end)(void *user);                             /* all have ended */
    void *user;
} pl_children_spec_t;

/* What the spec points to is copied, but for the functions' user. */
pl_children_t *pl_children_start(const pl_children_spec_t *spec, struct event_base *loop,
                                 pl_error_t *err);
void pl_children_signal(pl_children_t *children, int number);
/* Ends those that still live, by SIGKILL; nothing is told. */
void pl_children_free(pl_children_t *children);

#endif
