/* codegen_attention.c - attention and its gradient as kernels that keep no scores */
#include <stdio.h>

#include "accelerators/gpu/codegen.h"

typedef struct sizes {
    int64_t heads, tokens, keys, width, rows;
} sizes_t;

/* Rows of queries and keys as they are turned: the numbers of pair p, COSINE(row, p) and
 * SINE(row, p), where the rows of keys are behind those of queries; for number e its pair
 * and partner, and SIGN(e) of the partner in it. */
static void define_turns(gpu_codegen_t *t, const pl_op_t *op)
{
    const bool halves = op->attr.axis > 1;
    gpu_define_number(t, "TURNS", op->attr.axis > 0);
    gpu_define_number(t, "APART", op->attr.axis);
    if (!op->attr.axis) {
        gpu_define(t, "DOTS", "WIDTH");
        gpu_define(t, "DOT(head, i, j, e)", "Q(head, i, e) * KEY(head, j, e)");
        gpu_define(t, "Q_TURNED(head, i, e)", "Q(head, i, e)");
        gpu_define(t, "KEY_TURNED(head, j, e)", "KEY(head, j, e)");
        gpu_define(t, "PARTNER(e)", "(e)");
        gpu_define(t, "TURN_BACK(row, e, own, partner)", "(own)");
        return;
    }
    gpu_define_load(t, "ANGLE", op->input[op->input_count - 1]);
    gpu_define(t, "COSINE(row, p)", "ANGLE((row) * WIDTH + (p))");
    gpu_define(t, "SINE(row, p)", "ANGLE((row) * WIDTH + WIDTH / 2 + (p))");
    gpu_define(t, "FIRST(p)", halves ? "(p)" : "(2 * (p))");
    gpu_define(t, "PAIR(e)", halves ? "((e) %% (WIDTH / 2))" : "((e) / 2)");
    gpu_define(t, "PARTNER(e)", "((e) == FIRST(PAIR(e)) ? (e) + APART : (e) - APART)");
    gpu_define(t, "SIGN(e)", "((e) == FIRST(PAIR(e)) ? -(real)1 : (real)1)");
    gpu_define(t, "DOTS", "(WIDTH / 2)");
    gpu_define(
        t, "DOT(head, i, j, p)",
        "turned_product(Q(head, i, FIRST(p)), Q(head, i, FIRST(p) + APART), "
        "COSINE(i, p), SINE(i, p), KEY(head, j, FIRST(p)), KEY(head, j, FIRST(p) + "
        "APART), COSINE(TOKENS + (j), p), SINE(TOKENS + (j), p))");
    gpu_define(t, "TURNED(row, e, own, partner)",
               "((own) * COSINE(row, PAIR(e)) + SIGN(e) * (partner) * SINE(row, "
               "PAIR(e)))");
    gpu_define(t, "TURN_BACK(row, e, own, partner)",
               "((own) * COSINE(row, PAIR(e)) - SIGN(e) * (partner) * SINE(row, "
               "PAIR(e)))");
    gpu_define(t, "Q_TURNED(head, i, e)",
               "TURNED(i, e, Q(head, i, e), Q(head, i, PARTNER(e)))");
    gpu_define(t, "KEY_TURNED(head, j, e)",
               "TURNED(TOKENS + (j), e, KEY(head, j, e), KEY(head, j, PARTNER(e)))");
}

/* NAME(head, i, e) of an input, read through its view: [B, heads, T, d]. */
static void define_view(gpu_codegen_t *t, const char *name, const pl_op_t *op, int k)
{
    const pl_view_t *view = &t->view[op->attr.from + k];
    char own[24], word[24];
    snprintf(own, sizeof own, "%.6s_IN", name);
    snprintf(word, sizeof word, "%.6s(head, i, e)", name);
    gpu_define_load(t, own, op->input[k]);
    gpu_define(
        t, word,
        "%s(%lld + (head) / HEADS * %lld + (head) %% HEADS * %lld + (i) * %lld + (e) * "
        "%lld)",
        own, (long long)view->offset, (long long)view->stride[0],
        (long long)view->stride[1], (long long)view->stride[2],
        (long long)view->stride[3]);
}

/* The layout of results: [B, T, heads, d], T queries or keys. */
#define RESULT_AT(T) \
    "(((head) / HEADS * " T " + (i)) * HEADS + (head) %% HEADS) * WIDTH + (e)"

/* NAME(head, i, e, v) of an output. */
static void define_output(gpu_codegen_t *t, const char *name, int32_t value, bool of_keys)
{
    char own[24], word[24];
    snprintf(own, sizeof own, "%.6s_OUT", name);
    snprintf(word, sizeof word, "%.6s(head, i, e, v)", name);
    gpu_define_store(t, own, value);
    if (of_keys)
        gpu_define(t, word, "%s(" RESULT_AT("KEYS") ", v)", own);
    else
        gpu_define(t, word, "%s(" RESULT_AT("TOKENS") ", v)", own);
}

