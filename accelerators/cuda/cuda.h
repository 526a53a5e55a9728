/* cuda.h - types and functions that the files of the cuda accelerator share
 *
 * backend.c is the backend table over the driver, offline.c the same for a card that is
 * not there, notifier.c the thread that reports passed events, build.c the compiler,
 * cache.c compiled kernels on disk, products.c products of matrices, dnn.c attention and
 * convolution, streams.c streams of collectives and recorded launches, stats.c
 * measurements of the card, cuda.c the accelerator with its options and its report about
 * this machine. */
#ifndef PL_CUDA_CUDA_H
#define PL_CUDA_CUDA_H

#include <pthread.h>

#include "accelerators/cuda/load.h"
#include "accelerators/gpu/gpu.h"

typedef struct cuda_notifier cuda_notifier_t;
typedef struct cuda_cache cuda_cache_t;

/* cuBLASLt on this device. */
typedef struct cuda_products {
    const cuda_multiplier_t *library;         /* [NULL: not read yet, or not installed] */
    pl_error_t why;                           /* the reason why it cannot be used */
    cublasLtHandle_t handle;                  /* [NULL: it is not used] */
    pthread_t reader;
    bool is_reading, is_read, is_tried;
    bool is_logged;                                /* the first product that it refused */
} cuda_products_t;

/* cuDNN on this device. */
typedef struct cuda_layers {
    const cuda_dnn_library_t *library;                     /* [NULL: not installed] */
    pl_error_t why;                                        /* the reason */
    cudnnHandle_t handle;                                  /* [NULL: not open] */
    cudnnBackendDescriptor_t device;                       /* [NULL: it cannot be used] */
    pl_layer_plan_t *first;                                /* of all plans */
    bool is_tried, is_open_tried;
    bool is_logged, is_warned;                 /* the first layer it refused, failed at */
} cuda_layers_t;

/* Measurements of this card. */
typedef struct cuda_stats {
    const cuda_monitor_t *monitor;                          /* [NULL: not opened] */
    nvmlDevice_t card;
    bool is_tried;
} cuda_stats_t;

typedef struct cuda {
    pl_gpu_t gpu;                                           /* first */

    bool cache, cublas, cudnn, any_order, recordings, strict, tf32;  /* options */
    bool fuse_bias_grad, fuse_gelu, fuse_gelu_grad;
    const char *cache_dir, *compile_for;
    int64_t cache_mb;

    const cuda_library_t *library;
    const cuda_driver_t *call;                              /* of the library */
    const cuda_compiler_t *compiler;
    cuda_card_t card;
    CUcontext context;                                      /* retained  [NULL] */
    CUstream stream[PL_STREAMS];
    cuda_notifier_t *notifier;
    cuda_cache_t *store;                       /* [NULL: compiled kernels are not kept] */
    cuda_products_t products;
    cuda_layers_t layers;
    cuda_stats_t stats;
    pl_device_ptr_t next;           /* offline.c: the next address */
    int descriptor;                 /* offline.c */
    pl_error_t lost;                /* why the device cannot be used any more  [code 0] */
} cuda_t;

extern const pl_gpu_backend_ops_t cuda_backend, cuda_backend_without_recordings;
/* A card that is not there (offline.c). */
extern const pl_gpu_backend_ops_t cuda_offline_backend;

/* ---- backend.c ---- */

/* PL_OK, or the driver's error about a failed call: `what` (printf) is the action.  After
 * some errors the driver refuses every call: such an error is kept, and every later call
 * of the device fails with it.  Any thread. */
int cuda_check(cuda_t *cuda, pl_error_t *err, cu_result_t result, const char *what, ...)
    PL_PRINTF(4, 5);
/* The error of an allocation of so many bytes, with the free memory. */
int cuda_fail_memory(cuda_t *cuda, size_t bytes, pl_error_t *err);
/* Whether the driver still accepts calls, after a library has failed: PL_OK, or the error
 * that ended the device.  Any thread. */
int cuda_check_alive(cuda_t *cuda, pl_error_t *err);
/* Makes the device current on this thread; fails when it is lost.  Any thread. */
int cuda_enter(void *cuda, pl_error_t *err);

/* ---- notifier.c: writes to a descriptor when an event has passed ---- */

/* An event may be added again while it is pending; so notices are counted.  The lock of
 * the notifier guards `notices` and `freed`. */
struct pl_event {
    CUevent event;
    unsigned records;                                       /* so far */
    int notices;                                            /* in its queues */
    bool freed;                                             /* the notifier frees it */
};

cuda_notifier_t *cuda_notifier_new(cuda_t *cuda, pl_error_t *err);
/* After the last pending notice. */
void cuda_notifier_free(cuda_notifier_t *notifier);
/* ns for which the host is not woken, so that it is woken once for several steps, which
 * took so many ns each: half of those that are pending, at most 1 ms. */
int64_t cuda_notice_delay(int pending, int64_t each);
/* Of the table in backend.h. An event is freed now, or when the notifier has finished
 * with it. */
int cuda_descriptor(const void *self);
int cuda_notify(void *self, pl_event_t *event, pl_stream_t stream, bool soon,
                pl_error_t *err);
