/* codegen_space.c - convolutions and pools as kernels
 *
 * Convolutions are products, one for each group of channels: windows of x are the rows of
 * a matrix that is nowhere in memory.  Groups of few channels, as of a depthwise
 * convolution, would leave most of a tile empty: each thread computes an element of the
 * result, or for weights each group of threads.  x is [B, ..., C], w
 * [O, C / groups, ...]. */
#include "accelerators/gpu/codegen.h"

#include <stdio.h>
#include <string.h>

#include "tensor/windows.h"

enum { THIN = 8 };                  /* channels of a group, up to which no tile is used */

static pl_shape_t shape_of(const gpu_codegen_t *t, int32_t value)
{
    return t->g->value[value].shape;
}

/* Sizes of x and of y, which the windows make of it. */
static void define_windows(gpu_codegen_t *t, const pl_op_t *op, pl_shape_t x,
                           pl_shape_t y)
{
    const pl_window_t *w = &op->attr.window;
    int64_t in[PL_SPACE], out[PL_SPACE];
    char name[24];
    pl_space_of(x, 1, in);
    pl_space_of(y, 1, out);
    const struct {
        const char *name;
        const int64_t *number;
    } numbers[] = {{"IN", in},
                   {"OUT", out},
                   {"KERNEL", w->kernel},
                   {"STRIDE", w->stride},
                   {"DILATION", w->dilation},
                   {"BEFORE", w->before}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int k = 0; k < PL_SPACE; k++) {
            snprintf(name, sizeof name, "%s%d", numbers[i].name, k);
            gpu_define_number(t, name, numbers[i].number[k]);
        }
    gpu_define_number(t, "CHANNELS", x.dim[x.rank - 1]);
    gpu_define(t, "WITHIN(v, limit)", "((v) >= 0 && (v) < (limit))");
}

/* ---- Convolutions ---- */

typedef struct convolution {
    pl_shape_t x, w, y;
    int64_t groups, channels, filters;                      /* the last two of a group */
    int64_t windows, places;                                /* elements of y; of w */
} gpu_convolution_t;

/* Two of x, w and y are inputs, with these names. */
static gpu_convolution_t begin_convolution(gpu_codegen_t *t, const pl_op_t *op,
                                           const char *kernel, const char *first,
                                           const char *second)
{
    const bool grad_x = op->code == PL_OP_conv_grad_x,
               grad_w = op->code == PL_OP_conv_grad_w;
    gpu_convolution_t c = {.x = shape_of(t, op->input[0]),
                           .w = shape_of(t, op->input[1]),
                           .y = shape_of(t, op->output[0]),
                           .groups = op->attr.groups};
    if (grad_x)
        c.x = shape_of(t, op->output[0]), c.y = shape_of(t, op->input[0]);
    if (grad_w)
        c.x = shape_of(t, op->input[1]), c.w = shape_of(t, op->output[0]),
        c.y = shape_of(t, op->input[0]);
    c.channels = c.w.dim[1];
    c.filters = c.w.dim[0] / c.groups;
    c.windows = pl_elements(c.y) / c.w.dim[0];
    c.places = pl_elements(c.w) / c.w.dim[0];
    gpu_kernel_begin(t, kernel);
    define_windows(t, op, c.x, c.y);
    gpu_define_number(t, "FILTERS", c.w.dim[0]);
    gpu_define_number(t, "GROUP_CHANNELS", c.channels);
    gpu_define_number(t, "GROUP_FILTERS", c.filters);
    gpu_define(t, "KERNEL_SIZE", "(KERNEL0 * KERNEL1 * KERNEL2)");
    gpu_define_load(t, first, op->input[0]);
    gpu_define_load(t, second, op->input[1]);
    gpu_define_store(t, "RESULT", op->output[0]);
    return c;
}

/* PATCH(group, at, of): the element of x that place `of` of a filter, [C / groups, ...],
 * meets at window `at`; 0 beyond the edges. */
static void define_patch(gpu_codegen_t *t)
{
    gpu_define(t, "PLACE0(at, of)",
               "((at) / (OUT1 * OUT2) %% OUT0 * STRIDE0 + (of) / (KERNEL1 * KERNEL2) "
               "%% KERNEL0 * DILATION0 - BEFORE0)");
    gpu_define(t, "PLACE1(at, of)",
               "((at) / OUT2 %% OUT1 * STRIDE1 + (of) / KERNEL2 %% KERNEL1 * DILATION1 - "
               "BEFORE1)");
    gpu_define(t, "PLACE2(at, of)",
               "((at) %% OUT2 * STRIDE2 + (of) %% KERNEL2 * DILATION2 - BEFORE2)");
    gpu_define(
        t, "PATCH(group, at, of)",
        "(WITHIN(PLACE0(at, of), IN0) && WITHIN(PLACE1(at, of), IN1) && "
        "WITHIN(PLACE2(at, of), IN2) ? X(((((at) / (OUT0 * OUT1 * OUT2) * IN0 + "
        "PLACE0(at, of)) * IN1 + PLACE1(at, of)) * IN2 + PLACE2(at, of)) * CHANNELS + "
        "(group) * GROUP_CHANNELS + (of) / KERNEL_SIZE) : (real)0)");
}

