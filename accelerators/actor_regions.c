/* actor_regions.c - regions of the accelerator actor: allocates, registers, writes and
 * reads them */
#include "accelerators/actor_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "runtime/payload.h"
#include "tensor/operators.h"

int pl_device_allocate(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    pl_device_t *device = self;
    const uint32_t region = body->allocate.region;
    const pl_dtype_t dtype = (pl_dtype_t)body->allocate.dtype;
    if (region >= PL_REGIONS || !pl_is_float(dtype))
        return pl_fail(err, PL_EINVAL, "there is no region %u of type %u", region,
                       body->allocate.dtype);
    pl_reg_buffer_t *buffer = (pl_reg_buffer_t *)body->allocate.memory, *own = NULL;
    void *component = device->component.self;
    const size_t count = body->allocate.count;
    if (buffer && !device->ops->borrow)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "accelerator \"%s\" shares no memory with the host, which several "
                       "ranks need: train with one rank",
                       device->ops->name);
    int code = buffer ? device->ops->borrow(component, region, dtype, count,
                                            (char *)buffer->data + body->allocate.offset,
                                            err)
                      : device->ops->region(component, region, dtype, count, err);
    if (code == PL_OK && body->allocate.registered)
        code = device->ops->register_region
                   ? device->ops->register_region(component, region, &own, err)
                   : pl_fail(err, PL_EUNSUPPORTED,
                             "accelerator \"%s\" registers no memory", device->ops->name);
    if (code != PL_OK)
        return code;
    device->dtype[region] = dtype;
    device->registers |= own != NULL;
    pl_object_unref(device->borrowed[region]);
    device->borrowed[region] = pl_object_ref(body->allocate.memory);
    code = pl_reply_allocate(call,
                             &(pl_allocate_reply_t){.memory = own ? &own->object : NULL});
    pl_object_unref(own);
    return code;
}

int pl_device_join(pl_device_t *device, pl_object_t *after, pl_error_t *err)
{
    if (!after)
        return PL_OK;
    if (!device->ops->join)
        return pl_fail(err, PL_EUNSUPPORTED, "accelerator \"%s\" joins no fences",
                       device->ops->name);
    return device->ops->join(device->component.self, (pl_fence_t *)after, err);
}

/* ---- to and from the host ---- */

int pl_device_write(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_device_t *device = self;
    const pl_floats_t *floats = (const pl_floats_t *)body->write_region.floats;
    const uint32_t region = body->write_region.region;
    if (region >= PL_REGIONS
        || (floats->dtype == PL_F64) != (device->dtype[region] == PL_F64))
        return pl_fail(err, PL_EINVAL, "the elements have another type than region %u",
                       region);
    const pl_write_region_t *msg = &body->write_region;
    if (msg->first > floats->count || msg->count > floats->count - msg->first)
        return pl_fail(err, PL_EINVAL,
                       "%llu elements from element %llu on: there are only %zu",
                       (unsigned long long)msg->count, (unsigned long long)msg->first,
                       floats->count);
    void *host = floats->dtype == PL_F64 ? (void *)(floats->wide + msg->first)
                                         : floats->data + msg->first;
    void *component = device->component.self;
    int code = pl_device_join(device, msg->after, err);
    if (code != PL_OK)
        return code;
    /* Borrowed memory stays where all ranks can see it. */
    if (msg->take_ownership && !msg->offset && !device->borrowed[region]
        && device->ops->take_ownership
        && device->ops->take_ownership(component, region, msg->count, host))
        device->borrowed[region] = pl_object_ref(msg->floats);
    else
        code = device->ops->write(component, region, msg->offset, host, msg->count, err);
    return code == PL_OK ? pl_reply_write_region(call, &(pl_write_region_reply_t){0})
                         : code;
}

int pl_device_prepare(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_device_t *device = self;
    uint64_t count[PL_REGIONS];
    if (body->prepare_reads.counts.size != sizeof count)
        return pl_fail(err, PL_EINVAL, "%zu bytes of counts do not fit %d regions",
                       body->prepare_reads.counts.size, PL_REGIONS);
    memcpy(count, body->prepare_reads.counts.data, sizeof count);
    int code = pl_staging_prepare(&device->staging, device->dtype, count, err);
    return code == PL_OK ? pl_reply_prepare_reads(call, &(pl_prepare_reads_reply_t){0})
                         : code;
}

/* A read in the background. */
typedef struct reading {
    pl_transfer_t transfer;                      /* first: done() casts it to reading_t */
    pl_device_t *device;
    pl_call_t *call;
    pl_floats_t *floats;                                    /* counted */
} reading_t;

static void read_done(pl_transfer_t *transfer, const pl_error_t *err)
{
    reading_t *reading = (reading_t *)transfer;
    pl_device_t *device = reading->device;
    if (err)
        pl_call_fail(reading->call, err);
    else
        pl_reply_read_region(reading->call, &(pl_read_region_reply_t){
                                                .floats = &reading->floats->object});
    pl_object_unref(reading->floats);
    pl_free(reading);
    device->readings--;
    if (device->ending && pl_device_is_idle(device))
        pl_actor_end(device, NULL);
}

int pl_device_read(void *self, pl_call_t *call, const pl_body_t *body, pl_error_t *err)
{
    pl_device_t *device = self;
    const uint32_t region = body->read_region.region;
    if (region >= PL_REGIONS)
        return pl_fail(err, PL_EINVAL, "there is no region %u", region);
    if (pl_device_join(device, body->read_region.after, err) != PL_OK)
        return err->code;
    reading_t *reading = pl_alloc(sizeof *reading);
    if (!reading)
        return pl_no_memory(err);
    pl_floats_t *floats = pl_staging_take(&device->staging, region, device->dtype[region],
                                          body->read_region.count, err);
    if (!floats) {
        pl_free(reading);
        return PL_ENOMEM;
    }
    *reading = (reading_t){.transfer = {.region = region,
                                        .count = floats->count,
                                        .host = floats->data,
                                        .done = read_done},
                           .device = device,
                           .call = call,
                           .floats = floats};
    device->readings++;
    void *component = device->component.self;
    int code = device->ops->read_later
                   ? device->ops->read_later(component, &reading->transfer, err)
                   : device->ops->read(component, region, 0, floats->data, floats->count,
                                       err);
    if (code == PL_OK && !device->ops->read_later)
        read_done(&reading->transfer, NULL);
    if (code == PL_OK)
        return PL_OK;
    device->readings--;
    pl_object_unref(floats);
    pl_free(reading);
    return code;
}
