/* rooms.c - host memory that a device copies: what regions are read to, kept from one
 * read to the next, and what batches lie in, which is pinned */
#include "accelerators/rooms.h"

#include <signal.h>
#include <sys/mman.h>

#include "base/alloc.h"

#define PIECE ((size_t)16 << 20)                            /* bytes, touched at a time */

static bool fits(const pl_floats_t *room, pl_dtype_t dtype, size_t count)
{
    return room && room->dtype == dtype && room->count == count;
}

static size_t bytes_of(const pl_floats_t *room)
{
    return room->count * pl_element_bytes(room->dtype);
}

/* ---- touching ---- */

static void touch_end(pl_rooms_t *rooms)
{
    atomic_store(&rooms->ending, true);
    if (rooms->touches)
        pthread_join(rooms->toucher, NULL);
    rooms->touches = false;
}

/* The kernel does it: what somebody reads into the memory meanwhile stays.  One that
 * cannot leaves the memory as it is. */
static void room_touch(const pl_rooms_t *rooms, const pl_floats_t *room)
{
    const size_t bytes = bytes_of(room);
    char *data = (char *)room->data;
    for (size_t at = 0; bytes >= PIECE && at < bytes && !atomic_load(&rooms->ending);
         at += PIECE)
        madvise(data + at, bytes - at < PIECE ? bytes - at : PIECE, MADV_POPULATE_WRITE);
}

/* Small ones are touched soon enough by who uses them. */
static bool any_is_large(const pl_rooms_t *rooms)
{
    for (int k = 0; k < PL_ROOMS * PL_REGIONS; k++) {
        const pl_floats_t *room = rooms->room[k / PL_REGIONS][k % PL_REGIONS];
        if (room && bytes_of(room) >= PIECE)
            return true;
    }
    return false;
}

static void *toucher_main(void *user)
{
    const pl_rooms_t *rooms = user;
    for (int k = 0; k < PL_ROOMS; k++)
        for (int region = 0; region < PL_REGIONS; region++)
            if (rooms->room[k][region])
                room_touch(rooms, rooms->room[k][region]);
    return NULL;
}

/* Without a thread it is touched when it is used. */
static void touch_begin(pl_rooms_t *rooms)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);            /* they are for the host's */
    atomic_store(&rooms->ending, false);
    rooms->touches = pthread_create(&rooms->toucher, NULL, toucher_main, rooms) == 0;
    if (rooms->touches)
        pthread_setname_np(rooms->toucher, "rooms");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- what regions are read to ---- */

/* What the device cannot pin is read to more slowly. */
static void room_pin(const pl_rooms_t *rooms, const pl_floats_t *room)
{
    if (rooms->ops && rooms->ops->pin && room->count)
        rooms->ops->pin(rooms->device, room->data, bytes_of(room), NULL);
}

static void room_drop(const pl_rooms_t *rooms, pl_floats_t *room)
{
    if (room && room->count && rooms->ops && rooms->ops->unpin)
        rooms->ops->unpin(rooms->device, room->data);
    pl_object_unref(room);
}

static int room_make(pl_rooms_t *rooms, int k, pl_region_t region, pl_dtype_t dtype,
                     size_t count, pl_error_t *err)
{
    pl_floats_t *fresh = pl_floats_new(dtype, count, err);
    if (!fresh)
        return PL_ENOMEM;
    touch_end(rooms);
    room_drop(rooms, rooms->room[k][region]);
    rooms->room[k][region] = fresh;
    room_pin(rooms, fresh);
    return PL_OK;
}

pl_floats_t *pl_rooms_take(pl_rooms_t *rooms, pl_region_t region, pl_dtype_t dtype,
                           size_t count, pl_error_t *err)
{
    int k = 0;
    while (k < PL_ROOMS && rooms->room[k][region]
           && !pl_object_is_ours(rooms->room[k][region]))
        k++;
    if (k == PL_ROOMS)
        return pl_floats_new(dtype, count, err);
    if (!fits(rooms->room[k][region], dtype, count)
        && room_make(rooms, k, region, dtype, count, err) != PL_OK)
        return NULL;
    return pl_object_ref(rooms->room[k][region]);
}

int pl_rooms_prepare(pl_rooms_t *rooms, const pl_dtype_t dtype[PL_REGIONS],
                     const uint64_t count[PL_REGIONS], pl_error_t *err)
{
    int code = PL_OK;
    for (int k = 0; k < PL_ROOMS * PL_REGIONS && code == PL_OK; k++) {
        const int region = k % PL_REGIONS;
        if (count[region]
            && !fits(rooms->room[k / PL_REGIONS][region], dtype[region], count[region]))
            code = room_make(rooms, k / PL_REGIONS, region, dtype[region], count[region],
                             err);
    }
    touch_end(rooms);
    if (code == PL_OK && any_is_large(rooms))
        touch_begin(rooms);
    return code;
}

/* ---- what batches lie in ---- */

static void pinned_drop(pl_rooms_t *rooms, int k)
{
    pl_pinned_t *pinned = &rooms->pinned[k];
    if (pinned->is_pinned && rooms->ops->unpin)
        rooms->ops->unpin(rooms->device, pinned->pages->data);
    pl_object_unref(pinned->pages);
    *pinned = rooms->pinned[--rooms->pinned_count];
}

void pl_rooms_pin(pl_rooms_t *rooms, pl_pages_t *pages)
{
    for (int k = 0; k < rooms->pinned_count; k++)
        if (rooms->pinned[k].pages == pages)
            return;
    for (int k = rooms->pinned_count - 1; k >= 0; k--)      /* of batches that are gone */
        if (pl_object_is_ours(rooms->pinned[k].pages))
            pinned_drop(rooms, k);
    if (PL_GROW(rooms->pinned, rooms->pinned_count, rooms->pinned_room) != PL_OK)
        return;
    const bool is_pinned = rooms->ops->pin(rooms->device, pages->data, pages->bytes, NULL)
                           == PL_OK;
    rooms->pinned[rooms->pinned_count++] = (pl_pinned_t){pl_object_ref(pages), is_pinned};
}

void pl_rooms_release(pl_rooms_t *rooms)
{
    touch_end(rooms);
    while (rooms->pinned_count)
        pinned_drop(rooms, rooms->pinned_count - 1);
    pl_free(rooms->pinned);
    for (int k = 0; k < PL_ROOMS * PL_REGIONS; k++)
        room_drop(rooms, rooms->room[k / PL_REGIONS][k % PL_REGIONS]);
    *rooms = (pl_rooms_t){0};
}
