/* npy.h - NumPy's .npy arrays
 *
 * The magic, a version (1 to 3), the length of a header, the header as a Python
 * dictionary, the elements (NEP 1 and numpy.lib.format).  Read are <f4, <f8, <i4, <i8 and
 * |u1 in C order with at most 5 axes; the rest is refused by name. */
#ifndef PL_FORMATS_NPY_H
#define PL_FORMATS_NPY_H

#include "formats/array.h"

/* A view of an .npy file in memory; its elements may lie unaligned.  PL_EFORMAT or
 * PL_EUNSUPPORTED names `name` and the offset. */
int pl_npy_read(const void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err);

/* The same of a file, plain or gzip; the array owns its bytes and is aligned. */
int pl_npy_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err);

/* Writes an array as version 1, durably (see durable.h). */
int pl_npy_write(const char *path, const pl_array_t *array, pl_error_t *err);

#endif
