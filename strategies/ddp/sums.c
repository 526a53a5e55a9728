/* sums.c - the sums over the ranks: gradients, metrics, state; and outputs of a batch
 *
 * The first piece is the tail of a step:
 *
 * gradients and losses || announced | ranks with samples | bad[ranks] | hash[ranks] |
 * spent[ranks] | metrics | state
 *
 * A step's state is copied behind the metrics, because some of its tensors are summed
 * and others are not. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "strategies/ddp/ddp.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"
#include "tensor/precision.h"

enum { HASH_BITS = 20 };

/* ---- the tail ---- */

enum { TAIL_ANNOUNCED, TAIL_PRESENT, TAIL_BAD };

static bool shares_state(const pl_ddp_t *ddp)
{
    return !ddp->on_device && (!ddp->reduce_hooks || !ddp->reduce_hooks->keeps_state);
}

/* The elements at which its parts begin, behind those above. */
typedef struct tail_places {
    size_t hash, timings, metrics, state, end;
} tail_places_t;

static tail_places_t tail_places(const pl_ddp_t *ddp)
{
    const pl_replica_t *r = &ddp->replica;
    tail_places_t at = {.hash = TAIL_BAD + r->ranks};
    at.timings = at.hash + r->ranks;
    at.metrics = at.timings + (size_t)r->ranks * PL_TIMINGS;
    at.state = at.metrics + pl_replica_max_metrics(r);
    at.end = at.state + (shares_state(ddp) ? (size_t)r->model->state : 0);
    return at;
}

size_t pl_ddp_tail_end(const pl_ddp_t *ddp)
{
    return tail_places(ddp).end;
}

static double tail(const pl_ddp_t *ddp, size_t k)
{
    return pl_ddp_element(ddp, pl_ddp_control_buffer(ddp, ddp->at.tail), k);
}

static void tail_set(const pl_ddp_t *ddp, size_t k, double value)
{
    pl_ddp_element_set(ddp, pl_ddp_control_buffer(ddp, ddp->at.tail), k, value);
}

/* ---- a step ---- */

/* Number of metrics of a step that are summed in the tail. */
static size_t tail_metrics_count(const pl_ddp_t *ddp, const pl_replica_sums_t *sums)
{
    return ddp->reduce_hooks && ddp->reduce_hooks->give_metrics ? 0 : sums->metric_count;
}

/* The loss is a step's first metric. */
static void tail_put(pl_ddp_t *ddp, const pl_replica_sums_t *sums)
{
    pl_replica_t *r = &ddp->replica;
    const tail_places_t at = tail_places(ddp);
    const size_t count = tail_metrics_count(ddp, sums);
    for (size_t k = 0; k < at.end; k++)
        tail_set(ddp, k, 0);
    tail_set(ddp, TAIL_ANNOUNCED, ddp->announced);
    tail_set(ddp, TAIL_PRESENT, sums->has_samples);
    tail_set(ddp, TAIL_BAD + r->rank, count && !isfinite(sums->metrics[0]));
    tail_set(ddp, at.hash + r->rank, (double)(r->first_hash >> (64 - HASH_BITS)));
    for (size_t k = 0; k < count; k++)
        tail_set(ddp, at.metrics + k, sums->metrics[k]);
    for (int k = 0; k < r->model->count && shares_state(ddp); k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        const bool is_given = t->agree == PL_AGREE_MEAN
                                  ? sums->has_samples
                                  : t->agree == PL_AGREE_RANK0 && r->rank == 0;
        if (t->region != PL_REGION_STATE || !is_given)
            continue;
        for (size_t i = (size_t)t->offset; i < (size_t)(t->offset + t->count); i++)
            tail_set(ddp, at.state + i, pl_ddp_element(ddp, r->bulk[PL_REGION_STATE], i));
    }
    /* Those of the previous step, because this step is not over. */
    for (size_t k = 0; k < PL_TIMINGS; k++)
        tail_set(ddp, at.timings + r->rank * (size_t)PL_TIMINGS + k, r->timings[k]);
    memset(r->timings, 0, sizeof r->timings);
}

int pl_ddp_all_reduce_region(pl_ddp_t *ddp, pl_region_t region, size_t from, size_t count,
                             pl_error_t *err)
{
    if (ddp->on_device)
        return pl_ddp_device_sum(ddp, region, from, count, err);
    return pl_ddp_call_sum(ddp, pl_ddp_region(ddp, region, from), count, ddp->dtype, err);
}

int pl_ddp_all_gather_region(pl_ddp_t *ddp, pl_region_t region, size_t count,
                             pl_error_t *err)
{
    if (ddp->on_device)
        return pl_ddp_device_gather(ddp, region, 0, count, 0, err);
    return pl_ddp_call_gather(ddp, pl_ddp_region(ddp, region, 0), count, 0, ddp->dtype,
                              err);
}

