/* codegen_recurrent.c - recurrent layers and their gradients as one kernel over all
 * steps */
#include "accelerators/gpu/codegen.h"

/* The sizes that both kernels have; states [S, B, T + 1, H]. */
static void define_sizes(gpu_codegen_t *t, const pl_op_t *op, int number,
                         pl_shape_t states, int64_t gates)
{
    gpu_define_number(t, "STATES", states.dim[0]);
    gpu_define_number(t, "ROWS", states.dim[1]);
    gpu_define_number(t, "STEPS", states.dim[2] - 1);
    gpu_define_number(t, "UNITS", states.dim[3]);
    gpu_define_number(t, "GATES", gates);
    gpu_define_number(t, "BACK", op->attr.keep);
    gpu_define(t, "AT(k, row, side)",
               "((((k) * ROWS + (row)) * (STEPS + 1) + (side)) * UNITS)");
    if (op->input_count == 5) {
        gpu_define_load(t, "GIVEN", op->input[4]);
        gpu_define_check(t, number, states.dim[2]);
        gpu_define(t, "LENGTH(row)",
                   "checked_index(CONTROL, OPERATION, GIVEN(row), STEPS + 1)");
    } else {
        gpu_define(t, "LENGTH(row)", "STEPS");
    }
}

/* WORD: so many numbers of the unit's scratch. */
static void define_numbers(gpu_codegen_t *t, const char *word, int64_t count)
{
    gpu_define_scratch(t, "DOUBLES", 0, t->wide ? count : count / 2 + 1);
    gpu_define(t, word, "((GLOBAL real *)DOUBLES)");
}

static void print_forward(gpu_codegen_t *t, const pl_op_t *op, int number)
{
    const pl_shape_t states = t->g->value[op->output[0]].shape,
                     w = t->g->value[op->input[1]].shape;
    const int64_t n = w.dim[0] * w.dim[1];
    gpu_kernel_begin(t, "turn");
    gpu_define_load(t, "X", op->input[1]);
    gpu_define_number(t, "COLUMNS", w.dim[1]);
    gpu_define_number(t, "N", n);
    define_numbers(t, "Y", n);
    gpu_print_elementwise(t, "turn", n);
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_sizes(t, op, number, states, w.dim[0] / w.dim[1]);
    gpu_define_load(t, "X", op->input[0]);
    define_numbers(t, "W", n);
    gpu_define_load(t, "B", op->input[2]);
    gpu_define_load(t, "FIRST", op->input[3]);
    gpu_define_store(t, "PUT", op->output[0]);
    gpu_define_store(t, "KEPT", op->output[1]);
    /* A load would say that the states were there before the kernel. */
    const gpu_buffer_t buffer = gpu_buffer_of(t, op->output[0]);
    const pl_dtype_t dtype = t->g->value[op->output[0]].dtype;
    gpu_define(t, "H(i)", "(real)load_%s(a%d, i)", gpu_suffix(dtype),
               gpu_argument(t, &buffer, gpu_type(dtype), true));
    gpu_include(t, "recurrent");
    gpu_kernel_end(t, gpu_row_groups(states.dim[1]), gpu_row_threads(states.dim[3]));
}

static void print_backward(gpu_codegen_t *t, const pl_op_t *op, int number)
{
    const pl_shape_t states = t->g->value[op->input[2]].shape,
                     w = t->g->value[op->input[1]].shape;
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_sizes(t, op, number, states, w.dim[0] / w.dim[1]);
    gpu_define_load(t, "DSTATES", op->input[0]);
    gpu_define_load(t, "W", op->input[1]);
    gpu_define_load(t, "H", op->input[2]);
    gpu_define_load(t, "KEPT", op->input[3]);
    gpu_define_store(t, "DX", op->output[0]);
    gpu_define_store(t, "DFIRST", op->output[1]);
    if (op->output_count == 3)
        gpu_define_store(t, "DPRODUCTS", op->output[2]);
    else
        gpu_define(t, "DPRODUCTS(i, v)", "((void)(v))");
    define_numbers(t, "SUMS", states.dim[1] * (w.dim[0] + 2 * w.dim[1]));
    gpu_include(t, "recurrent_grad");
    gpu_kernel_end(t, gpu_row_groups(states.dim[1]), gpu_row_threads(states.dim[3]));
}

bool gpu_print_recurrent(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    switch (op->code) {
    case PL_OP_gru:
    case PL_OP_lstm: print_forward(t, op, i); return true;
    case PL_OP_gru_grad:
    case PL_OP_lstm_grad: print_backward(t, op, i); return true;
    default: return false;
    }
}
