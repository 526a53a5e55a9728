/* batch_iter.h - batch iteration over the data of a stage: fetches batches and sends
 * them on
 *
 * What all loops over batches share.  A pl_batch_iter_t is the first member of the
 * loop's own struct, so that it makes calls in the loop's name; what a batch is used
 * for, where the loop halts and how it ends are the loop's. */
#ifndef PL_LOOPS_BATCH_ITER_H
#define PL_LOOPS_BATCH_ITER_H

#include "actors/loops/tracker.h"
#include "actors/loops/pipeline_depth.h"
#include "actors/loops/watchdog.h"
#include "base/run.h"
#include "runtime/payload.h"

typedef struct pl_batch_iter pl_batch_iter_t;

typedef struct pl_batch_iter_ops {
    void (*on_names)(pl_batch_iter_t *iter,
                     const char *names);                    /* of the stage's metrics */
    /* The data have `there` batches: how many of them the iteration has; a failure
     * goes into iter->failure. */
    uint32_t (*on_begun)(pl_batch_iter_t *iter, uint32_t there);
    bool (*may_fetch)(const pl_batch_iter_t *iter);         /* the next batch  [always] */
    /* A batch came: call for what is to be done with it.  0: iter->failure says why, or
     * it is passed over. */
    uint64_t (*send)(pl_batch_iter_t *iter, const pl_fetch_batch_reply_t *batch);
    void (*rest)(pl_batch_iter_t *iter);        /* all that was fetched has come back, and
                                                   the loop does not halt */
    void (*fail)(pl_batch_iter_t *iter);        /* answer the call with
                                                   iter->failure */
    /* What has not ended, for errors: "batch 3 of the prediction". */
    void (*what)(const pl_batch_iter_t *iter, char text[160]);
} pl_batch_iter_ops_t;

struct pl_batch_iter {
    const pl_batch_iter_ops_t *ops;
    const pl_trainer_options_t *options;         /* of the job that it was started with */
    pl_address_t data, strategy;
    pl_address_t coordinator;                      /* coordinates the ranks  [one rank] */

    /* Filled in by the loop before pl_batch_iter_begin(). */
    pl_stage_t stage;
    uint32_t loader;                                       /* which source of the stage */
    uint32_t epoch;
    uint32_t first;                             /* batch at which it begins */
    bool again;                                 /* the next epoch's is likely to follow */

    pl_call_t *call;                          /* that the iteration answers; NULL: idle */
    bool known;                               /* the metrics' names */
    uint32_t loaders;                         /* that the stage has */
    uint32_t batches, fetched, done;
    pl_tracker_t counts;            /* of batches, over all iterations; `completed` is the
                                       loop's to count */
    int pending;                    /* calls under way, */
    int fetching, sent;             /* among them batches that are fetched; that were
                                       sent on */
    int64_t waits_since;            /* pl_now() since when there are only the former
                                       [0: no] */
    int64_t waited;                 /* ns, for the batch that is to be sent */
    uint32_t halts_at;              /* so many fetched, all ranks are to agree [0: no
                                       rank wants to] */
    bool halted;                    /* the loop waits for something else: nothing
                                       is fetched */
    pl_error_t failure;
    pl_pipeline_depth_t depth;
    pl_watchdog_t watchdog;                               /* with the next batch to end */
};

/* For the handler of `start`, whose context is the job. */
void pl_batch_iter_init(pl_batch_iter_t *iter, const pl_batch_iter_ops_t *ops,
                        const pl_body_t *start);

/* PL_EBUSY while one is under way. */
int pl_batch_iter_is_idle(const pl_batch_iter_t *iter, pl_error_t *err);
/* Takes the call and begins. */
void pl_batch_iter_begin(pl_batch_iter_t *iter, pl_call_t *call);

/* Takes another call after one that was answered on the way, and continues. */
void pl_batch_iter_resume(pl_batch_iter_t *iter, pl_call_t *call);

/* After anything that may let it continue. After a failure nothing new is sent, and
 * what is under way comes back first. */
void pl_batch_iter_continue(pl_batch_iter_t *iter);

/* Takes an answer that is no reply: an error becomes the iteration's.  False: it is a
 * reply, and the next call may be made in its place, or iter->pending is one less. */
bool pl_batch_iter_no_reply(pl_batch_iter_t *iter, const pl_answer_t *answer);

/* A batch has come back; halt: as its reply said. */
void pl_batch_iter_batch_done(pl_batch_iter_t *iter, bool halt);
/* All ranks are to agree here: no rank has fetched more. */
bool pl_batch_iter_is_sync_point(const pl_batch_iter_t *iter);
/* This rank requests it.  A single rank has none to inform. */
void pl_batch_iter_request_sync(pl_batch_iter_t *iter);

/* The call, which is to be answered at once. */
pl_call_t *pl_batch_iter_take_call(pl_batch_iter_t *iter);

#endif
