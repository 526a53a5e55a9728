/* rooms.h - host memory that a device copies: what regions are read to, kept from one
 * read to the next, and what batches lie in, which is pinned
 *
 * Memory that is new costs several times what the copy does: so it is used again, once
 * nobody has what was read before, and before the first time touched by a thread that has
 * nothing else to do. */
#ifndef PL_ACCELERATORS_ROOMS_H
#define PL_ACCELERATORS_ROOMS_H

#include <pthread.h>
#include <stdatomic.h>

#include "accelerators/accelerator.h"
#include "runtime/cargo.h"

/* Of each region; the second is for a checkpoint behind one that is being written. */
enum { PL_ROOMS = 2 };

/* What batches lie in. */
typedef struct pl_pinned {
    pl_pages_t *pages;                                      /* counted */
    bool is_pinned;                                         /* false: the device cannot */
} pl_pinned_t;

/* Starts as zeros, but for the device. */
typedef struct pl_rooms {
    const pl_accelerator_ops_t *ops;                     /* that reads, and pins [NULL] */
    void *device;
    pl_floats_t *room[PL_ROOMS][PL_REGIONS];                /* counted  [NULL] */
    pl_pinned_t *pinned;
    int pinned_count, pinned_room;
    pthread_t toucher;
    bool touches;                                           /* the thread is there */
    atomic_bool ending;
} pl_rooms_t;

/* Where so many elements of a region go: counted, for who reads them and hands them
 * on. */
pl_floats_t *pl_rooms_take(pl_rooms_t *rooms, pl_region_t region, pl_dtype_t dtype,
                           size_t count, pl_error_t *err);
/* Regions of so many elements are going to be read; 0: that one is not. */
int pl_rooms_prepare(pl_rooms_t *rooms, const pl_dtype_t dtype[PL_REGIONS],
                     const uint64_t count[PL_REGIONS], pl_error_t *err);
/* Pins what batches lie in, for as long as others have it; what the device cannot pin is
 * tried once. */
void pl_rooms_pin(pl_rooms_t *rooms, pl_pages_t *pages);
void pl_rooms_release(pl_rooms_t *rooms);

#endif
