/* plan.h - a graph compiled into launches of kernels */
#ifndef PL_GPU_PLAN_H
#define PL_GPU_PLAN_H

#include "accelerators/gpu/memory.h"

/* An operator of a user without a text: the host computes it (host.c). */
typedef struct gpu_host {
    const pl_operator_ops_t *table;
    const pl_kernel_t *kernel;
    pl_kernel_call_t call;                    /* pointers are filled in with the memory */
    char values[PL_OPERATOR_SELF];
    int inputs;
    size_t in[PL_OPERATOR_INPUTS], out, end;          /* bytes of scratch and of memory */
    char *memory;                                     /* [NULL: not there yet] */
} gpu_host_t;

typedef struct gpu_output {
    gpu_buffer_t buffer;
    size_t bytes;
    int made;                                  /* operation that makes it; it has no value
                                                  when a guard before stops the replay
                                                  [-1: none] */
} gpu_output_t;

/* The values that a metric adds to the record. */
typedef struct gpu_sums {
    int64_t count;
    int made;                                  /* operation that makes value and weight */
} gpu_sums_t;

/* Elements of a mirrored region on their way from or to the host. */
typedef struct gpu_host_copy {
    int region;
    size_t from, count;
    int kernel;                                             /* that converts them  [-1] */
} gpu_host_copy_t;

/* Kernels [from, to), which include products and layers of the backend's library,
 * without other work between them.  After them, in this order: an operator that the
 * host computes, the begin of backward, copies to the host, buckets that are ready, a
 * collective. */
typedef struct gpu_piece {
    int from, to;
    int host;                               /* the operator's number from 1  [0] */
    bool backward;                          /* backward begins after them */
    int host_copies, buckets;               /* of the plan, up to here */
    int collective;                         /* its number from 1: the replay waits  [0] */
    pl_recording_t *recording[GPU_SLOTS];
    int runs[GPU_SLOTS];                                    /* since memory moved */
} gpu_piece_t;

/* A product and the operations that are part of it (products.c).  Values by number  [-1:
 * none]. */
typedef struct gpu_product {
    pl_product_plan_t *prepared;      /* by the backend's library  [NULL: a kernel] */
    int32_t after;                    /* result of the function or sum after it */
    int32_t aux;                      /* value that the library keeps or reads for that */
    int32_t target;                   /* gradient that the result is added to */
    int32_t front;                    /* the product whose `after` this value is */
} gpu_product_t;

struct pl_plan {
    pl_plan_t *next;
    pl_binary_t **code;                                     /* [codes] */
    int codes;
    int cached_codes, stored_codes;            /* found in the cache, and written to it */
    double seconds;                            /* of all threads, to make them */
    gpu_product_t *product;                    /* [products] by the value that it makes */
    int products;
    pl_layer_plan_t **layer;                                /* [layers], likewise */
    int layers;
    pl_layer_plan_t **built;                             /* [builts] the different ones */
    int builts;
    pl_graph_t source;      /* a copy of the graph, until its layers are built  [zeros] */
    gpu_kernel_t *kernel;
    int kernels;
    size_t *reach;    /* [kernels][PL_LAUNCH_ADDRESSES] for launches  [NULL: unchecked] */
    gpu_piece_t *piece;
    int pieces, piece_capacity;
    gpu_piece_t joined;          /* the first two pieces, which only a mark parts: where
                                    backward begins  [to 0: not made yet] */
    bool joins;                  /* its newest replay was short, and `forward` is known */
    int joined_replays;          /* since the newest replay with that mark */
    double forward;              /* share of that replay that was before the mark */
    gpu_host_t *host;            /* [hosts] */
    int hosts, host_capacity;
    gpu_host_copy_t in[PL_REGIONS];                         /* before the first piece */
    int ins;
    gpu_host_copy_t *out;                                   /* in the order of pieces */
    int outs, out_capacity;
    gpu_host_copy_t collective_result;    /* PL_REGION_COLLECTIVE, when a replay continues
                                             [count 0] */
    size_t arena, scratch, counters;      /* bytes */
    size_t
        grads_backup;   /* bytes of PL_REGION_GRADS that a skipped replay restores  [0] */
    gpu_sums_t *metric;  /* [metrics] */
    int metrics;
    int64_t sums;                                           /* of all metrics */
    gpu_output_t output[PL_FIELDS];
    int outputs;
    size_t input[PL_FIELDS];                /* bytes of each batch field  [0: not read] */
    size_t input_at[PL_FIELDS], batch;      /* bytes before it in the batch; of all */
    size_t needs[GPU_REGIONS];              /* elements of each region */
    int refresh;                            /* kernel that makes GPU_REGION_LOW  [-1] */
    bool changes_params;
    bool keeps_low;                                 /* it writes GPU_REGION_LOW as well */
    gpu_check_t *check;
    unsigned generation;                        /* of the memory that launches point to */
};

/* compile.c: fills in a plan except its code.  *text: [*texts], owned by the caller. */
int gpu_compile(pl_gpu_t *gpu, pl_plan_t *plan, const pl_graph_t *g, gpu_string_t **text,
                int *texts, pl_error_t *err);

/* Compiles a graph and adds the plan to the list of the device: in the background for a
 * caller, or, if that is NULL, before it returns.  PL_EUNSUPPORTED names an operator and
 * its path. */
int gpu_plan_new(pl_gpu_t *gpu, const pl_graph_t *g, pl_plan_t **plan,
                 pl_compiling_t *caller, pl_error_t *err);
/* The last step, when all texts are compiled: finds the kernels and reserves memory. */
int gpu_plan_finish(pl_gpu_t *gpu, pl_plan_t *plan, pl_error_t *err);

/* Of a record: gpu_control_t, and the sums of metrics. */
size_t gpu_record_bytes(const pl_plan_t *plan);

/* Fills in the addresses of launches after memory has moved, and drops recordings with
 * old ones. */
int gpu_plan_resolve(pl_gpu_t *gpu, pl_plan_t *plan, pl_error_t *err);

/* check.c: verifies that every kernel reads what was written for it.  PL_EBUG names two
 * kernels and the value that one of them reads from the other. */
int gpu_check(const pl_plan_t *plan, pl_error_t *err);

/* host.c: PL_EUNSUPPORTED: operator `op` has no kernel for the host either. */
int gpu_host_init(gpu_host_t *host, const pl_gpu_t *gpu, const gpu_codegen_t *t, int op,
                  pl_error_t *err);
/* The kernels before and after it. */
void gpu_host_print_inputs(const gpu_host_t *host, gpu_codegen_t *t, int op);
void gpu_host_print_output(const gpu_host_t *host, gpu_codegen_t *t, int op);
/* Reserves its memory, whose address does not change from then on. */
int gpu_host_open(gpu_host_t *host, pl_gpu_t *gpu, pl_error_t *err);
void gpu_host_close(gpu_host_t *host, pl_gpu_t *gpu);
/* Puts the copies and the call on stream MAIN. */
int gpu_host_put(gpu_host_t *host, pl_gpu_t *gpu, pl_error_t *err);

#endif
