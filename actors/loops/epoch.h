/* epoch.h - what the files of the epoch loop share */
#ifndef PL_LOOPS_EPOCH_H
#define PL_LOOPS_EPOCH_H

#include <jansson.h>

#include "actors/checkpoint_requests.h"
#include "actors/intervals.h"
#include "actors/loops/batch_iter.h"
#include "actors/loops/hooks.h"
#include "actors/loops/metrics.h"

/* ---- epoch_batch_end.c: what follows which batch of an epoch ---- */

/* Known from options and counts alone, before a batch is fetched: timing decides
 * nothing. */
typedef struct pl_batch_schedule {
    const pl_trainer_options_t *options;
    uint64_t accumulate;               /* batches per step; set before an epoch begins */
    bool validates;                    /* there is validation data */
    pl_intervals_t halts, looks;       /* of the callbacks that the loop waits for; of the
                                          observers, which run beside training */
    uint32_t epoch;
    bool epoch_validates;                /* validations are possible in this epoch */
    uint32_t batches, end;               /* of a whole epoch; of this one, which max_steps
                                            may shorten */
    uint64_t epoch_steps;                /* optimizer steps of a whole epoch */
    uint64_t first_step;                 /* optimizer steps done before the epoch */
} pl_batch_schedule_t;

/* What follows a batch. */
typedef struct pl_batch_end {
    bool step;                                      /* the optimizer step ends */
    uint64_t steps;                                 /* steps done by then, over the run */
    bool log, hook, observer_hook;
    bool validation, extra_validation;          /* extra: at the end of the run
                                                   only, so that its result
                                                   describes the final weights;
                                                   nothing may depend on it
                                                   that a longer run would not
                                                   have */
    bool may_stop;                              /* min_steps and min_epochs are reached */
    bool halt;                                  /* the loop halts for any of these */
} pl_batch_end_t;

/* Begins an epoch of that many batches at its batch `first`, after global_step steps of
 * the run; returns the steps of the run [0: no limit]. */
uint64_t pl_batch_schedule_begin(pl_batch_schedule_t *schedule, uint32_t epoch,
                                 uint32_t first, uint64_t global_step, uint32_t batches);
/* batch counts from 0 within the epoch. */
pl_batch_end_t pl_batch_schedule_after(const pl_batch_schedule_t *schedule,
                                       uint32_t batch);

/* ---- epoch_report.c: step times of all ranks, and which rank is the slowest ---- */

/* All zero: nothing was added yet. */
typedef struct pl_stragglers {
    double *sum;                                        /* [ranks][PL_TIMINGS], seconds */
    size_t capacity;                                    /* of sum */
    uint64_t steps;                                     /* in sum */
    int64_t since;                                      /* pl_now() of the first */
    json_t *reported;                                   /* of the second before  [none] */
} pl_stragglers_t;

/* Adds the timings of a reply to train_batch; a single rank has none.  now: pl_now(). */
void pl_stragglers_add(pl_stragglers_t *stragglers, pl_bytes_t timings, int64_t now);
/* {"steps": …, "data": {"min": …, "median": …, "max": …, "slowest": …}, …, "spread": …,
 * "slowest": …}: milliseconds per step, over the newest whole second; the spread of the
 * ranks' own times, as a share of their median, and the rank with the longest.  Borrowed;
 * NULL: none yet. */
json_t *pl_stragglers_report(pl_stragglers_t *stragglers, int64_t now);
void pl_stragglers_release(pl_stragglers_t *stragglers);

/* ---- the loop ---- */

