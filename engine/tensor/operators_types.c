/* operators_types.c - numbers of other types: casts, and comparisons of whole numbers
 *
 * Element-wise operators compute with floating-point numbers alone.  Fields of the data
 * and indices are whole numbers, which a conversion brings there and back.  float32 does
 * not hold all of them: so their order is found before anything is rounded. */
#include <math.h>

#include "tensor/operators.h"

static int shape_convert(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)g;
    out->dtype = op->attr.dtype;
    return PL_OK;
}

static int shape_order(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    const pl_shape_t x = out->shape, y = pl_input_shape(g, op, 1);
    if (pl_elements(x) == 1 && y.rank >= x.rank)
        out->shape = y;
    if (pl_input_of(g, op, 0)->dtype == PL_I64 && pl_input_of(g, op, 1)->dtype == PL_I64
        && (pl_same_shape(x, y) || pl_elements(x) == 1 || pl_elements(y) == 1))
        return PL_OK;
    return pl_op_fail(g, "order takes int64 of one shape, got %s %s and %s %s",
                      pl_dtype_name(pl_input_of(g, op, 0)->dtype), PL_TEXT_OF(x),
                      pl_dtype_name(pl_input_of(g, op, 1)->dtype), PL_TEXT_OF(y));
}

const pl_rules_t pl_types_rules[PL_OPCODES] = {
    [PL_OP_convert] = {shape_convert, .is_constant = true},
    [PL_OP_order] = {shape_order, .is_constant = true},
};

/* The type of a node; float32 when the graph has failed. */
static pl_dtype_t type_of(pl_graph_t *g, pl_node_t x)
{
    pl_shape_of(g, x);
    return g->error.code ? PL_F32 : g->value[x.id].dtype;
}

pl_node_t pl_cast(pl_graph_t *g, pl_node_t x, pl_dtype_t dtype)
{
    const pl_dtype_t from = type_of(g, x);
    if ((unsigned)dtype > PL_F16 || dtype == PL_F64)
        return pl_graph_fail(g, PL_EINVAL,
                             "cast gives float32, int32, int64, uint8, bfloat16 or "
                             "float16, got type %d; float64 is what a run with precision "
                             "64-true computes in",
                             (int)dtype);
    if (dtype == PL_BF16 || dtype == PL_F16) {
        x = pl_as_float(g, x);
        x = pl_emit(g, PL_OP_cast, &x, 1, &(pl_attr_t){.dtype = dtype}, NULL);
        return pl_emit(g, PL_OP_cast, &x, 1, &(pl_attr_t){.dtype = PL_F32}, NULL);
    }
    return from == dtype
               ? x
               : pl_emit(g, PL_OP_convert, &x, 1, &(pl_attr_t){.dtype = dtype}, NULL);
}

pl_node_t pl_bool(pl_graph_t *g, pl_node_t x)
{
    return pl_emit(g, PL_OP_convert, &x, 1, &(pl_attr_t){.dtype = PL_U8, .keep = true},
                   NULL);
}

pl_node_t pl_as_float(pl_graph_t *g, pl_node_t x)
{
    return pl_is_float(type_of(g, x)) ? x : pl_cast(g, x, PL_F32);
}

pl_node_t pl_cast_field(pl_graph_t *g, pl_node_t x)
{
    return type_of(g, x) == PL_F64 ? pl_cast(g, x, PL_F32) : x;
}

/* ---- Comparisons ---- */

/* A whole number of any type: a tensor of integers, or a constant without a fraction. */
static bool is_whole(pl_graph_t *g, pl_node_t x)
{
    if (!pl_is_float(type_of(g, x)))
        return true;
    const pl_value_t *v = g->error.code ? NULL : &g->value[x.id];
    return v && v->source == PL_FROM_CONSTANT && floor(v->constant) == v->constant
           && fabs(v->constant) < 0x1p63;
}

/* As int64 of the common shape, or of one element. */
static pl_node_t as_whole(pl_graph_t *g, pl_opcode_t code, pl_node_t x, pl_shape_t common)
{
    const pl_shape_t shape = pl_shape_of(g, x);
    if (g->error.code)
        return PL_NO_NODE;
    const pl_value_t *v = &g->value[x.id];
    if (v->source == PL_FROM_CONSTANT && (double)(float)v->constant != v->constant)
        return pl_graph_fail(g, PL_EINVAL,
                             "%s compares whole numbers with %.0f, which a constant, "
                             "float32, does not hold",
                             pl_operators[code].name, v->constant);
    x = pl_cast(g, x, PL_I64);
    return pl_elements(shape) == 1 && pl_elements(common) != 1
               ? pl_reshape(g, x, pl_shape(0))
               : pl_broadcast_to(g, x, common);
}

pl_node_t pl_compare(pl_graph_t *g, pl_opcode_t code, pl_node_t x, pl_node_t y)
{
    const bool is_logical = code == PL_OP_logical_and || code == PL_OP_logical_or,
               has_integers = !pl_is_float(type_of(g, x)) || !pl_is_float(type_of(g, y));
    pl_shape_t common;
    if (!has_integers || is_logical || !is_whole(g, x) || !is_whole(g, y)
        || !pl_broadcast_shapes(pl_shape_of(g, x), pl_shape_of(g, y), &common))
        return pl_emit2(g, code, pl_as_float(g, x), pl_as_float(g, y));
    x = as_whole(g, code, x, common);
    y = as_whole(g, code, y, common);
    return pl_emit2(g, code, pl_emit2(g, PL_OP_order, x, y), pl_scalar(g, 0));
}
