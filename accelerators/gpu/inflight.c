/* inflight.c - a replay in flight: its events, its memory on the host, and its set on the
 * device */
#include "accelerators/gpu/replay.h"

#include <string.h>

#include "accelerators/gpu/transfer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

enum { TOGETHER = 4096 /* bytes: two records of at most so many are one copy */ };

inflight_t *gpu_inflight_free(pl_gpu_t *gpu, inflight_t *f)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    inflight_t *next = f->next;
    pl_event_t *const events[] = {f->began, f->backward, f->computed, f->over};
    for (size_t k = 0; k < sizeof events / sizeof *events; k++)
        if (events[k])
            backend->event_free(gpu, events[k]);
    for (int k = 0; k < PL_GRAD_BUCKETS_MAX; k++)
        if (f->ready[k])
            backend->event_free(gpu, f->ready[k]);
    gpu_timings_free(gpu, &f->timings);
    if (f->host)
        gpu_pinned_free(gpu, f->host);
    pl_free(f);
    return next;
}

void gpu_inflight_give(pl_gpu_t *gpu, inflight_t *f, inflight_t **spare)
{
    gpu_set_t *set = &gpu->memory->set[f->slot % GPU_SETS];
    if (set->left == f->over)
        set->left = NULL;
    f->next = *spare;
    *spare = f;
}

/* ---- Host memory of a replay ---- */

char *gpu_inflight_record(const inflight_t *f)
{
    return f->host + gpu_aligned(2 * sizeof(gpu_step_t));
}

size_t gpu_inflight_half(const pl_gpu_t *gpu, int slot)
{
    return gpu->memory->set[slot % GPU_SETS].records.bytes / 2;
}

gpu_control_t *gpu_inflight_control(const inflight_t *f, int ready)
{
    return (gpu_control_t *)(gpu_inflight_record(f) + gpu_aligned(f->records)
                             + (size_t)ready * gpu_aligned(sizeof(gpu_control_t)));
}

static char *batch_of(const inflight_t *f)
{
    return (char *)gpu_inflight_control(f, f->plan->pieces);
}

char *gpu_inflight_outputs(const inflight_t *f)
{
    return batch_of(f) + f->plan->batch;
}

/* Outputs that the caller does not request take no memory. */
size_t gpu_inflight_bytes(const pl_plan_t *p, const pl_replay_t *replay, size_t records)
{
    size_t bytes = gpu_aligned(2 * sizeof(gpu_step_t)) + gpu_aligned(records)
                   + (size_t)p->pieces * gpu_aligned(sizeof(gpu_control_t)) + p->batch;
    for (int k = 0; k < p->outputs; k++)
        bytes += replay->output[k] ? gpu_aligned(p->output[k].bytes) : 0;
    return bytes;
}

int gpu_inflight_take(pl_gpu_t *gpu, pl_plan_t *plan, const pl_replay_t *replay,
                      inflight_t **spare, inflight_t **taken, pl_error_t *err)
{
    inflight_t *f = *spare;
    if (f)
        *spare = f->next;
    else if (!(f = pl_alloc(sizeof *f)))
        return pl_no_memory(err);
    f->plan = plan;
    f->next = f->end = NULL;
    f->slot = 0;
    f->piece = f->reported = f->readies = f->collective = f->timings.count = 0;
    f->is_timed = f->is_joined = false;
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    pl_event_t **const events[] = {&f->began, &f->backward, &f->computed, &f->over};
    const size_t half = gpu_inflight_half(gpu, 0);
    f->records = replay->next && half <= TOGETHER ? 2 * half : gpu_record_bytes(plan);
    const size_t bytes = gpu_inflight_bytes(plan, replay, f->records);
    int code = PL_OK;
    for (size_t k = 0; k < sizeof events / sizeof *events && code == PL_OK; k++)
        code = *events[k] ? PL_OK : backend->event_new(gpu, events[k], err);
    if (code == PL_OK && bytes > f->bytes) {
        if (f->host)
            gpu_pinned_free(gpu, f->host);
        f->host = gpu_pinned_new(gpu, bytes, err);
        f->bytes = f->host ? bytes : 0;
        code = f->host ? PL_OK : PL_ENOMEM;
    }
    f->record = f->host ? gpu_inflight_record(f) : NULL;
    if (code == PL_OK)
        *taken = f;
    else
        gpu_inflight_give(gpu, f, spare);
    return code;
}

