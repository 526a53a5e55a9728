/* monitor.c - paceline monitor: the progress of a run or its messages, as lines
 *
 * The progress comes under the topic "state", as for top, and costs the run little. Gaps
 * in the sequence numbers show lost messages, unless --topic leaves out messages. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/endpoint_client.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/stream_line.h"
#include "cli/top_view.h"
#include "cli/watch.h"

enum {
    RANKS = 4096,                            /* whose gaps are reported */
    TAKEN_MAX = 1000,                        /* messages between two looks at the queue */
    ABSENCE = 1,                             /* s until a hint that no run is there */
    SILENCE = 3,                             /* s until a hint that no message came */
};
static const double TURN = 0.2;                         /* s between looks at the clock */
static const double PROGRESS_EVERY = 1;                 /* s between lines */

typedef struct monitor {
    const cli_monitor_t *arguments;
    cli_endpoint_client_t client;
    cli_time_merge_t queue;
    int64_t count;
    json_int_t next[RANKS];                     /* number of each rank's next message */
    double began;                               /* s */
    bool warned, refused, hinted;               /* hints that were given */
    int runs;                                   /* that began and did not end */
    bool is_over;                               /* the last run has ended */
    long long lost;                             /* messages since a run began */
    json_t *shown, *newest;                     /* states: of the newest line; the last */
    double shown_at;                            /* s  [0: no line yet] */
    cli_curve_t curve;
} monitor_t;

static bool shows_progress(const monitor_t *m)
{
    const cli_monitor_t *a = m->arguments;
    return !a->json && !a->messages && !a->topic.count;
}

/* ---- messages ---- */

/* Reports a gap in the sequence numbers of a rank [-1: messages of no rank]. */
static void look_for_gap(monitor_t *m, const json_t *message)
{
    const json_int_t rank = json_integer_value(json_object_get(message, "rank")),
                     seq = json_integer_value(json_object_get(message, "seq"));
    if (m->arguments->topic.count || rank < -1 || rank + 1 >= RANKS)
        return;
    const json_int_t next = m->next[rank + 1];
    const long long lost = next && seq > next ? (long long)(seq - next) : 0;
    if (lost && m->arguments->json)              /* those before the first are not lost */
        cli_print("{\"gap\": %lld, \"rank\": %d}\n", lost, (int)rank);
    else if (lost)
        cli_stream_gap((int)rank, lost);
    m->lost += lost;
    m->next[rank + 1] = seq + 1;
}

/* Counts the runs of the program, which are calls from its level. */
static void count_runs(monitor_t *m, const json_t *message)
{
    enum { HOST = 100 };
    const char *kind = json_string_value(json_object_get(message, "kind")),
               *name = json_string_value(json_object_get(message, "name"));
    const bool begins = kind && !strcmp(kind, "call"),
               ends = kind && (!strcmp(kind, "reply") || !strcmp(kind, "error"));
    const char *host = begins ? "from_level" : "to_level";
    if (!name || strcmp(name, "run")
        || json_integer_value(json_object_get(message, host)) != HOST)
        return;
    if (!begins && !ends)
        return;
    if (begins && !m->runs)
        m->lost = 0;
    if (begins || m->runs > 0)
        m->runs += begins ? 1 : -1;
    m->is_over = !m->runs;
}

/* A message that does not fit into memory counts as lost: its number is missing. */
static void keep_message(monitor_t *m, const char *text, size_t length)
{
    const bool is_shown = m->arguments->json;
    char *line = is_shown ? calloc(1, length + 1) : NULL;
    if (line)
        memcpy(line, text, length);
    json_t *message = json_loadb(text, length, 0, NULL);
    count_runs(m, message);
    const cli_held_t one = {.time = json_number_value(json_object_get(message, "time")),
                            .came = cli_now(),
                            .rank =
                                (int)json_integer_value(json_object_get(message, "rank")),
                            .message = message,
                            .text = line};
    const bool is_wanted = json_object_get(message, "kind")
                           || (is_shown && m->arguments->topic.count);
    if (is_wanted && (one.text || !is_shown) && cli_time_merge_add(&m->queue, &one))
        return;
    json_decref(message);
    free(one.text);
}

/* ---- progress ---- */

/* Prints the progress of the run, or once how it ended. */
static void show_state(monitor_t *m)
{
    char text[CLI_VIEW_TEXT];
    const json_t *run = cli_view_run(m->newest), *was = cli_view_run(m->shown);
    const bool same = json_equal(json_object_get(run, "number"),
                                 json_object_get(was, "number")),
               ended = json_is_true(json_object_get(run, "ended"));
    if (same && ended && json_is_true(json_object_get(was, "ended")))
        return;
    if (ended)
        cli_view_end(run, text);
    else
        cli_view_brief(text, m->shown ? m->shown : m->newest, m->newest, &m->curve,
                       cli_columns(stdout));
    cli_print("%s\n", text);
    m->count++;
    m->is_over = ended;
    m->shown_at = cli_now();
    json_decref(m->shown);
    m->shown = json_incref(m->newest);
}

static void take_state(monitor_t *m, const char *text, size_t length)
{
    json_t *state = json_loadb(text, length, 0, NULL);
    const json_t *run = cli_view_run(state), *was = cli_view_run(m->newest);
    if (!run) {
        json_decref(state);
        return;
    }
    const bool changes =
        !json_equal(json_object_get(run, "number"), json_object_get(was, "number"))
        || !json_equal(json_object_get(run, "ended"), json_object_get(was, "ended"));
    json_decref(m->newest);
    m->newest = state;
    cli_curve_take(&m->curve, state);
    if (changes || cli_now() - m->shown_at >= PROGRESS_EVERY)
        show_state(m);
}

