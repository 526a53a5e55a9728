/* streams.c - streams for collectives that work on registered memory of a card, and
 * launches recorded as CUDA graphs, which run with less work for the host */
#include "accelerators/cuda/cuda.h"
#include "base/alloc.h"
#include "base/error.h"

void *cuda_stream(void *self, pl_stream_t which)
{
    return ((cuda_t *)self)->stream[which];
}

int cuda_stream_new(void *self, void **fresh, pl_error_t *err)
{
    cuda_t *cuda = self;
    CUstream made;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    const cu_result_t result = cuda->call->stream_new(&made, CU_STREAM_APART);
    if (result == CU_OK)
        *fresh = made;
    return cuda_check(cuda, err, result, "making a stream");
}

void cuda_stream_free(void *self, void *of)
{
    cuda_t *cuda = self;
    cuda->call->context_use(cuda->context);
    cuda->call->stream_free(of);
}

int cuda_stream_record(void *self, void *of, pl_event_t *event, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    return cuda_check(cuda, err, cuda->call->event_record(event->event, of),
                      "recording an event");
}

int cuda_stream_wait(void *self, void *of, pl_event_t *event, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    return cuda_check(cuda, err, cuda->call->stream_wait(of, event->event, 0),
                      "waiting for an event");
}

/* ---- Recordings ---- */

struct pl_recording {
    CUgraphExec ready;
};

/* Other threads of the process may use the driver at that time. */
int cuda_record_begin(void *self, pl_stream_t stream, pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    return cuda_check(cuda, err,
                      cuda->call->capture_begin(cuda->stream[stream],
                                                CU_CAPTURE_BY_THREAD),
                      "beginning a recording");
}

/* Also on a card that is lost: a thread that records may not free memory. */
int cuda_record_end(void *self, pl_stream_t stream, pl_recording_t **recording,
                    pl_error_t *err)
{
    cuda_t *cuda = self;
    CUgraph graph = NULL;
    cuda->call->context_use(cuda->context);
    const cu_result_t ended = cuda->call->capture_end(cuda->stream[stream], &graph);
    int code = cuda_enter(cuda, err);
    if (code == PL_OK)
        code = cuda_check(cuda, err, ended, "ending a recording");
    pl_recording_t *fresh = code == PL_OK ? pl_alloc(sizeof *fresh) : NULL;
    if (code == PL_OK)
        code = fresh ? cuda_check(cuda, err,
                                  cuda->call->graph_ready(&fresh->ready, graph, 0),
                                  "making a recording ready")
                     : pl_no_memory(err);
    if (graph)
        cuda->call->graph_free(graph);
    if (code == PL_OK)
        *recording = fresh;
    else
        pl_free(fresh);
    return code;
}

int cuda_recording_run(void *self, pl_stream_t stream, pl_recording_t *recording,
                       pl_error_t *err)
{
    cuda_t *cuda = self;
    const int code = cuda_enter(cuda, err);
    if (code != PL_OK)
        return code;
    return cuda_check(cuda, err,
                      cuda->call->graph_run(recording->ready, cuda->stream[stream]),
                      "running a recording");
}

void cuda_recording_free(void *self, pl_recording_t *recording)
{
    cuda_t *cuda = self;
    cuda->call->context_use(cuda->context);
    cuda->call->ready_free(recording->ready);
    pl_free(recording);
}
