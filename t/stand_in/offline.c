/* offline.c - a replacement of CUDA's driver that has no card, but loads code: with it
 * NVIDIA's libraries make plans for cards that are only described
 *
 * cuInit() returns that this is a stub.  Code is not looked at. */
#include <stddef.h>
#include <string.h>

#include "accelerators/cuda/load.h"

#define API __attribute__((visibility("default")))

/* Functions that libraries look for and do not call without a card. */
#define NOTHING(name) \
    API cu_result_t name(void); \
    API cu_result_t name(void) \
    { \
        return CU_STUB_LIBRARY; \
    }
NOTHING(cuInit)
NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuDeviceGet)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryLoadFromFile)
NOTHING(cuLinkAddData)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkDestroy)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)

API cu_result_t cuDeviceGetCount(int *count);
API cu_result_t cuDeviceGetCount(int *count)
{
    *count = 0;
    return CU_OK;
}

API cu_result_t cuDriverGetVersion(int *version);
API cu_result_t cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CU_OK;
}

static cu_result_t text(const char **to)
{
    *to = "a driver without a card";
    return CU_OK;
}

API cu_result_t cuGetErrorString(cu_result_t error, const char **to);
API cu_result_t cuGetErrorString(cu_result_t error, const char **to)
{
    (void)error;
    return text(to);
}

API cu_result_t cuGetErrorName(cu_result_t error, const char **to);
API cu_result_t cuGetErrorName(cu_result_t error, const char **to)
{
    (void)error;
    return text(to);
}

/* ---- Code ---- */

static int library, kernel, function;

API cu_result_t cuLibraryLoadData(void **to);
API cu_result_t cuLibraryLoadData(void **to)
{
    *to = &library;
    return CU_OK;
}

API cu_result_t cuLibraryUnload(void *of);
API cu_result_t cuLibraryUnload(void *of)
{
    (void)of;
    return CU_OK;
}

API cu_result_t cuLibraryGetKernel(void **to);
API cu_result_t cuLibraryGetKernel(void **to)
{
    *to = &kernel;
    return CU_OK;
}

API cu_result_t cuKernelGetFunction(void **to);
API cu_result_t cuKernelGetFunction(void **to)
{
    *to = &function;
    return CU_OK;
}

/* The first attribute is how many threads a kernel may have. */
static cu_result_t attribute_get(int *value, int attribute)
{
    *value = attribute == 0 ? 1024 : 0;
    return CU_OK;
}

API cu_result_t cuFuncGetAttribute(int *value, int attribute, void *of);
API cu_result_t cuFuncGetAttribute(int *value, int attribute, void *of)
{
    (void)of;
    return attribute_get(value, attribute);
}

API cu_result_t cuKernelGetAttribute(int *value, int attribute, void *of, int device);
API cu_result_t cuKernelGetAttribute(int *value, int attribute, void *of, int device)
{
    (void)of, (void)device;
    return attribute_get(value, attribute);
}

API cu_result_t cuFuncSetAttribute(void *of, int attribute, int value);
API cu_result_t cuFuncSetAttribute(void *of, int attribute, int value)
{
    (void)of, (void)attribute, (void)value;
    return CU_OK;
}

API cu_result_t cuKernelSetAttribute(int attribute, int value, void *of, int device);
API cu_result_t cuKernelSetAttribute(int attribute, int value, void *of, int device)
{
    (void)of, (void)attribute, (void)value, (void)device;
    return CU_OK;
}
