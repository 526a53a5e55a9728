/* epoch_parts.h - what the files of the epoch loop share */
#ifndef PL_LOOPS_EPOCH_PARTS_H
#define PL_LOOPS_EPOCH_PARTS_H

#include <jansson.h>

#include "actors/loops/ask.h"
#include "actors/loops/due.h"
#include "actors/loops/figures.h"
#include "actors/loops/pass.h"
#include "actors/wanted.h"

typedef struct pl_epoch {
    pl_pass_t pass;                                         /* first: see pass.h */
    char optimizer[48];
    pl_address_t evaluate;
    pl_asking_t asking;

    uint64_t global_step, total_steps;             /* of the run; total 0: unknown */
    uint64_t samples;                              /* trained on since the run began */
    pl_due_t due;                                  /* after which batch */
    uint32_t decided;                              /* batches up to the newest decision */
    unsigned decision;                             /* which part of it is under way */
    uint64_t evaluating;                           /* the call  [0: none] */
    bool validated;                                /* in this decision */
    double lr, lr_factor, grad_norm, loss_scale;
    uint64_t skipped_steps;                 /* because scaled gradients were not finite */
    bool stopping, ended;
    bool told;                                 /* to stop, from above: does not wait for a
                                                  validation */
    char reason[128];
    pl_wanted_t wanted;                    /* a checkpoint: at the end of this step */
    json_t *kept;                          /* sums to go on from, once they have their
                                              names  [none] */
    pl_figures_t sums, since_log;          /* over the epoch; since the newest log line */
    json_t *newest;                        /* figures by name, over the run */
    int64_t reported;                      /* when progress was told last */
} pl_epoch_t;

/* ---- epoch_report.c: progress and log lines ---- */

void pl_epoch_tell(const pl_epoch_t *e, const char *event, const char *metrics);
void pl_epoch_report(pl_epoch_t *e, const char *event, const json_t *metrics);
/* What came since the newest log line, and of what it came. */
int pl_epoch_newest(const pl_epoch_t *e, json_t *into, pl_error_t *err);
/* With what no log line has said yet. */
void pl_epoch_report_now(pl_epoch_t *e, const char *event);
/* A line of what came since the newest to the loggers, at its end with what the epoch
 * comes to; `then` hears that they have it  [nobody]. */
bool pl_epoch_log(pl_epoch_t *e, pl_on_answer_t then);

/* ---- epoch_state.c: what a checkpoint keeps of it ---- */

int pl_epoch_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
int pl_epoch_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
/* Sums have their names: they get their values back. */
void pl_epoch_sums_restore(pl_epoch_t *e);

/* ---- epoch_decide.c: what a batch is followed by ---- */

/* Everything before has come back: what is due is done, one after the other; then the
 * pass goes on. */
void pl_epoch_decide(pl_epoch_t *e);

#endif
