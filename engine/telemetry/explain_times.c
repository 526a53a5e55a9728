/* explain_times.c - where the time of a run went, and what was open at a moment
 *
 * call_graph.c measures ranks.  The own time of an actor is the time in which it has open
 * calls, but no open call that they caused.  Waits are measured in the same way: a call
 * that itself waits for another one is not what takes the time.  Pauses do not count. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/random.h"
#include "telemetry/explain_parts.h"

enum { SHOWN = 12 };

/* The time in which a count is not 0. */
typedef struct meter {
    unsigned count;                                         /* now */
    int64_t since, time;                                    /* ns */
} meter_t;

/* The calls to an actor, or the calls of one message between two kinds of actors. */
typedef struct time_sum {
    int rank;
    uint32_t kind, from_kind, message, process_id;
    uint64_t count;
    meter_t own, whole;                          /* own: without calls that they caused */
    int64_t max;                                 /* ns, of one call */
} time_sum_t;

static time_sum_t *sum_of(pl_map_t *map, uint64_t key, time_sum_t which)
{
    time_sum_t *sum = pl_map_get(map, key);
    if (sum || !(sum = pl_alloc(sizeof *sum)))
        return sum;
    *sum = which;
    if (pl_map_put(map, key, sum) == PL_OK)
        return sum;
    pl_free(sum);
    return NULL;
}

void explain_forget_times(explain_t *x)
{
    pl_map_release_values(&x->ranks);
    pl_map_release_values(&x->actors);
    pl_map_release_values(&x->waits);
    pl_map_release(&x->proxies);
}

/* ---- pauses ---- */

void explain_pause(explain_t *x, int64_t begin)
{
    if (x->pause_count == PAUSES_MAX
        || (x->pause_count && x->pauses[x->pause_count - 1].end == INT64_MAX))
        return;
    x->pauses[x->pause_count++] = (pause_t){begin, INT64_MAX};
}

void explain_continue(explain_t *x, int64_t end)
{
    pause_t *pause = x->pause_count ? &x->pauses[x->pause_count - 1] : NULL;
    if (!pause || pause->end != INT64_MAX)
        return;
    pause->end = end > pause->begin ? end : pause->begin;
    pl_rank_times_pause(&x->ranks, pause->begin, pause->end);
}

static int64_t paused(const explain_t *x, int64_t begin, int64_t end)
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
    return end > begin ? end - begin - paused(x, begin, end) : 0;
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

/* Adds `by` to the calls that have caused no open call. */
static void own_turns(explain_t *x, const call_note_t *note, int by, int64_t time)
{
    if (note->actor)
        meter_turn(x, &note->actor->own, by, time);
    if (note->wait)
        meter_turn(x, &note->wait->own, by, time);
}

/* ---- ranks in other processes ---- */

/* A call without a cause in its process is caused by the call of the same message to the
 * proxy of that process. */
