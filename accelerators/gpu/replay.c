/* replay.c - replays of plans: launches on the device's streams, and the results
 *
 * Nothing here waits for the device.  A replay fills one of the device's sets (step block
 * and batch, by stream IN, while the replay before it still computes) and puts the plan's
 * kernels on stream MAIN, which leave a record in the set.  Stream OUT copies the record
 * and the changed elements of mirrored regions to the host.  The device then writes to
 * the descriptor, and gpu_replays_collect() reports the results. */
#include "accelerators/gpu/replay.h"

#include <string.h>

#include "accelerators/gpu/fence.h"
#include "accelerators/gpu/transfer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

enum { ALIGNMENT = 64 /* of each buffer in the host memory of a replay */ };

/* A replay in flight, with host memory that copies at full speed: its step block, its
 * record, the batch, and the outputs. */
typedef struct inflight {
    struct inflight *next;
    pl_plan_t *plan;
    pl_replay_t *replay;
    char *host;
    size_t bytes;
    int set;
    int piece;                                      /* the next one */
    int reported;                                   /* of the `readies` */
    int collective;                                 /* that the last piece ends at  [0] */
    bool is_timed;                                  /* `backward` is recorded */
    pl_event_t *began, *backward, *computed, *over;
    pl_event_t *ready[PL_GRAD_BUCKETS_MAX];                 /* [NULL: not made yet] */
    int readies;                                            /* recorded ones */
    int buckets[PL_GRAD_BUCKETS_MAX];                       /* ready with each of them */
    gpu_timings_t timings;                                  /* of a measured replay */
} inflight_t;

typedef struct pl_gpu_replays {
    inflight_t *first, **last;                              /* under way, in order */
    inflight_t *spare;
    inflight_t *waiting;                                    /* at a collective  [NULL] */
    int next_set;
} replays_t;

static inflight_t *inflight_free(pl_gpu_t *gpu, inflight_t *f)
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

int gpu_replays_open(pl_gpu_t *gpu, pl_error_t *err)
{
    gpu->replays = pl_alloc(sizeof *gpu->replays);
    if (!gpu->replays)
        return pl_no_memory(err);
    gpu->replays->last = &gpu->replays->first;
    return PL_OK;
}

void gpu_replays_close(pl_gpu_t *gpu)
{
    replays_t *r = gpu->replays;
    if (!r)
        return;
    while (r->first)
        r->first = inflight_free(gpu, r->first);
    while (r->spare)
        r->spare = inflight_free(gpu, r->spare);
    if (r->waiting)
        inflight_free(gpu, r->waiting);
    pl_free(r);
    gpu->replays = NULL;
}

static void inflight_give(pl_gpu_t *gpu, inflight_t *f)
{
    f->next = gpu->replays->spare;
    gpu->replays->spare = f;
}

void gpu_replays_forget(pl_gpu_t *gpu, const pl_plan_t *plan)
{
    replays_t *r = gpu->replays;
    if (!r || !r->waiting || r->waiting->plan != plan)
        return;
    inflight_give(gpu, r->waiting);
    r->waiting = NULL;
}

bool gpu_replay_waits(const pl_gpu_t *gpu)
{
    return gpu->replays->waiting;
}

void gpu_replays_shrink(pl_gpu_t *gpu)
{
    replays_t *r = gpu->replays;
    while (r && r->spare)
        r->spare = inflight_free(gpu, r->spare);
}

/* ---- Host memory of a replay ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t record_bytes(const pl_plan_t *p)
{
    return GPU_RECORD_SUMS + (size_t)p->sums * sizeof(double);
}

static char *record_of(const inflight_t *f)
{
    return f->host + aligned(sizeof(gpu_step_t));
}

/* The control block at the time of the event `ready`. */
static gpu_control_t *control_of(const inflight_t *f, int ready)
{
    return (gpu_control_t *)(record_of(f) + aligned(record_bytes(f->plan))
                             + (size_t)ready * aligned(sizeof(gpu_control_t)));
}

static char *batch_of(const inflight_t *f)
{
    return (char *)control_of(f, f->plan->pieces);
}

static size_t batch_bytes(const pl_plan_t *p)
{
    size_t bytes = 0;
    for (int k = 0; k < PL_FIELDS; k++)
        bytes += aligned(p->input[k]);
    return bytes;
}

