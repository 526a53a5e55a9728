/* trace_format.c - tests of engine/telemetry/trace.c: the trace of a fit, held to the
 * Trace Event Format as a viewer takes it */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "rig.h"
#include "tap.h"

enum { SLICES = 20000 };
static const double ROUNDING = 0.002;                      /* us: of a begin and an end */

/* A slice as a viewer draws it: of B and E, or of X. */
typedef struct slice {
    int64_t pid, tid;
    double begin, end;                                      /* us; end -1: still open */
    const char *name;
} slice_t;

static slice_t slice[SLICES];
static int slices;
static json_t *events;
static int64_t steps;

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static int64_t number_of(const json_t *event, const char *key)
{
    return json_integer_value(json_object_get(event, key));
}

static double time_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

static bool is_phase(const json_t *event, const char *phases)
{
    const char *phase = text_of(event, "ph");
    return *phase && !phase[1] && strchr(phases, *phase);
}

/* The innermost one that a track has open; NULL: none. */
static slice_t *open_slice(const json_t *event)
{
    for (int k = slices - 1; k >= 0; k--)
        if (slice[k].end < 0 && slice[k].pid == number_of(event, "pid")
            && slice[k].tid == number_of(event, "tid"))
            return &slice[k];
    return NULL;
}

/* Ends without a beginning, and times that run backwards. */
static int slices_draw(void)
{
    const json_t *event;
    size_t k;
    int wrong = 0;
    slices = 0;
    json_array_foreach(events, k, event) {
        const double time = time_of(event, "ts");
        if (is_phase(event, "BX") && slices < SLICES)
            slice[slices++] =
                (slice_t){number_of(event, "pid"), number_of(event, "tid"), time,
                          is_phase(event, "X") ? time + time_of(event, "dur") : -1,
                          text_of(event, "name")};
        slice_t *open = is_phase(event, "E") ? open_slice(event) : NULL;
        wrong += is_phase(event, "E") && (!open || time < open->begin);
        wrong += is_phase(event, "X") && time_of(event, "dur") < 0;
        if (open)
            open->end = time;
    }
    return wrong;
}

static bool has_slice_at(const json_t *event)
{
    for (int k = 0; k < slices; k++)
        if (slice[k].pid == number_of(event, "pid")
            && slice[k].tid == number_of(event, "tid")
            && slice[k].begin <= time_of(event, "ts")
            && slice[k].end >= time_of(event, "ts"))
            return true;
    return false;
}

static bool has_name(const char *what, int64_t pid, int64_t tid)
{
    const json_t *event;
    size_t k;
    json_array_foreach(events, k, event)
        if (is_phase(event, "M") && !strcmp(text_of(event, "name"), what)
            && number_of(event, "pid") == pid && number_of(event, "tid") == tid
            && *text_of(json_object_get(event, "args"), "name"))
            return true;
    return false;
}

static const json_t *flow_end(const json_t *begin)
{
    const json_t *event, *found = NULL;
    size_t k;
    json_array_foreach(events, k, event)
        if (is_phase(event, "f") && number_of(event, "id") == number_of(begin, "id")) {
            if (found)
                return NULL;
            found = event;
        }
    return found;
}

static int named(const char *name)
{
    int count = 0;
    for (int k = 0; k < slices; k++)
        count += !strcmp(slice[k].name, name);
    return count;
}

/* ---- tests ---- */

static void every_event_has_what_its_phase_asks_for(void)
{
    const json_t *event;
    size_t k;
    int wrong = 0;
    json_array_foreach(events, k, event) {
        const bool is_whole =
            is_phase(event, "BEXsfbeCiM")
            && json_is_integer(json_object_get(event, "pid"))
            && json_is_integer(json_object_get(event, "tid"))
            && json_is_number(json_object_get(event, "ts"))
            && (is_phase(event, "E") || *text_of(event, "name"))
            && (!is_phase(event, "X") || json_is_number(json_object_get(event, "dur")))
            && (!is_phase(event, "sfbe") || *text_of(event, "cat"))
            && (!is_phase(event, "CM") || json_is_object(json_object_get(event, "args")));
        if (!is_whole && !wrong++)
            tap_diag("%s", json_dumps(event, 0));
    }
    is_int(wrong, 0, "all %zu events are whole", json_array_size(events));
}

static void slices_end_and_nest(void)
{
    int open = 0, crossed = 0;
    is_int(slices_draw(), 0, "each end has its beginning before it");
    for (int a = 0; a < slices; a++) {
        open += slice[a].end < 0;
        for (int b = a + 1; b < slices; b++) {
            const slice_t *x = &slice[a], *y = &slice[b];
            const bool is_first = x->begin <= y->begin;
            const slice_t *outer = is_first ? x : y, *inner = is_first ? y : x;
            crossed += x->pid == y->pid && x->tid == y->tid
                       && inner->begin < outer->end - ROUNDING
                       && inner->end > outer->end + ROUNDING;
        }
    }
    ok(slices > 100, "%d slices", slices);
    is_int(open, 0, "none is left open");
    is_int(crossed, 0, "none crosses another of its track");
}

static void every_track_has_a_name(void)
{
    int nameless = 0;
    for (int k = 0; k < slices; k++)
        nameless += !has_name("thread_name", slice[k].pid, slice[k].tid)
                    || !has_name("process_name", slice[k].pid, 0);
    is_int(nameless, 0, "and so has its process");
}

