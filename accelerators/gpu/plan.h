/* plan.h - a graph compiled into launches of kernels */
#ifndef PL_GPU_PLAN_H
#define PL_GPU_PLAN_H

#include "accelerators/gpu/host.h"
#include "accelerators/gpu/memory.h"

typedef struct gpu_output {
    gpu_buffer_t buffer;
    size_t bytes;
    int made;                                 /* by that operation: without value when a
                                                 guard before it stops the replay  [-1: by
                                                 none] */
} gpu_output_t;

/* What a metric adds to the record. */
typedef struct gpu_sums {
    int64_t count;
    int made;                                          /* the same, of value and weight */
} gpu_sums_t;

/* Elements of a mirrored region on their way from or to the host. */
typedef struct gpu_host_copy {
    int region;
    size_t from, count;
    int kernel;                                             /* that converts them  [-1] */
} gpu_host_copy_t;

/* Kernels, and products and layers of the backend's library, [from, to) that nothing
 * comes between; behind them, in this order: an operator that the host computes,
 * backward, copies to the host, buckets that are ready, a collective. */
typedef struct gpu_piece {
    int from, to;
    int host;                               /* the operator's number from 1  [0] */
    bool backward;                          /* it begins behind them */
    int host_copies, buckets;               /* so many of the plan's, up to here */
    int collective;                         /* its number from 1: the replay waits  [0] */
    pl_recording_t *recording[GPU_SETS];
    int runs[GPU_SETS];                                     /* since memory moved */
} gpu_piece_t;

/* A product, and what it does besides: see products.c.  Values by number  [-1: none]. */
typedef struct gpu_product {
    pl_product_plan_t *prepared;        /* by the backend's library  [NULL: a kernel] */
    int32_t behind;                     /* what a function of its result or a sum makes */
    int32_t aux;                        /* what a library keeps or reads for that */
    int32_t target;                     /* what it is added to */
    int32_t front;                      /* of a value behind one: the product's */
} gpu_product_t;

struct pl_plan {
    pl_plan_t *next;
    pl_binary_t **code;                                     /* [codes] */
    int codes;
    int cached_codes, stored_codes;         /* an earlier run compiled; later ones find */
    double seconds;                         /* that threads made them */
    gpu_product_t *product;                 /* [products] by the value that it makes */
    int products;
    pl_layer_plan_t **layer;                                /* [layers], likewise */
    int layers;
    pl_layer_plan_t **built;                      /* [builts] those of them that differ */
    int builts;
    pl_graph_t source;      /* a copy of the graph, until its layers are built  [zeros] */
    gpu_kernel_t *kernel;
    int kernels;
    size_t *reach;    /* [kernels][PL_LAUNCH_ADDRESSES] for launches  [NULL: unchecked] */
    gpu_piece_t *piece;
    int pieces, piece_capacity;
    gpu_host_t *host;                                       /* [hosts] */
    int hosts, host_capacity;
    gpu_host_copy_t in[PL_REGIONS];                         /* before the first piece */
    int ins;
    gpu_host_copy_t *out;                                   /* in the order of pieces */
    int outs, out_capacity;
    gpu_host_copy_t collective_result;  /* PL_REGION_COLLECTIVE, when a replay continues
                                           [count 0] */
    size_t arena, scratch, counters;  /* bytes */
    size_t grads_backup;   /* of PL_REGION_GRADS, which a skipped replay puts back  [0] */
    gpu_sums_t *metric;    /* [metrics] */
    int metrics;
    int64_t sums;                                           /* of all metrics */
    gpu_output_t output[PL_FIELDS];
    int outputs;
    size_t input[PL_FIELDS];                /* bytes of each batch field  [0: not read] */
    size_t needs[GPU_REGIONS];              /* elements of each region */
    int refresh;                            /* kernel that makes GPU_REGION_LOW  [-1] */
    bool changes_params;
    bool keeps_low;                                         /* it changes both */
    gpu_check_t *check;
    unsigned generation;                        /* of the memory that launches point to */
};

/* compile.c: fills in a plan, all but its code; *text: [*texts], the caller's. */
int gpu_compile(pl_gpu_t *gpu, pl_plan_t *plan, const pl_graph_t *g, gpu_string_t **text,
                int *texts, pl_error_t *err);

/* Compiles a graph for a device, which keeps the plan in its list: in the background, for
 * a caller, or at once.  PL_EUNSUPPORTED names an operator and its path. */
int gpu_plan_new(pl_gpu_t *gpu, const pl_graph_t *g, pl_plan_t **plan,
                 pl_compiling_t *caller, pl_error_t *err);
/* Its kernels are there. */
int gpu_plan_finish(pl_gpu_t *gpu, pl_plan_t *plan, pl_error_t *err);
/* Takes the plan out of the device's list, too. */
void gpu_plan_free(pl_gpu_t *gpu, pl_plan_t *plan);

/* Where everything lies now; recordings of what lay elsewhere are dropped. */
int gpu_plan_resolve(pl_gpu_t *gpu, pl_plan_t *plan, pl_error_t *err);

#endif
