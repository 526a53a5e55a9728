/* array.c - arrays of files: elements as a file holds them, and conversion between types
 *
 * The inner loops of conversions have a constant length, so that gcc uses vectors for
 * them at -O2 on any instruction set. A batch is converted each time it is made. */
#include "formats/array.h"

#include <assert.h>
#include <endian.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "npy and safetensors are read as they lie in the file");

void pl_array_release(pl_array_t *array)
{
    if (array->hdf5)
        pl_hdf5_close(array->hdf5);
    else if (array->in_file)
        close(array->fd);
    pl_file_bytes_release(&array->owned);
    *array = (pl_array_t){0};
}

size_t pl_array_width(pl_dtype_t dtype)
{
    switch (dtype) {
    case PL_F64:
    case PL_I64: return 8;
    case PL_F32:
    case PL_I32: return 4;
    case PL_BF16:
    case PL_F16: return 2;
    case PL_U8: return 1;
    }
    return 1;
}

bool pl_array_size(pl_dtype_t dtype, const pl_shape_t *shape, int64_t *count,
                   size_t *bytes)
{
    int64_t elements = 1, total;
    if ((unsigned)dtype > PL_F16)
        return false;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] < 0
            || __builtin_mul_overflow(elements, shape->dim[i], &elements))
            return false;
    if (__builtin_mul_overflow(elements, (int64_t)pl_array_width(dtype), &total))
        return false;
    *count = elements;
    *bytes = (size_t)total;
    return true;
}

/* ---- elements that differ between file and memory ---- */

bool pl_raw_dtype(const pl_raw_t *raw, pl_dtype_t *dtype)
{
    static const struct {
        char kind;
        size_t width;
        pl_dtype_t dtype;
    } types[] = {
        {'b', 1, PL_U8},  {'u', 1, PL_U8},  {'i', 1, PL_I32}, {'i', 2, PL_I32},
        {'u', 2, PL_I32}, {'i', 4, PL_I32}, {'u', 4, PL_I64}, {'i', 8, PL_I64},
        {'u', 8, PL_I64}, {'f', 2, PL_F32}, {'f', 4, PL_F32}, {'f', 8, PL_F64},
    };
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (types[k].kind == raw->kind && types[k].width == raw->width) {
            *dtype = types[k].dtype;
            return true;
        }
    return false;
}

static double raw_float(uint64_t bits, size_t width)
{
    double wide;
    float narrow;
    const uint32_t word = (uint32_t)bits;
    if (width == 2)
        return pl_f16_float((uint16_t)bits);
    memcpy(&wide, &bits, sizeof wide);
    memcpy(&narrow, &word, sizeof narrow);
    return width == 4 ? (double)narrow : wide;
}

/* Stores an element of a file; false: it is larger than int64. */
static bool raw_store(uint64_t bits, const pl_raw_t *raw, pl_dtype_t dtype, void *data,
                      int64_t at)
{
    const size_t unused = 64 - 8 * raw->width;
    const int64_t whole = raw->kind == 'i' ? (int64_t)(bits << unused) >> unused
                                           : (int64_t)bits;
    switch (dtype) {
    case PL_U8:
        ((uint8_t *)data)[at] = raw->kind == 'b' ? bits != 0 : (uint8_t)bits;
        break;
    case PL_I32: ((int32_t *)data)[at] = (int32_t)whole; break;
    case PL_I64: ((int64_t *)data)[at] = whole; break;
    case PL_F32: ((float *)data)[at] = (float)raw_float(bits, raw->width); break;
    default: ((double *)data)[at] = raw_float(bits, raw->width); break;
    }
    return raw->kind != 'u' || whole >= 0;
}

/* Advances the index of an array, last axis fastest; -> its place in Fortran order. */
static int64_t fortran_next(const pl_shape_t *shape, int64_t index[PL_DIMS])
{
    int64_t place = 0;
    for (int axis = shape->rank - 1; axis >= 0; axis--) {
        if (++index[axis] < shape->dim[axis])
            break;
        index[axis] = 0;
    }
    for (int axis = shape->rank - 1; axis >= 0; axis--)
        place = place * shape->dim[axis] + index[axis];
    return place;
}

/* The elements of a file are those of memory. */
static bool raw_is_plain(const pl_raw_t *raw, pl_dtype_t dtype)
{
    const size_t width = pl_array_width(dtype);
    return raw->width == width && raw->kind != 'b' && (raw->kind != 'u' || width == 1)
           && (!raw->big_endian || width == 1);
}

/* An element of a file, from the bytes where it begins. */
static uint64_t raw_bits(const void *element, const pl_raw_t *raw)
{
    uint64_t bits = 0;
    memcpy(&bits, element, raw->width);
    return raw->big_endian ? be64toh(bits) >> (64 - 8 * raw->width) : bits;
}

static int raw_too_large(const char *name, int64_t at, uint64_t bits, pl_error_t *err)
{
    return pl_fail(err, PL_EFORMAT, "%s: element %lld is %llu, more than 2^63 - 1", name,
                   (long long)at, (unsigned long long)bits);
}

