/* load.h - NVIDIA's libraries, opened when a device is opened */
#ifndef PL_CUDA_LOAD_H
#define PL_CUDA_LOAD_H

#include <limits.h>

#include "accelerators/cuda/api.h"
#include "paceline.h"

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
