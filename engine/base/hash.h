/* hash.h - FNV-1a, a hash for tables, names of files and keys of random numbers */
#ifndef PL_HASH_H
#define PL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PL_HASH_EMPTY UINT64_C(0xcbf29ce484222325)

/* Continues a hash, which begins as PL_HASH_EMPTY, with more bytes. */
static inline uint64_t pl_hash(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++)
        hash = (hash ^ ((const unsigned char *)data)[k]) * UINT64_C(0x100000001b3);
    return hash;
}

static inline uint64_t pl_hash_text(const char *text)
{
    return pl_hash(PL_HASH_EMPTY, text, strlen(text));
}

#endif
