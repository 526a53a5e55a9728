/* monitor_parts.h - what monitor.c (one hub), monitor_viewers.c (who watches it) and
 * monitor_far.c (hubs of several processes) share */
#ifndef PL_RUNTIME_MONITOR_PARTS_H
#define PL_RUNTIME_MONITOR_PARTS_H

#include "base/map.h"
#include "runtime/monitor.h"
#include "runtime/tap.h"
#include "transport/socket.h"

enum {
    BACKLOG_LINES = 2000,                              /* that wait for one slow viewer */
    TOPIC_MAX = 128,
    MONITOR_LAST_MS = 3000,            /* for what is brought at the end, twice at most */
};

/* A socket that messages go to, and the topics that are subscribed to there: what this
 * hub publishes itself as lines, or another process's hub, which it brings them to. */
typedef struct outlet {
    pl_monitor_t *monitor;
    pl_socket_t *socket;                                    /* XPUB  [none] */
    pl_map_t topics;
} outlet_t;

/* What keeps viewers outside. */
typedef enum limit { LIMIT_VIEWERS, LIMIT_DESCRIPTORS, LIMIT_COMERS, LIMITS } limit_t;

/* Who watches what is published. */
typedef struct audience {
    int viewers;                                /* atomic */
    int64_t said[LIMITS];                       /* when it was told last  [0: never] */
    uint64_t looked;                            /* grows when topics change */
    pl_map_t sorts;                             /* of lines: struct sort */
    int64_t allowance, rare;                    /* lines that may leave in bursts; else */
    int64_t grown;                              /* since when */
    bool pauses;                                /* until it has grown to a burst */
    char *held;                                 /* lines that leave together: struct held,
                                                   topic, line  [none] */
    size_t held_bytes;
    struct event *release;                         /* of them, a moment after the first */
} audience_t;

struct pl_monitor {
    pl_runtime_t *runtime;
    pl_reactor_t *reactor;                                  /* the hub's thread */
    bool lossless;
    bool publishes;                           /* atomic: there is an endpoint */
    bool brings;                              /* it was begun for another process's hub */
    char endpoint[256];                       /* of what it publishes, once it does */
    /* The hub's: */
    outlet_t own, other;                           /* published; brought to another hub */
    struct feed *feeds;                            /* what others bring */
    uint32_t feed_count;                           /* there have been */
    struct tap *taps;
    bool feeds_are_watched;
    audience_t audience;
    int64_t held_until;               /* what comes waits for the other hub to say what it
                                         wants  [0: it does not wait] */
    int64_t shift;                    /* ns to the other hub's time */
    uint64_t run;                     /* whose lines these are there  [0: as they say] */

    int watchers;                   /* atomic: topics, of both, and taps */
    int tap_count;                  /* atomic: without those that tell something */
    int reported;                   /* topics of `own` that taps tell */
    struct record *top;             /* atomic: newest first */
    size_t waiting;                 /* atomic: bytes in records */
    bool looks;                     /* atomic: the hub will look at the stack by itself */
    int wake_fd;                    /* eventfd: look now */
    struct event *wake, *look, *tick;
    char line[PL_TAP_LINE_MAX];
};

/* A call of a whole run or its end: they are few, and without its end a run would seem to
 * go on. */
static inline bool monitor_is_of_whole_run(const pl_envelope_t *e)
{
    return e->message == PL_MESSAGE_run && e->kind != PL_KIND_PROGRESS;
}

/* From any thread; NULL: there is none. */
static inline pl_monitor_t *monitor_of(const pl_runtime_t *runtime)
{
    return __atomic_load_n(&runtime->monitor, __ATOMIC_ACQUIRE);
}

/* Does what is asked on the hub's thread and waits for it.  Where there is no hub it is
 * made, and is there afterwards unless that fails. */
typedef int (*monitor_ask_t)(pl_monitor_t *m, const void *argument, pl_error_t *err);
int monitor_ask(pl_runtime_t *runtime, bool lossless, monitor_ask_t ask,
                const void *argument, pl_error_t *err);

/* On the hub's thread: */
/* Sends all there is on its way; false: there was nothing. */
bool monitor_flush(pl_monitor_t *m);
/* A message with its stamp, to whoever watches here. */
void monitor_show(pl_monitor_t *m, const pl_tap_record_t *record);

/* monitor_viewers.c */
int monitor_outlet_open(pl_monitor_t *m, outlet_t *outlet, const pl_socket_spec_t *with,
                        pl_error_t *err);
void monitor_outlet_close(outlet_t *outlet);
/* Who watches has changed. */
void monitor_count_watchers(pl_monitor_t *m);
/* Whether somebody subscribes to just that, of what is published here. */
bool monitor_has_topic(const pl_monitor_t *m, const char *topic, size_t length);
/* A message with its stamp, to viewers. */
void monitor_publish(pl_monitor_t *m, const pl_tap_record_t *record);

/* monitor_far.c: while nobody watches here, other hubs need not bring anything. */
void monitor_feeds_watch(pl_monitor_t *m, bool is_watched);
void monitor_feeds_close(pl_monitor_t *m);
void monitor_bring(pl_monitor_t *m, const pl_tap_record_t *record);
/* After the last: how many there have been; and it is closed. */
void monitor_bring_end(pl_monitor_t *m);

/* tap.c */
/* How many taps are to tell something; these, and no others, are told so. */
int monitor_taps_wanted(pl_monitor_t *m);
void monitor_taps_show(pl_monitor_t *m, const pl_tap_record_t *record);
/* No more comes of a rank of another process, which has sent so many in all  [NULL:
 * nobody knows]. */
void monitor_taps_end(pl_monitor_t *m, uint32_t process_id, int rank,
                      const uint64_t *sent);
void monitor_taps_close(pl_monitor_t *m);

#endif
