/* pieces.c - the launches of a piece of a plan: one by one, recorded, or measured
 *
 * Measured launches are not recorded, because there are events between them.  So a
 * measured step takes longer, most of all one with many small kernels. */
#include "accelerators/gpu/replay.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

int gpu_put_kernels(pl_gpu_t *gpu, const pl_plan_t *plan, int from, int to, int slot,
                    pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    int code = PL_OK;
    for (int k = from; k < to && code == PL_OK; k++) {
        const gpu_kernel_t *kernel = &plan->kernel[k];
        const pl_kernel_launch_t *launch = &kernel->launch[slot];
        if (kernel->library)
            code = backend->product_run(gpu, PL_STREAM_MAIN, kernel->library,
                                        launch->address, err);
        else if (kernel->layer)
            code = backend->layer_run(gpu, PL_STREAM_MAIN, kernel->layer, launch->address,
                                      err);
        else
            code = backend->launch(gpu, PL_STREAM_MAIN, launch, err);
    }
    return code;
}

/* ---- Measured launches ---- */

int gpu_timing(pl_gpu_t *gpu, gpu_timings_t *timings, pl_stream_t stream, int what,
               pl_error_t *err)
{
    if (!timings)
        return PL_OK;
    if (timings->count == timings->made) {
        if (PL_GROW(timings->mark, timings->made, timings->capacity) != PL_OK)
            return pl_no_memory(err);
        timings->mark[timings->made] = (gpu_timing_t){.event = NULL};
        const int code = gpu->backend->event_new(gpu, &timings->mark[timings->made].event,
                                                 err);
        if (code != PL_OK)
            return code;
        timings->made++;
    }
    gpu_timing_t *mark = &timings->mark[timings->count++];
    mark->stream = stream;
    mark->what = what;
    return gpu->backend->event_record(gpu, mark->event, stream, err);
}

void gpu_timings_report(pl_gpu_t *gpu, const gpu_timings_t *timings,
                        const pl_plan_t *plan, pl_event_t *began, pl_replay_t *replay)
{
    double since[PL_STREAMS] = {0};
    int count = 0;
    pl_device_span_t *span = pl_alloc_array((size_t)timings->count + 1, sizeof *span);
    for (int k = 0; span && k < timings->count; k++) {
        const gpu_timing_t *mark = &timings->mark[k];
        const double now = gpu->backend->event_seconds(gpu, began, mark->event);
        if (mark->what != GPU_TIMING_BEGIN)
            span[count++] =
                (pl_device_span_t){.what = mark->what == GPU_TIMING_COPY
                                               ? "copy"
                                               : plan->kernel[mark->what].kind,
                                   .path = mark->what == GPU_TIMING_COPY
                                               ? ""
                                               : plan->kernel[mark->what].path,
                                   .stream = (int)mark->stream,
                                   .begin = since[mark->stream],
                                   .end = now};
        since[mark->stream] = now;
    }
    if (span)
        replay->measured(replay, span, count);
    pl_free(span);
}

void gpu_timings_free(pl_gpu_t *gpu, gpu_timings_t *timings)
{
    for (int k = 0; k < timings->made; k++)
        gpu->backend->event_free(gpu, timings->mark[k].event);
    pl_free(timings->mark);
    *timings = (gpu_timings_t){NULL};
}

/* ---- A piece ---- */

/* The first time launches run one by one, because they may load code; then they are
 * recorded. */
int gpu_piece_run(pl_gpu_t *gpu, pl_plan_t *plan, gpu_piece_t *piece, int slot,
                  gpu_timings_t *timings, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    int code = PL_OK;
    if (timings) {
        code = gpu_timing(gpu, timings, PL_STREAM_MAIN, GPU_TIMING_BEGIN, err);
        for (int k = piece->from; k < piece->to && code == PL_OK; k++) {
            code = gpu_put_kernels(gpu, plan, k, k + 1, slot, err);
            if (code == PL_OK)
                code = gpu_timing(gpu, timings, PL_STREAM_MAIN, k, err);
        }
        return code;
    }
    const bool records = backend->record_begin && piece->to - piece->from > 1;
    if (records && piece->runs[slot] && !piece->recording[slot]) {
        pl_recording_t *made = NULL;
        code = backend->record_begin(gpu, PL_STREAM_MAIN, err);
        if (code != PL_OK)
            return code;
        code = gpu_put_kernels(gpu, plan, piece->from, piece->to, slot, err);
        /* Also after a failure: the stream must not stay in that state. */
        const int ended = backend->record_end(gpu, PL_STREAM_MAIN, &made,
                                              code == PL_OK ? err : NULL);
        if (code == PL_OK)
            piece->recording[slot] = made;
        else if (made)
            backend->recording_free(gpu, made);
        code = code == PL_OK ? ended : code;
    }
    if (code != PL_OK)
        return code;
    piece->runs[slot]++;
    return piece->recording[slot]
               ? backend->recording_run(gpu, PL_STREAM_MAIN, piece->recording[slot], err)
               : gpu_put_kernels(gpu, plan, piece->from, piece->to, slot, err);
}
