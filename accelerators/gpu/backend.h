/* backend.h - the table of a kind of GPU: memory, streams, events and kernels from text
 *
 * The core (gpu.h) contains graphs and kernels but no vendor's driver; a backend
 * contains its vendor's driver but no graphs.  Addresses are the device's: only the
 * backend's functions and kernels may use memory at them.  Every function runs on the
 * accelerator's thread unless its comment says otherwise; each error contains the
 * driver's error.
 *
 * Work that is put on a stream runs later, in the order of the stream.  event_passed()
 * and finish() report an error of that work, which ends the device: every later call
 * fails with it. */
#ifndef PL_GPU_BACKEND_H
#define PL_GPU_BACKEND_H

#include "accelerators/accelerator.h"

/* An address in the device's memory; 0: none. */
typedef uint64_t pl_device_ptr_t;

/* Only events order work on different streams. */
typedef enum pl_stream {
    PL_STREAM_MAIN,                                /* all computation */
    PL_STREAM_IN,                                  /* batches to the device */
    PL_STREAM_OUT,                                 /* results to the host */
    PL_STREAM_SAVE,                                /* regions to the host */
    PL_STREAMS,
} pl_stream_t;

/* Structs of the backend: a point of a stream; the compiled kernels of one text; one of
 * them; recorded launches. */
typedef struct pl_event pl_event_t;
typedef struct pl_binary pl_binary_t;
typedef struct pl_entry pl_entry_t;
typedef struct pl_recording pl_recording_t;
/* A prepared product and a prepared layer of the backend's library. */
typedef struct pl_product_plan pl_product_plan_t;
typedef struct pl_layer_plan pl_layer_plan_t;

/* A kernel has only addresses as arguments. */
#define PL_LAUNCH_ADDRESSES 48

typedef struct pl_kernel_launch {
    const pl_entry_t *entry;
    int64_t groups;
    int threads;                                            /* of a group: 32 to 1024 */
    int count;                                              /* of addresses */
    pl_device_ptr_t address[PL_LAUNCH_ADDRESSES];
    const size_t *bytes;  /* that the kernel may access at each address, for backends that
                             check  [NULL: unknown] */
} pl_kernel_launch_t;

/* A function of u = op(a) op(b) + bias, before the result is rounded. */
typedef enum pl_epilogue {
    PL_EPILOGUE_NONE,         /* c = u */
    PL_EPILOGUE_GELU,         /* c = gelu_tanh(u), and aux = u if it has aux */
    PL_EPILOGUE_GELU_GRAD,    /* c = u times the slope of gelu_tanh at aux */
    PL_EPILOGUE_BIAS_GRAD,    /* c = u, and bias, [m], becomes the sums of op(a) over k */
} pl_epilogue_t;

/* c = op(a) op(b) + bias for each of `batches`: op(a) is [m, k], op(b) [k, n], c [m, n],
 * all row-major; a transposed a is [k, m], a transposed b [n, k].  Products of halves and
 * of float32 are added up in float32, of float64 in float64; equal operands give equal
 * bits. */
typedef struct pl_product {
    int64_t m, n, k, batches;
    bool transpose_a, transpose_b;
    int64_t row_a, row_b, row_c;         /* elements from one row in memory to the next */
    int64_t batch_a, batch_b, batch_c;   /* and from one batch  [0: the same for all] */
    pl_dtype_t in, out;                  /* of a and b; of c, bias and aux */
    bool has_bias;                       /* [n], added to each row */
    pl_epilogue_t epilogue;              /* of one batch */
    bool has_aux;                        /* [m, n], as c lies */
    bool adds;                           /* to the values in c */
} pl_product_t;

/* Its operands, aligned to PL_PRODUCT_ALIGNMENT bytes.  A product without bias or aux may
 * get any address for it. */
enum {
    PL_PRODUCT_A,
    PL_PRODUCT_B,
    PL_PRODUCT_C,
    PL_PRODUCT_BIAS,
    PL_PRODUCT_AUX,
    PL_PRODUCT_WORKSPACE,
};
enum { PL_PRODUCT_ADDRESSES = PL_PRODUCT_WORKSPACE + 1, PL_PRODUCT_ALIGNMENT = 16 };

/* ---- Layers: a library computes them in place of several kernels ---- */

typedef enum pl_layer_kind {
    PL_LAYER_ATTENTION,
    PL_LAYER_ATTENTION_GRAD,
    PL_LAYER_CONVOLUTION,
    PL_LAYER_CONVOLUTION_GRAD_X,                            /* of pictures */
    PL_LAYER_CONVOLUTION_GRAD_W,                            /* of filters */
} pl_layer_kind_t;

/* Operands of attention; forward has the first five.  Sums are the logarithms of the sums
 * of exponentials, float32 [batches, heads, tokens]: ln sum_j e^(scale q_i k_j). */
