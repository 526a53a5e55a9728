/* elastic.c - data parallel whose bits do not depend on the number of ranks
 *
 * Each batch is cut into micro-shards, which the ranks share out: a batch of as many
 * samples as a rank would have is never computed, so that it does not matter how many
 * that is.  Each shard is replayed at its own shape, with random numbers of its own, and
 * begins with the same state; all that comes of it, gradients, state and figures, is
 * added up in the canonical tree over the shards.  Of that a rank makes the subtrees that
 * lie within its shards (shards.h); these travel to all ranks, and each of them adds up
 * the rest.  So the ranks only ever move bytes, whatever moves them, and the sums are
 * made by the device.
 *
 * Built upon ddp. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/run.h"
#include "strategies/elastic_parts.h"
#include "tensor/model.h"

enum { UNDER_WAY_MOST = 16 };                               /* replays */

/* ---- forward and backward of a batch ---- */

static void compute_ended(pl_elastic_t *e)
{
    e->began = false;
    pl_replica_computed(&e->ddp.replica, e->of, e->guarded, e->forward, e->seconds,
                        e->failure.code == PL_OK ? NULL : &e->failure);
}

static void compute_send(pl_elastic_t *e);

static void replayed(void *self, const pl_answer_t *answer)
{
    pl_elastic_t *e = self;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    e->back++;
    if (answer->kind == PL_ANSWER_ERROR && e->failure.code == PL_OK)
        e->failure = *answer->error;
    if (answer->kind == PL_ANSWER_REPLY) {
        e->guarded |= answer->body->replay_plan_reply.skipped;
        e->forward += answer->body->replay_plan_reply.forward;
        e->seconds += answer->body->replay_plan_reply.seconds;
    }
    compute_send(e);
    if (e->back == e->sent)
        compute_ended(e);
}

/* With the figures of a shard, which one the context says. */
static void shard_computed(void *self, const pl_answer_t *answer)
{
    pl_elastic_t *e = self;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_bytes_t figures = answer->body->replay_plan_reply.metrics;
        double *row = e->figures + (uintptr_t)answer->context * e->count;
        if (figures.size)
            memcpy(row, figures.data, figures.size);
        for (size_t k = 0; k < e->count; k++)
            row[k] += 0.0;                      /* -0 is 0 once others' zeros are added */
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
    if (!pl_call_replay_plan(e, r->accelerator, msg, how, err))
        return err->code;
    e->sent++;
    return PL_OK;
}

static int own_replay(pl_elastic_t *e, int k, const char *what, const double *scalars,
                      pl_error_t *err)
{
    pl_replay_plan_t msg = {.what = what, .fail_fast = true};
    if (scalars)
        msg.scalars = (pl_bytes_t){scalars, PL_ELASTIC_SCALARS * sizeof *scalars};
    return replay(e, pl_replica_plan_of(&e->ddp.replica, PL_PLAN_OWN, k), &msg,
                  (pl_how_t){.on_answer = replayed}, err);
}

static int fold_plan(const pl_elastic_t *e, pl_fold_t fold)
{
    int k = 0;
    while (e->fold[k].there != fold.there || e->fold[k].added != fold.added)
        k++;
    return pl_elastic_first_fold(e) + k;
}

/* One without samples gives zeros. */
static int shard_send(pl_elastic_t *e, int k, pl_error_t *err)
{
    pl_replica_t *r = &e->ddp.replica;
    const pl_batch_t *batch = (const pl_batch_t *)e->msg.batch;
    const int shard = (int)r->cut.first + k;
    const int64_t samples = pl_replica_piece(r, batch, k);
    const pl_replica_plan_t like = {.stage = PL_TRAIN, .size = {samples, batch->length}};
    const pl_replica_plan_t *plan = samples ? pl_replica_plan(r, &like, err)
                                            : pl_replica_plan_of(r, PL_PLAN_EMPTY, 0);
    const double scalars[PL_ELASTIC_SCALARS] = {
        [PL_ELASTIC_PRESENT] = samples > 0, [PL_ELASTIC_FIRST] = shard == 0};
    const pl_how_t how = {.on_answer = samples ? shard_computed : replayed,
                          .context = (void *)(uintptr_t)shard};
    pl_replay_plan_t msg = e->msg;
    msg.micro_batch = e->msg.micro_batch * r->cut.shards + (uint32_t)shard;
    msg.first = (uint64_t)(k * pl_replica_piece(r, batch, 0));
    int code = replay(e, plan, &msg, how, err);
    if (code != PL_OK)
        return code;
    const pl_fold_t fold = pl_stack_fold(&e->stack, (int)r->cut.shards, shard);
    return own_replay(e, fold_plan(e, fold), "fold", scalars, err);
}

