/* fence.h - fences of the core, and regions that are registered for users of the same
 * device */
#ifndef PL_GPU_FENCE_H
#define PL_GPU_FENCE_H

#include "accelerators/gpu/gpu.h"

/* Report what is on stream MAIN so far, by a fence: so many buckets of gradients, or all
 * of a replay. */
int gpu_fence_ready(pl_gpu_t *gpu, pl_replay_t *replay, int buckets, pl_error_t *err);
int gpu_fence_ordered(pl_gpu_t *gpu, pl_replay_t *replay, pl_error_t *err);
/* When nothing more is put on the device: fences that others still have fail. */
void gpu_fences_close(pl_gpu_t *gpu);

#endif
