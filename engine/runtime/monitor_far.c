/* monitor_far.c - one stream of several processes: their hubs send messages to the hub of
 * rank zero
 *
 * Each hub numbers the messages of its own process and sends them unchanged, while the
 * other hub has a viewer.  A message that cannot be sent in time is dropped, and the
 * numbers show it.  At its end a hub sends the number of its messages, which shows drops
 * after the last one.  Nothing else waits for another hub.  Kind numbers of actors are
 * local to a process, so names travel with them. */
#include "runtime/monitor_parts.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

static const int64_t HOLD = PL_SECOND;       /* at most, until the other hub subscribes */

/* ---- to another hub ---- */

/* The head of a frame on its way: this struct and the kinds whose numbers the frame has.
 * Without a frame it ends the rank's messages, and seq is their number. */
typedef struct brought {
    uint64_t seq;
    int64_t time;
    int32_t rank;
    uint32_t kinds;
} brought_t;

typedef struct brought_kind {
    uint32_t number;
    int32_t level;
    char name[48];
} brought_kind_t;

enum { KINDS_MAX = PL_PEERS_MAX + 2 };

typedef struct brought_head {
    brought_t brought;
    brought_kind_t kind[KINDS_MAX];
} brought_head_t;

_Static_assert(sizeof(brought_t) % 8 == 0 && sizeof(brought_kind_t) % 8 == 0,
               "frames start at a multiple of 8");

static void kind_add(void *user, uint32_t *number)
{
    brought_head_t *head = user;
    if (head->brought.kinds == KINDS_MAX)
        return;
    brought_kind_t *kind = &head->kind[head->brought.kinds++];
    *kind = (brought_kind_t){.number = *number, .level = pl_kind_level(*number)};
    snprintf(kind->name, sizeof kind->name, "%s", pl_kind_name(*number));
}

void monitor_bring(pl_monitor_t *m, const pl_tap_record_t *record)
{
    brought_head_t head = {.brought = {.seq = record->stamp.seq,
                                       .time = record->stamp.time,
                                       .rank = record->stamp.rank}};
    pl_frame_t frame;
    pl_frame_kinds(record->frame, kind_add, &head);
    const size_t size = sizeof head.brought + head.brought.kinds * sizeof *head.kind;
    if (pl_frame_join(&frame, (pl_bytes_t){&head, size}, record->frame, NULL) == PL_OK)
        pl_socket_send(m->other.socket, 0, &frame, NULL);
}

void monitor_bring_end(pl_monitor_t *m)
{
    static const struct timespec nap = {.tv_nsec = 2 * PL_MILLISECOND};
    pthread_mutex_lock(&m->runtime->lock);
    const pl_rank_seq_t *seq = m->runtime->seqs;        /* the list only grows in front */
    pthread_mutex_unlock(&m->runtime->lock);
    for (; seq && m->other.topics.count; seq = seq->other) {
        const uint64_t dropped = __atomic_load_n(&seq->dropped, __ATOMIC_RELAXED);
        const brought_t last = {.seq = seq->next + dropped, .rank = seq->rank};
        const int64_t until = pl_now() + MONITOR_LAST_MS * PL_MILLISECOND;
        pl_frame_t frame;
        if (seq->rank < 0)
            continue;
        /* The socket may be full of earlier messages: this one is worth a wait. */
        while (
            pl_frame_join(&frame, (pl_bytes_t){&last, sizeof last}, (pl_bytes_t){0}, NULL)
                == PL_OK
            && pl_socket_send(m->other.socket, 0, &frame, NULL) == PL_EBUSY
            && pl_now() < until)
            nanosleep(&nap, NULL);
    }
    monitor_outlet_close(&m->other);
}

static int bring_begin(pl_monitor_t *m, const void *argument, pl_error_t *err)
{
    const pl_monitor_bring_t *how = argument;
    const pl_socket_spec_t spec = {.endpoint = how->endpoint, .keys = how->keys};
    monitor_bring_end(m);
    int code = monitor_outlet_open(m, &m->other, &spec, err);
    if (code == PL_OK && how->is_awaited && !m->own.topics.count)
        m->held_until = pl_now() + HOLD;
    m->brings = true;
    m->run = how->run;
    m->shift = how->time;
    monitor_count_watchers(m);
    return code;
}

