/* map.c - tests of engine/base/map.c: a map from numbers to pointers */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "paceline.h"
#include "scarce.h"
#include "tap.h"

enum { KEYS = 300, CHANGES = 20000, MANY = 400000 };

static char values[KEYS + 1];

static bool holds(const pl_map_t *map, const bool *is_there)
{
    size_t count = 0;
    bool same = true;
    for (uint64_t key = 1; key <= KEYS; key++) {
        count += is_there[key];
        same &= pl_map_get(map, key) == (is_there[key] ? &values[key] : NULL);
    }
    return same && map->count == count;
}

/* Keys come and go, in an order that the seed decides; now and then all go. */
static void a_map_holds_the_entries_that_were_put_and_not_taken(void)
{
    pl_map_t map = {0};
    bool is_there[KEYS + 1] = {false}, same = true;
    uint64_t key;
    for (uint64_t k = 0; k < CHANGES; k++) {
        key = 1 + pl_mix(k, 1) % KEYS;
        if (pl_mix(k, 2) % 2 == 0)
            same &= pl_map_put(&map, key, &values[key]) == PL_OK;
        else
            same &= pl_map_take(&map, key) == (is_there[key] ? &values[key] : NULL);
        is_there[key] = pl_mix(k, 2) % 2 == 0;
        if (k % 1000 == 999) {
            same &= holds(&map, is_there);
            for (void *value; k % 3000 == 2999 && (value = pl_map_any(&map, &key));) {
                same &= is_there[key] && value == &values[key];
                is_there[key] = false;
                pl_map_take(&map, key);
            }
            same &= holds(&map, is_there);
        }
    }
    ok(same, "%d changes", CHANGES);
    pl_map_release(&map);
}

/* 20 ms; with a search from the start for each entry it is minutes. */
static void a_map_is_emptied_in_proportion_to_its_size(void)
{
    pl_map_t map = {0};
    uint64_t key;
    int taken = 0;
    for (key = 1; key <= MANY; key++)
        pl_map_put(&map, key, values);
    const int64_t began = pl_now();
    while (pl_map_any(&map, &key) && pl_now() - began < 10 * PL_SECOND)
        taken += pl_map_take(&map, key) != NULL;
    is_int(taken, MANY, "all entries are taken, in %.3f s",
           (double)(pl_now() - began) / PL_SECOND);
    pl_map_release(&map);
}

static int fill(void *user)
{
    pl_map_t map = {0};
    int code = PL_OK;
    (void)user;
    for (uint64_t key = 1; key <= 100 && code == PL_OK; key++)
        code = pl_map_put(&map, key, values);
    for (uint64_t key = 1; key <= map.count; key++)
        code = pl_map_get(&map, key) ? code : PL_EBUG;
    pl_map_release(&map);
    return code;
}

static void memory_may_run_out(void)
{
    scarce_try(fill, NULL, "a map");
}

int main(void)
{
    scarce_init_own();
    run(a_map_holds_the_entries_that_were_put_and_not_taken);
    run(a_map_is_emptied_in_proportion_to_its_size);
    run(memory_may_run_out);
    return tap_done();
}
