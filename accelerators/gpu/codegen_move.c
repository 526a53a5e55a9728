/* codegen_move.c - copies by strides as kernels: permute, concat, slice_grad, range */
#include "accelerators/gpu/codegen.h"

static void print_copy(gpu_codegen_t *t, int64_t n)
{
    gpu_define_number(t, "N", n);
    gpu_print_elementwise(t, "copy", n);
}

/* Element i of a look at a value. */
static void define_from(gpu_codegen_t *t, int32_t value, const pl_view_t *view)
{
    gpu_define_load(t, "X", value);
    gpu_define_index(t, "IN(i)", "i", view);
    gpu_define(t, "FROM(i)", "X(IN(i))");
}

static void print_permute(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_view_t *view = &t->view[op->attr.from];
    gpu_kernel_begin(t, "permute");
    define_from(t, op->input[0], view);
    gpu_define_store(t, "PUT", op->output[0]);
    print_copy(t, pl_elements(view->shape));
}

/* Part after part. */
static void print_concat(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_view_t whole = pl_view_whole(0, t->g->value[op->output[0]].shape);
    const int axis = op->attr.axis < 0 ? op->attr.axis + whole.shape.rank : op->attr.axis;
    int64_t from = 0;
    for (int k = 0; k < op->input_count; k++) {
        const pl_view_t *view = &t->view[op->attr.from + k];
        const int64_t to = from + view->shape.dim[axis];
        const pl_view_t part = pl_view_slice(&whole, axis, from, to);
        gpu_kernel_begin(t, "concat");
        define_from(t, op->input[k], view);
        gpu_define_store(t, "Y", op->output[0]);
        gpu_define_index(t, "OUT(i)", "i", &part);
        gpu_define(t, "PUT(i, v)", "Y(OUT(i), v)");
        print_copy(t, pl_elements(view->shape));
        from = to;
    }
}

static void print_slice_grad(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t x = t->g->value[op->output[0]].shape;
    const int axis = op->attr.axis < 0 ? op->attr.axis + x.rank : op->attr.axis;
    const int64_t size = x.dim[axis], length = t->g->value[op->input[0]].shape.dim[axis];
    int64_t inner = 1;
    for (int k = axis + 1; k < x.rank; k++)
        inner *= x.dim[k];
    gpu_kernel_begin(t, "slice_grad");
    gpu_define_load(t, "DY", op->input[0]);
    gpu_define_store(t, "PUT", op->output[0]);
    gpu_define(t, "AXIS(i)", "((i) / %lld %% %lld - %lld)", (long long)inner,
               (long long)size, (long long)op->attr.from);
    gpu_define(
        t, "FROM(i)",
        "(AXIS(i) >= 0 && AXIS(i) < %lld ? DY(((i) / %lld * %lld + AXIS(i)) * %lld + "
        "(i) %% %lld) : (real)0)",
        (long long)length, (long long)(inner * size), (long long)length, (long long)inner,
        (long long)inner);
    print_copy(t, pl_elements(x));
}

static void print_range(gpu_codegen_t *t, const pl_op_t *op)
{
    gpu_kernel_begin(t, "range");
    gpu_define(t, "FROM(i)", "(i)");
    gpu_define_store(t, "PUT", op->output[0]);
    print_copy(t, pl_elements(t->g->value[op->output[0]].shape));
}

/* What is not a floating-point number is repeated like this. */
static void print_broadcast(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t y = t->g->value[op->output[0]].shape;
    const pl_view_t x = pl_view_whole(0, t->g->value[op->input[0]].shape);
    pl_view_t view = {.shape = y};
    for (int k = 0; k < y.rank; k++) {
        const int from = k - (y.rank - x.shape.rank);
        view.stride[k] = from < 0 || x.shape.dim[from] == 1 ? 0 : x.stride[from];
    }
    gpu_kernel_begin(t, "broadcast");
    define_from(t, op->input[0], &view);
    gpu_define_store(t, "PUT", op->output[0]);
    print_copy(t, pl_elements(y));
}

bool gpu_print_move(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    switch (op->code) {
    case PL_OP_permute: print_permute(t, op); return true;
    case PL_OP_concat: print_concat(t, op); return true;
    case PL_OP_slice_grad: print_slice_grad(t, op); return true;
    case PL_OP_range: print_range(t, op); return true;
    case PL_OP_broadcast: print_broadcast(t, op); return true;
    default: return false;
    }
}
