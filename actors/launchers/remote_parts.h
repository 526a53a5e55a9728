/* remote_parts.h - what remote.c (what a rank elsewhere is called for, and says) and
 * remote_end.c (how it ends) share */
#ifndef PL_LAUNCHERS_REMOTE_PARTS_H
#define PL_LAUNCHERS_REMOTE_PARTS_H

#include "actors/commands.h"
#include "actors/launchers/crew.h"
#include "actors/launchers/outbox.h"
#include "actors/launchers/passed.h"
#include "actors/launchers/said.h"
#include "actors/launchers/wires.h"
#include "runtime/process.h"

typedef struct remote {
    int64_t rank;
    bool is_foreign;                             /* somebody else has started it */
    pl_wires_t *wires;                           /* counted */
    pl_crew_t *crew;                             /* that lends the process  [its own] */
    pl_process_t *process;                       /* [it is foreign] */
    char about[128];                             /* what a foreign one says it is  [""] */
    pl_outbox_t outbox;
    pl_call_t *run;                             /* NULL: not asked, or answered */
    bool was_asked, is_served;                  /* the job is on its way; has been sent */
    pl_held_t held;                             /* commands, before that */
    char stop_reason[128];                      /* asked for before that  [""] */
    pl_passed_t passed;
    pl_call_t *watch;                                  /* [nobody asks] */
    uint64_t global_step;                              /* the newest that it has told */
    int64_t heard;                                     /* pl_now() of its newest report */
    pl_said_t said;
    bool is_streamed;                     /* was told where messages are taken */
    bool is_free;                         /* its worker has ended, its process may live */
    bool has_joined, ends, is_killed, is_dead, is_done;  /* dead: or free, or a foreign
                                                            one that is gone */
    pl_death_t death;
    pl_error_t error;                              /* why it was killed, or how its worker
                                                      ended  [code 0] */
} remote_t;

/* To who watches. */
void remote_tell(const remote_t *r, const char *event, const char *cause);

/* Its run's caller has waited for too long; or the rank is to end. */
void remote_cancel(void *self, pl_call_t *call);
void remote_kill(remote_t *r, const pl_error_t *why);
/* Nobody waits for the end of who is not heard any more. */
void remote_end_silent(remote_t *r, const char *why);
/* It has said its last, or its link is gone: its process is to end, and a foreign one has
 * ended. */
void remote_left(remote_t *r, const char *why);
/* Of pl_process_spec_t. */
void remote_died(void *self, const pl_death_t *death);
/* Ends the actor once nothing of the rank can come any more. */
void remote_finish(remote_t *r);

#endif
