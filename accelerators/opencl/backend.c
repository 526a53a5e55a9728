/* backend.c - a device of OpenCL as a backend of the GPU core
 *
 * Addresses are in shared virtual memory; streams are queues in order, and events
 * are markers in them.  When a marker has passed, the driver calls a function on a thread
 * of its own, and the function writes to the engine's descriptor. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "accelerators/opencl/opencl.h"
#include "base/alloc.h"
#include "base/error.h"

enum { ALIGNMENT = 256 };
#define MIB ((size_t)1 << 20)

struct pl_event {
    cl_event marker;                                 /* the latest record  [NULL: none] */
};

/* Device memory, and the lowest aligned address in it. */
typedef struct opencl_block {
    struct opencl_block *next;
    void *memory;
    pl_device_ptr_t address;
    size_t bytes;
} opencl_block_t;

/* ---- Errors ---- */

const char *opencl_error_name(cl_int error)
{
    switch (error) {
    case CL_DEVICE_NOT_AVAILABLE: return "CL_DEVICE_NOT_AVAILABLE";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case CL_OUT_OF_RESOURCES: return "CL_OUT_OF_RESOURCES";
    case CL_OUT_OF_HOST_MEMORY: return "CL_OUT_OF_HOST_MEMORY";
    case CL_BUILD_PROGRAM_FAILURE: return "CL_BUILD_PROGRAM_FAILURE";
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
        return "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
    case CL_INVALID_VALUE: return "CL_INVALID_VALUE";
    case CL_INVALID_DEVICE: return "CL_INVALID_DEVICE";
    case CL_INVALID_COMMAND_QUEUE: return "CL_INVALID_COMMAND_QUEUE";
    case CL_INVALID_KERNEL_NAME: return "CL_INVALID_KERNEL_NAME";
    case CL_INVALID_KERNEL_ARGS: return "CL_INVALID_KERNEL_ARGS";
    case CL_INVALID_WORK_GROUP_SIZE: return "CL_INVALID_WORK_GROUP_SIZE";
    default: return "an error of OpenCL";
    }
}

int opencl_check(opencl_t *cl, pl_error_t *err, cl_int result, const char *doing, ...)
{
    char what[160];
    va_list args;
    if (result == CL_SUCCESS)
        return PL_OK;
    va_start(args, doing);
    vsnprintf(what, sizeof what, doing, args);
    va_end(args);
    return pl_fail(err, PL_EIO, "opencl:%d (%s): %s failed: %s (%d)", cl->number,
                   cl->device.name, what, opencl_error_name(result), result);
}

int opencl_enter(opencl_t *cl, pl_error_t *err)
{
    pthread_mutex_lock(&cl->lock);
    const int code = cl->lost.code == PL_OK
                         ? PL_OK
                         : pl_fail(err, cl->lost.code, "%s", cl->lost.text);
    pthread_mutex_unlock(&cl->lock);
    return code;
}

/* The work on a stream has failed. */
static void lose(opencl_t *cl, cl_int result)
{
    pthread_mutex_lock(&cl->lock);
    if (cl->lost.code == PL_OK)
        opencl_check(cl, &cl->lost, result, "the device's work");
    pthread_mutex_unlock(&cl->lock);
}

/* ---- Launches in progress ---- */

static void launch_forget(opencl_t *cl)
{
    clReleaseEvent(cl->launch[cl->ended++ % OPENCL_WATCHED]);
}

/* If there are too many, the oldest one counts as ended. */
void opencl_watch(opencl_t *cl, cl_event launch)
{
    if (cl->put - cl->ended == OPENCL_WATCHED)
        launch_forget(cl);
    cl->launch[cl->put++ % OPENCL_WATCHED] = launch;
}

void opencl_launches(void *self, uint64_t *put, uint64_t *ended)
{
    opencl_t *cl = self;
    cl_int status = CL_COMPLETE;
    while (cl->ended < cl->put
           && clGetEventInfo(cl->launch[cl->ended % OPENCL_WATCHED],
                             CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                             NULL)
                  == CL_SUCCESS
           && status <= CL_COMPLETE)
        launch_forget(cl);
    *put = cl->put;
    *ended = cl->ended;
}

/* ---- The device ---- */

/* By trainer.devices, or one device for each rank of this machine; ranks may share a
 * processor. */