enum {
    PL_ATTENTION_Q,
    PL_ATTENTION_K,
    PL_ATTENTION_V,
    PL_ATTENTION_Y,
    PL_ATTENTION_SUMS,
    PL_ATTENTION_DY,
    PL_ATTENTION_DQ,
    PL_ATTENTION_DK,
    PL_ATTENTION_DV,
    PL_LAYER_WORKSPACE,                                     /* of every layer */
    PL_LAYER_ADDRESSES,
};

/* Operands of a convolution.  A gradient takes the place of the operand that it belongs
 * to. */
enum {
    PL_CONVOLUTION_X,
    PL_CONVOLUTION_W,
    PL_CONVOLUTION_Y,
    PL_CONVOLUTION_BIAS,
};

/* All operands except sums are of one type, and aligned to PL_PRODUCT_ALIGNMENT bytes.
 * Sums are in float32; equal operands give equal bits.  All fields that do not belong to
 * its kind are zeros. */
typedef struct pl_layer {
    pl_layer_kind_t kind;
    pl_dtype_t dtype;
    /* y = softmax(scale q k^T) v for q, k, v, y [batches, heads, tokens, width]; a
     * causal query uses no later keys. */
    struct {
        int64_t batches, heads, tokens, width;
        double scale;
        bool causal;
        int64_t stride[PL_LAYER_WORKSPACE][3];  /* elements from one batch, head and token
                                                   to the next; rows are dense
                                                   [zeros: without that operand] */
    } attention;
    /* x [batches, height, width, channels], w [filters, channels / groups, kernel], y
     * [batches, down, across, filters], all dense. */
    struct {
        int64_t batches, height, width, channels, down, across, filters, groups;
        int64_t kernel[2], stride[2], dilation[2];
        int64_t before[2], behind[2];                       /* padding */
        bool has_bias;                                      /* [filters] */
    } convolution;
} pl_layer_t;

