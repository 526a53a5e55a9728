/* launch.c - paceline launch: the ranks of one node, and how a node obeys node 0
 *
 * When one rank dies all ranks end, on all nodes, and all are started again.  Node 0
 * decides (launch_host.c): it says when the ranks of the other nodes begin, receive
 * signals and end; they report their ends.  If nothing arrives from node 0, a node ends
 * its ranks, so that none continues alone.  If ranks may be started again, it connects
 * again: the network may have been cut, or node 0 restarted.
 *
 * This file has what all nodes have, and the other nodes.  Only processes that were
 * started here receive signals. */
#include "actors/launchers/launch.h"

#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/launchers/restarts.h"
#include "actors/launchers/supervisor.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "base/limits.h"
#include "base/timeouts.h"
#include "transport/port_holder.h"
#include "transport/process.h"

enum {
    VARIABLE = PATH_MAX + 64,
    SIGNALS_MAX = 63,                                       /* `sent` has 64 bits */
};
static const double USUAL_JOIN_S = 60, USUAL_LAST_CALL_S = 10, SECONDS_MAX = 1e9;

/* ---- What a node that obeys reports to node 0 ---- */

typedef enum node_state {
    NODE_JOINS,
    NODE_IS_THERE,
    NODE_LOST,                                      /* node 0 is to be looked for again */
    NODE_LEAVES,                                    /* the job has ended */
    NODE_IS_DONE,                                   /* that was reported */
} node_state_t;

struct launch_node {
    pl_launch_t *launch;
    node_state_t state;
    pl_link_t *link;
    pl_outbox_t outbox;
    struct event *timer;                                    /* what to do next */
    uint32_t attempt;                                       /* 0: none yet */
    bool runs;
    pl_failure_t end;                                       /* how the job has ended */
};

static void node_soon(launch_node_t *n, int ms)
{
    const struct timeval in = {ms / 1000, ms % 1000 * 1000};
    event_add(n->timer, &in);
}

static void node_leave(launch_node_t *n, int status, const pl_error_t *error)
{
    const bool was_there = n->state != NODE_JOINS;
    if (n->state >= NODE_LEAVES)
        return;
    n->state = NODE_LEAVES;
    n->end.status = status;
    if (error)
        n->end.error = *error;
    launch_signal(n->launch, SIGKILL);
    pl_link_leave(n->link, NULL);
    node_soon(n, was_there ? PL_LEAVE_MS : 0);
}

static void node_tell(launch_node_t *n, pl_kind_t kind, pl_message_t message,
                      const void *fields)
{
    if (n->state < NODE_LOST)
        pl_outbox_post(&n->outbox, kind, message, n->attempt, fields, NULL);
}

static void node_failed(launch_node_t *n, const pl_failure_t *failure)
{
    const pl_begin_ranks_progress_t msg = {.status = (uint32_t)failure->status,
                                           .transient = failure->may_pass,
                                           .text = failure->error.text};
    node_tell(n, PL_KIND_PROGRESS, PL_MESSAGE_begin_ranks, &msg);
}

static void node_ended(launch_node_t *n)
{
    n->runs = false;
    node_tell(n, PL_KIND_REPLY, PL_MESSAGE_begin_ranks, &(pl_begin_ranks_reply_t){0});
    if (n->state == NODE_LOST)
        node_soon(n, 0);
}

/* ---- The children of one attempt ---- */

typedef struct launch_child {
    pl_launch_t *launch;
    int rank;
    pl_supervisor_t *process;                               /* [has ended] */
} child_t;

static const char *file_of(const pl_launch_t *launch, pl_folder_file_t file,
                           char text[PL_FOLDER_PATH])
{
    return pl_folder_path(launch->folder, file, text) + strlen("ipc://");
}

void launch_rank_finished(const pl_launch_t *launch, int rank, const char *text)
{
    char name[PL_FOLDER_PATH];
    pl_finished_ranks_add(file_of(launch, PL_FOLDER_FINISHED_RANKS, name), rank, text);
}

