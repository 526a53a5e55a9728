/* run_view_json.c - the run view as JSON, for the page and for the topic "state"
 *
 * Points, log lines and other items have numbers and are sent once: a page says which
 * item it has, also after it was disconnected.  Everything else is small and sent
 * whole.
 *
 * A viewer of every message has to be as fast as the run.  The topic "state" is for a
 * viewer that needs less; without a subscriber it costs the run nothing. */
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "runtime/runtime.h"
#include "telemetry/run_view_parts.h"

/* A cut text may end within a character. */
static json_t *text(const char *value)
{
    char shown[600];
    return json_string(pl_utf8_show(value, shown, sizeof shown));
}

/* The number of the oldest entry of a ring. */
static uint64_t oldest(uint64_t count, uint64_t max)
{
    return count > max ? count - max : 0;
}

/* ---- a run ---- */

/* Seven digits are enough for a curve, and are written in half the time. */
static double rounded(double value)
{
    if (!isfinite(value) || value == 0)
        return value;
    const double scale = pow(10, 6 - floor(log10(fabs(value))));
    return isfinite(scale) && isfinite(value * scale) ? round(value * scale) / scale
                                                      : value;
}

/* Merges each `count` neighbours into one point. */
static json_t *points_json(const viewed_run_t *run, int from, int to, int count)
{
    json_t *all = json_array();
    for (int k = from; k < to; k += count) {
        curve_point_t point;
        for (int c = 0; c < COLUMNS_MAX; c++)
            point.value[c] = NAN;
        for (int p = k; p < k + count && p < to; p++)
            run_point_merge(run, p, &point);
        json_t *row = json_pack("[f, I, f]", round(point.time * 1e3) / 1e3,
                                (json_int_t)point.step, rounded(point.epoch));
        for (int c = 0; c < run->columns; c++)
            json_array_append_new(row, pl_json_number(rounded(point.value[c])));
        json_array_append_new(all, row);
    }
    return all;
}

/* How many of its points have item numbers up to `item`. */
static int points_until(const viewed_run_t *run, uint64_t item)
{
    int low = 0, high = run->curves.count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (run->curves.item[middle] <= item)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static json_t *strip_json(const viewed_run_t *run, uint64_t since, uint64_t until)
{
    json_t *all = json_array();
    for (uint64_t k = oldest(run->slots, STRIP_SLOTS); k < run->slots; k++) {
        const strip_slot_t *slot = &run->strip[k % STRIP_SLOTS];
        if (slot->item <= since || slot->item > until)
            continue;
        json_t *own = json_array();
        for (int rank = 0; rank < run->ranks; rank++)
            json_array_append_new(own, pl_json_number((double)slot->own[rank]));
        json_array_append_new(all, json_pack("[f, o]", slot->time, own));
    }
    return all;
}

/* The time of the steps of each rank in the newest slot, by stage. */
static json_t *stages_json(const viewed_run_t *run)
{
    json_t *all = json_array();
    for (int rank = 0; run->slots && rank < run->ranks; rank++) {
        json_t *row = json_array();
        for (int k = 0; k < PL_TIMINGS; k++)
            json_array_append_new(row, pl_json_number((double)run->stage[rank][k]));
        json_array_append_new(all, row);
    }
    return all;
}

static json_t *devices_json(const viewed_run_t *run)
{
    json_t *all = json_array();
    for (int rank = 0; rank < RANKS_MAX && !run->ended; rank++) {
        const pl_device_stats_t *d = &run->device[rank];
        if (!run->has_device[rank])
            continue;
        json_array_append_new(all,
                              json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "rank", rank,
                                        "memory_used", pl_json_number(d->memory_used),
                                        "memory_total", pl_json_number(d->memory_total),
                                        "utilization", pl_json_number(d->utilization),
                                        "power", pl_json_number(d->power), "temperature",
                                        pl_json_number(d->temperature)));
    }
    return all;
}

