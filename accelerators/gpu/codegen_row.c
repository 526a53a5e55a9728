/* codegen_row.c - operators along rows as kernels: softmax, norms, tables, losses,
 * counts */
#include <stdio.h>

#include "accelerators/gpu/codegen.h"

static pl_shape_t shape_of(const gpu_codegen_t *t, int32_t value)
{
    return t->g->value[value].shape;
}

static int64_t last_of(pl_shape_t shape)
{
    return shape.dim[shape.rank - 1];
}

/* ROWS and WIDTH. */
static void define_rows(gpu_codegen_t *t, int64_t rows, int64_t width)
{
    gpu_define_number(t, "ROWS", rows);
    gpu_define_number(t, "WIDTH", width);
}

static void end_rows(gpu_codegen_t *t, const char *body, int64_t rows, int64_t width)
{
    gpu_include(t, body);
    gpu_kernel_end(t, gpu_row_groups(rows), gpu_row_threads(width));
}

static void print_softmax(gpu_codegen_t *t, const pl_op_t *op)
{
    const bool grad = op->code == PL_OP_softmax_grad;
    const pl_shape_t x = shape_of(t, op->input[0]);
    const int64_t width = last_of(x), rows = pl_elements(x) / width;
    gpu_kernel_begin(t, pl_operators[op->code].name);
    if (grad)
        gpu_define_load(t, "DY", op->input[0]);
    gpu_define_load(t, "X", op->input[grad]);
    gpu_define_store(t, "Y", op->output[0]);
    define_rows(t, rows, width);
    end_rows(t, grad ? "softmax_grad" : "softmax", rows, width);
}

/* ---- Norms ---- */

static void define_epsilon(gpu_codegen_t *t, const pl_op_t *op)
{
    char number[40];
    gpu_define(t, "EPSILON", "%s", gpu_number(t, op->attr.a, number));
}

/* Values of a row that a thread keeps in registers  [0: too many]. */
static int64_t kept_of(int64_t width)
{
    const int threads = gpu_row_threads(width);
    const int64_t kept = (width + threads - 1) / threads;
    return kept <= 32 ? kept : 0;
}

static void define_normal(gpu_codegen_t *t, const pl_op_t *op)
{
    gpu_define_load(t, "DY", op->input[0]);
    gpu_define_load(t, "X", op->input[1]);
    gpu_define_load(t, "MEAN", op->input[3]);
}

/* Sums of rows have few groups, because each group writes a partial sum. */
enum { SUM_GROUPS = 792, BUNDLE = 32 };

/* W_AT(row, i): the index of the weight of an element of a row of layer_norm; -> the
 * weights of a row. */
static int64_t define_weight_index(gpu_codegen_t *t, const pl_op_t *op, pl_shape_t w,
                                   int64_t width)
{
    const int64_t sets = op->attr.to ? op->attr.to : 1,
                  channels = w.rank ? w.dim[0] / sets : 1;
    gpu_define(t, "W_AT(row, i)", "((row) %% %lld * %lld + (i) / %lld)", (long long)sets,
               (long long)channels, (long long)(width / channels));
    return channels;
}

/* dw and db of rows that have weights for runs of elements: [rows / sets, sets,
 * channels, run], summed over rows and runs. */
