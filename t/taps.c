/* taps.c - tests of engine/runtime/tap.c: the stream, taken in this process */
#include "runtime/tap.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "actor_rig.h"
#include "base/clock.h"
#include "runtime/monitor.h"
#include "tap.h"

/* What a tap was given. */
typedef struct seen {
    long long records, calls, ends, bad, gaps, missing, ticks;  /* ticks: atomic */
    long long accounted, unknown;             /* atomic: records and missing; gaps of 0 */
    long long last;                           /* atomic: "last" was said */
    uint32_t process_id;
    uint64_t under;
    char kind[48], text[64], line[PL_TAP_LINE_MAX];
    bool run_ends;
    bool is_closed, watched;                              /* watched: atomic */
    int64_t wait;                                         /* atomic: ns, of each record */
} seen_t;

static void seen_record(void *self, const pl_tap_record_t *record)
{
    seen_t *seen = self;
    pl_body_t body;
    pl_error_t error;
    const int64_t until = pl_now() + __atomic_load_n(&seen->wait, __ATOMIC_RELAXED);
    while (pl_now() < until)
        continue;
    seen->records++;
    __atomic_add_fetch(&seen->accounted, 1, __ATOMIC_RELEASE);
    seen->process_id = record->process_id;
    seen->under = record->under;
    seen->bad += (uintptr_t)record->frame.data % 8 != 0;
    seen->bad += pl_frame_decode_record(record->frame, &body, &error, NULL) != PL_OK;
    seen->run_ends |= record->envelope.kind == PL_KIND_REPLY
                      && record->envelope.message == PL_MESSAGE_run;
    seen->calls += record->envelope.kind == PL_KIND_CALL;
    seen->ends += record->envelope.kind == PL_KIND_REPLY
                  || record->envelope.kind == PL_KIND_ERROR;
    if (record->envelope.kind == PL_KIND_CALL
        && record->envelope.message == PL_MESSAGE_stop) {
        snprintf(seen->text, sizeof seen->text, "%s", body.stop.reason);
        snprintf(seen->kind, sizeof seen->kind, "%s",
                 pl_kind_name(record->envelope.to_kind));
        pl_tap_line(record, seen->line, sizeof seen->line);
        __atomic_store_n(&seen->last, !strcmp(seen->text, "last"), __ATOMIC_RELEASE);
    }
}

static void seen_gap(void *self, int rank, uint64_t count)
{
    seen_t *seen = self;
    seen->gaps += rank >= -1;
    seen->missing += (long long)count;
    __atomic_add_fetch(&seen->unknown, !count, __ATOMIC_RELEASE);
    __atomic_add_fetch(&seen->accounted, (long long)count, __ATOMIC_RELEASE);
}

static void seen_tick(void *self)
{
    __atomic_add_fetch(&((seen_t *)self)->ticks, 1, __ATOMIC_RELAXED);
}

static void seen_close(void *self)
{
    ((seen_t *)self)->is_closed = true;
}

static const pl_tap_ops_t seen_ops = {seen_record, seen_gap, seen_tick, seen_close};

static void say_this(pl_reactor_t *rank, pl_kind_t kind, uint32_t message,
                     const void *fields, int times)
{
    pl_frame_t frame;
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = kind,
                             .message = message,
                             .remaining = -1,
                             .to_kind = pl_kind_enter("bee.far", 40, NULL)};
    pl_frame_make(&frame, &e, fields, NULL);
    for (int k = 0; k < times; k++)
        pl_monitor_offer(rank, pl_frame_bytes(&frame));
    pl_frame_release(&frame);
}

static void say(pl_reactor_t *rank, const char *reason, int times)
{
    const pl_stop_t stop = {.reason = reason};
    say_this(rank, PL_KIND_CALL, PL_MESSAGE_stop, &stop, times);
}

