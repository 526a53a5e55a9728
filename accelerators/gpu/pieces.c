/* pieces.c - the launches of a piece of a plan: one by one, recorded, or measured
 *
 * Measured launches are not recorded, because events stand between them: then a step
 * takes longer, and most of all one with many small kernels. */
#include "accelerators/gpu/pieces.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

int gpu_put_kernels(pl_gpu_t *gpu, const pl_plan_t *plan, int from, int to, int set,
                    pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    int code = PL_OK;
    for (int k = from; k < to && code == PL_OK; k++) {
        const gpu_kernel_t *kernel = &plan->kernel[k];
        const pl_launch_t *launch = &kernel->launch[set];
        if (kernel->library)
            code = machine->product_run(gpu, PL_STREAM_MAIN, kernel->library,
                                        launch->address, err);
        else if (kernel->layer)
            code = machine->layer_run(gpu, PL_STREAM_MAIN, kernel->layer, launch->address,
                                      err);
        else
            code = machine->launch(gpu, PL_STREAM_MAIN, launch, err);
    }
    return code;
}

/* Ends the recording also after a failure: the stream must not stay in that state. */
static int piece_record(pl_gpu_t *gpu, const pl_plan_t *plan, gpu_piece_t *piece, int set,
                        pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    pl_recording_t *made = NULL;
    int code = machine->record_begin(gpu, PL_STREAM_MAIN, err);
    if (code != PL_OK)
        return code;
    code = gpu_put_kernels(gpu, plan, piece->from, piece->to, set, err);
    const int ended = machine->record_end(gpu, PL_STREAM_MAIN, &made,
                                          code == PL_OK ? err : NULL);
    if (code == PL_OK)
        piece->recording[set] = made;
    else if (made)
        machine->recording_free(gpu, made);
    return code == PL_OK ? ended : code;
}

/* ---- Measured ---- */

int gpu_mark(pl_gpu_t *gpu, gpu_marks_t *marks, pl_stream_t stream, int what,
             pl_error_t *err)
{
    if (!marks)
        return PL_OK;
    if (marks->count == marks->made) {
        if (PL_GROW(marks->mark, marks->made, marks->capacity) != PL_OK)
            return pl_no_memory(err);
        marks->mark[marks->made] = (gpu_mark_t){.event = NULL};
        const int code = gpu->machine->event_new(gpu, &marks->mark[marks->made].event,
                                                 err);
        if (code != PL_OK)
            return code;
        marks->made++;
    }
    gpu_mark_t *mark = &marks->mark[marks->count++];
    mark->stream = stream;
    mark->what = what;
    return gpu->machine->event_record(gpu, mark->event, stream, err);
}

static int piece_measure(pl_gpu_t *gpu, const pl_plan_t *plan, const gpu_piece_t *piece,
                         int set, gpu_marks_t *marks, pl_error_t *err)
{
    int code = gpu_mark(gpu, marks, PL_STREAM_MAIN, GPU_MARK_BEGIN, err);
    for (int k = piece->from; k < piece->to && code == PL_OK; k++) {
        code = gpu_put_kernels(gpu, plan, k, k + 1, set, err);
        if (code == PL_OK)
            code = gpu_mark(gpu, marks, PL_STREAM_MAIN, k, err);
    }
    return code;
}

void gpu_marks_report(pl_gpu_t *gpu, const gpu_marks_t *marks, const pl_plan_t *plan,
                      pl_event_t *began, pl_replay_t *replay)
{
    double since[PL_STREAMS] = {0};
    int count = 0;
    pl_device_span_t *span = pl_alloc_array((size_t)marks->count + 1, sizeof *span);
    for (int k = 0; span && k < marks->count; k++) {
        const gpu_mark_t *mark = &marks->mark[k];
        const double now = gpu->machine->event_seconds(gpu, began, mark->event);
        if (mark->what != GPU_MARK_BEGIN)
            span[count++] = (pl_device_span_t){
                .what = mark->what == GPU_MARK_COPY ? "copy"
                                                    : plan->kernel[mark->what].kind,
                .path = mark->what == GPU_MARK_COPY ? "" : plan->kernel[mark->what].path,
                .stream = (int)mark->stream,
                .begin = since[mark->stream],
                .end = now};
        since[mark->stream] = now;
    }
    if (span)
        replay->measured(replay, span, count);
    pl_free(span);
}

void gpu_marks_free(pl_gpu_t *gpu, gpu_marks_t *marks)
{
    for (int k = 0; k < marks->made; k++)
        gpu->machine->event_free(gpu, marks->mark[k].event);
    pl_free(marks->mark);
    *marks = (gpu_marks_t){NULL};
}

/* ---- A piece ---- */

/* The first time launches run one by one, because they may load code; then they are
 * recorded. */
int gpu_piece_run(pl_gpu_t *gpu, pl_plan_t *plan, gpu_piece_t *piece, int set,
                  gpu_marks_t *marks, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    if (marks)
        return piece_measure(gpu, plan, piece, set, marks, err);
    const bool records = machine->record_begin && piece->to - piece->from > 1;
    if (records && piece->runs[set] && !piece->recording[set]) {
        const int code = piece_record(gpu, plan, piece, set, err);
        if (code != PL_OK)
            return code;
    }
    piece->runs[set]++;
    return piece->recording[set]
               ? machine->recording_run(gpu, PL_STREAM_MAIN, piece->recording[set], err)
               : gpu_put_kernels(gpu, plan, piece->from, piece->to, set, err);
}
