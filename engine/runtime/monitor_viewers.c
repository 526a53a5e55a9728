/* monitor_viewers.c - the viewers of a hub, and the lines that they get
 *
 * ZeroMQ needs some µs of a processor to send a line to a viewer.  A thousand viewers
 * cannot get all lines of a run with small steps: that would take a hundred processors,
 * and training needs the few that there are.  With more than a few viewers, all of them
 * together get a fixed number of lines a turn.  A turn is a second, or longer with many
 * viewers to wake.  So viewers see bursts, in which calls have their answers, with gaps
 * between them, which `seq` shows.  A line of a kind that is rare and was not shown for a
 * turn, such as the end of an epoch, does not wait for the next burst: a second share, as
 * large, is for such lines, and a third for errors and for messages of loops and higher
 * levels.  The start and end of a run are always shown.  Lines are held for a moment, so
 * several of them take one system call for each viewer, and wake it once. */
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/random.h"
#include "runtime/monitor_parts.h"

enum {
    VIEWERS_AT_FILE = 1024,
    VIEWERS_FEW = 32,
    VIEWERS_AT_PORT = 2048,
    COMERS_A_SECOND = 250,
    SUBSCRIPTION_MAX = 256,
    LINGER_MS = 1000,
    ALL_LINES_TO = 4,                              /* so many viewers get all lines */
    LINES_A_TURN = 20000,                          /* to more, together, in bursts; and as
                                                      many again of rare kinds */
    OFTEN = 64,                                    /* lines of a kind in a turn */
    WOKEN_A_SECOND = 200,                          /* viewers that bursts may wake */
    SORTS_MAX = 1 << 16,
    HELD_MIN_MS = 20,
    HELD_MAX_MS = 1000,                                     /* 1 for each viewer */
    HELD_BYTES = 256 << 10,
};
static const int64_t SAY_EVERY = 10 * PL_SECOND;

/* Lines of one topic. */
typedef struct sort {
    uint64_t looked;                               /* audience_t.looked when is_wanted was
                                                      set */
    bool is_wanted;                                /* a viewer subscribes to them */
    struct {
        int64_t shown;                               /* pl_now(), last */
        int64_t since;                               /* when its turn began */
        unsigned came, before;                       /* in that turn; in the one before */
    } kind[PL_KINDS];
} sort_t;

/* The head of a line that is held. */
typedef struct held {
    size_t topic, line;                                     /* bytes, which follow */
} held_t;

/* ---- subscriptions ---- */

/* 0 is no key. */
static uint64_t topic_key(const char *topic, size_t length)
{
    const uint64_t key = pl_hash(PL_HASH_EMPTY, topic, length);
    return key ? key : 1;
}

bool monitor_has_topic(const pl_monitor_t *m, const char *topic, size_t length)
{
    return pl_map_get(&m->own.topics, topic_key(topic, length)) != NULL;
}

void monitor_count_watchers(pl_monitor_t *m)
{
    m->reported = monitor_taps_wanted(m);
    const int here = (int)m->own.topics.count + m->tap_count;
    const int count = here + (int)m->other.topics.count + (m->held_until != 0);
    __atomic_store_n(&m->watchers, count, __ATOMIC_RELEASE);
    if (m->feeds_are_watched == (here > 0))
        return;
    m->feeds_are_watched = here > 0;
    monitor_feeds_watch(m, here > 0);
}

/* XPUB also reports the end of subscriptions that never began, so the topics are kept
 * in a map. */
static void hub_subscription(void *user, uint32_t identity, pl_frame_t *frame)
{
    (void)identity;
    outlet_t *outlet = user;
    pl_monitor_t *m = outlet->monitor;
    pl_bytes_t bytes = frame ? pl_frame_bytes(frame) : (pl_bytes_t){0};
    const char *first = bytes.data;
    if (!bytes.size || (*first != 0 && *first != 1)) {
        pl_count(&m->runtime->malformed);
        return;
    }
    const uint64_t topic = topic_key(first + 1, bytes.size - 1);
    if (*first == 0)
        pl_map_take(&outlet->topics, topic);
    else if (pl_map_put(&outlet->topics, topic, m) != PL_OK)
        pl_log_line(PL_LOG_WARNING, -1, "", "no memory for a viewer's topic");
    if (outlet == &m->other)
        m->held_until = 0;
    m->audience.looked++;
    monitor_count_watchers(m);
}

/* ---- the number of viewers ---- */

/* Each limit is logged by itself, once in a while. */
static void tell_limit(pl_monitor_t *m, int peers, limit_t limit)
{
    audience_t *a = &m->audience;
    const int64_t now = pl_now();
    if (a->viewers >= peers || (a->said[limit] && now - a->said[limit] < SAY_EVERY))
        return;
    a->said[limit] = now;
    if (limit == LIMIT_VIEWERS)
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "the stream has %d viewers, which is the limit", peers);
    else if (limit == LIMIT_DESCRIPTORS)
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "the stream has %d viewers, and few descriptors are left for more: "
                    "the limit is %d; raise it (ulimit -n)",
                    peers, pl_descriptors_max());
    else
        pl_log_line(PL_LOG_WARNING, -1, "",
                    "%s: more than %d connections a second, so some wait", m->endpoint,
                    COMERS_A_SECOND);
}

