/* exec_program.c - element-wise operations as programs; sums and other reductions
 *
 * A unit of element-wise operations is one program.  A value that stays inside its unit
 * has a register, or is written directly to its target if an assign follows.  Inputs with
 * as many elements as the result are read in place, others are repeated into a
 * register. */
#include <math.h>
#include <string.h>

#include "accelerators/plan/fuse.h"
#include "accelerators/cpu/parallel.h"
#include "accelerators/cpu/exec_op.h"
#include "accelerators/plan/view.h"
#include "base/alloc.h"
#include "base/compensated_sum.h"
#include "base/error.h"

#define FETCH_AHEAD_FROM 1000000                            /* elements of all operands */

typedef struct unit_program {
    pl_program_t program;
    int dropouts, totals;
    int32_t total[PL_PROGRAM_TOTALS];                       /* their values */
    double scale[PL_PROGRAM_TOTALS];                        /* of a norm  [0: a sum] */
    double p[PL_PROGRAM_DROPOUTS];
    uint64_t stream[PL_PROGRAM_DROPOUTS];
} unit_program_t;

typedef struct composer {
    const pl_graph_t *g;
    const pl_fusion_t *fusion;
    const pl_allocation_t *allocation;
    int from, to;                                           /* operations of the unit */
    unit_program_t *own;
    pl_program_t *p;
    int made_operand[PL_PROGRAM_LINES];            /* [made] operands of results so far */
    int32_t made_value[PL_PROGRAM_LINES];          /* [made] values of the same results */
    int made;
    bool busy[PL_PROGRAM_OPERANDS];                         /* registers */
    int register_operand[PL_PROGRAM_OPERANDS];
} composer_t;

/* ---- Operands ---- */

static int add_operand(composer_t *c, const pl_operand_t *operand)
{
    c->p->operand[c->p->operand_count] = *operand;
    return c->p->operand_count++;
}

static int linear_operand(composer_t *c, int32_t value)
{
    for (int k = 0; k < c->p->operand_count; k++)
        if (c->p->operand[k].kind == PL_OPERAND_LINEAR && c->p->operand[k].slot == value)
            return k;
    return add_operand(c, &(pl_operand_t){.kind = PL_OPERAND_LINEAR, .slot = value});
}

static int new_register(composer_t *c)
{
    c->busy[c->p->registers] = true;
    return c->p->registers++;
}

/* A register for a result: one that is free again, or a new one. */
static int register_operand(composer_t *c)
{
    int r = 0;
    while (r < c->p->registers && c->busy[r])
        r++;
    if (r == c->p->registers)
        new_register(c);
    c->busy[r] = true;
    if (c->register_operand[r] < 0)
        c->register_operand[r] =
            add_operand(c, &(pl_operand_t){.kind = PL_OPERAND_REGISTER, .reg = r});
    return c->register_operand[r];
}

static bool made_here(const composer_t *c, int32_t root)
{
    const pl_value_t *v = &c->g->value[root];
    return v->source == PL_FROM_OP && v->op >= c->from && v->op < c->to;
}

/* The operand of a value of this unit, or -1 if it is not computed yet. */
static int made_operand(const composer_t *c, int32_t root)
{
    for (int k = 0; k < c->made; k++)
        if (c->made_value[k] == root)
            return c->made_operand[k];
    return -1;
}

static int input_operand(composer_t *c, const pl_op_t *op, int k)
{
    const int32_t value = op->input[k], root = c->fusion->root[value];
    if (made_here(c, root))
        return made_operand(c, root);
    if (pl_elements(c->g->value[value].shape) == c->p->count)
        return linear_operand(c, root);
    const int32_t result = op->code == PL_OP_assign ? op->input[0] : op->output[0];
    /* The value repeats over the result; axes with continuous strides are merged. */
    const pl_shape_t whole = c->g->value[result].shape;
    const pl_shape_t shape = c->g->value[value].shape;
    pl_operand_t o = {.kind = PL_OPERAND_REPEATED,
                      .slot = c->fusion->root[value],
                      .rank = 1,
                      .size = {1},
                      .period = 1};
    const pl_view_t repeated = pl_view_broadcast(shape, whole);
    for (int i = 0; i < whole.rank; i++) {
        const int64_t stride = repeated.stride[i], size = whole.dim[i];
        int64_t *last_size = &o.size[o.rank - 1], *last_stride = &o.stride[o.rank - 1];
        if (size == 1)
            continue;
        if (*last_size == 1) {
            *last_size = size;
            *last_stride = stride;
        } else if (*last_stride == stride * size) {
            *last_size *= size;
            *last_stride = stride;
        } else {
            o.size[o.rank] = size;
            o.stride[o.rank++] = stride;
        }
    }
    for (int d = o.stride[0] == 0 ? 1 : 0; d < o.rank; d++)
        o.period *= o.size[d];
    for (int i = 0; i < c->p->operand_count; i++) {
        const pl_operand_t *other = &c->p->operand[i];
        if (other->kind == o.kind && other->slot == o.slot && other->rank == o.rank
            && memcmp(other->size, o.size, sizeof o.size) == 0
            && memcmp(other->stride, o.stride, sizeof o.stride) == 0)
            return i;
    }
    o.reg = new_register(c);        /* not shared: it may be loaded once for all blocks */
    return add_operand(c, &o);
}