static void arrows_lead_from_slice_to_slice(void)
{
    const json_t *event, *end;
    size_t k;
    int arrows = 0, lost = 0, loose = 0;
    json_array_foreach(events, k, event) {
        if (!is_phase(event, "s"))
            continue;
        arrows++;
        end = flow_end(event);
        lost += !end || strcmp(text_of(end, "bp"), "e")
                || strcmp(text_of(end, "name"), text_of(event, "name"))
                || strcmp(text_of(end, "cat"), text_of(event, "cat"))
                || time_of(end, "ts") < time_of(event, "ts");
        loose += !has_slice_at(event) || !end || !has_slice_at(end);
    }
    ok(arrows > 50, "%d arrows", arrows);
    is_int(lost, 0, "each has one end of its number, not before it");
    is_int(loose, 0, "both ends lie in slices");
}

static void a_step_has_its_stages(void)
{
    ok(steps > 0, "%d steps", (int)steps);
    is_int(named("optimizer"), steps, "each with an update");
    ok(named("forward") >= steps, "%d of forward", named("forward"));
    ok(named("data") >= steps, "%d of data", named("data"));
}

/* The name that counts for a track is the last. */
static const char *name_of(int64_t pid, int64_t tid)
{
    const json_t *event;
    const char *name = "";
    size_t k;
    json_array_foreach(events, k, event)
        if (is_phase(event, "M") && !strcmp(text_of(event, "name"), "thread_name")
            && number_of(event, "pid") == pid && number_of(event, "tid") == tid)
            name = text_of(json_object_get(event, "args"), "name");
    return name;
}

static int tracks_named(const char *name, int64_t pid)
{
    const json_t *event;
    size_t k;
    int count = 0;
    json_array_foreach(events, k, event)
        count += is_phase(event, "M")
                 && !strcmp(text_of(event, "name"), "thread_sort_index")
                 && number_of(event, "pid") == pid
                 && !strcmp(name_of(pid, number_of(event, "tid")), name);
    return count;
}

static void no_two_tracks_of_a_process_have_one_name(void)
{
    const json_t *event;
    size_t k;
    int same = 0, unsorted = 0;
    json_array_foreach(events, k, event) {
        if (!is_phase(event, "M") || strcmp(text_of(event, "name"), "thread_name") != 0)
            continue;
        const int64_t pid = number_of(event, "pid"), tid = number_of(event, "tid");
        const int count = tracks_named(name_of(pid, tid), pid);
        same += count > 1;
        unsorted += count < 1;
        if (count != 1)
            tap_diag("%d of \"%s\"", count, name_of(pid, tid));
    }
    is_int(same, 0, "each track has its own");
    is_int(unsorted, 0, "and its place");
}

static void tracks_lie_in_the_process_of_their_rank(void)
{
    for (int64_t pid = 2; pid < 4; pid++) {
        is_int(tracks_named("worker", pid), 1, "rank %d: its worker", (int)pid - 2);
        is_int(tracks_named("strategy.ddp", pid), 1, "and its strategy");
    }
    is_int(tracks_named("worker", 1), 0, "none is the engine's");
    is_int(tracks_named("trainer", 1), 1, "whose is what belongs to none");
}

static void lives_are_distinguished_by_tracks(void)
{
    const json_t *event;
    size_t k;
    int lives = 0, wrong = 0;
    json_array_foreach(events, k, event) {
        if (!is_phase(event, "be"))
            continue;
        lives++;
        wrong += strncmp(text_of(event, "name"), "life of ", 8) != 0
                 || tracks_named(text_of(event, "name"), number_of(event, "pid")) > 0;
    }
    ok(lives > 10, "%d begin or end", lives);
    is_int(wrong, 0, "each is called a life, and no track is");
}

static bool fit_traced(const char *trainer)
{
    char path[256];
    snprintf(path, sizeof path, "%s/fit.trace", tap_folder());
    rig_t *rig = rig_new(.accelerator = "cpu", .trainer = trainer);
    if (!rig)
        return false;
    is_int(pl_engine_trace(rig_engine(rig), path, &rig_error), PL_OK, "a trace");
    const rig_result_t *result = rig_fit(rig);
    is_text(result->status, "ok", "of a fit %s", result->error.text);
    steps = (int64_t)result->global_step;
    rig_free(&rig);
    json_decref(events);
    events = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    return ok(json_is_array(events), "is a JSON array");
}

int main(void)
{
    rig_init(NULL);
    if (!rig_has("cpu"))
        return tap_done();
    if (fit_traced("\"max_epochs\": 3")) {
        run(every_event_has_what_its_phase_asks_for);
        run(slices_end_and_nest);
        run(every_track_has_a_name);
        run(arrows_lead_from_slice_to_slice);
        run(a_step_has_its_stages);
        run(no_two_tracks_of_a_process_have_one_name);
        run(lives_are_distinguished_by_tracks);
    }
    if (fit_traced("\"max_epochs\": 1, \"devices\": 2")) {
        run(every_event_has_what_its_phase_asks_for);
        run(slices_end_and_nest);
        run(no_two_tracks_of_a_process_have_one_name);
        run(tracks_lie_in_the_process_of_their_rank);
    }
    json_decref(events);
    return tap_done();
}
