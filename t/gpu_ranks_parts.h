/* gpu_ranks_parts.h - modules and a strategy for the tests of ranks on GPUs */
#ifndef T_GPU_RANKS_PARTS_H
#define T_GPU_RANKS_PARTS_H

#include "paceline.h"
#include "runtime/actor.h"

/* "pair": two objectives; "spaced": a batch norm for which one sample is enough. */
extern const pl_module_ops_t gpu_ranks_pair, gpu_ranks_spaced;

/* "reading": ddp whose code reads gradients. */
extern const pl_actor_ops_t gpu_ranks_reading;

#endif
