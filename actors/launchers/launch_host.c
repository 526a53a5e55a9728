/* launch_host.c - node 0 of paceline launch: which nodes take part, and what follows
 * from a failure
 *
 * Attempts follow each other.  One begins when all nodes are present or, after a while,
 * the least number of them; it is over when all ranks of all its nodes have ended.  The
 * death of a rank ends the attempt for all ranks, and so does the loss of a node.  A node
 * that joins while others train has the run saved and stopped, and takes part in the next
 * attempt. */
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "actors/launchers/launch.h"
#include "actors/launchers/restarts.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/timeouts.h"

typedef enum host_state {
    HOST_WAITS,                            /* for nodes */
    HOST_RUNS,                             /* an attempt is under way */
    HOST_LEAVES,                           /* the job has ended; the nodes are informed */
    HOST_IS_DONE,
} host_state_t;

typedef struct node_slot {
    launch_host_t *host;
    bool is_there, runs;
    pl_outbox_t outbox;                                     /* of another node */
    char about[128];                                        /* "HOST process NUMBER" */
} node_slot_t;

struct launch_host {
    pl_launch_t *launch;
    host_state_t state;
    pl_link_t *link;                                /* [there is one node] */
    struct event *timer, *tell;                     /* tell: see failure_tell() */
    uint32_t attempt;                               /* the newest, from 1 */
    char endpoint[LAUNCH_ENDPOINT], job[LAUNCH_JOB];  /* its */
    pl_failure_t failure;                           /* the first, or its cause */
    int failed;                                     /* number of its node */
    bool is_decided;                                /* whether another attempt follows: */
    bool again;                                     /* it does */
    bool node_joined;                               /* a node has joined */
    pl_restart_policy_t policy;
    int64_t waits;                    /* for nodes, since when */
    int64_t not_before;               /* the next attempt */
    int64_t until;                    /* limit for ranks to end, and for nodes to leave */
    int64_t stop_until;               /* the same after a signal to this process */
    int count;
    node_slot_t slot[];                                     /* [count], by node rank */
};

/* Calls host_look() later, never within a callback of the children. */
static void host_soon(launch_host_t *h, int64_t ns)
{
    const int64_t us = PL_MILLISECOND / 1000, wait = ns > 0 ? ns / us + 1 : 0;
    const struct timeval in = {wait / 1000000, wait % 1000000};
    event_add(h->timer, &in);
}

static int host_there(const launch_host_t *h)
{
    int there = 0;
    for (int k = 0; k < h->count; k++)
        there += h->slot[k].is_there;
    return there;
}

static bool host_has_ranks(const launch_host_t *h)
{
    for (int k = 0; k < h->count; k++)
        if (h->slot[k].runs)
            return true;
    return false;
}

static void slot_send(node_slot_t *slot, pl_message_t message, const void *fields)
{
    pl_outbox_post(&slot->outbox, PL_KIND_CALL, message, slot->host->attempt, fields,
                   NULL);
}

static void host_signal(launch_host_t *h, int number)
{
    launch_signal(h->launch, number);
    for (int k = 1; k < h->count; k++)
        if (h->slot[k].runs)
            slot_send(&h->slot[k], PL_MESSAGE_signal_ranks,
                      &(pl_signal_ranks_t){.signal = (uint32_t)number});
}

void host_rank_finished(launch_host_t *h, int number, int rank, const char *text)
{
    const pl_report_finished_rank_t left = {.rank = (uint32_t)rank, .text = text};
    for (int k = 1; k < h->count; k++)
        if (h->slot[k].runs && k != number)
            slot_send(&h->slot[k], PL_MESSAGE_report_finished_rank, &left);
}

/* ---- The end of the job ---- */

static void host_finish(launch_host_t *h)
{
    const pl_end_node_t end = {.status = (uint32_t)h->failure.status,
                               .text = h->failure.error.code ? h->failure.error.text
                                                             : ""};
    h->state = HOST_LEAVES;
    h->until = pl_now() + PL_LEAVE_MS * PL_MILLISECOND;
    for (int k = 1; k < h->count; k++)
        if (h->slot[k].is_there)
            slot_send(&h->slot[k], PL_MESSAGE_end_node, &end);
    host_soon(h, 0);
}

static void host_abort(launch_host_t *h, int status, const pl_error_t *error)
{
    h->failure = (pl_failure_t){.status = status, .error = *error};
    host_finish(h);
}

/* ---- An attempt ---- */

static bool host_has_failed(const launch_host_t *h)
{
    return h->failure.error.code != PL_OK;
}

