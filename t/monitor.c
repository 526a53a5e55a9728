/* monitor.c - tests of engine/runtime/monitor.c: the stream, as a client in any language
 * would see it */
#include "runtime/monitor.h"

#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "actor_rig.h"
#include "base/clock.h"
#include "flood.h"
#include "tap.h"
#include "viewer.h"

/* Memory for what is offered to the hub is the only one that is asked for by
 * realloc(NULL). */
static bool records_fail;

static void *record_resize(void *memory, size_t bytes)
{
    return !memory && records_fail ? NULL : realloc(memory, bytes);
}

/* ---- a run to look at: a queen, a boss of rank 0, bees on three threads; replies,
 * errors, progress, cancels, and a call to a thread that goes ---- */

static void act(void)
{
    pl_address_t boss, bee;
    uint64_t life = rig_spawn(&boss_ops, PL_AS_RANK_0, "own", &boss);
    uint64_t bees_life = rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    uint64_t kept = rig_ask(bee, DO_KEEP);
    rig_ask(bee, DO_PROGRESS);
    rig_ask(bee, DO_FAIL);
    rig_wait(2);
    rig_order(boss, DO_PROGRESS);
    pl_cancel(rig.queen, kept);
    rig_wait(1);
    pl_cancel(rig.queen, life);
    rig_wait(2);
    rig_ask(bee, DO_KEEP);
    pl_cancel(rig.queen, bees_life);
    rig_wait(2);
    pl_reactor_t *other = pl_reactor_new(rig.runtime, -1, NULL);
    rig_ask((pl_address_t){other->thread, 1, bee.kind}, DO_REPLY);
    pl_reactor_free(other);
    rig_wait(1);
}

/* All lines of that run. */
static json_t *record(void)
{
    viewer_t v;
    json_t *lines = json_array();
    stream_open(true);
    viewer_open(&v, "");
    act();
    act_last();
    while (viewer_read(&v, 0)) {
        json_object_set_new(v.line, "topic", json_string(v.topic));
        json_array_append(lines, v.line);
        if (is_last(v.line))
            break;
    }
    viewer_close(&v);
    rig_close();
    return lines;
}

static json_t *call_line(const json_t *lines, int64_t call)
{
    size_t k;
    json_t *line;
    json_array_foreach(lines, k, line)
        if (is_kind(line, "call") && number_of(line, "call") == call)
            return line;
    return NULL;
}

/* ---- tests ---- */

static void a_line_has_the_keys_that_clients_know(void)
{
    static const char form[] =
        "{s:i, s:I, s:f, s:s, s:I, s:I, s:s, s:I, s:s, s:I, s:s, s:s, s:I, s:I, s:I, "
        "s:o, s:s !}";
    json_t *lines = record(), *line, *fields;
    const char *run, *from, *to, *kind, *name, *topic;
    json_int_t n[8];
    double time;
    size_t k;
    int wrong = 0, unordered = 0, version = 0;
    json_array_foreach(lines, k, line) {
        json_error_t error;
        int code = json_unpack_ex(line, &error, 0, form, "version", &version, "seq",
                                  &n[0], "time", &time, "run", &run, "incarnation", &n[1],
                                  "rank", &n[2], "from", &from, "from_level", &n[3], "to",
                                  &to, "to_level", &n[4], "kind", &kind, "name", &name,
                                  "process_id", &n[7], "call", &n[5], "cause", &n[6],
                                  "fields", &fields, "topic", &topic);
        char want[256];
        snprintf(want, sizeof want, "%lld.%s.%s", (long long)n[2], to, name);
        if ((code || version != PL_STREAM_VERSION || strcmp(want, topic)
             || !json_is_object(fields) || strlen(run) != 16)
            && !wrong++)
            tap_diag("%s at %s: %s", error.text, topic, json_dumps(line, 0));
        unordered += !strstr("call progress reply error cancel", kind);
    }
    ok(json_array_size(lines) > 30, "a run of %zu messages", json_array_size(lines));
    is_int(wrong, 0, "each line has exactly those keys, and its topic");
    is_int(unordered, 0, "and one of five kinds");
    json_decref(lines);
}

