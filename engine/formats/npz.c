/* npz.c - one array of NumPy's .npz archives: .npy files in a ZIP file
 *
 * The directory at the end of the file says where each member begins (PKWARE's APPNOTE,
 * 4.3 to 4.5).  NumPy writes local headers with sizes of 64 bits, but directories with
 * them only where they are needed; both are read.  Memory is reserved for an array only
 * up to the limit, and not more than its compressed bytes can hold. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "formats/array.h"

enum { END = 22, LOCATOR = 20, END_64 = 56, ENTRY = 46, LOCAL = 30 };
enum { STORED = 0, DEFLATED = 8, DEFLATE_MAX = 1032 };

typedef struct npz {
    const char *name;
    const uint8_t *data;
    size_t size;
    pl_error_t *err;
} npz_t;

/* A member: its bytes in the file. */
typedef struct npz_member {
    const uint8_t *packed;
    uint64_t packed_size, size, offset;
    uint32_t method, crc;
} npz_member_t;

static uint64_t number(const uint8_t *bytes, int count)
{
    uint64_t value = 0;
    while (count--)
        value = value << 8 | bytes[count];
    return value;
}

static int npz_damaged(const npz_t *npz, const char *what)
{
    return pl_fail(npz->err, PL_EFORMAT, "%s: damaged: %s", npz->name, what);
}

/* Sizes and offset of an entry of the directory; those of 32 bits that are full are in an
 * extra field. */
static bool entry_sizes(const uint8_t *entry, npz_member_t *member)
{
    const size_t name = number(entry + 28, 2), length = number(entry + 30, 2);
    const uint8_t *extra = entry + ENTRY + name;
    uint64_t *const value[] = {&member->size, &member->packed_size, &member->offset};
    *member = (npz_member_t){.method = (uint32_t)number(entry + 10, 2),
                             .crc = (uint32_t)number(entry + 16, 4),
                             .packed_size = number(entry + 20, 4),
                             .size = number(entry + 24, 4),
                             .offset = number(entry + 42, 4)};
    for (size_t at = 0; at + 4 <= length; at += 4 + number(extra + at + 2, 2)) {
        const size_t end = at + 4 + number(extra + at + 2, 2);
        if (number(extra + at, 2) != 1)
            continue;
        size_t from = at + 4;
        for (int k = 0; k < 3; k++) {
            if (*value[k] != UINT32_MAX)
                continue;
            if (from + 8 > end || end > length)
                return false;
            *value[k] = number(extra + from, 8);
            from += 8;
        }
    }
    return true;
}

/* Finds the member "NAME.npy"; PL_ENOTFOUND lists those that are there. */
static int npz_find(const npz_t *npz, const char *array, npz_member_t *member)
{
    char names[200] = "";
    size_t at = npz->size < END ? 0 : npz->size - END;
    while (at > 0 && memcmp(npz->data + at, "PK\5\6", 4))
        at--;
    if (npz->size < END || memcmp(npz->data + at, "PK\5\6", 4))
        return npz_damaged(npz, "it has no directory at its end, as a ZIP file has");
    uint64_t entries = number(npz->data + at + 10, 2);
    size_t from = number(npz->data + at + 16, 4);
    if (from == UINT32_MAX && at >= LOCATOR
        && !memcmp(npz->data + at - LOCATOR, "PK\6\7", 4)) {
        const uint64_t end = number(npz->data + at - LOCATOR + 8, 8);
        if (end > npz->size || npz->size - end < END_64
            || memcmp(npz->data + end, "PK\6\6", 4))
            return npz_damaged(npz, "its directory is not whole");
        entries = number(npz->data + end + 32, 8);
        from = number(npz->data + end + 48, 8);
    }
    for (uint64_t k = 0; k < entries; k++) {
        if (from > npz->size || npz->size - from < ENTRY
            || memcmp(npz->data + from, "PK\1\2", 4))
            return npz_damaged(npz, "its directory is not whole");
        const uint8_t *entry = npz->data + from;
        const size_t name = number(entry + 28, 2),
                     whole = ENTRY + name + number(entry + 30, 2) + number(entry + 32, 2);
        if (whole > npz->size - from)
            return npz_damaged(npz, "its directory is not whole");
        const char *text = (const char *)entry + ENTRY;
        const size_t stem = name > 4 && !memcmp(text + name - 4, ".npy", 4) ? name - 4
                                                                            : name;
        if (stem == strlen(array) && !memcmp(text, array, stem))
            return entry_sizes(entry, member) ? PL_OK
                                              : npz_damaged(npz, "sizes are missing");
        const size_t used = strlen(names);
        if (stem < 40 && used + stem + 3 < sizeof names)
            snprintf(names + used, sizeof names - used, "%s%.*s", used ? ", " : "",
                     (int)stem, text);
        from += whole;
    }
    return pl_fail(npz->err, PL_ENOTFOUND,
                   "%s: there is no array \"%.40s\"; there are %s: name one as "
                   "\"FILE.npz:NAME\"",
                   npz->name, array, *names ? names : "none");
}

