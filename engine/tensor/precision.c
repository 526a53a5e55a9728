/* precision.c - the number formats of a run, by name; the names are Lightning's */
#include "tensor/precision.h"

const pl_precision_ops_t pl_precision_32_true = {
    .name = "32-true",
    .help = "float32 everywhere",
    .low = PL_F32,
    .wide = PL_F32,
    .params = PL_F32,
};

static const pl_precision_ops_t bf16_mixed = {
    .name = "bf16-mixed",
    .help = "products in bfloat16, sums and weights in float32",
    .low = PL_BF16,
    .wide = PL_F32,
    .params = PL_F32,
};

const pl_registration_t pl_precision_parts[] = {
    {"precision", &pl_precision_32_true},
    {"precision", &bf16_mixed},
    PL_REGISTRATIONS_END,
};

pl_dtype_t pl_region_dtype(const pl_precision_ops_t *precision, pl_region_t region)
{
    return region == PL_REGION_PARAMS ? precision->params : precision->wide;
}
