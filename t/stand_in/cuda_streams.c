/* cuda_streams.c - streams of the replacement, events, kernels and recordings */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "t/emulator.h"
#include "t/stand_in/cuda.h"

typedef struct call {                                       /* of a kernel or a copy */
    struct call *next;
    int (*run)(void *data);
    size_t bytes;
    char data[];
} call_t;

/* CUgraph and CUgraphExec. */
struct graph {
    thing_t thing;
    call_t *first, **last;
};

typedef struct CUevent_st {
    thing_t thing;
    streams_event_t *event;
} event_t;

typedef struct CUfunc_st {
    struct CUfunc_st *next;
    context_t *of;
    void (*enter)(void *addresses);
    int arguments;
} function_t;

typedef struct CUmod_st {
    thing_t thing;
    void *library;
    int file;               /* open as long, because the loader knows libraries by path */
    function_t *functions;
} module_t;

static pthread_mutex_t at_work = PTHREAD_MUTEX_INITIALIZER;  /* the emulator is one */

/* ---- Work on streams ---- */

static cu_result_t stream_put(stream_t *stream, int (*run)(void *data), const void *data,
                              size_t bytes)
{
    if (!stream->capturing) {
        streams_put(stand_in_current->streams, stream->number, run, data, bytes);
        return CU_OK;
    }
    call_t *call = calloc(1, sizeof *call + bytes);
    call->run = run;
    call->bytes = bytes;
    memcpy(call->data, data, bytes);
    *stream->capturing->last = call;
    stream->capturing->last = &call->next;
    return CU_OK;
}

API cu_result_t stand_in_put(CUstream stream, int (*run)(void *data), const void *data,
                             size_t bytes)
{
    const cu_result_t result = stand_in_enter_with(stream, A_STREAM, NULL);
    return result == CU_OK ? stream_put(stream, run, data, bytes) : result;
}

static int break_run(void *data)
{
    return (int)*(cu_result_t *)data;
}

API void stand_in_break(cu_result_t result)
{
    streams_t *streams = stand_in_current->streams;
    streams_put(streams, 0, break_run, &result, sizeof result);
    streams_finish(streams, 0);
}

API void *stand_in_memory(CUdeviceptr at, size_t bytes)
{
    return stand_in_is_memory(at, bytes) ? stand_in_real(at) : NULL;
}

API CUcontext *stand_in_context(void)
{
    return &stand_in_current;
}

typedef struct copying {
    void *to;
    const void *from;                                       /* [NULL: after it] */
    size_t bytes;
    int byte;                                               /* to fill with  [-1] */
    char data[];
} copying_t;

static int copy_run(void *data)
{
    const copying_t *c = data;
    if (c->byte >= 0)
        memset(c->to, c->byte, c->bytes);
    else
        memcpy(c->to, c->from ? c->from : c->data, c->bytes);
    return 0;
}

/* Other nodes of a graph, which the engine does not use. */
API cu_result_t cuLaunchHostFunc(CUstream stream, void (*function)(void *user),
                                 void *user)
{
    const cu_result_t result = stand_in_enter_with(stream, A_STREAM, __func__);
    if (result != CU_OK || stream->capturing || !function)
        return result != CU_OK ? result : CU_INVALID_VALUE;
    streams_call(stand_in_current->streams, stream->number, function, user);
    return CU_OK;
}

API cu_result_t cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *host, size_t bytes,
                                     CUstream stream)
{
    cu_result_t result = stand_in_enter_with(stream, A_STREAM, __func__);
    if (result == CU_OK && !stand_in_is_memory(to, bytes))
        result = CU_INVALID_VALUE;
    if (result != CU_OK)
        return result;
    const copying_t late = {stand_in_real(to), host, bytes, -1};
    if (stand_in_is_pinned(host, bytes))
        return stream_put(stream, copy_run, &late, sizeof late);
    if (stream->capturing)
        return stand_in_refuse_in_capture();
    copying_t *now = malloc(sizeof *now + bytes);
    *now = (copying_t){stand_in_real(to), NULL, bytes, -1};
    memcpy(now->data, host, bytes);
    result = stream_put(stream, copy_run, now, sizeof *now + bytes);
    free(now);
    return result;
}

