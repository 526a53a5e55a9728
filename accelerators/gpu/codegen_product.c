/* codegen_product.c - products as kernels: the tiles of kernels/product.k, with macros
 * that give the address of an element of A and of B */
#include "accelerators/gpu/codegen.h"

enum { THREADS = 256, TILE = 64, GROUPS_MAX = 4096 };

static pl_shape_t shape_of(const gpu_codegen_t *t, int32_t value)
{
    return t->g->value[value].shape;
}

void gpu_print_tiles(gpu_codegen_t *t, int64_t batches, int64_t m, int64_t n, int64_t k)
{
    const int64_t tiles = batches * ((m + TILE - 1) / TILE) * ((n + TILE - 1) / TILE);
    gpu_define_number(t, "BATCHES", batches);
    gpu_define_number(t, "M", m);
    gpu_define_number(t, "N", n);
    gpu_define_number(t, "K", k);
    gpu_include(t, "product");
    gpu_kernel_end(t, tiles < GROUPS_MAX ? tiles : GROUPS_MAX, THREADS);
}

pl_view_t gpu_batches(pl_shape_t own, pl_shape_t all)
{
    pl_view_t batches = pl_view_broadcast(own, all);
    batches.shape.rank -= 2;
    return batches;
}

static void define_batch(gpu_codegen_t *t, const char *word, pl_shape_t own,
                         pl_shape_t all)
{
    const pl_view_t batches = gpu_batches(own, all);
    gpu_define_index(t, word, "batch", &batches);
}

static void print_matmul(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t a = shape_of(t, op->input[0]), b = shape_of(t, op->input[1]),
                     c = shape_of(t, op->output[0]);
    const int64_t m = c.dim[c.rank - 2], n = c.dim[c.rank - 1],
                  k = a.dim[a.rank - (op->attr.transpose_a ? 2 : 1)];
    gpu_kernel_begin(t, "matmul");
    gpu_define_load(t, "LEFT", op->input[0]);
    gpu_define_load(t, "RIGHT", op->input[1]);
    gpu_define_store(t, "OUT", op->output[0]);
    define_batch(t, "LEFT_BATCH(batch)", a, c);
    define_batch(t, "RIGHT_BATCH(batch)", b, c);
    gpu_define(t, "A(batch, m, k)",
               op->attr.transpose_a ? "LEFT(LEFT_BATCH(batch) + (k) * M + (m))"
                                    : "LEFT(LEFT_BATCH(batch) + (m) * K + (k))");
    gpu_define(t, "B(batch, k, n)",
               op->attr.transpose_b ? "RIGHT(RIGHT_BATCH(batch) + (n) * K + (k))"
                                    : "RIGHT(RIGHT_BATCH(batch) + (k) * N + (n))");
    gpu_define(t, "C(batch, m, n, v)", "OUT(((batch) * M + (m)) * N + (n), v)");
    gpu_print_tiles(t, pl_elements(c) / (m * n), m, n, k);
}

static void print_linear(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t w = shape_of(t, op->input[1]), y = shape_of(t, op->output[0]);
    gpu_kernel_begin(t, "linear");
    gpu_define_load(t, "X", op->input[0]);
    gpu_define_load(t, "W", op->input[1]);
    gpu_define(t, "A(batch, m, k)", "X((m) * K + (k))");
    gpu_define(t, "B(batch, k, n)", "W((n) * K + (k))");
    gpu_define_store(t, "OUT", op->output[0]);
    if (op->input_count > 2)
        gpu_define_load(t, "BIAS", op->input[2]);
    gpu_define(t, "C(batch, m, n, v)",
               op->input_count > 2 ? "OUT((m) * N + (n), (v) + BIAS(n))"
                                   : "OUT((m) * N + (n), v)");
    gpu_print_tiles(t, 1, pl_elements(y) / w.dim[0], w.dim[0], w.dim[1]);
}

bool gpu_print_product(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    switch (op->code) {
    case PL_OP_matmul:
        print_matmul(t, op);
        for (i++; i < t->to; i++)         /* a product of the library makes them itself */
            if (t->g->op[i].code == PL_OP_sum)
                gpu_print_reduction(t, i);
        return true;
    case PL_OP_linear: print_linear(t, op); return true;
    default: return false;
    }
}
