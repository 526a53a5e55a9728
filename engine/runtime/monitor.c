/* monitor.c - the stream: every message, offered once and without waiting, to who watches
 *
 * Publishing is paid by the caller of send, so rank threads never publish: they put one
 * copy of each frame on a stack that a hub with a thread of its own takes as a whole,
 * turns over and publishes.  One stack and not a socket for each thread: so a message
 * stands in the stream before all that it caused, on whichever thread.  What the hub
 * cannot take, or nobody watches, is dropped and counted, and `seq` shows the gap.
 *
 * To wake the hub costs a rank more than to copy a frame.  So while messages come it
 * looks by itself every few milliseconds, and only the first one after a pause wakes
 * it. */
#include "runtime/monitor.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "runtime/descriptors.h"

enum {
    BACKLOG_BYTES = 16 << 20,                        /* of frames that wait for the hub */
    BACKLOG_LINES = 2000,                            /* that wait for one slow viewer */
    VIEWERS_MOST = 256,
    COPY_MOST = 16384,                            /* of a frame: more than a line shows */
    LINE_MOST = 8192,
    SUBSCRIPTION_MOST = 256,
    TOPIC_MOST = 128,
    LINGER_MS = 1000,
    LOOK_EVERY_US = 3000,
};

typedef struct record {
    struct record *next;
    pl_rank_seq_t *seq;
    uint64_t dropped;                       /* messages of the rank before it that have no
                                               record */
    int64_t time;                           /* ns since the runtime began */
    size_t size;
    unsigned char frame[];
} record_t;

/* An endpoint that hubs of other processes bring lines to. */
typedef struct feed {
    struct feed *next;
    pl_monitor_t *monitor;
    pl_socket_t *in;                                        /* SUB */
    char endpoint[256];
} feed_t;

struct pl_monitor {
    pl_runtime_t *runtime;
    pl_reactor_t *reactor;                                  /* the hub's thread */
    pl_socket_t *out;                                       /* XPUB */
    char endpoint[256];
    bool lossless;
    bool brings;                    /* to another hub, and publishes nothing itself */
    feed_t *feeds;                  /* the hub's */
    pl_map_t topics;                /* subscribed to; the hub's */
    bool is_crowded;                /* the hub's: more viewers than we serve */
    int watchers;                   /* atomic: how many those are */
    record_t *top;                  /* atomic: newest first */
    size_t waiting;                 /* atomic: bytes in records */
    bool looks;                     /* atomic: the hub will look at the stack by itself */
    int wake_fd;                    /* eventfd: look now */
    struct event *wake, *look;
    char line[LINE_MOST];
};

/* ---- the rank's side ---- */

/* Takes room of the backlog for a record. */
static record_t *record_new(pl_monitor_t *m, size_t size)
{
    size_t bytes = sizeof(record_t) + size;
    size_t waiting = __atomic_add_fetch(&m->waiting, bytes, __ATOMIC_RELAXED);
    record_t *record = m->lossless || waiting <= BACKLOG_BYTES ? pl_resize(NULL, bytes)
                                                               : NULL;
    if (!record)
        __atomic_sub_fetch(&m->waiting, bytes, __ATOMIC_RELAXED);
    return record;
}

void pl_monitor_offer(pl_reactor_t *reactor, pl_bytes_t frame)
{
    pl_monitor_t *m = __atomic_load_n(&reactor->runtime->monitor, __ATOMIC_ACQUIRE);
    if (!m)
        return;
    size_t size = frame.size < COPY_MOST ? frame.size : COPY_MOST;
    bool is_watched = __atomic_load_n(&m->watchers, __ATOMIC_RELAXED) > 0;
    record_t *record = is_watched ? record_new(m, size) : NULL;
    if (!record) {
        pl_count(&reactor->seq->dropped);
        return;
    }
    record->seq = reactor->seq;
    record->dropped = __atomic_load_n(&reactor->seq->dropped, __ATOMIC_RELAXED)
                          ? __atomic_exchange_n(&reactor->seq->dropped, 0,
                                                __ATOMIC_RELAXED)
                          : 0;
    record->time = pl_now() - reactor->runtime->began;
    record->size = size;
    memcpy(record->frame, frame.data, size);
    record_t *below = __atomic_load_n(&m->top, __ATOMIC_RELAXED);
    do
        record->next = below;
    while (!__atomic_compare_exchange_n(&m->top, &below, record, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED));
    const uint64_t one = 1;                           /* the record is the hub's by now */
    if (!below && !__atomic_load_n(&m->looks, __ATOMIC_SEQ_CST)
        && write(m->wake_fd, &one, sizeof one) < 0)
        return;                                             /* it counts to 2^64 */
}