static int device_choose(opencl_t *cl, pl_device_info_t *info, pl_error_t *err)
{
    opencl_device_t device[OPENCL_DEVICES];
    const char *platform = cl->options.platform ? cl->options.platform : "";
    const bool is_listed = info->device >= 0;
    int usable, number = is_listed ? info->device : info->local_rank;
    opencl_devices(platform, device, &usable, err);
    if (!usable)
        return PL_EUNSUPPORTED;
    if (number >= usable && is_listed)
        return pl_fail(err, PL_EINVAL,
                       "trainer.devices lists device %d, and OpenCL has %d device%s "
                       "here, numbered from 0",
                       number, usable, pl_plural(usable));
    if (number >= usable && device[usable - 1].is_processor)
        number = usable - 1;
    if (number >= usable)
        return pl_fail(err, PL_EINVAL,
                       "rank %d of this machine has no device of OpenCL: there %s %d, "
                       "and each rank needs one of its own; set trainer.devices to %d",
                       number, usable == 1 ? "is" : "are", usable, usable);
    cl->device = device[number];
    cl->number = number;
    info->devices = usable;
    return PL_OK;
}

static int machine_open(void *self, pl_device_info_t *info, pl_error_t *err)
{
    opencl_t *cl = self;
    pthread_mutex_init(&cl->lock, NULL);
    pthread_cond_init(&cl->changed, NULL);
    cl->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cl->descriptor < 0)
        return pl_fail(err, PL_EIO, "no descriptor for the device: %s", strerror(errno));
    const int code = device_choose(cl, info, err);
    if (code != PL_OK)
        return code;
    const opencl_device_t *d = &cl->device;
    const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES,
                                              CL_QUEUE_PROFILING_ENABLE, 0};
    cl_int result;
    cl->context = clCreateContext(NULL, 1, &d->id, NULL, NULL, &result);
    if (!cl->context)
        return opencl_check(cl, err, result, "opening the device");
    for (int k = 0; k < PL_STREAMS; k++) {
        cl->queue[k] = clCreateCommandQueueWithProperties(cl->context, d->id, properties,
                                                          &result);
        if (!cl->queue[k])
            return opencl_check(cl, err, result, "making a queue");
    }
    info->device = cl->number;
    info->threads = 1;
    info->emulated = 0;
    info->memory = info->memory_free = d->memory;
    snprintf(info->model, sizeof info->model, "%s", d->name);
    snprintf(info->library, sizeof info->library, "%.63s", d->version);
    return PL_OK;
}

static void finish_all(opencl_t *cl)
{
    for (int k = 0; k < PL_STREAMS; k++)
        if (cl->queue[k])
            clFinish(cl->queue[k]);
}

/* Waits for callbacks that the driver's threads have not called yet. */
static void machine_close(void *self)
{
    opencl_t *cl = self;
    finish_all(cl);
    while (cl->ended < cl->put)
        launch_forget(cl);
    pthread_mutex_lock(&cl->lock);
    while (cl->callbacks)
        pthread_cond_wait(&cl->changed, &cl->lock);
    pthread_mutex_unlock(&cl->lock);
    for (int k = 0; k < PL_STREAMS; k++)
        if (cl->queue[k])
            clReleaseCommandQueue(cl->queue[k]);
    if (cl->context)
        clReleaseContext(cl->context);
    if (cl->descriptor >= 0)
        close(cl->descriptor);
    pthread_cond_destroy(&cl->changed);
    pthread_mutex_destroy(&cl->lock);
    memset(cl->queue, 0, sizeof cl->queue);
    cl->context = NULL;
    cl->allocated = 0;
    cl->lost = (pl_error_t){0};
}

/* ---- Memory ---- */

