/* trace.c - a trace of actors, calls and steps, as Perfetto opens it
 *
 * The JSON array of "Trace Event Format" (Google, 2016): it may lack its end, so the file
 * of a run that was killed opens as well.  A process is a rank, a thread an actor.  An
 * actor may have several open calls, which end in any order, but slices of a thread must
 * nest: so each open call has a track of its actor.  `start` is open as long as the actor
 * lives: it is an asynchronous event.
 *
 * Actors of one kind in one process are numbered, so that no two tracks have the same
 * name.  An actor that is called by an actor of no rank may itself be of a rank, as the
 * worker of a thread is.  Its rank is known when it first sends; until then its calls
 * wait. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "telemetry/call_graph.h"
#include "telemetry/sink.h"
#include "telemetry/taps.h"

enum {
    STAGE_TIDS = 1,                                  /* of the tracks of a rank's steps */
    FIRST_TID = 8,                                   /* of actors */
    TRACK_NONE = -1,
    TRACK_WAITS = -2,                               /* the rank of its actor is unknown */
    ENGINE_PID = 1,                                 /* of actors of no rank */
    DEVICE_TRACKS = 3,                              /* streams of a device */
    NAME_MAX_BYTES = 96,
    EVENT_MAX = 512,
};
static const int64_t COUNTERS_EVERY = 50000000;             /* ns */

/* How an actor is drawn. */
typedef struct drawn {
    int pid;
    unsigned number;                           /* among those of its kind there, from 1 */
    int proxy_of;                              /* a rank of another process; -1: none */
    bool is_named[PL_ACTOR_TRACKS];
    bool owes_end[PL_ACTOR_TRACKS];                 /* the sink had no room for its end */
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
    pl_map_t ranks;                                /* rank_t by pid */
    pl_map_t kinds;                                /* number of actors, by pid and kind */
    uint64_t arrows, lost;
    int64_t now;
} trace_t;

/* ---- the text of an event ---- */

/* Printing is most of the cost of a trace: constant texts have a known length, and an
 * event is made in place. */
typedef struct trace_text {
    size_t length;
    bool is_cut;
    char at[EVENT_MAX];
} trace_text_t;

static inline void add_bytes(trace_text_t *t, const char *bytes, size_t count)
{
    if (count > EVENT_MAX - t->length) {
        t->is_cut = true;
        return;
    }
    memcpy(t->at + t->length, bytes, count);
    t->length += count;
}

static inline void add(trace_text_t *t, const char *text)
{
    add_bytes(t, text, strlen(text));
}

static inline void add_number(trace_text_t *t, uint64_t number)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char digits[24], *const end = digits + sizeof digits, *first = end;
    for (; number >= 10; number /= 100)
        memcpy(first -= 2, pairs + number % 100 * 2, 2);
    if (number || first == end)
        *--first = (char)('0' + number);
    add_bytes(t, first, (size_t)(end - first));
}

/* Microseconds, with three decimals. */
static inline void add_time(trace_text_t *t, int64_t time)
{
    const uint64_t ns = time > 0 ? (uint64_t)time : 0;
    const char rest[] = {'.', (char)('0' + ns % 1000 / 100), (char)('0' + ns % 100 / 10),
                         (char)('0' + ns % 10)};
    add_number(t, ns / 1000);
    add_bytes(t, rest, sizeof rest);
}

/* `before`, and a name in quotes; a name of an actor may come from a user. */
static inline void add_name(trace_text_t *t, const char *before, const char *name)
{
    add(t, before);
    const size_t first = t->length;
    add(t, name);
    for (size_t k = first; k < t->length; k++)
        if (t->at[k] == '"' || t->at[k] == '\\' || (t->at[k] & 0xe0) == 0)
            t->at[k] = '?';
    add(t, "\"");
}

static inline void event(trace_text_t *t, char phase, int pid, uint64_t tid, int64_t time)
{
    const char begin[] = {'{', '"', 'p', 'h', '"', ':', '"', phase, '"'};
    t->length = 0;
    t->is_cut = false;
    add_bytes(t, begin, sizeof begin);
    add(t, ",\"pid\":");
    add_number(t, (uint64_t)pid);
    add(t, ",\"tid\":");
    add_number(t, tid);
    add(t, ",\"ts\":");
    add_time(t, time);
}