static void print_run_sums(gpu_codegen_t *t, const pl_op_t *op, int64_t rows,
                           int64_t width)
{
    const int64_t sets = op->attr.to ? op->attr.to : 1,
                  weights = shape_of(t, op->input[2]).dim[0],
                  run = width * sets / weights;
    for (int k = 1; k < 3; k++) {
        if (!gpu_is_allocated(t, op->output[k]))
            continue;
        gpu_kernel_begin(t, k == 1 ? "layer_norm_dw" : "layer_norm_db");
        define_rows(t, weights, rows / sets * run);
        define_normal(t, op);
        gpu_define_load(t, "RSTD", op->input[4]);
        gpu_define(t, "AT(row, i)", "(((i) / %lld * %lld + (row)) * %lld + (i) %% %lld)",
                   (long long)run, (long long)weights, (long long)run, (long long)run);
        gpu_define(t, "ROW(row, i)", "((i) / %lld * %lld + (row) / %lld)", (long long)run,
                   (long long)sets, (long long)(weights / sets));
        gpu_define(t, "TERM(row, i)",
                   k == 1 ? "DY(AT(row, i)) * ((X(AT(row, i)) - MEAN(ROW(row, i))) * "
                            "RSTD(ROW(row, i)))"
                          : "DY(AT(row, i))");
        gpu_define_store(t, "Y", op->output[k]);
        end_rows(t, "sums", weights, rows / sets * run);
    }
}

static void print_layer_norm_grad(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t x = shape_of(t, op->input[1]), w = shape_of(t, op->input[2]);
    const int64_t width = last_of(x), rows = pl_elements(x) / width,
                  groups = rows < SUM_GROUPS ? rows : SUM_GROUPS,
                  bundles = (groups + BUNDLE - 1) / BUNDLE, kept = kept_of(width);
    const bool is_plain = w.rank == 1 && w.dim[0] == width && op->attr.to <= 1,
               sums = is_plain && kept;
    if (w.rank && !is_plain)                    /* first: DX may overwrite their inputs */
        print_run_sums(t, op, rows, width);
    for (int k = 1; k < 3 && is_plain && !kept; k++) {
        if (!gpu_is_allocated(t, op->output[k]))
            continue;
        gpu_kernel_begin(t, k == 1 ? "layer_norm_dw" : "layer_norm_db");
        define_normal(t, op);
        gpu_define_load(t, "RSTD", op->input[4]);
        gpu_define(t, "AT(row, column)", "((row) * COLUMNS + (column))");
        gpu_define(t, "TERM(row, column)",
                   k == 1 ? "DY(AT(row, column)) * ((X(AT(row, column)) - MEAN(row)) * "
                            "RSTD(row))"
                          : "DY(AT(row, column))");
        gpu_print_columns(t, rows, width, 0, op->output[k]);
    }
    gpu_kernel_begin(t, "layer_norm_grad");
    define_normal(t, op);
    gpu_define_load(t, "WEIGHT", op->input[2]);
    define_weight_index(t, op, w, width);
    gpu_define(t, "W(row, i)", is_plain ? "WEIGHT(i)" : "WEIGHT(W_AT(row, i))");
    gpu_define_load(t, "RSTD", op->input[4]);
    gpu_define_store(t, "DX", op->output[0]);
    define_rows(t, rows, width);
    gpu_define_number(t, "KEPT", kept);
    gpu_define_number(t, "SUMS", sums);
    gpu_define_number(t, "IS_RMS", op->attr.is_rms);
    if (sums) {
        gpu_define_store(t, "DW", op->output[1]);
        gpu_define_store(t, "DB", op->output[2]);
        gpu_define_number(t, "BUNDLE", BUNDLE);
        gpu_define_scratch(t, "PARTIAL", 0, (groups + bundles) * 2 * width);
        gpu_define_counters(t, "COUNTER", 1 + bundles);
    }
    gpu_include(t, "layer_norm_grad");
    gpu_kernel_end(t, sums ? groups : gpu_row_groups(rows), gpu_row_threads(width));
}

typedef struct channels {
    int64_t count, inner, size;                          /* size: values of one channel */
} channels_t;

/* [B, channels, …]; AT(channel, i) is the i-th value of a channel, CHANNEL(e) the
 * channel of element e. */
static channels_t define_channels(gpu_codegen_t *t, pl_shape_t x)
{
    channels_t c = {.count = x.dim[1]};
    c.inner = pl_elements(x) / (x.dim[0] * x.dim[1]);
    c.size = x.dim[0] * c.inner;
    gpu_define(t, "AT(channel, i)",
               "(((i) / %lld * %lld + (channel)) * %lld + (i) %% %lld)",
               (long long)c.inner, (long long)c.count, (long long)c.inner,
               (long long)c.inner);
    gpu_define(t, "CHANNEL(e)", "((e) / %lld %% %lld)", (long long)c.inner,
               (long long)c.count);
    return c;
}

