/* memory.c - memory of the data that ranks move: the control buffer, and regions of
 * the device
 *
 * The control buffer holds what the host writes and reads; the regions (`bulk`) belong
 * to the device. A device that registers its memory keeps the gradients there
 * (ddp/device.c), but not the data of in-graph collectives. A device that borrows the
 * host's memory has its regions next to the control buffer, and the tail of a step
 * lies behind the gradients: then one operation sums both. */
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/ddp/ddp.h"
#include "strategies/optimizers/optimizer.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/precision.h"

enum { ALIGN = 64 };

/* ---- access ---- */

pl_reg_ptr_t pl_ddp_control_buffer(const pl_ddp_t *ddp, size_t place)
{
    return (pl_reg_ptr_t){ddp->control, place};
}

pl_reg_ptr_t pl_ddp_region(const pl_ddp_t *ddp, pl_region_t region, size_t element)
{
    const pl_replica_t *r = &ddp->replica;
    const pl_dtype_t dtype = pl_region_dtype(r->model->precision, region);
    pl_reg_ptr_t at = r->bulk[region];
    at.offset += element * pl_element_bytes(dtype);
    return at;
}

double pl_ddp_element(const pl_ddp_t *ddp, pl_reg_ptr_t at, size_t k)
{
    const char *from = (const char *)at.memory->data + at.offset;
    return ddp->dtype == PL_F64 ? ((const double *)from)[k] : ((const float *)from)[k];
}

void pl_ddp_element_set(const pl_ddp_t *ddp, pl_reg_ptr_t at, size_t k, double value)
{
    char *to = (char *)at.memory->data + at.offset;
    if (ddp->dtype == PL_F64)
        ((double *)to)[k] = value;
    else
        ((float *)to)[k] = (float)value;
}

/* ---- what lies where ---- */

size_t pl_ddp_rows_max(const pl_ddp_t *ddp)
{
    const pl_replica_t *r = &ddp->replica;
    return (size_t)r->signature->stage[PL_PREDICT].batch_size
           * (r->micro.micro_shards ? r->micro.micro_shards : r->ranks);
}

size_t pl_ddp_output_row_elements(const pl_replica_plan_t *plan, int k)
{
    const pl_shape_t shape = plan->output_shape[k];
    return shape.rank && shape.dim[0] ? (size_t)(pl_elements(shape) / shape.dim[0]) : 0;
}

int pl_ddp_output_count(const pl_replica_plan_t *plan)
{
    int count = 0;
    for (int k = 0; k < plan->fetch_count && plan->stage == PL_PREDICT; k++)
        count += plan->fetch[k].kind == PL_FETCH_OUTPUT;
    return count;
}

/* Whether ranks move a region. */
static bool is_bulk(const pl_ddp_t *ddp, pl_region_t region)
{
    const pl_replica_t *r = &ddp->replica;
    if (region == PL_REGION_COLLECTIVE)
        return pl_replica_region_count(r, region) > 0;
    if (r->job->stage != PL_TRAIN)
        return false;
    if (region == PL_REGION_GRADS
        || (region == PL_REGION_STATE && (ddp->agrees || !ddp->on_device))
        || (region == PL_REGION_STRATEGY0 && ddp->agrees)
        || (region == PL_REGION_NORMS && ddp->scatters))
        return pl_replica_region_count(r, region) > 0;
    return ddp->reduce_hooks && ddp->reduce_hooks->shares
           && ddp->reduce_hooks->shares(ddp, region);
}

static size_t piece_place(size_t *end, size_t bytes)
{
    const size_t begin = (*end + ALIGN - 1) / ALIGN * ALIGN;
    *end = begin + bytes;
    return begin;
}

static void region_place(pl_ddp_t *ddp, pl_region_t region, size_t *end)
{
    pl_replica_t *r = &ddp->replica;
    const pl_dtype_t dtype = pl_region_dtype(r->model->precision, region);
    if (is_bulk(ddp, region) && !r->registered[region])
        r->bulk[region].offset = piece_place(end,
                                             (size_t)pl_replica_region_count(r, region)
                                                 * pl_element_bytes(dtype));
}

/* The tail begins where the gradients end, if host and device share memory. */
static void places_set(pl_ddp_t *ddp)
{
    pl_replica_t *r = &ddp->replica;
    const bool trains = r->job->stage == PL_TRAIN,
               separates = ddp->on_device
                           || (ddp->reduce_hooks && ddp->reduce_hooks->separates);
    const size_t rows = r->micro.micro_shards ? r->micro.micro_shards : 1;
    size_t bulk = 0, own = 0, *control = separates ? &own : &bulk, outputs = 0;
    region_place(ddp, PL_REGION_GRADS, &bulk);
    ddp->at.tail = *control;
    *control += trains ? pl_ddp_tail_end(ddp) * pl_element_bytes(ddp->dtype) : 0;
    region_place(ddp, PL_REGION_STATE, &bulk);
    for (int k = 0; k < PL_REGIONS; k++)
        if (k != PL_REGION_GRADS && k != PL_REGION_STATE)
            region_place(ddp, (pl_region_t)k, &bulk);
    ddp->at.moments = piece_place(control, pl_ddp_moments(ddp));
    ddp->at.metrics =
        piece_place(control, (2 + pl_replica_max_metrics(r) * rows) * sizeof(double));
    ddp->at.scratch =
        piece_place(control, ddp->on_device && pl_replica_is_partitioned(r)
                                 ? (size_t)r->model->params * pl_element_bytes(ddp->dtype)
                                 : 0);
    for (int k = 0; k < r->plan_count; k++) {
        size_t floats = 0;
        for (int i = 0; i < pl_ddp_output_count(&r->plan[k]); i++)
            floats += pl_ddp_output_row_elements(&r->plan[k], i) * pl_ddp_rows_max(ddp);
        outputs = floats > outputs ? floats : outputs;
    }
    ddp->at.outputs = piece_place(control, outputs * sizeof(float));
    ddp->at.end = *control;
    ddp->bulk_bytes = separates ? bulk : 0;
}

