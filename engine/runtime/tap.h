/* tap.h - how something in this process takes what the stream has
 *
 * A tap gets every message in the binary form it was sent in, those of ranks in other
 * processes included, which bring theirs while there is one.  No text is made for it
 * unless it asks. */
#ifndef PL_RUNTIME_TAP_H
#define PL_RUNTIME_TAP_H

#include "runtime/message.h"
#include "runtime/runtime.h"

enum {
    PL_TAP_FRAME_MAX = 16384,                  /* of a frame: what is behind is cut off */
    PL_TAP_TICK_MS = 250,
    PL_TAP_LINE_MAX = 8192,
};

/* One message.  Kinds of actors (pl_kind_name()) are numbers of this process, also of a
 * message from another one; all other numbers of actors, threads and calls are that
 * process's. */
typedef struct pl_tap_record {
    pl_stamp_t stamp;
    uint32_t process_id;                /* process: 0 this one; see pl_stream_process() */
    uint64_t under;                     /* of another one: the call made here that
                                           all its own are part of; 0: unknown */
    pl_envelope_t envelope;
    pl_bytes_t frame;                            /* envelope and body, at a multiple of 8;
                                                    for pl_frame_decode_record() */
    bool was_kept;                               /* and is shown again: its time is not
                                                    the clock's */
} pl_tap_record_t;

/* Processes are told apart by whose feed brings what they say, and their rank. */
static inline uint32_t pl_stream_process(uint32_t feed, int rank)
{
    return feed << 20 | (uint32_t)(rank + 1);
}

static inline int pl_stream_process_rank(uint32_t process_id)
{
    return (int)(process_id & 0xfffff) - 1;
}

/* Called on the hub's thread, which all viewers and taps share: none may wait for
 * anything.  What it is given is gone when it returns. */
typedef struct pl_tap_ops {
    void (*record)(void *self, const pl_tap_record_t *record);
    /* So many messages of a rank are missing before its next one, or behind its last;
     * 0: behind its last, if any, and nobody knows how many: its process has died
     * [nobody asks] */
    void (*gap)(void *self, int rank, uint64_t count);
    void (*tick)(void *self);                    /* every PL_TAP_TICK_MS  [nobody asks] */
    /* The last; frees self.  On the thread that ends the stream. */
    void (*close)(void *self);

    /* Of one that tells something itself, to those who subscribe to this topic: it gets
     * messages only while somebody does  [it listens] */
    const char *topic;
    void (*watched)(void *self, bool is_watched);
    /* JSON, every PL_TAP_TICK_MS and last when the stream ends, while it is watched;
     * pl_text_free() frees it  [nothing this time] */
    char *(*tell)(void *self);
} pl_tap_ops_t;

/* From now on, until the stream ends.  With an error self is still the caller's. */
int pl_tap_add(pl_runtime_t *runtime, const pl_tap_ops_t *ops, void *self,
               pl_error_t *err);

/* The line of the stream for it, without a newline; its length, 0: none. */
size_t pl_tap_line(const pl_tap_record_t *record, char *text, size_t capacity);

#endif
