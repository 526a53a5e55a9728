/* array.c - an array as a file holds it */
#include "formats/array.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "npy and safetensors are read as they lie in the file");

void pl_array_release(pl_array_t *array)
{
    pl_file_bytes_release(&array->owned);
    *array = (pl_array_t){0};
}

size_t pl_array_width(pl_dtype_t dtype)
{
    switch (dtype) {
    case PL_F64:
    case PL_I64: return 8;
    case PL_F32:
    case PL_I32: return 4;
    case PL_BF16:
    case PL_F16: return 2;
    case PL_U8: return 1;
    }
    return 1;
}

bool pl_array_size(pl_dtype_t dtype, const pl_shape_t *shape, int64_t *count,
                   size_t *bytes)
{
    int64_t elements = 1, total;
    if ((unsigned)dtype > PL_F16)
        return false;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] < 0
            || __builtin_mul_overflow(elements, shape->dim[i], &elements))
            return false;
    if (__builtin_mul_overflow(elements, (int64_t)pl_array_width(dtype), &total))
        return false;
    *count = elements;
    *bytes = (size_t)total;
    return true;
}
