/* exec_moves.c - copies by strides: permute, concat, pad, broadcast of whole numbers;
 * also range and interpolate */
#include <string.h>

#include "accelerators/cpu/parallel.h"
#include "accelerators/cpu/exec_op.h"
#include "accelerators/plan/view.h"
#include "base/alloc.h"
#include "base/error.h"
#include "tensor/operators.h"

/* Copies into one output, which has `fill` elsewhere; run_moves() sets job.x and
 * job.y. */
typedef struct moves {
    int count;
    int64_t filled;                        /* elements that get `fill` before [0: none] */
    char fill[8];                          /* one element */
    struct {
        pl_move_job_t job;
        int64_t from, to;                  /* elements into input k and into the output */
    } move[];
} moves_t;

/* Drops axes of size 1 and merges axes that are contiguous on both sides; at least two
 * axes remain. */
static void add_move(moves_t *m, const pl_view_t *from, const pl_view_t *to, int size)
{
    pl_move_job_t *job = &m->move[m->count].job;
    *job = (pl_move_job_t){.size = size};
    for (int i = 0; i < from->shape.rank; i++) {
        const int last = job->rank - 1;
        const int64_t n = from->shape.dim[i];
        if (n == 1)
            continue;
        if (last >= 0 && job->from[last] == from->stride[i] * n
            && job->to[last] == to->stride[i] * n) {
            job->dim[last] *= n;
            job->from[last] = from->stride[i];
            job->to[last] = to->stride[i];
            continue;
        }
        job->dim[job->rank] = n;
        job->from[job->rank] = from->stride[i];
        job->to[job->rank++] = to->stride[i];
    }
    while (job->rank < 2) {
        memmove(job->dim + 1, job->dim, (PL_DIMS - 1) * sizeof *job->dim);
        memmove(job->from + 1, job->from, (PL_DIMS - 1) * sizeof *job->from);
        memmove(job->to + 1, job->to, (PL_DIMS - 1) * sizeof *job->to);
        job->dim[0] = 1;
        job->from[0] = job->to[0] = job->rank ? 0 : 1;
        job->rank++;
    }
    m->move[m->count].from = from->offset;
    m->move[m->count++].to = to->offset;
}

typedef struct fill {
    char *to;
    const char *element;
    int size;
} fill_t;

static void fill_piece(const void *of, int64_t from, int64_t to)
{
    const fill_t *fill = of;
    for (int64_t i = from; i < to; i++)
        memcpy(fill->to + i * fill->size, fill->element, (size_t)fill->size);
}

static int run_moves(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const moves_t *m = s->own;
    const fill_t fill = {pl_out(s, f, 0), m->fill, m->move[0].job.size};
    if (m->filled)
        pl_parallel_run(f->pool, m->filled < PL_PARALLEL_MIN ? 1 : f->threads, m->filled,
                        1, fill_piece, &fill);
    for (int k = 0; k < m->count; k++) {
        pl_move_job_t job = m->move[k].job;
        job.x = (const char *)pl_in(s, f, k) + m->move[k].from * job.size;
        job.y = (char *)pl_out(s, f, 0) + m->move[k].to * job.size;
        int64_t elements = 1;
        for (int i = 0; i < job.rank; i++)
            elements *= job.dim[i];
        pl_parallel_run(f->pool, elements < PL_PARALLEL_MIN ? 1 : f->threads, job.dim[0],
                        1, f->kernels->move, &job);
    }
    return PL_OK;
}

static moves_t *moves_new(pl_exec_op_t *s, int count, pl_error_t *err)
{
    moves_t *m = s->own = pl_alloc(sizeof *m + (size_t)count * sizeof *m->move);
    s->run = run_moves;
    if (!m)
        pl_no_memory(err);
    return m;
}

static int element_size(const pl_builder_t *b, const pl_exec_op_t *s)
{
    return (int)pl_dtype_size(b->lowered->graph.value[s->op.output[0]].dtype);
}

