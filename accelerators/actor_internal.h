/* actor_internal.h - the state of the accelerator actor, shared by its files */
#ifndef PL_ACCELERATORS_ACTOR_PARTS_H
#define PL_ACCELERATORS_ACTOR_PARTS_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "accelerators/accelerator.h"
#include "accelerators/actor.h"
#include "base/map.h"
#include "base/options.h"
#include "runtime/actor.h"
#include "runtime/payload.h"

/* ---- staging.c: host memory for copies of a device ----
 *
 * Buffers for reads of regions are reused, and the pages of batches are pinned.  New
 * memory costs several times as much as the copy.  So a buffer is reused when the
 * result of an earlier read is free again, and a thread touches it before its first
 * use. */

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

/* ---- The actor ---- */

/* A compiled plan and the sizes of the data that its replays read and return. */
typedef struct pl_compiled {
    char name[32];
    int64_t samples;                                  /* of a batch  [0: it reads none] */
    pl_plan_t *plan;
    size_t sums;                                            /* numbers of all metrics */
    int output_count, bucket_count;
    size_t sample[PL_FIELDS];                       /* bytes of a sample, of each field */
    size_t output[PL_FIELDS];                       /* bytes of a sample's output, each */
} pl_compiled_t;

/* Time of a device in one kind of kernel of one operator. */
typedef struct pl_time_row {
    char what[24], operator[64];
    int stream;
    uint64_t count;
    double first;                 /* s of the first call, in which a driver may compile */
    double seconds;               /* of the others */
} pl_time_row_t;

/* The times of a device, by purpose. Zeros: nothing was measured yet. */
typedef struct pl_device_times {
    bool enabled;
    pl_time_row_t *row;
    int rows, capacity;
    pl_map_t row_of;                          /* hash of a row's key: its number from 1 */
    uint64_t replays;
    double before;                         /* s of the earlier replays of the same call */
} pl_device_times_t;

typedef struct pl_device {
    pl_instance_t component;
    const pl_accelerator_ops_t *ops;
    pl_device_info_t info;
    pl_dtype_t dtype[PL_REGIONS], low;                  /* low: of the run's products */
    pl_object_t *borrowed[PL_REGIONS];                  /* counted: host memory of regions
                                                           [not borrowed] */
    bool opened;
    bool registers;                               /* a region was registered */
    unsigned warned;                              /* emulated formats already warned of */
    pl_compiled_t *plan;
    int plan_count, plan_capacity;
    struct background_compile *compiles;            /* in the background: actor_plans.c */
    struct running *spare;
    int running;                        /* replays and measurements that have not ended */
    int readings;                       /* reads of regions that have not ended */
    int64_t since;                      /* pl_now() when the newest replay could begin */
    bool skipping;                      /* a fail_fast replay could not begin */
    bool ending;
    pl_call_t *life;                               /* the call of `start` */
    pl_job_t *job;                                 /* counted */
    bool watches;                                  /* the timer of device_watch runs */
    uint64_t ended;                                /* launches */
    int64_t moved;                                 /* pl_now() when a launch ended, or
                                                      replays began */
    int64_t ending_since;                          /* pl_now() */
    bool reported;                                 /* the wait for a compiler is logged */
    pl_call_t *measuring;                          /* the peak  [NULL] */
    pl_staging_t staging;
    pl_device_times_t times;
} pl_device_t;

/* True if no replay, read or compilation remains that writes into memory of others, or
 * for which close() would wait. */
static inline bool pl_device_is_idle(const pl_device_t *device)
{
    return !device->running && !device->readings
           && !(device->compiles && device->ops->compile_stop);
}

/* ---- actor_regions.c ---- */

int pl_device_allocate(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
int pl_device_write(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
int pl_device_prepare(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
int pl_device_read(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
/* Later calls of the device run after the fence `after`  [NULL: no fence]. */
int pl_device_join(pl_device_t *device, pl_object_t *after, pl_error_t *err);

/* ---- actor_plans.c ---- */

int pl_device_compile(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
int pl_device_discard(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
int pl_device_describe(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
/* Stops background compilations, and reports "ending" until they have ended. */
void pl_device_compiles_stop(pl_device_t *device);
/* Frees background compilations after the device is closed. */
void pl_device_compiles_drop(pl_device_t *device);

/* ---- actor_times.c ---- */

/* Adds the spans of a replay. `spans` is the list for the reply of replay_plan and is
 * consumed  [NULL: a new list]; returns it with the spans added  [NULL: out of
 * memory]. */
json_t *pl_device_times_add(pl_device_times_t *times, const pl_device_span_t *span,
                            int count, json_t *spans);
/* Logs a table, longest time first, if anything was measured. */
void pl_device_times_log(pl_device_times_t *times, int rank);
void pl_device_times_release(pl_device_times_t *times);

/* ---- peak_flops.c ---- */

/* Measures how fast the device multiplies matrices of that type, in operations per
 * second, and calls then(user) once, from inside or later.  It allocates
 * PL_REGION_PARAMS, so it runs before a model does.  The accelerator's thread. */
int pl_device_measure_peak_flops(const pl_accelerator_ops_t *ops, void *device,
                                 pl_dtype_t dtype,
                                 void (*then)(void *user, double flops,
                                              const pl_error_t *err),
                                 void *user, pl_error_t *err);

#endif
