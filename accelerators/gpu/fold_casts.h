/* fold_casts.h - casts of a lowered graph that need no kernel of their own */
#ifndef PL_GPU_FOLD_CASTS_H
#define PL_GPU_FOLD_CASTS_H

#include "tensor/graph.h"

/* Lets operations read and write the types that casts beside them bring, and drops those
 * casts.  What is rounded stays as it was, but for gradients of products: these go to
 * PL_REGION_GRADS as they are added up, and are not rounded in between; those of filters
 * only if no library may compute them, which makes halves of halves. */
int gpu_fold_casts(pl_graph_t *g, bool library_convolves, pl_error_t *err);

/* A region of the core's own: PL_REGION_PARAMS as halves, element for element, made when
 * parameters have changed and not in each replay. */
enum { GPU_REGION_LOW = PL_REGIONS, GPU_REGIONS };

/* Lets what reads parameters as halves of one type read GPU_REGION_LOW; *low: that type
 * [PL_F32: nothing does].  A plan that changes parameters stays as it is. */
int gpu_fold_param_casts(pl_graph_t *g, pl_dtype_t *low, pl_error_t *err);

#endif
