/* library.h - the compute library: matrix products and convolutions
 *
 * library_onednn.c is the only file that uses oneDNN; another library needs a file with
 * the same functions.  A product is made once, when a plan is compiled, for fixed sizes;
 * running it allocates nothing.  A product computes only on the thread that runs it;
 * different products may run at once.  One thread makes and frees them. */
#ifndef PL_CPU_LIBRARY_H
#define PL_CPU_LIBRARY_H

#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/parallel.h"
#include "tensor/graph.h"

typedef struct pl_library pl_library_t;
typedef struct pl_cpu_product pl_cpu_product_t;

/* Writes "oneDNN 2.6.3" into text and returns it. */
char *pl_library_name(char text[static 64]);

pl_library_t *pl_library_new(pl_error_t *err);
void pl_library_free(pl_library_t *library);

/* A matrix or a batch of matrices, with strides in elements; a batch axis of 1 is
 * repeated. */
typedef struct pl_matrix {
    int64_t dim[PL_DIMS], stride[PL_DIMS];
} pl_matrix_t;

/* c [batch…, M, N] = a [batch…, M, K] b [batch…, K, N] + bias [N].  Arguments: a, b,
 * bias, c. */
typedef struct pl_matmul {
    int rank;                                            /* of a, b and c, 2 to PL_DIMS */
    pl_matrix_t a, b, c;
    bool has_bias;
    bool accumulate;                                       /* the product is added to c */
    bool halves;               /* a and b have bfloat16 values, so the library may use
                                  16-bit products, which are summed in float32 */
} pl_matmul_t;

/* Products of bfloat16 are faster than those of float32 on this processor. */
bool pl_library_has_halves(void);

pl_cpu_product_t *pl_cpu_product_matmul(pl_library_t *library, const pl_matmul_t *m,
                                        pl_error_t *err);

/* Channels are last: x [batch, in..., channels], y [batch, out..., filters]; weights are
 * as in the graph, w [filters, channels / groups, kernel...]. */
typedef struct pl_convolution {
    enum {
        PL_CONVOLVE,                                        /* arguments x, w, bias, y */
        PL_CONVOLVE_GRAD_X,                                 /* dy, w, NULL, dx */
        PL_CONVOLVE_GRAD_W,                                 /* dy, x, NULL, dw */
    } kind;
    int64_t batch, channels, filters, groups, in[PL_SPACE], out[PL_SPACE];
    pl_window_t window;
    bool has_bias;                                          /* PL_CONVOLVE only */
    bool is_small;                    /* y has at most 4 places in each sample */
    bool may_unfold;                  /* products of unfolded windows may be faster */
} pl_convolution_t;

pl_cpu_product_t *pl_cpu_product_convolution(pl_library_t *library,
                                             const pl_convolution_t *c, pl_error_t *err);

/* Bytes of scratch memory that a run needs, aligned to 64. */
size_t pl_cpu_product_scratch(const pl_cpu_product_t *product);
int pl_cpu_product_run(pl_cpu_product_t *product, void *const argument[4], void *scratch,
                       pl_error_t *err);
void pl_cpu_product_free(pl_cpu_product_t *product);

/* ---- unfolded.c ----
 *
 * The gradient of a convolution's weights as matrix products; arguments and scratch as
 * those of a product. */

typedef struct pl_unfolded pl_unfolded_t;

bool pl_unfolded_pays(const pl_convolution_t *c);
pl_unfolded_t *pl_unfolded_new(pl_library_t *library, const pl_convolution_t *c,
                               pl_error_t *err);
size_t pl_unfolded_scratch(const pl_unfolded_t *u);
int pl_unfolded_run(pl_unfolded_t *u, void *const argument[4], void *scratch,
                    pl_error_t *err);
void pl_unfolded_free(pl_unfolded_t *u);

/* ---- turned.c ----
 *
 * Matrix products of two axes whose first factor lies on its side; arguments and scratch
 * as those of a product. */

typedef struct pl_turned pl_turned_t;

bool pl_turned_pays(const pl_matmul_t *m);
pl_turned_t *pl_turned_new(pl_library_t *library, const pl_kernels_t *kernels,
                           const pl_matmul_t *m, pl_error_t *err);
size_t pl_turned_scratch(const pl_turned_t *t);
int pl_turned_run(pl_turned_t *t, void *const argument[4], void *scratch,
                  pl_error_t *err);
void pl_turned_free(pl_turned_t *t);

/* ---- parallel.c ----
 *
 * A product cut into slices, which threads compute at once.  The cut depends only on the
 * sizes of the product and the number of threads. */

typedef struct pl_slices pl_slices_t;

pl_slices_t *pl_slices_matmul(pl_library_t *library, const pl_kernels_t *kernels,
                              int threads, const pl_matmul_t *m, pl_error_t *err);
pl_slices_t *pl_slices_convolution(pl_library_t *library, int threads,
                                   const pl_convolution_t *c, pl_error_t *err);
size_t pl_slices_scratch(const pl_slices_t *s);
int pl_slices_run(pl_slices_t *s, pl_pool_t *pool, void *const argument[4], void *scratch,
                  pl_error_t *err);
void pl_slices_free(pl_slices_t *s);

#endif
