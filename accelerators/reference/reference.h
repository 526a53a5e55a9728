/* reference.h - a graph computed by plain loops in float64: what every kernel is held
 * to */
#ifndef PL_REFERENCE_H
#define PL_REFERENCE_H

#include "accelerators/accelerator.h"
#include "tensor/graph.h"
#include "tensor/memory_plan.h"

/* The name under which users' operators bring their kernels for float64. */
#define PL_REFERENCE "reference"

/* One replay.  Everything is the caller's; indices and integer values are doubles that
 * hold whole numbers. */
typedef struct pl_reference_replay {
    double *region[PL_REGIONS];              /* those that the graph refers to; changed by
                                                assigns */
    const void *input[PL_FIELDS];            /* [batch, …] each, as the field says */
    double scalar[PL_STEP_SCALARS];
    uint64_t seed, step, micro_batch;
    double (*metrics)[2];           /* out: the sums of all metrics in order of fetch; of
                                       a pair sum and weight  [not wanted] */
    double *output[PL_FIELDS];      /* out: output fetches in their order  [not wanted] */
    bool skipped;                   /* out: a guard was not finite, the rest did not
                                       happen */
    int collective;                 /* out: see pl_replay_t; 0 where nothing waits */
} pl_reference_replay_t;

/* A replay that waits at a collective. */
typedef struct pl_reference_run pl_reference_run_t;

/* Runs the operations of g in their order, where no collective waits for other ranks.
 * PL_EUNSUPPORTED names an operator without a reference kernel. */
int pl_reference_replay(const pl_graph_t *g, pl_reference_replay_t *replay,
                        pl_error_t *err);

/* The same up to a collective, where *run is left, and from there on; *run is NULL before
 * the first part and behind the last, or one that fails. */
int pl_reference_replay_part(const pl_graph_t *g, pl_reference_replay_t *replay,
                             pl_reference_run_t **run, pl_error_t *err);
void pl_reference_drop(pl_reference_run_t *run);            /* NULL is fine */

/* PL_OK, or PL_EUNSUPPORTED names what pl_reference_replay() would lack. */
int pl_reference_check(const pl_graph_t *g, pl_error_t *err);

/* The same with values where a plan puts them, so that a plan that lets one overwrite
 * another shows: an arena of doubles, two bytes of the plan each. */
int pl_reference_replay_planned(const pl_graph_t *g, const pl_memory_plan_t *plan,
                                pl_reference_replay_t *replay, pl_error_t *err);

/* A value in half precision becomes what that can hold. */
void pl_reference_round(pl_dtype_t dtype, double *x, int64_t n);

/* Writes n doubles as elements of a type, and the other way. */
void pl_reference_store(pl_dtype_t dtype, const double *from, int64_t n, void *to);
void pl_reference_load(pl_dtype_t dtype, const void *from, int64_t n, double *to);

#endif
