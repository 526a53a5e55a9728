/* reference.h - a graph computed by plain loops in float64: what every kernel is held
 * to */
#ifndef T_REFERENCE_H
#define T_REFERENCE_H

#include "accelerators/accelerator.h"
#include "tensor/graph.h"
#include "tensor/lifetimes.h"

/* One replay.  Everything is the caller's; indices and integer values are doubles that
 * hold whole numbers. */
typedef struct reference_replay {
    double *region[PL_REGIONS];              /* those that the graph refers to; changed by
                                                assigns */
    const void *input[PL_FIELDS];            /* [batch, …] each, as the field says */
    double scalar[PL_STEP_SCALARS];
    uint64_t seed, step, shard;
    double (*figures)[2];           /* out: the sums of all figures in order of fetch; of
                                       a pair sum and weight  [not wanted] */
    double *output[PL_FIELDS];      /* out: output fetches in their order  [not wanted] */
    bool guarded;                   /* out: a guard was not finite, the rest did not
                                       happen */
} reference_replay_t;

/* Runs the operations of g in their order.  PL_EUNSUPPORTED names an operator without
 * a reference kernel. */
int reference_replay(const pl_graph_t *g, reference_replay_t *replay, pl_error_t *err);

/* The same with values where a plan puts them, so that a plan that lets one overwrite
 * another shows: an arena of doubles, two bytes of the plan each. */
int reference_replay_planned(const pl_graph_t *g, const pl_lifetimes_t *plan,
                             reference_replay_t *replay, pl_error_t *err);

/* Writes n doubles as elements of a type, and the other way. */
void reference_store(pl_dtype_t dtype, const double *from, int64_t n, void *to);
void reference_load(pl_dtype_t dtype, const void *from, int64_t n, double *to);

#endif
