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

/* A replay on its way, with host memory that copies at full speed: its step block, its
 * record, the batch, and the outputs. */
typedef struct flight {
    struct flight *next;
    pl_plan_t *plan;
    pl_replay_t *replay;
    char *host;
    size_t bytes;
    int set;
    int piece;                                     /* the next */
    int reported;                                  /* buckets */
    int exchange;                                  /* that it waits at, at its end  [0] */
    bool is_timed;                                 /* backward has begun */
    pl_event_t *began, *backward, *computed, *over;
    pl_event_t *ready[PL_GRAD_BUCKETS_MOST];                /* [NULL: not made yet] */
    int readies;                                            /* that were recorded */
    int buckets[PL_GRAD_BUCKETS_MOST];                      /* that are ready with each */
    gpu_marks_t marks;                                      /* where it is measured */
} flight_t;

typedef struct pl_gpu_replays {
    flight_t *first, **last;                                /* under way, in order */
    flight_t *spare;
    flight_t *waiting;                                      /* at an exchange  [NULL] */
    int next_set;
} replays_t;

static flight_t *flight_free(pl_gpu_t *gpu, flight_t *f)
{
    const pl_machine_ops_t *machine = gpu->machine;
    flight_t *next = f->next;
    pl_event_t *const events[] = {f->began, f->backward, f->computed, f->over};
    for (size_t k = 0; k < sizeof events / sizeof *events; k++)
        if (events[k])
            machine->event_free(gpu, events[k]);
    for (int k = 0; k < PL_GRAD_BUCKETS_MOST; k++)
        if (f->ready[k])
            machine->event_free(gpu, f->ready[k]);
    gpu_marks_free(gpu, &f->marks);
    if (f->host)
        machine->host_free(gpu, f->host);
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
        r->first = flight_free(gpu, r->first);
    while (r->spare)
        r->spare = flight_free(gpu, r->spare);
    if (r->waiting)
        flight_free(gpu, r->waiting);
    pl_free(r);
    gpu->replays = NULL;
}

static void flight_give(pl_gpu_t *gpu, flight_t *f)
{
    f->next = gpu->replays->spare;
    gpu->replays->spare = f;
}