/* layer_norm, or batch_norm with channels as rows. */
static void print_norm(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t x = shape_of(t, op->input[0]);
    const bool batch = op->code == PL_OP_batch_norm;
    int64_t width = last_of(x), rows = pl_elements(x) / width;
    /* where element i of a row lies, and the index of its weight and bias */
    const pl_shape_t w = shape_of(t, op->input[1]);
    const bool is_plain = !w.rank || (w.dim[0] == width && op->attr.to <= 1);
    const char *const at = batch ? "AT(row, i)" : "(row) * WIDTH + (i)";
    const char *const of = batch ? "row" : is_plain ? "i" : "W_AT(row, i)";
    gpu_kernel_begin(t, pl_operators[op->code].name);
    if (batch) {
        const channels_t c = define_channels(t, x);
        rows = c.count;
        width = c.size;
    } else {
        define_weight_index(t, op, w, width);
    }
    gpu_define_number(t, "IS_RMS", op->attr.is_rms);
    define_rows(t, rows, width);
    define_epsilon(t, op);
    gpu_define_load(t, "IN", op->input[0]);
    gpu_define(t, "X(row, i)", "IN(%s)", at);
    gpu_define_load(t, "W", op->input[1]);
    gpu_define_load(t, "B", op->input[2]);
    gpu_define_store(t, "OUT", op->output[0]);
    gpu_define(t, "Y(row, i, n)", "OUT(%s, (n) * W(%s) + B(%s))", at, of, of);
    gpu_define_store(t, "MEAN", op->output[1]);
    if (batch) {
        gpu_define_store(t, "VAR", op->output[2]);
        gpu_define(t, "RSTD(row, v)", "((void)(v))");
    } else {
        gpu_define(t, "VAR(row, v)", "((void)(v))");
        gpu_define_store(t, "RSTD", op->output[2]);
    }
    gpu_define_number(t, "KEPT", kept_of(width));
    end_rows(t, "norm", rows, width);
}

static void print_batch_norm_with(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t x = shape_of(t, op->input[0]);
    gpu_kernel_begin(t, "batch_norm_with");
    define_channels(t, x);
    define_epsilon(t, op);
    gpu_define_load(t, "X", op->input[0]);
    gpu_define_load(t, "W", op->input[1]);
    gpu_define_load(t, "B", op->input[2]);
    gpu_define_load(t, "MEAN", op->input[3]);
    gpu_define_load(t, "VAR", op->input[4]);
    gpu_define_store(t, "PUT", op->output[0]);
    gpu_define(t, "FROM(i)",
               "((X(i) - MEAN(CHANNEL(i))) * (W(CHANNEL(i)) / sqrtf(VAR(CHANNEL(i)) + "
               "EPSILON)) + B(CHANNEL(i)))");
    gpu_define_number(t, "N", pl_elements(x));
    gpu_print_elementwise(t, "copy", pl_elements(x));
}

/* dw = sum(dy n) and db = sum(dy) of each channel, which are inputs or are summed here
 * and kept in scratch; then dx = w rstd (dy - db / n - (x - mean) rstd dw / n). */
