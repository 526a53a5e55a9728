/* array.h - arrays of files: elements as a file holds them, and conversion between types
 *
 * The readers of array formats return a pl_array_t. An array read from memory is a
 * view of that memory; one loaded from a path owns the bytes of the file. */
#ifndef PL_FORMATS_ARRAY_H
#define PL_FORMATS_ARRAY_H

#include "formats/stream.h"
#include "paceline.h"

/* The elements of a file. */
typedef struct pl_raw {
    char kind;                                        /* as in NumPy: b (bool), i, u, f */
    size_t width;                                     /* bytes */
    bool big_endian, fortran;                         /* fortran: first axis fastest */
} pl_raw_t;

typedef struct pl_array {
    pl_dtype_t dtype;
    pl_shape_t shape;
    int64_t count;                     /* elements */
    const void *data;                  /* [shape], last axis fastest, in the byte order of
                                          this machine  [in_file] */
    pl_file_bytes_t owned;             /* the file that contains data  [a view] */
    bool in_file;                      /* the elements stay there, from `at` on */
    int fd;
    uint64_t at;
    struct pl_hdf5 *hdf5;                      /* they are in a data set of HDF5  [not] */
    pl_raw_t raw;                              /* elements in the file */
} pl_array_t;

void pl_array_release(pl_array_t *array);

/* The elements will be read soon: samples lie far from each other in memory, so they are
 * fetched from there while others are converted.  Does nothing for those in a file. */
void pl_array_expect(const pl_array_t *array, int64_t first, size_t count);

/* Reads elements [first, first + count) as pl_convert() converts them, from memory or
 * from the file, which is called `name` in errors: PL_EIO, also if it has become shorter;
 * PL_EFORMAT: larger than int64.  Several threads may read at once. */
int pl_array_read(const pl_array_t *array, const char *name, int64_t first, size_t count,
                  pl_dtype_t to, void *out, pl_error_t *err);

/* Ends the mapping of an array in a file; takes it over if code is PL_OK; -> code. */
int pl_array_leave(pl_array_t *array, pl_file_map_t *map, int code);

/* The type in memory, which is at least as wide: u8 for bool and u1; i32 for i1, i2 and
 * u2; i64 for u4 and u8; f32 for f2. false: no such elements are known. */
bool pl_raw_dtype(const pl_raw_t *raw, pl_dtype_t *dtype);

/* Sets the data of an array that has type, shape and count: a view of the elements of a
 * file if they are as in memory, otherwise a copy of at most pl_file_limit() bytes. Of an
 * array in a file, whatever its elements are, but those in Fortran order are a copy.
 * PL_EFORMAT names `name` and the first number that is larger than int64. */
int pl_array_decode(pl_array_t *array, const void *elements, const pl_raw_t *raw,
                    const char *name, pl_error_t *err);

/* Bytes of one element. */
size_t pl_array_width(pl_dtype_t dtype);

/* The elements are whole numbers. */
static inline bool pl_is_integer(pl_dtype_t dtype)
{
    return dtype == PL_U8 || dtype == PL_I32 || dtype == PL_I64;
}

/* Elements and bytes of a shape; false if a dimension is negative or the product too
 * large. */
bool pl_array_size(pl_dtype_t dtype, const pl_shape_t *shape, int64_t *count,
                   size_t *bytes);

/* out[i] = in[i] * scale + shift for i in [0, n). */
void pl_convert_u8_f32(const uint8_t *in, size_t n, float scale, float shift, float *out);

/* Converts n elements to a type that holds them (f64 may become f32): any type to itself,
 * u8 and f64 to f32, u8 and i32 to i64. in and out do not overlap; both are aligned to
 * their elements. */
void pl_convert(pl_dtype_t from, const void *in, pl_dtype_t to, void *out, size_t n);

/* ---- IDX arrays, the format of MNIST and its relatives: idx.c ----
 *
 * Two zero bytes, the element type, the number of axes, each axis as a big-endian 32-bit
 * number, the elements in big-endian order (http://yann.lecun.com/exdb/mnist).  All of
 * its types with 1 to 6 axes are read; short integers become int32. */

