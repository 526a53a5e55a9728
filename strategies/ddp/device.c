/* device.c - gradients that stay in the memory of devices
 *
 * If the accelerator registers its memory and the collective moves that kind of
 * memory, the collective sums each bucket on the device, behind the fence of the piece
 * of backward that ends it, and the update runs behind the last sum. The host waits
 * for none of that. The data of in-graph collectives (ddp/graph_collectives.c) is
 * small and passes through the host's memory. The control buffer stays there too: its
 * tail has the metrics of a batch, and is summed when they are there, while devices
 * compute.
 *
 * Every rank must get the same sums. A skipped step is skipped on all ranks, because
 * its gradients are the same. Steps sent behind it are not reduced: the replica waits
 * for the result of an update before it has the ranks reduce the next step. */
#include <assert.h>
#include <string.h>

#include "accelerators/actor.h"
#include "accelerators/auto_select.h"
#include "base/error.h"
#include "base/options.h"
#include "strategies/ddp/ddp.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"

void pl_ddp_device_choose(pl_ddp_t *ddp)
{
    pl_replica_t *r = &ddp->replica;
    const pl_options_t *options = r->job->options;
    const bool may = ddp->reduce_hooks ? ddp->reduce_hooks->gradients_stay
                                       : r->sync_hooks == &pl_ddp_sync_hooks,
               gives = ddp->reduce_hooks && ddp->reduce_hooks->give;
    const char *accelerator = pl_options_choice(options, "trainer.accelerator",
                                                pl_accelerator_auto(options)),
               *kind = may && r->job->stage == PL_TRAIN     /* [none, or not wanted] */
                           ? pl_accelerator_traits(accelerator).memory_kind
                           : NULL;
    r->norm_block = kind && !gives ? pl_norm_block(r->model) : 0;
    ddp->on_device = ddp->device_kind && kind && strcmp(kind, ddp->device_kind) == 0
                     && (ddp->dtype == PL_F32 || ddp->dtype == PL_F64);
}

/* ---- operations on the device ---- */

void pl_ddp_device_replayed(void *self, const pl_answer_t *answer)
{
    pl_ddp_t *ddp = self;
    if (answer->kind == PL_ANSWER_ERROR && ddp->failure.code == PL_OK)
        ddp->failure = *answer->error;
}

void pl_ddp_device_enqueued(pl_ddp_t *ddp, const pl_error_t *failure)
{
    pl_sync_point_t *point = ddp->ordering;
    assert(ddp->enqueuing > 0);
    if (failure && ddp->failure.code == PL_OK)
        ddp->failure = *failure;
    if (--ddp->enqueuing || !point)
        return;
    if (ddp->failure.code == PL_OK && ddp->scatters && point->on_device
        && !point->is_normed) {        /* the norms come behind the sums of all buckets */
        point->is_normed = true;
        if (pl_ddp_norms_give(ddp, point->sums.objective, &ddp->failure) == PL_OK)
            return;
    }
    ddp->ordering = NULL;
    if (ddp->failure.code == PL_OK && point->on_device) {
        /* Runs behind the moved data. */
        const pl_how_t how = {.on_answer = pl_ddp_device_replayed};
        if (ddp->reduce_hooks && ddp->reduce_hooks->combine)
            ddp->reduce_hooks->combine(ddp, &point->sums, how, &ddp->failure);
        else if (ddp->agrees)
            pl_ddp_state_take(ddp, &ddp->failure);
    }
    if (ddp->failure.code == PL_OK && ddp->replica.sync_hooks->gradients_stay)
        pl_replica_ordered(&ddp->replica);
    point->ready = ddp->failure.code != PL_OK || point->is_computed;
    pl_ddp_advance(ddp);
}

/* The end of a request to the collective; the context is its message. */
static void request_answered(void *self, const pl_answer_t *answer)
{
    pl_replica_t *r = self;
    pl_object_t *fence = NULL;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    switch (answer->kind == PL_ANSWER_REPLY ? (uintptr_t)answer->context : 0) {
    case PL_MESSAGE_all_reduce: fence = answer->body->all_reduce_reply.fence; break;
    case PL_MESSAGE_all_gather: fence = answer->body->all_gather_reply.fence; break;
    case PL_MESSAGE_reduce_scatter:
        fence = answer->body->reduce_scatter_reply.fence;
        break;
    default: break;
    }
    if (fence) {
        pl_object_unref(r->reduced);
        r->reduced = pl_object_ref(fence);
    }
    pl_ddp_device_enqueued(self, answer->kind == PL_ANSWER_ERROR ? answer->error : NULL);
}

