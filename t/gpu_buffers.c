/* gpu_buffers.c - tests of memory that a GPU registers: fences order what others do
 * with it */
#include <string.h>

#include "backend_emulated.h"
#include "tap.h"

enum { COUNT = 1000 };

static emulated_t device;
static pl_reg_buffer_t *buffer;

static const pl_accelerator_ops_t *ops = &emulated_accelerator;

static void open_and_register(void)
{
    pl_device_info_t info = {.ranks = 1, .device = -1};
    memset(&device, 0, sizeof device);
    is_int(ops->open(&device, &info, NULL), PL_OK, "(a device is opened)");
    ops->region(&device, PL_REGION_GRADS, PL_F32, COUNT, NULL);
    is_int(ops->register_region(&device, PL_REGION_GRADS, &buffer, NULL), PL_OK,
           "and registers a region");
}

static float *elements(void)
{
    return (float *)(uintptr_t)buffer->device->address;
}

static bool is_released;

typedef struct writing {
    float *to;
    int polls;
} writing_t;

/* What another puts on a stream of its own; it runs when the device has waited for long,
 * or when the test says so: work that does not wait for it is over by then. */
static int write_late(void *data)
{
    writing_t *w = data;
    w->polls += __atomic_load_n(&device.waiting, __ATOMIC_ACQUIRE);
    if (w->polls <= 100 && !__atomic_load_n(&is_released, __ATOMIC_ACQUIRE))
        return STREAMS_AGAIN;
    for (int k = 0; k < COUNT; k++)
        w->to[k] = (float)k;
    return 0;
}

static void release(void)
{
    __atomic_store_n(&is_released, true, __ATOMIC_RELEASE);
}

static pl_fence_t *write_on(void *stream)
{
    const streams_handle_t *s = stream;
    const writing_t writing = {elements(), 0};
    pl_fence_t *fence = NULL;
    __atomic_store_n(&is_released, false, __ATOMIC_RELEASE);
    streams_put(s->of, s->number, write_late, &writing, sizeof writing);
    buffer->device->ops->fence_new(buffer->device->device, stream, &fence, NULL);
    return fence;
}

static int read_differs(void)
{
    float got[COUNT];
    int differs = 0;
    ops->read(&device, PL_REGION_GRADS, 0, got, COUNT, NULL);
    for (int k = 0; k < COUNT; k++)
        differs += got[k] != (float)k;
    return differs;
}

static void a_registered_buffer_is_the_regions_own(void)
{
    const float three = 3;
    open_and_register();
    is_text(buffer->device->kind, ops->memory_kind, "it names the kind of the device");
    ok(!buffer->data && buffer->bytes == COUNT * sizeof(float),
       "and has no address here");
    ops->write(&device, PL_REGION_GRADS, 7, &three, 1, NULL);
    ok(elements()[7] == 3, "a write to the region is visible");
    pl_object_unref(buffer);
    ops->close(&device);
}

static void joined_work_comes_before_later_work_of_the_device(void)
{
    void *stream = NULL;
    open_and_register();
    buffer->device->ops->stream_new(buffer->device->device, &stream, NULL);
    pl_fence_t *fence = write_on(stream);
    is_int(ops->join(&device, fence, NULL), PL_OK, "the device joins a fence");
    is_int(read_differs(), 0, "and reads earlier writes");
    pl_object_unref(fence);
    buffer->device->ops->stream_free(buffer->device->device, stream);
    pl_object_unref(buffer);
    ops->close(&device);
}

static void a_fence_has_passed_when_its_work_has_run(void)
{
    void *stream = NULL;
    bool passed = true;
    open_and_register();
    buffer->device->ops->enter(buffer->device->device, NULL);
    buffer->device->ops->stream_new(buffer->device->device, &stream, NULL);
    pl_fence_t *fence = write_on(stream);
    fence->ops->passed(fence, &passed, NULL);
    ok(!passed, "not before");
    release();
    streams_finish(device.streams, PL_STREAMS);
    fence->ops->passed(fence, &passed, NULL);
    ok(passed, "then it has");
    pl_object_unref(fence);
    pl_fence_t *next = write_on(stream);
    ok(next == fence, "a fence without references is used again");
    release();
    streams_finish(device.streams, PL_STREAMS);
    pl_object_unref(next);
    buffer->device->ops->stream_free(buffer->device->device, stream);
    pl_object_unref(buffer);
    ops->close(&device);
}

static void a_fence_may_outlive_its_device(void)
{
    void *stream = NULL;
    bool passed = false;
    pl_error_t err = {0};
    open_and_register();
    buffer->device->ops->stream_new(buffer->device->device, &stream, NULL);
    pl_fence_t *fence = write_on(stream);
    release();
    streams_finish(device.streams, PL_STREAMS);
    ops->close(&device);
    is_int(fence->ops->passed(fence, &passed, &err), PL_ESTATE, "%s", err.text);
    is_int(fence->ops->join(fence, stream, &err), PL_ESTATE, "nor is it joined");
    pl_object_unref(fence);
    pl_object_unref(buffer);
}

int main(void)
{
    pl_init(NULL, NULL, NULL, NULL);
    run(a_registered_buffer_is_the_regions_own);
    run(joined_work_comes_before_later_work_of_the_device);
    run(a_fence_has_passed_when_its_work_has_run);
    run(a_fence_may_outlive_its_device);
    return tap_done();
}
