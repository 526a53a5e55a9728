/* monitor.h - the stream: offers every message once to viewers, without waiting */
#ifndef PL_RUNTIME_MONITOR_H
#define PL_RUNTIME_MONITOR_H

#include "runtime/reactor.h"
#include "transport/keys.h"

/* Starts a hub on its own thread that publishes at endpoint: ipc://… or
 * tcp://127.0.0.1:PORT, "*" for any port.  At most 1024 viewers are served, 2048 at a
 * port. More than four viewers together get 20 000 lines a turn: a second, or a second
 * for each 200 viewers.  They get up to twice as many again of rare kinds, one second
 * late at most. The queue of a viewer holds 2000 lines, the hub's 16 MiB;
 * further messages show as a gap.  lossless: no message is dropped and memory grows;
 * for tests, without a hub before.  The hub becomes runtime->monitor. */
int pl_monitor_start(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                     pl_error_t *err);

/* The hub of a process that is a rank of a run of another process sends its messages
 * to an endpoint that the hub there takes from; it may publish them, too. */
typedef struct pl_monitor_bring {
    const char *endpoint;
    const pl_keys_t *keys;                  /* [not encrypted] */
    uint64_t run;                           /* replaces the run of its messages  [0: keeps
                                               it] */
    int64_t time;                           /* now, in the time of that hub, ns  [0: both
                                               have one zero] */
    bool is_awaited;                        /* that hub has a viewer: messages wait for
                                               its subscription, for a second at most */
    bool lossless;                          /* drops nothing, if it publishes nothing */
} pl_monitor_bring_t;

/* Starts to send the messages of ranks, in place of an earlier endpoint; or ends that
 * after the messages up to now.  Returns before it has begun. */
int pl_monitor_bring(pl_runtime_t *runtime, const pl_monitor_bring_t *how,
                     pl_error_t *err);
void pl_monitor_bring_no_more(pl_runtime_t *runtime);

/* A hub that publishes or has taps takes messages that other hubs send to an endpoint;
 * sets `bound` to the bound endpoint.  Or it ends that, after the messages received by
 * now. */
typedef struct pl_monitor_take {
    const char *endpoint;
    const pl_keys_t *keys;                    /* [not encrypted] */
    uint64_t under;                           /* the call here that caused all calls there
                                                 [0: unknown] */
} pl_monitor_take_t;

int pl_monitor_take(pl_runtime_t *runtime, const pl_monitor_take_t *how, char *bound,
                    size_t capacity, pl_error_t *err);
void pl_monitor_take_no_more(pl_runtime_t *runtime, const char *bound);
/* The process of a rank that sends to `bound` has died, perhaps before its last
 * messages. */
void pl_monitor_lost(pl_runtime_t *runtime, const char *bound, int rank);
bool pl_monitor_publishes(const pl_runtime_t *runtime);
/* Whether it publishes or has taps, so it shows messages of other hubs. */
bool pl_monitor_gathers(const pl_runtime_t *runtime);
bool pl_monitor_is_lossless(const pl_runtime_t *runtime);

/* Shows a kept message to taps and viewers; it may be of any process and time. */
struct pl_tap_record;
int pl_monitor_show(pl_runtime_t *runtime, const struct pl_tap_record *record,
                    pl_error_t *err);

/* Returns after all messages that were offered before have been shown. */
void pl_monitor_catch_up(pl_runtime_t *runtime);

/* Where it publishes, with a number for "*"; "" if it does not. */
const char *pl_monitor_endpoint(const pl_runtime_t *runtime);
/* The number of subscribed topics; each tap counts as one. */
int pl_monitor_watchers(const pl_runtime_t *runtime);

/* Publishes the waiting messages and ends.  Except for stuck ones, no thread of the
 * runtime may send after that. */
void pl_monitor_stop(pl_runtime_t *runtime);

/* Gives the hub a copy of a frame that is about to be sent.  Without a viewer the
 * frame is only counted. */
void pl_monitor_offer(pl_reactor_t *reactor, pl_bytes_t frame);

#endif
