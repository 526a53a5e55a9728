/* precision.h - the number formats of graphs, and the pass that inserts casts
 *
 * A graph is described in float32, backward included.  Then pl_graph_cast() gives
 * every value the format that the precision column of operators.def requires, and
 * inserts a cast where the input of an operator has another format.  Accelerators read
 * only the result: values of type low, wide, or an index. */
#ifndef PL_TENSOR_PRECISION_H
#define PL_TENSOR_PRECISION_H

#include "tensor/graph.h"

extern const pl_precision_ops_t pl_precision_32_true;

/* All precisions, for pl_register(). */
extern const pl_registration_t pl_precision_components[];

/* Whether the optimizer keeps the parameters in a wider type, in PL_REGION_MASTER. */
bool pl_has_master(const pl_precision_ops_t *precision);

/* The type of a region's elements. */
pl_dtype_t pl_region_dtype(const pl_precision_ops_t *precision, pl_region_t region);

/* Gives a finished graph its number formats.  Of the operators
 *   - class low takes and gives `low`;
 *   - class float32 takes and gives `wide`;
 *   - class promote takes and gives the widest of its inputs; constants and the scalars
 *     of a step do not count and are not cast.
 * An output that an operator keeps for its own gradient, such as a row's mean, is
 * wide.  An assigned value gets its target's type; a fetched tensor is float32.  A
 * graph without a model, such as an optimizer's, computes nothing in `low`. */
int pl_graph_cast(pl_graph_t *g, const pl_precision_ops_t *precision, pl_error_t *err);
/* Checks and casts a graph that is described completely. Frees it on failure. */
pl_graph_t *pl_graph_finish(pl_graph_t *g, const pl_precision_ops_t *precision,
                            pl_error_t *err);

#endif
