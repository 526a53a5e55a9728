/* api.h - the part of CUDA's driver and of NVRTC that the cuda accelerator calls
 *
 * It is declared here, so that building needs no toolkit; the libraries are opened when
 * a device is (load.c).  Types of handles have NVIDIA's names, because they are the same
 * types.  names.def lists constants and functions. */
#ifndef PL_CUDA_API_H
#define PL_CUDA_API_H

#include <stddef.h>

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

/* Enums there. */
typedef unsigned cu_result_t, cu_choice_t;

enum {
#define NUMBER(ours, theirs, value) ours = value,
#define RESULT(ours, theirs, value) ours = value,
#include "accelerators/cuda/names.def"
};

typedef struct cuda_driver {
#define DRIVER(member, symbol, parameters) cu_result_t(*member) parameters;
#include "accelerators/cuda/names.def"
} cuda_driver_t;

typedef struct cuda_nvrtc {
#define NVRTC(member, symbol, parameters) cu_result_t(*member) parameters;
#include "accelerators/cuda/names.def"
} cuda_nvrtc_t;

#endif