static void print_batch_norm_grad(gpu_codegen_t *t, const pl_op_t *op)
{
    const pl_shape_t x = shape_of(t, op->input[1]);
    const bool given = op->input_count == 8;
    const int64_t channels = x.dim[1];
    for (int k = 1; k < 3 && !given; k++) {
        gpu_kernel_begin(t, k == 1 ? "batch_norm_dw" : "batch_norm_db");
        const channels_t c = define_channels(t, x);
        define_rows(t, c.count, c.size);
        define_epsilon(t, op);
        define_normal(t, op);
        gpu_define_load(t, "VAR", op->input[4]);
        gpu_define(t, "TERM(row, i)",
                   k == 1 ? "DY(AT(row, i)) * ((X(AT(row, i)) - MEAN(row)) / "
                            "sqrtf(VAR(row) + EPSILON))"
                          : "DY(AT(row, i))");
        gpu_define_scratch(t, "SUMS", (size_t)(k - 1) * (size_t)channels * sizeof(double),
                           channels);
        gpu_define_store(t, "OUT", op->output[k]);
        gpu_define(t, "Y(row, v)", "(SUMS[row] = (v), OUT(row, v))");
        end_rows(t, "sums", c.count, c.size);
    }
    if (!gpu_is_allocated(t, op->output[0]))
        return;
    gpu_kernel_begin(t, "batch_norm_dx");
    const channels_t c = define_channels(t, x);
    define_epsilon(t, op);
    define_normal(t, op);
    gpu_define_load(t, "W", op->input[2]);
    gpu_define_load(t, "VAR", op->input[4]);
    gpu_define_store(t, "PUT", op->output[0]);
    if (given) {
        gpu_define_load(t, "DW", op->input[5]);
        gpu_define_load(t, "DB", op->input[6]);
        gpu_define_load(t, "COUNT", op->input[7]);
    } else {
        gpu_define_scratch(t, "SUMS", 0, 2 * channels);
        gpu_define(t, "DW(i)", "((real)SUMS[i])");
        gpu_define(t, "DB(i)", "((real)SUMS[%lld + (i)])", (long long)channels);
        gpu_define(t, "COUNT(i)", "((real)%lld)", (long long)c.size);
    }
    gpu_define(t, "RSTD(k)", "(1 / sqrtf(VAR(k) + EPSILON))");
    gpu_define(
        t, "OF(i, k)",
        "(W(k) * RSTD(k) * (DY(i) - DB(k) / COUNT(0) - (X(i) - MEAN(k)) * (RSTD(k) "
        "* DW(k) / COUNT(0))))");
    gpu_define(t, "FROM(i)", "OF(i, CHANNEL(i))");
    gpu_define_number(t, "N", pl_elements(x));
    gpu_print_elementwise(t, "copy", pl_elements(x));
}

/* ---- Tables ---- */

void gpu_define_check(gpu_codegen_t *t, int op, int64_t below)
{
    gpu_define(t, "CONTROL", "a%d",
               gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_CONTROL}, "control_t", true));
    gpu_define_number(t, "OPERATION", gpu_add_check(t, op, below));
}

static void print_embedding(gpu_codegen_t *t, const pl_op_t *op, int number)
{
    const pl_shape_t table = shape_of(t, op->input[1]);
    const int64_t n = pl_elements(shape_of(t, op->input[0]));
    gpu_kernel_begin(t, "embedding");
    gpu_define_load(t, "INDEX", op->input[0]);
    gpu_define_load(t, "TABLE", op->input[1]);
    gpu_define_store(t, "Y", op->output[0]);
    gpu_accesses_rows(t, op->input[1], n);
    gpu_define_number(t, "N", n);
    gpu_define_number(t, "WIDTH", table.dim[1]);
    gpu_define_number(t, "TABLE_ROWS", table.dim[0]);
    gpu_define_check(t, number, table.dim[0]);
    end_rows(t, "embedding", n, table.dim[1]);
}