int pl_array_decode(pl_array_t *array, const void *elements, const pl_raw_t *raw,
                    const char *name, pl_error_t *err)
{
    const size_t width = pl_array_width(array->dtype);
    const bool turned = raw->fortran && array->shape.rank > 1;
    array->raw = *raw;
    if (!turned && (array->in_file || raw_is_plain(raw, array->dtype))) {
        array->data = elements;
        return PL_OK;
    }
    if ((size_t)array->count > pl_file_limit() / width)
        return pl_fail(err, PL_EFORMAT,
                       "%s: more than %zu bytes in memory, which is the "
                       "limit%s",
                       name, pl_file_limit(),
                       turned ? ": save it in C order (numpy.ascontiguousarray), and it "
                                "can stay on the disk"
                              : "");
    uint8_t *data = pl_alloc_array((size_t)array->count + 1, width);
    if (!data)
        return pl_no_memory(err);
    int64_t index[PL_DIMS] = {0}, from = 0;
    for (int64_t i = 0; i < array->count; i++) {
        const uint64_t bits =
            raw_bits((const uint8_t *)elements + (size_t)from * raw->width, raw);
        if (!raw_store(bits, raw, array->dtype, data, i)) {
            pl_free(data);
            return raw_too_large(name, i, bits, err);
        }
        from = turned ? fortran_next(&array->shape, index) : i + 1;
    }
    array->owned = (pl_file_bytes_t){data, (size_t)array->count * width};
    array->data = data;
    array->in_file = false;
    return PL_OK;
}

/* ---- elements that stay in their file ---- */

int pl_array_leave(pl_array_t *array, pl_file_map_t *map, int code)
{
    const bool stays = code == PL_OK && array->in_file;
    if (stays)
        array->at = (uint64_t)((const uint8_t *)array->data - map->data);
    if (stays)
        array->data = NULL;
    pl_file_unmap(map, stays ? &array->fd : NULL);
    return code;
}

void pl_array_expect(const pl_array_t *array, int64_t first, size_t count)
{
    enum { LINE = 64, MOST = 4096 };        /* bytes; the processor follows longer runs */
    const size_t width = pl_array_width(array->dtype), bytes = count * width;
    for (size_t k = 0; k < bytes && k < MOST && !array->in_file; k += LINE)
        __builtin_prefetch((const char *)array->data + (size_t)first * width + k);
}

int pl_array_read(const pl_array_t *array, const char *name, int64_t first, size_t count,
                  pl_dtype_t to, void *out, pl_error_t *err)
{
    enum { PIECE = 16384 };                                 /* bytes */
    uint64_t piece[PIECE / 8], wide[PIECE / 8];
    const pl_raw_t *raw = &array->raw;
    const size_t width = pl_array_width(array->dtype), to_width = pl_array_width(to),
                 most = PIECE / (width > raw->width ? width : raw->width);
    if (!array->in_file) {
        pl_convert(array->dtype, (const char *)array->data + (size_t)first * width, to,
                   out, count);
        return PL_OK;
    }
    if (array->hdf5)
        return pl_hdf5_read(array, name, first, count, to, out, err);
    const uint64_t at = array->at + (uint64_t)first * raw->width;
    const bool plain = raw_is_plain(raw, array->dtype);
    if (plain && to == array->dtype)
        return pl_file_read_at(array->fd, name, at, count * width, out, err);
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < most ? count - done : most;
        const int code = pl_file_read_at(array->fd, name, at + done * raw->width,
                                         n * raw->width, piece, err);
        if (code != PL_OK)
            return code;
        for (size_t i = 0; i < n && !plain; i++) {
            const uint64_t bits = raw_bits((const uint8_t *)piece + i * raw->width, raw);
            if (!raw_store(bits, raw, array->dtype, wide, (int64_t)i))
                return raw_too_large(name, first + (int64_t)(done + i), bits, err);
        }
        pl_convert(array->dtype, plain ? piece : wide, to, (char *)out + done * to_width,
                   n);
    }
    return PL_OK;
}

/* ---- conversion ---- */

#define BLOCK 64

void pl_convert_u8_f32(const uint8_t *restrict in, size_t n, float scale, float shift,
                       float *restrict out)
{
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t k = 0; k < BLOCK; k++)
            out[i + k] = (float)in[i + k] * scale + shift;
    for (; i < n; i++)
        out[i] = (float)in[i] * scale + shift;
}

#define CONVERT(name, from, to) \
    static void name(const from *restrict in, size_t n, to *restrict out) \
    { \
        size_t i = 0; \
        for (; i + BLOCK <= n; i += BLOCK) \
            for (size_t k = 0; k < BLOCK; k++) \
                out[i + k] = (to)in[i + k]; \
        for (; i < n; i++) \
            out[i] = (to)in[i]; \
    }

CONVERT(f64_to_f32, double, float)
CONVERT(u8_to_i64, uint8_t, int64_t)
CONVERT(i32_to_i64, int32_t, int64_t)

void pl_convert(pl_dtype_t from, const void *in, pl_dtype_t to, void *out, size_t n)
{
    if (from == to)
        memcpy(out, in, n * pl_array_width(to));
    else if (from == PL_U8 && to == PL_F32)
        pl_convert_u8_f32(in, n, 1, 0, out);
    else if (from == PL_F64 && to == PL_F32)
        f64_to_f32(in, n, out);
    else if (from == PL_U8 && to == PL_I64)
        u8_to_i64(in, n, out);
    else if (from == PL_I32 && to == PL_I64)
        i32_to_i64(in, n, out);
    else
        assert(!"a conversion that is offered");
}
