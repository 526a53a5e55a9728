/* cuda.h - what the files of the cuda accelerator share
 *
 * backend_cuda.c is the backend table over the driver, backend_offline.c the same for a
 * card that is not there, notifier.c the thread that reports passed events, build.c the
 * compiler, cache.c compiled kernels on disk, products.c products of matrices, dnn.c
 * attention and convolution, streams.c streams of others, stats.c measurements of the
 * card, cuda.c the accelerator with its options and what it says of this machine. */
#ifndef PL_CUDA_CUDA_H
#define PL_CUDA_CUDA_H

#include <pthread.h>

#include "accelerators/cuda/load.h"
#include "accelerators/gpu/gpu.h"

typedef struct cuda_notifier cuda_notifier_t;
typedef struct cuda_cache cuda_cache_t;

/* cuBLASLt on this device. */
typedef struct cuda_products {
    const cuda_multiplier_t *library;                       /* [not read, or not there] */
    pl_error_t why;                                         /* it cannot be used */
    cublasLtHandle_t handle;                                /* [it is not] */
    pthread_t reader;
    bool is_reading, is_read, is_tried;
    bool is_logged;                                         /* what it refused first */
} cuda_products_t;

/* cuDNN on this device. */
typedef struct cuda_layers {
    const cuda_dnn_library_t *library;                      /* [not there] */
    pl_error_t why;                                         /* it is not */
    cudnnHandle_t handle;                                   /* [not open] */
    cudnnBackendDescriptor_t device;                        /* [it cannot be used] */
    pl_layer_plan_t *first;                                 /* of all plans */
    bool is_tried, is_open_tried;
    bool is_logged, is_warned;                 /* what it refused, and failed at, first */
} cuda_layers_t;

/* Measurements of this card. */
typedef struct cuda_stats {
    const cuda_monitor_t *monitor;                          /* [NULL: not opened] */
    nvmlDevice_t card;
    bool is_tried;
} cuda_stats_t;

typedef struct cuda {
    pl_gpu_t gpu;                                           /* first */

    bool cache, cublas, cudnn, recordings, strict, tf32;    /* options */
    bool fuse_bias_grad, fuse_gelu, fuse_gelu_grad;
    const char *cache_dir, *compile_for;
    int64_t cache_mb;

    const cuda_library_t *library;
    const cuda_driver_t *call;                              /* of the library */
    const cuda_compiler_t *compiler;
    cuda_card_t card;
    CUcontext context;                                      /* retained  [none] */
    CUstream stream[PL_STREAMS];
    cuda_notifier_t *notifier;
    cuda_cache_t *store;                             /* [compiled kernels are not kept] */
    cuda_products_t products;
    cuda_layers_t layers;
    cuda_stats_t stats;
    pl_device_ptr_t next;           /* of a card that is not there: memory, and */
    int descriptor;                 /* its descriptor */
    pl_error_t lost;                /* why the device cannot be used any more  [code 0] */
} cuda_t;

extern const pl_gpu_backend_ops_t cuda_backend, cuda_backend_without_recordings;
/* A card that is not there (backend_offline.c). */
extern const pl_gpu_backend_ops_t cuda_offline_backend;

/* ---- backend_cuda.c ---- */

/* PL_OK, or what the driver says of a failed call: `what` (printf) failed on which card.
 * An error after which the driver refuses every call is kept as the device's end.  Any
 * thread. */
int cuda_check(cuda_t *cuda, pl_error_t *err, cu_result_t result, const char *what, ...)
    PL_PRINTF(4, 5);
/* An error of an allocation of so many bytes, with what is free. */
int cuda_fail_memory(cuda_t *cuda, size_t bytes, pl_error_t *err);
/* Whether the driver still accepts calls, where a library has failed: PL_OK, or the end
 * of the device.  Any thread. */
int cuda_check_alive(cuda_t *cuda, pl_error_t *err);
/* Makes the device current on this thread; fails when it is lost.  Any thread. */
int cuda_enter(cuda_t *cuda, pl_error_t *err);

/* ---- notifier.c: writes to a descriptor when an event has passed ---- */

/* An event may be added again while it is pending; so notices are counted. */
struct pl_event {
    CUevent event;
    unsigned records;                                       /* so far */
    int notices;                                            /* in the notifier's queue */
    bool freed;                                             /* the notifier frees it */
};

cuda_notifier_t *cuda_notifier_new(cuda_t *cuda, pl_error_t *err);
/* After the last pending notice. */
void cuda_notifier_free(cuda_notifier_t *notifier);
int cuda_notifier_descriptor(const cuda_notifier_t *notifier);
int cuda_notifier_add(cuda_notifier_t *notifier, pl_event_t *event, pl_error_t *err);
/* Frees the event now, or when the notifier is done with it. */
void cuda_notifier_forget(cuda_notifier_t *notifier, pl_event_t *event);

/* ---- build.c: kernels from text ---- */

typedef struct cuda_code {
    void *image;                                            /* from pl_alloc() */
    size_t bytes;
    bool was_kept;                                          /* by an earlier run */
    bool is_stored;                                         /* for later ones */
} cuda_code_t;