/* ---- the hub's side ---- */

/* While nobody watches here, other hubs need not render anything. */
static void feed_watch(feed_t *feed, bool is_watched)
{
    if (is_watched)
        pl_socket_subscribe(feed->in, "", NULL);
    else
        pl_socket_unsubscribe(feed->in, "", NULL);
}

/* XPUB also tells of the end of subscriptions that never began, so we know which there
 * are. */
static void hub_subscription(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity;
    pl_monitor_t *m = user;
    pl_bytes_t bytes = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    const char *first = bytes.data;
    if (!bytes.size || (*first != 0 && *first != 1)) {
        pl_count(&m->runtime->malformed);
        return;
    }
    uint64_t topic = pl_hash_bytes(first + 1, bytes.size - 1);
    if (*first == 0)
        pl_map_take(&m->topics, topic ? topic : 1);
    else if (pl_map_put(&m->topics, topic ? topic : 1, m) != PL_OK)
        pl_log_line(PL_LOG_WARNING, -1, "", "no memory for a viewer's topic");
    const bool was_watched = m->watchers > 0, is_watched = m->topics.count > 0;
    __atomic_store_n(&m->watchers, (int)m->topics.count, __ATOMIC_RELEASE);
    for (feed_t *feed = m->feeds; was_watched != is_watched && feed; feed = feed->next)
        feed_watch(feed, is_watched);
}

/* What waits for viewers is bounded for each of them; so must be how many they are.
 * ZeroMQ takes whoever connects, so while there are too many nobody gets anything, and
 * all see the gap.  At a file, nobody gets in any more then, nor when descriptors become
 * few: ZeroMQ ends the process when it has none for a viewer there. */
static void hub_peers(void *user, int peers)
{
    pl_monitor_t *m = user;
    bool crowded = peers > VIEWERS_MOST;
    if (crowded && !m->is_crowded)
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "the stream pauses: it has %d viewers, and serves at most %d", peers,
                    VIEWERS_MOST);
    m->is_crowded = crowded;
    pl_socket_shut(m->out, peers >= VIEWERS_MOST || pl_descriptors_are_few());
}

/* Another hub gets both in one piece, with a zero between. */
static void line_publish(pl_monitor_t *m, pl_bytes_t topic, pl_bytes_t text)
{
    char head[TOPIC_MOST + 1];
    pl_frame_t frame;
    if (!m->brings) {
        pl_socket_publish(m->out, topic, text, NULL);
        return;
    }
    memcpy(head, topic.data, topic.size);
    head[topic.size] = '\0';
    if (pl_frame_join(&frame, (pl_bytes_t){head, topic.size + 1}, text, NULL) == PL_OK)
        pl_socket_send(m->out, 0, &frame, NULL);
}

static void feed_message(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity;
    pl_monitor_t *m = ((feed_t *)user)->monitor;
    pl_bytes_t bytes = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    const char *topic = bytes.data;
    const char *end = bytes.size
                          ? memchr(topic, '\0',
                                   bytes.size < TOPIC_MOST ? bytes.size : TOPIC_MOST)
                          : NULL;
    const size_t length = end ? (size_t)(end - topic) : 0;
    if (!end || bytes.size < length + 2 || end[1] != '{')
        pl_count(&m->runtime->malformed);
    else if (!m->is_crowded)
        pl_socket_publish(m->out, (pl_bytes_t){topic, length},
                          (pl_bytes_t){end + 1, bytes.size - length - 1}, NULL);
}

static void hub_publish(pl_monitor_t *m, const record_t *record)
{
    pl_bytes_t frame = {record->frame, record->size};
    pl_rank_seq_t *seq = record->seq;
    seq->next += record->dropped;
    uint64_t number = seq->next++;
    if (m->is_crowded)
        return;
    pl_stamp_t stamp = {.seq = number, .time = record->time, .rank = seq->rank};
    size_t length = pl_message_json(frame, &stamp, m->line, sizeof m->line);
    if (!length)
        return;
    pl_envelope_t e;
    memcpy(&e, record->frame, sizeof e);
    char topic[TOPIC_MOST];
    int topic_length = snprintf(topic, sizeof topic, "%d.%s.%s", seq->rank,
                                pl_kind_name(e.to_kind),
                                pl_message_info(e.message)->name);
    line_publish(m, (pl_bytes_t){topic, (size_t)topic_length},
                 (pl_bytes_t){m->line, length});
}

