/* touches.h - which operations of a graph touch a piece of a region
 *
 * For whoever moves operations or their results: asked for each assign of a large graph,
 * so it is looked up, not searched for. */
#ifndef PL_TENSOR_TOUCHES_H
#define PL_TENSOR_TOUCHES_H

#include "tensor/graph.h"

/* Input `input` of operation `op` is elements [from, to) of a region, or a look at some
 * of them. */
typedef struct pl_touch {
    int region, op, input;
    int64_t from, to;
    int64_t reach;                       /* the largest `to` of this and all before in the
                                            region */
} pl_touch_t;

typedef struct pl_touches {
    pl_touch_t *touch;                                      /* by region, then from */
    int count;
} pl_touches_t;

/* root[value]: whose memory a value is.  The target of an assign is touched, too. */
int pl_touches_find(pl_touches_t *touches, const pl_graph_t *g, const int32_t *root,
                    pl_error_t *err);
void pl_touches_release(pl_touches_t *touches);

/* The last that overlaps a value which is a piece of a region, and the one before; NULL:
 * no more. */
const pl_touch_t *pl_touches_last(const pl_touches_t *touches, const pl_value_t *v);
const pl_touch_t *pl_touches_before(const pl_touches_t *touches, const pl_value_t *v,
                                    const pl_touch_t *touch);

#endif