static char *outputs_of(const inflight_t *f)
{
    return batch_of(f) + batch_bytes(f->plan);
}

/* Outputs that the caller does not request take no memory. */
static size_t inflight_bytes(const pl_plan_t *p, const pl_replay_t *replay)
{
    size_t bytes = aligned(sizeof(gpu_step_t)) + aligned(record_bytes(p))
                   + (size_t)p->pieces * aligned(sizeof(gpu_control_t)) + batch_bytes(p);
    for (int k = 0; k < p->outputs; k++)
        bytes += replay->output[k] ? aligned(p->output[k].bytes) : 0;
    return bytes;
}

/* A spare flight or a new one, with events and memory for a replay. */
static int inflight_take(pl_gpu_t *gpu, pl_plan_t *plan, const pl_replay_t *replay,
                         inflight_t **taken, pl_error_t *err)
{
    replays_t *r = gpu->replays;
    inflight_t *f = r->spare;
    if (f)
        r->spare = f->next;
    else if (!(f = pl_alloc(sizeof *f)))
        return pl_no_memory(err);
    f->plan = plan;
    f->next = NULL;
    f->piece = f->reported = f->readies = f->collective = f->timings.count = 0;
    f->is_timed = false;
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    pl_event_t **const events[] = {&f->began, &f->backward, &f->computed, &f->over};
    const size_t bytes = inflight_bytes(plan, replay);
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
    if (code == PL_OK)
        *taken = f;
    else
        inflight_give(gpu, f);
    return code;
}

/* ---- To the device ---- */

/* [NULL: its kernels and copies are not measured] */
static gpu_timings_t *timings_of(inflight_t *f)
{
    return f->replay->measured ? &f->timings : NULL;
}

static int set_fill(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const pl_replay_t *replay = f->replay;
    const pl_plan_t *p = f->plan;
    gpu_set_t *set = &gpu->memory->set[f->set];
    const pl_dropout_t d = pl_dropout_init(replay->seed, replay->step,
                                           replay->micro_batch, 0, 0);
    gpu_step_t *step = (gpu_step_t *)f->host;
    char *batch = batch_of(f);
    *step = (gpu_step_t){.seed = replay->seed,
                         .step = d.step,
                         .micro_batch = d.micro_batch,
                         .fail_fast = replay->fail_fast,
                         .restart = replay->restart};
    memcpy(step->scalar, replay->scalar, sizeof step->scalar);
    int code = backend->event_wait(gpu, set->left, PL_STREAM_IN, err);
    if (code == PL_OK)
        code = gpu_timing(gpu, timings_of(f), PL_STREAM_IN, GPU_TIMING_BEGIN, err);
    if (code == PL_OK)
        code = backend->copy_in(gpu, PL_STREAM_IN, set->step.address, step, sizeof *step,
                                err);
    for (int k = 0; k < PL_FIELDS && code == PL_OK; k++) {
        if (!p->input[k])
            continue;
        const bool is_pinned = gpu_is_pinned(gpu, replay->input[k], p->input[k]);
        if (!is_pinned)
            memcpy(batch, replay->input[k], p->input[k]);
        code = backend->copy_in(gpu, PL_STREAM_IN, set->input[k].address,
                                is_pinned ? replay->input[k] : batch, p->input[k], err);
        batch += aligned(p->input[k]);
    }
    if (code == PL_OK)
        code = gpu_timing(gpu, timings_of(f), PL_STREAM_IN, GPU_TIMING_COPY, err);
    if (code == PL_OK)
        code = backend->event_record(gpu, set->filled, PL_STREAM_IN, err);
    return code == PL_OK ? backend->event_wait(gpu, set->filled, PL_STREAM_MAIN, err)
                         : code;
}

/* The device address of the elements of a mirrored region in the type of the host. */
static pl_device_ptr_t host_copy_address(const gpu_region_t *r, const gpu_host_copy_t *p,
                                         size_t *width)
{
    const bool half = gpu_is_half(r->dtype);
    *width = half ? sizeof(float) : pl_dtype_size(r->dtype);
    return (half ? r->floats : r->block).address + p->from * *width;
}