static void bring_end(void *argument)
{
    pl_monitor_t *m = argument;
    m->held_until = 0;
    monitor_flush(m);
    monitor_bring_end(m);
    m->run = 0;
    m->shift = 0;
    monitor_count_watchers(m);
}

int pl_monitor_bring(pl_runtime_t *runtime, const pl_monitor_bring_t *how,
                     pl_error_t *err)
{
    pl_monitor_bring_t from_here = *how;
    from_here.time -= how->time ? pl_now() - runtime->began : 0;
    return monitor_ask(runtime, how->lossless, bring_begin, &from_here, err);
}

void pl_monitor_bring_no_more(pl_runtime_t *runtime)
{
    pl_monitor_t *m = monitor_of(runtime);
    if (m)
        pl_reactor_post(m->reactor, bring_end, m, NULL);
}

/* ---- from other hubs ---- */

/* An endpoint that receives messages of other hubs. */
typedef struct feed {
    struct feed *next;
    pl_monitor_t *monitor;
    pl_socket_t *in;                                        /* SUB */
    uint32_t number;                                        /* of all feeds, from 0 */
    uint64_t under;                                         /* see pl_tap_record_t */
    char endpoint[256];
    int lost;                                       /* of a request: the rank that died */
} feed_t;

static void feed_free(feed_t *feed)
{
    pl_socket_close(feed->in);
    pl_free(feed);
}

void monitor_feeds_watch(pl_monitor_t *m, bool is_watched)
{
    for (feed_t *feed = m->feeds; feed; feed = feed->next)
        pl_socket_subscribe(feed->in, "", is_watched, NULL);
}

void monitor_feeds_close(pl_monitor_t *m)
{
    for (feed_t *feed; (feed = m->feeds);) {
        m->feeds = feed->next;
        feed_free(feed);
    }
}

/* Replaces the kind number of the other process by the number in this one. */
static void kind_translate(void *user, uint32_t *number)
{
    const brought_head_t *head = user;
    uint32_t k = 0;
    while (k < head->brought.kinds && head->kind[k].number != *number)
        k++;
    *number = *number && k < head->brought.kinds
                  ? pl_kind_enter(head->kind[k].name, head->kind[k].level, NULL)
                  : 0;
}

static bool head_read(pl_bytes_t bytes, brought_head_t *head, size_t *size)
{
    if (bytes.size < sizeof head->brought)
        return false;
    memcpy(&head->brought, bytes.data, sizeof head->brought);
    if (head->brought.kinds > KINDS_MAX)
        return false;
    *size = sizeof head->brought + head->brought.kinds * sizeof *head->kind;
    if (bytes.size < *size || bytes.size - *size > PL_TAP_FRAME_MAX)
        return false;
    memcpy(head, bytes.data, *size);
    for (uint32_t k = 0; k < head->brought.kinds; k++)
        if (!memchr(head->kind[k].name, 0, sizeof head->kind[k].name))
            return false;
    return head->brought.rank >= 0 && head->brought.seq <= INT64_MAX
           && head->brought.time >= 0;
}

static bool brought_read(const feed_t *feed, pl_bytes_t bytes, unsigned char *buffer,
                         pl_tap_record_t *record)
{
    brought_head_t head;
    size_t size;
    if (!head_read(bytes, &head, &size))
        return false;
    *record = (pl_tap_record_t){.stamp = {.seq = head.brought.seq,
                                          .time = head.brought.time,
                                          .rank = head.brought.rank},
                                .process_id = pl_stream_process(feed->number,
                                                                head.brought.rank),
                                .under = feed->under,
                                .frame = {buffer, bytes.size - size}};
    memcpy(buffer, (const unsigned char *)bytes.data + size, record->frame.size);
    if (pl_envelope_read(record->frame, &record->envelope, NULL) != PL_OK)
        return false;
    pl_frame_kinds(record->frame, kind_translate, &head);
    return pl_envelope_read(record->frame, &record->envelope, NULL) == PL_OK;
}

