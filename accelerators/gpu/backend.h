/* backend.h - what the core of the GPUs asks of a kind of device: memory, streams, events
 * and kernels from text
 *
 * The core (gpu.h) knows graphs and kernels and no vendor; a backend knows its vendor's
 * driver and no graph.  Addresses are the device's: only the backend's functions and
 * kernels may use what they point to.  Every function runs on the accelerator's thread
 * unless it says otherwise; each error names what the driver said.
 *
 * What is put on a stream runs later, in the order of the stream.  An error of that
 * work is reported by event_passed() or finish(), and ends the device: every later call
 * fails with it. */
#ifndef PL_GPU_BACKEND_H
#define PL_GPU_BACKEND_H

#include "accelerators/accelerator.h"

/* An address in the device's memory; 0: none. */
typedef uint64_t pl_device_ptr_t;

/* Between streams nothing is ordered but by events. */
typedef enum pl_stream {
    PL_STREAM_MAIN,                                /* all that computes */
    PL_STREAM_IN,                                  /* batches to the device */
    PL_STREAM_OUT,                                 /* results and snapshots to the host */
    PL_STREAMS,
} pl_stream_t;

/* The backend's own structs: a point of a stream; kernels of one text, ready to run; one
 * of them; launches that were recorded. */
typedef struct pl_event pl_event_t;
typedef struct pl_binary pl_binary_t;
typedef struct pl_entry pl_entry_t;
typedef struct pl_recording pl_recording_t;
/* A product, and a layer, that the backend's library computes, prepared. */
typedef struct pl_product_plan pl_product_plan_t;
typedef struct pl_layer_plan pl_layer_plan_t;

/* A kernel's arguments are addresses alone, in order. */
#define PL_LAUNCH_ADDRESSES 48

typedef struct pl_launch {
    const pl_entry_t *entry;
    int64_t groups;
    int threads;                                            /* of a group: 32 to 1024 */
    int count;                                              /* of addresses */
    pl_device_ptr_t address[PL_LAUNCH_ADDRESSES];
    const size_t *bytes;   /* at each address that the kernel may touch, for backends that
                              check  [NULL: unknown] */
} pl_launch_t;

/* What becomes of u = op(a) op(b) + bias before it is rounded. */
typedef enum pl_epilogue {
    PL_EPILOGUE_NONE,         /* c = u */
    PL_EPILOGUE_GELU,         /* c = gelu_tanh(u), and aux = u where it has one */
    PL_EPILOGUE_GELU_GRAD,    /* c = u times the slope of gelu_tanh at aux */
    PL_EPILOGUE_BIAS_GRAD,    /* c = u, and bias, [m], becomes the sums of op(a) over k */
} pl_epilogue_t;

/* c = op(a) op(b) + bias for each of `batches`: op(a) is [m, k], op(b) [k, n], c [m, n],
 * all row-major; a is [k, m] where it is transposed, and b [n, k].  Products of halves
 * and of float32 are added up in float32, of float64 in float64; equal operands give
 * equal bits. */
typedef struct pl_product {
    int64_t m, n, k, batches;
    bool transpose_a, transpose_b;
    int64_t row_a, row_b, row_c;         /* elements from one row in memory to the next */
    int64_t batch_a, batch_b, batch_c;   /* and from one batch  [0: the same for all] */
    pl_dtype_t in, out;                  /* of a and b; of c, bias and aux */
    bool has_bias;                       /* [n], added to each row */
    pl_epilogue_t epilogue;              /* of one batch */
    bool has_aux;                        /* [m, n], as c lies */
    bool adds;                           /* to what c holds */
} pl_product_t;

/* What it works on: operands are aligned to PL_PRODUCT_ALIGNMENT bytes; bias and aux are
 * any addresses where it has none. */
enum {
    PL_PRODUCT_A,
    PL_PRODUCT_B,
    PL_PRODUCT_C,
    PL_PRODUCT_BIAS,
    PL_PRODUCT_AUX,
    PL_PRODUCT_WORKSPACE,
};
enum { PL_PRODUCT_ADDRESSES = PL_PRODUCT_WORKSPACE + 1, PL_PRODUCT_ALIGNMENT = 16 };

/* ---- Layers: what a library computes in place of several kernels ---- */

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

/* Those of a convolution: y, x and w, or the gradient that is computed or given in its
 * place. */
