/* ranks.h - the ranks of a run as a launcher sees them: started, collected, one result;
 * and the launchers that are built in
 *
 * All launchers share this.  A pl_ranks_t is the first member of the launcher's own
 * struct, so it makes calls as the launcher.  The launcher decides how a rank is
 * started, and what happens to one that is stuck. */
#ifndef PL_LAUNCHERS_RANKS_H
#define PL_LAUNCHERS_RANKS_H

#include "runtime/payload.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_ranks pl_ranks_t;

typedef struct pl_rank {
    pl_ranks_t *ranks;
    int number;
    pl_address_t worker;                      /* address for calls, once it was started */
    /* Set by the launcher that starts the rank, for a rank without a sign of life: the
     * end of the error text; and whether the worker ends the rank when its `run` is
     * cancelled  [it cannot be ended, and is abandoned]. */
    const char *stuck_text;
    bool can_end;
    uint64_t life;                          /* ends when the rank has [0: not started] */
    bool answered;                          /* its `run` has ended */
    bool ended;                             /* its actor has ended */
    char *address;                          /* for the other ranks  [not reported yet] */
    char *device;                           /* identity  [not reported yet, or unknown] */
    int64_t received_at;                    /* pl_now() of its newest sign of life */
    uint64_t global_step;                   /* the newest reported */
} pl_rank_t;

typedef struct pl_ranks_ops {
    /* Starts a rank, and fills in its worker; -> the number of a call that ends with the
     * rank, with the answers of `life`; 0: an error. */
    uint64_t (*start)(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life, pl_error_t *err);
    /* All have ended: sends the outcome, or the error, to the processes that wait for it
     * beside the caller, and calls pl_ranks_answer() at the end  [no others wait] */
    void (*broadcast_result)(pl_ranks_t *ranks);
    /* The run has failed with its `error`, or has paused, and all have ended: true when
     * it begins again, by pl_ranks_begin(), now or later  [it does not]. */
    bool (*again)(pl_ranks_t *ranks);
    /* A stop while the run waits for that: begins at once, so that the run ends with its
     * weights, as any that is stopped  [it never waits] */
    void (*now)(void *launcher);
    /* The run's folder, as soon as it is known  [not needed] */
    void (*run_dir)(pl_ranks_t *ranks, const char *path);
} pl_ranks_ops_t;

struct pl_ranks {
    const pl_ranks_ops_t *ops;
    struct pl_rank_links *links;            /* to processes; the launcher's  [threads] */
    struct pl_restarts *restarts;           /* the launcher's  [it does not restart] */
    pl_call_t *run;                         /* NULL: idle */
    pl_call_t *watch;                       /* [not needed] */
    bool broadcasts;                        /* its result, to other processes */
    pl_job_t *job;                          /* counted */
    pl_rank_t *rank;                        /* [count] */
    int min, max;                           /* least number to continue with; requested */
    int count, started;                     /* of this incarnation; started of them */
    int reported, answered, ended;          /* numbers of ranks: see pl_rank_t */
    int64_t looked, waited;                 /* ns: newest look for missing addresses; how
                                               long all have been there without them */
    pl_outcome_t *outcome;                  /* of rank zero  [not yet] */
    pl_error_t error;                       /* the run's  [code 0: none] */
    int failed;                             /* its rank  [-1: of no rank] */
    uint64_t global_step;                   /* the newest reported */
    bool had_a_batch;                       /* some rank has finished a batch */
    bool awaits_first_batch;                /* no rank of this incarnation has */
    bool stop_requested;
    char stop_reason[128];
    bool halts_to_restart;                                  /* by pl_ranks_pause() */
    int silence_ms;
};

/* For the handler of `start`, whose context is the job. */
void pl_ranks_init(pl_ranks_t *ranks, const pl_ranks_ops_t *ops, const pl_body_t *start);
/* Starts all ranks, for the first time or after all have ended; a job takes the place of
 * the one before  [the same]. */
int pl_ranks_begin(pl_ranks_t *ranks, pl_job_t *job, pl_error_t *err);
/* Handlers of `run`, `stop`, `control` and `watch`. */
int pl_ranks_run(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
int pl_ranks_stop(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
int pl_ranks_control(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
int pl_ranks_watch(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
/* Saves the run and stops it at its next step, to begin again.  It has paused if it ended
 * because of that, not because it was complete or failed before. */
void pl_ranks_pause(pl_ranks_t *ranks);
bool pl_ranks_have_paused(const pl_ranks_t *ranks);
/* With the links. */
void pl_ranks_release(void *self);
/* The outcome of the run; NULL: it has failed with its `error`. */
pl_outcome_t *pl_ranks_outcome(const pl_ranks_t *ranks);
/* Ends the run, with its outcome or its error. */
void pl_ranks_answer(pl_ranks_t *ranks);

/* ---- Ranks that are processes ---- */

/* The worker of a rank that runs in another process: accepts the calls that a worker
 * accepts, and its `start` ends when the process has ended.  The text of its options is
 * the number of the rank; the context of its start is the launcher's pl_rank_links_t. */
extern const pl_actor_ops_t pl_proxy;

/* `start` of pl_ranks_ops_t.  Without a folder of the links, another program has started
 * the process. */
uint64_t pl_proxy_start(pl_ranks_t *ranks, pl_rank_t *rank, pl_how_t life,
                        pl_error_t *err);

/* For pl_init(): if a launcher has started this process as a rank, it is one until its
 * end, and this never returns.  If it executes the program for a rank, that is noted. */
void pl_entry_if_rank(void);

/* ---- The launchers that are built in ----
 *
 * A launcher is an actor of level LAUNCHER that accepts `run` and `stop`; the reply to
 * `run` is the result of rank zero.  All are registered by name, as those of users. */

extern const pl_actor_ops_t pl_external_launcher;
extern const pl_actor_ops_t pl_inline_launcher;
extern const pl_actor_ops_t pl_script_launcher;
extern const pl_actor_ops_t pl_spawn_launcher;

#ifdef __cplusplus
}
#endif

#endif
