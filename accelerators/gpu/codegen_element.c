/* codegen_element.c - units of element-wise operations as kernels
 *
 * A thread takes four elements at a time, or one if their number or alignment does not
 * allow it.  Consecutive units that are independent become parts of one kernel, side by
 * side: an optimizer has one unit for each range of parameters.  Each group adds up the
 * totals of a block of a fixed number of elements, and the last group adds up the sums of
 * the blocks in order: so the bits depend only on the sizes. */
#include <stdio.h>
#include <string.h>

#include "accelerators/gpu/codegen.h"
#include "base/alloc.h"
#include "base/error.h"

enum {
    THREADS = 256,
    GROUPS_MAX = 4096,
    BLOCK = 4096,                                          /* elements of a partial sum */
};

/* ---- Totals ---- */

static int64_t blocks_of(const gpu_unit_t *u)
{
    return (u->n + BLOCK - 1) / BLOCK;
}

/* "a5[0] = …": a sum in float64 as the result of a total. */
static void print_sum(gpu_unit_t *u, int k, const char *sum)
{
    gpu_codegen_t *t = u->t;
    const pl_op_t *op = u->total[k];
    const pl_dtype_t dtype = u->t->g->value[op->output[0]].dtype;
    const gpu_buffer_t buffer = gpu_buffer_of(t, op->output[0]);
    if (t->allocation[op->output[0]].kind == PL_ALLOCATION_NONE)
        return;
    const int a = gpu_argument(t, &buffer, gpu_type(dtype), true);
    if (op->code == PL_OP_norm)
        gpu_print(t, "store_%s(a%d, 0, %a * sqrt(%s));\n", gpu_suffix(dtype), a,
                  op->attr.a, sum);
    else
        gpu_print(t, "store_%s(a%d, 0, %s);\n", gpu_suffix(dtype), a, sum);
}

/* ---- The unit ---- */

/* Elements at a time: 4 if all operands that are read element by element allow it. */
static int width_of(const gpu_unit_t *u)
{
    const gpu_codegen_t *t = u->t;
    if (u->n % 4)
        return 1;
    for (int i = u->from; i < u->to; i++) {
        const pl_op_t *op = &t->g->op[i];
        for (int k = 0; k < op->input_count + op->output_count; k++) {
            const int32_t value = k < op->input_count ? op->input[k]
                                                      : op->output[k - op->input_count],
                          root = t->fusion->root[value];
            const pl_value_t *v = &u->t->g->value[root];
            if (v->source == PL_FROM_CONSTANT || v->source == PL_FROM_SCALAR
                || pl_elements(v->shape) != u->n)
                continue;
            const gpu_buffer_t buffer = gpu_buffer_of(t, root);
            if (!gpu_is_aligned(&buffer, v->dtype))
                return 1;
        }
    }
    return 4;
}

