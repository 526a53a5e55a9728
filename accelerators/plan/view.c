/* view.c - arithmetic on views: permute, slice and reshape change strides */
#include "accelerators/plan/view.h"

pl_view_t pl_view_whole(int32_t root, pl_shape_t shape)
{
    pl_view_t v = {.root = root, .shape = shape};
    int64_t stride = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        v.stride[i] = stride;
        stride *= shape.dim[i];
    }
    return v;
}

pl_view_t pl_view_permute(const pl_view_t *v, const int *order)
{
    pl_view_t out = *v;
    for (int i = 0; i < v->shape.rank; i++) {
        out.shape.dim[i] = v->shape.dim[order[i]];
        out.stride[i] = v->stride[order[i]];
    }
    return out;
}

pl_view_t pl_view_slice(const pl_view_t *v, int axis, int64_t from, int64_t count,
                        int64_t step)
{
    pl_view_t out = *v;
    out.shape.dim[axis] = count;
    out.offset += from * v->stride[axis];
    out.stride[axis] *= step;
    return out;
}

pl_view_t pl_view_broadcast(pl_shape_t own, pl_shape_t result)
{
    const pl_view_t whole = pl_view_whole(0, own);
    pl_view_t out = {.shape = result};
    for (int i = 0; i < result.rank; i++) {
        const int k = i - (result.rank - own.rank);
        out.stride[i] = k < 0 || own.dim[k] == 1 ? 0 : whole.stride[k];
    }
    return out;
}

bool pl_view_is_dense(const pl_view_t *v)
{
    int64_t stride = 1;
    for (int i = v->shape.rank - 1; i >= 0; i--) {
        if (v->shape.dim[i] != 1 && v->stride[i] != stride)
            return false;
        stride *= v->shape.dim[i];
    }
    return true;
}

pl_view_t pl_view_merged(const pl_view_t *v)
{
    pl_view_t out = {.root = v->root, .offset = v->offset};
    for (int i = 0; i < v->shape.rank; i++) {
        const int last = out.shape.rank - 1;
        if (v->shape.dim[i] == 1)
            continue;
        if (last >= 0 && out.stride[last] == v->stride[i] * v->shape.dim[i]) {
            out.shape.dim[last] *= v->shape.dim[i];
            out.stride[last] = v->stride[i];
        } else {
            out.shape.dim[out.shape.rank] = v->shape.dim[i];
            out.stride[out.shape.rank++] = v->stride[i];
        }
    }
    return out;
}

/* Each merged axis must be the product of some neighbours of the new shape. */
bool pl_view_reshape(const pl_view_t *v, pl_shape_t shape, pl_view_t *out)
{
    pl_view_t m = pl_view_merged(v);
    *out = (pl_view_t){.root = v->root, .shape = shape, .offset = v->offset};
    int from = m.shape.rank - 1;
    int64_t used = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        if (shape.dim[i] == 1)
            continue;
        if (m.shape.dim[from] % (used * shape.dim[i]))
            return false;
        out->stride[i] = m.stride[from] * used;
        used *= shape.dim[i];
        if (used == m.shape.dim[from]) {
            from--;
            used = 1;
        }
    }
    return true;
}
