/* gpu.h - the core of the GPU accelerators: graphs as kernels, for any backend
 *
 * An accelerator of this kind is a struct that begins with a pl_gpu_t, a table of its
 * backend (backend.h), and this table of its own:
 *
 *     static int open(void *self, pl_device_info_t *info, pl_error_t *err)
 *     {
 *         return pl_gpu_open(self, &backend, info, err);
 *     }
 *     const pl_accelerator_ops_t accelerator = {
 *         .name = "…", .size = sizeof(own_t), .open = open, PL_GPU_OPS};
 */
#ifndef PL_GPU_GPU_H
#define PL_GPU_GPU_H

#include "accelerators/gpu/backend.h"

enum { PL_GPU_LOGGED = 16 };

/* Zeros until it is opened. */
typedef struct pl_gpu {
    const pl_gpu_backend_ops_t *backend;
    struct pl_gpu_memory *memory;            /* memory.h */
    struct pl_gpu_replays *replays;          /* replay.h */
    struct pl_gpu_transfers *transfers;      /* transfer.h  [NULL: none yet] */
    struct pl_gpu_builder *builder;          /* build.h */
    struct pl_gpu_fences *fences;            /* fence.h */
    bool stops;                              /* atomic: nothing is compiled any more */
    bool checks;                             /* verifies each plan: check.c */
    double short_replay;                     /* s: less is short (replay.c)  [0: 1 ms] */
    pl_plan_t *plans;                        /* all, for close */
    struct pl_gpu_pin *pin;                  /* [pins] of the host's memory: transfer.h */
    int pins, pin_capacity;
    bool logs;                                 /* this rank writes to the log */
    int ordinal;                               /* of the device  [-1: it has no number] */
    const pl_operator_ops_t *logged[PL_GPU_LOGGED];  /* that the host computes */
} pl_gpu_t;

#define PL_GPU_OPS \
    .close = pl_gpu_close, .region = pl_gpu_region, .borrow = pl_gpu_borrow, \
    .write = pl_gpu_write, .read = pl_gpu_read, .read_later = pl_gpu_read_later, \
    .pin = pl_gpu_pin, .unpin = pl_gpu_unpin, .compile = pl_gpu_compile, \
    .compile_later = pl_gpu_compile_later, .compile_stop = pl_gpu_compile_stop, \
    .discard = pl_gpu_discard, .describe = pl_gpu_describe, .cache = pl_gpu_cache, \
    .held = pl_gpu_held, .replay = pl_gpu_replay, .descriptor = pl_gpu_descriptor, \
    .collect = pl_gpu_collect

/* For a backend whose memory collectives may use; it also sets .memory_kind, the name of
 * the backend. */
#define PL_GPU_REGISTERS .register_region = pl_gpu_register_region, .join = pl_gpu_join

/* Whether compilation is to stop.  A compiler that can be interrupted polls it, on any
 * thread. */
PL_API bool pl_gpu_stops(const void *self);

PL_API int pl_gpu_open(void *self, const pl_gpu_backend_ops_t *backend,
                       pl_device_info_t *info, pl_error_t *err);

/* See pl_accelerator_ops_t.  A borrowed region has a copy in the device's memory,
 * which is copied from the host before each replay and to the host after it. */
PL_API void pl_gpu_close(void *self);
PL_API int pl_gpu_region(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                         pl_error_t *err);
PL_API int pl_gpu_borrow(void *self, pl_region_t region, pl_dtype_t dtype, size_t n,
                         void *host, pl_error_t *err);
PL_API int pl_gpu_register_region(void *self, pl_region_t region,
                                  pl_reg_buffer_t **buffer, pl_error_t *err);
PL_API int pl_gpu_join(void *self, pl_fence_t *fence, pl_error_t *err);
PL_API int pl_gpu_write(void *self, pl_region_t region, size_t offset, const void *host,
                        size_t n, pl_error_t *err);
PL_API int pl_gpu_read(void *self, pl_region_t region, size_t offset, void *host,
                       size_t n, pl_error_t *err);
PL_API int pl_gpu_read_later(void *self, pl_transfer_t *t, pl_error_t *err);
PL_API int pl_gpu_pin(void *self, void *host, size_t bytes, pl_error_t *err);
PL_API void pl_gpu_unpin(void *self, void *host);
PL_API int pl_gpu_compile(void *self, const pl_graph_t *g, pl_plan_t **plan,
                          pl_error_t *err);
PL_API int pl_gpu_compile_later(void *self, const pl_graph_t *g, pl_compiling_t *c,
                                pl_error_t *err);
PL_API void pl_gpu_compile_stop(void *self);
PL_API void pl_gpu_discard(void *self, pl_plan_t *plan);
PL_API void pl_gpu_describe(const void *self, const pl_plan_t *plan,
                            pl_plan_facts_t *facts);
PL_API const char *pl_gpu_cache(const void *self);
PL_API size_t pl_gpu_held(const void *self);
PL_API int pl_gpu_replay(void *self, pl_plan_t *plan, pl_replay_t *replay,
                         pl_error_t *err);
PL_API int pl_gpu_descriptor(const void *self);
PL_API void pl_gpu_collect(void *self);

#endif
