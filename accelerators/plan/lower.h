/* lower.h - converts a graph to the operations and layouts that devices compute
 *
 * The lowered graph has the same results, and memory planning and code generation use it.
 * Images have channels last between operations, and views replace copies that only
 * change the order of elements.  In a lowered graph
 *   - convolutions, pools and their gradients read and write [B, ..., C];
 *   - a permute is any copy by strides: it replaces slices and chains of moves;
 *   - permute, concat and attention read, and attention writes, through views:
 *     attr.from is the first view of the operation. */
#ifndef PL_PLAN_LOWER_H
#define PL_PLAN_LOWER_H

#include "tensor/graph.h"

/* A tensor within the memory of a value: the index of element (i, j, …) is offset + i
 * stride[0] + j stride[1] + … */
typedef struct pl_view {
    int32_t root;                                          /* the value with the memory */
    pl_shape_t shape;
    int64_t offset, stride[PL_DIMS];                        /* elements */
} pl_view_t;

typedef struct pl_lowered {
    pl_graph_t graph;
    pl_view_t *view;
    int views, view_capacity;
} pl_lowered_t;

/* Lowers a graph, which does not change.  pl_lowered_release() also after a failure. */
int pl_lower(pl_lowered_t *lowered, const pl_graph_t *g, pl_error_t *err);
void pl_lowered_release(pl_lowered_t *lowered);

#endif
