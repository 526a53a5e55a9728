/* launch_node.c - tests of actors/launchers/launch.c: a node of paceline launch,
 * whose node 0 is this test */
#include "actors/launchers/launch.h"

#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/launchers/forwarding.h"
#include "tap.h"

/* The first rank has lost the other one when `lost` exists, which is killed later. */
static const char *const ranks[] = {
    "sh", "-c",
    "wait_for() { until [ -e \"$1\" ]; do sleep 0.01; done; }\n"
    "[ $PACELINE_LOCAL_RANK = 0 ] && { wait_for lost; exit 75; }\n"
    "wait_for killed; kill -KILL $$",
    NULL};

typedef struct scene {
    pl_sockets_t loop;
    pl_link_t *link;
    pl_outbox_t outbox;
    pl_launch_t *node;
    bool has_joined, has_ended;
    int reports, status;                                    /* the newest */
} scene_t;

static void message_came(void *user, int peer, pl_frame_t *frame)
{
    scene_t *s = user;
    pl_incoming_t m;
    (void)peer;
    if (pl_incoming_read(&m, &s->outbox, pl_frame_bytes(frame), NULL) != PL_OK)
        return;
    s->has_ended |= m.envelope.kind == PL_KIND_REPLY;
    if (m.envelope.kind != PL_KIND_PROGRESS)
        return;
    s->reports++;
    s->status = (int)m.body.begin_ranks_progress.status;
}

static void event_came(void *user, int peer, pl_link_event_t event, const char *text)
{
    (void)peer, (void)text;
    ((scene_t *)user)->has_joined |= event == PL_LINK_JOINED;
}

static bool turn(scene_t *s)
{
    const struct timeval soon = {0, 10000};
    event_base_loopexit(s->loop.base, &soon);
    event_base_loop(s->loop.base, EVLOOP_ONCE);
    pl_sockets_flush(&s->loop);
    return true;
}

static void file_make(const char *name)
{
    close(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void scene_open(scene_t *s)
{
    static char endpoint[300];
    pl_error_t err = {0};
    unlink("lost");
    unlink("killed");
    *s = (scene_t){.loop = {.base = event_base_new()}};
    snprintf(endpoint, sizeof endpoint, "ipc://%s/nodes", tap_folder());
    const pl_link_spec_t spec = {.endpoint = endpoint,
                                 .run = LAUNCH_RUN,
                                 .incarnation = 1,
                                 .world_size = 2,
                                 .on_message = message_came,
                                 .on_event = event_came,
                                 .user = s};
    const pl_launch_spec_t launch = {
        .nodes = 2, .node_rank = 1, .devices = 2, .endpoint = endpoint, .argv = ranks};
    s->link = pl_link_listen(&spec, &s->loop, &err);
    s->outbox = (pl_outbox_t){.link = s->link,
                              .peer = 1,
                              .is_of_node = true,
                              .run = LAUNCH_RUN,
                              .incarnation = 1};
    s->node = pl_launch_start(s->loop.base, &launch, &err);
    ok(s->link && s->node, "a node starts: %s", err.text);
    ok(eventually(turn(s) && s->has_joined), "and joins");
    const pl_begin_ranks_t begin = {.nodes = 2,
                                    .node_rank = 1,
                                    .endpoint = "ipc://nowhere",
                                    .job = "job"};
    pl_outbox_post(&s->outbox, PL_KIND_CALL, PL_MESSAGE_begin_ranks, 1, &begin, NULL);
}

static void scene_close(scene_t *s)
{
    pl_launch_free(s->node);
    pl_outbox_release(&s->outbox);
    pl_link_free(s->link);
    event_base_free(s->loop.base);
}

/* The death of a rank by a signal that node 0 has sent is not the cause of a failure.
 * All these numbers have the lowest six bits of SIGKILL. */
static void numbers_that_are_no_signals_are_not_sent(void)
{
    static const uint32_t numbers[] = {64 + 9, 0x80000009, 0xffffffc9};
    for (int k = 0; k < 3; k++) {
        scene_t s;
        scene_open(&s);
        pl_outbox_post(&s.outbox, PL_KIND_CALL, PL_MESSAGE_signal_ranks, 1,
                       &(pl_signal_ranks_t){.signal = numbers[k]}, NULL);
        file_make("lost");
        ok(eventually(turn(&s) && s.reports == 1), "signal %u: one rank has ended",
           numbers[k]);
        is_int(s.status, 75, "because it lost the other one");
        file_make("killed");
        ok(eventually(turn(&s) && s.has_ended), "which is killed");
        is_int(s.reports, 2, "that is reported as the cause");
        is_int(s.status, 128 + 9, "with its status");
        scene_close(&s);
    }
}

static void messages_that_no_node_accepts_are_dropped(void)
{
    scene_t s;
    scene_open(&s);
    pl_outbox_post(&s.outbox, PL_KIND_REPLY, PL_MESSAGE_end_node, 1,
                   &(pl_end_node_reply_t){0}, NULL);
    pl_outbox_post(&s.outbox, PL_KIND_CALL, PL_MESSAGE_join, 1,
                   &(pl_join_t){.addresses = ""}, NULL);
    file_make("lost");
    file_make("killed");
    ok(eventually(turn(&s) && s.has_ended), "its ranks run to their end");
    is_int(s.status, 128 + 9, "and the node reports their failure");
    scene_close(&s);
}

int main(void)
{
    if (chdir(tap_folder()) != 0)
        return 1;
    run(numbers_that_are_no_signals_are_not_sent);
    run(messages_that_no_node_accepts_are_dropped);
    return tap_done();
}
