/* link.c - tests of engine/transport/link*.c: joins, cuts, silence, deaths, other
 * incarnations, and strangers */
#include "transport/link.h"

#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "flood.h"
#include "transport/link_parts.h"
#include "transport/process.h"
#include "scarce.h"
#include "tap.h"
#include "wire.h"

enum { RANKS = 4, EVENTS = 11 };

/* ---- ends, and their events ---- */

typedef struct end {
    pl_link_t *link;
    int rank;                                              /* -1: the host */
    int messages[RANKS], wrong;                            /* in order, by peer; others */
    int events[EVENTS];
    int last_peer;
    char text[EVENTS][1024];                                /* of the last of each */
    bool frees;                                             /* itself, at any event */
} end_t;

static pl_sockets_t loop;
static end_t host, rank[RANKS];
static char endpoint[256];
static pl_link_spec_t usual;
static bool may_return;                                     /* of the next that listens */
static const pl_keys_t *keys;                               /* too */

static void on_message(void *user, int peer, pl_frame_t *message)
{
    end_t *end = user;
    int number;
    pl_bytes_t bytes = pl_frame_bytes(message);
    int *count = &end->messages[peer < 0 ? 0 : peer];
    memcpy(&number, bytes.data, sizeof number);
    if (number == *count && (uintptr_t)bytes.data % 8 == 0)
        ++*count;
    else
        end->wrong++;
}

static void on_event(void *user, int peer, pl_link_event_t event, const char *text)
{
    end_t *end = user;
    end->events[event]++;
    end->last_peer = peer;
    snprintf(end->text[event], sizeof end->text[event], "%s", text);
    if (!end->frees)
        return;
    pl_link_free(end->link);
    end->link = NULL;
}

static void loop_turn(void)
{
    pl_sockets_flush(&loop);
    struct timeval soon = {0, 2000};
    event_base_loopexit(loop.base, &soon);
    event_base_loop(loop.base, EVLOOP_ONCE);
}

#define until(truth) \
    for (int64_t end_ = pl_now() + 60 * PL_SECOND; !(truth) && pl_now() < end_;) \
    loop_turn()

static void turn_for(int milliseconds)
{
    for (int64_t end = pl_now() + milliseconds * PL_MILLISECOND; pl_now() < end;)
        loop_turn();
}

/* As in a process that is stopped: nothing is read, and time passes. */
static void stand_still(int milliseconds)
{
    for (int64_t end = pl_now() + milliseconds * PL_MILLISECOND; pl_now() < end;)
        poll(NULL, 0, 1);
}

static void listen_at(const char *where, int world_size)
{
    static const pl_link_times_t quick = {.beat = 40, .silence = 400, .rejoin = 2000};
    pl_error_t err = {0};
    host = (end_t){.rank = -1};
    memset(rank, 0, sizeof rank);
    loop = (pl_sockets_t){.base = event_base_new()};
    usual = (pl_link_spec_t){.endpoint = where,
                             .run = 0xABCDEF,
                             .incarnation = 1,
                             .world_size = world_size,
                             .watches = true,
                             .keys = keys,
                             .times = quick,
                             .on_message = on_message,
                             .on_event = on_event};
    pl_link_spec_t spec = usual;
    spec.user = &host;
    spec.may_be_replaced = may_return;
    host.link = pl_link_listen(&spec, &loop, &err);
    if (!host.link || pl_link_endpoint(host.link, endpoint, sizeof endpoint, &err))
        tap_diag("%s", err.text);
    usual.endpoint = endpoint;
}

static void open_file(int world_size)
{
    char file[128];
    snprintf(file, sizeof file, "ipc://%s/link", tap_folder());
    listen_at(file, world_size);
}

static bool connect_as(end_t *end, pl_link_spec_t spec)
{
    pl_error_t err = {0};
    spec.user = end;
    end->rank = spec.rank;
    end->link = pl_link_connect(&spec, &loop, &err);
    if (!end->link)
        tap_diag("%s", err.text);
    return end->link != NULL;
}

static void join(int k)
{
    pl_link_spec_t spec = usual;
    spec.rank = k;
    connect_as(&rank[k], spec);
    until(rank[k].events[PL_LINK_JOINED] || rank[k].events[PL_LINK_GONE]);
}

static void close_all(void)
{
    for (int k = 0; k < RANKS; k++)
        pl_link_free(rank[k].link);
    pl_link_free(host.link);
    event_base_free(loop.base);
}

static int send_number(end_t *end, int peer, int number)
{
    int64_t bytes[8] = {number};
    return pl_link_send(end->link, peer, (pl_bytes_t){bytes, 4 + (size_t)number % 60},
                        NULL);
}

/* ---- joining ---- */

static void ranks_join_and_messages_come_in_order(void)
{
    open_file(2);
    is_int(send_number(&host, 0, 0), PL_EPEER,
           "a message to a rank that has not joined is refused");
    join(0);
    join(1);
    is_int(host.events[PL_LINK_JOINED], 2, "two have joined");
    like(host.text[PL_LINK_JOINED], "process [0-9]+",
         "the launcher knows their processes");
    for (int n = 0; n < 1000; n++)
        for (int k = 0; k < 2; k++) {
            send_number(&host, k, n);
            send_number(&rank[k], PL_LINK_HOST, n);
        }
    until(host.messages[0] + host.messages[1] == 2000
          && rank[0].messages[0] + rank[1].messages[0] == 2000);
    is_int(host.messages[0] + host.messages[1], 2000, "all came from the ranks");
    is_int(rank[0].messages[0] + rank[1].messages[0], 2000, "and to them");
    until(host.events[PL_LINK_CLEAR] && rank[0].events[PL_LINK_CLEAR]);
    ok(host.events[PL_LINK_CLEAR] && rank[0].events[PL_LINK_CLEAR],
       "that all has come is known on both sides");
    is_int(host.wrong + rank[0].wrong + rank[1].wrong, 0, "in order");
    close_all();
}

