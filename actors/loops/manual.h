/* manual.h - the manual loop: trains on batches that the program sends */
#ifndef PL_LOOPS_MANUAL_H
#define PL_LOOPS_MANUAL_H

#include <jansson.h>

#include "actors/loops/metrics.h"
#include "actors/loops/loops.h"
#include "actors/loops/watchdog.h"
#include "base/run.h"
#include "runtime/payload.h"

/* What the program asked for: a batch, or a save. */
typedef struct pl_manual_item {
    struct pl_manual_item *next;
    pl_call_t *call;                               /* NULL: it has failed with the loop */
    char *name;                                    /* of the save  [NULL: a batch] */
    uint64_t step;                                 /* of the save */
    pl_weights_t *weights;                         /* of it, counted, until handed on */
    pl_stage_t stage;
    pl_batch_t *batch;                                      /* kept by the call */
    double lr_factor;
    bool step_due;                                      /* the optimizer steps after it */
} pl_manual_item_t;

typedef struct pl_manual_list {
    pl_manual_item_t *first, **last;
} pl_manual_list_t;

typedef struct pl_manual {
    const pl_trainer_options_t *options;
    pl_address_t strategy, checkpoint, logger;
    pl_call_t *run;                                 /* NULL: it has ended, or not begun */
    int64_t began, reported_at;
    pl_batch_signature_t *signature;              /* counted: what there are plans for */
    pl_batch_signature_t *next_signature;         /* counted: being made  [NULL] */
    pl_stage_t asks;                              /* whose metrics' names are asked for */
    pl_metrics_t metrics[PL_PREDICT + 1];         /* of one batch */
    pl_metrics_t since_report;                    /* training since the newest report */
    bool named[PL_PREDICT + 1];
    json_t *newest;                                         /* metrics by name */

    pl_manual_list_t waiting, again, out;        /* to be sent; once more; under way */
    pl_stage_t stage;                            /* of the batches under way */
    int pending, saving;                         /* batches and saves under way */
    int64_t rested_at;                           /* pl_now() when a batch had come back
                                                    and none was under way  [one is] */
    bool busy;                                   /* with what goes alone */
    bool broken;                                 /* a step has failed: what comes back was
                                                    not run */
    bool ending, may_skip;

    uint64_t global_step, sent_steps;               /* optimizer steps: done; sent */
    uint64_t samples, serial;                       /* trained on; checkpoints made */
    uint32_t micro_batch;                           /* of the next batch in its step */
    double lr_factor;                               /* of the run that it goes on from */
    pl_watchdog_t watchdog;                         /* with the next batch to come back */
    pl_outcome_t *outcome;                          /* counted  [until its end] */
} pl_manual_t;

/* ---- manual.c ---- */

/* It can do no more: all that waits fails, and the run. */
void pl_manual_fail(pl_manual_t *o, const pl_error_t *error);
/* A save of its own has not ended in its time. */
void pl_manual_timed_out(pl_manual_t *o);
/* What went alone is over. */
void pl_manual_idle(pl_manual_t *o);
/* What waits first fails, because nothing could be made ready for it. */
void pl_manual_drop_first(pl_manual_t *o, const pl_error_t *error);
/* A save is over  [NULL: it is durable]. */
void pl_manual_saved(pl_manual_t *o, pl_manual_item_t *item, const pl_error_t *error);
/* It takes batches from now on: the program is told. */
void pl_manual_ready(pl_manual_t *o);

/* ---- manual_plans.c: plans for batches of new sizes and stages ---- */

bool pl_manual_has_plan(const pl_manual_t *o, const pl_manual_item_t *item);
/* Nothing is under way: has what an item lacks made, or [NULL] begins anew after a
 * step that failed.  Ends with pl_manual_idle(). */
void pl_manual_set_signature(pl_manual_t *o, const pl_manual_item_t *item);
/* What the metrics of a stage are called; ends so, too. */
uint64_t pl_manual_query_names(pl_manual_t *o, pl_stage_t stage, pl_error_t *err);

/* ---- manual_checkpoint.c: checkpoints ---- */

/* Nothing else is under way; pl_manual_idle() when all is copied, then
 * pl_manual_saved(). */
void pl_manual_save(pl_manual_t *o, pl_manual_item_t *item);
/* The handler of set_state: it goes on from a checkpoint, of its own or of a fit. */
int pl_manual_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err);

#endif