/* A rank with status 0 fails only the ranks that wait for it, on any node. */
static void child_left(const child_t *child)
{
    const pl_launch_t *launch = child->launch;
    pl_error_t left;
    pl_fail(&left, PL_EDIED, "rank %d (process %d) exited with status 0 before it joined",
            child->rank, pl_supervisor_process_id(child->process));
    pl_supervisor_last_words(child->process, false, &left);
    launch_rank_finished(launch, child->rank, left.text);
    if (launch->host)
        host_rank_finished(launch->host, 0, child->rank, left.text);
    else
        node_tell(launch->node, PL_KIND_CALL, PL_MESSAGE_report_finished_rank,
                  &(pl_report_finished_rank_t){(uint32_t)child->rank, left.text});
}

/* A process that ends by a signal that it was sent has not failed before the others.  One
 * that was requested to end, or did not end when it was, is not started again. */
static void child_failed(const child_t *child, int status, const pl_death_t *death)
{
    pl_launch_t *launch = child->launch;
    const int number = status - 128;
    const bool is_signal = number > 0 && number < NSIG,
               was_sent = is_signal && number <= SIGNALS_MAX
                          && launch->sent >> number & 1,
               is_cause = status != PL_STATUS_LOST && !was_sent;
    char text[PL_DEATH_TEXT];
    pl_failure_t failure = {.status = status,
                            .may_pass = status == PL_STATUS_LOST
                                        || (is_signal && !launch->was_signalled
                                            && number != SIGINT && number != SIGTERM
                                            && number != SIGHUP)};
    if (launch->reported && (launch->reported != PL_STATUS_LOST || !is_cause))
        return;
    pl_fail(&failure.error, PL_EDIED, "rank %d (process %d) %s", child->rank,
            pl_supervisor_process_id(child->process), pl_death_text(death, text));
    pl_supervisor_last_words(child->process, launch->spec.on_line != NULL,
                             &failure.error);
    launch->reported = status;
    if (launch->host)
        host_failed(launch->host, 0, &failure);
    else
        node_failed(launch->node, &failure);
}

/* The status is in the form of a shell. */
static void child_died(void *user, const pl_death_t *death)
{
    child_t *child = user;
    pl_launch_t *launch = child->launch;
    const int status = death->signal     ? 128 + death->signal
                       : death->is_known ? death->status
                                         : 0;
    if (status)
        child_failed(child, status, death);
    else
        child_left(child);
    pl_supervisor_free(child->process);
    child->process = NULL;
    if (--launch->living)
        return;
    if (launch->host)
        host_ended(launch->host, 0);
    else
        node_ended(launch->node);
}

static void child_line(void *user, const char *line)
{
    const child_t *child = user;
    const pl_launch_spec_t *spec = &child->launch->spec;
    if (spec->on_line)
        spec->on_line(spec->user, child->rank, line);
}

/* A variable without a text is its name alone, which removes it from the environment.
 * Rank zero keeps the index of run directories, so that it finds its own after a
 * restart. */
static int child_start(child_t *child, int local_rank, const launch_attempt_t *attempt,
                       pl_error_t *err)
{
    typedef char variable_t[VARIABLE];
    enum { NUMBERS = 6, TEXTS = 5 };
    const pl_launch_t *launch = child->launch;
    const int count = launch->spec.devices;
    char index[PL_FOLDER_PATH], finished[PL_FOLDER_PATH];
    const struct {
        const char *name;
        int number;
    } numbers[NUMBERS] = {{"PACELINE_RANK", child->rank},
                          {"PACELINE_WORLD_SIZE", attempt->nodes * count},
                          {"PACELINE_LOCAL_RANK", local_rank},
                          {"PACELINE_LOCAL_WORLD_SIZE", count},
                          {"PACELINE_NODE_RANK", attempt->node_rank},
                          {"PACELINE_RESTART_COUNT", (int)attempt->number - 1}};
    const struct {
        const char *name, *text;
    } texts[TEXTS] = {{"PACELINE_ENDPOINT", attempt->endpoint},
                      {"PACELINE_JOB_KEY_FILE", launch->job_key},
                      {"PACELINE_RUN_DIR_INDEX",
                       launch->host ? file_of(launch, PL_FOLDER_RUN_DIR_INDEX, index)
                                    : ""},
                      {"PACELINE_FINISHED_RANKS",
                       file_of(launch, PL_FOLDER_FINISHED_RANKS, finished)},
                      {"PACELINE_RUN_ID", attempt->job}};
    const char *variable[NUMBERS + TEXTS + 1] = {NULL};
    variable_t *text = pl_alloc_array(NUMBERS + TEXTS, sizeof *text);
    if (!text)
        return pl_no_memory(err);
    for (int k = 0; k < NUMBERS; k++)
        snprintf(text[k], VARIABLE, "%s=%d", numbers[k].name, numbers[k].number);
    for (int k = 0; k < TEXTS; k++)
        snprintf(text[NUMBERS + k], VARIABLE, *texts[k].text ? "%s=%s" : "%s",
                 texts[k].name, texts[k].text);
    for (int k = 0; k < NUMBERS + TEXTS; k++)
        variable[k] = text[k];
    const pl_process_spec_t spec = {.argv = launch->spec.argv,
                                    .environment = variable,
                                    .on_line = child_line,
                                    .on_death = child_died,
                                    .user = child};
    child->process = pl_supervisor_start(&spec, launch->loop.base, err);
    pl_free(text);
    return child->process ? PL_OK : pl_error_prefix(err, "rank %d", child->rank);
}

