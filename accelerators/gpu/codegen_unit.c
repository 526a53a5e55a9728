/* codegen_unit.c - lines of element-wise operations as text, for kernels and parts of
 * them
 *
 * A unit loads its operands, computes its operations in the order of the graph with all
 * values in registers, and stores the values that other units read.  So an element is
 * read before it is written, and an operation that reads elements of a region that the
 * unit has assigned before gets the assigned value.
 *
 * A core has its own kernel body.  Element-wise operations before and after it in its
 * unit become functions of that kernel: they load the core's input, or take its
 * result. */
#include "accelerators/gpu/codegen.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/plan/formulas.h"
#include "accelerators/plan/view.h"
#include "base/alloc.h"
#include "base/error.h"

static const pl_value_t *value_of(const gpu_unit_t *u, int32_t value)
{
    return &u->t->g->value[value];
}

static void too_many(gpu_unit_t *u)
{
    if (u->t->error.code == PL_OK)
        pl_fail(&u->t->error, PL_EBUG, "a unit has more than %d values", GPU_UNIT_KNOWN);
}

/* ---- Registers ---- */

static bool same_view(const pl_view_t *a, const pl_view_t *b)
{
    if (a->shape.rank != b->shape.rank)
        return false;
    for (int k = 0; k < a->shape.rank; k++)
        if (a->shape.dim[k] != b->shape.dim[k] || a->stride[k] != b->stride[k])
            return false;
    return true;
}

/* The newest register with a value, or with the same piece of a region, or -1. */
static int find_known(const gpu_unit_t *u, int32_t root, const pl_view_t *repeat)
{
    const pl_value_t *a = value_of(u, root);
    for (int k = u->known_count - 1; k >= 0; k--) {
        const gpu_known_t *known = &u->known[k];
        const pl_value_t *b = value_of(u, known->value);
        const bool is_piece = a->source == PL_FROM_REGION && b->source == PL_FROM_REGION
                              && a->index == b->index && a->offset == b->offset
                              && pl_elements(a->shape) == pl_elements(b->shape);
        if ((known->value == root || is_piece) && same_view(&known->repeat, repeat))
            return known->number;
    }
    return -1;
}

static void add_known(gpu_unit_t *u, int32_t value, const pl_view_t *repeat, int number)
{
    if (u->known_count == GPU_UNIT_KNOWN) {
        too_many(u);
        return;
    }
    u->known[u->known_count++] = (gpu_known_t){value, number, *repeat};
}

/* ---- Loads ---- */

/* Whether four neighbours of a result read one element, four neighbours, or neither. */
typedef enum reads { READS_ONE, READS_FOUR, READS_PER_ELEMENT } reads_t;

static reads_t reads_of(const pl_view_t *repeat)
{
    const int last = repeat->shape.rank - 1;
    if (repeat->shape.dim[last] % 4)
        return last == 0 && !repeat->stride[0] ? READS_ONE : READS_PER_ELEMENT;
    if (!repeat->stride[last])
        return READS_ONE;
    for (int k = 0; k < last; k++)
        if (repeat->stride[k] % 4)
            return READS_PER_ELEMENT;
    return repeat->stride[last] == 1 ? READS_FOUR : READS_PER_ELEMENT;
}

bool gpu_is_aligned(const gpu_buffer_t *buffer, pl_dtype_t dtype)
{
    return buffer->offset % (4 * pl_dtype_size(dtype)) == 0;
}

/* Loads a value into a register; `repeat` has rank 0 if element i of the unit reads
 * element i of the value. */
