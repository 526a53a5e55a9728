/* map.h - from numbers to pointers: a hash table with open addressing */
#ifndef PL_BASE_MAP_H
#define PL_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct pl_map {
    uint64_t *key;                                         /* 0: free; keys are never 0 */
    void **value;
    size_t capacity, count;                         /* capacity is a power of two, or 0 */
} pl_map_t;

/* PL_OK or PL_ENOMEM; replaces what was there. */
int pl_map_put(pl_map_t *map, uint64_t key, void *value);
void *pl_map_get(const pl_map_t *map, uint64_t key);        /* NULL when there is none */
void *pl_map_take(pl_map_t *map, uint64_t key);             /* removes it; what it was, or
                                                               NULL */
/* Some entry, or NULL when empty: for taking all out. */
void *pl_map_any(const pl_map_t *map, uint64_t *key);
void pl_map_release(pl_map_t *map);

#endif
