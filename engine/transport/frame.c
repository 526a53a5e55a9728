/* frame.c - a message as bytes, and frames waiting in order */
#include "transport/frame.h"

#include <stdalign.h>
#include <string.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/error.h"

enum { CAPACITY_MIN = 16, CAPACITY_KEPT = 1024 };

_Static_assert(sizeof(pl_frame_t) == sizeof(zmq_msg_t)
                   && alignof(pl_frame_t) >= alignof(zmq_msg_t),
               "a zmq_msg_t");

static zmq_msg_t *message_of(const pl_frame_t *frame)
{
    return (zmq_msg_t *)frame->zmq_msg;
}

void *pl_frame_new(pl_frame_t *frame, size_t size, pl_error_t *err)
{
    if (zmq_msg_init_size(message_of(frame), size) == 0)
        return zmq_msg_data(message_of(frame));
    pl_no_memory(err);
    return NULL;
}

int pl_frame_wrap(pl_frame_t *frame, void *bytes, size_t size,
                  void (*release)(void *bytes, void *hint), void *hint, pl_error_t *err)
{
    return zmq_msg_init_data(message_of(frame), bytes, size, release, hint) == 0
               ? PL_OK
               : pl_no_memory(err);
}

int pl_frame_join(pl_frame_t *frame, pl_bytes_t head, pl_bytes_t bytes, pl_error_t *err)
{
    unsigned char *to = pl_frame_new(frame, head.size + bytes.size, err);
    if (!to)
        return PL_ENOMEM;
    if (head.size)
        memcpy(to, head.data, head.size);
    if (bytes.size)
        memcpy(to + head.size, bytes.data, bytes.size);
    return PL_OK;
}

void pl_frame_move(pl_frame_t *to, pl_frame_t *from)
{
    zmq_msg_init(message_of(to));
    zmq_msg_move(message_of(to), message_of(from));
}

void pl_frame_release(pl_frame_t *frame)
{
    zmq_msg_close(message_of(frame));
}

pl_bytes_t pl_frame_bytes(const pl_frame_t *frame)
{
    return (pl_bytes_t){zmq_msg_data(message_of(frame)), zmq_msg_size(message_of(frame))};
}

/* ---- frames waiting in order ---- */

static pl_frame_t *slot_at(const pl_queue_t *queue, size_t k)
{
    return &queue->slot[(queue->first + k) & (queue->capacity - 1)];
}

int pl_queue_reserve(pl_queue_t *queue)
{
    if (queue->count < queue->capacity)
        return PL_OK;
    pl_queue_t wider = {.capacity = queue->capacity ? 2 * queue->capacity : CAPACITY_MIN,
                        .count = queue->count};
    wider.slot = pl_alloc_array(wider.capacity, sizeof *wider.slot);
    if (!wider.slot)
        return PL_ENOMEM;
    for (size_t k = 0; k < queue->count; k++)
        pl_frame_move(&wider.slot[k], slot_at(queue, k));
    pl_free(queue->slot);
    *queue = wider;
    return PL_OK;
}

void pl_queue_put(pl_queue_t *queue, pl_frame_t *frame)
{
    pl_frame_move(slot_at(queue, queue->count++), frame);
}

bool pl_queue_take(pl_queue_t *queue, pl_frame_t *frame)
{
    if (!queue->count)
        return false;
    pl_frame_move(frame, slot_at(queue, 0));
    queue->first = (queue->first + 1) & (queue->capacity - 1);
    if (--queue->count == 0 && queue->capacity > CAPACITY_KEPT) {
        pl_free(queue->slot);
        *queue = (pl_queue_t){0};
    }
    return true;
}

const pl_frame_t *pl_queue_first(const pl_queue_t *queue)
{
    return queue->count ? slot_at(queue, 0) : NULL;
}

void pl_queue_release(pl_queue_t *queue)
{
    pl_frame_t frame;
    while (pl_queue_take(queue, &frame))
        pl_frame_release(&frame);
    pl_free(queue->slot);
    *queue = (pl_queue_t){0};
}