/* Ends those that still live, by SIGKILL, without a report. */
static void children_free(pl_launch_t *launch)
{
    for (int k = 0; launch->child && k < launch->spec.devices; k++)
        pl_supervisor_free(launch->child[k].process);
    pl_free(launch->child);
    launch->child = NULL;
}

int launch_begin(pl_launch_t *launch, const launch_attempt_t *attempt, pl_error_t *err)
{
    const int count = launch->spec.devices;
    char finished[PL_FOLDER_PATH];
    children_free(launch);
    unlink(file_of(launch, PL_FOLDER_FINISHED_RANKS, finished));  /* the attempt before */
    launch->child = pl_alloc_array((size_t)count, sizeof *launch->child);
    launch->living = launch->reported = 0;
    launch->sent = 0;
    int code = launch->child ? PL_OK : pl_no_memory(err);
    for (int k = 0; k < count && code == PL_OK; k++) {
        launch->child[k] = (child_t){.launch = launch,
                                     .rank = attempt->node_rank * count + k};
        code = child_start(&launch->child[k], k, attempt, err);
        launch->living += code == PL_OK;
    }
    if (code != PL_OK)
        children_free(launch);
    return code;
}

void launch_signal(pl_launch_t *launch, int number)
{
    if (number < 1 || number > SIGNALS_MAX)
        return;
    launch->sent |= UINT64_C(1) << number;
    for (int k = 0; launch->child && k < launch->spec.devices; k++)
        if (launch->child[k].process)
            pl_supervisor_signal(launch->child[k].process, number);
}

/* ---- What host and nodes share ---- */

void launch_note(const pl_launch_t *launch, const char *format, ...)
{
    char text[PL_ERROR_TEXT + 128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (launch->spec.on_line)
        launch->spec.on_line(launch->spec.user, -1, text);
}

void launch_end(pl_launch_t *launch, const pl_failure_t *failure)
{
    if (launch->spec.on_end)
        launch->spec.on_end(launch->spec.user, failure->status,
                            launch->was_signalled ? NULL : &failure->error);
}

pl_link_t *launch_link(pl_launch_t *launch, pl_link_spec_t spec, pl_error_t *err)
{
    const pl_launch_spec_t *s = &launch->spec;
    char *traits = pl_text("{\"least nodes\": \"%d\", \"ranks per node\": \"%d\"}",
                           s->nodes_min, s->devices);
    if (!traits) {
        pl_no_memory(err);
        return NULL;
    }
    spec.keys = *launch->job_key ? &launch->keys : NULL;
    spec.run = LAUNCH_RUN;
    spec.incarnation = 1;
    spec.world_size = s->nodes;
    spec.rank = s->node_rank;
    spec.watches = true;
    spec.traits = traits;
    spec.times.has_lease = true;
    pl_link_t *link = s->node_rank ? pl_link_connect(&spec, &launch->loop, err)
                                   : pl_link_listen(&spec, &launch->loop, err);
    pl_text_free(traits);
    return link;
}

/* ---- A node that obeys node 0 ---- */

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
    if (event == PL_LINK_JOINED && n->state == NODE_JOINS)
        n->state = NODE_IS_THERE;
    if (event == PL_LINK_JOINED || event == PL_LINK_WRITABLE)
        pl_outbox_flush(&n->outbox);
    if (n->state >= NODE_LEAVES && (event == PL_LINK_LEFT || event == PL_LINK_GONE))
        node_soon(n, 0);
    if (n->state >= NODE_LEAVES || event != PL_LINK_GONE)
        return;
    if (n->state != NODE_JOINS && n->launch->spec.max_restarts) {
        n->state = NODE_LOST;
        launch_note(n->launch, "node 0 is gone: %s; waiting for it to return", text);
        launch_signal(n->launch, SIGKILL);
        if (!n->runs)
            node_soon(n, 0);
    } else {
        pl_fail(&error, PL_EPEER, n->state == NODE_JOINS ? "%s" : "node 0 is gone: %s",
                text);
        node_leave(n, 1, &error);
    }
}

