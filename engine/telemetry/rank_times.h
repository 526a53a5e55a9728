/* rank_times.h - where the time of each rank's steps goes */
#ifndef PL_TELEMETRY_RANK_TIMES_H
#define PL_TELEMETRY_RANK_TIMES_H

#include <jansson.h>

#include "telemetry/call_graph.h"

enum { PL_RANK_SPANS = 16 };

/* Of the steps, or of validation, test and prediction, ns. */
typedef struct pl_work_times {
    int64_t stage[PL_STEP_STAGES], engine;       /* data, collective: the device waited */
    int64_t paused;                              /* on somebody's request */
} pl_work_times_t;

typedef struct pl_rank_times {
    int64_t busy_until[PL_TRACKS];
    pl_work_times_t steps, evaluation;
    bool evaluated;                           /* since it computed for a step */
    int64_t all_reduce;                       /* in collectives, also while it computed */
    pl_time_span_t data[PL_RANK_SPANS], collective[PL_RANK_SPANS],
        pause[PL_RANK_SPANS];                               /* the newest */
    unsigned data_count, collective_count, pause_count;
} pl_rank_times_t;

/* A call has ended: to the times of its rank in a map of them, which starts empty. */
void pl_rank_times_take(pl_map_t *ranks, const pl_open_t *open,
                        const pl_tap_record_t *end);
/* All ranks were held up for so long, by somebody's request: nobody waits for
 * anything. */
void pl_rank_times_pause(pl_map_t *ranks, int64_t begin, int64_t end);
/* All were started again: what lies between their lives is in no part. */
void pl_rank_times_again(pl_map_t *ranks);
/* Whose times those of a key of the map are. */
int pl_rank_times_rank(uint64_t key);
/* Seconds of each part of the steps, of each rank in their order; those of "evaluation"
 * under that name. */
json_t *pl_rank_times_json(const pl_map_t *ranks);
void pl_rank_times_forget(pl_map_t *ranks);

#endif