static void a_tap_gets_every_message_and_the_end(void)
{
    seen_t seen = {0}, other = {0};
    pl_error_t err = {0};
    pl_address_t bee;
    rig_open();
    is_int(pl_tap_add(rig.runtime, &seen_ops, &seen, &err), PL_OK, "a tap %s", err.text);
    is_int(pl_tap_add(rig.runtime, &seen_ops, &other, &err), PL_OK, "a second one");
    is_text(pl_monitor_endpoint(rig.runtime), "", "nothing is published for them");
    const uint64_t life = rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    rig_ask(bee, DO_PROGRESS);
    rig_ask(bee, DO_FAIL);
    rig_wait(2);
    pl_cancel(rig.queen, life);
    rig_wait(1);
    say(rig.reactor, "last", 1);
    ok(eventually(__atomic_load_n(&seen.ticks, __ATOMIC_RELAXED) > 1), "ticks come");
    pl_monitor_stop(rig.runtime);
    ok(seen.is_closed && other.is_closed, "both end with the stream");
    ok(seen.last, "which ends with what was said last");
    is_int(seen.records, other.records, "both got the same");
    is_int(seen.ends + 1, seen.calls, "each call but the last has its end");
    is_int(seen.bad + seen.gaps, 0, "all is whole");
    json_t *line = json_loads(seen.line, 0, NULL);
    ok(line, "a line is made on demand: %s", seen.line);
    json_decref(line);
    rig_close();
}

static void a_tap_and_a_published_stream_come_in_any_order(void)
{
    for (int k = 0; k < 2; k++) {
        seen_t seen = {0};
        pl_error_t err = {0};
        rig_open();
        if (k)
            pl_tap_add(rig.runtime, &seen_ops, &seen, &err);
        is_int(pl_monitor_start(rig.runtime, "tcp://127.0.0.1:*", false, &err), PL_OK,
               "published %s a tap was added %s", k ? "after" : "before", err.text);
        if (!k)
            pl_tap_add(rig.runtime, &seen_ops, &seen, &err);
        is_int(pl_monitor_start(rig.runtime, "tcp://127.0.0.1:*", false, &err), PL_ESTATE,
               "but once");
        like(pl_monitor_endpoint(rig.runtime), "^tcp://", "at its place");
        say(rig.reactor, "last", 1);
        rig_close();
        ok(seen.last && seen.is_closed, "and the tap has all");
    }
}

static void an_endpoint_that_fails_leaves_the_taps(void)
{
    seen_t seen = {0};
    pl_error_t err = {0};
    rig_open();
    pl_tap_add(rig.runtime, &seen_ops, &seen, &err);
    is_int(pl_monitor_start(rig.runtime, "ipc:///nowhere/at/all", false, &err), PL_EIO,
           "nowhere to publish");
    is_text(pl_monitor_endpoint(rig.runtime), "", "so nothing is");
    say(rig.reactor, "last", 1);
    rig_close();
    ok(seen.last, "but the tap continues");
}

static void a_tap_gets_the_number_of_missing_records(void)
{
    enum { MANY = 300000 };
    seen_t seen = {.wait = 20 * PL_MILLISECOND};
    pl_error_t err = {0};
    rig_open();
    pl_tap_add(rig.runtime, &seen_ops, &seen, &err);
    say(rig.reactor, "first", 1);
    ok(eventually(__atomic_load_n(&seen.ticks, __ATOMIC_RELAXED) > 1), "it has begun");
    const int64_t began = pl_now();
    say(rig.reactor, "flood", MANY);
    ok(pl_now() - began < 20 * PL_SECOND, "the sender does not wait for it");
    say_this(rig.reactor, PL_KIND_REPLY, PL_MESSAGE_run, &(pl_run_reply_t){0}, 1);
    __atomic_store_n(&seen.wait, 0, __ATOMIC_RELAXED);
    say(rig.reactor, "last", 1);
    rig_close();
    is_int(seen.records + seen.missing, MANY + 3,
           "all are received or counted as missing");
    ok(seen.missing > 0 && seen.gaps > 0, "%lld were missing", seen.missing);
    ok(seen.run_ends, "but not that a run has ended");
}

/* ---- what a tap tells ---- */

static void seen_watched(void *self, bool is_watched)
{
    __atomic_store_n(&((seen_t *)self)->watched, is_watched, __ATOMIC_RELEASE);
}

static char *seen_tell(void *self)
{
    return pl_text("{\"records\": %lld}", ((seen_t *)self)->records);
}

/* The topic and the text of the next message to a viewer; "": none comes. */
static const char *viewed(void *viewer, char text[256])
{
    const int topic = zmq_recv(viewer, text, 64, 0);
    const int at = topic > 0 && topic < 64 ? topic : 0;
    const int size = at ? zmq_recv(viewer, text + at + 1, 128, 0) : -1;
    text[at] = at ? ' ' : '\0';
    text[size < 0 ? at : at + 1 + size] = '\0';
    return text;
}

