/* array.h - an array as a file holds it
 *
 * What the readers of array formats hand back.  An array read from memory is a view of
 * that memory; one loaded from a path owns the bytes of the file. */
#ifndef PL_FORMATS_ARRAY_H
#define PL_FORMATS_ARRAY_H

#include "formats/stream.h"
#include "paceline.h"

typedef struct pl_array {
    pl_dtype_t dtype;
    pl_shape_t shape;
    int64_t count;                      /* elements */
    const void *data;                   /* [shape], last axis fastest, this machine's byte
                                           order */
    pl_file_bytes_t owned;              /* the file that data lies in  [a view] */
} pl_array_t;

void pl_array_release(pl_array_t *array);

/* Bytes of one element. */
size_t pl_array_width(pl_dtype_t dtype);

/* Elements and bytes of a shape; false when a dimension is negative or a product too
 * large. */
bool pl_array_size(pl_dtype_t dtype, const pl_shape_t *shape, int64_t *count,
                   size_t *bytes);

#endif