/* False: there was no room for it. */
static bool put(trace_t *trace, trace_text_t *t)
{
    add(t, "},\n");
    if (!t->is_cut && pl_sink_put(trace->sink, t->at, t->length))
        return true;
    trace->lost++;
    return false;
}

/* The name of a process or thread, or its place in the order of them. */
static void put_name(trace_t *trace, const char *what, int pid, uint64_t tid,
                     const char *name)
{
    trace_text_t t;
    event(&t, 'M', pid, tid, 0);
    add_name(&t, ",\"name\":\"", what);
    add_name(&t, ",\"args\":{\"name\":\"", name);
    add(&t, "}");
    put(trace, &t);
}

static void put_order(trace_t *trace, const char *what, int pid, uint64_t tid,
                      uint64_t order)
{
    trace_text_t t;
    event(&t, 'M', pid, tid, 0);
    add_name(&t, ",\"name\":\"", what);
    add(&t, ",\"args\":{\"sort_index\":");
    add_number(&t, order);
    add(&t, "}");
    put(trace, &t);
}

/* ---- processes and threads ---- */

/* NULL: out of memory. */
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
    put_name(trace, "process_name", pid, 0, name);
    put_order(trace, "process_sort_index", pid, 0, (uint64_t)pid);
    return rank;
}

static uint64_t tid_of(const pl_graph_actor_t *actor, int track)
{
    return FIRST_TID + (uint64_t)(actor->number - 1) * PL_ACTOR_TRACKS + (uint64_t)track;
}

static const char *name_of(const pl_graph_actor_t *actor, char name[NAME_MAX_BYTES])
{
    const drawn_t *drawn = actor->own;
    const char *kind = pl_kind_name(actor->kind);
    if (drawn->number > 1)
        snprintf(name, NAME_MAX_BYTES, "%s #%u", kind, drawn->number);
    else
        snprintf(name, NAME_MAX_BYTES, "%s", kind);
    return name;
}

static void name_track(trace_t *trace, const pl_graph_actor_t *actor, int track)
{
    drawn_t *drawn = actor->own;
    const uint64_t tid = tid_of(actor, track);
    char own[NAME_MAX_BYTES], name[NAME_MAX_BYTES + 64], whose[32] = "", which[16] = "";
    if (drawn->is_named[track])
        return;
    drawn->is_named[track] = true;
    if (drawn->proxy_of >= 0)
        snprintf(whose, sizeof whose, " of rank %d", drawn->proxy_of);
    if (track)
        snprintf(which, sizeof which, " (%d)", track + 1);
    snprintf(name, sizeof name, "%s%s%s", name_of(actor, own), whose, which);
    put_name(trace, "thread_name", drawn->pid, tid, name);
    put_order(trace, "thread_sort_index", drawn->pid, tid, tid);
}

/* Messages of several threads arrive nearly in the order of their times. */
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
    trace_text_t t;
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

/* When all tracks of the actor are in use, the newest call gives up its track. */
static void slice_begin(trace_t *trace, pl_open_t *open)
{
    drawn_t *drawn = open->to->own;
    int track = 0;
    while (track < PL_ACTOR_TRACKS && open->to->track[track])
        track++;
    if (track == PL_ACTOR_TRACKS)
        slice_end(trace, open->to->track[--track], open->began);
    if (drawn->owes_end[track])
        track_end(trace, open->to, track, open->began);
    name_track(trace, open->to, track);
    trace_text_t t;
    event(&t, 'B', drawn->pid, tid_of(open->to, track),
          on_track(drawn, track, open->began));
    add_name(&t, ",\"name\":\"", pl_message_info(open->message)->name);
    add(&t, ",\"args\":{\"call\":");
    add_number(&t, open->call);
    add(&t, ",\"cause\":");
    add_number(&t, open->cause);
    add(&t, "}");
    if (drawn->owes_end[track] || !put(trace, &t))
        return;
    open->track = track;
    open->to->track[track] = open;
    /* An arrow from the slice of the call that caused one to the slice of that. */
    const pl_open_t *parent = pl_call_graph_find(&trace->graph, open->process_id,
                                                 open->cause);
    const pl_graph_actor_t *from = open->from;
    drawn_t *origin = parent && parent->to == from && parent->track >= 0 ? from->own
                                                                         : NULL;
    if (!origin)
        return;
    event(&t, 's', origin->pid, tid_of(from, parent->track),
          on_track(origin, parent->track, open->began));
    add(&t, ",\"name\":\"call\",\"cat\":\"call\",\"id\":");
    add_number(&t, ++trace->arrows);
    if (!put(trace, &t))
        return;
    event(&t, 'f', drawn->pid, tid_of(open->to, open->track),
          on_track(drawn, open->track, open->began));
    add(&t, ",\"bp\":\"e\",\"name\":\"call\",\"cat\":\"call\",\"id\":");
    add_number(&t, trace->arrows);
    put(trace, &t);
}

