/* map.h - a map from numbers to pointers: a hash table with open addressing */
#ifndef PL_BASE_MAP_H
#define PL_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct pl_map {
    uint64_t *key;                                         /* 0: free; keys are never 0 */
    void **value;
    size_t capacity, count;                         /* capacity is a power of two, or 0 */
    size_t first;                                   /* slots before it are free */
} pl_map_t;

/* Sets the value of a key: PL_OK or PL_ENOMEM. */
int pl_map_put(pl_map_t *map, uint64_t key, void *value);
void *pl_map_get(const pl_map_t *map, uint64_t key);        /* NULL: none */
void *pl_map_take(pl_map_t *map, uint64_t key);             /* removes and returns it */
/* Any entry, to empty a map in proportion to its size; NULL: the map is empty. */
void *pl_map_any(pl_map_t *map, uint64_t *key);
void pl_map_release(pl_map_t *map);
/* The same after pl_free() of all values. */
void pl_map_release_values(pl_map_t *map);

#endif
