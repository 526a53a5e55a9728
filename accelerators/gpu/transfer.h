/* transfer.h - reads of regions during training, and pinned memory of the host */
#ifndef PL_GPU_TRANSFER_H
#define PL_GPU_TRANSFER_H

#include "accelerators/gpu/memory.h"

void gpu_transfers_close(pl_gpu_t *gpu);

/* Calls done() of the reads that are over. */
void gpu_transfers_collect(pl_gpu_t *gpu);
/* Frees the memory of unused snapshots; false if there is none. */
bool gpu_transfers_drop(pl_gpu_t *gpu);

typedef struct pl_gpu_pin {
    const char *host;
    size_t bytes;
} gpu_pin_t;

/* Host memory that the device copies at full speed. */
void *gpu_pinned_new(pl_gpu_t *gpu, size_t bytes, pl_error_t *err);
void gpu_pinned_free(pl_gpu_t *gpu, void *host);
/* Whether the memory is pinned, so that the device copies it at full speed. */
bool gpu_is_pinned(const pl_gpu_t *gpu, const void *host, size_t bytes);

#endif