/* Ranks that are stopped for a new node may fail because of that: before they listen, or
 * before all ranks have joined.  Another failure occurs again in the next attempt. */
static bool restarts_for_node(const launch_host_t *h)
{
    return h->node_joined && !h->launch->was_signalled && !h->failure.may_pass;
}

/* Ranks may be killed at any time: checkpoints are complete or absent. */
static void failure_decide(launch_host_t *h)
{
    int wait = restarts_for_node(h) ? 0 : -1;
    if (h->failure.may_pass && !h->launch->was_signalled)
        wait = pl_restart_policy_add(&h->policy, 0, h->failed);
    h->is_decided = true;
    h->again = wait >= 0;
    h->not_before = pl_now() + wait * PL_MILLISECOND;
    h->until = h->launch->was_signalled
                   ? h->stop_until
                   : pl_now() + (h->again ? 0 : PL_NODE_END_MS) * PL_MILLISECOND;
    if (!h->again && !h->launch->was_signalled) {
        host_signal(h, SIGTERM);
        host_signal(h, SIGCONT);                    /* a stopped process takes no other */
    }
}

/* Reports the failure without a wait for ranks that do not end soon. */
static void failure_tell(evutil_socket_t fd, short what, void *user)
{
    const launch_host_t *h = user;
    (void)fd, (void)what;
    if (host_has_failed(h) && host_has_ranks(h) && !h->launch->was_signalled)
        launch_note(h->launch, "%s; the other ranks are ended", h->failure.error.text);
}

/* The report of a rank that lost another may arrive before the cause: the cause
 * counts. */
void host_failed(launch_host_t *h, int number, const pl_failure_t *failure)
{
    const bool is_cause = failure->status != PL_STATUS_LOST;
    if (h->state != HOST_RUNS
        || (host_has_failed(h) && (h->failure.status != PL_STATUS_LOST || !is_cause)))
        return;
    const bool had_failed = host_has_failed(h);
    h->failure = *failure;
    h->failed = number;
    if (number)
        pl_error_prefix(&h->failure.error, "node %d (%s)", number, h->slot[number].about);
    if (is_cause && !h->is_decided)
        failure_decide(h);
    else if (!had_failed)
        h->until = pl_now() + PL_NODE_CAUSE_MS * PL_MILLISECOND;
    if (!had_failed)
        event_add(h->tell, &(struct timeval){0, PL_FAILURE_REPORT_MS * 1000});
    host_soon(h, h->until - pl_now());
}

void host_ended(launch_host_t *h, int number)
{
    h->slot[number].runs = false;
    host_soon(h, 0);
}

/* With several nodes, the ranks of each attempt connect at an address of their own. */
static int host_begin(launch_host_t *h, pl_error_t *err)
{
    uint64_t number = 0;
    int code = PL_OK;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)pl_now();
    if (!*h->job)
        snprintf(h->job, sizeof h->job, "%016" PRIx64, number);
    if (h->link)
        code = pl_rendezvous_beside(h->launch->endpoint, h->endpoint, sizeof h->endpoint,
                                    err);
    else
        snprintf(h->endpoint, sizeof h->endpoint, "%s", h->launch->endpoint);
    const launch_attempt_t attempt = {.number = h->attempt + 1,
                                      .nodes = host_there(h),
                                      .endpoint = h->endpoint,
                                      .job = h->job};
    if (code == PL_OK)
        code = launch_begin(h->launch, &attempt, err);
    if (code != PL_OK)
        return code;
    h->state = HOST_RUNS;
    h->attempt++;
    h->failure = (pl_failure_t){0};
    h->is_decided = h->again = h->node_joined = false;
    h->slot[0].runs = true;
    pl_begin_ranks_t begin = {.nodes = (uint32_t)attempt.nodes,
                              .endpoint = h->endpoint,
                              .job = h->job};
    for (int k = 1; k < h->count; k++)
        if (h->slot[k].is_there) {
            begin.node_rank++;
            h->slot[k].runs = true;
            slot_send(&h->slot[k], PL_MESSAGE_begin_ranks, &begin);
        }
    if (h->link && attempt.nodes < h->count)
        launch_note(h->launch, "%d of %d nodes %s part", attempt.nodes, h->count,
                    attempt.nodes == 1 ? "takes" : "take");
    return PL_OK;
}

/* ---- What to do next ---- */

