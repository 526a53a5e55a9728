/* fuse.c - groups operations into units that run together
 *
 * Operations are placed in their order.  Each may join an earlier unit if everything it
 * depends on runs before: its inputs, readers of values that it overwrites, and guards.
 * A unit keeps the order of the graph for each element: so an operation that reads a
 * piece of a region element by element may share a unit with the assign to it. */
#include "accelerators/plan/fuse.h"

#include <string.h>

#include "accelerators/plan/rewrite.h"
#include "accelerators/plan/view.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"
#include "tensor/alias_index.h"

typedef struct unit {
    int64_t elements;                        /* 0: no other operation may join */
    int entries, lines, dropouts, totals;    /* so far: see pl_unit_limits_t */
    int newest;                              /* operation in it + 1; 0: none */
    int previous;                            /* unit with as many elements + 1; 0: none */
    int core;                                /* its core + 1; 0: none */
} unit_t;

typedef struct fuser {
    pl_graph_t *g;
    const pl_unit_limits_t *limits;
    pl_fusion_t *fusion;
    unit_t *unit;                          /* [units] */
    int *before;                           /* [operations] previous one of its unit + 1 */
    bool failed;                           /* out of memory */
    int after_guards;                      /* the first unit after all guards so far */
    int repeats_from;                      /* the first unit of operations that are
                                              repeated one after the other */
    bool repeats;                          /* the operation before was one */
    pl_map_t newest;                       /* number of elements: newest unit + 1 */
    pl_alias_index_t aliases;
} fuser_t;

bool pl_is_total(const pl_graph_t *g, const pl_op_t *op)
{
    return op->code == PL_OP_norm
           || (op->code == PL_OP_sum && pl_elements(g->value[op->output[0]].shape) == 1);
}

bool pl_is_elementwise(const pl_graph_t *g, const pl_op_t *op)
{
    const pl_op_kind_t kind = pl_operators[op->code].kind;
    if (op->code == PL_OP_broadcast)
        return pl_is_float(g->value[op->output[0]].dtype);
    if (pl_is_total(g, op))
        return true;
    return kind == PL_KIND_element || op->code == PL_OP_assign;
}

int64_t pl_op_elements(const pl_graph_t *g, const pl_op_t *op)
{
    const bool by_input = op->code == PL_OP_assign || op->code == PL_OP_norm
                          || op->code == PL_OP_sum;
    return pl_elements(g->value[by_input ? op->input[0] : op->output[0]].shape);
}

bool pl_values_overlap(const pl_value_t *a, const pl_value_t *b)
{
    return a->source == PL_FROM_REGION && b->source == PL_FROM_REGION
           && a->index == b->index && a->offset < b->offset + pl_elements(b->shape)
           && b->offset < a->offset + pl_elements(a->shape);
}

/* ---- Cores ---- */

/* Elements that a group of threads can keep in registers. */
enum { ROW_ELEMENTS_MAX = 8192 };

static bool is_product(const fuser_t *f, const pl_op_t *op)
{
    return f->limits->front && (op->code == PL_OP_matmul || op->code == PL_OP_linear);
}

/* True if the result can be added directly to the target of its assign. */
static bool is_gradient(const fuser_t *f, const pl_op_t *op)
{
    return f->limits->front
           && (op->code == PL_OP_embedding_grad
               || (op->code == PL_OP_sum && !pl_is_total(f->g, op)));
}

/* True if element-wise operations of the unit may read the first output. */
static bool is_core(const fuser_t *f, const pl_op_t *op)
{
    return f->limits->cores
           && (op->code == PL_OP_layer_norm || op->code == PL_OP_layer_norm_grad
               || is_gradient(f, op) || is_product(f, op));
}

