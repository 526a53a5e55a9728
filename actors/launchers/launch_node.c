/* launch_node.c - paceline launch on any node but the first: obeys node 0
 *
 * Node 0 says when its ranks begin, receive signals and end; this node reports their
 * ends. If nothing arrives from node 0, the node ends its ranks, so that none
 * continues alone. If ranks may be started again, it connects again: the network may
 * have been cut, or node 0 restarted. */
#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>

#include "actors/launchers/launch.h"
#include "actors/launchers/forwarding.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/timeouts.h"

struct launch_node {
    pl_launch_t *launch;
    pl_link_t *link;
    pl_outbox_t outbox;
    struct event *timer;                                    /* what to do next */
    uint32_t attempt;                                       /* 0: none yet */
    bool has_joined, runs;
    bool is_lost;                                 /* node 0 is to be looked for again */
    bool leaves, is_done;                         /* the job has ended; it was reported */
    pl_failure_t end;                             /* how */
};

static void node_soon(launch_node_t *n, int ms)
{
    const struct timeval in = {ms / 1000, ms % 1000 * 1000};
    event_add(n->timer, &in);
}

static void node_leave(launch_node_t *n, int status, const pl_error_t *error)
{
    if (n->leaves)
        return;
    n->leaves = true;
    n->end.status = status;
    if (error)
        n->end.error = *error;
    launch_signal(n->launch, SIGKILL);
    pl_link_leave(n->link, NULL);
    node_soon(n, n->has_joined ? PL_LEAVE_MS : 0);
}

/* ---- Its ranks ---- */

static void node_tell(launch_node_t *n, pl_kind_t kind, pl_message_t message,
                      const void *fields)
{
    if (!n->is_lost && !n->leaves)
        pl_outbox_post(&n->outbox, kind, message, n->attempt, fields, NULL);
}

void node_failed(launch_node_t *n, const pl_failure_t *failure)
{
    const pl_begin_ranks_progress_t msg = {.status = (uint32_t)failure->status,
                                           .transient = failure->may_pass,
                                           .text = failure->error.text};
    node_tell(n, PL_KIND_PROGRESS, PL_MESSAGE_begin_ranks, &msg);
}

void node_rank_finished(launch_node_t *n, int rank, const char *text)
{
    const pl_report_finished_rank_t left = {.rank = (uint32_t)rank, .text = text};
    node_tell(n, PL_KIND_CALL, PL_MESSAGE_report_finished_rank, &left);
}

void node_ended(launch_node_t *n)
{
    n->runs = false;
    node_tell(n, PL_KIND_REPLY, PL_MESSAGE_begin_ranks, &(pl_begin_ranks_reply_t){0});
    if (n->is_lost)
        node_soon(n, 0);
}

/* ---- Messages of node 0 ---- */

static void ranks_begin(launch_node_t *n, uint64_t number, const pl_begin_ranks_t *msg)
{
    pl_failure_t failure = {.status = LAUNCH_WRONG};
    const launch_attempt_t attempt = {.number = (uint32_t)number,
                                      .nodes = (int)msg->nodes,
                                      .node_rank = (int)msg->node_rank,
                                      .endpoint = msg->endpoint,
                                      .job = msg->job};
    const int per_node = n->launch->spec.devices, first = attempt.node_rank * per_node;
    char ranks[48];
    if (n->runs)
        return;
    n->attempt = (uint32_t)number;
    n->runs = launch_begin(n->launch, &attempt, &failure.error) == PL_OK;
    if (!n->runs) {
        node_failed(n, &failure);
        node_ended(n);
        return;
    }
    snprintf(ranks, sizeof ranks, per_node == 1 ? "rank %d" : "ranks %d to %d", first,
             first + per_node - 1);
    launch_note(n->launch, "%s of %d start%s here; node 0 shows the output of the run",
                ranks, attempt.nodes * per_node, per_node == 1 ? "s" : "");
}

static void job_ended(launch_node_t *n, const pl_end_node_t *msg)
{
    pl_error_t error = {0};
    if (*msg->text)
        pl_fail(&error, PL_EDIED, "%s", msg->text);
    else if (!msg->status && !n->launch->was_signalled)
        launch_note(n->launch, "all ranks have ended");
    node_leave(n, (int)msg->status, &error);
}

