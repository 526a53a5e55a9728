/* replay.c - replays of plans: put on the device's streams, and collected when they are
 * over
 *
 * Nothing here waits for the device.  A replay fills one of the device's sets (its step
 * block and the batch, by stream IN, while the one before still computes), and puts the
 * plan's kernels on stream MAIN, which leave a record in the set; stream OUT fetches it
 * and what mirrored regions are to show the host.  The device then writes to the
 * descriptor, and collecting reports how the replay went. */
#include "accelerators/gpu/replay.h"

#include <string.h>

#include "accelerators/gpu/fence.h"
#include "accelerators/gpu/pieces.h"
#include "accelerators/gpu/transfer.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

enum { ALIGNMENT = 64 /* of what shares host memory */ };

/* A replay in flight, with host memory that copies at full speed: its step block, its
 * record, the batch, and the outputs. */
typedef struct inflight {
    struct inflight *next;
    pl_plan_t *plan;
    pl_replay_t *replay;
    char *host;
    size_t bytes;
    int set;
    int piece;                                     /* the next */
    int reported;                                  /* buckets */
    int collective;                                /* that it waits at, at its end  [0] */
    bool is_timed;                                 /* backward has begun */
    pl_event_t *began, *backward, *computed, *over;
    pl_event_t *ready[PL_GRAD_BUCKETS_MAX];                 /* [NULL: not made yet] */
    int readies;                                            /* that were recorded */
    int buckets[PL_GRAD_BUCKETS_MAX];                       /* that are ready with each */
    gpu_timings_t timings;                                  /* where it is measured */
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
        backend->host_free(gpu, f->host);
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

/* As it is when those buckets are ready. */
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

/* Outputs that the caller does not want take no memory. */
static size_t inflight_bytes(const pl_plan_t *p, const pl_replay_t *replay)
{
    size_t bytes = aligned(sizeof(gpu_step_t)) + aligned(record_bytes(p))
                   + (size_t)p->pieces * aligned(sizeof(gpu_control_t)) + batch_bytes(p);
    for (int k = 0; k < p->outputs; k++)
        bytes += replay->output[k] ? aligned(p->output[k].bytes) : 0;
    return bytes;
}

static int events_make(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    pl_event_t **const events[] = {&f->began, &f->backward, &f->computed, &f->over};
    int code = PL_OK;
    for (size_t k = 0; k < sizeof events / sizeof *events && code == PL_OK; k++)
        code = *events[k] ? PL_OK : gpu->backend->event_new(gpu, events[k], err);
    return code;
}

static int host_make(pl_gpu_t *gpu, inflight_t *f, size_t bytes, pl_error_t *err)
{
    if (bytes <= f->bytes)
        return PL_OK;
    if (f->host)
        gpu->backend->host_free(gpu, f->host);
    f->host = gpu->backend->host_new(gpu, bytes, err);
    f->bytes = f->host ? bytes : 0;
    return f->host ? PL_OK : PL_ENOMEM;
}

/* A failure leaves nothing on its way. */
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
    int code = events_make(gpu, f, err);
    if (code == PL_OK)
        code = host_make(gpu, f, inflight_bytes(plan, replay), err);
    if (code == PL_OK)
        *taken = f;
    else
        inflight_give(gpu, f);
    return code;
}

/* ---- On their way to the device ---- */

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

/* Of a mirrored region: where elements lie on the device, as the host has them. */
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

/* Its kernel, if it has one, ran with the piece. */
static int host_copy_out(pl_gpu_t *gpu, const gpu_host_copy_t *p, pl_error_t *err)
{
    const gpu_region_t *r = &gpu->memory->region[p->region];
    size_t width;
    const pl_device_ptr_t from = host_copy_address(r, p, &width);
    return gpu->backend->copy_out(gpu, PL_STREAM_OUT, (char *)r->mirror + p->from * width,
                                  from, p->count * width, err);
}

/* Passages to the host up to the piece's last, behind what it computes. */
static int put_host_copies(pl_gpu_t *gpu, inflight_t *f, const gpu_piece_t *piece,
                           int from, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    int code = PL_OK;
    if (from < piece->host_copies || piece->buckets)
        code = backend->event_record(gpu, f->computed, PL_STREAM_MAIN, err);
    if (code == PL_OK && (from < piece->host_copies || piece->buckets))
        code = backend->event_wait(gpu, f->computed, PL_STREAM_OUT, err);
    for (int k = from; k < piece->host_copies && code == PL_OK; k++)
        code = host_copy_out(gpu, &f->plan->out[k], err);
    return code;
}

