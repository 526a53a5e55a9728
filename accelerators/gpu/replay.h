/* replay.h - replays of plans: put on the device's streams, and collected when they are
 * over */
#ifndef PL_GPU_REPLAY_H
#define PL_GPU_REPLAY_H

#include "accelerators/gpu/plan.h"

int gpu_replays_open(pl_gpu_t *gpu, pl_error_t *err);
void gpu_replays_close(pl_gpu_t *gpu);

/* See pl_accelerator_ops_t. */
int gpu_replay(pl_gpu_t *gpu, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err);
void gpu_collect(pl_gpu_t *gpu);
/* No replay waits at a collective of this plan any more. */
void gpu_replays_forget(pl_gpu_t *gpu, const pl_plan_t *plan);
/* Whether one waits at a collective: what it has computed so far must stay. */
bool gpu_replay_waits(const pl_gpu_t *gpu);
/* Frees the host memory of replays that are over. */
void gpu_replays_shrink(pl_gpu_t *gpu);

#endif