/* ---- Results ---- */

/* The last operation of the unit that reads a value, directly or through reshapes. */
static int last_reader(const composer_t *c, int32_t root)
{
    int last = -1;
    for (int i = c->from; i < c->to; i++)
        for (int k = c->g->op[i].code == PL_OP_assign ? 1 : 0;
             k < c->g->op[i].input_count; k++)
            if (c->g->op[i].code != PL_OP_reshape
                && c->fusion->root[c->g->op[i].input[k]] == root)
                last = i;
    return last;
}

/* True if no operation from `from` to `to` reads or writes elements of `target`, a value
 * in a region: neither directly nor as values that were written directly to it. */
static bool is_untouched(const composer_t *c, int32_t target, int from, int to)
{
    for (int i = from; i <= to; i++)
        for (int k = 0; k < c->g->op[i].input_count; k++) {
            const int32_t root = c->fusion->root[c->g->op[i].input[k]];
            const int made = made_operand(c, root);
            const pl_operand_t *o = made < 0 ? NULL : &c->p->operand[made];
            const int32_t at = o && o->kind == PL_OPERAND_LINEAR ? o->slot : root;
            if (pl_values_overlap(&c->g->value[at], &c->g->value[target]))
                return false;
        }
    return true;
}

/* True if no operation overwrites the target of `assign` between `maker`, which writes
 * the value to it, and the last reader of the value: neither an assign nor an operation
 * whose output the memory plan has put there. */
static bool is_kept(const composer_t *c, int maker, int assign, int32_t value)
{
    const pl_value_t *target = &c->g->value[c->g->op[assign].input[0]];
    for (int i = maker + 1; i <= last_reader(c, value); i++) {
        const pl_op_t *op = &c->g->op[i];
        const pl_allocation_t *to = op->output_count ? &c->allocation[op->output[0]]
                                                     : NULL;
        if (to && to->kind == PL_ALLOCATION_TARGET
            && pl_values_overlap(&(pl_value_t){.source = PL_FROM_REGION,
                                               .shape = c->g->value[op->output[0]].shape,
                                               .index = (int)to->region,
                                               .offset = to->offset},
                                 target))
            return false;
        if (op->code == PL_OP_assign && i > assign
            && pl_values_overlap(&c->g->value[op->input[0]], target))
            return false;
    }
    return true;
}

/* The target of an assign to which a value inside the unit may be written directly, or
 * -1. */
static int32_t direct_target(const composer_t *c, int32_t value, int maker)
{
    for (int i = maker + 1; i < c->to; i++) {
        const pl_op_t *op = &c->g->op[i];
        if (op->code == PL_OP_assign && !op->attr.accumulate
            && c->fusion->root[op->input[1]] == value
            && is_untouched(c, op->input[0], maker + 1, i - 1)
            && is_kept(c, maker, i, value))
            return op->input[0];
    }
    return -1;
}

/* Frees the registers of values that operation i reads for the last time. */
static void free_registers(composer_t *c, int i)
{
    const pl_op_t *op = &c->g->op[i];
    for (int k = op->code == PL_OP_assign ? 1 : 0; k < op->input_count; k++) {
        int32_t root = c->fusion->root[op->input[k]];
        if (!made_here(c, root) || last_reader(c, root) != i)
            continue;
        const pl_operand_t *o = &c->p->operand[made_operand(c, root)];
        if (o->kind == PL_OPERAND_REGISTER)
            c->busy[o->reg] = false;
    }
}

/* ---- Lines ---- */

static void add_line(composer_t *c, pl_formula_code_t code, int to, const int operand[3],
                     float f, float h)
{
    c->p->line[c->p->line_count++] = (pl_line_t){.code = (uint8_t)code,
                                                 .to = (uint8_t)to,
                                                 .x = (uint8_t)operand[0],
                                                 .y = (uint8_t)operand[1],
                                                 .z = (uint8_t)operand[2],
                                                 .f = f,
                                                 .h = h};
}

