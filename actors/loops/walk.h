/* walk.h - over all batches of a stage: how the data are split, a pass, and each batch
 * forwarded without gradients
 *
 * What the loops that do not train share.  A pl_walk_t is the first member of the loop's
 * own struct, so that it makes calls in the loop's name; what is done with the batches is
 * the loop's. */
#ifndef PL_LOOPS_WALK_H
#define PL_LOOPS_WALK_H

#include "actors/loops/pace.h"
#include "actors/loops/patience.h"
#include "base/run.h"
#include "runtime/cargo.h"

typedef struct pl_walk pl_walk_t;

typedef struct pl_walk_ops {
    void (*on_names)(pl_walk_t *walk, const char *names);   /* of the stage's figures
                                                               [not wanted] */
    /* A batch came back; a failure goes into walk->failure. */
    void (*on_batch)(pl_walk_t *walk, const pl_evaluate_batch_reply_t *reply,
                     int64_t samples);
    void (*report)(pl_walk_t *walk);                  /* a few times a second */
    void (*end)(pl_walk_t *walk, pl_call_t *call);    /* all went well: answer the call */
} pl_walk_ops_t;

struct pl_walk {
    const pl_trainer_options_t *options;         /* of the job that it was started with */
    pl_address_t data, strategy;

    /* Filled in by the loop before pl_walk_begin(). */
    const pl_walk_ops_t *ops;
    pl_stage_t stage;
    uint32_t epoch;
    pl_amount_t limit;                                  /* of the batches there are */
    char what[64];                                      /* "the prediction": for errors */

    pl_call_t *call;                               /* that the walk answers; NULL: idle */
    uint32_t part, parts;
    uint32_t batches, fetched, done;
    int pending;                                      /* fetches and forwards under way */
    bool stopping;                                    /* fetch no more */
    pl_error_t failure;
    pl_pace_t pace;
    pl_patience_t patience;                               /* with the next batch to end */
    int64_t reported;
};

/* The handler of `start`, whose context is the job. */
int pl_walk_start(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
/* Walks; PL_EBUSY when one is under way. */
int pl_walk_begin(pl_walk_t *walk, pl_call_t *call, pl_error_t *err);
/* Ends it early, with an error: nothing new is sent, and what is under way comes back
 * first. */
void pl_walk_cancel(pl_walk_t *walk);

#endif