static void fields_are_those_of_the_message(void)
{
    json_t *lines = record(), *line;
    size_t k;
    int calls = 0, replies = 0, errors = 0;
    json_array_foreach(lines, k, line) {
        const json_t *fields = json_object_get(line, "fields");
        if (strcmp(text_of(line, "name"), "save"))
            continue;
        if (is_kind(line, "call"))
            calls += json_is_null(json_object_get(fields, "weights"))
                     && number_of(fields, "global_step") >= 0;
        if (is_kind(line, "reply"))
            replies += !strcmp(text_of(fields, "path"), "hive");
        if (is_kind(line, "error"))
            errors += !strcmp(text_of(fields, "code"), "PL_EINVAL")
                      && !strcmp(text_of(fields, "text"), "no honey")
                      && !strcmp(text_of(fields, "where"), "a");
    }
    is_int(calls, 6, "the calls' own");
    is_int(replies, 2, "the replies'");
    is_int(errors, 1, "the error's");
    json_decref(lines);
}

static void every_call_has_one_end(void)
{
    json_t *lines = record(), *line;
    size_t k;
    int bad = 0, calls = 0, homeless = 0;
    json_t *ends = json_object();
    json_array_foreach(lines, k, line) {
        char key[32];
        snprintf(key, sizeof key, "%lld", (long long)number_of(line, "call"));
        bool is_call = is_kind(line, "call"),
             is_end = is_kind(line, "reply") || is_kind(line, "error");
        int64_t state = number_of(ends, key);       /* -99: not made; 0: open; 1: ended */
        calls += is_call;
        bad += is_call ? state != -99 : is_end ? state != 0 : state == -99;
        if (is_call || is_end)
            json_object_set_new(ends, key, json_integer(is_end));
    }
    const char *key;
    json_t *value;
    json_object_foreach(ends, key, value) {
        line = call_line(lines, atoll(key));
        bool lives_on = !strcmp(text_of(line, "name"), "start")
                        && !json_integer_value(value);
        homeless += !json_integer_value(value) && !lives_on;
    }
    ok(calls >= 14, "%d calls", calls);
    is_int(bad, 0, "each made once, ended once, with nothing before or after");
    is_int(homeless, 0, "none left open but the life of the bee that continues");
    json_decref(ends);
    json_decref(lines);
}

static void calls_go_down_and_answers_up(void)
{
    json_t *lines = record(), *line;
    size_t k;
    int wrong = 0;
    json_array_foreach(lines, k, line) {
        bool down = is_kind(line, "call") || is_kind(line, "cancel");
        int64_t drop = number_of(line, "from_level") - number_of(line, "to_level");
        wrong += down ? drop <= 0 : drop >= 0;
    }
    is_int(wrong, 0, "no message goes the wrong way");
    json_decref(lines);
}

static void seq_has_no_gap_in_any_rank(void)
{
    json_t *lines = record(), *line;
    size_t k;
    int64_t next[2] = {0, 0};
    int wrong = 0;
    double before = 0;
    json_array_foreach(lines, k, line) {
        int64_t rank = number_of(line, "rank") + 1;
        wrong += rank < 0 || rank > 1 || number_of(line, "seq") != next[rank]++;
        before = json_real_value(json_object_get(line, "time"));
    }
    is_int(wrong, 0, "each rank counts from 0 by 1");
    ok(next[0] > 10 && next[1] > 5, "both ranks are there: %lld and %lld",
       (long long)next[0], (long long)next[1]);
    ok(before > 0 && before < 60, "time is seconds since the engine began");
    json_decref(lines);
}

static void a_cause_is_a_call_that_its_maker_was_handling(void)
{
    json_t *lines = record(), *line;
    size_t k;
    int caused = 0, wrong = 0;
    json_array_foreach(lines, k, line) {
        const json_t *call = call_line(lines, number_of(line, "call"));
        wrong += number_of(line, "cause") != number_of(call, "cause");
        if (!is_kind(line, "call") || !number_of(line, "cause"))
            continue;
        const json_t *cause = call_line(lines, number_of(line, "cause"));
        caused++;
        wrong += !cause || strcmp(text_of(cause, "to"), text_of(line, "from"));
    }
    is_int(caused, 4, "the boss's calls have one");
    is_int(wrong, 0, "it was made to the boss, and all messages of a call name it");
    json_decref(lines);
}

static void a_viewer_gets_the_lines_of_its_topics(void)
{
    viewer_t v;
    int lines = 0, others = 0;
    stream_open(true);
    viewer_open(&v, "0.boss.");
    zmq_setsockopt(v.sub, ZMQ_SUBSCRIBE, "-1.queen.stop", 13);
    while (pl_monitor_watchers(rig.runtime) < 2)
        sched_yield();
    act();
    act_last();
    while (viewer_read(&v, 0) && !is_last(v.line)) {
        lines++;
        others += strncmp(v.topic, "0.boss.", 7) != 0;
    }
    ok(lines >= 4, "%d messages of rank 0 to the boss", lines);
    is_int(others, 0, "and no others");
    viewer_close(&v);
    rig_close();
}

