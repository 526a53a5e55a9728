/* walk.h - over all batches of a stage, each forwarded without gradients
 *
 * What the loops that do not train share.  A pl_walk_t is the first member of the loop's
 * own struct; what is done with the answers is the loop's. */
#ifndef PL_LOOPS_WALK_H
#define PL_LOOPS_WALK_H

#include "actors/loops/pass.h"

typedef struct pl_walk pl_walk_t;

typedef struct pl_walk_ops {
    /* A batch came back; a failure goes into walk->pass.failure. */
    void (*on_batch)(pl_walk_t *walk, const pl_evaluate_batch_reply_t *reply);
    void (*report)(pl_walk_t *walk);                  /* a few times a second */
    void (*end)(pl_walk_t *walk, pl_call_t *call);    /* all went well: answer the call */
    /* The ranks have halted, because one of them wants it to end: answer the call
     * [it was cancelled]. */
    void (*halt)(pl_walk_t *walk, pl_call_t *call);
    void (*on_names)(pl_walk_t *walk, const char *names);   /* of the stage's figures
                                                               [not wanted] */
} pl_walk_ops_t;

struct pl_walk {
    pl_pass_t pass;                                         /* first: see pass.h */

    /* Filled in by the loop before pl_walk_begin(). */
    const pl_walk_ops_t *ops;
    pl_amount_t limit;                                  /* of the batches there are */
    uint32_t most;                                      /* beside that */
    char what[64];                                      /* "the prediction": for errors */

    bool stopping;                                          /* fetch no more */
    bool told;                                              /* that nothing is left */
    int64_t reported;
};

/* The handler of `start`, whose context is the job. */
int pl_walk_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
/* Walks, when pl_pass_is_idle(). */
void pl_walk_begin(pl_walk_t *walk, pl_call_t *call);
/* Ends it early, with an error: nothing new is sent, and what is under way comes back
 * first; of several ranks all end it at the same batch. */
void pl_walk_cancel(pl_walk_t *walk);

#endif
