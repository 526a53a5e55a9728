/* plan.h - a graph compiled into launches of kernels, and its replay */
#ifndef PL_GPU_PLAN_H
#define PL_GPU_PLAN_H

#include "accelerators/gpu/gpu.h"

/* Compiles a graph for a device, which keeps the plan in its list.  PL_EUNSUPPORTED names
 * an operator and its path. */
int gpu_plan_new(pl_gpu_t *gpu, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err);
/* Takes the plan out of the device's list, too. */
void gpu_plan_free(pl_gpu_t *gpu, pl_plan_t *plan);

/* Runs all launches and waits for them; fills in what the replay asks for. */
int gpu_plan_run(pl_gpu_t *gpu, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err);

#endif
