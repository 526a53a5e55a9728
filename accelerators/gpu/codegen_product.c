/* codegen_product.c - products, convolutions and pools as kernels
 *
 * Products and convolutions share one body, the tiles of a product
 * (kernels/product.k); macros give the address of an element of A and of B.  Pictures are
 * [B, H, W, C], weights [O, C, k, k]. */
#include "accelerators/gpu/codegen.h"

enum { THREADS = 256, TILE = 64, GROUPS_MAX = 4096 };

static pl_shape_t shape_of(const gpu_codegen_t *t, int32_t value)
{
    return t->g->value[value].shape;
}

static void end_product(gpu_codegen_t *t, int64_t batches, int64_t m, int64_t n,
                        int64_t k)
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
    end_product(t, pl_elements(c) / (m * n), m, n, k);
}

/* The result of rows and columns, with a bias to each column if there is one. */
static void define_result(gpu_codegen_t *t, const pl_op_t *op)
{
    gpu_define_store(t, "OUT", op->output[0]);
    if (op->input_count > 2)
        gpu_define_load(t, "BIAS", op->input[2]);
    gpu_define(t, "C(batch, m, n, v)",
               op->input_count > 2 ? "OUT((m) * N + (n), (v) + BIAS(n))"
                                   : "OUT((m) * N + (n), v)");
}

static void print_linear(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t w = shape_of(t, op->input[1]), y = shape_of(t, op->output[0]);
    gpu_kernel_begin(t, "linear");
    gpu_define_load(t, "X", op->input[0]);
    gpu_define_load(t, "W", op->input[1]);
    gpu_define(t, "A(batch, m, k)", "X((m) * K + (k))");
    gpu_define(t, "B(batch, k, n)", "W((n) * K + (k))");
    define_result(t, op);
    end_product(t, 1, pl_elements(y) / w.dim[0], w.dim[0], w.dim[1]);
}

/* ---- Pictures ---- */

/* Sizes of the pictures x, and of the pictures y that windows make of them. */
static void define_pictures(gpu_codegen_t *t, const pl_op_t *op, pl_shape_t x,
                            pl_shape_t y, int64_t kernel)
{
    gpu_define_number(t, "HEIGHT", x.dim[1]);
    gpu_define_number(t, "WIDTH", x.dim[2]);
    gpu_define_number(t, "CHANNELS", x.dim[3]);
    gpu_define_number(t, "DOWN", y.dim[1]);
    gpu_define_number(t, "ACROSS", y.dim[2]);
    gpu_define_number(t, "FILTERS", y.dim[3]);
    gpu_define_number(t, "KERNEL_SIZE", kernel);
    gpu_define_number(t, "STRIDE", op->attr.stride);
    gpu_define_number(t, "PADDING", op->attr.padding);
}

/* PATCH(at, of): the element of the picture that place `of` of a filter, [C, k, k], meets
 * at window `at`; 0 beyond the edges. */
static void define_patch(gpu_codegen_t *t)
{
    gpu_define(t, "ROW_OF(at, of)",
               "((at) / ACROSS %% DOWN * STRIDE + (of) / KERNEL_SIZE %% KERNEL_SIZE - "
               "PADDING)");
    gpu_define(t, "COLUMN_OF(at, of)",
               "((at) %% ACROSS * STRIDE + (of) %% KERNEL_SIZE - PADDING)");
    gpu_define(
        t, "PATCH(at, of)",
        "(ROW_OF(at, of) >= 0 && ROW_OF(at, of) < HEIGHT && COLUMN_OF(at, of) >= 0 && "
        "COLUMN_OF(at, of) < WIDTH ? X((((at) / (ACROSS * DOWN) * HEIGHT + ROW_OF(at, "
        "of)) * WIDTH + COLUMN_OF(at, of)) * CHANNELS + (of) / (KERNEL_SIZE * "
        "KERNEL_SIZE)) : (real)0)");
}

/* Two of pictures x, filters w and their product y are inputs, with these names. */
static void begin_convolution(gpu_codegen_t *t, const pl_op_t *op, const char *kernel,
                              pl_shape_t x, pl_shape_t w, pl_shape_t y, const char *first,
                              const char *second)
{
    gpu_kernel_begin(t, kernel);
    define_pictures(t, op, x, y, w.dim[2]);
    gpu_define_load(t, first, op->input[0]);
    gpu_define_load(t, second, op->input[1]);
}

