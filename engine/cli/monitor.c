/* monitor.c - paceline monitor: the stream of a run, as lines or as it is
 *
 * A subscriber of its own, as a client in any language would be: it knows the endpoint
 * and the two frames (topic, JSON object), nothing else.  Sequence numbers show what
 * was lost on the way, unless topics leave out messages anyway. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "cli/commands.h"
#include "cli/in_time.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/stream_line.h"

enum {
    RANKS = 4096,                            /* whose gaps are told */
    QUEUE = 100000,                          /* messages that may wait for us */
    MESSAGE_MOST = 64 << 20,                 /* bytes */
    TAKEN_MOST = 1000,                       /* messages between looks at what is due */
    TURN = 200,                              /* ms between looks at the clock */
    ABSENCE = 1,                             /* s until it is said that nobody is there */
    SILENCE = 3,                             /* s until a hint is given */
};

typedef struct monitor {
    const cli_monitor_t *arguments;
    void *context, *stream, *events;                       /* events: of the connection */
    cli_in_time_t queue;
    int64_t count;
    json_int_t next[RANKS];                       /* number of each rank's next message */
    double began;                                 /* s */
    bool warned, hinted, connected, parted;
} monitor_t;

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the connection ---- */

static int zmq_fail(pl_error_t *err, const char *what, const char *which)
{
    return pl_fail(err, PL_EINVAL, "%s \"%s\": %s", what, which,
                   zmq_strerror(zmq_errno()));
}

static void set_int(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

static void set_limits(void *socket)
{
    int64_t most = MESSAGE_MOST;
    set_int(socket, ZMQ_LINGER, 0);
    set_int(socket, ZMQ_RCVHWM, QUEUE);
    set_int(socket, ZMQ_HANDSHAKE_IVL, 2000);
    set_int(socket, ZMQ_HEARTBEAT_IVL, 1000);
    set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, 3000);
    zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
}

static int subscribe(const monitor_t *m, pl_error_t *err)
{
    const cli_texts_t *topics = &m->arguments->topic;
    if (topics->count == 0)
        return zmq_setsockopt(m->stream, ZMQ_SUBSCRIBE, "", 0) == 0
                   ? PL_OK
                   : zmq_fail(err, "cannot subscribe to", "");
    for (int k = 0; k < topics->count; k++) {
        size_t length = strlen(topics->text[k]);
        if (length >= 200)           /* longer ones are framed wrongly by some versions */
            return pl_fail(err, PL_EINVAL, "--topic takes at most 199 characters");
        if (zmq_setsockopt(m->stream, ZMQ_SUBSCRIBE, topics->text[k], length) != 0)
            return zmq_fail(err, "cannot subscribe to", topics->text[k]);
    }
    return PL_OK;
}

/* What no run could publish at, or we could not read: waiting for it would be for ever.
 * That there is nothing yet is fine. */
static int check_file(const char *endpoint, pl_error_t *err)
{
    char folder[PATH_MAX];
    struct stat status;
    const char *path = endpoint + strlen("ipc://");
    if (strncmp(endpoint, "ipc://", strlen("ipc://")) || *path == '@')
        return PL_OK;
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    if (stat(path, &status) == 0 && !S_ISSOCK(status.st_mode))
        return pl_fail(err, PL_EINVAL, "%s is a file: no run publishes there", path);
    if ((access(path, R_OK | W_OK) != 0 && errno != ENOENT) || access(folder, X_OK) != 0)
        return pl_fail(err, PL_EINVAL, "cannot connect to \"%s\": %s", endpoint,
                       strerror(errno));
    return PL_OK;
}

