/* idx.h - IDX arrays: the format of MNIST and its relatives
 *
 * Two zero bytes, the element type, the number of axes, each axis as a big-endian 32-bit
 * number, the elements in big-endian order (http://yann.lecun.com/exdb/mnist).  All of
 * its types with 1 to 5 axes are read; short integers become int32. */
#ifndef PL_FORMATS_IDX_H
#define PL_FORMATS_IDX_H

#include "formats/array.h"

/* The array of an IDX file in memory: a view of bytes; other elements become a copy in
 * the byte order of this machine. pl_array_release() frees it. PL_EFORMAT or
 * PL_EUNSUPPORTED names `name` and the offset. */
int pl_idx_read(const void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err);

/* The same for a file, plain or gzip; the array owns its bytes. */
int pl_idx_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err);

#endif