/* Whether the compiler knows cards of that kind, or older ones. */
int cuda_compiler_check(const cuda_compiler_t *compiler, const cuda_card_t *card,
                        pl_error_t *err);
/* The machine code of a text for the device's card; again: what an earlier run kept
 * cannot be used.  Any thread. */
int cuda_build(cuda_t *cuda, const char *text, bool again, cuda_code_t *code,
               pl_error_t *err);
/* Loads it, and says where it came from; what an earlier run kept and the driver does not
 * take is compiled again. */
int cuda_module_load(cuda_t *cuda, const char *text, CUmodule *module, cuda_code_t *made,
                     pl_error_t *err);
/* As backend.h has it. */
int cuda_module_new(void *self, const char *text, void **module, pl_error_t *err);

/* ---- record.c: launches recorded as CUDA graphs, as backend.h has them ---- */

int cuda_record_begin(void *self, pl_stream_t stream, pl_error_t *err);
int cuda_record_end(void *self, pl_stream_t stream, pl_recording_t **recording,
                    pl_error_t *err);
int cuda_recording_run(void *self, pl_stream_t stream, pl_recording_t *recording,
                       pl_error_t *err);
void cuda_recording_free(void *self, pl_recording_t *recording);

/* ---- streams.c: streams of others, as backend.h has them ---- */

void *cuda_stream(void *self, pl_stream_t which);
int cuda_stream_enter(void *self, pl_error_t *err);
int cuda_stream_new(void *self, void **stream, pl_error_t *err);
void cuda_stream_free(void *self, void *stream);
int cuda_stream_record(void *self, void *stream, pl_event_t *event, pl_error_t *err);
int cuda_stream_wait(void *self, void *stream, pl_event_t *event, pl_error_t *err);

/* ---- products.c: products of matrices by cuBLASLt ---- */

/* Begins to read the library, which takes as long as the driver needs for a card. */
void cuda_products_open(cuda_t *cuda);
/* Waits for that; NULL: it is not used. */
const cuda_multiplier_t *cuda_products_library(cuda_t *cuda);
/* With the context current, when all that was prepared is freed. */
void cuda_products_close(cuda_t *cuda);
/* As backend.h has them. */
int cuda_product_new(void *self, const pl_product_t *product,
                     pl_product_plan_t **prepared, size_t *workspace, pl_error_t *err);
int cuda_product_run(void *self, pl_stream_t stream, const pl_product_plan_t *prepared,
                     const pl_device_ptr_t address[PL_PRODUCT_ADDRESSES],
                     pl_error_t *err);
void cuda_product_free(void *self, pl_product_plan_t *prepared);
/* Whether cuBLASLt may compute it; it says so itself only on a card. */
bool cuda_product_is_asked(const pl_product_t *product);
unsigned cuda_epilogues(const void *self);

/* ---- dnn.c: attention and convolution by cuDNN ---- */

/* Adds its name to the libraries of a device that computes, if it is used. */
void cuda_layers_name(const cuda_t *cuda, pl_device_info_t *info);
/* With the context current, when all plans of graphs are freed. */
void cuda_layers_close(cuda_t *cuda);
/* As backend.h has them. */
int cuda_layer_new(void *self, const pl_layer_t *layer, pl_layer_plan_t **plan,
                   pl_error_t *err);
int cuda_layer_build(void *self, pl_layer_plan_t *plan, size_t *workspace,
                     pl_error_t *err);
int cuda_layer_run(void *self, pl_stream_t stream, pl_layer_plan_t *plan,
                   const pl_device_ptr_t address[PL_LAYER_ADDRESSES], pl_error_t *err);
void cuda_layer_free(void *self, pl_layer_plan_t *plan);

/* ---- stats.c: memory, utilization, power and temperature ---- */

/* As accelerator.h has it. */
void cuda_stats(void *self, pl_device_stats_t *stats);

/* ---- cache.c: compiled kernels on disk ---- */

/* The folder: as given, or "" for $XDG_CACHE_HOME/paceline, else ~/.cache/paceline.
 * false: there is none, because HOME is not set. */
bool cuda_cache_folder(const char *given, char path[PATH_MAX]);
/* NULL: out of memory, or there is no folder. */
cuda_cache_t *cuda_cache_new(const char *folder, int64_t max_mb);
void cuda_cache_free(cuda_cache_t *cache);
/* The cache of the device by its options: kernels are compiled each time where they
 * cannot be kept; its folder  [NULL: there is none]. */
void cuda_cache_open(cuda_t *cuda);
const char *cuda_cache_used(const void *self);
/* What was kept under the key, which is text; false: nothing, or not what it was. */
bool cuda_cache_get(cuda_cache_t *cache, const char *key, void **code, size_t *bytes);
/* false: it is not kept; a folder that cannot be written to is logged once. */
bool cuda_cache_put(cuda_cache_t *cache, const char *key, const void *code, size_t bytes);
/* How many entries a folder has, and their bytes. */
void cuda_cache_count(const char *folder, int *entries, int64_t *bytes);

#endif
