/* nodes.h - shm and tcp together: ranks of several machines, some of which share one */
#ifndef PL_COLLECTIVES_NODES_H
#define PL_COLLECTIVES_NODES_H

#include "strategies/collectives/collective.h"

/* Of who has opened both; zeroed at first. */
typedef struct nodes {
    pl_coll_request_t step;                                /* first: done() gets it.  What
                                                              req is made of, now */
    pl_coll_request_t *req;                                /* join or alloc_buffer */
    bool is_near;                                          /* the step is shm's */
    void *shm, *tcp;                                       /* not owned */
    pl_world_t all, mates;
    int *number;                                           /* [mates], ranks of the run */
    int *place;                                            /* [world size], among mates */
    const char **address;                                  /* [mates] */
    unsigned char *arrived;                                /* [mates] */
} nodes_t;

/* The ranks as tcp joins them, and the machines they are on, from any number on; and
 * the addresses of all for shm. */
int nodes_make(nodes_t *n, const pl_world_t *all, const char *const *near,
               pl_error_t *err);

/* Its self is nodes_t; what is opened, given up and closed are its two parts. */
extern const pl_collective_ops_t pl_nodes_collective;
void nodes_release(nodes_t *n);

#endif