static void message_came(void *user, int peer, pl_frame_t *frame)
{
    launch_node_t *n = user;
    pl_incoming_t m;
    (void)peer;
    if (pl_incoming_read(&m, &n->outbox, pl_frame_bytes(frame), NULL) != PL_OK)
        return;
    const pl_report_finished_rank_t *finished = &m.body.report_finished_rank;
    if (m.envelope.message == PL_MESSAGE_begin_ranks)
        ranks_begin(n, m.envelope.call, &m.body.begin_ranks);
    else if (m.envelope.message == PL_MESSAGE_signal_ranks)
        launch_signal(n->launch, (int)m.body.signal_ranks.signal);
    else if (m.envelope.message == PL_MESSAGE_end_node)
        job_ended(n, &m.body.end_node);
    else if (m.envelope.call == n->attempt)
        launch_rank_finished(n->launch, (int)finished->rank, finished->text);
}

static void event_came(void *user, int peer, pl_link_event_t event, const char *text)
{
    launch_node_t *n = user;
    pl_error_t error = {0};
    (void)peer;
    if (event == PL_LINK_JOINED)
        n->has_joined = true;
    if (event == PL_LINK_JOINED || event == PL_LINK_WRITABLE)
        pl_outbox_flush(&n->outbox);
    if (n->leaves && (event == PL_LINK_LEFT || event == PL_LINK_GONE))
        node_soon(n, 0);
    if (n->leaves || event != PL_LINK_GONE)
        return;
    n->is_lost = n->has_joined && n->launch->spec.max_restarts;
    if (n->is_lost) {
        launch_note(n->launch, "node 0 is gone: %s; waiting for it to return", text);
        launch_signal(n->launch, SIGKILL);
        if (!n->runs)
            node_soon(n, 0);
    } else {
        pl_fail(&error, PL_EPEER, n->has_joined ? "node 0 is gone: %s" : "%s", text);
        node_leave(n, 1, &error);
    }
}

/* ---- Life ---- */

static int link_open(launch_node_t *n, pl_error_t *err)
{
    pl_launch_t *launch = n->launch;
    char *traits = launch_traits(launch);
    if (!traits)
        return pl_no_memory(err);
    const double join_ms = launch->spec.join_timeout * 1000;
    const int join = join_ms < INT_MAX ? (int)join_ms : INT_MAX;
    const pl_link_spec_t spec = {.endpoint = launch->endpoint,
                                 .keys = *launch->job_key ? &launch->keys : NULL,
                                 .run = LAUNCH_RUN,
                                 .incarnation = 1,
                                 .world_size = launch->spec.nodes,
                                 .rank = launch->spec.node_rank,
                                 .watches = true,
                                 .traits = traits,
                                 .times = {.join = join, .has_lease = true},
                                 .on_message = message_came,
                                 .on_event = event_came,
                                 .user = n};
    pl_link_free(n->link);
    pl_outbox_release(&n->outbox);
    n->has_joined = n->is_lost = false;
    n->link = pl_link_connect(&spec, &launch->loop, err);
    n->outbox = (pl_outbox_t){.link = n->link,
                              .peer = PL_LINK_HOST,
                              .is_of_node = true,
                              .run = LAUNCH_RUN,
                              .incarnation = 1};
    pl_text_free(traits);
    return n->link ? PL_OK : err->code;
}

static void node_look(evutil_socket_t fd, short what, void *user)
{
    launch_node_t *n = user;
    (void)fd, (void)what;
    if (n->is_lost && !n->leaves && link_open(n, &n->end.error) != PL_OK) {
        n->leaves = true;
        n->end.status = 1;
    }
    if (!n->leaves || n->is_done)
        return;
    n->is_done = true;
    launch_end(n->launch, &n->end);
}

void node_signalled(launch_node_t *n, int number, bool is_second)
{
    if (is_second || !n->runs)
        node_leave(n, is_second ? LAUNCH_ABORTED : 128 + number, NULL);
}

launch_node_t *node_open(pl_launch_t *launch, pl_error_t *err)
{
    launch_node_t *n = pl_alloc(sizeof *n);
    if (!n) {
        pl_no_memory(err);
        return NULL;
    }
    n->launch = launch;
    n->timer = event_new(launch->loop.base, -1, 0, node_look, n);
    int code = n->timer ? link_open(n, err) : pl_no_memory(err);
    if (code == PL_OK)
        return n;
    node_free(n);
    return NULL;
}

void node_free(launch_node_t *n)
{
    if (!n)
        return;
    pl_link_free(n->link);
    pl_outbox_release(&n->outbox);
    if (n->timer)
        event_free(n->timer);
    pl_free(n);
}
