/* slices.h - a product of the library cut into slices, which threads compute at once
 *
 * The library computes each slice on the thread that runs it.  How a product is cut is a
 * function of its sizes and the number of threads alone. */
#ifndef PL_CPU_SLICES_H
#define PL_CPU_SLICES_H

#include "accelerators/cpu/library.h"
#include "accelerators/cpu/parallel.h"

typedef struct pl_slices pl_slices_t;

pl_slices_t *pl_slices_matmul(pl_library_t *library, int threads, const pl_matmul_t *m,
                              pl_error_t *err);
pl_slices_t *pl_slices_convolution(pl_library_t *library, int threads,
                                   const pl_convolution_t *c, pl_error_t *err);

/* As for one product: library.h. */
size_t pl_slices_scratch(const pl_slices_t *s);
int pl_slices_run(pl_slices_t *s, pl_pool_t *pool, void *const argument[4], void *scratch,
                  pl_error_t *err);
void pl_slices_free(pl_slices_t *s);

#endif
