/* gpu_lent.c - tests of memory that a GPU lends: fences order what others do with it */
#include <semaphore.h>
#include <string.h>

#include "machine_emulated.h"
#include "tap.h"

enum { COUNT = 1000 };

static emulated_t device;
static pl_lent_t *lent;

static const pl_accelerator_ops_t *ops = &emulated_accelerator;

static void open_and_lend(void)
{
    pl_device_info_t info = {.ranks = 1, .device = -1};
    memset(&device, 0, sizeof device);
    is_int(ops->open(&device, &info, NULL), PL_OK, "(a device is opened)");
    ops->region(&device, PL_REGION_GRADS, PL_F32, COUNT, NULL);
    is_int(ops->lend(&device, PL_REGION_GRADS, &lent, NULL), PL_OK, "and lends a region");
}

static float *elements(void)
{
    return (float *)(uintptr_t)lent->device->address;
}

static sem_t held;

/* What another puts on a stream of its own; it runs when it is let. */
static int write_late(void *data)
{
    float *to = *(float **)data;
    sem_wait(&held);
    for (int k = 0; k < COUNT; k++)
        to[k] = (float)k;
    return 0;
}

static pl_fence_t *write_on(void *stream)
{
    const streams_handle_t *s = stream;
    float *to = elements();
    pl_fence_t *fence = NULL;
    streams_put(s->of, s->number, write_late, &to, sizeof to);
    lent->device->ops->fence_new(lent->device->device, stream, &fence, NULL);
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

static void what_is_lent_is_the_regions_own(void)
{
    const float three = 3;
    open_and_lend();
    is_text(lent->device->kind, ops->memory_kind, "it names the kind of the device");
    ok(!lent->data && lent->bytes == COUNT * sizeof(float), "and has no address here");
    ops->write(&device, PL_REGION_GRADS, 7, &three, 1, NULL);
    ok(elements()[7] == 3, "what is written to the region is there");
    pl_object_unref(lent);
    ops->close(&device);
}

static void a_fence_orders_two_streams(void)
{
    void *stream = NULL;
    bool passed = true;
    open_and_lend();
    lent->device->ops->enter(lent->device->device, NULL);
    lent->device->ops->stream_new(lent->device->device, &stream, NULL);
    pl_fence_t *fence = write_on(stream);
    fence->ops->passed(fence, &passed, NULL);
    ok(!passed, "a fence has not passed before what it stands for has run");
    is_int(ops->join(&device, fence, NULL), PL_OK, "the device joins it");
    sem_post(&held);
    is_int(read_differs(), 0, "and reads what is written before");
    fence->ops->passed(fence, &passed, NULL);
    ok(passed, "then it has passed");
    pl_object_unref(fence);
    pl_fence_t *next = write_on(stream);
    ok(next == fence, "a fence that nobody has is used again");
    sem_post(&held);
    streams_finish(device.streams, PL_STREAMS);
    pl_object_unref(next);
    lent->device->ops->stream_free(lent->device->device, stream);
    pl_object_unref(lent);
    ops->close(&device);
}

static void a_fence_may_outlive_its_device(void)
{
    void *stream = NULL;
    bool passed = false;
    pl_error_t err = {0};
    open_and_lend();
    lent->device->ops->stream_new(lent->device->device, &stream, NULL);
    pl_fence_t *fence = write_on(stream);
    sem_post(&held);
    streams_finish(device.streams, PL_STREAMS);
    ops->close(&device);
    is_int(fence->ops->passed(fence, &passed, &err), PL_ESTATE, "%s", err.text);
    is_int(fence->ops->join(fence, stream, &err), PL_ESTATE, "nor is it joined");
    pl_object_unref(fence);
    pl_object_unref(lent);
}

int main(void)
{
    pl_init(NULL, NULL, NULL, NULL);
    sem_init(&held, 0, 0);
    run(what_is_lent_is_the_regions_own);
    run(a_fence_orders_two_streams);
    run(a_fence_may_outlive_its_device);
    return tap_done();
}