static void a_tap_with_a_topic_works_for_its_subscribers(void)
{
    static const pl_tap_ops_t ops = {.record = seen_record,
                                     .close = seen_close,
                                     .topic = "count",
                                     .watched = seen_watched,
                                     .tell = seen_tell};
    seen_t seen = {0};
    pl_error_t err = {0};
    char text[256];
    const int limit = 30000;
    rig_open();
    pl_monitor_start(rig.runtime, "tcp://127.0.0.1:*", false, &err);
    is_int(pl_tap_add(rig.runtime, &ops, &seen, &err), PL_OK, "it is added %s", err.text);
    is_int(pl_monitor_watchers(rig.runtime), 0, "it counts as no viewer");
    void *context = zmq_ctx_new(), *viewer = zmq_socket(context, ZMQ_SUB);
    zmq_setsockopt(viewer, ZMQ_RCVTIMEO, &limit, sizeof limit);
    zmq_setsockopt(viewer, ZMQ_SUBSCRIBE, "count", 5);
    zmq_connect(viewer, pl_monitor_endpoint(rig.runtime));
    ok(eventually(__atomic_load_n(&seen.watched, __ATOMIC_ACQUIRE)),
       "until a viewer subscribes");
    like(viewed(viewer, text), "^count \\{\"records\": 0\\}$", "the subscriber gets it");
    say(rig.reactor, "last", 1);
    ok(eventually(__atomic_load_n(&seen.last, __ATOMIC_ACQUIRE)), "it gets what is said");
    viewed(viewer, text);                                   /* perhaps of before */
    like(viewed(viewer, text), "^count \\{\"records\": 1\\}$", "and nothing else");
    zmq_setsockopt(viewer, ZMQ_UNSUBSCRIBE, "count", 5);
    ok(eventually(!__atomic_load_n(&seen.watched, __ATOMIC_ACQUIRE)),
       "it ends with its subscriber");
    is_int(pl_monitor_watchers(rig.runtime), 0, "and no viewer is left");
    zmq_close(viewer);
    zmq_ctx_term(context);
    rig_close();
    ok(seen.is_closed, "it ends with the stream");
}

/* Rank 3 of another process, whose hub brings what it says. */
typedef struct elsewhere {
    char place[256];
    pl_runtime_t runtime;
    pl_reactor_t *rank;
} elsewhere_t;

static void elsewhere_begin(elsewhere_t *there, uint64_t under)
{
    pl_error_t err = {0};
    is_int(pl_monitor_take(rig.runtime,
                           &(pl_monitor_take_t){.endpoint = "tcp://127.0.0.1:*",
                                                .under = under},
                           there->place, sizeof there->place, &err),
           PL_OK, "a hub takes at %s", there->place);
    pl_runtime_init(&there->runtime, &err);
    there->rank = pl_reactor_new(&there->runtime, 3, &err);
    is_int(pl_monitor_bring(&there->runtime,
                            &(pl_monitor_bring_t){.endpoint = there->place,
                                                  .run = 7,
                                                  .is_awaited = true},
                            &err),
           PL_OK, "what another brings %s", err.text);
}

static void elsewhere_end(elsewhere_t *there)
{
    pl_monitor_stop(&there->runtime);
    pl_reactor_free(there->rank);
    pl_runtime_release(&there->runtime);
}

static void says_the_last(elsewhere_t *there, seen_t *seen, int count)
{
    __atomic_store_n(&seen->last, 0, __ATOMIC_RELEASE);
    if (count > 1)
        say(there->rank, "one", count - 1);
    say(there->rank, "last", 1);
    ok(eventually(__atomic_load_n(&seen->last, __ATOMIC_ACQUIRE)), "a message comes");
}

static void remote_ranks_bring_their_records(void)
{
    static elsewhere_t there;
    seen_t seen = {0};
    pl_error_t err = {0};
    rig_open();
    pl_tap_add(rig.runtime, &seen_ops, &seen, &err);
    ok(pl_monitor_gathers(rig.runtime), "a hub with a tap takes what others bring");
    elsewhere_begin(&there, 0);
    says_the_last(&there, &seen, 1);
    is_int(seen.process_id, 4, "from the process of rank 3");
    is_text(seen.kind, "bee.far", "with the name of its actor");
    like(seen.line, "\"run\": \"0000000000000007\".*\"rank\": 3.*\"to\": \"bee.far\"",
         "as it would be published");
    elsewhere_end(&there);
    rig_close();
}

