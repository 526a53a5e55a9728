/* pass.h - a pass over a stage's data: what the figures are called, its batches, fetched
 * and sent on
 *
 * What all loops over batches share.  A pl_pass_t is the first member of the loop's own
 * struct, so that it makes calls in the loop's name; what a batch is used for, where the
 * loop halts and how it ends are the loop's. */
#ifndef PL_LOOPS_PASS_H
#define PL_LOOPS_PASS_H

#include "actors/loops/counts.h"
#include "actors/loops/pace.h"
#include "actors/loops/patience.h"
#include "base/run.h"
#include "runtime/cargo.h"

typedef struct pl_pass pl_pass_t;

typedef struct pl_pass_ops {
    void (*on_names)(pl_pass_t *pass, const char *names);   /* of the stage's figures */
    /* The data have `there` batches: how many of them the pass has; a failure goes into
     * pass->failure. */
    uint32_t (*on_begun)(pl_pass_t *pass, uint32_t there);
    bool (*may_fetch)(const pl_pass_t *pass);               /* the next batch  [always] */
    /* A batch came: call for what is to be done with it.  0: pass->failure says why, or
     * it is passed over. */
    uint64_t (*send)(pl_pass_t *pass, const pl_fetch_batch_reply_t *batch);
    void (*rest)(pl_pass_t *pass);              /* all that was fetched has come back, and
                                                   the loop does not halt */
    void (*fail)(pl_pass_t *pass);              /* answer the call with
                                                   pass->failure */
    /* What has not ended, for errors: "batch 3 of the prediction". */
    void (*what)(const pl_pass_t *pass, char text[160]);
} pl_pass_ops_t;

struct pl_pass {
    const pl_pass_ops_t *ops;
    const pl_trainer_options_t *options;         /* of the job that it was started with */
    pl_address_t data, strategy;
    pl_address_t agreement;                 /* whom ranks agree through  [there is one] */

    /* Filled in by the loop before pl_pass_begin(). */
    pl_stage_t stage;
    uint32_t loader;                                       /* which source of the stage */
    uint32_t epoch;
    uint32_t first;                             /* batch at which it begins */
    bool again;                                 /* the next epoch's is likely to follow */

    pl_call_t *call;                               /* that the pass answers; NULL: idle */
    bool known;                                    /* the figures' names */
    uint32_t loaders;                              /* that the stage has */
    uint32_t batches, fetched, done;
    pl_counts_t counts;                 /* of batches, over all passes; `completed` is the
                                           loop's to count */
    int pending;                        /* calls under way, */
    int fetching, sent;                 /* among them batches that are fetched; that were
                                           sent on */
    int64_t waits_since;                /* pl_now() since when there are only the former
                                           [0: no] */
    int64_t waited;                     /* ns, for the batch that is to be sent */
    uint32_t halts_at;                  /* so many fetched, all ranks are to agree [0: no
                                           rank wants to] */
    bool halted;                        /* the loop waits for something else: nothing
                                           is fetched */
    pl_error_t failure;
    pl_pace_t pace;
    pl_patience_t patience;                               /* with the next batch to end */
};

/* For the handler of `start`, whose context is the job. */
void pl_pass_init(pl_pass_t *pass, const pl_pass_ops_t *ops, const pl_body_t *start);

/* PL_EBUSY while one is under way. */
int pl_pass_is_idle(const pl_pass_t *pass, pl_error_t *err);
/* Takes the call and begins. */
void pl_pass_begin(pl_pass_t *pass, pl_call_t *call);

/* Takes another call after one that was answered on the way, and goes on. */
void pl_pass_resume(pl_pass_t *pass, pl_call_t *call);

/* After anything that may let it go on. After a failure nothing new is sent, and what is
 * under way comes back first. */
void pl_pass_go_on(pl_pass_t *pass);

/* Takes an answer that is no reply: an error becomes the pass's.  False: it is a reply,
 * and the next call may be made in its place, or pass->pending is one less. */
bool pl_pass_no_reply(pl_pass_t *pass, const pl_answer_t *answer);

/* A batch has come back; halt: as its reply said. */
void pl_pass_batch_done(pl_pass_t *pass, bool halt);
/* All ranks are to agree here: no rank has fetched more. */
bool pl_pass_halts(const pl_pass_t *pass);
/* This rank wants them to.  Fine of the only one: nobody is told. */
void pl_pass_announce(pl_pass_t *pass);

/* The call, which is to be answered at once. */
pl_call_t *pl_pass_call(pl_pass_t *pass);

#endif