/* The array of an IDX file in memory: a view of bytes; other elements become a copy in
 * the byte order of this machine. pl_array_release() frees it. PL_EFORMAT or
 * PL_EUNSUPPORTED names `name` and the offset. */
int pl_idx_read(const void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err);

/* The same for a file, plain or gzip; the array owns its bytes. */
int pl_idx_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err);

/* The same, but the elements of a plain file of more than `memory` bytes stay there
 * [SIZE_MAX: never]. */
int pl_idx_open(const char *path, size_t memory, pl_array_t *array, pl_error_t *err);

/* ---- NumPy's .npy arrays, read: npy.c; paceline.h has pl_npy_write() ----
 *
 * The magic, a version (1 to 3), the length of a header, the header as a Python
 * dictionary, the elements (NEP 1 and numpy.lib.format).  bool, i1 to i8, u1 to u8 and f2
 * to f8 are read, in any byte order and either order of at most 6 axes; other types are
 * refused by name.  Types that memory does not have become wider: see pl_raw_dtype(). */

/* The array of an .npy file in memory: a view, whose elements may be unaligned, or a copy
 * of elements that have to be converted. pl_array_release() frees it. PL_EFORMAT or
 * PL_EUNSUPPORTED names `name` and the offset. */
int pl_npy_read(const void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err);

/* The same for a file, plain or gzip; the array owns its bytes and is aligned. */
int pl_npy_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err);

/* The same, but the elements of a plain file of more than `memory` bytes stay there, if
 * they are in C order  [SIZE_MAX: never]. */
int pl_npy_open(const char *path, size_t memory, pl_array_t *array, pl_error_t *err);
/* The same for a mapped part of a file, which begins `from` bytes after the map.  The
 * array takes the file, unless it had to copy the elements. */
int pl_npy_leave(pl_file_map_t *map, size_t from, size_t size, const char *name,
                 pl_array_t *array, pl_error_t *err);

/* The same for bytes of a file, which become the array's or are left to the caller. */
int pl_npy_take(pl_file_bytes_t *bytes, const char *name, pl_array_t *array,
                pl_error_t *err);

/* ---- Arrays of NumPy's .npz archives, of savez and savez_compressed: npz.c ---- */

/* The array of that name in an archive in memory; it owns its bytes.  PL_ENOTFOUND lists
 * the arrays of the archive; PL_EFORMAT: damaged, or more than limit bytes. */
int pl_npz_read(const void *data, size_t size, const char *name, const char *array,
                size_t limit, pl_array_t *found, pl_error_t *err);

/* The same for a file. */
int pl_npz_load(const char *path, const char *array, size_t limit, pl_array_t *found,
                pl_error_t *err);

/* The same, but an array of savez that has more than `memory` bytes stays in the archive,
 * if it is in C order; then its checksum is not compared  [SIZE_MAX: never]. */
int pl_npz_open(const char *path, const char *array, size_t memory, pl_array_t *found,
                pl_error_t *err);

/* ---- Data sets in HDF5 files: hdf5.c ----
 *
 * Whole numbers and floats of up to 8 bytes, and h5py's bool; up to 6 axes. */

/* Opens the data set of that name, "/images"; one of more than `memory` bytes stays in
 * the file.  PL_ENOTFOUND: no such file or data set, or libhdf5 is not installed;
 * PL_EUNSUPPORTED: other elements, such as compounds; PL_EFORMAT: damage. */
int pl_hdf5_open(const char *path, const char *name, size_t memory, pl_array_t *array,
                 pl_error_t *err);

/* What pl_array_read() and pl_array_release() do with an array that stayed there. */
int pl_hdf5_read(const pl_array_t *array, const char *name, int64_t first, size_t count,
                 pl_dtype_t to, void *out, pl_error_t *err);
void pl_hdf5_close(struct pl_hdf5 *h);

#endif
