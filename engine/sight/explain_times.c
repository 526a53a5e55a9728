/* explain_times.c - where the time of a run went, and what was open at a moment
 *
 * Where that of ranks went is in rank_times.c.  An actor's own time is that in which it
 * has a call under way, however many, and none is under way that was made for it.  While
 * the run is paused no time is anybody's. */
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

/* ---- pauses ---- */

void explain_pause(explain_t *x, int64_t begin)
{
    if (x->pause_count == PAUSES_MOST
        || (x->pause_count && x->pauses[x->pause_count - 1].end == INT64_MAX))
        return;
    x->pauses[x->pause_count++] = (pause_t){begin, INT64_MAX};
}

void explain_go_on(explain_t *x, int64_t end)
{
    pause_t *pause = x->pause_count ? &x->pauses[x->pause_count - 1] : NULL;
    if (!pause || pause->end != INT64_MAX)
        return;
    pause->end = end > pause->begin ? end : pause->begin;
    pl_rank_times_pause(&x->ranks, pause->begin, pause->end);
}

int64_t explain_paused(const explain_t *x, int64_t begin, int64_t end)
{
    int64_t sum = 0;
    for (int k = 0; k < x->pause_count; k++) {
        const pause_t *p = &x->pauses[k];
        const int64_t from = p->begin > begin ? p->begin : begin,
                      to = p->end < end ? p->end : end;
        sum += to > from ? to - from : 0;
    }
    return sum;
}

static int64_t unpaused(const explain_t *x, int64_t begin, int64_t end)
{
    return end > begin ? end - begin - explain_paused(x, begin, end) : 0;
}

/* ---- calls ---- */

/* An actor: when it has calls under way for which none is under way further down. */
typedef struct work {
    sum_t sum;                                              /* first: see sums_json() */
    uint32_t origin;
    unsigned own;                                           /* such calls, now */
    int64_t since;                                          /* ns: since there are some */
} work_t;

static void work_changes(explain_t *x, work_t *work, int by, int64_t time)
{
    if (!work)
        return;
    if (!work->own)
        work->since = time;
    work->own += (unsigned)by;
    if (!work->own)
        work->sum.time += unpaused(x, work->since, time);
}

static work_t *work_of(explain_t *x, const pl_player_t *player)
{
    work_t *work = pl_map_get(&x->actors, player->number);
    if (work || !(work = pl_alloc(sizeof *work)))
        return work;
    *work = (work_t){.sum = {.rank = player->rank, .kind = player->kind},
                     .origin = player->origin};
    if (pl_map_put(&x->actors, player->number, work) == PL_OK)
        return work;
    pl_free(work);
    return NULL;
}

void explain_time_begins(explain_t *x, const pl_open_t *open, call_note_t *note)
{
    call_note_t *parent = explain_note(x, open->origin, open->cause);
    if (explain_is_whole_life(open->message))
        return;
    note->work = work_of(x, open->to);
    if (note->work)
        note->work->sum.count++;
    work_changes(x, note->work, 1, open->began);
    if (parent && !parent->under++)
        work_changes(x, parent->work, -!!parent->work, open->began);
}

void explain_time_lost(explain_t *x, const pl_open_t *open, const call_note_t *note,
                       int64_t time)
{
    call_note_t *parent = explain_note(x, open->origin, open->cause);
    if (!note->work)
        return;
    if (!note->under)
        work_changes(x, note->work, -1, time);
    if (parent && parent->under && !--parent->under)
        work_changes(x, parent->work, 1, time);
}

void explain_time_ends(explain_t *x, const pl_open_t *open, const call_note_t *note,
                       const pl_tap_record_t *end)
{
    pl_rank_times_take(&x->ranks, open, end);
    if (explain_is_whole_life(open->message))
        return;
    if (note->work)
        note->work->sum.rank = end->stamp.rank;
    explain_time_lost(x, open, note, end->stamp.time);
    sum_add(&x->waits,
            (sum_t){.rank = end->stamp.rank,
                    .kind = open->to->kind,
                    .from_kind = open->from->kind,
                    .message = open->message},
            unpaused(x, open->began, end->stamp.time));
}

