/* types.c - elements of another type, and the order of whole numbers */
#include "accelerators/cpu/kernels/functions.h"
#include "accelerators/cpu/kernels/kernels.h"

/* y[i] = value of x[i] for [from, to) of a job. */
#define EACH(y_type, value) \
    for (int64_t i = from; i < to; i++) \
        ((y_type *)job->y)[i] = (y_type)(value); \
    break;
#define FROM(x_type, whole_i32, whole_i64, whole_u8) \
    { \
        const x_type *x = job->x; \
        switch (job->truth ? PL_BF16 : job->to) { \
        case PL_F32: EACH(float, x[i]) \
        case PL_I32: EACH(int32_t, whole_i32(x[i])) \
        case PL_I64: EACH(int64_t, whole_i64(x[i])) \
        case PL_U8: EACH(uint8_t, whole_u8(x[i])) \
        default: EACH(uint8_t, x[i] != 0) /* truth */ \
        } \
    } \
    break;
#define SAME(x) (x)

/* Graphs have float64 from fields alone, which they read as float32. */
void KERNEL(convert)(const void *of, int64_t from, int64_t to)
{
    const pl_convert_job_t *job = of;
    switch (job->from) {
    case PL_F64: EACH(float, ((const double *)job->x)[i])
    case PL_I32: FROM(int32_t, SAME, SAME, SAME)
    case PL_I64: FROM(int64_t, SAME, SAME, SAME)
    case PL_U8: FROM(uint8_t, SAME, SAME, SAME)
    default: FROM(float, pl_whole_i32, pl_whole_i64, pl_whole_u8)
    }
}

void KERNEL(order)(const void *of, int64_t from, int64_t to)
{
    const pl_order_job_t *job = of;
    for (int64_t i = from; i < to; i++) {
        const int64_t x = job->x[i * job->x_step], y = job->y[i * job->y_step];
        job->to[i] = (float)((x > y) - (x < y));
    }
}
