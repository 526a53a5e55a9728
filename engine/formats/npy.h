/* npy.h - NumPy's .npy arrays, read; paceline.h has pl_npy_write()
 *
 * The magic, a version (1 to 3), the length of a header, the header as a Python
 * dictionary, the elements (NEP 1 and numpy.lib.format).  Read are bool, i1 to i8, u1 to
 * u8 and f2 to f8 in any byte order and either order of axes, at most 5 of them; the rest
 * is refused by name.  What memory has no such type for becomes a wider one: see
 * pl_raw_dtype(). */
#ifndef PL_FORMATS_NPY_H
#define PL_FORMATS_NPY_H

#include "formats/array.h"

/* A view of an .npy file in memory, whose elements may lie unaligned, or an array of its
 * own where they have to be converted: pl_array_release().  PL_EFORMAT or
 * PL_EUNSUPPORTED names `name` and the offset. */
int pl_npy_read(const void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err);

/* The same of a file, plain or gzip; the array owns its bytes and is aligned. */
int pl_npy_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err);

#endif
