/* device.h - what an opened CPU consists of, for cpu.c and the plans */
#ifndef PL_CPU_DEVICE_H
#define PL_CPU_DEVICE_H

#include "accelerators/cpu/cpu.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/library.h"
#include "accelerators/cpu/parallel.h"

/* Memory that grows and forgets what was in it; `data` is aligned for any vector. */
typedef struct pl_buffer {
    void *memory;
    char *data;
    size_t bytes;
} pl_buffer_t;

/* At least so many bytes, zeroed when new; on failure the buffer is as before. */
int pl_buffer_reserve(pl_buffer_t *buffer, size_t bytes, pl_error_t *err);
void pl_buffer_release(pl_buffer_t *buffer);

typedef struct pl_cpu {
    int64_t threads;                          /* options; 0: as many as there are cores */
    int64_t nice;
    const char *instructions;

    int thread_count;
    pl_pool_t *pool;
    const pl_kernels_t *kernels;
    pl_library_t *library;
    pl_buffer_t region[PL_REGIONS];
    size_t region_count[PL_REGIONS];                        /* elements */
    pl_dtype_t region_dtype[PL_REGIONS];
    pl_buffer_t arena, scratch;              /* of all plans: one replay runs at a time */
    bool skipping;                           /* see pl_replay_t */
    const pl_plan_t *waiting;                /* at a collective, its values in the arena
                                                [none] */
    unsigned generation;                     /* grows when any of this memory moves */
    pl_plan_t *plans;                        /* all that were compiled, for close */
} pl_cpu_t;

#endif