static void refused(const char *what, pl_link_spec_t spec, const char *why)
{
    end_t odd = {0};
    int before = host.events[PL_LINK_REFUSED];
    connect_as(&odd, spec);
    until(odd.events[PL_LINK_GONE]);
    ok(odd.events[PL_LINK_GONE] && !odd.events[PL_LINK_JOINED], "%s is refused", what);
    like(odd.text[PL_LINK_GONE], why, "with the reason");
    is_int(host.events[PL_LINK_REFUSED], before + 1, "which the launcher knows");
    like(host.text[PL_LINK_REFUSED], why, "too");
    pl_link_free(odd.link);
}

static void a_peer_that_does_not_belong_is_refused_with_a_reason(void)
{
    open_file(3);
    usual.traits = "{\"instruction set\":\"avx2\",\"threads\":\"2\"}";
    join(0);
    pl_link_spec_t spec = usual;
    spec.rank = 1;
    spec.run++;
    refused("another run", spec, "another run");
    spec.run--;
    spec.incarnation = 2;
    refused("a later incarnation", spec, "incarnation 2; this is incarnation 1");
    spec.incarnation = 1;
    spec.rank = 3;
    refused("a rank out of range", spec, "rank out of range: 0 to 2");
    spec.rank = 0;
    refused("a rank twice", spec, "another process already has that rank");
    spec.rank = 1;
    spec.world_size = 4;
    refused("another number of ranks", spec, "its world size is 4, here it is 3");
    spec.world_size = 3;
    spec.traits = "{\"instruction set\":\"avx512\",\"threads\":\"2\"}";
    refused("another instruction set", spec,
            "instruction set is \"avx512\", but rank 0 has \"avx2\"");
    spec.traits = "{\"instruction set\":\"avx2\"}";
    refused("one that does not tell", spec, "threads is not given, but rank 0 has");
    spec.traits = usual.traits;
    is_int(pl_link_counts(host.link)->refused, 7, "all are counted");
    join(1);
    is_int(rank[1].events[PL_LINK_JOINED], 1, "the right one is let in after all that");
    close_all();
}

static void a_rank_without_a_run_learns_it(void)
{
    open_file(2);
    pl_link_spec_t spec = usual;
    spec.run = 0;
    refused("one that knows no run", spec, "another run");
    pl_link_free(host.link);
    spec = usual;
    spec.takes_any = true;
    spec.user = &host;
    host.link = pl_link_listen(&spec, &loop, NULL);
    usual.run++;
    refused("one of another run", usual, "another run");
    usual.run = 0;
    join(0);
    ok(rank[0].events[PL_LINK_JOINED], "it is let in where none is known");
    ok(pl_link_run(rank[0].link) == 0xABCDEF, "and knows it then");
    usual.run = 0xABCDEF;
    join(1);
    ok(rank[1].events[PL_LINK_JOINED], "and so is one that knows");
    for (int k = 0; k < 2; k++) {
        send_number(&rank[k], PL_LINK_HOST, 0);
        until(host.messages[k] == 1);
        is_int(host.messages[k], 1, "messages of rank %d come", k);
    }
    close_all();
}

static void raw_send(void *raw, link_head_t head, const char *bytes)
{
    unsigned char frame[512];
    head.size = (uint32_t)strlen(bytes);
    memcpy(frame, &head, sizeof head);
    memcpy(frame + sizeof head, bytes, head.size);
    head.sum = pl_crc32c(pl_crc32c(0, &head, offsetof(link_head_t, sum)), bytes,
                         head.size);
    memcpy(frame, &head, sizeof head);
    zmq_send(raw, frame, sizeof head + head.size, 0);
}

