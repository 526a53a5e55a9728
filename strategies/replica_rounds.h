/* replica_rounds.h - training steps under way: what the files that make them share */
#ifndef PL_STRATEGIES_REPLICA_ROUNDS_H
#define PL_STRATEGIES_REPLICA_ROUNDS_H

#include "strategies/replica_parts.h"

struct pl_round;

/* How far one of the module's steps has come.  A replica that meets nobody waits nowhere:
 * there all is sent at once. */
typedef enum pl_part_phase {
    PL_PART_UNSENT,
    PL_PART_COMPUTES,                    /* forward_backward is sent */
    PL_PART_COMPUTED,                    /* what this rank brings to a meeting is there */
    PL_PART_MEETS,                       /* the ranks do, or need not behind this batch */
    PL_PART_MET,                         /* the sums are those of all ranks */
    PL_PART_STEPS,                       /* optimizer_step is sent, or is not due; also
                                            with forward_backward, as one call */
    PL_PART_FOLLOWED,                    /* what follows it is over */
} pl_part_phase_t;

/* What one of the module's steps does in a round. */
typedef struct pl_part_of_round {
    struct pl_round *round;
    int step;
    pl_part_phase_t phase;
    int exchanged;                               /* exchanges of forward_backward begun */
    bool guarded;                                /* its optimizer step */
    double lr_factor, momentum, norm, loss;
    double scaling[2];                      /* the loss's factor, steps that it skipped */
} pl_part_of_round_t;

/* One micro-batch under way, and the optimizer step behind it. */
typedef struct pl_round {
    struct pl_round *next;                                  /* behind it; or spare */
    pl_call_t *call;
    pl_batch_t *batch;                          /* kept by the call */
    uint64_t number;                            /* the optimizer step it is for, from 1 */
    uint32_t shard;
    bool step_due, may_skip, halt;
    bool begun;
    int pending;                           /* replays not yet ended; 1 more while some are
                                              to be sent */
    double average_share;
    pl_part_of_round_t part[PL_STEPS];
    double *figures;                             /* numbers in the order of their names */
    pl_error_t failure;
} pl_round_t;

typedef struct pl_rounds {
    pl_round_t *first, **last;         /* in the order of their calls */
    pl_round_t *sending;               /* the first that is not sent whole [NULL: none] */
    int part;                          /* of it, the next */
    double *carried;                   /* figures of the step's batches before, of this
                                          rank  [there is one rank] */
    bool has_samples[PL_STEPS];        /* this rank, in those batches */
    bool reducing;                     /* the ranks meet over the part */
    pl_part_of_round_t *exchanging;    /* that waited last, or still does, in the middle
                                          of a replay */
    int64_t since;                     /* pl_now() of what is counted as spent next: the
                                          device works, or the ranks meet */
    double passed;                     /* s that the device had replays, to share out, */
    double ran[PL_SPENT_KINDS];        /* and that it ran them */
    bool meeting;                      /* it waits for the other ranks, */
    bool looks;                        /* and a timer shows whether it runs meanwhile; */
    int64_t looked, absent;            /* pl_now() of its last sign; ns that it did not */
    pl_round_t *spare;
    uint64_t ended_by;                 /* the first step that failed  [0: none] */
    bool was_asked;                    /* for a step, before */
    bool held_back;                    /* nothing is sent, till it is clear what failed */
    bool held;                         /* nothing is sent: plans are made anew */
    pl_error_t failure;                /* that no step can go on after  [code 0: none] */
    int looking;                       /* calls under way that look into a guarded one */
    int out;                           /* replays not yet ended, of all */
    bool awaits;                       /* `looking` counts them as one */
    bool resumes;                      /* with the next replay */
    char bad[256];                     /* what was not finite in it */
} pl_rounds_t;

static inline bool pl_part_is_due(const pl_replica_t *r, const pl_part_of_round_t *part)
{
    return part->round->number % (uint64_t)r->step[part->step].every == 0;
}

/* ---- replica_rounds.c: their list, and their answers ---- */

