/* emulate.h - half precision on a processor that has none */
#ifndef PL_CPU_EMULATE_H
#define PL_CPU_EMULATE_H

#include "tensor/graph.h"

/* Whether an element of that type is kept as float32 that holds what the type can. */
bool pl_is_emulated(pl_dtype_t dtype);

/* Rewrites a graph in place to one whose numbers are float32: a cast to half precision
 * stays as a rounding, one stands behind every operator that computes in it, and casts
 * back vanish. */
int pl_emulate(pl_graph_t *g, pl_error_t *err);

#endif
