/* rewrite.h - rewrites graphs so that they need less work for the same results */
#ifndef PL_PLAN_REWRITE_H
#define PL_PLAN_REWRITE_H

#include "tensor/graph.h"

/* Copies a graph with its arrays, so that they can change; pl_graph_copy_release() also
 * after a failure. */
int pl_graph_copy(pl_graph_t *copy, const pl_graph_t *g, pl_error_t *err);
void pl_graph_copy_release(pl_graph_t *copy);

/* True if the graph computes in float64. */
bool pl_graph_is_float64(const pl_graph_t *g);

/* How often operations, fetches and weights of metrics read a value. */
int pl_graph_readers(const pl_graph_t *g, int32_t value);

/* Rewrites a graph in place. */
void pl_rewrite(pl_graph_t *g);

#endif
