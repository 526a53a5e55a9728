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
 * Built upon ddp.  What is summed is a row: gradients and losses | how many shards had
 * samples | state. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/run.h"
#include "strategies/ddp_parts.h"
#include "strategies/collectives/tree.h"
#include "strategies/replica_rounds.h"
#include "strategies/shards.h"
#include "tensor/model.h"
#include "tensor/operators.h"
#include "tensor/precision.h"

enum { STEP = 16, UNDER_WAY_MOST = 16 };                    /* elements; replays */

/* Its own plans: before a batch; at its end, where steps have several of them for one
 * that is the first or the last, or not; behind these a fold of each kind. */
enum { BEGIN, COMBINE, COMBINES = 4 };

/* What changes from shard to shard: whether it has samples; whether it is shard 0. */
enum { SCALAR_PRESENT, SCALAR_FIRST, SCALARS };

typedef struct elastic {
    pl_ddp_t ddp;                                           /* first: it is one */
    pl_replica_meets_t meets;
    int parts_most, sums_most;                    /* of any rank; of this one at a time */
    pl_fold_t fold[PL_FOLDS_MOST];                /* that occur */
    int folds, combines;

    pl_part_of_round_t *of;                                 /* the batch under way: */
    pl_replay_plan_t msg;
    pl_stack_t stack;                                       /* of what is sent */
    int sent, back;                                         /* replays */
    bool guarded, began;
    double *figures;                                        /* [shards][count] */
    size_t count;
    pl_error_t failure;

    bool is_first, is_last;                         /* of its step; when the ranks meet */
    double *told;                                   /* where their figures go */
    bool halt;
} elastic_t;

/* ---- rows ---- */

static int64_t rounded(int64_t elements)
{
    return (elements + STEP - 1) / STEP * STEP;
}

static int64_t grads_of(const pl_replica_t *r)
{
    return r->model->params + 2 * r->steps;
}

static int64_t row_present(const pl_replica_t *r)
{
    return rounded(grads_of(r));
}

static int64_t row_state(const pl_replica_t *r)
{
    return row_present(r) + STEP;
}

static int64_t row_end(const pl_replica_t *r)
{
    return row_state(r) + rounded(r->model->state);
}

/* A row of a region: what is in it from an element on. */
typedef struct row {
    pl_region_t region;
    int64_t at;
} row_t;

/* The k-th part of a rank. */
static row_t row_of_part(const elastic_t *e, int rank, int k)
{
    const int64_t row = row_end(&e->ddp.replica);
    return (row_t){PL_REGION_PARTS, ((int64_t)rank * e->parts_most + k) * row};
}

/* Those of this rank lie where they are to travel from, as many as may be left at the
 * end. */
static row_t row_of_sum(const elastic_t *e, int k)
{
    const pl_replica_t *r = &e->ddp.replica;
    if (k < e->parts_most)
        return row_of_part(e, (int)r->rank, k);
    return (row_t){PL_REGION_PARTIAL, (k - e->parts_most) * row_end(r)};
}

static int sums_besides(const elastic_t *e)
{
    return e->sums_most > e->parts_most ? e->sums_most - e->parts_most : 0;
}

/* Gradients of the step's batches before. */
static row_t row_of_step(const elastic_t *e)
{
    return (row_t){PL_REGION_PARTIAL, sums_besides(e) * row_end(&e->ddp.replica)};
}

/* State as the batch found it. */
static int64_t state_before(const elastic_t *e)
{
    const int64_t step = e->combines > 1 ? grads_of(&e->ddp.replica) : 0;
    return row_of_step(e).at + rounded(step);
}

static int first_fold(const elastic_t *e)
{
    return COMBINE + e->combines;
}

static pl_node_t row_view(pl_graph_t *g, row_t row, int64_t from, int64_t count)
{
    return pl_region_view(g, row.region, row.at + from, PL_SHAPE(count));
}

/* ---- graphs ---- */

