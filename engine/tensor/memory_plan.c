/* memory_plan.c - liveness of the values of a graph, and an allocation for each
 *
 * First views are traced to the memory that they show, and live ranges are counted.
 * Then values that are made only for an assignment move to its target.  Then values
 * take the place of an input that dies, where that is allowed.  The rest is laid out
 * largest first, each in the smallest gap that is free for all of its life. */
#include "tensor/memory_plan.h"

#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tensor/alias_index.h"

typedef struct memory_block {                   /* bytes for values one after the other */
    int32_t owner;                              /* the first of them */
    int first_use, last_use;
    size_t bytes, offset;
} memory_block_t;

typedef struct planner {
    const pl_graph_t *g;
    const pl_memory_plan_rules_t *rules;
    pl_allocation_t *allocation;
    bool *done;
    bool *plain;                           /* [values] it has the root's elements in their
                                              order */
    bool *inherited;                       /* [values] a later value took its place */
    pl_alias_index_t aliases;
    int *guards;                                   /* [operations + 1] guards before it */
    int *block_of;                                 /* [values] of those that own one */
    memory_block_t *block;                         /* in order of offset, once laid out */
    int blocks, capacity;
    size_t arena;
} planner_t;

static int op_time(const planner_t *p, int op)
{
    return p->rules->time ? p->rules->time[op] : op;
}

static bool op_is_view(const planner_t *p, int op)
{
    if (p->g->op[op].code == PL_OP_reshape)
        return true;
    return p->rules->is_view && p->rules->is_view(p->g, op, p->rules->user);
}

static size_t value_bytes(const planner_t *p, int32_t value)
{
    const pl_value_t *v = &p->g->value[value];
    size_t bytes = p->rules->bytes
                       ? p->rules->bytes(p->g, value, p->rules->user)
                       : (size_t)pl_elements(v->shape) * pl_dtype_size(v->dtype);
    return (bytes + PL_ARENA_ALIGN - 1) / PL_ARENA_ALIGN * PL_ARENA_ALIGN;
}

/* ---- Views and live ranges ---- */

static void is_used_until(planner_t *p, int32_t value, int time)
{
    pl_allocation_t *allocation = &p->allocation[p->allocation[value].root];
    if (allocation->last_use < time)
        allocation->last_use = time;
}

static void live_ranges(planner_t *p)
{
    const pl_graph_t *g = p->g;
    for (int32_t v = 0; v < g->value_count; v++) {
        const bool outside = g->value[v].source != PL_FROM_OP;
        p->allocation[v] = (pl_allocation_t){.kind = outside ? PL_ALLOCATION_EXTERNAL
                                                             : PL_ALLOCATION_NONE,
                                             .root = v,
                                             .last_use = -1};
        p->plain[v] = true;
    }
    for (int i = 0; i < g->op_count; i++) {
        for (int k = 0; k < g->op[i].output_count; k++)
            p->allocation[g->op[i].output[k]].first_use = op_time(p, i);
        if (!op_is_view(p, i))
            continue;
        int32_t from = g->op[i].input[0], to = g->op[i].output[0];
        p->allocation[to].root = p->allocation[from].root;
        p->allocation[to].kind = p->allocation[from].kind;
        p->plain[to] = p->plain[from] && g->op[i].code == PL_OP_reshape;
    }
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count && !op_is_view(p, i); k++)
            is_used_until(p, g->op[i].input[k], op_time(p, i));
    for (int i = 0; i < g->fetch_count; i++) {
        is_used_until(p, g->fetch[i].value, INT_MAX);
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            is_used_until(p, g->fetch[i].weight, INT_MAX);
    }
}

/* ---- Values that are computed in the target of an assignment ---- */

/* Between the maker and the assignment no operation may read or write the target, or
 * stop the assignment; afterwards none may write to it while the value is still read.
 * Only the maker itself may read it, if it works in place. */
