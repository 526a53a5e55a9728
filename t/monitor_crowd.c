/* monitor_crowd.c - tests of engine/runtime/monitor_viewers.c: many viewers */
#include "runtime/monitor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include "actor_rig.h"
#include "base/clock.h"
#include "base/log.h"
#include "crowd.h"
#include "runtime/monitor_parts.h"
#include "tap.h"
#include "viewer.h"

enum {
    SERVED_MAX = 1024,                                      /* at a file */
    AT_PORT = 2048,
    CROWD = 3000,
    CURIOUS = 1500,                                         /* come and go before them */
    OVERSHOOT = 600,
    THOUSAND = 1000,
    SETTLE_MS = 300,                     /* until connections on their way are accepted */
    RECHECKED_MS = 1500,                 /* the hub looks each second */
    LINES_PER_SECOND = 4,                /* lines a second to each of a thousand */
    DESCRIPTORS = 6 * SERVED_MAX,
};

static char thousands_endpoint[256];
static crowd_t thousand, stopped;
static struct rlimit descriptors;

enum { FULL, FEW, FLOODED, SORTS };

static char received[SORTS][256];               /* what the log said first, by its sort */
static const char *const sorts[SORTS] = {"which is the limit", "few descriptors are left",
                                         "more than 250 connections a second"};
static int times[SORTS];                                    /* atomic */

static bool was_said(int sort)
{
    return __atomic_load_n(&times[sort], __ATOMIC_ACQUIRE) > 0;
}

static void forget(int sort)
{
    __atomic_store_n(&times[sort], 0, __ATOMIC_RELEASE);
}

static void note_line(pl_log_level_t level, int rank, const char *actor, const char *text,
                      void *user)
{
    (void)level, (void)rank, (void)actor, (void)user;
    for (int k = 0; k < SORTS; k++)
        if (strstr(text, sorts[k])) {
            if (!was_said(k))
                snprintf(received[k], sizeof received[k], "%s", text);
            __atomic_add_fetch(&times[k], 1, __ATOMIC_RELEASE);
        }
}

/* ---- viewers that ask for nothing, of this process: connections of one socket ---- */

typedef struct members {
    void *context, *all;
} members_t;

static void members_join(members_t *m, int count)
{
    int six = 0;
    m->context = zmq_ctx_new();
    m->all = zmq_socket(m->context, ZMQ_XSUB);
    zmq_setsockopt(m->all, ZMQ_IPV6, &six, sizeof six);
    for (int k = 0; k < count; k++)
        if (zmq_connect(m->all, pl_monitor_endpoint(rig.runtime)))
            tap_diag("cannot connect");
}

static void members_leave(members_t *m)
{
    zmq_close(m->all);
    zmq_ctx_term(m->context);
}

static bool may_open(void)
{
    if (descriptors.rlim_cur >= DESCRIPTORS)
        return true;
    tap_skip("%d descriptors may be open, this takes %d", (int)descriptors.rlim_cur,
             DESCRIPTORS);
    return false;
}

/* ---- tests ---- */

static int viewers_now(void)
{
    return __atomic_load_n(&rig.runtime->monitor->audience.viewers, __ATOMIC_RELAXED);
}

/* So some of the next connections have to wait. */
static void some_join_and_leave(void)
{
    members_t curious;
    members_join(&curious, CURIOUS);
    ok(eventually(viewers_now() >= CURIOUS), "%d come", CURIOUS);
    members_leave(&curious);
    ok(eventually(viewers_now() <= 1), "and go");
}

/* On a busy machine the crowd may be slower than the limit of connections a second. */
static void they_come_too_fast(int64_t began)
{
    (void)eventually(was_said(FLOODED) || viewers_now() >= AT_PORT);
    const double seconds = (double)(pl_now() - began) / PL_SECOND;
    if (!was_said(FLOODED) && seconds > 4)
        tap_skip("it took %.1f s until they had come", seconds);
    else
        ok(eventually(was_said(FLOODED)), "too fast: %s", received[FLOODED]);
}

