/* queue.h - frames waiting in order */
#ifndef PL_RUNTIME_QUEUE_H
#define PL_RUNTIME_QUEUE_H

#include "runtime/message.h"

/* A ring; all zero is an empty one. */
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