bool pl_concat_place(const pl_graph_t *g, const pl_op_t *concat, const pl_view_t *view,
                     int k, pl_view_t *place)
{
    const int32_t result = concat->output[0];
    const pl_view_t whole = pl_view_whole(result, g->value[result].shape);
    const int axis = concat->attr.axis;
    int64_t at = 0;
    for (int i = 0; i < k; i++)
        at += view[i].shape.dim[axis];
    const pl_view_t slice = pl_view_slice(&whole, axis, at, view[k].shape.dim[axis], 1);
    return pl_view_reshape(&slice, g->value[concat->input[k]].shape, place);
}

/* The operation whose outputs a concat joins in the order of memory, if the concat is
 * their only reader; else -1. */
static int concat_source(const fuser_t *f, const pl_op_t *op)
{
    const pl_graph_t *g = f->g;
    int maker = -1;
    for (int k = 0; k < op->input_count && f->limits->view; k++) {
        const pl_view_t *view = &f->limits->view[op->attr.from + k];
        const pl_value_t *part = &g->value[op->input[k]];
        pl_view_t place;
        if (part->source != PL_FROM_OP || (k && part->op != maker) || view->offset
            || g->op[part->op].code != PL_OP_attention_grad || !pl_view_is_dense(view)
            || pl_graph_readers(g, op->input[k]) != 1
            || pl_elements(view->shape) != pl_elements(part->shape)
            || !pl_concat_place(g, op, view - k, k, &place))
            return -1;
        maker = part->op;
    }
    return maker;
}

int pl_unit_core(const pl_graph_t *g, int from, int to)
{
    for (int i = from; i < to; i++)
        if (g->op[i].code != PL_OP_reshape && !pl_is_elementwise(g, &g->op[i]))
            return i;
    return -1;
}

