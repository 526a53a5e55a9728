/* machine.h - what the core of the GPUs asks of a kind of device: memory, streams, and
 * kernels from text
 *
 * The core (gpu.h) knows graphs and kernels and no vendor; a machine knows its vendor's
 * driver and no graph.  Addresses are the device's: only the machine's functions and
 * kernels may use what they point to.  Every function runs on the accelerator's thread
 * unless it says otherwise; each error names what the driver said. */
#ifndef PL_GPU_MACHINE_H
#define PL_GPU_MACHINE_H

#include "accelerators/accelerator.h"

/* An address in the device's memory; 0: none. */
typedef uint64_t pl_address_t;

/* What is put on one stream runs in that order; between streams nothing is ordered. */
typedef enum pl_stream {
    PL_STREAM_MAIN, /* all that computes */
    PL_STREAMS,
} pl_stream_t;

/* Kernels of one text, ready to run; the machine's own struct. */
typedef struct pl_binary pl_binary_t;
typedef struct pl_entry pl_entry_t;

/* A kernel's arguments are addresses alone, in order. */
#define PL_LAUNCH_ADDRESSES 48

typedef struct pl_launch {
    const pl_entry_t *entry;
    int64_t groups;
    int threads; /* of a group: 32 to 1024 */
    int count;   /* of addresses */
    pl_address_t address[PL_LAUNCH_ADDRESSES];
} pl_launch_t;

typedef struct pl_machine_ops {
    const char *name; /* "cuda" */
    /* `self` is the accelerator's own struct behind its pl_gpu_t. */
    int (*open)(void *self, pl_device_info_t *info, pl_error_t *err);
    void (*close)(void *self); /* also after a failed open */

    /* Device memory, aligned to 256 bytes; its content is undefined. */
    int (*memory_new)(void *self, size_t bytes, pl_address_t *address, pl_error_t *err);
    void (*memory_free)(void *self, pl_address_t address);
    /* Onto a stream.  Host memory stays as it is until finish(). */
    int (*copy_in)(void *self, pl_stream_t stream, pl_address_t to, const void *host,
                   size_t bytes, pl_error_t *err);
    int (*copy_out)(void *self, pl_stream_t stream, void *host, pl_address_t from,
                    size_t bytes, pl_error_t *err);
    int (*zero)(void *self, pl_stream_t stream, pl_address_t to, size_t bytes,
                pl_error_t *err);
    /* Waits until all that is on the stream has run. */
    int (*finish)(void *self, pl_stream_t stream, pl_error_t *err);

    /* Makes kernels of a text in the dialect (kernels/dialect.h), which the text does not
     * include itself. */
    int (*code_new)(void *self, const char *text, pl_binary_t **code, pl_error_t *err);
    void (*code_free)(void *self, pl_binary_t *code);
    const pl_entry_t *(*code_entry)(void *self, pl_binary_t *code, const char *name,
                                    pl_error_t *err);
    int (*launch)(void *self, pl_stream_t stream, const pl_launch_t *launch,
                  pl_error_t *err);
} pl_machine_ops_t;

#endif
