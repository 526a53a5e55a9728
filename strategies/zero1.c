/* zero1.c - data parallel, with the optimizer's state partitioned among the ranks
 *
 * ZeRO, stage 1 (Rajbhandari et al., arXiv 1910.02054): of the optimizer's state for
 * each parameter a rank has only its chunk; it updates that chunk of the parameters
 * and gets the other chunks from the other ranks. Everything else is ddp. Gradients
 * are summed whole: the norm for clipping is made of all of them, in one order, so the
 * bits are those of ddp.
 *
 * Where gradients stay on devices a rank has a chunk of each bucket, or of the
 * parameters of each of several objectives, and gets the sums of that chunk only. The
 * norm is made of the norms of blocks, which chunks do not cut: each rank computes
 * those of its chunks, and the ranks add them up to those of all, which are the same
 * as those of ddp there. The parameters of a bucket are gathered while the device
 * updates those of the next.
 *
 * A checkpoint has the whole state. Before a checkpoint the ranks gather it slot by
 * slot through the gradients' memory, which is free between two steps, and rank zero
 * keeps it; where gradients stay on devices, through memory of the host. */
#include <string.h>

#include "base/error.h"
#include "strategies/collectives/collective.h"
#include "strategies/ddp/ddp.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/precision.h"

typedef struct zero1 {
    pl_ddp_t ddp;                                      /* first: this strategy is a ddp */
    pl_sync_hooks_t sync_hooks;
    pl_call_t *gathering;                  /* the call that requested the slots  [none] */
    int slot;                              /* the slot that is being gathered */
    /* counted: whole slots, for the next export  [none] */
    pl_floats_t *gathered[PL_SLOTS];
} zero1_t;

static const pl_option_t zero1_options[] = {
    PL_DDP_BUCKETS,
    PL_DDP_OPTIONS,
    PL_OPTIONS_END,
};

/* Range k of the parameters of which every rank has a chunk; chunks begin at multiples
 * of *step; false: there are no more ranges. */
static bool shared_range(const pl_replica_t *r, int k, int64_t *first, int64_t *end,
                         int64_t *step)
{
    const pl_ddp_t *ddp = (const pl_ddp_t *)r;
    *first = 0;
    *end = r->model->params;
    *step = ddp->scatters ? r->norm_block : PL_CHUNK_STEP;
    if (k >= ddp->scatters)
        return k == 0;
    *first = ddp->scatter[k].first;
    *end = ddp->scatter[k].end;
    return true;
}

/* ---- parameters, after a step ---- */

static int params_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    const pl_replica_t *r = &ddp->replica;
    (void)point;
    return pl_ddp_call_gather(ddp, pl_ddp_region(ddp, PL_REGION_PARAMS, 0),
                              (size_t)r->model->params, 0, ddp->dtype, err);
}

static void params_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    (void)point;
    pl_replica_reduced(&ddp->replica, failure, false);
}

static int zero1_stepped(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    if (((pl_ddp_t *)r)->on_device)
        return pl_ddp_device_gather_params((pl_ddp_t *)r, sums->objective, err);
    const pl_sync_point_t params = {.begin = params_begin, .end = params_end};
    return pl_ddp_sync((pl_ddp_t *)r, &params, err);
}

/* ---- slots, before a checkpoint ---- */

static void slots_end(zero1_t *z, const pl_error_t *failure)
{
    pl_call_t *call = z->gathering;
    z->gathering = NULL;
    if (failure)
        pl_call_fail(call, failure);
    else
        pl_reply_synchronize(call, &(pl_synchronize_reply_t){0});
}

/* The gradients' memory, or memory of the host instead. */
static pl_reg_ptr_t slot_place(const pl_ddp_t *ddp)
{
    return ddp->on_device ? pl_ddp_control_buffer(ddp, ddp->at.scratch)
                          : pl_ddp_region(ddp, PL_REGION_GRADS, 0);
}

static char *slot_buffer(const pl_ddp_t *ddp)
{
    const pl_reg_ptr_t at = slot_place(ddp);
    return (char *)at.memory->data + at.offset;
}

static void slot_next(zero1_t *z);