API cu_result_t cuMemcpyDtoHAsync_v2(void *host, CUdeviceptr from, size_t bytes,
                                     CUstream stream)
{
    cu_result_t result = stand_in_enter_with(stream, A_STREAM, __func__);
    if (result == CU_OK && !stand_in_is_memory(from, bytes))
        result = CU_INVALID_VALUE;
    if (result == CU_OK && stream->capturing && !stand_in_is_pinned(host, bytes))
        result = stand_in_refuse_in_capture();
    if (result != CU_OK)
        return result;
    const copying_t late = {host, stand_in_real(from), bytes, -1};
    result = stream_put(stream, copy_run, &late, sizeof late);
    if (!stand_in_is_pinned(host, bytes))
        streams_finish(stand_in_current->streams, stream->number);
    return result;
}

API cu_result_t cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                     CUstream stream)
{
    const cu_result_t result = stand_in_enter_with(stream, A_STREAM, __func__);
    if (result != CU_OK || !stand_in_is_memory(to, bytes)
        || !stand_in_is_memory(from, bytes))
        return result != CU_OK ? result : CU_INVALID_VALUE;
    const copying_t late = {stand_in_real(to), stand_in_real(from), bytes, -1};
    return stream_put(stream, copy_run, &late, sizeof late);
}

API cu_result_t cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes,
                                CUstream stream)
{
    const cu_result_t result = stand_in_enter_with(stream, A_STREAM, __func__);
    if (result != CU_OK || !stand_in_is_memory(to, bytes))
        return result != CU_OK ? result : CU_INVALID_VALUE;
    const copying_t late = {stand_in_real(to), NULL, bytes, byte};
    return stream_put(stream, copy_run, &late, sizeof late);
}

typedef struct launching {
    context_t *of;
    void (*enter)(void *addresses);
    uint64_t address[ARGUMENTS];
    unsigned groups, threads;
} launching_t;

static int launch_run(void *data)
{
    static uint64_t seed;
    launching_t *l = data;
    int code = 0;
    if (__atomic_add_fetch(&l->of->runs, 1, __ATOMIC_RELAXED)
        == stand_in_fact("run", 0, &code))
        return code;
    pthread_mutex_lock(&at_work);
    emulator_run(l->enter, l->address, l->groups, l->threads, ++seed);
    pthread_mutex_unlock(&at_work);
    return 0;
}

API cu_result_t cuLaunchKernel(CUfunction function, unsigned groups, unsigned groups_y,
                               unsigned groups_z, unsigned threads, unsigned threads_y,
                               unsigned threads_z, unsigned shared, CUstream stream,
                               void **arguments, void **extra)
{
    int code = 0;
    const cu_result_t result = stand_in_enter_with(stream, A_STREAM, __func__);
    if (result != CU_OK)
        return result;
    if (function->of != stand_in_current || !groups || groups_y != 1 || groups_z != 1
        || threads < 32 || threads > 1024 || threads % 32 || threads_y != 1
        || threads_z != 1 || shared || extra)
        return CU_INVALID_VALUE;
    if (__atomic_add_fetch(&stand_in_current->launches, 1, __ATOMIC_RELAXED)
        == stand_in_fact("launch", 0, &code)) {
        if (code == CU_LAUNCH_FAILED)            /* the card is lost, with what it runs */
            stand_in_break((cu_result_t)code);
        return (cu_result_t)code;
    }
    launching_t l = {stand_in_current, function->enter, .groups = groups,
                     .threads = threads};
    for (int k = 0; k < function->arguments; k++)
        l.address[k] = (uint64_t)(uintptr_t)stand_in_real(*(CUdeviceptr *)arguments[k]);
    return stream_put(stream, launch_run, &l, sizeof l);
}

/* ---- Streams and events ---- */

API cu_result_t cuStreamCreate(CUstream *stream, unsigned flags)
{
    const cu_result_t result = stand_in_enter(__func__);
    int number = 0;
    if (result != CU_OK || flags != CU_STREAM_APART)
        return result != CU_OK ? result : CU_INVALID_VALUE;
    pthread_mutex_lock(&stand_in_lock);
    while (stand_in_current->is_stream[number])
        number++;
    stand_in_current->is_stream[number] = true;
    pthread_mutex_unlock(&stand_in_lock);
    *stream = stand_in_thing_new(sizeof **stream, A_STREAM);
    (*stream)->number = number;
    return CU_OK;
}

static void graph_free(graph_t *graph)
{
    while (graph->first) {
        call_t *next = graph->first->next;
        free(graph->first);
        graph->first = next;
    }
    stand_in_thing_free(graph);
}

API cu_result_t cuStreamDestroy_v2(CUstream stream)
{
    if (!stream || stream->thing.kind != A_STREAM)
        return CU_INVALID_HANDLE;
    stream->thing.of->is_stream[stream->number] = false;
    if (stream->capturing) {            /* the card was lost before the recording ended */
        stand_in_captures(stream, false);
        graph_free(stream->capturing);
    }
    stand_in_thing_free(stream);
    return CU_OK;
}

