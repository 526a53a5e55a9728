/* idx.h - IDX arrays: the format of MNIST and its relatives
 *
 * Two zero bytes, the element type, the number of axes, each axis as a big-endian 32-bit
 * number, the elements in big-endian order (http://yann.lecun.com/exdb/mnist).  Bytes,
 * 32-bit integers and floats with 1 to 5 axes are read. */
#ifndef PL_FORMATS_IDX_H
#define PL_FORMATS_IDX_H

#include "formats/array.h"

/* A view of an IDX file in memory, `data` aligned to 4 bytes; elements of several bytes
 * are brought into this machine's order where they lie.  PL_EFORMAT or PL_EUNSUPPORTED
 * names `name` and the offset; data are untouched. */
int pl_idx_read(void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err);

/* The same of a file, plain or gzip; the array owns its bytes. */
int pl_idx_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err);

#endif
