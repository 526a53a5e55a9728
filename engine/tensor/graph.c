/* graph.c - values, operations and the first error of a graph
 *
 * Every operation, forward or backward, enters through pl_emit(), so that the shapes of
 * every graph are checked.  Inputs, parameters and outputs are in describe.c. */
#include "tensor/graph.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tensor/model.h"
#include "tensor/operators.h"

const pl_operator_t pl_operators[PL_OPCODES] = {
#define PL_OPERATOR(name, inputs, outputs, precision, kind, meaning) \
    [PL_OP_##name] = {#name, inputs, outputs, PL_PRECISION_##precision, PL_KIND_##kind},
#include "tensor/operators.def"
#undef PL_OPERATOR
};

const pl_rules_t *pl_rules_of(pl_opcode_t code)
{
    static const pl_rules_t *const tables[] = {
        [PL_KIND_element] = pl_elementwise_rules, [PL_KIND_reduce] = pl_reduce_rules,
        [PL_KIND_shape] = pl_shapes_rules,        [PL_KIND_product] = pl_product_rules,
        [PL_KIND_space] = pl_space_rules,         [PL_KIND_row] = pl_rows_rules,
        [PL_KIND_axis] = pl_axis_rules,           [PL_KIND_steps] = pl_steps_rules,
        [PL_KIND_type] = pl_types_rules,          [PL_KIND_user] = pl_user_rules,
        [PL_KIND_ranks] = pl_ranks_rules,         [PL_KIND_effect] = pl_effects_rules,
    };
    return &tables[pl_operators[code].kind][code];
}

const char *pl_op_where(const pl_op_t *op, char text[static 128])
{
    snprintf(text, 128, "%.63s%s%.60s", op->path, op->path[0] ? ": " : "",
             pl_op_name(op));
    return text;
}

/* ---- The graph and its error ---- */

pl_graph_t *pl_graph_new(struct pl_model *model, pl_stage_t stage,
                         const pl_field_t *fields, int field_count, int64_t batch_size,
                         pl_error_t *err)
{
    if (field_count > PL_FIELDS || batch_size < 1) {
        pl_fail(
            err, PL_EINVAL,
            "a graph takes up to %d fields and a batch of at least 1, got %d and %lld",
            PL_FIELDS, field_count, (long long)batch_size);
        return NULL;
    }
    pl_graph_t *g = pl_alloc(sizeof *g);
    if (!g) {
        pl_no_memory(err);
        return NULL;
    }
    if (!(g->places = pl_alloc(sizeof *g->places))) {
        pl_free(g);
        pl_no_memory(err);
        return NULL;
    }
    g->model = pl_model_ref(model);
    g->stage = stage;
    g->batch_size = batch_size;
    g->ranks = 1;
    g->field_count = field_count;
    if (field_count)
        memcpy(g->field, fields, (size_t)field_count * sizeof *fields);
    return g;
}

void pl_graph_free(pl_graph_t *g)
{
    if (!g)
        return;
    if (g->places)
        pl_map_release(g->places);
    pl_free(g->places);
    pl_model_free(g->model);
    for (int i = 0; i < g->value_count; i++)
        pl_object_unref(g->value[i].tensor);
    pl_free(g->value);
    pl_free(g->op);
    pl_free(g->fetch);
    pl_free(g->gathered);
    pl_free(g);
}

int pl_graph_check(const pl_graph_t *g, pl_error_t *err)
{
    if (g->error.code)
        return pl_fail(err, g->error.code, "%s", g->error.text);
    if (g->scope_depth)
        return pl_fail(err, PL_ESTATE, "pl_scope(\"%.*s\") without pl_scope_end()",
                       (int)strlen(g->scope) - 1, g->scope);
    if (g->checkpoint_depth)
        return pl_fail(err, PL_ESTATE, "%s%spl_checkpoint() without pl_checkpoint_end()",
                       g->checkpoint_path, g->checkpoint_path[0] ? ": " : "");
    return PL_OK;
}

const char *pl_path(const pl_graph_t *g, char path[static 64])
{
    memcpy(path, g->scope, 64);
    size_t length = strlen(path);
    if (length && path[length - 1] == '.')
        path[length - 1] = '\0';
    return path;
}

/* Keeps the first error of the graph. */
static void stick(pl_graph_t *g, int code, const char *format, va_list args)
{
    if (g->error.code)
        return;
    char path[64], text[PL_ERROR_TEXT - 66];
    pl_text_print(text, sizeof text, format, args);
    pl_path(g, path);
    pl_fail(&g->error, code, "%s%s%s", path, *path ? ": " : "", text);
}

/* A code that is no error becomes PL_EUSER. */
pl_node_t pl_graph_fail(pl_graph_t *g, int code, const char *format, ...)
{
    if (code >= 0 || !strcmp(pl_code_name(code), "PL_E?"))
        code = PL_EUSER;
    va_list args;
    va_start(args, format);
    stick(g, code, format, args);
    va_end(args);
    return PL_NO_NODE;
}

int pl_op_fail(pl_graph_t *g, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    stick(g, PL_EINVAL, format, args);
    va_end(args);
    return PL_EINVAL;
}

/* ---- Shapes ---- */

int64_t pl_elements(pl_shape_t shape)
{
    return pl_rows(shape, 0);
}

int64_t pl_rows(pl_shape_t shape, int inner)
{
    int64_t n = 1;
    for (int i = 0; i < shape.rank - inner; i++)
        n *= shape.dim[i];
    return n;
}

size_t pl_dtype_size(pl_dtype_t dtype)
{
    static const size_t size[] = {[PL_F32] = 4, [PL_F64] = 8,  [PL_I32] = 4, [PL_I64] = 8,
                                  [PL_U8] = 1,  [PL_BF16] = 2, [PL_F16] = 2};
    return size[dtype];
}

bool pl_is_float(pl_dtype_t dtype)
{
    return dtype == PL_F32 || dtype == PL_F64 || dtype == PL_BF16 || dtype == PL_F16;
}

const char *pl_dtype_name(pl_dtype_t dtype)
{
    static const char *const name[] = {
        [PL_F32] = "float32", [PL_F64] = "float64", [PL_I32] = "int32",
        [PL_I64] = "int64",   [PL_U8] = "uint8",    [PL_BF16] = "bfloat16",
        [PL_F16] = "float16"};
    return name[dtype];
}

bool pl_same_shape(pl_shape_t a, pl_shape_t b)
{
    return a.rank == b.rank && memcmp(a.dim, b.dim, (size_t)a.rank * sizeof *a.dim) == 0;
}

char *pl_shape_text(pl_shape_t shape, char text[static 64])
{
    const char *rest = shape.rank > PL_DIMS ? ", ..." : "";
    int at = snprintf(text, 64, "[");
    for (int i = 0; i < shape.rank && i < PL_DIMS && at < 50; i++)
        at += snprintf(text + at, (size_t)(64 - at), "%s%lld", i ? ", " : "",
                       (long long)shape.dim[i]);
    snprintf(at < 56 ? text + at : text + 56, 8, "%s]", rest);
    return text;
}

pl_shape_t pl_shape(int rank, ...)
{
    pl_shape_t shape = {.rank = rank};
    va_list args;
    va_start(args, rank);
    for (int i = 0; i < rank && i < PL_DIMS; i++)
        shape.dim[i] = va_arg(args, int);
    va_end(args);
    return shape;
}

bool pl_field_is_whole(const pl_field_t *field)
{
    int64_t bytes = 8;
    bool whole = field->shape.rank >= 0 && field->shape.rank < PL_DIMS
                 && (unsigned)field->dtype <= PL_U8 && *field->name
                 && memchr(field->name, 0, sizeof field->name);
    for (int k = 0; whole && k < field->shape.rank; k++)
        whole = field->shape.dim[k] > 0
                && !__builtin_mul_overflow(bytes, field->shape.dim[k], &bytes);
    return whole;
}

bool pl_broadcast_shapes(pl_shape_t a, pl_shape_t b, pl_shape_t *out)
{
    pl_shape_t result = a.rank >= b.rank ? a : b;
    if (a.rank < 0 || b.rank < 0 || result.rank > PL_DIMS || !out)
        return false;
    for (int i = 1; i <= a.rank && i <= b.rank; i++) {
        int64_t da = a.dim[a.rank - i], db = b.dim[b.rank - i];
        if (da != db && da != 1 && db != 1)
            return false;
        result.dim[result.rank - i] = da == 1 ? db : da;
    }
    *out = result;
    return true;
}

pl_shape_t pl_shape_of(pl_graph_t *g, pl_node_t x)
{
    if (g->error.code)
        return (pl_shape_t){0};
    if (x.id >= 0 && x.id < g->value_count)
        return g->value[x.id].shape;
    pl_graph_fail(g, PL_EINVAL, "a node does not belong to this graph");
    return (pl_shape_t){0};
}

pl_dtype_t pl_dtype_of(pl_graph_t *g, pl_node_t x)
{
    pl_shape_of(g, x);                                      /* x is of this graph */
    return g->error.code ? PL_F32 : g->value[x.id].dtype;
}

int pl_axis_of(pl_graph_t *g, const char *name, pl_node_t x, int axis)
{
    pl_shape_t shape = pl_shape_of(g, x);
    int from_front = axis < 0 ? axis + shape.rank : axis;
    if (g->error.code)
        return -1;
    if (from_front >= 0 && from_front < shape.rank)
        return from_front;
    pl_op_fail(g, "%s takes an axis from %d to %d of %s, got %d", name, -shape.rank,
               shape.rank - 1, PL_TEXT_OF(shape), axis);
    return -1;
}

int64_t pl_dim(pl_graph_t *g, pl_node_t x, int axis)
{
    int from_front = pl_axis_of(g, "dim", x, axis);
    return from_front < 0 ? 1 : g->value[x.id].shape.dim[from_front];
}

/* ---- Values ---- */

pl_node_t pl_node_of(int32_t value)
{
    return (pl_node_t){value};
}

pl_node_t pl_value_add(pl_graph_t *g, const pl_value_t *value)
{
    const pl_shape_t shape = value->shape;
    int64_t bytes = 8;
    if (!g->error.code && (shape.rank < 0 || shape.rank > PL_DIMS))
        pl_op_fail(g, "a tensor has 0 to %d axes, got %d", PL_DIMS, shape.rank);
    for (int i = 0; i < shape.rank && !g->error.code; i++)
        if (shape.dim[i] < 1 || __builtin_mul_overflow(bytes, shape.dim[i], &bytes))
            pl_op_fail(g,
                       "a tensor cannot have shape %s: sizes start at 1 and the whole "
                       "must fit in memory",
                       PL_TEXT_OF(shape));
    if (g->error.code)
        return PL_NO_NODE;
    if (PL_GROW(g->value, g->value_count, g->value_capacity) != PL_OK)
        return pl_graph_fail(g, PL_ENOMEM, "out of memory");
    g->value[g->value_count] = *value;
    return pl_node_of(g->value_count++);
}

pl_node_t pl_region_value(pl_graph_t *g, pl_region_t region, int64_t offset,
                          pl_shape_t shape, bool grad)
{
    uint64_t key = pl_mix(pl_mix((uint64_t)region, (uint64_t)offset),
                          (uint64_t)shape.rank);
    for (int i = 0; i < shape.rank && i < PL_DIMS; i++)
        key = pl_mix(key, (uint64_t)shape.dim[i]);
    key |= 1;
    const pl_value_t wanted = {.source = PL_FROM_REGION,
                               .shape = shape,
                               .index = (int)region,
                               .offset = offset,
                               .op = -1,
                               .grad = grad};
    const intptr_t there = (intptr_t)pl_map_get(g->places, key);
    const pl_value_t *same = there ? &g->value[there - 1] : NULL;
    if (same && same->index == wanted.index && same->offset == offset
        && pl_same_shape(same->shape, shape))
        return pl_node_of((int32_t)(there - 1));
    pl_node_t made = pl_value_add(g, &wanted);
    if (made.id >= 0
        && pl_map_put(g->places, key, (void *)((intptr_t)made.id + 1)) != PL_OK)
        return pl_graph_fail(g, PL_ENOMEM, "out of memory");
    return made;
}

pl_node_t pl_region_view(pl_graph_t *g, pl_region_t region, int64_t offset,
                         pl_shape_t shape)
{
    return pl_region_value(g, region, offset, shape, false);
}

pl_node_t pl_step_scalar(pl_graph_t *g, int slot)
{
    return pl_value_add(g,
                        &(pl_value_t){.source = PL_FROM_SCALAR, .index = slot, .op = -1});
}

pl_node_t pl_scalar(pl_graph_t *g, double value)
{
    return pl_value_add(g, &(pl_value_t){.source = PL_FROM_CONSTANT,
                                         .constant = value,
                                         .op = -1});
}

/* ---- Operations ---- */

const pl_value_t *pl_input_of(const pl_graph_t *g, const pl_op_t *op, int k)
{
    return &g->value[op->input[k]];
}

pl_shape_t pl_input_shape(const pl_graph_t *g, const pl_op_t *op, int k)
{
    return pl_input_of(g, op, k)->shape;
}

bool pl_wants(const pl_graph_t *g, const pl_op_t *op, int k)
{
    return k < op->input_count && g->value[op->input[k]].grad;
}

int pl_want_float(pl_graph_t *g, const pl_op_t *op, int count)
{
    for (int k = 0; k < count; k++) {
        const pl_value_t *in = pl_input_of(g, op, k);
        if (in->dtype != PL_F32)
            return pl_op_fail(g, "%s takes float32, got %s %s%s", pl_op_name(op),
                              pl_dtype_name(in->dtype), PL_TEXT_OF(in->shape),
                              in->source == PL_FROM_INPUT
                                  ? ", a field of the data: convert it to float32 by "
                                    "pl_cast()"
                                  : "");
    }
    return PL_OK;
}

pl_node_t pl_emit(pl_graph_t *g, pl_opcode_t code, const pl_node_t *inputs,
                  int input_count, const pl_attr_t *attr, pl_node_t *extra)
{
    const pl_operator_t *info = &pl_operators[code];
    assert(input_count <= info->inputs && pl_rules_of(code)->shape);
    pl_value_t out[PL_OP_OUTPUTS] = {0};
    pl_op_t op = {.code = code,
                  .input_count = input_count,
                  .output_count = info->outputs};
    for (int k = 0; k < input_count && !g->error.code; k++) {
        op.input[k] = inputs[k].id;
        pl_shape_of(g, inputs[k]);
    }
    if (g->error.code)
        return PL_NO_NODE;
    if (g->op_count == PL_OPS_MAX)
        return pl_graph_fail(g, PL_EUNSUPPORTED,
                             "a step with its gradients has at most %d operations",
                             PL_OPS_MAX);
    if (attr)
        op.attr = *attr;
    pl_path(g, op.path);
    op.checkpoint = g->checkpoint_depth ? g->checkpoints : 0;
    if (PL_GROW(g->op, g->op_count, g->op_capacity) != PL_OK)
        return pl_graph_fail(g, PL_ENOMEM, "out of memory");
    for (int k = 0; k < op.output_count; k++) {
        out[k] = (pl_value_t){.source = PL_FROM_OP, .index = k, .op = g->op_count};
        if (input_count)
            out[k].shape = pl_input_shape(g, &op, 0);
    }
    if (pl_rules_of(code)->shape(g, &op, out) != PL_OK)
        return PL_NO_NODE;
    /* Only the first output has a gradient: others are indices, or kept for backward. */
    const bool varies = pl_is_float(out[0].dtype) && !pl_rules_of(code)->is_constant;
    for (int k = 0; k < input_count && varies; k++)
        out[0].grad |= pl_wants(g, &op, k);
    for (int k = 0; k < op.output_count; k++)
        op.output[k] = pl_value_add(g, &out[k]).id;
    if (g->error.code)
        return PL_NO_NODE;
    for (int k = 1; k < op.output_count && extra; k++)
        extra[k - 1] = pl_node_of(op.output[k]);
    g->op[g->op_count++] = op;
    return op.output_count ? pl_node_of(op.output[0]) : PL_NO_NODE;
}

pl_node_t pl_emit1(pl_graph_t *g, pl_opcode_t code, pl_node_t x)
{
    return pl_emit(g, code, &x, 1, NULL, NULL);
}

pl_node_t pl_emit2(pl_graph_t *g, pl_opcode_t code, pl_node_t a, pl_node_t b)
{
    return pl_emit(g, code, (pl_node_t[]){a, b}, 2, NULL, NULL);
}

/* ---- Pruning ---- */

void pl_graph_take_average(pl_graph_t *g)
{
    for (int v = 0; v < g->value_count; v++)
        if (g->value[v].source == PL_FROM_REGION && g->value[v].index == PL_REGION_PARAMS)
            g->value[v].index = PL_REGION_AVERAGE;
}

void pl_graph_drop_outputs(pl_graph_t *g)
{
    int kept = 0;
    for (int i = 0; i < g->fetch_count; i++)
        if (g->fetch[i].kind != PL_FETCH_OUTPUT)
            g->fetch[kept++] = g->fetch[i];
    g->fetch_count = kept;
}

void pl_graph_prune(pl_graph_t *g)
{
    bool *needed = pl_alloc_array((size_t)g->value_count, sizeof *needed);
    bool *keep = pl_alloc_array((size_t)g->op_count, sizeof *keep);
    if (!needed || !keep)
        goto done;                             /* unpruned, the graph computes the same */
    for (int i = 0; i < g->fetch_count; i++) {
        needed[g->fetch[i].value] = true;
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            needed[g->fetch[i].weight] = true;
    }
    for (int i = g->op_count - 1; i >= 0; i--) {
        keep[i] = pl_operators[g->op[i].code].kind == PL_KIND_effect;
        for (int k = 0; k < g->op[i].output_count; k++)
            keep[i] |= needed[g->op[i].output[k]];
        for (int k = 0; k < g->op[i].input_count && keep[i]; k++)
            needed[g->op[i].input[k]] = true;
    }
    int kept = 0;
    for (int i = 0; i < g->op_count; i++) {
        for (int k = 0; k < g->op[i].output_count; k++)
            g->value[g->op[i].output[k]].op = keep[i] ? kept : -1;
        if (keep[i])
            g->op[kept++] = g->op[i];
    }
    g->op_count = kept;
done:
    pl_free(needed);
    pl_free(keep);
}
