/* parts.h - what the files of the worker share */
#ifndef PL_WORKER_PARTS_H
#define PL_WORKER_PARTS_H

#include <jansson.h>

#include "actors/loops/hooks.h"
#include "actors/loops/watchdog.h"
#include "actors/sequence.h"
#include "actors/worker.h"
#include "runtime/payload.h"

/* The checkpoint that the run resumes from; all zero: none. */
typedef struct pl_resume {
    json_t *manifest;
    char *path;                                /* of the checkpoint */
    char *run_dir;                             /* in which it continues  [in a new one] */
    bool elsewhere;                            /* in a new one, as the user requests */
} pl_resume_t;

typedef struct pl_worker {
    pl_call_t *run;                                         /* [NULL: idle] */
    pl_job_t *job;                                          /* counted */
    pl_address_t writer, checkpoint_io, data, callback, accelerator, strategy, logger,
        checkpoint, loop;                          /* checkpoint_io: writes checkpoints */
    uint32_t ranks;                                /* on this machine  [0: one] */
    uint32_t local_rank;
    char stop_reason[128];                                  /* [""] */
    pl_stop_kind_t stop_kind;
    struct command *commands;                               /* not answered yet */
    bool begun;                                             /* the loop has made a step */

    /* The setup, and what its steps leave to later ones. */
    pl_sequence_t setup;
    const char *phase;                   /* what it waits for, for errors */
    pl_watchdog_t watchdog;              /* of the phase */
    pl_hooks_t hooks;                    /* of the callbacks, perhaps another rank's */
    bool measures, describes;            /* the device: itself once a second; its plans */
    bool does_io, accumulates, needs_peak, validates;
    uint32_t partition, partitions, micro_shards;  /* of the data */
    bool even;                                     /* all partitions have the same size */
    char *loader;                                  /* that the strategy sets  [""] */
    double device_flops;                           /* measured  [0: not] */
    pl_resume_t resume;
    char *agreed;                         /* the checkpoint that rank 0 found, on other
                                             ranks  [NULL] */
    pl_weights_t *weights;                /* to start from, counted  [NULL] */
    char made[64];                        /* the weights' step, for the measure loop */
    pl_batch_signature_t *signature;      /* of the data, counted */
    char *data_info, *content, *found;    /* of the data; content: for checkpoints; found:
                                             compared between ranks  [not known] */
    int64_t set_up;                       /* pl_now() when compiling began */
    char *run_dir;                        /* [none] */
    pl_outcome_t *outcome;                /* of the loop, which has ended, counted */
} pl_worker_t;

/* ---- worker.c ---- */

/* The run fails; self is the worker. */
void pl_worker_fail(void *self, const pl_error_t *error);
/* An actor has not answered in its time: actors that have owed an answer for nearly as
 * long get hardly any time to end. */
void pl_worker_suspect(pl_worker_t *w);
/* The next step of the setup; it has trainer.step_timeout to end, or to report progress.
 * If all ranks take part it has more: a rank that is late reports that before the others
 * do. */
void pl_worker_phase(pl_worker_t *w, const pl_sequence_step_t *step);
/* An actor of this rank has ended by itself, or has refused a call. */
void pl_worker_component_ended(void *self, const pl_answer_t *answer);
/* Once a second from now on. */
void pl_worker_measure_device(void *self);
/* The setup is done: the loop runs. */
void pl_worker_run_loop(void *self);

/* ---- commands.c ---- */

int pl_worker_control(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
/* The loop takes commands from now on. */
void pl_worker_commands_begin(pl_worker_t *w);
/* The loop will not run: fails the commands that wait for it. */
void pl_worker_commands_fail(pl_worker_t *w, const char *why);
void pl_worker_commands_release(pl_worker_t *w);
/* Records a stop in the file of commands, once the loop has made its last step. */
void pl_worker_stop_note(pl_worker_t *w, const pl_outcome_t *outcome);

/* ---- setup.c ---- */

/* Ends with pl_worker_run_loop() or pl_worker_fail(). */
void pl_worker_set_up(pl_worker_t *w);

/* ---- worker.c: the actors of a run ---- */

bool pl_worker_spawn(pl_worker_t *w, const pl_actor_ops_t *ops, pl_where_t where,
                     const pl_start_t *start, pl_address_t *at, pl_error_t *err);
/* The writers, the accelerator and the strategy. */
int pl_worker_spawn_components(pl_worker_t *w, pl_error_t *err);
/* What writes into the run directory: the logger and checkpoint connectors. */
bool pl_worker_spawn_savers(pl_worker_t *w, pl_error_t *err);
/* The loops of the job's stage. */
bool pl_worker_spawn_loops(pl_worker_t *w, pl_error_t *err);

/* ---- resume.c ---- */

/* What to search for: the checkpoint that the ranks agreed on [NULL: what the job
 * says]. */
int pl_resume_is_requested(const pl_job_t *job, const char *agreed,
                           pl_find_checkpoint_t *wanted, pl_error_t *err);

/* Logs which checkpoint was found and which were rejected. PL_EINVAL names an option that
 * changes arithmetic or order and differs from the saved run. */
int pl_resume_take(pl_resume_t *resume, const pl_job_t *job, void *worker,
                   const pl_find_checkpoint_reply_t *found, pl_error_t *err);

/* Compares the data, as open_data describes it, with the data of the saved run. PL_EINVAL
 * says which source differs, and how. */
int pl_resume_data(const pl_resume_t *resume, const pl_job_t *job, const char *content,
                   pl_error_t *err);

/* The saved state of a component, "" for none; from pl_text(). */
char *pl_resume_state(const pl_resume_t *resume, const char *component, pl_error_t *err);

void pl_resume_release(pl_resume_t *resume);

/* The file of the first weights  [NULL: none]. */
const char *pl_first_weights_path(const pl_job_t *job);
/* PL_EINVAL: they are of another module than the run's. Values that are not finite are a
 * warning in the log. */
int pl_first_weights_check(void *worker, const pl_job_t *job, const pl_weights_t *weights,
                           pl_error_t *err);
/* Whether tensors that do not fit are left out: module.init_strict. */
bool pl_first_weights_partly(const pl_job_t *job);

#endif
