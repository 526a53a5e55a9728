/* moves.c - operators that only move elements, put together of slices, permutes and pads
 *
 * Slices, permutes and reshapes are views (accelerators/plan/view.h), and concat reads
 * its inputs through them, so most of these functions cost one copy or none. */
#include "base/alloc.h"
#include "tensor/operators.h"

int pl_split(pl_graph_t *g, pl_node_t x, int axis, const int64_t *sizes, int count,
             pl_node_t *parts)
{
    const int along = pl_axis_of(g, "split", x, axis);
    int64_t at = 0;
    if (!g->error.code && (!sizes || count < 1 || !parts))
        pl_op_fail(g, "split takes 1 or more sizes and a place for the parts, got %d",
                   sizes && parts ? count : 0);
    const int64_t size = g->error.code ? 0 : pl_dim(g, x, along);
    for (int k = 0; k < count && !g->error.code; k++) {
        if (sizes[k] < 1 || sizes[k] > size - at)
            pl_op_fail(
                g,
                "split: part %d has size %lld, but %lld of the %lld elements along "
                "axis %d are left",
                k, (long long)sizes[k], (long long)(size - at), (long long)size, along);
        else
            parts[k] = pl_slice(g, x, along, at, at + sizes[k]);
        at += g->error.code ? 0 : sizes[k];
    }
    if (!g->error.code && at != size)
        pl_op_fail(g, "split: the sizes add up to %lld, but axis %d of %s has %lld",
                   (long long)at, along, PL_TEXT_OF(pl_shape_of(g, x)), (long long)size);
    for (int k = 0; k < count && parts && g->error.code; k++)
        parts[k] = PL_NO_NODE;
    return g->error.code;
}

pl_node_t pl_stack(pl_graph_t *g, const pl_node_t *x, int count, int axis)
{
    if (!x || count < 1)
        return pl_graph_fail(g, PL_EINVAL, "stack takes 1 or more inputs, got %d",
                             x ? count : 0);
    const pl_shape_t first = pl_shape_of(g, x[0]);
    const int at = axis < 0 ? axis + first.rank + 1 : axis;
    pl_shape_t own = {.rank = first.rank + 1};
    if (!g->error.code && (at < 0 || at > first.rank || own.rank > PL_DIMS))
        return pl_graph_fail(
            g, PL_EINVAL,
            "stack of %s takes a new axis from %d to %d, and gives up to "
            "%d axes, got %d",
            PL_TEXT_OF(first), -first.rank - 1, first.rank, PL_DIMS, axis);
    if (g->error.code)
        return PL_NO_NODE;
    for (int i = 0; i < own.rank; i++)
        own.dim[i] = i == at ? 1 : first.dim[i - (i > at)];
    pl_node_t *with_axis = pl_alloc_array((size_t)count, sizeof *with_axis);
    if (!with_axis)
        return pl_graph_fail(g, PL_ENOMEM, "out of memory");
    for (int k = 0; k < count && !g->error.code; k++) {
        const pl_shape_t shape = pl_shape_of(g, x[k]);
        if (!g->error.code && !pl_same_shape(shape, first))
            pl_op_fail(g, "stack takes inputs of one shape, got %s and %s",
                       PL_TEXT_OF(first), PL_TEXT_OF(shape));
        with_axis[k] = pl_reshape(g, x[k], own);
    }
    const pl_node_t y = pl_concat(g, with_axis, count, at);
    pl_free(with_axis);
    return y;
}

pl_node_t pl_flip(pl_graph_t *g, pl_node_t x, const int *axes, int axis_count)
{
    unsigned mask;
    if (!pl_axes_mask(g, "flip", x, axes, axis_count, &mask))
        return PL_NO_NODE;
    for (int i = 0; i < PL_DIMS; i++)
        if (mask >> i & 1)
            x = pl_slice_step(g, x, i, pl_dim(g, x, i) - 1, -1, -1);
    return x;
}

pl_node_t pl_roll(pl_graph_t *g, pl_node_t x, int axis, int64_t shift)
{
    const int along = pl_axis_of(g, "roll", x, axis);
    if (along < 0)
        return PL_NO_NODE;
    const int64_t size = pl_dim(g, x, along), by = (shift % size + size) % size;
    if (!by)
        return x;
    const pl_node_t parts[] = {pl_slice(g, x, along, size - by, size),
                               pl_slice(g, x, along, 0, size - by)};
    return pl_concat(g, parts, 2, along);
}

/* One axis at a time, the last first, when there is least to copy. */
pl_node_t pl_repeat(pl_graph_t *g, pl_node_t x, const int64_t *times)
{
    const pl_shape_t from = pl_shape_of(g, x);
    if (!times)
        return pl_graph_fail(g, PL_EINVAL,
                             "repeat takes a number for each axis, got NULL");
    for (int i = from.rank - 1; i >= 0 && !g->error.code; i--) {
        pl_shape_t to = pl_shape_of(g, x);
        const int64_t outer = pl_rows(to, to.rank - i), inner = pl_elements(to) / outer;
        if (times[i] < 1 || __builtin_mul_overflow(to.dim[i], times[i], &to.dim[i]))
            return pl_graph_fail(g, PL_EINVAL,
                                 "repeat takes a number of at least 1 for axis %d of %s, "
                                 "got %lld",
                                 i, PL_TEXT_OF(from), (long long)times[i]);
        if (times[i] == 1)
            continue;
        x = pl_reshape(g, x, PL_SHAPE(outer, 1, inner));
        x = pl_broadcast_to(g, x, PL_SHAPE(outer, times[i], inner));
        x = pl_reshape(g, x, to);
    }
    return g->error.code ? PL_NO_NODE : x;
}

