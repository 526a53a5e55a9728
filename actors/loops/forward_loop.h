/* forward_loop.h - forward passes over all batches of a stage, without gradients
 *
 * The part that the loops without training share.  A pl_forward_loop_t is the first
 * member of the loop's own struct; the loop uses the answers. */
#ifndef PL_LOOPS_FORWARD_LOOP_H
#define PL_LOOPS_FORWARD_LOOP_H

#include "actors/loops/batch_iter.h"
#include "actors/loops/metrics.h"

typedef struct pl_forward_loop pl_forward_loop_t;

typedef struct pl_forward_loop_ops {
    /* A batch has come back; a failure goes into loop->iter.failure  [nothing to do]. */
    void (*on_batch)(pl_forward_loop_t *loop, const pl_evaluate_batch_reply_t *reply);
    void (*report)(pl_forward_loop_t *loop);                /* some times per second */
    /* All batches are done: answers the call. */
    void (*end)(pl_forward_loop_t *loop, pl_call_t *call);
    bool ends_early;                                        /* end() is also for a run
                                                               that one rank ends early
                                                               [it is cancelled] */
} pl_forward_loop_ops_t;

struct pl_forward_loop {
    pl_batch_iter_t iter;                                   /* first: see batch_iter.h */

    /* The loop sets these before pl_forward_loop_begin(). */
    const pl_forward_loop_ops_t *ops;
    pl_metrics_t *sums;                                     /* of the batches' metrics
                                                               [not needed] */
    pl_amount_t limit;                                      /* of the batches */
    uint32_t max;                                           /* a second limit */
    char what[64];                                          /* "the prediction": for
                                                               errors */

    bool warned;                                            /* that there is no batch */
    int64_t reported;                                       /* pl_now() */
};

/* The handler of `start`, whose context is the job. */
int pl_forward_loop_start(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err);
/* Begins, if pl_batch_iter_is_idle(). */
void pl_forward_loop_begin(pl_forward_loop_t *loop, pl_call_t *call);
/* Ends early, with an error: nothing new is sent, and all that is in flight comes back
 * first.  Several ranks end at the same batch. */
void pl_forward_loop_cancel(pl_forward_loop_t *loop);

#endif