static int load(gpu_unit_t *u, int32_t root, const pl_view_t *repeat)
{
    gpu_codegen_t *t = u->t;
    const pl_value_t *v = value_of(u, root);
    const gpu_buffer_t buffer = gpu_buffer_of(t, root);
    const int a = gpu_argument(t, &buffer, gpu_type(v->dtype), false), r = u->registers++;
    const char *suffix = gpu_suffix(v->dtype);
    const bool repeats = repeat->shape.rank > 0;
    /* Of the element that element i, or i + k, reads. */
    char index[GPU_INDEX_TEXT], next[GPU_INDEX_TEXT];
    const reads_t reads = !repeats ? READS_FOUR
                          : !gpu_is_aligned(&buffer, v->dtype)
                                  && reads_of(repeat) != READS_ONE
                              ? READS_PER_ELEMENT
                              : reads_of(repeat);
    add_known(u, root, repeat, r);
    if (t->error.code != PL_OK)
        return r;
    snprintf(index, sizeof index, "i");
    snprintf(next, sizeof next, "(i + k)");
    if (repeats) {
        gpu_index_text(repeat, "i", u->n <= INT32_MAX, index);
        gpu_index_text(repeat, "(i + k)", u->n <= INT32_MAX, next);
    }
    if (u->width == 1)
        gpu_print(t, "const real v%d = (real)load_%s(a%d, %s);\n", r, suffix, a, index);
    else if (reads == READS_PER_ELEMENT)
        gpu_print(t,
                  "four_t v%d;\nfor (int k = 0; k < 4; k++)\n"
                  "v%d.at[k] = (real)load_%s(a%d, %s);\n",
                  r, r, suffix, a, next);
    else if (reads == READS_FOUR)
        gpu_print(t, "const four_t v%d = load4_%s(a%d, %s);\n", r, suffix, a, index);
    else
        gpu_print(t,
                  "const real s%d = (real)load_%s(a%d, %s);\n"
                  "const four_t v%d = {{s%d, s%d, s%d, s%d}};\n",
                  r, suffix, a, index, r, r, r, r, r);
    return r;
}

/* Input k of an operation as an expression of the loop. */
static const char *operand(gpu_unit_t *u, const pl_op_t *op, int k, char text[48])
{
    gpu_codegen_t *t = u->t;
    const int32_t value = op->input[k], root = t->fusion->root[value];
    const pl_value_t *v = value_of(u, root);
    pl_view_t repeat = {.shape = {.rank = 0}};
    if (v->source == PL_FROM_CONSTANT) {
        char number[40];
        gpu_number(t, v->constant, number);
        snprintf(text, 48, *number == '-' ? "(%s)" : "%s", number);
        return text;
    }
    if (v->source == PL_FROM_SCALAR) {
        const int a = gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_STEP}, "step_t",
                                   false);
        snprintf(text, 48, "(%sa%d->scalar[%d])", t->wide ? "" : "(float)", a, v->index);
        return text;
    }
    if (pl_elements(value_of(u, value)->shape) != u->n) {
        const int32_t result = op->code == PL_OP_assign ? op->input[0] : op->output[0];
        const pl_view_t all = pl_view_broadcast(value_of(u, value)->shape,
                                                value_of(u, result)->shape);
        repeat = pl_view_merged(&all);
        if (!repeat.shape.rank)
            repeat.shape = PL_SHAPE(1);
    }
    int r = find_known(u, root, &repeat);
    if (r < 0)
        r = load(u, root, &repeat);
    snprintf(text, 48, u->width == 1 ? "v%d" : "v%d.at[k]", r);
    return text;
}

/* ---- Lines ---- */

static void loop_print(gpu_unit_t *u, const char *format, ...) PL_PRINTF(2, 3);
static void loop_print(gpu_unit_t *u, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gpu_write_list(u->t, &u->loop, format, args);
    va_end(args);
}

static void store_put(gpu_unit_t *u, const gpu_buffer_t *buffer, pl_dtype_t dtype,
                      int number)
{
    for (int k = 0; k < u->stores; k++)
        if (u->store[k].buffer.at == buffer->at
            && u->store[k].buffer.index == buffer->index
            && u->store[k].buffer.offset == buffer->offset) {
            u->store[k].number = number;
            return;
        }
    if (u->stores == GPU_UNIT_KNOWN)
        too_many(u);
    else
        u->store[u->stores++] = (gpu_store_t){*buffer, dtype, number};
}

gpu_buffer_t gpu_low_of(const gpu_codegen_t *t, const gpu_buffer_t *buffer,
                        pl_dtype_t dtype)
{
    const size_t from = pl_dtype_size(dtype), to = pl_dtype_size(t->low_dtype);
    gpu_buffer_t low = *buffer;
    low.index = t->low;
    low.offset = buffer->offset / from * to;
    low.bytes = buffer->bytes / from * to;
    low.reach = buffer->reach / from * to;
    return low;
}

