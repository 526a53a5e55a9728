/* elastic.c - data parallel whose bits do not depend on the number of ranks
 *
 * Each batch is split into micro-shards, which are shared among the ranks. No plan
 * computes all samples of a rank at once, so their number does not matter. Each
 * micro-shard is replayed at its own shape, with random numbers of its own, and begins
 * with the same state. Its gradients, state and metrics are added up in the canonical
 * tree over the micro-shards. A rank makes the sums of the subtrees within its
 * micro-shards (micro_shards.c); these travel to all ranks, and each rank adds up the
 * rest. So the ranks only move bytes, in whatever way, and the device makes the sums,
 * in its own memory if that is possible.
 *
 * Built on ddp. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/run.h"
#include "strategies/elastic/elastic.h"
#include "strategies/replica/internal.h"
#include "tensor/model.h"

enum { UNDER_WAY_MAX = 16 };                                /* replays */

/* ---- metrics of batches ---- */

static size_t rows_count(const pl_elastic_t *e)
{
    return e->ddp.replica.micro.micro_shards * e->count;
}

static void rows_give(pl_elastic_t *e, pl_elastic_rows_t *rows)
{
    rows->next = e->spare;
    e->spare = rows;
}

static bool is_before(const pl_elastic_rows_t *rows, uint64_t step, uint32_t batch)
{
    return rows && (rows->step < step || (rows->step == step && rows->batch < batch));
}

/* ---- forward and backward of a batch ---- */

static int batch_begin(pl_elastic_t *e, pl_error_t *err);
static void compute_send(pl_elastic_t *e);

/* The answer to any replay. The last ends the batch; the next one may have come
 * already. */
static void replayed(void *self, const pl_answer_t *answer)
{
    pl_elastic_t *e = self;
    pl_replica_t *r = self;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    e->back++;
    if (answer->kind == PL_ANSWER_ERROR && e->failure.code == PL_OK)
        e->failure = *answer->error;
    if (answer->kind == PL_ANSWER_REPLY) {
        e->skipped |= answer->body->replay_plan_reply.skipped;
        e->forward += answer->body->replay_plan_reply.forward;
        e->seconds += answer->body->replay_plan_reply.seconds;
    }
    compute_send(e);
    if (e->back < e->sent)
        return;
    pl_objective_state_t *of = e->of;
    pl_error_t err = e->failure;
    const bool skipped = e->skipped;
    const double forward = e->forward, seconds = e->seconds;
    e->of = NULL;
    if (skipped || err.code != PL_OK)
        rows_give(e, e->rows);
    else {
        /* The batch under way has run; entries of it, or of later batches, are of an
         * attempt that failed. */
        pl_elastic_rows_t **next = &e->computed, *rows = e->rows;
        while (is_before(*next, rows->step, rows->batch))
            next = &(*next)->next;
        for (pl_elastic_rows_t *old; (old = *next);) {
            *next = old->next;
            rows_give(e, old);
        }
        rows->next = NULL;
        *next = rows;
    }
    e->rows = NULL;
    pl_replica_computed(r, of, skipped, forward, seconds,
                        err.code == PL_OK ? NULL : &err);
    of = e->next_of;
    if (!of)
        return;
    e->next_of = NULL;
    e->of = of;
    e->msg = e->next_msg;
    if (batch_begin(e, &err) != PL_OK)
        pl_replica_computed(r, of, false, 0, 0, &err);
}

/* Behind the last fold everything that this rank gives is there. */
static void last_folded(void *self, const pl_answer_t *answer)
{
    pl_elastic_t *e = self;
    if (answer->kind == PL_ANSWER_PROGRESS)
        pl_replica_enqueued(&e->ddp.replica, e->of,
                            answer->body->replay_plan_progress.fence);
    replayed(self, answer);
}