static bool may_move(const planner_t *p, int assign, int32_t root)
{
    const pl_graph_t *g = p->g;
    const int made = g->value[root].op, first_use = p->allocation[root].first_use;
    const pl_value_t *target = &g->value[g->op[assign].input[0]];
    const int64_t end = target->offset + pl_elements(target->shape);
    if (p->rules->must_stay && p->rules->must_stay(g, made, target, p->rules->user))
        return false;
    if (assign > made && p->guards[assign] > p->guards[made + 1])
        return false;
    for (const pl_alias_t *t = pl_alias_last(&p->aliases, target); t;
         t = pl_alias_before(&p->aliases, target, t)) {
        const int i = t->op, now = op_time(p, i);
        const bool is_before = i > made && i<assign, is_after = i> assign
                               && now <= p->allocation[root].last_use;
        if (pl_op_writes(&g->op[i], t->input)) {
            if (is_before || is_after)
                return false;
            continue;
        }
        if ((i >= assign && now != first_use) || now < first_use)
            continue;
        const bool is_same = t->from == target->offset && t->to == end;
        if (now != first_use || !is_same || !p->rules->in_place
            || !p->rules->in_place(g, made, g->op[i].input[t->input], p->rules->user))
            return false;
    }
    return true;
}

static int move_to_targets(planner_t *p)
{
    const pl_graph_t *g = p->g;
    int32_t *roots = pl_alloc_array((size_t)g->value_count, sizeof *roots);
    if (!roots)
        return PL_ENOMEM;
    for (int32_t v = 0; v < g->value_count; v++)
        roots[v] = p->allocation[v].root;
    int code = pl_alias_index_build(&p->aliases, g, roots, NULL);
    pl_free(roots);
    if (code != PL_OK)
        return code;
    for (int i = 0; i < g->op_count; i++)
        p->guards[i + 1] = p->guards[i] + (g->op[i].code == PL_OP_guard);
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t *op = &g->op[i];
        if (op->code != PL_OP_assign || op->attr.accumulate)
            continue;
        int32_t root = p->allocation[op->input[1]].root;
        if (g->value[root].source != PL_FROM_OP
            || p->allocation[root].kind == PL_ALLOCATION_TARGET
            || (p->rules->inside && p->rules->inside[root]) || !p->plain[op->input[1]]
            || !may_move(p, i, root))
            continue;
        p->allocation[root].kind = PL_ALLOCATION_TARGET;
        p->allocation[root].region = (pl_region_t)g->value[op->input[0]].index;
        p->allocation[root].offset = g->value[op->input[0]].offset;
        p->done[i] = true;
    }
    return PL_OK;
}

/* ---- The arena ---- */

/* A value that the maker of v reads for the last time, and whose memory v may take; -1:
 * none. */
static int32_t predecessor(const planner_t *p, int32_t v)
{
    const pl_graph_t *g = p->g;
    const int maker = g->value[v].op, now = op_time(p, maker);
    int from = maker, to = maker;
    while (from > 0 && op_time(p, from - 1) == now)
        from--;
    while (to + 1 < g->op_count && op_time(p, to + 1) == now)
        to++;
    for (int i = from; i <= to; i++)
        for (int k = 0; k < g->op[i].input_count; k++) {
            int32_t input = g->op[i].input[k], root = p->allocation[input].root;
            if (p->allocation[root].kind == PL_ALLOCATION_ARENA
                && p->allocation[root].last_use == now
                && p->allocation[root].first_use < now && p->plain[input]
                && !p->inherited[root] && value_bytes(p, root) >= value_bytes(p, v)
                && p->rules->in_place(g, maker, input, p->rules->user))
                return root;
        }
    return -1;
}

/* Gives v, a root, a block or the place of a predecessor. */
static int make_block(planner_t *p, int32_t v)
{
    pl_allocation_t *allocation = &p->allocation[v];
    allocation->kind = PL_ALLOCATION_ARENA;
    int32_t before = p->rules->in_place && p->g->value[v].index == 0 ? predecessor(p, v)
                                                                     : -1;
    if (before >= 0) {
        p->inherited[before] = true;
        allocation->offset =
            p->allocation[before].offset;       /* the owner, until blocks have offsets */
        p->block[p->block_of[allocation->offset]].last_use = allocation->last_use;
        return PL_OK;
    }
    if (PL_GROW(p->block, p->blocks, p->capacity) != PL_OK)
        return PL_ENOMEM;
    p->block_of[v] = p->blocks;
    p->block[p->blocks++] = (memory_block_t){.owner = v,
                                             .first_use = allocation->first_use,
                                             .last_use = allocation->last_use,
                                             .bytes = value_bytes(p, v)};
    allocation->offset = v;
    return PL_OK;
}

static int by_size(const void *a, const void *b)
{
    const memory_block_t *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->owner - y->owner;                             /* the same plan every time */
}