static void print_head(gpu_unit_t *u, int threads)
{
    gpu_codegen_t *t = u->t;
    const int step = threads * u->width;
    if (!threads) {
        gpu_print(t, "for (int64_t i = THREAD * %d; i < %lld; i += THREADS * %d) {\n",
                  u->width, (long long)u->n, u->width);
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

static int64_t groups_of(int64_t groups)
{
    return groups < GROUPS_MAX ? groups : GROUPS_MAX;
}

/* A group adds up the totals of a block; the last group adds up the sums of all
 * blocks. */
static void print_with_totals(gpu_unit_t *u)
{
    gpu_codegen_t *t = u->t;
    const int threads = u->n <= 32 * u->width ? 32 : THREADS;
    const int64_t blocks = blocks_of(u);
    gpu_kernel_begin(t, "element");
    if (blocks > 1)
        gpu_define_counters(t, "COUNTER", 1);
    print_head(u, threads);
    print_ops(u);
    gpu_print(t, "}\n");
    int a = 0;                                              /* the sums of the blocks */
    if (blocks > 1) {
        const size_t bytes = (size_t)blocks * (size_t)u->totals * sizeof(double);
        if (t->scratch < bytes)
            t->scratch = bytes;
        a = gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_SCRATCH, .bytes = bytes},
                         "double", true);
    }
    for (int k = 0; k < u->totals; k++) {
        char sum[16];
        snprintf(sum, sizeof sum, "sum%d", k);
        gpu_print(t,
                  "const double sum%d = group_sum64((double)total%d, rows);\n"
                  "if (THREAD == 0) {\n",
                  k, k);
        if (blocks > 1)
            gpu_print(t, "a%d[%lld + block] = sum%d;\n", a, (long long)(k * blocks), k);
        else
            print_sum(u, k, sum);
        gpu_print(t, "}\n");
    }
    gpu_print(t, "}\n");
    if (blocks > 1)                    /* the last group adds up the sums of all blocks */
        gpu_print(t,
                  "if (!is_last_group(&COUNTER[0], (uint32_t)GROUPS, last))\nreturn;\n");
    for (int k = 0; k < u->totals && blocks > 1; k++) {
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
    gpu_kernel_end(t, groups_of(blocks), threads);
}

/* ---- Operands of a unit ---- */

typedef struct operand {
    gpu_buffer_t buffer;
    const char *type;
    bool is_written;
} operand_t;

typedef struct unit_operands {
    operand_t *list;                                      /* [count] buffers, each once */
    int count;
    bool changes;                                           /* a region */
} unit_operands_t;

static void operand_put(unit_operands_t *o, const gpu_buffer_t *buffer, pl_dtype_t dtype,
                        bool is_written)
{
    int k = 0;
    while (k < o->count
           && (o->list[k].buffer.at != buffer->at
               || o->list[k].buffer.index != buffer->index
               || o->list[k].buffer.offset != buffer->offset))
        k++;
    if (k == o->count)
        o->list[o->count++] = (operand_t){*buffer, gpu_type(dtype), is_written};
    o->list[k].is_written |= is_written;
    o->changes |= is_written && buffer->at == GPU_IN_REGION;
}

static void operand_add(unit_operands_t *o, const gpu_codegen_t *t, int32_t value,
                        bool is_written)
{
    const int32_t root = t->fusion->root[value];
    const pl_value_t *v = &t->g->value[root];
    if (v->source == PL_FROM_CONSTANT || v->source == PL_FROM_SCALAR
        || t->allocation[root].kind == PL_ALLOCATION_NONE
        || (v->source == PL_FROM_OP && t->fusion->inside[root]))
        return;
    const gpu_buffer_t buffer = gpu_buffer_of(t, root);
    operand_put(o, &buffer, v->dtype, is_written);
    if (!is_written || !t->low || buffer.at != GPU_IN_REGION
        || buffer.index != PL_REGION_PARAMS)
        return;
    const gpu_buffer_t low = gpu_low_of(t, &buffer, v->dtype);
    operand_put(o, &low, t->low_dtype, true);
}

static int operands_find(unit_operands_t *o, const gpu_codegen_t *t, int from, int to)
{
    const size_t max = (size_t)(to - from) * 2 * (PL_OP_INPUTS + PL_OP_OUTPUTS);
    *o = (unit_operands_t){.list = pl_alloc_array(max, sizeof *o->list)};
    for (int i = from; i < to && o->list; i++) {
        const pl_op_t *op = &t->g->op[i];
        if (op->code == PL_OP_reshape)
            continue;
        for (int k = 0; k < op->input_count; k++)
            operand_add(o, t, op->input[k], op->code == PL_OP_assign && k == 0);
        for (int k = 0; k < op->output_count; k++)
            operand_add(o, t, op->output[k], true);
    }
    return o->list ? PL_OK : PL_ENOMEM;
}

/* ---- Units side by side ---- */

enum { BLOCKS = 2 };                  /* more arguments: the step and the control block */

static bool overlaps(const gpu_buffer_t *a, const gpu_buffer_t *b)
{
    return a->at == b->at && a->index == b->index && a->offset < b->offset + b->reach
           && b->offset < a->offset + a->reach;
}

/* Whether a unit can be a part of the current kernel: there are enough arguments, and
 * neither writes what the other one reads or writes. */
static bool can_join(const gpu_codegen_t *t, const unit_operands_t *o)
{
    if (!t->part_groups || t->part_changes != o->changes || t->error.code != PL_OK)
        return false;
    const gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    int arguments = kernel->launch[0].count + BLOCKS;
    for (int k = 0; k < o->count; k++) {
        bool is_there = false;
        for (int i = 0; i < kernel->launch[0].count; i++) {
            const gpu_buffer_t *buffer = &kernel->buffer[i];
            if (!overlaps(buffer, &o->list[k].buffer))
                continue;
            if (buffer->writes || o->list[k].is_written)
                return false;
            is_there |= buffer->offset == o->list[k].buffer.offset;
        }
        arguments += !is_there;
    }
    return arguments <= PL_LAUNCH_ADDRESSES;
}

/* The unit becomes a part of the current kernel, or of a new one. */
static void print_part(gpu_unit_t *u, const unit_operands_t *o, bool joins)
{
    gpu_codegen_t *t = u->t;
    const int step = THREADS * u->width;
    const int64_t groups = groups_of((u->n + step - 1) / step);
    if (!joins) {
        gpu_kernel_begin(t, "element");
        t->parts_from = t->from;
        t->parts_to = t->to;
        t->part_changes = o->changes;
    } else {
        t->text_kernels++;
    }
    gpu_print(t,
              "if (GROUP >= %lld && GROUP < %lld) {\n"
              "for (int64_t i = (GROUP - %lld) * %d + THREAD * %d; i < %lld; i += %lld) "
              "{\n",
              (long long)t->part_groups, (long long)(t->part_groups + groups),
              (long long)t->part_groups, step, u->width, (long long)u->n,
              (long long)groups * step);
    print_ops(u);
    gpu_print(t, "}\n}\n");
    t->part_groups += groups;
}

/* Whether an operand overlaps another buffer of the current kernel, or has another size
 * there: check.c could not decide which of both is there at the end. */
static bool overlaps_another(const gpu_codegen_t *t, const unit_operands_t *o)
{
    const gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    for (int k = 0; k < o->count; k++)
        for (int i = 0; i < kernel->launch[0].count; i++)
            if (overlaps(&kernel->buffer[i], &o->list[k].buffer)
                && (kernel->buffer[i].offset != o->list[k].buffer.offset
                    || kernel->buffer[i].reach != o->list[k].buffer.reach
                    || strcmp(t->type[i], o->list[k].type)))
                return true;
    return false;
}

void gpu_print_element(gpu_codegen_t *t, int from, int to)
{
    gpu_unit_t *u = pl_alloc(sizeof *u);
    unit_operands_t operands;
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
    if (operands_find(&operands, t, from, to) != PL_OK) {
        pl_no_memory(&t->error);
    } else if (u->totals_ahead) {
        print_with_totals(u);
    } else {
        const bool joins = can_join(t, &operands);
        const bool is_small = !joins && u->n <= (int64_t)THREADS * u->width;
        if (is_small) {
            if (t->is_small && t->error.code == PL_OK && overlaps_another(t, &operands))
                gpu_parts_close(t);
            gpu_small_begin(t, "element", operands.count + BLOCKS);
            print_head(u, 0);
            print_ops(u);
            gpu_print(t, "}\n");
            gpu_small_end(t, operands.changes);
        } else {
            print_part(u, &operands, joins);
        }
    }
    pl_free(operands.list);
    pl_free(u->loop.text);
    pl_free(u);
}
