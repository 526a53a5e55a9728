/* call_graph.c - who is there and which calls are open, as the messages of a stream
 * tell it */
#include "telemetry/call_graph.h"

#include <string.h>

#include "base/alloc.h"
#include "base/random.h"

enum { OPEN_MAX = 100000, PLAYERS_MAX = 100000 };

const char *const pl_step_stage_names[PL_STEP_STAGES] = {"data", "forward", "backward",
                                                         "collective", "optimizer"};

/* ---- actors ---- */

static uint64_t key_of(uint32_t process_id, uint64_t number)
{
    const uint64_t key = pl_mix(number, process_id);
    return key ? key : 1;
}

/* Ranks are kept with 3 added, so that there is no 0. */
static int rank_of_thread(const pl_call_graph_t *graph, uint32_t process_id,
                          uint32_t thread)
{
    const uintptr_t rank = (uintptr_t)pl_map_get(&graph->threads,
                                                 key_of(process_id, thread));
    return rank ? (int)rank - 3 : PL_RANK_UNKNOWN;
}

static pl_graph_actor_t *actor_of(pl_call_graph_t *graph, uint32_t process_id,
                                  uint32_t thread, uint32_t actor, uint32_t kind)
{
    /* numbers are given again, by a process that takes the place of one to other kinds */
    const uint64_t key = key_of(process_id, pl_mix((uint64_t)thread << 32 | actor, kind));
    pl_graph_actor_t *p = pl_map_get(&graph->actors, key);
    if (!p && graph->actor_count < PLAYERS_MAX && (p = pl_alloc(sizeof *p))) {
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
    if (p && p->rank == PL_RANK_UNKNOWN)
        p->rank = rank_of_thread(graph, process_id, thread);
    return p;
}

/* ---- calls ---- */

static int what_of(const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error;
    if (record->envelope.message != PL_MESSAGE_replay_plan
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return PL_REPLAY_OTHER;
    const char *what = body.replay_plan.what;
    return !strcmp(what, "forward")            ? PL_REPLAY_FORWARD
           : !strcmp(what, "forward_backward") ? PL_REPLAY_BOTH
           : !strcmp(what, "optimizer_step")   ? PL_REPLAY_OPTIMIZER
           : !strcmp(what, "training_step")    ? PL_REPLAY_STEP
                                               : PL_REPLAY_OTHER;
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
    if (e->call && graph->calls.count < OPEN_MAX)
        open = pl_alloc(sizeof *open);
    if (!open)
        return NULL;
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
                        .what = what_of(record),
                        .track = -1,
                        .next = graph->open,
                        .pprev = &graph->open};
    if (!open->from || !open->to
        || pl_map_put(&graph->calls, key_of(record->process_id, e->call), open)
               != PL_OK) {
        pl_free(open);
        return NULL;
    }
    if (open->next)
        open->next->pprev = &open->next;
    graph->open = open;
    return open;
}

/* The process of a rank was replaced: nothing of the one before is answered any more. */
static void look_at_incarnation(pl_call_graph_t *graph, uint32_t process_id,
                                uint32_t incarnation)
{
    const uintptr_t known = (uintptr_t)pl_map_get(&graph->incarnations,
                                                  (uint64_t)process_id + 1);
    if (known > incarnation)
        return;
    pl_map_put(&graph->incarnations, (uint64_t)process_id + 1,
               (void *)(uintptr_t)(incarnation + 1));
    for (pl_open_t *open = graph->open, *next; known && open; open = next) {
        next = open->next;
        if (open->process_id == process_id && open->incarnation < incarnation)
            lose(graph, open);
    }
}

pl_open_t *pl_call_graph_take(pl_call_graph_t *graph, const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    pl_map_put(&graph->threads, key_of(record->process_id, e->from_thread),
               (void *)(uintptr_t)(record->stamp.rank + 3));
    if (record->process_id)
        look_at_incarnation(graph, record->process_id, e->incarnation);
    if (e->kind == PL_KIND_CALL)
        return call_begin(graph, record);
    pl_open_t *open = pl_call_graph_find(graph, record->process_id, e->call);
    if (open && e->kind != PL_KIND_CANCEL && open->to->rank == PL_RANK_UNKNOWN)
        open->to->rank = record->stamp.rank;
    pl_open_t *parent = open && pl_ends_call(record)
                            ? pl_call_graph_find(graph, open->process_id, open->cause)
                            : NULL;
    if (parent)
        parent->children += record->stamp.time - open->began;
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

/* ---- what a rank's steps take their time ---- */

/* An accelerator and a collective do one thing after the other: what waits there has not
 * begun. */
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

/* Cuts a span in two, so many seconds of it before the second; false: it stays whole. */
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
    static const pl_step_stage_t stages[] = {PL_STEP_FORWARD, PL_STEP_BACKWARD,
                                             PL_STEP_OPTIMIZER, PL_STEP_BACKWARD,
                                             PL_STEP_BACKWARD};
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

json_t *pl_device_spans(const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error;
    if (record->envelope.message != PL_MESSAGE_replay_plan
        || record->envelope.kind != PL_KIND_REPLY
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK
        || !*body.replay_plan_reply.spans)
        return NULL;
    return json_loads(body.replay_plan_reply.spans, 0, NULL);
}
