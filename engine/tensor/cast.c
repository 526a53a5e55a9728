/* cast.c - the pass that inserts casts into a graph
 *
 * One pass over the finished graph, backward included, so that neither gradients nor
 * shape rules depend on number formats.  A cast of the same value is made once, except
 * for pieces of regions that may change while the graph runs. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

typedef struct caster {
    pl_graph_t *g;
    const pl_precision_ops_t *precision;
    pl_dtype_t low;                          /* of this graph */
    int values;                              /* before any cast */
    int32_t *low_of, *wide_of;               /* [values] their casts + 1  [0: none yet] */
} caster_t;

static int32_t cast(caster_t *c, int32_t value, pl_dtype_t dtype, const char *path)
{
    pl_graph_t *g = c->g;
    int32_t *known = dtype == c->precision->wide ? c->wide_of : c->low_of;
    const pl_value_t from = g->value[value];
    const bool keeps = value < c->values
                       && (from.source != PL_FROM_REGION
                           || (g->model && from.index == PL_REGION_PARAMS)
                           || (g->model && from.index == PL_REGION_AVERAGE));
    if (from.dtype == dtype || g->error.code)
        return value;
    if (keeps && known[value])
        return known[value] - 1;
    pl_op_t op = {.code = PL_OP_cast,
                  .input_count = 1,
                  .output_count = 1,
                  .input = {value},
                  .attr.dtype = dtype};
    snprintf(op.path, sizeof op.path, "%s", path);
    const pl_node_t made = pl_value_add(g, &(pl_value_t){.source = PL_FROM_OP,
                                                         .dtype = dtype,
                                                         .shape = from.shape,
                                                         .op = g->op_count,
                                                         .grad = from.grad});
    if (made.id < 0 || PL_GROW(g->op, g->op_count, g->op_capacity) != PL_OK) {
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
        return value;
    }
    op.output[0] = made.id;
    g->op[g->op_count++] = op;
    if (keeps)
        known[value] = made.id + 1;
    return made.id;
}

/* Whether an output is kept for the operator's own gradient; it stays wide. */
static bool is_kept(const pl_op_t *op, int output)
{
    return output > 0 && pl_rules_of(op->code)->gradient;
}

/* Whether a value has a format of its own: an index, a number without a format, or an
 * output that another operator keeps for its gradient. */
static bool is_apart(const caster_t *c, const pl_value_t *v)
{
    return !pl_is_float(v->dtype) || v->source == PL_FROM_SCALAR
           || v->source == PL_FROM_CONSTANT
           || (v->source == PL_FROM_OP && is_kept(&c->g->op[v->op], v->index));
}

/* The format in which an operation computes. */
static pl_dtype_t format_of(const caster_t *c, const pl_op_t *op)
{
    const pl_graph_t *g = c->g;
    const pl_precision_class_t class = op->code == PL_OP_apply
                                           ? op->attr.table->precision
                                           : pl_operators[op->code].precision;
    pl_dtype_t widest = c->low;
    bool any = false;
    if (op->code == PL_OP_cast)
        return op->attr.dtype;
    if (class != PL_PRECISION_promote)
        return class == PL_PRECISION_low ? c->low : c->precision->wide;
    for (int k = 0; k < op->input_count; k++) {
        const pl_value_t *v = &g->value[op->input[k]];
        if (v->source == PL_FROM_OP && is_kept(&g->op[v->op], v->index)
            && pl_is_float(v->dtype))
            return c->precision->wide;
        if (is_apart(c, v))
            continue;
        if (!any || pl_dtype_size(v->dtype) > pl_dtype_size(widest))
            widest = v->dtype;
        any = true;
    }
    return any ? widest : c->precision->wide;
}

static void cast_op(caster_t *c, pl_op_t op)
{
    pl_graph_t *g = c->g;
    const bool assigns = op.code == PL_OP_assign;
    const bool converts = op.code == PL_OP_cast || op.code == PL_OP_convert;
    const pl_dtype_t format = assigns ? g->value[op.input[0]].dtype : format_of(c, &op);
    for (int k = assigns; k < op.input_count && !converts; k++) {
        const pl_value_t *v = &g->value[op.input[k]];
        const int before = g->op_count;
        if (!is_apart(c, v) || (assigns && pl_is_float(v->dtype)))
            op.input[k] = cast(c, op.input[k], format, op.path);
        if (g->op_count > before)
            g->op[before].is_repeated = op.is_repeated;
    }
    for (int k = 0; k < op.output_count; k++) {
        pl_value_t *v = &g->value[op.output[k]];
        v->op = g->op_count;
        if (pl_is_float(v->dtype))
            v->dtype = is_kept(&op, k) ? c->precision->wide : format;
    }
    if (g->error.code)
        return;
    if (PL_GROW(g->op, g->op_count, g->op_capacity) == PL_OK)
        g->op[g->op_count++] = op;
    else
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
}

/* Casts every operation and fetch; batch fields keep their format. */
int pl_graph_cast(pl_graph_t *g, const pl_precision_ops_t *precision, pl_error_t *err)
{
    if (precision->low == PL_F32 && precision->wide == PL_F32
        && precision->params == PL_F32)
        return pl_graph_check(g, err);
    if (precision->low == PL_BF16 || precision->low == PL_F16)
        pl_graph_turn_apart(g);
    caster_t c = {.g = g,
                  .precision = precision,
                  .low = g->model ? precision->low : precision->wide,
                  .values = g->value_count};
    c.low_of = pl_alloc_array((size_t)c.values, sizeof *c.low_of);
    c.wide_of = pl_alloc_array((size_t)c.values, sizeof *c.wide_of);
    int code = c.low_of && c.wide_of ? pl_graph_check(g, err) : pl_no_memory(err);
    if (code != PL_OK)
        goto done;
    pl_op_t *op = g->op;
    const int count = g->op_count;
    g->op = NULL;
    g->op_count = g->op_capacity = 0;
    for (int32_t i = 0; i < c.values; i++) {
        pl_value_t *v = &g->value[i];
        if (v->source == PL_FROM_REGION)
            v->dtype = pl_region_dtype(precision, (pl_region_t)v->index);
        if (v->source == PL_FROM_CONSTANT)
            v->dtype = precision->wide;
    }
    for (int i = 0; i < count && !g->error.code; i++)
        cast_op(&c, op[i]);
    pl_free(op);
    for (int i = 0; i < g->fetch_count; i++) {
        pl_fetch_t *f = &g->fetch[i];
        const bool is_metric = f->kind == PL_FETCH_METRIC;
        const pl_dtype_t dtype = is_metric ? precision->wide : PL_F32;
        if (pl_is_float(g->value[f->value].dtype))
            f->value = cast(&c, f->value, dtype, "");
        if (is_metric)
            f->weight = cast(&c, f->weight, dtype, "");
    }
    code = pl_graph_check(g, err);
done:
    pl_free(c.low_of);
    pl_free(c.wide_of);
    return code;
}

pl_graph_t *pl_graph_finish(pl_graph_t *g, const pl_precision_ops_t *precision,
                            pl_error_t *err)
{
    if (pl_graph_check(g, err) == PL_OK && pl_graph_cast(g, precision, err) == PL_OK)
        return g;
    pl_graph_free(g);
    return NULL;
}
