/* rank_times.h - where the time of each rank's steps goes */
#ifndef PL_SIGHT_RANK_TIMES_H
#define PL_SIGHT_RANK_TIMES_H

#include <jansson.h>

#include "sight/scene.h"

enum { PL_RANK_SPANS = 16 };

typedef struct pl_rank_times {
    int64_t busy_until[PL_TRACKS];
    int64_t part[PL_PARTS], engine;          /* ns; data, collective: the device waited */
    int64_t all_reduce;                      /* in collectives, also while it computed */
    pl_time_span_t data[PL_RANK_SPANS], collective[PL_RANK_SPANS];  /* the newest */
    unsigned data_count, collective_count;
} pl_rank_times_t;

/* A call has ended: to the times of its rank in a map of them, which starts empty. */
void pl_rank_times_take(pl_map_t *ranks, const pl_open_t *open,
                        const pl_tap_record_t *end);
/* Whose times those of a key of the map are. */
int pl_rank_times_rank(uint64_t key);
/* Seconds of each part, of each rank in their order. */
json_t *pl_rank_times_json(const pl_map_t *ranks);
void pl_rank_times_forget(pl_map_t *ranks);

#endif