static int memory_new(void *self, size_t bytes, pl_device_ptr_t *address, pl_error_t *err)
{
    opencl_t *cl = self;
    const int code = opencl_enter(cl, err);
    if (code != PL_OK)
        return code;
    opencl_block_t *block = pl_alloc(sizeof *block);
    if (!block)
        return pl_no_memory(err);
    /* OpenCL aligns to 128 bytes at most. */
    void *memory = clSVMAlloc(cl->context, CL_MEM_READ_WRITE, bytes + ALIGNMENT, 0);
    if (!memory)
        pl_free(block);
    /* The limit of a driver for one block may be far below the memory of the device. */
    if (!memory && bytes + ALIGNMENT > cl->device.block)
        return pl_fail(err, PL_ENOMEM,
                       "one block of %zu bytes was requested on opencl:%d (%s), whose "
                       "driver allocates at most %llu bytes in one "
                       "(CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
                       bytes + ALIGNMENT, cl->number, cl->device.name,
                       (unsigned long long)cl->device.block);
    if (!memory)
        return pl_fail(err, PL_ENOMEM,
                       "out of memory on opencl:%d (%s): %zu MiB requested, %zu MiB in "
                       "use by this rank of %zu MiB in all",
                       cl->number, cl->device.name, (bytes + ALIGNMENT + MIB - 1) / MIB,
                       cl->allocated / MIB, (size_t)cl->device.memory / MIB);
    *address = ((uintptr_t)memory + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *block = (opencl_block_t){cl->blocks, memory, *address, bytes};
    cl->blocks = block;
    cl->allocated += bytes;
    return PL_OK;
}

static void memory_free(void *self, pl_device_ptr_t address)
{
    opencl_t *cl = self;
    opencl_block_t **next = &cl->blocks;
    while ((*next)->address != address)
        next = &(*next)->next;
    opencl_block_t *block = *next;
    *next = block->next;
    cl->allocated -= block->bytes;
    finish_all(cl);
    clSVMFree(cl->context, block->memory);
    pl_free(block);
}

/* OpenCL does not report the memory in use by other processes. */
static void memory_left(void *self, size_t *left, size_t *all)
{
    const opencl_t *cl = self;
    *all = cl->device.memory;
    *left = *all > cl->allocated ? *all - cl->allocated : 0;
}

/* ---- Copies ---- */

static int copy_put(opencl_t *cl, pl_stream_t stream, void *to, const void *from,
                    size_t bytes, pl_error_t *err)
{
    const int code = opencl_enter(cl, err);
    if (code != PL_OK || !bytes)
        return code;
    return opencl_check(cl, err,
                        clEnqueueSVMMemcpy(cl->queue[stream], CL_FALSE, to, from, bytes,
                                           0, NULL, NULL),
                        "copying %zu bytes", bytes);
}

static int copy_in(void *self, pl_stream_t stream, pl_device_ptr_t to, const void *host,
                   size_t bytes, pl_error_t *err)
{
    return copy_put(self, stream, opencl_pointer(to), host, bytes, err);
}

static int copy_out(void *self, pl_stream_t stream, void *host, pl_device_ptr_t from,
                    size_t bytes, pl_error_t *err)
{
    return copy_put(self, stream, host, opencl_pointer(from), bytes, err);
}

static int copy(void *self, pl_stream_t stream, pl_device_ptr_t to, pl_device_ptr_t from,
                size_t bytes, pl_error_t *err)
{
    return copy_put(self, stream, opencl_pointer(to), opencl_pointer(from), bytes, err);
}

static int zero(void *self, pl_stream_t stream, pl_device_ptr_t to, size_t bytes,
                pl_error_t *err)
{
    opencl_t *cl = self;
    static const char zeros[16];
    const size_t width = (to | bytes) % sizeof zeros == 0 ? sizeof zeros : 1;
    const int code = opencl_enter(cl, err);
    if (code != PL_OK || !bytes)
        return code;
    return opencl_check(cl, err,
                        clEnqueueSVMMemFill(cl->queue[stream], opencl_pointer(to), zeros,
                                            width, bytes, 0, NULL, NULL),
                        "zeroing %zu bytes", bytes);
}

static int finish(void *self, pl_stream_t stream, pl_error_t *err)
{
    opencl_t *cl = self;
    const int code = opencl_enter(cl, err);
    if (code != PL_OK)
        return code;
    return opencl_check(cl, err, clFinish(cl->queue[stream]), "the device's work");
}

/* ---- Functions of the host, called by the driver's threads ---- */

typedef struct callback {
    opencl_t *cl;
    void (*function)(void *user);               /* [NULL: the descriptor is written to] */
    void *user;
    cl_event after;                           /* ends when the function has run  [NULL] */
} callback_t;

static void CL_CALLBACK callback_run(cl_event event, cl_int status, void *user)
{
    callback_t *callback = user;
    opencl_t *cl = callback->cl;
    const uint64_t one = 1;
    (void)event;
    if (status < 0)
        lose(cl, status);
    if (callback->function)
        callback->function(callback->user);
    else
        while (write(cl->descriptor, &one, sizeof one) < 0 && errno == EINTR)
            ;
    if (callback->after) {
        clSetUserEventStatus(callback->after, CL_COMPLETE);
        clReleaseEvent(callback->after);
    }
    pl_free(callback);
    pthread_mutex_lock(&cl->lock);
    if (--cl->callbacks == 0)
        pthread_cond_signal(&cl->changed);
    pthread_mutex_unlock(&cl->lock);
}

/* After a failure the function is not called. */
static int callback_add(opencl_t *cl, cl_event marker, callback_t what, pl_error_t *err)
{
    callback_t *callback = pl_alloc(sizeof *callback);
    if (!callback)
        return pl_no_memory(err);
    *callback = what;
    callback->cl = cl;
    pthread_mutex_lock(&cl->lock);
    cl->callbacks++;
    pthread_mutex_unlock(&cl->lock);
    const cl_int result = clSetEventCallback(marker, CL_COMPLETE, callback_run, callback);
    if (result == CL_SUCCESS)
        return PL_OK;
    pthread_mutex_lock(&cl->lock);
    cl->callbacks--;
    pthread_mutex_unlock(&cl->lock);
    pl_free(callback);
    return opencl_check(cl, err, result, "waiting for an event");
}

/* Later work on the stream waits for an event that ends with the function. */
static int call(void *self, pl_stream_t stream, void (*function)(void *user), void *user,
                pl_error_t *err)
{
    opencl_t *cl = self;
    cl_event before = NULL, after = NULL;
    cl_int result = CL_SUCCESS;
    int code = opencl_enter(cl, err);
    if (code != PL_OK)
        return code;
    after = clCreateUserEvent(cl->context, &result);
    if (!after)
        return opencl_check(cl, err, result, "making an event");
    result = clEnqueueMarkerWithWaitList(cl->queue[stream], 0, NULL, &before);
    if (result == CL_SUCCESS)
        result = clEnqueueBarrierWithWaitList(cl->queue[stream], 1, &after, NULL);
    code = opencl_check(cl, err, result, "calling a function of the host");
    if (code == PL_OK)
        code = callback_add(cl, before, (callback_t){cl, function, user, after}, err);
    if (code != PL_OK) {
        clSetUserEventStatus(after, CL_COMPLETE);
        clReleaseEvent(after);
    }
    if (before)
        clReleaseEvent(before);
    clFlush(cl->queue[stream]);
    return code;
}

/* ---- Events ---- */

static int event_new(void *self, pl_event_t **event, pl_error_t *err)
{
    (void)self;
    *event = pl_alloc(sizeof **event);
    return *event ? PL_OK : pl_no_memory(err);
}

static void event_free(void *self, pl_event_t *event)
{
    (void)self;
    if (event->marker)
        clReleaseEvent(event->marker);
    pl_free(event);
}

static int event_record(void *self, pl_event_t *event, pl_stream_t stream,
                        pl_error_t *err)
{
    opencl_t *cl = self;
    cl_event marker = NULL;
    const int code = opencl_enter(cl, err);
    if (code != PL_OK)
        return code;
    const cl_int result = clEnqueueMarkerWithWaitList(cl->queue[stream], 0, NULL,
                                                      &marker);
    if (result != CL_SUCCESS)
        return opencl_check(cl, err, result, "recording an event");
    if (event->marker)
        clReleaseEvent(event->marker);
    event->marker = marker;
    return opencl_check(cl, err, clFlush(cl->queue[stream]), "recording an event");
}

static int event_wait(void *self, pl_event_t *event, pl_stream_t stream, pl_error_t *err)
{
    opencl_t *cl = self;
    const int code = opencl_enter(cl, err);
    if (code != PL_OK || !event->marker)
        return code;
    return opencl_check(cl, err,
                        clEnqueueBarrierWithWaitList(cl->queue[stream], 1, &event->marker,
                                                     NULL),
                        "waiting for an event");
}

static int event_passed(void *self, pl_event_t *event, bool *passed, pl_error_t *err)
{
    opencl_t *cl = self;
    cl_int status = CL_COMPLETE;
    if (event->marker) {
        const cl_int result = clGetEventInfo(event->marker,
                                             CL_EVENT_COMMAND_EXECUTION_STATUS,
                                             sizeof status, &status, NULL);
        if (result != CL_SUCCESS)
            return opencl_check(cl, err, result, "asking for an event");
    }
    if (status < 0)
        lose(cl, status);
    *passed = status == CL_COMPLETE;
    return opencl_enter(cl, err);
}

static double event_seconds(void *self, pl_event_t *from, pl_event_t *to)
{
    cl_ulong begin = 0, end = 0;
    (void)self;
    if (!from->marker || !to->marker
        || clGetEventProfilingInfo(from->marker, CL_PROFILING_COMMAND_END, sizeof begin,
                                   &begin, NULL)
               != CL_SUCCESS
        || clGetEventProfilingInfo(to->marker, CL_PROFILING_COMMAND_END, sizeof end, &end,
                                   NULL)
               != CL_SUCCESS
        || end < begin)
        return 0;
    return (double)(end - begin) * 1e-9;
}

static int notify(void *self, pl_event_t *event, pl_stream_t stream, bool soon,
                  pl_error_t *err)
{
    opencl_t *cl = self;
    (void)stream, (void)soon;
    return callback_add(cl, event->marker, (callback_t){0}, err);
}

static int descriptor(const void *self)
{
    const opencl_t *cl = self;
    return cl->descriptor;
}

const pl_gpu_backend_ops_t opencl_backend = {
    .name = "opencl",
    .open = machine_open,
    .close = machine_close,
    .memory_new = memory_new,
    .memory_free = memory_free,
    .memory_left = memory_left,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy,
    .zero = zero,
    .call = call,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_passed = event_passed,
    .event_seconds = event_seconds,
    .notify = notify,
    .descriptor = descriptor,
    .finish = finish,
    .code_new = opencl_code_new,
    .code_free = opencl_code_free,
    .code_entry = opencl_code_entry,
    .launch = opencl_launch,
};