static void compose_op(composer_t *c, int i)
{
    const pl_op_t *op = &c->g->op[i];
    unit_program_t *own = c->own;
    if (op->code == PL_OP_assign) {
        const int target = linear_operand(c, op->input[0]),
                  made = input_operand(c, op, 1);
        if (op->attr.accumulate)
            add_line(c, PL_FORMULA_add, target, (int[]){target, made, made}, 0, 0);
        else if (target != made)
            add_line(c, PL_FORMULA_copy, target, (int[]){made, made, made}, 0, 0);
        free_registers(c, i);
        return;
    }
    if (pl_is_total(c->g, op)) {
        const int summed = input_operand(c, op, 0);
        const bool is_norm = op->code == PL_OP_norm;
        add_line(c, is_norm ? PL_FORMULA_squares : PL_FORMULA_total, summed,
                 (int[]){summed, summed, summed}, (float)own->totals, 0);
        own->scale[own->totals] = is_norm ? op->attr.a : 0;
        own->total[own->totals++] = op->output[0];
        free_registers(c, i);
        return;
    }
    int operand[3];
    for (int k = 0; k < 3; k++)
        operand[k] = k < op->input_count ? input_operand(c, op, k) : operand[0];
    const int32_t value = op->output[0];
    float f = (float)op->attr.a;
    if (op->code == PL_OP_dropout) {
        own->p[own->dropouts] = op->attr.a;
        own->stream[own->dropouts] = op->attr.stream;
        f = (float)own->dropouts++;
    }
    free_registers(c, i);
    const int32_t target = c->fusion->inside[value] ? direct_target(c, value, i) : value;
    const int to = target >= 0 ? linear_operand(c, target) : register_operand(c);
    c->made_value[c->made] = value;
    c->made_operand[c->made++] = to;
    add_line(c, pl_formula_of(op), to, operand, f, (float)op->attr.b);
}

/* ---- The kernel call ---- */

typedef struct program_call {
    const pl_exec_op_t *exec_op;
    const pl_exec_context_t *frame;
    const pl_dropout_t *dropout;
} program_call_t;

static int64_t block_count(const pl_program_t *p)
{
    return (p->count + p->block - 1) / p->block;
}

static void run_piece(void *user, int64_t from, int64_t to, int part)
{
    const program_call_t *call = user;
    const unit_program_t *own = call->exec_op->own;
    const int64_t before = (own->totals * block_count(&own->program) * 2 + 15) / 16 * 16;
    pl_program_job_t job = {.program = &own->program,
                            .at = call->frame->at,
                            .dropout = call->dropout,
                            .scratch = (float *)call->frame->scratch + before
                                       + (int64_t)part * own->program.registers
                                             * PL_BLOCK};
    for (int k = 0; k < own->totals; k++)
        job.partial[k] = (double *)call->frame->scratch + k * block_count(&own->program);
    call->frame->kernels->program(&job, from, to);
}

static int run_program(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const unit_program_t *own = s->own;
    pl_dropout_t dropout[PL_PROGRAM_DROPOUTS];
    for (int k = 0; k < own->dropouts; k++)
        dropout[k] = pl_dropout_init(f->replay->seed, f->replay->step,
                                     f->replay->micro_batch, own->stream[k], own->p[k]);
    program_call_t call = {s, f, dropout};
    const int threads = own->program.count < PL_PARALLEL_MIN ? 1 : f->threads;
    pl_parallel_for(f->pool, threads, own->program.count, own->program.block, run_piece,
                    &call);
    for (int k = 0; k < own->totals; k++) {
        const double *partial = (double *)f->scratch + k * block_count(&own->program),
                     scale = own->scale[k];
        float *to = (float *)f->at[own->total[k]];
        double sum = 0.0;
        for (int64_t i = 0; to && i < block_count(&own->program); i++)
            sum += partial[i];                            /* in the order of the blocks */
        if (to)
            *to = (float)(scale != 0 ? scale * sqrt(sum) : sum);
    }
    return PL_OK;
}

