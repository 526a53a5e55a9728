/* queue.c - frames waiting in order
 *
 * A ring, so that a message costs no allocation beside its bytes. */
#include "runtime/queue.h"

#include "base/alloc.h"

enum { CAPACITY_MIN = 16, CAPACITY_KEPT = 1024 };

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
