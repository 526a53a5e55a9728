/* reference.h - computes a graph by plain loops in float64, to which all kernels are
 * compared */
#ifndef PL_REFERENCE_H
#define PL_REFERENCE_H

#include "accelerators/accelerator.h"
#include "tensor/graph.h"
#include "tensor/memory_plan.h"

/* The accelerator name of the float64 kernels of users' operators. */
#define PL_REFERENCE "reference"

/* One replay.  The caller owns all memory; indices and integer values are whole
 * numbers in doubles. */
typedef struct pl_reference_replay {
    double *region[PL_REGIONS];               /* regions of the graph; assigns change
                                                 them */
    const void *input[PL_FIELDS];             /* [batch, …] each, in the field's type */
    double scalar[PL_STEP_SCALARS];
    uint64_t seed, step, micro_batch;
    double (*metrics)[2];          /* out: the sums of all metrics in order of fetch; of
                                      a pair sum and weight  [not fetched] */
    double *output[PL_FIELDS];     /* out: output fetches in their order  [not fetched] */
    bool skipped;                  /* out: a guard was not finite; the operators after
                                      it did not run */
    int collective;                /* out: see pl_replay_t; 0: the replay is complete */
} pl_reference_replay_t;

/* A replay that waits at a collective. */
typedef struct pl_reference_run pl_reference_run_t;

/* Runs the operations of g in their order; collectives do not wait for other ranks.
 * PL_EUNSUPPORTED names an operator without a reference kernel. */
int pl_reference_replay(const pl_graph_t *g, pl_reference_replay_t *replay,
                        pl_error_t *err);

/* Runs up to the next collective and sets *run; the next call continues from there.  *run
 * is NULL before the first part, and after the last part or a failed one. */
int pl_reference_replay_part(const pl_graph_t *g, pl_reference_replay_t *replay,
                             pl_reference_run_t **run, pl_error_t *err);
void pl_reference_drop(pl_reference_run_t *run);            /* NULL is fine */

/* PL_EUNSUPPORTED names an operator without a reference kernel. */
int pl_reference_check(const pl_graph_t *g, pl_error_t *err);

/* pl_reference_replay() with values at the offsets of a memory plan, to find plans in
 * which a value overwrites another: an arena of doubles, each for two bytes of the
 * plan. */
int pl_reference_replay_planned(const pl_graph_t *g, const pl_memory_plan_t *plan,
                                pl_reference_replay_t *replay, pl_error_t *err);

/* Rounds numbers to half precision if dtype is one. */
void pl_reference_round(pl_dtype_t dtype, double *x, int64_t n);

/* Converts n doubles to elements of a type, and elements to doubles. */
void pl_reference_store(pl_dtype_t dtype, const double *from, int64_t n, void *to);
void pl_reference_load(pl_dtype_t dtype, const void *from, int64_t n, double *to);

#endif
