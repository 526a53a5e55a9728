/* backend_emulated.h - an accelerator whose GPU is the emulator: kernels are compiled by
 * the C compiler and run by fibers, later and in any order that streams allow
 *
 * Registered as "emulated" by tests. */
#ifndef T_BACKEND_EMULATED_H
#define T_BACKEND_EMULATED_H

#include <stdatomic.h>

#include "accelerators/gpu/gpu.h"
#include "t/streams.h"

typedef struct emulated {
    pl_gpu_t gpu;                                           /* first */
    uint64_t seed;                                          /* of the order of threads */
    streams_t *streams;
    streams_handle_t stream[STREAMS_MAX];
    int made;               /* of others */
    struct memory *memory;  /* a list */
    struct memory *freed;   /* kept until close, so that no address is used again */
    int stale;              /* launches and copies that would have used it: did not run */
    size_t limit;           /* bytes of one block  [0: any] */
    size_t capacity;        /* and of all blocks  [0: any] */
    size_t used, pinned;    /* bytes: of all blocks, of the host's memory */
    size_t pin_limit;       /* bytes of one block of that  [0: any] */
    int waiting;            /* finish() waits now */
    int launches, fails_at;  /* so many so far; the one that fails  [0: none] */
    int descriptor;
    pl_recording_t *recording;          /* under way  [NULL] */
    int products;                       /* and layers, that are prepared and not freed */
    int multiplied;                     /* that were put on a stream or recorded */
    int followed, added;                /* of these with an epilogue; to earlier values */
    unsigned without;                   /* epilogues that its library is not asked for */
    int layered;                        /* layers, likewise */
    int refused;                        /* layers that were not built */
} emulated_t;

/* Microseconds that a launch takes longer. */
extern atomic_int emulated_slow_us;

extern const pl_accelerator_ops_t emulated_accelerator;
/* The same with a library of products and layers: "emulated_library". */
extern const pl_accelerator_ops_t emulated_library_accelerator;

#endif
