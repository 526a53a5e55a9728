/* exec_moves.c - copies by strides: permute, concat, slice_grad, broadcast of whole
 * numbers, range */
#include <string.h>

#include "accelerators/cpu/parallel.h"
#include "accelerators/cpu/exec_op.h"
#include "accelerators/plan/view.h"
#include "base/alloc.h"
#include "base/error.h"

/* A few copies into one output; run_moves() sets job.x and job.y. */
typedef struct moves {
    int count;
    struct {
        pl_move_job_t job;
        int64_t from, to;                  /* elements into input k and into the output */
    } move[PL_OP_INPUTS];
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

static int run_moves(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    const moves_t *m = s->own;
    if (s->op.code == PL_OP_slice_grad)
        memset(pl_out(s, f, 0), 0, (size_t)s->size[0]);
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

static moves_t *moves_new(pl_exec_op_t *s, pl_error_t *err)
{
    moves_t *m = s->own = pl_alloc(sizeof *m);
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
    moves_t *m = moves_new(s, err);
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
    moves_t *m = moves_new(s, err);
    if (!m)
        return PL_ENOMEM;
    const pl_view_t whole = pl_view_whole(s->op.output[0], pl_exec_op_out(b, s, 0));
    int64_t at = 0;
    for (int k = 0; k < s->op.input_count; k++) {
        const pl_view_t *from = &b->lowered->view[s->op.attr.from + k];
        const int64_t length = from->shape.dim[s->op.attr.axis];
        pl_view_t to = pl_view_slice(&whole, s->op.attr.axis, at, at + length);
        add_move(m, from, &to, element_size(b, s));
        at += length;
    }
    return PL_OK;
}

static int prepare_slice_grad(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    moves_t *m = moves_new(s, err);
    if (!m)
        return PL_ENOMEM;
    const pl_view_t from = pl_view_whole(s->op.input[0], pl_exec_op_in(b, s, 0));
    const pl_view_t whole = pl_view_whole(s->op.output[0], pl_exec_op_out(b, s, 0));
    const pl_view_t to = pl_view_slice(&whole, s->op.attr.axis, s->op.attr.from,
                                       s->op.attr.to);
    add_move(m, &from, &to, element_size(b, s));
    s->size[0] = pl_elements(whole.shape) * element_size(b, s);
    return PL_OK;
}

static int run_range(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    int32_t *to = pl_out(s, f, 0);
    for (int64_t i = 0; i < s->size[0]; i++)
        to[i] = (int32_t)i;
    return PL_OK;
}

static int prepare_range(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    s->size[0] = pl_elements(pl_exec_op_out(b, s, 0));
    s->run = run_range;
    return PL_OK;
}

const pl_prepare_t pl_prepare_moves[PL_OPCODES] = {
    [PL_OP_broadcast] = prepare_copy,        [PL_OP_concat] = prepare_concat,
    [PL_OP_permute] = prepare_copy,          [PL_OP_range] = prepare_range,
    [PL_OP_slice_grad] = prepare_slice_grad,
};