static void attempt_over(launch_host_t *h)
{
    const bool failed = host_has_failed(h);
    if (failed && !h->is_decided)
        failure_decide(h);
    if (failed && !h->again && h->failure.may_pass)
        pl_restart_policy_report(&h->policy, NULL, &h->failure.error);
    const bool continues = !h->launch->was_signalled
                           && (failed ? h->again : h->node_joined);
    h->waits = pl_now();
    h->state = HOST_WAITS;
    if (!continues)
        host_finish(h);
    else if (failed && restarts_for_node(h) && h->failure.status != 128 + SIGTERM)
        launch_note(h->launch, "%s; all ranks are started again, with the node",
                    h->failure.error.text);
    else if (failed && !restarts_for_node(h))
        launch_note(h->launch, "%s; all ranks are started again (%d of %d)",
                    h->failure.error.text, h->policy.count, (int)h->policy.max);
    if (h->state == HOST_WAITS)
        host_soon(h, 0);
}

static void host_gather(launch_host_t *h)
{
    const pl_launch_spec_t *s = &h->launch->spec;
    const int there = host_there(h);
    const bool enough = there >= s->nodes_min;
    const double timeout = enough ? s->last_call_timeout : s->join_timeout;
    const int64_t now = pl_now(), until = h->waits + (int64_t)(timeout * PL_SECOND);
    char missing[200] = "";
    size_t length = 0;
    pl_error_t err = {0};
    if (now < h->not_before) {
        host_soon(h, h->not_before - now);
    } else if (there == h->count || (enough && now >= until)) {
        if (host_begin(h, &err) != PL_OK)
            host_abort(h, LAUNCH_WRONG, &err);
    } else if (now >= until) {
        for (int k = 1; k < h->count && length < sizeof missing - 16; k++)
            if (!h->slot[k].is_there)
                length += (size_t)snprintf(missing + length, sizeof missing - length,
                                           "%s%d", length ? ", " : "", k);
        pl_fail(&err, PL_ETIMEOUT,
                "the job needs %d nodes, but only %d joined within %g s: node %s is "
                "missing",
                s->nodes_min, there, s->join_timeout, missing);
        host_abort(h, 1, &err);
    } else {
        host_soon(h, until - now);
    }
}

static void host_look(evutil_socket_t fd, short what, void *user)
{
    launch_host_t *h = user;
    const bool failed = host_has_failed(h),
               is_to_end = failed || h->launch->was_signalled;
    const int64_t left = h->until - pl_now();
    (void)fd, (void)what;
    switch (h->state) {
    case HOST_WAITS: host_gather(h); break;
    case HOST_RUNS:
        if (!host_has_ranks(h)) {
            attempt_over(h);
        } else if (is_to_end && left > 0) {
            host_soon(h, left);
        } else if (failed && !h->is_decided) {
            failure_decide(h);
            host_soon(h, h->until - pl_now());
        } else if (is_to_end) {
            host_signal(h, SIGKILL);
        }
        break;
    case HOST_LEAVES:
        if (host_there(h) > 1 && left > 0) {
            host_soon(h, left);
        } else {
            h->state = HOST_IS_DONE;
            launch_end(h->launch, &h->failure);
        }
        break;
    case HOST_IS_DONE: break;
    }
}

void host_signalled(launch_host_t *h, int number, bool is_second)
{
    pl_error_t none = {0};
    h->stop_until = pl_now() + PL_NODE_STOP_MS * PL_MILLISECOND;
    if (h->state == HOST_WAITS || (h->state == HOST_RUNS && is_second)) {
        host_abort(h, is_second ? LAUNCH_ABORTED : 128 + number, &none);
    } else if (h->state == HOST_RUNS && !host_has_failed(h)) {
        h->until = h->stop_until;
        host_soon(h, h->until - pl_now());
    }
}

/* ---- Other nodes ---- */

static void slot_gone(node_slot_t *slot, const char *why)
{
    launch_host_t *h = slot->host;
    const bool ran = slot->runs;
    pl_failure_t failure = {.status = 1, .may_pass = true};
    pl_outbox_release(&slot->outbox);
    slot->is_there = slot->runs = false;
    pl_fail(&failure.error, PL_EDIED, "the node is gone: %s", why);
    if (ran)
        host_failed(h, (int)(slot - h->slot), &failure);
    host_soon(h, 0);
}

