/* replay.h - replays of plans: launches on the device's streams, and the results */
#ifndef PL_GPU_REPLAY_H
#define PL_GPU_REPLAY_H

#include "accelerators/gpu/plan.h"

int gpu_replays_open(pl_gpu_t *gpu, pl_error_t *err);
void gpu_replays_close(pl_gpu_t *gpu);

/* Reports the progress and the end of replays. */
void gpu_replays_collect(pl_gpu_t *gpu);
/* Drops a replay of this plan that waits at a collective. */
void gpu_replays_forget(pl_gpu_t *gpu, const pl_plan_t *plan);
/* Whether a replay waits at a collective: its values must stay where they are. */
bool gpu_replay_waits(const pl_gpu_t *gpu);
/* Frees the host memory of replays that are over. */
void gpu_replays_shrink(pl_gpu_t *gpu);

/* ---- pieces.c ---- */

/* The second of two marks on a stream names the work between them: a kernel, by its
 * number in the plan, or a copy.  GPU_TIMING_BEGIN: none. */
enum { GPU_TIMING_BEGIN = -1, GPU_TIMING_COPY = -2 };

typedef struct gpu_timing {
    pl_event_t *event;
    pl_stream_t stream;
    int what;
} gpu_timing_t;

/* Of a replay; zeros: none yet. */
typedef struct gpu_timings {
    gpu_timing_t *mark;                          /* [made], of which `count` are in use */
    int count, made, capacity;
} gpu_timings_t;

/* Puts a mark on a stream  [timings NULL: does nothing]. */
int gpu_timing(pl_gpu_t *gpu, gpu_timings_t *timings, pl_stream_t stream, int what,
               pl_error_t *err);
/* Calls the replay's measured(), once all marks have passed. */
void gpu_timings_report(pl_gpu_t *gpu, const gpu_timings_t *timings,
                        const pl_plan_t *plan, pl_event_t *began, pl_replay_t *replay);
void gpu_timings_free(pl_gpu_t *gpu, gpu_timings_t *timings);

/* Puts kernels [from, to) on stream MAIN. */
int gpu_put_kernels(pl_gpu_t *gpu, const pl_plan_t *plan, int from, int to, int slot,
                    pl_error_t *err);
/* Puts the kernels of a piece on stream MAIN, with marks to measure them  [timings NULL:
 * the piece may be recorded]. */
int gpu_piece_run(pl_gpu_t *gpu, pl_plan_t *plan, gpu_piece_t *piece, int slot,
                  gpu_timings_t *timings, pl_error_t *err);

/* ---- inflight.c ---- */

/* A replay in flight.  It has host memory, which copies at full speed, for two step
 * blocks, its record or two, the batch, and the outputs. */
typedef struct inflight {
    struct inflight *next;
    pl_plan_t *plan;
    pl_replay_t *replay;
    char *host;
    size_t bytes;
    char *record;                     /* there, or with the flight before */
    size_t records;                   /* bytes there for it, or for it and the next one */
    int slot;
    struct inflight *end;          /* the flight that it ends with  [NULL: unknown yet] */
    int piece;                     /* the next one */
    int reported;                  /* of the `readies` */
    int collective;                /* that the last piece ends at  [0] */
    bool is_timed;                 /* `backward` is recorded */
    bool is_joined;                /* or left out (replay.c) */
    pl_event_t *began, *backward, *computed, *over;
    pl_event_t *ready[PL_GRAD_BUCKETS_MAX];                 /* [NULL: not made yet] */
    int readies;                                            /* recorded ones */
    int buckets[PL_GRAD_BUCKETS_MAX];                       /* ready with each of them */
    gpu_timings_t timings;                                  /* of a measured replay */
} inflight_t;

/* A spare flight or a new one, with events and memory for a replay. */
int gpu_inflight_take(pl_gpu_t *gpu, pl_plan_t *plan, const pl_replay_t *replay,
                      inflight_t **spare, inflight_t **taken, pl_error_t *err);
/* Adds a flight that is over to the spare ones; its set may be filled again. */
void gpu_inflight_give(pl_gpu_t *gpu, inflight_t *f, inflight_t **spare);
/* Returns the next of its list. */
inflight_t *gpu_inflight_free(pl_gpu_t *gpu, inflight_t *f);

/* Host memory that a replay of the plan needs, with so many bytes of records. */
size_t gpu_inflight_bytes(const pl_plan_t *plan, const pl_replay_t *replay,
                          size_t records);
/* Of a set's records: bytes of the first one, up to the second. */
size_t gpu_inflight_half(const pl_gpu_t *gpu, int slot);
/* The flight's own place for its record. */
char *gpu_inflight_record(const inflight_t *f);
/* The control block at the time of the event `ready`. */
gpu_control_t *gpu_inflight_control(const inflight_t *f, int ready);
char *gpu_inflight_outputs(const inflight_t *f);
/* [NULL: its kernels and copies are not measured] */
gpu_timings_t *gpu_inflight_timings(inflight_t *f);

/* Puts the copies of step block and batch to its set on stream IN, for stream MAIN to
 * wait for. */
int gpu_inflight_fill(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err);

#endif