static pl_node_t state_view(const elastic_t *e, pl_graph_t *g, bool before)
{
    const pl_replica_t *r = &e->ddp.replica;
    return before ? row_view(g, (row_t){PL_REGION_PARTIAL, state_before(e)}, 0,
                             r->model->state)
                  : pl_region_view(g, PL_REGION_STATE, 0, PL_SHAPE(r->model->state));
}

/* A shard's own, or the sum with those before it, into the place of the first of them. */
static void fold_put(const elastic_t *e, pl_graph_t *g, pl_fold_t fold, int64_t from,
                     pl_node_t own)
{
    const int64_t count = pl_dim(g, own, 0);
    for (int k = fold.there - 1; k >= fold.there - fold.added; k--)
        own = pl_add(g, row_view(g, row_of_sum(e, k), from, count), own);
    pl_assign(g, row_view(g, row_of_sum(e, fold.there - fold.added), from, count), own);
}

/* Of a tensor that is rank zero's the first shard's counts, of others those of all that
 * had samples. */
static pl_node_t share_of(pl_graph_t *g, const pl_tensor_info_t *t)
{
    return pl_step_scalar(g, t->agree == PL_AGREE_RANK0 ? SCALAR_FIRST : SCALAR_PRESENT);
}

/* The next shard finds the state that this one has found. */
static void describe_fold(const elastic_t *e, pl_graph_t *g, pl_fold_t fold)
{
    const pl_replica_t *r = &e->ddp.replica;
    fold_put(e, g, fold, 0, pl_region_view(g, PL_REGION_GRADS, 0, PL_SHAPE(grads_of(r))));
    fold_put(e, g, fold, row_present(r),
             pl_reshape(g, pl_step_scalar(g, SCALAR_PRESENT), PL_SHAPE(1)));
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (t->region == PL_REGION_STATE)
            fold_put(e, g, fold, row_state(r) + t->offset,
                     pl_mul(g,
                            pl_region_view(g, PL_REGION_STATE, t->offset,
                                           PL_SHAPE(t->count)),
                            share_of(g, t)));
    }
    if (r->model->state)
        pl_assign(g, state_view(e, g, false), state_view(e, g, true));
}

/* Elements of a node of the tree; where it is one rank's it is there. */
static pl_node_t tree_sum(const elastic_t *e, pl_graph_t *g, pl_part_of_shards_t node,
                          int64_t from, int64_t count)
{
    const pl_replica_t *r = &e->ddp.replica;
    for (int rank = 0; rank < (int)r->ranks; rank++) {
        pl_stack_t parts;
        pl_parts_of(&parts, (int)r->cut.shards, (int)r->ranks, rank);
        for (int k = 0; k < parts.count; k++)
            if (parts.part[k].first == node.first && parts.part[k].count == node.count)
                return row_view(g, row_of_part(e, rank, k), from, count);
    }
    const int left = pl_tree_left(node.count);
    const pl_part_of_shards_t sides[] = {{node.first, left},
                                         {node.first + left, node.count - left}};
    return pl_add(g, tree_sum(e, g, sides[0], from, count),
                  tree_sum(e, g, sides[1], from, count));
}

static void describe_combine(const elastic_t *e, pl_graph_t *g, bool is_first,
                             bool is_last)
{
    const pl_replica_t *r = &e->ddp.replica;
    const pl_part_of_shards_t all = {0, (int)r->cut.shards};
    pl_node_t sum = tree_sum(e, g, all, 0, grads_of(r));
    if (!is_first)
        sum = pl_add(g, row_view(g, row_of_step(e), 0, grads_of(r)), sum);
    pl_assign(g,
              is_last ? pl_region_view(g, PL_REGION_GRADS, 0, PL_SHAPE(grads_of(r)))
                      : row_view(g, row_of_step(e), 0, grads_of(r)),
              sum);
    for (int k = 0; k < r->model->count; k++) {
        const pl_tensor_info_t *t = &r->model->tensor[k];
        if (t->region != PL_REGION_STATE)
            continue;
        sum = tree_sum(e, g, all, row_state(r) + t->offset, t->count);
        if (t->agree == PL_AGREE_MEAN)
            sum = pl_div(g, sum, tree_sum(e, g, all, row_present(r), 1));
        pl_assign(g, pl_region_view(g, PL_REGION_STATE, t->offset, PL_SHAPE(t->count)),
                  sum);
    }
}

