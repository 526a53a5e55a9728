/* cuda_api.c - compares names.def of the cuda accelerator with NVIDIA's headers, where
 * configure has found them: every number, every signature */
#include <stdio.h>

#include "config.h"
#include "tap.h"
#ifdef HAVE_CUDA_HEADERS
#include <cuda.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif
#include <nvrtc.h>

#include "accelerators/cuda/api.h"

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
#ifdef CUBLAS_VER_MAJOR
#define LT_NUMBER(ours, theirs, value) NUMBER(ours, theirs, value)
#define LT(member, symbol, result, parameters) SAME(((cuda_lt_t *)0)->member, symbol)
#endif
#include "accelerators/cuda/names.def"

static void names_are_those_of_nvidias_headers(void)
{
    int functions = 0;
#define DRIVER(member, symbol, parameters) functions++;
#define NVRTC(member, symbol, parameters) functions++;
#ifdef CUBLAS_VER_MAJOR
#define LT(member, symbol, result, parameters) functions++;
#endif
#include "accelerators/cuda/names.def"
    ok(functions > 50, "%d functions have the parameters of CUDA %d.%d", functions,
       CUDA_VERSION / 1000, CUDA_VERSION / 10 % 100);
}
#else
static void names_are_those_of_nvidias_headers(void)
{
    tap_skip("NVIDIA's headers are not installed: apt-get install cuda-cudart-dev, or "
             "./configure --with-cuda=DIR");
}
#endif

int main(void)
{
    run(names_are_those_of_nvidias_headers);
    return tap_done();
}