/* From the end, where backward is done first; the limit grows if there would be too
 * many buckets. No buckets instead of one bucket of everything, and for a strategy
 * with its own give(). They begin where a block of norms does. */
static void buckets_set(pl_ddp_t *ddp)
{
    pl_replica_t *r = &ddp->replica;
    const pl_model_t *model = r->model;
    const int64_t params = model->params, min = params / (PL_GRAD_BUCKETS_MAX / 2) + 1,
                  wanted = (int64_t)fmin(ddp->bucket_mb * (1 << 20)
                                             / pl_element_bytes(ddp->dtype),
                                         1e15),
                  max = wanted > min ? wanted : min,
                  block = r->norm_block ? r->norm_block : 1;
    const bool gives = ddp->reduce_hooks && ddp->reduce_hooks->give;
    int count = 0;
    r->bucket[0] = params;
    for (int k = model->count - 1; k >= 0 && r->objectives == 1 && !gives; k--) {
        const pl_tensor_info_t *t = &model->tensor[k];
        const int64_t from = (t->offset + block - 1) / block * block;
        if (t->region == PL_REGION_PARAMS && from < r->bucket[count]
            && (r->bucket[count] - from >= max || !from))
            r->bucket[++count] = from;
    }
    r->bucket_count = count > 1 ? count : 0;
}

static int memory_allocate(pl_ddp_t *ddp, bool bulk, pl_error_t *err);

/* Memory for the regions, if they have memory of their own, then the control buffer; the
 * context says whether it is that for the regions. */
static void allocated(void *self, const pl_answer_t *answer)
{
    pl_ddp_t *ddp = self;
    pl_replica_t *r = self;
    pl_error_t err = {0};
    const bool is_bulk_memory = answer->context != NULL;
    if (answer->kind == PL_ANSWER_ERROR)
        pl_replica_prepared(r, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    pl_reg_buffer_t *memory = (pl_reg_buffer_t *)answer->body->alloc_buffer_reply.memory;
    if (!is_bulk_memory)
        ddp->control = pl_object_ref(memory);
    for (int k = 0; k < PL_REGIONS && is_bulk_memory == (ddp->bulk_bytes > 0); k++)
        if (is_bulk(ddp, (pl_region_t)k) && !r->registered[k])
            r->bulk[k].memory = pl_object_ref(memory);
    if (!is_bulk_memory)
        pl_replica_prepared(r, NULL);
    else if (memory_allocate(ddp, false, &err) != PL_OK)
        pl_replica_prepared(r, &err);
}

static int memory_allocate(pl_ddp_t *ddp, bool bulk, pl_error_t *err)
{
    const pl_alloc_buffer_t msg = {.bytes = bulk ? ddp->bulk_bytes : ddp->at.end};
    const pl_how_t how = {.on_answer = allocated, .context = bulk ? ddp : NULL};
    return pl_call_alloc_buffer(ddp, ddp->collective_actor, &msg, how, err) ? PL_OK
                                                                            : err->code;
}

void pl_ddp_described(pl_replica_t *r)
{
    pl_ddp_t *ddp = (pl_ddp_t *)r;
    pl_replica_gradients(r, &ddp->dtype);
    pl_ddp_device_choose(ddp);
    buckets_set(ddp);
    const bool agrees = ddp->on_device
                        && !(ddp->reduce_hooks && ddp->reduce_hooks->keeps_state);
    for (int k = 0; k < r->model->count && agrees; k++)
        ddp->agrees |= r->model->tensor[k].region == PL_REGION_STATE
                       && r->model->tensor[k].agree != PL_AGREE_NONE;
    if (ddp->on_device && r->sync_hooks == &pl_ddp_sync_hooks)
        r->sync_hooks = ddp->agrees ? &pl_ddp_state_sync_hooks
                                    : &pl_ddp_device_sync_hooks;
}

int pl_ddp_prepare(pl_replica_t *r, pl_error_t *err)
{
    pl_ddp_t *ddp = (pl_ddp_t *)r;
    for (int k = 0; k < PL_REGIONS; k++)
        r->registered[k] = ddp->on_device && k != PL_REGION_COLLECTIVE
                           && is_bulk(ddp, (pl_region_t)k);
    places_set(ddp);
    r->timings_by_rank = pl_alloc_array((size_t)r->ranks * PL_TIMINGS, sizeof(double));
    if (!r->timings_by_rank)
        return pl_no_memory(err);
    return memory_allocate(ddp, ddp->bulk_bytes > 0, err);
}
