/* manual.h - the manual loop: trains on batches that the program sends */
#ifndef PL_LOOPS_MANUAL_H
#define PL_LOOPS_MANUAL_H

#include <jansson.h>

#include "actors/intervals.h"
#include "actors/loops/hooks.h"
#include "actors/loops/metrics.h"
#include "actors/loops/loops.h"
#include "actors/loops/watchdog.h"
#include "base/run.h"
#include "runtime/payload.h"

/* A request of the program: a batch, a save, or an exchange with other ranks. */
typedef struct pl_manual_item {
    struct pl_manual_item *next;
    pl_call_t *call;                                   /* [it has failed with the loop] */
    char *name;                                        /* of the save  [NULL: none] */
    char *drop;                             /* checkpoints to remove then  [NULL: none] */
    char *callbacks;                         /* state of the callbacks  [NULL: none] */
    bool exchanges;
    pl_exchange_t exchange;                         /* what it refers to is the call's */
    int objective;                   /* 1 + index: of the module's objectives, the one
                                        trained, without a step  [0: a whole step] */
    bool sees_gradients;                            /* of that objective, */
    pl_object_t *gradients;                        /* or sets them, the call's  [reads] */
    uint64_t step;                                  /* of the save */
    pl_weights_t *weights;                          /* of the save, counted, until sent */
    pl_stage_t stage;
    pl_batch_t *batch;                                      /* owned by the call */
    double lr_factor;
    bool step_due;                                      /* the optimizer steps after it */
} pl_manual_item_t;

typedef struct pl_manual_list {
    pl_manual_item_t *first, **last;
} pl_manual_list_t;

/* An objective that the program trains by itself.  Of each number: as requests were
 * sent, and as they were done. */
typedef struct pl_manual_objective {
    struct {
        uint64_t step;                                 /* the newest optimizer step */
        uint32_t batches;                              /* whose gradients wait for one */
    } sent, done;
    uint64_t number;                                  /* of the step that they wait for */
} pl_manual_objective_t;

typedef struct pl_manual {
    const pl_trainer_options_t *options;
    pl_address_t strategy, checkpoint, logger;
    bool enable_checkpointing;                          /* saves are possible */
    bool has_peers;                                     /* there are other ranks */
    int64_t micro_shard;                                /* samples  [0: there are none] */
    pl_call_t *run;                                     /* [it has ended, or not begun] */
    int64_t began, reported_at;
    pl_batch_signature_t *signature;                /* counted: that plans exist for */
    pl_batch_signature_t *next_signature;           /* counted: in progress  [none] */
    pl_stage_t names_stage;                         /* of the call for metrics' names */
    pl_metrics_t metrics[PL_PREDICT + 1];           /* of one batch */
    pl_metrics_t since_report;                      /* training since the newest report */
    bool named[PL_PREDICT + 1];
    json_t *newest;                                         /* metrics by name */
    pl_hooks_t hooks;                                       /* of the callbacks */
    bool has_callbacks;                                     /* the run lists some */
    pl_intervals_t halts, looks;                            /* steps at which they act */
    bool held;                       /* nothing is sent: callbacks act after this step */
    char stop_reason[256];           /* why it trains no more  [""] */

    pl_manual_list_t waiting, again, out;          /* to send; to send again; in flight */
    pl_stage_t stage;                              /* of the batches in flight */
    int pending, saving;                           /* batches and saves in flight */
    int64_t rested_at;                             /* pl_now() since when no batch is in
                                                      flight  [0: one is] */
    pl_manual_item_t *saved;                       /* the ranks synchronize for it  [the
                                                      end] */
    pl_on_answer_t synchronized;
    pl_error_t failure;                          /* why the loop ended */
    bool exchanging;                             /* bytes with other ranks */
    bool busy;                                   /* with an exclusive request */
    bool broken;                                 /* a step has failed: what comes back was
                                                    cancelled */
    bool ending, may_skip;

    uint64_t global_step, sent_steps;                  /* optimizer steps: done; sent */
    uint64_t samples, serial;                          /* trained on; checkpoints made */
    uint32_t micro_batch;                              /* of the next batch in its step */
    pl_manual_objective_t objective[PL_OBJECTIVES];
    double lr_factor;                                  /* of the run that it resumes */
    pl_watchdog_t watchdog;                            /* for the next batch */
    pl_outcome_t *outcome;                             /* counted  [until its end] */
} pl_manual_t;