/* A thread for each element of the result, [m, batches, n]. */
static void print_thin(gpu_codegen_t *t, int64_t batches, int64_t m, int64_t n, int64_t k)
{
    gpu_define_number(t, "BATCHES", batches);
    gpu_define_number(t, "M", m);
    gpu_define_number(t, "N", n);
    gpu_define_number(t, "K", k);
    gpu_print_elementwise(t, "product_thin", batches * m * n);
}

static void print_convolution(gpu_codegen_t *t, const pl_op_t *op)
{
    const gpu_convolution_t c = begin_convolution(t, op, "conv", "X", "W");
    define_patch(t);
    gpu_define(t, "A(batch, m, k)", "PATCH(batch, m, k)");
    gpu_define(t, "B(batch, k, n)", "W(((batch) * GROUP_FILTERS + (n)) * K + (k))");
    gpu_define(t, "FILTER(batch, n)", "((batch) * GROUP_FILTERS + (n))");
    if (op->input_count > 2)
        gpu_define_load(t, "BIAS", op->input[2]);
    gpu_define(t, "C(batch, m, n, v)",
               op->input_count > 2
                   ? "RESULT((m) * FILTERS + FILTER(batch, n), (v) + BIAS(FILTER(batch, "
                     "n)))"
                   : "RESULT((m) * FILTERS + FILTER(batch, n), v)");
    if (c.groups > 1 && c.filters <= THIN)
        print_thin(t, c.groups, c.windows, c.filters, c.places);
    else
        gpu_print_tiles(t, c.groups, c.windows, c.filters, c.places);
}

static void print_convolution_grad_w(gpu_codegen_t *t, const pl_op_t *op)
{
    const gpu_convolution_t c = begin_convolution(t, op, "conv_dw", "DY", "X");
    define_patch(t);
    gpu_define(t, "A(batch, m, k)", "DY((k) * FILTERS + (batch) * GROUP_FILTERS + (m))");
    gpu_define(t, "B(batch, k, n)", "PATCH(batch, k, n)");
    gpu_define(t, "C(batch, m, n, v)",
               "RESULT(((batch) * GROUP_FILTERS + (m)) * N + (n), v)");
    if (c.groups == 1 || c.filters > THIN) {
        gpu_print_tiles(t, c.groups, c.filters, c.places, c.windows);
        return;
    }
    const int64_t rows = pl_elements(c.w);
    gpu_define_number(t, "N", c.places);
    gpu_define_number(t, "ROWS", rows);
    gpu_define_number(t, "WIDTH", c.windows);
    gpu_define(t, "TERM(row, i)",
               "A((row) / N / GROUP_FILTERS, (row) / N %% GROUP_FILTERS, i) * "
               "B((row) / N / GROUP_FILTERS, i, (row) %% N)");
    gpu_define(t, "Y(row, v)", "RESULT(row, v)");
    gpu_include(t, "sums");
    gpu_kernel_end(t, gpu_row_groups(rows), gpu_row_threads(c.windows));
}

/* An element of x gets the sum over all places of all filters that read it,
 * [O / groups, ...]. */
static void print_convolution_grad_x(gpu_codegen_t *t, const pl_op_t *op)
{
    const gpu_convolution_t c = begin_convolution(t, op, "conv_dx", "DY", "W");
    gpu_define(t, "BACK0(m, k)",
               "((m) / (IN1 * IN2) %% IN0 + BEFORE0 - (k) / (KERNEL1 * KERNEL2) %% "
               "KERNEL0 * DILATION0)");
    gpu_define(t, "BACK1(m, k)",
               "((m) / IN2 %% IN1 + BEFORE1 - (k) / KERNEL2 %% KERNEL1 * DILATION1)");
    gpu_define(t, "BACK2(m, k)", "((m) %% IN2 + BEFORE2 - (k) %% KERNEL2 * DILATION2)");
    gpu_define(t, "MET(v, stride, limit)",
               "((v) >= 0 && (v) %% (stride) == 0 && (v) / (stride) < (limit))");
    gpu_define(
        t, "A(batch, m, k)",
        "(MET(BACK0(m, k), STRIDE0, OUT0) && MET(BACK1(m, k), STRIDE1, OUT1) && "
        "MET(BACK2(m, k), STRIDE2, OUT2) ? DY(((((m) / (IN0 * IN1 * IN2) * OUT0 + "
        "BACK0(m, k) / STRIDE0) * OUT1 + BACK1(m, k) / STRIDE1) * OUT2 + BACK2(m, k) / "
        "STRIDE2) * FILTERS + (batch) * GROUP_FILTERS + (k) / KERNEL_SIZE) : (real)0)");
    gpu_define(t, "B(batch, k, n)",
               "W((((batch) * GROUP_FILTERS + (k) / KERNEL_SIZE) * GROUP_CHANNELS + (n)) "
               "* KERNEL_SIZE + (k) %% KERNEL_SIZE)");
    gpu_define(t, "C(batch, m, n, v)",
               "RESULT((m) * CHANNELS + (batch) * GROUP_CHANNELS + (n), v)");
    const int64_t elements = pl_elements(c.x) / (c.groups * c.channels),
                  terms = pl_elements(c.w) / (c.groups * c.channels);
    if (c.groups > 1 && c.channels <= THIN)
        print_thin(t, c.groups, elements, c.channels, terms);
    else
        gpu_print_tiles(t, c.groups, elements, c.channels, terms);
}