/* The number of viewers is bounded.  No more are admitted at the limit of viewers, nor
 * when few descriptors are left: ZeroMQ ends the process when it has none for a viewer
 * at a file.  At a port some connections may be strangers, which are dropped when they
 * send nothing, so it is shut only with more connections. */
static void hub_peers(void *user, int peers)
{
    pl_monitor_t *m = ((outlet_t *)user)->monitor;
    const bool few = pl_descriptors_are_few(), is_file = !strncmp(m->endpoint, "ipc:", 4),
               is_full = peers >= (is_file ? VIEWERS_AT_FILE : VIEWERS_AT_PORT);
    if (pl_socket_is_flooded(m->own.socket))
        tell_limit(m, peers, LIMIT_COMERS);
    if (is_full || few)
        tell_limit(m, peers, is_full ? LIMIT_VIEWERS : LIMIT_DESCRIPTORS);
    __atomic_store_n(&m->audience.viewers, peers, __ATOMIC_RELAXED);
    pl_socket_shut(m->own.socket, is_full || few);
    pl_socket_shut_port(m->own.socket, is_full || (peers > VIEWERS_FEW && few));
}

/* ---- the lines that viewers get ---- */

/* "RANK.TO.NAME".  snprintf() would take longer than the rest of the work for a line.
 * The text fits: names of actors are shorter than 48 bytes. */
static pl_bytes_t topic_make(char topic[TOPIC_MAX], const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    const int rank = record->stamp.rank;
    char *end = topic;
    if (rank >= 0 && rank < 10)
        *end++ = (char)('0' + rank);
    else
        end += sprintf(end, "%d", rank);
    *end++ = '.';
    end = stpcpy(end, pl_kind_name(e->to_kind));
    *end++ = '.';
    end = stpcpy(end, pl_message_info(e->message)->name);
    return (pl_bytes_t){topic, (size_t)(end - topic)};
}

/* NULL: no memory. */
static sort_t *sort_of(audience_t *a, const pl_tap_record_t *record)
{
    const pl_envelope_t *e = &record->envelope;
    const uint64_t key = (uint64_t)(record->stamp.rank + 2) << 40
                         ^ (uint64_t)e->to_kind << 16 ^ e->message;
    sort_t *sort = pl_map_get(&a->sorts, key);
    if (sort)
        return sort;
    if (a->sorts.count >= SORTS_MAX)
        pl_map_release_values(&a->sorts);
    sort = pl_alloc(sizeof *sort);
    if (sort && pl_map_put(&a->sorts, key, sort) != PL_OK) {
        pl_free(sort);
        return NULL;
    }
    return sort;
}

static bool is_wanted(pl_monitor_t *m, sort_t *sort, const pl_tap_record_t *record)
{
    char text[TOPIC_MAX];
    if (sort->looked == m->audience.looked)
        return sort->is_wanted;
    const pl_bytes_t topic = topic_make(text, record);
    size_t length = 0;
    while (length <= topic.size
           && !pl_map_get(&m->own.topics, topic_key(topic.data, length)))
        length++;
    sort->looked = m->audience.looked;
    return sort->is_wanted = length <= topic.size;
}

static int64_t lines_more(int64_t now, int64_t more)
{
    return now + more < LINES_A_TURN ? now + more : LINES_A_TURN;
}

/* Counts a line, and takes it from the allowance if it may leave.  A kind is rare when
 * few lines of it come and none was shown for a turn.  Errors and messages of loops
 * and higher levels may overdraw the share of rare lines. */
static bool allowance_take(pl_monitor_t *m, sort_t *sort, const pl_envelope_t *e)
{
    audience_t *a = &m->audience;
    if (m->lossless || a->viewers <= ALL_LINES_TO)
        return true;
    const int64_t now = pl_now(), second = PL_SECOND,
                  turn = a->viewers > WOKEN_A_SECOND
                             ? second / WOKEN_A_SECOND * a->viewers
                             : second;
    int64_t gone = now - a->grown < turn ? now - a->grown : turn;
    const int64_t lines = gone * LINES_A_TURN / turn;
    if (lines > 0) {                                        /* grows, up to a burst */
        a->grown = gone == turn ? now : a->grown + lines * turn / LINES_A_TURN;
        a->rare = lines_more(a->rare, lines);
        a->allowance = lines_more(a->allowance, lines);
        a->pauses &= a->allowance < LINES_A_TURN;
    }
    gone = now - sort->kind[e->kind].since;
    if (gone >= turn) {
        sort->kind[e->kind].before = gone < 2 * turn ? sort->kind[e->kind].came : 0;
        sort->kind[e->kind].came = 0;
        sort->kind[e->kind].since = now;
    }
    const bool asks = e->kind == PL_KIND_CALL || e->kind == PL_KIND_CANCEL,
               matters = e->kind == PL_KIND_ERROR
                         || pl_kind_level(asks ? e->to_kind : e->from_kind)
                                > PL_LEVEL_CONNECTOR,
               is_few = sort->kind[e->kind].came++ < OFTEN
                        && sort->kind[e->kind].before <= OFTEN,
               is_rare = is_few && now - sort->kind[e->kind].shown >= turn
                         && a->rare > (matters ? -LINES_A_TURN : 0);
    if (a->pauses && !is_rare && !monitor_is_of_whole_run(e))
        return false;
    sort->kind[e->kind].shown = now;
    *(a->pauses ? &a->rare : &a->allowance) -= a->viewers;
    a->pauses |= a->allowance <= 0;
    return true;
}