int pl_prepare_program(pl_exec_op_t *s, const pl_builder_t *b, const pl_fusion_t *fusion,
                       int from, int to, pl_error_t *err)
{
    composer_t c = {.g = &b->lowered->graph,
                    .fusion = fusion,
                    .allocation = b->allocation,
                    .from = from,
                    .to = to};
    s->own = c.own = pl_alloc(sizeof *c.own);
    if (!c.own)
        return pl_no_memory(err);
    c.p = &c.own->program;
    memset(c.register_operand, -1, sizeof c.register_operand);
    for (int i = from; i < to; i++) {
        if (c.g->op[i].code == PL_OP_reshape || b->done[i])
            continue;
        c.p->count = pl_op_elements(c.g, &c.g->op[i]);
        compose_op(&c, i);
    }
    /* Blocks are short enough for all operands to stay in the first-level cache, and have
     * whole rows if a row is repeated, so that it is loaded once. */
    int block = c.p->operand_count > 8 ? PL_BLOCK / 2 : PL_BLOCK;
    for (int k = 0; k < c.p->operand_count; k++) {
        const pl_operand_t *o = &c.p->operand[k];
        if (o->kind == PL_OPERAND_REPEATED && o->period > 1 && o->period <= block)
            block = block / (int)o->period * (int)o->period;
    }
    c.p->fetch_ahead = c.p->count * c.p->operand_count >= FETCH_AHEAD_FROM;
    /* A program of one line prefetches the next block all at once, and a processor loads
     * only so much at a time, so that block is short.  Totals, whose blocks come in
     * falling order, gain nothing by it. */
    if (c.p->fetch_ahead && c.p->line_count == 1 && c.own->totals == 0
        && block == PL_BLOCK)
        block = PL_BLOCK / 4;
    c.p->block = block;
    s->scratch = ((size_t)c.own->totals * (size_t)block_count(c.p) * 2 + 16
                  + (size_t)b->threads * (size_t)c.p->registers * PL_BLOCK)
                 * sizeof(float);
    s->run = run_program;
    return PL_OK;
}

/* ---- sums ----
 *
 * A sum is divided along a dim of its results.  If it has only one result, it is
 * divided into one partial sum for each thread, always in the same way, so that the
 * result has the same bits. */

typedef struct sum_call {
    pl_sum_job_t job;
    float *partial;                         /* [parts] of a sum with one result  [NULL] */
    const pl_kernels_t *kernels;
} sum_call_t;

static void sum_piece(void *user, int64_t from, int64_t to, int part)
{
    const sum_call_t *call = user;
    pl_sum_job_t job = call->job;
    if (call->partial) {
        job.y = call->partial + part;
        *job.y = 0.0f;
    }
    call->kernels->sum(&job, from, to);
}

/* size[0]: results, size[1]: elements. */
static int run_sum(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    sum_call_t call = {.job = *(const pl_sum_job_t *)s->own, .kernels = f->kernels};
    pl_sum_job_t *job = &call.job;
    job->x = pl_in(s, f, 0);
    job->y = pl_out(s, f, 0);
    const int64_t length = job->dim[job->split],
                  grain = job->split == job->rank - 1 ? 64 : 1;
    const int threads = s->size[1] < PL_PARALLEL_MIN ? 1 : f->threads;
    memset(job->y, 0, (size_t)s->size[0] * sizeof(float));
    call.partial = job->summed[job->split] && threads > 1 ? (float *)f->scratch : NULL;
    pl_parallel_for(f->pool, threads, length, grain, sum_piece, &call);
    const int64_t piece = pl_parallel_piece(threads, length, grain);
    for (int64_t part = 0; part * piece < length && call.partial; part++)
        *job->y += call.partial[part];
    return PL_OK;
}

/* Merges neighbouring axes that are all summed or all kept.  The dim to divide is the
 * last if it has many results, else the first with results. */
static int prepare_sum(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    const pl_shape_t x = pl_exec_op_in(b, s, 0);
    pl_sum_job_t *job = s->own = pl_alloc(sizeof *job);
    if (!job)
        return pl_no_memory(err);
    for (int i = 0; i < x.rank; i++) {
        const bool summed = s->op.attr.axes >> i & 1;
        if (job->rank && (job->summed[job->rank - 1] == summed || x.dim[i] == 1)) {
            job->dim[job->rank - 1] *= x.dim[i];
            continue;
        }
        job->dim[job->rank] = x.dim[i];
        job->summed[job->rank++] = summed;
    }
    if (!job->rank) {
        job->dim[0] = 1;
        job->summed[0] = true;
        job->rank = 1;
    }
    const int last = job->rank - 1;
    if (job->summed[last] || job->dim[last] < 64 * b->threads)
        while (job->split < last && job->summed[job->split])
            job->split++;
    else
        job->split = last;
    s->size[0] = pl_elements(pl_exec_op_out(b, s, 0));
    s->size[1] = pl_elements(pl_exec_op_in(b, s, 0));
    s->scratch = (size_t)b->threads * sizeof(float);
    s->run = run_sum;
    return PL_OK;
}