/* The answer with the metrics of a micro-shard; the context says which one. */
static void micro_shard_computed(void *self, const pl_answer_t *answer)
{
    pl_elastic_t *e = self;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_bytes_t metrics = answer->body->replay_plan_reply.metrics;
        double *row = e->rows->metric + (uintptr_t)answer->context * e->count;
        if (metrics.size)
            memcpy(row, metrics.data, metrics.size);
        for (size_t k = 0; k < e->count; k++)
            row[k] += 0.0;      /* -0 becomes 0 when the zeros of other ranks are added */
    }
    replayed(self, answer);
}

static int replay(pl_elastic_t *e, const pl_replica_plan_t *plan, pl_replay_plan_t *msg,
                  pl_how_t how, pl_error_t *err)
{
    pl_replica_t *r = &e->ddp.replica;
    if (!plan)
        return err->code;
    msg->plan = plan->number;
    msg->restart = e->msg.restart && !e->sent;
    msg->after = pl_replica_reduced_fence(r);
    if (!pl_call_replay_plan(e, r->accelerator, msg, how, err))
        return err->code;
    e->sent++;
    return PL_OK;
}

static int own_replay(pl_elastic_t *e, int k, const char *what, const double *scalars,
                      pl_on_answer_t then, pl_error_t *err)
{
    pl_replay_plan_t msg = {.what = what, .fail_fast = true};
    if (scalars)
        msg.scalars = (pl_bytes_t){scalars, PL_ELASTIC_SCALARS * sizeof *scalars};
    return replay(e, pl_replica_plan_of(&e->ddp.replica, PL_PLAN_OWN, k), &msg,
                  (pl_how_t){.on_answer = then}, err);
}

/* A micro-shard without samples gives zeros. */
static int micro_shard_send(pl_elastic_t *e, int k, pl_error_t *err)
{
    pl_replica_t *r = &e->ddp.replica;
    const pl_batch_t *batch = (const pl_batch_t *)e->msg.batch;
    const int micro_shard = (int)r->micro.first + k;
    const int64_t samples = pl_replica_piece(r, batch, k);
    const pl_replica_plan_t like = {.stage = PL_TRAIN, .size = {samples, batch->length}};
    const pl_replica_plan_t *plan = samples ? pl_replica_plan(r, &like, err)
                                            : pl_replica_plan_of(r, PL_PLAN_EMPTY, 0);
    const double scalars[PL_ELASTIC_SCALARS] = {
        [PL_ELASTIC_PRESENT] = samples > 0, [PL_ELASTIC_FIRST] = micro_shard == 0};
    const pl_how_t how = {.on_answer = samples ? micro_shard_computed : replayed,
                          .context = (void *)(uintptr_t)micro_shard};
    pl_replay_plan_t msg = e->msg;
    msg.micro_batch = e->msg.micro_batch * r->micro.micro_shards + (uint32_t)micro_shard;
    msg.first = (uint64_t)(k * pl_replica_piece(r, batch, 0));
    int code = replay(e, plan, &msg, how, err);
    if (code != PL_OK)
        return code;
    const pl_fold_t fold = pl_micro_sums_fold(&e->sums, (int)r->micro.micro_shards,
                                              micro_shard);
    int kind = 0;
    while (e->fold[kind].there != fold.there || e->fold[kind].added != fold.added)
        kind++;
    return own_replay(e, pl_elastic_first_fold(e) + kind, "fold", scalars,
                      micro_shard + 1 == (int)r->micro.end ? last_folded : replayed, err);
}

/* Some are sent ahead, so that the device never waits. */
static void compute_send(pl_elastic_t *e)
{
    pl_replica_t *r = &e->ddp.replica;
    const int micro_shards = (int)(r->micro.end - r->micro.first);
    pl_error_t err = {0};
    int code = e->failure.code;
    if (code == PL_OK && !e->began && r->model->state)
        code = own_replay(e, PL_ELASTIC_BEGIN, "begin", NULL, replayed, &err);
    e->began = true;
    while (code == PL_OK && e->next < micro_shards && !e->skipped
           && e->sent - e->back < UNDER_WAY_MAX)
        code = micro_shard_send(e, e->next++, &err);
    if (code != PL_OK && e->failure.code == PL_OK)
        e->failure = err;
}

