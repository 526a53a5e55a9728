/* cuda.h - types and functions that the files of the replacement of CUDA's driver
 * share */
#ifndef T_STAND_IN_CUDA_H
#define T_STAND_IN_CUDA_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "accelerators/cuda/load.h"
#include "t/streams.h"

#define API __attribute__((visibility("default")))
#define DRIVER(member, symbol, parameters) API cu_result_t symbol parameters;
#include "accelerators/cuda/names.def"

enum { DEVICES = 4, ARGUMENTS = 48 };

/* Every handle begins with its kind and with the context of its device. */
typedef enum kind { A_STREAM = 71, AN_EVENT, A_MODULE, A_GRAPH, A_READY_GRAPH } kind_t;

typedef struct thing {
    kind_t kind;
    struct CUctx_st *of;
} thing_t;

typedef struct block {
    struct block *next;
    uintptr_t at;                                /* the device's address, or the host's */
    size_t bytes;
} block_t;

typedef struct CUctx_st {
    int number, users;
    streams_t *streams;
    block_t *memory, *pinned;
    size_t used;
    int things[A_READY_GRAPH + 1];                          /* of each kind */
    bool is_stream[STREAMS_MAX];
    int allocations, functions, launches, runs;             /* so far, for faults */
} context_t;
/* What a graph records; its own. */
typedef struct graph graph_t;

typedef struct CUstream_st {
    thing_t thing;
    int number;
    graph_t *capturing;                                     /* [NULL] */
    pthread_t by;
    bool is_invalid;                                        /* what is captured */
} stream_t;

extern pthread_mutex_t stand_in_lock;
extern __thread context_t *stand_in_current;

/* The number after "WORD=" in STAND_IN, and the one after ':'; `without` if there is
 * none. */
API int stand_in_fact(const char *word, int without, int *more);

/* For the stand-ins of other libraries, which look for them in this one: puts work on a
 * stream, or records it; where device memory really lies, NULL unless all of it is in one
 * allocation; the context of this thread. */
API cu_result_t stand_in_put(CUstream stream, int (*run)(void *data), const void *data,
                             size_t bytes);
API void *stand_in_memory(CUdeviceptr at, size_t bytes);
API CUcontext *stand_in_context(void);
/* The card of this thread's context breaks, with that result. */
API void stand_in_break(cu_result_t result);

/* The fault that STAND_IN has for a call of a function: "cuEventCreate=3:999". */
cu_result_t stand_in_fault(const char *call);
/* First the errors of a broken device and a wrong handle, then that fault  [call NULL: no
 * fault]. */
cu_result_t stand_in_enter(const char *call);
cu_result_t stand_in_enter_with(const void *handle, kind_t kind, const char *call);
/* An error, where a stream of this thread is recorded, which then becomes invalid. */
cu_result_t stand_in_refuse_in_capture(void);

void *stand_in_thing_new(size_t bytes, kind_t kind);
void stand_in_thing_free(void *handle);

/* Where device memory really lies. */
void *stand_in_real(CUdeviceptr address);
bool stand_in_is_memory(CUdeviceptr at, size_t bytes);
bool stand_in_is_pinned(const void *host, size_t bytes);

/* A stream is recorded from now on, or not any more. */
void stand_in_captures(stream_t *stream, bool begins);

#endif
