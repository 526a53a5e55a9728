/* recompute.h - activation checkpointing: values that backward computes again
 *
 * Operations that pl_checkpoint() marks are repeated in backward, just before the
 * gradient of the last of them.  So the values between them need no memory from forward
 * to backward (Chen et al., "Training deep nets with sublinear memory cost", 2016). */
#ifndef PL_TENSOR_RECOMPUTE_H
#define PL_TENSOR_RECOMPUTE_H

#include "tensor/graph.h"

typedef struct pl_recompute {
    int32_t *in_backward;          /* [values] the value that gradients read in its place
                                      [NULL: nothing is computed again] */
    bool *is_kept;                 /* [values] forward's memory of it is used */
    bool *is_once;                 /* [operations] it cannot be repeated */
    int values, ops;               /* of the forward part */
} pl_recompute_t;

/* Prepares a graph that ends with its forward part; it may have no marked operation.  The
 * graph has failed if memory is out. */
void pl_recompute_init(pl_recompute_t *r, pl_graph_t *g);
void pl_recompute_release(pl_recompute_t *r);

/* Repeats the marked operations up to operation `last`, if it is the last of a scope. */
void pl_recompute_before(pl_recompute_t *r, pl_graph_t *g, int last);
/* Replaces the values of an operation by those that gradients read. */
void pl_recompute_values(const pl_recompute_t *r, pl_op_t *op);
/* After backward: takes back repetitions of which only a second result is read. */
void pl_recompute_finish(const pl_recompute_t *r, pl_graph_t *g);

#endif
