/* touches.c - which operations of a graph touch a piece of a region
 *
 * Sorted by where the pieces begin; how far those before reach says when to stop looking
 * back. */
#include "tensor/touches.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"

static int compare(const void *a, const void *b)
{
    const pl_touch_t *x = a, *y = b;
    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    return x->input - y->input;
}

static int count_inputs(const pl_graph_t *g)
{
    int count = 0;
    for (int i = 0; i < g->op_count; i++)
        count += g->op[i].input_count;
    return count;
}

int pl_touches_find(pl_touches_t *touches, const pl_graph_t *g, const int32_t *root,
                    pl_error_t *err)
{
    pl_touches_t found = {
        .touch = pl_alloc_array((size_t)count_inputs(g), sizeof *found.touch)};
    if (!found.touch)
        return pl_no_memory(err);
    for (int i = 0; i < g->op_count; i++)
        for (int k = 0; k < g->op[i].input_count; k++) {
            const pl_value_t *v = &g->value[root[g->op[i].input[k]]];
            if (v->source == PL_FROM_REGION)
                found.touch[found.count++] =
                    (pl_touch_t){.region = v->index,
                                 .op = i,
                                 .input = k,
                                 .from = v->offset,
                                 .to = v->offset + pl_elements(v->shape)};
        }
    if (found.count)
        qsort(found.touch, (size_t)found.count, sizeof *found.touch, compare);
    for (int i = 0; i < found.count; i++) {
        pl_touch_t *t = &found.touch[i];
        t->reach = t->to;
        if (i && t[-1].region == t->region && t[-1].reach > t->to)
            t->reach = t[-1].reach;
    }
    *touches = found;
    return PL_OK;
}

void pl_touches_release(pl_touches_t *touches)
{
    pl_free(touches->touch);
    *touches = (pl_touches_t){0};
}

const pl_touch_t *pl_touches_last(const pl_touches_t *touches, const pl_value_t *v)
{
    const int64_t end = v->offset + pl_elements(v->shape);
    int low = 0, high = touches->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const pl_touch_t *t = &touches->touch[middle];
        if (t->region < v->index || (t->region == v->index && t->from < end))
            low = middle + 1;
        else
            high = middle;
    }
    return touches->touch ? pl_touches_before(touches, v, touches->touch + low) : NULL;
}

const pl_touch_t *pl_touches_before(const pl_touches_t *touches, const pl_value_t *v,
                                    const pl_touch_t *touch)
{
    while (touch > touches->touch) {
        touch--;
        if (touch->region != v->index || touch->reach <= v->offset)
            return NULL;
        if (touch->to > v->offset)
            return touch;
    }
    return NULL;
}