/* The ranks that are missing: which, why and for how long. */
static json_t *absent_json(const pl_run_view_t *b, const viewed_run_t *run)
{
    json_t *all = json_array();
    for (int k = 0; k < run->absents && !run->ended; k++) {
        const absent_t *a = &run->absent[k];
        const char *how = a->event == PL_RANK_EVENT_MUTE  ? "silent"
                          : a->event == PL_RANK_EVENT_CUT ? "disconnected"
                                                          : pl_rank_event_names[a->event];
        json_array_append_new(all,
                              json_pack("{s:i, s:s, s:f, s:o}", "rank", a->rank, "event",
                                        how, "seconds", run_view_now(b) - a->since,
                                        "text", text(a->text)));
    }
    return all;
}

/* All checkpoints if one is new or has changed, else none. */
static json_t *saves_json(const viewed_run_t *run, uint64_t since)
{
    json_t *all = json_array();
    bool changed = false;
    for (int k = 0; k < run->saves; k++)
        changed |= run->save[k].item > since;
    for (int k = 0; changed && k < run->saves; k++) {
        const save_t *save = &run->save[k];
        json_array_append_new(all, json_pack("{s:I, s:f, s:b, s:b, s:o}", "number",
                                             (json_int_t)save->number, "time", save->time,
                                             "failed", save->failed, "removed",
                                             save->removed, "text", text(save->text)));
    }
    return all;
}

/* The rates of a run that stalls are 0. */
static json_t *columns_json(const pl_run_view_t *b, const viewed_run_t *run)
{
    const bool is_stalled = run_stalled(b, run) > 0;
    json_t *all = json_array();
    for (int k = 0; k < run->columns; k++) {
        const bool is_rate = k == COLUMN_SAMPLES_RATE || k == COLUMN_STEP_RATE;
        const double newest = is_rate && is_stalled ? 0 : run->newest[k];
        json_array_append_new(all, json_pack("{s:o, s:o}", "name", text(run->name[k]),
                                             "newest", pl_json_number(newest)));
    }
    return all;
}

/* What a reader gets: the items after `since` up to `until`; in an overview at most
 * OVERVIEW_POINTS points of each run. */
typedef struct item_range {
    uint64_t since, until;
    bool is_overview;
} item_range_t;

/* "whole": the page drops the points that it has. */
static json_t *run_json(const pl_run_view_t *b, const viewed_run_t *run,
                        item_range_t range)
{
    const uint64_t since = range.since;
    const char *slash = strrchr(run->dir, '/');
    const bool whole = since < run->rewritten;
    const int from = points_until(run, since), to = points_until(run, range.until);
    const int per_point = range.is_overview
                              ? (to - from + OVERVIEW_POINTS - 1) / OVERVIEW_POINTS
                              : 1;
    json_t *options = run->options && run->options_item > since
                          ? pl_json_value(run->options, strlen(run->options), NULL)
                          : NULL;
    json_t *all =
        json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:f, s:f, s:f}", "number",
                  (json_int_t)run->number, "call", (json_int_t)run->call, "name",
                  text(slash ? slash + 1 : run->dir), "dir", text(run->dir), "module",
                  text(run->module), "doing",
                  text(run->is_paused && !run->ended ? "paused" : run->doing), "error",
                  text(run->error), "ended", run->ended, "began", run->began, "seconds",
                  run_seconds(b, run), "clip", run->clip);
    json_t *more =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:b, s:o, s:o, s:f, s:o}",
                  "step", (json_int_t)run->step, "total_steps",
                  (json_int_t)run->total_steps, "epoch", (json_int_t)run->epoch, "batch",
                  (json_int_t)run->batch, "batches", (json_int_t)run->batches, "samples",
                  (json_int_t)run->samples, "run_p50",
                  pl_json_number(durations_quantile(&run->all, 0.5)), "run_p95",
                  pl_json_number(durations_quantile(&run->all, 0.95)), "whole", whole,
                  "epochs", run->epochs < 0 ? json_null() : json_integer(run->epochs),
                  "reason", text(run->reason), "stalled", run_stalled(b, run), "absent",
                  absent_json(b, run));
    json_t *lists = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i}", "columns",
        columns_json(b, run), "points",
        points_json(run, from, to, per_point > 0 ? per_point : 1), "strip",
        strip_json(run, since, range.until), "stages", stages_json(run), "devices",
        devices_json(run), "saves", saves_json(run, since), "drawings",
        run_drawings_json(run, since, range.until), "class_names",
        run_class_names_json(run, since), "options", options ? options : json_null(),
        "reports_per_point", run->stride);
    json_object_update_missing(all, more);
    json_object_update_missing(all, lists);
    json_decref(more);
    json_decref(lists);
    return all;
}