/* Begins the batch of e->of and e->msg. */
static int batch_begin(pl_elastic_t *e, pl_error_t *err)
{
    e->count = pl_metrics_before(&e->ddp.replica, 1);
    pl_elastic_rows_t *rows = e->spare;
    if (rows)
        e->spare = rows->next;
    else
        rows = pl_alloc(sizeof *rows + rows_count(e) * sizeof *rows->metric);
    if (!rows) {
        e->of = NULL;
        return pl_no_memory(err);
    }
    memset(rows->metric, 0, rows_count(e) * sizeof *rows->metric);
    rows->step = e->msg.step;
    rows->batch = e->msg.micro_batch;
    e->rows = rows;
    e->sums.count = e->sent = e->back = e->next = 0;
    e->skipped = e->began = false;
    e->forward = e->seconds = 0;
    e->failure.code = PL_OK;
    compute_send(e);
    if (e->sent)
        return PL_OK;
    rows_give(e, e->rows);
    e->rows = NULL;
    e->of = NULL;
    *err = e->failure;
    return err->code;
}

/* One batch after the other: the batch under way ends while the device still has the
 * sums and the update to do, behind which this one runs. */
static int elastic_compute(pl_replica_t *r, const pl_replay_plan_t *msg,
                           pl_objective_state_t *of, pl_error_t *err)
{
    pl_elastic_t *e = (pl_elastic_t *)r;
    if (e->of) {
        e->next_of = of;
        e->next_msg = *msg;
        return PL_OK;
    }
    e->of = of;
    e->msg = *msg;
    return batch_begin(e, err);
}

/* ---- the ranks synchronize ---- */

static int elastic_give(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err)
{
    int code = pl_ddp_all_gather_region(ddp, (pl_region_t)PL_ELASTIC_RANK_SUMS,
                                        (size_t)pl_elastic_region(&ddp->replica, 0), err);
    return code == PL_OK && !ddp->on_device ? pl_ddp_sum_tail(ddp, sums, err) : code;
}

static int elastic_combine(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_how_t how,
                           pl_error_t *err)
{
    const int which = PL_ELASTIC_COMBINE + !!sums->batch + 2 * !sums->is_last;
    return pl_replica_replay(&ddp->replica, which, "combine", how, err);
}

/* A batch that has not run has no metrics. */
static int elastic_give_metrics(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                                pl_error_t *err)
{
    pl_elastic_t *e = (pl_elastic_t *)ddp;
    const size_t count = rows_count(e);
    double *metrics = pl_ddp_metrics(ddp);
    pl_elastic_rows_t *rows;
    while (is_before(rows = e->computed, sums->number, sums->batch)) {
        e->computed = rows->next;
        rows_give(e, rows);
    }
    memset(metrics, 0, count * sizeof *metrics);
    if (rows && sums->metrics)
        memcpy(metrics, rows->metric, count * sizeof *metrics);
    return count ? pl_ddp_call_sum(ddp, pl_ddp_control_buffer(ddp, ddp->at.metrics),
                                   count, PL_F64, err)
                 : PL_OK;
}

static void elastic_take_metrics(pl_ddp_t *ddp, const pl_replica_sums_t *sums)
{
    pl_elastic_t *e = (pl_elastic_t *)ddp;
    pl_replica_t *r = &ddp->replica;
    double *metrics = pl_ddp_metrics(ddp);
    int rank = 0;
    bool is_bad = false;
    /* The loss is a step's first metric. */
    for (uint32_t k = 0; k < r->micro.micro_shards && e->count && !is_bad; k++) {
        while ((int)k >= pl_micro_shard_first((int)r->micro.micro_shards, (int)r->ranks,
                                              rank + 1))
            rank++;
        is_bad = !isfinite(metrics[k * e->count]);
    }
    if (is_bad)
        snprintf(r->blamed, sizeof r->blamed, "rank %d: ", rank);
    pl_replica_fold(&ddp->replica, metrics, e->count);
    if (e->count && sums->metrics)
        memcpy(sums->metrics, metrics, e->count * sizeof *metrics);
}

