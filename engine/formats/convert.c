/* convert.c - elements of one type into another, fast enough to be done for each batch
 *
 * The inner loops have a constant length: so gcc uses vectors for them at -O2 as well, on
 * any instruction set. */
#include "formats/convert.h"

#include <assert.h>
#include <string.h>

#include "formats/array.h"

#define BLOCK 64

void pl_convert_u8_f32(const uint8_t *restrict in, size_t n, float scale, float shift,
                       float *restrict out)
{
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (size_t k = 0; k < BLOCK; k++)
            out[i + k] = (float)in[i + k] * scale + shift;
    for (; i < n; i++)
        out[i] = (float)in[i] * scale + shift;
}

#define CONVERT(name, from, to) \
    static void name(const from *restrict in, size_t n, to *restrict out) \
    { \
        size_t i = 0; \
        for (; i + BLOCK <= n; i += BLOCK) \
            for (size_t k = 0; k < BLOCK; k++) \
                out[i + k] = (to)in[i + k]; \
        for (; i < n; i++) \
            out[i] = (to)in[i]; \
    }

CONVERT(f64_to_f32, double, float)
CONVERT(u8_to_i64, uint8_t, int64_t)
CONVERT(i32_to_i64, int32_t, int64_t)

void pl_convert(pl_dtype_t from, const void *in, pl_dtype_t to, void *out, size_t n)
{
    if (from == to)
        memcpy(out, in, n * pl_array_width(to));
    else if (from == PL_U8 && to == PL_F32)
        pl_convert_u8_f32(in, n, 1, 0, out);
    else if (from == PL_F64 && to == PL_F32)
        f64_to_f32(in, n, out);
    else if (from == PL_U8 && to == PL_I64)
        u8_to_i64(in, n, out);
    else if (from == PL_I32 && to == PL_I64)
        i32_to_i64(in, n, out);
    else
        assert(!"a conversion that is offered");
}
