/* exec_recurrent.c - recurrent layers and their gradients: all steps in one call
 *
 * Threads share the packing of the weight, and then the rows of the batch.  Size is
 * batch, steps, hidden. */
#include "accelerators/cpu/exec_op.h"

static int run_recurrent(const pl_exec_op_t *s, const pl_exec_context_t *f,
                         pl_error_t *err)
{
    const bool grad = s->op.code == PL_OP_lstm_grad || s->op.code == PL_OP_gru_grad;
    const int64_t *size = s->size, strips = (size[2] + PL_RECURRENT_STRIP - 1)
                                            / PL_RECURRENT_STRIP;
    pl_recurrent_job_t job = {.batch = size[0],
                              .steps = size[1],
                              .hidden = size[2],
                              .gates = (int)size[3],
                              .back = s->op.attr.keep,
                              .dtype = s->dtype,
                              .w = pl_in(s, f, 1),
                              .packed = (float *)f->scratch};
    job.scratch = job.packed + size[3] * size[2] * strips * PL_RECURRENT_STRIP;
    if (s->op.input_count == 5) {
        job.lengths = pl_in(s, f, 4);
        const int code = pl_check_indices(s, job.lengths, size[0], size[1] + 1, err);
        if (code != PL_OK)
            return code;
    }
    if (grad) {
        job.dstates = pl_in(s, f, 0);
        job.states = pl_in(s, f, 2);
        job.kept = pl_in(s, f, 3);
        job.dx = pl_out(s, f, 0);
        job.dfirst = pl_out(s, f, 1);
        job.dproducts = s->op.output_count == 3 ? pl_out(s, f, 2) : NULL;
    } else {
        job.x = pl_in(s, f, 0);
        job.b = pl_in(s, f, 2);
        job.first = pl_in(s, f, 3);
        job.states = pl_out(s, f, 0);
        job.kept = pl_out(s, f, 1);
    }
    const int threads = size[0] * size[1] * size[2] * size[3] < PL_PARALLEL_MIN
                            ? 1
                            : f->threads;
    pl_parallel_run(f->pool, threads, grad ? strips : size[3] * strips, 1,
                    f->kernels->recurrent_pack, &job);
    pl_parallel_run(f->pool, threads, size[0], 1,
                    grad ? f->kernels->recurrent_grad : f->kernels->recurrent, &job);
    return PL_OK;
}

static int prepare_recurrent(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    (void)err;
    const bool grad = s->op.code == PL_OP_lstm_grad || s->op.code == PL_OP_gru_grad;
    const pl_shape_t states = grad ? pl_exec_op_in(b, s, 2) : pl_exec_op_out(b, s, 0),
                     w = pl_exec_op_in(b, s, 1);
    const int64_t wide = (states.dim[3] + PL_RECURRENT_STRIP - 1) / PL_RECURRENT_STRIP
                         * PL_RECURRENT_STRIP;
    s->size[0] = states.dim[1];
    s->size[1] = states.dim[2] - 1;
    s->size[2] = states.dim[3];
    s->size[3] = w.dim[0] / w.dim[1];
    if (s->op.input_count == 5)
        s->dtype = b->lowered->graph.value[s->op.input[4]].dtype;
    s->scratch = (size_t)(w.dim[0] * wide + s->size[0] * (grad ? 6 : 4) * wide)
                 * sizeof(float);
    s->run = run_recurrent;
    return PL_OK;
}

const pl_prepare_t pl_prepare_steps[PL_OPCODES] = {
    [PL_OP_gru] = prepare_recurrent,
    [PL_OP_gru_grad] = prepare_recurrent,
    [PL_OP_lstm] = prepare_recurrent,
    [PL_OP_lstm_grad] = prepare_recurrent,
};
