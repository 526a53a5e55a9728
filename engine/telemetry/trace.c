/* trace.c - a trace of actors, calls and steps, as Perfetto opens it
 *
 * The JSON array of "Trace Event Format" (Google, 2016): it may lack its end, so the
 * file of a run that was killed opens as well.  A process is a rank, a thread an
 * actor.  An actor may have several calls open, which end in any order, but slices of
 * a thread have to nest: so each open call has a track of its actor for itself.
 * `start` is open as long as the actor lives: it is drawn apart, as an asynchronous
 * event.
 *
 * Actors of one kind that share a process are numbered, so that no two tracks have one
 * name.  Who is called by an actor of no rank may be of one, as workers that are threads
 * are: that is known when it first speaks, and until then its calls wait. */
#include "telemetry/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "telemetry/call_graph.h"
#include "telemetry/sink.h"
#include "telemetry/trace_text.h"

enum {
    STAGE_TIDS = 1,                                  /* of a rank's tracks of its steps */
    FIRST_TID = 8,                                   /* of actors */
    TRACK_NONE = -1,
    TRACK_WAITS = -2,                                    /* for where its actor belongs */
    ENGINE_PID = 1,                                      /* of what is no rank's */
    DEVICE_TRACKS = 3,                                   /* streams of a device */
    TRACE_NAME_MAX = 96,
};
static const int64_t COUNTERS_EVERY = 50000000;             /* ns */

/* How far an actor's tracks are drawn. */
typedef struct drawn {
    int pid;
    unsigned number;                           /* among those of its kind there, from 1 */
    int stands_for;                            /* a rank of another process; -1: none */
    bool is_named[PL_ACTOR_TRACKS];
    bool owes_end[PL_ACTOR_TRACKS];                         /* there was no room for it */
    int64_t last[PL_ACTOR_TRACKS];
} drawn_t;

typedef struct rank {
    bool has_tracks[PL_TRACKS + DEVICE_TRACKS];
    int64_t busy_until[PL_TRACKS];
    int64_t counted;
} rank_t;

typedef struct trace {
    pl_sink_t *sink;
    pl_call_graph_t graph;
    pl_map_t ranks;                            /* by pid */
    pl_map_t kinds;                            /* how many of a kind there are, by both */
    uint64_t arrows, lost;
    int64_t now;
} trace_t;

static bool put(trace_t *trace, text_t *t)
{
    add(t, "},\n");
    if (!t->is_cut && pl_sink_put(trace->sink, t->at, t->length))
        return true;
    trace->lost++;
    return false;
}

static void put_meta(trace_t *trace, const char *what, int pid, uint64_t tid,
                     const char *name, uint64_t number)
{
    text_t t;
    event(&t, 'M', pid, tid, 0);
    add_label(&t, what);
    add(&t, ",\"args\":{\"");
    add(&t, name ? "name\":\"" : "sort_index\":");
    if (name)
        add_name(&t, name);
    else
        add_number(&t, number);
    add(&t, name ? "\"}" : "}");
    put(trace, &t);
}

/* ---- tracks ---- */

/* A process for each rank, one for what is none's. */
static rank_t *rank_of(trace_t *trace, int pid)
{
    char name[32];
    rank_t *rank = pl_map_get(&trace->ranks, (uint64_t)pid);
    if (rank || !(rank = pl_alloc(sizeof *rank)))
        return rank;
    if (pl_map_put(&trace->ranks, (uint64_t)pid, rank) != PL_OK) {
        pl_free(rank);
        return NULL;
    }
    snprintf(name, sizeof name, pid == ENGINE_PID ? "engine" : "rank %d", pid - 2);
    put_meta(trace, "process_name", pid, 0, name, 0);
    put_meta(trace, "process_sort_index", pid, 0, NULL, (uint64_t)pid);
    return rank;
}

static uint64_t tid_of(const pl_graph_actor_t *actor, int track)
{
    return FIRST_TID + (uint64_t)(actor->number - 1) * PL_ACTOR_TRACKS + (uint64_t)track;
}