/* A permute, or a broadcast of whole numbers; a broadcast of float32 is element-wise. */
static int prepare_copy(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    moves_t *m = moves_new(s, 1, err);
    if (!m)
        return PL_ENOMEM;
    const pl_shape_t shape = pl_exec_op_out(b, s, 0);
    const pl_view_t to = pl_view_whole(s->op.output[0], shape),
                    from = s->op.code == PL_OP_broadcast
                               ? pl_view_broadcast(pl_exec_op_in(b, s, 0), shape)
                               : b->lowered->view[s->op.attr.from];
    add_move(m, &from, &to, element_size(b, s));
    return PL_OK;
}

static int prepare_concat(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    moves_t *m = moves_new(s, s->op.input_count, err);
    if (!m)
        return PL_ENOMEM;
    const pl_view_t whole = pl_view_whole(s->op.output[0], pl_exec_op_out(b, s, 0));
    int64_t at = 0;
    for (int k = 0; k < s->op.input_count; k++) {
        const pl_view_t *from = &b->lowered->view[s->op.attr.from + k];
        const int64_t length = from->shape.dim[s->op.attr.axis];
        pl_view_t to = pl_view_slice(&whole, s->op.attr.axis, at, length, 1);
        add_move(m, from, &to, element_size(b, s));
        at += length;
    }
    return PL_OK;
}

/* One element of a type; whole numbers are rounded towards zero. */
static void set_element(char element[8], pl_dtype_t dtype, double value)
{
    const double whole = value >= -0x1p63 && value < 0x1p63 ? value : 0;
    if (dtype == PL_I32)
        memcpy(element, &(int32_t){(int32_t)(int64_t)whole}, 4);
    else if (dtype == PL_I64)
        memcpy(element, &(int64_t){(int64_t)whole}, 8);
    else if (dtype == PL_U8)
        memcpy(element, &(uint8_t){(uint8_t)(int64_t)whole}, 1);
    else
        memcpy(element, &(float){(float)value}, 4);
}

static int prepare_pad(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    moves_t *m = moves_new(s, 1, err);
    if (!m)
        return PL_ENOMEM;
    const pl_view_t from = pl_view_whole(s->op.input[0], pl_exec_op_in(b, s, 0)),
                    whole = pl_view_whole(s->op.output[0], pl_exec_op_out(b, s, 0));
    pl_view_t to = whole;
    for (int i = 0; i < from.shape.rank; i++)
        to = pl_view_slice(&to, i, s->op.attr.at[i], from.shape.dim[i],
                           s->op.attr.step[i]);
    add_move(m, &from, &to, element_size(b, s));
    m->filled = pl_elements(whole.shape);
    set_element(m->fill, b->lowered->graph.value[s->op.output[0]].dtype, s->op.attr.a);
    return PL_OK;
}

static int run_range(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    int32_t *to = pl_out(s, f, 0);
    float *numbers = pl_out(s, f, 0);
    for (int64_t i = 0; i < s->size[0] && s->dtype == PL_I32; i++)
        to[i] = (int32_t)i;
    for (int64_t i = 0; i < s->size[0] && s->dtype != PL_I32; i++)
        numbers[i] = (float)(s->op.attr.a + s->op.attr.b * (double)i);
    return PL_OK;
}

static int prepare_range(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    s->size[0] = pl_elements(pl_exec_op_out(b, s, 0));
    s->dtype = b->lowered->graph.value[s->op.output[0]].dtype;
    s->run = run_range;
    return PL_OK;
}

static int run_convert(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const pl_convert_job_t job = {.from = (pl_dtype_t)s->size[1],
                                  .to = s->dtype,
                                  .truth = s->op.attr.keep,
                                  .x = pl_in(s, f, 0),
                                  .y = pl_out(s, f, 0)};
    pl_parallel_run(f->pool, s->size[0] < PL_PARALLEL_MIN ? 1 : f->threads, s->size[0],
                    16, f->kernels->convert, &job);
    return PL_OK;
}

static int run_order(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const pl_order_job_t job = {.x = pl_in(s, f, 0),
                                .y = pl_in(s, f, 1),
                                .x_step = s->size[1],
                                .y_step = s->size[2],
                                .to = pl_out(s, f, 0)};
    pl_parallel_run(f->pool, s->size[0] < PL_PARALLEL_MIN ? 1 : f->threads, s->size[0],
                    16, f->kernels->order, &job);
    return PL_OK;
}

