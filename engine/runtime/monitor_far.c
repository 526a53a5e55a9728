/* monitor_far.c - one stream of several processes: their hubs bring lines to that of rank
 * zero
 *
 * Each hub numbers and renders the messages of its own process, and only while somebody
 * watches at the other end; what cannot be sent there in time is dropped, and the numbers
 * show it.  Nothing waits for a hub elsewhere. */
#include "runtime/monitor_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

static const int64_t HOLD = PL_SECOND;                   /* of what is brought, at most */

/* ---- to another hub ---- */

typedef struct bring {
    pl_monitor_t *monitor;
    pl_monitor_bring_t how;                       /* its texts and keys are those below */
    pl_keys_t keys;
    char endpoint[256];
} bring_t;

static void bring_free(bring_t *bring)
{
    pl_keys_forget(&bring->keys);
    pl_free(bring);
}

static void bring_begin(void *argument)
{
    bring_t *bring = argument;
    pl_monitor_t *m = bring->monitor;
    pl_error_t err;
    const pl_socket_spec_t spec = {.endpoint = bring->endpoint,
                                   .keys = bring->how.keys ? &bring->keys : NULL};
    monitor_outlet_close(&m->other);
    if (monitor_outlet_open(m, &m->other, &spec, &err) != PL_OK)
        pl_log_line(PL_LOG_WARNING, -1, "", "the stream lacks this process: %s",
                    err.text);
    else if (bring->how.is_awaited && !m->own.topics.count)
        m->held_until = pl_now() + HOLD;
    m->run = bring->how.run;
    m->shift = bring->how.time;
    monitor_count_watchers(m);
    bring_free(bring);
}

static void bring_end(void *argument)
{
    pl_monitor_t *m = argument;
    m->held_until = 0;
    monitor_flush(m);
    monitor_outlet_close(&m->other);
    m->run = 0;
    m->shift = 0;
    monitor_count_watchers(m);
}

int pl_monitor_bring(pl_runtime_t *runtime, const pl_monitor_bring_t *how,
                     pl_error_t *err)
{
    int code = monitor_of(runtime) ? PL_OK
                                   : monitor_new(runtime, NULL, how->lossless, err);
    bring_t *bring = code == PL_OK ? pl_alloc(sizeof *bring) : NULL;
    if (code == PL_OK && !bring)
        code = pl_no_memory(err);
    if (code != PL_OK)
        return code;
    bring->monitor = monitor_of(runtime);
    bring->how = *how;
    bring->how.time -= how->time ? pl_now() - runtime->began : 0;
    if (how->keys)
        bring->keys = *how->keys;
    snprintf(bring->endpoint, sizeof bring->endpoint, "%s", how->endpoint);
    code = pl_reactor_post(bring->monitor->reactor, bring_begin, bring, err);
    if (code != PL_OK)
        bring_free(bring);
    return code;
}

void pl_monitor_bring_no_more(pl_runtime_t *runtime)
{
    pl_monitor_t *m = monitor_of(runtime);
    if (m)
        pl_reactor_post(m->reactor, bring_end, m, NULL);
}

/* ---- what other hubs bring ---- */

/* An endpoint that lines come to. */
typedef struct feed {
    struct feed *next;
    pl_monitor_t *monitor;
    pl_socket_t *in;                                        /* SUB */
    char endpoint[256];
} feed_t;

static void feed_free(feed_t *feed)
{
    pl_socket_close(feed->in);
    pl_free(feed);
}

static void feed_watch(feed_t *feed, bool is_watched)
{
    if (is_watched)
        pl_socket_subscribe(feed->in, "", NULL);
    else
        pl_socket_unsubscribe(feed->in, "", NULL);
}

void monitor_feeds_watch(pl_monitor_t *m, bool is_watched)
{
    for (feed_t *feed = m->feeds; feed; feed = feed->next)
        feed_watch(feed, is_watched);
}

void monitor_feeds_close(pl_monitor_t *m)
{
    for (feed_t *feed; (feed = m->feeds);) {
        m->feeds = feed->next;
        feed_free(feed);
    }
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
        pl_socket_publish(m->own.socket, (pl_bytes_t){topic, length},
                          (pl_bytes_t){end + 1, bytes.size - length - 1}, NULL);
}

static void feed_attach(void *argument)
{
    feed_t *feed = argument;
    pl_monitor_t *m = feed->monitor;
    pl_error_t err;
    if (pl_socket_attach(feed->in, &m->reactor->loop, feed_message, feed, &err)
        != PL_OK) {
        pl_log_line(PL_LOG_WARNING, -1, "", "the stream lacks other processes: %s",
                    err.text);
        feed_free(feed);
        return;
    }
    feed->next = m->feeds;
    m->feeds = feed;
    if (m->own.topics.count > 0)
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

static feed_t *feed_new(pl_monitor_t *m, const char *endpoint)
{
    feed_t *feed = pl_alloc(sizeof *feed);
    if (!feed)
        return NULL;
    feed->monitor = m;
    snprintf(feed->endpoint, sizeof feed->endpoint, "%s", endpoint);
    return feed;
}

/* The hub gets a socket that has its place already: so the caller knows where it is. */
int pl_monitor_take(pl_runtime_t *runtime, const char *endpoint, const pl_keys_t *keys,
                    char *bound, size_t room, pl_error_t *err)
{
    pl_monitor_t *m = monitor_of(runtime);
    feed_t *feed = feed_new(m, endpoint);
    if (!feed)
        return pl_no_memory(err);
    const pl_socket_spec_t spec = {.type = PL_SOCKET_SUB,
                                   .endpoint = endpoint,
                                   .keys = keys,
                                   .bind = true,
                                   .high_water_mark = m->lossless ? 0 : BACKLOG_LINES,
                                   .message_most = LINE_MOST + TOPIC_MOST};
    feed->in = pl_socket_open(&spec, NULL, NULL, NULL, err);
    int code = feed->in ? pl_socket_endpoint(feed->in, feed->endpoint,
                                             sizeof feed->endpoint, err)
                        : PL_EIO;
    snprintf(bound, room, "%s", feed->endpoint);
    if (code == PL_OK)
        code = pl_reactor_post(m->reactor, feed_attach, feed, err);
    if (code != PL_OK)
        feed_free(feed);
    return code;
}

void pl_monitor_take_no_more(pl_runtime_t *runtime, const char *bound)
{
    pl_monitor_t *m = monitor_of(runtime);
    feed_t *which = m ? feed_new(m, bound) : NULL;
    if (which && pl_reactor_post(m->reactor, feed_close, which, NULL) != PL_OK)
        pl_free(which);
}
