/* manual_loop.h - what the files of manual loops share */
#ifndef PL_API_MANUAL_LOOP_H
#define PL_API_MANUAL_LOOP_H

#include "paceline.h"
#include "runtime/payload.h"

/* ---- manual_job.c ---- */

enum { PL_LOOP_DEPTH = 8, PL_LOOP_DEPTH_MAX = 60 };

int pl_loop_spec_check(const pl_loop_spec_t *spec, pl_error_t *err);
/* A stage that the signature does not have is compiled for its first batch. */
pl_job_t *pl_loop_job(const pl_options_t *options, const pl_loop_spec_t *spec,
                      pl_error_t *err);

/* The samples of a batch of one rank at most. */
int64_t pl_loop_rows(const pl_job_t *job);
/* Copies the samples of each of the fields [count]. */
int pl_loop_batch_fill(const pl_field_t *fields, int count, const pl_arrays_t *samples,
                       pl_batch_t *batch, pl_error_t *err);

/* ---- manual_exchange.c: numbers that the programs of all ranks exchange ---- */

/* Floating point numbers are added by the strategy, in the order of the tree. For other
 * reductions, which are exact in any order, it gathers numbers, and this program
 * reduces them (folds). */
typedef struct pl_loop_exchange {
    pl_exchange_t msg;
    char what[128];
    void *data;                                   /* to be sent; then what was received */
    size_t bytes;
    pl_loop_reduction_t reduction;
    bool folds;
    int64_t count;                                          /* elements of this rank */
} pl_loop_exchange_t;

void pl_loop_exchange_free(pl_loop_exchange_t *x);
int pl_loop_exchange_receive(pl_loop_exchange_t *x, pl_bytes_t data, pl_error_t *err);
/* What was received becomes `data` and `data_count` of the result. */
void pl_loop_exchange_finish(pl_loop_exchange_t *x, int ranks, pl_loop_result_t *result);

/* ---- manual_loop.c ---- */

/* Whether the loop takes a call now; else why not. */
int pl_loop_is_ready(const pl_loop_t *loop, pl_error_t *err);
/* Those of its module  [NULL: it has one, without a name]. */
const pl_module_objective_t *pl_loop_objectives(const pl_loop_t *loop);
/* Sends a batch; objective: 1 + the index of the one that is computed without a step  [0:
 * a whole step].  samples [the step of that objective]. */
int pl_loop_send_batch(pl_loop_t *loop, pl_stage_t stage, int objective,
                       const pl_arrays_t *samples, pl_on_loop_t then, void *user,
                       pl_error_t *err);
/* Reads the gradients of an objective (1 + index), or sets them, and consumes what it
 * sets, also on failure. */
int pl_loop_send_gradients(pl_loop_t *loop, int objective, pl_weights_t *set,
                           pl_on_loop_t then, void *user, pl_error_t *err);

/* Sends an exchange, and consumes it, also on failure. */
int pl_loop_send_exchange(pl_loop_t *loop, pl_loop_exchange_t *x, pl_on_loop_t then,
                          void *user, pl_error_t *err);

#endif