static void print_convolution(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t x = shape_of(t, op->input[0]), w = shape_of(t, op->input[1]),
                     y = shape_of(t, op->output[0]);
    begin_convolution(t, op, "conv2d", x, w, y, "X", "W");
    define_patch(t);
    gpu_define(t, "A(batch, m, k)", "PATCH(m, k)");
    gpu_define(t, "B(batch, k, n)", "W((n) * K + (k))");
    define_result(t, op);
    end_product(t, 1, y.dim[0] * y.dim[1] * y.dim[2], w.dim[0],
                pl_elements(w) / w.dim[0]);
}

static void print_convolution_grad_w(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t y = shape_of(t, op->input[0]), x = shape_of(t, op->input[1]),
                     w = shape_of(t, op->output[0]);
    begin_convolution(t, op, "conv2d_dw", x, w, y, "DY", "X");
    define_patch(t);
    gpu_define(t, "A(batch, m, k)", "DY((k) * FILTERS + (m))");
    gpu_define(t, "B(batch, k, n)", "PATCH(k, n)");
    define_result(t, op);
    end_product(t, 1, w.dim[0], pl_elements(w) / w.dim[0],
                y.dim[0] * y.dim[1] * y.dim[2]);
}

/* An element of a picture gets the sum over all places of all filters that read it,
 * [O, k, k]. */
static void print_convolution_grad_x(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t y = shape_of(t, op->input[0]), w = shape_of(t, op->input[1]),
                     x = shape_of(t, op->output[0]);
    begin_convolution(t, op, "conv2d_dx", x, w, y, "DY", "W");
    gpu_define(t, "DOWN_OF(m, k)",
               "((m) / WIDTH %% HEIGHT + PADDING - (k) / KERNEL_SIZE %% KERNEL_SIZE)");
    gpu_define(t, "ACROSS_OF(m, k)", "((m) %% WIDTH + PADDING - (k) %% KERNEL_SIZE)");
    gpu_define(t, "MET(v, limit)",
               "((v) >= 0 && (v) %% STRIDE == 0 && (v) / STRIDE < (limit))");
    gpu_define(
        t, "A(batch, m, k)",
        "(MET(DOWN_OF(m, k), DOWN) && MET(ACROSS_OF(m, k), ACROSS) ? DY((((m) / (WIDTH "
        "* HEIGHT) * DOWN + DOWN_OF(m, k) / STRIDE) * ACROSS + ACROSS_OF(m, k) / "
        "STRIDE) * FILTERS + (k) / (KERNEL_SIZE * KERNEL_SIZE)) : (real)0)");
    gpu_define(
        t, "B(batch, k, n)",
        "W((((k) / (KERNEL_SIZE * KERNEL_SIZE)) * CHANNELS + (n)) * (KERNEL_SIZE * "
        "KERNEL_SIZE) + (k) %% (KERNEL_SIZE * KERNEL_SIZE))");
    define_result(t, op);
    end_product(t, 1, x.dim[0] * x.dim[1] * x.dim[2], x.dim[3],
                w.dim[0] * w.dim[2] * w.dim[3]);
}

static void print_pool(gpu_codegen_t *t, const pl_op_t *op)
{
    const bool grad = op->code == PL_OP_max_pool2d_grad;
    const pl_shape_t x = shape_of(t, grad ? op->output[0] : op->input[0]),
                     y = shape_of(t, grad ? op->input[0] : op->output[0]);
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_pictures(t, op, x, y, op->attr.kernel);
    gpu_define_number(t, "N", pl_elements(grad ? x : y));
    gpu_define_store(t, "Y", op->output[0]);
    if (grad) {
        gpu_define_load(t, "DY", op->input[0]);
        gpu_define_load(t, "WHERE", op->input[1]);
    } else {
        gpu_define_load(t, "IN", op->input[0]);
        gpu_define(t, "X(b, y, x, c)",
                   "IN((((b) * HEIGHT + (y)) * WIDTH + (x)) * CHANNELS + (c))");
        gpu_define_store(t, "WHERE", op->output[1]);
    }
    gpu_print_elementwise(t, grad ? "pool_grad" : "pool", pl_elements(grad ? x : y));
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
    case PL_OP_conv2d: print_convolution(t, op); return true;
    case PL_OP_conv2d_grad_x: print_convolution_grad_x(t, op); return true;
    case PL_OP_conv2d_grad_w: print_convolution_grad_w(t, op); return true;
    case PL_OP_max_pool2d:
    case PL_OP_max_pool2d_grad: print_pool(t, op); return true;
    default: return false;
    }
}
