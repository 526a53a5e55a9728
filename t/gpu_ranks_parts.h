/* gpu_ranks_parts.h - modules, a strategy and an accelerator for the tests of ranks on
 * GPUs */
#ifndef T_GPU_RANKS_PARTS_H
#define T_GPU_RANKS_PARTS_H

#include "accelerators/accelerator.h"
#include "paceline.h"
#include "runtime/actor.h"

/* "pair": two objectives, the second with every other step; "zip": one has the weights of
 * the same sides, the other their biases; "wide": so many parameters that blocks are of
 * more than a cache line; "wide_zip": both. */
extern const pl_module_ops_t gpu_ranks_pair, gpu_ranks_zip, gpu_ranks_wide,
    gpu_ranks_wide_zip;

/* "spaced": a batch norm for which one sample is enough. */
extern const pl_module_ops_t gpu_ranks_spaced;

/* "reading": ddp whose code reads gradients. */
extern const pl_actor_ops_t gpu_ranks_reading;

/* "uneven": an emulated GPU.  Rank 0 receives the end of an update before its next batch
 * is in order; other ranks receive the end of a skipped one after that.  Made before it
 * is registered. */
extern pl_accelerator_ops_t gpu_ranks_uneven;
void gpu_ranks_uneven_make(void);
/* Batches of other ranks that were in order before the update was reported; the reader
 * resets it.  Atomic. */
extern int gpu_ranks_late;

#endif
