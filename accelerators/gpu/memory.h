/* memory.h - the device's memory: regions, blocks that all plans share, and two sets of
 * blocks that replays use in turn */
#ifndef PL_GPU_MEMORY_H
#define PL_GPU_MEMORY_H

#include "accelerators/gpu/gpu.h"
#include "accelerators/gpu/fold_casts.h"
#include "accelerators/gpu/codegen.h"

typedef struct gpu_block {
    pl_device_ptr_t address;
    size_t bytes;
} gpu_block_t;

typedef struct gpu_region {
    gpu_block_t block;                                   /* elements in their own width */
    size_t count;                                        /* elements */
    pl_dtype_t dtype;
    void *mirror;           /* borrowed memory of the host, which has the current elements
                               between replays  [NULL] */
    gpu_block_t floats;     /* of a mirrored region of halves: its elements as float32 */
    bool is_registered;     /* collectives use it */
} gpu_region_t;

/* Blocks of one set (codegen.h). */
typedef struct gpu_set {
    gpu_block_t steps, records;    /* halves: for the first slot, and for the second */
    gpu_block_t batch;
    pl_event_t *filled;            /* the step blocks and the batch are there */
    pl_event_t *left;              /* records of the newest replay are copied: the set may
                                      be filled again; borrowed  [NULL: it may already] */
} gpu_set_t;

/* A constant tensor, for all plans that read it. */
typedef struct gpu_tensor {
    pl_constant_tensor_t *of;                               /* counted */
    gpu_block_t block;
} gpu_tensor_t;

typedef struct pl_gpu_memory {
    gpu_region_t region[GPU_REGIONS];
    bool low_is_fresh;                        /* GPU_REGION_LOW equals the parameters */
    gpu_block_t arena, scratch, counters, control;  /* of all plans: they run one after
                                                       another */
    gpu_block_t grads_backup;                 /* gradients, while a skipped replay runs */
    gpu_set_t set[GPU_SETS];
    gpu_tensor_t *tensor;                                   /* [tensors] */
    int tensors, tensor_capacity;
    void *staging;                                      /* of the host, for conversions */
    size_t staging_bytes;
    unsigned generation;                                    /* grows when memory moves */
    size_t held;                                            /* bytes of all blocks */
} pl_gpu_memory_t;

enum { GPU_SKIP_NON_FINITE = 1, GPU_SKIP_EMPTY, GPU_WRONG_INDEX, GPU_NOT_FINITE };

int gpu_memory_open(pl_gpu_t *gpu, pl_error_t *err);
void gpu_memory_close(pl_gpu_t *gpu);

/* Frees the blocks of plans, when no plan is left. */
void gpu_memory_shrink(pl_gpu_t *gpu);

/* At least so many bytes, which are `zeroed` if they are new; a block loses its contents
 * when it grows, and when it cannot. */
int gpu_reserve(pl_gpu_t *gpu, gpu_block_t *block, size_t bytes, bool zeroed,
                const char *what, pl_error_t *err);
/* Waits until all streams have run their work. */
int gpu_drain(pl_gpu_t *gpu, pl_error_t *err);

/* Copies the constant tensors of a graph to the device, once each, and sets the index of
 * its values that are one. */
int gpu_tensors_put(pl_gpu_t *gpu, pl_graph_t *g, pl_error_t *err);

/* GPU_REGION_LOW, in halves of that type. */
int gpu_reserve_low(pl_gpu_t *gpu, pl_dtype_t dtype, pl_error_t *err);

/* From one field of a batch to the next, on the device and in batches of the engine. */
size_t gpu_aligned(size_t bytes);

bool gpu_is_half(pl_dtype_t dtype);
/* n halves as float32; both may lie in one place of 4 n bytes, the halves at its end. */
void gpu_to_floats(void *floats, const void *halves, size_t n, pl_dtype_t dtype);
/* The address of a buffer, for replays that use a slot; the buffers of a region must be
 * in it. */
pl_device_ptr_t gpu_address(const pl_gpu_t *gpu, const gpu_buffer_t *buffer, int slot);

#endif
