/* products.h - which products of a graph the machine's library computes */
#ifndef PL_GPU_PRODUCTS_H
#define PL_GPU_PRODUCTS_H

#include "accelerators/gpu/plan.h"

/* Fills plan->product, by operation, plan->kept where results of a library may lie in
 * PL_REGION_GRADS, and t->scratch; the text knows graph, roots and width. */
int gpu_products_find(pl_gpu_t *gpu, gpu_text_t *t, pl_plan_t *plan, pl_error_t *err);
/* When the text knows places too: whether any result of a library lies there. */
void gpu_products_placed(const gpu_text_t *t, pl_plan_t *plan);
/* Adds the launch of one; false: operation i is to be a kernel, because the library does
 * not compute it or its operands do not lie as the library needs them. */
bool gpu_product_put(gpu_text_t *t, const pl_plan_t *plan, int i);
void gpu_products_free(pl_gpu_t *gpu, pl_plan_t *plan);

#endif
