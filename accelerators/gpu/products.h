/* products.h - which products of a graph the backend's library computes */
#ifndef PL_GPU_PRODUCTS_H
#define PL_GPU_PRODUCTS_H

#include "accelerators/gpu/plan.h"

/* Fills in plan->product, by the value that a product makes, t->scratch, and
 * plan->grads_backup if results of the library may lie in PL_REGION_GRADS.  The text has
 * graph and width; units are found later.  `buckets`: gradients are reported before the
 * replay is over. */
int gpu_products_find(pl_gpu_t *gpu, gpu_codegen_t *t, pl_plan_t *plan, bool buckets,
                      pl_error_t *err);
/* The result of the product that an operation becomes part of  [-1]: for
 * pl_unit_limits_t, with the plan. */
int32_t gpu_product_before(const pl_graph_t *g, int op, void *user);
/* After units are found: a product of the library loses the operations that are in
 * another unit. */
int gpu_products_limit(pl_gpu_t *gpu, gpu_codegen_t *t, pl_plan_t *plan, pl_error_t *err);
/* Whether the library makes a value, as a product or as a part of one. */
bool gpu_is_by_library(const pl_plan_t *plan, int32_t value);
/* After values are allocated: drops plan->grads_backup if no result of the library needs
 * it. */
void gpu_products_allocated(const gpu_codegen_t *t, pl_plan_t *plan);
/* Whether a library may use operands: they are aligned, and those that it writes lie in
 * the arena, or in memory that a skipped replay restores. */
bool gpu_library_may_use(const pl_plan_t *plan, const gpu_buffer_t *buffer, int count);
/* Adds the launch of a product; false: operation i needs a kernel of the core, because
 * the library does not compute it or may not use its operands. */
bool gpu_product_put(gpu_codegen_t *t, const pl_plan_t *plan, int i);
void gpu_products_free(pl_gpu_t *gpu, pl_plan_t *plan);

#endif