static bool is_piece(const pl_alias_t *alias, const pl_value_t *v)
{
    return alias->from == v->offset && alias->to == v->offset + pl_elements(v->shape);
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* The first unit for an operation that must run after operation j: the unit of j if both
 * process the same elements one by one, else the next unit. */
static int after(const fuser_t *f, int j, bool alike)
{
    return f->fusion->unit[j] + (alike ? 0 : 1);
}

/* The first unit in which operation i may read `value`. */
static int floor_of_read(const fuser_t *f, int i, int32_t value)
{
    const pl_graph_t *g = f->g;
    const pl_value_t *v = &g->value[f->fusion->root[value]];
    const bool whole = pl_elements(v->shape) == pl_op_elements(g, &g->op[i]);
    int floor = 0;
    if (v->source == PL_FROM_OP)
        return after(f, v->op,
                     whole && !pl_is_total(g, &g->op[v->op])
                         && f->fusion->root[value] == g->op[v->op].output[0]);
    if (v->source != PL_FROM_REGION)
        return 0;
    for (const pl_alias_t *t = pl_alias_last(&f->aliases, v); t;
         t = pl_alias_before(&f->aliases, v, t))
        if (t->op < i && pl_op_writes(&g->op[t->op], t->input))
            floor = larger(floor, after(f, t->op, whole && is_piece(t, v)));
    return floor;
}

/* The first unit in which operation i may run.  Operations after a guard stay there:
 * assigns must, and most others compute values for them.  An assign runs after all that
 * read or write its target.  What is repeated for backward would need its memory from
 * forward on if it ran earlier. */
static int floor_of(const fuser_t *f, int i)
{
    const pl_graph_t *g = f->g;
    const pl_op_t *op = &g->op[i];
    const bool assigns = op->code == PL_OP_assign;
    const pl_value_t *t = assigns ? &g->value[op->input[0]] : NULL;
    int floor = op->is_repeated ? larger(f->after_guards, f->repeats_from)
                                : f->after_guards;
    for (const pl_alias_t *alias = t ? pl_alias_last(&f->aliases, t) : NULL; alias;
         alias = pl_alias_before(&f->aliases, t, alias)) {
        const pl_op_t *other = &g->op[alias->op];
        if (alias->op < i && other->code != PL_OP_reshape)
            floor = larger(floor, after(f, alias->op,
                                        pl_is_elementwise(g, other) && is_piece(alias, t)
                                            && pl_op_elements(g, other)
                                                   == pl_elements(t->shape)));
    }
    for (int k = assigns; k < op->input_count; k++)        /* an assign reads no target */
        floor = larger(floor, floor_of_read(f, i, op->input[k]));
    return floor;
}

/* True if an operation in unit u reads or makes the value. */
static bool unit_uses(const fuser_t *f, int u, int32_t root)
{
    const pl_graph_t *g = f->g;
    if (g->value[root].source == PL_FROM_OP && f->fusion->unit[g->value[root].op] == u)
        return true;
    for (int j = f->unit[u].newest - 1; j >= 0; j = f->before[j] - 1)
        for (int k = 0; k < g->op[j].input_count; k++)
            if (f->fusion->root[g->op[j].input[k]] == root)
                return true;
    return false;
}

/* Number of entries that unit u needs for the inputs of operation i; -1 if it uses
 * none of them, or only repeated ones: joining would gain nothing.  A repeated input,
 * other than a scalar, may need an entry for each way of repeating it. */
static int entries_needed(const fuser_t *f, int u, int i)
{
    const pl_op_t *op = &f->g->op[i];
    int count = 0, shared = 0;
    for (int k = 0; k < op->input_count; k++) {
        const int32_t root = f->fusion->root[op->input[k]];
        const int64_t elements = pl_elements(f->g->value[root].shape);
        const bool uses = unit_uses(f, u, root);
        const bool repeats = elements != pl_op_elements(f->g, op);
        shared += uses && !repeats && f->g->value[root].source != PL_FROM_CONSTANT;
        count += !uses || (elements != 1 && repeats);
    }
    return shared ? count : -1;
}

/* The result of the product that operation i may follow, or -1. */
static int32_t front_of(const fuser_t *f, int i)
{
    return f->limits->front ? f->limits->front(f->g, i, f->limits->user) : -1;
}

/* True if element-wise operation i may join a unit with a core. */
static bool core_takes(const fuser_t *f, const unit_t *unit, int i)
{
    const pl_op_t *core = &f->g->op[unit->core - 1], *op = &f->g->op[i];
    if (is_product(f, core))
        return front_of(f, i) == core->output[0];
    if (is_gradient(f, core))
        return op->code == PL_OP_assign && op->attr.accumulate
               && f->fusion->root[op->input[1]] == core->output[0];
    return !pl_is_total(f->g, op);
}

/* The unit that operation i joins, or -1. */
static int find_unit(const fuser_t *f, int i)
{
    const int64_t elements = pl_op_elements(f->g, &f->g->op[i]);
    const int floor = floor_of(f, i);
    int u = (int)(intptr_t)pl_map_get(&f->newest, (uint64_t)elements) - 1;
    for (; u >= floor; u = f->unit[u].previous - 1) {
        int more = entries_needed(f, u, i);
        if (more < 0 && u == f->fusion->units - 1)
            more = f->g->op[i].input_count;     /* a later operation usually reads both */
        if (f->unit[u].core && !core_takes(f, &f->unit[u], i))
            continue;
        if (more >= 0 && f->unit[u].entries + more < f->limits->operands
            && f->unit[u].lines < f->limits->lines
            && f->unit[u].dropouts < f->limits->dropouts
            && f->unit[u].totals < f->limits->totals)
            return u;
    }
    return -1;
}

static void join(fuser_t *f, int i, int u)
{
    f->fusion->unit[i] = u;
    f->before[i] = f->unit[u].newest;
    f->unit[u].newest = i + 1;
    if (f->g->op[i].code == PL_OP_guard)
        f->after_guards = larger(f->after_guards, u + 1);
}

static int open_unit(fuser_t *f, int64_t elements)
{
    const int u = f->fusion->units++;
    if (!elements)
        return u;
    f->unit[u].elements = elements;
    f->unit[u].previous = (int)(intptr_t)pl_map_get(&f->newest, (uint64_t)elements);
    f->failed |= pl_map_put(&f->newest, (uint64_t)elements, (void *)((intptr_t)u + 1))
                 != PL_OK;
    return u;
}

/* The unit that operation i, which is not element-wise, joins: the unit that makes its
 * first input, or -1.  The gradient of a cross-entropy joins the cross-entropy, if all
 * its inputs except the exponentials are computed before that unit. */
static int find_core_unit(const fuser_t *f, int i)
{
    enum { EXPONENTIALS = 3 };                 /* input of the cross-entropy's gradient */
    const pl_op_t *op = &f->g->op[i];
    if (op->code == PL_OP_cross_entropy_grad) {
        const pl_value_t *made = &f->g->value[op->input[EXPONENTIALS]];
        if (!f->limits->cores || made->source != PL_FROM_OP
            || f->g->op[made->op].code != PL_OP_cross_entropy)
            return -1;
        int floor = f->after_guards;
        for (int k = 0; k < op->input_count; k++)
            if (k != EXPONENTIALS)
                floor = larger(floor, floor_of_read(f, i, op->input[k]));
        return floor <= f->fusion->unit[made->op] ? f->fusion->unit[made->op] : -1;
    }
    if (op->code == PL_OP_sum) {
        const int32_t front = front_of(f, i);
        const int u = front < 0 ? -1 : f->fusion->unit[f->g->value[front].op];
        return floor_of(f, i) <= u ? u : -1;
    }
    if (op->code == PL_OP_concat) {
        const int maker = concat_source(f, op);
        return maker >= 0 && f->fusion->unit[maker] >= f->after_guards
                   ? f->fusion->unit[maker]
                   : -1;
    }
    const pl_shape_t shape = f->g->value[op->input[0]].shape;
    const pl_value_t *x = &f->g->value[f->fusion->root[op->input[0]]];
    if (!f->limits->cores || op->code != PL_OP_layer_norm
        || shape.dim[shape.rank - 1] > ROW_ELEMENTS_MAX || x->source != PL_FROM_OP)
        return -1;
    const int u = f->fusion->unit[x->op];
    const unit_t *unit = &f->unit[u];
    return unit->elements == pl_op_elements(f->g, op) && !unit->core && !unit->totals
                   && floor_of(f, i) <= u
                   && unit->entries + op->input_count + op->output_count
                          < f->limits->operands
               ? u
               : -1;
}

/* Puts operation i into an earlier unit or a new one. */
static void place(fuser_t *f, int i)
{
    const pl_op_t *op = &f->g->op[i];
    if (op->is_repeated && !f->repeats)
        f->repeats_from = f->fusion->units;
    f->repeats = op->is_repeated;
    if (op->code == PL_OP_reshape) {
        const pl_value_t *v = &f->g->value[f->fusion->root[op->output[0]]];
        join(f, i, v->source == PL_FROM_OP ? f->fusion->unit[v->op] : 0);
        return;
    }
    int u, entries;
    if (pl_is_elementwise(f->g, op)) {
        u = find_unit(f, i);
        entries = u >= 0 ? entries_needed(f, u, i) : -1;
        entries = (entries < 0 ? op->input_count : entries) + 1;
        if (u < 0)
            u = open_unit(f, pl_op_elements(f->g, op));
        f->unit[u].dropouts += op->code == PL_OP_dropout;
        f->unit[u].totals += pl_is_total(f->g, op);
    } else {
        u = op->input_count ? find_core_unit(f, i) : -1;
        entries = op->input_count + op->output_count;
        if (u < 0)
            u = open_unit(f, is_core(f, op)
                                 ? pl_elements(f->g->value[op->output[0]].shape)
                                 : 0);
        f->unit[u].core = f->unit[u].core ? f->unit[u].core : i + 1;
    }
    f->unit[u].entries += entries;
    f->unit[u].lines++;
    join(f, i, u);
}

/* ---- Scalars first ---- */

/* True if `op` must stay after `before`. */
static bool needs(const pl_graph_t *g, const pl_op_t *op, const pl_op_t *before)
{
    if (before->code == PL_OP_guard)
        return true;
    for (int k = 0; k < op->input_count; k++) {
        for (int o = 0; o < before->output_count; o++)
            if (before->output[o] == op->input[k])
                return true;
        if (pl_op_writes(before, 0)
            && pl_values_overlap(&g->value[op->input[k]], &g->value[before->input[0]]))
            return true;
    }
    return false;
}

/* Moves operations that compute one number as far to the front as possible: between two
 * long operations they would prevent these from running together. */
static void scalars_first(pl_graph_t *g)
{
    for (int i = 0; i < g->op_count; i++) {
        const pl_op_t op = g->op[i];
        const pl_op_kind_t kind = pl_operators[op.code].kind;
        if (kind != PL_KIND_element || pl_op_elements(g, &op) != 1 || op.is_repeated)
            continue;
        int to = i;
        for (; to > 0 && !needs(g, &op, &g->op[to - 1]); to--)
            g->op[to] = g->op[to - 1];
        g->op[to] = op;
    }
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].output_count; k++)
            g->value[g->op[i].output[k]].op = i;
}

