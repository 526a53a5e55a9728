/* refine.h - casts of a lowered graph that need no kernel of their own */
#ifndef PL_GPU_REFINE_H
#define PL_GPU_REFINE_H

#include "tensor/graph.h"

/* Lets operations read and write the types that casts beside them bring, and drops those
 * casts.  What is rounded stays as it was, but for gradients of products: these go to
 * PL_REGION_GRADS as they are added up, and are not rounded in between. */
int gpu_refine(pl_graph_t *g, pl_error_t *err);

#endif
