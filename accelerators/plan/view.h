/* view.h - arithmetic on views: permute, slice and reshape change strides */
#ifndef PL_PLAN_VIEW_H
#define PL_PLAN_VIEW_H

#include "accelerators/plan/lower.h"

/* A whole value, row-major. */
pl_view_t pl_view_whole(int32_t root, pl_shape_t shape);
pl_view_t pl_view_permute(const pl_view_t *v, const int *order);
/* `count` elements along an axis: from, from + step, … */
pl_view_t pl_view_slice(const pl_view_t *v, int axis, int64_t from, int64_t count,
                        int64_t step);
/* A value of shape `own`, row-major, repeated over `result`: axes of size 1 and missing
 * leading axes have stride 0. */
pl_view_t pl_view_broadcast(pl_shape_t own, pl_shape_t result);
/* The same elements in another shape; false if strides cannot express it. */
bool pl_view_reshape(const pl_view_t *v, pl_shape_t shape, pl_view_t *out);
/* The same elements with fewer axes: drops axes of size 1 and merges neighbours that are
 * contiguous. */
pl_view_t pl_view_merged(const pl_view_t *v);
/* True if the view is row-major without gaps, from its offset on. */
bool pl_view_is_dense(const pl_view_t *v);

#endif