/* The life of an actor, as an asynchronous event of its process. */
static void life(trace_t *trace, const pl_open_t *open, char phase, int64_t time)
{
    const drawn_t *drawn = open->to->own;
    char own[NAME_MAX_BYTES], name[NAME_MAX_BYTES + 16];
    trace_text_t t;
    event(&t, phase, drawn->pid, 0, time);
    add(&t, ",\"cat\":\"life\",\"id\":");
    add_number(&t, open->to->number);
    snprintf(name, sizeof name, "life of %s", name_of(open->to, own));
    add_name(&t, ",\"name\":\"", name);
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

/* The rank of an actor is known: from now on it has a place, and its calls that waited
 * are drawn, the oldest first. */
static void rank_found(trace_t *trace, pl_graph_actor_t *actor, int rank)
{
    drawn_t *drawn = actor->own;
    if (drawn || rank == PL_RANK_UNKNOWN || !(drawn = pl_alloc(sizeof *drawn)))
        return;
    drawn->pid = rank + 2;
    const uint64_t key = pl_mix((uint64_t)drawn->pid, actor->kind) | 1;
    drawn->number = (unsigned)(uintptr_t)pl_map_get(&trace->kinds, key) + 1;
    pl_map_put(&trace->kinds, key, (void *)(uintptr_t)drawn->number);
    drawn->proxy_of = -1;
    actor->own = drawn;
    rank_of(trace, drawn->pid);
    pl_open_t *waits;
    do {
        waits = NULL;
        for (pl_open_t *open = trace->graph.open; open; open = open->next)
            if (open->to == actor && open->track == TRACK_WAITS)
                waits = open;
        if (waits)
            call_draw(trace, waits);
    } while (waits);
}

/* An actor that has never sent is drawn in the engine's process. */
static void call_ends(void *user, pl_open_t *open)
{
    trace_t *trace = user;
    rank_found(trace, open->to, open->to->rank == PL_RANK_UNKNOWN ? -1 : open->to->rank);
    if (!open->to->own)
        return;
    if (open->message == PL_MESSAGE_start)
        life(trace, open, 'e', trace->now);
    else
        slice_end(trace, open, trace->now);
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
        put_name(trace, "thread_name", pid, tid, track_name);
        put_order(trace, "thread_sort_index", pid, tid, tid);
    }
    rank->has_tracks[track] = true;
    trace_text_t t;
    event(&t, 'X', pid, tid, begin);
    add(&t, ",\"dur\":");
    add_time(&t, end - begin);
    add_name(&t, ",\"name\":\"", label);
    put(trace, &t);
}

/* The spans that a device measured by its own clock: the last one ends when the reply was
 * sent. */
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
    char label[NAME_MAX_BYTES];
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

