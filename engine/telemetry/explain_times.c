/* explain_times.c - where the time of a run went, and what was open at a moment
 *
 * Where that of ranks went is in rank_times.c.  An actor's own time is that in which it
 * has a call under way, however many, and none is under way that was made for it.  So it
 * is with waits: who waits for one that waits itself is not what holds things up.  While
 * the run is paused no time is anybody's. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/random.h"
#include "telemetry/explain_parts.h"

enum { SHOWN = 12 };

/* Time in which there are some, however many. */
typedef struct meter {
    unsigned count;                                         /* now */
    int64_t since, time;                                    /* ns */
} meter_t;

/* Of one sort: an actor, or those that wait for one of a rank. */
typedef struct sum {
    int rank;
    uint32_t kind, from_kind, message, process_id;
    uint64_t count;
    meter_t own, whole;                          /* own: none is under way further down */
    int64_t max;                                 /* ns, of one call */
} sum_t;

static sum_t *sum_of(pl_map_t *map, uint64_t key, sum_t which)
{
    sum_t *sum = pl_map_get(map, key);
    if (sum || !(sum = pl_alloc(sizeof *sum)))
        return sum;
    *sum = which;
    if (pl_map_put(map, key, sum) == PL_OK)
        return sum;
    pl_free(sum);
    return NULL;
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
    pl_map_release(&x->stands_in);
}

/* ---- pauses ---- */