/* The hook `ready`: has the trained gradients of the first `buckets` buckets summed that
 * are not on the way. */
static void buckets_call(pl_replica_t *r, int buckets, pl_fence_t *fence)
{
    (void)fence;
    pl_ddp_t *ddp = (pl_ddp_t *)r;
    pl_error_t err = {0};
    for (; ddp->called < buckets && ddp->failure.code == PL_OK; ddp->called++) {
        const int64_t first = r->bucket[ddp->called + 1], end = r->bucket[ddp->called];
        int code = PL_OK;
        ddp->after = ddp->called < ddp->computed.count ? ddp->computed.fence[ddp->called]
                                                       : r->computed;
        if (ddp->scatters)
            code = pl_ddp_device_scatter(ddp, &ddp->scatter[ddp->called], &err);
        for (int64_t a = 0, b = 0;
             !ddp->scatters && code == PL_OK && pl_replica_range(r, 0, &a, &b);) {
            const int64_t from = a > first ? a : first, to = b < end ? b : end;
            if (from < to)
                code = pl_ddp_all_reduce_region(ddp, PL_REGION_GRADS, (size_t)from,
                                                (size_t)(to - from), &err);
        }
        if (code != PL_OK)
            ddp->failure = err;
    }
}

void *pl_ddp_gradients(const pl_ddp_t *ddp)
{
    const pl_reg_ptr_t grads = ddp->replica.bulk[PL_REGION_GRADS];
    return (char *)grads.memory->data + grads.offset;
}

static int tail_call(pl_ddp_t *ddp, pl_error_t *err)
{
    return pl_ddp_call_sum(ddp, pl_ddp_control_buffer(ddp, ddp->at.tail),
                           pl_ddp_tail_end(ddp), ddp->dtype, err);
}

/* The element of an objective's loss, behind all gradients. */
static size_t loss_of(const pl_ddp_t *ddp, const pl_replica_sums_t *sums)
{
    return (size_t)ddp->replica.model->params + 2 * (size_t)sums->objective;
}

/* From these gradients on, up to the loss: one piece, together with the tail if both
 * lie together. */
static int sum_from(pl_ddp_t *ddp, size_t from, const pl_replica_sums_t *sums,
                    pl_error_t *err)
{
    const size_t loss = loss_of(ddp, sums);
    const pl_reg_ptr_t end = pl_ddp_region(ddp, PL_REGION_GRADS, loss + 2);
    const bool together = end.memory == ddp->control && end.offset == ddp->at.tail;
    int code =
        pl_ddp_all_reduce_region(ddp, PL_REGION_GRADS, from,
                                 loss + 2 - from + (together ? pl_ddp_tail_end(ddp) : 0),
                                 err);
    return code == PL_OK && !together && !ddp->on_device ? tail_call(ddp, err) : code;
}

int pl_ddp_sum_tail(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err)
{
    return sum_from(ddp, loss_of(ddp, sums), sums, err);
}

int pl_ddp_sum_step(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err)
{
    pl_replica_t *r = &ddp->replica;
    size_t from = loss_of(ddp, sums);
    int code = PL_OK;
    buckets_call(r, r->bucket_count, NULL);
    ddp->called = 0;
    ddp->after = r->computed;
    if (ddp->failure.code != PL_OK) {
        *err = ddp->failure;
        return err->code;
    }
    /* Without buckets: everything that the objective trains. If that ends with the loss,
     * the loss goes with it. */
    for (int k = 0; k < ddp->scatters && !r->bucket_count && code == PL_OK; k++)
        if (ddp->scatter[k].objective == sums->objective)
            code = pl_ddp_device_scatter(ddp, &ddp->scatter[k], err);
    const bool by_range = !r->bucket_count && !ddp->scatters;
    for (int64_t a = 0, b = 0;
         by_range && code == PL_OK && pl_replica_range(r, sums->objective, &a, &b);) {
        if ((size_t)b == from)
            from = (size_t)a;
        else
            code = pl_ddp_all_reduce_region(ddp, PL_REGION_GRADS, (size_t)a,
                                            (size_t)(b - a), err);
    }
    return code == PL_OK ? sum_from(ddp, from, sums, err) : code;
}

static int step_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    const pl_ddp_reduce_hooks_t *reduce_hooks = ddp->reduce_hooks;
    int code = PL_OK;
    tail_put(ddp, &point->sums);
    if (reduce_hooks && reduce_hooks->give_metrics)
        code = reduce_hooks->give_metrics(ddp, &point->sums, err);
    if (code != PL_OK)
        return code;
    if (point->on_device)
        return tail_call(ddp, err);
    return reduce_hooks && reduce_hooks->give ? reduce_hooks->give(ddp, &point->sums, err)
                                              : pl_ddp_sum_step(ddp, &point->sums, err);
}

