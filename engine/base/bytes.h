/* bytes.h - a piece of memory that belongs to another */
#ifndef PL_BASE_BYTES_H
#define PL_BASE_BYTES_H

#include <stddef.h>

/* Borrowed. */
typedef struct pl_bytes {
    const void *data;
    size_t size;
} pl_bytes_t;

#endif