/* Unpacks a member, as the bytes of an .npy file. */
static int npz_unpack(const npz_t *npz, const npz_member_t *member, size_t limit,
                      pl_file_bytes_t *bytes)
{
    z_stream z = {.next_in = (uint8_t *)member->packed,
                  .avail_in = (unsigned)member->packed_size};
    if (member->method != STORED && member->method != DEFLATED)
        return pl_fail(npz->err, PL_EUNSUPPORTED,
                       "%s: an array is packed by method %u; numpy.savez and "
                       "savez_compressed write 0 and 8",
                       npz->name, member->method);
    if (member->size > limit || member->packed_size > UINT32_MAX
        || member->size > UINT32_MAX || member->size / DEFLATE_MAX > member->packed_size
        || (member->method == STORED && member->size != member->packed_size))
        return pl_fail(npz->err, PL_EFORMAT,
                       "%s: an array of %llu bytes, packed into %llu, is not possible, "
                       "or larger than %zu bytes and 4 GiB",
                       npz->name, (unsigned long long)member->size,
                       (unsigned long long)member->packed_size, limit);
    bytes->data = pl_alloc(member->size + 1);
    if (!bytes->data)
        return pl_no_memory(npz->err);
    bytes->size = member->size;
    z.next_out = bytes->data;
    z.avail_out = (unsigned)member->size;
    int status = Z_STREAM_END;
    if (member->method == STORED)
        memcpy(bytes->data, member->packed, member->size);
    else if ((status = inflateInit2(&z, -MAX_WBITS)) == Z_OK) {
        status = inflate(&z, Z_FINISH);
        inflateEnd(&z);
    }
    if (status == Z_MEM_ERROR)
        return pl_no_memory(npz->err);
    if (status != Z_STREAM_END || (member->method == DEFLATED && z.avail_out > 0)
        || crc32(0, bytes->data, (unsigned)member->size) != member->crc)
        return npz_damaged(npz, "an array differs from its checksum");
    return PL_OK;
}

/* Finds an array, and its bytes in the archive. */
static int npz_member(const npz_t *npz, const char *array, npz_member_t *member)
{
    const int code = npz_find(npz, array, member);
    if (code)
        return code;
    if (member->offset > npz->size || npz->size - member->offset < LOCAL
        || memcmp(npz->data + member->offset, "PK\3\4", 4))
        return npz_damaged(npz, "an array is not where the directory says");
    const uint8_t *local = npz->data + member->offset;
    const size_t from = (size_t)member->offset + LOCAL + number(local + 26, 2)
                        + number(local + 28, 2);
    if (from > npz->size || npz->size - from < member->packed_size)
        return npz_damaged(npz, "an array ends behind the file");
    member->packed = npz->data + from;
    return PL_OK;
}

static int npz_take(const npz_t *npz, const npz_member_t *member, size_t limit,
                    pl_array_t *found)
{
    pl_file_bytes_t bytes = {0};
    int code = npz_unpack(npz, member, limit, &bytes);
    if (!code)
        code = pl_npy_take(&bytes, npz->name, found, npz->err);
    pl_file_bytes_release(&bytes);
    return code;
}

int pl_npz_read(const void *data, size_t size, const char *name, const char *array,
                size_t limit, pl_array_t *found, pl_error_t *err)
{
    const npz_t npz = {name, data, size, err};
    npz_member_t member;
    const int code = npz_member(&npz, array, &member);
    return code ? code : npz_take(&npz, &member, limit, found);
}

int pl_npz_load(const char *path, const char *array, size_t limit, pl_array_t *found,
                pl_error_t *err)
{
    pl_file_bytes_t bytes;
    int code = pl_file_read(path, limit, &bytes, err);
    if (code)
        return code;
    code = pl_npz_read(bytes.data, bytes.size, path, array, limit, found, err);
    pl_file_bytes_release(&bytes);
    return code;
}

int pl_npz_open(const char *path, const char *array, size_t memory, pl_array_t *found,
                pl_error_t *err)
{
    pl_file_map_t map;
    npz_member_t member;
    int code = pl_file_map(path, memory, &map, err);
    if (code || !map.data)
        return code ? code : pl_npz_load(path, array, pl_file_limit(), found, err);
    const npz_t npz = {path, map.data, map.size, err};
    code = npz_member(&npz, array, &member);
    if (!code && member.method == STORED && member.size == member.packed_size
        && member.size > memory)
        return pl_npy_leave(&map, (size_t)(member.packed - map.data), member.size, path,
                            found, err);
    if (!code)
        code = npz_take(&npz, &member, pl_file_limit(), found);
    pl_file_unmap(&map, NULL);
    return code;
}
