/* loops.h - the loop actors, and what they share
 *
 * Each takes the pl_job_t as the context of `start`, and these addresses: fit: "data",
 * "epoch", "evaluate", "callback", "logger", "checkpoint", "strategy"; epoch: "evaluate",
 * "data", "callback", "logger", "strategy"; evaluate, predict and tuners: "data",
 * "strategy"; measure: "evaluate"; generate: "strategy"; own: "checkpoint", "logger",
 * "strategy".  A fit without validation data has no "evaluate".  The `start` options of
 * generate are the data info of the weights. */
#ifndef PL_LOOPS_H
#define PL_LOOPS_H

#include <jansson.h>

#include "runtime/payload.h"

extern const pl_actor_ops_t pl_fit_loop, pl_epoch_loop, pl_evaluate_loop, pl_measure_loop,
    pl_predict_loop, pl_generate_loop, pl_manual_loop, pl_tuner, pl_batch_size_finder;

/* The batches that the generate loop gives the module, from the data info of the weights;
 * counted once. */
pl_batch_signature_t *pl_generate_signature(const char *data_info, bool caches,
                                            pl_error_t *err);

/* ---- a loop's open call ---- */

/* Fails the call [NULL: nothing to do] and forgets it. */
void pl_loop_fail(pl_call_t **call_p, const pl_error_t *error);
/* True unless the answer is a reply and the loop's call is open.  An error fails the
 * loop's call. */
bool pl_loop_no_reply(pl_call_t **call_p, const pl_answer_t *answer);

/* For calls whose failure is no error. */
void pl_loop_ignore(void *self, const pl_answer_t *answer);

/* ---- decisions of rank 0 ---- */

/* All ranks get the messages of rank 0, in the answer of `decide`; a single rank gets its
 * own at once.  Returns 0 with an error. */
uint64_t pl_loop_agree(void *self, pl_address_t coordinator, const pl_decide_t *msg,
                       pl_how_t how, pl_error_t *err);

/* The one message of a decision. */
typedef struct pl_decision {
    pl_message_t message;
    bool is_reply;                                          /* a reply, not a call */
    const void *fields;                                     /* [NULL: no message] */
    bool announced;                                         /* as in `decide` */
} pl_decision_t;

/* The same with one message, or none. */
uint64_t pl_loop_decide(void *self, pl_address_t coordinator,
                        const pl_decision_t *decision, pl_how_t how, pl_error_t *err);
/* Reads that message of rank 0, a call or a reply.  PL_EPROTOCOL: rank 0 sent another. */
int pl_loop_decided(const pl_decide_reply_t *reply, pl_message_t message, bool is_reply,
                    pl_body_t *body, pl_error_t *err);


/* ---- progress, counted like Lightning's progress trackers ---- */

/* Epochs, batches or optimizer steps of the whole run, before and after a resume. */
typedef struct pl_tracker {
    uint64_t ready;                         /* could begin: a batch has been fetched */
    uint64_t started;                       /* were sent on */
    uint64_t processed;                     /* have come back */
    uint64_t completed;                     /* and what follows them is over: a checkpoint
                                               has their result */
} pl_tracker_t;

/* A JSON object of the four; NULL without memory. */
json_t *pl_tracker_save(const pl_tracker_t *counts);
/* What was in flight begins again: all four are the number of completed ones. */
void pl_tracker_load(pl_tracker_t *counts, const json_t *kept);

/* A number by its bits: JSON has no word for numbers that are not finite, and all bits
 * must come back. */
json_t *pl_number_save(double value);
double pl_number_load(const json_t *kept);

#endif
