/* monitor_parts.h - what monitor.c (one hub) and monitor_far.c (hubs of several
 * processes) share */
#ifndef PL_RUNTIME_MONITOR_PARTS_H
#define PL_RUNTIME_MONITOR_PARTS_H

#include "base/map.h"
#include "runtime/monitor.h"
#include "runtime/socket.h"

enum {
    BACKLOG_LINES = 2000,                              /* that wait for one slow viewer */
    LINE_MOST = 8192,
    TOPIC_MOST = 128,
};

/* A socket that lines go to, and the topics that are subscribed to there: what this hub
 * publishes itself, or another process's hub, which it brings them to. */
typedef struct outlet {
    pl_monitor_t *monitor;
    pl_socket_t *socket;                                    /* XPUB  [none] */
    pl_map_t topics;
} outlet_t;

struct pl_monitor {
    pl_runtime_t *runtime;
    pl_reactor_t *reactor;                                /* the hub's thread */
    char endpoint[256];                                   /* of what it publishes  [""] */
    bool lossless;
    /* The hub's: */
    outlet_t own, other;              /* published; brought to another hub */
    struct feed *feeds;               /* what others bring */
    bool is_crowded;                  /* more viewers than we serve */
    int64_t held_until;               /* what comes waits for the other hub to say what it
                                         wants  [0: it does not wait] */
    int64_t shift;                    /* ns to the other hub's time */
    uint64_t run;                     /* whose lines these are there  [0: as they say] */

    int watchers;                   /* atomic: topics, of both */
    struct record *top;             /* atomic: newest first */
    size_t waiting;                 /* atomic: bytes in records */
    bool looks;                     /* atomic: the hub will look at the stack by itself */
    int wake_fd;                    /* eventfd: look now */
    struct event *wake, *look;
    char line[LINE_MOST];
};

/* From any thread; NULL: there is none. */
static inline pl_monitor_t *monitor_of(const pl_runtime_t *runtime)
{
    return __atomic_load_n(&runtime->monitor, __ATOMIC_ACQUIRE);
}

/* A hub with a thread of its own; endpoint NULL: it publishes nothing. */
int monitor_new(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                pl_error_t *err);

/* On the hub's thread: */
int monitor_outlet_open(pl_monitor_t *m, outlet_t *outlet, const pl_socket_spec_t *with,
                        pl_error_t *err);
void monitor_outlet_close(outlet_t *outlet);
void monitor_count_watchers(pl_monitor_t *m);
/* Sends all there is on its way; false: there was nothing. */
bool monitor_flush(pl_monitor_t *m);

/* While nobody watches here, other hubs need not render anything. */
void monitor_feeds_watch(pl_monitor_t *m, bool is_watched);
void monitor_feeds_close(pl_monitor_t *m);

#endif