static void describe(const elastic_t *e, pl_graph_t *g, int k)
{
    const pl_replica_t *r = &e->ddp.replica;
    if (k >= first_fold(e))
        describe_fold(e, g, e->fold[k - first_fold(e)]);
    else if (k >= COMBINE)
        describe_combine(e, g, !((k - COMBINE) & 1), !((k - COMBINE) & 2));
    else if (r->model->state)
        pl_assign(g, state_view(e, g, true), state_view(e, g, false));
}

static int run_check(const pl_replica_t *r, pl_error_t *err)
{
    if (r->steps > 1)
        return pl_fail(err, PL_EUNSUPPORTED,
                       "\"trainer.deterministic\" \"elastic\" trains modules of one "
                       "step; this one has %d",
                       r->steps);
    for (int k = 0; k < r->model->count; k++)
        if (r->model->tensor[k].region == PL_REGION_STATE
            && r->model->tensor[k].agree == PL_AGREE_NONE)
            return pl_fail(err, PL_EUNSUPPORTED,
                           "state \"%s\" is each rank's own (PL_AGREE_NONE), so what "
                           "comes of it depends on how many there are, which "
                           "\"trainer.deterministic\" \"elastic\" rules out: declare "
                           "another",
                           r->model->tensor[k].name);
    return PL_OK;
}

static pl_graph_t *elastic_describe(pl_replica_t *r, int k, pl_error_t *err)
{
    elastic_t *e = (elastic_t *)r;
    if (run_check(r, err) != PL_OK)
        return NULL;
    r->cut.parts = (int64_t)r->ranks * e->parts_most * row_end(r);
    r->cut.partial = state_before(e) + rounded(r->model->state);
    pl_graph_t *g = pl_graph_new(NULL, PL_TRAIN, NULL, 0, 1, err);
    if (!g)
        return NULL;
    describe(e, g, k);
    if (pl_graph_check(g, err) == PL_OK
        && pl_graph_cast(g, r->model->precision, err) == PL_OK)
        return g;
    pl_graph_free(g);
    return NULL;
}

/* ---- forward and backward of a batch ---- */

static void compute_ended(elastic_t *e)
{
    e->began = false;
    pl_replica_computed(&e->ddp.replica, e->of, e->guarded,
                        e->failure.code == PL_OK ? NULL : &e->failure);
}

static void compute_send(elastic_t *e);

static void replayed(void *self, const pl_answer_t *answer)
{
    elastic_t *e = self;
    if (answer->kind != PL_ANSWER_REPLY && answer->kind != PL_ANSWER_ERROR)
        return;
    e->back++;
    if (answer->kind == PL_ANSWER_ERROR && e->failure.code == PL_OK)
        e->failure = *answer->error;
    if (answer->kind == PL_ANSWER_REPLY)
        e->guarded |= answer->body->replay_plan_reply.guarded;
    compute_send(e);
    if (e->back == e->sent)
        compute_ended(e);
}

/* With the figures of a shard, which one the context says. */
static void shard_computed(void *self, const pl_answer_t *answer)
{
    elastic_t *e = self;
    if (answer->kind == PL_ANSWER_REPLY) {
        const pl_bytes_t figures = answer->body->replay_plan_reply.figures;
        double *row = e->figures + (uintptr_t)answer->context * e->count;
        if (figures.size)
            memcpy(row, figures.data, figures.size);
        for (size_t k = 0; k < e->count; k++)
            row[k] += 0.0;                      /* -0 is 0 once others' zeros are added */
    }
    replayed(self, answer);
}

static int replay(elastic_t *e, const pl_replica_plan_t *plan, pl_replay_plan_t *msg,
                  pl_how_t how, pl_error_t *err)
{
    pl_replica_t *r = &e->ddp.replica;
    if (!plan)
        return err->code;
    msg->plan = plan->number;
    msg->resumes = e->msg.resumes && !e->sent;
    if (!pl_call_replay_plan(e, r->accelerator, msg, how, err))
        return err->code;
    e->sent++;
    return PL_OK;
}

