/* map.c - a map from numbers to pointers: a hash table with open addressing
 *
 * Linear probing; a removal shifts later entries back, so there are no tombstones and a
 * long life costs nothing. */
#include "base/map.h"

#include "base/alloc.h"
#include "base/random.h"
#include "paceline.h"

static size_t slot_home(const pl_map_t *map, uint64_t key)
{
    return (size_t)pl_mix(key, 0) & (map->capacity - 1);
}

/* The slot of a key, or the free slot for it. */
static size_t slot_find(const pl_map_t *map, uint64_t key)
{
    size_t at = slot_home(map, key);
    while (map->key[at] && map->key[at] != key)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static int map_widen(pl_map_t *map)
{
    pl_map_t wider = {.capacity = map->capacity ? 2 * map->capacity : 16};
    wider.key = pl_alloc_array(wider.capacity, sizeof *wider.key);
    wider.value = pl_alloc_array(wider.capacity, sizeof *wider.value);
    if (!wider.key || !wider.value) {
        pl_map_release(&wider);
        return PL_ENOMEM;
    }
    for (size_t k = 0; k < map->capacity; k++)
        if (map->key[k])
            pl_map_put(&wider, map->key[k], map->value[k]);
    pl_map_release(map);
    *map = wider;
    return PL_OK;
}

int pl_map_put(pl_map_t *map, uint64_t key, void *value)
{
    if (2 * (map->count + 1) > map->capacity && map_widen(map) != PL_OK)
        return PL_ENOMEM;
    size_t at = slot_find(map, key);
    map->count += !map->key[at];
    map->first = at < map->first ? at : map->first;
    map->key[at] = key;
    map->value[at] = value;
    return PL_OK;
}

void *pl_map_get(const pl_map_t *map, uint64_t key)
{
    if (!map->capacity)
        return NULL;
    size_t at = slot_find(map, key);
    return map->key[at] ? map->value[at] : NULL;
}

void *pl_map_take(pl_map_t *map, uint64_t key)
{
    if (!map->capacity)
        return NULL;
    size_t hole = slot_find(map, key), mask = map->capacity - 1;
    if (!map->key[hole])
        return NULL;
    void *value = map->value[hole];
    for (size_t at = (hole + 1) & mask; map->key[at]; at = (at + 1) & mask)
        if (((at - slot_home(map, map->key[at])) & mask) >= ((at - hole) & mask)) {
            map->key[hole] = map->key[at];
            map->value[hole] = map->value[at];
            hole = at;
        }
    map->key[hole] = 0;
    map->count--;
    return value;
}

void *pl_map_any(pl_map_t *map, uint64_t *key)
{
    while (map->first < map->capacity && !map->key[map->first])
        map->first++;
    if (map->first == map->capacity)
        return NULL;
    *key = map->key[map->first];
    return map->value[map->first];
}

void pl_map_release(pl_map_t *map)
{
    pl_free(map->key);
    pl_free(map->value);
    *map = (pl_map_t){0};
}

void pl_map_release_values(pl_map_t *map)
{
    for (size_t k = 0; k < map->capacity; k++)
        if (map->key[k])
            pl_free(map->value[k]);
    pl_map_release(map);
}
