/* fold_casts.h - casts of a lowered graph that need no kernel of their own */
#ifndef PL_GPU_FOLD_CASTS_H
#define PL_GPU_FOLD_CASTS_H

#include "tensor/graph.h"

/* Lets operations read the inputs of casts and make the outputs of casts, and drops
 * those casts.  Roundings do not change, except that gradients of products go to
 * PL_REGION_GRADS without a rounding in between.  For filters this holds only if no
 * library may compute them, because that makes halves from halves. */
int gpu_fold_casts(pl_graph_t *g, bool library_convolves, pl_error_t *err);

/* A region of the core: the elements of PL_REGION_PARAMS as halves, which are made when
 * parameters have changed and not in each replay. */
enum { GPU_REGION_LOW = PL_REGIONS, GPU_REGIONS };

/* Replaces casts of parameters to halves of one type by GPU_REGION_LOW; *low: that type
 * [PL_F32: none].  A plan that changes parameters stays as it is. */
int gpu_fold_param_casts(pl_graph_t *g, pl_dtype_t *low, pl_error_t *err);

#endif
