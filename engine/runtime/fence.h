/* fence.h - memory that ranks reduce, of the host or of a device, and fences that order
 * the work on a device
 *
 * Work on a stream of a device runs later.  An accelerator and a collective have
 * streams of their own and order their work by fences: one of them hands over a fence,
 * and the stream of the other joins it.  So the host never waits.  Any thread may call
 * these functions. */
#ifndef PL_RUNTIME_FENCE_H
#define PL_RUNTIME_FENCE_H

#include "base/counted.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_fence pl_fence_t;

typedef struct pl_fence_ops {
    /* Sets *passed: all of its work has run.  An error: the device failed. */
    int (*passed)(pl_fence_t *fence, bool *passed, pl_error_t *err);
    /* Work that is put on this stream of the same device from now on runs after it. */
    int (*join)(pl_fence_t *fence, void *stream, pl_error_t *err);
} pl_fence_ops_t;

/* The work on a stream up to a point.  NULL in place of a fence: that work has run. */
struct pl_fence {
    pl_object_t object;
    const pl_fence_ops_t *ops;
};

/* Operations of a device for other threads, while its accelerator is open. */
typedef struct pl_device_ops {
    /* Lets this thread call the vendor's libraries for the device. */
    int (*enter)(void *device, pl_error_t *err);
    /* A stream: the vendor's handle.  A freed stream still runs its work. */
    int (*stream_new)(void *device, void **stream, pl_error_t *err);
    void (*stream_free)(void *device, void *stream);
    /* A fence after all work on the stream; the caller owns a reference. */
    int (*fence_new)(void *device, void *stream, pl_fence_t **fence, pl_error_t *err);
    /* Compiles kernels and caches them as the device's own: the vendor's handle of the
     * module, which the caller frees  [NULL: the device is not there].  Any thread. */
    int (*module_new)(void *device, const char *text, void **module, pl_error_t *err);
} pl_device_ops_t;

/* Memory of a device.  The kind determines the types of addresses and streams: of
 * "cuda" they are CUdeviceptr and CUstream, of the primary context. */
typedef struct pl_device_memory {
    const char *kind;
    int ordinal;                               /* of the device  [-1: it has no number] */
    uint64_t address;                          /* of the first byte; a multiple of 256 */
    const pl_device_ops_t *ops;
    void *device;                                           /* the argument of ops */
} pl_device_memory_t;

/* A registered buffer: memory that ranks reduce, of a collective or of a device.  The
 * holder of a reference may read and write a range of it while no operation uses that
 * range; after an abort other ranks may still write to it.  Memory of a device belongs
 * to a region: it is valid until the region is allocated again or the device is
 * closed. */
typedef struct pl_reg_buffer {
    pl_object_t object;
    void *data;                                     /* [bytes], on a page boundary  [NULL:
                                                       memory of a device] */
    size_t bytes;
    uint32_t number;                               /* the same on all ranks; for memory of
                                                      a device register_buffer sets it */
    const pl_device_memory_t *device;              /* [memory of the host] */
} pl_reg_buffer_t;

#ifdef __cplusplus
}
#endif

#endif
