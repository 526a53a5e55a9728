/* rewrite.c - rewrites graphs so that they need less work for the same results
 *
 * relu runs after max_pool instead of before: max(relu(x)) is relu(max(x)), with a
 * quarter of the elements.  If the largest value is not positive, max_pool may store
 * another position, but then its gradient is zero. */
#include "accelerators/plan/rewrite.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

int pl_graph_copy(pl_graph_t *copy, const pl_graph_t *g, pl_error_t *err)
{
    *copy = *g;
    copy->places = NULL;                                 /* only descriptions need them */
    copy->value = NULL;
    copy->op = NULL;
    copy->fetch = NULL;
    copy->value_capacity = g->value_count;
    copy->op_capacity = g->op_count;
    copy->value = pl_alloc_array((size_t)g->value_count, sizeof *g->value);
    copy->op = pl_alloc_array((size_t)g->op_count, sizeof *g->op);
    copy->fetch = pl_alloc_array((size_t)g->fetch_count, sizeof *g->fetch);
    if (!copy->value || !copy->op || !copy->fetch)
        return pl_no_memory(err);
    if (g->value_count)
        memcpy(copy->value, g->value, (size_t)g->value_count * sizeof *g->value);
    for (int i = 0; i < g->value_count; i++)
        pl_object_ref(copy->value[i].tensor);
    if (g->op_count)
        memcpy(copy->op, g->op, (size_t)g->op_count * sizeof *g->op);
    if (g->fetch_count)
        memcpy(copy->fetch, g->fetch, (size_t)g->fetch_count * sizeof *g->fetch);
    return PL_OK;
}

void pl_graph_copy_release(pl_graph_t *copy)
{
    for (int i = 0; copy->value && i < copy->value_count; i++)
        pl_object_unref(copy->value[i].tensor);
    pl_free(copy->value);
    pl_free(copy->op);
    pl_free(copy->fetch);
    *copy = (pl_graph_t){0};
}

bool pl_graph_is_float64(const pl_graph_t *g)
{
    for (int32_t i = 0; i < g->value_count; i++)
        if (g->value[i].dtype == PL_F64 && g->value[i].source != PL_FROM_INPUT)
            return true;
    return false;
}

int pl_graph_readers(const pl_graph_t *g, int32_t value)
{
    int count = 0;
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++)
            count += g->op[i].input[k] == value;
    for (int i = 0; i < g->fetch_count; i++)
        count += g->fetch[i].value == value
                 || (g->fetch[i].kind == PL_FETCH_METRIC && g->fetch[i].weight == value);
    return count;
}

/* The operation of that code that makes the value, or -1. */
static int maker_of(const pl_graph_t *g, int32_t value, pl_opcode_t code)
{
    const pl_value_t *v = &g->value[value];
    return v->source == PL_FROM_OP && g->op[v->op].code == code ? v->op : -1;
}

/* Moves relu after the pool if only the pool and its gradient's relu_grad read relu's
 * result. */
static void relu_after_pool(pl_graph_t *g, int pool)
{
    const int32_t x = g->op[pool].input[0], y = g->op[pool].output[0];
    const int relu = maker_of(g, x, PL_OP_relu), readers = pl_graph_readers(g, x);
    if (relu < 0 || readers > 2)
        return;
    int relu_grad = 0, pool_grad = -1;
    while (
        relu_grad < g->op_count
        && (g->op[relu_grad].code != PL_OP_relu_grad || g->op[relu_grad].input[1] != x))
        relu_grad++;
    if (relu_grad < g->op_count)
        pool_grad = maker_of(g, g->op[relu_grad].input[0], PL_OP_max_pool_grad);
    if (readers == 2
        && (pool_grad < 0 || g->op[pool_grad].input[1] != g->op[pool].output[1]
            || pl_graph_readers(g, g->op[pool_grad].output[0]) != 1))
        return;
    if (readers == 2) {   /* relu_grad(pool_grad(dy), x) -> pool_grad(relu_grad(dy, y)) */
        pl_op_t inner = g->op[relu_grad], outer = g->op[pool_grad];
        const int32_t between = outer.output[0], dx = inner.output[0];
        inner.input[0] = outer.input[0];
        inner.input[1] = y;
        inner.output[0] = between;
        outer.input[0] = between;
        outer.output[0] = dx;
        g->op[pool_grad] = inner;
        g->op[relu_grad] = outer;
        g->value[between].shape = g->value[y].shape;
    }
    pl_op_t first = g->op[pool], second = g->op[relu];      /* pool(relu) -> relu(pool) */
    const int32_t between = second.output[0];
    first.input[0] = second.input[0];
    first.output[0] = between;
    second.input[0] = between;
    second.output[0] = y;
    g->op[relu] = first;
    g->op[pool] = second;
    g->value[first.output[1]].op = relu;
    g->value[between].shape = g->value[y].shape;
}

void pl_rewrite(pl_graph_t *g)
{
    for (int i = 0; i < g->op_count; i++)
        if (g->op[i].code == PL_OP_max_pool)
            relu_after_pool(g, i);
}
