/* proxy.h - the worker of a rank that runs in another process */
#ifndef PL_LAUNCHERS_PROXY_H
#define PL_LAUNCHERS_PROXY_H

#include "actors/launchers/forwarding.h"
#include "actors/launchers/rank_links.h"
#include "actors/launchers/ranks.h"
#include "actors/launchers/supervisor.h"
#include "runtime/actor.h"

/* Accepts the calls that a worker accepts, and its `start` ends when the process has
 * ended.  Option "rank"; the context of its start is the launcher's pl_rank_links_t. */
extern const pl_actor_ops_t pl_proxy;

/* `start` of pl_ranks_ops_t.  Without a folder of the links, another program has started
 * the process. */
uint64_t pl_proxy_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                        pl_error_t *err);

/* ---- What proxy.c (calls and answers) and proxy_end.c (the end) share ---- */

typedef struct proxy_call proxy_call_t;             /* a call that waits for its answer */

typedef enum proxy_end { PROXY_NOT_ENDED, PROXY_ASKED_TO_END, PROXY_KILLED } proxy_end_t;
typedef enum proxy_life {
    PROXY_RUNNING,
    PROXY_WORKER_ENDED,                   /* its worker has ended, its process may live */
    PROXY_PROCESS_DEAD,                   /* its process is dead; a foreign one is gone */
    PROXY_FINISHED                        /* and all that it sent has arrived */
} proxy_life_t;

typedef struct proxy {
    int64_t rank;
    bool is_foreign;                      /* another program has started it */
    pl_rank_links_t *links;               /* counted */
    pl_worker_pool_t *pool;               /* owns the process  [the proxy does] */
    pl_supervisor_t *process;             /* [it is foreign] */
    char about[128];                      /* from a foreign process, as it joined  [""] */
    pl_outbox_t outbox;
    proxy_call_t *forwarded;                     /* newest first  [none] */
    uint64_t forwarded_count;                    /* so far: number of the newest */
    pl_call_t *run;                              /* one of them  [not requested, or
                                                    answered] */
    bool was_run, was_stopped;                   /* a stop was forwarded: one is enough */
    pl_call_t *watch;                            /* [no call] */
    uint64_t global_step;                        /* of its newest report */
    int64_t received_at;                         /* pl_now() of its newest report */
    struct {
        char *text;                           /* output that is not written yet  [NULL] */
        size_t size;
        bool is_writing;
    } log;
    bool is_streamed;                               /* it has the address of the stream */
    bool has_joined;
    proxy_end_t end;                                        /* how it is to end */
    proxy_life_t life;
    pl_death_t death;
    bool died_early;                               /* before the watch call */
    pl_error_t error;                              /* why it was killed, or how its worker
                                                      ended  [code 0] */
} proxy_t;

/* Writes the output of the process to a file, if there is some and nothing is being
 * written. */
void proxy_log_flush(proxy_t *r);
/* Progress of the watch call. */
void proxy_tell(const proxy_t *r, pl_rank_event_t event, const char *cause);

/* The caller of the run has waited for too long, or the rank is to end. */
void proxy_cancel(void *self, pl_call_t *call);
void proxy_kill(proxy_t *r, const pl_error_t *why);
/* Kills a rank that is to end and is silent. */
void proxy_end_silent(proxy_t *r, const char *why);
/* The rank has left, or its link is gone: its process has to end, and a foreign process
 * counts as ended. */
void proxy_left(proxy_t *r, const char *why);
/* on_death of pl_process_spec_t. */
void proxy_died(void *self, const pl_death_t *death);
/* Ends the actor if nothing from the rank can arrive any more. */
void proxy_finish(proxy_t *r);

#endif