/* PL_EPEER: the ranks began with different weights. */
static int tail_take(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err)
{
    pl_replica_t *r = &ddp->replica;
    const tail_places_t at = tail_places(ddp);
    for (size_t k = 1; k < r->ranks; k++)
        if (tail(ddp, at.hash + k) != tail(ddp, at.hash))
            return pl_fail(err, PL_EPEER,
                           "rank %zu began with other weights than rank 0: module, "
                           "options and seed must be the same on all ranks",
                           k);
    for (size_t k = 0; k < tail_metrics_count(ddp, sums) && sums->metrics; k++)
        sums->metrics[k] = tail(ddp, at.metrics + k);
    ddp->halts = tail(ddp, TAIL_ANNOUNCED) > 0;
    /* A rank without samples still has the previous state, which does not count. */
    const double present = tail(ddp, TAIL_PRESENT);
    for (int k = 0; k < r->model->count && shares_state(ddp); k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        const double of = t->agree == PL_AGREE_MEAN ? present : 1;
        if (t->region != PL_REGION_STATE || t->agree == PL_AGREE_NONE || !of)
            continue;
        for (size_t i = (size_t)t->offset; i < (size_t)(t->offset + t->count); i++)
            pl_ddp_element_set(ddp, r->bulk[PL_REGION_STATE], i,
                               tail(ddp, at.state + i) / of);
    }
    r->blamed[0] = '\0';
    for (uint32_t k = 0; k < r->ranks && !r->blamed[0]; k++)
        if (tail(ddp, TAIL_BAD + k) != 0)
            snprintf(r->blamed, sizeof r->blamed, "rank %u: ", k);
    for (size_t k = 0; k < (size_t)r->ranks * PL_TIMINGS; k++)
        r->timings_by_rank[k] += tail(ddp, at.timings + k);
    if (ddp->reduce_hooks && ddp->reduce_hooks->take_metrics)
        ddp->reduce_hooks->take_metrics(ddp, sums);
    return PL_OK;
}

static void step_over(pl_ddp_t *ddp, const pl_error_t *failure)
{
    if (ddp->reduce_hooks && ddp->reduce_hooks->take)
        ddp->reduce_hooks->take(ddp, &ddp->ended, failure, ddp->halts);
    else if (ddp->on_device)
        pl_replica_reported(&ddp->replica, failure, ddp->halts);
    else
        pl_replica_reduced(&ddp->replica, failure, ddp->halts);
}

static void combined(void *self, const pl_answer_t *answer)
{
    if (answer->kind == PL_ANSWER_REPLY)
        step_over(self, NULL);
    else if (answer->kind == PL_ANSWER_ERROR)
        step_over(self, answer->error);
}

/* On devices the plan that combines is in order already. */
static void step_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    const pl_how_t how = {.on_answer = combined};
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    ddp->ended = point->sums;
    ddp->halts = false;
    if (!failure)
        tail_take(ddp, &point->sums, &err);
    if (err.code == PL_OK && !point->on_device && ddp->reduce_hooks
        && ddp->reduce_hooks->combine
        && ddp->reduce_hooks->combine(ddp, &point->sums, how, &err) == PL_OK)
        return;
    step_over(ddp, err.code == PL_OK ? NULL : &err);
}

pl_sync_point_t *pl_ddp_step_sync_point(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                                        pl_error_t *err)
{
    const pl_sync_point_t step = {.begin = step_begin, .end = step_end, .sums = *sums};
    return pl_ddp_sync_point_new(ddp, &step, err);
}

static int ddp_reduce(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    const pl_sync_point_t step = {.begin = step_begin, .end = step_end, .sums = *sums};
    return pl_ddp_sync((pl_ddp_t *)r, &step, err);
}

/* ---- a batch that is evaluated ---- */

enum { BATCH_ANNOUNCED, BATCH_SAMPLES, BATCH_METRICS };

double *pl_ddp_metrics(const pl_ddp_t *ddp)
{
    return (double *)((char *)ddp->control->data + ddp->at.metrics);
}

