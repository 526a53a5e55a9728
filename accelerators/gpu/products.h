/* products.h - which products of a graph the backend's library computes */
#ifndef PL_GPU_PRODUCTS_H
#define PL_GPU_PRODUCTS_H

#include "accelerators/gpu/plan.h"

/* Fills plan->product, by the value that a product makes, plan->grads_backup where
 * results of the library may lie in PL_REGION_GRADS, and t->scratch; the text knows
 * graph and width, and operations are not in units yet.  Gradients may leave before
 * the replay is over. */
int gpu_products_find(pl_gpu_t *gpu, gpu_codegen_t *t, pl_plan_t *plan, bool leave,
                      pl_error_t *err);
/* The result of the product in whose unit an operation is to run  [-1]: for
 * pl_unit_limits_t, with the plan. */
int32_t gpu_product_before(const pl_graph_t *g, int op, void *user);
/* When operations are in units: the library does nothing for those that are in another
 * unit than its product. */
int gpu_products_limit(pl_gpu_t *gpu, gpu_codegen_t *t, pl_plan_t *plan, pl_error_t *err);
/* Whether the library makes it, in a product or behind one. */
bool gpu_is_by_library(const pl_plan_t *plan, int32_t value);
/* When the text knows buffers, too: which are results of the library. */
void gpu_products_allocated(const gpu_codegen_t *t, pl_plan_t *plan);
/* Whether operands lie as a library needs them: aligned, and what it writes in the arena,
 * or where a skipped replay puts it back. */
bool gpu_library_may_use(const pl_plan_t *plan, const gpu_buffer_t *buffer, int count);
/* Adds the launch of one; false: operation i is to be a kernel, because the library does
 * not compute it or its operands do not lie as the library needs them. */
bool gpu_product_put(gpu_codegen_t *t, const pl_plan_t *plan, int i);
void gpu_products_free(pl_gpu_t *gpu, pl_plan_t *plan);

#endif
