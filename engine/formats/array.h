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

/* How a file holds elements. */
typedef struct pl_raw {
    char kind;                                   /* as NumPy has it: b (truth), i, u, f */
    size_t width;                                /* bytes */
    bool big_endian, fortran;                    /* fortran: first axis fastest */
} pl_raw_t;

/* The type in memory of such elements, which is at least as wide: bool and u1 are u8, i1,
 * i2 and u2 i32, u4 and u8 i64, f2 f32.  false: there are no such elements. */
bool pl_raw_dtype(const pl_raw_t *raw, pl_dtype_t *dtype);

/* Fills in the data of an array with type, shape and count from a file's elements: a view
 * of them where they are what memory has, else an own copy, never beyond pl_file_limit().
 * PL_EFORMAT names `name`, and the first number past int64. */
int pl_array_decode(pl_array_t *array, const void *elements, const pl_raw_t *raw,
                    const char *name, pl_error_t *err);

/* Bytes of one element. */
size_t pl_array_width(pl_dtype_t dtype);

/* Elements and bytes of a shape; false when a dimension is negative or a product too
 * large. */
bool pl_array_size(pl_dtype_t dtype, const pl_shape_t *shape, int64_t *count,
                   size_t *bytes);

#endif