typedef struct pl_epoch {
    pl_batch_iter_t iter;                                   /* first: see batch_iter.h */
    pl_address_t evaluate;
    pl_hooks_t hooks;

    uint64_t global_step, total_steps;                /* of the run; total 0: unknown */
    uint64_t samples;                                 /* trained on since the run began */
    pl_tracker_t steps;                               /* of the optimizer */
    pl_batch_schedule_t schedule;
    uint32_t batches_ended;                 /* up to the newest batch end */
    uint32_t synchronized;                  /* batches when the ranks synchronized last */
    unsigned phase;                         /* of the batch end in progress */
    uint64_t evaluating;                    /* the call  [0: none] */
    bool validated;                         /* at this batch end */
    bool skips_validation;                  /* at this batch end, for a callback */
    bool owes_validation;                   /* a stop deferred it */
    bool validation_announced;              /* its start, to the callbacks */
    double lr_factor;
    bool stopping, ended;
    bool halts_for_command;                /* between two steps */
    int64_t halted_at;                     /* pl_now(), last */
    bool is_cut_short;                     /* a callback skips the rest */
    pl_end_batch_t pending;                /* requests from outside or of the clock, which
                                              follow from no step: at this rank, perhaps
                                              at no other */
    char pending_reason[128];              /* of its stop */
    pl_call_t *agreeing;                   /* to begin once the ranks agree  [none] */
    bool stop_received;                    /* from above: the stop does not wait for a
                                              validation */
    bool out_of_time;                      /* the reason of the stop request, which no
                                              checkpoint keeps */
    char reason[128], stop_request[128];   /* why it stops; why it will stop, once the
                                              minimum is trained */
    pl_stop_kind_t stop_kind;              /* what it stops for */
    int64_t deadline;                      /* pl_now() at the end of max_time  [0] */
    int64_t validated_at;                  /* pl_now() */
    bool validates_now;                    /* val_check_interval's time is over */
    bool may_skip;                         /* steps that are not finite */
    uint64_t skipped, in_row;              /* steps that nan_policy skipped: of the run;
                                              the newest in a row */
    json_t *skipped_ranges;                /* [[from, to, rollback], …]: steps */
    pl_checkpoint_requests_t checkpoint_requests;  /* at the end of a step */
    json_t *kept;                          /* sums of a checkpoint, until their names are
                                              known  [none] */
    pl_metrics_t sums, since_log;          /* of the epoch; since the newest log line */
    pl_metrics_t since_report;             /* since the newest progress report */
    json_t *newest;                        /* metrics by name, over the run: of log lines
                                              and validations */
    json_t *reported;                      /* metrics of steps in the newest report */
    json_t *held;                          /* log records that wait for observers of an
                                              earlier step, in order; null stands for
                                              such a call  [none] */
    pl_stragglers_t stragglers;
    int64_t reported_at;                               /* pl_now() of the newest report */
} pl_epoch_t;

/* ---- epoch.c ---- */

/* What follows the newest batch is over. */
void pl_epoch_complete(pl_epoch_t *e);

/* ---- epoch_batch_end.c: what follows a batch, and coordination between ranks ---- */

/* All batches have come back: makes the steps of the batch end that are due, one after
 * the other; then the iteration continues. */
void pl_epoch_batch_end(pl_epoch_t *e);
/* Runs the observers for the newest batch, while the iteration continues. */
void pl_epoch_run_observers(pl_epoch_t *e);
/* A stop from above does not wait for the validation after the newest batch: the resumed
 * run makes it first. */
bool pl_epoch_defers_validation(const pl_epoch_t *e);

/* e->pending has changed: acts at once, or once the ranks agree. */
void pl_epoch_request_sync(pl_epoch_t *e);
/* The same for e->pending.halt.  It cancels no validation, but waits until batches
 * continue. */
void pl_epoch_request_halt(pl_epoch_t *e);
/* Requests of the clock, which may differ from run to run. */
void pl_epoch_check_time(pl_epoch_t *e);
/* All ranks stop. */
void pl_epoch_stop(pl_epoch_t *e, const char *reason, pl_stop_kind_t kind);
/* Sends this rank's pending requests to the others; false with an error.  The reply has
 * those of rank 0, for all. */
bool pl_epoch_coordinate(pl_epoch_t *e, pl_on_answer_t then, pl_error_t *err);
int pl_epoch_coordinated(pl_epoch_t *e, const pl_decide_reply_t *reply, pl_error_t *err);
/* Ranks that train independently synchronize; false: they are synchronized, or there is
 * one rank, or iter->failure has the error. */
bool pl_epoch_synchronize(pl_epoch_t *e, pl_on_answer_t then);
void pl_epoch_synchronized(pl_epoch_t *e, const pl_synchronize_reply_t *reply);

/* ---- epoch_report.c: progress, log lines, and the saved state ---- */

void pl_epoch_progress(const pl_epoch_t *e, pl_run_event_t event, const char *metrics);
/* Puts the metrics since the newest log line into an object. */
int pl_epoch_newest(const pl_epoch_t *e, json_t *into, pl_error_t *err);
/* Progress with the newest metric of each name; those of training steps are means since
 * the previous report. */
void pl_epoch_report(pl_epoch_t *e, pl_run_event_t event);
/* Sends the metrics since the newest log line to the loggers, and at its end those of the
 * epoch.  false: nothing was sent. */
bool pl_epoch_log(pl_epoch_t *e, pl_on_answer_t then);
/* Sends a record to the loggers, in the order of steps: behind those of observers that
 * have not answered yet. */
bool pl_epoch_log_record(pl_epoch_t *e, const pl_log_metrics_t *msg, pl_on_answer_t then);
/* Observers are called for the newest step and training continues; they have answered,
 * and their metrics are logged. */
void pl_epoch_log_hold(pl_epoch_t *e);
void pl_epoch_log_release(pl_epoch_t *e);

/* The state for a checkpoint, for pl_text_free(); NULL: out of memory. */
char *pl_epoch_state(const pl_epoch_t *e);
int pl_epoch_get_state(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
int pl_epoch_set_state(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
/* The stop request of a callback, for checkpoints  ["": none]. */
const char *pl_epoch_stop_request(const pl_epoch_t *e);
/* The names of the sums are known: restores their values. */
void pl_epoch_sums_restore(pl_epoch_t *e);

#endif
