/* codegen_control.c - kernels that decide and report: guards, and the sums of metrics */
#include <stdio.h>

#include "accelerators/gpu/codegen.h"
#include "base/alloc.h"

enum { THREADS = 256, METRICS = PL_LAUNCH_ADDRESSES / 3 - 1 /* of one kernel */ };

static int control_argument(gpu_codegen_t *t, bool writes)
{
    return gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_CONTROL}, "control_t", writes);
}

/* ---- Kernels of one group with parts ---- */

void gpu_small_begin(gpu_codegen_t *t, const char *what, int arguments)
{
    if (t->error.code != PL_OK)
        return;
    if (t->is_small
        && t->kernel[t->kernels - 1].launch[0].count + arguments + 1
               <= PL_LAUNCH_ADDRESSES) {
        gpu_print(t, "SYNC();\n");
    } else {
        gpu_kernel_begin(t, what);
        t->parts_from = t->from;
        t->parts_to = t->to;
        t->is_small = true;
    }
    t->small_at = t->body.length;
}

void gpu_small_end(gpu_codegen_t *t, bool changes)
{
    const gpu_string_t body = t->body;
    if (t->error.code != PL_OK)
        return;
    t->body = (gpu_string_t){NULL};
    gpu_print(t, "%.*s", (int)t->small_at, body.text);
    if (changes)
        gpu_print(t, "if (!a%d->status) {\n", control_argument(t, false));
    else
        gpu_print(t, "do {\n");
    gpu_print(t, "%s", body.text + t->small_at);
    gpu_undefine(t);
    gpu_print(t, changes ? "}\n" : "} while (0);\n");
    pl_free(body.text);
}

void gpu_parts_close(gpu_codegen_t *t)
{
    const int from = t->from, to = t->to;
    const int64_t groups = t->is_small ? 1 : t->part_groups;
    if (!groups)
        return;
    t->from = t->parts_from;
    t->to = t->parts_to;
    gpu_kernel_end(t, groups, THREADS);
    t->is_small = false;
    t->part_groups = 0;
    t->from = from;
    t->to = to;
}

/* ---- Decisions and reports ---- */

static int value_argument(gpu_codegen_t *t, int32_t value)
{
    const gpu_buffer_t buffer = gpu_buffer_of(t, value);
    return gpu_argument(t, &buffer,
                        gpu_type(t->g->value[t->allocation[value].root].dtype), false);
}

/* "load_f32(a2, 0)", or a number where there is no memory. */
static const char *number_of(gpu_codegen_t *t, int32_t value, char text[64])
{
    const pl_value_t *v = &t->g->value[t->allocation[value].root];
    char number[40];
    if (v->source == PL_FROM_CONSTANT)
        snprintf(text, 64, "%s", gpu_number(t, v->constant, number));
    else if (v->source == PL_FROM_SCALAR)
        snprintf(text, 64, "(real)a%d->scalar[%d]",
                 gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_STEP}, "step_t", false),
                 v->index);
    else
        snprintf(text, 64, "(real)load_%s(a%d, 0)", gpu_suffix(v->dtype),
                 value_argument(t, value));
    return text;
}

void gpu_print_guard(gpu_codegen_t *t, int i)
{
    const pl_op_t *op = &t->g->op[i];
    const bool is_limited = op->input_count == 2;
    char x[64], max[64], bound[40];
    if (op->attr.watches) {
        const int64_t n = pl_elements(t->g->value[op->input[0]].shape);
        gpu_kernel_begin(t, "watch");
        gpu_define_load(t, "X", op->input[0]);
        if (is_limited)
            gpu_define(t, "LIMIT", "(!(%s > %s))", number_of(t, op->input[1], max),
                       gpu_number(t, op->attr.a, bound));
        else
            gpu_define(t, "LIMIT", "1");
        gpu_define_number(t, "N", n);
        gpu_define(t, "CONTROL", "a%d", control_argument(t, true));
        gpu_define_number(t, "OPERATION", gpu_add_check(t, i, 0));
        gpu_print_elementwise(t, "watch", n);
        return;
    }
    gpu_small_begin(t, "guard", 4);
    const int control = control_argument(t, true);
    gpu_print(t, "const real x = %s;\nif (THREAD == 0 && !a%d->status",
              number_of(t, op->input[0], x), control);
    if (is_limited)
        gpu_print(t, " && !(%s > %s)", number_of(t, op->input[1], max),
                  gpu_number(t, op->attr.a, bound));
    gpu_print(t, ") {\na%d->operation = %d;\n", control, i);
    gpu_print(t, "if (!(x - x == 0))\na%d->status = SKIP_NON_FINITE;\n", control);
    if (op->attr.empty)
        gpu_print(t, "else if (x == 0)\na%d->status = SKIP_EMPTY;\n", control);
    gpu_print(t, "}\n");
    gpu_small_end(t, false);
}

void gpu_print_begin(gpu_codegen_t *t)
{
    gpu_small_begin(t, "begin", 2);
    gpu_define(t, "CONTROL", "a%d", control_argument(t, true));
    gpu_define(t, "STEP", "a%d",
               gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_STEP}, "step_t", false));
    gpu_include(t, "begin");
    gpu_small_end(t, false);
}

static bool is_made(const gpu_codegen_t *t, int32_t value, int before)
{
    const pl_value_t *v = &t->g->value[t->fusion->root[value]];
    return v->source != PL_FROM_OP || v->op < before;
}

/* Metrics from `*next` on, as many as one kernel has arguments for, as float64 in the
 * order of the fetches. */
static void print_sums(gpu_codegen_t *t, int *next, int64_t *at, int before)
{
    char text[64];
    for (int metrics = 0; *next < t->g->fetch_count && metrics < METRICS; ++*next) {
        const pl_fetch_t *f = &t->g->fetch[*next];
        if (f->kind != PL_FETCH_METRIC)
            continue;
        if (!is_made(t, f->value, before) || !is_made(t, f->weight, before)) {
            *at += f->sums;
            continue;
        }
        const int to =
            gpu_argument(t,
                         &(gpu_buffer_t){.at = GPU_IN_RECORD,
                                         .offset = GPU_RECORD_SUMS
                                                   + (size_t)*at * sizeof(double)},
                         "double", true);
        if (f->metric < PL_METRIC_R2) {
            gpu_print(t, "    if (THREAD == 0) {\n        a%d[0] = (double)%s;\n", to,
                      number_of(t, f->value, text));
            gpu_print(t, "        a%d[1] = (double)%s;\n    }\n", to,
                      number_of(t, f->weight, text));
        } else {
            const int from = value_argument(t, f->value);
            gpu_print(t,
                      "    for (int64_t i = THREAD; i < %lld; i += THREADS)\n"
                      "        a%d[i] = (double)load_%s(a%d, i);\n",
                      (long long)f->sums, to,
                      gpu_suffix(t->g->value[t->allocation[f->value].root].dtype), from);
        }
        *at += f->sums;
        metrics++;
    }
}

void gpu_print_record(gpu_codegen_t *t, int before)
{
    int next = 0;
    int64_t at = 0;
    bool first = true;
    while (first || next < t->g->fetch_count) {
        gpu_small_begin(t, "record", 3 * METRICS + 3);
        if (first)
            gpu_print(t, "    if (THREAD == 0)\n        *a%d = *a%d;\n",
                      gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_RECORD}, "control_t",
                                   true),
                      control_argument(t, false));
        print_sums(t, &next, &at, before);
        gpu_small_end(t, false);
        first = false;
    }
}
