/* codegen_ctc.c - connectionist temporal classification and its gradient as kernels */
#include "accelerators/gpu/codegen.h"

/* What both kernels have, of log probabilities x [B, T, C] and targets, inputs k and
 * k + 1, and two lengths of each sample behind them. */
static void define_sample(gpu_codegen_t *t, const pl_op_t *op, int k, int number)
{
    const pl_shape_t x = t->g->value[op->input[k]].shape;
    const int64_t labels = t->g->value[op->input[k + 1]].shape.dim[1];
    gpu_define_load(t, "X", op->input[k]);
    gpu_define_load(t, "TARGET", op->input[k + 1]);
    gpu_define_load(t, "LENGTH_OF_INPUT", op->input[k + 2]);
    gpu_define_load(t, "LENGTH_OF_TARGET", op->input[k + 3]);
    gpu_define_number(t, "ROWS", x.dim[0]);
    gpu_define_number(t, "STEPS", x.dim[1]);
    gpu_define_number(t, "CLASSES", x.dim[2]);
    gpu_define_number(t, "LABELS", labels);
    gpu_define_number(t, "WIDTH", 2 * labels + 1);
    gpu_define_number(t, "BLANK", op->attr.from);
    gpu_define(t, "NONE", "((real)-1e30f)");
    gpu_define_check(t, number, x.dim[2]);
    gpu_define_number(t, "STEPS_CHECK", gpu_add_check(t, number, x.dim[1] + 1));
    gpu_define_number(t, "LABELS_CHECK", gpu_add_check(t, number, labels + 1));
    gpu_define(t, "STEPS_OF(row)",
               "checked_index(CONTROL, STEPS_CHECK, LENGTH_OF_INPUT(row), STEPS + 1)");
    gpu_define(t, "LABELS_OF(row)",
               "checked_index(CONTROL, LABELS_CHECK, LENGTH_OF_TARGET(row), LABELS + "
               "1)");
    gpu_define(t, "LABEL(row, s)",
               "((s) %% 2 ? checked_index(CONTROL, OPERATION, TARGET((row) * LABELS + "
               "(s) / 2), CLASSES) : BLANK)");
    gpu_define(t, "SKIPS(row, s)",
               "((s) %% 2 && (s) > 1 && LABEL(row, s) != LABEL(row, (s) - 2))");
}

bool gpu_print_ctc(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    const bool grad = op->code == PL_OP_ctc_grad;
    if (!grad && op->code != PL_OP_ctc)
        return false;
    const pl_shape_t logs = t->g->value[grad ? op->input[5] : op->output[1]].shape;
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_sample(t, op, grad, i);
    if (grad) {
        const int64_t count = logs.dim[0] * 2 * logs.dim[2];
        gpu_define_load(t, "DY", op->input[0]);
        gpu_define_load(t, "ALPHA", op->input[5]);
        gpu_define_store(t, "DX", op->output[0]);
        gpu_define_scratch(t, "DOUBLES", 0, t->wide ? count : count / 2 + 1);
        gpu_define(t, "AFTER", "((GLOBAL real *)DOUBLES)");
    } else {
        gpu_define_store(t, "LOSS", op->output[0]);
        if (!gpu_is_allocated(t, op->output[1])) {          /* there is no gradient */
            const int64_t count = pl_elements(logs);
            gpu_define_scratch(t, "DOUBLES", 0, t->wide ? count : count / 2 + 1);
            gpu_define(t, "ALPHA(i)", "(((GLOBAL real *)DOUBLES)[i])");
            gpu_define(t, "KEEP(i, v)", "ALPHA(i) = (v)");
        } else {
            /* A load would say that the logarithms were there before the kernel. */
            const gpu_buffer_t buffer = gpu_buffer_of(t, op->output[1]);
            const pl_dtype_t dtype = t->g->value[op->output[1]].dtype;
            gpu_define_store(t, "KEEP", op->output[1]);
            gpu_define(t, "ALPHA(i)", "(real)load_%s(a%d, i)", gpu_suffix(dtype),
                       gpu_argument(t, &buffer, gpu_type(dtype), true));
        }
        gpu_define(t, "WITHOUT", op->attr.keep ? "((real)0)" : "((real)INFINITY)");
    }
    gpu_include(t, pl_operators[op->code].name);
    gpu_kernel_end(t, gpu_row_groups(logs.dim[0]), gpu_row_threads(logs.dim[2]));
    return true;
}
