/* codegen_axis.c - operators along one axis as kernels: gather, scatter, sort, cumulative
 * sums; and random numbers */
#include <stdio.h>

#include "accelerators/gpu/codegen.h"

enum { THREADS = 256, PIECE_MAX = 1024 };

static pl_shape_t shape_of(const gpu_codegen_t *t, int32_t value)
{
    return t->g->value[value].shape;
}

/* Along the middle axis of the table [A, R, B]: gather reads it, and scatter makes it.
 * Indices that are the same for all of one table are those of rows, which are sorted. */
static void print_gather(gpu_codegen_t *t, const pl_op_t *op, int number)
{
    const bool scatters = op->code == PL_OP_scatter;
    const pl_shape_t table = shape_of(t, scatters ? op->output[0] : op->input[0]),
                     indices = shape_of(t, op->input[!scatters]),
                     given = PL_SHAPE(table.dim[0], indices.dim[1], table.dim[2]);
    const pl_view_t at = pl_view_broadcast(indices, given);
    if (scatters && table.dim[0] == 1 && indices.dim[2] == 1) {
        gpu_print_row_sums(t, number);
        return;
    }
    gpu_kernel_begin(t, pl_operators[op->code].name);
    gpu_define_load(t, "INDEX", op->input[!scatters]);
    gpu_define_load(t, "X", op->input[scatters]);
    gpu_define_store(t, "Y", op->output[0]);
    gpu_define_index(t, "AT(i)", "i", &at);
    gpu_define_number(t, "N", pl_elements(scatters ? table : given));
    gpu_define_number(t, "TABLE_ROWS", table.dim[1]);
    gpu_define_number(t, "LENGTH", given.dim[1]);
    gpu_define_number(t, "INNER", table.dim[2]);
    gpu_define_check(t, number, table.dim[1]);
    gpu_print_elementwise(t, pl_operators[op->code].name,
                          pl_elements(scatters ? table : given));
}

/* COLUMNS and WIDTH of x [A, N, B], and X(column, i) along the middle axis; Y(column, i,
 * v) of a result with `count` elements along it.  `last` is the last i, if they fall. */
static void define_columns(gpu_codegen_t *t, const pl_op_t *op, int64_t count, bool falls)
{
    const pl_shape_t x = shape_of(t, op->input[0]);
    const long long inner = x.dim[2], width = x.dim[1];
    char place[32] = "(i)";
    if (falls)
        snprintf(place, sizeof place, "(%lld - (i))", width - 1);
    gpu_define_load(t, "IN", op->input[0]);
    gpu_define_store(t, "OUT", op->output[0]);
    gpu_define(t, "X(column, i)",
               "IN(((column) / %lld * %lld + %s) * %lld + (column) %% %lld)", inner,
               width, place, inner, inner);
    gpu_define(t, "Y(column, i, v)",
               "OUT(((column) / %lld * %lld + %s) * %lld + (column) %% %lld, v)", inner,
               (long long)count, place, inner, inner);
    gpu_define_number(t, "COLUMNS", x.dim[0] * x.dim[2]);
    gpu_define_number(t, "WIDTH", width);
}

/* LESS is PyTorch's order: NaN is the largest.  A position behind the end follows all. */
static void print_sort(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t x = shape_of(t, op->input[0]);
    const int64_t columns = x.dim[0] * x.dim[2];
    int64_t piece = 2;
    while (piece < x.dim[1] && piece < PIECE_MAX)
        piece *= 2;
    const int64_t pieces = (x.dim[1] + piece - 1) / piece, all = columns * pieces * piece;
    for (int k = 0; k < 2; k++) {
        gpu_kernel_begin(t, k ? "sort_ranks" : "sort_pieces");
        define_columns(t, op, op->attr.to, false);
        gpu_define(t, "LESS(a, b)",
                   op->attr.keep ? "((b) < (a) || ((b) == (b) && (a) != (a)))"
                                 : "((a) < (b) || ((a) == (a) && (b) != (b)))");
        gpu_define(t, "BEFORE(a, i, b, k)",
                   "((k) >= WIDTH ? (i) < (k) : (i) < WIDTH && (LESS(a, b) || "
                   "(!LESS(b, a) && (i) < (k))))");
        gpu_define_number(t, "PIECE", piece);
        gpu_define_number(t, "PIECES", pieces);
        gpu_define_number(t, "COUNT", op->attr.to);
        gpu_define_scratch(t, "DOUBLES", 0, all / 2);
        gpu_define(t, "PLACE", "((GLOBAL int32_t *)DOUBLES)");
        if (k) {
            gpu_print_elementwise(t, "sort_ranks", all);
        } else {
            gpu_include(t, "sort_pieces");
            gpu_kernel_end(t, gpu_row_groups(columns * pieces), gpu_row_threads(piece));
        }
    }
}

bool gpu_print_axis(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    const int64_t n = pl_elements(shape_of(t, op->output[0]));
    int64_t width;
    switch (op->code) {
    case PL_OP_gather:
    case PL_OP_scatter: print_gather(t, op, i); return true;
    case PL_OP_sort: print_sort(t, op); return true;
    case PL_OP_cumsum:
        width = shape_of(t, op->input[0]).dim[1];
        gpu_kernel_begin(t, "cumsum");
        define_columns(t, op, width, op->attr.keep);
        gpu_include(t, "cumsum");
        gpu_kernel_end(t, gpu_row_groups(n / width), gpu_row_threads(width));
        return true;
    case PL_OP_random:
        gpu_kernel_begin(t, "random");
        gpu_define_store(t, "Y", op->output[0]);
        gpu_define(t, "STEP", "a%d",
                   gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_STEP}, "step_t", false));
        gpu_define(t, "STREAM", "0x%llxull", (unsigned long long)op->attr.stream);
        gpu_define_number(t, "N", n);
        gpu_define_number(t, "NORMAL", op->attr.keep);
        gpu_print_elementwise(t, "random", (n + 3) / 4);
        return true;
    default: return false;
    }
}