/* Which one of its kind in its process this is. */
static unsigned count_kind(trace_t *trace, int pid, uint32_t kind)
{
    const uint64_t key = pl_mix((uint64_t)pid, kind) | 1;
    const uintptr_t count = (uintptr_t)pl_map_get(&trace->kinds, key) + 1;
    pl_map_put(&trace->kinds, key, (void *)count);
    return (unsigned)count;
}

/* Where an actor is drawn stays, once that has begun. */
static drawn_t *place(trace_t *trace, pl_graph_actor_t *actor, int rank)
{
    drawn_t *drawn = actor->own;
    if (drawn || !(drawn = pl_alloc(sizeof *drawn)))
        return drawn;
    drawn->pid = (rank == PL_RANK_UNKNOWN ? -1 : rank) + 2;
    drawn->number = count_kind(trace, drawn->pid, actor->kind);
    drawn->stands_for = -1;
    actor->own = drawn;
    rank_of(trace, drawn->pid);
    return drawn;
}

static const char *name_of(const pl_graph_actor_t *actor, char name[TRACE_NAME_MAX])
{
    const drawn_t *drawn = actor->own;
    const char *kind = pl_kind_name(actor->kind);
    if (drawn->number > 1)
        snprintf(name, TRACE_NAME_MAX, "%s #%u", kind, drawn->number);
    else
        snprintf(name, TRACE_NAME_MAX, "%s", kind);
    return name;
}

static void name_track(trace_t *trace, const pl_graph_actor_t *actor, int track)
{
    drawn_t *drawn = actor->own;
    char own[TRACE_NAME_MAX], name[TRACE_NAME_MAX + 64], whose[32] = "", which[16] = "";
    if (drawn->is_named[track])
        return;
    drawn->is_named[track] = true;
    if (drawn->stands_for >= 0)
        snprintf(whose, sizeof whose, " of rank %d", drawn->stands_for);
    if (track)
        snprintf(which, sizeof which, " (%d)", track + 1);
    snprintf(name, sizeof name, "%s%s%s", name_of(actor, own), whose, which);
    put_meta(trace, "thread_name", drawn->pid, tid_of(actor, track), name, 0);
    put_meta(trace, "thread_sort_index", drawn->pid, tid_of(actor, track), NULL,
             tid_of(actor, track));
}

/* One of the engine's that stands for a rank in another process learns which when that
 * is to join: of names of a track the last counts. */