enum {
    PL_CONVOLUTION_X,
    PL_CONVOLUTION_W,
    PL_CONVOLUTION_Y,
    PL_CONVOLUTION_BIAS,
};

/* All operands but sums are of one type, and aligned to PL_PRODUCT_ALIGNMENT bytes.  What
 * is added up, is so in float32; equal operands give equal bits.  A struct of zeros but
 * for what its kind has. */
typedef struct pl_layer {
    pl_layer_kind_t kind;
    pl_dtype_t dtype;
    /* y = softmax(scale q k^T) v for q, k, v, y [batches, heads, tokens, width]; a causal
     * query sees no later keys. */
    struct {
        int64_t batches, heads, tokens, width;
        double scale;
        bool causal;
        int64_t stride[PL_LAYER_WORKSPACE][3];  /* elements from one batch, head and token
                                                   to the next; rows are dense
                                                   [zeros: without that operand] */
    } attention;
    /* x [batches, height, width, channels], w [filters, channels, kernel, kernel], y
     * [batches, down, across, filters], all dense. */
    struct {
        int64_t batches, height, width, channels, down, across, filters, kernel;
        int64_t stride, padding;
        bool has_bias;                                      /* [filters] */
    } convolution;
} pl_layer_t;

typedef struct pl_gpu_backend_ops {
    const char *name;                                       /* "cuda" */
    /* `self` is the accelerator's own struct, which begins with a pl_gpu_t. */
    int (*open)(void *self, pl_device_info_t *info, pl_error_t *err);
    void (*close)(void *self);      /* also after a failed open; what was made is freed */

    /* Device memory, aligned to 256 bytes; its content is undefined.  PL_ENOMEM: there is
     * not so much; the device works on. */
    int (*memory_new)(void *self, size_t bytes, pl_device_ptr_t *address,
                      pl_error_t *err);
    void (*memory_free)(void *self, pl_device_ptr_t address);
    /* Bytes that are free, and all  [NULL: unknown]. */
    void (*memory_left)(void *self, size_t *left, size_t *all);
    /* Host memory that copies from and to the device at full speed. */
    void *(*host_new)(void *self, size_t bytes, pl_error_t *err);
    void (*host_free)(void *self, void *host);
    /* The same for host memory that is there, until it is unpinned  [both NULL: copies of
     * such memory may wait for the device]. */
    int (*host_pin)(void *self, void *host, size_t bytes, pl_error_t *err);
    void (*host_unpin)(void *self, void *host);

    /* Onto a stream.  Host memory is read or written when the copy runs. */
    int (*copy_in)(void *self, pl_stream_t stream, pl_device_ptr_t to, const void *host,
                   size_t bytes, pl_error_t *err);
    int (*copy_out)(void *self, pl_stream_t stream, void *host, pl_device_ptr_t from,
                    size_t bytes, pl_error_t *err);
    int (*copy)(void *self, pl_stream_t stream, pl_device_ptr_t to, pl_device_ptr_t from,
                size_t bytes, pl_error_t *err);
    int (*zero)(void *self, pl_stream_t stream, pl_device_ptr_t to, size_t bytes,
                pl_error_t *err);
    /* Calls a function of the host, which uses nothing of the backend, on any thread
     * [NULL: not possible]. */
    int (*call)(void *self, pl_stream_t stream, void (*function)(void *user), void *user,
                pl_error_t *err);

    /* An event stands for what is on a stream when it is recorded there; before its first
     * record it stands for nothing and has passed. */
    int (*event_new)(void *self, pl_event_t **event, pl_error_t *err);
    void (*event_free)(void *self, pl_event_t *event);
    int (*event_record)(void *self, pl_event_t *event, pl_stream_t stream,
                        pl_error_t *err);
    /* What comes behind on the stream waits for the event's latest record. */
    int (*event_wait)(void *self, pl_event_t *event, pl_stream_t stream, pl_error_t *err);
    /* PL_OK sets *passed; an error: the device failed. */
    int (*event_passed)(void *self, pl_event_t *event, bool *passed, pl_error_t *err);
    /* Between two events that have passed. */
    double (*event_seconds)(void *self, pl_event_t *from, pl_event_t *to);
    /* The descriptor, an eventfd there from open to close, is written to once the event's
     * latest record has passed or the device has failed. */
    int (*notify)(void *self, pl_event_t *event, pl_error_t *err);
    int (*descriptor)(const void *self);
    /* Waits until all that is on the stream has run. */
    int (*finish)(void *self, pl_stream_t stream, pl_error_t *err);

    /* For collectives that work on registered memory, and so called from any thread,
     * as event_new(), event_free() and event_passed() are then  [all NULL: it is not
     * registered]. Streams are the vendor's handles: stream() gives one of the core's;
     * enter() makes the device current on this thread. */
    void *(*stream)(void *self, pl_stream_t stream);
    int (*enter)(void *self, pl_error_t *err);
    int (*stream_new)(void *self, void **stream, pl_error_t *err);
    void (*stream_free)(void *self, void *stream);
    int (*stream_record)(void *self, void *stream, pl_event_t *event, pl_error_t *err);
    int (*stream_wait)(void *self, void *stream, pl_event_t *event, pl_error_t *err);

    /* A module for others, as fence.h has it  [NULL: others launch no kernels]. */
    int (*module_new)(void *self, const char *text, void **module, pl_error_t *err);

    /* Makes kernels of a text in the dialect (kernels/dialect.h), which the text includes
     * by name.  From any thread, several at once.  PL_ECANCELLED: pl_gpu_stops(). */
    int (*code_new)(void *self, const char *text, pl_binary_t **code, pl_error_t *err);
    void (*code_free)(void *self, pl_binary_t *code);
    /* Whether it was compiled by an earlier run, and whether later ones find it; and the
     * folder that keeps such code; NULL: it is not kept  [both NULL: it never is]. */
    bool (*code_cached)(const pl_binary_t *code, bool *is_stored);
    const char *(*cache)(const void *self);
    /* NULL: the text has no such kernel. */
    const pl_entry_t *(*code_entry)(void *self, pl_binary_t *code, const char *name,
                                    pl_error_t *err);
    int (*launch)(void *self, pl_stream_t stream, const pl_launch_t *launch,
                  pl_error_t *err);

    /* Launches put on the stream in between are kept instead of run, to be run together
     * any number of times: less work for the host  [all NULL: not possible]. */
    int (*record_begin)(void *self, pl_stream_t stream, pl_error_t *err);
    int (*record_end)(void *self, pl_stream_t stream, pl_recording_t **recording,
                      pl_error_t *err);
    int (*recording_run)(void *self, pl_stream_t stream, pl_recording_t *recording,
                         pl_error_t *err);
    void (*recording_free)(void *self, pl_recording_t *recording);

    /* Products by a library of the vendor's, in place of kernels of the core's.
     * product_new() gives the bytes of workspace that product_run() needs, aligned to
     * 256; product_run() may be recorded.  PL_EUNSUPPORTED, with or without a text: the
     * library does not compute it, and the core's kernel does  [all NULL: never]. */
    int (*product_new)(void *self, const pl_product_t *product,
                       pl_product_plan_t **prepared, size_t *workspace, pl_error_t *err);
    int (*product_run)(void *self, pl_stream_t stream, const pl_product_plan_t *prepared,
                       const pl_device_ptr_t address[PL_PRODUCT_ADDRESSES],
                       pl_error_t *err);
    void (*product_free)(void *self, pl_product_plan_t *prepared);
    /* Which epilogues it is asked for, 1 << PL_EPILOGUE_… each; others are kernels of the
     * core's  [NULL: none]. */
    unsigned (*epilogues)(const void *self);

    /* Layers likewise.  layer_new() takes no time; equal layers may have one plan, which
     * is freed as often.  layer_build() may take a second, and runs on any thread, before
     * the first layer_run(): it gives the bytes of workspace, aligned to 256.  Its
     * PL_EUNSUPPORTED means that layer_new() refuses such a layer from now on, too  [all
     * NULL: never]. */
    int (*layer_new)(void *self, const pl_layer_t *layer, pl_layer_plan_t **plan,
                     pl_error_t *err);
    int (*layer_build)(void *self, pl_layer_plan_t *plan, size_t *workspace,
                       pl_error_t *err);
    int (*layer_run)(void *self, pl_stream_t stream, pl_layer_plan_t *plan,
                     const pl_device_ptr_t address[PL_LAYER_ADDRESSES], pl_error_t *err);
    void (*layer_free)(void *self, pl_layer_plan_t *plan);
} pl_gpu_backend_ops_t;

#endif
