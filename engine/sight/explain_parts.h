/* explain_parts.h - what explain.c (the end of a run), explain_times.c (where its time
 * went) share */
#ifndef PL_SIGHT_EXPLAIN_PARTS_H
#define PL_SIGHT_EXPLAIN_PARTS_H

#include <jansson.h>

#include "sight/journal.h"
#include "sight/rank_times.h"
#include "sight/scene.h"

enum { FAULTS = 256, EVENTS_MOST = 200, REASON_MOST = 512 };

/* A call that failed. */
typedef struct fault {
    uint64_t call, cause;
    uint32_t origin, message, from_kind, to_kind;           /* of the call */
    int rank;
    int64_t time;
    pl_error_t error;
} fault_t;

typedef struct explain {
    pl_scene_t scene;
    uint64_t messages, missing, strange, runs, step;
    int64_t began, ended, last;                           /* ns of the stream */
    int64_t trouble;                                      /* when it began  [INT64_MAX] */
    bool has_ended, has_failed;
    char reason[REASON_MOST], status[REASON_MOST];
    fault_t faults[FAULTS];
    int fault_count;
    json_t *events;                                         /* of ranks */
    pl_map_t ranks;                                         /* of rank_times.h */
    pl_map_t actors, waits;                                 /* explain_times.c */
} explain_t;

/* A call has ended. */
void explain_time_call(explain_t *x, const pl_open_t *open, const pl_tap_record_t *end);
void explain_forget_times(explain_t *x);
json_t *explain_times_json(explain_t *x);
/* What is open in the scene, which stands at a moment. */
json_t *explain_open_json(const explain_t *x, int64_t moment);

#endif