static int outputs_take(const pl_ddp_t *ddp, pl_forward_t *forward, int64_t samples,
                        pl_error_t *err)
{
    const pl_replica_plan_t *plan = forward->plan;
    const float *from = (float *)((char *)ddp->control->data + ddp->at.outputs);
    pl_outputs_t *all = pl_outputs_new(err);
    int code = all ? PL_OK : PL_ENOMEM;
    for (int k = 0, made = 0; k < plan->fetch_count && code == PL_OK; k++) {
        if (plan->fetch[k].kind != PL_FETCH_OUTPUT)
            continue;
        pl_shape_t shape = plan->output_shape[made];
        const size_t per_row = pl_ddp_output_row_elements(plan, made);
        shape.dim[0] = samples;
        code = pl_outputs_add(all, plan->fetch[k].name, shape, err);
        if (code == PL_OK)
            memcpy(all->output[made].data, from,
                   (size_t)samples * per_row * sizeof *from);
        from += per_row * pl_ddp_rows_max(ddp);
        made++;
    }
    if (code != PL_OK) {
        pl_object_unref(all);
        return code;
    }
    pl_object_unref(forward->outputs);
    forward->outputs = all;
    return PL_OK;
}

static int batch_begin(pl_ddp_t *ddp, pl_sync_point_t *point, pl_error_t *err)
{
    const pl_forward_t *forward = point->forward;
    double *metrics = pl_ddp_metrics(ddp);
    metrics[BATCH_ANNOUNCED] = ddp->announced;
    metrics[BATCH_SAMPLES] = (double)forward->samples;
    memcpy(metrics + BATCH_METRICS, forward->metrics,
           forward->metric_count * sizeof *metrics);
    int code = pl_ddp_call_sum(ddp, pl_ddp_control_buffer(ddp, ddp->at.metrics),
                               BATCH_METRICS + forward->metric_count, PL_F64, err);
    if (code != PL_OK || !pl_ddp_output_count(forward->plan))
        return code;
    /* Rows of other ranks stay zeros. With micro-shards a rank's rows are neighbours,
     * otherwise those of the ranks alternate. */
    const pl_replica_t *r = &ddp->replica;
    const size_t first = r->micro.micro_shards
                             ? r->micro.first * (size_t)r->job->data->batch_size
                             : r->rank,
                 step = r->micro.micro_shards ? 1 : r->ranks;
    float *to = (float *)((char *)ddp->control->data + ddp->at.outputs);
    memset(to, 0, ddp->at.end - ddp->at.outputs);
    for (int k = 0; k < pl_ddp_output_count(forward->plan); k++) {
        const size_t per_row = pl_ddp_output_row_elements(forward->plan, k);
        for (size_t i = 0; i < (size_t)forward->samples; i++)
            memcpy(to + (first + i * step) * per_row,
                   forward->outputs->output[k].data + i * per_row, per_row * sizeof *to);
        to += per_row * pl_ddp_rows_max(ddp);
    }
    return pl_ddp_call_sum(ddp, pl_ddp_control_buffer(ddp, ddp->at.outputs),
                           (ddp->at.end - ddp->at.outputs) / sizeof(float), PL_F32, err);
}

static void batch_end(pl_ddp_t *ddp, pl_sync_point_t *point, const pl_error_t *failure)
{
    pl_forward_t *forward = point->forward;
    const double *metrics = pl_ddp_metrics(ddp);
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    if (!failure) {
        forward->samples = (int64_t)metrics[BATCH_SAMPLES];
        memcpy(forward->metrics, metrics + BATCH_METRICS,
               forward->metric_count * sizeof *metrics);
        if (pl_ddp_output_count(forward->plan))
            outputs_take(ddp, forward, forward->samples, &err);
    }
    pl_replica_gathered(&ddp->replica, forward, err.code == PL_OK ? NULL : &err,
                        !failure && metrics[BATCH_ANNOUNCED] > 0);
}

int pl_ddp_gather(pl_replica_t *r, pl_forward_t *forward, pl_error_t *err)
{
    pl_ddp_t *ddp = (pl_ddp_t *)r;
    const pl_sync_point_t batch = {.begin = batch_begin,
                                   .end = batch_end,
                                   .forward = forward};
    pl_sync_point_t *point = ddp->first;
    while (point && point->forward != forward)
        point = point->next;
    if (!forward->done)                                     /* the first call for it */
        point = pl_ddp_sync_point_new(ddp, &batch, err);
    if (!point)
        return err->code;
    if (forward->failure.code != PL_OK && ddp->failure.code == PL_OK)
        ddp->failure = forward->failure;
    point->ready = forward->done;
    pl_ddp_advance(ddp);
    return PL_OK;
}

const pl_sync_hooks_t pl_ddp_sync_hooks = {
    .described = pl_ddp_described,
    .prepare = pl_ddp_prepare,
    .compile = pl_ddp_device_compile,
    .ready = buckets_call,
    .reduce = ddp_reduce,
    .collective = pl_ddp_collective,
    .gather = pl_ddp_gather,
};