static int node_connect(launch_node_t *n, pl_error_t *err)
{
    const double join_ms = n->launch->spec.join_timeout * 1000;
    const pl_link_spec_t spec = {.endpoint = n->launch->endpoint,
                                 .times.join = join_ms < INT_MAX ? (int)join_ms : INT_MAX,
                                 .on_message = message_came,
                                 .on_event = event_came,
                                 .user = n};
    pl_link_free(n->link);
    pl_outbox_release(&n->outbox);
    n->state = NODE_JOINS;
    n->link = launch_link(n->launch, spec, err);
    n->outbox = (pl_outbox_t){.link = n->link,
                              .peer = PL_LINK_HOST,
                              .is_of_node = true,
                              .run = LAUNCH_RUN,
                              .incarnation = 1};
    return n->link ? PL_OK : err->code;
}

static void node_look(evutil_socket_t fd, short what, void *user)
{
    launch_node_t *n = user;
    (void)fd, (void)what;
    if (n->state == NODE_LOST && node_connect(n, &n->end.error) != PL_OK) {
        n->state = NODE_LEAVES;
        n->end.status = 1;
    }
    if (n->state != NODE_LEAVES)
        return;
    n->state = NODE_IS_DONE;
    launch_end(n->launch, &n->end);
}

/* The launch frees it, also after a failure. */
static int node_open(pl_launch_t *launch, pl_error_t *err)
{
    launch_node_t *n = launch->node = pl_alloc(sizeof *n);
    if (!n)
        return pl_no_memory(err);
    n->launch = launch;
    n->timer = event_new(launch->loop.base, -1, 0, node_look, n);
    return n->timer ? node_connect(n, err) : pl_no_memory(err);
}

/* ---- The address where nodes connect, or the ranks of one node ---- */

static int endpoint_find(pl_launch_t *launch, pl_error_t *err)
{
    const char *given = launch->spec.endpoint, *port = given ? strrchr(given, ':') : NULL,
               *key = launch->spec.job_key;
    const bool is_any = !given || (port && !strcmp(port, ":0"));
    if (is_any && launch->spec.nodes > 1)
        return pl_fail(err, PL_EINVAL,
                       "%d nodes need an address where they connect: set "
                       "--rdzv-endpoint to the HOST:PORT of node 0",
                       launch->spec.nodes);
    int code = pl_ports_set(getenv("PACELINE_PORT_RANGE"), err);
    if (code == PL_OK)
        code = pl_folder_make(launch->folder, &launch->lock, err);
    if (code == PL_OK && is_any)
        snprintf(launch->endpoint, sizeof launch->endpoint, "ipc://%s/calls",
                 launch->folder);
    else if (code == PL_OK)
        code = pl_rendezvous_read(given, launch->endpoint, sizeof launch->endpoint, err);
    if (code == PL_OK && key)
        code = pl_keys_open(key, &launch->keys, err);
    if (code == PL_OK && key && !realpath(key, launch->job_key))
        code = pl_fail(err, PL_EIO, "cannot resolve the path of %s", key);
    if (code == PL_OK && !key && !pl_rendezvous_is_near(launch->endpoint))
        code = pl_fail(err, PL_EINVAL,
                       "ranks that connect to %s, beyond this machine, need the key of "
                       "the job: name its file, the same on all nodes (--job-key or "
                       "PACELINE_JOB_KEY_FILE)",
                       launch->endpoint);
    return code;
}

/* ---- Life ---- */

/* A stopped process takes no signal but SIGCONT and SIGKILL. */
void pl_launch_signal(pl_launch_t *launch, int number)
{
    if (!launch || number < 1 || number > SIGNALS_MAX)
        return;
    const bool is_second = launch->was_signalled;
    launch->was_signalled = true;
    launch_signal(launch, is_second ? SIGKILL : number);
    launch_signal(launch, SIGCONT);
    for (int k = 0; launch->child && k < launch->spec.devices; k++)
        if (launch->child[k].process)
            pl_supervisor_kill(launch->child[k].process, PL_NODE_STOP_MS);
    if (launch->host)
        host_signalled(launch->host, number, is_second);
    else if (is_second || !launch->node->runs)
        node_leave(launch->node, is_second ? LAUNCH_ABORTED : 128 + number, NULL);
}