void gpu_replays_forget(pl_gpu_t *gpu, const pl_plan_t *plan)
{
    replays_t *r = gpu->replays;
    if (!r || !r->waiting || r->waiting->plan != plan)
        return;
    flight_give(gpu, r->waiting);
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
        r->spare = flight_free(gpu, r->spare);
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

static char *record_of(const flight_t *f)
{
    return f->host + aligned(sizeof(gpu_step_t));
}

/* As it is when those buckets are ready. */
static gpu_control_t *control_of(const flight_t *f, int ready)
{
    return (gpu_control_t *)(record_of(f) + aligned(record_bytes(f->plan))
                             + (size_t)ready * aligned(sizeof(gpu_control_t)));
}

static char *batch_of(const flight_t *f)
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

static char *outputs_of(const flight_t *f)
{
    return batch_of(f) + batch_bytes(f->plan);
}

/* Outputs that the caller does not want take no memory. */
static size_t flight_bytes(const pl_plan_t *p, const pl_replay_t *replay)
{
    size_t bytes = aligned(sizeof(gpu_step_t)) + aligned(record_bytes(p))
                   + (size_t)p->pieces * aligned(sizeof(gpu_control_t)) + batch_bytes(p);
    for (int k = 0; k < p->outputs; k++)
        bytes += replay->output[k] ? aligned(p->output[k].bytes) : 0;
    return bytes;
}

static int events_make(pl_gpu_t *gpu, flight_t *f, pl_error_t *err)
{
    pl_event_t **const events[] = {&f->began, &f->backward, &f->computed, &f->over};
    int code = PL_OK;
    for (size_t k = 0; k < sizeof events / sizeof *events && code == PL_OK; k++)
        code = *events[k] ? PL_OK : gpu->machine->event_new(gpu, events[k], err);
    return code;
}

static int host_make(pl_gpu_t *gpu, flight_t *f, size_t bytes, pl_error_t *err)
{
    if (bytes <= f->bytes)
        return PL_OK;
    if (f->host)
        gpu->machine->host_free(gpu, f->host);
    f->host = gpu->machine->host_new(gpu, bytes, err);
    f->bytes = f->host ? bytes : 0;
    return f->host ? PL_OK : PL_ENOMEM;
}

/* A failure leaves nothing on its way. */
static int flight_take(pl_gpu_t *gpu, pl_plan_t *plan, const pl_replay_t *replay,
                       flight_t **taken, pl_error_t *err)
{
    replays_t *r = gpu->replays;
    flight_t *f = r->spare;
    if (f)
        r->spare = f->next;
    else if (!(f = pl_alloc(sizeof *f)))
        return pl_no_memory(err);
    f->plan = plan;
    f->next = NULL;
    f->piece = f->reported = f->readies = f->exchange = f->marks.count = 0;
    f->is_timed = false;
    int code = events_make(gpu, f, err);
    if (code == PL_OK)
        code = host_make(gpu, f, flight_bytes(plan, replay), err);
    if (code == PL_OK)
        *taken = f;
    else
        flight_give(gpu, f);
    return code;
}

/* ---- On their way to the device ---- */

/* [NULL: its kernels and copies are not measured] */
static gpu_marks_t *marks_of(flight_t *f)
{
    return f->replay->measured ? &f->marks : NULL;
}

static int set_fill(pl_gpu_t *gpu, flight_t *f, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
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
                         .halts = replay->halts,
                         .resumes = replay->resumes};
    memcpy(step->scalar, replay->scalar, sizeof step->scalar);
    int code = machine->event_wait(gpu, set->left, PL_STREAM_IN, err);
    if (code == PL_OK)
        code = gpu_mark(gpu, marks_of(f), PL_STREAM_IN, GPU_MARK_BEGIN, err);
    if (code == PL_OK)
        code = machine->copy_in(gpu, PL_STREAM_IN, set->step.address, step, sizeof *step,
                                err);
    for (int k = 0; k < PL_FIELDS && code == PL_OK; k++) {
        if (!p->input[k])
            continue;
        const bool is_pinned = gpu_is_pinned(gpu, replay->input[k], p->input[k]);
        if (!is_pinned)
            memcpy(batch, replay->input[k], p->input[k]);
        code = machine->copy_in(gpu, PL_STREAM_IN, set->input[k].address,
                                is_pinned ? replay->input[k] : batch, p->input[k], err);
        batch += aligned(p->input[k]);
    }
    if (code == PL_OK)
        code = gpu_mark(gpu, marks_of(f), PL_STREAM_IN, GPU_MARK_COPY, err);
    if (code == PL_OK)
        code = machine->event_record(gpu, set->filled, PL_STREAM_IN, err);
    return code == PL_OK ? machine->event_wait(gpu, set->filled, PL_STREAM_MAIN, err)
                         : code;
}

/* Of a mirrored region: where elements lie on the device, as the host has them. */
static pl_device_ptr_t passage_address(const gpu_region_t *r, const gpu_passage_t *p,
                                       size_t *width)
{
    const bool half = gpu_is_half(r->dtype);
    *width = half ? sizeof(float) : pl_dtype_size(r->dtype);
    return (half ? r->floats : r->block).address + p->from * *width;
}

static int passage_in(pl_gpu_t *gpu, const gpu_passage_t *p, pl_error_t *err)
{
    const gpu_region_t *r = &gpu->memory->region[p->region];
    size_t width;
    const pl_device_ptr_t to = passage_address(r, p, &width);
    return gpu->machine->copy_in(gpu, PL_STREAM_MAIN, to,
                                 (char *)r->mirror + p->from * width, p->count * width,
                                 err);
}