/* What is under way when nothing more is heard of a process. */
static void works_end(explain_t *x)
{
    for (size_t k = 0; k < x->actors.room; k++) {
        work_t *work = x->actors.key[k] ? x->actors.value[k] : NULL;
        if (work && work->own)
            work_changes(x, work, -(int)work->own, explain_heard(x, work->origin));
    }
}

/* ---- as JSON ---- */

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
                     explain_seconds(s->time));
}

static json_t *wait_json(const sum_t *s)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:o, s:o}", "rank", s->rank, "who",
                     pl_kind_name(s->from_kind), "for", pl_kind_name(s->kind), "call",
                     pl_message_info(s->message)->name, "calls", (json_int_t)s->count,
                     "seconds", explain_seconds(s->time), "longest",
                     explain_seconds(s->most));
}

static int64_t working(const pl_rank_times_t *t)
{
    return t->part[PL_PART_DATA] + t->part[PL_PART_FORWARD] + t->part[PL_PART_BACKWARD]
           + t->part[PL_PART_OPTIMIZER] + t->engine;
}

/* Ranks take their steps together, so the slowest is the one that the others wait for: it
 * works most.  -1: there is no other, or all are within a fiftieth of it. */
static int slowest_of(const pl_map_t *ranks)
{
    int slowest = -1;
    int64_t most = 0, least = INT64_MAX;
    for (size_t k = 0; k < ranks->room; k++) {
        const int64_t work = ranks->key[k] ? working(ranks->value[k]) : 0;
        if (!ranks->key[k])
            continue;
        least = work < least ? work : least;
        if (work > most) {
            most = work;
            slowest = pl_rank_times_rank(ranks->key[k]);
        }
    }
    return most - least > most / 50 ? slowest : -1;
}

json_t *explain_times_json(explain_t *x)
{
    const run_t *run = x->chosen;
    const int64_t end = !run ? 0 : run->has_ended ? run->ended : x->last;
    works_end(x);
    return json_pack("{s:o, s:i, s:o, s:o, s:o}", "ranks", pl_rank_times_json(&x->ranks),
                     "slowest", slowest_of(&x->ranks), "paused",
                     explain_seconds(run ? explain_paused(x, run->began, end) : 0),
                     "actors", sums_json(&x->actors, actor_json), "waits",
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
                     "seconds",
                     explain_seconds(moment > open->began ? moment - open->began : 0));
}

static int by_rank_and_age(const void *a, const void *b)
{
    const pl_open_t *x = *(pl_open_t *const *)a, *y = *(pl_open_t *const *)b;
    if (rank_of(x) != rank_of(y))
        return rank_of(x) < rank_of(y) ? -1 : 1;
    return x->began < y->began ? -1 : x->began > y->began;
}

static bool is_of_chosen(const explain_t *x, const pl_open_t *open)
{
    const call_note_t *note = explain_note(x, open->origin, open->call);
    return note && note->run == x->chosen;
}

json_t *explain_open_json(const explain_t *x, int64_t moment)
{
    const pl_scene_t *scene = &x->scene;
    json_t *list = json_array();
    const pl_open_t **sorted = pl_alloc((scene->calls.count + 1) * sizeof *sorted);
    size_t count = 0;
    for (const pl_open_t *open = scene->open; sorted && open; open = open->next)
        if (is_of_chosen(x, open) && !explain_is_whole_life(open->message))
            sorted[count++] = open;
    if (sorted)
        qsort(sorted, count, sizeof *sorted, by_rank_and_age);
    for (size_t k = 0; k < count; k++)
        json_array_append_new(list, open_json(scene, sorted[k], moment));
    pl_free(sorted);
    return json_pack("{s:o, s:o}", "time", explain_seconds(moment), "open", list);
}
