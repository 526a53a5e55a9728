/* manual_loop.h - a manual loop, as the program sees it */
#ifndef PL_MANUAL_LOOP_H
#define PL_MANUAL_LOOP_H

#include "actors/connectors/batch_pool.h"
#include "actors/api/host.h"

typedef enum pl_loop_state { PL_LOOP_OPENS, PL_LOOP_READY, PL_LOOP_OVER } pl_loop_state_t;

/* What the program has asked for. */
typedef struct pl_loop_request {
    pl_notification_t notification;                         /* first: tell() gets it */
    pl_loop_t *loop;
    struct pl_loop_request *next, **pprev;          /* control thread: list of those under
                                                       way */
    uint64_t call;
    pl_stage_t stage;
    double lr_factor;
    pl_batch_t *batch;                                      /* counted  [a save] */
    char *name;                                             /* of the save */
    pl_on_loop_t then;
    void *user;
    pl_error_t error;                                       /* what came of it: */
    uint64_t global_step;
    char *metrics, *skipped;
    pl_outputs_t *outputs;                                  /* counted  [none] */
} pl_loop_request_t;

struct pl_loop {
    pl_attached_t attached;                                 /* first: the trainer's */
    pl_inside_t inside;
    pl_trainer_t *trainer;
    pl_loop_state_t state;
    bool closing;
    pl_error_t failure;                                     /* why it is over */
    int under_way, depth;
    double lr_factor;
    int field_count, targets;
    pl_field_t field[PL_FIELDS];
    int64_t rows;                                           /* of a batch at most */
    pl_batch_pool_t *pool;
    pl_notification_t ready, closed;
    pl_on_loop_t on_ready, on_closed;
    void *ready_user, *closed_user;
    char *run_dir;                                         /* [none]  until ready: control
                                                              thread's, like all below */
    uint64_t first_step;                                   /* that it continues from */
    pl_address_t at;                                       /* none: it cannot be called */
    pl_loop_request_t *requests;
};

/* ---- manual_loop.c ---- */

/* Tells the program; what is NULL in the result is empty. */
void pl_loop_tell(pl_loop_t *loop, pl_on_loop_t then, void *user,
                  const pl_loop_result_t *result);

/* ---- manual_loop_requests.c ---- */

/* Control thread: no answer comes any more, and why. */
void pl_loop_requests_end(pl_loop_t *loop, const pl_error_t *error);

#endif