static int request(pl_ddp_t *ddp, pl_message_t message, const void *fields,
                   pl_error_t *err)
{
    const pl_how_t how = {.on_answer = request_answered,
                          .context = (void *)(uintptr_t)message};
    if (!pl_call(ddp, ddp->collective_actor, message, fields, how, err))
        return err->code;
    ddp->enqueuing++;
    return PL_OK;
}

int pl_ddp_device_sum(pl_ddp_t *ddp, pl_region_t region, size_t from, size_t count,
                      pl_error_t *err)
{
    const pl_reg_ptr_t at = pl_ddp_region(ddp, region, from);
    const pl_all_reduce_t msg = {.memory = &at.memory->object,
                                 .offset = at.offset,
                                 .count = count,
                                 .dtype = ddp->dtype,
                                 .reduction = PL_REDUCE_SUM,
                                 .after = ddp->after ? &ddp->after->object : NULL};
    return request(ddp, PL_MESSAGE_all_reduce, &msg, err);
}

int pl_ddp_device_gather(pl_ddp_t *ddp, pl_region_t region, size_t from, size_t count,
                         int64_t step, pl_error_t *err)
{
    const pl_reg_ptr_t at = pl_ddp_region(ddp, region, from);
    const pl_all_gather_t msg = {.memory = &at.memory->object,
                                 .offset = at.offset,
                                 .count = count,
                                 .step = (uint64_t)step,
                                 .dtype = ddp->dtype,
                                 .after = ddp->after ? &ddp->after->object : NULL};
    return request(ddp, PL_MESSAGE_all_gather, &msg, err);
}

/* Ranks move no frozen parameters. */
static bool is_trained(const pl_ddp_t *ddp, const pl_ddp_range_t *range)
{
    for (int64_t a = 0, b = 0; pl_replica_range(&ddp->replica, range->objective, &a, &b);)
        if (a < range->end && b > range->first)
            return true;
    return false;
}

int pl_ddp_device_scatter(pl_ddp_t *ddp, const pl_ddp_range_t *range, pl_error_t *err)
{
    const pl_reg_ptr_t at = pl_ddp_region(ddp, PL_REGION_GRADS, (size_t)range->first);
    const pl_reduce_scatter_t msg = {.memory = &at.memory->object,
                                     .offset = at.offset,
                                     .count = (uint64_t)(range->end - range->first),
                                     .step = (uint64_t)ddp->replica.norm_block,
                                     .dtype = ddp->dtype,
                                     .reduction = PL_REDUCE_SUM,
                                     .after = ddp->after ? &ddp->after->object : NULL};
    return is_trained(ddp, range) ? request(ddp, PL_MESSAGE_reduce_scatter, &msg, err)
                                  : PL_OK;
}

bool pl_ddp_device_compile(pl_replica_t *r, pl_region_t registered, pl_how_t how,
                           pl_error_t *err)
{
    const pl_ddp_t *ddp = (pl_ddp_t *)r;
    const pl_compile_sums_t msg = {.memory = &r->bulk[registered].memory->object,
                                   .dtype = ddp->dtype};
    return pl_call_compile_sums(r, ddp->collective_actor, &msg, how, err);
}

/* The ranks have synchronized behind an update, and everything before is reported. */
static void gathered_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    (void)point;
    pl_replica_reported(&ddp->replica, failure, false);
}

static void fences_drop(pl_ddp_fences_t *fences)
{
    while (fences->count)
        pl_object_unref(fences->fence[--fences->count]);
}

static void fences_keep(pl_ddp_fences_t *fences, int buckets, pl_fence_t *fence)
{
    for (; fences->count < buckets; fences->count++)
        fences->fence[fences->count] = pl_object_ref(fence);
}

void pl_ddp_device_release(pl_ddp_t *ddp)
{
    fences_drop(&ddp->computed);
    fences_drop(&ddp->updated);
}

void pl_ddp_device_updated(pl_replica_t *r, int buckets, pl_fence_t *fence)
{
    fences_keep(&((pl_ddp_t *)r)->updated, buckets, fence);
}

