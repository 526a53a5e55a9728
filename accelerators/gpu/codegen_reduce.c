/* codegen_reduce.c - sums and maxima over some axes as kernels
 *
 * The input is seen as rows, one for each element of the result.  If the elements of a
 * row are neighbours in memory, a group takes a row.  Otherwise groups take columns of
 * strips, and the last of them adds up the strips' sums in order. */
#include "accelerators/gpu/codegen.h"

enum { THREADS = 256, GROUPS_MAX = 4096, STRIP = 64 };

int gpu_row_threads(int64_t width)
{
    return width <= 32 ? 32 : THREADS;
}

int64_t gpu_row_groups(int64_t rows)
{
    return rows < GROUPS_MAX ? rows : GROUPS_MAX;
}

void gpu_print_elementwise(gpu_codegen_t *t, const char *body, int64_t n)
{
    const int64_t groups = (n + THREADS - 1) / THREADS;
    gpu_include(t, body);
    gpu_kernel_end(t, groups < GROUPS_MAX ? groups : GROUPS_MAX, THREADS);
}

void gpu_print_columns(gpu_codegen_t *t, int64_t rows, int64_t columns, size_t scratch,
                       int32_t result)
{
    const int64_t strips = (rows + STRIP - 1) / STRIP, blocks = (columns + 63) / 64;
    gpu_define_number(t, "ROWS", rows);
    gpu_define_number(t, "COLUMNS", columns);
    gpu_define_number(t, "STRIP", STRIP);
    gpu_define_number(t, "STRIPS", strips);
    gpu_define_scratch(t, "PARTIAL", scratch, strips > 1 ? strips * columns : 1);
    gpu_define_counters(t, "COUNTER", blocks);
    gpu_define_store(t, "Y", result);
    gpu_include(t, "columns");
    gpu_kernel_end(t, blocks * strips < GROUPS_MAX ? blocks * strips : GROUPS_MAX,
                   THREADS);
}

/* The axes of a value that are in a mask, or those that are not. */
static pl_view_t axes_of(pl_shape_t shape, unsigned axes, bool in)
{
    const pl_view_t whole = pl_view_whole(0, shape);
    pl_view_t out = {.shape = {.rank = 0}};
    for (int k = 0; k < shape.rank; k++) {
        if ((axes >> k & 1) != in)
            continue;
        out.shape.dim[out.shape.rank] = shape.dim[k];
        out.stride[out.shape.rank++] = whole.stride[k];
    }
    return out;
}

/* Where element i of a row lies: AT(row, i). */
static void define_at(gpu_codegen_t *t, const pl_view_t *kept, const pl_view_t *inner)
{
    char row[GPU_INDEX_TEXT], i[GPU_INDEX_TEXT];
    gpu_define(t, "AT(row, i)", "(%s + %s)",
               gpu_index_text(kept, "row", pl_elements(kept->shape) <= INT32_MAX, row),
               gpu_index_text(inner, "i", pl_elements(inner->shape) <= INT32_MAX, i));
}

static void print_sum(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t x = t->g->value[op->input[0]].shape;
    const pl_view_t kept = axes_of(x, op->attr.axes, false),
                    inner = axes_of(x, op->attr.axes, true),
                    merged = pl_view_merged(&inner);
    const int64_t rows = pl_elements(kept.shape), width = pl_elements(inner.shape);
    gpu_kernel_begin(t, "sum");
    define_at(t, &kept, &inner);
    gpu_define_load(t, "X", op->input[0]);
    if (merged.shape.rank == 1 && merged.stride[0] == 1) {
        gpu_define(t, "TERM(row, i)", "X(AT(row, i))");
        gpu_define_number(t, "ROWS", rows);
        gpu_define_number(t, "WIDTH", width);
        gpu_define_store(t, "Y", op->output[0]);
        gpu_include(t, "sums");
        gpu_kernel_end(t, gpu_row_groups(rows), gpu_row_threads(width));
    } else {
        gpu_define(t, "TERM(row, column)", "X(AT(column, row))");
        gpu_print_columns(t, width, rows, 0, op->output[0]);
    }
}

/* The largest element, its index, or the gradient, which goes to that element. */
static void print_max(gpu_codegen_t *t, const pl_op_t *op)
{
    const bool grad = op->code == PL_OP_max_grad;
    const pl_shape_t x = t->g->value[op->input[grad]].shape;
    const unsigned axis = 1u << (op->attr.axis < 0 ? op->attr.axis + x.rank
                                                   : op->attr.axis);
    const pl_view_t kept = axes_of(x, axis, false), inner = axes_of(x, axis, true);
    const int64_t rows = pl_elements(kept.shape), width = pl_elements(inner.shape);
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_at(t, &kept, &inner);
    gpu_define_load(t, "IN", op->input[grad]);
    gpu_define(t, "X(row, i)", "IN(AT(row, i))");
    gpu_define_number(t, "ROWS", rows);
    gpu_define_number(t, "WIDTH", width);
    gpu_define_store(t, "Y", op->output[0]);
    if (grad) {
        gpu_define_load(t, "DY", op->input[0]);
        gpu_define(t, "FOUND(row, best)",
                   "for (int64_t i = 0; i < WIDTH; i++) "
                   "Y(AT(row, i), i == best ? DY(row) : (real)0);");
    } else {
        gpu_define(t, "FOUND(row, best)",
                   op->code == PL_OP_argmax ? "Y(row, best);" : "Y(row, largest);");
    }
    gpu_print_elementwise(t, "largest", rows);
}

bool gpu_print_reduction(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    switch (op->code) {
    case PL_OP_sum: print_sum(t, op); return true;
    case PL_OP_max:
    case PL_OP_argmax:
    case PL_OP_max_grad: print_max(t, op); return true;
    default: return false;
    }
}