pl_node_t pl_pad_reflect(pl_graph_t *g, pl_node_t x, const int64_t *before,
                         const int64_t *after)
{
    const pl_shape_t shape = pl_shape_of(g, x);
    if (!before || !after)
        return pl_graph_fail(
            g, PL_EINVAL, "pad_reflect takes sizes before and after each axis, got NULL");
    for (int i = 0; i < shape.rank && !g->error.code; i++) {
        const int64_t size = shape.dim[i];
        pl_node_t part[3];
        int parts = 0;
        if (before[i] < 0 || after[i] < 0 || before[i] >= size || after[i] >= size)
            return pl_graph_fail(
                g, PL_EINVAL,
                "pad_reflect adds 0 to %lld elements on each side of axis "
                "%d of %s, got %lld and %lld",
                (long long)size - 1, i, PL_TEXT_OF(shape), (long long)before[i],
                (long long)after[i]);
        if (before[i])
            part[parts++] = pl_slice_step(g, x, i, before[i], 0, -1);
        part[parts++] = x;
        if (after[i])
            part[parts++] = pl_slice_step(g, x, i, size - 2, size - 2 - after[i], -1);
        x = pl_concat(g, part, parts, i);
    }
    return g->error.code ? PL_NO_NODE : x;
}

/* Zeros are chosen, not multiplied, so that what is not finite goes, too. */
static pl_node_t triangle(pl_graph_t *g, const char *name, pl_node_t x, int64_t diagonal,
                          bool lower)
{
    const pl_shape_t shape = pl_shape_of(g, x);
    if (!g->error.code && shape.rank < 2)
        return pl_graph_fail(g, PL_EINVAL, "%s takes x [..., R, C], got %s", name,
                             PL_TEXT_OF(shape));
    if (g->error.code)
        return PL_NO_NODE;
    const int64_t rows = shape.dim[shape.rank - 2], columns = shape.dim[shape.rank - 1];
    const int64_t last = diagonal < -rows     ? -rows
                         : diagonal > columns ? columns
                                              : diagonal;
    const pl_attr_t down = {.a = (double)last,
                            .b = 1,
                            .shape = PL_SHAPE(rows, 1),
                            .dtype = PL_F32};
    const pl_node_t row = pl_emit(g, PL_OP_range, NULL, 0, &down, NULL),
                    column = pl_arange(g, 0, 1, columns);
    const pl_node_t keeps = lower ? pl_greater_equal(g, row, column)
                                  : pl_less_equal(g, row, column);
    return pl_where(g, keeps, x, pl_scalar(g, 0));
}

pl_node_t pl_tril(pl_graph_t *g, pl_node_t x, int64_t diagonal)
{
    return triangle(g, "tril", x, diagonal, true);
}

pl_node_t pl_triu(pl_graph_t *g, pl_node_t x, int64_t diagonal)
{
    return triangle(g, "triu", x, diagonal, false);
}

/* [B, C, H, W] between [B, C r^2, H, W] and [B, C, H r, W r]. */
static pl_node_t shuffle(pl_graph_t *g, const char *name, pl_node_t x, int64_t r,
                         bool inverse)
{
    const pl_shape_t s = pl_shape_of(g, x);
    bool fits = s.rank == 4 && r >= 1 && r <= INT32_MAX;
    if (fits)
        fits = inverse ? s.dim[2] % r == 0 && s.dim[3] % r == 0 : s.dim[1] % (r * r) == 0;
    if (!g->error.code && !fits)
        return pl_graph_fail(g, PL_EINVAL,
                             inverse
                                 ? "%s takes x [B, C, H, W] with H and W multiples of "
                                   "%lld, got %s"
                                 : "%s takes x [B, C, H, W] with C a multiple of the "
                                   "square of %lld, got %s",
                             name, (long long)r, PL_TEXT_OF(s));
    if (g->error.code)
        return PL_NO_NODE;
    if (inverse) {
        const int64_t h = s.dim[2] / r, w = s.dim[3] / r;
        x = pl_reshape(g, x, PL_SHAPE(s.dim[0], s.dim[1], h, r, w, r));
        x = pl_permute(g, x, (int[]){0, 1, 3, 5, 2, 4});
        return pl_reshape(g, x, PL_SHAPE(s.dim[0], s.dim[1] * r * r, h, w));
    }
    const int64_t channels = s.dim[1] / (r * r);
    x = pl_reshape(g, x, PL_SHAPE(s.dim[0], channels, r, r, s.dim[2], s.dim[3]));
    x = pl_permute(g, x, (int[]){0, 1, 4, 2, 5, 3});
    return pl_reshape(g, x, PL_SHAPE(s.dim[0], channels, s.dim[2] * r, s.dim[3] * r));
}

pl_node_t pl_pixel_shuffle(pl_graph_t *g, pl_node_t x, int64_t r)
{
    return shuffle(g, "pixel_shuffle", x, r, false);
}

pl_node_t pl_pixel_unshuffle(pl_graph_t *g, pl_node_t x, int64_t r)
{
    return shuffle(g, "pixel_unshuffle", x, r, true);
}
