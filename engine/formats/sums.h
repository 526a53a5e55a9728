/* sums.h - checksums of a file, block by block, made while it is written */
#ifndef PL_FORMATS_SUMS_H
#define PL_FORMATS_SUMS_H

#include "paceline.h"

#define PL_SUMS_BLOCK (1 << 20)                             /* bytes */

/* Starts as zeros. */
typedef struct pl_sums {
    uint64_t bytes;
    uint32_t *block;                                        /* CRC-32C of each */
    int count, capacity;
} pl_sums_t;

/* What follows what was added before. */
int pl_sums_add(pl_sums_t *sums, const void *data, size_t size, pl_error_t *err);
void pl_sums_release(pl_sums_t *sums);

#endif
