/* compile.h - a graph as kernels in texts, and the order in which a replay runs them */
#ifndef PL_GPU_COMPILE_H
#define PL_GPU_COMPILE_H

#include "accelerators/gpu/plan.h"

/* Fills in a plan, all but its code; *text: [*texts], the caller's. */
int gpu_compile(pl_gpu_t *gpu, pl_plan_t *plan, const pl_graph_t *g, gpu_string_t **text,
                int *texts, pl_error_t *err);

#endif
