/* fence.h - fences of the core, and regions that are registered for users of the same
 * device */
#ifndef PL_GPU_FENCE_H
#define PL_GPU_FENCE_H

#include "accelerators/gpu/gpu.h"

/* A fence after the work that is on stream MAIN so far. */
int gpu_fence_main(pl_gpu_t *gpu, pl_fence_t **fence, pl_error_t *err);
/* After the last work of the device.  Fences that still have references fail from then
 * on. */
void gpu_fences_close(pl_gpu_t *gpu);

#endif
