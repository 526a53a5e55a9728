/* kernels.h - the call of a kernel of the reference interpreter */
#ifndef PL_REFERENCE_KERNELS_H
#define PL_REFERENCE_KERNELS_H

#include "accelerators/reference/reference.h"

/* The order for maxima: a NaN is larger than any number, as in PyTorch. */
static inline bool pl_reference_larger(double x, double than)
{
    return x > than || (x != x && than == than);
}

typedef struct reference_call {
    const pl_op_t *op;
    const pl_attr_t *attr;
    const double *in[PL_OP_INPUTS];
    pl_shape_t in_shape[PL_OP_INPUTS];
    pl_dtype_t in_dtype[PL_OP_INPUTS];
    double *out[PL_OP_OUTPUTS];                             /* zeros at first */
    pl_shape_t out_shape[PL_OP_OUTPUTS];
    const pl_reference_replay_t *replay;
    int code;                                  /* kernels set code and err for bad data */
    pl_error_t *err;
} pl_reference_call_t;

typedef void (*pl_reference_kernel_t)(pl_reference_call_t *c);

extern const pl_reference_kernel_t pl_reference_axis[PL_OPCODES];
extern const pl_reference_kernel_t pl_reference_elementwise[PL_OPCODES];
extern const pl_reference_kernel_t pl_reference_shapes[PL_OPCODES];
extern const pl_reference_kernel_t pl_reference_products[PL_OPCODES];
extern const pl_reference_kernel_t pl_reference_space[PL_OPCODES];
extern const pl_reference_kernel_t pl_reference_rows[PL_OPCODES];
extern const pl_reference_kernel_t pl_reference_steps[PL_OPCODES];

/* Sets the error of the call if an index is outside [0, n). */
bool pl_reference_index_is_good(pl_reference_call_t *c, double index, int64_t n);

/* Index of the element that a broadcast from shape `from` to `shape` copies to element
 * e. */
int64_t pl_reference_source(pl_shape_t shape, int64_t e, pl_shape_t from);

#endif
