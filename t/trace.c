/* trace.c - tests of engine/telemetry/trace.c: a trace is what Perfetto takes */
#include "telemetry/taps.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "actor_rig.h"
#include "runtime/monitor.h"
#include "runtime/tap.h"
#include "tap.h"

enum { TRACKS = 4096 };

static pl_error_t err;
static char path[256];

/* A boss of rank 0 has made a call, and the trace, a tap before this one, knows it. */
static int calls;                                           /* atomic */

static void call_seen(void *self, const pl_tap_record_t *record)
{
    (void)self;
    if (record->stamp.rank == 0 && record->envelope.kind == PL_KIND_CALL
        && record->envelope.message == PL_MESSAGE_save)
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELEASE);
}

static void tap_closed(void *self)
{
    (void)self;
}

static void act(void)
{
    static const pl_tap_ops_t watches = {.record = call_seen, .close = tap_closed};
    pl_address_t bee, boss;
    snprintf(path, sizeof path, "%s/run.trace", tap_folder());
    rig_open();
    is_int(pl_trace_tap(rig.runtime, path, &err), PL_OK, "a trace %s", err.text);
    const uint64_t life = rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    is_int(pl_tap_add(rig.runtime, &watches, NULL, &err), PL_OK, "and a tap behind it");
    rig_spawn(&boss_ops, PL_AS_RANK_0, "own", &boss);
    __atomic_store_n(&calls, 0, __ATOMIC_RELEASE);
    rig_order(boss, DO_PROGRESS);
    while (!__atomic_load_n(&calls, __ATOMIC_ACQUIRE))
        rig_turn();
    for (int k = 0; k < 12; k++)                          /* more than there are tracks */
        rig_ask(bee, DO_KEEP);
    rig_ask(bee, DO_PROGRESS);
    rig_ask(bee, DO_FAIL);
    rig_wait(2);
    pl_cancel(rig.queen, life);
    rig_wait(1);
    rig_close();
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static int64_t number_of(const json_t *event, const char *key)
{
    return json_integer_value(json_object_get(event, key));
}

/* What is wrong with the slices: they are to nest, and times are to grow. */
static int wrong_slices(const json_t *events, int *slices)
{
    static int open[TRACKS];
    static double last[TRACKS];
    const json_t *event;
    size_t k;
    int wrong = 0, left = 0;
    memset(open, 0, sizeof open);
    memset(last, 0, sizeof last);
    json_array_foreach(events, k, event) {
        const char phase = *text_of(event, "ph");
        const int64_t track = number_of(event, "pid") * 1000 + number_of(event, "tid");
        const double time = json_number_value(json_object_get(event, "ts"));
        if ((phase != 'B' && phase != 'E') || track >= TRACKS)
            continue;
        wrong += time < last[track];
        last[track] = time;
        open[track] += phase == 'B' ? 1 : -1;
        wrong += open[track] < 0 || open[track] > 1;
        *slices += phase == 'B';
    }
    for (int track = 0; track < TRACKS; track++)
        left += open[track];
    return wrong + left;
}

/* Both ends of each arrow, the second not before the first. */
static int wrong_arrows(const json_t *events, int *arrows)
{
    static double began[TRACKS];
    const json_t *event;
    size_t k;
    int wrong = 0, ends = 0;
    json_array_foreach(events, k, event) {
        const char phase = *text_of(event, "ph");
        const double time = json_number_value(json_object_get(event, "ts"));
        const int64_t id = number_of(event, "id") % TRACKS;
        if (phase == 's') {
            began[id] = time;
            ++*arrows;
        } else if (phase == 'f') {
            wrong += !began[id] || time < began[id] || strcmp(text_of(event, "bp"), "e");
            ends++;
        }
    }
    return wrong + (ends != *arrows);
}

static bool has_name(const json_t *events, const char *what, const char *name)
{
    const json_t *event;
    size_t k;
    json_array_foreach(events, k, event)
        if (!strcmp(text_of(event, "name"), what)
            && !strcmp(text_of(json_object_get(event, "args"), "name"), name))
            return true;
    return false;
}

static void slices_and_arrows_have_both_ends(void)
{
    int slices = 0, arrows = 0;
    act();
    json_t *events = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    ok(json_is_array(events), "it is a JSON array of %zu events",
       json_array_size(events));
    is_int(wrong_slices(events, &slices), 0, "slices nest, and times grow");
    ok(slices > 14, "%d of them", slices);
    is_int(wrong_arrows(events, &arrows), 0, "arrows have both ends");
    ok(arrows > 0, "%d of them", arrows);
    ok(has_name(events, "process_name", "rank 0"), "a process is a rank");
    ok(has_name(events, "process_name", "engine"), "or none");
    ok(has_name(events, "thread_name", "a"), "a track is an actor");
    ok(has_name(events, "thread_name", "a (8)"),
       "calls that are open at once have tracks");
    json_decref(events);
}

/* As after kill -9: lines of it are whole, and the last comma may stand. */
static void a_trace_that_is_cut_off_is_whole_up_to_there(void)
{
    act();
    FILE *file = fopen(path, "r");
    char line[1024];
    int lines = 0, wrong = 0;
    ok(fgets(line, sizeof line, file) && !strcmp(line, "[\n"), "it begins as a list");
    while (fgets(line, sizeof line, file)) {
        const size_t length = strlen(line);
        json_t *event = json_loadb(line, length - 2, 0, NULL);
        wrong += !event || line[length - 1] != '\n'
                 || (line[length - 2] != ',' && line[length - 2] != ']');
        json_decref(event);
        lines++;
    }
    fclose(file);
    ok(lines > 30, "%d lines", lines);
    is_int(wrong, 0, "each is an event");
}

static void say_much(void)
{
    pl_frame_t frame;
    const pl_save_t save = {.global_step = 1};
    pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                       .message = PL_MESSAGE_save,
                       .remaining = -1,
                       .from_kind = pl_kind_enter("bee.near", 60, NULL),
                       .to_kind = pl_kind_enter("bee.far", 40, NULL)};
    for (int k = 1; k < 4000; k++) {
        e.call = (uint64_t)k;
        pl_frame_make(&frame, &e, &save, NULL);
        pl_monitor_offer(rig.reactor, pl_frame_bytes(&frame));
        pl_frame_release(&frame);
    }
}

