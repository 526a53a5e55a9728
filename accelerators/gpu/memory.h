/* memory.h - the device's memory: regions, what all plans share, and conversions */
#ifndef PL_GPU_MEMORY_H
#define PL_GPU_MEMORY_H

#include "accelerators/gpu/gpu.h"
#include "accelerators/gpu/text.h"

typedef struct gpu_block {
    pl_address_t address;
    size_t bytes;
} gpu_block_t;

typedef struct pl_gpu_memory {
    gpu_block_t region[PL_REGIONS];
    size_t count[PL_REGIONS]; /* elements */
    pl_dtype_t dtype[PL_REGIONS];
    gpu_block_t arena, scratch, results, step, control; /* of all plans: one replay
                                                               runs at a time */
    gpu_block_t input[PL_FIELDS];                       /* the batch at hand */
    void *staging;                                      /* of the host, for what is
                                                               converted */
    size_t staging_bytes;
    unsigned generation; /* grows when memory moves */
} pl_gpu_memory_t;

/* What lies in the step's and the control's block: as dialect.h has it. */
typedef struct gpu_step {
    double scalar[PL_STEP_SCALARS];
    uint64_t seed;
    uint32_t step, shard;
} gpu_step_t;

typedef struct gpu_control {
    int32_t guarded, operation;
    int64_t index;
} gpu_control_t;

enum { GPU_GUARDED = 1, GPU_ENOUGH, GPU_WRONG_INDEX, GPU_NOT_FINITE };

int gpu_memory_open(pl_gpu_t *gpu, pl_error_t *err);
void gpu_memory_close(pl_gpu_t *gpu);

/* At least so many bytes; what was in it is lost when it grows. */
int gpu_reserve(pl_gpu_t *gpu, gpu_block_t *block, size_t bytes, const char *what,
                pl_error_t *err);
/* Host memory of at least so many bytes; NULL: out of memory. */
void *gpu_staging(pl_gpu_t *gpu, size_t bytes, pl_error_t *err);

/* The address of a spot; the places of a region must be in it. */
pl_address_t gpu_address(const pl_gpu_t *gpu, const gpu_spot_t *spot);

#endif
