/* staging.h - host memory for copies of a device: buffers for reads of regions, which are
 * reused, and the pages of batches, which are pinned
 *
 * New memory costs several times as much as the copy. So a buffer is reused when the
 * result of an earlier read is free again, and a thread touches it before its first
 * use. */
#ifndef PL_ACCELERATORS_STAGING_H
#define PL_ACCELERATORS_STAGING_H

#include <pthread.h>
#include <stdatomic.h>

#include "accelerators/accelerator.h"
#include "runtime/payload.h"

/* Per region; the second is for a checkpoint that follows one being written. */
enum { PL_STAGING_BUFFERS = 2 };

/* Pages of batches. */
typedef struct pl_pinned {
    pl_pages_t *pages;                                      /* counted */
    bool is_pinned;                                         /* false: the device cannot */
} pl_pinned_t;

/* Initialized to zeros, except for ops and device. */
typedef struct pl_staging {
    const pl_accelerator_ops_t *ops;                        /* pins  [NULL: no pinning] */
    void *device;
    pl_floats_t *buffer[PL_STAGING_BUFFERS][PL_REGIONS];    /* counted  [NULL] */
    pl_pinned_t *pinned;
    int pinned_count, pinned_capacity;
    pthread_t toucher;
    bool touches;                                           /* the thread was started */
    atomic_bool ending;
} pl_staging_t;

/* A buffer for `count` elements of a region, counted. */
pl_floats_t *pl_staging_take(pl_staging_t *staging, pl_region_t region, pl_dtype_t dtype,
                             size_t count, pl_error_t *err);
/* Makes and touches buffers for later reads of regions of those sizes  [0: no read]. */
int pl_staging_prepare(pl_staging_t *staging, const pl_dtype_t dtype[PL_REGIONS],
                       const uint64_t count[PL_REGIONS], pl_error_t *err);
/* Pins the pages of a batch as long as others hold them; pages that the device cannot pin
 * are tried once. */
void pl_staging_pin(pl_staging_t *staging, pl_pages_t *pages);
void pl_staging_release(pl_staging_t *staging);

#endif
