/* replay.c - replays of plans: launches on the device's streams, and the results
 *
 * Nothing here waits for the device.  A replay fills one of the device's sets (step block
 * and batch, by stream IN, while the replay before it still computes) and puts the plan's
 * kernels on stream MAIN, which leave a record in the set.  Stream OUT copies the record
 * and the changed elements of mirrored regions to the host.  The device then writes to
 * the descriptor, and gpu_replays_collect() reports the results.
 *
 * A mark where backward begins parts a recording in two, of which each costs a launch.
 * Most short replays run without it: they have the share of forward that the newest
 * replay with the mark had.
 *
 * A replay that announces the next one fills that one's step block too, and stays open:
 * both records are copied and reported at the end of the second.  A step with its update
 * then has one copy each way and wakes the host once. */
#include "accelerators/gpu/replay.h"

#include <string.h>

#include "accelerators/gpu/fence.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct pl_gpu_replays {
    inflight_t *first, **last;                              /* under way, in order */
    inflight_t *spare;
    inflight_t *waiting;                        /* at a collective  [NULL] */
    inflight_t *open;                           /* the newest, if it announced the next */
    int next_set;
    bool second_is_free;                     /* slot of the set before, in which an update
                                                leaves the next set to the next batch */
} replays_t;

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
        r->first = gpu_inflight_free(gpu, r->first);
    while (r->spare)
        r->spare = gpu_inflight_free(gpu, r->spare);
    if (r->waiting)
        gpu_inflight_free(gpu, r->waiting);
    pl_free(r);
    gpu->replays = NULL;
}

void gpu_replays_forget(pl_gpu_t *gpu, const pl_plan_t *plan)
{
    replays_t *r = gpu->replays;
    if (!r || !r->waiting || r->waiting->plan != plan)
        return;
    gpu_inflight_give(gpu, r->waiting, &gpu->replays->spare);
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
        r->spare = gpu_inflight_free(gpu, r->spare);
}

/* ---- To the device ---- */

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

enum { MARK_EVERY = 16 /* of short replays */ };

/* Whether a flight runs the first two pieces of its plan as one. */
static bool joins_pieces(const pl_gpu_t *gpu, const inflight_t *f)
{
    const pl_plan_t *p = f->plan;
    const gpu_piece_t *first = p->piece;
    return !f->piece && p->pieces > 1 && p->joins && p->joined_replays < MARK_EVERY - 1
           && first->backward && !first->host && !first->host_copies && !first->buckets
           && !first->collective && !f->replay->measured && gpu->backend->record_begin;
}

static gpu_piece_t *piece_next(const pl_gpu_t *gpu, inflight_t *f)
{
    pl_plan_t *p = f->plan;
    gpu_piece_t *joined = &p->joined;
    if (!joins_pieces(gpu, f)) {
        p->joined_replays = f->piece ? p->joined_replays : 0;
        return &p->piece[f->piece++];
    }
    if (!joined->to) {
        *joined = p->piece[1];
        joined->from = p->piece[0].from;
        memset(joined->recording, 0, sizeof joined->recording);
        memset(joined->runs, 0, sizeof joined->runs);
    }
    p->joined_replays++;
    f->piece = 2;
    return joined;
}

/* Learns from a replay which share forward has, or sets its forward by that. */
static void share_note(const pl_gpu_t *gpu, inflight_t *f)
{
    const double limit = gpu->short_replay > 0 ? gpu->short_replay : 1e-3,
                 seconds = f->replay->seconds;
    if (f->is_timed && seconds > 0)
        f->plan->forward = f->replay->forward / seconds;
    else if (f->is_joined)
        f->replay->forward = f->plan->forward * seconds;
    f->plan->joins = f->plan->forward > 0 && seconds < limit;
}

