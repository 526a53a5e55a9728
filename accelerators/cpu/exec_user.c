/* exec_user.c - operators of users: kernels that come with the operator's table */
#include "accelerators/cpu/cpu.h"
#include "accelerators/cpu/parallel.h"
#include "accelerators/cpu/exec_op.h"
#include "base/alloc.h"
#include "base/error.h"
#include "tensor/operators.h"

typedef struct applied {
    const pl_kernel_t *kernel;
    pl_kernel_call_t call;                                /* run_apply() sets addresses */
    int64_t rows, elements;
} applied_t;

static void apply_piece(void *user, int64_t from, int64_t to, int part)
{
    (void)part;
    const applied_t *a = user;
    a->kernel->run(&a->call, from, to);
}

static int run_apply(const pl_exec_op_t *s, const pl_exec_context_t *f, pl_error_t *err)
{
    (void)err;
    applied_t a = *(const applied_t *)s->own;
    for (int k = 0; k < s->op.input_count; k++)
        a.call.input[k] = pl_in(s, f, k);
    a.call.output = pl_out(s, f, 0);
    pl_parallel_for(f->pool, a.elements < PL_PARALLEL_MIN ? 1 : f->threads, a.rows, 1,
                    apply_piece, &a);
    return PL_OK;
}

int pl_prepare_apply(pl_exec_op_t *s, const pl_builder_t *b, pl_error_t *err)
{
    const pl_kernel_t *kernel = pl_op_kernel(&s->op, pl_cpu_accelerator.name, err);
    if (!kernel)
        return PL_EUNSUPPORTED;
    applied_t *a = s->own = pl_alloc(sizeof *a);
    if (!a)
        return pl_no_memory(err);
    a->kernel = kernel;
    a->call.self = s->op.attr.self.byte;
    a->call.output_shape = pl_exec_op_out(b, s, 0);
    for (int k = 0; k < s->op.input_count; k++)
        a->call.input_shape[k] = pl_exec_op_in(b, s, k);
    a->rows = pl_rows(a->call.output_shape, s->op.attr.table->row_axes);
    a->elements = pl_elements(a->call.output_shape);
    s->run = run_apply;
    return PL_OK;
}
