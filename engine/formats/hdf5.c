/* hdf5.c - arrays in HDF5 files, read by libhdf5
 *
 * libhdf5 is opened by the first array and stays open; functions and numbers below are of
 * its interface since version 1.10.  It is not built for several threads, so one lock is
 * around each call.  A large array stays in the file, and rows are read as hyperslabs. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/symbols.h"
#include "formats/array.h"

typedef int64_t hid_t;

enum { READ_ONLY = 0, SELECT_SET = 0, AXES = 32, SCALAR = 0, SIMPLE = 1 };
enum { CLASS_INTEGER = 0, CLASS_FLOAT = 1, CLASS_ENUM = 8 };

struct pl_hdf5 {
    hid_t file, set, type;                           /* type: of the elements in memory */
    bool is_unsigned_64;
    int rank;
    uint64_t dim[AXES];
};

/* Types of this machine, whose numbers are known once the library is open. */
enum { F32, F64, U8, I32, I64, U64, TYPES };

static struct {
    int (*open)(void);
    int (*quiet)(hid_t stack, void *function, void *data);
    hid_t (*file_open)(const char *path, unsigned flags, hid_t access);
    int (*file_close)(hid_t file);
    hid_t (*set_open)(hid_t file, const char *name, hid_t access);
    int (*set_close)(hid_t set);
    hid_t (*set_space)(hid_t set);
    hid_t (*set_type)(hid_t set);
    int (*read)(hid_t set, hid_t type, hid_t to, hid_t from, hid_t transfer, void *out);
    hid_t (*space_new)(int rank, const uint64_t *dim, const uint64_t *most);
    int (*space_close)(hid_t space);
    int (*space_class)(hid_t space);
    int (*space_rank)(hid_t space);
    int (*space_dims)(hid_t space, uint64_t *dim, uint64_t *most);
    int (*select)(hid_t space, int how, const uint64_t *start, const uint64_t *stride,
                  const uint64_t *count, const uint64_t *block);
    int (*type_class)(hid_t type);
    size_t (*type_size)(hid_t type);
    int (*type_sign)(hid_t type);
    int (*type_close)(hid_t type);
    ssize_t (*name_at)(hid_t file, const char *group, int index, int order, uint64_t n,
                       char *name, size_t size, hid_t access);
    const hid_t *type[TYPES];
    bool is_open;
} lib;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Opens the library, by its name in Debian or elsewhere; the lock is held. */
static bool library_open(void)
{
    static const char *const files[] = {"libhdf5_serial.so.103", "libhdf5_serial.so.310",
                                        "libhdf5.so.103",        "libhdf5.so.200",
                                        "libhdf5.so.310",        "libhdf5.so.320"};
    const pl_symbol_t needed[] = {{"H5open", &lib.open},
                                  {"H5Eset_auto2", &lib.quiet},
                                  {"H5Fopen", &lib.file_open},
                                  {"H5Fclose", &lib.file_close},
                                  {"H5Dopen2", &lib.set_open},
                                  {"H5Dclose", &lib.set_close},
                                  {"H5Dget_space", &lib.set_space},
                                  {"H5Dget_type", &lib.set_type},
                                  {"H5Dread", &lib.read},
                                  {"H5Screate_simple", &lib.space_new},
                                  {"H5Sclose", &lib.space_close},
                                  {"H5Sget_simple_extent_type", &lib.space_class},
                                  {"H5Sget_simple_extent_ndims", &lib.space_rank},
                                  {"H5Sget_simple_extent_dims", &lib.space_dims},
                                  {"H5Sselect_hyperslab", &lib.select},
                                  {"H5Tget_class", &lib.type_class},
                                  {"H5Tget_size", &lib.type_size},
                                  {"H5Tget_sign", &lib.type_sign},
                                  {"H5Tclose", &lib.type_close},
                                  {"H5Lget_name_by_idx", &lib.name_at},
                                  {"H5T_NATIVE_FLOAT_g", &lib.type[F32]},
                                  {"H5T_NATIVE_DOUBLE_g", &lib.type[F64]},
                                  {"H5T_NATIVE_UCHAR_g", &lib.type[U8]},
                                  {"H5T_NATIVE_INT_g", &lib.type[I32]},
                                  {"H5T_NATIVE_LLONG_g", &lib.type[I64]},
                                  {"H5T_NATIVE_ULLONG_g", &lib.type[U64]}};
    static bool tried;
    if (tried)
        return lib.is_open;
    tried = true;
    for (size_t k = 0; k < sizeof files / sizeof *files && !lib.is_open; k++)
        lib.is_open = pl_symbols_open(files[k], needed, sizeof needed / sizeof *needed);
    lib.is_open = lib.is_open && lib.open() >= 0;
    if (lib.is_open)
        lib.quiet(0, NULL, NULL);               /* errors are ours, not lines on stderr */
    return lib.is_open;
}

