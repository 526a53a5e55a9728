/* build.h - threads that compile the texts of plans and build the layers of a library */
#ifndef PL_GPU_BUILD_H
#define PL_GPU_BUILD_H

#include "accelerators/gpu/plan.h"

int gpu_builder_open(pl_gpu_t *gpu, const pl_device_info_t *info, pl_error_t *err);
/* Waits for the jobs that have begun, and drops the rest. */
void gpu_builder_close(pl_gpu_t *gpu);

/* Compiles the texts of a plan and builds its layers; takes ownership of the texts.  With
 * a caller, gpu_build_collect() calls its done() at the end; without, the function waits
 * for the end and sets *ready.  That is another plan if the library refused a layer: the
 * graph was compiled again without it. */
int gpu_build(pl_gpu_t *gpu, pl_plan_t *plan, gpu_string_t *text, int texts,
              pl_plan_t **ready, pl_compiling_t *caller, pl_error_t *err);
/* Reports progress to the callers of plans, and ends the plans that are ready. */
void gpu_build_collect(pl_gpu_t *gpu);

#endif
