/* operators_effects.c - operators that write a region, in the order in which they were
 * described */
#include "tensor/operators.h"

static int shape_assign(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)out;
    const pl_value_t *target = pl_input_of(g, op, 0), *value = pl_input_of(g, op, 1);
    if (target->source != PL_FROM_REGION)
        return pl_op_fail(g, "assign takes a parameter, a state or a slot to write to, "
                             "got a computed or read value");
    if (!pl_same_shape(target->shape, value->shape))
        return pl_op_fail(g, "assign takes a value of the target's shape %s, got %s",
                          PL_TEXT_OF(target->shape), PL_TEXT_OF(value->shape));
    return pl_want_float(g, op, 2);
}

void pl_assign(pl_graph_t *g, pl_node_t target, pl_node_t value)
{
    pl_emit2(g, PL_OP_assign, target, value);
}

static int shape_guard(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)out;
    pl_shape_t x = pl_input_shape(g, op, 0);
    if (x.rank)
        return pl_op_fail(g, "guard takes a scalar, got %s", PL_TEXT_OF(x));
    return pl_want_float(g, op, 1);
}

/* ---- collective ---- */

static int shape_collective(pl_graph_t *g, const pl_op_t *op, pl_value_t *out)
{
    (void)out;
    if (pl_input_of(g, op, 0)->source != PL_FROM_REGION)
        return pl_op_fail(g,
                          "a collective takes a piece of a region, got a computed value");
    return pl_want_float(g, op, 1);
}

int64_t pl_graph_collective_reserve(pl_graph_t *g, int64_t count)
{
    const int64_t from = g->collective_elements;
    g->collective_elements += (count + PL_REGION_ALIGN - 1) / PL_REGION_ALIGN
                              * PL_REGION_ALIGN;
    return from;
}

void pl_graph_collective(pl_graph_t *g, pl_graph_collective_t how, int64_t from,
                         int64_t count, const pl_running_t *running)
{
    const pl_node_t piece = pl_region_view(g, PL_REGION_COLLECTIVE, from,
                                           PL_SHAPE(count));
    pl_attr_t attr = {.from = how, .axis = g->collectives++};
    if (running)
        attr.running = *running;
    pl_emit(g, PL_OP_collective, &piece, 1, &attr, NULL);
}

const pl_rules_t pl_effects_rules[PL_OPCODES] = {
    [PL_OP_collective] = {shape_collective, NULL},
    [PL_OP_assign] = {shape_assign, NULL},
    [PL_OP_guard] = {shape_guard, NULL},
};
