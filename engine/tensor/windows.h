/* windows.h - windows over the axes of space, of convolutions and pools */
#ifndef PL_TENSOR_WINDOWS_H
#define PL_TENSOR_WINDOWS_H

#include "tensor/operators.h"

/* The sizes along the axes of space of an x [B, C, ...] with `first` 2, or [B, ..., C]
 * with `first` 1; the first ones are 1 if it has fewer than PL_SPACE. */
static inline void pl_space_of(pl_shape_t x, int first, int64_t size[PL_SPACE])
{
    const int unused = PL_SPACE - (x.rank - 2);
    for (int k = 0; k < PL_SPACE; k++)
        size[k] = k < unused ? 1 : x.dim[first + k - unused];
}

/* The elements of x between the ends of a window, ends included. */
static inline int64_t pl_window_extent(const pl_window_t *window, int axis)
{
    return (window->kernel[axis] - 1) * window->dilation[axis] + 1;
}

/* Sets *window from the numbers that a caller gives for operator `name` of x [B, C, ...]
 * [all 0].  PL_EINVAL: x or a number does not fit, and the graph has failed. */
PL_API int pl_window_resolve(pl_graph_t *g, const char *name, pl_node_t x,
                             const pl_windows_t *from, bool strides_by_kernel,
                             pl_window_t *window);
/* Padding for a result of the size of x, with stride 1; an odd element goes behind, as in
 * PyTorch. */
static inline void pl_window_same(pl_window_t *window)
{
    for (int k = 0; k < PL_SPACE; k++) {
        const int64_t all = pl_window_extent(window, k) - 1;
        window->before[k] = all / 2;
        window->behind[k] = all - all / 2;
    }
}

/* Copies the numbers of the axes of space of an x with so many.  An axis without a number
 * has the number of the axis before it; the first axis has the usual number.  PL_EINVAL:
 * a number is too small, and the graph has failed. */
int pl_numbers_resolve(pl_graph_t *g, const char *name, const char *what, int axes,
                       const int64_t from[PL_SPACE], int64_t usual, int64_t least,
                       int64_t to[PL_SPACE]);
/* The numbers of the last `axes` axes of space as "3x5"; returns text. */
char *pl_sizes_text(const int64_t number[PL_SPACE], int axes, char text[64]);

#endif
