/* idx.c - IDX arrays: the format of MNIST and its relatives */
#include "formats/array.h"

#include <endian.h>
#include <string.h>

/* By the code of the type in the header. */
static const pl_raw_t types[] = {
    [0x08] = {'u', 1, true}, [0x09] = {'i', 1, true}, [0x0B] = {'i', 2, true},
    [0x0C] = {'i', 4, true}, [0x0D] = {'f', 4, true}, [0x0E] = {'f', 8, true}};

static int idx_parse(const void *data, size_t size, const char *name, bool in_file,
                     pl_array_t *array, pl_error_t *err)
{
    const uint8_t *p = data;
    pl_array_t found = {.in_file = in_file};
    pl_raw_t raw = {0};
    if (size < 4 || p[0] || p[1])
        return pl_fail(err, PL_EFORMAT, "%s: byte 0: this is not an IDX file", name);
    if (p[2] < sizeof types / sizeof *types)
        raw = types[p[2]];
    if (!raw.width || !pl_raw_dtype(&raw, &found.dtype))
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "%s: byte 2: elements of type 0x%02x; 0x08 (bytes), 0x09 (signed bytes), "
            "0x0b (short), 0x0c (int), 0x0d (float) and 0x0e (double) are supported",
            name, p[2]);
    if (p[3] < 1 || p[3] > PL_DIMS)
        return pl_fail(err, PL_EFORMAT, "%s: byte 3: %d axes; 1 to %d are possible", name,
                       p[3], PL_DIMS);
    found.shape.rank = p[3];
    size_t start = 4 + 4 * (size_t)found.shape.rank, bytes;
    if (size < start)
        return pl_fail(err, PL_EFORMAT, "%s: truncated at byte %zu, in the header", name,
                       size);
    for (int i = 0; i < found.shape.rank; i++) {
        uint32_t word;
        memcpy(&word, p + 4 + 4 * i, sizeof word);
        found.shape.dim[i] = be32toh(word);
    }
    if (!pl_array_size(found.dtype, &found.shape, &found.count, &bytes))
        return pl_fail(err, PL_EFORMAT,
                       "%s: byte 4: the product of the axes is too large", name);
    bytes = (size_t)found.count * raw.width;                /* no more than in memory */
    if (size - start < bytes)
        return pl_fail(err, PL_EFORMAT, "%s: truncated at byte %zu of %zu, in record %zu",
                       name, size, start + bytes,
                       (size - start) / (bytes / (size_t)found.shape.dim[0]));
    if (size - start > bytes)
        return pl_fail(err, PL_EFORMAT,
                       "%s: byte %zu: %zu bytes more than the header says", name,
                       start + bytes, size - start - bytes);
    const int code = pl_array_decode(&found, p + start, &raw, name, err);
    if (code == PL_OK)
        *array = found;
    return code;
}

int pl_idx_read(const void *data, size_t size, const char *name, pl_array_t *array,
                pl_error_t *err)
{
    return idx_parse(data, size, name, false, array, err);
}

int pl_idx_load(const char *path, size_t limit, pl_array_t *array, pl_error_t *err)
{
    pl_file_bytes_t bytes;
    int code = pl_file_read(path, limit, &bytes, err);
    if (code)
        return code;
    code = pl_idx_read(bytes.data, bytes.size, path, array, err);
    if (code || array->owned.data)
        pl_file_bytes_release(&bytes);
    else
        array->owned = bytes;
    return code;
}

int pl_idx_open(const char *path, size_t memory, pl_array_t *array, pl_error_t *err)
{
    pl_file_map_t map;
    const int code = pl_file_map(path, memory, &map, err);
    return code ? code
           : map.data
               ? pl_array_leave(array, &map,
                                idx_parse(map.data, map.size, path, true, array, err))
               : pl_idx_load(path, pl_file_limit(), array, err);
}