static int slot_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    int64_t first, end, step;
    int code = PL_OK;
    (void)point;
    for (int k = 0; code == PL_OK && shared_range(&ddp->replica, k, &first, &end, &step);
         k++) {
        pl_reg_ptr_t at = slot_place(ddp);
        at.offset += (size_t)first * pl_element_bytes(ddp->dtype);
        code = pl_ddp_call_gather(ddp, at, (size_t)(end - first), step, ddp->dtype, err);
    }
    return code;
}

static void slot_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    (void)point;
    zero1_t *z = (zero1_t *)ddp;
    pl_error_t err = {0};
    const size_t params = (size_t)ddp->replica.model->params;
    const bool keeps = !failure && ddp->replica.rank == 0;
    pl_floats_t *floats = keeps ? pl_floats_new(ddp->dtype, params, &err) : NULL;
    if (failure || (keeps && !floats)) {
        slots_end(z, failure ? failure : &err);
        return;
    }
    if (floats) {
        memcpy(floats->data, slot_buffer(ddp), params * pl_element_bytes(ddp->dtype));
        pl_object_unref(z->gathered[z->slot]);
        z->gathered[z->slot] = floats;
    }
    z->slot++;
    slot_next(z);
}

static void slot_sync(zero1_t *z)
{
    pl_error_t err = {0};
    const pl_sync_point_t slot = {.begin = slot_begin, .end = slot_end};
    if (pl_ddp_sync(&z->ddp, &slot, &err) != PL_OK)
        slots_end(z, &err);
}

static void slot_read(void *self, const pl_answer_t *answer)
{
    zero1_t *z = self;
    pl_piece_t piece = {0};
    if (answer->kind == PL_ANSWER_ERROR)
        slots_end(z, answer->error);
    if (answer->kind != PL_ANSWER_REPLY)
        return;
    const pl_floats_t *own = (pl_floats_t *)answer->body->read_region_reply.floats;
    const size_t width = pl_element_bytes(z->ddp.dtype);
    for (int k = 0; pl_replica_own_piece(&z->ddp.replica, k, &piece); k++)
        memcpy(slot_buffer(&z->ddp) + (size_t)piece.first * width,
               (const char *)own->data + (size_t)piece.slot * width,
               (size_t)piece.count * width);
    slot_sync(z);
}

/* Gathers the next slot, until there are no more. */
static void slot_next(zero1_t *z)
{
    pl_replica_t *r = &z->ddp.replica;
    pl_error_t err = {0};
    const int64_t count = pl_replica_partition(r);
    const pl_read_region_t msg = {.region = (uint32_t)(PL_REGION_SLOT0 + z->slot),
                                  .count = (uint64_t)count};
    const pl_how_t how = {.on_answer = slot_read};
    if (z->slot == pl_replica_slots(r))
        slots_end(z, NULL);
    else if (!count)
        slot_sync(z);
    else if (!pl_call_read_region(z, r->accelerator, &msg, how, &err))
        slots_end(z, &err);
}

static int zero1_synchronize(void *self, pl_call_t *call, const pl_body_t *body,
                             pl_error_t *err)
{
    (void)err;
    zero1_t *z = self;
    if (!body->synchronize.whole)
        return pl_reply_synchronize(call, &(pl_synchronize_reply_t){0});
    z->gathering = call;
    z->slot = 0;
    slot_next(z);
    return PL_OK;
}

static pl_floats_t *zero1_take_slot(pl_replica_t *r, int k)
{
    zero1_t *z = (zero1_t *)r;
    pl_floats_t *slot = z->gathered[k];
    z->gathered[k] = NULL;
    return slot;
}

/* ---- the start ---- */

static bool zero1_partition(const pl_replica_t *r, int k, int64_t *first, int64_t *count)
{
    uint64_t from, length;
    int64_t begin, end, step;
    if (!shared_range(r, k, &begin, &end, &step))
        return false;
    pl_chunk_by((uint64_t)(end - begin), (uint64_t)step, (int)r->ranks, (int)r->rank,
                &from, &length);
    *first = begin + (int64_t)from;
    *count = (int64_t)length;
    return true;
}