/* From a list of spare ones, so that a step allocates nothing. */
pl_round_t *pl_round_take(const pl_replica_t *r, pl_error_t *err);
/* The oldest has been answered. */
void pl_round_give(pl_rounds_t *rounds);
/* Answers the oldest, which ends a step, also with what the step took, by each rank's
 * stages. */
void pl_rounds_reply(pl_replica_t *r, const pl_train_batch_reply_t *what);
/* Answers those that have ended; the oldest first. */
void pl_rounds_settle(pl_replica_t *r);
/* Of a step that was not run. */
int pl_rounds_fail_behind(const pl_rounds_t *rounds, uint64_t number, pl_error_t *err);

/* ---- replica_train.c ---- */

/* Sends the rounds that did not run or that came since: the first from one of the
 * module's objectives on  [0: whole], the others whole. */
void pl_rounds_again(pl_replica_t *r, int objective);

/* ---- replica_meet.c: figures, and what a rank brings to a meeting ---- */

/* The ranks meet behind each batch, not behind each step. */
static inline bool pl_rounds_each(const pl_replica_t *r)
{
    return r->meets && r->meets->each_batch;
}

/* Where the figures of a step lie among all; of the step behind the last those that its
 * optimizers give begin. */
size_t pl_figures_before(const pl_replica_t *r, int step);
/* With two numbers more for each that is not of a batch plan. */
size_t pl_figures_count(const pl_replica_t *r);

/* Memory for what follows, once. */
int pl_rounds_carry(pl_replica_t *r, pl_error_t *err);
/* Adds the figures of a step's batches before: they are told with its end. */
void pl_part_carry(pl_replica_t *r, const pl_part_of_round_t *part);
/* The ranks meet over it; ends with pl_replica_reduced(). */
int pl_part_meet(pl_replica_t *r, pl_part_of_round_t *part, pl_error_t *err);

/* They meet behind an optimizer step. */
static inline bool pl_rounds_follow(const pl_replica_t *r)
{
    return r->meets && r->meets->stepped;
}

/* That begins; ends with pl_replica_reduced(). */
void pl_part_follow(pl_replica_t *r, pl_part_of_round_t *part, double *figures,
                    size_t count);

/* ---- replica_exchange.c: the ranks meet in the middle of a replay ---- */

/* Of a batch without samples. */
const pl_replica_plan_t *pl_part_empty_plan(const pl_replica_t *r,
                                            const pl_part_of_round_t *part);
/* Of buckets that are there, how many may be told before the next exchange. */
int pl_part_buckets(const pl_replica_t *r, const pl_part_of_round_t *part, int ready);
/* The replay waits at that exchange, from 1; ends with pl_replica_exchanged(). */
int pl_part_exchange(pl_replica_t *r, pl_part_of_round_t *part, int number,
                     pl_error_t *err);

/* ---- replica_spent.c: what a step takes ---- */

void pl_rounds_spending(pl_replica_t *r);
/* The device ran for so many seconds  [0: nobody can tell], forward's among them. */
void pl_rounds_spent(pl_replica_t *r, pl_spent_t kind, double forward, double seconds);
/* What was spent until now goes to the stages. */
void pl_rounds_share(pl_replica_t *r);
/* The ranks meet; they have met. */
void pl_rounds_meeting(pl_replica_t *r);
void pl_rounds_met(pl_replica_t *r);

/* ---- replica_guarded.c: a step that was not finite ---- */

/* Of which of the module's steps, or NULL. */
const pl_part_of_round_t *pl_round_guarded(const pl_round_t *round);
/* Looks what was not finite in the oldest, then fails it or runs what is behind it; of a
 * step that scaling has skipped the rest of the oldest runs, too. */
void pl_rounds_look(pl_replica_t *r);
/* What follows the optimizer step that was passed over has ended. */
void pl_rounds_followed(pl_replica_t *r, const pl_error_t *failure, bool halt);
/* One of the things that the look waits for has ended. */
void pl_rounds_looked(pl_replica_t *r);

#endif