static bool elastic_shares(const pl_ddp_t *ddp, pl_region_t region)
{
    (void)ddp;
    return (int)region == PL_ELASTIC_RANK_SUMS;
}

/* ---- calls ---- */

static int elastic_process_dataloader(void *self, pl_call_t *call, const pl_body_t *body,
                                      pl_error_t *err)
{
    (void)body, (void)err;
    const pl_ddp_t *ddp = self;
    return pl_reply_process_dataloader(
        call,
        &(pl_process_dataloader_reply_t){.partition = ddp->replica.rank,
                                         .partitions = ddp->replica.ranks,
                                         .micro_shards = ddp->replica.micro.micro_shards,
                                         .even = ddp->drop_last});
}

/* A data set gives no more samples than this rank's micro-shards take; a program may. */
static int batch_check(const pl_replica_t *r, const pl_object_t *object, pl_error_t *err)
{
    const pl_batch_t *batch = (const pl_batch_t *)object;
    const int64_t micro_shards = r->micro.end - r->micro.first,
                  samples = r->job->data->batch_size;
    if (batch->count <= micro_shards * samples)
        return PL_OK;
    return pl_fail(err, PL_EINVAL,
                   "the batch has %lld samples, but rank %d has %lld of %u micro-shards, "
                   "of %lld samples each (data.batch_size): send at most %lld",
                   (long long)batch->count, (int)r->rank, (long long)micro_shards,
                   r->micro.micro_shards, (long long)samples,
                   (long long)(micro_shards * samples));
}

static int elastic_train_batch(void *self, pl_call_t *call, const pl_body_t *body,
                               pl_error_t *err)
{
    if (body->train_batch.objectives)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "strategy \"elastic\" adds up gradients of micro-shards within a "
                       "step, and keeps none for a step that the program takes itself: "
                       "call pl_loop_train(), or set another \"trainer.strategy\"");
    return batch_check(self, body->train_batch.batch, err) == PL_OK
               ? pl_replica_train(self, call, body, err)
               : err->code;
}

static int elastic_evaluate_batch(void *self, pl_call_t *call, const pl_body_t *body,
                                  pl_error_t *err)
{
    return batch_check(self, body->evaluate_batch.batch, err) == PL_OK
               ? pl_replica_evaluate(self, call, body, err)
               : err->code;
}

/* The ranks have joined, so the micro-shards of this rank are known. */
static int elastic_setup(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    pl_elastic_t *e = self;
    pl_replica_t *r = self;
    const int micro_shards = (int)r->micro.micro_shards, ranks = (int)r->ranks,
              rank = (int)r->rank;
    if (ranks > micro_shards)
        return pl_fail(
            err, PL_EINVAL,
            "%d ranks cannot share %d micro-shard%s, because each rank needs one: set a "
            "smaller trainer.devices or more micro_shards",
            ranks, micro_shards, pl_plural(micro_shards));
    r->micro.first = (uint32_t)pl_micro_shard_first(micro_shards, ranks, rank);
    r->micro.end = (uint32_t)pl_micro_shard_first(micro_shards, ranks, rank + 1);
    e->rank_sums_max = pl_micro_sums_max(micro_shards, ranks);
    /* Each kind of fold once. */
    const pl_micro_sharding_t *micro = &e->ddp.replica.micro;
    pl_micro_sums_t sums = {.count = 0};
    for (uint32_t micro_shard = micro->first; micro_shard < micro->end; micro_shard++) {
        const pl_fold_t fold = pl_micro_sums_fold(&sums, (int)micro->micro_shards,
                                                  (int)micro_shard);
        int k = 0;
        while (k < e->folds
               && (e->fold[k].there != fold.there || e->fold[k].added != fold.added))
            k++;
        e->fold[k] = fold;
        e->folds += k == e->folds;
        e->sums_max = sums.count > e->sums_max ? sums.count : e->sums_max;
    }
    e->combines =
        body->setup.accumulates
                || ((const pl_job_t *)body->setup.job)->trainer->accumulate_grad_batches
                       > 1
            ? PL_ELASTIC_COMBINES
            : 1;
    e->sync_hooks.graphs = pl_elastic_first_fold(e) + e->folds;
    return pl_replica_setup(self, call, body, err);
}