/* ---- Properties of a unit ---- */

bool pl_unit_in_place(const pl_fusion_t *fusion, const pl_graph_t *g, int op,
                      int32_t input)
{
    if (pl_is_total(g, &g->op[op]))
        return false;                  /* written at the end, after all inputs are read */
    for (int i = op; i >= 0 && fusion->unit[i] == fusion->unit[op]; i--)
        for (int k = 0; k < g->op[i].input_count && g->op[i].code != PL_OP_reshape; k++)
            if (fusion->root[g->op[i].input[k]] == fusion->root[input]
                && pl_elements(g->value[input].shape) != pl_op_elements(g, &g->op[i]))
                return false;
    for (int i = op + 1; i < g->op_count && fusion->unit[i] == fusion->unit[op]; i++)
        for (int k = 0; k < g->op[i].input_count && g->op[i].code != PL_OP_reshape; k++)
            if (fusion->root[g->op[i].input[k]] == fusion->root[input])
                return false;
    return true;
}

bool pl_unit_is_nothing(const pl_graph_t *g, const bool *done, int from, int to)
{
    for (int i = from; i < to; i++)
        if (g->op[i].code != PL_OP_reshape && !done[i])
            return false;
    return true;
}

int pl_unit_first(const pl_graph_t *g, int from, int to)
{
    while (from < to && g->op[from].code == PL_OP_reshape)
        from++;
    return from;
}

