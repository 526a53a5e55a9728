/* sums.h - sums over ranks on a card, in the order of a tree: for collectives */
#ifndef PL_CUDA_SUMS_H
#define PL_CUDA_SUMS_H

#include "accelerators/cuda/load.h"
#include "runtime/fence.h"

typedef struct cuda_sums cuda_sums_t;

/* Elements of this rank, and those that were received from the other ranks. */
typedef struct cuda_sum {
    int rank;
    CUdeviceptr own;                                      /* [count] */
    size_t apart;                                         /* as for cuda_sums_staging() */
    uint64_t count;
    pl_dtype_t dtype;                                       /* F32, F64 or I64 */
    bool is_max;                                            /* the maximum, not the sum */
} cuda_sum_t;

/* For so many ranks, on the device of that memory, which compiles.  A tree of n ranks has
 * left(n) of them in its first subtree.  Here and below the card's context is current.
 * [driver NULL: kernels are only compiled, for a card that is not there]. */
cuda_sums_t *cuda_sums_new(const cuda_library_t *driver, const pl_device_memory_t *device,
                           int ranks, int (*left)(int n), pl_error_t *err);
/* After the last kernel. */
void cuda_sums_free(cuda_sums_t *sums);
/* Loads the kernels for that type: later, loading one may wait for running kernels. */
int cuda_sums_prepare(cuda_sums_t *sums, pl_dtype_t dtype, bool is_max, pl_error_t *err);
/* Memory of the card for elements of each rank, `apart` bytes from one rank to the next;
 * the next work on the stream may overwrite it.  0: an error. */
CUdeviceptr cuda_sums_staging(cuda_sums_t *sums, size_t apart, pl_error_t *err);
/* Puts on the stream: own[0, count) becomes the sum over all ranks, with the elements of
 * the others from that memory. */
int cuda_sums_add(cuda_sums_t *sums, const cuda_sum_t *sum, CUstream stream,
                  pl_error_t *err);

#endif
