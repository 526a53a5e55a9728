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

/* The defaults are GradScaler's; the last is DeepSpeed's min_loss_scale. */
static const pl_option_t scaling_options[] = {
    PL_FLOAT(pl_loss_scaling_t, init_scale, "65536", "(0..",
             "initial factor of the loss"),
    PL_FLOAT(pl_loss_scaling_t, growth_factor, "2", "1..",
             "multiplies the factor after growth_interval finite steps in a row"),
    PL_FLOAT(pl_loss_scaling_t, backoff_factor, "0.5", "(0..1)",
             "multiplies the factor after a step that is not finite, which is skipped"),
    PL_INT(pl_loss_scaling_t, growth_interval, "2000", "1..",
           "finite steps in a row after which the factor grows"),
    PL_FLOAT(pl_loss_scaling_t, min_scale, "1", "(0..",
             "smallest factor; a step that is not finite with it is an error"),
    PL_OPTIONS_END,
};

static const pl_precision_ops_t f16_mixed = {
    .name = "16-mixed",
    .help = "products in float16, sums and weights in float32, the loss scaled",
    .size = sizeof(pl_loss_scaling_t),
    .options = scaling_options,
    .low = PL_F16,
    .wide = PL_F32,
    .params = PL_F32,
    .scales = true,
};

static const pl_precision_ops_t bf16_true = {
    .name = "bf16-true",
    .help = "bfloat16, weights too; float32 in sums and the optimizer",
    .low = PL_BF16,
    .wide = PL_F32,
    .params = PL_BF16,
};

/* Scaled as in O2 of NVIDIA's apex, which keeps float32 weights in the optimizer too. */
static const pl_precision_ops_t f16_true = {
    .name = "16-true",
    .help = "float16, weights too; float32 in sums and the optimizer, the loss scaled",
    .size = sizeof(pl_loss_scaling_t),
    .options = scaling_options,
    .low = PL_F16,
    .wide = PL_F32,
    .params = PL_F16,
    .scales = true,
};

static const pl_precision_ops_t f64_true = {
    .name = "64-true",
    .help = "float64 everywhere, for reference: slow",
    .low = PL_F64,
    .wide = PL_F64,
    .params = PL_F64,
};

const pl_registration_t pl_precision_components[] = {
    {"precision", &pl_precision_32_true},
    {"precision", &f64_true},
    {"precision", &f16_mixed},
    {"precision", &f16_true},
    {"precision", &bf16_mixed},
    {"precision", &bf16_true},
    PL_REGISTRATIONS_END,
};

bool pl_has_master(const pl_precision_ops_t *precision)
{
    return precision->params != precision->wide;
}

pl_dtype_t pl_region_dtype(const pl_precision_ops_t *precision, pl_region_t region)
{
    if (region == PL_REGION_SCALING)
        return PL_F32;
    return region == PL_REGION_PARAMS ? precision->params : precision->wide;
}
