/* staging.h - host memory that a device copies: what regions are read to, kept from one
 * read to the next, and what batches lie in, which is pinned
 *
 * Memory that is new costs several times what the copy does: so it is used again, once
 * nobody has what was read before, and before the first time touched by a thread that has
 * nothing else to do. */
#ifndef PL_ACCELERATORS_STAGING_H
#define PL_ACCELERATORS_STAGING_H

#include <pthread.h>
#include <stdatomic.h>

#include "accelerators/accelerator.h"
#include "runtime/payload.h"

/* Of each region; the second is for a checkpoint behind one that is being written. */
enum { PL_STAGING_BUFFERS = 2 };

/* What batches lie in. */
typedef struct pl_pinned {
    pl_pages_t *pages;                                      /* counted */
    bool is_pinned;                                         /* false: the device cannot */
} pl_pinned_t;

/* Starts as zeros, but for the device. */
typedef struct pl_staging {
    const pl_accelerator_ops_t *ops;                     /* that reads, and pins [NULL] */
    void *device;
    pl_floats_t *buffer[PL_STAGING_BUFFERS][PL_REGIONS];    /* counted  [NULL] */
    pl_pinned_t *pinned;
    int pinned_count, pinned_capacity;
    pthread_t toucher;
    bool touches;                                           /* the thread is there */
    atomic_bool ending;
} pl_staging_t;

/* Where so many elements of a region go: counted, for who reads them and hands them
 * on. */
pl_floats_t *pl_staging_take(pl_staging_t *staging, pl_region_t region, pl_dtype_t dtype,
                             size_t count, pl_error_t *err);
/* Regions of so many elements are going to be read; 0: that one is not. */
int pl_staging_prepare(pl_staging_t *staging, const pl_dtype_t dtype[PL_REGIONS],
                       const uint64_t count[PL_REGIONS], pl_error_t *err);
/* Pins what batches lie in, for as long as others have it; what the device cannot pin is
 * tried once. */
void pl_staging_pin(pl_staging_t *staging, pl_pages_t *pages);
void pl_staging_release(pl_staging_t *staging);

#endif
