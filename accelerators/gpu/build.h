/* build.h - kernels of plans made from their texts, by threads in the background */
#ifndef PL_GPU_BUILD_H
#define PL_GPU_BUILD_H

#include "accelerators/gpu/plan.h"

int gpu_builder_open(pl_gpu_t *gpu, const pl_device_info_t *info, pl_error_t *err);
/* Waits for what is being compiled, and drops the rest. */
void gpu_builder_close(pl_gpu_t *gpu);

/* Compiles the texts of a plan, which become the builder's, and builds its layers.  With
 * a caller whose done() is called by gpu_build_collect(), or without: then it waits for
 * the end, and gives the plan.  That is another one where the library did not build a
 * layer: the graph was compiled again without it. */
int gpu_build(pl_gpu_t *gpu, pl_plan_t *plan, gpu_string_t *text, int texts,
              pl_plan_t **ready, pl_compiling_t *caller, pl_error_t *err);
/* Drops what has not begun, and interrupts the rest where its compiler can be. */
void gpu_build_stop(pl_gpu_t *gpu);
/* Reports to callers how far their plans are, and ends those that are ready. */
void gpu_build_collect(pl_gpu_t *gpu);

#endif