/* Lists what is at the top of the file. */
static int fail_missing(hid_t file, const char *path, const char *name, pl_error_t *err)
{
    char list[300] = "", one[80];
    for (uint64_t n = 0; lib.name_at(file, "/", 0, 0, n, one, sizeof one, 0) > 0; n++)
        if (strlen(list) + strlen(one) + 3 < sizeof list)
            sprintf(list + strlen(list), "%s%s", *list ? ", " : "", one);
    return pl_fail(err, PL_ENOTFOUND, "%s: there is no data set \"%.80s\"; there are %s",
                   path, name, *list ? list : "none");
}

/* The type in memory of the elements of the data set. */
static int find_type(struct pl_hdf5 *h, const char *where, pl_dtype_t *dtype,
                     pl_error_t *err)
{
    static const char *const classes[] = {"whole numbers", "floats",
                                          "times",         "texts",
                                          "bit fields",    "bytes",
                                          "compounds",     "references",
                                          "enumerations",  "lists of any length",
                                          "arrays"};
    const hid_t type = lib.set_type(h->set);
    const int class = lib.type_class(type);
    const size_t width = lib.type_size(type);
    const bool is_signed = class == CLASS_INTEGER && lib.type_sign(type) != 0;
    int native = -1;
    lib.type_close(type);
    if (class == CLASS_FLOAT && width <= 8)
        native = width == 8 ? F64 : F32;
    else if ((class == CLASS_INTEGER && !is_signed && width == 1)
             || (class == CLASS_ENUM && width == 1))
        native = U8;
    else if (class == CLASS_INTEGER && width <= 8)
        native = width < 4 || (width == 4 && is_signed) ? I32
                 : width == 8 && !is_signed             ? U64
                                                        : I64;
    if (native < 0)
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "%s has %s of %zu bytes: whole numbers and floats of up to 8 bytes "
            "can be read",
            where,
            class >= 0 && class < (int)(sizeof classes / sizeof *classes)
                ? classes[class]
                : "elements of an unknown type",
            width);
    static const pl_dtype_t dtypes[] = {PL_F32, PL_F64, PL_U8, PL_I32, PL_I64, PL_I64};
    *dtype = dtypes[native];
    h->type = *lib.type[native];
    h->is_unsigned_64 = native == U64;
    return PL_OK;
}

/* Reads rows [first, first + count) of the first axis, or all of a data set without
 * axes: out as in memory. */
static int read_rows(const struct pl_hdf5 *h, const char *where, uint64_t first,
                     uint64_t count, void *out, pl_error_t *err)
{
    uint64_t start[AXES] = {first}, size[AXES], elements = 1;
    memcpy(size, h->dim, sizeof size);
    size[0] = count;
    for (int k = 0; k < h->rank; k++)
        elements *= size[k];
    if (elements == 0)
        return PL_OK;
    pthread_mutex_lock(&lock);
    const hid_t from = h->rank ? lib.set_space(h->set) : 0,
                to = h->rank ? lib.space_new(h->rank, size, NULL) : 0;
    int failed = from < 0 || to < 0
                 || (h->rank && lib.select(from, SELECT_SET, start, NULL, size, NULL) < 0)
                 || lib.read(h->set, h->type, to, from, 0, out) < 0;
    if (h->rank && from > 0)
        lib.space_close(from);
    if (h->rank && to > 0)
        lib.space_close(to);
    pthread_mutex_unlock(&lock);
    if (failed)
        return pl_fail(err, PL_EFORMAT,
                       "%s cannot be read: the file is damaged or truncated, or it has a "
                       "compression that libhdf5 lacks",
                       where);
    const uint64_t *number = out;
    for (uint64_t k = 0; h->is_unsigned_64 && k < elements; k++)
        if (number[k] > INT64_MAX)
            return pl_fail(err, PL_EFORMAT, "%s: row %llu has a number above 2^63 - 1",
                           where, (unsigned long long)first);
    return PL_OK;
}

