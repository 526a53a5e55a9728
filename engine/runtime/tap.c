/* tap.c - taps: receivers of the stream in this process */
#include "runtime/tap.h"

#include <event2/event.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"
#include "runtime/monitor_parts.h"

typedef struct tap {
    struct tap *next;
    const pl_tap_ops_t *ops;
    void *self;
    pl_map_t expected;                       /* number of the next message + 1, by rank */
    bool is_idle;                            /* it publishes, and has no subscriber */
} tap_t;

/* Ranks of one process, or one of another. */
static uint64_t key_of(uint32_t process_id, int rank)
{
    return (uint64_t)process_id << 32 | (uint32_t)(rank + 2);
}

void monitor_taps_end(pl_monitor_t *m, uint32_t process_id, int rank,
                      const uint64_t *sent)
{
    for (tap_t *tap = m->taps; tap; tap = tap->next) {
        const uint64_t expected = (uintptr_t)pl_map_take(&tap->expected,
                                                         key_of(process_id, rank));
        if (expected && tap->ops->gap && (!sent || *sent > expected - 1))
            tap->ops->gap(tap->self, rank, sent ? *sent - (expected - 1) : 0);
    }
}

/* Messages before the tap's first one are no gap, nor are those before a rank was started
 * again.  Without memory for the number a gap may not be reported. */
void monitor_taps_show(pl_monitor_t *m, const pl_tap_record_t *record)
{
    const pl_stamp_t *stamp = &record->stamp;
    const uint64_t key = key_of(record->process_id, stamp->rank);
    for (tap_t *tap = m->taps; tap; tap = tap->next) {
        if (tap->is_idle)
            continue;
        const uint64_t expected = (uintptr_t)pl_map_get(&tap->expected, key);
        if (expected && stamp->seq > expected - 1 && tap->ops->gap)
            tap->ops->gap(tap->self, stamp->rank, stamp->seq - (expected - 1));
        pl_map_put(&tap->expected, key, (void *)(uintptr_t)(stamp->seq + 2));
        tap->ops->record(tap->self, record);
    }
}

static void tap_tell(pl_monitor_t *m, const tap_t *tap)
{
    const char *topic = tap->ops->topic;
    char *text = topic && !tap->is_idle ? tap->ops->tell(tap->self) : NULL;
    if (text)
        pl_socket_publish(m->own.socket, (pl_bytes_t){topic, strlen(topic)},
                          (pl_bytes_t){text, strlen(text)}, NULL);
    pl_text_free(text);
}

int monitor_taps_wanted(pl_monitor_t *m)
{
    int wanted = 0;
    for (tap_t *tap = m->taps; tap; tap = tap->next) {
        const char *topic = tap->ops->topic;
        const bool is_wanted = topic && monitor_has_topic(m, topic, strlen(topic));
        wanted += is_wanted;
        if (!topic || tap->is_idle != is_wanted)
            continue;
        tap->is_idle = !is_wanted;
        pl_map_release(&tap->expected);           /* messages while it was idle: no gap */
        tap->ops->watched(tap->self, is_wanted);
    }
    return wanted;
}

static void taps_tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    pl_monitor_t *m = user;
    for (tap_t *tap = m->taps; tap; tap = tap->next) {
        if (tap->ops->tick)
            tap->ops->tick(tap->self);
        tap_tell(m, tap);
    }
}

void monitor_taps_close(pl_monitor_t *m)
{
    for (tap_t *tap; (tap = m->taps);) {
        m->taps = tap->next;
        /* No number shows messages that were dropped after the last one. */
        pthread_mutex_lock(&m->runtime->lock);
        const pl_rank_seq_t *seq = tap->ops->gap ? m->runtime->seqs : NULL;
        for (; seq; seq = seq->other) {
            const uint64_t dropped = __atomic_load_n(&seq->dropped, __ATOMIC_RELAXED);
            if (dropped && pl_map_get(&tap->expected, key_of(0, seq->rank)))
                tap->ops->gap(tap->self, seq->rank, dropped);
        }
        pthread_mutex_unlock(&m->runtime->lock);
        tap_tell(m, tap);
        if (tap->ops->close)
            tap->ops->close(tap->self);
        pl_map_release(&tap->expected);
        pl_free(tap);
    }
    if (m->tick)
        event_free(m->tick);
    m->tick = NULL;
}

/* A message goes to taps in the order in which they were added. */
static int tap_begin(pl_monitor_t *m, const void *argument, pl_error_t *err)
{
    static const struct timeval every = {0, PL_TAP_TICK_MS * 1000};
    const tap_t *wanted = argument;
    tap_t *tap = pl_alloc(sizeof *tap), **last = &m->taps;
    bool ticks = m->tick;
    if (tap && !ticks) {
        m->tick = event_new(m->reactor->loop.base, -1, EV_PERSIST, taps_tick, m);
        ticks = m->tick && event_add(m->tick, &every) == 0;
    }
    if (!tap || !ticks) {
        pl_free(tap);
        return pl_no_memory(err);
    }
    *tap = *wanted;
    while (*last)
        last = &(*last)->next;
    *last = tap;
    tap->is_idle = tap->ops->topic != NULL;
    if (!tap->is_idle)
        __atomic_add_fetch(&m->tap_count, 1, __ATOMIC_RELEASE);
    monitor_count_watchers(m);
    return PL_OK;
}

int pl_tap_add(pl_runtime_t *runtime, const pl_tap_ops_t *ops, void *self,
               pl_error_t *err)
{
    const tap_t tap = {.ops = ops, .self = self};
    return monitor_ask(runtime, false, tap_begin, &tap, err);
}

size_t pl_tap_line(const pl_tap_record_t *record, char *text, size_t capacity)
{
    return pl_message_json(record->frame, &record->stamp, record->process_id, text,
                           capacity);
}
