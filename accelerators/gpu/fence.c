/* fence.c - fences of the core, and regions that are registered for users of the same
 * device
 *
 * A fence is an event that is recorded once.  When the last reference to the fence is
 * dropped, another fence uses the event.  A fence may outlive the device, so every
 * fence has a reference to the list of all fences, which outlives the device too. */
#include "accelerators/gpu/fence.h"

#include <pthread.h>

#include "accelerators/gpu/memory.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct pl_gpu_fences fences_t;

typedef struct gpu_fence {
    pl_fence_t fence;                           /* first */
    fences_t *of;                               /* a reference, while the fence has one */
    struct gpu_fence *next, *spare;
    pl_event_t *event;
} gpu_fence_t;

struct pl_gpu_fences {
    pl_object_t object;
    pthread_mutex_t lock;
    pl_gpu_t *gpu;                                          /* [it is closed] */
    gpu_fence_t *all, *spare;
    pl_device_ops_t device_ops;
};

static void fences_release(pl_object_t *object)
{
    fences_t *fences = (fences_t *)object;
    while (fences->all) {
        gpu_fence_t *next = fences->all->next;
        pl_free(fences->all);
        fences->all = next;
    }
    pthread_mutex_destroy(&fences->lock);
    pl_free(fences);
}

static void fence_release(pl_object_t *object)
{
    gpu_fence_t *f = (gpu_fence_t *)object;
    fences_t *fences = f->of;
    pthread_mutex_lock(&fences->lock);
    f->spare = fences->spare;
    fences->spare = f;
    pthread_mutex_unlock(&fences->lock);
    pl_object_unref(fences);
}

static int fail_closed(pl_error_t *err)
{
    return pl_fail(err, PL_ESTATE, "the device of a fence has been closed");
}

static int fence_passed(pl_fence_t *fence, bool *passed, pl_error_t *err)
{
    gpu_fence_t *f = (gpu_fence_t *)fence;
    pthread_mutex_lock(&f->of->lock);
    pl_gpu_t *gpu = f->of->gpu;
    const int code = gpu ? gpu->backend->event_passed(gpu, f->event, passed, err)
                         : fail_closed(err);
    pthread_mutex_unlock(&f->of->lock);
    return code;
}

static int fence_join(pl_fence_t *fence, void *stream, pl_error_t *err)
{
    gpu_fence_t *f = (gpu_fence_t *)fence;
    pthread_mutex_lock(&f->of->lock);
    pl_gpu_t *gpu = f->of->gpu;
    const int code = gpu ? gpu->backend->stream_wait(gpu, stream, f->event, err)
                         : fail_closed(err);
    pthread_mutex_unlock(&f->of->lock);
    return code;
}

static const pl_fence_ops_t fence_ops = {fence_passed, fence_join};

void gpu_fences_close(pl_gpu_t *gpu)
{
    fences_t *fences = gpu->fences;
    if (!fences)
        return;
    pthread_mutex_lock(&fences->lock);
    fences->gpu = NULL;
    for (gpu_fence_t *f = fences->all; f; f = f->next)
        gpu->backend->event_free(gpu, f->event);
    pthread_mutex_unlock(&fences->lock);
    pl_object_unref(fences);
    gpu->fences = NULL;
}

/* A spare fence or a new one; the caller holds the lock. */
static int fence_take(fences_t *fences, gpu_fence_t **taken, pl_error_t *err)
{
    gpu_fence_t *f = *taken = fences->spare;
    if (f) {
        fences->spare = f->spare;
        return PL_OK;
    }
    f = pl_alloc(sizeof *f);
    if (!f)
        return pl_no_memory(err);
    int code = fences->gpu->backend->event_new(fences->gpu, &f->event, err);
    if (code != PL_OK) {
        pl_free(f);
        return code;
    }
    f->fence.ops = &fence_ops;
    f->of = fences;
    f->next = fences->all;
    fences->all = *taken = f;
    return PL_OK;
}

/* A fence after the work on a stream, which is a handle of the vendor. */
static int fence_record(void *device, void *stream, pl_fence_t **fence, pl_error_t *err)
{
    pl_gpu_t *gpu = device;
    fences_t *fences = gpu->fences;
    gpu_fence_t *f = NULL;
    pthread_mutex_lock(&fences->lock);
    int code = fence_take(fences, &f, err);
    if (code == PL_OK)
        code = gpu->backend->stream_record(gpu, stream, f->event, err);
    if (code != PL_OK && f) {
        f->spare = fences->spare;
        fences->spare = f;
    }
    pthread_mutex_unlock(&fences->lock);
    if (code != PL_OK)
        return code;
    pl_object_init(&f->fence.object, fence_release);
    pl_object_ref(fences);
    *fence = &f->fence;
    return PL_OK;
}

int gpu_fence_main(pl_gpu_t *gpu, pl_fence_t **fence, pl_error_t *err)
{
    return fence_record(gpu, gpu->backend->stream(gpu, PL_STREAM_MAIN), fence, err);
}

/* ---- The device for collectives ---- */

static int device_module_new(void *device, const char *text, void **module,
                             pl_error_t *err)
{
    pl_gpu_t *gpu = device;
    if (!gpu->backend->module_new)
        return pl_fail(err, PL_EUNSUPPORTED, "%s compiles no kernels of others",
                       gpu->backend->name);
    return gpu->backend->module_new(gpu, text, module, err);
}

typedef struct region_buffer {
    pl_reg_buffer_t buffer;                                 /* first */
    pl_device_memory_t memory;
} region_buffer_t;

/* Waits for all streams first: users of the region need no fence for earlier work. */
int pl_gpu_register_region(void *self, pl_region_t region, pl_reg_buffer_t **buffer,
                           pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    gpu_region_t *r = &gpu->memory->region[region];
    const pl_gpu_backend_ops_t *backend = gpu->backend;
    if (!gpu->fences) {
        fences_t *fences = pl_alloc(sizeof *fences);
        if (!fences)
            return pl_no_memory(err);
        pl_object_init(&fences->object, fences_release);
        pthread_mutex_init(&fences->lock, NULL);
        fences->gpu = gpu;
        fences->device_ops = (pl_device_ops_t){.enter = backend->enter,
                                               .stream_new = backend->stream_new,
                                               .stream_free = backend->stream_free,
                                               .fence_new = fence_record,
                                               .module_new = device_module_new};
        gpu->fences = fences;
    }
    int code = gpu_drain(gpu, err);
    region_buffer_t *fresh = code == PL_OK ? pl_alloc(sizeof *fresh) : NULL;
    if (code == PL_OK && !fresh)
        code = pl_no_memory(err);
    if (code != PL_OK)
        return code;
    pl_object_init(&fresh->buffer.object, NULL);
    fresh->buffer.bytes = r->count * pl_dtype_size(r->dtype);
    fresh->buffer.device = &fresh->memory;
    fresh->memory = (pl_device_memory_t){.kind = backend->name,
                                         .ordinal = gpu->ordinal,
                                         .address = r->block.address,
                                         .ops = &gpu->fences->device_ops,
                                         .device = gpu};
    r->is_registered = true;
    *buffer = &fresh->buffer;
    return PL_OK;
}

/* Other threads may have changed registered parameters: their copy as halves is old. */
int pl_gpu_join(void *self, pl_fence_t *fence, pl_error_t *err)
{
    pl_gpu_t *gpu = self;
    if (gpu->memory->region[PL_REGION_PARAMS].is_registered)
        gpu->memory->low_is_fresh = false;
    return fence->ops->join(fence, gpu->backend->stream(gpu, PL_STREAM_MAIN), err);
}