/* The loop is the program's, which does not know of sockets. */
static void turned(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_sockets_flush(&((pl_launch_t *)user)->loop);
}

static int spec_check(const pl_launch_spec_t *s, pl_error_t *err)
{
    if (s->nodes < 1 || s->devices < 1 || s->devices > PL_RANKS_MAX / s->nodes)
        return pl_fail(err, PL_EINVAL,
                       "%d ranks on each of %d nodes: a job has 1 to %d ranks",
                       s->devices, s->nodes, PL_RANKS_MAX);
    if (s->nodes_min < 0 || s->nodes_min > s->nodes)
        return pl_fail(err, PL_EINVAL,
                       "at least %d nodes and at most %d: the range is empty",
                       s->nodes_min, s->nodes);
    if (s->node_rank < 0 || s->node_rank >= s->nodes)
        return pl_fail(err, PL_EINVAL, "node rank %d of %d nodes: node ranks start at 0",
                       s->node_rank, s->nodes);
    if (s->max_restarts < 0 || s->max_restarts > PL_TRIES_MAX)
        return pl_fail(err, PL_EINVAL, "%d restarts: set a number from 0 to %d",
                       s->max_restarts, PL_TRIES_MAX);
    if (!(s->join_timeout <= SECONDS_MAX) || !(s->last_call_timeout <= SECONDS_MAX))
        return pl_fail(err, PL_EINVAL,
                       "join_timeout %g s, last_call_timeout %g s: each is at most %g s",
                       s->join_timeout, s->last_call_timeout, SECONDS_MAX);
    return s->argv && *s->argv ? PL_OK
                               : pl_fail(err, PL_EINVAL, "there is no command to launch");
}

pl_launch_t *pl_launch_start(struct event_base *base, const pl_launch_spec_t *spec,
                             pl_error_t *err)
{
    if (pl_require(base, "an event loop", err) != PL_OK
        || pl_require(spec, "what to launch", err) != PL_OK
        || spec_check(spec, err) != PL_OK)
        return NULL;
    pl_launch_t *launch = pl_alloc(sizeof *launch);
    if (!launch) {
        pl_no_memory(err);
        return NULL;
    }
    pl_launch_spec_t *s = &launch->spec;
    const struct timeval interval = {0, LAUNCH_TURN_MS * 1000};
    pl_error_t own = {0};                             /* `err` gets code and text alone */
    *s = *spec;
    s->nodes_min = s->nodes_min ? s->nodes_min : s->nodes;
    s->join_timeout = s->join_timeout > 0 ? s->join_timeout : USUAL_JOIN_S;
    s->last_call_timeout = s->last_call_timeout > 0 ? s->last_call_timeout
                                                    : USUAL_LAST_CALL_S;
    launch->loop.base = base;
    launch->lock = -1;
    int code = endpoint_find(launch, &own);
    if (code == PL_OK && spec->nodes > 1) {
        launch->turn = event_new(base, -1, EV_PERSIST, turned, launch);
        if (!launch->turn || event_add(launch->turn, &interval) != 0)
            code = pl_no_memory(&own);
    }
    if (code == PL_OK && spec->node_rank)
        code = node_open(launch, &own);
    else if (code == PL_OK && !(launch->host = host_open(launch, &own)))
        code = own.code;
    if (code == PL_OK)
        return launch;
    pl_launch_free(launch);
    pl_fail(err, own.code, "%s", own.text);
    return NULL;
}

void pl_launch_free(pl_launch_t *launch)
{
    if (!launch)
        return;
    children_free(launch);
    host_free(launch->host);
    if (launch->node) {
        pl_link_free(launch->node->link);
        pl_outbox_release(&launch->node->outbox);
        if (launch->node->timer)
            event_free(launch->node->timer);
        pl_free(launch->node);
    }
    if (launch->turn)
        event_free(launch->turn);
    pl_folder_remove(launch->folder, launch->lock);
    pl_keys_forget(&launch->keys);
    pl_free(launch);
}
