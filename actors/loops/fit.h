/* fit.h - what the files of the fit loop share */
#ifndef PL_LOOPS_FIT_H
#define PL_LOOPS_FIT_H

#include <jansson.h>

#include "actors/intervals.h"
#include "actors/loops/hooks.h"
#include "actors/loops/loops.h"
#include "actors/loops/watchdog.h"
#include "actors/checkpoint_requests.h"
#include "actors/sequence.h"
#include "base/run.h"
#include "runtime/payload.h"

/* What is saved when the run ends before its time. */
#define PL_STOPPED_CHECKPOINT "stopped"
/* To go back to before there is another: fit_rollback.c. */
#define PL_START_CHECKPOINT "start"

typedef struct pl_fit pl_fit_t;

/* A checkpoint that is being made: the states of the components, until it is saved. */
typedef struct pl_checkpointing {
    pl_sequence_t sequence;                                 /* asks the components */
    bool making;
    int writing;                                            /* saves in flight */
    bool aside;                                             /* as below */
    pl_checkpoint_requests_t checkpoint_requests;
    uint64_t global_step;
    uint32_t epochs;
    /* States of the components; progress has those of all loops. */
    char *epoch, *evaluate, *progress, *callbacks, *loggers, *metrics;
    pl_weights_t *weights;                 /* counted */
    void (*then)(pl_fit_t *fit);           /* all is copied: the run goes on  [it does] */
    void (*done)(pl_fit_t *fit);           /* once at most .. */
    int max;                               /* .. saves are in flight  [nothing waits] */
    /* While the disk does nothing. save_step: of the oldest save in flight; replies(): of
     * the final save of the weights, with which the run ends. */
    pl_watchdog_t watchdog;
    bool late, hurries;                        /* late: reported; hurries: after a stop */
    uint64_t save_step;
    char *save_path;                                        /* [not known yet] */
    void (*replies)(pl_fit_t *fit);                         /* [it is not in flight] */
} pl_checkpointing_t;

enum { PL_COMMANDS_MAX = 16, PL_CHECKPOINT_NAME = 80 };

/* A command that was not carried out yet. */
typedef struct pl_waiting {
    pl_call_t *call;
    pl_control_t what;                            /* its texts stay as long as the call */
} pl_waiting_t;

typedef struct pl_save_asked {
    pl_call_t *call;
    uint64_t global_step, serial;                           /* of the checkpoint */
    char name[PL_CHECKPOINT_NAME];
} pl_save_asked_t;

/* Commands to the run: those that wait for the next halt, and for a checkpoint to be
 * durable. */
typedef struct pl_commands {
    pl_waiting_t waiting[PL_COMMANDS_MAX];
    pl_save_asked_t save[PL_COMMANDS_MAX];
    int count, saves;
    bool paused, waits;                        /* waits: for the next command */
    int64_t paused_at;                         /* pl_now()  [0: it is not] */
    bool over;                                 /* the last step is made */
    char pending_stop[128], stop[128];         /* by this rank; by all, in a halt  [""] */
    void (*then)(pl_fit_t *fit);
} pl_commands_t;

struct pl_fit {
    const pl_trainer_options_t *options;         /* of the job that it was started with */
    bool saves;                                  /* this rank writes files */
    pl_address_t data, epoch, evaluate, checkpoint, strategy;
    pl_hooks_t hooks;
    uint64_t accumulate;                     /* as a callback requested; 0: none did */
    pl_intervals_t halts, looks;             /* of callbacks at batches */
    pl_call_t *call;                         /* the run  [NULL: idle] */
    int64_t began, before;                   /* ns; before: of the runs it goes on from */
    int64_t max_time;                        /* ns  [0: no limit] */
    pl_tracker_t epochs;
    uint64_t global_step, total_steps;     /* total_steps 0: not known */
    uint64_t samples;                      /* trained on */
    bool ended, stopped, epoch_whole;      /* epoch_whole: the newest was not cut short */
    bool stop_requested;                   /* a callback requested the stop */
    bool in_epoch;                         /* an epoch has begun and is not whole */
    bool resumes;                          /* at this batch of it, from a checkpoint: */
    uint32_t batch;
    bool is_resume;                            /* as the program asked; from this step: */
    uint64_t resumed_step;
    bool saving;                          /* the weights are on their way to the result */
    bool reported;                        /* callbacks, that it fails */
    bool stop_received;                   /* from above */
    uint64_t trying;                      /* the evaluation before training  [0: none] */
    char stop_request[128];               /* of a callback to stop, once the least is
                                             trained  [""] */
    bool by_clock;                        /* that request, which is not kept */
    char reason[128];                     /* why it is stopped  [""] */
    pl_error_t failure;                   /* after the last step  [code 0: none] */
    double lr_factor;                     /* asked for by callbacks, not yet handed on */
    json_t *metrics;
    pl_outcome_t *outcome;

