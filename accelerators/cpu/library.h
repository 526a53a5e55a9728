/* library.h - the compute library: matrix products and convolutions
 *
 * library_onednn.c is the only file that knows oneDNN; another library takes its place
 * with a file of these functions.  A product is made once, when a plan is compiled, for
 * fixed sizes; running it allocates nothing.  A product computes on the thread that runs
 * it alone; different ones may run at once.  All else is done on one thread. */
#ifndef PL_CPU_LIBRARY_H
#define PL_CPU_LIBRARY_H

#include "paceline.h"

typedef struct pl_library pl_library_t;
typedef struct pl_product pl_product_t;

/* "oneDNN 2.6.3" into text, which it returns. */
char *pl_library_name(char text[static 64]);

pl_library_t *pl_library_new(pl_error_t *err);
void pl_library_free(pl_library_t *library);

/* A matrix or a batch of them, by strides in elements; a batch axis of 1 is repeated. */
typedef struct pl_matrix {
    int64_t dim[PL_DIMS], stride[PL_DIMS];
} pl_matrix_t;

/* c [batch…, M, N] = a [batch…, M, K] b [batch…, K, N] + bias [N].  Arguments: a, b,
 * bias, c. */
typedef struct pl_matmul {
    int rank;                                          /* of each of them, 2 to PL_DIMS */
    pl_matrix_t a, b, c;
    bool has_bias;
    bool accumulate;                                        /* added to c */
} pl_matmul_t;

pl_product_t *pl_product_matmul(pl_library_t *library, const pl_matmul_t *m,
                                pl_error_t *err);

/* Pictures have channels last: x [batch, height, width, channels], y [batch, out_height,
 * out_width, filters]; weights are as in the graph, w [filters, channels, kernel,
 * kernel]. */
typedef struct pl_convolution {
    enum {
        PL_CONVOLVE,                                        /* arguments x, w, bias, y */
        PL_CONVOLVE_GRAD_X,                                 /* dy, w, NULL, dx */
        PL_CONVOLVE_GRAD_W,                                 /* dy, x, NULL, dw */
    } kind;
    int64_t batch, channels, height, width, filters, out_height, out_width, kernel,
        stride, padding;
    bool has_bias;                                          /* PL_CONVOLVE only */
} pl_convolution_t;

pl_product_t *pl_product_convolution(pl_library_t *library, const pl_convolution_t *c,
                                     pl_error_t *err);

/* Bytes of scratch memory that a run needs, aligned to 64. */
size_t pl_product_scratch(const pl_product_t *product);
int pl_product_run(pl_product_t *product, void *const argument[4], void *scratch,
                   pl_error_t *err);
void pl_product_free(pl_product_t *product);

#endif
