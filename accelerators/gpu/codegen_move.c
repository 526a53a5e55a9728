/* codegen_move.c - moves of elements as kernels: permute, concat, pad, range,
 * interpolate; and elements of another type */
#include <stdio.h>
#include <string.h>

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
    return pl_view_slice(&whole, axis, from, view[k].shape.dim[axis], 1);
}

/* P0(i), P1(i), …: the element of x along each axis, times the step, that would be
 * element i of the result.  There is none if one is no multiple of its step or outside
 * x. */
static void print_pad(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_value_t *y = &t->g->value[op->output[0]];
    const pl_view_t whole = pl_view_whole(0, y->shape),
                    x = pl_view_whole(0, t->g->value[op->input[0]].shape);
    char is_inside[1024] = "1", at[512] = "0", number[40];
    gpu_kernel_begin(t, "pad");
    gpu_define_load(t, "X", op->input[0]);
    gpu_define_store(t, "PUT", op->output[0]);
    for (int k = 0; k < y->shape.rank; k++) {
        const int64_t step = op->attr.step[k], distance = step < 0 ? -step : step;
        const size_t inside_end = strlen(is_inside), at_end = strlen(at);
        char word[16];
        snprintf(word, sizeof word, "P%d(i)", k);
        gpu_define(t, word, "(((i) / %lld %% %lld - %lld) * %d)",
                   (long long)whole.stride[k], (long long)y->shape.dim[k],
                   (long long)op->attr.at[k], step < 0 ? -1 : 1);
        if (x.shape.dim[k] != y->shape.dim[k] || step != 1)
            snprintf(is_inside + inside_end, sizeof is_inside - inside_end,
                     " && %s >= 0 && %s %% %lld == 0 && %s / %lld < %lld", word, word,
                     (long long)distance, word, (long long)distance,
                     (long long)x.shape.dim[k]);
        snprintf(at + at_end, sizeof at - at_end, " + %s / %lld * %lld", word,
                 (long long)distance, (long long)x.stride[k]);
    }
    if (pl_is_float(y->dtype))
        gpu_define(t, "FILL", "((real)%s)", gpu_number(t, op->attr.a, number));
    else
        gpu_define(t, "FILL", "%lld", (long long)op->attr.a);
    gpu_define(t, "FROM(i)", "(%s ? X(%s) : FILL)", is_inside, at);
    print_copy(t, pl_elements(y->shape));
}

/* LOW(j) and SHARE(j): as pl_interpolate_source(). */
static void print_interpolate(gpu_codegen_t *t, const pl_op_t *op)
{
    const bool back = op->code == PL_OP_interpolate_grad;
    const int axis = op->attr.axis;
    const pl_shape_t x = t->g->value[op->input[0]].shape,
                     y = t->g->value[op->output[0]].shape;
    gpu_kernel_begin(t, pl_operators[op->code].name);
    gpu_define_load(t, "X", op->input[0]);
    gpu_define_store(t, "PUT", op->output[0]);
    gpu_define_number(t, "N", pl_elements(y));
    gpu_define_number(t, "INNER", pl_view_whole(0, y).stride[axis]);
    gpu_define_number(t, "OLD", (back ? y : x).dim[axis]);
    gpu_define_number(t, "NEW", (back ? x : y).dim[axis]);
    gpu_define_number(t, "LINEAR", op->attr.linear);
    if (op->attr.linear) {
        gpu_define(t, "POSITION(j)",
                   "((2 * (j) + 1) * OLD > NEW ? (2 * (j) + 1) * OLD - NEW : 0)");
        gpu_define(t, "LOW(j)", "(POSITION(j) / (2 * NEW))");
        gpu_define(t, "SHARE(j)", "((real)(POSITION(j) %% (2 * NEW)) / (real)(2 * NEW))");
    } else {
        gpu_define(t, "LOW(j)", "((j) * OLD / NEW)");
        gpu_define(t, "SHARE(j)", "((real)0)");
    }
    gpu_print_elementwise(t, pl_operators[op->code].name, pl_elements(y));
}

/* A permute, or the broadcast of another type than a floating-point number. */
static void print_view(gpu_codegen_t *t, const pl_op_t *op, const pl_view_t *view)
{
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_from(t, op->input[0], view);
    gpu_define_store(t, "PUT", op->output[0]);
    print_copy(t, pl_elements(view->shape));
}

static void print_convert(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_value_t *from = &t->g->value[op->input[0]],
                     *to = &t->g->value[op->output[0]];
    gpu_kernel_begin(t, "convert");
    gpu_define_load(t, "X", op->input[0]);
    gpu_define_store(t, "PUT", op->output[0]);
    if (op->attr.keep)
        gpu_define(t, "FROM(i)", "(X(i) != 0)");
    else if (pl_is_float(from->dtype) && !pl_is_float(to->dtype))
        gpu_define(t, "FROM(i)", "pl_whole_%s(X(i))", gpu_suffix(to->dtype));
    else
        gpu_define(t, "FROM(i)", "X(i)");
    print_copy(t, pl_elements(to->shape));
}

static void print_order(gpu_codegen_t *t, const pl_op_t *op)
{
    const char *at[2];
    gpu_kernel_begin(t, "order");
    for (int k = 0; k < 2; k++) {
        gpu_define_load(t, k ? "Y" : "X", op->input[k]);
        at[k] = pl_elements(t->g->value[op->input[k]].shape) > 1 ? "i" : "0";
    }
    gpu_define_store(t, "PUT", op->output[0]);
    gpu_define(t, "FROM(i)", "((X(%s) > Y(%s)) - (X(%s) < Y(%s)))", at[0], at[1], at[0],
               at[1]);
    print_copy(t, pl_elements(t->g->value[op->output[0]].shape));
}

bool gpu_print_move(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    const pl_shape_t x = t->g->value[op->input[0]].shape,
                     y = t->g->value[op->output[0]].shape;
    pl_view_t view;
    char from[40], step[40];
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
    case PL_OP_pad: print_pad(t, op); return true;
    case PL_OP_interpolate:
    case PL_OP_interpolate_grad: print_interpolate(t, op); return true;
    case PL_OP_convert: print_convert(t, op); return true;
    case PL_OP_order: print_order(t, op); return true;
    case PL_OP_range:
        gpu_kernel_begin(t, "range");
        if (op->attr.dtype == PL_I32)
            gpu_define(t, "FROM(i)", "(i)");
        else
            gpu_define(t, "FROM(i)", "((real)%s + (real)%s * (real)(i))",
                       gpu_number(t, op->attr.a, from), gpu_number(t, op->attr.b, step));
        gpu_define_store(t, "PUT", op->output[0]);
        print_copy(t, pl_elements(y));
        return true;
    default: return false;
    }
}