/* Files of this process may not grow beyond a limit, which lies within an event. */
static void a_full_disk_leaves_whole_events(void)
{
    struct rlimit limit, before;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){30011, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    rig_open();
    is_int(pl_trace_tap(rig.runtime, path, &err), PL_OK, "a trace %s", err.text);
    setrlimit(RLIMIT_FSIZE, &limit);
    say_much();
    rig_close();
    setrlimit(RLIMIT_FSIZE, &before);
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    size_t length = fread(text, 1, sizeof text - 2, file);
    fclose(file);
    ok(length > 20000 && length <= 30011, "%zu bytes are there", length);
    ok(length > 2 && !strcmp(text + length - 2, ",\n"), "the last event is whole");
    strcpy(text + length - 2, "]");
    json_t *events = json_loads(text, 0, NULL);
    ok(json_array_size(events) > 100, "with the end of the array it is JSON");
    json_decref(events);
}

static void a_file_that_is_no_trace_is_left_alone(void)
{
    struct stat status;
    snprintf(path, sizeof path, "%s/notes.json", tap_folder());
    FILE *file = fopen(path, "w");
    fputs("[\n1]", file);
    fclose(file);
    rig_open();
    is_int(pl_trace_tap(rig.runtime, path, &err), PL_EINVAL, "other JSON is refused");
    like(err.text, "notes.json: the existing file is not a trace and is left unchanged",
         "%s", err.text);
    ok(stat(path, &status) == 0 && status.st_size == 4, "it is where it was");
    rig_close();
}

int main(void)
{
    run(slices_and_arrows_have_both_ends);
    run(a_trace_that_is_cut_off_is_whole_up_to_there);
    run(a_full_disk_leaves_whole_events);
    run(a_file_that_is_no_trace_is_left_alone);
    return tap_done();
}
