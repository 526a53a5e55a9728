/* fit.h - what the files of the fit loop share */
#ifndef PL_LOOPS_FIT_H
#define PL_LOOPS_FIT_H

#include <jansson.h>

#include "actors/checkpoint_requests.h"
#include "actors/intervals.h"
#include "actors/loops/hooks.h"
#include "actors/loops/loops.h"
#include "actors/loops/watchdog.h"
#include "actors/sequence.h"
#include "base/run.h"
#include "runtime/payload.h"

/* The checkpoint of a run that ends early. */
#define PL_STOPPED_CHECKPOINT "stopped"
/* The checkpoint that a rollback returns to before there is another. */
#define PL_START_CHECKPOINT "start"

typedef struct pl_fit pl_fit_t;

/* A checkpoint in progress: the states of the components, until it is saved. */
typedef struct pl_checkpointing {
    pl_sequence_t sequence;                                 /* asks for their states */
    bool making;
    int writing;                                            /* saves in flight */
    bool aside;                                             /* see pl_fit_t */
    pl_checkpoint_requests_t checkpoint_requests;
    uint64_t global_step;
    uint32_t epochs;
    /* States of the components; progress: of all loops. */
    char *epoch, *evaluate, *progress, *callbacks, *loggers, *metrics;
    pl_weights_t *weights;                    /* counted */
    void (*after_copies)(pl_fit_t *fit);      /* all is copied: the run continues */
    void (*after_saves)(pl_fit_t *fit);       /* at most max_in_flight saves are in flight
                                                 [nothing waits] */
    int max_in_flight;
    pl_watchdog_t watchdog;                      /* for the disk */
    bool late, hurries;                          /* late: logged; hurries: after a stop */
    uint64_t save_step;                          /* of the oldest save in flight */
    char *save_path;                             /* its path  [not known yet] */
    void (*after_final_weights)(pl_fit_t *fit);  /* the run ends with that save
                                                    [not in flight] */
} pl_checkpointing_t;

enum { PL_COMMANDS_MAX = 16, PL_CHECKPOINT_NAME = 80 };

typedef struct pl_waiting_command {
    pl_call_t *call;
    pl_control_t what;                            /* its texts live as long as the call */
} pl_waiting_command_t;

typedef struct pl_waiting_save {
    pl_call_t *call;
    uint64_t global_step, serial;                           /* of the checkpoint */
    char name[PL_CHECKPOINT_NAME];
} pl_waiting_save_t;

/* Commands to the run: those that wait for the next halt, and those that wait for a
 * checkpoint on disk. */
typedef struct pl_commands {
    pl_waiting_command_t waiting[PL_COMMANDS_MAX];
    pl_waiting_save_t save[PL_COMMANDS_MAX];
    int count, saves;
    bool paused, waits;                        /* waits: for the next command */
    int64_t paused_at;                         /* pl_now()  [0: not paused] */
    bool over;                                 /* the last step is made */
    char pending_stop[128], stop[128];         /* at this rank; of all ranks, at a halt */
    pl_stop_kind_t pending_kind, stop_kind;    /* what these stops are for */
    void (*then)(pl_fit_t *fit);
} pl_commands_t;

struct pl_fit {
    const pl_trainer_options_t *options;                    /* of the job in `start` */
    bool saves;                                             /* this rank writes files */
    pl_address_t data, epoch, evaluate, checkpoint, strategy;
    pl_hooks_t hooks;
    uint64_t accumulate;                     /* as a callback requested  [0: none did] */
    pl_intervals_t halts, looks;             /* of callbacks at batches */
    pl_call_t *call;                         /* the run  [idle] */
    int64_t began, before;                   /* ns; before: of the runs that it resumes */
    int64_t max_time;                        /* ns  [0: no limit] */
    pl_tracker_t epochs;
    uint64_t global_step, total_steps;      /* total_steps 0: not known */
    uint64_t samples;                       /* trained on */
    bool ended, stopped, epoch_whole;       /* epoch_whole: the newest is not cut short */
    bool stop_requested;                    /* a callback requested the stop */
    bool in_epoch;                          /* an epoch has begun and is not whole */
    bool resumes;                           /* an epoch, at this batch: */
    uint32_t batch;
    bool is_resume;                          /* the program requested it; at this step: */
    uint64_t resumed_step;
    bool saving;                               /* the weights for the result */
    bool failure_hooked;                       /* callbacks were called for the failure */
    bool stop_received;                        /* from above */
    uint64_t sanity_check;                     /* the call  [0: none] */
    char stop_request[128];                    /* of a callback, once the minimum is
                                                  trained  [""] */
    bool by_clock;                             /* that request, so checkpoints do not keep
                                                  it */
    char reason[128];                          /* why the run was stopped  [""] */
    pl_stop_kind_t stop_kind;                  /* what that stop was for */
    pl_error_t failure;                        /* after the last step  [code 0: none] */
    double lr_factor;                          /* of callbacks, until the next epoch */
    json_t *metrics;
    pl_outcome_t *outcome;