/* ---- Pools ---- */

/* For axis k of space: STARTk(i), COUNTk(i) - the first element of window i, which may be
 * padding, and how many it has; FIRSTk(p), ENDk(p) - the windows that element p may lie
 * in; SIZEk(i) - the elements that a mean counts. */
static void define_axis(gpu_codegen_t *t, const pl_attr_t *attr, int k)
{
    const struct {
        const char *word, *plain, *adaptive;
    } words[] = {
        {"START%d(i)", "((i) * STRIDE%d - BEFORE%d)", "((i) * IN%d / OUT%d)"},
        {"COUNT%d(i)", "KERNEL%d",
         "((((i) + 1) * IN%d + OUT%d - 1) / OUT%d - START%d(i))"},
        {"EXTENT%d", "((KERNEL%d - 1) * DILATION%d + 1)", "0"},
        {"FIRST%d(p)",
         "((p) + BEFORE%d < EXTENT%d ? 0 : ((p) + BEFORE%d - EXTENT%d) / STRIDE%d + 1)",
         "((p) * OUT%d / IN%d)"},
        {"END%d(p)", "LEAST(((p) + BEFORE%d) / STRIDE%d + 1, OUT%d)",
         "((((p) + 1) * OUT%d + IN%d - 1) / IN%d)"},
        {"SIZE%d(i)",
         attr->counts_padding
             ? "(LEAST(START%d(i) + KERNEL%d, IN%d + BEFORE%d) - START%d(i))"
             : "(LEAST(START%d(i) + KERNEL%d, IN%d) - MOST(START%d(i), 0))",
         "COUNT%d(i)"},
    };
    char word[24];
    for (size_t n = 0; n < sizeof words / sizeof *words; n++) {
        const char *at = attr->adaptive ? words[n].adaptive : words[n].plain;
        char text[128];
        size_t used = 0;
        for (; *at && used + 1 < sizeof text; at++)         /* each %d is the axis */
            if (at[0] == '%')
                text[used++] = (char)('0' + k), at++;
            else
                text[used++] = *at;
        text[used] = '\0';
        snprintf(word, sizeof word, "%.*s%d%s", (int)strcspn(words[n].word, "%"),
                 words[n].word, k, strchr(words[n].word, '%') + 2);
        gpu_define(t, word, "%s", text);
    }
}

static void print_pool(gpu_codegen_t *t, const pl_op_t *op)
{
    static const struct {
        pl_opcode_t code;
        const char *body;
        bool grad, has_places;
    } kinds[] = {{PL_OP_max_pool, "pool", false, true},
                 {PL_OP_max_pool_grad, "pool_grad", true, true},
                 {PL_OP_avg_pool, "average", false, false},
                 {PL_OP_avg_pool_grad, "average_grad", true, false}};
    int kind = 0;
    while (kinds[kind].code != op->code)
        kind++;
    const bool grad = kinds[kind].grad;
    const pl_shape_t x = shape_of(t, grad ? op->output[0] : op->input[0]),
                     y = shape_of(t, grad ? op->input[0] : op->output[0]);
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_windows(t, op, x, y);
    gpu_define(t, "LEAST(a, b)", "((a) < (b) ? (a) : (b))");
    gpu_define(t, "MOST(a, b)", "((a) > (b) ? (a) : (b))");
    for (int k = 0; k < PL_SPACE; k++)
        define_axis(t, &op->attr, k);
    gpu_define_number(t, "N", pl_elements(grad ? x : y));
    gpu_define_store(t, "Y", op->output[0]);
    gpu_define_load(t, grad ? "DY" : "X", op->input[0]);
    if (kinds[kind].has_places && grad)
        gpu_define_load(t, "WHERE", op->input[1]);
    else if (kinds[kind].has_places)
        gpu_define_store(t, "WHERE", op->output[1]);
    gpu_print_elementwise(t, kinds[kind].body, pl_elements(grad ? x : y));
}

bool gpu_print_space(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    switch (op->code) {
    case PL_OP_conv: print_convolution(t, op); return true;
    case PL_OP_conv_grad_x: print_convolution_grad_x(t, op); return true;
    case PL_OP_conv_grad_w: print_convolution_grad_w(t, op); return true;
    case PL_OP_avg_pool:
    case PL_OP_avg_pool_grad:
    case PL_OP_max_pool:
    case PL_OP_max_pool_grad: print_pool(t, op); return true;
    default: return false;
    }
}
