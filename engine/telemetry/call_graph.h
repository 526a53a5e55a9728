/* call_graph.h - actors, open calls and the time of each rank's steps, as the messages of
 * a stream show them
 *
 * The run view, explain and the trace each have one.  Messages may be missing: a call
 * whose answer is lost stays open until its process is replaced. */
#ifndef PL_TELEMETRY_CALL_GRAPH_H
#define PL_TELEMETRY_CALL_GRAPH_H

#include <jansson.h>

#include "base/map.h"
#include "runtime/tap.h"

enum { PL_ACTOR_TRACKS = 8, PL_RANK_UNKNOWN = -2 };

typedef struct pl_graph_actor {
    uint32_t process_id, thread, kind;
    uint32_t number;                           /* in the graph, from 1 */
    int rank;                                  /* -1: of no rank; or PL_RANK_UNKNOWN */
    unsigned calls;                            /* open ones that it made or received */
    struct pl_open *track[PL_ACTOR_TRACKS];    /* for the trace: the call in each track */
    void *own;                                 /* freed with the actor  [NULL] */
} pl_graph_actor_t;

typedef enum pl_replay_what {
    PL_REPLAY_FORWARD,                             /* for an evaluation, not for a step */
    PL_REPLAY_BOTH,                                /* forward and backward */
    PL_REPLAY_OPTIMIZER,
    PL_REPLAY_STEP,                                 /* forward, backward and optimizer */
    PL_REPLAY_OTHER,                                /* a strategy's own, with gradients */
} pl_replay_what_t;

/* An open call. */
typedef struct pl_open {
    uint64_t call, cause;
    uint32_t process_id, incarnation, message;
    int64_t began;                                          /* ns */
    pl_graph_actor_t *from, *to;
    uint64_t run;                                /* number of its run, as of the call that
                                                    caused it; the graph's user may set
                                                    another [0: unknown] */
    pl_replay_what_t what;                       /* of replay_plan */
    bool ends_step;                              /* of train_batch */
    uint64_t step;                               /* of train_batch that ends a step: the
                                                    steps done then */
    bool is_command;                             /* it is `control`: */
    pl_run_command_t command;
    int track;                                        /* of `to`; < 0: none */
    void *own;                                        /* the user of the graph frees it */
    struct pl_open *next, **pprev;                    /* list of all, newest first */
} pl_open_t;

/* Zeros: empty. */
typedef struct pl_call_graph {
    pl_map_t actors, calls, threads, incarnations;
    uint32_t actor_count;                                   /* that there have been */
    pl_open_t *open;
    /* Called before a call is freed that no answer will end: its process was replaced, or
     * its number is in use again  [NULL]. */
    void (*lost)(void *user, pl_open_t *open);
    void *user;
} pl_call_graph_t;

/* Takes a message: the call that it begins, reports on or ends  [unknown].  The caller
 * passes an ended call to pl_call_graph_drop(). */
pl_open_t *pl_call_graph_take(pl_call_graph_t *graph, const pl_tap_record_t *record);
static inline bool pl_ends_call(const pl_tap_record_t *record)
{
    return record->envelope.kind == PL_KIND_REPLY
           || record->envelope.kind == PL_KIND_ERROR;
}
pl_open_t *pl_call_graph_find(const pl_call_graph_t *graph, uint32_t process_id,
                              uint64_t call);
void pl_call_graph_drop(pl_call_graph_t *graph, pl_open_t *open);
void pl_call_graph_release(pl_call_graph_t *graph);

/* ---- the stages of a rank's steps ---- */

typedef enum pl_stage_track {
    PL_TRACK_DATA,
    PL_TRACK_COMPUTE,
    PL_TRACK_COLLECTIVE,
    PL_TRACKS
} pl_stage_track_t;

typedef enum pl_step_stage {
    PL_STEP_DATA,
    PL_STEP_FORWARD,
    PL_STEP_BACKWARD,
    PL_STEP_COLLECTIVE,
    PL_STEP_OPTIMIZER,
    PL_STEP_STAGES
} pl_step_stage_t;

extern const char *const pl_step_stage_names[PL_STEP_STAGES];

typedef struct pl_time_span {
    pl_stage_track_t track;
    pl_step_stage_t stage;
    int64_t begin, end;                                     /* ns */
} pl_time_span_t;

enum { PL_CALL_SPANS = 3 };

/* The spans of an ended call, 0 to 3.  None begins before `busy_until` of its track,
 * which moves to its end. */
int pl_step_spans(const pl_open_t *open, const pl_tap_record_t *end,
                  int64_t busy_until[PL_TRACKS], pl_time_span_t spans[PL_CALL_SPANS]);

/* ---- the time of each rank ---- */

enum { PL_RANK_SPANS = 16 };

/* Time of steps, or of validation, test and prediction, ns. */
typedef struct pl_work_times {
    int64_t stage[PL_STEP_STAGES], engine;       /* data, collective: the device waited */
    int64_t paused;
} pl_work_times_t;

typedef struct pl_rank_times {
    int rank;
    int64_t busy_until[PL_TRACKS];
    pl_work_times_t steps, evaluation;
    bool evaluated;                            /* since the device last computed a step */
    int64_t all_reduce;                        /* in collectives, also beside compute */
    pl_time_span_t data[PL_RANK_SPANS], collective[PL_RANK_SPANS],
        pause[PL_RANK_SPANS];                               /* the newest */
    unsigned data_count, collective_count, pause_count;
} pl_rank_times_t;

/* Adds an ended call to the times of its rank.  `ranks` is a map, empty at first;
 * pl_map_release_values() frees it. */
void pl_rank_times_take(pl_map_t *ranks, const pl_open_t *open,
                        const pl_tap_record_t *end);
/* Adds a pause of all ranks: no rank waited for data or others during it. */
void pl_rank_times_pause(pl_map_t *ranks, int64_t begin, int64_t end);
/* Seconds of each stage of the steps, of each rank in order; those of evaluations under
 * "evaluation". */
json_t *pl_rank_times_json(const pl_map_t *ranks);

#endif