static void held_publish(pl_monitor_t *m)
{
    audience_t *a = &m->audience;
    held_t held;
    for (size_t at = 0; at < a->held_bytes; at += sizeof held + held.topic + held.line) {
        memcpy(&held, a->held + at, sizeof held);
        const char *topic = a->held + at + sizeof held;
        pl_socket_publish(m->own.socket, (pl_bytes_t){topic, held.topic},
                          (pl_bytes_t){topic + held.topic, held.line}, NULL);
    }
    a->held_bytes = 0;
    if (a->release)
        event_del(a->release);
}

static void held_release(evutil_socket_t fd, short what, void *monitor)
{
    (void)fd, (void)what;
    held_publish(monitor);
}

_Static_assert(sizeof(held_t) + TOPIC_MAX + PL_TAP_LINE_MAX <= HELD_BYTES,
               "each line fits");

/* false: no memory or timer to hold the line. */
static bool hold(pl_monitor_t *m, pl_bytes_t topic, pl_bytes_t line)
{
    audience_t *a = &m->audience;
    const held_t held = {topic.size, line.size};
    const size_t bytes = sizeof held + topic.size + line.size;
    const int min = a->viewers > HELD_MIN_MS ? a->viewers : HELD_MIN_MS,
              ms = min < HELD_MAX_MS ? min : HELD_MAX_MS;
    const struct timeval moment = {ms / 1000, ms % 1000 * 1000};
    if (a->held_bytes + bytes > HELD_BYTES)
        held_publish(m);
    if (!a->held)
        a->held = pl_alloc(HELD_BYTES);
    if (!a->release)
        a->release = event_new(m->reactor->loop.base, -1, 0, held_release, m);
    if (!a->held || !a->release
        || (!a->held_bytes && event_add(a->release, &moment) != 0))
        return false;
    char *end = a->held + a->held_bytes;
    memcpy(end, &held, sizeof held);
    memcpy(end + sizeof held, topic.data, topic.size);
    memcpy(end + sizeof held + topic.size, line.data, line.size);
    a->held_bytes += bytes;
    return true;
}

void monitor_publish(pl_monitor_t *m, const pl_tap_record_t *record)
{
    char text[TOPIC_MAX];
    if ((int)m->own.topics.count <= m->reported)
        return;
    sort_t *sort = sort_of(&m->audience, record);
    if (!sort || !is_wanted(m, sort, record)
        || !allowance_take(m, sort, &record->envelope))
        return;
    const size_t length = pl_tap_line(record, m->line, sizeof m->line);
    if (!length)
        return;
    const pl_bytes_t topic = topic_make(text, record), line = {m->line, length};
    if (!m->lossless && m->audience.viewers > ALL_LINES_TO && hold(m, topic, line))
        return;
    held_publish(m);                                        /* few viewers: at once */
    pl_socket_publish(m->own.socket, topic, line, NULL);
}

/* ---- life ---- */

int monitor_outlet_open(pl_monitor_t *m, outlet_t *outlet, const pl_socket_spec_t *with,
                        pl_error_t *err)
{
    pl_socket_spec_t spec = *with;
    spec.type = PL_SOCKET_XPUB;
    spec.linger_ms = spec.bind ? LINGER_MS : MONITOR_LAST_MS;
    spec.high_water_mark = m->lossless ? 0 : BACKLOG_LINES;
    spec.message_max = SUBSCRIPTION_MAX;
    spec.on_peers = spec.bind ? hub_peers : NULL;
    spec.comers_a_second = spec.bind ? COMERS_A_SECOND : 0;
    outlet->socket = pl_socket_open(&spec, &m->reactor->loop, hub_subscription, outlet,
                                    err);
    return outlet->socket ? PL_OK : err->code;
}

void monitor_outlet_close(outlet_t *outlet)
{
    pl_monitor_t *m = outlet->monitor;
    audience_t *a = &m->audience;
    if (outlet == &m->own) {
        held_publish(m);
        if (a->release)
            event_free(a->release);
        pl_free(a->held);
        pl_map_release_values(&a->sorts);
        *a = (audience_t){0};
    }
    pl_socket_close(outlet->socket);
    outlet->socket = NULL;
    pl_map_release(&outlet->topics);
}
