/* forward_loop.h - forward passes over all batches of a stage, without gradients
 *
 * What the loops that do not train share.  A pl_forward_loop_t is the first member of
 * the loop's own struct; what is done with the answers is the loop's. */
#ifndef PL_LOOPS_FORWARD_LOOP_H
#define PL_LOOPS_FORWARD_LOOP_H

#include "actors/loops/batch_iter.h"

typedef struct pl_forward_loop pl_forward_loop_t;

typedef struct pl_forward_loop_ops {
    /* A batch came back; a failure goes into loop->iter.failure. */
    void (*on_batch)(pl_forward_loop_t *loop, const pl_evaluate_batch_reply_t *reply);
    void (*report)(pl_forward_loop_t *loop);                /* a few times a second */
    void (*end)(pl_forward_loop_t *loop,
                pl_call_t *call);                     /* all went well: answer the call */
    /* The ranks have halted, because one of them wants it to end: answer the call
     * [it was cancelled]. */
    void (*halt)(pl_forward_loop_t *loop, pl_call_t *call);
    void (*on_names)(pl_forward_loop_t *loop,
                     const char *names);                    /* of the stage's metrics
                                                               [not wanted] */
} pl_forward_loop_ops_t;

struct pl_forward_loop {
    pl_batch_iter_t iter;                                   /* first: see batch_iter.h */

    /* Filled in by the loop before pl_forward_loop_begin(). */
    const pl_forward_loop_ops_t *ops;
    pl_amount_t limit;                                  /* of the batches there are */
    uint32_t max;                                       /* beside that */
    char what[64];                                      /* "the prediction": for errors */

    bool stopping;                                          /* fetch no more */
    bool is_exhausted;                                      /* that nothing is left */
    int64_t reported;
};

/* The handler of `start`, whose context is the job. */
int pl_forward_loop_start(void *self, pl_call_t *call, const pl_body_t *body,
                          pl_error_t *err);
/* Walks, when pl_batch_iter_is_idle(). */
void pl_forward_loop_begin(pl_forward_loop_t *loop, pl_call_t *call);
/* Ends it early, with an error: nothing new is sent, and what is under way comes back
 * first; of several ranks all end it at the same batch. */
void pl_forward_loop_cancel(pl_forward_loop_t *loop);

#endif
