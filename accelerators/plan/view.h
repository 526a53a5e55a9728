/* view.h - arithmetic on views: what permute, slice and reshape do to strides */
#ifndef PL_PLAN_VIEW_H
#define PL_PLAN_VIEW_H

#include "accelerators/plan/lower.h"

/* All of a value, row-major. */
pl_view_t pl_view_whole(int32_t root, pl_shape_t shape);
pl_view_t pl_view_permute(const pl_view_t *v, const int *order);
pl_view_t pl_view_slice(const pl_view_t *v, int axis, int64_t from, int64_t to);
/* A row-major value of shape `own` repeated over `result`, which has its axes last: those
 * of size 1 and those that it lacks have stride 0. */
pl_view_t pl_view_broadcast(pl_shape_t own, pl_shape_t result);
/* The same elements in another shape; false when strides cannot say it. */
bool pl_view_reshape(const pl_view_t *v, pl_shape_t shape, pl_view_t *out);
/* The same elements by fewer axes: those of size 1 go, and neighbours that lie one after
 * the other become one. */
pl_view_t pl_view_merged(const pl_view_t *v);
/* Whether it is row-major without gaps, from its offset on. */
bool pl_view_is_dense(const pl_view_t *v);

#endif
