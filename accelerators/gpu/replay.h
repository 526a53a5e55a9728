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

#endif