static int monitor_open(monitor_t *m, pl_error_t *err)
{
    if (check_file(m->arguments->endpoint, err) != PL_OK)
        return PL_EINVAL;
    m->context = zmq_ctx_new();
    if (!m->context)
        return pl_fail(err, PL_ENOMEM, "no ZeroMQ context: %s",
                       zmq_strerror(zmq_errno()));
    zmq_ctx_set(m->context, ZMQ_BLOCKY, 0);
    m->stream = zmq_socket(m->context, ZMQ_SUB);
    m->events = zmq_socket(m->context, ZMQ_PAIR);
    if (!m->stream || !m->events)
        return pl_fail(err, PL_EBUSY, "no ZeroMQ socket: %s", zmq_strerror(zmq_errno()));
    set_limits(m->stream);
    set_int(m->events, ZMQ_LINGER, 0);
    int code = subscribe(m, err);
    if (code != PL_OK)
        return code;
    if (zmq_socket_monitor(m->stream, "inproc://connection",
                           ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED)
            != 0
        || zmq_connect(m->events, "inproc://connection") != 0)
        return zmq_fail(err, "cannot watch", "the connection");
    if (zmq_connect(m->stream, m->arguments->endpoint) != 0)
        return zmq_fail(err, "cannot connect to", m->arguments->endpoint);
    return PL_OK;
}

static void monitor_close(monitor_t *m)
{
    if (m->stream)
        zmq_close(m->stream);
    if (m->events)
        zmq_close(m->events);
    if (m->context)
        zmq_ctx_term(m->context);
}

/* ---- messages ---- */

/* Of a rank's messages, or of those of none. */
static void show_gap(const monitor_t *m, int rank, long long lost)
{
    if (m->arguments->json)
        cli_print("{\"gap\": %lld, \"rank\": %d}\n", lost, rank);
    else if (rank < 0)
        cli_print("%9s %lld messages lost\n", "", lost);
    else
        cli_print("%9s %lld messages of rank %d lost\n", "", lost, rank);
}

static void look_for_gap(monitor_t *m, const json_t *message)
{
    json_int_t rank = json_integer_value(json_object_get(message, "rank")) + 1;
    json_int_t seq = json_integer_value(json_object_get(message, "seq"));
    if (m->arguments->topic.count || rank < 0 || rank >= RANKS)
        return;
    if (seq > m->next[rank])
        show_gap(m, (int)rank - 1, (long long)(seq - m->next[rank]));
    m->next[rank] = seq + 1;
}

static void show_message(monitor_t *m, const cli_held_t *one)
{
    static char line[1 << 16];
    look_for_gap(m, one->message);
    if (one->text) {
        cli_print("%s\n", one->text);
    } else {
        cli_stream_line(one->message, cli_columns(stdout), line, sizeof line);
        cli_print("%s\n", line);
    }
    m->count++;
}

/* What it cannot keep counts as lost: its number will be missing. */
static void keep_message(monitor_t *m, const char *text, size_t length)
{
    const bool is_shown = m->arguments->json;
    json_t *message = json_loadb(text, length, 0, NULL);
    const cli_held_t one = {.time = json_number_value(json_object_get(message, "time")),
                            .came = now(),
                            .rank =
                                (int)json_integer_value(json_object_get(message, "rank")),
                            .message = message,
                            .text = is_shown ? strndup(text, length) : NULL};
    if (json_is_object(message) && (one.text || !is_shown)
        && cli_in_time_add(&m->queue, &one))
        return;
    json_decref(message);
    free(one.text);
}

static bool has_all(const monitor_t *m)
{
    const int64_t most = m->arguments->count;
    return interrupted || cli_output_gone() || (most && m->count >= most);
}

static bool is_enough(const monitor_t *m)
{
    const cli_monitor_t *a = m->arguments;
    return has_all(m) || (a->duration > 0 && now() - m->began >= a->duration);
}

static void show_due(monitor_t *m, bool ends)
{
    const int due = cli_in_time_due(&m->queue, now(), ends);
    for (int k = 0; k < due && !has_all(m); k++)
        show_message(m, &m->queue.held[k]);
    cli_in_time_drop(&m->queue, due);
    cli_flush();
}

