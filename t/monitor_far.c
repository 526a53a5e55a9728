/* monitor_far.c - tests of engine/runtime/monitor_far.c: one stream of several
 * processes */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/message.h"
#include "runtime/monitor.h"
#include "tap.h"

enum { RUN = 0x77 };

static pl_error_t err;

/* The process of rank 0, which publishes, and the process of rank 3, both in this one. */
static pl_runtime_t here, there;
static pl_reactor_t *rank;
static pl_socket_t *viewer;
static char place[256];
static pl_keys_t keys;

static void begin(const pl_keys_t *given)
{
    pl_context_acquire(&err);
    pl_runtime_init(&here, &err);
    pl_runtime_init(&there, &err);
    there.run = 1;
    rank = pl_reactor_new(&there, 3, &err);
    is_int(pl_monitor_start(&here, "tcp://127.0.0.1:*", false, &err), PL_OK, "a hub %s",
           err.text);
    is_int(pl_monitor_take(&here, &(pl_monitor_take_t){"tcp://127.0.0.1:*", given, 0},
                           place, sizeof place, &err),
           PL_OK, "takes what another brings %s", err.text);
    like(place, "^tcp://127.0.0.1:[1-9][0-9]*$", "at an address for others");
    const pl_socket_spec_t spec = {.type = PL_SOCKET_SUB,
                                   .endpoint = pl_monitor_endpoint(&here)};
    viewer = pl_socket_open(&spec, NULL, NULL, NULL, &err);
    pl_socket_subscribe(viewer, "", true, &err);
    ok(eventually(pl_monitor_watchers(&here) > 0), "a viewer watches");
}

static void end(void)
{
    pl_monitor_stop(&there);
    pl_reactor_free(rank);
    pl_monitor_stop(&here);
    pl_socket_close(viewer);
    pl_runtime_release(&there);
    pl_runtime_release(&here);
    pl_context_release();
}

static int bring(const pl_keys_t *with, bool is_awaited)
{
    const pl_monitor_bring_t how = {.endpoint = place,
                                    .keys = with,
                                    .run = RUN,
                                    .time = 1000 * PL_SECOND,
                                    .is_awaited = is_awaited};
    const int code = pl_monitor_bring(&there, &how, &err);
    ok(!is_awaited || eventually(pl_monitor_watchers(&there) > 0), "the request comes");
    return code;
}

static void say(const char *reason, int times)
{
    pl_frame_t frame;
    const pl_stop_t stop = {.reason = reason};
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = PL_KIND_CALL,
                             .message = PL_MESSAGE_stop,
                             .run = there.run,
                             .remaining = -1};
    pl_frame_make(&frame, &e, &stop, &err);
    for (int k = 0; k < times; k++)
        pl_monitor_offer(rank, pl_frame_bytes(&frame));
    pl_frame_release(&frame);
}

/* The next line that says so; the caller's  [NULL: none]. */
static json_t *line_with(const char *reason, int64_t seconds)
{
    static char text[16384];
    const int64_t until = pl_now() + seconds * PL_SECOND;
    while (pl_now() < until) {
        int64_t size = pl_socket_receive(viewer, text, sizeof text, 100, NULL);
        json_t *line = size > 0 ? json_loadb(text, (size_t)size, 0, NULL) : NULL;
        const char *said =
            json_string_value(json_object_get(json_object_get(line, "fields"), "reason"));
        if (said && !strcmp(said, reason))
            return line;
        json_decref(line);
    }
    return NULL;
}

static int64_t number_of(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

static void lines_of_another_process_have_its_rank(void)
{
    for (int k = 0; k < 2; k++) {
        begin(k ? &keys : NULL);
        is_int(bring(k ? &keys : NULL, true), PL_OK, "another hub brings %s", err.text);
        say("first", 1);                           /* the connection is only being made */
        say("second", 1);
        json_t *first = line_with("first", 20), *second = line_with("second", 20);
        ok(first && second, "both come%s", k ? ", encrypted" : "");
        is_int(number_of(first, "rank"), 3, "as rank 3's");
        is_int(number_of(second, "seq") - number_of(first, "seq"), 1, "with its numbers");
        is_text(json_string_value(json_object_get(first, "run")), "0000000000000077",
                "of the run that is published");
        const double time = json_number_value(json_object_get(first, "time"));
        ok(time >= 1000 && time < 1100, "at its time: %g s", time);
        json_decref(first);
        json_decref(second);
        end();
    }
}

static void a_process_with_another_key_brings_nothing(void)
{
    pl_keys_t wrong;
    char path[200];
    snprintf(path, sizeof path, "%s/wrong", tap_folder());
    is_int(pl_keys_make(path, &wrong, &err), PL_OK, "other keys");
    begin(&keys);
    bring(&wrong, true);
    say("let me in", 1);
    bring(NULL, true);
    say("let me in", 1);
    ok(!line_with("let me in", 2), "nothing comes");
    bring(&keys, true);
    say("it is me", 1);
    json_t *line = line_with("it is me", 20);
    ok(line, "with the right ones it does");
    json_decref(line);
    end();
}

static void lines_that_cannot_be_sent_show_as_a_gap(void)
{
    enum { MANY = 400000 };
    begin(NULL);
    bring(NULL, true);
    say("before", 1);
    json_t *before = line_with("before", 20);
    const int64_t began = pl_now();
    say("too much", MANY);                                  /* without a reader */
    const double seconds = (double)(pl_now() - began) / 1e9;
    ok(seconds < 10, "the sender is not held up: %g s", seconds);
    json_t *after = NULL;
    for (int k = 0; k < 50 && !after; k++) {
        say("after", 1);
        after = line_with("after", 1);
    }
    ok(before && after, "a line of before, and one of after");
    ok(number_of(after, "seq") > number_of(before, "seq") + MANY,
       "its number counts those that are missing");
    json_decref(before);
    json_decref(after);
    end();
}

static void nothing_is_kept_without_a_viewer(void)
{
    begin(NULL);
    bring(NULL, false);
    ok(eventually(pl_monitor_watchers(&there) > 0), "a viewer there is known here");
    pl_monitor_bring_no_more(&there);
    ok(eventually(pl_monitor_watchers(&there) == 0), "as long as it brings");
    bring(NULL, false);
    ok(eventually(pl_monitor_watchers(&there) > 0), "it may continue");
    pl_socket_subscribe(viewer, "", false, &err);
    ok(eventually(pl_monitor_watchers(&there) == 0), "and while a viewer watches");
    end();
}

int main(void)
{
    char path[200];
    snprintf(path, sizeof path, "%s/right", tap_folder());
    is_int(pl_keys_make(path, &keys, &err), PL_OK, "keys");
    run(lines_of_another_process_have_its_rank);
    run(a_process_with_another_key_brings_nothing);
    run(lines_that_cannot_be_sent_show_as_a_gap);
    run(nothing_is_kept_without_a_viewer);
    return tap_done();
}
