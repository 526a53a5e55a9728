/* codegen_core.c - what stands before and behind the core of a unit, as functions of the
 * core's kernel: how it loads its input, and what it does with its result */
#include <stdio.h>

#include "accelerators/gpu/codegen_unit.h"
#include "base/alloc.h"
#include "base/error.h"

/* Operations [from, to) of the unit at hand, for one element. */
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

static void unit_free(gpu_unit_t *u)
{
    pl_free(u->loop.text);
    pl_free(u);
}

/* Lines are printed to the body, and so the body is put aside. */
static gpu_string_t body_aside(gpu_codegen_t *t)
{
    const gpu_string_t body = t->body;
    t->body = (gpu_string_t){NULL};
    return body;
}

/* "FN real NAME_X(int64_t i, PARAMETERS)" with what was printed as its body. */
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
    const gpu_string_t aside = body_aside(t);
    unit_ops(u);
    const int r = gpu_unit_register(u, root);
    gpu_unit_print(u);
    gpu_print(t, "return v%d;\n", r);
    function_end(t, aside, "real", name, "");
    unit_free(u);
    snprintf(word, sizeof word, "%.16s(i)", name);
    gpu_define(t, word, "%s_%s(i, ARGUMENTS)", t->kernel[t->kernels - 1].name, name);
    return true;
}

/* Parts of a concat go where they belong in it. */
static bool define_part(gpu_codegen_t *t, const char *word, int32_t value)
{
    for (int i = t->core + 1; i < t->to; i++) {
        const pl_op_t *op = &t->g->op[i];
        if (op->code != PL_OP_concat)
            continue;
        const pl_view_t whole = pl_view_whole(0, t->g->value[op->output[0]].shape);
        const int axis = op->attr.axis < 0 ? op->attr.axis + whole.shape.rank
                                           : op->attr.axis;
        int64_t from = 0;
        for (int k = 0; k < op->input_count; k++) {
            const int64_t to = from + t->view[op->attr.from + k].shape.dim[axis];
            const pl_view_t part = pl_view_slice(&whole, axis, from, to);
            from = to;
            if (op->input[k] != value)
                continue;
            char place[512];
            const pl_dtype_t dtype = t->g->value[op->output[0]].dtype;
            gpu_buffer_t buffer = gpu_buffer_of(t, op->output[0]);
            gpu_kernel_t *kernel = &t->kernel[t->kernels - 1];
            const int arguments = kernel->launch[0].count;
            buffer.bytes /= (size_t)op->input_count;
            const int a = gpu_argument(t, &buffer, gpu_type(dtype), true);
            if (a < arguments)                          /* other parts are written, too */
                kernel->buffer[a].bytes += buffer.bytes;
            gpu_define(t, word, "store_%s(a%d, %s, v)", gpu_suffix(dtype), a,
                       gpu_index_text(&part, "i", false, place));
            return true;
        }
    }
    return false;
}

/* Whether operations other than reshapes follow the core, and no second core. */
static bool is_followed(const gpu_codegen_t *t)
{
    const int next = t->core < 0 ? -1 : pl_unit_core(t->g, t->core + 1, t->to);
    return t->core >= 0 && pl_unit_first(t->g, t->core + 1, t->to) < t->to
           && (next < 0 || t->g->op[next].code == PL_OP_sum);
}

bool gpu_define_behind(gpu_codegen_t *t, const char *name, int32_t value)
{
    char word[24];
    snprintf(word, sizeof word, "%.16s(i, v)", name);
    if (t->error.code != PL_OK || t->core < 0)
        return false;
    if (define_part(t, word, value))
        return true;
    if (value != t->g->op[t->core].output[0] || !is_followed(t))
        return false;
    gpu_unit_t *u = unit_new(t, t->core + 1, t->to);
    if (!u)
        return true;
    const gpu_string_t aside = body_aside(t);
    const pl_dtype_t dtype = t->g->value[value].dtype;
    const int r = u->registers++;
    gpu_print(t, "const real v%d = round_%s(v);\n", r, gpu_suffix(dtype));
    gpu_unit_knows(u, value, r);
    gpu_unit_keep(u, value, r);
    unit_ops(u);
    gpu_unit_print(u);
    function_end(t, aside, "void", name, "real v, ");
    unit_free(u);
    gpu_define(t, word, "%s_%s(i, v, ARGUMENTS)", t->kernel[t->kernels - 1].name, name);
    return true;
}
