/* rewrite.h - the same results by less work */
#ifndef PL_PLAN_REWRITE_H
#define PL_PLAN_REWRITE_H

#include "tensor/graph.h"

/* A copy of the arrays of a graph, to be changed; pl_graph_copy_release() also after a
 * failure. */
int pl_graph_copy(pl_graph_t *copy, const pl_graph_t *g, pl_error_t *err);
void pl_graph_copy_release(pl_graph_t *copy);

/* Whether it computes in float64. */
bool pl_graph_is_float64(const pl_graph_t *g);

/* Rewrites a graph in place. */
void pl_rewrite(pl_graph_t *g);

#endif
