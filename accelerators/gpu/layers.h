/* layers.h - attentions and convolutions that the backend's library computes */
#ifndef PL_GPU_LAYERS_H
#define PL_GPU_LAYERS_H

#include "accelerators/gpu/plan.h"

/* Fills in plan->layer, by operation, and plan->built.  `g` is the text's graph, whose
 * sums of attention become float32.  The text has graph, views and units. */
int gpu_layers_find(pl_gpu_t *gpu, const gpu_codegen_t *t, pl_graph_t *g, pl_plan_t *plan,
                    pl_error_t *err);
/* Adds the launch of a layer; false: operation i needs kernels of the core. */
bool gpu_layer_put(gpu_codegen_t *t, const pl_plan_t *plan, int i);
/* Whether a layer may write its result into a region. */
bool gpu_layer_may_lie(const pl_value_t *target);
/* After units are found: whether operation `op` is a layer, or a concat of its
 * outputs. */
bool gpu_is_by_layer(const gpu_codegen_t *t, const pl_plan_t *plan, int op);
void gpu_layers_free(pl_gpu_t *gpu, pl_plan_t *plan);

#endif
