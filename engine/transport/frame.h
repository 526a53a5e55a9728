/* frame.h - a message as bytes, and frames waiting in order */
#ifndef PL_TRANSPORT_FRAME_H
#define PL_TRANSPORT_FRAME_H

#include "base/bytes.h"
#include "paceline.h"

#define PL_MESSAGE_MAX (16 << 20)                           /* bytes of a frame */

/* Bytes in a ZeroMQ message, with what they keep alive.  Always moved, never copied;
 * every frame is moved from or released in the end. */
typedef struct pl_frame {
    _Alignas(void *) unsigned char zmq_msg[64];
} pl_frame_t;

/* A frame of `size` bytes for the caller to fill; NULL with an error. */
void *pl_frame_new(pl_frame_t *frame, size_t size, pl_error_t *err);
/* A frame of bytes that exist.  release(bytes, hint) is called on any thread when the
 * last user is done with them, but not after an error. */
int pl_frame_wrap(pl_frame_t *frame, void *bytes, size_t size,
                  void (*release)(void *bytes, void *hint), void *hint, pl_error_t *err);
/* A frame of two pieces, which start at a multiple of 8. */
int pl_frame_join(pl_frame_t *frame, pl_bytes_t head, pl_bytes_t bytes, pl_error_t *err);
void pl_frame_move(pl_frame_t *to, pl_frame_t *from);  /* from holds nothing afterwards */
void pl_frame_release(pl_frame_t *frame);
pl_bytes_t pl_frame_bytes(const pl_frame_t *frame);

/* A ring of frames, so that a message costs no allocation beside its bytes; all zero is
 * an empty one. */
typedef struct pl_queue {
    pl_frame_t *slot;
    size_t capacity, first, count;                  /* capacity is a power of two, or 0 */
} pl_queue_t;

/* Makes sure that the next put finds room: PL_OK or PL_ENOMEM. */
int pl_queue_reserve(pl_queue_t *queue);
void pl_queue_put(pl_queue_t *queue, pl_frame_t *frame);    /* takes the frame; after a
                                                               reserve */
bool pl_queue_take(pl_queue_t *queue, pl_frame_t *frame);   /* false: it is empty */
const pl_frame_t *pl_queue_first(const pl_queue_t *queue);  /* that take would give; NULL:
                                                               it is empty */
void pl_queue_release(pl_queue_t *queue);

#endif
