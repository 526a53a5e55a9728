/* api.h - the part of CUDA's driver, NVRTC, cuBLASLt, cuDNN, NVML and NCCL that the cuda
 * accelerator and the collective nccl call
 *
 * It is declared here, so that building needs no toolkit; the libraries are opened when
 * a device is (load.c).  Types of handles have NVIDIA's names, because they are the same
 * types.  names.def lists constants and functions. */
#ifndef PL_CUDA_API_H
#define PL_CUDA_API_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmod_st *CUmodule;
typedef struct CUstream_st *CUstream;
typedef struct _nvrtcProgram *nvrtcProgram;

/* cuda.h, where it is included too, has the same under the same name. */
#ifndef CUDA_VERSION
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;
#endif

typedef struct cublasLtContext *cublasLtHandle_t;
/* The same of cublasLt.h. */
#ifndef CUBLAS_VER_MAJOR
typedef struct cublasLtMatmulDescOpaque *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque *cublasLtMatmulPreference_t;
typedef struct cublasLtMatmulAlgo {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    unsigned state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

/* The same of NVML. */
#ifndef NVML_API_VERSION
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlMemory_st {
    unsigned long long total, free, used;                   /* bytes */
} nvmlMemory_t;
typedef struct nvmlUtilization_st {
    unsigned gpu, memory;                        /* %, of the time in which it was busy */
} nvmlUtilization_t;
#endif

typedef struct ncclComm *ncclComm_t;
/* The same of NCCL: its config up to version 2.18, which later versions take. */
#ifndef NCCL_MAJOR
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct nccl_config {
    size_t size;                                            /* of this struct */
    unsigned magic, version;
    int blocking;
    int cgaClusterSize, minCTAs, maxCTAs;                   /* NCCL_UNSET */
    const char *netName;
    int splitShare;
} ncclConfig_t;
#endif
#define NCCL_MAGIC 0xcafebeefu

/* Enums there. */
typedef unsigned cu_result_t, cu_choice_t;

enum {
#define NUMBER(ours, theirs, value) ours = value,
#define RESULT(ours, theirs, value) ours = value,
#define LT_NUMBER(ours, theirs, value) ours = value,
#define DNN_NUMBER(ours, theirs, value) ours = value,
#define NVML_NUMBER(ours, theirs, value) ours = value,
#define NCCL_NUMBER(ours, theirs, value) ours = value,
#include "accelerators/cuda/names.def"
};

#ifndef CUBLAS_VER_MAJOR
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == LT_ALGO_BYTES
                   && sizeof(cublasLtMatmulHeuristicResult_t) == LT_RESULT_BYTES
                   && offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)
                          == LT_RESULT_WORKSPACE
                   && offsetof(cublasLtMatmulHeuristicResult_t, state) == LT_RESULT_STATE,
               "structs are as those of cublasLt.h");
#endif

#ifndef NCCL_MAJOR
_Static_assert(offsetof(ncclConfig_t, size) == NCCL_CONFIG_SIZE_AT
                   && offsetof(ncclConfig_t, magic) == NCCL_CONFIG_MAGIC_AT
                   && offsetof(ncclConfig_t, version) == NCCL_CONFIG_VERSION_AT
                   && offsetof(ncclConfig_t, blocking) == NCCL_CONFIG_BLOCKING_AT
                   && offsetof(ncclConfig_t, maxCTAs) == NCCL_CONFIG_CTAS_AT
                   && offsetof(ncclConfig_t, netName) == NCCL_CONFIG_NET_AT
                   && offsetof(ncclConfig_t, splitShare) == NCCL_CONFIG_SHARE_AT
                   && sizeof(ncclUniqueId) == NCCL_ID_BYTES,
               "structs are as those of NCCL");
#endif

typedef struct cuda_driver {
#define DRIVER(member, symbol, parameters) cu_result_t(*member) parameters;
#include "accelerators/cuda/names.def"
} cuda_driver_t;

typedef struct cuda_nvrtc {
#define NVRTC(member, symbol, parameters) cu_result_t(*member) parameters;
#define NVRTC_13(member, symbol, parameters) cu_result_t(*member) parameters;
#include "accelerators/cuda/names.def"
} cuda_nvrtc_t;

typedef struct cuda_nvml {
#define NVML(member, symbol, parameters) cu_result_t(*member) parameters;
#include "accelerators/cuda/names.def"
} cuda_nvml_t;

typedef struct cuda_lt {
#define LT(member, symbol, result, parameters) result(*member) parameters;
#include "accelerators/cuda/names.def"
} cuda_lt_t;

typedef struct cuda_dnn {
#define DNN(member, symbol, result, parameters) result(*member) parameters;
#include "accelerators/cuda/names.def"
} cuda_dnn_t;

typedef struct cuda_nccl {
#define NCCL(member, symbol, result, parameters) result(*member) parameters;
#include "accelerators/cuda/names.def"
} cuda_nccl_t;

#endif
