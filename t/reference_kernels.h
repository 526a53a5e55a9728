/* reference_kernels.h - one operation as the kernels of the reference interpreter see
 * it */
#ifndef T_REFERENCE_KERNELS_H
#define T_REFERENCE_KERNELS_H

#include "reference.h"

typedef struct reference_call {
    const pl_op_t *op;
    const pl_attr_t *attr;
    const double *in[PL_OP_INPUTS];
    pl_shape_t in_shape[PL_OP_INPUTS];
    double *out[PL_OP_OUTPUTS];                             /* zeros to begin with */
    pl_shape_t out_shape[PL_OP_OUTPUTS];
    const reference_replay_t *replay;
    int code;                                 /* a kernel that finds bad data sets both */
    pl_error_t *err;
} reference_call_t;

typedef void (*reference_kernel_t)(reference_call_t *c);

extern const reference_kernel_t reference_elementwise[PL_OPCODES];
extern const reference_kernel_t reference_shapes[PL_OPCODES];
extern const reference_kernel_t reference_products[PL_OPCODES];
extern const reference_kernel_t reference_rows[PL_OPCODES];

/* Where element e of `shape` comes from in a tensor of shape `from` that was broadcast
 * to it. */
int64_t reference_source(pl_shape_t shape, int64_t e, pl_shape_t from);

#endif