static int host_copy_in(pl_gpu_t *gpu, const gpu_host_copy_t *p, pl_error_t *err)
{
    const gpu_region_t *r = &gpu->memory->region[p->region];
    size_t width;
    const pl_device_ptr_t to = host_copy_address(r, p, &width);
    return gpu->backend->copy_in(gpu, PL_STREAM_MAIN, to,
                                 (char *)r->mirror + p->from * width, p->count * width,
                                 err);
}

/* Reports at once, with a fence after the work on stream MAIN: so many buckets of
 * registered gradients, or [0] all of a replay.  A bucket is reported whether the
 * replay runs or is stopped: the ranks have no information on that yet, and all of
 * them reduce it. */
static int report_by_fence(pl_gpu_t *gpu, pl_replay_t *replay, int buckets,
                           pl_error_t *err)
{
    pl_fence_t *fence = NULL;
    int code = gpu_fence_main(gpu, &fence, err);
    if (code != PL_OK)
        return code;
    if (buckets)
        replay->ready(replay, buckets, fence);
    else
        replay->ordered(replay, fence);
    pl_object_unref(fence);
    return PL_OK;
}

/* Puts a piece and the copies after it on the streams. */
static int piece_put(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    pl_plan_t *p = f->plan;
    gpu_piece_t *piece = &p->piece[f->piece];
    const int from = f->piece ? piece[-1].host_copies : 0, buckets = piece->buckets;
    int code = gpu_piece_run(gpu, p, piece, f->set, timings_of(f), err);
    f->piece++;
    if (code == PL_OK && piece->host)
        code = gpu_host_put(&p->host[piece->host - 1], gpu, err);
    if (code == PL_OK && piece->backward) {
        f->is_timed = true;
        code = backend->event_record(gpu, f->backward, PL_STREAM_MAIN, err);
    }
    if (code == PL_OK && (from < piece->host_copies || buckets))
        code = backend->event_record(gpu, f->computed, PL_STREAM_MAIN, err);
    if (code == PL_OK && (from < piece->host_copies || buckets))
        code = backend->event_wait(gpu, f->computed, PL_STREAM_OUT, err);
    for (int k = from; k < piece->host_copies && code == PL_OK; k++) {
        const gpu_region_t *r = &gpu->memory->region[p->out[k].region];
        size_t width;
        const pl_device_ptr_t at = host_copy_address(r, &p->out[k], &width);
        code = backend->copy_out(gpu, PL_STREAM_OUT,
                                 (char *)r->mirror + p->out[k].from * width, at,
                                 p->out[k].count * width, err);
    }
    const bool reports = code == PL_OK && buckets && f->replay->ready;
    f->collective = piece->collective;
    if (reports && gpu->memory->region[PL_REGION_GRADS].is_registered)
        return report_by_fence(gpu, f->replay, buckets, err);
    if (!reports)
        return code;
    /* The control block is copied to the host, which reports the buckets when it has
     * arrived and the replay was not stopped. */
    pl_event_t **event = &f->ready[f->readies];
    code = *event ? PL_OK : backend->event_new(gpu, event, err);
    if (code == PL_OK)
        code = backend->copy_out(gpu, PL_STREAM_OUT, control_of(f, f->readies),
                                 gpu->memory->control.address, sizeof(gpu_control_t),
                                 err);
    if (code == PL_OK)
        code = backend->event_record(gpu, *event, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = backend->notify(gpu, *event, err);
    f->buckets[f->readies++] = buckets;
    return code;
}

/* Puts the pieces up to a collective or the end on the streams, then the outputs and the
 * record. */
static int inflight_put(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const pl_plan_t *p = f->plan;
    gpu_set_t *set = &gpu->memory->set[f->set];
    char *to = outputs_of(f);
    int code = PL_OK;
    do
        code = piece_put(gpu, f, err);
    while (code == PL_OK && f->piece < p->pieces && !f->collective);
    for (int k = 0; k < p->outputs && !f->collective && code == PL_OK; k++) {
        const gpu_output_t *output = &p->output[k];
        if (!f->replay->output[k])
            continue;
        code = backend->copy_out(gpu, PL_STREAM_MAIN, to,
                                 gpu_address(gpu, &output->buffer, f->set), output->bytes,
                                 err);
        to += aligned(output->bytes);
    }
    if (code == PL_OK)
        code = backend->event_record(gpu, f->computed, PL_STREAM_MAIN, err);
    if (code == PL_OK)
        code = backend->event_wait(gpu, f->computed, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = gpu_timing(gpu, timings_of(f), PL_STREAM_OUT, GPU_TIMING_BEGIN, err);
    if (code == PL_OK)
        code = backend->copy_out(gpu, PL_STREAM_OUT, record_of(f), set->record.address,
                                 record_bytes(p), err);
    if (code == PL_OK)
        code = gpu_timing(gpu, timings_of(f), PL_STREAM_OUT, GPU_TIMING_COPY, err);
    if (code == PL_OK)
        code = backend->event_record(gpu, set->left, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = backend->event_record(gpu, f->over, PL_STREAM_OUT, err);
    return code == PL_OK ? backend->notify(gpu, f->over, err) : code;
}

/* Puts a replay on the streams, from its begin or from the collective at which it waits.
 * GPU_REGION_LOW is made again if the host or a plan has changed the parameters. */
static int inflight_run(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const pl_plan_t *p = f->plan;
    const gpu_host_copy_t *summed = &p->collective_result;
    pl_gpu_memory_t *m = gpu->memory;
    const gpu_set_t *before = &m->set[(f->set + GPU_SETS - 1) % GPU_SETS];
    int code = PL_OK;
    if (f->replay->continues) {
        code = summed->count ? host_copy_in(gpu, summed, err) : PL_OK;
        if (code == PL_OK && summed->count && summed->kernel >= 0)
            code = gpu_put_kernels(gpu, p, summed->kernel, summed->kernel + 1, f->set,
                                   err);
        return code == PL_OK ? inflight_put(gpu, f, err) : code;
    }
    code = backend->event_record(gpu, f->began, PL_STREAM_MAIN, err);
    if (code == PL_OK)
        code = set_fill(gpu, f, err);
    if (code == PL_OK
        && p->ins)             /* the replay before copies mirrored regions to the host */
        code = backend->event_wait(gpu, before->left, PL_STREAM_MAIN, err);
    for (int k = 0; k < p->ins && code == PL_OK; k++)
        code = host_copy_in(gpu, &p->in[k], err);
    if (code == PL_OK && p->changes_params && !p->keeps_low)
        m->low_is_fresh = false;
    if (code == PL_OK && p->refresh >= 0
        && (!m->low_is_fresh || m->region[PL_REGION_PARAMS].mirror)) {
        code = gpu_put_kernels(gpu, p, p->refresh, p->refresh + 1, f->set, err);
        m->low_is_fresh = code == PL_OK;
    }
    return code == PL_OK ? inflight_put(gpu, f, err) : code;
}

/* The waiting flight that a replay continues, or a new one. */
static int inflight_find(pl_gpu_t *gpu, pl_plan_t *plan, const pl_replay_t *replay,
                         inflight_t **found, pl_error_t *err)
{
    replays_t *r = gpu->replays;
    inflight_t *f = r->waiting;
    if (replay->continues && (!f || f->plan != plan))
        return pl_fail(
            err, PL_ESTATE,
            "the plan does not wait at a collective: another plan was replayed "
            "or compiled since");
    if (replay->continues && f->bytes < inflight_bytes(plan, replay))
        return pl_fail(err, PL_EINVAL,
                       "a replay that continues has more outputs than at its begin");
    r->waiting = NULL;
    *found = f;
    if (replay->continues)
        return PL_OK;
    if (f)
        inflight_give(gpu, f);
    int code = inflight_take(gpu, plan, replay, found, err);
    if (code == PL_OK) {
        (*found)->set = r->next_set;
        r->next_set = (r->next_set + 1) % GPU_SETS;
    }
    return code;
}

int pl_gpu_replay(void *self, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    replays_t *r = gpu->replays;
    inflight_t *f = NULL;
    for (int k = 0; k < PL_FIELDS; k++)
        if (plan->input[k] && !replay->input[k])
            return pl_fail(err, PL_EINVAL, "the replay has no data for batch field %d",
                           k);
    int code = gpu_plan_resolve(gpu, plan, err);
    if (code == PL_OK)
        code = inflight_find(gpu, plan, replay, &f, err);
    if (code != PL_OK)
        return code;
    f->replay = replay;
    code = inflight_run(gpu, f, err);
    if (code == PL_OK && replay->ordered && !f->collective)
        code = report_by_fence(gpu, replay, 0, err);
    if (code != PL_OK) {        /* launches on the streams run, but nothing is reported */
        gpu_drain(gpu, NULL);
        inflight_give(gpu, f);
        return code;
    }
    f->next = NULL;
    *r->last = f;
    r->last = &f->next;
    return PL_OK;
}

/* ---- To the host ---- */

/* Copies metrics and outputs to the caller, except those after the guard that stopped the
 * replay.  A replay that was stopped before a collective has no outputs. */
static void hand_out(const inflight_t *f, int32_t stopped)
{
    const pl_plan_t *p = f->plan;
    const char *sums = record_of(f) + GPU_RECORD_SUMS, *from = outputs_of(f);
    double *to = f->replay->metrics;
    for (int k = 0; k < p->metrics && to; k++) {
        const size_t bytes = (size_t)p->metric[k].count * sizeof(double);
        if (p->metric[k].made < stopped)
            memcpy(to, sums, bytes);
        sums += bytes;
        to += p->metric[k].count;
    }
    for (int k = 0; k < p->outputs && !f->collective; k++) {
        if (!f->replay->output[k])
            continue;
        if (p->output[k].made < stopped)
            memcpy(f->replay->output[k], from, p->output[k].bytes);
        from += aligned(p->output[k].bytes);
    }
}

static void inflight_end(pl_gpu_t *gpu, inflight_t *f, const pl_error_t *failure)
{
    const gpu_block_t *counters = &gpu->memory->counters;
    pl_replay_t *replay = f->replay;
    pl_error_t err = {0};
    gpu_control_t control = {0};
    int code = failure ? failure->code : PL_OK;
    if (!failure) {
        memcpy(&control, record_of(f), sizeof control);
        failure = &err;
    }
    if (control.status >= GPU_WRONG_INDEX) {
        const gpu_check_t *check = &f->plan->check[control.operation];
        code = control.status == GPU_NOT_FINITE
                   ? pl_guard_fail(&check->op, replay->step, &err)
                   : pl_index_fail(&check->op, control.index, check->below, &err);
        if (counters->bytes)        /* later groups of that kernel may not have counted */
            gpu->backend->zero(gpu, PL_STREAM_MAIN, counters->address, counters->bytes,
                               NULL);
    }
    replay->skipped = control.status == GPU_SKIP_NON_FINITE;
    replay->collective = code == PL_OK && !control.status ? f->collective : 0;
    if (code == PL_OK && f->is_timed)
        replay->forward = gpu->backend->event_seconds(gpu, f->began, f->backward);
    if (code == PL_OK && !replay->collective && replay->measured)
        gpu_timings_report(gpu, &f->timings, f->plan, f->began, replay);
    if (code == PL_OK && !replay->collective && !(control.fail_fast && control.skipping))
        hand_out(f, control.status ? control.operation : INT32_MAX);
    if (replay->collective)
        gpu->replays->waiting = f;
    else
        inflight_give(gpu, f);
    replay->done(replay, code == PL_OK ? NULL : failure);
}

void gpu_replays_collect(pl_gpu_t *gpu)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    replays_t *r = gpu->replays;
    pl_error_t err = {0};
    while (r->first) {
        inflight_t *f = r->first;
        bool over = false, passed = true;
        int code = backend->event_passed(gpu, f->over, &over, &err);
        while (code == PL_OK && !over && passed && f->reported < f->readies) {
            code = backend->event_passed(gpu, f->ready[f->reported], &passed, &err);
            if (code == PL_OK && passed && !control_of(f, f->reported)->status)
                f->replay->ready(f->replay, f->buckets[f->reported], NULL);
            f->reported += passed;
        }
        if (code == PL_OK && !over)
            return;
        r->first = f->next;
        if (!r->first)
            r->last = &r->first;
        inflight_end(gpu, f, code == PL_OK ? NULL : &err);
    }
}
