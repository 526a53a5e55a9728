/* environment.h - which rank of which job this process is, when another program has
 * started it
 *
 * Schedulers and launchers set environment variables, each with its own names.
 * Paceline's own names win; then the first source that is found counts.  If another
 * source contradicts it, the error has both names. */
#ifndef PL_LAUNCHERS_ENVIRONMENT_H
#define PL_LAUNCHERS_ENVIRONMENT_H

#include "paceline.h"

#define PL_ENVIRONMENT_PORT \
    15000                                        /* and the last four digits of the job's
                                                    number, if no variable names a port */

typedef struct pl_environment {
    const char *source;                /* "Slurm"  [NULL: no source is found, and the rest
                                          does not count] */
    bool is_own;                       /* the source is Paceline's own variables */
    int rank, world_size;
    int local_rank, local_world_size;  /* on this node; the size is 0 when not known */
    int node_rank;                     /* -1: not known */
    bool is_bound;                     /* it has processors of its own */
    char endpoint[256];                /* "tcp://HOST:PORT" where rank 0's launcher is
                                          found; "": not known, it has to be given */
    char job[64];                      /* what the source calls the job, the same in all
                                          its processes and in no other job there  [""] */
    int restarts;                      /* how often the source has started this job
                                          again */
} pl_environment_t;

/* Reads it through getenv(), or through `get` in tests.  PL_EINVAL: a variable that is no
 * number or out of range, one that is missing beside another, or two that contradict each
 * other; the error has the names and values. */
int pl_environment_read(pl_environment_t *environment, char *(*get)(const char *name),
                        pl_error_t *err);

#endif
