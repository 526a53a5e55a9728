/* npy.c - NumPy's .npy arrays
 *
 * The header is a literal of a Python dictionary. Only the form that NumPy itself writes
 * is read: three keys, a text, a truth value and a tuple of whole numbers. */
#include "formats/array.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/durable.h"

#define ALIGNMENT 64                           /* of the elements, as in files of NumPy */

static const char npy_magic[] = "\x93NUMPY";
#define MAGIC (sizeof npy_magic - 1)

/* The state of the parser of a header. */
typedef struct npy_header {
    const char *name;
    const char *file, *at, *end;
    bool has_descr, has_order, has_shape;
    pl_array_t array;
    pl_raw_t raw;
    pl_error_t *err;
} npy_header_t;

static int npy_bad(const npy_header_t *h, const char *what)
{
    return pl_fail(h->err, PL_EFORMAT, "%s: byte %zu: %s", h->name,
                   (size_t)(h->at - h->file), what);
}

static void npy_skip_space(npy_header_t *h)
{
    while (h->at < h->end && strchr(" \t\r\n", *h->at) && *h->at)
        h->at++;
}

static bool npy_take(npy_header_t *h, const char *token)
{
    npy_skip_space(h);
    size_t length = strlen(token);
    if ((size_t)(h->end - h->at) < length || memcmp(h->at, token, length))
        return false;
    h->at += length;
    return true;
}

/* A text in quotes, without escapes. */
static bool npy_text(npy_header_t *h, const char **text, size_t *length)
{
    npy_skip_space(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"'))
        return false;
    const char *close = memchr(h->at + 1, *h->at, (size_t)(h->end - h->at) - 1);
    if (!close)
        return false;
    *text = h->at + 1;
    *length = (size_t)(close - *text);
    h->at = close + 1;
    return true;
}

static int npy_descr(npy_header_t *h)
{
    const char *text;
    size_t length;
    npy_skip_space(h);
    const char *start = h->at;
    if (h->at < h->end && *h->at == '[')
        return pl_fail(h->err, PL_EUNSUPPORTED,
                       "%s: byte %zu: records of several fields cannot be read; save one "
                       "array for each field",
                       h->name, (size_t)(h->at - h->file));
    if (!npy_text(h, &text, &length))
        return npy_bad(h, "the element type is missing");
    h->has_descr = true;
    if (length == 3 && strchr("<>|=", text[0]) && text[2] > '0' && text[2] <= '8') {
        h->raw.big_endian = text[0] == '>';
        h->raw.kind = text[1];
        h->raw.width = (size_t)(text[2] - '0');
        if (pl_raw_dtype(&h->raw, &h->array.dtype))
            return PL_OK;
    }
    return pl_fail(h->err, PL_EUNSUPPORTED,
                   "%s: byte %zu: elements of type '%.*s'; bool, i1 to i8, u1 to u8 and "
                   "f2 to f8 are supported: convert with astype()",
                   h->name, (size_t)(start - h->file), (int)(length < 16 ? length : 16),
                   text);
}

static bool npy_number(npy_header_t *h, int64_t *number)
{
    npy_skip_space(h);
    const char *start = h->at;
    int64_t n = 0;
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
        if (__builtin_mul_overflow(n, 10, &n)
            || __builtin_add_overflow(n, *h->at - '0', &n))
            return false;
    *number = n;
    return h->at > start;
}

static int npy_entry(npy_header_t *h)
{
    const char *key;
    size_t length;
    if (!npy_text(h, &key, &length))
        return npy_bad(h, "a key is missing");
    if (!npy_take(h, ":"))
        return npy_bad(h, "':' is missing");
    if (length == 5 && !memcmp(key, "descr", 5) && !h->has_descr)
        return npy_descr(h);
    if (length == 13 && !memcmp(key, "fortran_order", 13) && !h->has_order) {
        h->has_order = true;
        if (npy_take(h, "False"))
            return PL_OK;
        h->raw.fortran = npy_take(h, "True");
        return h->raw.fortran ? PL_OK : npy_bad(h, "True or False is missing");
    }
    if (length == 5 && !memcmp(key, "shape", 5) && !h->has_shape) {
        pl_shape_t shape = {0};
        if (!npy_take(h, "("))
            return npy_bad(h, "the shape is missing");
        while (!npy_take(h, ")")) {
            if (shape.rank == PL_DIMS)
                return npy_bad(h, "the shape has more axes than a field may have, 6");
            if (!npy_number(h, &shape.dim[shape.rank++]))
                return npy_bad(h, "an axis must be a whole number from 0 to 2^63 - 1");
            if (npy_take(h, ","))
                continue;
            if (shape.rank == 1 || !npy_take(h, ")"))
                return npy_bad(h, "the shape does not end");
            break;
        }
        h->array.shape = shape;
        h->has_shape = true;
        return PL_OK;
    }
    return npy_bad(h, "the key before this is unknown or repeated");
}

static int npy_dictionary(npy_header_t *h)
{
    if (!npy_take(h, "{"))
        return npy_bad(h, "'{' is missing");
    while (!npy_take(h, "}")) {
        int code = npy_entry(h);
        if (code)
            return code;
        if (npy_take(h, ","))
            continue;
        if (!npy_take(h, "}"))
            return npy_bad(h, "'}' is missing");
        break;
    }
    npy_skip_space(h);
    if (h->at < h->end)
        return npy_bad(h, "unexpected text after the end of the header");
    if (!h->has_descr || !h->has_order || !h->has_shape)
        return npy_bad(h, "'descr', 'fortran_order' or 'shape' is missing");
    return PL_OK;
}

/* Finds the header's text by magic, version and length. */
static int npy_find_header(npy_header_t *h, size_t size)
{
    const uint8_t *p = (const uint8_t *)h->file;
    if (size < 10 || memcmp(p, npy_magic, MAGIC))
        return npy_bad(h, "this is not a .npy file");
    if (p[6] < 1 || p[6] > 3 || p[7])
        return pl_fail(h->err, PL_EUNSUPPORTED,
                       "%s: byte 6: version %d.%d; 1.0, 2.0 and 3.0 are supported",
                       h->name, p[6], p[7]);
    size_t start = p[6] == 1 ? 10 : 12;
    if (size < start)
        return pl_fail(h->err, PL_EFORMAT, "%s: truncated at byte %zu, in the header",
                       h->name, size);
    size_t length = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1)
        length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (length > size - start)
        return pl_fail(h->err, PL_EFORMAT,
                       "%s: truncated at byte %zu: the header alone ends at %zu", h->name,
                       size, start + length);
    h->at = h->file + start;
    h->end = h->at + length;
    return PL_OK;
}