static const pl_ddp_reduce_hooks_t elastic_reduce_hooks = {
    .give = elastic_give,
    .combine = elastic_combine,
    .give_metrics = elastic_give_metrics,
    .take_metrics = elastic_take_metrics,
    .shares = elastic_shares,
    .gradients_stay = true,
    .keeps_state = true,
};

static void elastic_described(pl_replica_t *r)
{
    pl_elastic_t *e = (pl_elastic_t *)r;
    pl_ddp_described(r);
    if (!e->ddp.on_device)
        return;
    e->sync_hooks.reduce = pl_ddp_device_sync_hooks.reduce;
    e->sync_hooks.computed = pl_ddp_device_sync_hooks.computed;
    e->sync_hooks.gradients_stay = true;
}

static int elastic_start(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    pl_elastic_t *e = self;
    pl_replica_t *r = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    r->micro.micro_shards = (uint32_t)job->trainer->micro_shards;
    e->ddp.reduce_hooks = &elastic_reduce_hooks;
    e->sync_hooks = pl_ddp_sync_hooks;
    e->sync_hooks.per_batch = true;
    e->sync_hooks.ready = NULL;
    e->sync_hooks.compute = elastic_compute;
    e->sync_hooks.collective = NULL;
    e->sync_hooks.described = elastic_described;
    e->sync_hooks.describe = pl_elastic_describe;
    e->sync_hooks.region = pl_elastic_region;
    r->sync_hooks = &e->sync_hooks;
    return pl_ddp_start(self, call, body, err);
}

static void elastic_release(void *self)
{
    pl_elastic_t *e = self;
    pl_elastic_rows_t *lists[] = {e->computed, e->spare};
    pl_free(e->rows);
    for (int k = 0; k < 2; k++)
        for (pl_elastic_rows_t *rows = lists[k], *next; rows; rows = next) {
            next = rows->next;
            pl_free(rows);
        }
}

static const pl_option_t elastic_options[] = {
    PL_CHOICE(pl_ddp_t, collective, "\"auto\"", "collective",
              "collective that moves data among the ranks"),
    PL_BOOL(pl_ddp_t, drop_last, "false",
            "training leaves out the last batch of an epoch if it is not full"),
    PL_INT(pl_elastic_t, micro_shards, "0", "0..64",
           "micro-shards of each batch, which are distributed over the ranks; 0: 12"),
    PL_OPTIONS_END,
};

static const pl_handler_t elastic_handlers[] = {
    PL_ON(start, elastic_start),
    PL_ON(process_dataloader, elastic_process_dataloader),
    PL_ON(setup, elastic_setup),
    PL_ON(train_batch, elastic_train_batch),
    PL_ON(evaluate_batch, elastic_evaluate_batch),
    PL_HANDLERS_END,
};

const pl_actor_ops_t pl_elastic_strategy = {
    .name = "elastic",
    .help = "ddp with the same bits for any number of ranks: deterministic elastic",
    .size = sizeof(pl_elastic_t),
    .options = elastic_options,
    .role = "strategy",
    .elastic = true,
    .level = PL_LEVEL_STRATEGY,
    .handlers = elastic_handlers,
    .global_batch_semantics = true,
    .base = &pl_ddp_strategy,
    .release = elastic_release,
};
