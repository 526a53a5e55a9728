/* call_graph.c - actors, open calls and the time of each rank's steps, as the messages of
 * a stream show them
 *
 * A device does one thing after the other.  Between two computations it waits: for data
 * if a batch was being fetched, for other ranks if a collective was running, otherwise
 * for the engine.  A pause is no waiting time.  A validation lies between two steps; its
 * computations and the time around them count separately. */
#include "telemetry/call_graph.h"

#include <string.h>

#include "base/alloc.h"
#include "base/random.h"

enum { OPEN_MAX = 100000, ACTORS_MAX = 100000, RANK_MAX = 1 << 20 };

const char *const pl_step_stage_names[PL_STEP_STAGES] = {"data", "forward", "backward",
                                                         "collective", "optimizer"};

static uint64_t key_of(uint32_t process_id, uint64_t number)
{
    const uint64_t key = pl_mix(number, process_id);
    return key ? key : 1;
}

/* ---- actors ---- */

/* A process that replaces another one gives the same numbers to actors of other kinds. */
static pl_graph_actor_t *actor_of(pl_call_graph_t *graph, uint32_t process_id,
                                  uint32_t thread, uint32_t actor, uint32_t kind)
{
    const uint64_t key = key_of(process_id, pl_mix((uint64_t)thread << 32 | actor, kind));
    pl_graph_actor_t *p = pl_map_get(&graph->actors, key);
    if (!p && graph->actors.count < ACTORS_MAX && (p = pl_alloc(sizeof *p))) {
        *p = (pl_graph_actor_t){.process_id = process_id,
                                .thread = thread,
                                .kind = kind,
                                .number = ++graph->actor_count,
                                .rank = PL_RANK_UNKNOWN};
        if (pl_map_put(&graph->actors, key, p) != PL_OK) {
            pl_free(p);
            return NULL;
        }
    }
    if (p && p->rank == PL_RANK_UNKNOWN) {
        const uintptr_t rank = (uintptr_t)pl_map_get(&graph->threads,
                                                     key_of(process_id, thread));
        p->rank = rank ? (int)rank - 3 : PL_RANK_UNKNOWN;
    }
    return p;
}

/* Frees the actors without open calls.  Ranks of threads are learned again from the next
 * message of each. */
static void actors_prune(pl_call_graph_t *graph)
{
    pl_map_t kept = {0};
    for (size_t k = 0; k < graph->actors.capacity; k++) {
        pl_graph_actor_t *p = graph->actors.key[k] ? graph->actors.value[k] : NULL;
        if (p && p->calls && pl_map_put(&kept, graph->actors.key[k], p) != PL_OK) {
            pl_map_release(&kept);
            return;
        }
    }
    for (size_t k = 0; k < graph->actors.capacity; k++) {
        pl_graph_actor_t *p = graph->actors.key[k] ? graph->actors.value[k] : NULL;
        if (p && !p->calls) {
            pl_free(p->own);
            pl_free(p);
        }
    }
    pl_map_release(&graph->actors);
    pl_map_release(&graph->threads);
    graph->actors = kept;
}

/* ---- calls ---- */

