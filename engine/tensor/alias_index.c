/* alias_index.c - index of the operations that access a piece of a region
 *
 * Sorted by the start of the pieces; the reach of the pieces before shows where a search
 * backwards can stop. */
#include "tensor/alias_index.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"

static int compare(const void *a, const void *b)
{
    const pl_alias_t *x = a, *y = b;
    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    return x->input - y->input;
}

int pl_alias_index_build(pl_alias_index_t *aliases, const pl_graph_t *g,
                         const int32_t *root, pl_error_t *err)
{
    size_t inputs = 0;
    for (int i = 0; i < g->op_count; i++)
        inputs += (size_t)g->op[i].input_count;
    pl_alias_index_t found = {.alias = pl_alloc_array(inputs, sizeof *found.alias)};
    if (!found.alias)
        return pl_no_memory(err);
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++) {
            const pl_value_t *v = &g->value[root[g->op[i].input[k]]];
            if (v->source == PL_FROM_REGION)
                found.alias[found.count++] =
                    (pl_alias_t){.region = v->index,
                                 .op = i,
                                 .input = k,
                                 .from = v->offset,
                                 .to = v->offset + pl_elements(v->shape)};
        }
    if (found.count)
        qsort(found.alias, (size_t)found.count, sizeof *found.alias, compare);
    for (int i = 0; i < found.count; i++) {
        pl_alias_t *t = &found.alias[i];
        t->reach = t->to;
        if (i && t[-1].region == t->region && t[-1].reach > t->to)
            t->reach = t[-1].reach;
    }
    *aliases = found;
    return PL_OK;
}

void pl_alias_index_release(pl_alias_index_t *aliases)
{
    pl_free(aliases->alias);
    *aliases = (pl_alias_index_t){0};
}

const pl_alias_t *pl_alias_last(const pl_alias_index_t *aliases, const pl_value_t *v)
{
    const int64_t end = v->offset + pl_elements(v->shape);
    int low = 0, high = aliases->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const pl_alias_t *t = &aliases->alias[middle];
        if (t->region < v->index || (t->region == v->index && t->from < end))
            low = middle + 1;
        else
            high = middle;
    }
    return aliases->alias ? pl_alias_before(aliases, v, aliases->alias + low) : NULL;
}

const pl_alias_t *pl_alias_before(const pl_alias_index_t *aliases, const pl_value_t *v,
                                  const pl_alias_t *alias)
{
    while (alias > aliases->alias) {
        alias--;
        if (alias->region != v->index || alias->reach <= v->offset)
            return NULL;
        if (alias->to > v->offset)
            return alias;
    }
    return NULL;
}
