/* emulate.c - half precision on a processor that has none
 *
 * A value in half precision is kept as float32, rounded after the operator that computes
 * it.  Products of halves are exact in float32 and are summed in float32, as tensor units
 * do; so the results equal those of real 16-bit storage, at the cost of the roundings.
 * A matrix product whose factors are bfloat16 says so, for processors that have such
 * products: what it reads loses nothing in 16 bits. */
#include "accelerators/cpu/device.h"

#include <string.h>

#include "accelerators/plan/formulas.h"
#include "base/alloc.h"
#include "base/error.h"
#include "tensor/operators.h"

bool pl_is_emulated(pl_dtype_t dtype)
{
    return dtype == PL_BF16 || dtype == PL_F16;
}

typedef struct emulator {
    pl_graph_t *g;
    int32_t *same;                                      /* [values] replacement of each */
    bool failed;                                        /* out of memory */
} emulator_t;

static void add_op(emulator_t *e, const pl_op_t *op)
{
    pl_graph_t *g = e->g;
    e->failed = e->failed || PL_GROW(g->op, g->op_count, g->op_capacity) != PL_OK;
    if (e->failed)
        return;
    for (int k = 0; k < op->output_count; k++)
        g->value[op->output[k]].op = g->op_count;
    g->op[g->op_count++] = *op;
}

/* Each output that needs a rounding becomes a new value, and its rounding makes the old
 * one. */
static void emulate_op(emulator_t *e, pl_op_t op)
{
    pl_graph_t *g = e->g;
    pl_op_t rounding[PL_OP_OUTPUTS];
    int roundings = 0;
    if ((op.code == PL_OP_linear || op.code == PL_OP_matmul)
        && g->value[op.input[0]].dtype == PL_BF16
        && g->value[op.input[1]].dtype == PL_BF16)
        op.attr.dtype = PL_BF16;
    for (int k = 0; k < op.input_count; k++)
        op.input[k] = e->same[op.input[k]];
    if (op.code == PL_OP_cast && !pl_is_emulated(g->value[op.output[0]].dtype)) {
        e->same[op.output[0]] = op.input[0];
        return;
    }
    for (int k = 0; k < op.output_count && op.code != PL_OP_cast && !e->failed; k++) {
        const int32_t old = op.output[k];
        const pl_value_t rounded = g->value[old];
        if (!pl_is_emulated(rounded.dtype) || pl_is_exact(op.code))
            continue;
        g->value[old].index = 0;
        op.output[k] = pl_value_add(g, &rounded).id;
        e->failed = e->failed || op.output[k] < 0;
        pl_op_t *r = &rounding[roundings++];
        *r = (pl_op_t){.code = PL_OP_cast,
                       .input_count = 1,
                       .output_count = 1,
                       .input = {op.output[k]},
                       .output = {old}};
        r->attr.dtype = rounded.dtype;
        memcpy(r->path, op.path, sizeof op.path);
        r->is_repeated = op.is_repeated;
    }
    if (e->failed)
        return;
    add_op(e, &op);
    for (int k = 0; k < roundings; k++)
        add_op(e, &rounding[k]);
}

int pl_emulate(pl_graph_t *g, pl_error_t *err)
{
    int32_t first = 0;
    while (first < g->value_count && !pl_is_emulated(g->value[first].dtype))
        first++;
    if (first == g->value_count)                            /* no half precision */
        return PL_OK;
    emulator_t e = {.g = g};
    e.same = pl_alloc_array((size_t)g->value_count, sizeof *e.same);
    if (!e.same)
        return pl_no_memory(err);
    for (int32_t i = 0; i < g->value_count; i++)
        e.same[i] = i;
    pl_op_t *op = g->op;
    const int count = g->op_count;
    g->op = NULL;
    g->op_count = g->op_capacity = 0;
    for (int i = 0; i < count && !e.failed; i++)
        emulate_op(&e, op[i]);
    pl_free(op);
    for (int32_t i = 0; i < g->value_count; i++)
        if (pl_is_emulated(g->value[i].dtype))
            g->value[i].dtype = PL_F32;
    for (int i = 0; i < g->fetch_count && !e.failed; i++) {
        g->fetch[i].value = e.same[g->fetch[i].value];
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            g->fetch[i].weight = e.same[g->fetch[i].weight];
    }
    pl_free(e.same);
    return e.failed ? pl_no_memory(err) : PL_OK;
}
