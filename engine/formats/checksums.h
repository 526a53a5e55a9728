/* checksums.h - checksums of a file, block by block, made while it is written */
#ifndef PL_FORMATS_CHECKSUMS_H
#define PL_FORMATS_CHECKSUMS_H

#include "paceline.h"

#define PL_SUMS_BLOCK (1 << 20)                             /* bytes */

/* Starts as zeros. */
typedef struct pl_checksums {
    uint64_t bytes;
    uint32_t *block;                                        /* CRC-32C of each */
    int count, capacity;
} pl_checksums_t;

/* What follows what was added before. */
int pl_checksums_add(pl_checksums_t *sums, const void *data, size_t size,
                     pl_error_t *err);
void pl_checksums_release(pl_checksums_t *sums);

#endif
