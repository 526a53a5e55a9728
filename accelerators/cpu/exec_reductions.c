/* exec_reductions.c - sums over any axes, the largest along one, and guards
 *
 * A sum is divided along a dim of its results.  If it has only one result, it is
 * divided into one partial sum for each thread, always in the same way, so that the
 * result has the same bits. */
#include <math.h>
#include <string.h>

#include "accelerators/cpu/parallel.h"
#include "accelerators/cpu/exec_op.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/compensated_sum.h"

/* ---- sum ---- */

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