/* Lines a viewer reads until the last of act_last(); the number of its first. */
static int64_t read_to_the_last(viewer_t *v, int *lines)
{
    int64_t first = -1;
    *lines = 0;
    while (viewer_read(v, 0)) {
        if (number_of(v->line, "rank") != -1)
            continue;
        if ((*lines)++ == 0)
            first = number_of(v->line, "seq");
        if (is_last(v->line))
            break;
    }
    return first;
}

static void a_viewer_that_comes_late_sees_what_it_missed(void)
{
    viewer_t v;
    int lines, again;
    stream_open(false);
    act_last();
    viewer_open(&v, "");
    act_last();
    int64_t missed = read_to_the_last(&v, &lines);
    viewer_close(&v);
    ok(eventually(pl_monitor_watchers(rig.runtime) == 0),
       "the hub notices a viewer that leaves");
    is_int(missed, lines,
           "as many messages as the second time have no line, but a number");
    act_last();
    viewer_open(&v, "");
    act_last();
    is_int(read_to_the_last(&v, &again), 3 * lines, "also those between two viewers");
    viewer_close(&v);
    rig_close();
}

static void a_viewer_that_does_not_read_holds_up_no_actor(void)
{
    viewer_t v;
    pl_address_t bee;
    const int flood = 60000;
    stream_open(false);
    viewer_open(&v, "");
    rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    rig_ask(bee, DO_FLOOD + flood);
    rig_wait(1);
    ok(rig.queen->progress > flood, "the actors went through");
    int64_t last = -1, read = 0, gap = 0, until = pl_now() + 60 * PL_SECOND;
    while (!gap && pl_now() < until) {
        if (viewer_read(&v, ZMQ_DONTWAIT)) {
            read++;
            gap = number_of(v.line, "seq") - last - 1;
            last = number_of(v.line, "seq");
        } else {
            rig_ask(bee, DO_REPLY);          /* something new, once there is room again */
            rig_wait(1);
        }
    }
    ok(read < 10000, "not much was kept for it: %lld of %d lines", (long long)read,
       flood);
    ok(gap > 0, "it sees by seq that it missed %lld, after %lld", (long long)gap,
       (long long)read);
    viewer_close(&v);
    rig_close();
}

static void messages_the_hub_cannot_take_show_as_a_gap(void)
{
    viewer_t v;
    pl_address_t bee;
    stream_open(false);
    rig_spawn(&bee_ops, PL_SAME_THREAD, "", &bee);
    rig_turn();
    const int64_t before = 2;                  /* of the bee's start, before the viewer */
    viewer_open(&v, "");
    rig_ask(bee, DO_REPLY);
    rig_wait(1);
    records_fail = true;
    rig_ask(bee, DO_PROGRESS);                    /* a call, three of progress, a reply */
    rig_wait(1);
    records_fail = false;
    rig_ask(bee, DO_REPLY);
    rig_wait(1);
    int64_t seq[4] = {0};
    for (int k = 0; k < 4 && viewer_read(&v, 0); k++)
        seq[k] = number_of(v.line, "seq") - before;
    ok(seq[0] == 0 && seq[1] == 1, "two messages");
    ok(seq[2] == 7 && seq[3] == 8,
       "five that there was no memory for, and two more: %lld, %lld", (long long)seq[2],
       (long long)seq[3]);
    viewer_close(&v);
    rig_close();
}

/* ---- strangers ---- */

/* A silent connection is accepted, and dropped after a while. */
static void a_flood_of_viewers_leaves_descriptors_for_the_run(void)
{
    viewer_t v;
    flood_t flood;
    pl_error_t err = {0};
    rig_open();
    is_int(pl_monitor_start(rig.runtime, "tcp://127.0.0.1:*", false, &err), PL_OK,
           "a stream");
    flood_begin(&flood, pl_monitor_endpoint(rig.runtime));
    flood_check(act_last);
    flood_end(&flood);
    ok(eventually(flood_is_drained(pl_monitor_endpoint(rig.runtime))),
       "connections of the flood are accepted and dropped");
    viewer_open(&v, "");
    act_last();
    ok(viewer_read(&v, 0), "a later viewer is accepted");
    viewer_close(&v);
    rig_close();
}

