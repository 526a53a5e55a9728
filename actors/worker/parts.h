/* parts.h - what the files of the worker share */
#ifndef PL_WORKER_PARTS_H
#define PL_WORKER_PARTS_H

#include <jansson.h>

#include "actors/commands.h"
#include "actors/loops/hooks.h"
#include "actors/loops/watchdog.h"
#include "actors/worker.h"
#include "runtime/payload.h"

/* The checkpoint that the run resumes from; all zero: none. */
typedef struct pl_resume {
    json_t *manifest;
    char *path;                                /* of the checkpoint */
    char *run_dir;                             /* that it goes on in  [one of its own] */
    bool elsewhere;                            /* its own, because the user asks for it */
} pl_resume_t;

typedef struct pl_worker {
    pl_call_t *run;                                         /* NULL: idle */
    pl_job_t *job;                                          /* counted */
    pl_address_t writer, keeper, data, callback, accelerator, strategy, logger,
        checkpoint, loop;
    uint32_t ranks;                                        /* on this machine  [0: one] */
    uint32_t local_rank;
    uint32_t partition, partitions, micro_shards;  /* of the data */
    bool even;                            /* which all have as much of */
    pl_hooks_t hooks;                     /* of the callbacks, perhaps another rank's */
    bool validates, does_io, accumulates, begun;  /* begun: it has made steps */
    double device_flops;                  /* measured  [0: not] */
    bool measures;                        /* what the device does, once a second */
    bool describes;                       /* its plans */
    int64_t set_up;                       /* pl_now() when that began */
    pl_weights_t *weights;                /* to start from, counted  [NULL] */
    char *run_dir, made[64];              /* made: the weights' step, for who measures */
    pl_batch_signature_t *signature;      /* of the data, counted, and what they know and
                                             are, until all ranks have the same  [NULL] */
    char *data_info, *found;
    char *content;                         /* of the data, for checkpoints  [not known] */
    pl_resume_t resume;
    int given;                                /* components that have their state again */
    bool loops;                               /* the loop has been told to run */
    pl_held_t held;
    struct command *commands;                            /* that the loop has */
    char stop_reason[128];                               /* asked for  [""] */
    const char *phase;                                   /* of the start-up, for errors */
    pl_watchdog_t watchdog;                              /* for its end */
} pl_worker_t;

/* ---- worker.c ---- */

/* The run fails. */
void pl_worker_fail(pl_worker_t *w, const pl_error_t *error);
/* An error says that something has not answered in its time: what owes an answer for
 * nearly as long gets hardly any time to end. */
void pl_worker_suspect(pl_worker_t *w);
/* True unless the answer is the reply that was waited for; an error fails the run. */
bool pl_worker_failed(pl_worker_t *w, const pl_answer_t *answer);
/* A call that was not made fails it as well. */
void pl_worker_sent(pl_worker_t *w, uint64_t call, const pl_error_t *err);
bool pl_worker_spawn(pl_worker_t *w, const pl_actor_ops_t *ops, pl_where_t where,
                     const pl_start_t *start, pl_address_t *at, pl_error_t *err);
/* The next thing that the start-up waits for: it has trainer.step_timeout to end. */
void pl_worker_phase(pl_worker_t *w, const char *phase);
/* A rank that is late itself says so before the ranks that wait for it. */
void pl_worker_phase_of_all(pl_worker_t *w, const char *phase);
/* An actor of this rank has ended unasked, or has not taken what it was told. */
void pl_worker_component_ended(void *self, const pl_answer_t *answer);
void pl_worker_tell_loggers(pl_worker_t *w, const char *status);

/* ---- commands.c ---- */

int pl_worker_control(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
/* The loop takes commands from now on. */
void pl_worker_commands_begin(pl_worker_t *w);
void pl_worker_commands_release(pl_worker_t *w);
/* Writes down a stop that was asked for, once the loop has made its last step. */
void pl_worker_stop_note(pl_worker_t *w, const pl_outcome_t *outcome);

/* ---- setup.c ---- */

/* Callbacks and data readers are there: weights come in, the strategy is set up, and the
 * worker goes on. */
void pl_worker_begin(pl_worker_t *w);

/* ---- loops.c ---- */

/* All below the loops is there: the run gets its folder, then the loop runs. */
void pl_worker_go_on(pl_worker_t *w);

/* ---- resume.c ---- */

/* What is to be looked for: what the ranks agreed on, or what the job says  [NULL]. */
int pl_resume_is_requested(const pl_job_t *job, const char *agreed,
                           pl_find_checkpoint_t *wanted, pl_error_t *err);

/* Says what was found and what was refused; the run must agree with the one that was
 * saved in all that changes arithmetic or order: PL_EINVAL names what does not. */
int pl_resume_take(pl_resume_t *resume, const pl_job_t *job, void *worker,
                   const pl_find_checkpoint_reply_t *found, pl_error_t *err);

/* The run must read the samples that the one that was saved has read; content is that of
 * open_data.  PL_EINVAL says which source differs, and how. */
int pl_resume_data(const pl_resume_t *resume, const pl_job_t *job, const char *content,
                   pl_error_t *err);

/* What a part of the run had kept, "" for nothing; from pl_text(). */
char *pl_resume_state(const pl_resume_t *resume, const char *component, pl_error_t *err);

void pl_resume_release(pl_resume_t *resume);

/* ---- first_weights.c ---- */

/* Where they come from  [NULL: nowhere]. */
const char *pl_first_weights_path(const pl_job_t *job);
/* PL_EINVAL when they say that they are of another module than the run's; a log line of
 * the worker when they hold what is not finite. */
int pl_first_weights_check(void *worker, const pl_job_t *job, const pl_weights_t *weights,
                           pl_error_t *err);
/* The steps and epochs that made them, as options of the measure loop. */
void pl_first_weights_made(const pl_weights_t *weights, char options[64]);
/* Whether what does not fit of them is left out: module.init_strict. */
bool pl_first_weights_partly(const pl_job_t *job);

#endif