/* Checks that exactly the elements follow the header, and decodes them. */
static int npy_take_elements(const npy_header_t *h, size_t size, pl_array_t *array)
{
    size_t start = (size_t)(h->end - h->file), bytes;
    if (!pl_array_size(array->dtype, &array->shape, &array->count, &bytes))
        return pl_fail(h->err, PL_EFORMAT,
                       "%s: the shape in the header has too many elements", h->name);
    bytes = (size_t)array->count * h->raw.width;            /* no more than in memory */
    if (size - start < bytes)
        return pl_fail(h->err, PL_EFORMAT,
                       "%s: truncated at byte %zu of %zu, in element %zu", h->name, size,
                       start + bytes, (size - start) / h->raw.width);
    if (size - start > bytes)
        return pl_fail(h->err, PL_EFORMAT,
                       "%s: byte %zu: %zu bytes more than the shape needs", h->name,
                       start + bytes, size - start - bytes);
    return pl_array_decode(array, h->end, &h->raw, h->name, h->err);
}

static int npy_parse(const void *data, size_t size, const char *name, bool in_file,
                     pl_array_t *array, pl_error_t *err)
{
    npy_header_t h = {.name = name,
                      .file = data,
                      .at = data,
                      .array = {.in_file = in_file},
                      .err = err};
    int code = npy_find_header(&h, size);
    if (!code)
        code = npy_dictionary(&h);
    if (!code)
        code = npy_take_elements(&h, size, &h.array);
    if (!code)
        *array = h.array;
    return code;
}