void cuda_event_free(void *self, pl_event_t *event);

/* ---- build.c: kernels from text ---- */

typedef struct cuda_code {
    void *image;                                            /* from pl_alloc() */
    size_t bytes;
    bool was_kept;                                          /* by an earlier run */
    bool is_stored;                                         /* for later ones */
} cuda_code_t;

/* Fails if the compiler supports neither cards of that kind nor older ones. */
int cuda_compiler_check(const cuda_compiler_t *compiler, const cuda_card_t *card,
                        pl_error_t *err);
/* The machine code of a text for the device's card; `again`: without the cache.  Any
 * thread. */
int cuda_build(cuda_t *cuda, const char *text, bool again, cuda_code_t *code,
               pl_error_t *err);
/* Builds and loads it.  If the driver refuses code from the cache, it is compiled
 * again. */
int cuda_module_load(cuda_t *cuda, const char *text, CUmodule *module, cuda_code_t *made,
                     pl_error_t *err);
/* Of the table in backend.h. */
int cuda_module_new(void *self, const char *text, void **module, pl_error_t *err);

/* ---- streams.c: recorded launches and streams of collectives ---- */

int cuda_record_begin(void *self, pl_stream_t stream, pl_error_t *err);
int cuda_record_end(void *self, pl_stream_t stream, pl_recording_t **recording,
                    pl_error_t *err);
int cuda_recording_run(void *self, pl_stream_t stream, pl_recording_t *recording,
                       pl_error_t *err);
void cuda_recording_free(void *self, pl_recording_t *recording);

void *cuda_stream(void *self, pl_stream_t which);
int cuda_stream_new(void *self, void **stream, pl_error_t *err);
void cuda_stream_free(void *self, void *stream);
int cuda_stream_record(void *self, void *stream, pl_event_t *event, pl_error_t *err);
int cuda_stream_wait(void *self, void *stream, pl_event_t *event, pl_error_t *err);

/* ---- products.c: products of matrices by cuBLASLt ---- */

/* Begins to read the library, which takes as long as the driver needs for a card. */
void cuda_products_open(cuda_t *cuda);
/* Waits for that; NULL: it is not used. */
const cuda_multiplier_t *cuda_products_library(cuda_t *cuda);
/* With the context current, when all prepared products are freed. */
void cuda_products_close(cuda_t *cuda);
/* Of the table in backend.h. */
int cuda_product_new(void *self, const pl_product_t *product,
                     pl_product_plan_t **prepared, size_t *workspace, pl_error_t *err);
int cuda_product_run(void *self, pl_stream_t stream, const pl_product_plan_t *prepared,
                     const pl_device_ptr_t address[PL_PRODUCT_ADDRESSES],
                     pl_error_t *err);
void cuda_product_free(void *self, pl_product_plan_t *prepared);
/* Whether the product is of a kind that cuBLASLt may compute; the library itself is
 * queried only on a card. */
bool cuda_product_is_asked(const pl_product_t *product);
unsigned cuda_epilogues(const void *self);

/* ---- dnn.c: attention and convolution by cuDNN ---- */

/* Adds its name to the libraries of a device that computes, if it is used. */
void cuda_layers_name(const cuda_t *cuda, pl_device_info_t *info);
/* With the context current, when all plans of graphs are freed. */
void cuda_layers_close(cuda_t *cuda);
/* Of the table in backend.h. */
int cuda_layer_new(void *self, const pl_layer_t *layer, pl_layer_plan_t **plan,
                   pl_error_t *err);
int cuda_layer_build(void *self, pl_layer_plan_t *plan, size_t *workspace,
                     pl_error_t *err);
int cuda_layer_run(void *self, pl_stream_t stream, pl_layer_plan_t *plan,
                   const pl_device_ptr_t address[PL_LAYER_ADDRESSES], pl_error_t *err);

/* ---- stats.c: memory, utilization, power and temperature ---- */

/* Of the table in accelerator.h. */
void cuda_stats(void *self, pl_device_stats_t *stats);

/* ---- cache.c: compiled kernels on disk ---- */

/* The given folder, or for "" $XDG_CACHE_HOME/paceline or ~/.cache/paceline.  false:
 * there is none, because HOME is not set. */
bool cuda_cache_folder(const char *given, char path[PATH_MAX]);
/* NULL: out of memory, or there is no folder. */
cuda_cache_t *cuda_cache_new(const char *folder, int64_t max_mb);
void cuda_cache_free(cuda_cache_t *cache);
/* Opens the cache of the device by its options; the folder of that  [NULL: there is none,
 * and kernels are compiled each time]. */
void cuda_cache_open(cuda_t *cuda);
const char *cuda_cache_used(const void *self);
/* The code of a key, which is text; false: there is none, or it is damaged. */
bool cuda_cache_get(cuda_cache_t *cache, const char *key, void **code, size_t *bytes);
/* Keeps the code of a key; false: it cannot, which is logged once. */
bool cuda_cache_put(cuda_cache_t *cache, const char *key, const void *code, size_t bytes);
/* The number of entries in a folder, and their bytes. */
void cuda_cache_count(const char *folder, int *entries, int64_t *bytes);

#endif
