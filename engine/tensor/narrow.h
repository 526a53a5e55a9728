/* narrow.h - operations compute only the slice of their result that is read */
#ifndef PL_TENSOR_NARROW_H
#define PL_TENSOR_NARROW_H

#include "tensor/graph.h"

/* Rewrites a graph that is described, before its gradients: results and gradients are the
 * same, but for the order of sums.  Without memory the graph stays, or has failed. */
void pl_graph_narrow(pl_graph_t *g);

#endif
