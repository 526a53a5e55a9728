/* actor_times.h - where the time of a device goes: by operator and kind of kernel */
#ifndef PL_ACCELERATORS_ACTOR_TIMES_H
#define PL_ACCELERATORS_ACTOR_TIMES_H

#include <jansson.h>

#include "accelerators/accelerator.h"
#include "base/map.h"

typedef struct pl_time_row {
    char what[24], operator[64];
    int stream;
    uint64_t count;
    double seconds;
} pl_time_row_t;

/* Zeros: nothing was measured yet. */
typedef struct pl_device_times {
    bool wanted;
    pl_time_row_t *row;
    int rows, room;
    pl_map_t known;                                         /* a row's number from 1 */
    uint64_t replays;
    double before;                   /* s of the replays before in the same list */
} pl_device_times_t;

/* Adds a replay's; -> the list with them, as the reply of replay_plan has it (consumed
 * [NULL: a new one]; NULL: out of memory). */
json_t *pl_device_times_add(pl_device_times_t *times, const pl_device_span_t *span,
                            int count, json_t *spans);
/* A table as log lines, longest first, if anything was measured. */
void pl_device_times_log(pl_device_times_t *times, int rank);
void pl_device_times_release(pl_device_times_t *times);

#endif
