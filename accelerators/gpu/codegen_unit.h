/* codegen_unit.h - lines of element-wise operations, for kernels and parts of them */
#ifndef PL_GPU_CODEGEN_UNIT_H
#define PL_GPU_CODEGEN_UNIT_H

#include "accelerators/gpu/codegen.h"

enum {
    GPU_UNIT_KNOWN = 192,                                  /* values of a unit, at most */
    GPU_UNIT_TOTALS = 4,
};

/* A value that a register holds: v3, or v3.at[k] of four. */
typedef struct known {
    int32_t value;
    int number;
    pl_view_t repeat;                   /* how it repeats  [rank 0: element by element] */
} gpu_known_t;

typedef struct store {
    gpu_buffer_t buffer;
    pl_dtype_t dtype;
    int number;                                             /* of the register */
} gpu_store_t;

typedef struct unit {
    gpu_codegen_t *t;
    int from, to;                                           /* operations */
    int64_t n;
    int width;                                              /* elements at a time */
    gpu_known_t known[GPU_UNIT_KNOWN];
    int known_count, registers;
    gpu_store_t store[GPU_UNIT_KNOWN];
    int stores;
    const pl_op_t *total[GPU_UNIT_TOTALS];
    int totals, totals_ahead;                               /* printed; of the unit */
    gpu_string_t loop;                                      /* the lines */
} gpu_unit_t;

/* Adds operation i: prints its loads, and keeps its line and its stores for the end. */
void gpu_unit_op(gpu_unit_t *u, int i);
/* Prints the lines and then the stores. */
void gpu_unit_print(gpu_unit_t *u);
/* The halves of the parameters in a buffer. */
gpu_buffer_t gpu_low_of(const gpu_codegen_t *t, const gpu_buffer_t *buffer,
                        pl_dtype_t dtype);
/* Whether four elements of a value can be loaded at once. */
bool gpu_is_aligned(const gpu_buffer_t *buffer, pl_dtype_t dtype);

#endif
