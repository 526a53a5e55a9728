/* recompute.c - activation checkpointing: values that backward computes again
 *
 * A repeated operation has the inputs, attributes and random stream of the first one, so
 * it makes the same bits.  Three kinds of values are not computed again but kept: those
 * that operations outside the scope read, results of the step, and those that depend
 * directly on memory that the step changes afterwards, such as running statistics.
 * Effects happen once.  Pruning removes repetitions that no gradient reads; where one
 * reads only what an operation keeps beside its result, such as the positions of a pool,
 * forward keeps that, because kernels store their first result. */
#include "tensor/recompute.h"

#include "base/alloc.h"
#include "tensor/alias_index.h"
#include "tensor/operators.h"

/* Marks the operations that read memory that a later operation writes. */
static int changes_find(pl_recompute_t *r, const pl_graph_t *g, const int32_t *root)
{
    pl_alias_index_t aliases = {0};
    const int code = pl_alias_index_build(&aliases, g, root, NULL);
    for (int i = 0; i < r->ops && code == PL_OK; i++) {
        const pl_op_t *op = &g->op[i];
        for (int k = 0; k < op->input_count && op->checkpoint; k++) {
            const pl_value_t *v = &g->value[root[op->input[k]]];
            if (v->source != PL_FROM_REGION)
                continue;
            for (const pl_alias_t *t = pl_alias_last(&aliases, v); t;
                 t = pl_alias_before(&aliases, v, t))
                r->is_once[i] |= t->op > i && pl_op_writes(&g->op[t->op], t->input);
        }
    }
    pl_alias_index_release(&aliases);
    return code;
}

static void kept_find(pl_recompute_t *r, const pl_graph_t *g)
{
    for (int i = 0; i < r->ops; i++)
        for (int k = 0; k < g->op[i].input_count; k++) {
            const pl_value_t *v = &g->value[g->op[i].input[k]];
            if (v->source == PL_FROM_OP
                && g->op[v->op].checkpoint != g->op[i].checkpoint)
                r->is_kept[g->op[i].input[k]] = true;
        }
    for (int i = 0; i < g->fetch_count; i++) {
        r->is_kept[g->fetch[i].value] = true;
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            r->is_kept[g->fetch[i].weight] = true;
    }
}

void pl_recompute_init(pl_recompute_t *r, pl_graph_t *g)
{
    *r = (pl_recompute_t){.values = g->value_count, .ops = g->op_count};
    bool any = false;
    for (int i = 0; i < r->ops; i++)
        any |= g->op[i].checkpoint != 0;
    if (!any || g->ignores_checkpoints)
        return;
    int32_t *root = pl_alloc_array((size_t)r->values, sizeof *root);
    r->in_backward = pl_alloc_array((size_t)r->values, sizeof *r->in_backward);
    r->is_kept = pl_alloc_array((size_t)r->values, sizeof *r->is_kept);
    r->is_once = pl_alloc_array((size_t)r->ops, sizeof *r->is_once);
    bool is_whole = root && r->in_backward && r->is_kept && r->is_once;
    for (int32_t v = 0; v < r->values && is_whole; v++)
        root[v] = r->in_backward[v] = v;
    for (int i = 0; i < r->ops && is_whole; i++)
        if (g->op[i].code == PL_OP_reshape)
            root[g->op[i].output[0]] = root[g->op[i].input[0]];
    if (is_whole)
        is_whole = changes_find(r, g, root) == PL_OK;
    if (is_whole)
        kept_find(r, g);
    else
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
    pl_free(root);
}

void pl_recompute_release(pl_recompute_t *r)
{
    pl_free(r->in_backward);
    pl_free(r->is_kept);
    pl_free(r->is_once);
    *r = (pl_recompute_t){0};
}

static void repeat(pl_recompute_t *r, pl_graph_t *g, int i)
{
    pl_op_t op = g->op[i];
    pl_recompute_values(r, &op);
    op.is_repeated = true;
    op.gradient_of = pl_op_name(&op);
    for (int k = 0; k < op.output_count; k++) {
        const int32_t first = g->op[i].output[k];
        pl_value_t value = g->value[first];
        value.op = g->op_count;
        op.output[k] = pl_value_add(g, &value).id;
        if (!r->is_kept[first])
            r->in_backward[first] = op.output[k];
    }
    if (!g->error.code && PL_GROW(g->op, g->op_count, g->op_capacity) != PL_OK)
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
    if (!g->error.code)
        g->op[g->op_count++] = op;
}

void pl_recompute_before(pl_recompute_t *r, pl_graph_t *g, int last)
{
    const int scope = g->op[last].checkpoint;
    if (!r->in_backward || !scope
        || (last + 1 < r->ops && g->op[last + 1].checkpoint == scope))
        return;
    int first = last;
    while (first > 0 && g->op[first - 1].checkpoint == scope)
        first--;
    for (int i = first; i <= last && !g->error.code; i++) {
        const bool is_effect = pl_operators[g->op[i].code].kind == PL_KIND_effect;
        if (!is_effect && !r->is_once[i])
            repeat(r, g, i);
    }
}

void pl_recompute_values(const pl_recompute_t *r, pl_op_t *op)
{
    for (int k = 0; k < op->input_count && r->in_backward; k++)
        op->input[k] = r->in_backward[op->input[k]];
    for (int k = 0; k < op->output_count && r->in_backward; k++)
        op->output[k] = r->in_backward[op->output[k]];
}

/* As pl_graph_prune() does, from the last operation to the first; same[v] is what the
 * readers of v read. */
static void take_back(pl_graph_t *g, bool *is_needed, int32_t *same)
{
    for (int i = 0; i < g->fetch_count; i++) {
        is_needed[g->fetch[i].value] = true;
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            is_needed[g->fetch[i].weight] = true;
    }
    for (int i = g->op_count - 1; i >= 0; i--) {
        const pl_op_t *op = &g->op[i];
        bool keeps = pl_operators[op->code].kind == PL_KIND_effect;
        for (int k = 0; k < op->output_count; k++)
            keeps |= is_needed[op->output[k]];
        const bool is_back = keeps && op->is_repeated && !is_needed[op->output[0]];
        for (int k = 0; k < op->output_count; k++)
            if (is_back)
                is_needed[same[op->output[k]]] = true;
            else
                same[op->output[k]] = op->output[k];
        for (int k = 0; k < op->input_count && keeps && !is_back; k++)
            is_needed[op->input[k]] = true;
    }
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++)
            g->op[i].input[k] = same[g->op[i].input[k]];
}

void pl_recompute_finish(const pl_recompute_t *r, pl_graph_t *g)
{
    if (!r->in_backward || g->error.code)
        return;
    bool *is_needed = pl_alloc_array((size_t)g->value_count, sizeof *is_needed);
    int32_t *same = pl_alloc_array((size_t)g->value_count, sizeof *same);
    for (int32_t v = 0; v < g->value_count && same; v++)
        same[v] = v;
    for (int32_t v = 0; v < r->values && same; v++)
        same[r->in_backward[v]] = v;
    if (is_needed && same)
        take_back(g, is_needed, same);
    else
        pl_graph_fail(g, PL_ENOMEM, "out of memory");
    pl_free(is_needed);
    pl_free(same);
}