int pl_npy_read(const void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err)
{
    return npy_parse(data, size, name, false, array, err);
}

int pl_npy_leave(pl_file_map_t *map, size_t from, size_t size, const char *name,
                 pl_array_t *array, pl_error_t *err)
{
    return pl_array_leave(array, map,
                          npy_parse(map->data + from, size, name, true, array, err));
}

int pl_npy_open(const char *path, size_t memory, pl_array_t *array, pl_error_t *err)
{
    pl_file_map_t map;
    const int code = pl_file_map(path, memory, &map, err);
    return code       ? code
           : map.data ? pl_npy_leave(&map, 0, map.size, path, array, err)
                      : pl_npy_load(path, pl_file_limit(), array, err);
}

int pl_npy_take(pl_file_bytes_t *bytes, const char *name, pl_array_t *array,
                pl_error_t *err)
{
    pl_array_t found;
    const int code = pl_npy_read(bytes->data, bytes->size, name, &found, err);
    if (code)
        return code;
    const size_t width = pl_array_width(found.dtype);
    if (!found.owned.data) {
        if ((uintptr_t)found.data % width)                 /* a header of an odd length */
            found.data = memmove(bytes->data, found.data, (size_t)found.count * width);
        found.owned = *bytes;
        *bytes = (pl_file_bytes_t){0};
    }
    *array = found;
    return PL_OK;
}

int pl_npy_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err)
{
    pl_file_bytes_t bytes;
    int code = pl_file_read(path, limit, &bytes, err);
    if (code)
        return code;
    code = pl_npy_take(&bytes, path, array, err);
    pl_file_bytes_release(&bytes);
    return code;
}

/* The header of version 1, padded with spaces so that the elements are aligned; -> its
 * length. */
static size_t npy_header_text(const char *descr, const pl_shape_t *shape,
                              char text[static 512])
{
    int n = 10
            + snprintf(text + 10, 300,
                       "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < shape->rank; i++)
        n += snprintf(text + n, 32, "%s%lld%s", i ? " " : "", (long long)shape->dim[i],
                      i + 1 < shape->rank || i == 0 ? "," : "");
    n += snprintf(text + n, 8, "), }");
    while ((n + 1) % ALIGNMENT)
        text[n++] = ' ';
    text[n++] = '\n';
    memcpy(text, npy_magic, MAGIC);
    memcpy(text + MAGIC, (char[]){1, 0, (char)((n - 10) & 0xff), (char)((n - 10) >> 8)},
           4);
    return (size_t)n;
}

int pl_npy_write(const char *path, pl_dtype_t dtype, const pl_shape_t *shape,
                 const void *data, pl_error_t *err)
{
    static const char *const descr[] = {[PL_F32] = "<f4",
                                        [PL_F64] = "<f8",
                                        [PL_I32] = "<i4",
                                        [PL_I64] = "<i8",
                                        [PL_U8] = "|u1"};
    char header[512];
    pl_durable_t file;
    int64_t count;
    size_t bytes;
    if (pl_require(path, "a path", err) != PL_OK
        || pl_require(shape, "a shape", err) != PL_OK)
        return PL_EINVAL;
    if ((size_t)dtype >= sizeof descr / sizeof *descr || !descr[dtype])
        return pl_fail(err, PL_EINVAL, "%s: NumPy has no such element type", path);
    if (shape->rank < 0 || shape->rank > PL_DIMS
        || !pl_array_size(dtype, shape, &count, &bytes))
        return pl_fail(err, PL_EINVAL, "%s: the array's shape is impossible", path);
    if (bytes && pl_require(data, "data", err) != PL_OK)
        return PL_EINVAL;
    int code = pl_durable_open(&file, path, err);
    if (code)
        return code;
    code = pl_durable_write(&file, header, npy_header_text(descr[dtype], shape, header),
                            err);
    if (!code)
        code = pl_durable_write(&file, data, bytes, err);
    if (!code)
        return pl_durable_commit(&file, err);
    pl_durable_abandon(&file);
    return code;
}
