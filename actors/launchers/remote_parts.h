/* remote_parts.h - what remote.c (what a rank elsewhere is called for, and says) and
 * remote_end.c (how it ends) share */
#ifndef PL_LAUNCHERS_REMOTE_PARTS_H
#define PL_LAUNCHERS_REMOTE_PARTS_H

#include "actors/commands.h"
#include "actors/launchers/worker_pool.h"
#include "actors/launchers/outbox.h"
#include "actors/launchers/forwarded_calls.h"
#include "actors/launchers/rank_log.h"
#include "actors/launchers/rank_links.h"
#include "runtime/process.h"

typedef enum remote_job { REMOTE_UNASKED, REMOTE_ASKED, REMOTE_SERVED } remote_job_t;
typedef enum remote_end { REMOTE_STAYS, REMOTE_ENDS, REMOTE_KILLED } remote_end_t;
typedef enum remote_life {
    REMOTE_LIVES,
    REMOTE_FREE,                       /* its worker has ended, its process may live */
    REMOTE_DEAD,                       /* its process is; or a foreign one that is gone */
    REMOTE_DONE                        /* and all that it had sent has come */
} remote_life_t;

typedef struct remote {
    int64_t rank;
    bool is_foreign;                             /* somebody else has started it */
    pl_rank_links_t *links;                      /* counted */
    pl_worker_pool_t *pool;                      /* that lends the process  [its own] */
    pl_process_t *process;                       /* [it is foreign] */
    char about[128];                             /* what a foreign one says it is  [""] */
    pl_outbox_t outbox;
    pl_call_t *run;                              /* NULL: not asked, or answered */
    remote_job_t job;                            /* asked: it is on its way to the rank */
    pl_held_t held;                              /* commands, before it is served */
    char stop_reason[128];                       /* asked for before that  [""] */
    bool was_stopped;                            /* one stop is enough */
    pl_forwarded_calls_t forwarded;
    pl_call_t *watch;                                  /* [nobody asks] */
    uint64_t global_step;                              /* the newest that it has told */
    int64_t received_at;                               /* pl_now() of its newest report */
    pl_rank_log_t log;
    bool is_streamed;                              /* was told where messages are taken */
    bool has_joined;
    remote_end_t end;                                       /* what it was told */
    remote_life_t life;
    pl_death_t death;
    bool died_early;                               /* nobody watched it yet */
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
