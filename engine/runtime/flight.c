/* flight.c - objects on their way through a message */
#include "runtime/flight.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/error.h"

/* A slot's number is generation << 32 | index + 1: an old number does not find a new
 * object. */
typedef struct slot {
    pl_object_t *object;                                    /* NULL: free */
    uint32_t generation;
    int next_free;
} slot_t;

static pthread_mutex_t flight_lock = PTHREAD_MUTEX_INITIALIZER;
static slot_t *slots;
static int slot_count, slot_capacity, first_free = -1, in_flight;

static int slot_take(void)
{
    if (first_free >= 0) {
        int taken = first_free;
        first_free = slots[taken].next_free;
        return taken;
    }
    if (PL_GROW(slots, slot_count, slot_capacity) != PL_OK)
        return -1;
    slots[slot_count] = (slot_t){0};
    return slot_count++;
}

static slot_t *slot_of(uint64_t number)
{
    uint32_t index = (uint32_t)number - 1;
    if (!number || index >= (uint32_t)slot_count)
        return NULL;
    slot_t *slot = &slots[index];
    return slot->object && slot->generation == (uint32_t)(number >> 32) ? slot : NULL;
}

uint64_t pl_flight_enter(pl_object_t *object, pl_error_t *err)
{
    if (!object)
        return 0;
    uint64_t number = 0;
    pthread_mutex_lock(&flight_lock);
    int index = slot_take();
    if (index >= 0) {
        slots[index].object = pl_object_ref(object);
        slots[index].generation++;
        number = (uint64_t)slots[index].generation << 32 | (uint64_t)(index + 1);
        in_flight++;
    }
    pthread_mutex_unlock(&flight_lock);
    if (!number)
        pl_no_memory(err);
    return number;
}

pl_object_t *pl_flight_find(uint64_t number)
{
    pthread_mutex_lock(&flight_lock);
    slot_t *slot = slot_of(number);
    pl_object_t *object = slot ? slot->object : NULL;
    pthread_mutex_unlock(&flight_lock);
    return object;
}

void pl_flight_leave(uint64_t number)
{
    pl_object_t *object = NULL;
    pthread_mutex_lock(&flight_lock);
    slot_t *slot = slot_of(number);
    if (slot) {
        object = slot->object;
        slot->object = NULL;
        slot->next_free = first_free;
        first_free = (int)(slot - slots);
        in_flight--;
    }
    pthread_mutex_unlock(&flight_lock);
    pl_object_unref(object);
}

int pl_flight_count(void)
{
    pthread_mutex_lock(&flight_lock);
    int count = in_flight;
    pthread_mutex_unlock(&flight_lock);
    return count;
}
