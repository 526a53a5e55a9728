/* load.h - NVIDIA's libraries, which are opened when a device is opened: the part of
 * CUDA's driver, NVRTC, cuBLASLt, cuDNN, NVML and NCCL that the cuda accelerator and
 * the collective nccl call
 *
 * It is declared here, so that building needs no toolkit.  Types of handles have NVIDIA's
 * names, because they are the same types.  names.def lists constants and functions. */
#ifndef PL_CUDA_LOAD_H
#define PL_CUDA_LOAD_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "paceline.h"

/* ---- Types of NVIDIA ---- */

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

/* ---- The libraries ---- */

/* The oldest driver that is used: CUDA 12.0; the oldest cuDNN: 9.8; the oldest NCCL:
 * 2.18. */
#define CUDA_MIN 12000
#define CUDA_DNN_MIN 90800
#define NCCL_MIN 21800

enum { CUDA_ARCHS = 64 };

/* The driver of this process, ready for calls. */
typedef struct cuda_library {
    cuda_driver_t call;
    int version;                                            /* 12040: CUDA 12.4 */
    char path[PATH_MAX];
} cuda_library_t;

/* A card, as the driver describes it. */
typedef struct cuda_card {
    int number;
    CUdevice device;
    char name[64];
    int major, minor;                                      /* of the compute capability */
    size_t memory;                                         /* bytes */
    CUuuid uuid;
} cuda_card_t;

/* The compiler of kernels. */
typedef struct cuda_compiler {
    cuda_nvrtc_t call;
    int major, minor;
    int arch[CUDA_ARCHS];                            /* [archs], ascending: 90 is sm_90 */
    int archs;
    char path[PATH_MAX];
} cuda_compiler_t;

/* Products of matrices. */
typedef struct cuda_multiplier {
    cuda_lt_t call;
    int major, minor;
    char path[PATH_MAX];
} cuda_multiplier_t;

/* Attention and convolution. */
typedef struct cuda_dnn_library {
    cuda_dnn_t call;
    int version;                                            /* 91900: 9.19 */
    char path[PATH_MAX];
} cuda_dnn_library_t;

/* Measurements of cards. */
typedef struct cuda_monitor {
    cuda_nvml_t call;
    char path[PATH_MAX];
} cuda_monitor_t;

/* Collectives. */
typedef struct cuda_communicator {
    cuda_nccl_t call;
    int version;                                            /* 22809: NCCL 2.28.9 */
    char path[PATH_MAX];
} cuda_communicator_t;

/* Opens libcuda.so.1 and initializes it, once in a process; it stays open.  NULL:
 * PL_ENOTFOUND, there is no driver; PL_EUNSUPPORTED, it cannot be used.  Any thread. */
const cuda_library_t *cuda_library_open(pl_error_t *err);

/* The card of that number. */
int cuda_card_describe(const cuda_driver_t *call, int number, cuda_card_t *card,
                       pl_error_t *err);

/* PL_OK, or the driver's error about a failed call on the card of that number. */
int cuda_driver_check(const cuda_driver_t *call, int number, cu_result_t result,
                      const char *what, pl_error_t *err);

/* Opens NVRTC in the same way, for a driver of that version  [0: any]: the driver refuses
 * code of a compiler that is newer than it. */
const cuda_compiler_t *cuda_compiler_open(int driver_version, pl_error_t *err);

/* Opens cuBLASLt, which takes a tenth of a second, or a second when its 500 MB come
 * from a disk.  NULL: PL_ENOTFOUND. */
const cuda_multiplier_t *cuda_multiplier_open(int driver_version, pl_error_t *err);

/* Opens cuDNN, whose parts are read when they are first used.  NULL: PL_ENOTFOUND, or
 * PL_EUNSUPPORTED, the one that was found is too old or for another driver. */
const cuda_dnn_library_t *cuda_dnn_open(int driver_version, pl_error_t *err);

/* Opens NVML, which is a part of the driver.  NULL: PL_ENOTFOUND, or PL_EUNSUPPORTED. */
const cuda_monitor_t *cuda_monitor_open(pl_error_t *err);

/* Opens NCCL, which needs a driver only when ranks connect.  NULL: PL_ENOTFOUND, or
 * PL_EUNSUPPORTED, the one that was found is too old. */
const cuda_communicator_t *cuda_communicator_open(pl_error_t *err);

/* "2.28.9" */
#define CUDA_VERSION_TEXT 16
const char *cuda_nccl_version(int version, char text[CUDA_VERSION_TEXT]);

/* The end of the error about a library that is not found. */
#define CUDA_LOOKED "; paceline doctor lists where it was looked for"

/* The search path of NVRTC, cuBLASLt, cuDNN and NCCL: folders and patterns of them. */
enum { CUDA_PATH_TEXT = 2048 };
const char *cuda_search_path(char text[CUDA_PATH_TEXT]);

#endif