/* That many at once, each of them tries again and again. */
static void an_admitted_viewer_still_sees(const char *endpoint, const char *has)
{
    const bool is_port = !strncmp(endpoint, "tcp:", 4);
    viewer_t v;
    pl_error_t err = {0};
    members_t crowd;
    forget(FULL);
    forget(FLOODED);
    rig_open();
    is_int(pl_monitor_start(rig.runtime, endpoint, false, &err), PL_OK, "a stream");
    viewer_open(&v, "");
    act_last();
    ok(viewer_read(&v, 0), "has one viewer");
    const int64_t began = pl_now();
    if (is_port)
        some_join_and_leave();
    members_join(&crowd, CROWD);
    if (is_port)
        they_come_too_fast(began);
    ok(eventually(was_said(FULL)), "%d more: %s", CROWD, received[FULL]);
    like(received[FULL], has, "with how many there are");
    int viewers = 0;
    for (int tries = 0; tries < SETTLE_MS; tap_nap(&tries))
        viewers = viewers_now() > viewers ? viewers_now() : viewers;
    ok(viewers < atoi(received[FULL] + strlen("the stream has ")) + OVERSHOOT,
       "no more than those on their way come in: %d", viewers);
    while (viewer_read(&v, ZMQ_DONTWAIT))
        continue;
    act_last();
    ok(viewer_read(&v, 0), "an admitted viewer still sees");
    viewer_close(&v);
    rig_close();
    members_leave(&crowd);
}

static void a_crowd_is_admitted_up_to_the_limit(void)
{
    char file[256];
    if (!may_open())
        return;
    snprintf(file, sizeof file, "ipc://%s/crowded", tap_folder());
    an_admitted_viewer_still_sees(file, "has 1[0-9]{3} viewers, which is the limit");
    an_admitted_viewer_still_sees("tcp://127.0.0.1:*",
                                  "has 2[0-9]{3} viewers, which is the limit");
}

static void a_socket_file_admits_viewers_up_to_the_limit(void)
{
    viewer_t v;
    char full[128];
    members_t crowd, one;
    pl_runtime_t second;
    pl_error_t err = {0};
    if (!may_open())
        return;
    forget(FULL);
    stream_open(false);
    snprintf(full, sizeof full, "%s/stream.full", tap_folder());
    viewer_open(&v, "");
    members_join(&crowd, SERVED_MAX - 2);
    members_join(&one, 1);
    ok(eventually(access(full, F_OK) == 0), "the socket is shut");
    ok(eventually(was_said(FULL)), "and that is said: %s", received[FULL]);
    like(received[FULL], "has 1024 viewers, which is the limit",
         "with how many there are");
    act_last();
    ok(viewer_read(&v, 0), "an admitted viewer still sees");
    pl_runtime_init(&second, NULL);
    is_int(pl_monitor_start(&second, pl_monitor_endpoint(rig.runtime), false, &err),
           PL_EBUSY, "it is in use as before");
    pl_runtime_release(&second);
    members_leave(&one);
    ok(eventually(access(full, F_OK) != 0), "one goes, and it is open");
    members_join(&one, 1);
    ok(eventually(access(full, F_OK) == 0), "one comes, and it is shut");
    viewer_close(&v);
    snprintf(full, sizeof full, "%s", pl_monitor_endpoint(rig.runtime) + 6);
    rig_close();
    ok(access(full, F_OK) != 0, "the file goes with the stream");
    strcat(full, ".full");
    ok(access(full, F_OK) != 0, "and the one beside it");
    members_leave(&crowd);
    members_leave(&one);
}

static void few_descriptors_stop_accepting_with_a_warning(void)
{
    enum { HELD = 80 };
    int held[HELD];                                         /* by others in the process */
    struct rlimit few = {.rlim_cur = 200, .rlim_max = descriptors.rlim_max};
    members_t crowd;
    viewer_t v;
    if (!may_open())
        return;
    stream_open(false);
    viewer_open(&v, "");
    for (int k = 0; k < HELD; k++)
        held[k] = dup(0);
    setrlimit(RLIMIT_NOFILE, &few);
    members_join(&crowd, 20);
    ok(eventually(was_said(FEW)), "it is reported: %s", received[FEW]);
    like(received[FEW], "has [0-9]+ viewers, .* limit is 200; raise it .ulimit -n.",
         "with the limit, and what to do");
    act_last();
    ok(viewer_read(&v, 0), "an admitted viewer still sees");
    members_leave(&crowd);
    char full[128];
    snprintf(full, sizeof full, "%s/stream.full", tap_folder());
    int tries = 0;
    while (access(full, F_OK) == 0 && tries < RECHECKED_MS)
        tap_nap(&tries);
    is_int(tries, RECHECKED_MS,
           "the socket stays shut when no viewer comes or goes any more");
    for (int k = 0; k < HELD; k++)
        close(held[k]);
    setrlimit(RLIMIT_NOFILE, &descriptors);
    ok(eventually(access(full, F_OK) != 0), "until there are descriptors again");
    viewer_close(&v);
    rig_close();
}

/* Whether each of the thousand sees one line that is rare. */
static bool all_see(void)
{
    const long long before = crowd_marked(&thousand);
    const int64_t until = pl_now() + 2 * PL_SECOND;
    act_last();
    while (crowd_marked(&thousand) < before + THOUSAND && pl_now() < until)
        usleep(1000);
    return crowd_marked(&thousand) == before + THOUSAND;
}