static void feed_message(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity;
    static _Thread_local _Alignas(8) unsigned char buffer[PL_TAP_FRAME_MAX];
    const feed_t *feed = user;
    pl_monitor_t *m = feed->monitor;
    const pl_bytes_t bytes = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    pl_tap_record_t record;
    brought_head_t last;
    size_t size;
    if (bytes.size == sizeof last.brought && head_read(bytes, &last, &size))
        monitor_taps_end(m, pl_stream_process(feed->number, last.brought.rank),
                         last.brought.rank, &last.brought.seq);
    else if (frame && brought_read(feed, bytes, buffer, &record))
        monitor_show(m, &record);
    else
        pl_count(&m->runtime->malformed);
}

static void feed_attach(void *argument)
{
    feed_t *feed = argument;
    pl_monitor_t *m = feed->monitor;
    pl_error_t err;
    if (pl_socket_attach(feed->in, &m->reactor->loop, feed_message, feed, &err)
        != PL_OK) {
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "the stream has no messages of other processes: %s", err.text);
        feed_free(feed);
        return;
    }
    feed->number = m->feed_count++;
    feed->next = m->feeds;
    m->feeds = feed;
    if (m->feeds_are_watched)
        pl_socket_subscribe(feed->in, "", true, NULL);
}

/* The list position of the feed with the endpoint of a request. */
static feed_t **feed_find(const feed_t *request)
{
    feed_t **at = &request->monitor->feeds;
    while (*at && strcmp((*at)->endpoint, request->endpoint))
        at = &(*at)->next;
    return at;
}

static void feed_lost(void *argument)
{
    feed_t *request = argument;
    feed_t *feed = *feed_find(request);
    if (feed) {
        pl_socket_drain(feed->in);
        monitor_taps_end(feed->monitor, pl_stream_process(feed->number, request->lost),
                         request->lost, NULL);
    }
    pl_free(request);
}

static void feed_close(void *argument)
{
    feed_t *request = argument;
    feed_t **at = feed_find(request), *feed = *at;
    if (feed) {
        pl_socket_drain(feed->in);
        *at = feed->next;
        feed_free(feed);
    }
    pl_free(request);
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

/* The socket is bound before the hub gets it, so the caller knows the endpoint. */
int pl_monitor_take(pl_runtime_t *runtime, const pl_monitor_take_t *how, char *bound,
                    size_t buffer, pl_error_t *err)
{
    pl_monitor_t *m = monitor_of(runtime);
    feed_t *feed = feed_new(m, how->endpoint);
    if (!feed)
        return pl_no_memory(err);
    feed->under = how->under;
    const pl_socket_spec_t spec = {.type = PL_SOCKET_SUB,
                                   .endpoint = how->endpoint,
                                   .keys = how->keys,
                                   .bind = true,
                                   .high_water_mark = m->lossless ? 0 : BACKLOG_LINES,
                                   .message_max = sizeof(brought_head_t)
                                                  + PL_TAP_FRAME_MAX};
    feed->in = pl_socket_open(&spec, NULL, NULL, NULL, err);
    int code = feed->in ? pl_socket_endpoint(feed->in, feed->endpoint,
                                             sizeof feed->endpoint, err)
                        : PL_EIO;
    snprintf(bound, buffer, "%s", feed->endpoint);
    if (code == PL_OK)
        code = pl_reactor_post(m->reactor, feed_attach, feed, err);
    if (code != PL_OK)
        feed_free(feed);
    return code;
}

void pl_monitor_lost(pl_runtime_t *runtime, const char *bound, int rank)
{
    pl_monitor_t *m = monitor_of(runtime);
    feed_t *request = m ? feed_new(m, bound) : NULL;
    if (!request)
        return;
    request->lost = rank;
    if (pl_reactor_post(m->reactor, feed_lost, request, NULL) != PL_OK)
        pl_free(request);
}

void pl_monitor_take_no_more(pl_runtime_t *runtime, const char *bound)
{
    pl_monitor_t *m = monitor_of(runtime);
    feed_t *request = m ? feed_new(m, bound) : NULL;
    if (request && pl_reactor_post(m->reactor, feed_close, request, NULL) != PL_OK)
        pl_free(request);
}