/* Metrics of a report are counters, at most one value in 50 ms. */
static void draw_metrics(trace_t *trace, const pl_tap_record_t *record)
{
    pl_body_t body;
    pl_error_t error;
    const char *name;
    char number[40];
    const int pid = record->stamp.rank + 2;
    rank_t *rank = rank_of(trace, pid);
    if (!rank || record->stamp.time < rank->counted
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    rank->counted = record->stamp.time + COUNTERS_EVERY;
    json_t *values = json_loads(body.train_epoch_progress.metrics, 0, NULL), *value;
    json_object_foreach(values, name, value) {
        const size_t length = !json_is_number(value)
                                  ? sizeof number
                                  : json_dumpb(value, number, sizeof number - 1,
                                               JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (length >= sizeof number)
            continue;
        number[length] = '\0';
        trace_text_t t;
        event(&t, 'C', pid, 0, record->stamp.time);
        add_name(&t, ",\"name\":\"", name);
        add(&t, ",\"args\":{\"value\":");
        add(&t, number);
        add(&t, "}");
        put(trace, &t);
    }
    json_decref(values);
}

/* ---- the tap ---- */

static void trace_record(void *self, const pl_tap_record_t *record)
{
    static const char *const names[PL_TRACKS] = {"step: data", "step: compute",
                                                 "step: collective"};
    trace_t *trace = self;
    pl_time_span_t spans[PL_CALL_SPANS];
    trace->now = record->stamp.time;
    pl_open_t *open = pl_call_graph_take(&trace->graph, record);
    if (!open)
        return;
    const bool is_call = record->envelope.kind == PL_KIND_CALL;
    if (is_call)
        rank_found(trace, open->from, open->from->rank);
    rank_found(trace, open->to, open->to->rank);
    if (is_call) {
        if (open->from->rank >= 0)
            rank_found(trace, open->to, open->from->rank);
        if (!open->to->own) {
            open->track = TRACK_WAITS;
            return;
        }
        /* The proxy of a rank in another process gets its rank with `join`.  Of several
         * names of a track the last one counts. */
        drawn_t *drawn = open->to->own;
        pl_body_t body;
        pl_error_t error;
        const bool joins = open->message == PL_MESSAGE_join && drawn->pid == ENGINE_PID
                           && pl_frame_decode_record(record->frame, &body, &error, NULL)
                                  == PL_OK;
        if (joins)
            drawn->proxy_of = (int)body.join.rank;
        for (int track = 0; joins && track < PL_ACTOR_TRACKS; track++) {
            if (!drawn->is_named[track])
                continue;
            drawn->is_named[track] = false;
            name_track(trace, open->to, track);
        }
        call_draw(trace, open);
        return;
    }
    if (pl_ends_call(record)) {
        const int pid = record->stamp.rank + 2;
        rank_t *rank = rank_of(trace, pid);
        const int count = rank ? pl_step_spans(open, record, rank->busy_until, spans) : 0;
        for (int k = 0; k < count; k++)
            draw_span(trace, pid, (int)spans[k].track, names[spans[k].track],
                      spans[k].begin, spans[k].end, pl_step_stage_names[spans[k].stage]);
        draw_device(trace, record);
        call_ends(trace, open);
        pl_call_graph_drop(&trace->graph, open);
    } else if (record->envelope.kind == PL_KIND_PROGRESS
               && record->envelope.message == PL_MESSAGE_train_epoch) {
        draw_metrics(trace, record);
    }
}

static void trace_gap(void *self, int rank, uint64_t count)
{
    trace_t *trace = self;
    trace_text_t t;
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
    pl_call_graph_release(&trace->graph);
    pl_map_release_values(&trace->ranks);
    pl_map_release(&trace->kinds);
    if (trace->sink)
        pl_sink_close(trace->sink);
    pl_free(trace);
}

/* The last event has no comma after it. */
static void trace_close(void *self)
{
    trace_t *trace = self;
    pl_sink_last(trace->sink);
    for (pl_open_t *open = trace->graph.open; open; open = open->next)
        call_ends(trace, open);
    trace_text_t t;
    event(&t, 'M', ENGINE_PID, 0, 0);
    add(&t, ",\"name\":\"trace_end\",\"args\":{\"lost\":");
    add_number(&t, trace->lost);
    add(&t, "}}]\n");
    pl_sink_put(trace->sink, t.at, t.length);
    trace_free(trace);
}

/* A line is an event. */
static size_t trace_whole(const char *bytes, size_t size)
{
    while (size && bytes[size - 1] != '\n')
        size--;
    return size;
}

int pl_trace_tap(pl_runtime_t *runtime, const char *path, pl_error_t *err)
{
    static const pl_tap_ops_t ops = {.record = trace_record,
                                     .gap = trace_gap,
                                     .tick = trace_tick,
                                     .close = trace_close};
    static const pl_sink_kind_t file = {.name = "trace",
                                        .begin = "[\n{\"ph\":\"",
                                        .whole = trace_whole};
    pl_error_t own;
    trace_t *trace = pl_alloc(sizeof *trace);
    if (!trace)
        return pl_no_memory(err);
    if (!err)
        err = &own;
    trace->graph.lost = call_ends;
    trace->graph.user = trace;
    trace->sink = pl_sink_new(runtime, path, &file, err);
    if (trace->sink && pl_sink_put(trace->sink, "[\n", 2)
        && pl_tap_add(runtime, &ops, trace, err) == PL_OK)
        return PL_OK;
    trace_free(trace);
    return err->code;
}