static void a_lossless_stream_keeps_all_for_a_late_reader(void)
{
    viewer_t v;
    pl_address_t bee;
    const int flood = 30000;
    stream_open(true);
    viewer_open(&v, "");
    rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    rig_ask(bee, DO_FLOOD + flood);
    rig_wait(1);
    act_last();
    int64_t next = 0, wrong = 0;
    do
        wrong += viewer_read(&v, 0) ? number_of(v.line, "seq") != next++ : 1000000;
    while (wrong < 1000000 && !is_last(v.line));
    ok(next > flood, "%lld messages", (long long)next);
    is_int(wrong, 0, "in order, without a gap");
    viewer_close(&v);
    rig_close();
}

/* ---- endpoints ---- */

static void only_this_machine_may_listen(void)
{
    static const char *const refused[] = {"tcp://0.0.0.0:*",
                                          "tcp://*:5555",
                                          "tcp://192.168.1.1:5000",
                                          "tcp://127.0.0.1.example.org:1",
                                          "tcp://127.1:*",
                                          "tcp://[::]:*",
                                          "tcp://lo:*",
                                          "inproc://stream",
                                          "udp://127.0.0.1:1",
                                          "/tmp/stream",
                                          ""};
    rig_open();
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
        pl_error_t err = {0};
        is_int(pl_monitor_start(rig.runtime, refused[k], false, &err), PL_EINVAL,
               "\"%s\" is refused", refused[k]);
        like(err.text, "ipc://.*127", "and what would be allowed is said");
    }
    pl_error_t err = {0};
    is_int(pl_monitor_start(rig.runtime, "ipc:///nowhere/at/all", false, &err), PL_EIO,
           "a folder that is not there");
    like(err.text, "cannot listen on ipc:///nowhere/at/all: No such file", "is named");
    is_text(pl_monitor_endpoint(rig.runtime), "", "nothing is published");
    rig_close();
}

static void a_star_stands_for_any_port(void)
{
    static const char *const starred[] = {"tcp://127.0.0.1:*", "tcp://127.8.9.10:*",
                                          "tcp://[::1]:*"};
    for (size_t k = 0; k < sizeof starred / sizeof *starred; k++) {
        viewer_t v;
        pl_error_t err = {0};
        rig_open();
        if (pl_monitor_start(rig.runtime, starred[k], false, &err)) {
            if (k == 2)
                tap_skip("no IPv6: %s", err.text);
            else
                ok(false, "%s: %s", starred[k], err.text);
            rig_close();
            continue;
        }
        like(pl_monitor_endpoint(rig.runtime),
             "^tcp://(127\\.0\\.0\\.1|127\\.8\\.9\\.10|\\[::1\\]):[1-9][0-9]*$",
             "%s has become a number", starred[k]);
        viewer_open(&v, "");
        act_last();
        ok(viewer_read(&v, 0), "and its lines come");
        viewer_close(&v);
        rig_close();
    }
}

static void there_is_one_stream(void)
{
    stream_open(false);
    pl_error_t err = {0};
    is_int(pl_monitor_start(rig.runtime, "tcp://127.0.0.1:*", false, &err), PL_ESTATE,
           "a second one is refused");
    like(err.text, "already published, at ipc:///", "and the first named");
    pl_monitor_stop(rig.runtime);
    is_int(pl_monitor_start(rig.runtime, "tcp://127.0.0.1:*", false, &err), PL_OK,
           "after a stop there may be another");
    rig_close();
}

static void only_ports_that_there_are_are_taken(void)
{
    static const char *const refused[] = {
        "tcp://127.0.0.1:99999", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:",      "tcp://127.0.0.1:12x",   "tcp://[::1]:4294967296"};
    rig_open();
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
        pl_error_t err = {0};
        is_int(pl_monitor_start(rig.runtime, refused[k], false, &err), PL_EINVAL,
               "\"%s\" is refused", refused[k]);
        like(err.text, "a port is a number up to 65535", "with the reason");
    }
    rig_close();
}

/* ---- files ---- */

static void file_write(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file) {
        fputs("precious", file);
        fclose(file);
    }
}

static const char *file_read(const char *path)
{
    static char text[16];
    FILE *file = fopen(path, "r");
    text[0] = '\0';
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    return text;
}

static int stream_at(pl_runtime_t *runtime, const char *path, pl_error_t *err)
{
    char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
    *err = (pl_error_t){0};
    return pl_monitor_start(runtime, endpoint, false, err);
}