/* Each range as soon as its update is over, while the device updates the next. */
int pl_ddp_device_gather_params(pl_ddp_t *ddp, int objective, pl_error_t *err)
{
    const pl_replica_t *r = &ddp->replica;
    const pl_sync_point_t gathered = {.end = gathered_end, .is_computed = true};
    ddp->ordering = pl_ddp_sync_point_new(ddp, &gathered, err);
    if (!ddp->ordering)
        return err->code;
    int code = PL_OK;
    ddp->after = r->updated;
    if (!ddp->scatters)
        code = pl_ddp_device_gather(ddp, PL_REGION_PARAMS, 0, (size_t)r->model->params, 0,
                                    err);
    for (int k = 0; k < ddp->scatters && code == PL_OK; k++) {
        const pl_ddp_range_t *range = &ddp->scatter[k];
        if (range->objective != objective || !is_trained(ddp, range))
            continue;
        ddp->after = k < ddp->updated.count ? ddp->updated.fence[k] : r->updated;
        code = pl_ddp_device_gather(ddp, PL_REGION_PARAMS, (size_t)range->first,
                                    (size_t)(range->end - range->first), r->norm_block,
                                    err);
    }
    fences_drop(&ddp->updated);
    if (code == PL_OK)
        return PL_OK;
    ddp->enqueuing++;
    pl_ddp_device_enqueued(ddp, err);
    return PL_OK;
}

/* ---- where ranks synchronize ---- */

static void device_ready(pl_replica_t *r, int buckets, pl_fence_t *fence)
{
    pl_ddp_t *ddp = (pl_ddp_t *)r;
    if (!buckets)
        fences_drop(&ddp->computed);
    fences_keep(&ddp->computed, buckets, fence);
}

/* Sums gradients first; the tail follows when the metrics are there, too. */
static int device_reduce(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    pl_ddp_t *ddp = (pl_ddp_t *)r;
    pl_sync_point_t *point = pl_ddp_step_sync_point(ddp, sums, err);
    if (!point)
        return err->code;
    point->on_device = true;
    ddp->ordering = point;
    const bool gives = ddp->reduce_hooks && ddp->reduce_hooks->give;
    int code = PL_OK;
    /* Registers the memory, once, before the first sum. */
    for (int k = 0; k < PL_REGIONS && !ddp->shares && code == PL_OK; k++) {
        const pl_register_buffer_t msg = {
            .memory = r->registered[k] ? &r->bulk[k].memory->object : NULL};
        if (msg.memory)
            code = request(ddp, PL_MESSAGE_register_buffer, &msg, err);
    }
    ddp->shares |= code == PL_OK;
    ddp->after = r->computed;
    if (code == PL_OK)
        code = gives ? ddp->reduce_hooks->give(ddp, sums, err)
                     : pl_ddp_sum_step(ddp, sums, err);
    if (code == PL_OK && ddp->agrees && !gives)
        code = pl_ddp_state_give(ddp, sums, err);
    pl_ddp_device_release(ddp);
    if (code == PL_OK)
        return PL_OK;
    ddp->enqueuing++;
    pl_ddp_device_enqueued(ddp, err);
    return PL_OK;
}

static void device_computed(pl_replica_t *r, const pl_replica_sums_t *sums)
{
    pl_ddp_t *ddp = (pl_ddp_t *)r;
    pl_sync_point_t *point = ddp->first;             /* the oldest step without metrics */
    while (point && (point->is_computed || !point->on_device))
        point = point->next;
    if (!point)
        return;
    point->sums.metrics = sums->metrics;
    point->sums.metric_count = sums->metric_count;
    point->is_computed = true;
    point->ready = ddp->ordering != point;
    pl_ddp_advance(ddp);
}

int pl_ddp_reduce(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    if (!((pl_ddp_t *)r)->on_device)
        return pl_ddp_sync_hooks.reduce(r, sums, err);
    const int code = device_reduce(r, sums, err);
    if (code == PL_OK)
        device_computed(r, sums);
    return code;
}

#define SYNC_HOOKS \
    .prepare = pl_ddp_prepare, .compile = pl_ddp_device_compile, .ready = device_ready, \
    .reduce = device_reduce, .computed = device_computed, .gradients_stay = true, \
    .collective = pl_ddp_collective, .gather = pl_ddp_gather

const pl_sync_hooks_t pl_ddp_device_sync_hooks = {SYNC_HOOKS};
const pl_sync_hooks_t pl_ddp_state_sync_hooks = {SYNC_HOOKS,
                                                 .graphs = PL_DDP_STATE_GRAPHS,
                                                 .describe = pl_ddp_state_describe,
                                                 .region = pl_ddp_state_region};