static int own_replay(elastic_t *e, int k, const char *what, const double *scalars,
                      pl_error_t *err)
{
    pl_replay_plan_t msg = {.what = what, .halts = true};
    if (scalars)
        msg.scalars = (pl_bytes_t){scalars, SCALARS * sizeof *scalars};
    return replay(e, pl_replica_plan_of(&e->ddp.replica, PL_PLAN_OWN, k), &msg,
                  (pl_how_t){.on_answer = replayed}, err);
}

static int fold_plan(const elastic_t *e, pl_fold_t fold)
{
    int k = 0;
    while (e->fold[k].there != fold.there || e->fold[k].added != fold.added)
        k++;
    return first_fold(e) + k;
}

/* One without samples gives zeros. */
static int shard_send(elastic_t *e, int k, pl_error_t *err)
{
    pl_replica_t *r = &e->ddp.replica;
    const pl_batch_t *batch = (const pl_batch_t *)e->msg.batch;
    const int shard = (int)r->cut.first + k;
    const int64_t samples = pl_replica_piece(r, batch, k);
    const pl_replica_plan_t like = {.stage = PL_TRAIN, .size = {samples, batch->length}};
    const pl_replica_plan_t *plan = samples ? pl_replica_plan(r, &like, err)
                                            : pl_replica_plan_of(r, PL_PLAN_EMPTY, 0);
    const double scalars[SCALARS] = {
        [SCALAR_PRESENT] = samples > 0, [SCALAR_FIRST] = shard == 0};
    const pl_how_t how = {.on_answer = samples ? shard_computed : replayed,
                          .context = (void *)(uintptr_t)shard};
    pl_replay_plan_t msg = e->msg;
    msg.shard = e->msg.shard * r->cut.shards + (uint32_t)shard;
    msg.first = (uint64_t)(k * pl_replica_piece(r, batch, 0));
    int code = replay(e, plan, &msg, how, err);
    if (code != PL_OK)
        return code;
    const pl_fold_t fold = pl_stack_fold(&e->stack, (int)r->cut.shards, shard);
    return own_replay(e, fold_plan(e, fold), "fold", scalars, err);
}

/* Some are sent ahead, so that the device never waits. */
static void compute_send(elastic_t *e)
{
    pl_replica_t *r = &e->ddp.replica;
    const int shards = (int)(r->cut.end - r->cut.first);
    pl_error_t err = {0};
    int code = e->failure.code;
    if (code == PL_OK && !e->began && r->model->state)
        code = own_replay(e, BEGIN, "begin", NULL, &err);
    e->began = true;
    const int before = r->model->state > 0;
    for (int k = (e->sent - before) / 2;
         code == PL_OK && k < shards && !e->guarded && e->sent - e->back < UNDER_WAY_MOST;
         k++)
        code = shard_send(e, k, &err);
    if (code != PL_OK && e->failure.code == PL_OK)
        e->failure = err;
}

static int figures_make(elastic_t *e, pl_error_t *err)
{
    const pl_replica_t *r = &e->ddp.replica;
    if (e->figures)
        return PL_OK;
    e->count = pl_figures_before(r, 1);
    e->figures = pl_alloc_array(r->cut.shards * e->count + 1, sizeof *e->figures);
    return e->figures ? PL_OK : pl_no_memory(err);
}

static int elastic_compute(pl_replica_t *r, const pl_replay_plan_t *msg,
                           pl_part_of_round_t *of, pl_error_t *err)
{
    elastic_t *e = (elastic_t *)r;
    if (figures_make(e, err) != PL_OK)
        return PL_ENOMEM;
    memset(e->figures, 0, r->cut.shards * e->count * sizeof *e->figures);
    e->of = of;
    e->msg = *msg;
    e->stack.count = e->sent = e->back = 0;
    e->guarded = e->began = false;
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
    const elastic_t *e = (const elastic_t *)ddp;
    const pl_replica_t *r = &ddp->replica;
    const size_t figures = r->cut.shards * e->count;
    memcpy(pl_ddp_figures(ddp), e->figures, figures * sizeof(double));
    int code = pl_ddp_call_gather(ddp, ddp->at.region[PL_REGION_PARTS],
                                  (size_t)r->cut.parts, ddp->dtype, err);
    if (code == PL_OK && figures)
        code = pl_ddp_call_sum(ddp, ddp->at.figures, figures, PL_F64, err);
    return code == PL_OK ? pl_ddp_sum_tail(ddp, sums, err) : code;
}

