/* text_element.c - units of element-wise operations as kernels
 *
 * A thread takes four elements at a time, or one where their number or place does not
 * allow it.  Totals are added up in blocks of a fixed number of elements, a group each,
 * and the sums of the blocks in order by the last group: the bits follow from the sizes
 * alone. */
#include <stdio.h>

#include "accelerators/gpu/text_unit.h"
#include "base/alloc.h"
#include "base/error.h"

enum {
    THREADS = 256,
    GROUPS_MOST = 4096,
    BLOCK = 4096, /* elements of a partial sum */
};

static const pl_value_t *value_of(const gpu_unit_t *u, int32_t value)
{
    return &u->t->g->value[value];
}

/* ---- Totals ---- */

static int64_t blocks_of(const gpu_unit_t *u)
{
    return (u->n + BLOCK - 1) / BLOCK;
}

/* "a5[0] = …": a sum in float64 as the result of a total. */
static void print_sum(gpu_unit_t *u, int k, const char *sum)
{
    gpu_text_t *t = u->t;
    const pl_op_t *op = u->total[k];
    const pl_dtype_t dtype = value_of(u, op->output[0])->dtype;
    const gpu_spot_t spot = gpu_spot_of(t, op->output[0]);
    if (t->home[op->output[0]].place == PL_PLACE_NOWHERE)
        return;
    const int a = gpu_argument(t, &spot, gpu_type(dtype), true);
    if (op->code == PL_OP_norm)
        gpu_print(t, "store_%s(a%d, 0, %a * sqrt(%s));\n", gpu_suffix(dtype), a,
                  op->attr.a, sum);
    else
        gpu_print(t, "store_%s(a%d, 0, %s);\n", gpu_suffix(dtype), a, sum);
}

static int partials(gpu_unit_t *u)
{
    const size_t bytes = (size_t)blocks_of(u) * (size_t)u->totals * sizeof(double);
    if (u->t->scratch < bytes)
        u->t->scratch = bytes;
    return gpu_argument(u->t, &(gpu_spot_t){.at = GPU_AT_SCRATCH, .bytes = bytes},
                        "double", true);
}

/* Behind the loop of a block. */
static void print_block_end(gpu_unit_t *u)
{
    gpu_text_t *t = u->t;
    const int64_t blocks = blocks_of(u);
    const int a = blocks > 1 ? partials(u) : 0;
    for (int k = 0; k < u->totals; k++) {
        gpu_print(t,
                  "const double sum%d = group_sum64((double)total%d, rows);\n"
                  "if (THREAD == 0) {\n",
                  k, k);
        if (blocks > 1) {
            gpu_print(t, "a%d[%lld + block] = sum%d;\n", a, (long long)(k * blocks), k);
        } else {
            char sum[16];
            snprintf(sum, sizeof sum, "sum%d", k);
            print_sum(u, k, sum);
        }
        gpu_print(t, "}\n");
    }
}

/* The sums of all blocks, by the last group. */
static void print_totals(gpu_unit_t *u)
{
    gpu_text_t *t = u->t;
    const int64_t blocks = blocks_of(u);
    const int a = partials(u);
    gpu_print(t, "if (!is_last_group(&COUNTER[0], (uint32_t)GROUPS, last))\nreturn;\n");
    for (int k = 0; k < u->totals; k++) {
        gpu_print(t,
                  "double all%d = 0.0;\n"
                  "for (int64_t block = THREAD; block < %lld; block += THREADS)\n"
                  "all%d += a%d[%lld + block];\n"
                  "all%d = group_sum64(all%d, rows);\nif (THREAD == 0) {\n",
                  k, (long long)blocks, k, a, (long long)(k * blocks), k, k);
        char sum[16];
        snprintf(sum, sizeof sum, "all%d", k);
        print_sum(u, k, sum);
        gpu_print(t, "}\n");
    }
}

/* ---- The unit ---- */

/* Four at a time where all that goes element by element allows it. */
static int width_of(const gpu_unit_t *u)
{
    const gpu_text_t *t = u->t;
    if (u->n % 4)
        return 1;
    for (int i = u->from; i < u->to; i++) {
        const pl_op_t *op = &t->g->op[i];
        for (int k = 0; k < op->input_count + op->output_count; k++) {
            const int32_t value = k < op->input_count ? op->input[k]
                                                      : op->output[k - op->input_count],
                          root = t->fusion->root[value];
            const pl_value_t *v = value_of(u, root);
            if (v->source == PL_FROM_CONSTANT || v->source == PL_FROM_SCALAR
                || pl_elements(v->shape) != u->n)
                continue;
            const gpu_spot_t spot = gpu_spot_of(t, root);
            if (!gpu_is_aligned(&spot, v->dtype))
                return 1;
        }
    }
    return 4;
}

