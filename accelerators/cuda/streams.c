/* streams.c - streams for collectives that work on registered memory of a card */
#include "accelerators/cuda/cuda.h"

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