/* ---- The whole graph ---- */

/* Sorts operations by unit, keeps their order within a unit, and updates the values. */
static int reorder(fuser_t *f)
{
    pl_graph_t *g = f->g;
    pl_op_t *op = pl_alloc_array((size_t)g->op_count, sizeof *op);
    int *unit = pl_alloc_array((size_t)g->op_count, sizeof *unit);
    /* What needs none is in the first, also where there would be no other. */
    const int units = f->fusion->units = larger(f->fusion->units, g->op_count > 0);
    int *start = pl_alloc_array((size_t)units + 1, sizeof *start);
    if (!op || !unit || !start) {
        pl_free(op);
        pl_free(start);
        pl_free(unit);
        return PL_ENOMEM;
    }
    for (int i = 0; i < g->op_count; i++)
        start[f->fusion->unit[i] + 1]++;
    for (int u = 1; u <= units; u++)
        start[u] += start[u - 1];
    for (int i = 0; i < g->op_count; i++) {
        const int to = start[f->fusion->unit[i]]++;
        unit[to] = f->fusion->unit[i];
        op[to] = g->op[i];
    }
    pl_free(start);
    pl_free(g->op);
    pl_free(f->fusion->unit);
    g->op = op;
    g->op_capacity = g->op_count;
    f->fusion->unit = unit;
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < op[i].output_count; k++)
            g->value[op[i].output[k]].op = i;
    return PL_OK;
}

/* A value stays inside if its maker is element-wise, or a core that other operations
 * follow, and only its unit reads it; so do reshapes of it.  A value that is made
 * before a core and read after it goes through memory. */
