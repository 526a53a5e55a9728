/* lower.h - a graph as this device computes it
 *
 * The same values and operations, with what the device does differently put into the
 * graph, so that memory planning and all that follows see it: pictures have their
 * channels last between operations, and copies that only look at memory in another order
 * are replaced by views.  In a lowered graph
 *   - conv2d and its gradients, max_pool2d and its gradient take and give [B, H, W, C];
 *   - a permute is any copy by strides: slices and chains of moves have become one;
 *   - permute, concat and attention read, and attention writes, through views:
 *     attr.from is the first of theirs. */
#ifndef PL_PLAN_LOWER_H
#define PL_PLAN_LOWER_H

#include "tensor/graph.h"

/* A tensor within the memory of a value: element (i, j, …) lies at offset + i stride[0] +
 * j stride[1] + … */
typedef struct pl_view {
    int32_t root;                                       /* the value whose memory it is */
    pl_shape_t shape;
    int64_t offset, stride[PL_DIMS];                        /* elements */
} pl_view_t;

typedef struct pl_lowered {
    pl_graph_t graph;
    pl_view_t *view;
    int views, view_capacity;
} pl_lowered_t;

/* Lowers a graph; it is only read.  pl_lowered_release() also after a failure. */
int pl_lower(pl_lowered_t *lowered, const pl_graph_t *g, pl_error_t *err);
void pl_lowered_release(pl_lowered_t *lowered);

#endif
