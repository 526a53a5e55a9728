/* sums.h - sums over ranks on a card, in the order of a tree: for collectives */
#ifndef PL_CUDA_SUMS_H
#define PL_CUDA_SUMS_H

#include "accelerators/cuda/load.h"
#include "runtime/fence.h"

typedef struct cuda_sums cuda_sums_t;

/* What is added: elements of this rank, and those that were received of the others. */
typedef struct cuda_sum {
    int rank;
    CUdeviceptr own;                                        /* [count] */
    size_t apart;                                           /* of cuda_sums_staging() */
    uint64_t count;
    pl_dtype_t dtype;                                       /* F32, F64 or I64 */
    bool is_max;                                            /* the largest, not the sum */
} cuda_sum_t;

/* For so many ranks, on the device of that memory, which compiles; left(n) of n of them
 * are a subtree of their own, the rest another.  Here and below the card's context is
 * current.  Without a driver  [NULL] kernels are compiled alone, for a card that is not
 * there. */
cuda_sums_t *cuda_sums_new(const cuda_library_t *driver, const pl_device_memory_t *device,
                           int ranks, int (*left)(int n), pl_error_t *err);
/* When no kernel runs any more. */
void cuda_sums_free(cuda_sums_t *sums);
/* Loads the kernels for that: at another time loading one may wait for kernels that run.
 */
int cuda_sums_prepare(cuda_sums_t *sums, pl_dtype_t dtype, bool is_max, pl_error_t *err);
/* Memory of the card for a part of each rank, so many bytes apart; what is put on the
 * stream next may overwrite it.  0: an error. */
CUdeviceptr cuda_sums_staging(cuda_sums_t *sums, size_t apart, pl_error_t *err);
/* Puts on the stream: own[0, count) becomes the sum with the parts of the others in that
 * memory. */
int cuda_sums_add(cuda_sums_t *sums, const cuda_sum_t *sum, CUstream stream,
                  pl_error_t *err);

#endif