static record_t *take_oldest_first(pl_monitor_t *m)
{
    record_t *newest = __atomic_exchange_n(&m->top, NULL, __ATOMIC_SEQ_CST),
             *oldest = NULL;
    while (newest) {
        record_t *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

/* False: there was nothing. */
static bool hub_flush(pl_monitor_t *m)
{
    record_t *record = take_oldest_first(m);
    bool any = record != NULL;
    while (record) {
        record_t *next = record->next;
        hub_publish(m, record);
        __atomic_sub_fetch(&m->waiting, sizeof *record + record->size, __ATOMIC_RELAXED);
        pl_free(record);
        record = next;
    }
    return any;
}

/* Looks again as long as there was something.  One last time after it has said that it
 * will not: a record that came before that woke nobody. */
static void hub_look(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    static const struct timeval soon = {0, LOOK_EVERY_US};
    pl_monitor_t *m = user;
    bool any = hub_flush(m);
    __atomic_store_n(&m->looks, any, __ATOMIC_SEQ_CST);
    if (!any && hub_flush(m)) {
        any = true;
        __atomic_store_n(&m->looks, true, __ATOMIC_SEQ_CST);
    }
    if (any)
        event_add(m->look, &soon);
}

static void hub_woken(evutil_socket_t fd, short what, void *user)
{
    uint64_t count;
    if (read(fd, &count, sizeof count) == sizeof count)
        hub_look(fd, what, user);
}

/* ---- life ---- */

static int endpoint_check(const char *endpoint, pl_error_t *err)
{
    if (!strncmp(endpoint, "ipc://", 6) || !strncmp(endpoint, "tcp://", 6))
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "monitor endpoint \"%s\": ipc://FILE or tcp://127.0.0.1:PORT (\"*\" "
                   "for any port)",
                   endpoint);
}

static int hub_open(pl_monitor_t *m, const char *endpoint, pl_error_t *err)
{
    m->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    m->reactor = pl_reactor_new(m->runtime, -1, err);
    if (!m->reactor)
        return PL_EBUSY;
    if (m->wake_fd < 0)
        return pl_fail(err, PL_EBUSY,
                       "no descriptor left for the stream: raise the limit (ulimit -n)");
    m->wake = event_new(m->reactor->loop.base, m->wake_fd, EV_READ | EV_PERSIST,
                        hub_woken, m);
    m->look = event_new(m->reactor->loop.base, -1, 0, hub_look, m);
    if (!m->wake || !m->look || event_add(m->wake, NULL) != 0)
        return pl_no_memory(err);
    pl_socket_spec_t spec = {.type = PL_SOCKET_XPUB,
                             .endpoint = endpoint,
                             .bind = !m->brings,
                             .linger_ms = LINGER_MS,
                             .high_water_mark = m->lossless ? 0 : BACKLOG_LINES,
                             .message_most = SUBSCRIPTION_MOST,
                             .on_peers = hub_peers};
    m->out = pl_socket_open(&spec, &m->reactor->loop, hub_subscription, m, err);
    if (!m->out)
        return PL_EIO;
    if (m->brings)
        return PL_OK;
    return pl_socket_endpoint(m->out, m->endpoint, sizeof m->endpoint, err);
}

static void hub_free(pl_monitor_t *m)
{
    if (m->wake_fd >= 0)
        close(m->wake_fd);
    pl_free(m);
}

static void feed_free(feed_t *feed)
{
    pl_socket_close(feed->in);
    pl_free(feed);
}

static void hub_close(pl_monitor_t *m)
{
    for (feed_t *feed; (feed = m->feeds);) {
        m->feeds = feed->next;
        feed_free(feed);
    }
    pl_socket_close(m->out);
    pl_map_release(&m->topics);
    if (m->wake)
        event_free(m->wake);
    if (m->look)
        event_free(m->look);
    pl_reactor_free(m->reactor);
    m->reactor = NULL;
}

static int hub_start(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                     bool brings, pl_error_t *err)
{
    if (runtime->monitor)
        return pl_fail(err, PL_ESTATE, "the stream is published already, at %s",
                       runtime->monitor->endpoint);
    pl_error_t own;
    if (!err)
        err = &own;
    if (endpoint_check(endpoint, err) != PL_OK)
        return err->code;
    pl_monitor_t *m = pl_alloc(sizeof *m);
    if (!m)
        return pl_no_memory(err);
    m->runtime = runtime;
    m->lossless = lossless;
    m->brings = brings;
    if (hub_open(m, endpoint, err) == PL_OK
        && pl_reactor_start(m->reactor, "monitor", err) == PL_OK) {
        __atomic_store_n(&runtime->monitor, m, __ATOMIC_RELEASE);
        return PL_OK;
    }
    hub_close(m);
    hub_free(m);
    return err->code;
}

int pl_monitor_start(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                     pl_error_t *err)
{
    return hub_start(runtime, endpoint, lossless, false, err);
}

int pl_monitor_bring(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                     pl_error_t *err)
{
    return hub_start(runtime, endpoint, lossless, true, err);
}

/* ---- what other hubs bring ---- */

static void feed_open(void *argument)
{
    feed_t *feed = argument;
    pl_monitor_t *m = feed->monitor;
    pl_error_t err;
    const pl_socket_spec_t spec = {.type = PL_SOCKET_SUB,
                                   .endpoint = feed->endpoint,
                                   .bind = true,
                                   .high_water_mark = m->lossless ? 0 : BACKLOG_LINES,
                                   .message_most = LINE_MOST + TOPIC_MOST};
    feed->in = pl_socket_open(&spec, &m->reactor->loop, feed_message, feed, &err);
    if (!feed->in) {
        pl_log_line(PL_LOG_WARNING, -1, "", "the stream lacks other processes: %s",
                    err.text);
        pl_free(feed);
        return;
    }
    feed->next = m->feeds;
    m->feeds = feed;
    if (m->watchers > 0)
        feed_watch(feed, true);
}

static void feed_close(void *argument)
{
    feed_t *which = argument;
    feed_t **at = &which->monitor->feeds;
    while (*at && strcmp((*at)->endpoint, which->endpoint))
        at = &(*at)->next;
    feed_t *feed = *at;
    if (feed) {
        pl_socket_drain(feed->in);
        *at = feed->next;
        feed_free(feed);
    }
    pl_free(which);
}

static void feed_post(pl_runtime_t *runtime, const char *endpoint, void (*then)(void *))
{
    pl_monitor_t *m = __atomic_load_n(&runtime->monitor, __ATOMIC_ACQUIRE);
    feed_t *feed = m ? pl_alloc(sizeof *feed) : NULL;
    if (!feed)
        return;
    feed->monitor = m;
    snprintf(feed->endpoint, sizeof feed->endpoint, "%s", endpoint);
    if (pl_reactor_post(m->reactor, then, feed, NULL) != PL_OK)
        pl_free(feed);
}

void pl_monitor_take(pl_runtime_t *runtime, const char *endpoint)
{
    feed_post(runtime, endpoint, feed_open);
}

void pl_monitor_take_no_more(pl_runtime_t *runtime, const char *endpoint)
{
    feed_post(runtime, endpoint, feed_close);
}

bool pl_monitor_is_lossless(const pl_runtime_t *runtime)
{
    return runtime->monitor && runtime->monitor->lossless;
}

const char *pl_monitor_endpoint(const pl_runtime_t *runtime)
{
    return runtime->monitor ? runtime->monitor->endpoint : "";
}

int pl_monitor_watchers(const pl_runtime_t *runtime)
{
    return runtime->monitor
               ? __atomic_load_n(&runtime->monitor->watchers, __ATOMIC_ACQUIRE)
               : 0;
}

/* A stuck thread may still be about to offer something, so it keeps the monitor, which
 * nobody watches any more. */
void pl_monitor_stop(pl_runtime_t *runtime)
{
    pl_monitor_t *m = runtime->monitor;
    if (!m || !m->reactor)
        return;
    pl_reactor_join(m->reactor);
    hub_flush(m);
    __atomic_store_n(&m->watchers, 0, __ATOMIC_RELAXED);
    hub_close(m);
    if (__atomic_load_n(&runtime->stuck, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&runtime->monitor, NULL, __ATOMIC_RELEASE);
    hub_free(m);
}