/* Sizes and inputs of both kernels; `q` is the number of the queries. */
static sizes_t define_inputs(gpu_codegen_t *t, const pl_op_t *op, int q, int mask)
{
    const pl_shape_t shape = t->view[op->attr.from + q].shape;
    const sizes_t s = {.heads = shape.dim[1],
                       .tokens = shape.dim[2],
                       .keys = t->view[op->attr.from + q + 1].shape.dim[2],
                       .width = shape.dim[3],
                       .rows = shape.dim[0] * shape.dim[1] * shape.dim[2]};
    char number[40];
    gpu_define_number(t, "HEADS", s.heads);
    gpu_define_number(t, "TOKENS", s.tokens);
    gpu_define_number(t, "KEYS", s.keys);
    gpu_define_number(t, "WINDOW", op->attr.to ? op->attr.to : s.tokens + s.keys);
    gpu_define_number(t, "WIDTH", s.width);
    gpu_define_number(t, "ROWS", s.rows);
    gpu_define_number(t, "CAUSAL", op->attr.causal);
    gpu_define(t, "SCALE", "%s", gpu_number(t, op->attr.a, number));
    define_view(t, "Q", op, q);
    define_view(t, "KEY", op, q + 1);
    define_view(t, "V", op, q + 2);
    define_turns(t, op);
    const pl_view_t *view = &t->view[op->attr.from + mask];
    const bool has_mask = op->input_count - (op->attr.axis > 0) > mask,
               has_bias = has_mask && view->shape.rank == 4;
    if (has_mask)
        gpu_define_load(t, "MASK", op->input[mask]);
    if (has_bias)
        gpu_define(t, "BIAS(head, i, j)",
                   "MASK(%lld + (head) / HEADS * %lld + (head) %% HEADS * %lld + (i) * "
                   "%lld + (j))",
                   (long long)view->offset,
                   (long long)(view->shape.dim[0] > 1 ? view->stride[0] : 0),
                   (long long)(view->shape.dim[1] > 1 ? view->stride[1] : 0),
                   (long long)(view->shape.dim[2] > 1 ? view->stride[2] : 0));
    else
        gpu_define(t, "BIAS(head, i, j)", "((real)0)");
    gpu_define(t, "SEEN(head, i, j)", "(%s && (i) - (j) < WINDOW && (j) - (i) < WINDOW)",
               has_bias   ? "BIAS(head, i, j) > -(real)INFINITY"
               : has_mask ? "MASK((head) / HEADS * KEYS + (j)) != 0"
                          : "1");
    if (op->attr.b > 0)
        gpu_define(t, "KEEP(head, i, j)",
                   "dropout_factor(a%d, 0x%llxull, (uint64_t)(((head) * TOKENS + (i)) * "
                   "KEYS + (j)), %a)",
                   gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_STEP}, "step_t", false),
                   (unsigned long long)op->attr.stream, op->attr.b);
    else
        gpu_define(t, "KEEP(head, i, j)", "((real)1)");
    return s;
}

bool gpu_print_attention(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    const bool grad = op->code == PL_OP_attention_grad;
    if (!grad && op->code != PL_OP_attention)
        return false;
    gpu_kernel_begin(t, pl_operators[op->code].name);
    const sizes_t s = define_inputs(t, op, grad, grad ? 6 : 3);
    if (grad) {
        define_view(t, "DY", op, 0);
        gpu_define_load(t, "O_IN", op->input[4]);
        gpu_define(t, "O(head, i, e)", "O_IN(" RESULT_AT("TOKENS") ")");
        gpu_define_load(t, "ROW_MAX", op->input[5]);
        gpu_define(t, "SUM(i)", "ROW_MAX(ROWS + (i))");
        gpu_define_number(t, "KEY_ROWS", s.rows / s.tokens * s.keys);
        define_output(t, "DQ", op->output[0], false);
        define_output(t, "DK", op->output[1], true);
        define_output(t, "DV", op->output[2], true);
    } else {
        define_output(t, "Y", op->output[0], false);
        gpu_define_store(t, "ROW_MAX", op->output[1]);
        gpu_define(t, "SUM(i, v)", "ROW_MAX(ROWS + (i), v)");
    }
    gpu_include(t, pl_operators[op->code].name);
    const int64_t longest = s.tokens > s.keys ? s.tokens : s.keys;
    gpu_kernel_end(t, gpu_row_groups(s.rows + (grad ? s.rows / s.tokens * s.keys : 0)),
                   gpu_row_threads(longest > s.width ? longest : s.width));
    return true;
}
