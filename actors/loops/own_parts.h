/* own_parts.h - what the files of the loop share whose batches the program sends */
#ifndef PL_LOOPS_OWN_PARTS_H
#define PL_LOOPS_OWN_PARTS_H

#include <jansson.h>

#include "actors/loops/figures.h"
#include "actors/loops/loops.h"
#include "actors/loops/patience.h"
#include "base/run.h"
#include "runtime/cargo.h"

/* What the program asked for: a batch, or a save. */
typedef struct pl_own_item {
    struct pl_own_item *next;
    pl_call_t *call;                               /* NULL: it has failed with the loop */
    char *name;                                    /* of the save  [NULL: a batch] */
    uint64_t step;                                 /* of the save */
    pl_weights_t *weights;                         /* of it, counted, until handed on */
    pl_stage_t stage;
    pl_batch_t *batch;                                      /* kept by the call */
    double lr_factor;
    bool step_due;                                      /* the optimizer steps after it */
} pl_own_item_t;

typedef struct pl_own_list {
    pl_own_item_t *first, **last;
} pl_own_list_t;

typedef struct pl_own {
    const pl_trainer_options_t *options;
    pl_address_t strategy, checkpoint, logger;
    pl_call_t *run;                                 /* NULL: it has ended, or not begun */
    int64_t began, reported_at;
    pl_layout_t *layout;                          /* counted: what there are plans for */
    pl_layout_t *wanted;                          /* counted: being made  [NULL] */
    pl_stage_t asks;                              /* whose figures' names are asked for */
    pl_figures_t figures[PL_PREDICT + 1];         /* of one batch */
    pl_figures_t since_report;                    /* training since the newest report */
    bool named[PL_PREDICT + 1];
    json_t *newest;                                         /* figures by name */

    pl_own_list_t waiting, again, out;           /* to be sent; once more; under way */
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
    pl_patience_t patience;                         /* with the next batch to come back */
    pl_outcome_t *outcome;                          /* counted  [until its end] */
} pl_own_t;

/* ---- own.c ---- */

/* It can do no more: all that waits fails, and the run. */
void pl_own_fail(pl_own_t *o, const pl_error_t *error);
/* A save of its own has not ended in its time. */
void pl_own_late(pl_own_t *o);
/* What went alone is over. */
void pl_own_idle(pl_own_t *o);
/* What waits first fails, because nothing could be made ready for it. */
void pl_own_drop_first(pl_own_t *o, const pl_error_t *error);
/* A save is over  [NULL: it is durable]. */
void pl_own_kept(pl_own_t *o, pl_own_item_t *item, const pl_error_t *error);
/* It takes batches from now on: the program is told. */
void pl_own_ready(pl_own_t *o);

/* ---- own_plans.c: plans for batches of new sizes and stages ---- */

bool pl_own_has_plan(const pl_own_t *o, const pl_own_item_t *item);
/* Nothing is under way: has what an item lacks made, or [NULL] begins anew after a
 * step that failed.  Ends with pl_own_idle(). */
void pl_own_take_layout(pl_own_t *o, const pl_own_item_t *item);
/* What the figures of a stage are called; ends so, too. */
uint64_t pl_own_ask_names(pl_own_t *o, pl_stage_t stage, pl_error_t *err);

/* ---- own_keep.c: checkpoints ---- */

/* Nothing else is under way; pl_own_idle() when all is copied, then pl_own_kept(). */
void pl_own_keep(pl_own_t *o, pl_own_item_t *item);
/* The handler of set_state: it goes on from a checkpoint, of its own or of a fit. */
int pl_own_set_state(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);

#endif