static bool all_see_at_last(void)
{
    int tries = 0;
    while (!all_see() && ++tries < 30)
        continue;
    return tries < 30;
}

static void a_thousand_viewers_see_a_run_although_one_is_stopped(void)
{
    enum { FLOOD = 50000 };
    pl_error_t err = {0};
    pl_address_t bee;
    if (!may_open())
        return;
    rig_open();
    is_int(pl_monitor_start(rig.runtime, thousands_endpoint, false, &err), PL_OK,
           "a stream %s", err.text);
    rig_spawn(&bee_ops, PL_OWN_THREAD, "", &bee);
    ok(all_see_at_last() && eventually(crowd_marked(&stopped) > 0),
       "%d viewers see the same line, and one more", THOUSAND);
    kill(stopped.process, SIGSTOP);
    const long long before = crowd_lines(&thousand), had = crowd_marked(&stopped);
    const int64_t began = pl_now();
    rig_ask(bee, DO_FLOOD + FLOOD);
    rig_wait(1);
    ok(rig.queen->progress >= FLOOD, "actors say more than can be brought to all");
    ok(all_see_at_last(), "the others see how it ends while one is stopped");
    const long long lines = (crowd_lines(&thousand) - before) / THOUSAND;
    const double seconds = (double)(pl_now() - began) * 1e-9;
    ok(lines > 10 && (double)lines < 2 * LINES_PER_SECOND * (5 + seconds),
       "and bursts of it, %lld lines of %d in %.1f s", lines, FLOOD, seconds);
    kill(stopped.process, SIGCONT);
    ok(all_see_at_last() && eventually(crowd_marked(&stopped) > had),
       "it sees again when it continues");
    rig_close();
}

/* ---- what a crowd gets of many lines ---- */

enum { KINDS = 150, RARE = 60, NEW = 500, ENDS = 4, LINES_MS = 4000 };

static void frame_of(pl_frame_t *frame, const char *to, int number, const char *reason)
{
    char name[24];
    snprintf(name, sizeof name, "%s.%d", to, number);
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = PL_KIND_CALL,
                             .message = PL_MESSAGE_stop,
                             .remaining = -1,
                             .to_kind = pl_kind_enter(name, 40, NULL)};
    pl_frame_make(frame, &e, &(pl_stop_t){.reason = reason}, NULL);
}

static void offer(const char *to, int number, const char *reason)
{
    pl_frame_t frame;
    frame_of(&frame, to, number, reason);
    pl_monitor_offer(rig.reactor, pl_frame_bytes(&frame));
    pl_frame_release(&frame);
}

static void offer_end(int number)
{
    pl_frame_t frame;
    char name[24];
    snprintf(name, sizeof name, "bee.run.%d", number);
    const pl_envelope_t e = {.version = PL_PROTOCOL_VERSION,
                             .kind = PL_KIND_REPLY,
                             .message = PL_MESSAGE_run,
                             .remaining = -1,
                             .to_kind = pl_kind_enter(name, 40, NULL)};
    pl_frame_make(&frame, &e, &(pl_run_reply_t){.status = PL_RUN_STATUS_OK}, NULL);
    pl_monitor_offer(rig.reactor, pl_frame_bytes(&frame));
    pl_frame_release(&frame);
}

typedef struct got {
    int64_t last;
    int lines, in_row, longest, rare, ends;
} got_t;

static void read_all(viewer_t *v, got_t *got)
{
    while (viewer_read(v, ZMQ_DONTWAIT)) {
        const int64_t seq = number_of(v->line, "seq");
        got->lines++;
        got->in_row = seq == got->last + 1 ? got->in_row + 1 : 1;
        got->longest = got->in_row > got->longest ? got->in_row : got->longest;
        got->last = seq;
        got->rare += !strncmp(text_of(v->line, "to"), "bee.rare", 8);
        got->ends += !strcmp(text_of(v->line, "name"), "run");
    }
}

static bool reads_on(viewer_t *v, got_t *got)
{
    read_all(v, got);
    return true;
}