static void set_over(explain_t *x, const pl_open_t *open, call_note_t *note)
{
    const uintptr_t number =
        (uintptr_t)pl_map_get(&x->proxies,
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

/* `join` says which rank an actor represents; the process of that rank has begun by
 * then. */
static void look_at_join(explain_t *x, const pl_open_t *join,
                         const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error;
    if (join->process_id || join->message != PL_MESSAGE_join
        || pl_kind_level(join->from->kind) != PL_LEVEL_LAUNCHER
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    const int rank = (int)body.join.rank;
    pl_map_put(&x->proxies, (uint64_t)rank + 1, (void *)(uintptr_t)join->to->number);
    for (const pl_open_t *open = x->graph.open; open; open = open->next) {
        call_note_t *note = open->own;
        if (!note)
            continue;
        if (open->to == join->to && note->actor)
            note->actor->rank = rank;
        if (open->to == join->to && note->wait)
            note->wait->rank = rank;
        if (!open->process_id || pl_stream_process_rank(open->process_id) != rank
            || !note->actor || note->over)
            continue;
        set_over(x, open, note);
        goes_under(x, note, join->began);
    }
}

/* ---- from their beginning to their end ---- */

void explain_time_begins(explain_t *x, const pl_open_t *open,
                         const pl_tap_record_t *record)
{
    call_note_t *note = open->own;
    const pl_graph_actor_t *to = open->to, *from = open->from;
    if (explain_is_whole_life(open->message))
        return;
    note->actor = sum_of(&x->actors, to->number,
                         (time_sum_t){.rank = to->rank,
                                      .kind = to->kind,
                                      .process_id = to->process_id});
    /* A callee whose rank is unknown is of its caller's rank; if that has none, it counts
     * by itself. */
    const int rank = to->rank != PL_RANK_UNKNOWN ? to->rank : from->rank;
    const uint64_t place = rank >= 0 ? (uint64_t)rank + 2 : pl_mix(to->number, 1);
    note->wait = sum_of(&x->waits,
                        pl_mix(pl_mix(place, to->kind), pl_mix(from->kind, open->message))
                            | 1,
                        (time_sum_t){.rank = rank,
                                     .kind = to->kind,
                                     .from_kind = from->kind,
                                     .message = open->message,
                                     .process_id = open->process_id});
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

void explain_time_lost(explain_t *x, const pl_open_t *open, int64_t time)
{
    const call_note_t *note = open->own;
    call_note_t *parent = explain_note(x, note->over_process, note->over);
    time_sum_t *wait = note->wait;
    if (!note->actor && !wait)
        return;
    if (!note->under)
        own_turns(x, note, -1, time);
    if (wait) {
        const int64_t length = unpaused(x, open->began, time);
        meter_turn(x, &wait->whole, -1, time);
        wait->max = wait->max > length ? wait->max : length;
    }
    if (parent && parent->under && !--parent->under)
        own_turns(x, parent, 1, time);
}

/* The proxy of a rank is of no rank itself. */
static void set_rank(time_sum_t *sum, int rank)
{
    if (sum && (rank >= 0 || sum->rank == PL_RANK_UNKNOWN))
        sum->rank = rank;
}

void explain_time_ends(explain_t *x, const pl_open_t *open, const pl_tap_record_t *end)
{
    const call_note_t *note = open->own;
    pl_rank_times_take(&x->ranks, open, end);
    if (explain_is_whole_life(open->message))
        return;
    set_rank(note->actor, end->stamp.rank);
    set_rank(note->wait, end->stamp.rank);
    explain_time_lost(x, open, end->stamp.time);
}

/* ---- as JSON ---- */

static int by_time(const void *a, const void *b)
{
    const time_sum_t *x = *(time_sum_t *const *)a, *y = *(time_sum_t *const *)b;
    return x->own.time < y->own.time ? 1 : x->own.time > y->own.time ? -1 : 0;
}

/* The largest sums of a map, the largest first. */
static json_t *sums_json(const pl_map_t *map, bool has_waits)
{
    json_t *list = json_array();
    const time_sum_t **sorted = pl_alloc((map->count + 1) * sizeof *sorted);
    size_t count = 0;
    if (!sorted)
        return list;
    for (size_t k = 0; k < map->capacity; k++)
        if (map->key[k])
            sorted[count++] = map->value[k];
    qsort(sorted, count, sizeof *sorted, by_time);
    for (size_t k = 0; k < count && k < SHOWN; k++) {
        const time_sum_t *s = sorted[k];
        json_t *one = json_pack("{s:i, s:s}", "rank", s->rank < 0 ? -1 : s->rank,
                                has_waits ? "caller" : "actor",
                                pl_kind_name(has_waits ? s->from_kind : s->kind));
        if (has_waits) {
            json_object_set_new(one, "for", json_string(pl_kind_name(s->kind)));
            json_object_set_new(one, "call",
                                json_string(pl_message_info(s->message)->name));
        }
        json_object_set_new(one, "calls", json_integer((json_int_t)s->count));
        json_object_set_new(one, "seconds", explain_seconds(s->own.time));
        if (has_waits) {
            json_object_set_new(one, "whole", explain_seconds(s->whole.time));
            json_object_set_new(one, "longest", explain_seconds(s->max));
        }
        json_array_append_new(list, one);
    }
    pl_free(sorted);
    return list;
}

json_t *explain_times_json(explain_t *x)
{
    const journal_run_t *run = x->chosen;
    const int64_t end = !run ? 0 : run->has_ended ? run->ended : x->last;
    /* Calls that are open end with the newest message of their process. */
    const pl_map_t *maps[] = {&x->actors, &x->waits};
    for (const pl_open_t *open = x->graph.open; open; open = open->next) {
        const call_note_t *note = open->own;
        const int64_t time = unpaused(x, open->began,
                                      explain_received(x, open->process_id));
        if (note && note->wait && note->wait->max < time)
            note->wait->max = time;
    }
    for (int m = 0; m < 2; m++)
        for (size_t k = 0; k < maps[m]->capacity; k++) {
            time_sum_t *sum = maps[m]->key[k] ? maps[m]->value[k] : NULL;
            const int64_t time = sum ? explain_received(x, sum->process_id) : 0;
            if (sum && sum->own.count)
                meter_turn(x, &sum->own, -(int)sum->own.count, time);
            if (sum && sum->whole.count)
                meter_turn(x, &sum->whole, -(int)sum->whole.count, time);
        }
    /* Ranks take their steps together: the slowest, for which the others wait, works
     * most. -1: there is one rank only, or the least is within a fiftieth of the most. */
    int slowest = -1;
    int64_t max = 0, min = INT64_MAX;
    for (size_t k = 0; k < x->ranks.capacity; k++) {
        if (!x->ranks.key[k])
            continue;
        const pl_rank_times_t *times = x->ranks.value[k];
        const pl_work_times_t *w = &times->steps;
        const int64_t work = w->stage[PL_STEP_DATA] + w->stage[PL_STEP_FORWARD]
                             + w->stage[PL_STEP_BACKWARD] + w->stage[PL_STEP_OPTIMIZER]
                             + w->engine;
        min = work < min ? work : min;
        if (work > max) {
            max = work;
            slowest = times->rank;
        }
    }
    slowest = max - min > max / 50 ? slowest : -1;
    return json_pack("{s:o, s:i, s:o, s:o, s:o}", "ranks", pl_rank_times_json(&x->ranks),
                     "slowest", slowest, "paused",
                     explain_seconds(run ? paused(x, run->began, end) : 0), "actors",
                     sums_json(&x->actors, false), "waits", sums_json(&x->waits, true));
}

/* ---- what is open ---- */

static int rank_of(const pl_open_t *open)
{
    if (open->to->rank != PL_RANK_UNKNOWN)
        return open->to->rank;
    return open->process_id ? pl_stream_process_rank(open->process_id) : open->from->rank;
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
    const pl_call_graph_t *graph = &x->graph;
    json_t *list = json_array();
    const pl_open_t **sorted = pl_alloc((graph->calls.count + 1) * sizeof *sorted);
    size_t count = 0;
    for (const pl_open_t *open = graph->open; sorted && open; open = open->next)
        if (explain_is_of_chosen(x, open) && !explain_is_whole_life(open->message))
            sorted[count++] = open;
    if (sorted)
        qsort(sorted, count, sizeof *sorted, by_rank_and_age);
    for (size_t k = 0; k < count; k++) {
        const pl_open_t *open = sorted[k], *above = open;
        int depth = 0;
        while (depth < 64
               && (above = pl_call_graph_find(graph, above->process_id, above->cause)))
            depth++;
        json_array_append_new(
            list,
            json_pack("{s:i, s:s, s:s, s:s, s:i, s:o}", "rank", rank_of(open), "actor",
                      pl_kind_name(open->to->kind), "call",
                      pl_message_info(open->message)->name, "for",
                      pl_kind_name(open->from->kind), "depth", depth, "seconds",
                      explain_seconds(moment > open->began ? moment - open->began : 0)));
    }
    pl_free(sorted);
    return json_pack("{s:o, s:o}", "time", explain_seconds(moment), "open", list);
}