/* Some are sent ahead, so that the device never waits. */
static void compute_send(pl_elastic_t *e)
{
    pl_replica_t *r = &e->ddp.replica;
    const int shards = (int)(r->cut.end - r->cut.first);
    pl_error_t err = {0};
    int code = e->failure.code;
    if (code == PL_OK && !e->began && r->model->state)
        code = own_replay(e, PL_ELASTIC_BEGIN, "begin", NULL, &err);
    e->began = true;
    while (code == PL_OK && e->next < shards && !e->guarded
           && e->sent - e->back < UNDER_WAY_MOST)
        code = shard_send(e, e->next++, &err);
    if (code != PL_OK && e->failure.code == PL_OK)
        e->failure = err;
}

static int figures_make(pl_elastic_t *e, pl_error_t *err)
{
    const pl_replica_t *r = &e->ddp.replica;
    if (e->figures)
        return PL_OK;
    e->count = pl_figures_before(r, 1);
    e->figures = pl_alloc_array(r->cut.shards * e->count + 1, sizeof *e->figures);
    return e->figures ? PL_OK : pl_no_memory(err);
}

static int elastic_compute(pl_replica_t *r, const pl_replay_plan_t *msg,
                           pl_objective_state_t *of, pl_error_t *err)
{
    pl_elastic_t *e = (pl_elastic_t *)r;
    if (figures_make(e, err) != PL_OK)
        return PL_ENOMEM;
    memset(e->figures, 0, r->cut.shards * e->count * sizeof *e->figures);
    e->of = of;
    e->msg = *msg;
    e->stack.count = e->sent = e->back = e->next = 0;
    e->guarded = e->began = false;
    e->forward = e->seconds = 0;
    e->failure.code = PL_OK;
    compute_send(e);
    if (e->sent)
        return PL_OK;
    *err = e->failure;
    return err->code;
}

/* ---- the ranks meet ---- */

static int elastic_give(pl_ddp_t *ddp, const pl_replica_sums_t *sums, pl_error_t *err)
{
    const pl_elastic_t *e = (const pl_elastic_t *)ddp;
    const pl_replica_t *r = &ddp->replica;
    const size_t figures = r->cut.shards * e->count;
    memcpy(pl_ddp_figures(ddp), e->figures, figures * sizeof(double));
    int code = pl_ddp_call_gather(ddp,
                                  pl_ddp_region(ddp, (pl_region_t)PL_ELASTIC_PARTS, 0),
                                  (size_t)pl_elastic_region(r, 0), ddp->dtype, err);
    if (code == PL_OK && figures)
        code = pl_ddp_call_sum(ddp, pl_ddp_board(ddp, ddp->at.figures), figures, PL_F64,
                               err);
    return code == PL_OK ? pl_ddp_sum_tail(ddp, sums, err) : code;
}

/* The loss is a step's first figure. */
static void blame(pl_elastic_t *e, const double *figures)
{
    pl_replica_t *r = &e->ddp.replica;
    int rank = 0;
    for (uint32_t k = 0; k < r->cut.shards && e->count; k++) {
        while ((int)k >= pl_first_shard((int)r->cut.shards, (int)r->ranks, rank + 1))
            rank++;
        if (isfinite(figures[k * e->count]))
            continue;
        snprintf(r->blamed, sizeof r->blamed, "rank %d: ", rank);
        return;
    }
}

static void combined(void *self, const pl_answer_t *answer)
{
    pl_elastic_t *e = self;
    if (answer->kind == PL_ANSWER_REPLY)
        pl_replica_reduced(&e->ddp.replica, NULL, e->halt);
    else if (answer->kind == PL_ANSWER_ERROR)
        pl_replica_reduced(&e->ddp.replica, answer->error, e->halt);
}

static void elastic_take(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                         const pl_error_t *failure, bool halt)
{
    (void)sums;
    pl_elastic_t *e = (pl_elastic_t *)ddp;
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    const int which = PL_ELASTIC_COMBINE + !e->is_first + 2 * !e->is_last;
    double *figures = pl_ddp_figures(ddp);
    e->halt = halt;
    if (!failure) {
        blame(e, figures);
        pl_replica_fold(&ddp->replica, figures, e->count);
        if (e->count)
            memcpy(e->told, figures, e->count * sizeof *figures);
    }
    if (failure
        || pl_replica_replay(&ddp->replica, which, "combine",
                             (pl_how_t){.on_answer = combined}, &err)
               != PL_OK)
        pl_replica_reduced(&ddp->replica, &err, halt);
}

