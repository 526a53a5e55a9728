/* cuda_api.c - compares names.def of the cuda accelerator with NVIDIA's headers, where
 * configure has found them: every number, every signature; and tries attributes of
 * cuBLASLt, where it is installed */
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "tap.h"
#ifdef HAVE_CUDA_HEADERS
#include <cuda.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif
#include <nvrtc.h>
#if __has_include(<nvml.h>)
#include <nvml.h>
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include "accelerators/cuda/load.h"

_Static_assert(sizeof(CUresult) == sizeof(cu_result_t), "results are as wide");
_Static_assert(sizeof(CUstreamCaptureMode) == sizeof(cu_choice_t), "enums are as wide");

#define NUMBER(ours, theirs, value) \
    _Static_assert((int)(theirs) == (value), #theirs " is " #value);
#define RESULT(ours, theirs, value) NUMBER(ours, theirs, value)
#define SAME(ours, symbol) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(ours), __typeof__(&symbol)), \
                   #symbol " has these parameters");
#define DRIVER(member, symbol, parameters) SAME(((cuda_driver_t *)0)->member, symbol)
#define NVRTC(member, symbol, parameters) SAME(((cuda_nvrtc_t *)0)->member, symbol)
#if CUDA_VERSION >= 13000
#define NVRTC_13(member, symbol, parameters) NVRTC(member, symbol, parameters)
#endif
#ifdef CUBLAS_VER_MAJOR
#define LT_NUMBER(ours, theirs, value) NUMBER(ours, theirs, value)
#define LT(member, symbol, result, parameters) SAME(((cuda_lt_t *)0)->member, symbol)
#endif
#ifdef CUDNN_MAJOR
#define DNN_NUMBER(ours, theirs, value) NUMBER(ours, theirs, value)
#define DNN(member, symbol, result, parameters) SAME(((cuda_dnn_t *)0)->member, symbol)
#endif
#ifdef NVML_API_VERSION
#define NVML_NUMBER(ours, theirs, value) NUMBER(ours, theirs, value)
#define NVML(member, symbol, parameters) SAME(((cuda_nvml_t *)0)->member, symbol)
#endif
#ifdef NCCL_MAJOR
#define NCCL_NUMBER(ours, theirs, value) NUMBER(ours, theirs, value)
#define NCCL(member, symbol, result, parameters) SAME(((cuda_nccl_t *)0)->member, symbol)
#endif
#include "accelerators/cuda/names.def"

static void names_equal_nvidias_headers(void)
{
    int functions = 0;
#define DRIVER(member, symbol, parameters) functions++;
#define NVRTC(member, symbol, parameters) functions++;
#ifdef CUBLAS_VER_MAJOR
#define LT(member, symbol, result, parameters) functions++;
#endif
#ifdef CUDNN_MAJOR
#define DNN(member, symbol, result, parameters) functions++;
#endif
#ifdef NVML_API_VERSION
#define NVML(member, symbol, parameters) functions++;
#endif
#ifdef NCCL_MAJOR
#define NCCL(member, symbol, result, parameters) functions++;
#endif
#include "accelerators/cuda/names.def"
    ok(functions > 50, "%d functions have the parameters of CUDA %d.%d", functions,
       CUDA_VERSION / 1000, CUDA_VERSION / 10 % 100);
}
#else
#include "accelerators/cuda/load.h"

static void names_equal_nvidias_headers(void)
{
    tap_skip("NVIDIA's headers are not installed: apt-get install cuda-cudart-dev, or "
             "./configure --with-cuda=DIR");
}
#endif

/* ---- cuBLASLt itself, which describes products without a card ---- */

static void attributes_have_the_size_that_cublaslt_expects(void)
{
    pl_error_t err = {0};
    const cuda_multiplier_t *multiplier = cuda_multiplier_open(0, &err);
    cublasLtMatmulDesc_t product = NULL;
    cublasLtMatrixLayout_t layout = NULL;
    cublasLtMatmulPreference_t preference = NULL;
    const int32_t transposed = LT_TRANSPOSED, batches = 4;
    const uint32_t epilogue = LT_EPILOGUE_BIAS, reduction = LT_REDUCTION_COMPUTE,
                   alignment = 16;
    const int64_t stride = 0;
    const size_t workspace = 1 << 20;
    const void *const bias = (const void *)16;
    if (!multiplier) {
        tap_skip("cuBLASLt is not installed");
        return;
    }
    const cuda_lt_t *lt = &multiplier->call;
    ok(lt->product_new(&product, LT_COMPUTE_F32, LT_F32) == LT_OK
           && lt->layout_new(&layout, LT_BF16, 64, 32, 64) == LT_OK
           && lt->preference_new(&preference) == LT_OK,
       "cuBLASLt %d.%d describes a product", multiplier->major, multiplier->minor);
#define SET(set, of, attribute, value) \
    ok(lt->set(of, attribute, &value, sizeof value) == LT_OK, #attribute)
    SET(product_set, product, LT_DESC_TRANS_A, transposed);
    SET(product_set, product, LT_DESC_TRANS_B, transposed);
    SET(product_set, product, LT_DESC_EPILOGUE, epilogue);
    SET(product_set, product, LT_DESC_BIAS, bias);
    SET(signature_set_size, layout, LT_LAYOUT_BATCHES, batches);
    SET(signature_set_size, layout, LT_LAYOUT_STRIDE, stride);
    SET(preference_set, preference, LT_PREF_WORKSPACE, workspace);
    SET(preference_set, preference, LT_PREF_REDUCTION, reduction);
    SET(preference_set, preference, LT_PREF_ALIGN_A, alignment);
    SET(preference_set, preference, LT_PREF_ALIGN_D, alignment);
    lt->product_free(product);
    lt->layout_free(layout);
    lt->preference_free(preference);
}

static void nccl_reports_its_version(void)
{
    pl_error_t err = {0};
    char text[CUDA_VERSION_TEXT];
    ncclUniqueId id[2] = {0};
    const cuda_communicator_t *nccl = cuda_communicator_open(&err);
    if (!nccl) {
        like(err.text,
             "^NVIDIA's library of collectives .libnccl.so.2. is not found: "
             "apt-get install libnccl2 .* or pip install nvidia-nccl-cu1[23], ",
             "without NCCL an error has commands that install it");
        return;
    }
    ok(nccl->version >= NCCL_MIN, "it is NCCL %s",
       cuda_nccl_version(nccl->version, text));
    ok(nccl->call.id_new(&id[0]) == NCCL_OK && nccl->call.id_new(&id[1]) == NCCL_OK
           && memcmp(&id[0], &id[1], sizeof id[0]) != 0,
       "which gives ids without a card");
}

int main(void)
{
    run(attributes_have_the_size_that_cublaslt_expects);
    run(names_equal_nvidias_headers);
    run(nccl_reports_its_version);
    return tap_done();
}