void pl_hdf5_close(struct pl_hdf5 *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&lock);
    if (h->set > 0)
        lib.set_close(h->set);
    if (h->file > 0)
        lib.file_close(h->file);
    pthread_mutex_unlock(&lock);
    pl_free(h);
}

/* Opens file and data set, and fills type and shape; the lock is held. */
static int set_open(struct pl_hdf5 *h, const char *path, const char *name,
                    pl_array_t *array, pl_error_t *err)
{
    char where[600];
    snprintf(where, sizeof where, "%.400s:%.150s", path, name);
    if (access(path, R_OK) != 0)
        return pl_fail(err, errno == ENOENT ? PL_ENOTFOUND : PL_EIO, "%s: %m", path);
    if (!library_open())
        return pl_fail(
            err, PL_ENOTFOUND,
            "%s is an HDF5 file, and libhdf5 is not installed: apt-get install "
            "libhdf5-dev",
            path);
    if ((h->file = lib.file_open(path, READ_ONLY, 0)) < 0)
        return pl_fail(err, PL_EFORMAT,
                       "%s: it cannot be read as HDF5: it is another file, damaged or "
                       "truncated",
                       path);
    if ((h->set = lib.set_open(h->file, name, 0)) < 0)
        return fail_missing(h->file, path, name, err);
    const hid_t space = lib.set_space(h->set);
    const int class = lib.space_class(space);
    h->rank = lib.space_rank(space);
    if ((class == SIMPLE && h->rank <= AXES && lib.space_dims(space, h->dim, NULL) < 0)
        || (class != SIMPLE && class != SCALAR) || h->rank > PL_DIMS) {
        lib.space_close(space);
        return pl_fail(err, PL_EUNSUPPORTED,
                       "%s has %d axes, or no elements: 1 to %d can be read", where,
                       h->rank, PL_DIMS);
    }
    lib.space_close(space);
    array->shape.rank = h->rank;
    for (int k = 0; k < h->rank; k++)
        array->shape.dim[k] = h->dim[k] > INT64_MAX ? -1 : (int64_t)h->dim[k];
    return find_type(h, where, &array->dtype, err);
}

int pl_hdf5_open(const char *path, const char *name, size_t memory, pl_array_t *array,
                 pl_error_t *err)
{
    pl_array_t made = {0};
    char where[600];
    size_t bytes = 0;
    struct pl_hdf5 *h = pl_alloc(sizeof *h);
    if (!h)
        return pl_no_memory(err);
    snprintf(where, sizeof where, "%.400s:%.150s", path, name);
    pthread_mutex_lock(&lock);
    int code = set_open(h, path, name, &made, err);
    pthread_mutex_unlock(&lock);
    if (!code && !pl_array_size(made.dtype, &made.shape, &made.count, &bytes))
        code = pl_fail(err, PL_EFORMAT, "%s is too large", where);
    if (!code && bytes > memory) {
        made.in_file = true;
        made.hdf5 = h;
        *array = made;
        return PL_OK;
    }
    if (!code && bytes > pl_file_limit())
        code = pl_fail(err, PL_EFORMAT,
                       "%s has %zu bytes; set \"memory_mb\" to leave it "
                       "in the file",
                       where, bytes);
    if (!code && !(made.owned.data = pl_alloc(bytes + 1)))
        code = pl_no_memory(err);
    if (!code)
        code = read_rows(h, where, 0, h->dim[0], made.owned.data, err);
    pl_hdf5_close(h);
    if (code) {
        pl_file_bytes_release(&made.owned);
        return code;
    }
    made.data = made.owned.data;
    *array = made;
    return PL_OK;
}

int pl_hdf5_read(const pl_array_t *array, const char *name, int64_t first, size_t count,
                 pl_dtype_t to, void *out, pl_error_t *err)
{
    const struct pl_hdf5 *h = array->hdf5;
    const size_t width = pl_array_width(array->dtype);
    int64_t row = 1;
    for (int k = 1; k < h->rank; k++)
        row *= (int64_t)h->dim[k];
    if (count == 0)
        return PL_OK;
    const int64_t from = first / row,
                  rows = (first + (int64_t)count - 1) / row - from + 1;
    char *piece = pl_alloc_array((size_t)(rows * row), width);
    if (!piece)
        return pl_no_memory(err);
    const int code = read_rows(h, name, (uint64_t)from, (uint64_t)rows, piece, err);
    if (code == PL_OK)
        pl_convert(array->dtype, piece + (size_t)(first - from * row) * width, to, out,
                   count);
    pl_free(piece);
    return code;
}
