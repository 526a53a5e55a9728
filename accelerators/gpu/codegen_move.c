/* codegen_move.c - copies by strides as kernels: permute, concat, slice_grad, range */
#include "accelerators/gpu/codegen.h"

static void print_copy(gpu_codegen_t *t, int64_t n)
{
    gpu_define_number(t, "N", n);
    gpu_print_elementwise(t, "copy", n);
}

/* FROM(i): element i of a view of a value. */
static void define_from(gpu_codegen_t *t, int32_t value, const pl_view_t *view)
{
    gpu_define_load(t, "X", value);
    gpu_define_index(t, "IN(i)", "i", view);
    gpu_define(t, "FROM(i)", "X(IN(i))");
}

pl_view_t gpu_concat_part(const gpu_codegen_t *t, const pl_op_t *concat, int k)
{
    const pl_view_t *view = &t->view[concat->attr.from];
    const pl_view_t whole = pl_view_whole(concat->output[0],
                                          t->g->value[concat->output[0]].shape);
    const int axis = concat->attr.axis < 0 ? concat->attr.axis + whole.shape.rank
                                           : concat->attr.axis;
    int64_t from = 0;
    for (int i = 0; i < k; i++)
        from += view[i].shape.dim[axis];
    return pl_view_slice(&whole, axis, from, from + view[k].shape.dim[axis]);
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

/* A permute, or the broadcast of another type than a floating-point number. */
static void print_view(gpu_codegen_t *t, const pl_op_t *op, const pl_view_t *view)
{
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_from(t, op->input[0], view);
    gpu_define_store(t, "PUT", op->output[0]);
    print_copy(t, pl_elements(view->shape));
}

bool gpu_print_move(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    const pl_shape_t x = t->g->value[op->input[0]].shape,
                     y = t->g->value[op->output[0]].shape;
    pl_view_t view;
    switch (op->code) {
    case PL_OP_permute: print_view(t, op, &t->view[op->attr.from]); return true;
    case PL_OP_broadcast:
        view = pl_view_broadcast(x, y);
        print_view(t, op, &view);
        return true;
    case PL_OP_concat:                                      /* a kernel for each input */
        for (int k = 0; k < op->input_count; k++) {
            const pl_view_t *part = &t->view[op->attr.from + k];
            view = gpu_concat_part(t, op, k);
            gpu_kernel_begin(t, "concat");
            define_from(t, op->input[k], part);
            gpu_define_store(t, "Y", op->output[0]);
            gpu_define_index(t, "OUT(i)", "i", &view);
            gpu_define(t, "PUT(i, v)", "Y(OUT(i), v)");
            print_copy(t, pl_elements(part->shape));
        }
        return true;
    case PL_OP_slice_grad: print_slice_grad(t, op); return true;
    case PL_OP_range:
        gpu_kernel_begin(t, "range");
        gpu_define(t, "FROM(i)", "(i)");
        gpu_define_store(t, "PUT", op->output[0]);
        print_copy(t, pl_elements(y));
        return true;
    default: return false;
    }
}
