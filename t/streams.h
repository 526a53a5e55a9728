/* streams.h - streams and events of a device that does not exist, for tests
 *
 * What is put on a stream runs later, on a thread of the simulation, in the order of its
 * stream.  A seed decides which stream continues and when all of them pause, so that
 * code that relies on an order without an event is found.  Functions may be called from
 * any thread. */
#ifndef T_STREAMS_H
#define T_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STREAMS_MAX = 64 };
/* The return value of a function that has to run again later, because it waits for
 * another device; other streams continue. */
enum { STREAMS_AGAIN = -1 };

typedef struct streams streams_t;
typedef struct streams_event streams_event_t;

/* What others have as a stream. */
typedef struct streams_handle {
    streams_t *of;
    int number;
} streams_handle_t;

streams_t *streams_new(uint64_t seed);
/* Drops what has not run. */
void streams_free(streams_t *streams);

/* Runs a function with a copy of `bytes` bytes.  Anything but 0 and STREAMS_AGAIN breaks
 * the device: what is on its streams is dropped, and what is put there later, too. */
void streams_put(streams_t *streams, int stream, int (*run)(void *data), const void *data,
                 size_t bytes);
/* What the function that broke the device returned  [0]. */
int streams_broken(streams_t *streams);
void streams_finish(streams_t *streams, int stream);

/* Counted: what is on its way keeps it. */
streams_event_t *streams_event_new(void);
void streams_event_free(streams_event_t *event);
void streams_record(streams_t *streams, int stream, streams_event_t *event);
/* What comes behind on the stream waits for the latest record. */
void streams_wait(streams_t *streams, int stream, streams_event_t *event);
/* A record that is on no stream: it passes when that is said. */
void streams_expect(streams_event_t *event);
void streams_pass(streams_t *streams, streams_event_t *event);
/* On a broken device all events have passed. */
bool streams_passed(streams_t *streams, streams_event_t *event);
/* Waits for it. */
void streams_event_finish(streams_t *streams, streams_event_t *event);
/* Calls a function of the simulation's thread once the latest record has passed or the
 * device is broken. */
void streams_notify(streams_t *streams, streams_event_t *event,
                    void (*notify)(void *user), void *user);
/* Calls a function of the simulation's thread in the order of a stream. */
void streams_call(streams_t *streams, int stream, void (*function)(void *user),
                  void *user);
double streams_seconds(const streams_event_t *from, const streams_event_t *to);

#endif
