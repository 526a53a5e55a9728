/* checksums.c - checksums of a file, block by block, made while it is written */
#include "formats/checksums.h"

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"

int pl_checksums_add(pl_checksums_t *sums, const void *data, size_t size, pl_error_t *err)
{
    const char *at = data;
    while (size > 0) {
        size_t into = sums->bytes % PL_SUMS_BLOCK, capacity = PL_SUMS_BLOCK - into;
        size_t piece = size < capacity ? size : capacity;
        if (into == 0) {
            if (PL_GROW(sums->block, sums->count, sums->capacity) != PL_OK)
                return pl_no_memory(err);
            sums->block[sums->count++] = 0;
        }
        uint32_t *crc = &sums->block[sums->count - 1];
        *crc = pl_crc32c(*crc, at, piece);
        sums->bytes += piece;
        at += piece;
        size -= piece;
    }
    return PL_OK;
}

void pl_checksums_release(pl_checksums_t *sums)
{
    pl_free(sums->block);
    *sums = (pl_checksums_t){0};
}
