/* device.h - the state of an opened CPU, and the functions that its files share */
#ifndef PL_CPU_DEVICE_H
#define PL_CPU_DEVICE_H

#include "accelerators/cpu/cpu.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/library.h"
#include "accelerators/cpu/parallel.h"

/* Memory that loses its contents when it grows; `data` is aligned for any vector. */
typedef struct pl_buffer {
    void *memory;
    char *data;
    size_t bytes;
} pl_buffer_t;

/* Grows the buffer to at least `bytes`, zeroed; on failure the buffer is unchanged. */
int pl_buffer_reserve(pl_buffer_t *buffer, size_t bytes, pl_error_t *err);
void pl_buffer_release(pl_buffer_t *buffer);

typedef struct pl_cpu {
    int64_t threads, nice;                                  /* options: cpu.c */
    const char *instructions;

    int thread_count;
    pl_pool_t *pool;
    const pl_kernels_t *kernels;
    pl_library_t *library;
    pl_buffer_t region[PL_REGIONS];
    size_t region_count[PL_REGIONS];                        /* elements */
    pl_dtype_t region_dtype[PL_REGIONS];
    pl_buffer_t arena, scratch;       /* shared by all plans: one replay runs at a time */
    bool skipping;                    /* see fail_fast of pl_replay_t */
    const pl_plan_t *waiting;         /* the plan that waits at a collective and whose
                                         values are in the arena  [none] */
    unsigned generation;              /* increases when any of this memory moves */
    pl_plan_t *plans;                 /* all plans, for close */
} pl_cpu_t;

/* ---- plan.c ---- */

/* Compiles a graph for a device, which lists the plan.  PL_EUNSUPPORTED names an operator
 * and its path. */
int pl_cpu_compile(void *cpu, const pl_graph_t *g, pl_plan_t **plan, pl_error_t *err);
/* Removes the plan from the device's list and frees it. */
void pl_cpu_discard(void *cpu, pl_plan_t *plan);
/* Runs all calls of the plan and stores the results in the replay, which ends before it
 * returns: done() reports errors of the computation.  Allocates nothing, except for the
 * spans of the plan's first measured replay. */
int pl_cpu_replay(void *cpu, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err);

/* ---- emulate.c ---- */

/* True if elements of that type are kept as float32, rounded to the type. */
bool pl_is_emulated(pl_dtype_t dtype);
/* Rewrites a graph in place so that all its numbers are float32.  A cast to half
 * precision becomes a rounding, a rounding follows each operator that computes in half
 * precision, and casts from half precision vanish. */
int pl_emulate(pl_graph_t *g, pl_error_t *err);

/* ---- float64_plan.c ---- */

typedef struct pl_float64_plan pl_float64_plan_t;

/* A plan in float64.  NULL with an error: PL_ENOMEM; PL_EUNSUPPORTED names an operator;
 * PL_ESTATE names a region that is too small or of another type. */
pl_float64_plan_t *pl_float64_plan_new(const pl_cpu_t *cpu, const pl_graph_t *g,
                                       pl_error_t *err);
void pl_float64_plan_free(pl_float64_plan_t *wide);
int pl_float64_plan_run(const pl_cpu_t *cpu, pl_float64_plan_t *wide, pl_replay_t *replay,
                        pl_error_t *err);

#endif
