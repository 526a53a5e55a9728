/* guest.h - a process that has asked for a run by itself and takes part in it as a rank
 *
 * What another process coordinates: this one connects to it, gets its work by message,
 * and hears at last what the run came to, which is then the answer to what was asked for
 * here.  A pl_guest_t is the first member of the struct of a launcher that has such
 * processes; in the one that coordinates only its ranks are used. */
#ifndef PL_LAUNCHERS_GUEST_H
#define PL_LAUNCHERS_GUEST_H

#include "actors/launchers/member.h"
#include "actors/launchers/ranks.h"

typedef struct pl_guest {
    pl_ranks_t ranks;                          /* of who coordinates */
    pl_member_spec_t spec;                     /* its texts and keys are the launcher's */
    int (*on_job)(void *self, pl_job_t *job, pl_error_t *err);  /* of pl_member_ops_t */
    int64_t until;                             /* it must have joined */
    pl_member_t member;
    pl_call_t *asked;                                       /* run  [NULL: not, or
                                                               answered] */
    pl_outcome_t *outcome;                                  /* [an error] */
    pl_error_t error;
    bool has_result, is_lost;
} pl_guest_t;

/* Connects, for the handler of `start`; the limit to join is told once for all. */
int pl_guest_open(pl_guest_t *guest, const pl_member_spec_t *spec, int64_t until,
                  int (*on_job)(void *self, pl_job_t *job, pl_error_t *err),
                  pl_error_t *err);
/* In place of that: the run is over, and came to an outcome, which is taken over, or,
 * NULL, to an error. */
void pl_guest_know(pl_guest_t *guest, pl_outcome_t *outcome, const pl_error_t *error);
/* For the handlers of `run` and `stop`. */
void pl_guest_run(pl_guest_t *guest, pl_call_t *call);
int pl_guest_stop(pl_guest_t *guest, pl_call_t *call, const char *reason);
/* Refuses it: `who` coordinates takes commands. */
int pl_guest_control(const pl_guest_t *guest, const char *who, pl_error_t *err);
/* It has not joined who coordinates; it will not, and what was asked for fails. */
bool pl_guest_waits(const pl_guest_t *guest);
void pl_guest_give_up(pl_guest_t *guest, const char *why);
/* With its ranks. */
void pl_guest_release(pl_guest_t *guest);

#endif