static void look_at_join(trace_t *trace, const pl_open_t *open,
                         const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error;
    drawn_t *drawn = open->to->own;
    if (open->message != PL_MESSAGE_join || !drawn || drawn->pid != ENGINE_PID
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    drawn->stands_for = (int)body.join.rank;
    for (int track = 0; track < PL_ACTOR_TRACKS; track++) {
        if (!drawn->is_named[track])
            continue;
        drawn->is_named[track] = false;
        name_track(trace, open->to, track);
    }
}

/* Messages of several threads come nearly in the order of their times. */
static int64_t on_track(drawn_t *drawn, int track, int64_t time)
{
    if (drawn->last[track] < time)
        drawn->last[track] = time;
    return drawn->last[track];
}

/* ---- calls ---- */

static void track_end(trace_t *trace, const pl_graph_actor_t *actor, int track,
                      int64_t time)
{
    drawn_t *drawn = actor->own;
    text_t t;
    event(&t, 'E', drawn->pid, tid_of(actor, track), on_track(drawn, track, time));
    drawn->owes_end[track] = !put(trace, &t);
}

static void slice_end(trace_t *trace, pl_open_t *open, int64_t time)
{
    if (open->track < 0)
        return;
    track_end(trace, open->to, open->track, time);
    open->to->track[open->track] = NULL;
    open->track = TRACK_NONE;
}

/* When all tracks are taken, the call that began last makes room. */
static int track_for(trace_t *trace, pl_open_t *open)
{
    int track = 0;
    while (track < PL_ACTOR_TRACKS && open->to->track[track])
        track++;
    if (track == PL_ACTOR_TRACKS)
        slice_end(trace, open->to->track[--track], open->began);
    return track;
}

/* An arrow begins in what the caller was doing, and ends in the slice of the call. */
static void arrow(trace_t *trace, pl_open_t *open, drawn_t *to)
{
    const pl_open_t *parent = pl_call_graph_find(&trace->graph, open->process_id,
                                                 open->cause);
    const pl_graph_actor_t *from = open->from;
    drawn_t *drawn = parent && parent->to == from && parent->track >= 0 ? from->own
                                                                        : NULL;
    if (!drawn)
        return;
    text_t t;
    event(&t, 's', drawn->pid, tid_of(from, parent->track),
          on_track(drawn, parent->track, open->began));
    add(&t, ",\"name\":\"call\",\"cat\":\"call\",\"id\":");
    add_number(&t, ++trace->arrows);
    if (!put(trace, &t))
        return;
    event(&t, 'f', to->pid, tid_of(open->to, open->track),
          on_track(to, open->track, open->began));
    add(&t, ",\"bp\":\"e\",\"name\":\"call\",\"cat\":\"call\",\"id\":");
    add_number(&t, trace->arrows);
    put(trace, &t);
}

static void slice_begin(trace_t *trace, pl_open_t *open)
{
    drawn_t *drawn = open->to->own;
    const int track = track_for(trace, open);
    if (drawn->owes_end[track])
        track_end(trace, open->to, track, open->began);
    name_track(trace, open->to, track);
    text_t t;
    event(&t, 'B', drawn->pid, tid_of(open->to, track),
          on_track(drawn, track, open->began));
    add_label(&t, pl_message_info(open->message)->name);
    add(&t, ",\"args\":{\"call\":");
    add_number(&t, open->call);
    add(&t, ",\"cause\":");
    add_number(&t, open->cause);
    add(&t, "}");
    if (drawn->owes_end[track] || !put(trace, &t))
        return;
    open->track = track;
    open->to->track[track] = open;
    arrow(trace, open, drawn);
}

/* Lives have tracks of their own in the process of the actor. */
static void life(trace_t *trace, const pl_open_t *open, char phase, int64_t time)
{
    const drawn_t *drawn = open->to->own;
    char own[TRACE_NAME_MAX], name[TRACE_NAME_MAX + 16];
    text_t t;
    event(&t, phase, drawn->pid, 0, time);
    add(&t, ",\"cat\":\"life\",\"id\":");
    add_number(&t, open->to->number);
    snprintf(name, sizeof name, "life of %s", name_of(open->to, own));
    add_label(&t, name);
    put(trace, &t);
}

static void call_draw(trace_t *trace, pl_open_t *open)
{
    open->track = TRACK_NONE;
    if (open->message == PL_MESSAGE_start)
        life(trace, open, 'b', open->began);
    else
        slice_begin(trace, open);
}

/* The one that has waited longest; NULL: none has. */
static pl_open_t *waiting_of(const trace_t *trace, const pl_graph_actor_t *actor)
{
    pl_open_t *oldest = NULL;
    for (pl_open_t *open = trace->graph.open; open; open = open->next)
        if (open->to == actor && open->track == TRACK_WAITS)
            oldest = open;
    return oldest;
}

/* It is known where an actor belongs, since it has spoken or from who calls it. */
static void rank_found(trace_t *trace, pl_graph_actor_t *actor, int rank)
{
    if (actor->own || rank == PL_RANK_UNKNOWN || !place(trace, actor, rank))
        return;
    for (pl_open_t *open; (open = waiting_of(trace, actor));)
        call_draw(trace, open);
}

static void call_begins(trace_t *trace, pl_open_t *open, const pl_tap_record_t *record)
{
    rank_found(trace, open->from, open->from->rank);
    rank_found(trace, open->to, open->to->rank);
    if (open->from->rank >= 0)
        rank_found(trace, open->to, open->from->rank);
    if (!open->to->own) {
        open->track = TRACK_WAITS;
        return;
    }
    look_at_join(trace, open, record);
    call_draw(trace, open);
}

/* Of an actor that has never spoken the process of the engine shows what it was for. */
static void call_ends(trace_t *trace, pl_open_t *open, int64_t time)
{
    rank_found(trace, open->to, open->to->rank == PL_RANK_UNKNOWN ? -1 : open->to->rank);
    if (!open->to->own)
        return;
    if (open->message == PL_MESSAGE_start)
        life(trace, open, 'e', time);
    else
        slice_end(trace, open, time);
}

/* ---- steps and metrics ---- */

static void draw_span(trace_t *trace, int pid, int track, const char *track_name,
                      int64_t begin, int64_t end, const char *label)
{
    rank_t *rank = rank_of(trace, pid);
    const uint64_t tid = STAGE_TIDS + (uint64_t)track;
    if (!rank)
        return;
    if (!rank->has_tracks[track]) {
        put_meta(trace, "thread_name", pid, tid, track_name, 0);
        put_meta(trace, "thread_sort_index", pid, tid, NULL, tid);
    }
    rank->has_tracks[track] = true;
    text_t t;
    event(&t, 'X', pid, tid, begin);
    add(&t, ",\"dur\":");
    add_time(&t, end - begin);
    add_label(&t, label);
    put(trace, &t);
}

static void draw_spans(trace_t *trace, const pl_open_t *open,
                       const pl_tap_record_t *record)
{
    static const char *const names[PL_TRACKS] = {"step: data", "step: compute",
                                                 "step: collective"};
    pl_time_span_t spans[PL_CALL_SPANS];
    const int pid = record->stamp.rank + 2;
    rank_t *rank = rank_of(trace, pid);
    const int count = rank ? pl_step_spans(open, record, rank->busy_until, spans) : 0;
    for (int k = 0; k < count; k++)
        draw_span(trace, pid, (int)spans[k].track, names[spans[k].track], spans[k].begin,
                  spans[k].end, pl_step_stage_names[spans[k].stage]);
}

static void draw_metrics(trace_t *trace, int pid, int64_t time, const char *metrics)
{
    json_t *values = json_loads(metrics, 0, NULL), *value;
    const char *name;
    char number[40];
    json_object_foreach(values, name, value) {
        if (!json_is_number(value))
            continue;
        const size_t length = json_dumpb(value, number, sizeof number - 1,
                                         JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (length >= sizeof number)
            continue;
        number[length] = '\0';
        text_t t;
        event(&t, 'C', pid, 0, time);
        add_label(&t, name);
        add(&t, ",\"args\":{\"value\":");
        add(&t, number);
        add(&t, "}");
        put(trace, &t);
    }
    json_decref(values);
}

/* What a device has measured by its own clock ends when its reply was sent. */
static void draw_device(trace_t *trace, const pl_tap_record_t *record)
{
    static const char *const names[DEVICE_TRACKS] = {"device: kernels",
                                                     "device: copies in",
                                                     "device: copies out"};
    pl_body_t body;
    pl_error_t error;
    if (record->envelope.message != PL_MESSAGE_replay_plan
        || record->envelope.kind != PL_KIND_REPLY
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK
        || !*body.replay_plan_reply.spans)
        return;
    json_t *spans = json_loads(body.replay_plan_reply.spans, 0, NULL), *span;
    json_int_t begin, end, last = 0;
    int track;
    const char *kind, *of;
    char label[TRACE_NAME_MAX];
    size_t k;
    json_array_foreach(spans, k, span)
        if (json_unpack(span, "[i,s,s,I,I]", &track, &kind, &of, &begin, &end) == 0)
            last = end > last ? end : last;
    json_array_foreach(spans, k, span) {
        if (json_unpack(span, "[i,s,s,I,I]", &track, &kind, &of, &begin, &end) != 0
            || track < 0 || track >= DEVICE_TRACKS)
            continue;
        snprintf(label, sizeof label, "%s%s%s", of, *of ? ": " : "", kind);
        draw_span(trace, record->stamp.rank + 2, PL_TRACKS + track, names[track],
                  record->stamp.time - last + begin, record->stamp.time - last + end,
                  label);
    }
    json_decref(spans);
}

static void look_at_metrics(trace_t *trace, const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error;
    const int pid = record->stamp.rank + 2;
    rank_t *rank = rank_of(trace, pid);
    if (!rank || record->stamp.time < rank->counted
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    rank->counted = record->stamp.time + COUNTERS_EVERY;
    draw_metrics(trace, pid, record->stamp.time, body.train_epoch_progress.metrics);
}

/* ---- the tap ---- */

static void trace_lost(void *user, pl_open_t *open)
{
    trace_t *trace = user;
    call_ends(trace, open, trace->now);
}

static void trace_record(void *self, const pl_tap_record_t *record)
{
    trace_t *trace = self;
    trace->now = record->stamp.time;
    pl_open_t *open = pl_call_graph_take(&trace->graph, record);
    if (!open)
        return;
    if (record->envelope.kind == PL_KIND_CALL) {
        call_begins(trace, open, record);
        return;
    }
    rank_found(trace, open->to, open->to->rank);
    if (pl_ends_call(record)) {
        draw_spans(trace, open, record);
        draw_device(trace, record);
        call_ends(trace, open, trace->now);
        pl_call_graph_drop(&trace->graph, open);
    } else if (record->envelope.kind == PL_KIND_PROGRESS
               && record->envelope.message == PL_MESSAGE_train_epoch) {
        look_at_metrics(trace, record);
    }
}

static void trace_gap(void *self, int rank, uint64_t count)
{
    trace_t *trace = self;
    text_t t;
    event(&t, 'i', rank + 2, 0, trace->now);
    add(&t, ",\"s\":\"p\",\"name\":\"");
    if (count)
        add_number(&t, count);
    add(&t, count ? " messages are missing\"" : "messages may be missing: it died\"");
    put(trace, &t);
}

static void trace_tick(void *self)
{
    pl_sink_push(((trace_t *)self)->sink);
}

static void trace_free(trace_t *trace)
{
    uint64_t key;
    pl_call_graph_release(&trace->graph);
    while (pl_map_any(&trace->ranks, &key))
        pl_free(pl_map_take(&trace->ranks, key));
    pl_map_release(&trace->ranks);
    pl_map_release(&trace->kinds);
    if (trace->sink)
        pl_sink_close(trace->sink);
    pl_free(trace);
}

/* JSON has no comma before the end. */
static void trace_close(void *self)
{
    trace_t *trace = self;
    pl_sink_last(trace->sink);
    for (pl_open_t *open = trace->graph.open; open; open = open->next)
        trace_lost(trace, open);
    text_t t;
    event(&t, 'M', ENGINE_PID, 0, 0);
    add(&t, ",\"name\":\"trace_end\",\"args\":{\"lost\":");
    add_number(&t, trace->lost);
    add(&t, "}}]\n");
    pl_sink_put(trace->sink, t.at, t.length);
    trace_free(trace);
}

static const pl_tap_ops_t trace_ops = {.record = trace_record,
                                       .gap = trace_gap,
                                       .tick = trace_tick,
                                       .close = trace_close};

/* A line is an event. */
static size_t trace_whole(const char *bytes, size_t size)
{
    while (size && bytes[size - 1] != '\n')
        size--;
    return size;
}

static const pl_sink_kind_t trace_file = {.name = "trace",
                                          .begin = "[\n{\"ph\":\"",
                                          .whole = trace_whole};

int pl_trace_tap(pl_runtime_t *runtime, const char *path, pl_error_t *err)
{
    pl_error_t own;
    trace_t *trace = pl_alloc(sizeof *trace);
    if (!trace)
        return pl_no_memory(err);
    if (!err)
        err = &own;
    trace->graph.lost = trace_lost;
    trace->graph.user = trace;
    trace->sink = pl_sink_new(runtime, path, &trace_file, err);
    if (trace->sink && pl_sink_put(trace->sink, "[\n", 2)
        && pl_tap_add(runtime, &trace_ops, trace, err) == PL_OK)
        return PL_OK;
    trace_free(trace);
    return err->code;
}