static bool has_all(const monitor_t *m)
{
    const int64_t max = m->arguments->count;
    return cli_signalled() || cli_output_gone() || (max && m->count >= max);
}

static void show_due(monitor_t *m, bool ends)
{
    const int due = cli_time_merge_due(&m->queue, cli_now(), ends);
    for (int k = 0; k < due && !has_all(m); k++) {
        static char line[1 << 16];
        const cli_held_t *one = &m->queue.held[k];
        look_for_gap(m, one->message);
        if (!one->text)
            cli_stream_line(one->message, cli_columns(stdout), line, sizeof line);
        cli_print("%s\n", one->text ? one->text : line);
        m->count++;
    }
    cli_time_merge_drop(&m->queue, due);
    cli_flush();
}

/* Takes the messages that are there; -> how many. */
static int take_messages(monitor_t *m)
{
    int taken = 0;
    size_t length;
    const char *text;
    while (taken < TAKEN_MAX && (text = cli_receive(&m->client, &length))) {
        if (shows_progress(m) && !has_all(m))
            take_state(m, text, length);
        else if (!shows_progress(m))
            keep_message(m, text, length);
        taken++;
    }
    return taken;
}

/* An address where no run publishes may be a wrong one; a run may also send nothing for a
 * while. */
static void hint(monitor_t *m)
{
    const double silent = cli_now() - m->began;
    const bool is_other = m->client.refused && !m->client.connected;
    if (is_other && !m->refused) {
        m->warned = m->refused = true;
        cli_note(
            "the socket at %s publishes no stream; waiting: use the address that fit "
            "--monitor prints",
            m->arguments->endpoint);
    }
    if (!m->client.connected && !m->warned && silent >= ABSENCE) {
        m->warned = true;
        cli_note("no run publishes at %s yet; waiting", m->arguments->endpoint);
    }
    if (m->hinted || !m->client.connected || m->count || silent < SILENCE)
        return;
    m->hinted = true;
    cli_note("a run publishes at %s, but no message has come yet%s; waiting",
             m->arguments->endpoint,
             m->arguments->topic.count ? ": no message matched --topic" : "");
}

static void follow(monitor_t *m)
{
    const double duration = m->arguments->duration;
    m->began = cli_now();
    while (!has_all(m) && !m->client.parted
           && !(duration > 0 && cli_now() - m->began >= duration)) {
        const double left = duration > 0 ? m->began + duration - cli_now() : TURN,
                     turn = m->queue.count ? CLI_TIME_MERGE_MS / 5e3 : TURN;
        cli_wait(&m->client, -1, left < turn ? left : turn);
        take_messages(m);
        show_due(m, false);
        hint(m);
    }
    while (m->client.parted && take_messages(m) && !has_all(m))
        show_due(m, true);
    show_due(m, true);
}

static int monitor_status(const monitor_t *m)
{
    pl_error_t err = {0};
    const char *endpoint = m->arguments->endpoint;
    /* Messages of some topics do not tell whether the run has ended. */
    const bool is_cut_short = m->client.parted && !m->is_over && !has_all(m)
                              && !m->arguments->topic.count;
    if (cli_signalled())
        return cli_signal_status();
    if (cli_output_gone() || (m->count && !is_cut_short))
        return CLI_DONE;
    if (m->count && m->lost)
        pl_fail(
            &err, PL_EDIED,
            "the process at %s has ended, and %lld of its messages are lost: the end of "
            "the run is unknown",
            endpoint, m->lost);
    else if (m->count)
        pl_fail(&err, PL_EDIED, "the process at %s has ended in the middle of a run",
                endpoint);
    else if (!m->client.connected && m->client.refused)
        pl_fail(
            &err, PL_EINVAL,
            "the socket at %s publishes no stream: use the address that fit --monitor "
            "prints",
            endpoint);
    else if (!m->client.connected)
        pl_fail(&err, PL_ENOTFOUND,
                "no message came from %s: start a run with paceline fit --monitor",
                endpoint);
    else if (m->arguments->topic.count)
        pl_fail(&err, PL_ENOTFOUND,
                "a run publishes at %s, but no message matched "
                "--topic: topics are RANK.TO.NAME, such as 0.strategy",
                endpoint);
    else
        pl_fail(&err, PL_ENOTFOUND, "a run publishes at %s, but no message came",
                endpoint);
    cli_failure(&err, m->arguments->json);
    return CLI_FAILED;
}

int cli_monitor(const cli_monitor_t *arguments)
{
    static monitor_t m;                                     /* large */
    pl_error_t err = {0};
    const cli_texts_t *topics = &arguments->topic;
    int status = CLI_WRONG;
    m.arguments = arguments;
    int code = cli_connect(&m.client, CLI_STREAM, arguments->endpoint, &err);
    if (code == PL_OK && topics->count == 0)
        code = cli_subscribe(&m.client, shows_progress(&m) ? "state" : "", &err);
    for (int k = 0; code == PL_OK && k < topics->count; k++)
        code = cli_subscribe(&m.client, topics->text[k], &err);
    if (code == PL_OK) {
        cli_watch_signals();
        follow(&m);
        status = monitor_status(&m);
    } else {
        cli_failure(&err, arguments->json);
    }
    json_decref(m.shown);
    json_decref(m.newest);
    cli_disconnect(&m.client);
    return status;
}
