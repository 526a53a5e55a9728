/* constants.c - constant tensors, from arrays in memory and from files
 *
 * A graph has a copy of the elements, which plans and devices share by counting.  Their
 * hash is part of the graph's, so that ranks with different files find out.  Files are
 * parsed as data alone; what an .npy file could only hold as pickled objects is
 * refused. */
#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "formats/array.h"
#include "formats/safetensors.h"
#include "tensor/operators.h"

/* int32 and int64 stay; halves come as float32 from their file. */
static pl_dtype_t dtype_of(pl_dtype_t dtype)
{
    return dtype == PL_I32 || dtype == PL_I64 ? dtype : PL_F32;
}

/* Consumes the tensor; the node of an equal one, if the graph has it. */
static pl_node_t add_tensor(pl_graph_t *g, pl_constant_tensor_t *tensor, pl_dtype_t dtype,
                            pl_shape_t shape)
{
    tensor->hash = pl_crc32c(0, tensor->data, tensor->bytes);
    for (int32_t i = 0; i < g->value_count; i++) {
        const pl_value_t *v = &g->value[i];
        if (v->source == PL_FROM_TENSOR && v->dtype == dtype
            && pl_same_shape(v->shape, shape) && v->tensor->hash == tensor->hash
            && !memcmp(v->tensor->data, tensor->data, tensor->bytes)) {
            pl_object_unref(tensor);
            return pl_node_of(i);
        }
    }
    const pl_node_t x = pl_value_add(g, &(pl_value_t){.source = PL_FROM_TENSOR,
                                                      .dtype = dtype,
                                                      .shape = shape,
                                                      .tensor = tensor,
                                                      .op = -1});
    if (x.id < 0)
        pl_object_unref(tensor);
    return x;
}

/* Memory for a tensor whose elements have the type and the shape; NULL: the graph has
 * failed. */
static pl_constant_tensor_t *tensor_new(pl_graph_t *g, pl_dtype_t dtype, pl_shape_t shape)
{
    const size_t align = alignof(max_align_t),
                 head = (sizeof(pl_constant_tensor_t) + align - 1) / align * align;
    int64_t bytes = (int64_t)pl_dtype_size(dtype);
    bool fits = shape.rank >= 0 && shape.rank <= PL_DIMS;
    for (int i = 0; i < shape.rank && fits; i++)
        fits = shape.dim[i] >= 1 && !__builtin_mul_overflow(bytes, shape.dim[i], &bytes);
    if (!fits)
        pl_graph_fail(
            g, PL_EINVAL,
            "a constant tensor cannot have shape %s: up to %d sizes of at least "
            "1, which fit in memory",
            PL_TEXT_OF(shape), PL_DIMS);
    pl_constant_tensor_t *tensor = g->error.code ? NULL : pl_alloc(head + (size_t)bytes);
    if (!g->error.code && !tensor)
        pl_graph_fail(g, PL_ENOMEM, "out of memory for a constant tensor of %lld bytes",
                      (long long)bytes);
    if (!tensor)
        return NULL;
    pl_object_init(&tensor->object, NULL);
    tensor->data = (char *)tensor + head;
    tensor->bytes = (size_t)bytes;
    return tensor;
}

pl_node_t pl_tensor(pl_graph_t *g, pl_dtype_t dtype, pl_shape_t shape, const void *data)
{
    if ((unsigned)dtype > PL_U8)
        return pl_graph_fail(
            g, PL_EINVAL,
            "a constant tensor takes elements of float32, float64, int32, "
            "int64 or uint8, got type %d",
            (int)dtype);
    if (!data)
        return pl_graph_fail(g, PL_EINVAL, "a constant tensor takes data, got NULL");
    pl_constant_tensor_t *tensor = tensor_new(g, dtype_of(dtype), shape);
    if (!tensor)
        return PL_NO_NODE;
    pl_convert(dtype, data, dtype_of(dtype), tensor->data, (size_t)pl_elements(shape));
    return add_tensor(g, tensor, dtype_of(dtype), shape);
}

static pl_node_t load_npy(pl_graph_t *g, const char *path, const char *name)
{
    pl_array_t array = {0};
    pl_error_t why = {0};
    if (name)
        return pl_graph_fail(
            g, PL_EINVAL,
            "%s: an .npy file has one array without a name; got the name "
            "\"%s\"",
            path, name);
    const int code = pl_npy_load(path, pl_file_limit(), &array, &why);
    if (code != PL_OK)
        return pl_graph_fail(g, code, "%s", why.text);
    pl_node_t x = pl_tensor(g, array.dtype, array.shape, array.data);
    pl_array_release(&array);
    return x;
}

/* The tensor of that name, or the only one; NULL: the graph has failed. */
static const pl_safetensors_tensor_t *choose(pl_graph_t *g, const pl_safetensors_t *file,
                                             const char *path, const char *name)
{
    char known[256] = "none";
    size_t used = 0;
    for (int k = 0; k < file->count; k++) {
        if (name ? !strcmp(file->tensor[k].name, name) : file->count == 1)
            return &file->tensor[k];
        if (used < 160)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s\"%.60s\"%s",
                                     used ? ", " : "", file->tensor[k].name,
                                     used > 90 && k + 1 < file->count ? ", ..." : "");
    }
    if (name)
        pl_graph_fail(g, PL_ENOTFOUND, "%s has no tensor \"%.80s\"; it has %.256s", path,
                      name, known);
    else
        pl_graph_fail(g, PL_EINVAL, "%s has %d tensors: name one; it has %.256s", path,
                      file->count, known);
    return NULL;
}

static pl_node_t load_safetensors(pl_graph_t *g, const char *path, const char *name)
{
    pl_safetensors_t file;
    pl_error_t why = {0};
    pl_node_t x = PL_NO_NODE;
    int code = pl_safetensors_open(path, &file, &why);
    if (code != PL_OK)
        return pl_graph_fail(g, code, "%s", why.text);
    const pl_safetensors_tensor_t *found = choose(g, &file, path, name);
    if (found && !found->loadable)
        pl_graph_fail(g, PL_EUNSUPPORTED, "%s: tensor \"%.80s\" has elements of %s", path,
                      found->name, found->type);
    /* In the type of the file, with halves as float32. */
    const bool is_half = found && (found->dtype == PL_BF16 || found->dtype == PL_F16);
    const pl_dtype_t dtype = !found || is_half ? PL_F32 : found->dtype;
    pl_constant_tensor_t *tensor = found && !g->error.code
                                       ? tensor_new(g, dtype, found->shape)
                                       : NULL;
    if (tensor && (code = pl_safetensors_load(&file, found, tensor->data, &why)) != PL_OK)
        pl_graph_fail(g, code, "%s", why.text);
    else if (tensor)
        x = pl_tensor(g, dtype, found->shape, tensor->data);
    pl_object_unref(tensor);
    pl_safetensors_close(&file);
    return x;
}

pl_node_t pl_tensor_file(pl_graph_t *g, const char *path, const char *name)
{
    const char *end = path ? strrchr(path, '.') : NULL;
    if (g->error.code)
        return PL_NO_NODE;
    if (end && !strcmp(end, ".npy"))
        return load_npy(g, path, name);
    if (end && !strcmp(end, ".safetensors"))
        return load_safetensors(g, path, name);
    return pl_graph_fail(g, PL_EINVAL,
                         "a constant tensor comes from a file that ends in .npy or "
                         ".safetensors, got %s",
                         path ? path : "NULL");
}
