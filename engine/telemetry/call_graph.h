/* call_graph.h - who is there and which calls are open, as the messages of a stream
 * tell it
 *
 * What a trace draws and an explanation looks at.  Messages may be missing: a call whose
 * answer is lost stays open until its process is replaced. */
#ifndef PL_TELEMETRY_CALL_GRAPH_H
#define PL_TELEMETRY_CALL_GRAPH_H

#include <jansson.h>

#include "base/map.h"
#include "runtime/tap.h"

enum { PL_ACTOR_TRACKS = 8, PL_RANK_UNKNOWN = -2 };

/* An actor. */
typedef struct pl_graph_actor {
    uint32_t process_id, thread, kind;
    uint32_t number;                         /* here, from 1 */
    int rank;                                /* -1: none; PL_RANK_UNKNOWN: not told yet */
    struct pl_open *track[PL_ACTOR_TRACKS];  /* for who draws: what is in it */
    void *own;
} pl_graph_actor_t;

/* A call under way. */
typedef struct pl_open {
    uint64_t call, cause;
    uint32_t process_id, incarnation, message;
    int64_t began, children;                      /* ns; children: of calls made for it */
    pl_graph_actor_t *from, *to;
    int what;                                       /* of replay_plan: pl_replay_what_t */
    int track;                                      /* of `to`; below 0: none */
    struct pl_open *next, **pprev;                  /* list of all, newest first */
} pl_open_t;

typedef enum pl_replay_what {
    PL_REPLAY_FORWARD,                                      /* of no step: it evaluates */
    PL_REPLAY_BOTH,                                         /* forward and backward */
    PL_REPLAY_OPTIMIZER,
    PL_REPLAY_STEP,                                 /* all of it */
    PL_REPLAY_OTHER,                                /* a strategy's own, with gradients */
} pl_replay_what_t;

typedef struct pl_call_graph {
    pl_map_t actors, calls, threads, incarnations;
    uint32_t actor_count;
    pl_open_t *open;
    void (*lost)(void *user, pl_open_t *open);  /* its process is gone, before it is freed
                                                   [nobody asks] */
    void *user;
} pl_call_graph_t;

/* What a message means: the call that it begins, tells of or ends; NULL: unknown.  One
 * that it ends is to be given back by pl_call_graph_drop(). */
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

/* ---- What a rank's steps take their time ---- */

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
    int64_t begin, end;
} pl_time_span_t;

enum { PL_CALL_SPANS = 3 };

/* What the end of a call tells of them: 0 to 3 spans, none before what a track had at
 * `busy_until`, which they move on. */
int pl_step_spans(const pl_open_t *open, const pl_tap_record_t *end,
                  int64_t busy_until[PL_TRACKS], pl_time_span_t spans[PL_CALL_SPANS]);

/* Streams of a device, which the reply of replay_plan numbers. */
enum { PL_DEVICE_TRACKS = 3 };

/* The list "spans" of a reply of replay_plan; NULL: it is none, or has none. */
json_t *pl_device_spans(const pl_tap_record_t *record);

#endif
