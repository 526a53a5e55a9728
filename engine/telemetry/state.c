/* state.c - the state of an engine's runs, told in its stream to those who want that
 * alone
 *
 * A viewer of every message has to be as quick as the run is.  One who wants to know how
 * it goes is told so by what the page is made of, and where the time of ranks goes; the
 * run pays for neither while nobody watches. */
#include "telemetry/state.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory.h"
#include "telemetry/run_view.h"
#include "telemetry/rank_times.h"

enum {
    CALLS_MAX = 1 << 16,                      /* open ones; of so many some were missed */
    MEMORY_TICKS = 4,                         /* between looks at it */
};

typedef struct state {
    pl_runtime_t *runtime;
    pl_run_registry_t *registry;
    pl_run_view_t *view;                                    /* [nobody watches] */
    pl_call_graph_t graph;
    pl_map_t ranks;                           /* of rank_times.h */
    uint64_t pausing;                         /* the newest call for a pause */
    int64_t paused_at;                        /* since when all is held up  [it is not] */
    json_t *memory;
    unsigned ticks;
    bool was_kept;                             /* what it hears, of a run that has been */
} state_t;

static void state_forget(state_t *s)
{
    pl_run_view_free(s->view);
    pl_call_graph_release(&s->graph);
    pl_rank_times_forget(&s->ranks);
    json_decref(s->memory);
    *s = (state_t){.runtime = s->runtime, .registry = s->registry};
}

/* ---- what it hears ---- */

static void state_watched(void *self, bool is_watched)
{
    state_t *s = self;
    state_forget(s);
    if (is_watched)
        s->view = pl_run_view_new(s->runtime->began, NULL);
    if (s->view)
        pl_run_view_recall(s->view, s->registry);
}

/* As the program asks for a pause, and is told that it has come. */
static void pause_look(state_t *s, const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    const bool is_call = e->kind == PL_KIND_CALL, is_stop = e->message == PL_MESSAGE_stop;
    pl_body_t body;
    pl_error_t error = {0};
    if ((!is_stop && e->message != PL_MESSAGE_control)
        || pl_kind_level(is_call ? e->from_kind : e->to_kind) != PL_LEVEL_HOST
        || pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK)
        return;
    const bool is_command = is_call && !is_stop;
    const bool goes_on =
        is_stop || (is_command && body.control.command == PL_RUN_COMMAND_CONTINUE);
    if (is_command && body.control.command == PL_RUN_COMMAND_PAUSE)
        s->pausing = e->call;
    else if (e->kind == PL_KIND_REPLY && e->call == s->pausing && !s->paused_at)
        s->paused_at = record->stamp.time;
    if (s->paused_at && is_call && goes_on) {
        pl_rank_times_pause(&s->ranks, s->paused_at, record->stamp.time);
        s->pausing = 0;
        s->paused_at = 0;
    }
}

static void state_record(void *self, const pl_tap_record_t *record)
{
    state_t *s = self;
    if (!s->view)
        return;
    s->was_kept = record->was_kept;
    pl_run_view_record(s->view, record);
    pause_look(s, record);
    if (s->graph.calls.count > CALLS_MAX)
        pl_call_graph_release(&s->graph);
    pl_open_t *open = pl_call_graph_take(&s->graph, record);
    if (!open || !pl_ends_call(record))
        return;
    pl_rank_times_take(&s->ranks, open, record);
    pl_call_graph_drop(&s->graph, open);
}

static void state_gap(void *self, int rank, uint64_t count)
{
    (void)rank;
    if (((state_t *)self)->view)
        pl_run_view_gap(((state_t *)self)->view, count);
}

/* ---- what it tells ---- */

static void process_tell(void *list, int process, const char *name, int64_t bytes,
                         double cpu)
{
    json_array_append_new(list,
                          json_pack("{s:i, s:s, s:I, s:f}", "process", process, "name",
                                    name, "bytes", (json_int_t)bytes, "cpu", cpu));
}

/* Ranks that are processes call themselves so: "rank 1".  Of a run that is shown again
 * nobody knows it. */
static void memory_look(state_t *s)
{
    if (s->was_kept) {
        json_decref(s->memory);
        s->memory = json_object();
        return;
    }
    json_t *processes = json_array();
    pl_memory_children(process_tell, processes);
    json_decref(s->memory);
    s->memory = json_pack("{s:I, s:I, s:f, s:f, s:i, s:o}", "used",
                          (json_int_t)pl_memory_used(), "free",
                          (json_int_t)pl_memory_free(), "cpu", pl_cpu_used(), "time",
                          (double)pl_now() * 1e-9, "processors",
                          (int)sysconf(_SC_NPROCESSORS_ONLN), "processes", processes);
}

/* Points, lines of the log and the like are left out: all of them are older. */
static char *state_tell(void *self)
{
    state_t *s = self;
    uint64_t until;
    if (!s->view)
        return NULL;
    if (s->ticks++ % MEMORY_TICKS == 0)
        memory_look(s);
    char *view = pl_run_view_json(s->view, INT64_MAX, &until, NULL);
    json_t *more = json_pack("{s:O, s:o}", "memory", s->memory, "ranks",
                             pl_rank_times_json(&s->ranks));
    char *rest = more ? pl_json_write(more, PL_JSON_COMPACT) : NULL;
    char *text = NULL;
    if (view && rest)
        text = pl_text("{\"version\":1,\"state\":%s,%s", view, rest + 1);
    pl_text_free(view);
    pl_text_free(rest);
    json_decref(more);
    return text;
}

static void state_close(void *self)
{
    state_forget(self);
    pl_free(self);
}

int pl_state_tap(pl_runtime_t *runtime, pl_run_registry_t *registry, pl_error_t *err)
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
    s->runtime = runtime;
    s->registry = registry;
    const int code = pl_tap_add(runtime, &ops, s, err);
    if (code != PL_OK)
        pl_free(s);
    return code;
}