API cu_result_t cuStreamSynchronize(CUstream stream)
{
    cu_result_t result = stand_in_enter_with(stream, A_STREAM, __func__);
    if (result == CU_OK)
        result = stand_in_refuse_in_capture();
    if (result != CU_OK)
        return result;
    streams_finish(stand_in_current->streams, stream->number);
    return stand_in_enter(NULL);
}

API cu_result_t cuEventCreate(CUevent *event, unsigned flags)
{
    const cu_result_t result = stand_in_enter(__func__);
    if (result != CU_OK || flags != CU_EVENT_BLOCKING)
        return result != CU_OK ? result : CU_INVALID_VALUE;
    *event = stand_in_thing_new(sizeof **event, AN_EVENT);
    (*event)->event = streams_event_new();
    return CU_OK;
}

API cu_result_t cuEventDestroy_v2(CUevent event)
{
    if (!event || event->thing.kind != AN_EVENT)
        return CU_INVALID_HANDLE;
    streams_event_free(event->event);
    stand_in_thing_free(event);
    return CU_OK;
}

static cu_result_t event_put(CUevent event, CUstream stream,
                             void (*put)(streams_t *, int, streams_event_t *),
                             const char *call)
{
    cu_result_t result = stand_in_enter_with(stream, A_STREAM, call);
    if (result == CU_OK)
        result = stand_in_enter_with(event, AN_EVENT, NULL);
    if (result == CU_OK && stream->capturing)
        result = stand_in_refuse_in_capture();
    if (result == CU_OK)
        put(stand_in_current->streams, stream->number, event->event);
    return result;
}

API cu_result_t cuEventRecord(CUevent event, CUstream stream)
{
    return event_put(event, stream, streams_record, __func__);
}

API cu_result_t cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    return flags ? CU_INVALID_VALUE : event_put(event, stream, streams_wait, __func__);
}

API cu_result_t cuEventQuery(CUevent event)
{
    const cu_result_t result = stand_in_enter_with(event, AN_EVENT, __func__);
    if (result != CU_OK)
        return result;
    const bool passed = streams_passed(stand_in_current->streams, event->event);
    const cu_result_t broken = stand_in_enter(NULL);
    return broken != CU_OK ? broken : passed ? CU_OK : CU_NOT_READY;
}

API cu_result_t cuEventSynchronize(CUevent event)
{
    const cu_result_t result = stand_in_enter_with(event, AN_EVENT, __func__);
    if (result != CU_OK)
        return result;
    streams_event_finish(stand_in_current->streams, event->event);
    return stand_in_enter(NULL);
}

API cu_result_t cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    const cu_result_t result = stand_in_enter_with(from, AN_EVENT, __func__);
    if (result == CU_OK)
        *ms = (float)(streams_seconds(from->event, to->event) * 1e3);
    return result;
}

/* ---- Kernels: a cubin is the bytes of a shared object ---- */

/* A shared object ends with its table of sections. */
static size_t image_bytes(const void *image)
{
    uint64_t table;
    uint16_t size, count;
    if (memcmp(image, "\177ELF\2", 5) != 0)
        return 0;
    memcpy(&table, (const char *)image + 40, sizeof table);
    memcpy(&size, (const char *)image + 58, sizeof size);
    memcpy(&count, (const char *)image + 60, sizeof count);
    return (size_t)table + (size_t)size * count;
}

API cu_result_t cuModuleLoadData(CUmodule *module, const void *image)
{
    cu_result_t result = stand_in_enter(__func__);
    char path[64];
    if (result == CU_OK)
        result = stand_in_refuse_in_capture();
    const size_t bytes = result == CU_OK ? image_bytes(image) : 0;
    if (!bytes)
        return result != CU_OK ? result : CU_INVALID_IMAGE;
    const int file = memfd_create("kernels", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write(file, image, bytes) != (ssize_t)bytes)
        perror("stand-in: write"), abort();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const emulator_calls_t **calls = library ? dlsym(library, "emulator_calls") : NULL;
    if (!calls) {
        close(file);
        return CU_INVALID_IMAGE;
    }
    *calls = &emulator_own_calls;
    *module = stand_in_thing_new(sizeof **module, A_MODULE);
    (*module)->library = library;
    (*module)->file = file;
    return CU_OK;
}