/* What the fields of some calls say; those of others are not decoded. */
static void fields_take(pl_open_t *open, const pl_tap_record_t *record)
{
    static const char *const plans[] = {[PL_REPLAY_FORWARD] = "forward",
                                        [PL_REPLAY_BOTH] = "forward_backward",
                                        [PL_REPLAY_OPTIMIZER] = "optimizer_step",
                                        [PL_REPLAY_STEP] = "training_step",
                                        NULL};
    pl_body_t body;
    pl_error_t error;
    if ((open->message != PL_MESSAGE_replay_plan
         && open->message != PL_MESSAGE_train_batch
         && open->message != PL_MESSAGE_control)
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    if (open->message == PL_MESSAGE_replay_plan) {
        const int what = pl_enum_find(plans, body.replay_plan.what);
        open->what = what < 0 ? PL_REPLAY_OTHER : (pl_replay_what_t)what;
    } else if (open->message == PL_MESSAGE_train_batch) {
        open->ends_step = body.train_batch.step_due;
        open->step = open->ends_step ? body.train_batch.global_step : 0;
    } else {
        open->is_command = true;
        open->command = body.control.command;
    }
}

pl_open_t *pl_call_graph_find(const pl_call_graph_t *graph, uint32_t process_id,
                              uint64_t call)
{
    return call ? pl_map_get(&graph->calls, key_of(process_id, call)) : NULL;
}

void pl_call_graph_drop(pl_call_graph_t *graph, pl_open_t *open)
{
    pl_map_take(&graph->calls, key_of(open->process_id, open->call));
    *open->pprev = open->next;
    if (open->next)
        open->next->pprev = open->pprev;
    open->from->calls--;
    open->to->calls--;
    pl_free(open);
}

static void lose(pl_call_graph_t *graph, pl_open_t *open)
{
    if (graph->lost)
        graph->lost(graph->user, open);
    pl_call_graph_drop(graph, open);
}

static pl_open_t *call_begin(pl_call_graph_t *graph, const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    pl_open_t *before = pl_call_graph_find(graph, record->process_id, e->call),
              *open = NULL;
    if (before)
        lose(graph, before);
    if (graph->actors.count > ACTORS_MAX - 2)
        actors_prune(graph);
    if (e->call && graph->calls.count < OPEN_MAX)
        open = pl_alloc(sizeof *open);
    if (!open)
        return NULL;
    const pl_open_t *cause = pl_call_graph_find(graph, record->process_id, e->cause);
    if (!cause)                                            /* a rank in another process */
        cause = pl_call_graph_find(graph, 0, record->under);
    *open = (pl_open_t){.call = e->call,
                        .cause = e->cause,
                        .process_id = record->process_id,
                        .incarnation = e->incarnation,
                        .message = e->message,
                        .began = record->stamp.time,
                        .from = actor_of(graph, record->process_id, e->from_thread,
                                         e->from_actor, e->from_kind),
                        .to = actor_of(graph, record->process_id, e->to_thread,
                                       e->to_actor, e->to_kind),
                        .run = cause ? cause->run : 0,
                        .what = PL_REPLAY_OTHER,
                        .track = -1,
                        .next = graph->open,
                        .pprev = &graph->open};
    if (!open->from || !open->to
        || pl_map_put(&graph->calls, key_of(record->process_id, e->call), open)
               != PL_OK) {
        pl_free(open);
        return NULL;
    }
    fields_take(open, record);
    open->from->calls++;
    open->to->calls++;
    if (open->next)
        open->next->pprev = &open->next;
    graph->open = open;
    return open;
}

pl_open_t *pl_call_graph_take(pl_call_graph_t *graph, const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    pl_map_put(&graph->threads, key_of(record->process_id, e->from_thread),
               (void *)(uintptr_t)(record->stamp.rank + 3));  /* never 0 */
    const uint64_t process = (uint64_t)record->process_id + 1;
    const uintptr_t known = (uintptr_t)pl_map_get(&graph->incarnations, process);
    if (record->process_id && known <= e->incarnation) {
        pl_map_put(&graph->incarnations, process,
                   (void *)(uintptr_t)(e->incarnation + 1));
        for (pl_open_t *open = graph->open, *next; known && open; open = next) {
            next = open->next;        /* no answer comes to calls of a replaced process */
            if (open->process_id == record->process_id
                && open->incarnation < e->incarnation)
                lose(graph, open);
        }
    }
    if (e->kind == PL_KIND_CALL)
        return call_begin(graph, record);
    pl_open_t *open = pl_call_graph_find(graph, record->process_id, e->call);
    if (open && e->kind != PL_KIND_CANCEL && open->to->rank == PL_RANK_UNKNOWN)
        open->to->rank = record->stamp.rank;
    return open;
}

void pl_call_graph_release(pl_call_graph_t *graph)
{
    uint64_t key;
    while (graph->open)
        pl_call_graph_drop(graph, graph->open);
    while (pl_map_any(&graph->actors, &key)) {
        pl_graph_actor_t *p = pl_map_take(&graph->actors, key);
        pl_free(p->own);
        pl_free(p);
    }
    pl_map_release(&graph->actors);
    pl_map_release(&graph->calls);
    pl_map_release(&graph->threads);
    pl_map_release(&graph->incarnations);
}

/* ---- the stages of a rank's steps ---- */

/* An accelerator and a collective do one thing after the other: a call that waits for
 * them has not begun. */
static pl_time_span_t span(const pl_open_t *open, int64_t end, pl_stage_track_t track,
                           pl_step_stage_t stage, int64_t busy_until[PL_TRACKS])
{
    pl_time_span_t s = {track, stage, open->began, end};
    if (s.begin < busy_until[track])
        s.begin = busy_until[track];
    if (s.end < s.begin)
        s.end = s.begin;
    busy_until[track] = s.end;
    return s;
}

/* Cuts a span in two, with that many seconds before the second; false: it stays whole. */
static bool cut(pl_time_span_t spans[2], double seconds, pl_step_stage_t second)
{
    const double whole = (double)(spans[0].end - spans[0].begin), first = seconds * 1e9;
    if (!(first > 0))
        return false;
    spans[1] = spans[0];
    spans[1].stage = second;
    spans[0].end = spans[1].begin += (int64_t)(first < whole ? first : whole);
    return true;
}

static int replay_spans(const pl_open_t *open, const pl_tap_record_t *end,
                        int64_t busy_until[PL_TRACKS],
                        pl_time_span_t spans[PL_CALL_SPANS])
{
    static const pl_step_stage_t stages[] = {[PL_REPLAY_FORWARD] = PL_STEP_FORWARD,
                                             [PL_REPLAY_BOTH] = PL_STEP_BACKWARD,
                                             [PL_REPLAY_OPTIMIZER] = PL_STEP_OPTIMIZER,
                                             [PL_REPLAY_STEP] = PL_STEP_BACKWARD,
                                             [PL_REPLAY_OTHER] = PL_STEP_BACKWARD};
    pl_body_t body;
    pl_error_t error;
    int count = 1;
    spans[0] = span(open, end->stamp.time, PL_TRACK_COMPUTE, stages[open->what],
                    busy_until);
    if ((open->what != PL_REPLAY_BOTH && open->what != PL_REPLAY_STEP)
        || end->envelope.kind != PL_KIND_REPLY
        || pl_frame_decode_record(end->frame, &body, &error, NULL) != PL_OK)
        return 1;
    const pl_replay_plan_reply_t *reply = &body.replay_plan_reply;
    if (cut(spans, reply->forward, PL_STEP_BACKWARD)) {
        spans[0].stage = PL_STEP_FORWARD;
        count = 2;
    }
    const pl_time_span_t *last = &spans[count - 1];
    const double before = (double)(last->end - last->begin) / 1e9 - reply->then;
    if (reply->then > 0 && cut(spans + count - 1, before, PL_STEP_OPTIMIZER))
        count++;
    return count;
}

int pl_step_spans(const pl_open_t *open, const pl_tap_record_t *end,
                  int64_t busy_until[PL_TRACKS], pl_time_span_t spans[PL_CALL_SPANS])
{
    switch (open->message) {
    case PL_MESSAGE_fetch_batch:
        spans[0] = span(open, end->stamp.time, PL_TRACK_DATA, PL_STEP_DATA, busy_until);
        return 1;
    case PL_MESSAGE_all_reduce:
    case PL_MESSAGE_reduce_scatter:
    case PL_MESSAGE_all_gather:
    case PL_MESSAGE_broadcast:
    case PL_MESSAGE_barrier:
        spans[0] = span(open, end->stamp.time, PL_TRACK_COLLECTIVE, PL_STEP_COLLECTIVE,
                        busy_until);
        return 1;
    case PL_MESSAGE_replay_plan: return replay_spans(open, end, busy_until, spans);
    default: return 0;
    }
}

/* ---- the time of each rank ---- */

/* How much of [begin, end) the newest spans cover; they do not overlap. */
static int64_t covered(const pl_time_span_t *spans, unsigned count, int64_t begin,
                       int64_t end)
{
    int64_t sum = 0;
    for (unsigned k = 0; k < count && k < PL_RANK_SPANS; k++) {
        const int64_t from = spans[k].begin > begin ? spans[k].begin : begin,
                      to = spans[k].end < end ? spans[k].end : end;
        sum += to > from ? to - from : 0;
    }
    return sum;
}

/* Adds the time in which the device waited. */
static void add_wait(const pl_rank_times_t *t, pl_work_times_t *work, int64_t begin,
                     int64_t end)
{
    if (end <= begin)
        return;
    int64_t rest = end - begin;
    int64_t data = covered(t->data, t->data_count, begin, end),
            collective = covered(t->collective, t->collective_count, begin, end);
    collective = collective < rest ? collective : rest;
    work->stage[PL_STEP_COLLECTIVE] += collective;
    rest -= collective;
    data = data < rest ? data : rest;
    work->stage[PL_STEP_DATA] += data;
    work->engine += rest - data;
}

/* Adds the time in which the device waited, and the pauses in it, which are in order. */
static void add_idle(const pl_rank_times_t *t, pl_work_times_t *work, int64_t begin,
                     int64_t end)
{
    unsigned k = t->pause_count > PL_RANK_SPANS ? t->pause_count - PL_RANK_SPANS : 0;
    for (; k < t->pause_count && begin < end; k++) {
        const pl_time_span_t *p = &t->pause[k % PL_RANK_SPANS];
        if (p->end <= begin || p->begin >= end)
            continue;
        const int64_t from = p->begin > begin ? p->begin : begin,
                      to = p->end < end ? p->end : end;
        add_wait(t, work, begin, from);
        work->paused += to - from;
        begin = to;
    }
    add_wait(t, work, begin, end);
}

void pl_rank_times_pause(pl_map_t *ranks, int64_t begin, int64_t end)
{
    for (size_t k = 0; k < ranks->capacity; k++) {
        pl_rank_times_t *t = ranks->key[k] ? ranks->value[k] : NULL;
        if (t)
            t->pause[t->pause_count++ % PL_RANK_SPANS] = (pl_time_span_t){.begin = begin,
                                                                          .end = end};
    }
}

void pl_rank_times_take(pl_map_t *ranks, const pl_open_t *open,
                        const pl_tap_record_t *end)
{
    pl_time_span_t spans[PL_CALL_SPANS];
    const int rank = end->stamp.rank;
    const uint64_t key = (uint64_t)rank + 1;
    pl_rank_times_t *t = rank < 0 ? NULL : pl_map_get(ranks, key);
    if (rank >= 0 && !t && (t = pl_alloc(sizeof *t))) {
        t->rank = rank;
        if (pl_map_put(ranks, key, t) != PL_OK) {
            pl_free(t);
            t = NULL;
        }
    }
    if (!t)
        return;
    const int64_t before = t->busy_until[PL_TRACK_COMPUTE];
    const int count = pl_step_spans(open, end, t->busy_until, spans);
    t->evaluated |= open->message == PL_MESSAGE_evaluate;
    if (!count)
        return;
    if (spans[0].track == PL_TRACK_DATA) {
        t->data[t->data_count++ % PL_RANK_SPANS] = spans[0];
        return;
    }
    if (spans[0].track == PL_TRACK_COLLECTIVE) {
        t->collective[t->collective_count++ % PL_RANK_SPANS] = spans[0];
        t->all_reduce += spans[0].end - spans[0].begin;
        return;
    }
    const bool evaluates = open->what == PL_REPLAY_FORWARD;
    pl_work_times_t *work = evaluates ? &t->evaluation : &t->steps;
    if (before)
        add_idle(t, t->evaluated ? &t->evaluation : work, before, spans[0].begin);
    t->evaluated = evaluates;
    for (int k = 0; k < count; k++)
        work->stage[spans[k].stage] += spans[k].end - spans[k].begin;
}

static json_t *work_json(const pl_work_times_t *work)
{
    json_t *json = json_object();
    for (int stage = 0; stage < PL_STEP_STAGES; stage++)
        json_object_set_new(json, pl_step_stage_names[stage],
                            json_real((double)work->stage[stage] * 1e-9));
    json_object_set_new(json, "engine", json_real((double)work->engine * 1e-9));
    json_object_set_new(json, "paused", json_real((double)work->paused * 1e-9));
    return json;
}

json_t *pl_rank_times_json(const pl_map_t *ranks)
{
    json_t *list = json_array();
    int left = (int)ranks->count;
    for (int rank = 0; left > 0 && rank < RANK_MAX; rank++) {
        const pl_rank_times_t *t = pl_map_get(ranks, (uint64_t)rank + 1);
        if (!t)
            continue;
        left--;
        json_t *json = work_json(&t->steps);
        json_object_set_new(json, "rank", json_integer(rank));
        json_object_set_new(json, "in_collectives",
                            json_real((double)t->all_reduce * 1e-9));
        json_object_set_new(json, "evaluation", work_json(&t->evaluation));
        json_array_append_new(list, json);
    }
    return list;
}
