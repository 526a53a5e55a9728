/* monitor_parts.h - the hub's struct, which monitor.c, monitor_viewers.c,
 * monitor_far.c and tap.c share */
#ifndef PL_RUNTIME_MONITOR_PARTS_H
#define PL_RUNTIME_MONITOR_PARTS_H

#include "base/map.h"
#include "runtime/monitor.h"
#include "runtime/tap.h"
#include "transport/socket.h"

enum {
    BACKLOG_LINES = 2000,                                 /* in the queue of one viewer */
    TOPIC_MAX = 128,
    MONITOR_LAST_MS = 3000,                 /* to send the last messages, twice at most */
};

/* A socket for messages and its subscribed topics: lines for viewers, or frames for
 * the hub of another process. */
typedef struct outlet {
    pl_monitor_t *monitor;
    pl_socket_t *socket;                                    /* XPUB  [none] */
    pl_map_t topics;
} outlet_t;

/* The limits of admission. */
typedef enum limit { LIMIT_VIEWERS, LIMIT_DESCRIPTORS, LIMIT_COMERS, LIMITS } limit_t;

/* The viewers of the stream. */
typedef struct audience {
    int viewers;                                /* atomic */
    int64_t said[LIMITS];                       /* last logged  [0: never] */
    uint64_t looked;                            /* grows when topics change */
    pl_map_t sorts;                             /* of lines: struct sort */
    int64_t allowance, rare;                    /* lines that may leave: in bursts, of
                                                   rare kinds */
    int64_t grown;                              /* when the two grew last */
    bool pauses;                                /* until `allowance` is a burst */
    char *held;                                 /* lines that leave together: struct held,
                                                   topic, line  [none] */
    size_t held_bytes;
    struct event *release;                           /* publishes them, a moment after the
                                                        first */
} audience_t;

struct pl_monitor {
    pl_runtime_t *runtime;
    pl_reactor_t *reactor;                                  /* the hub's thread */
    bool lossless;
    bool publishes;                                /* atomic: there is an endpoint */
    bool brings;                                   /* it sends to another process's hub */
    char endpoint[256];                            /* of publishing, once it publishes */
    /* Used by the hub's thread only: */
    outlet_t own, other;                                  /* to viewers; to another hub */
    struct feed *feeds;                                   /* from other hubs */
    uint32_t feed_count;                                  /* so far */
    struct tap *taps;
    bool feeds_are_watched;
    audience_t audience;
    int64_t held_until;                /* messages wait for subscriptions of the other hub
                                          [0: they do not wait] */
    int64_t shift;                     /* ns to the other hub's time */
    uint64_t run;                      /* replaces the run of messages  [0: keeps it] */

    int watchers;                   /* atomic: topics, of both, and taps */
    int tap_count;                  /* atomic: without taps that publish */
    int reported;                   /* topics of `own` that taps publish */
    struct stream_record *top;      /* atomic: newest first */
    size_t waiting;                 /* atomic: bytes in records */
    bool looks;                     /* atomic: the hub will look at the stack by itself */
    int wake_fd;                    /* eventfd: wakes the hub */
    struct event *wake, *look, *tick;
    char line[PL_TAP_LINE_MAX];
};

/* A call of a whole run or its end: they are few, and without its end a run would seem to
 * continue. */
static inline bool monitor_is_of_whole_run(const pl_envelope_t *e)
{
    return e->message == PL_MESSAGE_run && e->kind != PL_KIND_PROGRESS;
}

/* NULL: no monitor.  Any thread. */
static inline pl_monitor_t *monitor_of(const pl_runtime_t *runtime)
{
    return __atomic_load_n(&runtime->monitor, __ATOMIC_ACQUIRE);
}

/* Calls a function on the hub's thread and waits for its result.  Creates the hub
 * first if there is none; a new hub stays only if the function succeeds. */
typedef int (*monitor_ask_t)(pl_monitor_t *m, const void *argument, pl_error_t *err);
int monitor_ask(pl_runtime_t *runtime, bool lossless, monitor_ask_t ask,
                const void *argument, pl_error_t *err);

/* On the hub's thread: */
/* Shows and sends all waiting records; false: there was none. */
bool monitor_flush(pl_monitor_t *m);
/* Gives a message with its stamp to taps and viewers. */
void monitor_show(pl_monitor_t *m, const pl_tap_record_t *record);

/* monitor_viewers.c */
int monitor_outlet_open(pl_monitor_t *m, outlet_t *outlet, const pl_socket_spec_t *with,
                        pl_error_t *err);
void monitor_outlet_close(outlet_t *outlet);
/* Topics or taps have changed. */
void monitor_count_watchers(pl_monitor_t *m);
/* Whether a viewer subscribes to exactly this topic. */
bool monitor_has_topic(const pl_monitor_t *m, const char *topic, size_t length);
/* Gives a message with its stamp to viewers. */
void monitor_publish(pl_monitor_t *m, const pl_tap_record_t *record);

/* monitor_far.c.  Without a viewer here, other hubs send nothing. */
void monitor_feeds_watch(pl_monitor_t *m, bool is_watched);
void monitor_feeds_close(pl_monitor_t *m);
void monitor_bring(pl_monitor_t *m, const pl_tap_record_t *record);
/* Sends the numbers of messages and closes the outlet. */
void monitor_bring_end(pl_monitor_t *m);

/* tap.c */
/* Starts and stops taps that publish, by subscriptions; returns how many publish. */
int monitor_taps_wanted(pl_monitor_t *m);
void monitor_taps_show(pl_monitor_t *m, const pl_tap_record_t *record);
/* A rank of another process sends no more messages; *sent is their number  [NULL:
 * unknown]. */
void monitor_taps_end(pl_monitor_t *m, uint32_t process_id, int rank,
                      const uint64_t *sent);
void monitor_taps_close(pl_monitor_t *m);

#endif