typedef struct pl_gpu_backend_ops {
    const char *name;                                       /* "cuda" */
    /* `self` is the accelerator's own struct, which begins with a pl_gpu_t. */
    int (*open)(void *self, pl_device_info_t *info, pl_error_t *err);
    void (*close)(void *self);                              /* also after a failed open */

    /* Device memory, aligned to 256 bytes; its content is undefined.  After PL_ENOMEM the
     * device still works. */
    int (*memory_new)(void *self, size_t bytes, pl_device_ptr_t *address,
                      pl_error_t *err);
    void (*memory_free)(void *self, pl_device_ptr_t address);
    /* Free bytes, and bytes of the device  [NULL: unknown]. */
    void (*memory_left)(void *self, size_t *left, size_t *all);
    /* Host memory that copies from and to the device at full speed  [both NULL: all host
     * memory does]. */
    void *(*host_new)(void *self, size_t bytes, pl_error_t *err);
    void (*host_free)(void *self, void *host);
    /* The same for existing host memory, until it is unpinned  [both NULL: copies of such
     * memory may wait for the device]. */
    int (*host_pin)(void *self, void *host, size_t bytes, pl_error_t *err);
    void (*host_unpin)(void *self, void *host);

    /* Put work on a stream.  Host memory is read or written when the copy runs. */
    int (*copy_in)(void *self, pl_stream_t stream, pl_device_ptr_t to, const void *host,
                   size_t bytes, pl_error_t *err);
    int (*copy_out)(void *self, pl_stream_t stream, void *host, pl_device_ptr_t from,
                    size_t bytes, pl_error_t *err);
    int (*copy)(void *self, pl_stream_t stream, pl_device_ptr_t to, pl_device_ptr_t from,
                size_t bytes, pl_error_t *err);
    int (*zero)(void *self, pl_stream_t stream, pl_device_ptr_t to, size_t bytes,
                pl_error_t *err);
    /* Puts a call of a function on a stream.  It runs on any thread, and does not use the
     * backend  [NULL: not possible]. */
    int (*call)(void *self, pl_stream_t stream, void (*function)(void *user), void *user,
                pl_error_t *err);

    /* An event passes when all work that is on a stream at its latest record has run.
     * Before its first record it has passed. */
    int (*event_new)(void *self, pl_event_t **event, pl_error_t *err);
    void (*event_free)(void *self, pl_event_t *event);
    int (*event_record)(void *self, pl_event_t *event, pl_stream_t stream,
                        pl_error_t *err);
    /* Later work on the stream waits for the event's latest record. */
    int (*event_wait)(void *self, pl_event_t *event, pl_stream_t stream, pl_error_t *err);
    /* PL_OK sets *passed; an error: the device failed. */
    int (*event_passed)(void *self, pl_event_t *event, bool *passed, pl_error_t *err);
    /* Between two events that have passed. */
    double (*event_seconds)(void *self, pl_event_t *from, pl_event_t *to);
    /* The descriptor, an eventfd there from open to close, is written to when the event's
     * latest record, on stream OUT or SAVE, has passed or the device has failed; unless
     * it is wanted soon, up to a millisecond later where events of later calls pass by
     * then. */
    int (*notify)(void *self, pl_event_t *event, pl_stream_t stream, bool soon,
                  pl_error_t *err);
    int (*descriptor)(const void *self);
    /* Waits until all work on the stream has run. */
    int (*finish)(void *self, pl_stream_t stream, pl_error_t *err);

    /* For collectives on registered memory, called from any thread, as are
     * event_new(), event_free() and event_passed() then  [all NULL: memory is not
     * registered].  Streams are handles of the vendor: stream() returns one of the
     * core's; enter() makes the device current on this thread. */
    void *(*stream)(void *self, pl_stream_t stream);
    int (*enter)(void *self, pl_error_t *err);
    int (*stream_new)(void *self, void **stream, pl_error_t *err);
    void (*stream_free)(void *self, void *stream);
    int (*stream_record)(void *self, void *stream, pl_event_t *event, pl_error_t *err);
    int (*stream_wait)(void *self, void *stream, pl_event_t *event, pl_error_t *err);

    /* A module for collectives, as fence.h has it  [NULL: they launch no kernels]. */
    int (*module_new)(void *self, const char *text, void **module, pl_error_t *err);

    /* Compiles a text in the dialect (kernels/dialect.h), which the text includes by
     * name. On any thread, several at once.  PL_ECANCELLED: pl_gpu_stops(). */
    int (*code_new)(void *self, const char *text, pl_binary_t **code, pl_error_t *err);
    void (*code_free)(void *self, pl_binary_t *code);
    /* Whether an earlier run compiled it, and whether later runs find it; and the
     * folder of such code  [NULL: there is none]  [both NULL: code is never kept]. */
    bool (*code_cached)(const pl_binary_t *code, bool *is_stored);
    const char *(*cache)(const void *self);
    /* NULL: the text has no such kernel. */
    const pl_entry_t *(*code_entry)(void *self, pl_binary_t *code, const char *name,
                                    pl_error_t *err);
    int (*launch)(void *self, pl_stream_t stream, const pl_kernel_launch_t *launch,
                  pl_error_t *err);

    /* Launches between record_begin() and record_end() do not run.  recording_run() runs
     * them together, any number of times: less work for the host  [all NULL: not
     * possible]. */
    int (*record_begin)(void *self, pl_stream_t stream, pl_error_t *err);
    int (*record_end)(void *self, pl_stream_t stream, pl_recording_t **recording,
                      pl_error_t *err);
    int (*recording_run)(void *self, pl_stream_t stream, pl_recording_t *recording,
                         pl_error_t *err);
    void (*recording_free)(void *self, pl_recording_t *recording);

    /* Products by a library of the vendor, in place of kernels of the core.
     * product_new() sets the bytes of workspace that product_run() needs, aligned to
     * 256; product_run() may be recorded.  PL_EUNSUPPORTED, with or without a text: a
     * kernel of the core computes the product  [product_new NULL: always]. */
    int (*product_new)(void *self, const pl_product_t *product,
                       pl_product_plan_t **prepared, size_t *workspace, pl_error_t *err);
    int (*product_run)(void *self, pl_stream_t stream, const pl_product_plan_t *prepared,
                       const pl_device_ptr_t address[PL_PRODUCT_ADDRESSES],
                       pl_error_t *err);
    void (*product_free)(void *self, pl_product_plan_t *prepared);  /* [not needed] */
    /* A mask of 1 << PL_EPILOGUE_…, the ones that the library computes; kernels of
     * the core compute the others  [NULL: all others]. */
    unsigned (*epilogues)(const void *self);

    /* Layers in the same way.  layer_new() takes no time; equal layers may share one
     * plan, which is freed once for each.  layer_build() may take a second, and runs
     * on any thread before the first layer_run(): it sets the bytes of workspace,
     * aligned to 256. After its PL_EUNSUPPORTED, layer_new() refuses such a layer
     * [layer_new NULL: the core computes them]. */
    int (*layer_new)(void *self, const pl_layer_t *layer, pl_layer_plan_t **plan,
                     pl_error_t *err);
    int (*layer_build)(void *self, pl_layer_plan_t *plan, size_t *workspace,
                       pl_error_t *err);
    int (*layer_run)(void *self, pl_stream_t stream, pl_layer_plan_t *plan,
                     const pl_device_ptr_t address[PL_LAYER_ADDRESSES], pl_error_t *err);
    void (*layer_free)(void *self, pl_layer_plan_t *plan);  /* [not needed] */
} pl_gpu_backend_ops_t;

#endif