/* Puts a piece and the copies after it on the streams. */
static int piece_put(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    pl_plan_t *p = f->plan;
    const int from = f->piece ? p->piece[f->piece - 1].host_copies : 0;
    gpu_piece_t *piece = piece_next(gpu, f);
    const int buckets = piece->buckets;
    int code = gpu_piece_run(gpu, p, piece, f->slot, gpu_inflight_timings(f), err);
    f->is_joined |= piece == &p->joined;
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
        code = backend->copy_out(gpu, PL_STREAM_OUT, gpu_inflight_control(f, f->readies),
                                 gpu->memory->control.address, sizeof(gpu_control_t),
                                 err);
    if (code == PL_OK)
        code = backend->event_record(gpu, *event, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = backend->notify(gpu, *event, PL_STREAM_OUT, true, err);
    f->buckets[f->readies++] = buckets;
    return code;
}

/* Puts the pieces up to a collective or the end on the streams, then the outputs. */
static int inflight_put(pl_gpu_t *gpu, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const pl_plan_t *p = f->plan;
    char *to = gpu_inflight_outputs(f);
    int code = PL_OK;
    do
        code = piece_put(gpu, f, err);
    while (code == PL_OK && f->piece < p->pieces && !f->collective);
    for (int k = 0; k < p->outputs && !f->collective && code == PL_OK; k++) {
        const gpu_output_t *output = &p->output[k];
        if (!f->replay->output[k])
            continue;
        code = backend->copy_out(gpu, PL_STREAM_MAIN, to,
                                 gpu_address(gpu, &output->buffer, f->slot),
                                 output->bytes, err);
        to += gpu_aligned(output->bytes);
    }
    return code;
}

static int record_copy(pl_gpu_t *gpu, const inflight_t *f, size_t bytes, pl_error_t *err)
{
    const gpu_buffer_t record = {.at = GPU_IN_RECORD};
    return gpu->backend->copy_out(gpu, PL_STREAM_OUT, f->record,
                                  gpu_address(gpu, &record, f->slot), bytes, err);
}

/* Ends a flight that is on the streams, and the open one before it  [NULL]: puts the
 * copies of their records there, and a notice behind them. */
static int inflight_close(pl_gpu_t *gpu, inflight_t *open, inflight_t *f, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const size_t half = gpu_inflight_half(gpu, f->slot),
                 bytes = gpu_record_bytes(f->plan);
    const bool together = open && open->records == 2 * half;
    if (together)
        f->record = open->record + half;
    int code = backend->event_record(gpu, f->computed, PL_STREAM_MAIN, err);
    if (code == PL_OK)
        code = backend->event_wait(gpu, f->computed, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = gpu_timing(gpu, gpu_inflight_timings(f), PL_STREAM_OUT, GPU_TIMING_BEGIN,
                          err);
    if (code == PL_OK && open)
        code = record_copy(gpu, open,
                           together ? half + bytes : gpu_record_bytes(open->plan), err);
    if (code == PL_OK && !together)
        code = record_copy(gpu, f, bytes, err);
    if (code == PL_OK)
        code = gpu_timing(gpu, gpu_inflight_timings(f), PL_STREAM_OUT, GPU_TIMING_COPY,
                          err);
    if (code == PL_OK)
        code = backend->event_record(gpu, f->over, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = backend->notify(gpu, f->over, PL_STREAM_OUT, f->readies > 0, err);
    if (code != PL_OK)
        return code;
    gpu->memory->set[f->slot % GPU_SETS].left = f->over;
    f->end = f;
    if (open)
        open->end = f;
    return PL_OK;
}

/* Puts a replay on the streams, from its begin or from the collective at which it waits.
 * is_filled: its step block was filled with the one before.  GPU_REGION_LOW is made again
 * if the host or a plan has changed the parameters. */
static int inflight_run(pl_gpu_t *gpu, inflight_t *f, bool is_filled, pl_error_t *err)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    const pl_plan_t *p = f->plan;
    const gpu_host_copy_t *summed = &p->collective_result;
    pl_gpu_memory_t *m = gpu->memory;
    const gpu_set_t *before = &m->set[(f->slot + GPU_SETS - 1) % GPU_SETS];
    int code = PL_OK;
    if (f->replay->continues) {
        code = summed->count ? host_copy_in(gpu, summed, err) : PL_OK;
        if (code == PL_OK && summed->count && summed->kernel >= 0)
            code = gpu_put_kernels(gpu, p, summed->kernel, summed->kernel + 1, f->slot,
                                   err);
        return code == PL_OK ? inflight_put(gpu, f, err) : code;
    }
    code = backend->event_record(gpu, f->began, PL_STREAM_MAIN, err);
    if (code == PL_OK && !is_filled)
        code = gpu_inflight_fill(gpu, f, err);
    if (code == PL_OK && p->ins
        && before->left)       /* the replay before copies mirrored regions to the host */
        code = backend->event_wait(gpu, before->left, PL_STREAM_MAIN, err);
    for (int k = 0; k < p->ins && code == PL_OK; k++)
        code = host_copy_in(gpu, &p->in[k], err);
    if (code == PL_OK && p->changes_params && !p->keeps_low)
        m->low_is_fresh = false;
    if (code == PL_OK && p->refresh >= 0
        && (!m->low_is_fresh || m->region[PL_REGION_PARAMS].mirror)) {
        code = gpu_put_kernels(gpu, p, p->refresh, p->refresh + 1, f->slot, err);
        m->low_is_fresh = code == PL_OK;
    }
    return code == PL_OK ? inflight_put(gpu, f, err) : code;
}

/* ---- To the host ---- */

/* Copies metrics and outputs to the caller, except those after the guard that stopped the
 * replay.  A replay that was stopped before a collective has no outputs. */
static void hand_out(const inflight_t *f, int32_t stopped)
{
    const pl_plan_t *p = f->plan;
    const char *sums = f->record + GPU_RECORD_SUMS, *from = gpu_inflight_outputs(f);
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
        from += gpu_aligned(p->output[k].bytes);
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
        memcpy(&control, f->record, sizeof control);
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
    if (code == PL_OK && !f->collective && !replay->continues)
        replay->seconds = gpu->backend->event_seconds(gpu, f->began,
                                                      f->end == f ? f->computed
                                                                  : f->end->began);
    if (code == PL_OK && f->is_timed)
        replay->forward = gpu->backend->event_seconds(gpu, f->began, f->backward);
    if (code == PL_OK && !f->collective && !replay->continues && !control.status)
        share_note(gpu, f);
    if (code == PL_OK && !replay->collective && replay->measured)
        gpu_timings_report(gpu, &f->timings, f->plan, f->began, replay);
    if (code == PL_OK && !replay->collective && !(control.fail_fast && control.skipping))
        hand_out(f, control.status ? control.operation : INT32_MAX);
    if (replay->collective)
        gpu->replays->waiting = f;
    else
        gpu_inflight_give(gpu, f, &gpu->replays->spare);
    replay->done(replay, code == PL_OK ? NULL : failure);
}

/* ---- A replay ---- */

/* Whether a replay needs nothing of a set except a slot. */
static bool needs_slot(const pl_plan_t *plan)
{
    return !plan->ins && !plan->batch;
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
    if (replay->continues && f->bytes < gpu_inflight_bytes(plan, replay, f->records))
        return pl_fail(err, PL_EINVAL,
                       "a replay that continues has more outputs than at its begin");
    r->waiting = NULL;
    *found = replay->continues ? f : NULL;
    if (replay->continues)
        return PL_OK;
    if (f)
        gpu_inflight_give(gpu, f, &gpu->replays->spare);
    int code = gpu_inflight_take(gpu, plan, replay, &r->spare, found, err);
    if (code != PL_OK)
        return code;
    const bool is_second = r->second_is_free && needs_slot(plan);
    if (is_second) {
        (*found)->slot = (r->next_set + GPU_SETS - 1) % GPU_SETS + GPU_SETS;
    } else {
        (*found)->slot = r->next_set;
        r->next_set = (r->next_set + 1) % GPU_SETS;
    }
    r->second_is_free = !is_second;
    return PL_OK;
}

/* Whether a replay is the one that the open flight announced, and can use its set. */
static bool joins_open(const pl_gpu_t *gpu, const pl_plan_t *plan,
                       const pl_replay_t *replay)
{
    const inflight_t *open = gpu->replays->open;
    return open && open->replay->next == replay && needs_slot(plan)
           && plan->generation == gpu->memory->generation;
}

/* Ends the open flight  [none] without the replay that it announced. */
static void open_end(pl_gpu_t *gpu)
{
    replays_t *r = gpu->replays;
    inflight_t *f = r->open, **last = &r->first;
    pl_error_t err = {0};
    r->open = NULL;
    if (f)
        f->end = NULL;
    if (!f || inflight_close(gpu, NULL, f, &err) == PL_OK)
        return;
    gpu_drain(gpu, NULL);
    gpu_replays_collect(gpu);                               /* those before it */
    while (*last != f)
        last = &(*last)->next;
    *last = NULL;
    r->last = last;
    inflight_end(gpu, f, &err);
}

int pl_gpu_replay(void *self, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    replays_t *r = gpu->replays;
    inflight_t *f = NULL;
    const bool joins = joins_open(gpu, plan, replay);
    if (!joins)
        open_end(gpu);
    for (int k = 0; k < PL_FIELDS; k++)
        if (plan->input[k] && !replay->input[k])
            return pl_fail(err, PL_EINVAL, "the replay has no data for batch field %d",
                           k);
    int code = gpu_plan_resolve(gpu, plan, err);
    if (code == PL_OK)
        code = inflight_find(gpu, plan, replay, &f, err);
    if (code == PL_OK) {
        f->replay = replay;
        code = inflight_run(gpu, f, joins, err);
    }
    const bool opens = code == PL_OK && replay->next && f->slot < GPU_SETS
                       && !f->collective && !replay->continues && !replay->measured;
    if (code == PL_OK && !opens)
        code = inflight_close(gpu, r->open, f, err);
    if (code == PL_OK && replay->ordered && !f->collective)
        code = report_by_fence(gpu, replay, 0, err);
    if (code != PL_OK) {        /* launches on the streams run, but nothing is reported */
        if (f) {
            gpu_drain(gpu, NULL);
            gpu_inflight_give(gpu, f, &gpu->replays->spare);
        }
        open_end(gpu);
        return code;
    }
    r->open = opens ? f : NULL;
    f->next = NULL;
    *r->last = f;
    r->last = &f->next;
    return PL_OK;
}

/* Moves a flight's record from the memory of the flight before, which ends first. */
static void record_take(inflight_t *f)
{
    char *own = gpu_inflight_record(f);
    if (f->record != own)
        memcpy(own, f->record, gpu_record_bytes(f->plan));
    f->record = own;
}

void gpu_replays_collect(pl_gpu_t *gpu)
{
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    replays_t *r = gpu->replays;
    pl_error_t err = {0};
    const inflight_t *ended = NULL;                         /* known to be over */
    while (r->first && r->first->end) {
        inflight_t *f = r->first;
        bool over = f->end == ended, passed = true;
        int code = over ? PL_OK : backend->event_passed(gpu, f->end->over, &over, &err);
        while (code == PL_OK && !over && passed && f->reported < f->readies) {
            code = backend->event_passed(gpu, f->ready[f->reported], &passed, &err);
            if (code == PL_OK && passed && !gpu_inflight_control(f, f->reported)->status)
                f->replay->ready(f->replay, f->buckets[f->reported], NULL);
            f->reported += passed;
        }
        if (code == PL_OK && !over)
            return;
        r->first = f->next;
        if (!r->first)
            r->last = &r->first;
        ended = code == PL_OK && f->end != f ? f->end : NULL;
        if (ended)
            record_take(f->end);
        inflight_end(gpu, f, code == PL_OK ? NULL : &err);
    }
}
