/* epoch.h - what the files of the epoch loop share */
#ifndef PL_LOOPS_EPOCH_H
#define PL_LOOPS_EPOCH_H

#include <jansson.h>

#include "actors/loops/hooks.h"
#include "actors/loops/batch_schedule.h"
#include "actors/loops/metrics.h"
#include "actors/loops/batch_iter.h"
#include "actors/loops/stragglers.h"
#include "actors/checkpoint_requests.h"

/* What follows from no step: it comes from outside, or from the clock. */
typedef struct pl_epoch_pending {
    bool stop, timeout, validate, halt;    /* to stop, with the reason; that time is; that
                                              val_check_interval's has passed; that a
                                              command has come */
    char reason[128];
} pl_epoch_pending_t;

typedef struct pl_epoch {
    pl_batch_iter_t iter;                                   /* first: see batch_iter.h */
    pl_address_t evaluate;
    pl_hooks_t hooks;

    uint64_t global_step, total_steps;      /* of the run; total 0: unknown */
    uint64_t samples;                       /* trained on since the run began */
    pl_tracker_t steps;                     /* of the optimizer */
    pl_batch_schedule_t schedule;           /* after which batch */
    uint32_t decided;                       /* batches up to the newest decision */
    uint32_t synchronized;                  /* batches when ranks came together last */
    unsigned decision;                      /* which part of it is under way */
    uint64_t evaluating;                    /* the call  [0: none] */
    bool validated;                         /* in this decision */
    bool unwanted;                          /* the validation of this decision */
    bool owes, asked;                       /* a validation, which a stop did not wait
                                               for; callbacks have heard that it begins */
    double lr_factor;
    bool stopping, ended;
    bool halts;                            /* for a command, between two steps */
    int64_t halted_at;                     /* pl_now(), last */
    bool cut;                              /* a callback passed over the epoch's rest */
    pl_epoch_pending_t pending;            /* by this rank, and perhaps by no other */
    pl_call_t *agreeing;                   /* to begin once ranks agree  [NULL] */
    bool told;                             /* to stop, from above: does not wait for a
                                              validation */
    bool out_of_time;                      /* is why: a request that is not kept */
    char reason[128], stop_request[128];   /* why it stops; why it will, once the
                                              least is trained */
    int64_t deadline;                      /* pl_now() when time is over  [0: none] */
    int64_t validated_at;                  /* pl_now() */
    bool validates_now;                    /* val_check_interval's time has passed */
    bool may_skip;                         /* a step that is not finite */
    uint64_t skipped, in_row;              /* by nan_policy, of the run; the newest */
    json_t *skipped_ranges;                /* [[from, to, rollback], …]: steps */
    pl_checkpoint_requests_t checkpoint_requests;  /* at the end of a step */
    json_t *kept;                          /* sums to go on from, once they have their
                                              names  [none] */
    pl_metrics_t sums, since_log;          /* over the epoch; since the newest log line */
    pl_metrics_t since_report;             /* since the newest progress report */
    json_t *newest;                        /* metrics by name, over the run: of log lines
                                              and validations */
    json_t *reported;                      /* metrics of steps in the newest report */
    json_t *held;                          /* log records behind what callbacks were asked
                                              of an earlier step, in order; null stands
                                              for such a question  [none] */
    pl_stragglers_t stragglers;            /* of the ranks' steps */
    int64_t reported_at;                   /* pl_now() of the newest report */
} pl_epoch_t;

/* ---- epoch_report.c: progress and log lines ---- */

void pl_epoch_progress(const pl_epoch_t *e, pl_run_event_t event, const char *metrics);
/* What came since the newest log line. */
int pl_epoch_newest(const pl_epoch_t *e, json_t *into, pl_error_t *err);
/* Progress with the newest metric of each name; those of training steps are means since
 * the previous report. */
void pl_epoch_report(pl_epoch_t *e, pl_run_event_t event);
/* A line of what came since the newest to the loggers, at its end with what the epoch
 * comes to; `then` hears that they have it  [nobody]. */
bool pl_epoch_log(pl_epoch_t *e, pl_on_answer_t then);
/* A record to the loggers, in the order of steps: behind those of callbacks that have not
 * answered yet. */
bool pl_epoch_log_record(pl_epoch_t *e, const pl_log_metrics_t *msg, pl_on_answer_t then);
/* Callbacks are asked about the newest step, and training goes on; they have answered,
 * and their metrics are logged. */
void pl_epoch_log_hold(pl_epoch_t *e);
void pl_epoch_log_release(pl_epoch_t *e);

/* ---- epoch_coordination.c: what follows from no step, on all ranks alike ---- */

/* Something new in e->pending: done at once, or once the ranks agree. */
void pl_epoch_request_sync(pl_epoch_t *e);
/* The same of e->pending.halt, for which no validation is broken off: it waits until
 * batches go on. */
void pl_epoch_request_halt(pl_epoch_t *e);
/* What follows from the clock, and so may differ from run to run. */
void pl_epoch_check_time(pl_epoch_t *e);
/* A callback, or the clock, wants the run to end: it does as soon as it may. */
void pl_epoch_request_stop(pl_epoch_t *e, const char *reason);
/* All ranks are told to stop. */
void pl_epoch_stop(pl_epoch_t *e, const char *reason);
/* All ranks do what rank zero has heard; false with an error. */
bool pl_epoch_coordinate(pl_epoch_t *e, pl_on_answer_t then, pl_error_t *err);
void pl_epoch_coordinated(pl_epoch_t *e, const char *text);

/* Ranks that train by themselves for a while come together; false: they have, or there
 * is one, or iter->failure says why. */
bool pl_epoch_synchronize(pl_epoch_t *e, pl_on_answer_t then);
/* With the reply to that. */
void pl_epoch_synchronized(pl_epoch_t *e, const pl_synchronize_reply_t *reply);

/* ---- epoch_state.c: what a checkpoint keeps of it ---- */

/* What a checkpoint keeps, for pl_text_free(); NULL: out of memory. */
char *pl_epoch_state(const pl_epoch_t *e);
int pl_epoch_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
int pl_epoch_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
/* Why a callback wants it to stop; a run that is given more time goes on. */
const char *pl_epoch_stop_request(const pl_epoch_t *e);
/* Sums have their names: they get their values back. */
void pl_epoch_sums_restore(pl_epoch_t *e);

/* ---- epoch.c ---- */

/* What follows the newest batch is over. */
void pl_epoch_complete(pl_epoch_t *e);

/* ---- epoch_batch_end.c: what a batch is followed by ---- */

/* Everything before has come back: what is due is done, one after the other; then the
 * iteration goes on. */
void pl_epoch_batch_end(pl_epoch_t *e);
/* A stop from above does not wait for the validation after the newest batch: the run that
 * goes on makes it first. */
bool pl_epoch_defers_validation(const pl_epoch_t *e);
/* Callbacks that look on are asked at the newest batch, and the iteration goes on
 * meanwhile. */
void pl_epoch_run_observers(pl_epoch_t *e);

#endif