/* ---- max, argmax and the gradient of max: size is outer, n, inner ---- */

static int run_max(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_max_grad;
    const int64_t results = s->size[0] * s->size[2];
    pl_max_job_t job = {.n = s->size[1],
                        .inner = s->size[2],
                        .x = pl_in(s, f, grad),
                        .dy = grad ? pl_in(s, f, 0) : NULL};
    if (s->op.code == PL_OP_argmax)
        job.index = pl_out(s, f, 0);
    else
        job.to = pl_out(s, f, 0);
    pl_parallel_run(f->pool, results * s->size[1] < PL_PARALLEL_MIN ? 1 : f->threads,
                    results, 16, grad ? f->kernels->max_grad : f->kernels->max, &job);
    return PL_OK;
}

static int prepare_max(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const pl_shape_t x = pl_exec_op_in(b, s, s->op.code == PL_OP_max_grad);
    const int axis = s->op.attr.axis;
    s->size[0] = s->size[2] = 1;
    for (int i = 0; i < axis; i++)
        s->size[0] *= x.dim[i];
    s->size[1] = x.dim[axis];
    for (int i = axis + 1; i < x.rank; i++)
        s->size[2] *= x.dim[i];
    s->run = run_max;
    return PL_OK;
}

/* ---- power_sums and block_norms: one thread, because they take little time ---- */

static int run_power_sums(const pl_exec_op_t *s, const pl_exec_context_t *f,
                          pl_error_t *err)
{
    (void)err;
    const float *x = pl_in(s, f, 0);
    float *to = pl_out(s, f, 0);
    pl_compensated_sum_t sum = {0}, squares = {0};
    for (int64_t i = 0; i < s->size[0]; i++) {
        const double element = (double)x[i];
        pl_compensated_add(&sum, element);
        pl_compensated_add(&squares, element * element);    /* 48 bits: float64 holds
                                                               them */
    }
    pl_compensated_split(sum, to);
    pl_compensated_split(squares, to + PL_COMPENSATED_PARTS);
    return PL_OK;
}

static int run_block_norms(const pl_exec_op_t *s, const pl_exec_context_t *f,
                           pl_error_t *err)
{
    (void)err;
    const float *x = pl_in(s, f, 0);
    float *to = pl_out(s, f, 0);
    const int64_t lacks = s->op.attr.from, block = s->op.attr.to, n = s->size[0];
    for (int64_t k = 0; k * block < lacks + n; k++) {
        double sum = 0;
        const int64_t from = k * block - lacks, end = from + block;
        for (int64_t i = from > 0 ? from : 0; i < end && i < n; i++)
            sum += (double)x[i] * (double)x[i];
        to[k] = (float)(s->op.attr.a * sqrt(sum));
    }
    return PL_OK;
}

/* ---- guard ---- */

static int run_guard(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    const float *watched = pl_in(s, f, 0), x = *watched;
    if (s->op.input_count == 2 && *(const float *)pl_in(s, f, 1) > (float)s->op.attr.a)
        return PL_OK;
    for (int64_t i = 0; i < s->size[0]; i++)
        if (!isfinite(watched[i]))
            return pl_guard_fail(&s->op, f->replay->step, err);
    if (!isfinite(x))
        return PL_EXEC_NON_FINITE;
    return s->op.attr.empty && x == 0 ? PL_EXEC_SKIPPED : PL_OK;
}

/* ---- collective ---- */

static int run_collective(const pl_exec_op_t *s, const pl_exec_context_t *f,
                          pl_error_t *err)
{
    (void)s, (void)f, (void)err;
    return PL_EXEC_YIELD;
}

/* size is the elements of the first input that the call reads. */
static int prepare_alone(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const pl_opcode_t code = s->op.code;
    s->size[0] = code != PL_OP_guard || s->op.attr.watches
                     ? pl_elements(pl_exec_op_in(b, s, 0))
                     : 0;
    s->run = code == PL_OP_power_sums    ? run_power_sums
             : code == PL_OP_block_norms ? run_block_norms
             : code == PL_OP_guard       ? run_guard
                                         : run_collective;
    return PL_OK;
}

const pl_prepare_t pl_prepare_reductions[PL_OPCODES] = {
    [PL_OP_argmax] = prepare_max,       [PL_OP_block_norms] = prepare_alone,
    [PL_OP_collective] = prepare_alone, [PL_OP_guard] = prepare_alone,
    [PL_OP_max] = prepare_max,          [PL_OP_max_grad] = prepare_max,
    [PL_OP_power_sums] = prepare_alone, [PL_OP_sum] = prepare_sum,
};