/* Its kernel, if it has one, ran with the piece. */
static int passage_out(pl_gpu_t *gpu, const gpu_passage_t *p, pl_error_t *err)
{
    const gpu_region_t *r = &gpu->memory->region[p->region];
    size_t width;
    const pl_device_ptr_t from = passage_address(r, p, &width);
    return gpu->machine->copy_out(gpu, PL_STREAM_OUT, (char *)r->mirror + p->from * width,
                                  from, p->count * width, err);
}

/* Passages to the host up to the piece's last, behind what it computes. */
static int put_passages(pl_gpu_t *gpu, flight_t *f, const gpu_piece_t *piece, int from,
                        pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    int code = PL_OK;
    if (from < piece->passages || piece->buckets)
        code = machine->event_record(gpu, f->computed, PL_STREAM_MAIN, err);
    if (code == PL_OK && (from < piece->passages || piece->buckets))
        code = machine->event_wait(gpu, f->computed, PL_STREAM_OUT, err);
    for (int k = from; k < piece->passages && code == PL_OK; k++)
        code = passage_out(gpu, &f->plan->out[k], err);
    return code;
}

static int put_ready(pl_gpu_t *gpu, flight_t *f, int buckets, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    pl_event_t **event = &f->ready[f->readies];
    int code = *event ? PL_OK : machine->event_new(gpu, event, err);
    if (code == PL_OK)
        code = machine->copy_out(gpu, PL_STREAM_OUT, control_of(f, f->readies),
                                 gpu->memory->control.address, sizeof(gpu_control_t),
                                 err);
    if (code == PL_OK)
        code = machine->event_record(gpu, *event, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = machine->notify(gpu, *event, err);
    f->buckets[f->readies++] = buckets;
    return code;
}

static int piece_put(pl_gpu_t *gpu, flight_t *f, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    pl_plan_t *p = f->plan;
    gpu_piece_t *piece = &p->piece[f->piece];
    const int passages = f->piece ? piece[-1].passages : 0;
    int code = gpu_piece_run(gpu, p, piece, f->set, marks_of(f), err);
    f->piece++;
    if (code == PL_OK && piece->host)
        code = gpu_host_put(&p->host[piece->host - 1], gpu, err);
    if (code == PL_OK && piece->backward) {
        f->is_timed = true;
        code = machine->event_record(gpu, f->backward, PL_STREAM_MAIN, err);
    }
    if (code == PL_OK)
        code = put_passages(gpu, f, piece, passages, err);
    if (code == PL_OK && piece->buckets && f->replay->ready)
        code = gpu->memory->region[PL_REGION_GRADS].is_lent
                   ? gpu_fence_ready(gpu, f->replay, piece->buckets, err)
                   : put_ready(gpu, f, piece->buckets, err);
    f->exchange = piece->exchange;
    return code;
}

static int put_outputs(pl_gpu_t *gpu, const flight_t *f, pl_error_t *err)
{
    char *to = outputs_of(f);
    int code = PL_OK;
    for (int k = 0; k < f->plan->outputs && code == PL_OK; k++) {
        const gpu_output_t *output = &f->plan->output[k];
        if (!f->replay->output[k])
            continue;
        code = gpu->machine->copy_out(gpu, PL_STREAM_MAIN, to,
                                      gpu_address(gpu, &output->spot, f->set),
                                      output->bytes, err);
        to += aligned(output->bytes);
    }
    return code;
}

/* Pieces up to an exchange or the end, and the record. */
static int flight_put(pl_gpu_t *gpu, flight_t *f, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    gpu_set_t *set = &gpu->memory->set[f->set];
    int code = PL_OK;
    do
        code = piece_put(gpu, f, err);
    while (code == PL_OK && f->piece < f->plan->pieces && !f->exchange);
    if (code == PL_OK && !f->exchange)
        code = put_outputs(gpu, f, err);
    if (code == PL_OK)
        code = machine->event_record(gpu, f->computed, PL_STREAM_MAIN, err);
    if (code == PL_OK)
        code = machine->event_wait(gpu, f->computed, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = gpu_mark(gpu, marks_of(f), PL_STREAM_OUT, GPU_MARK_BEGIN, err);
    if (code == PL_OK)
        code = machine->copy_out(gpu, PL_STREAM_OUT, record_of(f), set->record.address,
                                 record_bytes(f->plan), err);
    if (code == PL_OK)
        code = gpu_mark(gpu, marks_of(f), PL_STREAM_OUT, GPU_MARK_COPY, err);
    if (code == PL_OK)
        code = machine->event_record(gpu, set->left, PL_STREAM_OUT, err);
    if (code == PL_OK)
        code = machine->event_record(gpu, f->over, PL_STREAM_OUT, err);
    return code == PL_OK ? machine->notify(gpu, f->over, err) : code;
}

/* Parameters as halves, where the host or a plan has changed them since. */
static int refresh(pl_gpu_t *gpu, const flight_t *f, pl_error_t *err)
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

static int flight_begin(pl_gpu_t *gpu, flight_t *f, pl_error_t *err)
{
    const pl_machine_ops_t *machine = gpu->machine;
    const pl_plan_t *p = f->plan;
    const gpu_set_t *before = &gpu->memory->set[(f->set + GPU_SETS - 1) % GPU_SETS];
    int code = machine->event_record(gpu, f->began, PL_STREAM_MAIN, err);
    if (code == PL_OK)
        code = set_fill(gpu, f, err);
    if (code == PL_OK && p->ins)            /* what the one before leaves with the host */
        code = machine->event_wait(gpu, before->left, PL_STREAM_MAIN, err);
    for (int k = 0; k < p->ins && code == PL_OK; k++)
        code = passage_in(gpu, &p->in[k], err);
    if (code == PL_OK)
        code = refresh(gpu, f, err);
    return code == PL_OK ? flight_put(gpu, f, err) : code;
}

static int flight_go_on(pl_gpu_t *gpu, flight_t *f, pl_error_t *err)
{
    const gpu_passage_t *p = &f->plan->exchanged;
    int code = p->count ? passage_in(gpu, p, err) : PL_OK;
    if (code == PL_OK && p->count && p->kernel >= 0)
        code = gpu_put_kernels(gpu, f->plan, p->kernel, p->kernel + 1, f->set, err);
    return code == PL_OK ? flight_put(gpu, f, err) : code;
}

static void flight_append(pl_gpu_t *gpu, flight_t *f)
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
static int flight_for(pl_gpu_t *gpu, pl_plan_t *plan, const pl_replay_t *replay,
                      flight_t **found, pl_error_t *err)
{
    replays_t *r = gpu->replays;
    flight_t *f = r->waiting;
    if (replay->continues && (!f || f->plan != plan))
        return pl_fail(err, PL_ESTATE,
                       "the plan does not wait at an exchange: another plan was replayed "
                       "or compiled since");
    if (replay->continues && f->bytes < flight_bytes(plan, replay))
        return pl_fail(err, PL_EINVAL, "outputs are asked for by a replay's first part");
    r->waiting = NULL;
    *found = f;
    if (replay->continues)
        return PL_OK;
    if (f)
        flight_give(gpu, f);
    int code = flight_take(gpu, plan, replay, found, err);
    if (code == PL_OK) {
        (*found)->set = r->next_set;
        r->next_set = (r->next_set + 1) % GPU_SETS;
    }
    return code;
}

int gpu_replay(pl_gpu_t *gpu, pl_plan_t *plan, pl_replay_t *replay, pl_error_t *err)
{
    flight_t *f = NULL;
    int code = check_inputs(plan, replay, err);
    if (code == PL_OK)
        code = gpu_plan_resolve(gpu, plan, err);
    if (code == PL_OK)
        code = flight_for(gpu, plan, replay, &f, err);
    if (code != PL_OK)
        return code;
    f->replay = replay;
    code = replay->continues ? flight_go_on(gpu, f, err) : flight_begin(gpu, f, err);
    if (code == PL_OK && replay->ordered && !f->exchange)
        code = gpu_fence_ordered(gpu, replay, err);
    if (code != PL_OK) {        /* launches on the streams run, but nothing is reported */
        gpu_drain(gpu, NULL);
        flight_give(gpu, f);
        return code;
    }
    flight_append(gpu, f);
    return PL_OK;
}

/* ---- On their way to the host ---- */

/* What a kernel found. */
static int fail_check(const flight_t *f, const gpu_control_t *found, pl_error_t *err)
{
    const gpu_check_t *check = &f->plan->check[found->operation];
    if (found->guarded == GPU_NOT_FINITE)
        return pl_guard_fail(&check->op, f->replay->step, err);
    return pl_index_fail(&check->op, found->index, check->below, err);
}

/* What comes behind a guard that stops the replay keeps no value; one that would have
 * met other ranks is over there, and has no outputs. */
static void hand_out(const flight_t *f, int32_t stopped)
{
    const pl_plan_t *p = f->plan;
    const char *sums = record_of(f) + GPU_RECORD_SUMS, *from = outputs_of(f);
    double *to = f->replay->figures;
    for (int k = 0; k < p->metrics && to; k++) {
        const size_t bytes = (size_t)p->metric[k].count * sizeof(double);
        if (p->metric[k].made < stopped)
            memcpy(to, sums, bytes);
        sums += bytes;
        to += p->metric[k].count;
    }
    for (int k = 0; k < p->outputs && !f->exchange; k++) {
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
        gpu->machine->zero(gpu, PL_STREAM_MAIN, c->address, c->bytes, NULL);
}

static void flight_end(pl_gpu_t *gpu, flight_t *f, const pl_error_t *failure)
{
    pl_replay_t *replay = f->replay;
    pl_error_t err = {0};
    gpu_control_t control = {0};
    int code = failure ? failure->code : PL_OK;
    if (!failure) {
        memcpy(&control, record_of(f), sizeof control);
        if (control.guarded >= GPU_WRONG_INDEX) {
            code = fail_check(f, &control, &err);
            counters_reset(gpu);
        }
        failure = &err;
    }
    replay->guarded = control.guarded == GPU_GUARDED;
    replay->exchange = code == PL_OK && !control.guarded ? f->exchange : 0;
    if (code == PL_OK && f->is_timed)
        replay->forward = gpu->machine->event_seconds(gpu, f->began, f->backward);
    if (code == PL_OK && !replay->exchange && replay->measured)
        gpu_marks_report(gpu, &f->marks, f->plan, f->began, replay);
    if (code == PL_OK && !replay->exchange && !(control.halts && control.halted))
        hand_out(f, control.guarded ? control.operation : INT32_MAX);
    if (replay->exchange)
        gpu->replays->waiting = f;
    else
        flight_give(gpu, f);
    replay->done(replay, code == PL_OK ? NULL : failure);
}

/* Buckets that are ready by now, unless the replay was stopped: then nothing is; *over:
 * and the replay is. */
static int flight_look(pl_gpu_t *gpu, flight_t *f, bool *over, pl_error_t *err)
{
    bool passed = true;
    int code = gpu->machine->event_passed(gpu, f->over, over, err);
    while (code == PL_OK && !*over && passed && f->reported < f->readies) {
        code = gpu->machine->event_passed(gpu, f->ready[f->reported], &passed, err);
        if (code == PL_OK && passed && !control_of(f, f->reported)->guarded)
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
        flight_t *f = r->first;
        bool over = false;
        const int code = flight_look(gpu, f, &over, &err);
        if (code == PL_OK && !over)
            return;
        r->first = f->next;
        if (!r->first)
            r->last = &r->first;
        flight_end(gpu, f, code == PL_OK ? NULL : &err);
    }
}
