/* gpu_ranks_parts.h - modules and a strategy for the tests of ranks on GPUs */
#ifndef T_GPU_RANKS_PARTS_H
#define T_GPU_RANKS_PARTS_H

#include "paceline.h"
#include "runtime/actor.h"

/* "pair": two objectives, the second with every other step; "zip": one has the weights of
 * the same sides, the other their biases; "wide": more parameters than fit one block;
 * "wide_zip": both. */
extern const pl_module_ops_t gpu_ranks_pair, gpu_ranks_zip, gpu_ranks_wide,
    gpu_ranks_wide_zip;

/* "spaced": a batch norm for which one sample is enough. */
extern const pl_module_ops_t gpu_ranks_spaced;

/* "reading": ddp whose code reads gradients. */
extern const pl_actor_ops_t gpu_ranks_reading;

#endif
