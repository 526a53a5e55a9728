/* npy.h - an array in a NumPy file */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <paceline.h>

/* Writes data [shape] of dtype PL_F32 or PL_I64; a failed write leaves no file behind. */
int cli_npy_write(const char *path, pl_dtype_t dtype, pl_shape_t shape, const void *data, pl_error_t *err);

#endif
