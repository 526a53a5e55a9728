/* actor_internal.h - what the accelerator actor consists of, for its files */
#ifndef PL_ACCELERATORS_ACTOR_PARTS_H
#define PL_ACCELERATORS_ACTOR_PARTS_H

#include <jansson.h>

#include "accelerators/accelerator.h"
#include "accelerators/actor.h"
#include "accelerators/staging.h"
#include "base/map.h"
#include "base/options.h"
#include "runtime/actor.h"

typedef struct pl_compiled {
    char name[32];
    int64_t samples;                                  /* of a batch  [0: it reads none] */
    pl_plan_t *plan;
    size_t sums;                                            /* numbers of all metrics */
    int output_count, bucket_count;
    size_t sample[PL_FIELDS];                       /* bytes of a sample, of each field */
    size_t output[PL_FIELDS];                       /* of each output */
} pl_compiled_t;

/* Where the time of a device goes: by operator and kind of kernel. */
typedef struct pl_time_row {
    char what[24], operator[64];
    int stream;
    uint64_t count;
    double first;                 /* s of the first call, in which a driver may compile */
    double seconds;               /* of the others */
} pl_time_row_t;

/* Zeros: nothing was measured yet. */
typedef struct pl_device_times {
    bool wanted;
    pl_time_row_t *row;
    int rows, capacity;
    pl_map_t known;                                         /* a row's number from 1 */
    uint64_t replays;
    double before;                          /* s of the replays before in the same list */
} pl_device_times_t;

typedef struct pl_device {
    pl_instance_t component;
    const pl_accelerator_ops_t *ops;
    pl_device_info_t info;
    pl_dtype_t dtype[PL_REGIONS], low;           /* low: of the run's products */
    pl_object_t *borrowed[PL_REGIONS];           /* counted: what regions lie in [none] */
    bool opened;
    bool registers;                                 /* regions, to others */
    unsigned warned;                                /* emulated formats that were named */
    pl_compiled_t *plan;
    int plan_count, plan_capacity;
    struct compile *compiles;                               /* under way: actor_plans.c */
    struct running *spare;
    int running;                     /* replays and measurements under way */
    int readings;                    /* of regions */
    int64_t since;                   /* pl_now() when the newest replay began, or could */
    bool skipping;                   /* a fail_fast replay could not begin */
    bool ending;
    pl_call_t *life;                                 /* the call of `start` */
    pl_job_t *job;                                   /* counted */
    bool watches;                                    /* its launches, while replays run */
    uint64_t ended;                                  /* of them */
    int64_t moved;                                   /* pl_now() when one ended, or
                                                        replays began */
    int64_t ending_since;                            /* pl_now() */
    bool reported;                                   /* that it waits for a compiler */
    pl_call_t *measuring;                            /* its peak  [NULL] */
    pl_staging_t staging;
    pl_device_times_t times;
} pl_device_t;

/* Nothing is under way that writes into memory which others hold, or that close() would
 * wait for. */
static inline bool pl_device_is_idle(const pl_device_t *device)
{
    return !device->running && !device->readings
           && !(device->compiles && device->ops->compile_stop);
}

/* actor_regions.c: regions are allocated, registered, written and read. */
int pl_device_allocate(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
int pl_device_write(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
int pl_device_prepare(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
int pl_device_read(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err);
/* What is called next comes behind a fence  [NULL: behind nothing more]. */
int pl_device_join(pl_device_t *device, pl_object_t *after, pl_error_t *err);

/* actor_plans.c: plans are compiled, at once or in the background, described and
 * discarded. */
int pl_device_compile(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
int pl_device_discard(void *self, pl_call_t *call, const pl_body_t *body,
                      pl_error_t *err);
int pl_device_describe(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err);
/* Ends those under way, and tells until they have ended that the device is at work. */
void pl_device_compiles_stop(pl_device_t *device);
/* Those under way, which the device has forgotten. */
void pl_device_compiles_drop(pl_device_t *device);

/* ---- actor_times.c ---- */

/* Adds a replay's; -> the list with them, as the reply of replay_plan has it (consumed
 * [NULL: a new one]; NULL: out of memory). */
json_t *pl_device_times_add(pl_device_times_t *times, const pl_device_span_t *span,
                            int count, json_t *spans);
/* A table as log lines, longest first, if anything was measured. */
void pl_device_times_log(pl_device_times_t *times, int rank);
void pl_device_times_release(pl_device_times_t *times);

#endif