/* More sorts of lines come often than a burst has lines; others ten times a second. */
static void a_crowd_sees_bursts_what_is_rare_and_the_end(void)
{
    pl_frame_t often[KINDS];
    members_t crowd;
    viewer_t v;
    got_t got = {0};
    if (!may_open())
        return;
    stream_open(false);
    viewer_open(&v, "");
    members_join(&crowd, 200);
    ok(eventually(viewers_now() > 200), "a crowd");
    for (int k = 0; k < KINDS; k++)
        frame_of(&often[k], "bee", k, "");
    const int64_t began = pl_now();
    for (int k = 0; k < LINES_MS / 10; k++) {
        for (int i = 0; i < RARE && k % 10 == 0; i++)
            offer("bee.rare", i, "");
        for (int i = 0; i < KINDS; i++)
            pl_monitor_offer(rig.reactor, pl_frame_bytes(&often[i]));
        usleep(10000);
        read_all(&v, &got);
        if (k == LINES_MS / 20)                             /* at first all is new */
            got = (got_t){0};
    }
    const int turns = (int)((pl_now() - began) / PL_SECOND / 2);
    ok(got.longest >= 60, "%d lines that follow each other", got.longest);
    ok(got.rare >= RARE * (turns - 1), "%d of %d rare ones in %d turns", got.rare, RARE,
       turns);
    for (int k = 0; k < NEW; k++)
        offer("bee.new", k, "");
    for (int k = 0; k < ENDS; k++)
        offer_end(k);
    ok(eventually(reads_on(&v, &got) && got.ends == ENDS),
       "the ends of %d runs, among %d lines that are new", ENDS, NEW);
    for (int k = 0; k < KINDS; k++)
        pl_frame_release(&often[k]);
    viewer_close(&v);
    rig_close();
    members_leave(&crowd);
}

/* ---- what is held ---- */

static bool has_crowd(viewer_t *v, members_t *crowd, int count)
{
    if (!may_open())
        return false;
    stream_open(false);
    viewer_open(v, "");
    members_join(crowd, count);
    return ok(eventually(viewers_now() > count), "a crowd of %d", count);
}

/* More at once than are held, and fewer than wait for one of them. */
static void six_see_all_of_a_burst(void)
{
    enum { LINES = 1500 };
    char reason[301];
    members_t crowd;
    viewer_t v;
    got_t got = {0};
    if (!has_crowd(&v, &crowd, 5))
        return;
    memset(reason, 'r', 300);
    reason[300] = '\0';
    for (int k = 0; k < LINES; k++)
        offer("bee", k % 10, reason);
    (void)eventually(reads_on(&v, &got) && got.lines >= LINES);
    is_int(got.lines, LINES, "they see all lines");
    is_int(got.longest, LINES, "one behind the other");
    viewer_close(&v);
    rig_close();
    members_leave(&crowd);
}

static void held_lines_leave_before_the_stream_ends(void)
{
    members_t crowd;
    viewer_t v;
    got_t got = {0};
    if (!has_crowd(&v, &crowd, 300))
        return;
    for (int k = 0; k < 10; k++)
        offer("bee", k, "");
    rig_close();
    (void)eventually(reads_on(&v, &got) && got.lines >= 10);
    is_int(got.lines, 10, "they see all lines");
    viewer_close(&v);
    members_leave(&crowd);
}

/* Held as long as so many are. */
static void held_lines_leave_before_later_ones(void)
{
    members_t crowd;
    viewer_t v;
    got_t got = {0};
    if (!has_crowd(&v, &crowd, 900))
        return;
    for (int k = 0; k < 10; k++)
        offer("bee", k, "");
    ok(eventually(__atomic_load_n(&rig.runtime->monitor->waiting, __ATOMIC_RELAXED) == 0),
       "the hub has taken them");
    members_leave(&crowd);
    (void)eventually(viewers_now() <= 4);
    offer("bee", 0, "");
    (void)eventually(reads_on(&v, &got) && got.lines >= 11);
    is_int(got.lines, 11, "they see all lines");
    is_int(got.longest, 11, "in their order");
    viewer_close(&v);
    rig_close();
}

static void thousand_start(void)
{
    snprintf(thousands_endpoint, sizeof thousands_endpoint, "ipc://%s/thousands",
             tap_folder());
    crowd_start(&thousand, thousands_endpoint, THOUSAND,
                "\"kind\": \"error\", \"name\": \"stop\"", false);
    crowd_start(&stopped, thousands_endpoint, 1,
                "\"kind\": \"error\", \"name\": \"stop\"", false);
}

int main(void)
{
    thousand_start();
    getrlimit(RLIMIT_NOFILE, &descriptors);
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
    pl_log_hook(note_line, PL_LOG_WARNING, NULL);
    run(a_thousand_viewers_see_a_run_although_one_is_stopped);
    run(a_crowd_sees_bursts_what_is_rare_and_the_end);
    run(six_see_all_of_a_burst);
    run(held_lines_leave_before_the_stream_ends);
    run(held_lines_leave_before_later_ones);
    run(a_crowd_is_admitted_up_to_the_limit);
    run(a_socket_file_admits_viewers_up_to_the_limit);
    run(few_descriptors_stop_accepting_with_a_warning);
    crowd_stop(&thousand);
    crowd_stop(&stopped);
    return tap_done();
}
