/* fence.h - memory that ranks reduce, of the host or of a device, and fences that order
 * the work on a device
 *
 * What is put on a stream of a device runs later.  An accelerator and a collective have
 * streams of their own, and order their work by fences: one of them hands over a fence,
 * and the other lets its stream join it.  So nothing waits on the host.  Any thread may
 * call these functions. */
#ifndef PL_RUNTIME_FENCE_H
#define PL_RUNTIME_FENCE_H

#include "base/counted.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_fence pl_fence_t;

typedef struct pl_fence_ops {
    /* PL_OK sets *passed: all of it has run.  An error: the device failed. */
    int (*passed)(pl_fence_t *fence, bool *passed, pl_error_t *err);
    /* What is put on this stream of the same device from now on runs behind it. */
    int (*join)(pl_fence_t *fence, void *stream, pl_error_t *err);
} pl_fence_ops_t;

/* All that was put on a stream up to a point.  NULL in place of a fence: it has run. */
struct pl_fence {
    pl_object_t object;
    const pl_fence_ops_t *ops;
};

/* What a device lets others do.  Its accelerator is open all the while. */
typedef struct pl_device_ops {
    /* This thread may call the vendor's libraries for the device from now on. */
    int (*enter)(void *device, pl_error_t *err);
    /* A stream: the vendor's handle.  Freed, it still runs what is on it. */
    int (*stream_new)(void *device, void **stream, pl_error_t *err);
    void (*stream_free)(void *device, void *stream);
    /* Of all that is on the stream; counted, the caller's. */
    int (*fence_new)(void *device, void *stream, pl_fence_t **fence, pl_error_t *err);
    /* Kernels of a text, compiled and kept as the device's own are: the vendor's handle
     * of the module, which the caller frees  [NULL: the device is not there].  Any
     * thread. */
    int (*module_new)(void *device, const char *text, void **module, pl_error_t *err);
} pl_device_ops_t;

/* Memory of a device.  The kind says what addresses and streams are: of "cuda" they are
 * CUdeviceptr and CUstream, of the primary context. */
typedef struct pl_device_memory {
    const char *kind;
    int ordinal;                               /* of the device  [-1: it has no number] */
    uint64_t address;                          /* of the first byte; a multiple of 256 */
    const pl_device_ops_t *ops;
    void *device;                                           /* for these */
} pl_device_memory_t;

/* A registered buffer: memory that ranks reduce, of a collective or of a device.  The
 * holder of a reference may read and write it while no operation on that part of it is
 * under way; after an abort other ranks may still write into it.  A device's is the
 * region's: it is there until the region is allocated again or the device is closed. */
typedef struct pl_reg_buffer {
    pl_object_t object;
    void *data;                                  /* [bytes], on a page boundary  [NULL: it
                                                    is a device's] */
    size_t bytes;
    uint32_t number;                               /* the same on all ranks; of a device's
                                                      memory register_buffer sets it */
    const pl_device_memory_t *device;              /* [it is the host's] */
} pl_reg_buffer_t;

#ifdef __cplusplus
}
#endif

#endif
