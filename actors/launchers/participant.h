/* participant.h - processes that request a run by themselves: one coordinates, the others
 * take part as ranks
 *
 * A pl_participant_t is the first member of the struct of a launcher that has such
 * processes; in the coordinator only its ranks are used. */
#ifndef PL_LAUNCHERS_PARTICIPANT_H
#define PL_LAUNCHERS_PARTICIPANT_H

#include "actors/launchers/rank_client.h"
#include "actors/launchers/rank_links.h"
#include "actors/launchers/ranks.h"

typedef struct pl_participant {
    pl_ranks_t ranks;                          /* of the coordinator */
    pl_rank_client_spec_t spec;                /* its texts and keys are the launcher's */
    int (*on_job)(void *self, pl_job_t *job,
                  pl_error_t *err);                         /* of pl_rank_client_ops_t */
    int64_t until;                                          /* it must have joined */
    pl_rank_client_t client;
    pl_call_t *asked;                                       /* run  [NULL: not, or
                                                               answered] */
    pl_outcome_t *outcome;                                  /* [an error] */
    pl_error_t error;
    bool has_result, is_lost;
} pl_participant_t;

/* Connects, for the handler of `start`; the limit to join holds for all attempts. */
int pl_participant_open(pl_participant_t *participant, const pl_rank_client_spec_t *spec,
                        int64_t until,
                        int (*on_job)(void *self, pl_job_t *job, pl_error_t *err),
                        pl_error_t *err);
/* In place of that: the run is over, and came to an outcome, which is taken over, or,
 * NULL, to an error. */
void pl_participant_know(pl_participant_t *participant, pl_outcome_t *outcome,
                         const pl_error_t *error);
/* For the handlers of `run` and `stop`. */
void pl_participant_run(pl_participant_t *participant, pl_call_t *call);
int pl_participant_stop(pl_participant_t *participant, pl_call_t *call,
                        const char *reason);
/* Refuses a command: the coordinator takes commands. */
int pl_participant_control(const pl_participant_t *participant, const char *coordinator,
                           pl_error_t *err);
/* Whether it has not joined the coordinator yet; it will not, and its run fails. */
bool pl_participant_waits(const pl_participant_t *participant);
void pl_participant_abort(pl_participant_t *participant, const char *why);
/* With its ranks. */
void pl_participant_release(pl_participant_t *participant);

typedef struct pl_result_broadcast pl_result_broadcast_t;

/* For a launcher's ranks when all have ended: tells the outcome, or the error, to those
 * that are there, from the first whose process waits for it on, and answers the
 * launcher's run when all have it and have left, or are gone.  To be freed with the
 * launcher  [NULL: out of memory; it is answered]. */
pl_result_broadcast_t *pl_result_broadcast(pl_ranks_t *ranks, pl_rank_links_t *links,
                                           int first);
/* What is sent: the packed outcome; NULL: the error. */
const pl_blob_t *pl_result_broadcast_outcome(const pl_result_broadcast_t *broadcast,
                                             const pl_error_t **error);
void pl_result_broadcast_free(pl_result_broadcast_t *broadcast);

#endif