/* The smallest gap that is free while b lives, among `count` blocks in order of
 * offset. */
static size_t best_offset(const memory_block_t *placed, int count,
                          const memory_block_t *b)
{
    size_t end = 0, best = 0, best_gap = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        if (placed[i].last_use < b->first_use || b->last_use < placed[i].first_use)
            continue;
        size_t gap = placed[i].offset > end ? placed[i].offset - end : 0;
        if (gap >= b->bytes && gap < best_gap) {
            best = end;
            best_gap = gap;
        }
        if (placed[i].offset + placed[i].bytes > end)
            end = placed[i].offset + placed[i].bytes;
    }
    return best_gap == SIZE_MAX ? end : best;
}

/* Gives values blocks, the blocks offsets, and views the allocations of their roots. */
static int lay_out(planner_t *p)
{
    const pl_graph_t *g = p->g;
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].output_count; k++) {
            int32_t v = g->op[i].output[k];
            const pl_allocation_t *allocation = &p->allocation[v];
            if (allocation->root != v || allocation->kind != PL_ALLOCATION_NONE
                || allocation->last_use < 0 || (p->rules->inside && p->rules->inside[v]))
                continue;
            if (make_block(p, v) != PL_OK)
                return PL_ENOMEM;
        }
    if (p->blocks)
        qsort(p->block, (size_t)p->blocks, sizeof *p->block, by_size);
    for (int i = 0; i < p->blocks; i++) {
        memory_block_t b = p->block[i];
        b.offset = best_offset(p->block, i, &b);
        if (b.offset + b.bytes > p->arena)
            p->arena = b.offset + b.bytes;
        int at = i;
        for (; at > 0 && p->block[at - 1].offset > b.offset; at--)
            p->block[at] = p->block[at - 1];
        p->block[at] = b;
    }
    for (int k = 0; k < p->blocks; k++)
        p->block_of[p->block[k].owner] = k;
    for (int32_t v = 0; v < g->value_count; v++) {          /* owners become offsets */
        pl_allocation_t *allocation = &p->allocation[v];
        if (allocation->root != v || allocation->kind != PL_ALLOCATION_ARENA)
            continue;
        const memory_block_t *block = &p->block[p->block_of[allocation->offset]];
        allocation->offset = (int64_t)block->offset;
        allocation->root = block->owner;
    }
    for (int i = 0; i < g->op_count; i++)
        if (op_is_view(p, i))
            p->allocation[g->op[i].output[0]] = p->allocation[g->op[i].input[0]];
    return PL_OK;
}

int pl_memory_plan_build(pl_memory_plan_t *plan, const pl_graph_t *g,
                         const pl_memory_plan_rules_t *rules, pl_error_t *err)
{
    static const pl_memory_plan_rules_t none;
    const size_t values = (size_t)g->value_count;
    planner_t p = {.g = g, .rules = rules ? rules : &none};
    p.allocation = pl_alloc_array(values, sizeof *p.allocation);
    p.done = pl_alloc_array((size_t)g->op_count, sizeof *p.done);
    p.plain = pl_alloc_array(values, sizeof *p.plain);
    p.inherited = pl_alloc_array(values, sizeof *p.inherited);
    p.guards = pl_alloc_array((size_t)g->op_count + 1, sizeof *p.guards);
    p.block_of = pl_alloc_array(values, sizeof *p.block_of);
    bool whole = p.allocation && p.done && p.plain && p.inherited && p.guards
                 && p.block_of;
    if (whole) {
        live_ranges(&p);
        whole = move_to_targets(&p) == PL_OK && lay_out(&p) == PL_OK;
    }
    if (whole) {
        *plan = (pl_memory_plan_t){.allocation = p.allocation,
                                   .done = p.done,
                                   .arena = p.arena};
    } else {
        pl_free(p.allocation);
        pl_free(p.done);
    }
    pl_free(p.plain);
    pl_free(p.inherited);
    pl_free(p.guards);
    pl_free(p.block_of);
    pl_alias_index_release(&p.aliases);
    pl_free(p.block);
    return whole ? PL_OK : pl_no_memory(err);
}

void pl_memory_plan_release(pl_memory_plan_t *plan)
{
    pl_free(plan->allocation);
    pl_free(plan->done);
    *plan = (pl_memory_plan_t){0};
}