static void find_inside(fuser_t *f)
{
    const pl_graph_t *g = f->g;
    bool *inside = f->fusion->inside;
    for (int i = 0; i < g->op_count; i++)
        if (is_core(f, &g->op[i])
            || (pl_is_elementwise(g, &g->op[i]) && g->op[i].output_count
                && !pl_is_total(g, &g->op[i])))
            inside[g->op[i].output[0]] = true;
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count && g->op[i].code == PL_OP_concat; k++)
            inside[g->op[i].input[k]] = concat_source(f, &g->op[i]) >= 0;
    for (int i = 0; i < g->op_count && f->limits->cores; i++)
        if (g->op[i].code == PL_OP_cross_entropy)
            inside[g->op[i].output[2]] = true;
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++) {
            int32_t root = f->fusion->root[g->op[i].input[k]];
            if (g->value[root].source == PL_FROM_OP
                && f->fusion->unit[g->value[root].op] != f->fusion->unit[i])
                inside[root] = false;
        }
    for (int from = 0, to; from < g->op_count; from = to) {
        for (to = from; to < g->op_count && f->fusion->unit[to] == f->fusion->unit[from];
             to++)
            ;
        const int core = pl_unit_core(g, from, to);
        for (int i = core < 0 ? to : core + 1; i < to; i++)
            for (int k = 0; k < g->op[i].input_count; k++) {
                const int32_t root = f->fusion->root[g->op[i].input[k]];
                if (g->value[root].source == PL_FROM_OP && g->value[root].op < core)
                    inside[root] = false;
            }
    }
    for (int i = 0; i < g->fetch_count; i++) {
        inside[f->fusion->root[g->fetch[i].value]] = false;
        if (g->fetch[i].kind == PL_FETCH_METRIC)
            inside[f->fusion->root[g->fetch[i].weight]] = false;
    }
    for (int i = 0; i < g->op_count; i++)
        if (g->op[i].code == PL_OP_reshape)
            inside[g->op[i].output[0]] = inside[f->fusion->root[g->op[i].output[0]]];
}

int pl_fuse(pl_fusion_t *fusion, pl_graph_t *g, const pl_unit_limits_t *limits,
            pl_error_t *err)
{
    fuser_t f = {.g = g, .limits = limits, .fusion = fusion};
    *fusion = (pl_fusion_t){0};
    fusion->unit = pl_alloc_array((size_t)g->op_count, sizeof *fusion->unit);
    fusion->inside = pl_alloc_array((size_t)g->value_count, sizeof *fusion->inside);
    fusion->root = pl_alloc_array((size_t)g->value_count, sizeof *fusion->root);
    f.unit = pl_alloc_array((size_t)g->op_count, sizeof *f.unit);
    f.before = pl_alloc_array((size_t)g->op_count, sizeof *f.before);
    bool whole = fusion->unit && fusion->inside && fusion->root && f.unit && f.before;
    if (whole) {
        scalars_first(g);
        for (int32_t v = 0; v < g->value_count; v++)
            fusion->root[v] = v;
        for (int i = 0; i < g->op_count; i++)
            if (g->op[i].code == PL_OP_reshape)
                fusion->root[g->op[i].output[0]] = fusion->root[g->op[i].input[0]];
        whole = pl_alias_index_build(&f.aliases, g, fusion->root, err) == PL_OK;
    }
    if (whole) {
        for (int i = 0; i < g->op_count; i++)
            place(&f, i);
        whole = !f.failed && reorder(&f) == PL_OK;
    }
    if (whole)
        find_inside(&f);
    pl_free(f.unit);
    pl_free(f.before);
    pl_map_release(&f.newest);
    pl_alias_index_release(&f.aliases);
    if (whole)
        return PL_OK;
    pl_fusion_release(fusion);
    return pl_no_memory(err);
}

void pl_fusion_release(pl_fusion_t *fusion)
{
    pl_free(fusion->unit);
    pl_free(fusion->inside);
    pl_free(fusion->root);
    *fusion = (pl_fusion_t){0};
}