static int put_ready(pl_gpu_t *gpu, inflight_t *f, int buckets, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    pl_event_t **event = &f->ready[f->readies];
    int code = *event ? PL_OK : backend->event_new(gpu, event, err);
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

static int piece_put(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    pl_plan_t *p = f->plan;
    gpu_piece_t *piece = &p->piece[f->piece];
    const int host_copies = f->piece ? piece[-1].host_copies : 0;
    int code = gpu_piece_run(gpu, p, piece, f->set, timings_of(f), err);
    f->piece++;
    if (code == PL_OK && piece->host)
        code = gpu_host_put(&p->host[piece->host - 1], gpu, err);
    if (code == PL_OK && piece->backward) {
        f->is_timed = true;
        code = backend->event_record(gpu, f->backward, PL_STREAM_MAIN, err);
    }
    if (code == PL_OK)
        code = put_host_copies(gpu, f, piece, host_copies, err);
    if (code == PL_OK && piece->buckets && f->replay->ready)
        code = gpu->memory->region[PL_REGION_GRADS].is_registered
                   ? gpu_fence_ready(gpu, f->replay, piece->buckets, err)
                   : put_ready(gpu, f, piece->buckets, err);
    f->collective = piece->collective;
    return code;
}

static int put_outputs(pl_gpu_t *gpu, const inflight_t *f, pl_error_t *err)
{
    char *to = outputs_of(f);
    int code = PL_OK;
    for (int k = 0; k < f->plan->outputs && code == PL_OK; k++) {
        const gpu_output_t *output = &f->plan->output[k];
        if (!f->replay->output[k])
            continue;
        code = gpu->backend->copy_out(gpu, PL_STREAM_MAIN, to,
                                      gpu_address(gpu, &output->buffer, f->set),
                                      output->bytes, err);
        to += aligned(output->bytes);
    }
    return code;
}

/* Pieces up to a collective or the end, and the record. */
static int inflight_put(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    gpu_set_t *set = &gpu->memory->set[f->set];
    int code = PL_OK;
    do
        code = piece_put(gpu, f, err);
    while (code == PL_OK && f->piece < f->plan->pieces && !f->collective);
    if (code == PL_OK && !f->collective)
        code = put_outputs(gpu, f, err);
    if (code == PL_OK)
        code = backend->event_record(gpu, f->computed, PL_STREAM_MAIN, err);
    if (code == PL_OK)
        code = backend->event_wait(gpu, f->computed, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = gpu_timing(gpu, timings_of(f), PL_STREAM_OUT, GPU_TIMING_BEGIN, err);
    if (code == PL_OK)
        code = backend->copy_out(gpu, PL_STREAM_OUT, record_of(f), set->record.address,
                                 record_bytes(f->plan), err);
    if (code == PL_OK)
        code = gpu_timing(gpu, timings_of(f), PL_STREAM_OUT, GPU_TIMING_COPY, err);
    if (code == PL_OK)
        code = backend->event_record(gpu, set->left, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = backend->event_record(gpu, f->over, PL_STREAM_OUT, err);
    return code == PL_OK ? backend->notify(gpu, f->over, err) : code;
}

/* Parameters as halves, where the host or a plan has changed them since. */
static int refresh(pl_gpu_t *gpu, const inflight_t *f, pl_error_t *err)
{
    pl_gpu_memory_t *m = gpu->memory;
    const int kernel = f->plan->refresh;
    if (f->plan->changes_params && !f->plan->keeps_low)
        m->low_is_fresh = false;
    if (kernel < 0 || (m->low_is_fresh && !m->region[PL_REGION_PARAMS].mirror))
        return PL_OK;
    const int code = gpu_put_kernels(gpu, f->plan, kernel, kernel + 1, f->set, err);
    m->low_is_fresh = code == PL_OK;
    return code;
}

static int inflight_begin(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const pl_plan_t *p = f->plan;
    const gpu_set_t *before = &gpu->memory->set[(f->set + GPU_SETS - 1) % GPU_SETS];
    int code = backend->event_record(gpu, f->began, PL_STREAM_MAIN, err);
    if (code == PL_OK)
        code = set_fill(gpu, f, err);
    if (code == PL_OK && p->ins)            /* what the one before leaves with the host */
        code = backend->event_wait(gpu, before->left, PL_STREAM_MAIN, err);
    for (int k = 0; k < p->ins && code == PL_OK; k++)
        code = host_copy_in(gpu, &p->in[k], err);
    if (code == PL_OK)
        code = refresh(gpu, f, err);
    return code == PL_OK ? inflight_put(gpu, f, err) : code;
}

static int inflight_resume(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const gpu_host_copy_t *p = &f->plan->collective_result;
    int code = p->count ? host_copy_in(gpu, p, err) : PL_OK;
    if (code == PL_OK && p->count && p->kernel >= 0)
        code = gpu_put_kernels(gpu, f->plan, p->kernel, p->kernel + 1, f->set, err);
    return code == PL_OK ? inflight_put(gpu, f, err) : code;
}

static void inflight_append(pl_gpu_t *gpu, inflight_t *f)
{
    replays_t *r = gpu->replays;
    f->next = NULL;
    *r->last = f;
    r->last = &f->next;
}

static int check_inputs(const pl_plan_t *plan, const pl_replay_t *replay, pl_error_t *err)
{
    for (int k = 0; k < PL_FIELDS; k++)
        if (plan->input[k] && !replay->input[k])
            return pl_fail(err, PL_EINVAL, "the replay has no data for batch field %d",
                           k);
    return PL_OK;
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
        return pl_fail(err, PL_EINVAL, "outputs are asked for by a replay's first part");
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

int gpu_replay(pl_gpu_t *gpu, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    inflight_t *f = NULL;
    int code = check_inputs(plan, replay, err);
    if (code == PL_OK)
        code = gpu_plan_resolve(gpu, plan, err);
    if (code == PL_OK)
        code = inflight_find(gpu, plan, replay, &f, err);
    if (code != PL_OK)
        return code;
    f->replay = replay;
    code = replay->continues ? inflight_resume(gpu, f, err) : inflight_begin(gpu, f, err);
    if (code == PL_OK && replay->ordered && !f->collective)
        code = gpu_fence_ordered(gpu, replay, err);
    if (code != PL_OK) {        /* launches on the streams run, but nothing is reported */
        gpu_drain(gpu, NULL);
        inflight_give(gpu, f);
        return code;
    }
    inflight_append(gpu, f);
    return PL_OK;
}

/* ---- On their way to the host ---- */

/* What a kernel found. */
static int fail_check(const inflight_t *f, const gpu_control_t *found, pl_error_t *err)
{
    const gpu_check_t *check = &f->plan->check[found->operation];
    if (found->status == GPU_NOT_FINITE)
        return pl_guard_fail(&check->op, f->replay->step, err);
    return pl_index_fail(&check->op, found->index, check->below, err);
}

/* What comes behind a guard that stops the replay keeps no value; one that would have
 * met other ranks is over there, and has no outputs. */
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

/* The kernel that found it may have had groups that came later and so did not count. */
static void counters_reset(pl_gpu_t *gpu)
{
    const gpu_block_t *c = &gpu->memory->counters;
    if (c->bytes)
        gpu->backend->zero(gpu, PL_STREAM_MAIN, c->address, c->bytes, NULL);
}

static void inflight_end(pl_gpu_t *gpu, inflight_t *f, const pl_error_t *failure)
{
    pl_replay_t *replay = f->replay;
    pl_error_t err = {0};
    gpu_control_t control = {0};
    int code = failure ? failure->code : PL_OK;
    if (!failure) {
        memcpy(&control, record_of(f), sizeof control);
        if (control.status >= GPU_WRONG_INDEX) {
            code = fail_check(f, &control, &err);
            counters_reset(gpu);
        }
        failure = &err;
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

/* Buckets that are ready by now, unless the replay was stopped: then nothing is; *over:
 * and the replay is. */
static int inflight_look(pl_gpu_t *gpu, inflight_t *f, bool *over, pl_error_t *err)
{
    bool passed = true;
    int code = gpu->backend->event_passed(gpu, f->over, over, err);
    while (code == PL_OK && !*over && passed && f->reported < f->readies) {
        code = gpu->backend->event_passed(gpu, f->ready[f->reported], &passed, err);
        if (code == PL_OK && passed && !control_of(f, f->reported)->status)
            f->replay->ready(f->replay, f->buckets[f->reported], NULL);
        f->reported += passed;
    }
    return code;
}

void gpu_collect(pl_gpu_t *gpu)
{
    replays_t *r = gpu->replays;
    pl_error_t err = {0};
    while (r->first) {
        inflight_t *f = r->first;
        bool over = false;
        const int code = inflight_look(gpu, f, &over, &err);
        if (code == PL_OK && !over)
            return;
        r->first = f->next;
        if (!r->first)
            r->last = &r->first;
        inflight_end(gpu, f, code == PL_OK ? NULL : &err);
    }
}
