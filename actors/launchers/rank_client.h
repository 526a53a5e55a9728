/* rank_client.h - a rank's side of the links with its launcher
 *
 * The actor in the launcher's place in a rank's process has one: it makes the calls here
 * that the launcher's proxy received there, and sends the answers back. */
#ifndef PL_LAUNCHERS_RANK_CLIENT_H
#define PL_LAUNCHERS_RANK_CLIENT_H

#include "actors/launchers/forwarding.h"
#include "actors/launchers/ranks.h"
#include "runtime/payload.h"

/* Called on the owner's thread.  None of these may free the client. */
typedef struct pl_rank_client_ops {
    /* The launcher knows that the worker has ended, or that there will be none. */
    void (*on_end)(void *self);
    /* The end of the run of all ranks: its outcome, or an error  [not needed]. */
    void (*on_result)(void *self, pl_outcome_t *outcome, const pl_error_t *error);
    /* The other side is gone; nothing arrives any more.  Not after
     * pl_rank_client_leave(). */
    void (*on_lost)(void *self, const char *why);
    /* The rank accepts the batches of this process's program  [not needed]. */
    void (*on_ready)(void *self, const pl_run_progress_t *report);
    /* Both sides have left, after pl_rank_client_leave(). */
    void (*on_left)(void *self);
} pl_rank_client_ops_t;

typedef struct pl_rank_client_spec {
    const char *calls;             /* endpoint */
    const char *bulk;              /* the same  [the address in the answer to the join] */
    const pl_keys_t *keys;         /* [none] */
    const char *traits;            /* [none] */
    const char *host;              /* as in pl_link_spec_t  ["the launcher"] */
    pl_link_times_t times;
    uint64_t run;                                        /* [0: received when it joins] */
    uint32_t incarnation;
    int rank, world_size;
    int local_rank;
    int sharers;                                     /* ranks that share its processors */
    /* Before the worker gets its job: what this process checks or adds  [nothing]. */
    int (*on_job)(void *self, pl_job_t *job, pl_error_t *err);
} pl_rank_client_spec_t;

typedef struct pl_rank_client {
    void *self;                                             /* the actor */
    const pl_rank_client_ops_t *ops;
    pl_rank_client_spec_t spec;                   /* its texts and keys are the owner's */
    pl_link_t *link;
    pl_bulk_t *bulk;                                  /* [its address is not known yet] */
    pl_outbox_t outbox;
    pl_address_t worker;
    uint64_t life;                           /* of the worker  [0: none] */
    uint64_t run;                            /* number of that call  [0: none yet] */
    char stop_request[160];                  /* [""] */
    uint64_t global_step;                    /* the newest that the worker has reported */
    bool begun;                              /* a batch of some rank is done */
    bool has_joined, has_ended, is_lost;
    bool leaves, has_sent_all, has_left;            /* requested; by this side; by both */
} pl_rank_client_t;

/* Zeroed before; to be released also after a failure. */
int pl_rank_client_open(pl_rank_client_t *client, void *self,
                        const pl_rank_client_ops_t *ops,
                        const pl_rank_client_spec_t *spec, pl_error_t *err);
void pl_rank_client_release(pl_rank_client_t *client);

/* Requests that the run of all ranks stops; reported when the run has arrived. */
void pl_rank_client_request_stop(pl_rank_client_t *client, const char *why);
/* Ends the worker. */
void pl_rank_client_end(pl_rank_client_t *client);
/* Nothing follows what was posted until now. */
void pl_rank_client_leave(pl_rank_client_t *client);

/* ---- Participants: ranks whose process requested the run by itself ---- */

/* The first member of the struct of a launcher that has such processes; in the
 * coordinator only its ranks are used. */
typedef struct pl_participant {
    pl_ranks_t ranks;                          /* of the coordinator */
    pl_rank_client_spec_t spec;                /* its texts and keys are the launcher's */
    int64_t until;                             /* it must have joined */
    const char *coordinator;                   /* that accepts commands, for people  [it
                                                  is this process] */
    pl_rank_client_t client;
    pl_call_t *run;                                     /* [not requested, or answered] */
    pl_outcome_t *outcome;                              /* [an error] */
    pl_error_t error;
    bool has_result, is_lost;
} pl_participant_t;

/* Connects, for the handler of `start`; the limit to join holds for all attempts.  A
 * launcher that knows the result of the run already sets it instead. */
int pl_participant_open(pl_participant_t *participant, const pl_rank_client_spec_t *spec,
                        int64_t until, pl_error_t *err);
/* Handlers of `run`, `stop`, `control` and `watch`: of a participant, or of the ranks of
 * the coordinator, which alone accepts commands and sees all ranks. */
int pl_participant_run(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
int pl_participant_stop(void *self, pl_call_t *call, const pl_body_t *body,
                        pl_error_t *err);
int pl_participant_control(void *self, pl_call_t *call, const pl_body_t *body,
                           pl_error_t *err);
int pl_participant_watch(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err);
/* Whether it has not joined the coordinator yet. */
bool pl_participant_waits(const pl_participant_t *participant);
/* It will not receive the result: its run fails. */
void pl_participant_lose(pl_participant_t *participant, pl_code_t code, const char *why);
/* With its ranks. */
void pl_participant_release(pl_participant_t *participant);

#endif