/* Sorts the positions by their index, and then adds up the rows of each index. */
void gpu_print_row_sums(gpu_codegen_t *t, int number)
{
    const pl_op_t *op = &t->g->op[number];
    const pl_shape_t result = shape_of(t, op->output[0]),
                     table = PL_SHAPE(result.dim[result.rank - 2], last_of(result));
    const int64_t n = pl_elements(shape_of(t, op->input[0]));
    int32_t target = -1;      /* gradient that an assign of the unit adds the result to */
    for (int i = t->to - 1; i > number; i--)
        if (t->g->op[i].code == PL_OP_assign && t->g->op[i].attr.accumulate)
            target = t->g->op[i].input[0];
    int64_t piece = 2;           /* positions that are sorted together, in local memory */
    while (piece < n && (piece < 1024 || (n / piece > 2048 && piece < 4096)))
        piece *= 2;
    const int64_t pieces = (n + piece - 1) / piece;
    for (int k = 0; k < 2; k++) {
        gpu_kernel_begin(t, k ? "embedding_grad" : "embedding_sort");
        gpu_define_number(t, "PIECE", piece);
        gpu_define_number(t, "PIECES", pieces);
        gpu_define_number(t, "TABLE_ROWS", table.dim[0]);
        gpu_define_scratch(t, "DOUBLES", 0, piece * pieces);
        gpu_define(t, "KEY", "((GLOBAL uint64_t *)DOUBLES)");
        if (!k) {
            gpu_define_number(t, "N", n);
            gpu_define_load(t, "INDEX", op->input[0]);
            gpu_define_check(t, number, table.dim[0]);
            gpu_include(t, "embedding_sort");
            gpu_kernel_end(t, gpu_row_groups(pieces), 256);
            continue;
        }
        gpu_define_load(t, "DY", op->input[1]);
        gpu_define_store(t, "Y", op->output[0]);
        gpu_define_number(t, "ADDS", target >= 0);
        gpu_define_number(t, "WIDTH", table.dim[1]);
        if (target >= 0)
            gpu_accesses_rows(t, target, n);
        end_rows(t, "embedding_grad", target < 0 ? table.dim[0] : piece * pieces,
                 table.dim[1]);
    }
}

/* ---- Losses and counts ---- */

static void define_targets(gpu_codegen_t *t, const pl_op_t *op, int logits)
{
    gpu_define_load(t, "X", op->input[logits]);
    gpu_define_load(t, "TARGET", op->input[logits + 1]);
    if (op->attr.has_ignore)
        gpu_define(t, "IGNORED(target)", "((target) == %lld)", (long long)op->attr.from);
    else
        gpu_define(t, "IGNORED(target)", "0");
}

/* WEIGHT: by the last two inputs, `first` and the next, if the operation has them. */
static void define_weights(gpu_codegen_t *t, const pl_op_t *op, int first)
{
    char number[40];
    gpu_define_number(t, "OF_LOGS", op->attr.of_logs);
    gpu_define_number(t, "SMOOTHED", op->attr.a > 0);
    gpu_define(t, "SMOOTHING", "%s", gpu_number(t, op->attr.a, number));
    if (op->input_count <= first) {
        gpu_define(t, "WEIGHT(row, target)", "((real)1)");
        return;
    }
    gpu_define_load(t, "CLASS", op->input[first]);
    gpu_define_load(t, "ROW", op->input[first + 1]);
    gpu_define(t, "WEIGHT(row, target)", "(CLASS(%s) * ROW(%s))",
               shape_of(t, op->input[first]).rank ? "target" : "0",
               shape_of(t, op->input[first + 1]).rank ? "row" : "0");
}

/* Whether four elements of a value can be loaded or stored at once: it is aligned, and no
 * operation of its unit comes between. */
static bool moves_by_four(const gpu_codegen_t *t, int32_t value, gpu_buffer_t *buffer)
{
    const int32_t root = t->allocation[value].root;
    const pl_value_t *v = &t->g->value[root];
    if (t->error.code != PL_OK || v->source == PL_FROM_CONSTANT
        || v->source == PL_FROM_SCALAR || !gpu_is_allocated(t, value)
        || (v->source == PL_FROM_OP && v->op >= t->from && v->op < t->core))
        return false;
    *buffer = gpu_buffer_of(t, value);
    return buffer->offset % (4 * pl_dtype_size(v->dtype)) == 0;
}

/* LOAD(i) and STORE(i, v) of four elements from i on, a multiple of four  [STORE NULL:
 * none]; false: not possible. */