static void *raw_open(uint32_t identity)
{
    int zero = 0;
    char id[5] = {1};
    memcpy(id + 1, &identity, sizeof identity);
    void *raw = zmq_socket(pl_context_acquire(NULL), ZMQ_DEALER);
    zmq_setsockopt(raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(raw, ZMQ_ROUTING_ID, id, sizeof id);
    zmq_connect(raw, endpoint);
    return raw;
}

static void raw_close(void *raw)
{
    zmq_close(raw);
    pl_context_release();
}

static void another_version_is_refused(void)
{
    open_file(1);
    void *raw = raw_open(77);
    link_head_t head = {
        .magic = "PLLINK", .version = 9, .kind = 200, .run = 1, .sender = 5};
    char answer[512] = "";
    int size = -1;
    raw_send(raw, head, "whatever it says there");
    until((size = zmq_recv(raw, answer, sizeof answer - 1, ZMQ_DONTWAIT)) > 0);
    like(host.text[PL_LINK_REFUSED], "speaks version 9 of the protocol, this launcher 2",
         "the launcher says so");
    ok(size > (int)sizeof head && answer[7] == LINK_REFUSE, "it gets the refusal");
    like(answer + sizeof head, "version 9", "why");
    raw_close(raw);
    close_all();
}

static void the_limit_to_join_names_the_missing_ranks(void)
{
    open_file(RANKS + 4);
    pl_link_free(host.link);
    pl_link_spec_t spec = usual;
    spec.times.join = 200;
    spec.user = &host;
    host.link = pl_link_listen(&spec, &loop, NULL);
    join(0);
    join(2);
    until(host.events[PL_LINK_MISSING]);
    like(host.text[PL_LINK_MISSING],
         "^not joined within 0.2 s at ipc://.*/link: rank 1, 3-7$",
         "all of them, and where they are awaited");
    turn_for(300);
    is_int(host.events[PL_LINK_MISSING], 1, "once");
    close_all();
}

static void a_rank_without_a_launcher_ends_at_its_limit(void)
{
    open_file(1);
    pl_link_free(host.link);
    host.link = NULL;
    usual.times.join = 200;
    join(0);
    like(rank[0].text[PL_LINK_GONE],
         "^rank 0 could not connect to the launcher at ipc://.* for 0.2 s: is it",
         "with the place");
    ok(!strstr(rank[0].text[PL_LINK_GONE], "key"), "and no word of keys");
    close_all();
}

static void a_rank_may_come_before_the_launcher(void)
{
    open_file(1);
    pl_link_free(host.link);
    pl_link_spec_t spec = usual;
    connect_as(&rank[0], spec);
    turn_for(100);
    spec.user = &host;
    host.link = pl_link_listen(&spec, &loop, NULL);
    until(rank[0].events[PL_LINK_JOINED]);
    is_int(rank[0].events[PL_LINK_JOINED], 1, "it joins when that one is there");
    close_all();
}

/* Each question and each answer of the greeting takes its time. */
static void a_rank_joins_over_a_slow_connection(void)
{
    pl_keys_t job;
    char file[128];
    snprintf(file, sizeof file, "%s/long.key", tap_folder());
    pl_keys_make(file, &job, NULL);
    keys = &job;
    listen_at("tcp://127.0.0.1:*", 1);
    keys = NULL;
    usual.endpoint = wire_open(loop.base, endpoint);
    usual.times = (pl_link_times_t){0};
    wire_delay(500);
    join(0);
    is_int(rank[0].events[PL_LINK_JOINED], 1, "though an answer takes a second");
    for (int n = 0; n < 20; n++) {
        send_number(&host, 0, n);
        send_number(&rank[0], PL_LINK_HOST, n);
    }
    until(host.messages[0] + rank[0].messages[0] == 40);
    is_int(host.messages[0] + rank[0].messages[0], 40, "and messages pass both ways");
    is_int(rank[0].events[PL_LINK_CUT] + host.events[PL_LINK_CUT], 0, "without a cut");
    wire_close();
    close_all();
}

static void a_peer_with_another_key_is_reported(void)
{
    pl_keys_t job, other;
    char file[128];
    snprintf(file, sizeof file, "%s/right.key", tap_folder());
    pl_keys_make(file, &job, NULL);
    snprintf(file, sizeof file, "%s/wrong.key", tap_folder());
    pl_keys_make(file, &other, NULL);
    keys = &job;
    listen_at("tcp://127.0.0.1:*", 3);
    keys = NULL;
    pl_link_free(host.link);
    pl_link_spec_t spec = usual;
    spec.endpoint = "tcp://127.0.0.1:*";
    spec.times.join = 1500;
    spec.user = &host;
    host.link = pl_link_listen(&spec, &loop, NULL);
    pl_link_endpoint(host.link, endpoint, sizeof endpoint, NULL);
    spec = usual;
    spec.keys = &other;
    spec.endpoint = wire_open(loop.base, endpoint);
    wire_delay(20);
    connect_as(&rank[0], spec);
    until(host.events[PL_LINK_REFUSED]);
    like(host.text[PL_LINK_REFUSED], "^127.0.0.1, port [0-9]+ has another key: use the",
         "from where, and what to look at");
    is_int(host.last_peer, PL_LINK_HOST, "its rank is unknown");
    until(host.events[PL_LINK_MISSING]);
    like(host.text[PL_LINK_MISSING],
         "rank 0-2; [0-9]+ connections? without its key (was|were) refused: is the job",
         "a rank that waits in vain gets it once more");
    ok(host.events[PL_LINK_REFUSED] <= 2, "it is not repeated");
    wire_close();
    close_all();
}

static void the_end_of_a_rank_has_the_number_of_its_host(void)
{
    char name[64], at[64] = "";
    listen_at("tcp://127.0.0.1:*", 1);
    pl_link_spec_t spec = usual;
    snprintf(name, sizeof name, "tcp://localhost%s", strrchr(endpoint, ':'));
    spec.endpoint = name;
    connect_as(&rank[0], spec);
    until(rank[0].events[PL_LINK_JOINED]);
    is_int(pl_link_endpoint(rank[0].link, at, sizeof at, NULL), PL_OK, "where it is");
    is_text(at, endpoint, "is no name, for which another look-up could be needed");
    close_all();
}

static void a_peer_without_a_key_is_reported(void)
{
    pl_keys_t job;
    char file[128];
    snprintf(file, sizeof file, "%s/lone.key", tap_folder());
    pl_keys_make(file, &job, NULL);
    keys = &job;
    listen_at("tcp://127.0.0.1:*", 1);
    keys = NULL;
    pl_link_spec_t spec = usual;
    spec.keys = NULL;
    host.frees = true;
    connect_as(&rank[0], spec);
    until(!host.link);
    like(host.text[PL_LINK_REFUSED], " has no key: all ranks need the same job key file",
         "and its handler may end the link");
    close_all();
    listen_at("tcp://127.0.0.1:*", 1);
    spec = usual;
    spec.keys = &job;
    connect_as(&rank[0], spec);
    until(host.events[PL_LINK_REFUSED]);
    like(host.text[PL_LINK_REFUSED], "has a key, but this process has none",
         "so is one with one");
    close_all();
}

static void a_folder_that_others_can_enter_is_refused(void)
{
    char folder[128], file[160];
    pl_error_t err = {0};
    snprintf(folder, sizeof folder, "%s/open", tap_folder());
    snprintf(file, sizeof file, "ipc://%s/link", folder);
    mkdir(folder, 0700);
    chmod(folder, 0755);
    open_file(1);
    pl_link_spec_t spec = usual;
    spec.endpoint = file;
    ok(!pl_link_listen(&spec, &loop, &err) && err.code == PL_EINVAL, "to listen in");
    like(err.text, "closed to others", "it says what to do");
    ok(!pl_link_connect(&spec, &loop, &err) && err.code == PL_EINVAL, "to connect to");
    spec.endpoint = "tcp://10.1.2.3:80";
    ok(!pl_link_listen(&spec, &loop, &err) && err.code == PL_EINVAL,
       "and, without keys, another machine");
    close_all();
    char made[PL_SOCKET_FOLDER];
    struct stat there;
    is_int(pl_socket_folder(made, &err), PL_OK, "one that is made");
    stat(made, &there);
    is_int(there.st_mode & 0777, 0700, "is closed");
    rmdir(made);
}

/* ---- cuts ---- */

static void a_connection_that_is_cut_again_and_again_loses_nothing(void)
{
    enum { MESSAGES = 3000 };
    listen_at("tcp://127.0.0.1:*", 1);
    usual.endpoint = wire_open(loop.base, endpoint);
    join(0);
    int sent = 0, cuts = 0;
    for (int64_t end = pl_now() + 60 * PL_SECOND;
         (host.messages[0] < MESSAGES || rank[0].messages[0] < MESSAGES)
         && pl_now() < end;) {
        for (int k = 0; k < 7 && sent < MESSAGES; k++, sent++) {
            send_number(&host, 0, sent);
            send_number(&rank[0], PL_LINK_HOST, sent);
        }
        bool there = pl_link_state(host.link, 0) == PL_LINK_IS_THERE
                     && pl_link_state(rank[0].link, PL_LINK_HOST) == PL_LINK_IS_THERE;
        if (there && pl_random_u64(1, (uint64_t)sent + (uint64_t)cuts) % 40 == 0
            && cuts < 25) {
            wire_cut();
            cuts++;
        }
        loop_turn();
    }
    ok(cuts >= 5, "cut %d times", cuts);
    is_int(host.messages[0], MESSAGES, "every message came to the launcher, in order");
    is_int(rank[0].messages[0], MESSAGES, "and to the rank");
    is_int(host.wrong + rank[0].wrong, 0, "none twice");
    ok(pl_link_counts(host.link)->sent_again + pl_link_counts(rank[0].link)->sent_again,
       "%llu were sent again",
       (unsigned long long)(pl_link_counts(host.link)->sent_again
                            + pl_link_counts(rank[0].link)->sent_again));
    is_int(host.events[PL_LINK_CUT], host.events[PL_LINK_BACK],
           "each cut was reported, and its end");
    is_int(host.events[PL_LINK_JOINED] + rank[0].events[PL_LINK_JOINED], 2,
           "it joined once");
    wire_close();
    close_all();
}

static void a_cut_that_lasts_is_the_end(void)
{
    listen_at("tcp://127.0.0.1:*", 1);
    usual.endpoint = wire_open(loop.base, endpoint);
    usual.times.rejoin = 1000;
    join(0);
    wire_cut_for_good();
    until(host.events[PL_LINK_CUT] && rank[0].events[PL_LINK_CUT]);
    ok(!host.events[PL_LINK_GONE] && !rank[0].events[PL_LINK_GONE],
       "a cut is not the end yet");
    is_int(send_number(&host, 0, 0), PL_OK, "what is sent waits");
    until(host.events[PL_LINK_GONE] && rank[0].events[PL_LINK_GONE]);
    like(host.text[PL_LINK_GONE], "cut for longer than 2 s",
         "then it is, for the launcher");
    like(rank[0].text[PL_LINK_GONE], "cut for longer than 1 s", "and for the rank");
    is_int(send_number(&host, 0, 1), PL_EPEER, "nothing is taken any more");
    is_int(host.events[PL_LINK_SILENT], 0, "it was not called silent");
    wire_close();
    close_all();
}

static void a_lease_runs_out_in_silence(void)
{
    listen_at("tcp://127.0.0.1:*", 1);
    usual.endpoint = wire_open(loop.base, endpoint);
    usual.times.has_lease = true;
    join(0);
    wire_hold(true);
    int64_t before = pl_now();
    until(rank[0].events[PL_LINK_GONE] && host.events[PL_LINK_SILENT]);
    like(rank[0].text[PL_LINK_GONE], "lease has expired", "the rank ends itself");
    ok(pl_now() - before < 6 * PL_SECOND, "in %.0f ms",
       (double)(pl_now() - before) / 1e6);
    is_int(host.events[PL_LINK_SILENT], 1, "the launcher finds it silent");
    is_int(host.events[PL_LINK_CUT], 0, "the connection is as it was");
    wire_close();
    close_all();
}

/* Its connection is there all the time. */
static void a_silent_rank_with_a_lease_is_given_up(void)
{
    listen_at("tcp://127.0.0.1:*", 1);
    pl_link_free(host.link);
    pl_link_spec_t spec = usual;
    spec.times.has_lease = true;
    spec.times.rejoin = 700;
    spec.user = &host;
    host.link = pl_link_listen(&spec, &loop, NULL);
    pl_link_endpoint(host.link, endpoint, sizeof endpoint, NULL);
    usual.endpoint = wire_open(loop.base, endpoint);
    join(0);
    wire_hold(true);
    until(host.events[PL_LINK_GONE]);
    like(host.text[PL_LINK_GONE], "no data for 0.7 s", "it is gone");
    is_int(host.events[PL_LINK_SILENT], 1, "after it was called silent");
    is_int(host.events[PL_LINK_CUT], 0, "and never cut");
    wire_hold(false);
    until(rank[0].events[PL_LINK_GONE]);
    like(rank[0].text[PL_LINK_GONE], "refused: it was disconnected for too long",
         "it learns so later");
    wire_close();
    close_all();
}

/* As when a scheduler suspends all processes of a job, and a connection breaks by
 * that. */
static void a_rank_that_was_suspended_through_its_lease_joins_again(void)
{
    listen_at("tcp://127.0.0.1:*", 1);
    usual.endpoint = wire_open(loop.base, endpoint);
    usual.times.has_lease = true;
    join(0);
    turn_for(50);
    wire_cut();
    stand_still(3 * usual.times.silence);
    until(rank[0].events[PL_LINK_BACK] || rank[0].events[PL_LINK_GONE]);
    is_int(rank[0].events[PL_LINK_BACK], 1, "the rank is let in again");
    is_int(rank[0].events[PL_LINK_GONE], 0, "its lease has not run out: %s",
           rank[0].text[PL_LINK_GONE]);
    wire_close();
    close_all();
}

static void messages_beyond_the_limit_are_refused_until_there_is_space(void)
{
    listen_at("tcp://127.0.0.1:*", 1);
    usual.endpoint = wire_open(loop.base, endpoint);
    usual.unread_max = 10000;
    usual.message_max = 1000;
    join(0);
    wire_hold(true);
    int sent = 0;
    while (send_number(&rank[0], PL_LINK_HOST, sent) == PL_OK)
        sent++;
    ok(sent > 10 && sent < 10000, "%d were taken", sent);
    int64_t long_one[200] = {0};
    is_int(pl_link_send(rank[0].link, PL_LINK_HOST,
                        (pl_bytes_t){long_one, sizeof long_one}, NULL),
           PL_EINVAL, "one that is too long never is");
    wire_hold(false);
    wire_cut();
    until(rank[0].events[PL_LINK_WRITABLE]);
    is_int(rank[0].events[PL_LINK_WRITABLE], 1, "the link reports space for messages");
    is_int(send_number(&rank[0], PL_LINK_HOST, sent), PL_OK, "and there is some");
    until(host.messages[0] == sent + 1);
    is_int(host.messages[0], sent + 1, "what was taken came");
    wire_close();
    close_all();
}

/* ---- silence, and processes that are suspended ---- */

static void a_peer_whose_thread_does_not_turn_is_silent(void)
{
    open_file(1);
    pl_sockets_t own = loop, other = {.base = event_base_new()};
    loop = other;
    connect_as(&rank[0], usual);
    while (!rank[0].events[PL_LINK_JOINED]) {
        loop_turn();
        other = loop;
        loop = own;
        loop_turn();
        own = loop;
        loop = other;
    }
    other = loop;
    loop = own;
    until(host.events[PL_LINK_SILENT]);
    is_int(host.events[PL_LINK_SILENT], 1, "the silence is reported");
    is_int(host.events[PL_LINK_CUT] + host.events[PL_LINK_GONE], 0,
           "its connection is there, and it is not given up");
    for (int64_t end = pl_now() + 60 * PL_SECOND;
         !host.events[PL_LINK_RECEIVED] && pl_now() < end;) {
        own = loop;
        loop = other;
        loop_turn();
        other = loop;
        loop = own;
        loop_turn();
    }
    is_int(host.events[PL_LINK_RECEIVED], 1, "its messages come again");
    is_int(rank[0].events[PL_LINK_SILENT], 0, "the suspended side reports no silence");
    pl_link_free(rank[0].link);
    rank[0].link = NULL;
    event_base_free(other.base);
    close_all();
}

static void a_loop_that_stood_still_reports_no_silence(void)
{
    open_file(1);
    join(0);
    turn_for(50);
    stand_still(3 * usual.times.silence);
    turn_for(100);
    is_int(host.events[PL_LINK_SILENT] + rank[0].events[PL_LINK_SILENT], 0,
           "a loop that stood still for 1.2 s finds no peer silent");
    close_all();
}

/* ---- ends ---- */

static void a_rank_leaves_after_its_last_message(void)
{
    listen_at("tcp://127.0.0.1:*", 2);
    usual.endpoint = wire_open(loop.base, endpoint);
    join(0);
    for (int n = 0; n < 100; n++)
        send_number(&rank[0], PL_LINK_HOST, n);
    is_int(pl_link_leave(rank[0].link, NULL), PL_OK, "it says goodbye");
    wire_cut();                                            /* before any of it could go */
    until(host.events[PL_LINK_LEFT] && rank[0].events[PL_LINK_LEFT]);
    is_int(host.events[PL_LINK_LEFT], 1, "the launcher knows, once");
    is_int(rank[0].events[PL_LINK_LEFT], 1, "and the rank that it does");
    is_int(host.messages[0], 100, "after all the rest");
    is_int(pl_link_state(host.link, 0), PL_LINK_HAS_LEFT, "that is its state");
    is_int(send_number(&rank[0], PL_LINK_HOST, 100), PL_EPEER, "nothing more is sent");
    turn_for(100);
    is_int(host.events[PL_LINK_CUT] + host.events[PL_LINK_GONE],
           host.events[PL_LINK_BACK], "it is not called gone");
    wire_close();
    close_all();
}

static void join_in_place_of_1(end_t *end)
{
    pl_link_spec_t spec = usual;
    spec.rank = 1;
    connect_as(end, spec);
    until(end->events[PL_LINK_JOINED] || end->events[PL_LINK_GONE]);
}

/* It is not admitted before the one that is cut is given up, and not refused. */
static void another_process_may_follow_one_that_has_ended(void)
{
    may_return = true;
    open_file(2);
    may_return = false;
    join(1);
    pl_link_leave(rank[1].link, NULL);
    until(host.events[PL_LINK_LEFT]);
    join_in_place_of_1(&rank[2]);
    is_int(rank[2].events[PL_LINK_JOINED], 1, "after one that has left: %s",
           rank[2].text[PL_LINK_GONE]);
    is_int(send_number(&host, 1, 0), PL_OK, "and is sent what is for that rank");
    until(rank[2].messages[0]);
    is_int(rank[2].messages[0], 1, "which comes, as the first");
    join_in_place_of_1(&rank[0]);
    like(rank[0].text[PL_LINK_GONE], "another process already has that rank",
         "while it is there no other process is admitted");
    pl_link_free(rank[2].link);
    rank[2].link = NULL;
    until(host.events[PL_LINK_CUT]);
    join_in_place_of_1(&rank[3]);
    is_int(host.events[PL_LINK_GONE], 1, "one that is cut is given up first");
    is_int(rank[3].events[PL_LINK_JOINED], 1, "and then followed: %s",
           rank[3].text[PL_LINK_GONE]);
    close_all();
}

/* A network was cut and is restored: the old process of the rank has ended itself, and
 * this launcher does not know that yet. */
static void a_process_waits_until_the_silent_one_before_it_is_given_up(void)
{
    listen_at("tcp://127.0.0.1:*", 2);
    pl_link_free(host.link);
    pl_link_spec_t spec = usual, second = usual;
    spec.times.has_lease = spec.may_be_replaced = true;
    spec.user = &host;
    host.link = pl_link_listen(&spec, &loop, NULL);
    pl_link_endpoint(host.link, endpoint, sizeof endpoint, NULL);
    usual.endpoint = wire_open(loop.base, endpoint);
    join(1);
    wire_hold(true);
    turn_for(3 * usual.times.beat);

    second.endpoint = endpoint;
    second.rank = 1;
    connect_as(&rank[2], second);
    until(rank[2].events[PL_LINK_JOINED] || rank[2].events[PL_LINK_GONE]);

    is_int(rank[2].events[PL_LINK_JOINED], 1, "the next process joins: %s",
           rank[2].text[PL_LINK_GONE]);
    is_int(host.events[PL_LINK_GONE], 1, "after the silent one was given up");
    is_int(host.events[PL_LINK_REFUSED], 0, "it was not refused");
    wire_close();
    close_all();
}

static void an_unanswered_goodbye_is_sent_again(void)
{
    listen_at("tcp://127.0.0.1:*", 1);
    usual.endpoint = wire_open(loop.base, endpoint);
    join(0);
    pl_link_leave(rank[0].link, NULL);
    until(host.events[PL_LINK_LEFT]);
    if (!rank[0].events[PL_LINK_LEFT])
        wire_cut();                                         /* with the acknowledgement */
    until(rank[0].events[PL_LINK_LEFT] || rank[0].events[PL_LINK_GONE]);
    is_int(rank[0].events[PL_LINK_LEFT], 1, "it has left");
    is_int(host.events[PL_LINK_LEFT], 1, "once");
    wire_close();
    close_all();
}

static void a_rank_that_is_dismissed_gets_the_reason(void)
{
    open_file(2);
    join(0);
    for (int n = 0; n < 10; n++)
        send_number(&host, 0, n);
    pl_link_dismiss(host.link, PL_LINK_HOST, "the run is over");
    is_int(send_number(&host, 0, 10), PL_EPEER, "nothing is sent behind that");
    until(rank[0].events[PL_LINK_GONE]);
    is_text(rank[0].text[PL_LINK_GONE], "the run is over", "in plain words");
    is_int(rank[0].messages[0], 10, "after what was sent before");
    join(1);
    like(rank[1].text[PL_LINK_GONE], "the run is over", "as does one that comes later");
    is_int(host.events[PL_LINK_GONE] + host.events[PL_LINK_LEFT], 0,
           "the side that dismissed them gets no event");
    close_all();
    open_file(1);
    join(0);
    pl_link_free(host.link);
    host.link = NULL;
    stand_still(50);                              /* its end is there before it is read */
    until(rank[0].events[PL_LINK_GONE]);
    is_text(rank[0].text[PL_LINK_GONE], "the launcher has ended",
            "a launcher that ends says so");
    close_all();
}

static void messages_of_an_older_incarnation_are_dropped(void)
{
    open_file(1);
    join(0);
    for (int n = 0; n < 10; n++)
        send_number(&rank[0], PL_LINK_HOST, n);
    is_int(pl_link_renew(host.link, 2, 2, NULL), PL_OK, "a new one begins");
    until(rank[0].events[PL_LINK_GONE] && pl_link_counts(host.link)->fenced >= 10);
    is_int(host.messages[0], 0, "nothing came of the old");
    ok(pl_link_counts(host.link)->fenced >= 10, "%d were counted",
       (int)pl_link_counts(host.link)->fenced);
    like(rank[0].text[PL_LINK_GONE], "incarnation has ended", "it gets the end");
    pl_link_spec_t spec = usual;
    spec.world_size = 2;
    refused("one of the old that joins late", spec,
            "incarnation 1; this is incarnation 2");
    spec.incarnation = 2;
    spec.rank = 1;
    connect_as(&rank[1], spec);
    until(rank[1].events[PL_LINK_JOINED]);
    is_int(rank[1].events[PL_LINK_JOINED], 1, "one of the new is let in");
    is_int(pl_link_renew(host.link, 2, 2, NULL), PL_EINVAL, "none begins twice");
    close_all();
}

static void a_link_may_be_freed_by_what_it_tells(void)
{
    static const pl_link_event_t events[] = {PL_LINK_JOINED, PL_LINK_GONE, PL_LINK_LEFT};
    for (size_t k = 0; k < sizeof events / sizeof *events; k++)
        for (int by_rank = 0; by_rank < 2; by_rank++) {
            open_file(1);
            end_t *end = by_rank ? &rank[0] : &host;
            if (k == 0)
                end->frees = true;
            connect_as(&rank[0], usual);
            until(host.events[PL_LINK_JOINED]
                  && (end->frees || rank[0].events[PL_LINK_JOINED]));
            end->frees = true;
            if (k == 1 && by_rank)
                pl_link_dismiss(host.link, 0, "go");
            else if (k == 1)
                pl_link_died(host.link, 0);
            if (k == 2)
                pl_link_leave(rank[0].link, NULL);
            until(!end->link);
            ok(!end->link, "at event %d, %s", (int)events[k],
               by_rank ? "a rank's" : "the launcher's");
            close_all();
        }
}

/* ---- processes ---- */

static const char *self;
static pl_process_t *child;
static int deaths;

static void child_died(void *user, const pl_death_t *death)
{
    (void)user, (void)death;
    deaths++;
    pl_link_died(host.link, 0);
}

static void child_begin(const char *mode, void (*on_death)(void *, const pl_death_t *))
{
    const char *const argv[] = {self, mode, endpoint, NULL};
    pl_process_spec_t spec = {.argv = argv, .on_death = on_death};
    pl_error_t err = {0};
    deaths = 0;
    child = pl_process_start(&spec, loop.base, &err);
    if (!child)
        tap_diag("%s", err.text);
}

static void child_start(const char *mode)
{
    child_begin(mode, child_died);
}

/* This program again, as the side that listens, until it is ended. */
static noreturn void listen_main(const char *where)
{
    listen_at(where, 1);
    for (;;)
        loop_turn();
}

/* This program again, as a rank: sends 500 messages, and "dies" dies behind them. */
static int child_main(const char *mode, const char *where)
{
    loop.base = event_base_new();
    pl_link_spec_t spec = {.endpoint = where,
                           .run = 0xABCDEF,
                           .incarnation = 1,
                           .world_size = 1,
                           .watches = true,
                           .times = {.beat = 40, .silence = 400, .rejoin = 2000},
                           .on_message = on_message,
                           .on_event = on_event};
    connect_as(&rank[0], spec);
    until(rank[0].events[PL_LINK_JOINED]);
    for (int n = 0; n < 500; n++)
        send_number(&rank[0], PL_LINK_HOST, n);
    if (!strcmp(mode, "dies"))
        raise(SIGKILL);
    until(rank[0].events[PL_LINK_GONE]);
    return 0;
}

static void messages_sent_before_a_death_still_come(void)
{
    open_file(1);
    child_start("dies");
    until(host.events[PL_LINK_GONE]);
    is_int(deaths, 1, "it died right after sending");
    is_int(host.events[PL_LINK_GONE], 1, "its link has ended, once");
    like(host.text[PL_LINK_GONE], "its process has died", "because of that");
    is_int(host.wrong, 0, "what came, %d messages, is in order", host.messages[0]);
    int came = host.messages[0];
    turn_for(100);
    is_int(host.messages[0], came, "nothing comes behind the end");
    pl_process_free(child);
    close_all();
}

/* No process watcher reports its death here, and a connection may be cut for a minute. */
static void a_process_of_the_same_machine_is_known_to_be_dead_at_once(void)
{
    static const char *const modes[] = {"dies", "lives"};
    for (int k = 0; k < 2; k++) {
        open_file(1);
        pl_link_free(host.link);
        pl_link_spec_t spec = usual;
        spec.times.rejoin = 60000;
        spec.user = &host;
        host.link = pl_link_listen(&spec, &loop, NULL);
        child_begin(modes[k], NULL);
        until(host.events[PL_LINK_JOINED] && (k == 0 || host.messages[0] == 500));
        int64_t before = pl_now();
        if (k == 1)
            pl_process_signal(child, SIGKILL);
        until(host.events[PL_LINK_GONE]);
        is_text(host.text[PL_LINK_GONE], "its process has died", "it is gone");
        const double ms = (double)(pl_now() - before) / PL_MILLISECOND;
        ok(ms < 1000, "in %.1f ms", ms);
        ok(k == 0 || host.messages[0] == 500, "after what it had sent, %d messages",
           host.messages[0]);
        pl_process_free(child);
        close_all();
    }
}

static void a_launcher_of_the_same_machine_is_known_to_be_dead_at_once(void)
{
    open_file(1);
    pl_link_free(host.link);
    host.link = NULL;
    usual.times.rejoin = usual.times.silence = 60000;
    child_begin("listens", NULL);
    join(0);
    int64_t before = pl_now();
    pl_process_signal(child, SIGKILL);
    until(rank[0].events[PL_LINK_GONE]);
    is_text(rank[0].text[PL_LINK_GONE], "the launcher's process has died", "it is gone");
    ok(pl_now() - before < PL_SECOND, "in %.1f ms", (double)(pl_now() - before) / 1e6);
    pl_process_free(child);
    close_all();
}

static void send_and_flush(void)
{
    send_number(&rank[0], PL_LINK_HOST, host.messages[0]);
    loop_turn();
}

/* They take half of the descriptors that there are, and what waits at the port; all only
 * until this thread has its turn. */
static void a_flood_leaves_descriptors_for_the_run(void)
{
    flood_t flood;
    listen_at("tcp://127.0.0.1:*", 2);
    join(0);
    flood_begin(&flood, endpoint);
    flood_check(send_and_flush);
    ok(host.messages[0] > 100, "and messages come: %d", host.messages[0]);
    is_int(host.events[PL_LINK_CUT] + host.events[PL_LINK_GONE], 0, "no rank is lost");
    flood_end(&flood);
    join(1);
    is_int(rank[1].events[PL_LINK_JOINED], 1, "a later rank is admitted");
    close_all();
}

static void a_rank_that_is_stopped_is_silent_and_one_that_is_killed_is_cut(void)
{
    open_file(1);
    child_start("lives");
    until(host.messages[0] == 500);
    kill(pl_process_id(child), SIGSTOP);
    until(host.events[PL_LINK_SILENT]);
    is_int(host.events[PL_LINK_SILENT], 1, "stopped: silent");
    is_int(host.events[PL_LINK_CUT], 0, "not cut");
    kill(pl_process_id(child), SIGCONT);
    until(host.events[PL_LINK_RECEIVED]);
    is_int(host.events[PL_LINK_RECEIVED], 1, "continued: messages come");
    int64_t before = pl_now();
    kill(pl_process_id(child), SIGKILL);
    until(host.events[PL_LINK_CUT] && deaths);
    ok(host.events[PL_LINK_CUT] && deaths, "killed: cut, and its death seen by itself");
    ok(pl_now() - before < PL_SECOND, "in %.1f ms", (double)(pl_now() - before) / 1e6);
    until(host.events[PL_LINK_GONE]);
    pl_process_free(child);
    close_all();
}

/* ---- strangers ---- */

static uint64_t draws;

static uint64_t draw(uint64_t below)
{
    return pl_random_u64(0xBAD, draws++) % below;
}

static uint64_t dropped(void)
{
    const pl_link_counts_t *counts = pl_link_counts(host.link);
    return counts->malformed + counts->strangers + counts->fenced + counts->refused;
}

static void unknown_peers_have_no_effect_on_others(void)
{
    scarce_init();
    open_file(2);
    join(0);
    int frames = 0;
    for (int peer = 0; peer < 20; peer++) {
        void *raw = raw_open((uint32_t)draw(1 << 30) | 1);
        for (int n = 0; n < 200; n++, frames++) {
            unsigned char bytes[200];
            link_head_t head = {.magic = "PLLINK",
                                .version = PL_LINK_VERSION,
                                .kind = (uint8_t)draw(LINK_KINDS),
                                .run = draw(4) ? 0xABCDEF : 1,
                                .sender = draw(3),
                                .incarnation = (uint32_t)draw(3),
                                .rank = (int32_t)draw(4) - 1,
                                .received = draw(3)};
            head.sequence = head.kind >= LINK_MESSAGE ? 1 + draw(3) : 0;
            for (size_t k = 0; k < sizeof bytes; k++)
                bytes[k] = (unsigned char)draw(256);
            if (draw(3))
                raw_send(raw, head, draw(2) ? "{\"about\":\"\",\"traits\":{}}" : "[");
            else
                zmq_send(raw, bytes, draw(sizeof bytes), draw(5) ? 0 : ZMQ_SNDMORE);
        }
        zmq_send(raw, "", 0, 0);
        for (int k = 0; k < 20; k++)
            loop_turn();
        raw_close(raw);
    }
    until(dropped() > 3000);
    ok(dropped() > 3000, "%llu of %d frames were dropped and counted",
       (unsigned long long)dropped(), frames);
    send_number(&rank[0], PL_LINK_HOST, 0);
    until(host.messages[0] == 1);
    is_int(host.messages[0], 1, "messages of the joined rank come as before");
    is_int(host.wrong + host.messages[1], 0, "nothing of theirs came through");
    ok(scarce_live() < 200, "memory is bounded: %ld blocks", scarce_live());
    close_all();
}

/* From the connection of one that is there, with any number, sum or name wrong. */
static void a_peer_with_false_numbers_harms_itself_alone(void)
{
    open_file(2);
    join(1);
    void *raw = raw_open(4711);
    link_head_t head = {.magic = "PLLINK",
                        .version = PL_LINK_VERSION,
                        .kind = LINK_JOIN,
                        .run = 0xABCDEF,
                        .sender = 99,
                        .incarnation = 1};
    raw_send(raw, head, "{\"about\":\"liar\",\"world_size\":2,\"traits\":{}}");
    until(host.events[PL_LINK_JOINED] == 2);
    head.kind = LINK_BEAT;
    head.received = 1000;
    raw_send(raw, head, "");
    head.received = 0;
    head.sender = 98;
    raw_send(raw, head, "");
    head.sender = 99;
    head.rank = 1;
    raw_send(raw, head, "");
    head.rank = 0;
    head.kind = LINK_WELCOME;
    raw_send(raw, head, "");
    until(pl_link_counts(host.link)->malformed == 4);
    is_int(pl_link_counts(host.link)->malformed, 4, "what cannot be is dropped");
    head.kind = LINK_MESSAGE;
    head.sequence = 1;
    raw_send(raw, head, "first");
    raw_send(raw, head, "first");
    until(pl_link_counts(host.link)->repeated);
    is_int(pl_link_counts(host.link)->repeated, 1,
           "a message that comes twice is counted");
    is_int(host.messages[0] + host.wrong, 1, "and handed on once");
    head.sequence = 7;
    raw_send(raw, head, "later");
    until(host.events[PL_LINK_CUT]);
    is_int(host.events[PL_LINK_CUT], 1, "a message that is missing cuts it off");
    is_int(pl_link_state(host.link, 1), PL_LINK_IS_THERE, "no other rank is");
    is_int(host.messages[0] + host.wrong, 1, "nothing more came");
    raw_close(raw);
    close_all();
}

/* ---- memory that runs out ---- */

static int open_both(void *user)
{
    pl_error_t err = {0};
    pl_sockets_t own = {.base = user};
    end_t unused = {0};
    pl_link_spec_t spec = usual;
    char file[128];
    snprintf(file, sizeof file, "ipc://%s/scarce", tap_folder());
    spec.endpoint = file;
    spec.user = &unused;
    pl_link_t *a = pl_link_listen(&spec, &own, &err),
              *b = a ? pl_link_connect(&spec, &own, &err) : NULL;
    pl_link_free(b);
    pl_link_free(a);
    return err.code;
}

static void a_link_opens_or_memory_is_out(void)
{
    open_file(1);
    scarce_try(open_both, loop.base, "two ends");
    close_all();
}

int main(int argc, char **argv)
{
    static char own[4096];
    flood_if_asked(argc, argv);
    if (readlink("/proc/self/exe", own, sizeof own - 1) > 0)
        self = own;
    if (argc > 2 && !strcmp(argv[1], "listens"))
        listen_main(argv[2]);
    if (argc > 2)
        return child_main(argv[1], argv[2]);
    run(ranks_join_and_messages_come_in_order);
    run(a_peer_that_does_not_belong_is_refused_with_a_reason);
    run(a_rank_without_a_run_learns_it);
    run(another_version_is_refused);
    run(the_limit_to_join_names_the_missing_ranks);
    run(a_rank_without_a_launcher_ends_at_its_limit);
    run(a_rank_may_come_before_the_launcher);
    run(a_rank_joins_over_a_slow_connection);
    run(the_end_of_a_rank_has_the_number_of_its_host);
    run(a_peer_with_another_key_is_reported);
    run(a_peer_without_a_key_is_reported);
    run(a_folder_that_others_can_enter_is_refused);
    run(a_connection_that_is_cut_again_and_again_loses_nothing);
    run(a_cut_that_lasts_is_the_end);
    run(a_lease_runs_out_in_silence);
    run(a_silent_rank_with_a_lease_is_given_up);
    run(a_rank_that_was_suspended_through_its_lease_joins_again);
    run(messages_beyond_the_limit_are_refused_until_there_is_space);
    run(a_peer_whose_thread_does_not_turn_is_silent);
    run(a_loop_that_stood_still_reports_no_silence);
    run(a_rank_leaves_after_its_last_message);
    run(another_process_may_follow_one_that_has_ended);
    run(a_process_waits_until_the_silent_one_before_it_is_given_up);
    run(an_unanswered_goodbye_is_sent_again);
    run(a_rank_that_is_dismissed_gets_the_reason);
    run(messages_of_an_older_incarnation_are_dropped);
    run(a_link_may_be_freed_by_what_it_tells);
    run(messages_sent_before_a_death_still_come);
    run(a_process_of_the_same_machine_is_known_to_be_dead_at_once);
    run(a_launcher_of_the_same_machine_is_known_to_be_dead_at_once);
    run(a_rank_that_is_stopped_is_silent_and_one_that_is_killed_is_cut);
    run(a_flood_leaves_descriptors_for_the_run);
    run(unknown_peers_have_no_effect_on_others);
    run(a_peer_with_false_numbers_harms_itself_alone);
    run(a_link_opens_or_memory_is_out);
    return tap_done();
}