/* A node that joins while others train begins with what they save. */
static void event_came(void *user, int number, pl_link_event_t event, const char *text)
{
    launch_host_t *h = user;
    node_slot_t *slot = number > 0 && number < h->count ? &h->slot[number] : NULL;
    if (event == PL_LINK_REFUSED)
        launch_note(h->launch, "the connection of a node was refused: %s", text);
    if (!slot)
        return;
    switch (event) {
    case PL_LINK_JOINED:
        slot->is_there = true;
        snprintf(slot->about, sizeof slot->about, "%s", text);
        if (h->state == HOST_RUNS && h->launch->was_signalled) {
            launch_note(h->launch,
                        "node %d (%s) has joined: the run is being stopped, so the node "
                        "takes no part",
                        number, text);
        } else if (h->state == HOST_RUNS && !host_has_failed(h) && !h->node_joined) {
            launch_note(h->launch,
                        "node %d (%s) has joined: saving the run to continue with it",
                        number, text);
            h->node_joined = true;
            launch_signal(h->launch, SIGTERM);
        }
        host_soon(h, 0);
        break;
    case PL_LINK_WRITABLE: pl_outbox_flush(&slot->outbox); break;
    case PL_LINK_GONE:
    case PL_LINK_LEFT: slot_gone(slot, text); break;
    case PL_LINK_SILENT:
        pl_link_dismiss(h->link, number, "the node sent nothing for too long");
        slot_gone(slot, text);
        break;
    default: break;
    }
}

/* Messages about the ranks of a node in this attempt. */
static void message_came(void *user, int number, pl_frame_t *frame)
{
    launch_host_t *h = user;
    const node_slot_t *slot = &h->slot[number];
    pl_incoming_t m;
    if (pl_incoming_read(&m, &slot->outbox, pl_frame_bytes(frame), NULL) != PL_OK
        || m.envelope.call != h->attempt || !slot->runs)
        return;
    const pl_report_finished_rank_t *finished = &m.body.report_finished_rank;
    const pl_begin_ranks_progress_t *failed = &m.body.begin_ranks_progress;
    if (m.envelope.message == PL_MESSAGE_report_finished_rank) {
        launch_rank_finished(h->launch, (int)finished->rank, finished->text);
        host_rank_finished(h, number, (int)finished->rank, finished->text);
    } else if (m.envelope.kind == PL_KIND_PROGRESS) {
        pl_failure_t failure = {(int)failed->status, failed->transient, {0}};
        pl_fail(&failure.error, PL_EDIED, "%s", failed->text);
        host_failed(h, number, &failure);
    } else {
        host_ended(h, number);
    }
}

/* ---- Life ---- */

static int host_listen(launch_host_t *h, pl_error_t *err)
{
    char calls[LAUNCH_ENDPOINT], bulk[LAUNCH_ENDPOINT], stream[LAUNCH_ENDPOINT];
    const pl_link_spec_t spec = {.endpoint = calls,
                                 .has_own_rank = true,
                                 .may_be_replaced = true,
                                 .times.join = INT_MAX,
                                 .on_message = message_came,
                                 .on_event = event_came,
                                 .user = h};
    if (pl_rendezvous_places(h->launch->endpoint, calls, bulk, stream, sizeof calls, err)
        == PL_OK)
        h->link = launch_link(h->launch, spec, err);
    for (int k = 1; k < h->count; k++)
        h->slot[k].outbox = (pl_outbox_t){.link = h->link,
                                          .peer = k,
                                          .is_of_node = true,
                                          .run = LAUNCH_RUN,
                                          .incarnation = 1};
    return h->link ? PL_OK : err->code;
}

launch_host_t *host_open(pl_launch_t *launch, pl_error_t *err)
{
    const int count = launch->spec.nodes;
    launch_host_t *h = pl_alloc(sizeof *h + (size_t)count * sizeof *h->slot);
    if (!h) {
        pl_no_memory(err);
        return NULL;
    }
    h->launch = launch;
    h->count = count;
    h->waits = pl_now();
    h->policy.max = launch->spec.max_restarts;
    for (int k = 0; k < count; k++)
        h->slot[k] = (node_slot_t){.host = h, .is_there = k == 0};
    h->timer = event_new(launch->loop.base, -1, 0, host_look, h);
    h->tell = event_new(launch->loop.base, -1, 0, failure_tell, h);
    int code = h->timer && h->tell ? PL_OK : pl_no_memory(err);
    if (code == PL_OK && count > 1)
        code = host_listen(h, err);
    if (code == PL_OK && count == 1) {
        launch->host = h;
        code = host_begin(h, err);
    } else if (code == PL_OK) {
        host_soon(h, 0);
    }
    if (code == PL_OK)
        return h;
    launch->host = NULL;
    host_free(h);
    return NULL;
}

void host_free(launch_host_t *h)
{
    if (!h)
        return;
    pl_link_free(h->link);
    for (int k = 0; k < h->count; k++)
        pl_outbox_release(&h->slot[k].outbox);
    if (h->timer)
        event_free(h->timer);
    if (h->tell)
        event_free(h->tell);
    pl_free(h);
}