API cu_result_t cuModuleGetFunction(CUfunction *function, CUmodule module,
                                    const char *name)
{
    char symbol[96];
    const cu_result_t result = stand_in_enter_with(module, A_MODULE, __func__);
    if (result != CU_OK)
        return result;
    snprintf(symbol, sizeof symbol, "%s_enter", name);
    void *enters = dlsym(module->library, symbol);
    if (__atomic_add_fetch(&stand_in_current->functions, 1, __ATOMIC_RELAXED)
        == stand_in_fact("function", 0, NULL))
        return CU_NOT_FOUND;
    snprintf(symbol, sizeof symbol, "%s_arguments", name);
    const int *count = dlsym(module->library, symbol);
    if (!enters || !count)
        return CU_NOT_FOUND;
    *function = calloc(1, sizeof **function);
    **function = (function_t){.next = module->functions, .of = stand_in_current};
    memcpy(&(*function)->enter, &enters, sizeof enters);
    (*function)->arguments = *count;
    module->functions = *function;
    return CU_OK;
}

API cu_result_t cuModuleUnload(CUmodule module)
{
    if (!module || module->thing.kind != A_MODULE)
        return CU_INVALID_HANDLE;
    while (module->functions) {
        function_t *next = module->functions->next;
        free(module->functions);
        module->functions = next;
    }
    dlclose(module->library);
    close(module->file);
    stand_in_thing_free(module);
    return CU_OK;
}

/* ---- Recordings ---- */

API cu_result_t cuStreamBeginCapture_v2(CUstream stream, cu_choice_t mode)
{
    const cu_result_t result = stand_in_enter_with(stream, A_STREAM, __func__);
    if (result != CU_OK || mode != CU_CAPTURE_BY_THREAD || stream->capturing)
        return result != CU_OK ? result : CU_INVALID_VALUE;
    stream->capturing = stand_in_thing_new(sizeof *stream->capturing, A_GRAPH);
    stream->capturing->last = &stream->capturing->first;
    stream->by = pthread_self();
    stream->is_invalid = false;
    stand_in_captures(stream, true);
    return CU_OK;
}

/* A recording ends also on a card that is lost, which then is the error. */
API cu_result_t cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    *graph = NULL;
    if (!stream || stream->thing.kind != A_STREAM || !stream->capturing)
        return CU_INVALID_VALUE;
    const cu_result_t fault = stand_in_enter_with(stream, A_STREAM, __func__);
    stream->is_invalid |= fault != CU_OK;
    stand_in_captures(stream, false);
    *graph = stream->is_invalid ? NULL : (CUgraph)stream->capturing;
    if (stream->is_invalid)
        graph_free(stream->capturing);
    stream->capturing = NULL;
    return fault != CU_OK ? fault : *graph ? CU_OK : CU_CAPTURE_INVALIDATED;
}

API cu_result_t cuGraphInstantiateWithFlags(CUgraphExec *ready, CUgraph graph,
                                            unsigned long long flags)
{
    const cu_result_t result = stand_in_enter_with(graph, A_GRAPH, __func__);
    if (result != CU_OK || flags)
        return result != CU_OK ? result : CU_INVALID_VALUE;
    graph_t *made = stand_in_thing_new(sizeof *made, A_READY_GRAPH);
    made->last = &made->first;
    for (const call_t *from = ((graph_t *)graph)->first; from; from = from->next) {
        call_t *call = malloc(sizeof *call + from->bytes);
        memcpy(call, from, sizeof *call + from->bytes);
        call->next = NULL;
        *made->last = call;
        made->last = &call->next;
    }
    *ready = (CUgraphExec)made;
    return CU_OK;
}

API cu_result_t cuGraphLaunch(CUgraphExec ready, CUstream stream)
{
    cu_result_t result = stand_in_enter_with(ready, A_READY_GRAPH, __func__);
    if (result == CU_OK)
        result = stand_in_enter_with(stream, A_STREAM, NULL);
    for (call_t *call = ((graph_t *)ready)->first; call && result == CU_OK;
         call = call->next)
        result = stream_put(stream, call->run, call->data, call->bytes);
    return result;
}

API cu_result_t cuGraphDestroy(CUgraph graph)
{
    graph_t *made = (graph_t *)graph;
    if (!made || made->thing.kind != A_GRAPH)
        return CU_INVALID_HANDLE;
    graph_free(made);
    return CU_OK;
}

API cu_result_t cuGraphExecDestroy(CUgraphExec ready)
{
    graph_t *graph = (graph_t *)ready;
    if (!graph || graph->thing.kind != A_READY_GRAPH)
        return CU_INVALID_HANDLE;
    graph_free(graph);
    return CU_OK;
}
