/* monitor.h - the stream: every message, offered once and without waiting, to who
 * watches */
#ifndef PL_RUNTIME_MONITOR_H
#define PL_RUNTIME_MONITOR_H

#include "runtime/reactor.h"

/* A hub on its own thread that publishes at endpoint: ipc://… or tcp://127.0.0.1:PORT,
 * "*" for any port; nothing else. At most 256 viewers are served, 2000 lines wait for
 * each, and 16 MiB of messages for the hub; what is beyond shows as a gap.  lossless:
 * nothing is dropped, memory grows instead; for tests.  It becomes runtime->monitor. */
int pl_monitor_start(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                     pl_error_t *err);

/* The hub of a process that is a rank of a run elsewhere: it brings what it has to an
 * endpoint that the hub there takes from. */
int pl_monitor_bring(pl_runtime_t *runtime, const char *endpoint, bool lossless,
                     pl_error_t *err);
/* Publishes what other hubs bring to an ipc endpoint as well, from soon on; or no more,
 * after what has come by now.  Nothing when there is no hub. */
void pl_monitor_take(pl_runtime_t *runtime, const char *endpoint);
void pl_monitor_take_no_more(pl_runtime_t *runtime, const char *endpoint);
bool pl_monitor_is_lossless(const pl_runtime_t *runtime);

/* Where it publishes, after "*" was replaced. */
const char *pl_monitor_endpoint(const pl_runtime_t *runtime);
/* How many topics are subscribed to. */
int pl_monitor_watchers(const pl_runtime_t *runtime);

/* Publishes what is left and ends.  No thread of the runtime may send any more, but those
 * that are stuck. */
void pl_monitor_stop(pl_runtime_t *runtime);

/* Hands the hub a copy of a frame that is about to be sent.  While nobody watches it is
 * only counted. */
void pl_monitor_offer(pl_reactor_t *reactor, pl_bytes_t frame);

#endif
