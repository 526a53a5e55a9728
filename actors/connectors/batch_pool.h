/* batch_pool.h - a pool of reused batches
 *
 * Memory for batches is allocated once.  A batch returns to the pool when its last
 * reference is dropped, on any thread, also after the pool's owner has ended. */
#ifndef PL_CONNECTORS_BATCH_POOL_H
#define PL_CONNECTORS_BATCH_POOL_H

#include "runtime/payload.h"

typedef struct pl_batch_pool pl_batch_pool_t;

/* A pool of at most `max` batches of up to `rows` samples. */
typedef struct pl_batch_spec {
    int64_t rows;
    int max;
    int field_count;
    const pl_field_t *field;             /* [field_count] */
    int notice;                          /* an eventfd, written when a batch has come back
                                            after there was none to take; open until the
                                            pool is closed */
} pl_batch_spec_t;

pl_batch_pool_t *pl_batch_pool_new(const pl_batch_spec_t *spec, pl_error_t *err);

/* Ends the pool; batches that are out stay valid.  NULL is allowed. */
void pl_batch_pool_close(pl_batch_pool_t *pool);

/* A batch with one reference and field_count, index and field set; on the owner's thread.
 * NULL: PL_EBUSY when all are out, PL_ENOMEM. */
pl_batch_t *pl_batch_pool_take(pl_batch_pool_t *pool, pl_error_t *err);

#endif