static bool define_four(gpu_codegen_t *t, const char *load, int32_t from,
                        const char *store, int32_t to)
{
    gpu_buffer_t in, out;
    char word[24];
    if (!moves_by_four(t, from, &in) || (store && !moves_by_four(t, to, &out)))
        return false;
    const pl_dtype_t in_type = t->g->value[t->allocation[from].root].dtype;
    snprintf(word, sizeof word, "%.16s(i)", load);
    gpu_define(t, word, "load4_%s(a%d, i)", gpu_suffix(in_type),
               gpu_argument(t, &in, gpu_type(in_type), false));
    if (!store)
        return true;
    const pl_dtype_t out_type = t->g->value[to].dtype;
    snprintf(word, sizeof word, "%.16s(i, v)", store);
    gpu_define(t, word, "store4_%s(a%d, i, v)", gpu_suffix(out_type),
               gpu_argument(t, &out, gpu_type(out_type), true));
    return true;
}

static void print_cross_entropy(gpu_codegen_t *t, const pl_op_t *op, int number)
{
    const pl_shape_t x = shape_of(t, op->input[0]);
    const bool hits = op->code == PL_OP_correct;
    gpu_kernel_begin(t, pl_operators[op->code].name);
    define_targets(t, op, 0);
    define_rows(t, x.dim[0], x.dim[1]);
    gpu_define_check(t, number, x.dim[1]);
    gpu_define_scratch(t, "LOSS", 0, x.dim[0]);
    gpu_define_scratch(t, "COUNTED", (size_t)x.dim[0] * sizeof(double), x.dim[0]);
    gpu_define_store(t, "TOTAL_LOSS", op->output[0]);
    gpu_define_store(t, "TOTAL_COUNTED", op->output[1]);
    gpu_define_counters(t, "COUNTER", 1);
    if (hits) {
        gpu_define_number(t, "TOP", op->attr.to);
    } else {
        const pl_op_t *gradient = NULL;      /* of this loss, if it is in the same unit */
        for (int i = t->to - 1; i > number; i--)
            if (t->g->op[i].code == PL_OP_cross_entropy_grad)
                gradient = &t->g->op[i];
        define_weights(t, op, 2);
        gpu_define_store(t, "ROW_MAX", op->output[2]);
        gpu_define(t, "SUM(i, v)", "ROW_MAX(ROWS + (i), v)");
        gpu_define_number(t, "GRADIENT", gradient != NULL);
        if (gradient) {
            gpu_define_load(t, "DSUM", gradient->input[0]);
            gpu_define_store(t, "DX", gradient->output[0]);
        }
        gpu_define_number(t, "FOURS",
                          x.dim[1] % 4 == 0
                              && define_four(t, "X4", op->input[0],
                                             gradient ? "DX4" : NULL,
                                             gradient ? gradient->output[0] : 0));
    }
    gpu_include(t, hits ? "correct" : "cross_entropy");
    end_rows(t, "row_totals", x.dim[0], x.dim[1]);
}

static void print_cross_entropy_grad(gpu_codegen_t *t, const pl_op_t *op, int number)
{
    const pl_shape_t x = shape_of(t, op->input[1]);
    gpu_kernel_begin(t, "cross_entropy_grad");
    gpu_define_load(t, "DSUM", op->input[0]);
    define_targets(t, op, 1);
    define_weights(t, op, 4);
    define_rows(t, x.dim[0], x.dim[1]);
    gpu_define_check(t, number, x.dim[1]);
    gpu_define_load(t, "ROW_MAX", op->input[3]);
    gpu_define(t, "SUM(i)", "ROW_MAX(ROWS + (i))");
    gpu_define_store(t, "Y", op->output[0]);
    end_rows(t, "cross_entropy_grad", x.dim[0], x.dim[1]);
}