/* size is the elements; of convert, the type that it reads, and of order, the steps. */
static int prepare_types(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const pl_graph_t *g = &b->lowered->graph;
    s->size[0] = pl_elements(pl_exec_op_out(b, s, 0));
    if (s->op.code == PL_OP_convert) {
        s->size[1] = (int64_t)g->value[s->op.input[0]].dtype;
        s->dtype = g->value[s->op.output[0]].dtype;
        s->run = run_convert;
        return PL_OK;
    }
    for (int k = 0; k < 2; k++)
        s->size[1 + k] = pl_elements(pl_exec_op_in(b, s, k)) > 1;
    s->run = run_order;
    return PL_OK;
}

/* ---- interpolate ---- */

static int run_interpolate(const pl_exec_op_t *s, const pl_exec_context_t *f,
                           pl_error_t *err)
{
    (void)err;
    pl_interpolate_job_t job = *(const pl_interpolate_job_t *)s->own;
    job.x = pl_in(s, f, 0);
    job.y = pl_out(s, f, 0);
    const bool is_small = s->size[0] * job.inner < PL_PARALLEL_MIN;
    pl_parallel_run(f->pool, is_small ? 1 : f->threads, s->size[0], 1,
                    f->kernels->interpolate, &job);
    return PL_OK;
}

/* The terms of each element of the result, in order.  In the gradient, source and result
 * are exchanged: a counting sort keeps the order of dy. */
static int prepare_interpolate(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    const pl_shape_t x = pl_exec_op_in(b, s, 0), y = pl_exec_op_out(b, s, 0);
    const int axis = s->op.attr.axis;
    const bool back = s->op.code == PL_OP_interpolate_grad;
    const int64_t size = x.dim[axis], count = y.dim[axis], fine = back ? size : count;
    pl_interpolate_job_t *job = s->own =
        pl_alloc(sizeof *job + (size_t)fine * 2 * sizeof *job->term
                 + (size_t)(count + 2) * sizeof *job->first);
    if (!job)
        return pl_no_memory(err);
    *job = (pl_interpolate_job_t){.size = size, .count = count, .inner = 1};
    job->term = (pl_interpolate_term_t *)(job + 1);
    job->first = (int32_t *)(job->term + fine * 2);
    for (int i = axis + 1; i < x.rank; i++)
        job->inner *= x.dim[i];
    for (int pass = 0; pass < 2; pass++) {
        /* first[k + 2] counts the terms of k, then first[k + 1] is where its next is. */
        for (int64_t j = 0; j < fine; j++) {
            const pl_interpolate_source_t of =
                pl_interpolate_source(s->op.attr.linear, back ? count : size,
                                      back ? size : count, j);
            for (int k = 0; k < 2; k++) {
                const int64_t source = k ? of.high : of.low;
                const double weight = k ? of.share : 1 - of.share;
                int32_t *at = &job->first[(back ? source : j) + (pass ? 1 : 2)];
                if (pass && weight != 0)
                    job->term[*at] = (pl_interpolate_term_t){(int32_t)(back ? j : source),
                                                             (float)weight};
                *at += weight != 0;
            }
        }
        for (int64_t k = 0; k < count && !pass; k++)
            job->first[k + 2] += job->first[k + 1];
    }
    s->size[0] = pl_rows(x, x.rank - axis) * count;
    s->run = run_interpolate;
    return PL_OK;
}

const pl_prepare_t pl_prepare_moves[PL_OPCODES] = {
    [PL_OP_broadcast] = prepare_copy,
    [PL_OP_concat] = prepare_concat,
    [PL_OP_convert] = prepare_types,
    [PL_OP_order] = prepare_types,
    [PL_OP_pad] = prepare_pad,
    [PL_OP_permute] = prepare_copy,
    [PL_OP_range] = prepare_range,
    [PL_OP_interpolate] = prepare_interpolate,
    [PL_OP_interpolate_grad] = prepare_interpolate,
};
