/* transfer.h - regions to the host while training goes on */
#ifndef PL_GPU_TRANSFER_H
#define PL_GPU_TRANSFER_H

#include "accelerators/gpu/memory.h"

void gpu_transfers_close(pl_gpu_t *gpu);

/* Calls done() of those that are over. */
void gpu_transfers_collect(pl_gpu_t *gpu);
/* Gives back what snapshots were kept in, where somebody else needs memory; false: there
 * was nothing. */
bool gpu_transfers_drop(pl_gpu_t *gpu);

#endif