/* The frames that are there: topic, object, topic, object. */
static int take_messages(monitor_t *m)
{
    int taken = 0;
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    while (taken < TAKEN_MOST && zmq_msg_recv(&frame, m->stream, ZMQ_DONTWAIT) >= 0) {
        int more = zmq_msg_more(&frame);
        if (!more) {
            keep_message(m, zmq_msg_data(&frame), zmq_msg_size(&frame));
            taken++;
        }
    }
    zmq_msg_close(&frame);
    return taken;
}

/* Two frames each: the first begins with the number of the event. */
static void take_events(monitor_t *m)
{
    zmq_msg_t frame;
    uint16_t event;
    zmq_msg_init(&frame);
    while (zmq_msg_recv(&frame, m->events, ZMQ_DONTWAIT) >= 0) {
        if (!zmq_msg_more(&frame) || zmq_msg_size(&frame) < sizeof event)
            continue;
        memcpy(&event, zmq_msg_data(&frame), sizeof event);
        m->connected = m->connected || event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
        m->parted = m->parted || event == ZMQ_EVENT_DISCONNECTED;
    }
    zmq_msg_close(&frame);
}

/* An address where nobody is may be a wrong one; a run may have nothing to say. */
static void hint(monitor_t *m)
{
    const double silent = now() - m->began;
    if (!m->connected && !m->warned && silent >= ABSENCE) {
        m->warned = true;
        cli_note("nobody at %s yet: waiting", m->arguments->endpoint);
    }
    if (m->hinted || !m->connected || m->count || silent < SILENCE)
        return;
    m->hinted = true;
    cli_note("nothing from %s yet, but a run is there%s; still listening",
             m->arguments->endpoint,
             m->arguments->topic.count ? ": no message has matched --topic" : "");
}

static void follow(monitor_t *m)
{
    zmq_pollitem_t items[] = {{m->stream, 0, ZMQ_POLLIN, 0},
                              {m->events, 0, ZMQ_POLLIN, 0}};
    m->began = now();
    while (!is_enough(m) && !m->parted) {
        double left = m->arguments->duration > 0
                          ? (m->began + m->arguments->duration - now()) * 1000
                          : TURN;
        const double turn = m->queue.count ? CLI_IN_TIME_MS / 5 : TURN;
        zmq_poll(items, 2, left < turn ? (long)(left > 0 ? left + 1 : 0) : (long)turn);
        take_events(m);
        take_messages(m);
        show_due(m, false);
        hint(m);
    }
    while (m->parted && take_messages(m) && !has_all(m))
        show_due(m, true);
    show_due(m, true);
}

static int monitor_status(const monitor_t *m)
{
    pl_error_t err = {0};
    const char *endpoint = m->arguments->endpoint;
    if (interrupted)
        return interrupted == SIGINT ? CLI_INTERRUPTED : CLI_DONE;
    if (m->count || cli_output_gone())
        return CLI_DONE;
    if (!m->connected)
        pl_fail(&err, PL_ENOTFOUND,
                "nothing came from %s: is a run publishing there "
                "(paceline fit --monitor)?",
                endpoint);
    else if (m->arguments->topic.count)
        pl_fail(&err, PL_ENOTFOUND,
                "a run is publishing at %s, but no message matched "
                "--topic: topics are RANK.TO.NAME, such as 0.strategy",
                endpoint);
    else
        pl_fail(&err, PL_ENOTFOUND, "a run is publishing at %s, but no message came",
                endpoint);
    cli_failure(&err, m->arguments->json);
    return CLI_FAILED;
}

int cli_monitor(const cli_monitor_t *arguments)
{
    static monitor_t m;                                     /* large */
    pl_error_t err = {0};
    int status = CLI_WRONG;
    m.arguments = arguments;
    if (monitor_open(&m, &err) == PL_OK) {
        const struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        follow(&m);
        status = monitor_status(&m);
    } else {
        cli_failure(&err, arguments->json);
    }
    monitor_close(&m);
    return status;
}