/* ---- To the device ---- */

gpu_timings_t *gpu_inflight_timings(inflight_t *f)
{
    return f->replay->measured ? &f->timings : NULL;
}

static void step_fill(gpu_step_t *step, const pl_replay_t *replay)
{
    const pl_dropout_t d = pl_dropout_init(replay->seed, replay->step,
                                           replay->micro_batch, 0, 0);
    *step = (gpu_step_t){.seed = replay->seed,
                         .step = d.step,
                         .micro_batch = d.micro_batch,
                         .fail_fast = replay->fail_fast,
                         .restart = replay->restart};
    memcpy(step->scalar, replay->scalar, sizeof step->scalar);
}

/* Puts the copies of the batch on stream IN.  Fields that lie on the host as they do on
 * the device are one copy; fields that are not pinned are, by way of the flight. */
static int batch_copy(pl_gpu_t *gpu, const inflight_t *f, pl_error_t *err)
{
    const pl_plan_t *p = f->plan;
    const pl_device_ptr_t to = gpu->memory->set[f->slot].batch.address;
    char *staged = batch_of(f);
    const char *from = NULL;
    size_t at = 0, bytes = 0;                               /* of the next copy */
    int code = PL_OK;
    for (int k = 0; k < PL_FIELDS && code == PL_OK; k++) {
        if (!p->input[k])
            continue;
        const char *host = f->replay->input[k];
        const size_t far = p->input_at[k] - at + p->input[k];
        const bool is_pinned = gpu_is_pinned(gpu, host, p->input[k]);
        if (!is_pinned)
            host = memcpy(staged + p->input_at[k], host, p->input[k]);
        if (bytes && host + p->input[k] == from + far
            && (!is_pinned || gpu_is_pinned(gpu, from, far))) {
            bytes = far;
            continue;
        }
        if (bytes)
            code = gpu->backend->copy_in(gpu, PL_STREAM_IN, to + at, from, bytes, err);
        from = host, at = p->input_at[k], bytes = p->input[k];
    }
    return code == PL_OK && bytes
               ? gpu->backend->copy_in(gpu, PL_STREAM_IN, to + at, from, bytes, err)
               : code;
}

int gpu_inflight_fill(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const pl_replay_t *replay = f->replay;
    const gpu_buffer_t step_block = {.at = GPU_IN_STEP};
    const bool is_first = f->slot < GPU_SETS, fills_both = is_first && replay->next;
    gpu_set_t *set = &gpu->memory->set[f->slot % GPU_SETS];
    gpu_step_t *step = (gpu_step_t *)f->host;
    step_fill(step, replay);
    if (fills_both)
        step_fill(step + 1, replay->next);
    int code = is_first && set->left
                   ? backend->event_wait(gpu, set->left, PL_STREAM_IN, err)
                   : PL_OK;            /* the second slot is free when the first one is */
    if (code == PL_OK)
        code = gpu_timing(gpu, gpu_inflight_timings(f), PL_STREAM_IN, GPU_TIMING_BEGIN,
                          err);
    if (code == PL_OK)
        code = backend->copy_in(gpu, PL_STREAM_IN, gpu_address(gpu, &step_block, f->slot),
                                step, (fills_both ? 2 : 1) * sizeof *step, err);
    if (code == PL_OK && is_first)
        code = batch_copy(gpu, f, err);
    if (code == PL_OK)
        code = gpu_timing(gpu, gpu_inflight_timings(f), PL_STREAM_IN, GPU_TIMING_COPY,
                          err);
    if (code == PL_OK)
        code = backend->event_record(gpu, set->filled, PL_STREAM_IN, err);
    return code == PL_OK ? backend->event_wait(gpu, set->filled, PL_STREAM_MAIN, err)
                         : code;
}
