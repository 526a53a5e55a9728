/* monitor.h - the stream: every message, offered once and without waiting, to who
 * watches */
#ifndef PL_RUNTIME_MONITOR_H
#define PL_RUNTIME_MONITOR_H

#include "runtime/reactor.h"
#include "transport/keys.h"

/* A hub on its own thread that publishes at endpoint: ipc://… or tcp://127.0.0.1:PORT,
 * "*" for any port; nothing else. At most 1024 viewers are served, 2048 at a port.  More
 * than four get 20 000 lines together each second, or each so many seconds as 200 go into
 * their number, and up to twice as many again of what is rare, a second late at most.
 * 2000 lines wait for each, and 16 MiB of messages for the hub; what is beyond shows as a
 * gap.  lossless: nothing is dropped, memory grows instead; for tests, where there is no
 * hub yet.  It becomes runtime->monitor. */
int pl_monitor_start(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                     pl_error_t *err);

/* Beside what a hub publishes, or alone: the hub of a process that is a rank of a run
 * elsewhere brings what it has to an endpoint that the hub there takes from. */
typedef struct pl_monitor_bring {
    const char *endpoint;
    const pl_keys_t *keys;                  /* [not encrypted] */
    uint64_t run;                           /* as which run's its lines appear there  [as
                                               they say] */
    int64_t time;                           /* of that hub, now; ns  [both have one
                                               zero] */
    bool is_awaited;                        /* somebody watches there: nothing is left out
                                               meanwhile, for a second at most */
    bool lossless;                          /* of one that publishes nothing itself */
} pl_monitor_bring_t;

/* From soon on, in place of what there was; or no more, after what there is by now.
 * Messages of ranks alone. */
int pl_monitor_bring(pl_runtime_t *runtime, const pl_monitor_bring_t *how,
                     pl_error_t *err);
void pl_monitor_bring_no_more(pl_runtime_t *runtime);

/* A hub that publishes or has taps takes what other hubs bring to an endpoint as well;
 * `bound` gets where that is.  Or no more, after what has come by now. */
typedef struct pl_monitor_take {
    const char *endpoint;
    const pl_keys_t *keys;                    /* [not encrypted] */
    uint64_t under;                           /* the call here that all theirs are part of
                                                 [unknown] */
} pl_monitor_take_t;

int pl_monitor_take(pl_runtime_t *runtime, const pl_monitor_take_t *how, char *bound,
                    size_t capacity, pl_error_t *err);
void pl_monitor_take_no_more(pl_runtime_t *runtime, const char *bound);
/* The process of a rank that brings there has died: it may have had more to say. */
void pl_monitor_lost(pl_runtime_t *runtime, const char *bound, int rank);
bool pl_monitor_publishes(const pl_runtime_t *runtime);
/* Or has taps: it shows what others bring. */
bool pl_monitor_gathers(const pl_runtime_t *runtime);
bool pl_monitor_is_lossless(const pl_runtime_t *runtime);

/* Shows a message that was kept to whoever watches; it may come from any process, at any
 * time. */
struct pl_tap_record;
int pl_monitor_show(pl_runtime_t *runtime, const struct pl_tap_record *record,
                    pl_error_t *err);

/* When it returns, all that was offered before has been shown. */
void pl_monitor_catch_up(pl_runtime_t *runtime);

/* Where it publishes, after "*" was replaced. */
const char *pl_monitor_endpoint(const pl_runtime_t *runtime);
/* How many topics are subscribed to; each tap counts as one. */
int pl_monitor_watchers(const pl_runtime_t *runtime);

/* Publishes what is left and ends.  No thread of the runtime may send any more, but those
 * that are stuck. */
void pl_monitor_stop(pl_runtime_t *runtime);

/* Hands the hub a copy of a frame that is about to be sent.  While nobody watches it is
 * only counted. */
void pl_monitor_offer(pl_reactor_t *reactor, pl_bytes_t frame);

#endif