/* Stores parameters also as halves. */
static void store_add(gpu_unit_t *u, const gpu_buffer_t *buffer, pl_dtype_t dtype,
                      int number)
{
    const gpu_codegen_t *t = u->t;
    store_put(u, buffer, dtype, number);
    if (!t->low || buffer->at != GPU_IN_REGION || buffer->index != PL_REGION_PARAMS)
        return;
    const gpu_buffer_t low = gpu_low_of(t, buffer, dtype);
    store_put(u, &low, t->low_dtype, number);
}

/* The operands of a formula as text: its inputs, and the numbers f and h. */
typedef struct formula_operands {
    const char *input[3], *f, *h;
} formula_operands_t;

/* A result in a new register; rounded to its type, unless it is exact.  `letters` are the
 * names of the inputs in the formula. */
static int result(gpu_unit_t *u, pl_dtype_t dtype, bool exact, const char *formula,
                  const char *letters, const formula_operands_t *operands)
{
    const int r = u->registers++;
    const bool rounds = !exact && dtype != (u->t->wide ? PL_F64 : PL_F32);
    if (u->width == 1) {
        loop_print(u, "const real v%d = ", r);
    } else {
        gpu_print(u->t, "four_t v%d;\n", r);
        loop_print(u, "v%d.at[k] = ", r);
    }
    if (rounds)
        loop_print(u, "round_%s(", gpu_suffix(dtype));
    /* The formula with its operands: "x * y" as "v0 * v1". */
    while (*formula) {
        const size_t word = strspn(formula, "abcdefghijklmnopqrstuvwxyz"
                                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789"),
                     length = word ? word : 1;
        const char *at = strchr(letters, *formula == 'r' ? 'x' : *formula);
        const char *operand = word != 1         ? NULL
                              : *formula == 'f' ? operands->f
                              : *formula == 'h' ? operands->h
                              : at              ? operands->input[at - letters]
                                                : NULL;
        if (operand)
            loop_print(u, "%s", operand);
        else
            loop_print(u, "%.*s", (int)length, formula);
        formula += length;
    }
    loop_print(u, rounds ? ");\n" : ";\n");
    return r;
}

/* Four elements share a block of random bits, which is computed before the loop. */
static int dropout(gpu_unit_t *u, const pl_op_t *op, pl_dtype_t dtype, const char *x)
{
    char stays[40], formula[160];
    const int number = u->registers++;
    gpu_codegen_t *t = u->t;
    const int a = gpu_argument(t, &(gpu_buffer_t){.at = GPU_IN_STEP}, "step_t", false);
    gpu_print(t,
              "const uint64_t key%d = mix(a%d->seed, 0x%llxull);\n"
              "const words_t words%d = philox((uint64_t)i / 4, a%d->step, "
              "a%d->micro_batch, (uint32_t)key%d, (uint32_t)(key%d >> 32));\n",
              number, a, (unsigned long long)op->attr.stream, number, a, a, number,
              number);
    gpu_number(t, 1.0 / (1.0 - op->attr.a), stays);
    snprintf(formula, sizeof formula,
             "(double)(words%d.at[%s] >> 8) * 0x1p-24 >= %a ? x * %s : (real)0", number,
             u->width == 1 ? "i % 4" : "k", op->attr.a, stays);
    return result(u, dtype, false, formula, "x", &(formula_operands_t){{x}});
}

/* Stores a value that other units read. */
static void store_value(gpu_unit_t *u, int32_t value, int number)
{
    const gpu_codegen_t *t = u->t;
    if (t->fusion->inside[value] || t->allocation[value].kind == PL_ALLOCATION_NONE)
        return;
    const gpu_buffer_t buffer = gpu_buffer_of(t, value);
    store_add(u, &buffer, value_of(u, value)->dtype, number);
}

void gpu_unit_op(gpu_unit_t *u, int i)
{
    gpu_codegen_t *t = u->t;
    const pl_op_t *op = &t->g->op[i];
    const pl_view_t plain = {.shape = {.rank = 0}};
    char x[48], y[48], z[48], f[40], h[40];
    if (op->code == PL_OP_assign) {
        const int32_t target = op->input[0];
        const pl_dtype_t dtype = value_of(u, target)->dtype;
        const bool exact = value_of(u, op->input[1])->dtype == dtype;
        operand(u, op, 1, x);
        const int r = op->attr.accumulate
                          ? result(u, dtype, false, "x + y", "xy",
                                   &(formula_operands_t){{operand(u, op, 0, y), x}})
                          : result(u, dtype, exact, "x", "x", &(formula_operands_t){{x}});
        const gpu_buffer_t buffer = gpu_buffer_of(t, target);
        if (!t->done[i])
            store_add(u, &buffer, dtype, r);
        add_known(u, target, &plain, r);
        return;
    }
    operand(u, op, 0, x);
    if (pl_is_total(t->g, op)) {
        if (u->totals == GPU_UNIT_TOTALS) {
            too_many(u);
            return;
        }
        loop_print(u,
                   op->code == PL_OP_norm ? "total%1$d += (double)%2$s * %2$s;\n"
                                          : "total%1$d += %2$s;\n",
                   u->totals, x);
        u->total[u->totals++] = op;
        return;
    }
    const int32_t value = op->output[0];
    const pl_dtype_t dtype = value_of(u, value)->dtype;
    const pl_formula_code_t code = op->code == PL_OP_cast ? PL_FORMULA_copy
                                                          : pl_formula_of(op);
    const bool exact = op->code != PL_OP_cast && pl_is_exact(op->code);
    const char *letters = "", *formula = pl_formula_text(code, &letters);
    const formula_operands_t operands = {
        {x, op->input_count > 1 ? operand(u, op, 1, y) : NULL,
         op->input_count > 2 ? operand(u, op, 2, z) : NULL},
        gpu_number(t, op->attr.a, f),
        gpu_number(t, op->attr.b, h)};
    const int r = op->code == PL_OP_dropout
                      ? dropout(u, op, dtype, x)
                      : result(u, dtype, exact, formula, letters, &operands);
    add_known(u, value, &plain, r);
    store_value(u, value, r);
}

void gpu_unit_print(gpu_unit_t *u)
{
    gpu_codegen_t *t = u->t;
    gpu_print(t, u->width == 4 ? "for (int k = 0; k < 4; k++) {\n%s}\n" : "%s",
              u->loop.length ? u->loop.text : "");
    for (int k = 0; k < u->stores; k++) {
        const gpu_store_t *s = &u->store[k];
        const int a = gpu_argument(t, &s->buffer, gpu_type(s->dtype), true);
        gpu_print(t, "store%s_%s(a%d, i, v%d);\n", u->width == 4 ? "4" : "",
                  gpu_suffix(s->dtype), a, s->number);
    }
}

/* ---- Before and after a core ---- */

/* Operations [from, to) of the current unit, one element at a time. */
static gpu_unit_t *unit_new(gpu_codegen_t *t, int from, int to)
{
    gpu_unit_t *u = pl_alloc(sizeof *u);
    if (u)
        *u =
            (gpu_unit_t){.t = t,
                         .from = from,
                         .to = to,
                         .n = pl_elements(t->g->value[t->g->op[t->core].output[0]].shape),
                         .width = 1};
    else
        pl_no_memory(&t->error);
    return u;
}

static void unit_ops(gpu_unit_t *u)
{
    for (int i = u->from; i < u->to && u->t->error.code == PL_OK; i++)
        if (u->t->g->op[i].code != PL_OP_reshape
            && pl_is_elementwise(u->t->g, &u->t->g->op[i]))
            gpu_unit_op(u, i);
}

/* "FN real NAME_X(int64_t i, PARAMETERS)" with the current body as its lines; the body of
 * the kernel comes back. */
static void function_end(gpu_codegen_t *t, gpu_string_t aside, const char *returns,
                         const char *name, const char *parameter)
{
    const gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    const gpu_string_t lines = t->body;
    t->body = aside;
    gpu_write(t, &t->parts, "FN %s %s_%s(int64_t i, %sPARAMETERS)\n{\n", returns,
              kernel->name, name, parameter);
    gpu_write_indented(t, &t->parts, lines.length ? lines.text : "");
    gpu_write(t, &t->parts, "}\n\n");
    pl_free(lines.text);
}

bool gpu_define_before(gpu_codegen_t *t, const char *name, int32_t value)
{
    const int32_t root = t->fusion->root[value];
    const pl_value_t *v = &t->g->value[root];
    char word[24];
    if (t->core < 0 || v->source != PL_FROM_OP || v->op < t->from || v->op >= t->core)
        return false;
    gpu_unit_t *u = t->error.code == PL_OK ? unit_new(t, t->from, t->core) : NULL;
    if (!u)
        return true;
    const pl_view_t plain = {.shape = {.rank = 0}};
    const gpu_string_t aside = t->body;                /* lines are printed to the body */
    t->body = (gpu_string_t){NULL};
    unit_ops(u);
    int r = find_known(u, root, &plain);
    if (r < 0)
        r = load(u, root, &plain);
    gpu_unit_print(u);
    gpu_print(t, "return v%d;\n", r);
    function_end(t, aside, "real", name, "");
    pl_free(u->loop.text);
    pl_free(u);
    snprintf(word, sizeof word, "%.16s(i)", name);
    gpu_define(t, word, "%s_%s(i, ARGUMENTS)", t->kernel[t->kernels - 1].name, name);
    return true;
}

/* An input of a concat in the unit is stored where it belongs in the result. */
static bool define_concat_part(gpu_codegen_t *t, const char *word, int32_t value)
{
    const pl_op_t *op = NULL;
    int k = 0;
    for (int i = t->core + 1; i < t->to && !op; i++) {
        if (t->g->op[i].code != PL_OP_concat)
            continue;
        for (k = 0; k < t->g->op[i].input_count && t->g->op[i].input[k] != value; k++)
            ;
        if (k < t->g->op[i].input_count)
            op = &t->g->op[i];
    }
    if (!op)
        return false;
    char place[GPU_INDEX_TEXT];
    const pl_view_t part = gpu_concat_part(t, op, k);
    const pl_dtype_t dtype = t->g->value[op->output[0]].dtype;
    gpu_buffer_t buffer = gpu_buffer_of(t, op->output[0]);
    gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
    const int arguments = kernel->launch[0].count;
    buffer.bytes /= (size_t)op->input_count;
    const int a = gpu_argument(t, &buffer, gpu_type(dtype), true);
    if (a < arguments)                                  /* other parts are written, too */
        kernel->buffer[a].bytes += buffer.bytes;
    gpu_define(t, word, "store_%s(a%d, %s, v)", gpu_suffix(dtype), a,
               gpu_index_text(&part, "i", false, place));
    return true;
}

bool gpu_define_after(gpu_codegen_t *t, const char *name, int32_t value)
{
    char word[24];
    snprintf(word, sizeof word, "%.16s(i, v)", name);
    if (t->error.code != PL_OK || t->core < 0)
        return false;
    if (define_concat_part(t, word, value))
        return true;
    const int next = pl_unit_core(t->g, t->core + 1, t->to);
    const bool is_followed = pl_unit_first(t->g, t->core + 1, t->to) < t->to
                             && (next < 0 || t->g->op[next].code == PL_OP_sum);
    if (value != t->g->op[t->core].output[0] || !is_followed)
        return false;
    gpu_unit_t *u = unit_new(t, t->core + 1, t->to);
    if (!u)
        return true;
    const pl_view_t plain = {.shape = {.rank = 0}};
    const gpu_string_t aside = t->body;
    t->body = (gpu_string_t){NULL};
    const pl_dtype_t dtype = t->g->value[value].dtype;
    const int r = u->registers++;
    gpu_print(t, "const real v%d = round_%s(v);\n", r, gpu_suffix(dtype));
    add_known(u, value, &plain, r);
    store_value(u, value, r);
    unit_ops(u);
    gpu_unit_print(u);
    function_end(t, aside, "void", name, "real v, ");
    pl_free(u->loop.text);
    pl_free(u);
    gpu_define(t, word, "%s_%s(i, v, ARGUMENTS)", t->kernel[t->kernels - 1].name, name);
    return true;
}
