/* batch_iter.h - batch iteration over the data of a stage: fetches batches and sends
 * them on
 *
 * The part that all loops over batches share.  A pl_batch_iter_t is the first member of
 * the loop's own struct, so it makes calls in the loop's name.  The loop decides what a
 * batch is used for, where the iteration halts, and how it ends. */
#ifndef PL_LOOPS_BATCH_ITER_H
#define PL_LOOPS_BATCH_ITER_H

#include "actors/loops/loops.h"
#include "actors/loops/watchdog.h"
#include "base/run.h"
#include "runtime/payload.h"

typedef struct pl_batch_iter pl_batch_iter_t;

typedef struct pl_batch_iter_ops {
    /* The names of the stage's metrics  [not needed]. */
    void (*on_names)(pl_batch_iter_t *iter, const char *names);
    /* The data have `there` batches; returns how many of them the iteration has, and sets
     * iter->failure after a failure  [all of them]. */
    uint32_t (*on_begun)(pl_batch_iter_t *iter, uint32_t there);
    /* The next batch  [until the iteration is stopped]. */
    bool (*may_fetch)(const pl_batch_iter_t *iter);
    /* Makes the call that uses a fetched batch, and returns its number; 0: the batch is
     * skipped, or iter->failure has the reason. */
    uint64_t (*send)(pl_batch_iter_t *iter, const pl_fetch_batch_reply_t *batch);
    /* Nothing is in flight, and the loop has not halted the iteration. */
    void (*rest)(pl_batch_iter_t *iter);
    /* Ends the iteration with iter->failure  [that fails the call]. */
    void (*fail)(pl_batch_iter_t *iter);
    /* What has not ended, for errors: "batch 3 of the prediction". */
    void (*what)(const pl_batch_iter_t *iter, char text[160]);
} pl_batch_iter_ops_t;

/* How many batches a loop keeps in flight.
 *
 * The accelerator should never wait for messages, and as few batches as possible should
 * wait in memory for the accelerator.  So there are as many as last for some
 * milliseconds, and two if one lasts longer.  This follows the clock and may, because the
 * results do not depend on how many are in flight. */
typedef struct pl_pipeline_depth {
    bool is_fixed;
    int batches;                                            /* in flight at most */
    int ended;                                              /* batches since `since` */
    int64_t since;                                          /* pl_now() */
} pl_pipeline_depth_t;

struct pl_batch_iter {
    const pl_batch_iter_ops_t *ops;
    const pl_trainer_options_t *options;                    /* of the job in `start` */
    pl_address_t data, strategy;
    pl_address_t coordinator;                               /* of the ranks  [one rank] */

    /* The loop sets these before pl_batch_iter_begin(). */
    pl_stage_t stage;
    uint32_t loader;                                        /* the source of the stage */
    uint32_t epoch;
    uint32_t first;                             /* the batch to begin at */
    bool again;                                 /* the next epoch's is likely to follow */

    pl_call_t *call;                              /* that the iteration answers  [idle] */
    bool known;                                   /* the metrics' names */
    uint32_t loaders;                             /* sources of the stage */
    uint32_t batches, fetched, done;
    pl_tracker_t counts;              /* of batches, over all iterations; the loop counts
                                         `completed` */
    int pending;                      /* calls in flight, among them: */
    int fetching, sent;               /* batches that are being fetched; batches that were
                                         sent on */
    int64_t waits_since;              /* pl_now() since when batches are being fetched and
                                         none is sent on  [0: another state] */
    int64_t waited;                   /* ns, for the batch that is to be sent */
    uint32_t halts_at;                /* fetched batches at which all ranks halt and agree
                                         [0: no rank has requested it] */
    bool stopping;                    /* by pl_batch_iter_stop() or by the loop */
    bool halted;                      /* the loop waits for something else: nothing is
                                         fetched */
    pl_error_t failure;
    pl_pipeline_depth_t depth;
    pl_watchdog_t watchdog;                                 /* for the next batch */
};

/* For the handler of `start`, whose context is the job. */
void pl_batch_iter_init(pl_batch_iter_t *iter, const pl_batch_iter_ops_t *ops,
                        const pl_body_t *start);

/* PL_EBUSY while an iteration runs. */
int pl_batch_iter_is_idle(const pl_batch_iter_t *iter, pl_error_t *err);
/* Keeps the call and begins. */
void pl_batch_iter_begin(pl_batch_iter_t *iter, pl_call_t *call);
/* Continues with another call after one that was answered during a halt. */
void pl_batch_iter_resume(pl_batch_iter_t *iter, pl_call_t *call);
/* Takes the call, to answer it at once; the iteration has none then. */
pl_call_t *pl_batch_iter_take_call(pl_batch_iter_t *iter);

/* After each event that may let the iteration continue.  After a failure nothing new is
 * sent, and all that is in flight comes back first. */
void pl_batch_iter_continue(pl_batch_iter_t *iter);
/* The same after a pause, whose time is no time of a batch. */
void pl_batch_iter_end_pause(pl_batch_iter_t *iter);

/* Handles an answer that is not a reply; the iteration keeps an error.  False: the answer
 * is a reply; the loop then makes the next call in its place or subtracts 1 from
 * iter->pending. */
bool pl_batch_iter_no_reply(pl_batch_iter_t *iter, const pl_answer_t *answer);

/* A batch has come back; halt is the flag of its reply. */
void pl_batch_iter_batch_done(pl_batch_iter_t *iter, bool halt);
/* All ranks agree here: none has fetched more. */
bool pl_batch_iter_is_sync_point(const pl_batch_iter_t *iter);
/* The handler of `stop`: a rank alone stops at once, several at the next such halt. */
int pl_batch_iter_stop(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
/* This rank requests such a halt; without other ranks, this does nothing. */
void pl_batch_iter_request_sync(pl_batch_iter_t *iter);

#endif