/* Counts as integers in scratch, by three kernels: zeros, counts, and the result. */
static void print_counts(gpu_codegen_t *t, const pl_op_t *op, int number)
{
    const pl_shape_t x = shape_of(t, op->input[0]);
    const bool bins = op->code == PL_OP_score_bins;
    const int64_t n = pl_elements(shape_of(t, op->output[0])),
                  classes = bins && x.dim[1] == 1 ? 2 : x.dim[1];
    for (int k = 0; k < 3; k++) {
        static const char *const names[] = {"counts_zero", "counts", "counts_end"};
        gpu_kernel_begin(t, names[k]);
        gpu_define_scratch(t, "DOUBLES", 0, (n + 1) / 2);
        gpu_define(t, "COUNT", "((GLOBAL uint32_t *)DOUBLES)");
        gpu_define_number(t, "N", n);
        if (k == 1) {
            define_targets(t, op, 0);
            define_rows(t, x.dim[0], x.dim[1]);
            gpu_define_check(t, number, classes);
            gpu_define_number(t, "CLASSES", classes);
            gpu_define_number(t, "BINS", op->attr.to);
            gpu_print_elementwise(t, bins ? "score_bins" : "confusion",
                                  bins ? x.dim[0] * x.dim[1] : x.dim[0]);
            continue;
        }
        gpu_define(t, "FROM(i)", k ? "COUNT[i]" : "0u");
        if (k)
            gpu_define_store(t, "PUT", op->output[0]);
        else
            gpu_define(t, "PUT(i, v)", "(COUNT[i] = (v))");
        gpu_print_elementwise(t, "copy", n);
    }
}

/* The order of additions depends only on the size of a block. */
static void print_block_norms(gpu_codegen_t *t, const pl_op_t *op)
{
    const int64_t n = pl_elements(shape_of(t, op->input[0])), width = op->attr.to,
                  blocks = pl_elements(shape_of(t, op->output[0]));
    gpu_kernel_begin(t, "block_norms");
    gpu_define_load(t, "X", op->input[0]);
    gpu_define_store(t, "Y", op->output[0]);
    gpu_define_number(t, "N", n);
    gpu_define_number(t, "LACKS", op->attr.from);
    gpu_define_number(t, "BLOCKS", blocks);
    gpu_define_number(t, "WIDTH", width);
    gpu_define(t, "SCALE", "%a", op->attr.a);
    gpu_include(t, "block_norms");
    gpu_kernel_end(t, gpu_row_groups(blocks), gpu_row_threads(width));
}

bool gpu_print_row(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    switch (op->code) {
    case PL_OP_softmax:
    case PL_OP_softmax_grad: print_softmax(t, op); return true;
    case PL_OP_layer_norm:
    case PL_OP_batch_norm: print_norm(t, op); return true;
    case PL_OP_layer_norm_grad: print_layer_norm_grad(t, op); return true;
    case PL_OP_batch_norm_with: print_batch_norm_with(t, op); return true;
    case PL_OP_batch_norm_grad: print_batch_norm_grad(t, op); return true;
    case PL_OP_embedding: print_embedding(t, op, i); return true;
    case PL_OP_embedding_grad: gpu_print_row_sums(t, i); return true;
    case PL_OP_cross_entropy:
    case PL_OP_correct: print_cross_entropy(t, op, i); return true;
    case PL_OP_cross_entropy_grad: print_cross_entropy_grad(t, op, i); return true;
    case PL_OP_block_norms: print_block_norms(t, op); return true;
    case PL_OP_power_sums:
        gpu_kernel_begin(t, "power_sums");
        gpu_define_load(t, "X", op->input[0]);
        gpu_define_store(t, "Y", op->output[0]);
        gpu_define_number(t, "N", pl_elements(shape_of(t, op->input[0])));
        gpu_include(t, "power_sums");
        gpu_kernel_end(t, 1, 32);
        return true;
    case PL_OP_confusion:
    case PL_OP_score_bins: print_counts(t, op, i); return true;
    default: return false;
    }
}