void explain_pause(explain_t *x, int64_t begin)
{
    if (x->pause_count == PAUSES_MAX
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

static void meter_turn(explain_t *x, meter_t *meter, int by, int64_t time)
{
    if (!meter->count)
        meter->since = time;
    meter->count += (unsigned)by;
    if (!meter->count)
        meter->time += unpaused(x, meter->since, time);
}

/* One call more, or less, is the innermost one. */
static void own_turns(explain_t *x, const call_note_t *note, int by, int64_t time)
{
    if (note->actor)
        meter_turn(x, &note->actor->own, by, time);
    if (note->wait)
        meter_turn(x, &note->wait->own, by, time);
}

static sum_t *actor_of(explain_t *x, const pl_graph_actor_t *actor)
{
    return sum_of(&x->actors, actor->number,
                  (sum_t){.rank = actor->rank,
                          .kind = actor->kind,
                          .process_id = actor->process_id});
}

/* Of what rank one is that has not spoken yet is known from who calls it, unless that is
 * of none: then it is told from all others by itself. */
static sum_t *wait_of(explain_t *x, const pl_open_t *open)
{
    const pl_graph_actor_t *to = open->to, *from = open->from;
    const int rank = to->rank != PL_RANK_UNKNOWN ? to->rank : from->rank;
    const uint64_t who = rank >= 0 ? (uint64_t)rank + 2 : pl_mix(to->number, 1);
    return sum_of(&x->waits,
                  pl_mix(pl_mix(who, to->kind), pl_mix(from->kind, open->message)) | 1,
                  (sum_t){.rank = rank,
                          .kind = to->kind,
                          .from_kind = from->kind,
                          .message = open->message,
                          .process_id = open->process_id});
}

/* ---- ranks in other processes ---- */

/* A call for which there is none in its process is part of the one of its name to who
 * stands for that process here. */
static void set_over(explain_t *x, const pl_open_t *open, call_note_t *note)
{
    const uintptr_t number =
        (uintptr_t)pl_map_get(&x->stands_in,
                              (uint64_t)pl_stream_process_rank(open->process_id) + 1);
    for (const pl_open_t *far = x->graph.open; number && far; far = far->next) {
        if (far->process_id || far->to->number != number || far->message != open->message)
            continue;
        note->over = far->call;
        note->over_process = 0;
        return;
    }
}

static void goes_under(explain_t *x, const call_note_t *note, int64_t time)
{
    call_note_t *parent = explain_note(x, note->over_process, note->over);
    if (parent && !parent->under++)
        own_turns(x, parent, -1, time);
}

static void stands_for(explain_t *x, const pl_graph_actor_t *actor, int rank)
{
    pl_map_put(&x->stands_in, (uint64_t)rank + 1, (void *)(uintptr_t)actor->number);
    for (const pl_open_t *open = x->graph.open; open; open = open->next) {
        const call_note_t *note = explain_note(x, open->process_id, open->call);
        if (open->to == actor && note && note->actor)
            note->actor->rank = rank;
        if (open->to == actor && note && note->wait)
            note->wait->rank = rank;
    }
}

/* Which rank an actor stands for is told in join; that process has begun by then. */
static void look_at_join(explain_t *x, const pl_open_t *open,
                         const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error;
    if (open->process_id || open->message != PL_MESSAGE_join
        || pl_kind_level(open->from->kind) != PL_LEVEL_LAUNCHER
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    const int rank = (int)body.join.rank;
    stands_for(x, open->to, rank);
    for (const pl_open_t *far = x->graph.open; far; far = far->next) {
        call_note_t *note = explain_note(x, far->process_id, far->call);
        if (!far->process_id || pl_stream_process_rank(far->process_id) != rank || !note
            || !note->actor || note->over)
            continue;
        set_over(x, far, note);
        goes_under(x, note, open->began);
    }
}

/* ---- from their beginning to their end ---- */

void explain_time_begins(explain_t *x, const pl_open_t *open, call_note_t *note,
                         const pl_tap_record_t *record)
{
    if (explain_is_whole_life(open->message))
        return;
    note->actor = actor_of(x, open->to);
    note->wait = wait_of(x, open);
    if (note->actor)
        note->actor->count++;
    if (note->wait) {
        note->wait->count++;
        meter_turn(x, &note->wait->whole, 1, open->began);
    }
    own_turns(x, note, 1, open->began);
    if (!note->over && open->process_id)
        set_over(x, open, note);
    goes_under(x, note, open->began);
    look_at_join(x, open, record);
}

static void wait_ends(explain_t *x, const pl_open_t *open, sum_t *wait, int64_t time)
{
    const int64_t length = unpaused(x, open->began, time);
    if (!wait)
        return;
    meter_turn(x, &wait->whole, -1, time);
    wait->max = wait->max > length ? wait->max : length;
}

void explain_time_lost(explain_t *x, const pl_open_t *open, const call_note_t *note,
                       int64_t time)
{
    call_note_t *parent = explain_note(x, note->over_process, note->over);
    if (!note->actor && !note->wait)
        return;
    if (!note->under)
        own_turns(x, note, -1, time);
    wait_ends(x, open, note->wait, time);
    if (parent && parent->under && !--parent->under)
        own_turns(x, parent, 1, time);
}

/* One that stands for a rank is of none itself. */
static void rank_known(sum_t *sum, int rank)
{
    if (sum && (rank >= 0 || sum->rank == PL_RANK_UNKNOWN))
        sum->rank = rank;
}

void explain_time_ends(explain_t *x, const pl_open_t *open, const call_note_t *note,
                       const pl_tap_record_t *end)
{
    pl_rank_times_take(&x->ranks, open, end);
    if (explain_is_whole_life(open->message))
        return;
    rank_known(note->actor, end->stamp.rank);
    rank_known(note->wait, end->stamp.rank);
    explain_time_lost(x, open, note, end->stamp.time);
}

static void meters_end(explain_t *x, const pl_map_t *map)
{
    for (size_t k = 0; k < map->capacity; k++) {
        sum_t *sum = map->key[k] ? map->value[k] : NULL;
        const int64_t time = sum ? explain_received(x, sum->process_id) : 0;
        if (sum && sum->own.count)
            meter_turn(x, &sum->own, -(int)sum->own.count, time);
        if (sum && sum->whole.count)
            meter_turn(x, &sum->whole, -(int)sum->whole.count, time);
    }
}

/* What is under way when nothing more is heard of a process. */
static void times_end(explain_t *x)
{
    for (const pl_open_t *open = x->graph.open; open; open = open->next) {
        const call_note_t *note = explain_note(x, open->process_id, open->call);
        const int64_t time = unpaused(x, open->began,
                                      explain_received(x, open->process_id));
        if (note && note->wait && note->wait->max < time)
            note->wait->max = time;
    }
    meters_end(x, &x->actors);
    meters_end(x, &x->waits);
}

/* ---- as JSON ---- */

static int by_time(const void *a, const void *b)
{
    const sum_t *x = *(sum_t *const *)a, *y = *(sum_t *const *)b;
    return x->own.time < y->own.time ? 1 : x->own.time > y->own.time ? -1 : 0;
}

/* The greatest ones first. */
static json_t *sums_json(const pl_map_t *map, json_t *(*make)(const sum_t *))
{
    json_t *list = json_array();
    const sum_t **sorted = pl_alloc((map->count + 1) * sizeof *sorted);
    size_t count = 0;
    if (!sorted)
        return list;
    for (size_t k = 0; k < map->capacity; k++)
        if (map->key[k])
            sorted[count++] = map->value[k];
    qsort(sorted, count, sizeof *sorted, by_time);
    for (size_t k = 0; k < count && k < SHOWN; k++)
        json_array_append_new(list, make(sorted[k]));
    pl_free(sorted);
    return list;
}

/* One that has never answered a call is of none, as far as is known. */
static int shown_rank(const sum_t *s)
{
    return s->rank < 0 ? -1 : s->rank;
}

static json_t *actor_json(const sum_t *s)
{
    return json_pack("{s:i, s:s, s:I, s:o}", "rank", shown_rank(s), "actor",
                     pl_kind_name(s->kind), "calls", (json_int_t)s->count, "seconds",
                     explain_seconds(s->own.time));
}

static json_t *wait_json(const sum_t *s)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:o, s:o, s:o}", "rank", shown_rank(s),
                     "caller", pl_kind_name(s->from_kind), "for", pl_kind_name(s->kind),
                     "call", pl_message_info(s->message)->name, "calls",
                     (json_int_t)s->count, "seconds", explain_seconds(s->own.time),
                     "whole", explain_seconds(s->whole.time), "longest",
                     explain_seconds(s->max));
}