/* Its figures go their own way. */
static int elastic_reduce(pl_replica_t *r, const pl_replica_sums_t *sums, pl_error_t *err)
{
    pl_elastic_t *e = (pl_elastic_t *)r;
    const pl_replica_sums_t others = {.step = sums->step,
                                      .number = sums->number,
                                      .has_samples = sums->has_samples};
    e->is_first = !sums->batch;
    e->is_last = sums->is_last;
    e->told = sums->figures;
    return pl_ddp_meets.reduce(r, &others, err);
}

static bool elastic_shares(const pl_ddp_t *ddp, pl_region_t region)
{
    (void)ddp;
    return (int)region == PL_ELASTIC_PARTS;
}

/* ---- calls ---- */

static int elastic_process_dataloader(void *self, pl_call_t *call, const pl_body_t *body,
                                      pl_error_t *err)
{
    (void)body, (void)err;
    const pl_ddp_t *ddp = self;
    return pl_reply_process_dataloader(
        call, &(pl_process_dataloader_reply_t){.partition = ddp->replica.rank,
                                               .partitions = ddp->replica.ranks,
                                               .micro_shards = ddp->replica.cut.shards,
                                               .even = ddp->drop_last});
}

/* Each kind of fold once. */
static void folds_find(pl_elastic_t *e)
{
    const pl_cut_t *cut = &e->ddp.replica.cut;
    pl_stack_t stack = {.count = 0};
    for (uint32_t shard = cut->first; shard < cut->end; shard++) {
        const pl_fold_t fold = pl_stack_fold(&stack, (int)cut->shards, (int)shard);
        int k = 0;
        while (k < e->folds
               && (e->fold[k].there != fold.there || e->fold[k].added != fold.added))
            k++;
        e->fold[k] = fold;
        e->folds += k == e->folds;
        e->sums_most = stack.count > e->sums_most ? stack.count : e->sums_most;
    }
}

/* The ranks have met: which shards this one has is known. */
static int elastic_setup(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    pl_elastic_t *e = self;
    pl_replica_t *r = self;
    const int shards = (int)r->cut.shards, ranks = (int)r->ranks, rank = (int)r->rank;
    if (ranks > shards)
        return pl_fail(
            err, PL_EINVAL,
            "%d ranks cannot share %d micro-shard%s, because each rank needs one: set a "
            "smaller trainer.devices or more micro_shards",
            ranks, shards, pl_plural(shards));
    r->cut.first = (uint32_t)pl_first_shard(shards, ranks, rank);
    r->cut.end = (uint32_t)pl_first_shard(shards, ranks, rank + 1);
    e->parts_most = pl_parts_most(shards, ranks);
    folds_find(e);
    e->combines =
        body->setup.accumulates
                || ((const pl_job_t *)body->setup.job)->trainer->accumulate_grad_batches
                       > 1
            ? PL_ELASTIC_COMBINES
            : 1;
    e->meets.graphs = pl_elastic_first_fold(e) + e->folds;
    return pl_replica_setup(r, call, &body->setup, err);
}

static const pl_ddp_ways_t elastic_ways = {
    .give = elastic_give,
    .take = elastic_take,
    .shares = elastic_shares,
    .keeps_state = true,
};

static int elastic_start(void *self, pl_call_t *call, const pl_body_t *body,
                         pl_error_t *err)
{
    pl_elastic_t *e = self;
    pl_replica_t *r = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    r->cut.shards = (uint32_t)job->trainer->micro_shards;
    if (pl_actor_rank(self) == 0
        && json_is_integer(pl_options_value(job->options, "trainer.micro_shards")))
        pl_log_line(PL_LOG_WARNING, 0, pl_actor_name(self),
                    "\"trainer.micro_shards\" is the older spelling: write "
                    "\"strategy\": {\"name\": \"elastic\", \"micro_shards\": %lld}",
                    (long long)job->trainer->micro_shards);
    e->ddp.ways = &elastic_ways;
    e->meets = pl_ddp_meets;
    e->meets.each_batch = true;
    e->meets.ready = NULL;
    e->meets.compute = elastic_compute;
    e->meets.exchange = NULL;
    e->meets.reduce = elastic_reduce;
    e->meets.describe = pl_elastic_describe;
    e->meets.region = pl_elastic_region;
    r->meets = &e->meets;
    return pl_ddp_start(self, call, body, err);
}

static void elastic_release(void *self)
{
    pl_free(((pl_elastic_t *)self)->figures);
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
    .plain = true,
    .base = &pl_ddp_strategy,
    .release = elastic_release,
};