static void the_same_rank_of_two_launchers_is_two_processes(void)
{
    static elsewhere_t one, other;
    seen_t seen = {0};
    pl_error_t err = {0};
    rig_open();
    pl_tap_add(rig.runtime, &seen_ops, &seen, &err);
    elsewhere_begin(&one, 5);
    elsewhere_begin(&other, 6);
    says_the_last(&one, &seen, 3);
    const uint32_t process_id = seen.process_id;
    is_int(seen.under, 5, "which is part of that call here");
    says_the_last(&other, &seen, 1);
    is_int(seen.under, 6, "and the other of another");
    ok(seen.process_id != process_id, "their processes have different numbers");
    is_int(pl_stream_process_rank(seen.process_id), 3, "which tell the rank");
    says_the_last(&one, &seen, 1);
    is_int(seen.gaps, 0, "and what each says is counted by itself");
    elsewhere_end(&one);
    elsewhere_end(&other);
    rig_close();
}

static bool are_accounted(const seen_t *seen, long long count)
{
    return __atomic_load_n(&seen->accounted, __ATOMIC_ACQUIRE) == count;
}

/* All that had room has been taken: nothing came for a while. */
static bool rests(const seen_t *seen)
{
    const long long before = __atomic_load_n(&seen->accounted, __ATOMIC_ACQUIRE);
    const int64_t until = pl_now() + 300 * PL_MILLISECOND;
    while (pl_now() < until)
        if (!are_accounted(seen, before))
            return false;
    return true;
}

/* What is said last finds no room; nothing comes behind it that would show that.  An end
 * waits some seconds for what is still to be taken, which a sanitizer makes too short. */
static void records_lost_at_the_end_of_a_rank_are_counted(void)
{
    enum { MANY = 300000 };
    static elsewhere_t there;
    seen_t seen = {0};
    pl_error_t err = {0};
    rig_open();
    pl_tap_add(rig.runtime, &seen_ops, &seen, &err);
    elsewhere_begin(&there, 0);
    says_the_last(&there, &seen, 1);
    __atomic_store_n(&seen.wait, 20 * PL_MILLISECOND, __ATOMIC_RELAXED);
    say(there.rank, "flood", MANY);
    pl_monitor_catch_up(&there.runtime);
    __atomic_store_n(&seen.wait, 0, __ATOMIC_RELAXED);
    ok(eventually(rests(&seen)), "what had room comes");
    elsewhere_end(&there);
    ok(eventually(are_accounted(&seen, MANY + 1)),
       "all are received or counted as missing");
    pl_monitor_lost(rig.runtime, there.place, 3);
    rig_close();
    ok(seen.missing > 0, "%lld were missing", seen.missing);
    is_int(seen.unknown, 0, "and a rank that sent its count leaves no doubt");
}

static void records_of_a_rank_that_dies_may_be_missing(void)
{
    static elsewhere_t there;
    seen_t seen = {0};
    pl_error_t err = {0};
    rig_open();
    pl_tap_add(rig.runtime, &seen_ops, &seen, &err);
    elsewhere_begin(&there, 0);
    says_the_last(&there, &seen, 2);
    pl_monitor_lost(rig.runtime, there.place, 2);
    pl_monitor_lost(rig.runtime, there.place, 3);
    ok(eventually(__atomic_load_n(&seen.unknown, __ATOMIC_ACQUIRE)),
       "so a tap is informed");
    elsewhere_end(&there);
    rig_close();
    is_int(seen.gaps, 1, "once, of that rank");
    is_int(seen.missing, 0, "and of no number");
}

int main(void)
{
    run(a_tap_gets_every_message_and_the_end);
    run(a_tap_and_a_published_stream_come_in_any_order);
    run(an_endpoint_that_fails_leaves_the_taps);
    run(a_tap_gets_the_number_of_missing_records);
    run(a_tap_with_a_topic_works_for_its_subscribers);
    run(remote_ranks_bring_their_records);
    run(the_same_rank_of_two_launchers_is_two_processes);
    run(records_lost_at_the_end_of_a_rank_are_counted);
    run(records_of_a_rank_that_dies_may_be_missing);
    return tap_done();
}