/* ---- manual.c ---- */

/* Ends the loop: fails the run and all requests; keeps the error for the program. */
void pl_manual_fail(pl_manual_t *o, const pl_error_t *error);
/* The same, because a save has not ended in its time. */
void pl_manual_timed_out(pl_manual_t *o);
/* The exclusive request has ended: batches are accepted again. */
void pl_manual_idle(pl_manual_t *o);
/* Fails the oldest waiting request, because its plan could not be made. */
void pl_manual_drop_first(pl_manual_t *o, const pl_error_t *error);
/* An exchange, or what a program does with gradients, has been answered. */
void pl_manual_over(pl_manual_t *o, pl_manual_item_t *item);
/* A save has ended  [NULL: on disk]. */
void pl_manual_saved(pl_manual_t *o, pl_manual_item_t *item, const pl_error_t *error);

/* ---- manual_objectives.c: the place of a batch in a step ---- */

/* Sets the step of a batch to be sent; PL_ESTATE: gradients are missing or in the way. */
int pl_manual_place(const pl_manual_t *o, pl_manual_item_t *item, pl_train_batch_t *msg,
                    pl_error_t *err);
/* The batch was sent. */
void pl_manual_placed(pl_manual_t *o, const pl_manual_item_t *item);
/* It was trained on; or it failed, and the gradients that wait for its step are lost. */
void pl_manual_trained(pl_manual_t *o, const pl_manual_item_t *item, bool failed);
/* A step has failed, and what was sent behind it did not run. */
void pl_manual_rewind(pl_manual_t *o);
/* Whether its gradients are added to others. */
bool pl_manual_accumulates(const pl_manual_t *o, const pl_manual_item_t *item);
/* Reads or sets the gradients of an objective.  Ends with pl_manual_over(). */
void pl_manual_see(pl_manual_t *o, pl_manual_item_t *item);

/* ---- manual_callbacks.c ---- */

/* Before the first batch: which steps callbacks act at, and the hook of the start.  Ends
 * with the loop ready. */
void pl_manual_begin_callbacks(pl_manual_t *o);
/* A step was sent: whether nothing follows it until callbacks have acted. */
bool pl_manual_holds(const pl_manual_t *o, uint64_t step);
/* The hook after a step.  Ends with pl_manual_idle(). */
void pl_manual_call_back(pl_manual_t *o);
/* The hook of the end; then() gets its answer. */
void pl_manual_end_callbacks(pl_manual_t *o, pl_on_answer_t then);

/* ---- manual_alone.c: what is done while no batch is in flight ---- */

bool pl_manual_has_plan(const pl_manual_t *o, const pl_manual_item_t *item);
/* Makes the plans that an item lacks; or [NULL] has the strategy begin again after a step
 * that failed.  Ends with pl_manual_idle(). */
void pl_manual_set_signature(pl_manual_t *o, const pl_manual_item_t *item);
/* The loop takes batches from now on. */
void pl_manual_ready(pl_manual_t *o);
/* Asks for the names of a stage's metrics.  Ends with pl_manual_idle(). */
uint64_t pl_manual_query_names(pl_manual_t *o, pl_stage_t stage, pl_error_t *err);
/* Before weights are read on all ranks, for an item that saves or, NULL, for the end: all
 * ranks come here, and what each has of the state is where it is read.  then() gets an
 * answer.  False: there are no other ranks. */
bool pl_manual_synchronize(pl_manual_t *o, pl_manual_item_t *item, pl_on_answer_t then);
/* Exchanges bytes with the other ranks.  Ends with pl_manual_over(). */
void pl_manual_exchange(pl_manual_t *o, pl_manual_item_t *item);
/* Saves a checkpoint: pl_manual_idle() when all is copied, then pl_manual_saved(). */
void pl_manual_save(pl_manual_t *o, pl_manual_item_t *item);
/* The handler of set_state: resumes from a checkpoint of a manual loop or a fit. */
int pl_manual_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err);

#endif