static int64_t working(const pl_rank_times_t *times)
{
    const pl_work_times_t *t = &times->steps;
    return t->stage[PL_STEP_DATA] + t->stage[PL_STEP_FORWARD] + t->stage[PL_STEP_BACKWARD]
           + t->stage[PL_STEP_OPTIMIZER] + t->engine;
}

/* Ranks take their steps together, so the slowest is the one that the others wait for: it
 * works most.  -1: there is no other, or all are within a fiftieth of it. */
static int slowest_of(const pl_map_t *ranks)
{
    int slowest = -1;
    int64_t max = 0, min = INT64_MAX;
    for (size_t k = 0; k < ranks->capacity; k++) {
        const int64_t work = ranks->key[k] ? working(ranks->value[k]) : 0;
        if (!ranks->key[k])
            continue;
        min = work < min ? work : min;
        if (work > max) {
            max = work;
            slowest = pl_rank_times_rank(ranks->key[k]);
        }
    }
    return max - min > max / 50 ? slowest : -1;
}

json_t *explain_times_json(explain_t *x)
{
    const run_t *run = x->chosen;
    const int64_t end = !run ? 0 : run->has_ended ? run->ended : x->last;
    times_end(x);
    return json_pack("{s:o, s:i, s:o, s:o, s:o}", "ranks", pl_rank_times_json(&x->ranks),
                     "slowest", slowest_of(&x->ranks), "paused",
                     explain_seconds(run ? explain_paused(x, run->began, end) : 0),
                     "actors", sums_json(&x->actors, actor_json), "waits",
                     sums_json(&x->waits, wait_json));
}

/* ---- what is open ---- */

static int depth_of(const pl_call_graph_t *graph, const pl_open_t *open)
{
    int depth = 0;
    while (depth < 64
           && (open = pl_call_graph_find(graph, open->process_id, open->cause)))
        depth++;
    return depth;
}

static int rank_of(const pl_open_t *open)
{
    if (open->to->rank != PL_RANK_UNKNOWN)
        return open->to->rank;
    return open->process_id ? pl_stream_process_rank(open->process_id) : open->from->rank;
}

static json_t *open_json(const pl_call_graph_t *graph, const pl_open_t *open,
                         int64_t moment)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:i, s:o}", "rank", rank_of(open), "actor",
                     pl_kind_name(open->to->kind), "call",
                     pl_message_info(open->message)->name, "for",
                     pl_kind_name(open->from->kind), "depth", depth_of(graph, open),
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
    const call_note_t *note = explain_note(x, open->process_id, open->call);
    return note && note->run == x->chosen;
}

json_t *explain_open_json(const explain_t *x, int64_t moment)
{
    const pl_call_graph_t *graph = &x->graph;
    json_t *list = json_array();
    const pl_open_t **sorted = pl_alloc((graph->calls.count + 1) * sizeof *sorted);
    size_t count = 0;
    for (const pl_open_t *open = graph->open; sorted && open; open = open->next)
        if (is_of_chosen(x, open) && !explain_is_whole_life(open->message))
            sorted[count++] = open;
    if (sorted)
        qsort(sorted, count, sizeof *sorted, by_rank_and_age);
    for (size_t k = 0; k < count; k++)
        json_array_append_new(list, open_json(graph, sorted[k], moment));
    pl_free(sorted);
    return json_pack("{s:o, s:o}", "time", explain_seconds(moment), "open", list);
}