static void print_head(gpu_unit_t *u, int threads)
{
    gpu_text_t *t = u->t;
    const int step = threads * u->width;
    if (!threads) {
        gpu_print(t,
                  "for (int64_t i = THREAD * %d; i < %lld; i += THREADS * %d) {\n",
                  u->width, (long long)u->n, u->width);
        return;
    }
    if (!u->totals_ahead) {
        gpu_print(t,
                  u->width == 1
                      ? "for (int64_t i = GROUP * %d + THREAD; i < %lld; i += GROUPS * "
                        "%d) {\n"
                      : "for (int64_t i = (GROUP * %d + THREAD) * 4; i < %lld; i += "
                        "GROUPS * %d) {\n",
                  threads, (long long)u->n, step);
        return;
    }
    gpu_print(t,
              "LOCAL_ARRAY(double, rows, GROUP_ROWS);\nLOCAL_ARRAY(int, last, 1);\n"
              "for (int64_t block = GROUP; block < %lld; block += GROUPS) {\n"
              "const int64_t end = block < %lld ? (block + 1) * %d : %lld;\n",
              (long long)blocks_of(u), (long long)blocks_of(u) - 1, BLOCK,
              (long long)u->n);
    for (int k = 0; k < u->totals_ahead; k++)
        gpu_print(t, "double total%d = 0.0;\n", k);
    gpu_print(t,
              u->width == 1
                  ? "for (int64_t i = block * %d + THREAD; i < end; i += %d) {\n"
                  : "for (int64_t i = block * %d + THREAD * 4; i < end; i += %d) {\n",
              BLOCK, step);
}

static void print_ops(gpu_unit_t *u)
{
    for (int i = u->from; i < u->to && u->t->error.code == PL_OK; i++)
        if (u->t->g->op[i].code != PL_OP_reshape)
            gpu_unit_op(u, i);
    gpu_unit_print(u);
}

static void print_unit(gpu_unit_t *u)
{
    gpu_text_t *t = u->t;
    const int64_t pieces = (u->n + u->width - 1) / u->width;
    const int threads = pieces <= 32 ? 32 : THREADS;
    int64_t groups = u->totals_ahead ? blocks_of(u) : (pieces + threads - 1) / threads;
    gpu_kernel_begin(t, "element");
    if (u->totals_ahead && blocks_of(u) > 1)
        gpu_define_counters(t, "COUNTER", 1);
    print_head(u, threads);
    print_ops(u);
    gpu_print(t, "}\n");
    if (u->totals) {
        print_block_end(u);
        gpu_print(t, "}\n");
        if (blocks_of(u) > 1)
            print_totals(u);
    }
    gpu_kernel_end(t, groups < GROUPS_MOST ? groups : GROUPS_MOST, threads);
}

/* Few elements: a part of a small kernel. */
static void print_small(gpu_unit_t *u)
{
    gpu_text_t *t = u->t;
    int arguments = 2;
    for (int i = u->from; i < u->to; i++)
        arguments += t->g->op[i].input_count + t->g->op[i].output_count;
    gpu_small_begin(t, "element", arguments);
    print_head(u, 0);
    print_ops(u);
    gpu_print(t, "}\n");
    bool changes = false;
    for (int k = 0; k < u->stores; k++)
        changes |= u->store[k].spot.at == GPU_AT_REGION;
    gpu_small_end(t, changes);
}

void gpu_print_element(gpu_text_t *t, int from, int to)
{
    gpu_unit_t *u = pl_alloc(sizeof *u);
    if (u)
        *u = (gpu_unit_t){.t = t, .from = from, .to = to};
    if (!u) {
        pl_no_memory(&t->error);
        return;
    }
    for (int i = from; i < to; i++) {
        if (t->g->op[i].code != PL_OP_reshape)
            u->n = pl_op_elements(t->g, &t->g->op[i]);
        u->totals_ahead += pl_is_total(t->g, &t->g->op[i]);
    }
    u->width = width_of(u);
    if (!u->totals_ahead && u->n <= (int64_t)THREADS * u->width)
        print_small(u);
    else
        print_unit(u);
    pl_free(u->loop.text);
    pl_free(u);
}