    pl_commands_t commands;
    pl_checkpoint_requests_t checkpoint_requests;           /* a checkpoint */
    pl_checkpointing_t checkpointing;
    uint64_t serial;                      /* checkpoints begun in this run */
    uint64_t unsaved, saved_step;         /* those that failed; the newest that did not */
    uint64_t reloaded;                    /* after so many epochs the data were, last */
    void (*reloaded_then)(pl_fit_t *fit);
    char passing[32];                       /* those made for the while, one a line: they
                                               go with the next that is due  [""] */
    bool aside;                             /* wanted only because the run ends: none goes
                                               back to it, as an unbroken one could not */
    uint64_t shown_step;                    /* whose tensors the loggers have, last;
                                               UINT64_MAX: none's */
    bool fruitless;                         /* the newest step was passed over */
    uint64_t rollbacks, in_row;             /* of the run; since the newest checkpoint */
    json_t *skipped_ranges;                 /* [[from, to, rollback], …]: steps that are
                                               counted and not made */
};

void pl_fit_fail(pl_fit_t *fit, const pl_error_t *error);

/* ---- fit_checkpoint.c: a checkpoint ---- */

/* Makes the checkpoint that is wanted, if one is; then() comes when all is copied, or at
 * once. */
void pl_fit_checkpoint(pl_fit_t *fit, void (*then)(pl_fit_t *fit));
/* Wants one that there would not be if the run did not end here. */
void pl_fit_request_final_checkpoint(pl_fit_t *fit, const char *save, const char *drop);
/* Some will be requested: memory for them is made ready meanwhile. */
void pl_fit_checkpoint_prepare(const pl_fit_t *fit);
/* Copied anyway: for the loggers that show tensors, once a step. */
void pl_fit_log_weights(pl_fit_t *fit, struct pl_weights *weights);
/* done() comes when nothing is being saved any more. */
void pl_fit_checkpoint_wait(pl_fit_t *fit, void (*done)(pl_fit_t *fit));
/* Writes the weights of the outcome; done() also comes after a failure, which is in the
 * outcome then. */
void pl_fit_write(pl_fit_t *fit, void (*done)(pl_fit_t *fit));
/* A stop was requested: a disk that does nothing is waited for PL_STOP_SAVE_MS. */
void pl_fit_checkpoint_hurry(pl_fit_t *fit);
/* What callbacks are told as `extra`.  At the end of an epoch: it was cut short.  At that
 * of the run: it was stopped, and kept what it can go on from. */
bool pl_fit_is_extra(const pl_fit_t *fit, unsigned point);
/* At the end. */
void pl_fit_report_unsaved(pl_fit_t *fit);
void pl_fit_checkpoint_release(pl_fit_t *fit);

/* ---- fit_commands.c: what it is told on the way ---- */

int pl_fit_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
/* All ranks have halted for commands: carries out those that wait; then() comes after
 * that, when the run is not paused any more. */
void pl_fit_commands_run(pl_fit_t *fit, void (*then)(pl_fit_t *fit));
/* A stop has come; true: that ends a pause, and nobody else need be told. */
bool pl_fit_commands_stop(pl_fit_t *fit, const char *reason);
/* The checkpoint of that number has been made. */
void pl_fit_commands_saved(pl_fit_t *fit, uint64_t serial, bool safe);
/* Nobody halts any more; the run is answered. */
void pl_fit_commands_over(pl_fit_t *fit);
void pl_fit_commands_end(pl_fit_t *fit);

/* ---- fit_rollback.c: nan_policy "rollback" ---- */

/* There is always one to go back to. */
void pl_fit_request_start_checkpoint(pl_fit_t *fit);
/* One that can be gone back to is about to be made. */
void pl_fit_rollback_point(pl_fit_t *fit);
bool pl_fit_may_roll_back(const pl_fit_t *fit, const pl_error_t *error);
/* Answers the run with what it is to go back with. */
void pl_fit_roll_back(pl_fit_t *fit, const pl_error_t *error);
/* An error after which it does not go back any more says so. */
void pl_fit_report_rollback_limit(const pl_fit_t *fit, pl_error_t *error);
/* The steps, for the epoch loop; from pl_json_write(). */
char *pl_fit_skipped_ranges(const pl_fit_t *fit, pl_error_t *err);
/* Among the metrics. */
void pl_fit_count_rollbacks(pl_fit_t *fit);
/* In checkpoints. */
json_t *pl_fit_save_rollbacks(const pl_fit_t *fit);
int pl_fit_load_rollbacks(pl_fit_t *fit, const json_t *kept, pl_error_t *err);

/* ---- fit_reload.c: data sets opened anew ---- */

bool pl_fit_reload_is_due(const pl_fit_t *fit);
/* then() comes when it is done. */
void pl_fit_reload(pl_fit_t *fit, void (*then)(pl_fit_t *fit));

/* ---- fit.c ---- */

/* Ends this run; it is to go on from a checkpoint, with that in its state (taken
 * over). */
void pl_fit_reply_rollback(pl_fit_t *fit, char *rollback);

/* Empty when it is not. */
const char *pl_fit_stop_request(const pl_fit_t *fit);

/* ---- fit_state.c: what it keeps of itself ---- */

/* With those of the loops below, a JSON text; from pl_json_write(). */
char *pl_fit_state(const pl_fit_t *fit, const pl_checkpointing_t *checkpointing,
                   pl_error_t *err);
/* Why the fit is stopped, or why a resumed one trained nothing: its limit was reached
 * before.  Leaves reason unchanged when neither is so. */
void pl_fit_reason(const pl_fit_t *fit, char *reason, size_t size);
int pl_fit_set_state(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);

#endif
