/* idx.c - IDX arrays: the format of MNIST and its relatives */
#include "formats/idx.h"

#include <endian.h>
#include <string.h>

static int idx_dtype(uint8_t code, pl_dtype_t *dtype)
{
    switch (code) {
    case 0x08: *dtype = PL_U8; return PL_OK;
    case 0x0C: *dtype = PL_I32; return PL_OK;
    case 0x0D: *dtype = PL_F32; return PL_OK;
    default: return PL_EUNSUPPORTED;
    }
}

static uint32_t big_endian_at(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return be32toh(word);
}

static int idx_magic(const uint8_t *p, size_t size, const char *name, pl_array_t *array,
                     pl_error_t *err)
{
    if (size < 4 || p[0] || p[1])
        return pl_fail(err, PL_EFORMAT, "%s: byte 0: this is no IDX file", name);
    if (idx_dtype(p[2], &array->dtype))
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "%s: byte 2: elements of type 0x%02x; only 0x08 (bytes), 0x0c (int) and 0x0d "
            "(float) are read",
            name, p[2]);
    if (p[3] < 1 || p[3] > PL_DIMS)
        return pl_fail(err, PL_EFORMAT, "%s: byte 3: %d axes; 1 to %d are possible", name,
                       p[3], PL_DIMS);
    array->shape.rank = p[3];
    return PL_OK;
}

static void idx_to_machine_order(uint8_t *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = big_endian_at(data + 4 * i);
        memcpy(data + 4 * i, &word, sizeof word);
    }
}

int pl_idx_read(void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err)
{
    uint8_t *p = data;
    pl_array_t found = {0};
    int code = idx_magic(p, size, name, &found, err);
    if (code)
        return code;
    size_t start = 4 + 4 * (size_t)found.shape.rank, bytes;
    if (size < start)
        return pl_fail(err, PL_EFORMAT, "%s: truncated at byte %zu, in the header", name,
                       size);
    for (int i = 0; i < found.shape.rank; i++)
        found.shape.dim[i] = big_endian_at(p + 4 + 4 * i);
    if (!pl_array_size(found.dtype, &found.shape, &found.count, &bytes))
        return pl_fail(err, PL_EFORMAT,
                       "%s: byte 4: the axes make more elements than can be", name);
    if (size - start < bytes)
        return pl_fail(err, PL_EFORMAT, "%s: truncated at byte %zu of %zu, in record %zu",
                       name, size, start + bytes,
                       (size - start) / (bytes / (size_t)found.shape.dim[0]));
    if (size - start > bytes)
        return pl_fail(err, PL_EFORMAT,
                       "%s: byte %zu: %zu bytes more than the header says", name,
                       start + bytes, size - start - bytes);
    if (found.dtype != PL_U8)
        idx_to_machine_order(p + start, found.count);
    found.data = p + start;
    *array = found;
    return PL_OK;
}

int pl_idx_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err)
{
    pl_file_bytes_t bytes;
    int code = pl_file_read(path, limit, &bytes, err);
    if (code)
        return code;
    code = pl_idx_read(bytes.data, bytes.size, path, array, err);
    if (code)
        pl_file_bytes_release(&bytes);
    else
        array->owned = bytes;
    return code;
}