static int zero1_prepare(pl_replica_t *r, pl_error_t *err)
{
    if (r->job->stage == PL_TRAIN && pl_has_master(r->model->precision))
        return pl_fail(
            err, PL_EUNSUPPORTED,
            "with trainer.precision \"%s\" the optimizer keeps weights of its own, which "
            "strategy \"zero1\" does not partition: use a mixed precision, or \"ddp\"",
            r->model->precision->name);
    if (r->job->stage == PL_TRAIN && r->averaging.ops)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "averaging needs all weights after each step, and with strategy "
                       "\"zero1\" a rank updates only a partition: use \"ddp\"");
    return pl_ddp_sync_hooks.prepare(r, err);
}

/* The ranges to scatter, and their number: buckets; or neighbouring parameters of one
 * objective, unless there are too many such ranges. */
static int ranges_find(const pl_replica_t *r, pl_ddp_range_t range[PL_GRAD_BUCKETS_MAX])
{
    int count = 0;
    for (int k = 0; k < r->bucket_count; k++)
        range[k] = (pl_ddp_range_t){.first = r->bucket[k + 1], .end = r->bucket[k]};
    for (int i = 0; i < r->model->count && !r->bucket_count; i++) {
        const pl_tensor_info_t *t = &r->model->tensor[i];
        if (t->region != PL_REGION_PARAMS
            || (count && range[count - 1].objective == t->objective))
            continue;
        if (count == PL_GRAD_BUCKETS_MAX)
            return 0;
        if (count)
            range[count - 1].end = t->offset;
        range[count++] = (pl_ddp_range_t){t->offset, r->model->params, t->objective};
    }
    return r->bucket_count ? r->bucket_count : count;
}

static void zero1_described(pl_replica_t *r)
{
    zero1_t *z = (zero1_t *)r;
    pl_ddp_sync_hooks.described(r);
    if (!z->ddp.on_device)
        return;
    const pl_sync_hooks_t *there = z->ddp.agrees ? &pl_ddp_state_sync_hooks
                                                 : &pl_ddp_device_sync_hooks;
    z->sync_hooks.ready = there->ready;
    z->sync_hooks.reduce = there->reduce;
    z->sync_hooks.computed = there->computed;
    z->sync_hooks.gradients_stay = there->gradients_stay;
    z->sync_hooks.updated = pl_ddp_device_updated;
    z->ddp.scatters = ranges_find(r, z->ddp.scatter);
    if (z->ddp.scatters)
        z->sync_hooks.norms = r->model->params / r->norm_block + 1 + r->model->count;
    z->sync_hooks.graphs = there->graphs + (z->ddp.scatters ? r->objectives : 0);
    z->sync_hooks.describe = pl_ddp_state_describe;
    z->sync_hooks.region = pl_ddp_state_region;
}

static bool zero1_shares(const pl_ddp_t *ddp, pl_region_t region)
{
    (void)ddp;
    return region == PL_REGION_PARAMS;
}

static const pl_ddp_reduce_hooks_t zero1_reduce_hooks = {.shares = zero1_shares,
                                                         .gradients_stay = true};

static int zero1_start(void *self, pl_call_t *call, const pl_body_t *body,
                       pl_error_t *err)
{
    zero1_t *z = self;
    pl_replica_t *r = self;
    z->ddp.reduce_hooks = &zero1_reduce_hooks;
    z->sync_hooks = pl_ddp_sync_hooks;
    z->sync_hooks.described = zero1_described;
    z->sync_hooks.prepare = zero1_prepare;
    z->sync_hooks.stepped = zero1_stepped;
    z->sync_hooks.partition = zero1_partition;
    z->sync_hooks.take_slot = zero1_take_slot;
    r->sync_hooks = &z->sync_hooks;
    return pl_ddp_start(self, call, body, err);
}

static void zero1_release(void *self)
{
    zero1_t *z = self;
    for (int k = 0; k < PL_SLOTS; k++)
        pl_object_unref(z->gathered[k]);
}

static const pl_handler_t zero1_handlers[] = {
    PL_ON(start, zero1_start),
    PL_ON(synchronize, zero1_synchronize),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_zero1_strategy = {
    .name = "zero1",
    .help = "ddp, with the optimizer's state partitioned over the ranks",
    .size = sizeof(zero1_t),
    .options = zero1_options,
    .role = "strategy",
    .level = PL_LEVEL_STRATEGY,
    .handlers = zero1_handlers,
    .global_batch_semantics = true,
    .base = &pl_ddp_strategy,
    .release = zero1_release,
};
