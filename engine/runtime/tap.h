/* tap.h - taps: receivers of the stream in this process
 *
 * A tap gets every message in its binary form.  That includes messages of ranks in other
 * processes, which send them while there is a tap.  The JSON line of a message is only
 * made on request. */
#ifndef PL_RUNTIME_TAP_H
#define PL_RUNTIME_TAP_H

#include "runtime/message.h"
#include "runtime/runtime.h"

enum {
    PL_TAP_FRAME_MAX = 16384,                               /* longer frames are cut */
    PL_TAP_TICK_MS = 250,
    PL_TAP_LINE_MAX = 8192,
};

/* One message.  Kinds of actors (pl_kind_name()) are numbers of this process, also of a
 * message from another one; all other numbers of actors, threads and calls are that
 * process's. */
typedef struct pl_tap_record {
    pl_stamp_t stamp;
    uint32_t process_id;                  /* 0: this process; see pl_stream_process() */
    uint64_t under;                       /* of another process: the call here that caused
                                             all its calls; 0: unknown */
    pl_envelope_t envelope;
    pl_bytes_t frame;                            /* envelope and body, at a multiple of 8;
                                                    pl_frame_decode_record() */
    bool was_kept;                               /* shown by pl_monitor_show(): its time
                                                    is not the clock's */
} pl_tap_record_t;

/* The feed that receives the messages of a process, and its rank, identify it. */
static inline uint32_t pl_stream_process(uint32_t feed, int rank)
{
    return feed << 20 | (uint32_t)(rank + 1);
}

static inline int pl_stream_process_rank(uint32_t process_id)
{
    return (int)(process_id & 0xfffff) - 1;
}

/* Called on the hub's thread, which all viewers and taps share, so no function may wait.
 * Arguments are valid during the call. */
typedef struct pl_tap_ops {
    void (*record)(void *self, const pl_tap_record_t *record);
    /* `count` messages of a rank are missing before its next one or after its last; 0: an
     * unknown number after its last, because its process has died  [nothing] */
    void (*gap)(void *self, int rank, uint64_t count);
    void (*tick)(void *self);                        /* every PL_TAP_TICK_MS  [nothing] */
    /* Frees self; the last call.  On the thread that ends the stream  [nothing]. */
    void (*close)(void *self);

    /* The topic of a tap that publishes; it gets messages only while a viewer
     * subscribes to the topic  [it publishes nothing and gets all messages] */
    const char *topic;
    void (*watched)(void *self, bool is_watched);
    /* The JSON to publish, every PL_TAP_TICK_MS while it is watched, and once when the
     * stream ends; pl_text_free() frees it  [NULL: nothing this time] */
    char *(*tell)(void *self);
} pl_tap_ops_t;

/* Adds a tap until the stream ends.  After an error the caller still owns self. */
int pl_tap_add(pl_runtime_t *runtime, const pl_tap_ops_t *ops, void *self,
               pl_error_t *err);

/* The line of the stream for a record, without a newline; its length, 0: no line. */
size_t pl_tap_line(const pl_tap_record_t *record, char *text, size_t capacity);

#endif