    pl_commands_t commands;
    pl_checkpoint_requests_t checkpoint_requests;
    pl_checkpointing_t checkpointing;
    uint64_t serial;                         /* checkpoints begun in this run */
    uint64_t unsaved, saved_step;            /* failed saves; step of the newest save */
    uint64_t reloaded;                       /* epochs when the data was reloaded last */
    char temporary_checkpoints[32];          /* names, one a line, which the next one
                                                replaces  [""] */
    bool aside;                              /* the next checkpoint is made only because
                                                the run ends: no rollback returns to it */
    uint64_t shown_step;                     /* whose tensors the loggers have, last;
                                                UINT64_MAX: none */
    bool last_skipped;                       /* the newest step was skipped */
    uint64_t rollbacks, in_row;              /* of the run; since the newest checkpoint */
    json_t *skipped_ranges;                  /* [[from, to, rollback], …]: steps that
                                                count but are not made */
};

/* ---- fit.c ---- */

void pl_fit_fail(pl_fit_t *fit, const pl_error_t *error);
/* Fails because the strategy has not exported what ("the weights") for too long. */
void pl_fit_fail_late(pl_fit_t *fit, const char *what);
/* Ends this run; the trainer resumes it from a checkpoint, with this text in its state
 * (consumed). */
void pl_fit_reply_rollback(pl_fit_t *fit, char *rollback);

/* ---- fit_checkpoint.c: making a checkpoint ---- */

/* Makes the requested checkpoint, if there is one; then() is called when all is copied,
 * or at once. */
void pl_fit_checkpoint(pl_fit_t *fit, void (*then)(pl_fit_t *fit));
/* Requests one that is made only because the run ends here. */
void pl_fit_request_final_checkpoint(pl_fit_t *fit, const char *save, const char *drop);
/* Checkpoints will be requested: their memory is prepared. */
void pl_fit_checkpoint_prepare(const pl_fit_t *fit);
/* Sends exported weights to the loggers that show tensors, once a step. */
void pl_fit_log_weights(pl_fit_t *fit, struct pl_weights *weights);
/* done() is called when at most `max_in_flight` saves are in flight. */
void pl_fit_checkpoint_wait(pl_fit_t *fit, int max, void (*done)(pl_fit_t *fit));
/* Writes the weights of the outcome; done() is also called after a failure, which is in
 * the outcome then. */
void pl_fit_write(pl_fit_t *fit, void (*done)(pl_fit_t *fit));
/* A stop was requested: a disk that does nothing has PL_STOP_SAVE_MS. */
void pl_fit_checkpoint_hurry(pl_fit_t *fit);
void pl_fit_checkpoint_release(pl_fit_t *fit);

/* ---- fit_commands.c: commands during the run ---- */

int pl_fit_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
/* All ranks have halted for commands: carries out those that wait.  then() is called when
 * the run is not paused any more. */
void pl_fit_commands_run(pl_fit_t *fit, void (*then)(pl_fit_t *fit));
/* A stop was received.  True: it ends a pause, and no other actor needs it. */
bool pl_fit_commands_stop(pl_fit_t *fit, const pl_stop_t *stop);
/* The checkpoint with that number has ended; safe: it is on disk. */
void pl_fit_commands_saved(pl_fit_t *fit, uint64_t serial, bool safe);
/* The run halts no more; the run is answered. */
void pl_fit_commands_over(pl_fit_t *fit);
void pl_fit_commands_end(pl_fit_t *fit);

/* ---- fit_state.c: the state for a checkpoint, and returning to one ---- */

/* The state of all loops, a JSON text, for pl_text_free(). */
char *pl_fit_state(const pl_fit_t *fit, const pl_checkpointing_t *checkpointing,
                   pl_error_t *err);
int pl_fit_set_state(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
/* Why the fit was stopped, or why a resumed one trained nothing: its limit was reached
 * before.  Otherwise leaves reason unchanged. */
void pl_fit_reason(const pl_fit_t *fit, char *reason, size_t size);

/* A checkpoint that a rollback can return to is about to be made. */
void pl_fit_rollback_point(pl_fit_t *fit);
bool pl_fit_may_roll_back(const pl_fit_t *fit, const pl_error_t *error);
/* Ends the run with a request to return to the newest checkpoint. */
void pl_fit_roll_back(pl_fit_t *fit, const pl_error_t *error);
/* Adds to an error that the limit of rollbacks is reached, if it is. */
void pl_fit_report_rollback_limit(const pl_fit_t *fit, pl_error_t *error);

#endif