static void a_file_that_is_no_socket_stays(void)
{
    char file[128], link[128], folder[128];
    pl_error_t err;
    struct stat there;
    snprintf(file, sizeof file, "%s/precious", tap_folder());
    snprintf(link, sizeof link, "%s/link", tap_folder());
    snprintf(folder, sizeof folder, "%s/folder", tap_folder());
    file_write(file);
    is_int(symlink(file, link) | mkdir(folder, 0700), 0,
           "a file, a link to it, a folder");
    rig_open();
    is_int(stream_at(rig.runtime, file, &err), PL_EINVAL, "a file is refused");
    like(err.text, "precious.*something else than a socket", "and named");
    is_int(stream_at(rig.runtime, link, &err), PL_EINVAL, "a link is refused");
    is_int(stream_at(rig.runtime, folder, &err), PL_EINVAL, "a folder is refused");
    is_text(file_read(file), "precious", "the file is as it was");
    ok(lstat(link, &there) == 0 && S_ISLNK(there.st_mode), "the link is there");
    ok(stat(folder, &there) == 0, "the folder too");
    rig_close();
}

static void an_endpoint_in_use_stays_with_its_holder(void)
{
    static const char *const endpoints[] = {"ipc://%s/held", "tcp://127.0.0.1:*"};
    for (int k = 0; k < 2; k++) {
        viewer_t v;
        char endpoint[256], pattern[64];
        pl_runtime_t second;
        pl_error_t err = {0};
        rig_open();
        snprintf(endpoint, sizeof endpoint, endpoints[k], tap_folder());
        is_int(pl_monitor_start(rig.runtime, endpoint, false, &err), PL_OK,
               "a run publishes");
        snprintf(endpoint, sizeof endpoint, "%s", pl_monitor_endpoint(rig.runtime));
        pl_runtime_init(&second, NULL);
        is_int(pl_monitor_start(&second, endpoint, false, &err), PL_EBUSY,
               "a second one may not at %s", endpoint);
        snprintf(pattern, sizeof pattern, "in use by process %d:", (int)getpid());
        like(err.text, pattern, "the holder is named");
        pl_runtime_release(&second);
        viewer_open(&v, "");
        act_last();
        ok(viewer_read(&v, 0), "viewers find the first");
        viewer_close(&v);
        rig_close();
    }
}

static void a_socket_left_behind_is_replaced(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    viewer_t v;
    pl_error_t err;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/left", tap_folder());
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    is_int(bind(fd, (struct sockaddr *)&address, sizeof address), 0, "a socket");
    close(fd);
    rig_open();
    is_int(stream_at(rig.runtime, address.sun_path, &err), PL_OK,
           "a file without a listener makes room");
    viewer_open(&v, "");
    act_last();
    ok(viewer_read(&v, 0), "and viewers find the stream");
    viewer_close(&v);
    rig_close();
}

static void the_socket_file_is_removed_with_the_stream(void)
{
    char path[128];
    pl_error_t err;
    snprintf(path, sizeof path, "%s/passing", tap_folder());
    rig_open();
    is_int(stream_at(rig.runtime, path, &err), PL_OK, "a stream");
    ok(access(path, F_OK) == 0, "has a file");
    pl_monitor_stop(rig.runtime);
    ok(access(path, F_OK) != 0, "only as long as it lasts");
    is_int(stream_at(rig.runtime, path, &err), PL_OK, "another stream");
    unlink(path);
    file_write(path);
    pl_monitor_stop(rig.runtime);
    is_text(file_read(path), "precious",
            "leaves what others put in the place of its file");
    rig_close();
}

int main(int argc, char **argv)
{
    flood_if_asked(argc, argv);
    pl_memory_hooks(NULL, record_resize, NULL);
    run(a_line_has_the_keys_that_clients_know);
    run(fields_are_those_of_the_message);
    run(every_call_has_one_end);
    run(calls_go_down_and_answers_up);
    run(seq_has_no_gap_in_any_rank);
    run(a_cause_is_a_call_that_its_maker_was_handling);
    run(a_viewer_gets_the_lines_of_its_topics);
    run(a_viewer_that_comes_late_sees_what_it_missed);
    run(a_viewer_that_does_not_read_holds_up_no_actor);
    run(messages_the_hub_cannot_take_show_as_a_gap);
    run(a_flood_of_viewers_leaves_descriptors_for_the_run);
    run(a_lossless_stream_keeps_all_for_a_late_reader);
    run(only_this_machine_may_listen);
    run(a_star_stands_for_any_port);
    run(only_ports_that_there_are_are_taken);
    run(a_file_that_is_no_socket_stays);
    run(an_endpoint_in_use_stays_with_its_holder);
    run(a_socket_left_behind_is_replaced);
    run(the_socket_file_is_removed_with_the_stream);
    run(there_is_one_stream);
    return tap_done();
}
