/* explain_times.c - where the time of a run went, and what was open at a moment
 *
 * Where that of ranks went is in rank_times.c.  An actor's own time is that of its calls
 * without that of the calls it made for them. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/random.h"
#include "sight/explain_parts.h"

enum { SHOWN = 12 };

/* Of one sort: an actor of a rank, or one that waits for another. */
typedef struct sum {
    int rank;
    uint32_t kind, from_kind, message;
    uint64_t count;
    int64_t time, most;                                     /* ns */
} sum_t;

static void sum_add(pl_map_t *map, sum_t which, int64_t time)
{
    const uint64_t key = pl_mix(pl_mix((uint64_t)which.rank + 2, which.kind),
                                pl_mix(which.from_kind, which.message))
                         | 1;
    sum_t *sum = pl_map_get(map, key);
    if (!sum) {
        sum = pl_alloc(sizeof *sum);
        if (!sum)
            return;
        *sum = which;
        if (pl_map_put(map, key, sum) != PL_OK) {
            pl_free(sum);
            return;
        }
    }
    sum->count++;
    sum->time += time;
    sum->most = sum->most > time ? sum->most : time;
}

static void sums_forget(pl_map_t *map)
{
    uint64_t key;
    while (pl_map_any(map, &key))
        pl_free(pl_map_take(map, key));
    pl_map_release(map);
}

void explain_forget_times(explain_t *x)
{
    pl_rank_times_forget(&x->ranks);
    sums_forget(&x->actors);
    sums_forget(&x->waits);
}

/* ---- calls ---- */

static bool is_whole_life(uint32_t message)
{
    return message == PL_MESSAGE_start || message == PL_MESSAGE_watch;
}

void explain_time_call(explain_t *x, const pl_open_t *open, const pl_tap_record_t *end)
{
    const int64_t time = end->stamp.time > open->began ? end->stamp.time - open->began
                                                       : 0;
    const int64_t own = time > open->children ? time - open->children : 0;
    const int rank = end->stamp.rank;
    pl_rank_times_take(&x->ranks, open, end);
    if (is_whole_life(open->message))
        return;
    sum_add(&x->actors, (sum_t){.rank = rank, .kind = open->to->kind}, own);
    sum_add(&x->waits,
            (sum_t){.rank = rank,
                    .kind = open->to->kind,
                    .from_kind = open->from->kind,
                    .message = open->message},
            time);
}

/* ---- as JSON ---- */

static json_t *seconds(int64_t time)
{
    return json_real((double)time * 1e-9);
}

static int by_time(const void *a, const void *b)
{
    const sum_t *x = *(sum_t *const *)a, *y = *(sum_t *const *)b;
    return x->time < y->time ? 1 : x->time > y->time ? -1 : 0;
}

/* The greatest ones first. */
static json_t *sums_json(const pl_map_t *map, json_t *(*make)(const sum_t *))
{
    json_t *list = json_array();
    const sum_t **sorted = pl_alloc((map->count + 1) * sizeof *sorted);
    size_t count = 0;
    if (!sorted)
        return list;
    for (size_t k = 0; k < map->room; k++)
        if (map->key[k])
            sorted[count++] = map->value[k];
    qsort(sorted, count, sizeof *sorted, by_time);
    for (size_t k = 0; k < count && k < SHOWN; k++)
        json_array_append_new(list, make(sorted[k]));
    pl_free(sorted);
    return list;
}

static json_t *actor_json(const sum_t *s)
{
    return json_pack("{s:i, s:s, s:I, s:o}", "rank", s->rank, "actor",
                     pl_kind_name(s->kind), "calls", (json_int_t)s->count, "seconds",
                     seconds(s->time));
}

static json_t *wait_json(const sum_t *s)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:o, s:o}", "rank", s->rank, "who",
                     pl_kind_name(s->from_kind), "for", pl_kind_name(s->kind), "call",
                     pl_message_info(s->message)->name, "calls", (json_int_t)s->count,
                     "seconds", seconds(s->time), "longest", seconds(s->most));
}

static int64_t working(const pl_rank_times_t *t)
{
    return t->part[PL_PART_DATA] + t->part[PL_PART_FORWARD] + t->part[PL_PART_BACKWARD]
           + t->part[PL_PART_OPTIMIZER] + t->engine;
}

/* Ranks take their steps together, so the slowest is the one that the others wait for: it
 * works most.  -1: there is no other. */
static int slowest_of(const pl_map_t *ranks)
{
    int slowest = -1;
    int64_t most = 0;
    for (size_t k = 0; ranks->count > 1 && k < ranks->room; k++)
        if (ranks->key[k] && working(ranks->value[k]) > most) {
            most = working(ranks->value[k]);
            slowest = pl_rank_times_rank(ranks->key[k]);
        }
    return slowest;
}

json_t *explain_times_json(explain_t *x)
{
    return json_pack("{s:o, s:i, s:o, s:o}", "ranks", pl_rank_times_json(&x->ranks),
                     "slowest", slowest_of(&x->ranks), "actors",
                     sums_json(&x->actors, actor_json), "waits",
                     sums_json(&x->waits, wait_json));
}

/* ---- what is open ---- */

static int depth_of(const pl_scene_t *scene, const pl_open_t *open)
{
    int depth = 0;
    while (depth < 64 && (open = pl_scene_find(scene, open->origin, open->cause)))
        depth++;
    return depth;
}

static int rank_of(const pl_open_t *open)
{
    if (open->to->rank != PL_RANK_UNKNOWN)
        return open->to->rank;
    return open->origin ? pl_origin_rank(open->origin) : open->from->rank;
}

static json_t *open_json(const pl_scene_t *scene, const pl_open_t *open, int64_t moment)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:i, s:o}", "rank", rank_of(open), "actor",
                     pl_kind_name(open->to->kind), "call",
                     pl_message_info(open->message)->name, "for",
                     pl_kind_name(open->from->kind), "depth", depth_of(scene, open),
                     "seconds", seconds(moment > open->began ? moment - open->began : 0));
}

static int by_rank_and_age(const void *a, const void *b)
{
    const pl_open_t *x = *(pl_open_t *const *)a, *y = *(pl_open_t *const *)b;
    if (rank_of(x) != rank_of(y))
        return rank_of(x) < rank_of(y) ? -1 : 1;
    return x->began < y->began ? -1 : x->began > y->began;
}

json_t *explain_open_json(const explain_t *x, int64_t moment)
{
    const pl_scene_t *scene = &x->scene;
    json_t *list = json_array();
    const pl_open_t **sorted = pl_alloc((scene->calls.count + 1) * sizeof *sorted);
    size_t count = 0;
    for (const pl_open_t *open = scene->open; sorted && open; open = open->next)
        if (!is_whole_life(open->message))
            sorted[count++] = open;
    if (sorted)
        qsort(sorted, count, sizeof *sorted, by_rank_and_age);
    for (size_t k = 0; k < count; k++)
        json_array_append_new(list, open_json(scene, sorted[k], moment));
    pl_free(sorted);
    return json_pack("{s:o, s:o}", "time", seconds(moment), "open", list);
}
