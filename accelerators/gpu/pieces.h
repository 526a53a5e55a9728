/* pieces.h - the launches of a piece of a plan: one by one, recorded, or measured */
#ifndef PL_GPU_PIECES_H
#define PL_GPU_PIECES_H

#include "accelerators/gpu/plan.h"

/* Between two marks of a stream lies what the second one names: a kernel, by its number
 * in the plan, or a copy; nothing, where another begins. */
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

/* Onto a stream  [marks NULL: nothing is done]. */
int gpu_timing(pl_gpu_t *gpu, gpu_timings_t *timings, pl_stream_t stream, int what,
               pl_error_t *err);
/* Calls the replay's measured(), once all marks have passed. */
void gpu_timings_report(pl_gpu_t *gpu, const gpu_timings_t *timings,
                        const pl_plan_t *plan, pl_event_t *began, pl_replay_t *replay);
void gpu_timings_free(pl_gpu_t *gpu, gpu_timings_t *timings);

/* Puts kernels [from, to) on stream MAIN. */
int gpu_put_kernels(pl_gpu_t *gpu, const pl_plan_t *plan, int from, int to, int set,
                    pl_error_t *err);
/* The same of a piece, with marks where it is measured  [NULL: it may be recorded]. */
int gpu_piece_run(pl_gpu_t *gpu, pl_plan_t *plan, gpu_piece_t *piece, int set,
                  gpu_timings_t *timings, pl_error_t *err);

#endif
