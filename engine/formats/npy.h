/* npy.h - NumPy's .npy arrays, read; paceline.h has pl_npy_write()
 *
 * The magic, a version (1 to 3), the length of a header, the header as a Python
 * dictionary, the elements (NEP 1 and numpy.lib.format). bool, i1 to i8, u1 to u8 and f2
 * to f8 are read, in any byte order and either order of at most 5 axes; other types are
 * refused by name. Types that memory does not have become wider: see pl_raw_dtype(). */
#ifndef PL_FORMATS_NPY_H
#define PL_FORMATS_NPY_H

#include "formats/array.h"

/* The array of an .npy file in memory: a view, whose elements may be unaligned, or a copy
 * of elements that have to be converted. pl_array_release() frees it. PL_EFORMAT or
 * PL_EUNSUPPORTED names `name` and the offset. */
int pl_npy_read(const void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err);

/* The same for a file, plain or gzip; the array owns its bytes and is aligned. */
int pl_npy_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err);

#endif