static int64_t points_between(const pl_run_view_t *b, uint64_t since, uint64_t until)
{
    int64_t points = 0;
    for (int k = 0; k < RUNS_MAX; k++)
        if (b->run[k])
            points += points_until(b->run[k], until) - points_until(b->run[k], since);
    return points;
}

/* The last item after `since` up to which there are at most CHUNK_POINTS points. */
static uint64_t chunk_end(const pl_run_view_t *b, uint64_t since)
{
    uint64_t low = since, high = b->item;
    if (since >= b->item || points_between(b, since, b->item) <= CHUNK_POINTS)
        return b->item;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (points_between(b, since, middle) <= CHUNK_POINTS)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- messages ---- */

/* With the lock held. */
static json_t *view_json(const pl_run_view_t *b, item_range_t range)
{
    json_t *runs = json_array();
    for (int k = 0; k < RUNS_MAX; k++)
        if (b->run[k])
            json_array_append_new(runs, run_json(b, b->run[k], range));
    json_t *newest = json_array();
    for (uint64_t k = oldest(b->newest_count, NEWEST_MAX); k < b->newest_count; k++) {
        const newest_t *n = &b->newest[k % NEWEST_MAX];
        json_array_append_new(newest,
                              json_pack("[f, i, s, s, s, s]", (double)n->time * 1e-9,
                                        n->rank, pl_kind_name(n->from),
                                        pl_kind_name(n->to), pl_message_kinds[n->kind],
                                        pl_message_info(n->message)->name));
    }
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    json_t *log = json_array();
    for (uint64_t k = oldest(b->logs, LOG_MAX); k < b->logs; k++) {
        const log_entry_t *e = &b->log[k % LOG_MAX];
        if (e->item > range.since && e->item <= range.until)
            json_array_append_new(log,
                                  json_pack("[f, s, i, o, o]", e->time, levels[e->level],
                                            e->rank, text(e->actor), text(e->text)));
    }
    json_t *kinds = json_array();
    for (int kind = 1; kind < KINDS_MAX; kind++) {
        const actor_kind_t *row = &b->kinds[kind];
        if (!row->messages)
            continue;
        json_t *slots = json_array();
        for (int64_t k = b->kind_slot - KIND_SLOTS + 1; k <= b->kind_slot; k++)
            json_array_append_new(slots,
                                  json_integer(k < 0 ? 0 : row->slot[k % KIND_SLOTS]));
        json_array_append_new(kinds,
                              json_pack("{s:o, s:i, s:I, s:I, s:o}", "name",
                                        text(pl_kind_name((uint32_t)kind)), "level",
                                        pl_kind_level((uint32_t)kind), "messages",
                                        (json_int_t)row->messages, "open",
                                        (json_int_t)row->open, "slots", slots));
    }
    return json_pack("{s:I, s:f, s:f, s:I, s:I, s:o, s:o, s:o, s:o, s:b}", "since",
                     (json_int_t)range.since, "now", run_view_now(b), "wall", b->wall,
                     "messages", (json_int_t)b->newest_count, "missing",
                     (json_int_t)b->missing, "runs", runs, "actors", kinds, "newest",
                     newest, "log", log, "more", range.until < b->item);
}

/* Consumes the object. */
static char *written(json_t *all)
{
    char *text = all ? pl_json_write(all, PL_JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

char *pl_run_view_json(pl_run_view_t *b, uint64_t since, uint64_t *until, bool *more)
{
    pthread_mutex_lock(&b->lock);
    *until = chunk_end(b, since);
    if (more)
        *more = *until < b->item;
    json_t *all = view_json(b, (item_range_t){.since = since, .until = *until});
    pthread_mutex_unlock(&b->lock);
    return written(all);
}

char *pl_run_view_state(pl_run_view_t *b)
{
    pthread_mutex_lock(&b->lock);
    json_t *all = view_json(b, (item_range_t){.until = b->item, .is_overview = true});
    pthread_mutex_unlock(&b->lock);
    return written(all);
}

/* ---- the topic "state" ---- */

enum { MEMORY_TICKS = 4 };                                /* ticks between measurements */

typedef struct state {
    pl_run_view_t *view;
    json_t *memory;                                         /* [NULL: not measured yet] */
    unsigned ticks;
} state_t;

static void state_watched(void *self, bool is_watched)
{
    state_t *s = self;
    if (is_watched)
        pl_run_view_open(s->view);
    else if (s->view->is_fed)
        pl_run_view_close(s->view);
    s->view->is_fed = is_watched;
    json_decref(s->memory);
    s->memory = NULL;
    s->ticks = 0;
}

static void state_record(void *self, const pl_tap_record_t *record)
{
    pl_run_view_record(((state_t *)self)->view, record);
}

static void state_gap(void *self, int rank, uint64_t count)
{
    (void)rank;
    pl_run_view_gap(((state_t *)self)->view, count);
}

static void add_process(void *list, int process, const char *name, int64_t bytes,
                        double cpu)
{
    json_array_append_new(list,
                          json_pack("{s:i, s:s, s:I, s:f}", "process", process, "name",
                                    name, "bytes", (json_int_t)bytes, "cpu", cpu));
}

/* Without items: points and log lines.  A rank that is a process has the name "rank 1"
 * in the memory, which is unknown for a run that is replayed. */
static char *state_tell(void *self)
{
    state_t *s = self;
    pl_run_view_t *b = s->view;
    pthread_mutex_lock(&b->lock);
    const bool was_kept = b->was_kept;
    json_t *state = view_json(b, (item_range_t){.since = INT64_MAX, .until = b->item}),
           *ranks = pl_rank_times_json(&b->ranks);
    pthread_mutex_unlock(&b->lock);
    if (s->ticks++ % MEMORY_TICKS == 0) {
        json_decref(s->memory);
        json_t *processes = was_kept ? NULL : json_array();
        if (!was_kept)
            pl_memory_children(add_process, processes);
        s->memory = was_kept ? json_object()
                             : json_pack("{s:I, s:I, s:f, s:f, s:i, s:o}", "used",
                                         (json_int_t)pl_memory_used(), "free",
                                         (json_int_t)pl_memory_free(), "cpu",
                                         pl_cpu_used(), "time", (double)pl_now() * 1e-9,
                                         "processors", (int)sysconf(_SC_NPROCESSORS_ONLN),
                                         "processes", processes);
    }
    return written(json_pack("{s:i, s:o, s:O, s:o}", "version", 1, "state", state,
                             "memory", s->memory, "ranks", ranks));
}

static void state_close(void *self)
{
    state_watched(self, false);
    pl_free(self);
}

int pl_run_view_publish(pl_run_view_t *view, pl_runtime_t *runtime, pl_error_t *err)
{
    static const pl_tap_ops_t ops = {.record = state_record,
                                     .gap = state_gap,
                                     .close = state_close,
                                     .topic = "state",
                                     .watched = state_watched,
                                     .tell = state_tell};
    state_t *s = pl_alloc(sizeof *s);
    if (!s)
        return pl_no_memory(err);
    s->view = view;
    const int code = pl_tap_add(runtime, &ops, s, err);
    if (code != PL_OK)
        pl_free(s);
    return code;
}