/* The loss is a step's first figure. */
static void blame(elastic_t *e, const double *figures)
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
    elastic_t *e = self;
    if (answer->kind == PL_ANSWER_REPLY)
        pl_replica_reduced(&e->ddp.replica, NULL, e->halt);
    else if (answer->kind == PL_ANSWER_ERROR)
        pl_replica_reduced(&e->ddp.replica, answer->error, e->halt);
}

static void elastic_take(pl_ddp_t *ddp, const pl_replica_sums_t *sums,
                         const pl_error_t *failure, bool halt)
{
    (void)sums;
    elastic_t *e = (elastic_t *)ddp;
    pl_error_t err = failure ? *failure : (pl_error_t){0};
    const int which = COMBINE + !e->is_first + 2 * !e->is_last;
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
    elastic_t *e = (elastic_t *)r;
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
    return region == PL_REGION_PARTS;
}

/* ---- calls ---- */

static int elastic_process_dataloader(void *self, pl_call_t *call, const pl_body_t *body,
                                      pl_error_t *err)
{
    (void)body, (void)err;
    const pl_ddp_t *ddp = self;
    return pl_reply_process_dataloader(
        call, &(pl_process_dataloader_reply_t){.part = ddp->replica.rank,
                                               .parts = ddp->replica.ranks,
                                               .shards = ddp->replica.cut.shards,
                                               .even = ddp->drop_last});
}

/* Each kind of fold once. */
static void folds_find(elastic_t *e)
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
    elastic_t *e = self;
    pl_replica_t *r = self;
    const int shards = (int)r->cut.shards, ranks = (int)r->ranks, rank = (int)r->rank;
    if (ranks > shards)
        return pl_fail(err, PL_EINVAL,
                       "%d ranks share out %d micro-shards: each must have one", ranks,
                       shards);
    r->cut.first = (uint32_t)pl_first_shard(shards, ranks, rank);
    r->cut.end = (uint32_t)pl_first_shard(shards, ranks, rank + 1);
    e->parts_most = pl_parts_most(shards, ranks);
    folds_find(e);
    e->combines =
        body->setup.accumulates
                || ((const pl_job_t *)body->setup.job)->trainer->accumulate_grad_batches
                       > 1
            ? COMBINES
            : 1;
    e->meets.graphs = first_fold(e) + e->folds;
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
    elastic_t *e = self;
    pl_replica_t *r = self;
    const pl_job_t *job = (const pl_job_t *)body->start.context;
    r->cut.shards = (uint32_t)job->trainer->micro_shards;
    e->ddp.ways = &elastic_ways;
    e->meets = pl_ddp_meets;
    e->meets.each_batch = true;
    e->meets.ready = NULL;
    e->meets.compute = elastic_compute;
    e->meets.reduce = elastic_reduce;
    e->meets.describe = elastic_describe;
    int code = pl_ddp_start(self, call, body, err);
    r->meets = &e->meets;
    return code;
}

static void elastic_release(void *self)
{
    pl_free(((elastic_t *)self)->figures);
}

static const pl_option_t elastic_options[] = {
    PL_DDP_OPTIONS,
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
    .help = "ddp whose bits do not depend on the number of ranks: deterministic elastic",
    .size = sizeof(elastic_t),
    .options = elastic_options,
    .role = "strategy",
    .elastic = true,
    .level = PL_LEVEL_STRATEGY,
    .handlers = elastic_handlers,
    .base = &pl_ddp_strategy,
    .release = elastic_release,
};
